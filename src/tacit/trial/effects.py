"""Effects with intervals, from chances that followed what was learnt.

A person's own estimate is the mean of (a - p)(r - b) / (p (1 - p)) over her decisions: each term
has the effect for its mean, whatever p depended on. For effects of features, terms are multiplied
by W f, with W the inverse root of the declared mean of f f', so that no direction is longer. A
first ball finds where people are, a second, smaller one around it gives the estimates; both are
clips, so nobody counts for more than a radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from tacit.core.algorithm import Queries, Query
from tacit.privacy.budget import Relation
from tacit.privacy.sensitivity import ball
from tacit.privacy.statistic import Block, Floats, Layout, Part
from tacit.trial.posterior import STAYED
from tacit.trial.spec import TrialSpec
from tacit.trial.statistics import CentredScores

CENTRE = 0.4  # share of the budget for the first ball
FIRST, SECOND, APART = 3.0, 1.3, 1.2  # radii, in deviations of people, and of the centre's noise
_SATURATED = 0.6  # of the second radius; the mean cannot be told beyond
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Effect:
    """An effect of action 1 against action 0 on the next reward, with its interval.

    Attributes:
        estimate: in units of rewards.
        low, high: the interval; infinite where people were outside of what could be told.
        confidence: with which it covers the mean of people's effects.
        saturated: whether that was so. Then give ``reward_scale`` a larger value.
    """

    estimate: float
    low: float
    high: float
    confidence: float = _CONFIDENCE
    saturated: bool = False


Effects: TypeAlias = tuple[Effect, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectSums(CentredScores):
    """A person's own estimates, in a ball, and their squared length.

    With u her estimates less ``centre``, over ``radius``, scaled into the unit ball, she adds
    (u, |u|^2).

    Formal guarantees:
        Sensitivity 2, and sqrt(2) against zero. For |v| = t <= |u| = s <= 1 the squared distance is
        |u - v|^2 + (s^2 - t^2)^2, largest for opposite ones: (s + t)^2 (1 + (s - t)^2), which grows
        with s, and for s = 1 is (1 + t)^2 (1 + (1 - t)^2) <= 4, with equality at t = 1. A single u
        of length 1 attains the other.
    """

    name = "effect sums"

    centre: Floats
    radius: float
    rows: Floats | None = None  # W, for effects of features; of none for the average effect

    @cached_property
    def layout(self) -> Layout:
        """``sum`` and ``squares``, in units of the radius."""
        return Layout((Part("sum", self.centre.shape), Part("squares")))

    def l2(self, relation: Relation) -> float:
        """As the class derives it."""
        return ball(math.sqrt(2.0), relation, math.sqrt(2.0))

    def vectors(self, block: Block) -> Floats:
        """Estimates of each person, and their squared length."""
        features, _, actions, chances, gains = self.decisions(block)
        made = np.isfinite(gains)
        shape = np.where(made[..., np.newaxis], 1.0 if self.rows is None else features, 0.0)
        with np.errstate(all="ignore"):
            p = np.where(made, chances[..., 1], 0.5)
            terms = np.where(made, (actions - p) * gains / (p * (1.0 - p)), 0.0)
            own = np.einsum("nh,nhd->nd", terms, shape) / np.maximum(made.sum(1), 1)[:, np.newaxis]
            own = own[:, :1] if self.rows is None else own @ self.rows
            u = (own - self.centre) / self.radius
            u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1.0)
        known = made.any(axis=1, keepdims=True) & np.isfinite(u).all(axis=1, keepdims=True)
        u = np.where(known, u, 0.0)
        return np.concatenate([u, (u * u).sum(axis=1, keepdims=True)], axis=1)


def effect_queries(spec: TrialSpec, report: float, by_feature: bool) -> Queries[Effects]:
    """Two balls, for a share of the budget, and effects that follow: of features, or on average."""
    d, low, rows = 1, spec.probabilities[0], None
    if by_feature:
        values, basis = np.linalg.eigh(spec.design if spec.gram is None else np.array(spec.gram))
        d, rows = spec.dimension, (basis / np.sqrt(np.maximum(values, 1e-6 * values[-1]))) @ basis.T
    # Usual deviation of people's own estimates, and their usual length.
    worst = 0.5 * (1.0 / (low * (1.0 - low)) + 4.0)
    spread = 0.5 * spec.reward_scale * math.sqrt(worst / (STAYED * spec.horizon))
    sizes, usual = (spec.horizon, spec.dimension, spec.actions, low), spec.usual_reward
    centre, radius = np.zeros(d), (FIRST + math.sqrt(d)) * spread
    asked = EffectSums(*sizes, usual=usual, centre=centre, radius=radius, rows=rows)
    release = yield Query(asked, share=CENTRE * report)
    people = max(release.users, 1)
    centre = radius * release["sum"] / people
    centre /= max(1.0, float(np.linalg.norm(centre)) / radius)
    error = radius * float(np.max(release.std["sum"])) / people
    near = (SECOND + math.sqrt(d)) * spread + APART * error * math.sqrt(d)
    radius = min(near, radius)
    release = yield Query(EffectSums(*sizes, usual=usual, centre=centre, radius=radius, rows=rows))
    people, noise = max(release.users, 1), float(np.max(release.std["sum"]))
    mean, noise = release["sum"] / people, noise / people
    length = max(float(mean @ mean) - (d - 1) * noise**2, 0.0)
    least = 0.25 * (spread / radius) ** 2
    variance = min(max((float(release["squares"]) / people - length) / d, least), 1.0)
    wide = radius * NormalDist().inv_cdf(0.5 + 0.5 * _CONFIDENCE)
    wide *= math.sqrt(noise**2 + variance / people)
    saturated = length > _SATURATED**2
    found, back = centre + radius * mean, np.eye(1) if rows is None else rows
    ends = zip((back @ found).tolist(), np.linalg.norm(back, axis=1).tolist(), strict=True)
    widths = [(x, math.inf if saturated else wide * size) for x, size in ends]
    return tuple(Effect(x, x - w, x + w, _CONFIDENCE, saturated) for x, w in widths)
