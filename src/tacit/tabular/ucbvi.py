"""UCBVI: optimistic value iteration on private counts (Private-UCB-VI of Chowdhury and Zhou).

Symbols: N(s, a, s') and R(s, a) are noisy counts of transitions and sums of rewards, n(s, a) the
sum of N over s', P and r the estimates, b the bonus. Arrays have L rows of steps: one for all
steps of a stationary world, or one per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.validation import flag
from tacit.tabular.algorithm import CountingAlgorithm, OptimismOptions
from tacit.tabular.count_estimate import CountEstimate, conserved
from tacit.tabular.policy import MixedPolicy, Policy, occupancy
from tacit.tabular.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.privacy.curator import Release
    from tacit.tabular.count_loops import TransitionModel

# Constants were chosen on riverswim(6, 20) and four small random worlds.
SAMPLING = 0.25  # scale of the bonus
RANGE_TERM = 0.1  # scale of the term in (steps left) / n
KNOWN = 0.5  # a cell is known once its count exceeds so many standard deviations of its noise;
KNOWN_UNMASKED = 2.0  # the same where counts are not masked by the policy
GROWTH = 1.15  # users served grow by at most this factor from block to block,
BLOCKS_PER_CELL = 1.8  # and by at most 1 + this / (states actions), but for 1.02
FIRST = 40.0  # users of the first block, in standard deviations of a count's noise
REWARD_WEIGHT = 0.2  # squared, of rewards against transitions in the statistic
CAP = 2  # how many of a user's steps in a cell count, when pooled over steps; this needs users one
CAPPED_UP_TO = 8  # by one, in blocks of up to so many times the smallest that knows anything,
_ONE_BY_ONE = 1 << 20  # and no larger than this


@dataclass(frozen=True, kw_only=True)
class UCBVIOptions(OptimismOptions):
    """Options of UCBVI and UCBPO.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
    """

    stationary: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stationary is not None:
            flag("stationary", self.stationary)


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """Facts of a plan that its update and the next plan need."""

    expected: Floats | None  # visits of a user, (L, S, A), which weigh the block's counts
    # Of policy optimisation: the stochastic policy (H, S, A), of which with privacy a draw serves.
    table: Floats | None = None


class UCBVI(CountingAlgorithm[CountEstimate]):
    """Optimistic value iteration.

    Idea: keep noisy counts of what happened, estimate transitions and rewards, add a bonus for
    what is uncertain, by sampling or by privacy noise, and follow the best policy of that
    optimistic world.

    Private statistics: :class:`~tacit.tabular.visits.VisitCounts` of every block, of what its
    policy can reach, with the whole budget.
    """

    name = "ucbvi"
    max_age = 64
    options: UCBVIOptions
    Options = UCBVIOptions

    def _check(self) -> None:
        if self.stationary and self.privacy.reports_bits:
            raise InvalidArgument("randomised response needs counts per step: stationary=False")

    def init(self) -> CountEstimate:
        """No counts."""
        return CountEstimate.empty(self.shape, plain=not self.privacy.joint)

    def query(self, state: CountEstimate, plan: Plan, block: BlockInfo) -> VisitCounts:
        """Counts along the block's policy."""
        return self._counts(self.cap(block), plan)

    def _counts(self, cap: int | None, plan: Plan) -> VisitCounts:
        policy, actions = plan.policy if self.on_policy(plan) else None, None
        if policy is not None:
            actions = policy.tables if isinstance(policy, MixedPolicy) else policy.actions
        sizes = self.spec.states, self.spec.actions, self.spec.horizon, self.stationary, cap
        version, apart = 0 if policy is None else policy.version, not self.spec.last_state
        more: Any = {"policy": actions, "version": version, "apart": apart}
        return VisitCounts(*sizes, weight=self._reward_weight, **more)

    def update(
        self, state: CountEstimate, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> CountEstimate:
        """The estimate with the counts of one more block. Args: see Algorithm.update."""
        alone = isinstance(plan.policy, Policy)
        if alone and self.on_policy(plan) and not self.stationary:
            release = conserved(release, self.spec)
        counts, expected = self.query(state, plan, block), plan.memory and plan.memory.expected
        if expected is not None:
            expected = np.minimum(expected, counts.cap or self.spec.horizon)
        return state.added(release, counts, block.users, expected)

    # Plan: estimates on the simplex, Bernstein bonuses, backward induction.

    def plan(self, state: CountEstimate, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The best policies of the optimistic and the estimated world. Args: see Algorithm.plan."""
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

        counts, S = state.counts(), self.spec.states
        n = counts.transitions.sum(axis=-1)
        spread = counts.noise * math.sqrt(S)
        # Where the policy cannot tell which cells are empty, noise alone must not pass for visits.
        known = counts.reached & (n > (KNOWN if along else KNOWN_UNMASKED) * spread)
        P = np.empty_like(counts.transitions)
        project(counts.transitions.reshape(-1, S), known.reshape(-1), P.reshape(-1, S))
        r = np.where(known, np.clip(counts.rewards / np.where(known, n, 1.0), 0.0, 1.0), 0.0)
        return TransitionModel(
            P, r, np.maximum(n - spread, 1e-3), known, counts.noise, counts.reward_noise
        )

    def drawn_world(self, state: CountEstimate, rng: Generator) -> tuple[Floats, Floats]:
        """A world by counts with fresh noise, and by chance as large as that of so many visits.

        Where nothing is known a row leads to one state, and pays as one known cell does.
        """
        std, ratio = np.sqrt(state.variance), state.reward_noise / max(state.noise, 1e-300)
        fresh = rng.standard_normal(state.transitions.shape)
        moves = state.transitions + std[..., np.newaxis] * fresh
        paid = state.rewards + ratio * std * rng.standard_normal(std.shape)
        model = self.model(replace(state, transitions=moves, rewards=paid), along=True)
        shares = rng.standard_gamma(model.n[..., np.newaxis] * model.P + 1e-3)
        P = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
        unknown, S = ~model.known | (shares.sum(axis=-1) < 1e-300), P.shape[-1]  # or none was drawn
        P[unknown] = np.eye(S)[rng.integers(S, size=int(unknown.sum()))]
        seen = model.r[model.known] if model.known.any() else np.zeros(1)
        return P, np.where(unknown, rng.choice(seen, size=model.r.shape), model.r)

    def known_cells(self, state: CountEstimate) -> Floats:
        """Whether more visits of a cell were counted than noise makes."""
        return np.asarray(self.model(state, along=True).known, dtype=np.float64)

    def value_iteration(
        self, model: TransitionModel, rng: Generator
    ) -> tuple[Floats, Floats, Policy, Policy]:
        """Optimistic values Q and bonuses b, (H, S, A), with the optimistic and greedy policies."""
        from tacit.tabular.count_loops import optimistic_value_iteration

        scale, shape = self.options.scale, (self.spec.horizon, *model.n.shape[1:])
        sampling = scale * SAMPLING * math.sqrt(2.0 * math.log(model.n.size / 0.05))
        given = model, sampling, scale * RANGE_TERM, rng.random(shape)
        Q, b, optimistic, greedy = optimistic_value_iteration(*given)
        return Q, b, Policy.planned(optimistic, self.spec), Policy.planned(greedy, self.spec)

    def expected_visits(self, model: TransitionModel, policy: Policy) -> Floats | None:
        """The policy's occupancy (L, S, A) in its own model, by which its counts are weighed."""
        if policy.actions is None:
            return None
        return occupancy(model.P, self.start, policy.actions)

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
        if largest > min(CAPPED_UP_TO * self._smallest_block, _ONE_BY_ONE):
            return None
        return min(CAP, self.spec.horizon)

    def data_format(self, at: Progress) -> str:
        """Episodes where users are counted one by one, or rewards rounded to bits; else sums."""
        fractions = not set(self.spec.reward_values) <= {0.0, 1.0}
        if self.cap(at) is not None or (self.privacy.reports_bits and fractions):
            return "episodes"
        return self.sums_format

    @property
    def why(self) -> str:
        """The choices made for this budget and length, in words."""
        how = "each block is released once, with its whole budget, for what its policy can reach"
        return f"{super().why}; {how}"

    def _block_sizes(self) -> BlockSizes:
        # What one block shows decides where the next one looks, so more cells need more blocks.
        cells = self.spec.states * self.spec.actions
        growth = min(GROWTH, max(1.02, 1.0 + BLOCKS_PER_CELL / cells))
        return BlockSizes(first=self._smallest_block, growth=growth)

    @cached_property
    def _reward_weight(self) -> float:
        """Bits cost the same whatever they weigh."""
        return 1.0 if self.privacy.reports_bits else math.sqrt(REWARD_WEIGHT)

    @cached_property
    def _smallest_block(self) -> int:
        """Users that a block needs to stand out of its noise, by the noise of one count."""
        cap = min(CAP, self.spec.horizon) if self.stationary else None
        first = Plan(self.first_policy(self.problem.rng()), None)
        return users_above_noise(self._counts(cap, first), self.privacy, FIRST)
