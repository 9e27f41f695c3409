"""What released slot sums leave open: a normal distribution over the weights of a mixture.

Users' policies and the features are public, so weights w decide what to expect of the sums:
E(w) and its derivative are found by following the distribution of states, step by step. A release
is normal around E(w), with the variance of sampling and of the noise. The prior is normal too, of
several scales, each as probable as it explains the releases; w is found by Gauss and Newton.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.sizes import Floats
from tacit.mixture.estimate import PublicFeatures

Ints = NDArray[np.int64]

_STEPS = 3
# Scales of the prior that are weighed, in those that the public radius suggests.
_SCALES = np.array([1.0, 0.7, 0.5, 0.35, 0.25])
_DERIVATIVE = 1e-4


@dataclass(frozen=True)
class SlotBlock:
    """A block's released sums, and what is public of it."""

    sums: Floats  # (L k,)
    noise: float  # standard deviation of an entry
    policies: Ints  # of its components, (M, H, S)
    users: Floats  # of each, (M,)

    @classmethod
    def of(cls, sums: Floats, noise: float, policies: Ints, users: Ints) -> SlotBlock:
        """Components that are the same policy are one."""
        unique, which = np.unique(policies, axis=0, return_inverse=True)
        of_each = np.bincount(which.reshape(-1), weights=users.astype(np.float64))
        return cls(sums, noise, unique, of_each.astype(np.float64))


@dataclass(frozen=True)
class Weights:
    """The mean of the weights, (L k,), and their covariance."""

    mean: Floats
    covariance: Floats

    def drawn(self, count: int, rng: np.random.Generator) -> Floats:
        """Weights as probable as they are, (count, L k)."""
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(len(self.mean)))
        drawn: Floats = self.mean + rng.standard_normal((count, len(self.mean))) @ root.T
        return drawn


