"""Learning from a log that is there already: learn from some users, judge by others.

The users of a log come in two blocks. The first is learnt from: it yields policies between what
people do today and the boldest that the evidence speaks for. The second, other users, judges them
all in one release (:class:`~tacit.finite.weighted_returns.WeightedReturns`), together with what is
done today; the one with the highest proven value is recommended if that is above today's. A user
is in one block, so each has the whole budget and the guarantee is that of one release.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm, Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.core.columns import as_numbers, require_shape
from tacit.core.episodes import Episodes
from tacit.core.kinds import maker
from tacit.core.schedule import Schedule
from tacit.core.ways import way
from tacit.finite.action_counts import ActionCounts, propensities
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import check_policy, uniform_policy
from tacit.finite.policy import Policy, softmax
from tacit.finite.spec import FiniteSpec
from tacit.finite.weighted_returns import Interval, WeightedReturns, value_intervals
from tacit.privacy.arguments import FilePath, checked_number, instance_of, one_of, whole_number
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.exact import ADDITIONS, CHUNK, grid_step
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, Ints

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17
_WORDS = ("uniform", "logged", "unknown")
_METHODS = {
    "returns": "tacit.tabular.pessimistic_improvement:PessimisticImprovement",
    "counts": "tacit.tabular.pessimistic_vi:PessimisticVI",
    "features": "tacit.linear.pessimistic_lsvi:PessimisticLSVI",
}


@dataclass(frozen=True)
class OfflineConstants:
    """Chosen on sparse_mdp with 200 and 500 states, seeds 320 and 321."""

    # How bold policies are: the second moment of weights, as predicted
    moments: tuple[float, ...] = (1.1, 1.3, 1.7, 2.5, 5.0, 12.0)
    caution: float = 0.5  # standard deviations that are taken off what is believed of an action
    cut: float = 4.0  # of weights, in units of what noise and range make of one standard error
    counted: float = 0.2  # share of the budget for what people do, where that is unknown
    doubted: float = 0.2  # share of the failure probability for it


@dataclass(frozen=True, kw_only=True)
class OfflineOptions:
    """Options of learning from a log.

    Attributes:
        behaviour: what the users of the log were served: a policy; ``"uniform"`` over what states
            allow; ``"logged"``, if every step has its probability in the array ``propensities``
            of the users' blocks, (users, H); or ``"unknown"``, if it depended on the state alone
            and is to be estimated.
        confidence: with which probability all intervals hold.
        judged: the share of users who judge and are not learnt from.
        constants: constants of the search; no guarantee and no interval depends on them.
    """

    behaviour: Policy | Literal["uniform", "logged", "unknown"] = "uniform"
    confidence: float = 0.95
    judged: float = 0.5
    constants: OfflineConstants = OfflineConstants()

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, OfflineConstants)
        if not isinstance(self.behaviour, Policy) and self.behaviour not in _WORDS:
            raise InvalidArgument(
                f"behaviour must be a Policy or one of {_WORDS}, got {self.behaviour!r}"
            )
        for name in ("confidence", "judged"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0.0 < value < 1.0):
                raise InvalidArgument(f"{name} must be in (0, 1), got {value!r}")


@dataclass(frozen=True, eq=False)
class Recommendation:
    """A policy with its evidence, or today's with the reason. Public, all of it.

    Attributes:
        policy: what to do: a new policy if it is surely better, else what is done today (as far as
            it is known).
        better: whether a policy was found whose value is surely above today's.
        value: the interval of the best policy that was found, recommended or not.
        today: the interval of what is done today.
        confidence: with which probability, over users and noise, both intervals hold, and those
            of all ``candidates``.
        candidates: the intervals of all policies that were judged, from careful to bold.
        found: the policy that ``value`` is about.
        learnt: how many users it was learnt from.
        judged: how many other users it was judged by.
        behaviour: ``"known"``, ``"logged"`` (propensities of every step), or ``"unknown"``.
        guarantee: what is proven for every user of the log; ``None`` without privacy.
    """

    policy: Policy
    better: bool
    value: Interval
    today: Interval
    confidence: float
    candidates: tuple[Interval, ...] = field(repr=False)
    found: Policy = field(repr=False)
    learnt: int
    judged: int
    behaviour: str
    guarantee: Guarantee | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """In words."""
        sides = f"{_shown(self.value)} against {_shown(self.today)} today"
        if self.better:
            return f"Better than today with probability {self.confidence:g}: {sides}."
        return (
            f"No recommendation: nothing is better than today with probability "
            f"{self.confidence:g} (the best that was found has {sides})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tables, as JSON values."""
        return {
            "better": self.better,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "value": asdict(self.value),
            "today": asdict(self.today),
            "candidates": [asdict(one) for one in self.candidates],
            "learnt": self.learnt,
            "judged": self.judged,
            "behaviour": self.behaviour,
            "guarantee": None if self.guarantee is None else self.guarantee.short,
        }

    def __str__(self) -> str:
        people = f"Learnt from {self.learnt:,} users and judged by {self.judged:,} others"
        how = f"what people do today was {self.behaviour}"
        proven = "No guarantee." if self.guarantee is None else str(self.guarantee)
        return f"{self.verdict} {people}; {how}. {proven}"


