"""The size of a trial before it begins: the score that so many people allow, and who is needed.

An effect of size e, of either sign in each of d contexts, with rewards of deviation s, moves sums
of unit scores by N sqrt(S_j) (e / s) / d / sqrt(1 + S_j (e / s)^2 / d) at look j, where S_j is the
variance of a person's actions until then; the noise and the overlap of looks are as in
:mod:`.posterior`. With z the effect over its deviation, the share of what the best policy gains is
2 Phi(z) - 1. People whose effects differ and histories that end early leave .92 of z (measured).
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from tacit.core.arms import RAISED, Arms
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.validation import positive, whole_number
from tacit.tabular.holdout import look_levels
from tacit.trial.posterior import STAYED, overlap_of
from tacit.trial.spec import TrialSpec

_MOST = 10**7
_LEFT = 0.92


@dataclass(frozen=True)
class TrialForecast:
    """A forecast of :func:`plan_trial`.

    Attributes:
        people: how many take part.
        score: of the final policy: 0 for fair draws, 1 for the best.
        without_privacy: the same without noise: no private method does better by this statistic.
        needed: people for a score of .8; ``None`` beyond ten million.
    """

    people: int
    score: float
    without_privacy: float
    needed: int | None

    def __str__(self) -> str:
        needed = "more than ten million" if self.needed is None else f"{self.needed:,}"
        return (
            f"{self.people:,} people: score {self.score:.2f} of the final policy (without privacy "
            f"{self.without_privacy:.2f}); {needed} people are needed for .80"
        )


def plan_trial(
    spec: TrialSpec,
    people: int,
    effect: float,
    privacy: Privacy,
    *,
    deviation: float = 0.5,
    stayed: float = STAYED,
) -> TrialForecast:
    """Forecast of a trial of two actions.

    Args:
        spec: Of the trial.
        people: How many take part.
        effect: In units of rewards, of either sign from context to context.
        privacy: The budget of a person, for all looks.
        deviation: Of rewards.
        stayed: Share of the planned decisions that people make.

    >>> from tacit import JointDP
    >>> once = TrialSpec(140, 8, probabilities=(0.5, 0.5), looks=(1.0,))
    >>> print(plan_trial(once, 120, 0.1, JointDP(1.0, 1e-6)))
    120 people: score 0.87 of the final policy (without privacy 1.00); 101 people are needed for .80
    """
    if spec.actions > 2:
        raise InvalidArgument("plans are for two actions")
    number, size = whole_number("people", people), positive("effect", effect)
    mu = float(privacy.budget.mu) if privacy.private else math.inf
    ratio = size / positive("deviation", deviation)

    def score(n: int, mu: float) -> float:
        return _score(spec, n, ratio, mu, stayed)

    fewer = bisect.bisect_left(range(1, _MOST), 0.8, key=lambda n: score(n, mu))
    needed = fewer + 1 if fewer + 1 < _MOST else None
    return TrialForecast(number, score(number, mu), score(number, math.inf), needed)


def _score(spec: TrialSpec, people: int, ratio: float, mu: float, stayed: float) -> float:
    """Score of the final policy, for an effect of ``ratio`` deviations of rewards."""
    d, looks, low = spec.dimension, len(spec.edges), spec.probabilities[0]
    # The first look is by fair draws, later ones approach the ends of the range.
    later = 0.5 * (0.25 + low * (1.0 - low))
    edges = np.array((0, *spec.edges), dtype=np.float64)
    spread = np.where(np.arange(looks) == 0, 0.25, later)
    information = stayed * np.cumsum(np.diff(edges) * spread)
    reach = np.sqrt(information)
    slope = people * reach / d / np.sqrt(1.0 + information * ratio**2 / d)
    noise = 0.0 if math.isinf(mu) else 4.0 * looks / mu**2
    covariance = overlap_of(reach, np.full(looks, float(people))) / d + noise * np.eye(looks)
    precision = float(slope @ np.linalg.solve(covariance + 1e-9 * np.eye(looks), slope))
    z = _LEFT * ratio * math.sqrt(max(precision, 0.0))
    return math.erf(z / math.sqrt(2.0))


def power(arms: Arms, difference: float, users: int, privacy: Any, blocks: int = 8) -> float:
    """Chance that the trial of one policy finds it better than the baseline at some look.

    Args:
        arms: Its options. ``returns``, and the difference, are in standard deviations of returns
            from their mean: noise is in proportion to the longer side.
        difference: Of the two policies.
        users: How many take part: those who are not held out follow the policy.
        privacy: Their budget.
        blocks: Releases, of equally many users: each adds noise.
    """
    low, high = np.array(arms.ends(None)) - (1.0 - arms.holdout) * difference  # from all people's
    mu = math.sqrt(arms.share) * float(privacy.budget.mu) if privacy.private else math.inf
    noise, part = 2.0 / mu, users / blocks * np.array([arms.holdout, 1.0 - arms.holdout])
    centre = np.where(np.arange(blocks), 0.0, (low + high) / 2.0)  # the first block knows no better
    radius = np.maximum(high - centre, centre - low)
    each = (1.0 + centre**2) * (1.0 / part).sum() + (radius * noise) ** 2 * (part**-2.0).sum()
    told = each + RAISED * noise * radius**2 * (part**-2.0).sum()  # as looks estimate it
    weights, sums = radius**-2.0, np.cumsum(radius**-2.0)
    errors = np.random.default_rng(0).standard_normal((20_000, blocks)) * np.sqrt(each)
    path, spread = np.cumsum(errors * weights, axis=1), np.sqrt(np.cumsum(told * weights**2))
    at = np.ceil(np.array(arms.looks) * blocks - 1e-9).astype(int) - 1
    bounds = -ndtri(np.array(look_levels(arms)) / 2.0) * spread[at]
    return float((difference * sums[at] + path[:, at] > bounds).any(axis=1).mean())
