"""Policy improvement by return sums, for worlds with many states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Asks, State
from tacit.core.ways import way
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.finite.visits import VisitCounts
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise
from tacit.tabular.beliefs import BeliefConstants

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.privacy.models import Privacy

# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17
# More counts than these are never kept.
_MOST_COUNTS = 1 << 22
_WAYS = {
    "returns": "tacit.tabular.return_way:ReturnWay",
    "counts": "tacit.tabular.count_way:CountWay",
}


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
    counted: float = 20.0  # visits per cell, in units of the noise of a row, from which to count


@dataclass(frozen=True, kw_only=True)
class ImprovementOptions:
    """Options of policy improvement.

    Attributes:
        statistic: ``"returns"``, ``"counts"``, or the better one for this spec, budget and length.
        growth: by how much the users served grow from block to block.
        constants: the constants of what is asked and believed.
    """

    statistic: Literal["auto", "returns", "counts"] = "auto"
    growth: float = 4.0
    constants: ImprovementConstants = ImprovementConstants()

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, ImprovementConstants)
        if self.statistic not in ("auto", *_WAYS):
            raise InvalidArgument(
                f"statistic must be auto, returns or counts, got {self.statistic!r}"
            )
        if not (math.isfinite(self.growth) and self.growth > 1.0):
            raise InvalidArgument(f"growth must be above 1, got {self.growth!r}")


class PolicyImprovement(FiniteAlgorithm):
    """Serves what may be the best, block by block, and gives up what is surely worse.

    Idea: with many states there are far too many transitions to count, but few decisions. Learn
    what a state is worth under the policy that serves a block, then by how much each of its actions
    is better than the others, and give up actions as they are surely worse. One number per state
    and one per decision carry all of the budget; most users are served by what is best so far.

    Private statistics: :class:`~tacit.finite.return_sums.ReturnSums` of every block, twice (values,
    then advantages); or :class:`~tacit.finite.visits.VisitCounts`, once, where users are so many
    that all transitions can be counted. ``why`` says which, and by what rule.

    Guarantee: that of its curator; see ``guarantee``.

    Cost: O(S A) per release and O(H) per user; with counts O(H S^2 A) per release.
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
        self.statistic_kind, self._reason = self._choose(setting, options)
        self.way = self._made(spec, setting.privacy, options)
        super().__init__(setting, options)

    def _made(self, spec: FiniteSpec, privacy: Privacy, options: ImprovementOptions) -> Any:
        """The way to ask."""
        return way(_WAYS[self.statistic_kind])(spec, self.allowed, privacy, options.constants)

    def _choose(self, setting: Setting, options: ImprovementOptions) -> tuple[str, str]:
        """Which statistic, and why: by how often a cell will be visited, if all are alike."""
        if options.statistic != "auto":
            return options.statistic, "as asked for"
        spec: FiniteSpec = setting.spec
        S, A, H = spec.states, spec.actions, spec.horizon
        if S * A * S > _MOST_COUNTS:
            return "returns", f"{S * A * S:,} transitions are too many to count"
        counts = VisitCounts(S, A, H, pooled=True, cap=min(2, H))
        row = max(release_noise(counts, setting.privacy, 1), 1.0) * math.sqrt(S)
        visits = setting.users * H / int(self.allowed.sum())
        # Returns are the cheaper the less they can be, against what a horizon of rewards could be.
        needed = options.constants.counted * row * H * max(spec.reward_values) / spec.most_return
        few, kind = ("less", "returns") if visits < needed else ("no less", "counts")
        return kind, (
            f"{visits:.3g} visits per cell are {few} than the {needed:.3g} from which counts of "
            f"all transitions are worth their noise"
        )

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"statistic {self.statistic_kind!r}: {self._reason}; {super().why}"

    def _first_policies(self) -> tuple[Policy, Policy]:
        """What states allow, all alike."""
        first = uniform_policy(self.spec)
        return first, first

    # What is asked, and what is made of it.

    def asks(self) -> Asks:
        """Those of :class:`~tacit.tabular.return_way.ReturnWay` or the counts."""
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
        meta, arrays = self.way.state()
        return meta | {"statistic": self.statistic_kind}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`. What a predecessor asked for, its successor goes on asking for."""
        if meta["statistic"] != self.statistic_kind:
            self.statistic_kind, self._reason = meta["statistic"], "as its predecessor"
            self.way = self._made(self.spec, self.privacy, self.options)
        self.way.restore(arrays)
