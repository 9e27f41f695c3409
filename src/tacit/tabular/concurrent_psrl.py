"""ConcurrentPSRL: most users are served by what is known, many explorers learn in parallel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.data.sizes import check_bytes
from tacit.privacy.arguments import flag, instance_of, whole_number
from tacit.privacy.counters.dense import MOST_OPTIMAL, NormalisedSquareRoot, Optimal
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.exploration import ExplorationConstants, Explorer, Question, gains, shares
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.policy import MixedPolicy, Policy, check_policy, uniform_policy
from tacit.tabular.posterior import SparseConstants, SpikeSlabPosterior, VisitEstimate
from tacit.tabular.spec import FiniteSpec

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release
    from tacit.privacy.statistic import Ints

# Blocks above so many users, or steps of them, are counted whole: nobody is clipped any more, and
# the counts are simulated at a cost that does not grow with the users.
_ONE_BY_ONE, _STEPS_ONE_BY_ONE = 1 << 17, 1 << 22
# Releases, and numbers in them, of which all are kept to tell running sums apart.
_LONGEST_HISTORY, _LARGEST_HISTORY = 1 << 10, 1 << 25
# The noise of a running sum against that of a single release, before the first one.
_RUNNING = 1.8
# Explorers before a gain is shown, where users are too few to learn from.
_UNSHOWN = 0.05


@dataclass(frozen=True, kw_only=True)
class ConcurrentOptions:
    """Options of ConcurrentPSRL.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
        running: cells of a world above which releases are running sums over all users, and not of
            each block.
        today: the policy that users are served today, if it is not uniform actions: it serves on
            until releases show that what was learnt is better.
        sparse: constants of what is made of releases.
        exploration: constants of who explores what.
    """

    stationary: bool | None = None
    running: int = 24
    today: Policy | None = None
    sparse: SparseConstants = SparseConstants()  # noqa: RUF009
    exploration: ExplorationConstants = ExplorationConstants()  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        object.__setattr__(self, "running", whole_number("running", self.running, least=0))
        if self.today is not None:
            instance_of("today", self.today, Policy)
        instance_of("sparse", self.sparse, SparseConstants)
        instance_of("exploration", self.exploration, ExplorationConstants)


@dataclass(frozen=True, eq=False)
class State:
    """What releases told."""

    posterior: SpikeSlabPosterior
    noise: float = 0.0  # standard deviation of the last release's


@dataclass(frozen=True, eq=False)
class Memory:
    """What a plan leaves to the next one, and what it asks of its users."""

    question: Question
    learnt_at: int = 0  # users served when the greedy value last changed
    greedy_value: float = 0.0
    lost: float = 1.0  # what greedy was expected to lose
    shown: bool = False  # whether most users were ever served by what is known


class ConcurrentPSRL(FiniteAlgorithm[State]):
    """Posterior sampling by many explorers at once, beside a greedy policy for most users.

    Idea: noise is the same for ten users and for ten thousand, so few, large blocks are best, in
    which many policies are tried in parallel. Most users follow the best policy for what is known;
    a share that is learnt explores, by policies that cover what is unknown and by the best policies
    of worlds that may be true. Until releases show that the best policy gains something, today's
    policy, or uniform actions, serve in its place. Of each user a few first visits count, to cells
    that are still worth asking about, and most next states are taken to be impossible unless they
    stand out.

    Private statistics: :class:`~tacit.tabular.first_visits.FirstVisits` of every block, released
    once, with its whole budget; :class:`~tacit.tabular.visits.VisitCounts` of very large ones.

    Guarantee: that of its curator; see ``guarantee``. There is no bound on regret.

    Cost: O(H S^2 A) for each of some 65 plans per release, and 2000 paths of H steps.
    """

    name = "concurrent_psrl"
    distributed = True
    Options = ConcurrentOptions
    spec: FiniteSpec
    options: ConcurrentOptions

    def __init__(self, problem: Problem, options: ConcurrentOptions) -> None:
        instance_of("spec", problem.spec, FiniteSpec)
        spec: FiniteSpec = problem.spec
        if problem.privacy.local:
            raise InvalidArgument(
                "ConcurrentPSRL is for JointDP or NonPrivate: devices that add noise each need "
                "other statistics; use UCBVI"
            )
        self.stationary = spec.stationary if options.stationary is None else options.stationary
        self.shape = (spec.rows(self.stationary), spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*self.shape, spec.states))
        if options.today is not None:
            check_policy(spec, options.today)
        # Laplace noise has other counters, whose sums cannot be told apart again.
        # And opened sums of devices are blocks.
        self._running = problem.privacy.joint and problem.privacy.norm == "l2"
        self._running &= math.prod(self.shape) > options.running
        super().__init__(problem, options)

    @property
    def _counter(self) -> tuple[str, int]:
        """Kind and releases of the counter that blocks go through; ("", 0) if none."""
        return ("", 0) if self.counter == "blocks" else (self.counter, self.schedule.releases)

    def init(self) -> State:
        """Nothing is known."""
        evidence = VisitEstimate.empty(self.shape, self.privacy.private, self._counter)
        apart = not self.spec.last_state
        return State(SpikeSlabPosterior.prior(evidence, self.options.sparse, apart))

    # What is asked: a few first visits of each user, as sums over all users so far.

    def query(self, state: State, plan: Plan, block: BlockInfo) -> FirstVisits:
        """First visits to the cells that the plan of the block asked for."""
        asked, mixed = cast(Memory, plan.memory).question, plan.policy
        given = (mixed.tables, mixed.version)
        if self._one_by_one(block):
            # Of a plan, one set for its first component and one for the explorers; else for each.
            explores = np.minimum(np.arange(len(mixed.tables)), 1)
            wanted = asked.wanted if len(asked.wanted) > 2 else asked.wanted[explores]
            return self._first_visits(wanted, asked.most, *given)
        everywhere = np.ones(asked.expected.shape, dtype=bool)
        return self._first_visits(everywhere, self.spec.horizon, *given, whole=True)

    def update(
        self,
        state: State,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> State:
        """The posterior with one more block."""
        statistic, question = self.query(state, plan, block), plan.memory.question
        evidence, unit = state.posterior.evidence, block.users * statistic.unit
        walks = self._explorer(state, rng).walks(plan.policy.tables, plan.policy.weights)
        parts = release.parts
        if not evidence.noisy:
            parts = {name: array / statistic.unit for name, array in parts.items()}
            unit = float(block.users)
        often, asked, came = walks.visits, question.expected, walks.came
        if statistic.whole:
            asked, came = often, np.zeros(often.shape)
        added = evidence.added(parts, release.std, (unit * asked, unit * came, unit * often))
        noise = float(np.max(release.std["transitions"]))
        return State(state.posterior.after(added), noise)

    def _first_visits(
        self, wanted: Any, most: int, tables: Ints, version: int, whole: bool = False
    ) -> FirstVisits:
        sparse = self.options.sparse
        weights = math.sqrt(sparse.reward_weight), math.sqrt(sparse.paid_weight)
        norm = self.privacy.norm if self.privacy.private else "l2"
        return FirstVisits(wanted, most, tables, version, *weights, norm, whole)

    # How it plans: the greedy policy, explorers, and what to ask.

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """The greedy policy with its explorers, and the greedy policy alone.

        Today's policy is in its place until releases show that it gains something.
        """
        explorer, c = self._explorer(state, rng), self.options.exploration
        serving = last is not None and at.all_served > 0 and bool(last.policy.weights[0] > 0.5)
        before = last.greedy.actions if last is not None and serving else None
        greedy = explorer.greedy(before)
        half, earned = c.explorers // 2, greedy.earned
        sampled, values = explorer.sampled(greedy.actions, half)
        at_random = explorer.random_value()
        lost = max(_lost(values, at_random), _lost(greedy.values, at_random))
        known = None if last is None else cast(Memory, last.memory)
        spent, learnt_at = self._spent(known, at, serving, earned, lost)
        users = self._next_block(at)
        promised = max(gains(greedy.values).mean(), 1e-9)
        covering = max(c.covering, 1.0 - gains(values).mean() / promised)
        covered = users * max(spent * covering, 0.02) / half
        covers = explorer.covering(
            half, covered, self.noise_of(state, at, 4), greedy if serving else None
        )
        policies = [greedy.actions, *covers, *sampled]
        drawn = (1.0 - covering) * shares(values)
        explore = np.concatenate([np.full(half, covering / half), drawn])
        cost = 1.0
        if earned > 1e-6:
            paid = float(explore @ [explorer.known_value(actions) for actions in policies[1:]])
            stake = max(earned - at_random, 0.1 * earned)
            cost = min(1.0, max(c.cheapest, (earned - paid) / stake))
        share = min(1.0, spent / cost)
        shown = (known is not None and known.shown) or serving
        shown |= not state.posterior.evidence.noisy
        guarded = not shown and greedy.shown < (1.0 if self._too_few(at) else c.shown)
        if guarded and self._too_few(at):
            share = min(share, _UNSHOWN)
        weights = np.concatenate([[1.0 - share], share * explore])
        guarded &= share < 1.0
        if guarded:
            policies += explorer.todays(half)
            weights = np.concatenate([[0.0], weights[1:], np.full(half, weights[0] / half)])
        parts = [Policy.deterministic(a, self.spec.actions) for a in policies]
        mixed = MixedPolicy(parts, weights / weights.sum())
        walks = explorer.walks(mixed.tables, mixed.weights)
        question = explorer.question(walks, users, lambda most: self.noise_of(state, at, most))
        best = self._today if guarded else mixed.components[0]
        memory = Memory(question, learnt_at, earned, lost, shown)
        return Plan(self.named(mixed), self.named(best), memory)

    def _too_few(self, at: Progress) -> bool:
        """Whether users are not half of those needed, or half of them all were served."""
        users = at.inherited + self.users
        return 2 * users < self.needed or 2 * at.all_served >= max(users, self.needed)

    @cached_property
    def needed(self) -> int:
        """Users until a gain is shown, by rule of thumb: within a factor of three in our worlds.

        So many first blocks as there are states times actions, or five and a quarter of them where
        sums run; scaled from ``research/fewer_users.json``.
        """
        cells = self.spec.states * self.spec.actions
        return self._smallest_block * (5 + cells // 4 if self._running else cells)

    def _spent(
        self, known: Memory | None, at: Progress, serving: bool, earned: float, lost: float
    ) -> tuple[float, int]:
        """Fraction of the value range to spend on exploration, and when greedy last changed.

        Grows with the estimated suboptimality of the greedy policy, by this plan and the last;
        decays once its value is stable.
        """
        c, served = self.options.exploration, at.all_served
        value, learnt_at, before = 0.0, 0, 1.0
        if known is not None:
            value, learnt_at, before = known.greedy_value, known.learnt_at, known.lost
        if earned <= 1e-6:
            return 1.0, served
        if abs(earned - value) > 0.15 * value:
            learnt_at = served
        urgent = 0.2 * (2.0 if serving else 1.0)  # all may explore where greedy loses so much
        # One plan's draws may be unlucky: the better of two counts.
        spent = float(min(1.0, max((lost / urgent) ** 3.0, c.even * min(lost, before))))
        if not served:
            return max(c.least, spent), learnt_at
        # What must not be missed is looked for ever less: all that it costs grows with the
        # logarithm of the users.
        age = learnt_at / served
        spent = max(c.least * min(1.0, c.late * age), min(spent, (2.5 * age) ** 4))
        return spent, learnt_at

    def _explorer(self, state: State, rng: np.random.Generator) -> Explorer:
        spec = self.spec
        start = np.full(spec.states, 1.0 / spec.states) if spec.start is None else spec.start
        given = (np.array(start), spec.horizon, self.options.exploration, rng)
        today = None if self.options.today is None else self._today.table()
        return Explorer(state.posterior, *given, today)

    @property
    def _today(self) -> Policy:
        """What users are served today: uniform actions, where nobody says."""
        return self.options.today or uniform_policy(self.spec)

    # What is public.

    def data_format(self, at: Progress) -> str:
        """Users one by one while a clip matters, then sums."""
        if self._one_by_one(at):
            return "episodes"
        return "pooled" if self.stationary and self.spec.last_state else "counts"

    def on_policy(self, plan: Plan) -> bool:
        """Only those count who followed the block's policies."""
        return True

    max_age = 64

    def mixed(self, plans: Mapping[int, Plan], users: Mapping[int, int]) -> Plan:
        """All components of all plans; each is asked for what its own plan wanted."""
        newest, shares = plans[max(plans)], {v: users[v] / sum(users.values()) for v in plans}
        parts = [part for plan in plans.values() for part in plan.policy.components]
        weights = np.concatenate([shares[v] * plan.policy.weights for v, plan in plans.items()])
        asked = {v: cast(Memory, plan.memory).question for v, plan in plans.items()}
        wanted = [
            asked[v].wanted[np.minimum(np.arange(len(plan.policy.components)), 1)]
            for v, plan in plans.items()
        ]
        expected = np.sum([shares[v] * one.expected for v, one in asked.items()], axis=0)
        most = max(one.most for one in asked.values())
        question = Question(most, np.concatenate(wanted), expected)
        policy = MixedPolicy(parts, weights / weights.sum(), newest.policy.version)
        return Plan(policy, newest.greedy, replace(newest.memory, question=question))

    @property
    def why(self) -> str:
        """What was chosen, in words."""
        cells, running = math.prod(self.shape), self.options.running
        how = "each block is released once, with its whole budget"
        if not self.privacy.private:
            how = "sums need no noise"
        elif self._running:
            how = f"{cells} cells, more than {running}: all blocks go through one {self.counter}"
            how += " counter"
        elif cells <= running:
            how = f"{cells} cells, at most {running}: {how}"
        why = f"{super().why}; {how}; most users follow what is known, "
        why += f"{self.options.exploration.explorers} policies explore beside it"
        users, today = self.users, self.options.today
        if self.privacy.private and users < self.needed:
            why += f"; about {self.needed:,} users are needed at this budget, by rule of thumb"
            if 2 * users < self.needed:
                why += (
                    f", and {users:,} are too few: until releases show a gain, "
                    f"{'uniform actions' if today is None else 'the policy of today'} serve all "
                    f"but {_UNSHOWN:.0%} of them"
                )
        return why

    def noise_of(self, state: State | None, at: Progress, most: int) -> float:
        """Standard deviation of the noise, in visits, if so many cells of a user count, or 1."""
        tables = np.zeros((1, self.spec.horizon, self.shape[1]), dtype=np.int64)
        statistic = self._first_visits(np.ones(self.shape, dtype=bool), most, tables, 0)
        if state is not None and at.releases:
            return max(1.0, state.noise / statistic.unit)
        more = _RUNNING if self._running else 1.0
        return max(1.0, more * release_noise(statistic, self.privacy, 1) / statistic.unit)

    # Choices made before the first user comes.

    @cached_property
    def _smallest_block(self) -> int:
        return math.ceil(20.0 * self.noise_of(None, Progress(), 4))

    def _choose_counter(self) -> str:
        """Running sums where there are many cells, each of which is seen in many blocks."""
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

    def successor_state(self, state: State) -> State:
        """What is known stays; a counter of its own begins."""
        posterior, evidence = copy(state.posterior), state.posterior.evidence
        posterior.evidence = replace(evidence, sums=evidence.sums[:0], counter=self._counter)
        return replace(state, posterior=posterior)


def _lost(values: Floats, at_random: float) -> float:
    """What is lost of what is at stake, in the mean of these worlds."""
    stakes = np.maximum(values[0] - at_random, gains(values))
    return float((gains(values) / np.maximum(stakes, 1e-9)).mean())
