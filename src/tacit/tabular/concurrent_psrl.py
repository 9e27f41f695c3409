"""ConcurrentPSRL: posterior sampling by many policies in parallel, beside a greedy one.

A reader who knows PSRL needs this file, :mod:`~tacit.tabular.posterior` (the posterior of noisy,
sparse counts) and :mod:`~tacit.tabular.exploration` (the policies that explore).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.privacy.counters.dense import MOST_OPTIMAL, NormalisedSquareRoot, Optimal
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import release_noise
from tacit.privacy.validation import flag, whole_number
from tacit.tabular.algorithm import CountingAlgorithm
from tacit.tabular.exploration import ExplorationPlanner, VisitQuery, advantage, normalised
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.policy import MixedPolicy, uniform_policy
from tacit.tabular.posterior import PAID_WEIGHT, REWARD_WEIGHT, SpikeSlabPosterior, VisitEstimate

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release
    from tacit.privacy.statistic import Ints

EXPLORERS = 32  # policies that explore in parallel
COVERING = 0.8  # fraction of them, at least, that cover what is unknown
LEAST_EXPLORED = 0.03  # fraction of the value range spent on exploration, at least,
_LATE = 20.0  # until so many times the users before the greedy value last changed
_SHOWN = 0.95  # greedy serves once it is better than uniform actions in so many sampled worlds
_UNSHOWN = 0.05  # fraction of explorers before that, where users are too few to learn from
# Blocks above so many users, or steps of them, are counted whole: no user is clipped any more, and
# the counts are simulated at a cost that does not grow with the users.
_ONE_BY_ONE, _STEPS_ONE_BY_ONE = 1 << 17, 1 << 22
# Releases, and numbers in them, of which all are kept to tell running sums apart.
_LONGEST_HISTORY, _LARGEST_HISTORY = 1 << 10, 1 << 25
_RUNNING = 1.8  # noise of a running sum against that of a single release, before the first one


@dataclass(frozen=True, kw_only=True)
class ConcurrentOptions:
    """Options of ConcurrentPSRL.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
        running: cells of a world above which releases are running sums over all users, and not of
            each block.
    """

    stationary: bool | None = None
    running: int = 24

    def __post_init__(self) -> None:
        if self.stationary is not None:
            flag("stationary", self.stationary)
        whole_number("running", self.running, least=0)


@dataclass(frozen=True, eq=False)
class ConcurrentState:
    """Posterior of the world, from all releases."""

    posterior: SpikeSlabPosterior
    noise: float = 0.0  # standard deviation of the last release's


@dataclass(frozen=True, eq=False)
class ConcurrentMemory:
    """Facts of a plan that its query and the next plan need."""

    query: VisitQuery | None  # none before the first plan
    changed_at: int = 0  # users served when the greedy value last changed
    greedy_value: float = 0.0
    suboptimality: float = 1.0  # of the greedy policy, as a fraction of the value range
    shown: bool = False  # whether the greedy policy ever served most users


class ConcurrentPSRL(CountingAlgorithm[ConcurrentState]):
    """Posterior sampling by many explorers at once, beside a greedy policy for most users.

    Idea: noise is the same for ten users and for ten thousand, so few, large blocks are best, in
    which many policies are tried in parallel. Most users follow the greedy policy; a fraction that
    is learnt explores, by policies that cover what is unknown and by optimal policies of worlds
    drawn from the posterior. Until releases show that the greedy policy has an advantage, uniform
    actions serve in its place. Of each user a few first visits count, to cells that are still worth
    asking about, and most next states are taken to be impossible unless they stand out.

    Private statistics: :class:`~tacit.tabular.first_visits.FirstVisits` of every block, released
    once, with its whole budget.

    Guarantee: that of its curator; see ``guarantee``. There is no bound on regret.

    Cost: O(H S^2 A) for each of some 65 plans per release, and 2000 paths of H steps.
    """

    name = "concurrent_psrl"
    distributed = True
    max_age = 64
    Options = ConcurrentOptions
    options: ConcurrentOptions

    def __init__(self, problem: Problem, options: ConcurrentOptions) -> None:
        if problem.privacy.local:
            raise InvalidArgument("ConcurrentPSRL is for JointDP or NonPrivate: use UCBVI")
        super().__init__(problem, options)

    # State: the posterior.

    def init(self) -> ConcurrentState:
        """The prior."""
        estimate = VisitEstimate.empty(self.shape, self.privacy.private, self._counter)
        return ConcurrentState(SpikeSlabPosterior.prior(estimate, not self.spec.last_state))

    def successor_state(self, state: ConcurrentState) -> ConcurrentState:
        """The same posterior, with a counter of its own."""
        posterior, estimate = copy(state.posterior), state.posterior.estimate
        posterior.estimate = replace(estimate, sums=estimate.sums[:0], counter=self._counter)
        return replace(state, posterior=posterior)

    # Query and update: a few first visits of each user, as sums over all users so far.

    def query(self, state: ConcurrentState, plan: Plan, block: BlockInfo) -> FirstVisits:
        """First visits to the cells that the plan of the block asks for."""
        asked, mixed = plan.memory.query, plan.policy
        given = (mixed.tables, mixed.version)
        if self._one_by_one(block):
            # Of a plan, one set for its first component and one for the explorers; else for each.
            explores = np.minimum(np.arange(len(mixed.tables)), 1)
            wanted = asked.wanted if len(asked.wanted) > 2 else asked.wanted[explores]
            return self._first_visits(wanted, asked.most, *given)
        everywhere = np.ones(asked.expected.shape, dtype=bool)
        return self._first_visits(everywhere, self.spec.horizon, *given, whole=True)

    def _first_visits(
        self, wanted: Any, most: int, tables: Ints, version: int, whole: bool = False
    ) -> FirstVisits:
        weights = math.sqrt(REWARD_WEIGHT), math.sqrt(PAID_WEIGHT)
        norm = self.privacy.norm if self.privacy.private else "l2"
        return FirstVisits(wanted, most, tables, version, *weights, norm, whole)

    def update(
        self,
        state: ConcurrentState,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> ConcurrentState:
        """The posterior with one more block.

        Args:
            state: the posterior so far.
            plan: the plan that the block's users followed.
            release: their noisy first visits.
            block: how many they are.
            rng: of rollouts, for expected visits.
        """
        statistic, query = self.query(state, plan, block), plan.memory.query
        estimate, unit = state.posterior.estimate, block.users * statistic.unit
        paths = self._planner(state, rng).rollouts(plan.policy.tables, plan.policy.weights)
        parts = release.parts
        if not estimate.noisy:
            parts = {name: array / statistic.unit for name, array in parts.items()}
            unit = float(block.users)
        visits, expected, came = paths.visits, query.expected, paths.came
        if statistic.whole:
            expected, came = visits, np.zeros(visits.shape)
        added = estimate.added(parts, release.std, (unit * expected, unit * came, unit * visits))
        noise = float(np.max(release.std["transitions"]))
        return ConcurrentState(state.posterior.after(added), noise)

    # Plan: the greedy policy, explorers, and what to ask.

    def plan(
        self, state: ConcurrentState, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The greedy policy with its explorers, and the greedy policy alone.

        Uniform actions are in its place until releases show that it has an advantage.

        Args:
            state: the posterior.
            last: the plan before; ``None`` at the start.
            at: where the run stands.
            rng: of samples, rollouts and ties.
        """
        planner, half = self._planner(state, rng), EXPLORERS // 2
        serving = last is not None and at.all_served > 0 and bool(last.policy.weights[0] > 0.5)
        greedy = planner.greedy(last.greedy.actions if last is not None and serving else None)
        sampled, values = planner.sampled(greedy.actions, half)
        random_value = planner.random_value(state.posterior.transitions, state.posterior.rewards)
        suboptimality = max(_suboptimality(v, random_value) for v in (values, greedy.values))
        known = ConcurrentMemory(None) if last is None else cast(ConcurrentMemory, last.memory)
        budget, changed_at = self._exploration_budget(
            known, at, serving, greedy.value, suboptimality
        )
        # Explorers: covering policies, and optimal ones of sampled worlds by their advantage.
        users, promised = self._next_block(at), max(advantage(greedy.values).mean(), 1e-9)
        covering = max(COVERING, 1.0 - advantage(values).mean() / promised)
        followers = users * max(budget * covering, 0.02) / half
        noise = self.noise_of(state, at, 4)
        covers = planner.covering(half, followers, noise, greedy if serving else None)
        explorers = [*covers, *sampled]
        weights = np.concatenate(
            [np.full(half, covering / half), (1.0 - covering) * normalised(values)]
        )
        explore = min(1.0, budget / planner.cost(greedy, explorers, weights))
        # Uniform actions serve until an advantage is shown.
        shown = known.shown or serving or not state.posterior.estimate.noisy
        few = self._too_few(at)
        guarded = not shown and greedy.shown < (1.0 if few else _SHOWN)
        if guarded and few:
            explore = min(explore, _UNSHOWN)
        guarded &= explore < 1.0
        policies = [greedy.actions, *explorers]
        chances = np.concatenate([[1.0 - explore], explore * weights])
        if guarded:
            policies += planner.uniform(half)
            chances = np.concatenate([[0.0], chances[1:], np.full(half, chances[0] / half)])
        mixed = MixedPolicy([*map(self.deterministic, policies)], chances / chances.sum())
        paths = planner.rollouts(mixed.tables, mixed.weights)
        query = planner.query(paths, users, lambda most: self.noise_of(state, at, most))
        best = self.named(uniform_policy(self.spec)) if guarded else mixed.components[0]
        memory = ConcurrentMemory(query, changed_at, greedy.value, suboptimality, shown)
        return Plan(mixed, best, memory)

    def _exploration_budget(
        self,
        known: ConcurrentMemory,
        at: Progress,
        serving: bool,
        greedy_value: float,
        suboptimality: float,
    ) -> tuple[float, int]:
        """Fraction of the value range to spend on exploration, and when greedy last changed.

        Grows with the estimated suboptimality of the greedy policy, by this plan and the last;
        decays once its value is stable.
        """
        served = at.all_served
        if greedy_value <= 1e-6:
            return 1.0, served
        changed = abs(greedy_value - known.greedy_value) > 0.15 * known.greedy_value
        changed_at = served if changed else known.changed_at
        urgent = 0.2 * (2.0 if serving else 1.0)  # all may explore at so much suboptimality
        # One plan's samples may be unlucky: the better of two counts.
        expected = min(suboptimality, known.suboptimality)
        budget = float(min(1.0, max((suboptimality / urgent) ** 3.0, expected)))
        if not served:
            return max(LEAST_EXPLORED, budget), changed_at
        # The least is looked for ever less: all that it costs grows with the logarithm of users.
        age = changed_at / served
        least = LEAST_EXPLORED * min(1.0, _LATE * age)
        return max(least, min(budget, (2.5 * age) ** 4)), changed_at

    def _planner(self, state: ConcurrentState, rng: np.random.Generator) -> ExplorationPlanner:
        return ExplorationPlanner(state.posterior, self.spec.first_states, self.spec.horizon, rng)

    def _too_few(self, at: Progress) -> bool:
        """Whether users are not half of those needed, or half of them all were served."""
        users = at.inherited + self.users
        return 2 * users < self.needed or 2 * at.all_served >= max(users, self.needed)

    @cached_property
    def needed(self) -> int:
        """Users until an advantage is shown, by rule of thumb: within a factor of three.

        So many first blocks as there are states times actions, or five and a quarter of them where
        sums run; scaled from ``research/few_users.json``.
        """
        cells = self.spec.states * self.spec.actions
        return self._smallest_block * (5 + cells // 4 if self._running else cells)

    # Blocks.

    def data_format(self, at: Progress) -> str:
        """Users one by one while a clip matters, then sums."""
        return "episodes" if self._one_by_one(at) else self.sums_format

    def on_policy(self, plan: Plan) -> bool:
        """Only those count who followed the block's policies."""
        return True

    def mixed(self, plans: Mapping[int, Plan], users: Mapping[int, int]) -> Plan:
        """All components of all plans; each is asked for what its own plan wanted."""
        newest, shares = plans[max(plans)], {v: users[v] / sum(users.values()) for v in plans}
        parts = [part for plan in plans.values() for part in plan.policy.components]
        weights = np.concatenate([shares[v] * plan.policy.weights for v, plan in plans.items()])
        asked = {v: plan.memory.query for v, plan in plans.items()}
        wanted = [
            asked[v].wanted[np.minimum(np.arange(len(plan.policy.components)), 1)]
            for v, plan in plans.items()
        ]
        expected = np.sum([shares[v] * one.expected for v, one in asked.items()], axis=0)
        most = max(one.most for one in asked.values())
        query = VisitQuery(most, np.concatenate(wanted), expected)
        policy = MixedPolicy(parts, weights / weights.sum(), newest.policy.version)
        return Plan(policy, newest.greedy, replace(newest.memory, query=query))

    @property
    def why(self) -> str:
        """The choices made for this budget and length, in words."""
        why = f"{super().why}; {'running sums' if self._running else 'single blocks'} of "
        why += f"{math.prod(self.shape)} cells; {EXPLORERS} policies explore beside what is known"
        if self.privacy.private and self.users < self.needed:
            why += f"; about {self.needed:,} users are needed at this budget, by rule of thumb"
        return why

    def noise_of(self, state: ConcurrentState | None, at: Progress, most: int) -> float:
        """Standard deviation of the noise, in visits, if so many of a user count; at least 1."""
        tables = np.zeros((1, self.spec.horizon, self.shape[1]), dtype=np.int64)
        statistic = self._first_visits(np.ones(self.shape, dtype=bool), most, tables, 0)
        if state is not None and at.releases:
            return max(1.0, state.noise / statistic.unit)
        more = _RUNNING if self._running else 1.0
        return max(1.0, more * release_noise(statistic, self.privacy, 1) / statistic.unit)

    @cached_property
    def _smallest_block(self) -> int:
        return math.ceil(20.0 * self.noise_of(None, Progress(), 4))

    @cached_property
    def _running(self) -> bool:
        """Whether releases are running sums: where there are many cells, each seen in many blocks.

        Laplace noise has other counters, whose sums cannot be told apart again, and opened sums of
        devices are blocks.
        """
        many = math.prod(self.shape) > self.options.running
        return many and self.privacy.joint and self.privacy.norm == "l2"

    def _choose_counter(self) -> str:
        releases = self.schedule.releases
        numbers = math.prod(self.shape) * (self.spec.states + 5)
        self._running &= releases * numbers <= _LARGEST_HISTORY and releases <= _LONGEST_HISTORY
        if not self._running:
            return "blocks"
        return Optimal.kind if releases <= MOST_OPTIMAL else NormalisedSquareRoot.kind

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes(first=self._smallest_block, growth=1.2)

    def _next_block(self, at: Progress) -> int:
        """Users of the block that is planned for."""
        return self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]

    def _one_by_one(self, at: Progress) -> bool:
        users = self._next_block(at)
        return users <= _ONE_BY_ONE and users * self.spec.horizon <= _STEPS_ONE_BY_ONE

    @property
    def _counter(self) -> tuple[str, int]:
        """Kind and releases of the counter that blocks go through; ("", 0) if none."""
        return ("", 0) if self.counter == "blocks" else (self.counter, self.schedule.releases)


def _suboptimality(values: Floats, random_value: float) -> float:
    """Mean advantage of the optimal policy as a fraction of the value range, over worlds."""
    value_range = np.maximum(values[0] - random_value, advantage(values))
    return float((advantage(values) / np.maximum(value_range, 1e-9)).mean())
