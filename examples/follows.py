"""An agent of your own: it follows the largest noisy rewards, which is not clever.

tacit run --world riverswim --agent examples/follows.py:Follows --epsilon 1 --delta 1e-7
tacit audit examples/follows.py:Follows --world riverswim:states=3,horizon=4 \
        --epsilon 1 --delta 1e-6 --quick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.privacy.curator import Release
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.visits import VisitCounts


@dataclass(frozen=True, kw_only=True)
class FollowsOptions:
    """What can be set, as ``follows.py:Follows:first=50``.

    Attributes:
        first: users of the first block.
    """

    first: int = 100


class Follows(FiniteAlgorithm[Floats]):
    """Follows the largest noisy rewards; what it knows is their sums, (H, S, A)."""

    name = "follows"
    Options = FollowsOptions

    def init(self) -> Floats:
        """Nobody was seen."""
        return np.zeros((self.spec.horizon, self.spec.states, self.spec.actions))

    def plan(self, state: Floats, last: Plan | None, at: Progress, rng: Any) -> Plan:
        """The policy that serves users, and the greedy one."""
        best = self.best(state, rng)
        return Plan(best, best)

    def query(self, state: Floats, plan: Plan, block: BlockInfo) -> VisitCounts:
        """What a block of users is asked."""
        return VisitCounts(self.spec.states, self.spec.actions, self.spec.horizon)

    def update(
        self, state: Floats, plan: Plan, release: Release, block: BlockInfo, rng: Any
    ) -> Floats:
        """What is known after the answer."""
        return state + release["rewards"].reshape(state.shape)

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes(first=self.options.first, growth=1.5)
