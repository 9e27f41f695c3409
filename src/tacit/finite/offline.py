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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Algorithm, Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.core.schedule import Schedule
from tacit.finite.action_counts import ActionCounts, propensities
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.model import check_policy, uniform_policy
from tacit.finite.policy import Policy, softmax
from tacit.finite.recommendation import Recommendation
from tacit.finite.spec import FiniteSpec
from tacit.finite.value_interval import Interval, value_intervals
from tacit.finite.weighted_returns import WeightedReturns
from tacit.privacy.arguments import instance_of
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.exact import ADDITIONS, CHUNK, grid_step

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17
_WORDS = ("uniform", "logged", "unknown")


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
        how = self.how
        return f"learns from {learnt:,} users, judges by {judged:,}; behaviour {how}"

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
                share = self.options.constants.counted
                logged = self.how == "logged"
                counts = ActionCounts(self.allowed, self.spec.horizon, logged=logged)
                self._hear_actions((yield Ask(counts, share=share)))
                left -= share
            yield from scaled(self.learn(), left)
            return
        betas = self._boldness()
        tables = np.stack([self.tilted(beta) for beta in betas])
        statistic = self._weighted(tables)
        self._judge((yield Ask(statistic)), statistic, betas)

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

    def _judge(self, release: Release, statistic: WeightedReturns, betas: list[float]) -> None:
        constants, failure = self.options.constants, 1.0 - self.options.confidence
        if self.how == "unknown":
            failure *= 1.0 - constants.doubted
        intervals = value_intervals(release, statistic, failure, _slack(statistic, release.users))
        self.known = {
            "betas": np.array(betas),
            "intervals": np.array([[i.estimate, i.low, i.high] for i in intervals]),
        }

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
        shape = (self.spec.horizon, *table.shape[1:])
        F = len(table)
        phase = np.arange(self.spec.horizon) * F // self.spec.horizon
        return Policy.stochastic(table[phase].reshape(shape), self.releases)

    def plan(self) -> tuple[Policy, Policy]:
        """What is recommended, once there is evidence; until then, what is done today."""
        boldest = self._policy(self.tilted(1e6))
        greedy = Policy.deterministic(
            self._argmax(boldest.table()), self.spec.actions, self.releases
        )
        if not self.known:
            return self._today(), greedy
        self.recommendation = self._recommend()
        return self.recommendation.policy, greedy

    def _argmax(self, table: Floats) -> Any:
        ties = np.where(table >= table.max(axis=2, keepdims=True) - 1e-12, 1.0, 0.0)
        return (ties * self.rng.random(table.shape)).argmax(axis=2)

    def _today(self) -> Policy:
        """What users of the log are served where they are simulated."""
        return self._policy(_behaviour_table(self.spec, self.options.behaviour))

    def _first_policies(self) -> tuple[Policy, Policy]:
        self.releases = 0
        today = self._today()
        return today, today

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
        judged = {
            n.removeprefix("judged/"): a for n, a in arrays.items() if n.startswith("judged/")
        }
        self.known = judged
        self.recommendation = self._recommend() if judged else None

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


def scaled(asks: Asks, share: float) -> Asks:
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
