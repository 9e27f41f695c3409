"""ConcurrentPSRL: posterior sampling by many policies in parallel, beside a greedy one.

Most users follow the greedy policy, the best one for what is known. The others explore in parallel,
each by one of many policies: half of them cover what is unknown, each planned for what those before
it leave uncovered; half are optimal in worlds drawn from the :mod:`~tacit.tabular.posterior`.
Constants were chosen as those of the posterior were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, BlockSizes, Plan, Progress
from tacit.privacy.counters.dense import MOST_OPTIMAL, NormalisedSquareRoot, Optimal
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import release_noise
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import flag, whole_number
from tacit.tabular.algorithm import CountingAlgorithm
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.policy import MixedPolicy, Policy, occupancy, uniform_policy
from tacit.tabular.posterior import PAID_WEIGHT, REWARD_WEIGHT, SpikeSlabPosterior, VisitEstimate

if TYPE_CHECKING:
    from tacit.privacy.curator import Release

EXPLORERS = 32  # policies that explore in parallel
COVERING = 0.8  # fraction of exploring users, at least, whose policy covers what is unknown
LEAST_EXPLORED = 0.03  # fraction of the value range spent on exploration, at least,
_LATE = 2.0  # until so many times the users before the greedy value last changed
_SHOWN = 0.95  # greedy serves once it is better than uniform actions in so many sampled worlds
# Where users are too few to learn from: in so many releases in a row, and explorers before that.
_IN_A_ROW, _UNSHOWN = 3, 0.01
# Blocks above so many users, or steps of them, are counted whole: no user is clipped any more, and
# the counts are simulated at a cost that does not grow with the users.
_ONE_BY_ONE, _STEPS_ONE_BY_ONE = 1 << 15, 1 << 22
# Releases, and numbers in them, of which all are kept to tell running sums apart.
_LONGEST_HISTORY, _LARGEST_HISTORY = 1 << 10, 1 << 25
_RUNNING = 1.8  # noise of a running sum against that of a single release, before the first one
WORLDS = 32  # sampled ones, in which the greedy policy is compared
CERTAIN = 0.7  # the serving policy is replaced by one better in this fraction of sampled worlds
PATHS = 2000  # rollouts in the known model, for expected visits
LEAST_COST = 0.2  # fraction of the value range that an explorer loses, at least
VISITS_PER_USER = (2, 4, 8)  # how many cells may count of a user
THRESHOLDS = (4.0, 8.0, 16.0, 32.0, np.inf)  # cells with more visits, in noise, are not asked for
_DETECT = 6.0  # visits, in noise, that a cell needs to become known


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
class VisitQuery:
    """First visits that a block is asked for: up to ``most`` of a user, to ``wanted`` cells."""

    most: int
    wanted: Bools  # (2, L, S, A), of those who follow the greedy policy and of those who explore
    expected: Floats  # (L, S, A), how many of them a user is expected to have

    def of_each(self, components: int) -> Bools:
        """Cells wanted of the users of each component: of the first, and of all explorers."""
        explores = np.minimum(np.arange(components), 1)
        return self.wanted if len(self.wanted) > 2 else self.wanted[explores]


@dataclass(frozen=True, eq=False)
class PSRLState:
    """Posterior of the world, from all releases."""

    posterior: SpikeSlabPosterior
    noise: float = 0.0  # standard deviation of the last release's


@dataclass(frozen=True, eq=False)
class PSRLMemory:
    """Facts of a plan that its query and the next plan need."""

    query: VisitQuery | None  # none before the first plan
    changed_at: int = 0  # users served when the greedy value last changed
    greedy_value: float = 0.0
    suboptimality: float = 1.0  # of the greedy policy, as a fraction of the value range
    shown: bool = False  # whether the greedy policy ever served most users
    better: int = 0  # releases in a row in which it was better than uniform actions


class ConcurrentPSRL(CountingAlgorithm[PSRLState]):
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

    def _check(self) -> None:
        if self.privacy.local:
            raise InvalidArgument("ConcurrentPSRL is for JointDP or NonPrivate: use UCBVI")

    def init(self) -> PSRLState:
        """The prior."""
        estimate = VisitEstimate.empty(self.shape, self.privacy.private, self._counter)
        return PSRLState(SpikeSlabPosterior.prior(estimate, not self.spec.last_state))

    def successor_state(self, state: PSRLState) -> PSRLState:
        """The same posterior, with a counter of its own."""
        posterior, estimate = copy(state.posterior), state.posterior.estimate
        posterior.estimate = replace(estimate, sums=estimate.sums[:0], counter=self._counter)
        return replace(state, posterior=posterior)

    def query(self, state: PSRLState, plan: Plan, block: BlockInfo) -> FirstVisits:
        """First visits to the cells that the plan of the block asks for."""
        asked, mixed = plan.memory.query, plan.policy
        wanted, most, whole = asked.of_each(len(mixed.tables)), asked.most, False
        if not self._one_by_one(block):
            wanted, most, whole = np.ones(asked.expected.shape, bool), self.spec.horizon, True
        return self._first_visits(wanted, most, mixed.tables, mixed.version, whole)

    def _first_visits(
        self, wanted: Any, most: int, tables: Ints, version: int, whole: bool = False
    ) -> FirstVisits:
        weights = math.sqrt(REWARD_WEIGHT), math.sqrt(PAID_WEIGHT)
        norm = self.privacy.norm if self.privacy.private else "l2"
        return FirstVisits(wanted, most, tables, version, *weights, norm, whole)

    def update(
        self, state: PSRLState, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> PSRLState:
        """The posterior with one more block. Args: see Algorithm.update."""
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
        return PSRLState(state.posterior.after(added), float(np.max(release.std["transitions"])))

    # Plan: the greedy policy, explorers, and what to ask.

    def plan(self, state: PSRLState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The greedy policy with its explorers, and it alone. Args: see Algorithm.plan."""
        planner, half = self._planner(state, rng), EXPLORERS // 2
        serving = last is not None and at.all_served > 0 and bool(last.policy.weights[0] > 0.5)
        greedy = planner.greedy(last.greedy.actions if last is not None and serving else None)
        sampled, values = planner.sampled(greedy.actions, half)
        random_value = planner.random_value(state.posterior.transitions, state.posterior.rewards)
        lost = max(_suboptimality(v, random_value) for v in (values, greedy.values))
        known = PSRLMemory(None) if last is None else cast(PSRLMemory, last.memory)
        budget, changed_at = self._exploration_budget(known, at, serving, greedy.value, lost)
        # Explorers: covering policies, and optimal ones of sampled worlds by their advantage.
        users, promised = self._next_block(at), max(advantage(greedy.values).mean(), 1e-9)
        share = max(COVERING, 1.0 - advantage(values).mean() / promised)
        followers = users * max(budget * share, 0.02) / half / self.noise_of(state, at, 4)
        covers = planner.covering(half, followers, greedy if serving else None)
        explorers = [*covers, *sampled]
        weights = np.concatenate([np.full(half, share / half), (1.0 - share) * normalised(values)])
        explore = min(1.0, budget / planner.cost(greedy, explorers, weights))
        # Uniform actions serve until an advantage is shown.
        shown = known.shown or serving or not state.posterior.estimate.noisy
        few = self._too_few(at)
        better = known.better + 1 if greedy.shown >= (1.0 if few else _SHOWN) else 0
        guarded = not shown and better < (_IN_A_ROW if few else 1)
        explore = min(explore, _UNSHOWN) if guarded and few else explore
        guarded &= explore < 1.0
        policies = [greedy.actions, *explorers]
        chances = np.concatenate([[1.0 - explore], explore * weights])
        if guarded:
            policies += planner.uniform(half)
            chances = np.concatenate([[0.0], chances[1:], np.full(half, chances[0] / half)])
        parts = [Policy.planned(actions, self.spec) for actions in policies]
        mixed = MixedPolicy(parts, chances / chances.sum())
        paths = planner.rollouts(mixed.tables, mixed.weights)
        query = planner.query(paths, users, lambda most: self.noise_of(state, at, most))
        best = self.named(uniform_policy(self.spec)) if guarded else mixed.components[0]
        memory = PSRLMemory(query, changed_at, greedy.value, lost, shown, better)
        return Plan(mixed, best, memory)

    def drawn_world(self, state: PSRLState, rng: Generator) -> tuple[Floats, Floats]:
        """A world of the posterior; cells that may pay little pay together what they did."""
        of, (P, r) = state.posterior, state.posterior.sample_whole(rng)
        told = of.reward_mean + of.reward_std * rng.standard_normal(r.shape)
        little, most = (of.paying < 0.9) & (of.known > 0.5), np.clip(told, 0.0, 1.0)
        paid, known = ((np.maximum(of.visits, 0.0) * little * x).sum() for x in (told, most))
        return P, np.where(little, most * np.clip(paid / max(known, 1e-9), 0.0, 1.0), r)

    def known_cells(self, state: PSRLState) -> Floats:
        """How far rows are known."""
        return state.posterior.known

    def _exploration_budget(
        self, known: PSRLMemory, at: Progress, serving: bool, value: float, lost: float
    ) -> tuple[float, int]:
        """Fraction of the value range to spend on exploration, and when greedy last changed."""
        served = at.all_served
        if value <= 1e-6:
            return 1.0, served
        changed = abs(value - known.greedy_value) > 0.15 * known.greedy_value
        changed_at = served if changed else known.changed_at
        urgent = 0.2 * (2.0 if serving else 1.0)  # all may explore at so much suboptimality
        # One plan's samples may be unlucky: the better of two counts.
        budget = float(min(1.0, max((lost / urgent) ** 3.0, min(lost, known.suboptimality))))
        if not served:
            return max(LEAST_EXPLORED, budget), changed_at
        # The least is looked for ever less: all that it costs grows with the logarithm of users.
        age = changed_at / served
        least = LEAST_EXPLORED * min(1.0, _LATE * age)
        return max(least, min(budget, (2.5 * age) ** 4)), changed_at

    def _planner(self, state: PSRLState, rng: Generator) -> ExplorationPlanner:
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
        return self._block_sizes().first * (5 + cells // 4 if self._running else cells)

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
        wanted = [asked[v].of_each(len(plan.policy.components)) for v, plan in plans.items()]
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

    def noise_of(self, state: PSRLState | None, at: Progress, most: int) -> float:
        """Standard deviation of the noise, in visits, if so many of a user count; at least 1."""
        if state is None or not at.releases:
            return self._first_noise(most, _RUNNING if self._running else 1.0)
        return max(1.0, state.noise / self._all_visits(most).unit)

    def _first_noise(self, most: int, running: float) -> float:
        statistic = self._all_visits(most)
        return max(1.0, running * release_noise(statistic, self.privacy, 1) / statistic.unit)

    def _all_visits(self, most: int) -> FirstVisits:
        tables = np.zeros((1, self.spec.horizon, self.shape[1]), dtype=np.int64)
        return self._first_visits(np.ones(self.shape, dtype=bool), most, tables, 0)

    @cached_property
    def _running(self) -> bool:
        """Whether releases are running sums; those of Laplace noise cannot be told apart again."""
        cells = math.prod(self.shape)
        if self.problem.arms is not None:
            return False  # a block is asked for returns, too
        if cells <= self.options.running or not self.privacy.joint or self.privacy.norm == "l1":
            return False
        releases = self.problem.scheduled(lambda: self._sizes(_RUNNING)).releases
        history = releases * cells * (self.spec.states + 5)
        return history <= _LARGEST_HISTORY and releases <= _LONGEST_HISTORY

    def _choose_counter(self) -> str:
        if not self._running:
            return "blocks"
        return (NormalisedSquareRoot if self.schedule.releases > MOST_OPTIMAL else Optimal).kind

    def _sizes(self, running: float) -> BlockSizes:
        return BlockSizes(first=math.ceil(20.0 * self._first_noise(4, running)), growth=1.2)

    def _block_sizes(self) -> BlockSizes:
        return self._sizes(_RUNNING if self._running else 1.0)

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


@dataclass(frozen=True, eq=False)
class GreedyPolicy:
    """The greedy policy, compared with others in sampled worlds."""

    actions: Ints  # (H, S)
    value: float  # where what is unknown pays nothing
    values: Floats  # (2, worlds): of the optimal policy of each world, and its own there
    worth: Floats  # (L, S, A), visits of these optimal policies, by what they gain; at most 1
    shown: float  # fraction of the worlds in which it is better than uniform actions


def advantage(values: Floats) -> Floats:
    """How much better the optimal policy is than the one that serves, by rows of both values."""
    return np.asarray(np.maximum(values[0] - values[1], 0.0))


def normalised(values: Floats) -> Floats:
    """Advantages as fractions of their sum; equal ones where there is none."""
    better = advantage(values)
    total = better.sum()
    return better / total if total > 0 else np.full(len(better), 1.0 / len(better))


class ExplorationPlanner:
    """Plans explorers and queries, in the known model and in worlds drawn from the posterior."""

    def __init__(
        self, posterior: SpikeSlabPosterior, start: Floats, horizon: int, rng: Generator
    ) -> None:
        self.posterior, self.start, self.horizon, self.rng = posterior, start, horizon, rng
        self._known = posterior.transitions, posterior.rewards

    def best(self, P: Floats, r: Floats) -> tuple[Ints, float]:
        """The optimal actions (H, S) of a world, ties broken at random, and their value."""
        actions = np.zeros((self.horizon, r.shape[1]), dtype=np.int64)
        return actions, self._planned(P, r, self.rng.random(r.shape[1:]), False, actions)

    def value(self, P: Floats, r: Floats, actions: Ints) -> float:
        """The value of a policy in a world."""
        return self._planned(P, r, np.zeros(r.shape[1:]), True, np.array(actions))

    def _planned(self, *given: Any) -> float:
        from tacit.tabular.exploration_loops import best_actions

        return float(self.start @ best_actions(*given))

    def random_value(self, P: Floats, r: Floats) -> float:
        """The value of uniform actions in a world."""
        P, r = (x.mean(axis=2, keepdims=True) for x in (P, r))
        return self.value(P, r, np.zeros((self.horizon, P.shape[1]), dtype=np.int64))

    def greedy(self, before: Ints | None) -> GreedyPolicy:
        """The best policy where what is unknown pays nothing; or ``before``, until it is better."""
        found = self.best(*self._known)[0]
        tried = [found] if before is None else [found, before]
        values = np.zeros((2 + len(tried), WORLDS))
        used = np.zeros((WORLDS, *self.posterior.known.shape))
        for column, visits in zip(values.T, used, strict=True):
            P, r = self.posterior.sample_whole(self.rng)
            actions, column[0] = self.best(P, r)
            column[1:-1] = [self.value(P, r, others) for others in tried]
            column[-1] = self.random_value(P, r)
            visits += np.minimum(occupancy(P, self.start, actions), 1.0)
        chosen = 0
        if before is not None and self.value(*self._known, before) > 1e-6:
            better = np.sign(np.round(values[1] - values[2], 9))
            chosen = int((1.0 + better.mean()) / 2.0 < CERTAIN)
        both = values[[0, 1 + chosen]]
        worth = np.tensordot(normalised(both), used, 1)
        worth /= max(float(worth.max()), 1e-9)
        shown = float((np.round(both[1] - values[-1], 9) > 0).mean())
        value = self.value(*self._known, tried[chosen])
        return GreedyPolicy(tried[chosen], value, both, worth, shown)

    def sampled(self, greedy: Ints, count: int) -> tuple[list[Ints], Floats]:
        """Optimal actions of sampled worlds, and their values beside greedy's, (2, count)."""
        found, values = [], np.zeros((2, count))
        for i in range(count):
            P, r, _ = self.posterior.sample(self.rng)
            actions, values[0, i] = self.best(P, r)
            values[1, i] = self.value(P, r, greedy)
            found.append(actions)
        return found, values

    def covering(self, count: int, users: float, serving: GreedyPolicy | None) -> list[Ints]:
        """Policies that visit what is unknown, each what those before it leave uncovered.

        Each has so many users, in standard deviations of a count. One in four is planned in a
        sampled world: a way that is taken not to exist would never be tried again. Once the greedy
        policy serves most users, cells that may improve it come first, by policies that earn.
        """
        P, unknown = self.posterior.transitions, 1.0 - self.posterior.known
        covered, found, earning = np.zeros(unknown.shape), [], np.zeros(unknown.shape)
        if serving is not None:
            # Cells that matter in no sampled world count .3 beside others.
            rough = 1.0 / (1.0 + (self.posterior.visits / 12.0) ** 2)
            unknown = serving.worth * rough + 0.3 * unknown
            scale = self.best(P, unknown)[1] / max(serving.value, 1e-9)
            earning = 0.5 * scale * self.posterior.rewards
        for i in range(count):
            missing = unknown / (1.0 + (covered / _DETECT) ** 2)
            there = self.posterior.sample(self.rng)[0] if i % 4 == 3 else P
            found.append(self.best(there, missing + earning)[0])
            covered += users * np.minimum(occupancy(P, self.start, found[-1]), 1.0)
        return found

    def cost(self, greedy: GreedyPolicy, explorers: list[Ints], weights: Floats) -> float:
        """Loss of explorers beside the greedy policy, as a fraction of the value range."""
        if greedy.value <= 1e-6:
            return 1.0
        explored = float(weights @ [self.value(*self._known, actions) for actions in explorers])
        value_range = max(greedy.value - self.random_value(*self._known), 0.1 * greedy.value)
        return min(1.0, max(LEAST_COST, (greedy.value - explored) / value_range))

    def uniform(self, count: int) -> list[Ints]:
        """Actions (H, S) drawn uniformly at every step: who follows them acts at random."""
        _, S, A = self.posterior.visits.shape
        drawn = self.rng.random((count, self.horizon, S, 1))
        return list((drawn > np.cumsum(np.full((1, S, A), 1.0 / A), axis=-1)[..., :-1]).sum(-1))

    def rollouts(self, policies: Ints, weights: Floats) -> Rollouts:
        """Paths of users of a mixed policy in the known model; unknown rows lead anywhere."""
        from tacit.tabular.exploration_loops import walk

        explore, components = 1.0 - float(weights[0]), np.arange(len(weights))
        moves, found = np.cumsum(self.posterior.whole_rows(), axis=-1), []
        # Explorers are few, and what they see counts as much: half of the paths are theirs.
        for share, whose in ((1.0 - explore, components[:1]), (explore, components[1:])):
            count = 0 if share <= 0.0 else PATHS // (2 if share < 1.0 else 1)
            drawn = components[:0]
            if count:
                drawn = self.rng.choice(whose, size=count, p=weights[whose] / weights[whose].sum())
            path = np.zeros((count, self.horizon), dtype=np.int64)
            walk(self.rng, np.cumsum(self.start), moves, policies, drawn, path)
            found.append((share, path))
        return Rollouts(tuple(found), self.posterior.visits.shape)

    def query(self, paths: Rollouts, users: int, noise_of: Callable[[int], float]) -> VisitQuery:
        """The most informative cells: those with the largest sum of log (1 + signal^2)."""
        visits, best_score = self.posterior.visits, -1.0
        sets = [wanted for most in THRESHOLDS if (wanted := visits <= most).any()]
        for most in sorted({min(most, self.horizon) for most in VISITS_PER_USER}):
            parts = [paths.first_visits(wanted, most) for wanted in sets]
            for i, j in np.ndindex(len(sets), len(sets)):
                expected = parts[i][0] + parts[j][1]
                signal = users * expected / noise_of(most)
                score = float(np.log1p(signal**2 / (_DETECT**2 + visits**2)).sum())
                if score > 1.02 * best_score:
                    best_score = score
                    best = VisitQuery(most, np.stack([sets[i], sets[j]]), expected)
        return best


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Paths of users: of those who follow the greedy policy, and of those who explore."""

    kinds: tuple[tuple[float, Ints], ...]  # fraction of the users, and cells (paths, H)
    shape: tuple[int, ...]  # of cells, (L, S, A)

    def first_visits(self, wanted: Bools, most: int) -> list[Floats]:
        """First visits to wanted cells that count, per user: of both kinds of users."""
        from tacit.tabular.exploration_loops import count_paths

        found, flat = [], np.ascontiguousarray(wanted).reshape(-1)
        for share, path in self.kinds:
            visits = np.zeros(flat.size)
            count_paths(path, flat, most, visits)
            found.append(visits.reshape(self.shape) * (share / max(len(path), 1)))
        return found

    @property
    def came(self) -> Floats:
        """The fraction of users who come to each cell."""
        followed, explored = self.first_visits(np.ones(self.shape, bool), math.prod(self.shape))
        return followed + explored

    @property
    def visits(self) -> Floats:
        """Expected visits of a user to each cell."""
        found = np.zeros(np.prod(self.shape, dtype=np.int64))
        for share, path in self.kinds:
            found += np.bincount(path.ravel(), minlength=found.size) * (share / max(len(path), 1))
        return found.reshape(self.shape)
