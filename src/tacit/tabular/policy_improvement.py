"""Policy improvement by return sums, for worlds with many states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.return_sums import ReturnSums
from tacit.finite.spec import FiniteSpec
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise
from tacit.tabular.beliefs import BeliefConstants, Beliefs

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
    """Policy improvement on sums of what followed a state or an action.

    Idea: with many states there are far too many transitions to count, but few decisions. Learn
    what a state is worth under the policy that serves a block, then by how much each of its actions
    is better than the others, and give up actions as they are surely worse. One number per state
    and one per decision carry all of the budget; most users are served by what is best so far.

    Private statistics: :class:`~tacit.finite.return_sums.ReturnSums` of every block, twice. First
    by state: the return from a user's first visit on, and a visit, for her first states. Then by
    state and action, where a state allows several: residuals against the values just released,
    whose squares add up to about the variance of one return however long an episode is.

    Guarantee: that of its curator; see ``guarantee``.

    Cost: O(S A) per release, and O(H) per user.
    """

    name = "policy_improvement"
    deterministic: ClassVar[bool] = False
    Options = ImprovementOptions
    options: ImprovementOptions
    spec: FiniteSpec

    def __init__(self, setting: Setting, options: ImprovementOptions) -> None:
        instance_of("spec", setting.spec, FiniteSpec)
        spec: FiniteSpec = setting.spec
        allowed = spec.allowed
        self.allowed = np.ones((spec.states, spec.actions), bool) if allowed is None else allowed
        self.largest = spec.most_return
        self.beliefs = Beliefs(self.allowed, self.largest, options.constants)
        self._behaviour: Floats = self.allowed / self.allowed.sum(axis=1, keepdims=True)
        super().__init__(setting, options)

    def _check(self) -> None:
        if self.privacy.local or self.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {self.privacy!r}: "
                "every block is asked two questions, whose costs add up under Gaussian noise"
            )

    def _first_policies(self) -> tuple[Policy, Policy]:
        """What states allow, all alike."""
        first = uniform_policy(self.spec)
        return first, first

    # What is asked.

    def value_sums(self) -> ReturnSums:
        """Returns less half of the largest one, and visits, by state.

        A visit costs nothing: two users are farthest apart where they visit the same states.
        """
        R, H = self.largest, self.spec.horizon
        states = np.arange(self.spec.states)[:, np.newaxis]
        return ReturnSums(
            cells=np.where(self.allowed, states, -1),
            centre=np.full((H, self.spec.states), R / 2.0),
            first=min(self.options.constants.first, H),
            most=R / 2.0,
            weight=R / 2.0,
        )

    def advantage_sums(self, values: Floats) -> ReturnSums:
        """What followed an action, less ``values`` (S,), where there is something to decide."""
        R, H, constants = self.largest, self.spec.horizon, self.options.constants
        return ReturnSums(
            cells=self._decisions,
            centre=np.broadcast_to(values, (H, len(values))),
            trace=constants.trace,
            first=H,
            most=constants.length * R,
            length=constants.length * R,
        )

    @property
    def _decisions(self) -> Any:
        """The number of a cell where a state allows several actions, else -1."""
        open_cells = self.allowed & (self.allowed.sum(axis=1, keepdims=True) > 1)
        if not open_cells.any():
            # Nothing is to be decided anywhere: the question has one cell all the same.
            open_cells = self.allowed & (np.cumsum(self.allowed).reshape(self.allowed.shape) == 1)
        return np.where(open_cells, np.cumsum(open_cells).reshape(open_cells.shape) - 1, -1)

    def asks(self) -> Asks:
        """Values of the policy that serves the block, then advantages over them."""
        share = self.options.constants.share
        of_values = yield Ask(self.value_sums(), share=share)
        learnt = Beliefs(self.allowed, self.largest, self.options.constants)
        learnt.restore(*self.beliefs.dump())
        parts, std = of_values.parts, of_values.std
        learnt.hear_values(parts["returns"], parts["visits"], float(np.max(std["returns"])))
        of_actions = yield Ask(self.advantage_sums(learnt.values), share=1.0 - share)
        cells = self._decisions
        sums = np.where(cells >= 0, of_actions.parts["returns"][np.maximum(cells, 0)], 0.0)
        noise = float(np.max(of_actions.std["returns"]))
        learnt.hear_advantages(sums, self._behaviour, noise)
        self.beliefs = learnt

    # How it plans.

    def plan(self) -> tuple[Policy, Policy]:
        """Actions that may be the best; and the best ones, which serve once all was learnt."""
        best = self.beliefs.greedy(self.rng.random(self.allowed.shape))
        H, A = self.spec.horizon, self.spec.actions
        greedy = Policy.deterministic(np.broadcast_to(best, (H, len(best))), A, self.releases)
        if self.releases >= self.schedule.releases:
            return greedy, greedy
        new = self.beliefs.exploring(best)
        self.beliefs.follow(self._behaviour, new)
        self._behaviour = new
        return Policy.stochastic(np.broadcast_to(new, (H, *new.shape)), self.releases), greedy

    # When.

    def _pace(self) -> Pace:
        """Blocks that grow alike up to the last one, which is not to be a small rest."""
        first, growth = self._smallest_block, self.options.growth
        blocks = round(math.log(max(self.users / first, 1.0)) / math.log(growth))
        if blocks == 0:
            return Pace(first=self.users)
        return Pace(first=first, growth=(self.users / first) ** (1.0 / blocks))

    @property
    def _smallest_block(self) -> int:
        """How many users it takes for decisions to stand out of their noise."""
        constants, R = self.options.constants, self.largest
        statistic = self.advantage_sums(np.full(self.spec.states, R / 2.0))
        noise = release_noise(statistic, self.privacy, 1) / math.sqrt(1.0 - constants.share) / R
        return math.ceil(constants.block * max(noise, 0.1) * statistic.size / self.spec.horizon)

    @property
    def form(self) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users > _IN_MEMORY else "episodes"

    # Save and resume.

    def state(self) -> State:
        """What is believed, and what serves the block."""
        meta, arrays = self.beliefs.dump()
        return meta, arrays | {"behaviour": np.array(self._behaviour)}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.beliefs.restore(meta, arrays)
        self._behaviour = np.array(arrays["behaviour"], dtype=np.float64)
