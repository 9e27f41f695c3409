"""One step of policy improvement from a log, by return sums: for worlds with many states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays, Asks, State
from tacit.finite.offline import OfflineAlgorithm, OfflineOptions
from tacit.tabular.policy_improvement import ImprovementConstants
from tacit.tabular.return_way import ReturnWay

if TYPE_CHECKING:
    from tacit.core.setting import Setting


class PessimisticImprovement(OfflineAlgorithm):
    """Tilts what people do today towards actions that surely did better, and judges the result.

    Idea: a log says by how much an action was better than what people did beside it. Policies near
    today's can be judged by the same people's weighted returns, far ones cannot. So today's
    probabilities are tilted by what is believed of each action less its uncertainty, a little or
    much, and users who were not learnt from say how far it surely helps.

    Private statistics: :class:`~tacit.finite.return_sums.ReturnSums` of the first block, twice
    (values, then advantages), after :class:`~tacit.finite.action_counts.ActionCounts` where today's
    behaviour is unknown; :class:`~tacit.finite.weighted_returns.WeightedReturns` of the second.

    Guarantee: that of its curator; see ``guarantee``. Users are in one of the two blocks.

    Deviations from the paper: there is none.

    Cost: O(S A) per release, O(H K) per user who judges K policies. It serves nobody: those it
    learns from were served before, and gain nothing.
    """

    name = "pessimistic_improvement"
    way: ReturnWay

    def __init__(self, setting: Setting, options: OfflineOptions) -> None:
        super().__init__(setting, options)
        self.way = self._new_way()

    def _new_way(self) -> ReturnWay:
        return ReturnWay(self.spec, self.allowed, self.privacy, ImprovementConstants())

    def learn(self) -> Asks:
        """Values of what people do, then advantages of single actions."""
        way = self._new_way()
        way.behaviour = self.behaviour.mean(axis=0, keepdims=True)
        yield from way.asks()
        self.way = way

    # Policies.

    @property
    def scores(self) -> Floats:
        """What is believed of each action less its uncertainty, (1, S, A)."""
        beliefs = self.way.beliefs
        return beliefs.advantages - self.options.constants.caution / np.sqrt(beliefs.precision)

    def tilted(self, beta: float) -> Floats:
        """See the base."""
        return self.tilt(self.scores, beta)

    def moment(self, table: Floats) -> float:
        """As if steps were independent, by how often states are visited."""
        behaviour = self.behaviour.mean(axis=0)
        square = np.divide(
            table[0] ** 2, behaviour, out=np.zeros_like(behaviour), where=behaviour > 0
        )
        growth = np.log(np.maximum(square.sum(axis=1), 1.0))
        visits = np.maximum(self.way.beliefs.visits.sum(axis=0), 0.0) / self.schedule.blocks[0]
        return math.exp(min(float(visits @ growth), 500.0))

    def learnt_state(self) -> State:
        """What is believed."""
        return self.way.state()[0], {f"way/{n}": a for n, a in self.way.state()[1].items()}

    def restore_learnt(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`learnt_state`."""
        self.way.restore({n.removeprefix("way/"): a for n, a in arrays.items()})
