"""Learning from a log that is there already: learn from some users, judge by others.

The users of a log come in two blocks. The first is learnt from: it yields policies between what
people do today and the boldest that the evidence speaks for. The second, other users, judges how
much better they all are in one release (:class:`~tacit.tabular.return_statistics.RobustGains`); the
one with the highest proven gain is recommended if that is above zero. A user is in one block, so
each has the whole budget and the guarantee is that of one release.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import softmax

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress, Queries, Query
from tacit.core.constructors import make_agent
from tacit.core.problem import Schedule
from tacit.data.episodes import Episodes
from tacit.privacy.budget import Guarantee
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.noise import ADDITIONS, CHUNK, grid_step
from tacit.privacy.reading import as_numbers, require_shape
from tacit.privacy.statistic import Block, Ints
from tacit.privacy.validation import FilePath, checked_number, instance_of, whole_number
from tacit.store.store import Store
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.model import check_policy
from tacit.tabular.policy import Policy, uniform_policy
from tacit.tabular.return_statistics import (
    ActionCounts,
    Interval,
    RobustGains,
    fit_of,
    propensities,
)
from tacit.tabular.spec import FiniteSpec

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.core.problem import Problem

# How bold policies are: the second moment of weights, as predicted.
_MOMENTS = (1.1, 1.3, 1.7, 2.5, 5.0, 12.0)
# Where behaviour is unknown, its share of the budget, and that of the failure probability.
_COUNTED, _DOUBTED = 0.2, 0.2
# Where it is known, the share for a check; a log that fits has a lower probability than this.
_CHECKED, _MISFIT = 0.01, 1e-6
# States times actions up to which a log's transitions are counted.
FEW_CELLS = 500
# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17
_WORDS = ("uniform", "logged", "unknown")


@dataclass(frozen=True, kw_only=True)
class OfflineOptions:
    """Options of learning from a log.

    Attributes:
        behaviour: what the users of the log were served: a policy; ``"uniform"`` over what states
            allow; ``"logged"``, if every step has its probability in the array ``propensities``
            of the users' blocks, (users, H); or ``"unknown"``, if it depended on the state alone
            and is to be estimated.
        confidence: with which probability all intervals hold.
        judged: the share of users who judge and are not learnt from; by default the algorithm's.
        caution: standard deviations taken off what is believed of an action; chosen on sparse_mdp
            with 200 and 500 states. No guarantee and no interval depends on it.
    """

    behaviour: Policy | Literal["uniform", "logged", "unknown"] = "uniform"
    confidence: float = 0.95
    judged: float | None = None
    caution: float = 0.5

    def __post_init__(self) -> None:
        checked_number("caution", self.caution, ">= 0", lambda number: number >= 0.0)
        if not isinstance(self.behaviour, Policy) and self.behaviour not in _WORDS:
            said = repr(self.behaviour)
            raise InvalidArgument(f"behaviour must be a Policy or one of {_WORDS}, got {said}")
        for name in ("confidence", "judged"):
            if (share := getattr(self, name)) is not None:
                checked_number(name, share, "in (0, 1)", lambda share: 0.0 < share < 1.0)


@dataclass(frozen=True, eq=False)
class Recommendation:
    """A policy with its evidence, or today's with the reason. Public, all of it."""

    policy: Policy  # the best one that is surely better, else what is done today, as far as known
    better: bool  # whether a policy was found whose gain is surely above zero
    gain: Interval  # how much better than today's ``found`` is
    value: Interval  # of ``found``, recommended or not
    today: Interval  # of what is done today
    confidence: float  # probability, over users and noise, with which all intervals hold
    gains: tuple[Interval, ...] = field(repr=False)  # of all that were judged, the boldest last
    found: Policy = field(repr=False)  # the policy with the highest lower end of its gain
    trial: Policy = field(repr=False)  # the one with the largest estimate: worth a trial
    learnt: int  # how many users it was learnt from
    judged: int  # how many other users it was judged by
    behaviour: str  # "known", "logged" (propensities of every step), or "unknown"
    fit: float | None = None  # chance that actions of this behaviour look as different; None: open
    guarantee: Guarantee | None = field(default=None, repr=False)  # for every user of the log

    @property
    def verdict(self) -> str:
        """In words."""
        if self.fit is not None and self.fit < _MISFIT:
            return "No recommendation: the log's users did not behave as it was said."
        sides = f"{self.gain} more than {self.today} today"
        if self.better:
            return f"Better than today with probability {self.confidence:g}: {sides}."
        words = f"nothing is better than today with probability {self.confidence:g}"
        return f"No recommendation: {words} (the best found has {sides}); a trial can tell more."

    def __str__(self) -> str:
        people = f"Learnt from {self.learnt:,} users and judged by {self.judged:,} others"
        proven = "No guarantee." if self.guarantee is None else str(self.guarantee)
        return f"{self.verdict} {people}; today's behaviour was {self.behaviour}. {proven}"


