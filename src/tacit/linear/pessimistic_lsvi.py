"""PessimisticLSVI: offline learning from a log, by regressions on features."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Queries, Query
from tacit.linear.estimate import SumModel, Sums
from tacit.linear.statistics import FeatureSums, need_features
from tacit.tabular.offline import OfflineAlgorithm, OfflineOptions, PlannedPolicies

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.worlds import LinearSpec


class FeaturePolicies(PlannedPolicies):
    """Policies planned in the estimated linear model."""

    algorithm: PessimisticLSVI
    learnt: Sums

    @cached_property
    def model(self) -> SumModel:
        """Regressions whose widths are scaled by ``caution``."""
        spec, sums = self.algorithm.spec, self.learnt
        return SumModel(
            self.algorithm.features,
            sums.pooled() if spec.stationary_transitions else sums,
            sums.pooled() if spec.stationary_rewards else sums,
            (self.caution, min(1.0, 2.0 * self.caution)),
        )

    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """Means less their widths."""
        means, widths = self.model.next_values(step, after[np.newaxis])
        rewards, of_rewards = self._rewards(step)
        width = np.sqrt(widths[0] ** 2 + of_rewards**2)
        return np.asarray(np.clip(rewards + means[0] - width, 0.0, left))

    def _rewards(self, step: int) -> tuple[Floats, Any]:
        known = self.algorithm.spec.known_rewards
        if known is not None:
            return known[min(step, len(known) - 1)], 0.0
        means, widths = self.model.rewards(step)
        return np.clip(means, 0.0, max(self.spec.reward_values)), widths

    def expected(self, step: int, after: Floats) -> Floats:
        """Predictions, at least 1: moments are never less."""
        means, _ = self.model.next_values(step, after[np.newaxis])
        return np.asarray(np.maximum(means[0], 1.0))


class PessimisticLSVI(OfflineAlgorithm):
    """Offline learning: pessimistic least squares near the behaviour policy, and an interval.

    Idea: as :class:`tacit.PessimisticVI`, with regressions on features in place of counts: what
    one state teaches is used in all that look alike.

    Private statistics: :class:`~tacit.linear.statistics.FeatureSums` of the first block, once,
    after :class:`~tacit.tabular.return_statistics.ActionCounts` where today's behaviour is unknown;
    :class:`~tacit.tabular.return_statistics.RobustGains` of the second block.

    Guarantee: that of its curator; see ``guarantee``. Users are in one of the two blocks.

    Deviations from the paper: PEVI of Jin, Yang and Wang (2021, "Is pessimism provably efficient
    for offline RL?") with the practical widths of :class:`tacit.LSVIUCB`, noise included, and at a
    price for leaving today's policy; what is proven of the result is its interval.

    Cost: O(H S^2 A) per plan.
    """

    name = "pessimistic_lsvi"
    policies = FeaturePolicies
    spec: LinearSpec

    def __init__(self, problem: Problem, options: OfflineOptions) -> None:
        need_features(problem.spec)
        longest = float(np.linalg.norm(problem.spec.features, axis=2).max())
        self.features: Floats = problem.spec.features / max(longest, 1.0)
        super().__init__(problem, options)

    def first_queries(self, behaviour: Floats) -> Queries[Sums]:
        """Sums of features, with the whole budget."""
        sizes, unknown = (self.features, self.spec.horizon), self.spec.known_rewards is None
        statistic = FeatureSums(*sizes, pooled=self.spec.stationary, reward=float(unknown))
        release = yield Query(statistic)
        names = ("next", "gram", "rewards")
        noises = (float(np.max(release.std.get(name, 0.0))) for name in names)
        nothing = np.zeros((statistic.rows, self.features.shape[2]))
        rewards = release.parts.get("rewards", nothing)
        return Sums(release["gram"], release["next"], rewards, *noises)
