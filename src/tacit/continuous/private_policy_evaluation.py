"""Private policy evaluation by Monte Carlo, and greedy improvement between evaluations.

Idea:
    After Balle, Gomrokchi and Precup (2016, "Differentially private policy evaluation"): the values
    of a policy are regressed on the returns of those who followed it, counted at first visits, and
    the regression is published with noise. They evaluate one policy. Here a few are evaluated in
    turn, each the greedy one of the evaluation before, with some uniform actions: a reconstruction,
    as Wang and Hegde (2019) compare with it.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode. The rounds are over different users,
    since returns are about the policy that was followed: each has the whole budget.
Deviations from the paper:
    Noise is on the regression's sums in place of its solution (its smooth sensitivity has no
    Gaussian form), so one accountant serves for all. Cells of a grid are its features, for which
    the regression is a ratio. Returns are means in place of sums, so that late visits are not
    counted as bad ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.continuous.base import real
from tacit.continuous.baseline import BaselineAlgorithm, BaselineOptions, default_features
from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.grid import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.reports import FirstVisits
from tacit.core.algorithm import Pace
from tacit.core.asks import Ask, Asks
from tacit.privacy.arguments import positive, whole_number
from tacit.privacy.errors import InvalidArgument

# Of the largest norm that a user's visits can have.
_RADIUS = 0.7


@dataclass(frozen=True, kw_only=True)
class PrivatePolicyEvaluationOptions(BaselineOptions):
    """Options of :class:`PrivatePolicyEvaluation`.

    Attributes:
        rounds: how many evaluations there are, each over as many users.
        epsilon: the share of uniform actions while a policy is evaluated, after the first round,
            in which all are.
        radius: c, the largest norm of a user's vector; in proportion to the visits that a user can
            make by default.
        features: a grid; states must be in a finite box for the default one.
    """

    rounds: int = 3
    epsilon: float = 0.5
    radius: float | None = None
    features: Grid | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole_number("rounds", self.rounds))
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon))
        if self.radius is not None:
            object.__setattr__(self, "radius", positive("radius", self.radius))
        if not 0.0 <= self.epsilon <= 1.0:
            raise InvalidArgument(f"epsilon must be in [0, 1], got {self.epsilon!r}")
        if self.features is not None and not isinstance(self.features, Grid):
            raise InvalidArgument(f"features must be a Grid, got {self.features!r}")


class PrivatePolicyEvaluation(BaselineAlgorithm):
    """Evaluates a policy privately, improves it, and begins again; see the module."""

    name: ClassVar[str] = "private_policy_evaluation"
    Options = PrivatePolicyEvaluationOptions
    options: PrivatePolicyEvaluationOptions
    features: Grid
    refuses: ClassVar = {"schedule": "rounds say how many releases there are"}

    # What is asked.

    def asks(self) -> Asks:
        """First visits and returns of those who followed the policy of this round."""
        release = yield Ask(self.statistic())
        # Ratios, drawn to the middle by two standard deviations of the noise.
        ridge = 1.0 + 2.0 * float(np.max(release.std["visits"]))
        self.weights = release["returns"] / (np.maximum(release["visits"], 0.0) + ridge)

    def statistic(self) -> FirstVisits:
        """First visits and returns, clipped."""
        radius = self.options.radius
        if radius is None:
            radius = _RADIUS * math.sqrt(min(self.spec.horizon, self.weights.size))
        return FirstVisits(self.spec, self.features, self.discount, radius)

    # How it goes on.

    def behaviour(self) -> QPolicy:
        """Uniform in the first round, and then the greedy policy with some uniform actions."""
        if self.all_served == 0:
            return super().behaviour()
        return QPolicy.draw(
            self.features, self.weights, self.rng, self.options.epsilon, self.releases
        )

    def _choose_features(self, spec: BoxSpec, given: FeatureMap | None) -> FeatureMap:
        if given is None and not isinstance(spec.features, Grid):
            return default_features(spec)
        return super()._choose_features(spec, given)

    def _pace(self) -> Pace:
        size = math.ceil(self.users / self.options.rounds)
        return Pace(f"fixed:size={size}", size=size)
