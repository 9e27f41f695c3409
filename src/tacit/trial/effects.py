"""Average effects with intervals, from chances that followed what was learnt.

A person's own estimate is the mean of (a - p)(r - b) / (p (1 - p)) over her decisions: each term
has the effect for its mean, whatever p depended on. A first ball finds where people are, a second,
smaller one around it gives the estimate; both are clips, so nobody counts for more than a radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.curator import Release
from tacit.privacy.sensitivity import ball
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic
from tacit.trial.posterior import STAYED
from tacit.trial.statistics import read_decisions

CENTRE = 0.4  # share of the budget for the first ball
FIRST, SECOND, APART = 4.0, 2.3, 1.2  # radii, in deviations of people, and of the centre's noise
_SATURATED = 0.6  # of the second radius; the mean cannot be told beyond
_PRIOR = 5.0  # decisions that the guess of a reward counts for


@dataclass(frozen=True)
class Effect:
    """An average effect of action 1 against action 0 on the next reward, with its interval.

    Attributes:
        estimate: in units of rewards.
        low, high: the interval; infinite where people were outside of what could be told.
        confidence: with which it covers the mean of people's effects.
        saturated: whether that was so. Then give ``reward_scale`` a larger value.
    """

    estimate: float
    low: float
    high: float
    confidence: float = 0.95
    saturated: bool = False


@dataclass(frozen=True, eq=False)
class EffectSums(Statistic):
    """A person's own estimate of the effect, in a ball, and its square.

    With u her estimate less ``centre``, over ``radius``, cut to [-1, 1], she adds (u, u^2).

    Formal guarantees:
        Sensitivity 2, and sqrt(2) against zero. For u, v with d = |u - v| it is
        |u + v| <= 2 - d, so the squared distance d^2 (1 + (u + v)^2) is at most
        d^2 (1 + (2 - d)^2), whose root grows with d: its slope has the sign of
        2 d^2 - 6 d + 5 > 0. At d = 2 it is 4, attained by u = 1, v = -1; u = 1 attains the other.
    """

    name = "effect sums"

    horizon: int
    dimension: int
    low: float  # least chance of an action
    usual: float
    centre: float
    radius: float
    actions: int = 2
    linear: bool = True
    table: Floats | None = None

    @cached_property
    def layout(self) -> Layout:
        """``sum`` and ``squares``, in units of the radius."""
        return Layout((Part("sum"), Part("squares")))

    def l2(self, relation: Relation) -> float:
        """As the class derives it."""
        return ball(math.sqrt(2.0), relation, math.sqrt(2.0))

    def vectors(self, block: Block) -> Floats:
        """One estimate per person, and its square."""
        _, cells, actions, rewards, chances, lengths = read_decisions(self, block)
        steps = np.arange(self.horizon) < np.clip(lengths, 0, self.horizon)[:, np.newaxis]
        made = steps & (cells >= 0) & (actions >= 0) & (actions < 2)
        made &= np.isfinite(rewards) & (chances[..., 0] > 0.0)
        with np.errstate(all="ignore"):
            heard, p = np.where(made, rewards, 0.0), np.where(made, chances[..., 1], 0.5)
            before = np.cumsum(heard, axis=1) - heard
            count = np.cumsum(made, axis=1) - made
            base = (_PRIOR * self.usual + before) / (_PRIOR + count)
            terms = np.where(made, (actions - p) * (heard - base) / (p * (1.0 - p)), 0.0)
            own = terms.sum(axis=1) / np.maximum(made.sum(axis=1), 1)
            u = np.clip((own - self.centre) / self.radius, -1.0, 1.0)
        u = np.where(made.any(axis=1) & np.isfinite(own), u, 0.0)
        return np.stack([u, u * u], axis=1)


@dataclass(frozen=True)
class EffectBalls:
    """Radii of both balls, and the interval of the second."""

    horizon: int
    low: float
    scale: float  # of rewards, from the least to the largest

    @property
    def spread(self) -> float:
        """Usual deviation of people's own estimates."""
        worst = 0.5 * (1.0 / (self.low * (1.0 - self.low)) + 4.0)
        return 0.5 * self.scale * math.sqrt(worst / (STAYED * self.horizon))

    @property
    def first(self) -> float:
        """Radius of the first ball, around zero."""
        return FIRST * self.spread

    def second(self, release: Release) -> tuple[float, float]:
        """Centre and radius of the second ball."""
        people = max(release.users, 1)
        centre = self.first * float(np.clip(release["sum"] / people, -1.0, 1.0))
        error = self.first * float(np.max(release.std["sum"])) / people
        return centre, min(SECOND * self.spread + APART * error, self.first)

    def effect(
        self, release: Release, centre: float, radius: float, confidence: float = 0.95
    ) -> Effect:
        """The estimate of the second ball, with noise and sampling in its interval.

        Args:
            release: Of the second ball.
            centre: Of it.
            radius: Of it.
            confidence: With which the interval covers.
        """
        people, noise = max(release.users, 1), float(np.max(release.std["sum"]))
        mean, square = float(release["sum"]) / people, float(release["squares"]) / people
        least = 0.25 * (self.spread / radius) ** 2
        variance = min(max(square - mean * mean, least), 1.0)
        error = math.sqrt((noise / people) ** 2 + variance / people)
        estimate = centre + radius * mean
        if abs(mean) > _SATURATED:
            return Effect(estimate, -math.inf, math.inf, confidence, True)
        width = radius * NormalDist().inv_cdf(0.5 + 0.5 * confidence) * error
        return Effect(estimate, estimate - width, estimate + width, confidence)
