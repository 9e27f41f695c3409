"""Learning from a log by a model: plans near what people do, in the worst that is believed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats
from tacit.finite.offline import OfflineAlgorithm, OfflineOptions

if TYPE_CHECKING:
    from tacit.core.setting import Setting


class PlannedOffline(OfflineAlgorithm):
    """Plans backwards at a price for leaving today's policy: relative entropy, in units of R."""

    def __init__(self, setting: Setting, options: OfflineOptions) -> None:
        super().__init__(setting, options)
        self._plans: dict[float, Floats] = {}

    @abstractmethod
    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """What actions are surely worth, (S, A), if states are worth ``after`` one step later."""

    @abstractmethod
    def expected(self, step: int, after: Floats) -> Floats:
        """What is expected one step later, (S, A), as the model has it."""

    def _today_at(self, step: int) -> Floats:
        today: Floats = self.behaviour[min(step, len(self.behaviour) - 1)]
        return today

    def tilted(self, beta: float) -> Floats:
        """The best policy at a price of R / beta for each unit of relative entropy, (H, S, A)."""
        if beta not in self._plans:
            self._plans[beta] = self._plan(beta)
        return self._plans[beta]

    def _plan(self, beta: float) -> Floats:
        H, R = self.spec.horizon, self.spec.most_return
        after, table = np.zeros(self.spec.states), np.empty((H, *self.allowed.shape))
        for h in range(H - 1, -1, -1):
            left = min(R, (H - h) * max(self.spec.reward_values))
            values = self.lower_values(h, after, left)
            b = self._today_at(h)
            table[h] = self.tilt(values, beta)[min(h, len(self.behaviour) - 1)]
            # The value less its price.
            ratio = np.divide(table[h], b, out=np.ones_like(b), where=table[h] > 0)
            paid = (table[h] * (values - R / beta * np.log(ratio))).sum(axis=1)
            after = np.maximum(paid, 0.0)
        return table

    def moment(self, table: Floats) -> float:
        """In the model, from its first states on, or the worst of them if those are not known."""
        after = np.ones(self.spec.states)
        for h in range(self.spec.horizon - 1, -1, -1):
            b = self._today_at(h)
            square = np.divide(table[h] ** 2, b, out=np.zeros_like(b), where=b > 0)
            after = np.minimum((square * self.expected(h, after)).sum(axis=1), 1e100)
        start = self.spec.start
        return float(after.max() if start is None else np.array(start) @ after)
