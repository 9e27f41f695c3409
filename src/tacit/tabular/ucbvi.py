"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou).

Symbols: N(s, a, s') and R(s, a) are noisy counts of transitions and sums of rewards, n(s, a) the
sum of N over s', P and r the estimates, b the bonus. Arrays have L rows of steps: one for all
steps of a stationary world, or one per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.data.sizes import check_bytes
from tacit.privacy.sizing import users_above_noise
from tacit.privacy.validation import flag, instance_of
from tacit.tabular.algorithm import FiniteAlgorithm, OptimismOptions
from tacit.tabular.count_estimate import CountEstimate, conserved
from tacit.tabular.policy import MixedPolicy, Policy
from tacit.tabular.spec import FiniteSpec, row_of
from tacit.tabular.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release
    from tacit.tabular.count_loops import TransitionModel

# Counts have a cap, which needs users one by one, while blocks are at most so many times as large
# as the smallest that knows anything. By then the cap has done its work.
_CAPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 20


@dataclass(frozen=True)
class UCBVIConstants:
    """Constants of the practical bonus, chosen on riverswim(6, 20) and four small random worlds."""

    sampling: float = 0.25  # scale of the whole bonus
    privacy: float = 1.0  # scale of the part of it that is due to privacy noise
    range_term: float = 0.1  # scale of the term in (steps left) / n
    lowering: float = 1.0  # counts are lowered by this many standard deviations of their noise
    known: float = 0.5  # a cell is known once its count exceeds this many standard deviations
    known_unmasked: float = 2.0  # the same where counts are not masked by the policy
    growth: float = 1.15  # users served grow by at most this factor from block to block,
    blocks_per_cell: float = 1.8  # and by at most 1 + this / (states actions), but for 1.02
    first: float = 40.0  # users of the first block, in standard deviations of a count's noise
    reward_weight: float = 0.2  # squared weight of rewards against transitions in the statistic
    cap: int = 2  # how many of a user's steps in a cell count, when pooled over steps


@dataclass(frozen=True, kw_only=True)
class UCBVIOptions(OptimismOptions):
    """Options of UCBVI and UCBPO.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
        constants: the practical bonus's constants.
    """

    stationary: bool | None = None
    constants: UCBVIConstants = UCBVIConstants()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        instance_of("constants", self.constants, UCBVIConstants)


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """Facts of a plan that its update and the next plan need."""

    expected: Floats | None  # visits of a user, (L, S, A), which weigh the block's counts
    # Of policy optimisation: the stochastic policy (H, S, A), of which with privacy a draw serves.
    table: Floats | None = None


class UCBVI(FiniteAlgorithm[CountEstimate]):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.tabular.visits.VisitCounts` of every block, of what its
    policy can reach, with the whole budget.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbvi"
    max_age = 64
    spec: FiniteSpec
    options: UCBVIOptions
    Options = UCBVIOptions

    def __init__(self, problem: Problem, options: UCBVIOptions) -> None:
        instance_of("spec", problem.spec, FiniteSpec)
        spec: FiniteSpec = problem.spec
        self.stationary = spec.stationary if options.stationary is None else options.stationary
        self.shape = (spec.rows(self.stationary), spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*self.shape, spec.states))
        super().__init__(problem, options)

    # State: the weighted sum of all counts.

    def init(self) -> CountEstimate:
        """No counts."""
        return CountEstimate.empty(self.shape, plain=not self.privacy.joint)

    # Query and update: counts along the block's policy.

    def query(self, state: CountEstimate, plan: Plan, block: BlockInfo) -> VisitCounts:
        """Counts along the block's policy."""
        return self._counts(self.cap(block), plan)

    def _counts(self, cap: int | None, plan: Plan) -> VisitCounts:
        policy, actions = plan.policy if self.on_policy(plan) else None, None
        if policy is not None:
            actions = policy.tables if isinstance(policy, MixedPolicy) else policy.actions
        weight = math.sqrt(self.options.constants.reward_weight)
        return VisitCounts(
            self.spec.states,
            self.spec.actions,
            self.spec.horizon,
            pooled=self.stationary,
            cap=cap,
            # Bits cost the same whatever they weigh.
            weight=1.0 if self.privacy.reports_bits else weight,
            policy=actions,
            version=0 if policy is None else policy.version,
            apart=not self.spec.last_state,
        )

    def update(
        self,
        state: CountEstimate,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> CountEstimate:
        """The estimate with the counts of one more block.

        Args:
            state: the estimate so far.
            plan: the plan that the block's users followed.
            release: their noisy counts.
            block: how many they are.
            rng: not used.
        """
        alone = isinstance(plan.policy, Policy)
        if alone and self.on_policy(plan) and not self.stationary:
            release = conserved(release, self.spec)
        counts, expected = self.query(state, plan, block), plan.memory and plan.memory.expected
        if expected is not None:
            expected = np.minimum(expected, counts.cap or self.spec.horizon)
        return state.added(release, counts, block.users, expected)

    # Plan: estimates on the simplex, Bernstein bonuses, backward induction.

    def plan(
        self, state: CountEstimate, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The best policy of the optimistic world, and of the estimated one.

        Args:
            state: all counts so far.
            last: the plan before; ``None`` at the start.
            at: where the run stands.
            rng: decides ties.
        """
        if not state.reached.any():
            first = self.first_policy(rng)
            return Plan(first, first)
        along = last is not None and self.on_policy(last)
        model = self.model(state, along)
        _, _, optimistic, greedy = self.value_iteration(model, rng)
        return Plan(optimistic, greedy, ServedPolicy(self.expected_visits(model, optimistic)))

    def model(self, state: CountEstimate, along: bool) -> TransitionModel:
        """Estimates P and r, with lowered counts and their noise.

        ``along`` says whether counts are along the policies that served, so that empty cells are
        known.
        """
        from tacit.tabular.count_loops import TransitionModel, project

        counts, constants, S = state.counts(), self.options.constants, self.spec.states
        n = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        # Where the policy cannot tell which cells are empty, noise alone must not pass for visits.
        threshold = constants.known if along else constants.known_unmasked
        known = counts.reached & (n > threshold * spread)
        P = np.empty_like(counts.transitions)
        project(counts.transitions.reshape(-1, S), known.reshape(-1), P.reshape(-1, S))
        r = np.where(known, np.clip(counts.rewards / np.where(known, n, 1.0), 0.0, 1.0), 0.0)
        lowered = np.maximum(n - constants.lowering * spread, 1e-3)
        return TransitionModel(P, r, lowered, known, counts.noise, counts.reward_noise)

    def value_iteration(
        self, model: TransitionModel, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Policy, Policy]:
        """Optimistic values Q and bonuses b, (H, S, A), with the optimistic and greedy policies."""
        from tacit.tabular.count_loops import BonusScale, optimistic_value_iteration

        c, scale = self.options.constants, self.options.scale
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        sampling = scale * c.sampling * math.sqrt(2.0 * math.log(model.n.size / 0.05))
        width = BonusScale(sampling, c.privacy, scale * c.range_term)
        Q, b, *tables = optimistic_value_iteration(model, width, rng.random((H, S, A)))
        optimistic, greedy = (self.named(Policy.deterministic(table, A)) for table in tables)
        return Q, b, optimistic, greedy

    def expected_visits(self, model: TransitionModel, policy: Policy) -> Floats | None:
        """The policy's occupancy (L, S, A) in its own model, by which its counts are weighed."""
        if (actions := policy.actions) is None:
            return None
        P, S = model.P, self.spec.states
        here = np.full(S, 1.0 / S) if self.spec.start is None else np.array(self.spec.start)
        expected, everywhere = np.zeros(P.shape[:3]), np.arange(S)
        for h in range(self.spec.horizon):
            row = row_of(h, self.spec.horizon, len(P))
            expected[row, everywhere, actions[h]] += here
            here = here @ P[row, everywhere, actions[h]]
        return expected

    # Blocks.

    def on_policy(self, plan: Plan) -> bool:
        """Whether only what the block's policy can reach is counted."""
        return bool(plan.policy.is_deterministic)

    def mixed(self, plans: Mapping[int, Plan], users: Mapping[int, int]) -> Plan:
        """A mixed policy; or one at random, if some followed that: then all cells are counted."""
        for plan in plans.values():
            if not self.on_policy(plan):
                return Plan(plan.policy, plan.greedy)
        weights = np.array([users[version] for version in plans]) / sum(users.values())
        newest = plans[max(plans)]
        parts = [plan.policy for plan in plans.values()]
        policy = MixedPolicy(parts, weights, newest.policy.version)
        served: list[Any] = [plan.memory for plan in plans.values()]
        if any(memory is None or memory.expected is None for memory in served):
            return Plan(policy, newest.greedy)
        expected = sum(w * memory.expected for w, memory in zip(weights, served, strict=True))
        return Plan(policy, newest.greedy, ServedPolicy(expected, newest.memory.table))

    def cap(self, at: Progress) -> int | None:
        """How many of a user's steps in a cell count in the next block; ``None`` for all."""
        if not self.stationary or not self.privacy.private:
            return None
        largest = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        if largest > min(_CAPPED_UP_TO * self._smallest_block, _ONE_BY_ONE):
            return None
        return min(self.options.constants.cap, self.spec.horizon)

    def data_format(self, at: Progress) -> Literal["episodes", "counts", "pooled"]:
        """Episodes where users are counted one by one, or rewards rounded to bits; else sums."""
        fractions = not set(self.spec.reward_values) <= {0.0, 1.0}
        if self.cap(at) is not None or (self.privacy.reports_bits and fractions):
            return "episodes"
        return "pooled" if self.stationary and self.spec.last_state else "counts"

    @property
    def why(self) -> str:
        """The choices made for this budget and length, in words."""
        how = "each block is released once, with its whole budget, for what its policy can reach"
        return f"{super().why}; {how}"

    def _block_sizes(self) -> BlockSizes:
        # What one block shows decides where the next one looks, so more cells need more blocks.
        cells, constants = self.spec.states * self.spec.actions, self.options.constants
        growth = min(constants.growth, max(1.02, 1.0 + constants.blocks_per_cell / cells))
        return BlockSizes(first=self._smallest_block, growth=growth)

    @cached_property
    def _smallest_block(self) -> int:
        """Users that a block needs to stand out of its noise, by the noise of one count."""
        constants = self.options.constants
        cap = min(constants.cap, self.spec.horizon) if self.stationary else None
        first = Plan(self.first_policy(self.problem.rng()), None)
        return users_above_noise(self._counts(cap, first), self.privacy, constants.first)
