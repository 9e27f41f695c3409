"""An agent of your own: it follows the largest noisy rewards, which is not clever.

tacit run --world riverswim --agent examples/follows.py:Follows --epsilon 1 --delta 1e-6
tacit audit examples/follows.py:Follows --world riverswim:states=3,horizon=4 \
        --epsilon 1 --delta 1e-6 --quick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import Ask
from tacit.core.algorithm import Pace
from tacit.core.asks import Asks
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.visits import VisitCounts


@dataclass(frozen=True, kw_only=True)
class FollowsOptions:
    """What can be set, as ``follows.py:Follows:first=50``.

    Attributes:
        first: users of the first block.
    """

    first: int = 100


class Follows(FiniteAlgorithm):
    """Follows the largest noisy rewards."""

    name = "follows"
    Options = FollowsOptions

    def __init__(self, setting: Any, options: FollowsOptions) -> None:
        """Begins without having seen anybody."""
        spec = setting.spec
        self.sums = np.zeros((spec.horizon, spec.states, spec.actions))
        super().__init__(setting, options)

    def asks(self) -> Asks:
        """What a block of users is asked, and what becomes of the answer."""
        counts = VisitCounts(self.spec.states, self.spec.actions, self.spec.horizon)
        release = yield Ask(counts)
        self.sums = self.sums + release["rewards"].reshape(self.sums.shape)

    def plan(self) -> Any:
        """The policy that serves users, and the greedy one."""
        best = self.best(self.sums)
        return best, best

    def _pace(self) -> Pace:
        return Pace(first=self.options.first, growth=1.5)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a save has to know."""
        return {}, {"sums": self.sums}

    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        self.sums = arrays["sums"]
