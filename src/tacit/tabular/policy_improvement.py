"""Policy improvement by return sums, for worlds with many states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress, Queries
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.return_posterior import ImprovementConstants, ReturnEstimator, ReturnPosterior

if TYPE_CHECKING:
    from tacit.core.problem import Problem

# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17


@dataclass(frozen=True, kw_only=True)
class ImprovementOptions:
    """Options of policy improvement.

    Attributes:
        growth: by how much the users served grow from block to block.
        constants: the constants of what is asked.
    """

    growth: float = 4.0
    constants: ImprovementConstants = ImprovementConstants()  # noqa: RUF009

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, ImprovementConstants)
        if not (math.isfinite(self.growth) and self.growth > 1.0):
            raise InvalidArgument(f"growth must be above 1, got {self.growth!r}")


@dataclass(frozen=True, eq=False)
class State:
    """What releases told, and the behaviour (F, S, A) of the block that it is about."""

    known: ReturnPosterior
    behaviour: Floats


class PolicyImprovement(FiniteAlgorithm[State]):
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
    ends_greedy: ClassVar[bool] = True
    knows_admissible: ClassVar[bool] = True
    Options = ImprovementOptions
    options: ImprovementOptions
    spec: FiniteSpec

    def __init__(self, problem: Problem, options: ImprovementOptions) -> None:
        instance_of("spec", problem.spec, FiniteSpec)
        spec: FiniteSpec = problem.spec
        if problem.privacy.local or problem.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {problem.privacy!r}: "
                "a block is asked two questions, whose costs add up under Gaussian noise"
            )
        allowed = spec.allowed
        self.allowed = np.ones((spec.states, spec.actions), bool) if allowed is None else allowed
        self.estimator = ReturnEstimator(spec, self.allowed, problem.privacy, options.constants)
        super().__init__(problem, options)

    def init(self) -> State:
        """Nothing is known; users do what states allow, all alike."""
        behaviour = (self.allowed / self.allowed.sum(axis=1, keepdims=True))[np.newaxis]
        return State(self.estimator.prior(), behaviour)

    # What is asked, and what is made of it.

    def learn(
        self, state: State, plan: Plan, block: BlockInfo, rng: np.random.Generator
    ) -> Queries[State]:
        """Queries for values of the block's policy, then for advantages of single actions."""
        known, behaviour = state.known, plan.memory
        # An older policy's phases may be wider.
        behaviour = np.repeat(behaviour, max(1, len(state.behaviour) // len(behaviour)), axis=0)
        if known.informed:
            known = known.under(state.behaviour, behaviour)
        return State((yield from self.estimator.learn(known, behaviour)), behaviour)

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """Actions that may be the best; and the best ones, which serve once all was learnt.

        It leaves the behaviour of the block.
        """
        known, behaviour, phase = state.known, state.behaviour, self.estimator.phase
        if not known.informed:
            first = self.named(uniform_policy(self.spec))
            return Plan(first, first, behaviour)
        best = known.greedy(rng.random(behaviour.shape))
        greedy = self.named(Policy.deterministic(best[phase(len(best))], self.spec.actions))
        if at.releases >= self.schedule.releases:
            return Plan(greedy, greedy, behaviour)
        behaviour = self.estimator.exploring(known, self.block_users(at))
        serving = Policy.stochastic(behaviour[phase(len(behaviour))])
        return Plan(self.named(serving), greedy, behaviour)

    # When.

    def _block_sizes(self) -> BlockSizes:
        """Blocks that grow alike up to the last one, which is not to be a small rest."""
        first, growth = self.estimator.smallest_block, self.options.growth
        blocks = round(math.log(max(self.users / first, 1.0)) / math.log(growth))
        if blocks == 0:
            return BlockSizes(first=self.users)
        return BlockSizes(first=first, growth=(self.users / first) ** (1.0 / blocks))

    def data_format(self, at: Progress) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users(at) > _IN_MEMORY else "episodes"