def _shown(interval: Interval) -> str:
    return f"a value of {interval.estimate:.4g}, in [{interval.low:.4g}, {interval.high:.4g}],"


class OfflineAlgorithm(FiniteAlgorithm):
    """Learns from a log and judges what it learnt; serves nobody.

    Attributes:
        behaviour: today's probabilities, (1 or H, S, A); estimated ones once the first block was
            asked, if they are unknown.
        bounds: upper bounds of them, by which returns are weighted.
        recommendation: what came of it, once both blocks were asked; else ``None``.
    """

    batch = True
    deterministic: ClassVar[bool] = False
    knows_admissible: ClassVar[bool] = True
    refuses: ClassVar = {"schedule": "there are two blocks, one to learn from and one that judges"}
    Options = OfflineOptions
    options: OfflineOptions
    spec: FiniteSpec

    def __init__(self, setting: Setting, options: OfflineOptions) -> None:
        instance_of("spec", setting.spec, FiniteSpec)
        if setting.privacy.local or setting.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {setting.privacy!r}: "
                "several questions are asked, and intervals are those of Gaussian noise"
            )
        if setting.users < 4:
            raise InvalidArgument(f"users must be >= 4 to learn and to judge, got {setting.users}")
        spec: FiniteSpec = setting.spec
        allowed = spec.allowed
        self.allowed = np.ones((spec.states, spec.actions), bool) if allowed is None else allowed
        self.behaviour = _behaviour_table(spec, options.behaviour)
        self.bounds = self.behaviour
        self.recommendation: Recommendation | None = None
        self.known: Arrays = {}
        super().__init__(setting, options)
        judged = min(max(round(options.judged * self.users), 2), self.users - 2)
        self.schedule = Schedule("learn, then judge", (self.users - judged, judged))

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        learnt, judged = self.schedule.blocks
        return f"learns from {learnt:,} users, judges by {judged:,}; behaviour {self.how}"

    @property
    def how(self) -> str:
        """Whether today's behaviour is ``"known"``, ``"logged"`` step by step, or ``"unknown"``."""
        given = self.options.behaviour
        return "known" if isinstance(given, Policy) or given == "uniform" else str(given)

    # What is asked.

    def asks(self) -> Asks:
        """Of the first block what is learnt from; of the second returns under other policies."""
        if self.releases == 0:
            left = 1.0
            if self.how != "known":
                share, logged = self.options.constants.counted, self.how == "logged"
                counts = ActionCounts(self.allowed, self.spec.horizon, logged=logged)
                self._hear_actions((yield Ask(counts, share=share)))
                left -= share
            yield from _scaled(self.learn(), left)
            return
        betas = self._boldness()
        statistic = self._weighted(np.stack([self.tilted(beta) for beta in betas]))
        release, failure = (yield Ask(statistic)), 1.0 - self.options.confidence
        if self.how == "unknown":
            failure *= 1.0 - self.options.constants.doubted
        intervals = value_intervals(release, statistic, failure, _slack(statistic, release.users))
        self.known = {"betas": np.array(betas), "intervals": np.array([*map(astuple, intervals)])}

    @abstractmethod
    def learn(self) -> Asks:
        """Questions to the first block, each with its share of the budget."""

    def _hear_actions(self, release: Release) -> None:
        constants, failure = self.options.constants, 1.0 - self.options.confidence
        noise = float(np.max(release.std["counts"]))
        estimates, bounds = propensities(
            release["counts"], noise, self.allowed, constants.doubted * failure
        )
        self.behaviour, self.bounds = estimates[np.newaxis], bounds[np.newaxis]

    # What follows: policies between today's and the boldest one.

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
        return softmax(np.where(self.allowed, np.maximum(logits, -1e9), -np.inf))

    def _boldness(self) -> list[float]:
        """Tilts that reach the moments of the constants, or the boldest there is; rising."""
        found: list[float] = []
        for wanted in self.options.constants.moments:
            low, high = -2.0, 5.0
            for _ in range(18):
                middle = (low + high) / 2.0
                reached = self.moment(self.tilted(10.0**middle)) < wanted
                low, high = (middle, high) if reached else (low, middle)
            if not found or 10.0**low > 1.05 * found[-1]:
                found.append(10.0**low)
        return found

    def _weighted(self, tables: Floats) -> WeightedReturns:
        """The question to the second block; today's policy comes last, and is never weighted."""
        bounds = np.broadcast_to(
            self.bounds, np.broadcast_shapes(self.bounds.shape, tables.shape[1:])
        )
        ratios = np.divide(
            tables, bounds, out=np.zeros((len(tables), *bounds.shape)), where=bounds > 0
        )
        ratios = np.concatenate([ratios, np.ones((1, *bounds.shape))])
        R, n, K = self.spec.most_return, self.schedule.blocks[1], len(ratios)
        # Noise and range cost about (4 sqrt(2 K) / mu + 15) M / n, a return about R / sqrt(4 n).
        noise = 4.0 * math.sqrt(2.0 * K) / self.privacy.episode_mu + 15.0
        usual = self.options.constants.cut * math.sqrt(n) / (2.0 * noise)
        cuts = [max(1.5, usual * math.sqrt(self.moment(table))) for table in tables]
        largest = ratios.reshape(K, ratios.shape[1], -1).max(axis=2)
        steps = self.spec.horizon if ratios.shape[1] == 1 else 1
        with np.errstate(over="ignore", divide="ignore"):
            most = np.exp(np.minimum(steps * np.log(largest).sum(axis=1), 500.0))
        most = R * np.clip(most, 1e-3, [*cuts, 1.0])
        if self.how == "logged":
            # The statistic itself divides, by what each step's probability was.
            ratios[:-1] = np.broadcast_to(tables, ratios[:-1].shape)
            most = R * np.array([*cuts, 1.0])
            return WeightedReturns(ratios, most, R, self.spec.horizon, logged=K - 1)
        return WeightedReturns(ratios, most, R, self.spec.horizon)

    def _recommend(self) -> Recommendation:
        *found, today = (Interval(*map(float, row)) for row in self.known["intervals"])
        best = max(range(len(found)), key=lambda k: found[k].low)
        new = self.policy_at(float(self.known["betas"][best]))
        better = found[best].low > today.high
        return Recommendation(
            policy=new if better else self._policy(self.behaviour),
            better=better,
            value=found[best],
            today=today,
            confidence=self.options.confidence,
            candidates=tuple(found),
            found=new,
            learnt=self.schedule.blocks[0],
            judged=self.schedule.blocks[1],
            behaviour=self.how,
        )

    def policy_at(self, beta: float) -> Policy:
        """The policy of a tilt."""
        return self._policy(self.tilted(beta))

    def _policy(self, table: Floats) -> Policy:
        phase = np.arange(self.spec.horizon) * len(table) // self.spec.horizon
        return Policy.stochastic(table[phase], self.releases)

    def plan(self) -> tuple[Policy, Policy]:
        """What is recommended, once there is evidence; until then, what is done today."""
        table = self._policy(self.tilted(1e6)).table()
        ties = np.where(table >= table.max(axis=2, keepdims=True) - 1e-12, 1.0, 0.0)
        best = (ties * self.rng.random(table.shape)).argmax(axis=2)
        greedy = Policy.deterministic(best, self.spec.actions, self.releases)
        if not self.known:
            return self._today(), greedy
        self.recommendation = self._recommend()
        return self.recommendation.policy, greedy

    def _today(self) -> Policy:
        """What users of the log are served where they are simulated."""
        return self._policy(_behaviour_table(self.spec, self.options.behaviour))

    def _first_policies(self) -> tuple[Policy, Policy]:
        return (self._today(),) * 2

    def _pace(self) -> Pace:
        return Pace(first=self.users)

    @property
    def form(self) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users > _IN_MEMORY else "episodes"

    # Save and resume.

    def state(self) -> State:
        """What is known of today, of other policies, and of their values."""
        arrays = {"behaviour": np.array(self.behaviour), "bounds": np.array(self.bounds)}
        arrays |= {f"judged/{name}": array for name, array in self.known.items()}
        meta, learnt = self.learnt_state()
        return meta, arrays | learnt

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.restore_learnt(meta, arrays)
        self.behaviour, self.bounds = arrays["behaviour"], arrays["bounds"]
        judged = (name for name in arrays if name.startswith("judged/"))
        self.known = {name.removeprefix("judged/"): arrays[name] for name in judged}
        self.recommendation = self._recommend() if self.known else None

    def begin_anew(self, other: Algorithm[Any]) -> None:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        raise InvalidArgument(
            f"{self.name} learns from one log and judges once, so nothing comes after it: serve "
            "what it recommends, and learn from the next log with behaviour= that policy"
        )

    @abstractmethod
    def learnt_state(self) -> State:
        """What the first block taught."""

    @abstractmethod
    def restore_learnt(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`learnt_state`."""


class PlannedOffline(OfflineAlgorithm):
    """Plans backwards at a price for leaving today's policy: relative entropy, in units of R.

    A subclass has arrays of what was learnt, named in ``learnt``, and a cached ``model`` of them.
    """

    learnt: ClassVar[tuple[str, ...]]

    def __init__(self, setting: Setting, options: OfflineOptions) -> None:
        super().__init__(setting, options)
        self._plans: dict[float, Floats] = {}

    @abstractmethod
    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """What actions are surely worth, (S, A), if states are worth ``after`` one step later."""

    @abstractmethod
    def expected(self, step: int, after: Floats) -> Floats:
        """What is expected one step later, (S, A), as the model has it."""

    def learnt_state(self) -> State:
        """The arrays of what was learnt."""
        return {}, {name: np.array(getattr(self, name)) for name in self.learnt}

    def restore_learnt(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`learnt_state`."""
        self._take({name: arrays[name] for name in self.learnt})

    def _take(self, arrays: Arrays) -> None:
        """What was learnt; plans and models of what was known before are forgotten."""
        vars(self).update(arrays, _plans={})
        vars(self).pop("model", None)

    def _today_at(self, step: int) -> Floats:
        today: Floats = self.behaviour[min(step, len(self.behaviour) - 1)]
        return today

    def tilted(self, beta: float) -> Floats:
        """The best policy at a price of R / beta for each unit of relative entropy, (H, S, A)."""
        if beta in self._plans:
            return self._plans[beta]
        H, R = self.spec.horizon, self.spec.most_return
        after, table = np.zeros(self.spec.states), np.empty((H, *self.allowed.shape))
        for h in range(H - 1, -1, -1):
            left = min(R, (H - h) * max(self.spec.reward_values))
            values = self.lower_values(h, after, left)
            b = self._today_at(h)
            table[h] = self.tilt(values, beta)[min(h, len(self.behaviour) - 1)]
            # The value less its price.
            ratio = np.divide(table[h], b, out=np.ones_like(b), where=table[h] > 0)
            paid = (table[h] * (values - R / beta * np.log(ratio))).sum(axis=1)
            after = np.maximum(paid, 0.0)
        self._plans[beta] = table
        return table

    def moment(self, table: Floats) -> float:
        """In the model, from its first states on, or the worst of them if those are not known."""
        after = np.ones(self.spec.states)
        for h in range(self.spec.horizon - 1, -1, -1):
            b = self._today_at(h)
            square = np.divide(table[h] ** 2, b, out=np.zeros_like(b), where=b > 0)
            after = np.minimum((square * self.expected(h, after)).sum(axis=1), 1e100)
        start = self.spec.start
        return float(after.max() if start is None else np.array(start) @ after)


def _scaled(asks: Asks, share: float) -> Asks:
    """The same questions for a share of the budget."""
    ask = next(asks)
    while True:
        answer = yield replace(ask, share=share * (1.0 if ask.share is None else ask.share))
        try:
            ask = asks.send(answer)
        except StopIteration:
            return


def _behaviour_table(spec: FiniteSpec, behaviour: Policy | str) -> Floats:
    """Probabilities (1 or H, S, A); one table where every step has the same."""
    policy = uniform_policy(spec) if isinstance(behaviour, str) else behaviour
    check_policy(spec, policy)
    table = policy.table()
    return table[:1] if (table == table[:1]).all() else table


def _slack(statistic: WeightedReturns, users: int) -> float:
    """How far rounding to the grid can take a sum of so many users; see the exact noise."""
    chunk = max(1, min(CHUNK, ADDITIONS // (3 * statistic.horizon + 3)))
    return 0.5 * grid_step(statistic, "l2") * (1.1 * users / chunk + 3.0)


def learn_offline(
    episodes: Episodes,
    spec: FiniteSpec,
    privacy: Privacy,
    behaviour: Policy | Literal["uniform", "unknown"] | ArrayLike,
    *,
    method: Literal["returns", "counts", "features"] = "returns",
    confidence: float = 0.95,
    judged: float = 0.5,
    seed: int = 0,
    noise_seed: int | None = None,
    ledger: FilePath | None = None,
) -> Recommendation:
    """Learns a policy from a log, and says whether it is better than what the log's users got.

    Users are split at random, by a public seed: a part is learnt from, the others judge. Somebody
    with several episodes is in one part, and judges with her first one, since intervals are about
    people who are independent. Everybody pays the whole budget once.

    Args:
        episodes: the log; with ``user_ids`` where users have several episodes.
        spec: what is known of the world; states, actions and rewards outside of it do not count.
        privacy: JointDP with delta > 0, or NonPrivate.
        behaviour: what the users of the log were served: a policy, ``"uniform"`` over what states
            allow, or ``"unknown"``; or propensities (users, H), the probability with which every
            step's action was chosen, where the log has them.
        method: ``"returns"`` (:class:`tacit.PessimisticImprovement`), ``"counts"``
            (:class:`tacit.PessimisticVI`), or for specs of linear MDPs ``"features"``
            (:class:`tacit.PessimisticLSVI`).
        confidence: with which probability, over users and noise, all intervals hold.
        judged: the share of users who judge.
        seed: of the split and of ties; public.
        noise_seed: reproducible noise, for simulations only: it protects nobody.
        ledger: file that records what was spent.

    >>> import tacit
    >>> world = tacit.tabular.random_mdp(states=5, actions=3, horizon=3, seed=1)
    >>> log = world.simulate(tacit.Policy.uniform(3, 5, 3), 50_000, np.random.default_rng(0))
    >>> found = learn_offline(log, world.spec, tacit.JointDP(1.0, 1e-6), "uniform", noise_seed=0)
    >>> found.better, world.value(found.policy) >= found.value.low > world.baseline_value
    (True, True)
    """
    instance_of("episodes", episodes, Episodes)
    one_of("method", method, tuple(_METHODS))
    judged = checked_number("judged", judged, "in (0, 1)", lambda share: 0.0 < share < 1.0)
    seed = whole_number("seed", seed, least=0)
    propensities = None
    if not isinstance(behaviour, (Policy, str)):
        propensities = as_numbers("behaviour", behaviour)
        require_shape("behaviour", propensities, episodes.actions.shape)
        behaviour = "logged"
    learnt, judges = _split(episodes, judged, np.random.default_rng([seed, 5]))
    rows = np.concatenate([learnt, judges])
    options: dict[str, Any] = {} if ledger is None else {"ledger": ledger}
    agent: Agent = maker(way(_METHODS[method]))(
        spec,
        users=len(rows),
        privacy=privacy,
        behaviour=behaviour,
        confidence=confidence,
        judged=len(judges) / len(rows),
        seed=seed,
        noise_seed=noise_seed,
        **options,
    )
    for part in (learnt, judges):
        taken = episodes.take(part)
        data = taken.block()
        if propensities is not None:
            data = Block(data.users, {**data.arrays, "propensities": propensities[part]})
        agent.learn(data, taken.user_ids)
    found: Recommendation = agent.recommendation
    return replace(found, guarantee=agent.guarantee)


def _split(episodes: Episodes, judged: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Rows to learn from and rows that judge: of different users, in random order."""
    n = episodes.users
    people = np.arange(n)
    if episodes.user_ids is not None:
        _, people = np.unique([str(name) for name in episodes.user_ids], return_inverse=True)
    count = int(people.max()) + 1 if n else 0
    if count < 4:
        raise InvalidArgument(f"episodes must be of at least 4 users, got {count}")
    rank = rng.permutation(count)
    last = min(max(round((1.0 - judged) * count), 2), count - 2)
    order = np.argsort(rank[people], kind="stable")
    learnt = order[rank[people[order]] < last]
    _, first = np.unique(people, return_index=True)
    judges = first[rank >= last]
    return learnt, rng.permutation(judges)
