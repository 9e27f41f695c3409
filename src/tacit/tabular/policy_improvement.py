"""Policy improvement by return sums, for worlds with many states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Asks, State
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.beliefs import BeliefConstants
from tacit.tabular.return_way import ReturnWay

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17


@dataclass(frozen=True)
class ImprovementConstants(BeliefConstants):
    """Constants of what is asked, chosen as those of beliefs were."""

    first: int = 10  # a user's first states that tell about values
    share: float = 0.25  # of the budget that goes to values; the rest goes to advantages
    trace: float = 0.5  # how much of later residuals an advantage has
    length: float = 0.35  # of all of a user's residuals, at most, in units of the largest return
    block: float = 60.0  # size of the first block, in units of noise over visits per user and cell
    phases: int = 8  # of a horizon, at most
    phased: float = 8.0  # smallest blocks, times the square of the phases, that a block needs


@dataclass(frozen=True, kw_only=True)
class ImprovementOptions:
    """Options of policy improvement.

    Attributes:
        growth: by how much the users served grow from block to block.
        constants: the constants of what is asked and believed.
    """

    growth: float = 4.0
    constants: ImprovementConstants = ImprovementConstants()

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, ImprovementConstants)
        if not (math.isfinite(self.growth) and self.growth > 1.0):
            raise InvalidArgument(f"growth must be above 1, got {self.growth!r}")


class PolicyImprovement(FiniteAlgorithm):
    """Serves what may be the best, block by block, and gives up what is surely worse.

    Idea: with many states there are far too many transitions to count, but few decisions. Learn
    what a state is worth under the policy that serves a block, then by how much each of its actions
    is better than the others, and give up actions as they are surely worse. One number per state
    and one per decision carry all of the budget; most users are served by what is best so far.

    Private statistics: :class:`~tacit.finite.return_sums.ReturnSums` of every block, twice (values,
    then advantages).

    Guarantee: that of its curator; see ``guarantee``.

    Cost: O(S A) per release and O(H) per user.
    """

    name = "policy_improvement"
    deterministic: ClassVar[bool] = False
    ends_greedy: ClassVar[bool] = True
    knows_admissible: ClassVar[bool] = True
    Options = ImprovementOptions
    options: ImprovementOptions
    spec: FiniteSpec

    def __init__(self, setting: Setting, options: ImprovementOptions) -> None:
        instance_of("spec", setting.spec, FiniteSpec)
        spec: FiniteSpec = setting.spec
        if setting.privacy.local or setting.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {setting.privacy!r}: "
                "a block is asked two questions, whose costs add up under Gaussian noise"
            )
        allowed = spec.allowed
        self.allowed = np.ones((spec.states, spec.actions), bool) if allowed is None else allowed
        self.way = ReturnWay(spec, self.allowed, setting.privacy, options.constants)
        super().__init__(setting, options)

    def _first_policies(self) -> tuple[Policy, Policy]:
        """What states allow, all alike."""
        first = uniform_policy(self.spec)
        return first, first

    # What is asked, and what is made of it.

    def asks(self) -> Asks:
        """Those of :class:`~tacit.tabular.return_way.ReturnWay`."""
        yield from self.way.asks()

    def plan(self) -> tuple[Policy, Policy]:
        """Actions that may be the best; and the best ones, which serve once all was learnt."""
        best = self.way.best(self.rng)
        greedy = Policy.deterministic(best, self.spec.actions, self.releases)
        if self.releases >= self.schedule.releases:
            return greedy, greedy
        return Policy.stochastic(self.way.exploring(self.block_users), self.releases), greedy

    # When.

    def _pace(self) -> Pace:
        """Blocks that grow alike up to the last one, which is not to be a small rest."""
        first, growth = self.way.smallest_block, self.options.growth
        blocks = round(math.log(max(self.users / first, 1.0)) / math.log(growth))
        if blocks == 0:
            return Pace(first=self.users)
        return Pace(first=first, growth=(self.users / first) ** (1.0 / blocks))

    @property
    def form(self) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users > _IN_MEMORY else "episodes"

    # Save and resume.

    def state(self) -> State:
        """What the way knows."""
        return self.way.state()

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.way.restore(arrays)
