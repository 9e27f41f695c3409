"""One step of policy improvement from a log, by return sums: for worlds with many states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats, Queries
from tacit.tabular.offline import OfflineAlgorithm, OfflineOptions, TiltedPolicies
from tacit.tabular.policy_improvement import ReturnEstimator, ReturnPosterior

if TYPE_CHECKING:
    from tacit.core.problem import Problem


class AdvantagePolicies(TiltedPolicies):
    """Today's policy, tilted by what is believed of each action less its uncertainty."""

    learnt: ReturnPosterior

    def tilted(self, beta: float) -> Floats:
        """The same at all steps, if today's policy is."""
        known = self.learnt
        return self.tilt(known.advantages - self.caution / np.sqrt(known.precision), beta)

    def moment(self, table: Floats) -> float:
        """As if steps were independent, by how often states are visited."""
        behaviour = self.behaviour.mean(axis=0)
        square = np.divide(
            table[0] ** 2, behaviour, out=np.zeros_like(behaviour), where=behaviour > 0
        )
        growth = np.log(np.maximum(square.sum(axis=1), 1.0))
        users = self.algorithm.schedule.blocks[0]
        visits = np.maximum(self.learnt.visits.sum(axis=0), 0.0) / users
        return math.exp(min(float(visits @ growth), 500.0))


class PessimisticImprovement(OfflineAlgorithm):
    """Tilts what people do today towards actions that surely did better, and judges the result.

    Idea: a log says by how much an action was better than what people did beside it. Policies near
    today's can be judged by the same people's weighted returns, far ones cannot. So today's
    probabilities are tilted by what is believed of each action less its uncertainty, a little or
    much, and users who were not learnt from say how far it surely helps.

    Private statistics: :class:`~tacit.tabular.return_statistics.ReturnSums` of the first block,
    twice (values, then advantages), after
    :class:`~tacit.tabular.return_statistics.ActionCounts` where today's behaviour is unknown;
    :class:`~tacit.tabular.return_statistics.RobustGains` of the second.

    Guarantee: that of its curator; see ``guarantee``. Users are in one of the two blocks.

    Deviations from the paper: there is none.

    Cost: O(S A) per release, O(H K) per user who judges K policies. It serves no users: those it
    learns from were served before.
    """

    name = "pessimistic_improvement"
    policies = AdvantagePolicies

    def __init__(self, problem: Problem, options: OfflineOptions) -> None:
        super().__init__(problem, options)
        self.estimator = ReturnEstimator(self.spec, self.allowed, self.privacy)

    def first_queries(self, behaviour: Floats) -> Queries[ReturnPosterior]:
        """Values of what people do, then advantages of single actions."""
        return self.estimator.learn(self.estimator.prior(), behaviour.mean(axis=0, keepdims=True))
