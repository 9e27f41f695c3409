"""ConcurrentPSRL: most users are served by what is known, many explorers learn in parallel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Algorithm, Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.core.sizes import check_bytes
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.mixed_policy import MixedPolicy
from tacit.finite.model import check_policy, uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.arguments import flag, instance_of, whole_number
from tacit.privacy.counters.dense import MOST_OPTIMAL, NormalisedSquareRoot, Optimal
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise
from tacit.tabular.exploration import (
    ExplorationConstants,
    Explorer,
    Question,
    Walks,
    gains,
    shares,
)
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.sparse_posterior import SparseConstants, SparsePosterior
from tacit.tabular.visit_evidence import VisitEvidence

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.finite.visits import Ints

# Blocks above so many users, or steps of them, are counted whole: nobody is clipped any more, and
# the counts are simulated at a cost that does not grow with the users.
_ONE_BY_ONE, _STEPS_ONE_BY_ONE = 1 << 17, 1 << 22
# Releases, and numbers in them, of which all are kept to tell running sums apart.
_LONGEST_HISTORY, _LARGEST_HISTORY = 1 << 10, 1 << 25
# The noise of a running sum against that of a single release, before the first one.
_RUNNING = 1.8


@dataclass(frozen=True, kw_only=True)
class ConcurrentOptions:
    """Options of ConcurrentPSRL.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
        growth: by which the users served grow from block to block.
        first: users of the first block, in standard deviations of a count's noise.
        running: cells of a world above which releases are running sums over all users, and not of
            each block.
        today: the policy that users are served today, if it is not uniform actions: it serves on
            until releases show that what was learnt is better.
        sparse: constants of what is made of releases.
        exploration: constants of who explores what.
    """

    stationary: bool | None = None
    growth: float = 1.2
    first: float = 20.0
    running: int = 24
    today: Policy | None = None
    sparse: SparseConstants = SparseConstants()  # noqa: RUF009
    exploration: ExplorationConstants = ExplorationConstants()  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        if not (math.isfinite(self.growth) and self.growth > 1.0):
            raise InvalidArgument(f"growth must be > 1, got {self.growth!r}")
        if not (math.isfinite(self.first) and self.first > 0.0):
            raise InvalidArgument(f"first must be > 0, got {self.first!r}")
        object.__setattr__(self, "running", whole_number("running", self.running, least=0))
        if self.today is not None:
            instance_of("today", self.today, Policy)
        instance_of("sparse", self.sparse, SparseConstants)
        instance_of("exploration", self.exploration, ExplorationConstants)


class ConcurrentPSRL(FiniteAlgorithm):
    """Posterior sampling by many explorers at once, beside a greedy policy for most users.

    Idea: noise is the same for ten users and for ten thousand, so few, large blocks are best, in
    which many policies are tried in parallel. Most users follow the best policy for what is known;
    a share that is learnt explores, by policies that cover what is unknown and by the best policies
    of worlds that may be true. Until releases show that the best policy gains something, today's
    policy, or uniform actions, serve in its place. Of each user a few first visits count, to cells
    that are still worth asking about, and most next states are taken to be impossible unless they
    stand out.

    Private statistics: :class:`~tacit.tabular.first_visits.FirstVisits` of every block, released
    once, with its whole budget; :class:`~tacit.finite.visits.VisitCounts` of very large ones.

    Guarantee: that of its curator; see ``guarantee``. There is no bound on regret.

    Cost: O(H S^2 A) for each of some 65 plans per release, and 2000 paths of H steps.
    """

    name = "concurrent_psrl"
    distributed = True
    Options = ConcurrentOptions
    spec: FiniteSpec
    options: ConcurrentOptions

    def __init__(self, setting: Setting, options: ConcurrentOptions) -> None:
        instance_of("spec", setting.spec, FiniteSpec)
        spec: FiniteSpec = setting.spec
        if setting.privacy.local:
            raise InvalidArgument(
                "ConcurrentPSRL is for JointDP or NonPrivate: devices that add noise each need "
                "other statistics; use UCBVI"
            )
        self.stationary = spec.stationary if options.stationary is None else options.stationary
        shape = (spec.rows(self.stationary), spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*shape, spec.states))
        if options.today is not None:
            check_policy(spec, options.today)
        evidence = VisitEvidence(shape, noisy=setting.privacy.private)
        self.posterior = SparsePosterior(evidence, options.sparse, apart=not spec.last_state)
        # Laplace noise has other counters, whose sums cannot be told apart again.
        # And opened sums of devices are blocks.
        self._running = setting.privacy.joint and setting.privacy.norm == "l2"
        self._running &= math.prod(shape) > options.running
        self._noise = 0.0
        # When the greedy value last changed, what it was, and what it was expected to lose.
        self._learnt_at, self._greedy_value, self._lost = 0, 0.0, 1.0
        self._shown = False  # whether most users were ever served by what is known
        self._question: Question
        super().__init__(setting, options)
        releases = self.schedule.releases
        self._running &= releases * evidence.sums.shape[1] <= _LARGEST_HISTORY
        self._running &= releases <= _LONGEST_HISTORY
        if self._running:
            self.counter = Optimal.kind if releases <= MOST_OPTIMAL else NormalisedSquareRoot.kind
            evidence.count_by(self.counter, releases)

    # What is asked: a few first visits of each user, as sums over all users so far.

    def asks(self) -> Asks:
        """First visits to the cells that the plan of the block asked for."""
        statistic = self.statistic()
        release = yield Ask(statistic)
        evidence, unit = self.posterior.evidence, self.block_users * statistic.unit
        parts, walks = release.parts, self._walks()
        if not evidence.noisy:
            parts = {name: array / statistic.unit for name, array in parts.items()}
            unit = float(self.block_users)
        self._noise = float(np.max(release.std["transitions"]))
        often = walks.visits
        asked, came = self._question.expected, np.zeros(often.shape)
        if statistic.whole:
            asked = often
        else:
            came = walks.came
        evidence.add(parts, release.std, (unit * asked, unit * came, unit * often))
        self.posterior.see_moves()
        self.posterior.see_rewards()

    def statistic(self) -> FirstVisits:
        """What is asked of the current block."""
        asked, mixed = self._question, self.policy
        given = (mixed.tables, mixed.version)
        if self._one_by_one:
            explores = (np.arange(len(mixed.tables)) > 0).astype(np.int64)
            return self._first_visits(asked.wanted[explores], asked.most, *given)
        everywhere = np.ones(asked.expected.shape, dtype=bool)
        return self._first_visits(everywhere, self.spec.horizon, *given, whole=True)

    def _first_visits(
        self, wanted: Any, most: int, tables: Ints, version: int, whole: bool = False
    ) -> FirstVisits:
        sparse = self.options.sparse
        weights = math.sqrt(sparse.reward_weight), math.sqrt(sparse.paid_weight)
        norm = self.privacy.norm if self.privacy.private else "l2"
        return FirstVisits(wanted, most, tables, version, *weights, norm, whole)

    # How it plans: the greedy policy, explorers, and what to ask.

    def plan(self) -> tuple[MixedPolicy, Policy]:
        """The greedy policy with its explorers, and the greedy policy alone.

        Today's policy is in its place until releases show that it gains something.
        """
        explorer, c = self._explorer, self.options.exploration
        before = self.greedy_policy.actions if self._serving else None
        greedy = explorer.greedy(before)
        half, earned = c.explorers // 2, greedy.earned
        sampled, values = explorer.sampled(greedy.actions, half)
        at_random = explorer.random_value()
        lost = max(_lost(values, at_random), _lost(greedy.values, at_random))
        spent, users = self._spent(earned, lost), self._next_block
        promised = max(gains(greedy.values).mean(), 1e-9)
        covering = max(c.covering, 1.0 - gains(values).mean() / promised)
        covered = users * max(spent * covering, 0.02) / half
        serving = greedy if self._serving else None
        covers = explorer.covering(half, covered, self.noise_of(4), serving)
        policies = [greedy.actions, *covers, *sampled]
        drawn = (1.0 - covering) * shares(values)
        explore = np.concatenate([np.full(half, covering / half), drawn])
        cost = 1.0
        if earned > 1e-6:
            paid = float(explore @ [explorer.known_value(actions) for actions in policies[1:]])
            stake = max(earned - at_random, 0.1 * earned)
            cost = min(1.0, max(c.cheapest, (earned - paid) / stake))
        share = min(1.0, spent / cost)
        self._shown |= self._serving or not self.posterior.evidence.noisy
        guarded = not self._shown and greedy.shown < (1.0 if self._too_few else c.shown)
        if guarded and self._too_few:
            share = min(share, c.unshown)
        weights = np.concatenate([[1.0 - share], share * explore])
        guarded &= share < 1.0
        if guarded:
            policies += explorer.todays(half)
            weights = np.concatenate([[0.0], weights[1:], np.full(half, weights[0] / half)])
        parts = [Policy.deterministic(a, self.spec.actions, self.releases) for a in policies]
        mixed = MixedPolicy(parts, weights / weights.sum(), self.releases)
        walks = explorer.walks(mixed.tables, mixed.weights)
        self._question = explorer.question(walks, users, self.noise_of)
        return mixed, self._today.as_version(self.releases) if guarded else mixed.components[0]

    @property
    def _too_few(self) -> bool:
        """Whether users are not half of those needed, or half of them all were served."""
        users = self.before + self.users
        return 2 * users < self.needed or 2 * self.all_served >= max(users, self.needed)

    @cached_property
    def needed(self) -> int:
        """Users until a gain is shown, by rule of thumb: within a factor of three in our worlds.

        So many first blocks as there are states times actions, or five and a quarter of them where
        sums run; scaled from ``research/fewer_users.json``.
        """
        cells = self.spec.states * self.spec.actions
        return self._smallest_block * (5 + cells // 4 if self._running else cells)

    @property
    def _serving(self) -> bool:
        """Whether most users were served by the greedy policy of the last plan."""
        return self.all_served > 0 and bool(self.policy.weights[0] > 0.5)

    def _spent(self, earned: float, lost: float) -> float:
        """The part of what is at stake that exploring may cost, by what greedy may lose of it.

        At least as much as it is expected to lose, by this plan and the last. Little once nothing
        moves.
        """
        c = self.options.exploration
        moved = abs(earned - self._greedy_value) > c.moved * self._greedy_value
        if earned <= 1e-6 or moved:
            self._learnt_at = self.all_served
        self._greedy_value = earned
        # One plan's draws may be unlucky.
        both, self._lost = min(lost, self._lost), lost
        if earned <= 1e-6:
            return 1.0
        urgent = c.urgent * (c.patience if self._serving else 1.0)
        spent = float(min(1.0, max((lost / urgent) ** c.steepness, c.even * both)))
        if not self.all_served:
            return max(c.least, spent)
        # What must not be missed is looked for ever less: all that it costs grows with the
        # logarithm of the users.
        age = self._learnt_at / self.all_served
        return max(c.least * min(1.0, c.late * age), min(spent, (c.settled * age) ** 4))

    @property
    def _explorer(self) -> Explorer:
        spec = self.spec
        start = np.full(spec.states, 1.0 / spec.states) if spec.start is None else spec.start
        given = (np.array(start), spec.horizon, self.options.exploration, self.rng)
        today = None if self.options.today is None else self._today.table()
        return Explorer(self.posterior, *given, today)

    @property
    def _today(self) -> Policy:
        """What users are served today: uniform actions, where nobody says."""
        return self.options.today or uniform_policy(self.spec)

    def _walks(self) -> Walks:
        """Ways of the current block's users through what is known by now."""
        return self._explorer.walks(self.policy.tables, self.policy.weights)

    # What is public.

    @property
    def form(self) -> str:
        """Users one by one while a clip matters, then sums."""
        if self._one_by_one:
            return "episodes"
        return "pooled" if self.stationary and self.spec.last_state else "counts"

    @property
    def masked(self) -> bool:
        """Only those count who followed the block's policies."""
        return True

    @property
    def why(self) -> str:
        """What was chosen, in words."""
        cells, running = self.posterior.visits.size, self.options.running
        how = "each block is released once, with its whole budget"
        if not self.posterior.evidence.noisy:
            how = "sums need no noise"
        elif self._running:
            how = f"{cells} cells, more than {running}: all blocks go through one {self.counter}"
            how += " counter"
        elif cells <= running:
            how = f"{cells} cells, at most {running}: {how}"
        why = (
            f"{self.schedule.releases} releases ({self.schedule.name}); {how}; most users follow "
            f"what is known, {self.options.exploration.explorers} policies explore beside it"
        )
        users, today = self.before + self.users, self.options.today
        if self.posterior.evidence.noisy and users < self.needed:
            why += f"; about {self.needed:,} users are needed at this budget, by rule of thumb"
            if 2 * users < self.needed:
                why += (
                    f", and {users:,} are too few: until releases show a gain, "
                    f"{'uniform actions' if today is None else 'the policy of today'} serve all "
                    f"but {self.options.exploration.unshown:.0%} of them"
                )
        return why

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a visit, if the current question's cells count."""
        return self._noise / self.statistic().unit

    def noise_of(self, most: int) -> float:
        """Standard deviation of the noise, in visits, if so many cells of a user count, or 1."""
        shape = self.posterior.visits.shape
        tables = np.zeros((1, self.spec.horizon, shape[1]), dtype=np.int64)
        statistic = self._first_visits(np.ones(shape, dtype=bool), most, tables, 0)
        noise = self._noise
        if not self.releases:
            more = _RUNNING if self._running else 1.0
            noise = more * release_noise(statistic, self.privacy, 1)
        return max(1.0, noise / statistic.unit)

    # Choices made before the first user comes.

    def _first_policies(self) -> tuple[MixedPolicy, Policy]:
        """Explorers of a world of which nothing is known."""
        return self.plan()

    @property
    def _smallest_block(self) -> int:
        return math.ceil(self.options.first * self.noise_of(4))

    def _choose_counter(self) -> str:
        """Running sums where there are many cells, each of which is seen in many blocks."""
        return "auto" if self._running else "blocks"

    def _pace(self) -> Pace:
        return Pace(first=self._smallest_block, growth=self.options.growth)

    @property
    def _next_block(self) -> int:
        """Users of the block that is planned for."""
        if not hasattr(self, "schedule"):
            return min(self._smallest_block, self.users)
        return self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]

    @property
    def _one_by_one(self) -> bool:
        users = self._next_block
        return users <= _ONE_BY_ONE and users * self.spec.horizon <= _STEPS_ONE_BY_ONE

    # Save and resume, and what comes after the last user.

    def begin_anew(self, other: Algorithm[Any]) -> None:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        self.posterior.evidence.begin_anew()

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"stationary": self.stationary}

    def state(self) -> State:
        """The posterior, and what was asked of the current block."""
        meta, arrays = self.posterior.dump()
        asked = self._question
        arrays |= {"wanted": asked.wanted, "expected": asked.expected}
        meta |= {"most": asked.most, "noise": self._noise}
        meta |= {"learnt_at": self._learnt_at, "greedy_value": self._greedy_value}
        return meta | {"lost": self._lost, "shown": self._shown}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.posterior.restore(meta, arrays)
        self._noise = float(meta["noise"])
        expected = arrays["expected"]
        # Earlier versions asked everybody the same.
        wanted = np.broadcast_to(arrays["wanted"], (2, *expected.shape))
        self._question = Question(int(meta["most"]), wanted, expected)
        self._learnt_at = int(meta["learnt_at"])
        self._greedy_value = float(meta["greedy_value"])
        self._lost = float(meta.get("lost", 1.0))
        self._shown = bool(meta["shown"])


def _lost(values: Floats, at_random: float) -> float:
    """What is lost of what is at stake, in the mean of these worlds."""
    stakes = np.maximum(values[0] - at_random, gains(values))
    return float((gains(values) / np.maximum(stakes, 1e-9)).mean())