class WeightsPosterior:
    """The distribution over weights, given all blocks."""

    def __init__(
        self, public: PublicFeatures, table: Floats, start: Floats, rewards: Floats, pooled: bool
    ) -> None:
        self._public, self._table, self._start, self._rewards = public, table, start, rewards
        self.counted = max(1, public.horizon - 1)
        self.rows = 1 if pooled else self.counted
        self.radius = public.radius * public.scale
        # As long as the radius on average, and longer in few directions.
        self._prior = self.radius / math.sqrt(public.free + 2.0)

    @property
    def size(self) -> int:
        """How many weights there are, L k."""
        return self.rows * self._public.free

    @property
    def first(self) -> Weights:
        """Before anything is known."""
        return Weights(np.zeros(self.size), self._prior**2 * np.eye(self.size))

    def drawn_before(self, count: int, rng: np.random.Generator) -> Floats:
        """Weights as long as they may be, (count, L k); every second is the opposite of another."""
        directions = rng.standard_normal(((count + 1) // 2, self.rows, self._public.free))
        directions *= self.radius / np.linalg.norm(directions, axis=-1, keepdims=True)
        both = np.stack([directions, -directions], axis=1)
        return both.reshape(-1, self.size)[:count]

    # Models.

    def _rows_of(self, weights: Floats) -> Floats:
        """Weights (..., L k) by row, (..., L, k)."""
        return weights.reshape(*weights.shape[:-1], self.rows, self._public.free)

    def _chances(self, weights: Floats, step: int) -> Floats:
        """Transitions (..., S, A, S) at a step."""
        row = self._rows_of(weights)[..., min(step, self.rows - 1), :]
        S, A, k, _ = self._public.features.shape
        turned = np.swapaxes(self._public.features, 2, 3).reshape(-1, k)
        moved = (row @ turned.T).reshape(*row.shape[:-1], S, A, S)
        P = np.maximum(self._public.mean + moved, 0.0)
        chances: Floats = P / np.maximum(P.sum(axis=-1, keepdims=True), 1e-12)
        return chances

    def values(self, weights: Floats, policy: Ints | None = None) -> tuple[Ints, Floats]:
        """Best actions (K, H, S) for each of weights (K, L k), and their values (K,).

        Or, of a policy (H, S), the same actions and their values.
        """
        H, S = self._public.horizon, len(self._public.mean)
        V, actions = np.zeros((len(weights), S)), np.zeros((len(weights), H, S), dtype=np.int64)
        for h in range(H - 1, -1, -1):
            P = self._chances(weights, h)
            Q = self._rewards[min(h, len(self._rewards) - 1)] + (P @ V[:, None, :, None])[..., 0]
            actions[:, h] = Q.argmax(axis=-1) if policy is None else policy[h]
            V = np.take_along_axis(Q, actions[:, h, :, np.newaxis], axis=-1)[..., 0]
        return actions, V @ self._start

    # Estimation.

    def given(self, blocks: Sequence[SlotBlock]) -> Weights:
        """The posterior."""
        mean, D = np.zeros(self.size), self.size
        for _ in range(_STEPS):
            information, linear = np.zeros((D, D)), np.zeros(D)
            for block in blocks:
                expected, spread, slopes = self.expected(block.policies, block.users, mean)
                precision = np.linalg.inv(spread + block.noise**2 * np.eye(D) + 1e-12 * np.eye(D))
                information += slopes.T @ precision @ slopes
                linear += slopes.T @ precision @ (block.sums - expected + slopes @ mean)
            mean, covariance = self._over_scales(information, linear)
            longest = float(np.linalg.norm(self._rows_of(mean), axis=-1).max())
            mean = mean * min(1.0, self.radius / max(longest, 1e-12))
        return Weights(mean, covariance)

    def _over_scales(self, information: Floats, linear: Floats) -> tuple[Floats, Floats]:
        """Mean and covariance over all scales of the prior, as each explains the releases."""
        eye, evidence, means, own = np.eye(self.size), [], [], []
        for scale in self._prior * _SCALES:
            own.append(np.linalg.inv(information + eye / scale**2))
            means.append(own[-1] @ linear)
            freedom = np.linalg.slogdet(eye + information * scale**2)[1]
            evidence.append(0.5 * (linear @ means[-1] - freedom))
        chances = np.exp(np.array(evidence) - max(evidence))
        chances /= chances.sum()
        mean = chances @ np.array(means)
        away = np.array(means) - mean
        covariance: Floats = np.tensordot(chances, own, axes=1) + (away.T * chances) @ away
        return mean, covariance

    def expected(
        self, policies: Ints, users: Floats, weights: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """What to expect of a block's sums: mean (D,), covariance (D, D), slopes (D, D)."""
        first, second = self._moments(policies, weights, squares=True)
        spread = np.tensordot(users, second - first[:, :, None] * first[:, None], axes=1)
        slopes, move = np.empty((self.size, self.size)), _DERIVATIVE * self.radius
        for i in range(self.size):
            moved = weights + move * (np.arange(self.size) == i)
            slopes[:, i] = users @ (self._moments(policies, moved)[0] - first) / move
        return users @ first, spread, slopes

    def _moments(
        self, policies: Ints, weights: Floats, squares: bool = False
    ) -> tuple[Floats, Floats]:
        """E[Y] and, if asked for, E[Y Y'] of a user of each policy, (M, D) and (M, D, D)."""
        M, (S, k) = len(policies), self._table.shape[2:]
        at, D = np.arange(S), self.size
        here = np.broadcast_to(self._start, (M, S))
        # E[Y so far; here], and E[Y Y'].
        sums, second = np.zeros((M, S, D)), np.zeros((M, D, D))
        for h in range(self.counted):
            row = slice(0, k) if self.rows == 1 else slice(h * k, (h + 1) * k)
            steps = self._table[at, policies[:, h]]  # (M, S, S, k)
            P = self._chances(weights, h)[at, policies[:, h]]  # (M, S, S)
            moving = P[..., np.newaxis] * steps
            if squares:
                cross = np.swapaxes(sums, 1, 2) @ moving.sum(axis=2)
                second[:, :, row] += cross
                second[:, row, :] += np.swapaxes(cross, 1, 2)
                paths = (here[..., np.newaxis, np.newaxis] * moving).reshape(M, -1, k)
                second[:, row, row] += np.swapaxes(paths, 1, 2) @ steps.reshape(M, -1, k)
            sums = np.swapaxes(P, 1, 2) @ sums
            sums[..., row] += (here[..., np.newaxis, np.newaxis] * moving).sum(axis=1)
            here = (here[:, np.newaxis] @ P)[:, 0]
        return sums.sum(axis=1), second
