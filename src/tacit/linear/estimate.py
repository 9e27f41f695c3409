"""What releases say about the world: what the regressions on all statistics have in common.

Planning asks a :class:`LinearModel` two things of a step: the mean reward of every state and
action, and the expected next value of every one for some value functions, each with a width. A
noise whose size is known enters the ridge and the widths.

A next value is predicted around the middle c of the values' range: P V = c + P (V - c), because
probabilities add up to 1. That halves what must be learnt, and what noise it meets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tacit.core.sizes import Floats

REWARD_VARIANCE = 0.25
"""Rewards in [0, 1] have at most this variance."""


class LinearModel(Protocol):
    """What is known of a world."""

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values (k, S, A) of (k, S), and widths."""

    def precision(self) -> Floats:
        """Precision matrices (L, d, d): how well each direction of features is known."""


@dataclass(frozen=True)
class Sums:
    """Noisy feature sums and the standard deviations of their noise."""

    gram: Floats  # (L, d, d)
    following: Floats  # (L, d, S)
    rewards: Floats  # (L, d)
    noise: float  # of an entry of ``following``
    gram_noise: float  # on the diagonal of ``gram``
    reward_noise: float  # and of an entry of ``rewards``

    def pooled(self) -> Sums:
        """Summed over steps."""
        if len(self.gram) == 1:
            return self
        arrays = (self.gram, self.following, self.rewards)
        gram, following, rewards = (array.sum(axis=0, keepdims=True) for array in arrays)
        noises = (self.noise, self.gram_noise, self.reward_noise)
        return Sums(gram, following, rewards, *(math.sqrt(len(self.gram)) * n for n in noises))


@dataclass(frozen=True)
class LinearWidths:
    """How widths are made."""

    scale: float  # multiplies what widths owe to sampling and noise
    bias: float  # and what they owe to the ridge, which draws what is unknown to the middle

    def practical(self, squares: Floats, of_ridge: Floats) -> Floats:
        """Widths from variances by sampling and noise, and by what the ridge hides."""
        widths: Floats = np.sqrt(self.scale**2 * squares + self.bias**2 * of_ridge)
        return widths


def middle_of(value: Floats) -> tuple[float, float]:
    """The middle of a value function's range, and half of that range (never zero)."""
    low, high = float(value.min()), float(value.max())
    return (low + high) / 2.0, max((high - low) / 2.0, 1e-9)


def spread_of(centred: Floats, half: float) -> float:
    """A guess at the variance of a next value: over all states, or the largest possible of two."""
    return half**2 if len(centred) <= 2 else float((centred**2).mean()) + 1e-18


def distributions(rows: Floats) -> Floats:
    """The nearest distributions to rows that should be some."""
    from tacit.numerics.projection import project

    S = rows.shape[1]
    level = rows + (1.0 - rows.sum(axis=1, keepdims=True)) / S
    out: Floats = np.empty(level.shape)
    project(np.ascontiguousarray(level), np.ones(len(level), dtype=bool), out)
    return out
