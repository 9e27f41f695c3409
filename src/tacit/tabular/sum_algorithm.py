"""Algorithms that ask every user once, for sums over users."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.core.algorithm import BlockInfo, BlockSizes, Plan, Progress, S
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.validation import flag, positive
from tacit.tabular.algorithm import FiniteAlgorithm, OptimismOptions

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class SumOptions(OptimismOptions):
    """Options of algorithms that regress on sums over all users.

    Attributes:
        stationary: one transition model for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
    """

    stationary: bool | None = None
    growth: float = 1.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        if positive("growth", self.growth) <= 1.0:
            raise InvalidArgument(f"growth must be > 1, got {self.growth!r}")


class SumAlgorithm(FiniteAlgorithm[S]):
    """An algorithm that asks every user once, for sums or for counts along the block's policy."""

    options: Any
    statistic_kind: str
    _reason: str  # of the choice of this kind

    @property
    def _multiple(self) -> float:
        """Users of the first block, in standard deviations of a sum's noise."""
        return 4.0

    @abstractmethod
    def statistic(self, plan: Plan, one_by_one: bool) -> Any:
        """Statistic of the users of a plan, who may be summed one by one."""

    def query(self, state: S, plan: Plan, block: BlockInfo) -> Any:
        """The statistic, once, with the whole budget."""
        return self.statistic(plan, self.one_by_one(block))

    def on_policy(self, plan: Plan) -> bool:
        """Whether counts are of those who followed the block's own policy."""
        return self.statistic_kind == "counts"

    @property
    def why(self) -> str:
        """The choices made for this world, budget and length, in words."""
        return f"statistic {self.statistic_kind!r}: {self._reason}; {super().why}"

    def one_by_one(self, at: Progress) -> bool:
        """Whether the users of the next block are summed one by one."""
        users = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        few = _CLIPPED_UP_TO * self._smallest_block
        return self.privacy.private and users <= min(few, _ONE_BY_ONE)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        first = self.plan(self.init(), None, Progress(), self.problem.rng())
        return users_above_noise(self.statistic(first, True), self.privacy, self._multiple)

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes(first=self._smallest_block, growth=self.options.growth)

    def _check(self) -> None:
        if self.statistic_kind != "counts" and self.privacy.needs_l1:
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0, and the "
                "Gaussian mechanism under LocalDP"
            )
