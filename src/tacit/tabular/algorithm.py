"""What algorithms for finite worlds share: policies that are tables of states and actions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tacit.core.algorithm import Algorithm, BlockInfo, BlockSizes, Floats, Plan, Progress, S
from tacit.privacy.arguments import flag, instance_of, positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise
from tacit.tabular.policy import MixedPolicy, Policy

if TYPE_CHECKING:
    from tacit.core.problem import Problem


P = TypeVar("P", Policy, MixedPolicy)


# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8


_ONE_BY_ONE = 1 << 18


class FiniteAlgorithm(Algorithm[S]):
    """An algorithm whose policies are tables."""

    knows_admissible: ClassVar[bool] = False
    """Whether it chooses only what states allow; others are for specs that allow everything."""

    def __init__(self, problem: Problem, options: Any) -> None:
        if getattr(problem.spec, "admissible", None) is not None and not self.knows_admissible:
            raise InvalidArgument(
                f"{self.name} counts and plans with all actions, but the spec has admissible ones: "
                "policy_improvement knows of them"
            )
        super().__init__(problem, options)

    def first_policy(self, rng: np.random.Generator) -> Policy:
        """Before anything is known: random actions, drawn once."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        return self.named(Policy.deterministic(rng.integers(0, A, (H, S)), A))

    def best(self, q_values: Floats, rng: np.random.Generator) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        ties = np.where(
            q_values == q_values.max(axis=-1, keepdims=True), rng.random(q_values.shape), -1.0
        )
        return self.named(Policy.deterministic(ties.argmax(axis=-1), self.spec.actions))

    def named(self, policy: P) -> P:
        """The policy with the spec's labels, if it has any."""
        labels = [getattr(self.spec, f"{part}_labels", None) for part in ("state", "action")]
        return policy if labels == [None, None] else policy.labelled(*labels)


@dataclass(frozen=True, kw_only=True)
class OptimismOptions:
    """How optimistic an algorithm is.

    Attributes:
        scale: multiplies the bonus.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    def _settle(self, constants: type[Any]) -> None:
        """What options of families have in common: ``stationary`` and constants."""
        given: Any = vars(self)
        if given["stationary"] is not None:
            object.__setattr__(self, "stationary", flag("stationary", given["stationary"]))
        if given["constants"] is None:
            object.__setattr__(self, "constants", constants())
        instance_of("constants", vars(self)["constants"], constants)


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
        """What users of a plan are asked, who may be summed one by one."""

    def query(self, state: S, plan: Plan, block: BlockInfo) -> Any:
        """The statistic, once, with the whole budget."""
        return self.statistic(plan, self.one_by_one(block))

    def on_policy(self, plan: Plan) -> bool:
        """Whether counts are of those who followed the block's own policy."""
        return self.statistic_kind == "counts"

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
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