@dataclass(frozen=True, eq=False)
class Candidates:
    """K policies between today's and the boldest that the evidence speaks for, in this order."""

    tables: Floats  # (K, F, S, A), their probabilities by phase
    moments: Floats  # (K,), second moments of an episode's weights, as predicted
    bias: Floats  # (K,), how far the mean of what is measured may be from the gain


@dataclass(frozen=True, eq=False)
class OfflineState:
    """Behaviour, and what both blocks taught."""

    behaviour: Floats  # (1 or H, S, A), today's probabilities; estimated ones if they are unknown
    bounds: Floats  # upper bounds of them, by which returns are weighted
    learnt: Any = None  # what the first block taught; none before it
    judged: Candidates | None = None  # policies that the second block judged; none before it
    fit: float | None = None  # of what was said of behaviour, where that was checked
    gains: tuple[Interval, ...] = ()  # of these policies
    today: Interval | None = None  # value of what is done today


class OfflineAlgorithm(FiniteAlgorithm[OfflineState]):
    """Learns from a log and judges what it learnt; it serves no users."""

    offline = True
    knows_admissible: ClassVar[bool] = True
    Options = OfflineOptions
    options: OfflineOptions
    spec: FiniteSpec
    policies: ClassVar[type[TiltedPolicies]]
    """Policies that follow from what was learnt."""
    judging: ClassVar[float] = 0.5
    """Share of the users who judge, by default."""

    def __init__(self, problem: Problem, options: OfflineOptions) -> None:
        instance_of("spec", problem.spec, FiniteSpec)
        if problem.privacy.local or problem.privacy.pure:
            words = (
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {problem.privacy!r}"
            )
            raise InvalidArgument(words)
        if not problem.own_schedule:
            raise InvalidArgument("schedule means nothing here: one block learns and one judges")
        if problem.users < 4:
            raise InvalidArgument(f"users must be >= 4 to learn and to judge, got {problem.users}")
        self.allowed = problem.spec.allowed
        self.behaviour = _behaviour_table(problem.spec, options.behaviour)
        super().__init__(problem, options)
        share = self.judging if options.judged is None else options.judged
        judged = min(max(round(share * self.users), 2), self.users - 2)
        self.schedule = Schedule("learn, then judge", (self.users - judged, judged))

    def init(self) -> OfflineState:
        """Today's behaviour, as the options say it."""
        return OfflineState(self.behaviour, self.behaviour)

    @property
    def why(self) -> str:
        """The choices made for this log and budget, in words."""
        learnt, judged = self.schedule.blocks
        return f"learns from {learnt:,} users, judges by {judged:,}; behaviour {self.how}"

    @property
    def how(self) -> str:
        """Whether today's behaviour is ``"known"``, ``"logged"`` step by step, or ``"unknown"``."""
        given = self.options.behaviour
        return "known" if isinstance(given, Policy) or given == "uniform" else str(given)

    # What is asked.

    def learn(
        self, state: OfflineState, plan: Plan, block: BlockInfo, rng: Generator
    ) -> Queries[OfflineState]:
        """Queries for what is learnt from, then for returns under other policies."""
        failure = 1.0 - self.options.confidence
        if state.learnt is None:
            left, known = 1.0, self.how == "known"
            if not known or len(self.behaviour) == 1:
                share, doubted = _CHECKED if known else _COUNTED, _DOUBTED * failure
                logged = self.how == "logged"
                counts = ActionCounts(self.allowed, self.spec.horizon, logged=logged)
                release = yield Query(counts, share=share)
                noise, left = float(np.max(release.std["counts"])), left - share
                if known:
                    fit = fit_of(release["counts"], noise, self.allowed, self.behaviour[0])
                    state = replace(state, fit=fit)
                else:
                    found = propensities(release["counts"], noise, self.allowed, doubted)
                    behaviour, bounds = (table[np.newaxis] for table in found)
                    state = replace(state, behaviour=behaviour, bounds=bounds)
            learnt = yield from _scaled(self.first_queries(state.behaviour), left)
            return replace(state, learnt=learnt)
        if self.how == "unknown":
            failure *= 1.0 - _DOUBTED
        *gains, today = yield from self.judge(plan.memory, state, failure)
        return replace(state, judged=plan.memory, gains=tuple(gains), today=today)

    @abstractmethod
    def first_queries(self, behaviour: Floats) -> Queries[Any]:
        """Queries to the first block, under today's behaviour; returns what they taught."""

    def judge(
        self, judged: Candidates, state: OfflineState, failure: float
    ) -> Queries[list[Interval]]:
        """Query to the second block; intervals of all gains and today's value, up to a failure."""
        statistic, R = self.gains(judged, state.bounds), self.spec.most_return
        release = yield Query(statistic)
        slack = slack_of(statistic, self.spec.horizon, release.users)
        *gains, today = statistic.intervals(release, failure, slack)
        found = list[Interval]()
        for gain, bias in zip(gains, judged.bias, strict=True):
            ends = np.clip([gain.low - bias, gain.high + bias], -R, R - today.low).tolist()
            found.append(Interval(float(np.clip(gain.estimate, *ends)), *ends))
        return [*found, today]

    def gains(self, judged: Any, bounds: Floats) -> RobustGains:
        """Query to the second block: by paths, under upper bounds of today's probabilities."""
        tables, R, n = judged.tables, self.spec.most_return, self.schedule.blocks[1]
        shape, K = np.broadcast_shapes(bounds.shape, tables.shape[1:]), len(tables)
        ratios = np.broadcast_to(tables, (K, *shape))
        if self.how != "logged":  # where the statistic itself divides
            ratios = np.divide(ratios, bounds, out=np.zeros((K, *shape)), where=bounds > 0)
        # Noise and range cost about (4 sqrt(2 K) / mu + 15) M / n, a return about R / sqrt(4 n).
        noise = 4.0 * math.sqrt(2.0 * K) / self.privacy.episode_mu + 15.0
        cuts = np.maximum(1.5, 2.0 * math.sqrt(n) / noise * np.sqrt(judged.moments))
        if self.how != "logged":
            steps = self.spec.horizon if shape[0] == 1 else 1
            with np.errstate(divide="ignore"):
                most = steps * np.log(ratios.max(axis=(2, 3))).sum(axis=1)
            cuts = np.clip(np.expm1(np.minimum(most, 500.0)), 1e-3, cuts)
        ranges = [[-R, R * cut] for cut in cuts] + [[-R * cut, R] for cut in cuts]
        nothing, S = np.zeros((K, 1, shape[1], shape[2] + 1)), self.spec.states
        ratios = np.concatenate([ratios, nothing[:, :, :, :1].repeat(shape[0], 1)], axis=3)
        tables = ratios, np.zeros((K, 1, S)), nothing, np.array(ranges), R, self.spec.horizon
        return RobustGains(*tables, paths=True, logged=self.how == "logged")

    # What follows.

    def plan(self, state: OfflineState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The recommended policy, once it was judged; until then, today's."""
        today = self._policy(self.behaviour)
        if state.learnt is None:
            return Plan(today, today)
        policies = self.policies(self, state)
        table = self._policy(policies.tilted(1e6)).table()
        greedy = self.named(self.best(np.round(table, 12), rng))
        found = self.recommendation(state)
        if found is None:
            return Plan(today, greedy, policies.candidates(rng))
        return Plan(found.policy, greedy, state.judged)

    def recommendation(self, state: OfflineState) -> Recommendation | None:
        """Result, once both blocks were asked; else ``None``."""
        if state.judged is None or state.today is None:
            return None
        best = max(range(len(state.gains)), key=lambda k: state.gains[k].low)
        bold = max(range(len(state.gains)), key=lambda k: state.gains[k].estimate)
        fits = state.fit is None or state.fit >= _MISFIT
        new, better = self._policy(state.judged.tables[best]), state.gains[best].low > 0.0 and fits
        promising = state.gains[bold].estimate > 0.0
        today = self._policy(state.behaviour)
        gain = state.gains[best]
        value = Interval(*np.add(astuple(gain), astuple(state.today)).tolist())
        bold_one = self._policy(state.judged.tables[bold]) if promising else today
        told = gain, value, state.today, self.options.confidence, state.gains, new, bold_one
        learnt, judged = self.schedule.blocks
        found = new if better else today
        return Recommendation(found, better, *told, learnt, judged, self.how, state.fit)

    def _policy(self, table: Floats) -> Policy:
        phase = np.arange(self.spec.horizon) * len(table) // self.spec.horizon
        return self.named(Policy.stochastic(table[phase]))

    def successor_state(self, state: OfflineState) -> OfflineState:
        """None: it is refused."""
        raise InvalidArgument(f"{self.name} learns from one log and judges once: nothing follows")

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes(first=self.users)

    def data_format(self, at: Progress) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users(at) > _IN_MEMORY else "episodes"


class TiltedPolicies(ABC):
    """Policies between today's and the boldest one that what was learnt speaks for."""

    def __init__(self, algorithm: OfflineAlgorithm, state: OfflineState) -> None:
        self.algorithm, self.spec, self.allowed = algorithm, algorithm.spec, algorithm.allowed
        self.behaviour, self.learnt = state.behaviour, state.learnt
        self.caution, self.plans = algorithm.options.caution, dict[float, Floats]()

    @abstractmethod
    def tilted(self, beta: float) -> Floats:
        """Today's policy, tilted by that much towards what is believed to be better, (F, S, A)."""

    @abstractmethod
    def moment(self, table: Floats) -> float:
        """The second moment of an episode's weight under a policy, about."""

    def tilt(self, scores: Floats, beta: float) -> Floats:
        """Probabilities in proportion to today's times exp(beta score / R)."""
        with np.errstate(divide="ignore"):
            logits = np.log(self.behaviour) + beta / self.spec.most_return * scores
        allowed = np.where(self.allowed, np.maximum(logits, -1e9), -np.inf)
        return np.asarray(softmax(allowed, axis=-1))

    def candidates(self, rng: Generator) -> Candidates:
        """Tilts that reach certain second moments, or the boldest there is; rising."""
        betas: list[float] = []
        for wanted in _MOMENTS:
            low, high = -2.0, 5.0
            for _ in range(18):
                middle = (low + high) / 2.0
                reached = self.moment(self.tilted(10.0**middle)) < wanted
                low, high = (middle, high) if reached else (low, middle)
            if not betas or 10.0**low > 1.05 * betas[-1]:
                betas.append(10.0**low)
        tables = np.stack([self.tilted(beta) for beta in betas])
        moments = np.array([*map(self.moment, tables)])
        return Candidates(tables, moments, np.zeros(len(tables)))


class PlannedPolicies(TiltedPolicies):
    """Plans backwards at a price for leaving today's policy: relative entropy, in units of R."""

    @abstractmethod
    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """Lower bounds of action values, (S, A), if states are worth ``after`` one step later."""

    @abstractmethod
    def expected(self, step: int, after: Floats) -> Floats:
        """Expected values one step later, (S, A), in the model."""

    @cached_property
    def _today(self) -> Floats:
        """Today's probabilities, (H, S, A)."""
        rows: Floats = np.broadcast_to(self.behaviour, (self.spec.horizon, *self.allowed.shape))
        return rows

    def tilted(self, beta: float) -> Floats:
        """The best policy at a price of R / beta for each unit of relative entropy, (H, S, A)."""
        if beta in self.plans:
            return self.plans[beta]
        H, R = self.spec.horizon, self.spec.most_return
        after, table = np.zeros(self.spec.states), np.empty((H, *self.allowed.shape))
        for h in range(H - 1, -1, -1):
            left = min(R, (H - h) * max(self.spec.reward_values))
            values = self.lower_values(h, after, left)
            b = self._today[h]
            table[h] = self.tilt(values, beta)[min(h, len(self.behaviour) - 1)]
            # The value less its price.
            ratio = np.divide(table[h], b, out=np.ones_like(b), where=table[h] > 0)
            paid = (table[h] * (values - R / beta * np.log(ratio))).sum(axis=1)
            after = np.maximum(paid, 0.0)
        self.plans[beta] = table
        return table

    def moment(self, table: Floats) -> float:
        """In the model, from its first states on, or the worst of them if those are not known."""
        after = np.ones(self.spec.states)
        for h in range(self.spec.horizon - 1, -1, -1):
            b = self._today[h]
            square = np.divide(table[h] ** 2, b, out=np.zeros_like(b), where=b > 0)
            after = np.minimum((square * self.expected(h, after)).sum(axis=1), 1e100)
        start = self.spec.start
        return float(after.max() if start is None else np.array(start) @ after)


def _scaled(queries: Queries[Any], share: float) -> Queries[Any]:
    """The same queries for a share of the budget."""
    query = next(queries)
    while True:
        release = yield replace(query, share=share * (1.0 if query.share is None else query.share))
        try:
            query = queries.send(release)
        except StopIteration as end:
            return end.value


def _behaviour_table(spec: FiniteSpec, behaviour: Policy | str) -> Floats:
    """Probabilities (1 or H, S, A); one table where every step has the same."""
    policy = uniform_policy(spec) if isinstance(behaviour, str) else behaviour
    check_policy(spec, policy)
    table = policy.table()
    return table[:1] if (table == table[:1]).all() else table


def slack_of(statistic: Any, horizon: int, users: int) -> float:
    """How far rounding to the grid can take a sum of so many users; see the exact noise."""
    chunk = max(1, min(CHUNK, ADDITIONS // (3 * horizon + 3)))
    return 0.5 * grid_step(statistic, "l2") * (1.1 * users / chunk + 3.0)


def learn_offline(
    episodes: Episodes,
    spec: FiniteSpec,
    privacy: Privacy,
    behaviour: Policy | Literal["uniform", "logged", "unknown"] | ArrayLike,
    *,
    agent: Callable[..., Agent] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    noise_seed: int | None = None,
    store: Store | FilePath = "",
    name: str = "run",
) -> Recommendation:
    """Learns a policy from a log, and says whether it is better than what the log's users got.

    Most users, drawn by a public seed, are learnt from, the others judge. Somebody with
    several episodes is in one half, and judges with her first one, since intervals are about
    people who are independent. All users pay the whole budget once: a run that its store has is
    asked no more, and tells what it found.

    Args:
        episodes: the log; with ``user_ids`` where users have several episodes.
        spec: what is known of the world; states, actions and rewards outside of it do not count.
        privacy: JointDP with delta > 0, or NonPrivate.
        behaviour: what the users of the log were served: a policy, ``"uniform"`` over what states
            allow, or ``"unknown"``; or propensities (users, H), the probability with which every
            step's action was chosen, or ``"logged"`` for those of the episodes. A policy that is
            the same at all steps is checked: one that does not fit the log is no recommendation.
        agent: ``tacit.PessimisticVI`` (the default where states are few),
            ``tacit.PessimisticImprovement`` (where they are many), or for specs of linear MDPs
            ``tacit.PessimisticLSVI``.
        confidence: with which probability, over users and noise, all intervals hold.
        seed: of the split and of ties; public.
        noise_seed: reproducible noise, for simulations only: it protects no user.
        store: Where the run and what was spent are kept: a store, a file, a URL, or memory.
        name: of the run in its store.

    >>> import tacit
    >>> world = tacit.tabular.random_mdp(states=5, actions=3, horizon=3, seed=1)
    >>> log = world.simulate(tacit.Policy.uniform(3, 5, 3), 50_000, np.random.default_rng(0))
    >>> found = learn_offline(log, world.spec, tacit.JointDP(1.0, 1e-6), "uniform", noise_seed=0)
    >>> found.better, world.value(found.policy) >= found.value.low > world.baseline_value
    (True, True)
    """
    instance_of("episodes", episodes, Episodes)
    learner: Any = getattr(agent, "algorithm", None)
    if agent is None:
        from tacit.tabular.pessimistic_improvement import PessimisticImprovement
        from tacit.tabular.pessimistic_vi import PessimisticVI

        few = spec.states * spec.actions <= FEW_CELLS
        learner = PessimisticVI if few else PessimisticImprovement
        agent = partial(make_agent, learner)
    elif not getattr(learner, "offline", False):
        raise InvalidArgument(f"agent must be one that learns from logs, got {agent!r}")
    seed = whole_number("seed", seed, least=0)
    given: Any = (
        episodes.propensities if isinstance(behaviour, str) and behaviour == "logged" else behaviour
    )
    if given is None:
        raise InvalidArgument("behaviour is 'logged', but these episodes have no propensities")
    logged = None
    if not isinstance(given, (Policy, str)):
        logged, behaviour = as_numbers("behaviour", given), "logged"
        require_shape("behaviour", logged, episodes.actions.shape)
    most = getattr(privacy, "episodes_per_user", 0) or episodes.users
    learnt, judges = _split(episodes, np.random.default_rng([seed, 5]), learner.judging, most)
    rows = np.concatenate([learnt, judges])
    options = {"behaviour": behaviour, "confidence": confidence, "judged": len(judges) / len(rows)}
    where = {"seed": seed, "noise_seed": noise_seed, "store": store, "name": name}
    made = agent(spec, users=len(rows), privacy=privacy, **options, **where)
    for part in (learnt, judges)[made.releases :]:
        taken = episodes.take(part)
        data = taken.block()
        if logged is not None:
            data = Block(data.users, {**data.arrays, "propensities": logged[part]})
        if refused := made.learn(data, taken.user_ids).refused:
            raise BudgetExceeded(f"{refused} of these users have spent their budgets in this store")
    algorithm: Any = made.algorithm
    found: Recommendation = algorithm.recommendation(made.state)
    return replace(found, guarantee=made.guarantee)


def _split(
    episodes: Episodes, rng: Generator, judging: float, most: float = math.inf
) -> tuple[Ints, Ints]:
    """Rows to learn from, ``most`` of a user, and rows that judge: of others, in random order."""
    n = episodes.users
    people = np.arange(n)
    if episodes.user_ids is not None:
        _, people = np.unique([str(name) for name in episodes.user_ids], return_inverse=True)
    count = int(people.max()) + 1 if n else 0
    if count < 4:
        raise InvalidArgument(f"episodes must be of at least 4 users, got {count}")
    rank = rng.permutation(count)
    last = min(max(round((1.0 - judging) * count), 2), count - 2)
    order = np.argsort(rank[people], kind="stable")
    ranks = rank[people[order]]
    earlier = np.arange(n) - np.searchsorted(ranks, ranks)
    learnt = order[(ranks < last) & (earlier < most)]
    _, first = np.unique(people, return_index=True)
    judges = first[rank >= last]
    return learnt, rng.permutation(judges)
