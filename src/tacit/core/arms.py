"""Arms: policies that serve at the same time, and the evidence by which one replaces another.

Arm zero is the baseline, the policy that people had (uniform actions, if none is given). A share of
users, the ``holdout``, keeps it for ever. The others are served by it, but for a share who explore,
until there is evidence that another policy is better::

    agent = tacit.agent(spec, 100_000, JointDP(1.0, 1e-6), baseline=today, holdout=0.1)
    agent.trial()  # gain of the agent's policies over the baseline per user, with its interval

*Evidence* (:class:`Evidence`) is a gain, estimated from released returns (:class:`ArmReturns`). The
policy of one version takes over when the lower bound of its gain over the one that serves is above
zero, at a level of which every look spends its part (:meth:`Arms.level`), fixed in advance: the
chance that any look is wrong is at most ``alpha``. :mod:`tacit.tabular.holdout` has the answer.

Estimate. Let p be the chance of an arm, n the users of a block, and S, Q the released sums over the
arm's users of g = (G - c) / R, cut to [-1, 1], and of g^2. Then c + R S / (n p) is an unbiased
estimate of the mean of the cut returns G, without any count (Horvitz and Thompson, 1952); as the
variance of a sum is at most n p E[g^2], its own is at most R^2 (E[Q] + s^2) / (n p)^2 with noise of
standard deviation s. Centres c follow earlier releases, so that g^2 is small.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.core.algorithm import Algorithm, BlockInfo, Plan, Progress, Queries, Query
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import as_numbers, read_codes
from tacit.privacy.sensitivity import ball
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic, gate_total
from tacit.privacy.validation import checked_number
from tacit.store.values import dump

Ints: TypeAlias = NDArray[np.int64]
BASELINE, SERVING, CHALLENGER, EXPLORING = ARMS = range(4)
"""The policy that people had, the one that replaced it, the newest greedy one, and those from which
the agent learns."""
RAISED = 1.0  # standard deviations of noise by which second moments are raised
_LOOKS = 1000  # that are kept, the newest


@dataclass(frozen=True, eq=False)
class Arms:
    """Options of arms.

    Attributes:
        baseline: the policy that people had; ``None`` for uniform actions.
        holdout: share of users whom it serves for ever.
        share: of each block's budget (of mu^2) that is spent on returns.
        alpha: chance that a policy takes over that is not better, over all looks together.
        explore: share of the other users who follow policies that are not shown to be better; it
            falls with the users served since a policy last took over.
        returns: smallest and largest return that count; by default what the spec says.
        looks: of the trial, as shares of the declared users.
        probabilities: least and largest chance of an action, of all policies but the baseline.
        rule: whether evidence makes a policy take over, and not only :meth:`Agent.go_live`.
    """

    baseline: Any = field(default=None, repr=False)
    holdout: float = 0.0
    share: float = 0.1
    alpha: float = 0.05
    explore: float = 0.2
    returns: tuple[float, float] | None = None
    looks: tuple[float, ...] = (0.5, 1.0)
    probabilities: tuple[float, float] | None = None
    rule: bool = True

    def __post_init__(self) -> None:
        if not (self.baseline is None or hasattr(self.baseline, "as_version")):
            raise InvalidArgument(f"baseline must be a policy, got {self.baseline!r}")
        for name in ("holdout", "share", "alpha", "explore"):
            part = checked_number(name, getattr(self, name), "in [0, 1)", lambda x: 0.0 <= x < 1.0)
            object.__setattr__(self, name, part)
        if not (np.diff([0.0, *self.looks]) > 0.0).all() or max(self.looks, default=2.0) > 1.0:
            raise InvalidArgument(f"looks must increase to at most 1, got {self.looks}")
        least, most = self.probabilities or (0.5, 0.5)
        if not 0.0 < least <= 0.5 <= most < 1.0:
            raise InvalidArgument(f"probabilities {least} and {most} must be around 0.5")

    @property
    def text(self) -> str:
        """All options, and a digest of the baseline."""
        known = () if self.baseline is None else dump(self.baseline.as_version(0))
        return f"{self!r} {hashlib.sha256(bytes(known)).hexdigest()[:16]}"

    def level(self, look: int) -> float:
        """The part of ``alpha`` that a look spends, counted from 1."""
        return self.alpha / (look * (look + 1))

    def ends(self, spec: Any) -> tuple[float, float]:
        """Smallest and largest return that count."""
        low, high = self.returns or (0.0, getattr(spec, "most_return", 0.0))
        if self.returns is None and hasattr(spec, "reward_range"):
            low, high = (spec.horizon * end for end in spec.reward_range)
            low, high = min(low, 0.0), max(high, 0.0)
        if not low < high:
            raise InvalidArgument("arms need the range of returns: Arms(returns=(low, high))")
        return low, high


@dataclass(frozen=True, eq=False)
class ArmReturns(Statistic):
    """Sums of centred, cut returns and of their squares, by arm.

    Reads ``rewards`` (users, H), and ``lengths`` where there are, ``components`` and ``versions``.
    A user belongs to the arm ``arm_of[component]``, none if that is -1, and has there (g, g^2) with
    g = (G - centre) / radius, cut to [-1, 1]; G is the sum of her rewards, where none is 0.

    Formal guarantees:
        - Sensitivity: Let two users have g, g'. In different arms, the squared distance is
          g^2 + g^4 + g'^2 + g'^4 <= 4. In one arm, with d = |g - g'| and s = |g + g'|, it is
          d^2 (1 + s^2), and d + s = 2 max(|g|, |g'|) <= 2. So it is at most (2 - s)^2 (1 + s^2),
          whose derivative -2 (2 - s) (2 s^2 - 2 s + 1) is never positive: at most 4, at s = 0.
          L2 = 2 for replace-one, attained by g = 1 and g' = -1 in one arm, and by |g| = |g'| = 1 in
          two; sqrt(2) against zero. L1 = 4, in two arms, and 2.
    """

    arm_of: tuple[int, ...]
    centre: float
    radius: float
    version: int
    arms: int = len(ARMS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "arm returns")

    @cached_property
    def layout(self) -> Layout:
        """``sums`` and ``squares``, each by arm."""
        return Layout((Part("sums", (self.arms,)), Part("squares", (self.arms,))))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        return ball(math.sqrt(2.0), relation, math.sqrt(2.0))

    def l1(self, relation: Relation) -> float:
        """L1 sensitivity; the class has the proof."""
        return ball(2.0, relation)

    def vectors(self, block: Block) -> Floats:
        """One row per user."""
        rewards, most = as_numbers("rewards", block["rewards"]), 1e150
        paid = np.clip(np.where(np.isnan(rewards), 0.0, rewards), -most, most)
        if "lengths" in block.arrays:
            ended = read_codes(block, "lengths", (block.users,))
            paid = np.where(np.arange(paid.shape[1]) < ended[:, np.newaxis], paid, 0.0)
        g = np.clip((paid.sum(axis=1) - self.centre) / self.radius, -1.0, 1.0)
        followed = read_codes(block, "versions", (block.users,)) == self.version
        arms = np.where(followed, _looked_up(block, self.arm_of), -1)
        sums = (arms[:, np.newaxis] == np.arange(self.arms)) * g[:, np.newaxis]
        return self.layout.pack({"sums": sums, "squares": sums**2}, users=block.users)


@dataclass(frozen=True, eq=False)
class OfComponents(Statistic):
    """A statistic of the users who drew some components of a mixed policy; others count as zero.

    ``inner_of`` has for every component the number by which the statistic knows it, or -1.

    Formal guarantees:
        - Sensitivity: that of the statistic, of which the zero vector is a neighbour.
    """

    inner: Statistic
    inner_of: tuple[int, ...]
    layout = property(lambda self: self.inner.layout)
    nonnegative = property(lambda self: self.inner.nonnegative)
    _adds_bounded = True  # the statistic's own gate adds them

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.inner.name)

    def l2(self, relation: Relation) -> float:
        """That of the statistic."""
        return self.inner.l2(relation)

    def l1(self, relation: Relation) -> float | None:
        """That of the statistic."""
        return self.inner.l1(relation)

    def _mine(self, block: Block) -> tuple[NDArray[np.bool_], Block]:
        drawn = _looked_up(block, self.inner_of)
        return drawn >= 0, Block(block.users, {**block.arrays, "components": drawn}).take(
            drawn >= 0
        )

    def vectors(self, block: Block) -> Floats:
        """One row per user, zero for those of other components."""
        mine, rows = self._mine(block)
        found = np.zeros((block.users, self.layout.size))
        found[mine] = self.inner.contributions(rows)
        return found

    def total(self, block: Block) -> Floats:
        """The sum over those of the components."""
        if type(block) is not Block or block.aggregate:
            return super().total(block)
        return gate_total(self.inner, self._mine(block)[1])


def _looked_up(block: Block, table: tuple[int, ...]) -> Ints:
    """Entries of a table for the components that users drew; -1 for none."""
    drawn = np.zeros(block.users, dtype=np.int64)
    if len(table) > 1:
        drawn = read_codes(block, "components", (block.users,))
    known = (drawn >= 0) & (drawn < len(table))
    return np.where(known, np.array(table)[np.where(known, drawn, 0)], -1)


@dataclass(frozen=True, eq=False)
class ArmLook:
    """Released returns of one block, by arm. Public."""

    users: int
    chances: Floats
    sums: Floats  # of g
    squares: Floats  # of g^2
    noise: float  # standard deviation of each
    centre: float
    radius: float

    def moments(self, arms: Sequence[int]) -> tuple[float, float, float, float]:
        """Of users of some arms: mean return, its variance, users expected, and noise per user."""
        of = [arm for arm in arms if self.chances[arm] > 0.0]
        n = max(self.users * float(self.chances[of].sum()), 1e-9)
        noise = self.noise * math.sqrt(len(of))
        squares = max(float(self.squares[of].sum()), 0.0) + RAISED * noise + noise**2
        mean = self.centre + self.radius * float(self.sums[of].sum()) / n
        return mean, squares * (self.radius / n) ** 2, n, noise / n


@dataclass(frozen=True)
class Evidence:
    """Estimated gain of one policy over another, per user. Public."""

    gain: float
    deviation: float  # standard deviation of the estimate, by sampling and noise
    reach: float = 0.0  # how much one user may move it

    def lower(self, alpha: float) -> float:
        """Lower bound at a one-sided level: normal, with Bernstein's term for skewed returns."""
        skewed = self.reach * math.log(1.0 / alpha) / 3.0
        return self.gain + float(ndtri(alpha)) * self.deviation - skewed

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided normal interval."""
        half = -float(ndtri((1.0 - confidence) / 2.0)) * self.deviation
        return self.gain - half, self.gain + half

    @classmethod
    def of_returns(
        cls, looks: Sequence[ArmLook], arms: Sequence[int], against: Sequence[int] = (BASELINE,)
    ) -> Self:
        """Of released returns: users of some arms against those of others, over all looks."""
        rows = []
        for look in looks:
            (one, v, n, s), (other, w, m, t) = look.moments(arms), look.moments(against)
            if min(n, m) >= 1.0:
                # Weights do not follow the look's own returns.
                even = look.radius**2 * (1.0 / n + 1.0 / m + s * s + t * t)
                rows.append((one - other, v + w, look.radius * (1.0 / n + 1.0 / m), 1.0 / even))
        if not rows:
            return cls(0.0, math.inf, math.inf)
        gains, variances, reaches, weights = np.array(rows).T
        weights /= weights.sum()
        reach = float((weights * reaches).max())
        return cls(float(weights @ gains), math.sqrt(float(weights**2 @ variances)), reach)


@dataclass(frozen=True, eq=False)
class ArmState:
    """State of an algorithm in arms, and the returns that were released."""

    inner: Any
    looks: tuple[ArmLook, ...] = ()
    challenger: Any = None  # of the newest look
    version: int = -1  # that its users followed
    since: int = -1  # version of who served beside it

    def evidence(self) -> Evidence:
        """Of the newest challenger against who served beside it."""
        return Evidence.of_returns(self.looks[-1:], (CHALLENGER,), (SERVING * (self.since >= 0),))


@dataclass(frozen=True, eq=False)
class ArmMemory:
    """Facts of a plan with arms that its queries and the next plan need."""

    inner: Plan  # of the algorithm
    chances: Floats = field(default_factory=lambda: np.zeros(len(ARMS)))  # of arms
    serving: Any = None  # the policy that took over
    since: int = -1  # its version
    changed: int = 1  # users served by then
    arm_of: tuple[int, ...] = ()  # of each component
    inner_of: tuple[int, ...] = ()  # place of a component in the algorithm's own policy, or -1


class _Arming(Algorithm[Any]):
    """Serves an algorithm's policies beside a baseline; mixed into its class by :func:`armed`."""

    ends_greedy = True

    def __init__(self, problem: Any, options: Any) -> None:
        self.arms: Arms = problem.arms
        self._returns_between = self.arms.ends(problem.spec)
        if problem.privacy.private and not problem.privacy.joint:
            raise InvalidArgument("arms need JointDP or NonPrivate: devices report once")
        super().__init__(problem, options)
        if self.counter != "blocks":
            raise InvalidArgument(f"arms need single blocks, and {self.name} has running sums")

    def begin(self) -> ArmState:
        return ArmState(super().begin())

    def successor_state(self, state: ArmState) -> ArmState:
        return replace(state, inner=super().successor_state(state.inner))

    def monitored(self, statistic: Statistic, release: Any) -> dict[str, tuple[Any, Any]]:
        if not isinstance(statistic, ArmReturns):
            return {}  # of some users
        noise = statistic.radius * float(np.max(release.std["sums"])) * math.sqrt(len(ARMS))
        paid = release.users * statistic.centre + statistic.radius * float(release["sums"].sum())
        return {"rewards": (paid, noise), "range": self._returns_between}

    def on_policy(self, plan: Plan) -> bool:
        return isinstance(plan.memory, ArmMemory) or super().on_policy(plan)

    def data_format(self, at: Progress) -> str:
        form = super().data_format(at)  # sums do not tell of returns
        return form if form in ("episodes", "streamed") else "streamed"

    def numbered(self, plan: Any, version: int) -> Plan:
        found = super().numbered(plan, version)
        inner = super().numbered(plan.memory.inner, version)
        return replace(found, memory=replace(plan.memory, inner=inner))

    def learn(
        self, state: ArmState, plan: Plan, block: BlockInfo, rng: np.random.Generator
    ) -> Queries[ArmState]:
        """Returns by arm; then the algorithm's queries, of its own users or of all."""
        memory, share, (low, high) = plan.memory, self.arms.share, self._returns_between
        centre = (low + high) / 2.0
        if state.looks:  # the mean of all that was released, which is public
            found = [look.moments(ARMS)[0] for look in state.looks]
            centre = float(
                np.clip(np.average(found, weights=[x.users for x in state.looks]), low, high)
            )
        public = centre, max(centre - low, high - centre)
        release = yield Query(ArmReturns(memory.arm_of, *public, plan.policy.version), share=share)
        noise = float(np.max(release.std["sums"]))
        told = release["sums"], release["squares"], noise, *public
        looks = (*state.looks[1 - _LOOKS :], ArmLook(block.users, memory.chances, *told))
        own, users = super().on_policy(memory.inner), block.users
        if own:
            users = round(users * float(memory.chances[EXPLORING]))
        queries = super().learn(state.inner, memory.inner, replace(block, users=users), rng)
        try:
            query = next(queries)
            while True:
                asked = OfComponents(query.statistic, memory.inner_of) if own else query.statistic
                mu = None if query.mu is None else query.mu * math.sqrt(1.0 - share)
                part = None if query.share is None else query.share * (1.0 - share)
                release = yield Query(asked, mu, part)
                query = queries.send(replace(release, users=users))
        except StopIteration as end:
            challenger = None if self.judges else self._tried(memory)  # not what is newer
            return ArmState(end.value, looks, challenger, plan.policy.version, memory.since)

    def plan(self, state: ArmState, last: Any, at: Progress, rng: np.random.Generator) -> Plan:
        """The policies that serve, each by its chance, and the algorithm's greedy one."""
        if not isinstance(state, ArmState):
            return super().plan(state, last, at, rng)
        before: ArmMemory | None = None if last is None else last.memory
        inner_plan = None if before is None else before.inner
        inner = super().plan(state.inner, inner_plan, at, rng)  # type: ignore[safe-super]
        if (held := self.arms.probabilities) is not None:  # its statistics must not need its own
            inner = Plan(self.held(inner.policy, *held), inner.greedy)
            if super().on_policy(inner):
                raise InvalidArgument(f"{self.name} needs its own probabilities of actions")
        memory = replace(before or ArmMemory(inner), inner=inner)
        # What was tried beside another policy than the one that serves now proves nothing.
        tried = self.arms.rule and state.challenger is not None and state.since == memory.since
        if tried and state.evidence().lower(self.arms.level(len(state.looks))) > 0.0:
            return self.gone_live(state, memory, at)
        return self._planned(memory, bool(state.looks), at)

    def gone_live(self, state: ArmState, memory: ArmMemory, at: Progress) -> Plan:
        """Plan with the newest policy that was tried for all but the holdout."""
        since, changed = state.version, max(at.all_served, 1)
        memory = replace(memory, serving=state.challenger, since=since, changed=changed)
        return self._planned(memory, True, at)

    def _tried(self, memory: ArmMemory) -> Any:
        """The policy of the challenger."""
        policy, held = memory.inner.greedy, self.arms.probabilities
        return policy if held is None else self.held(policy, *held)

    def _planned(self, memory: ArmMemory, looked: bool, at: Progress) -> Plan:
        """The plan of a memory, with chances of arms."""
        serving, served = memory.serving, max(at.all_served, 1)
        changed = served if serving is None else memory.changed
        free = 1.0 - self.arms.holdout
        more = self.block_users(at) > 0  # after the last block nobody explores
        tried = free * self.arms.explore * min(1.0, 2.0 * changed / served) * more
        half = 0.5 * tried * looked  # a first greedy policy follows from nothing
        chances = np.array([0.0, free - tried, half, tried - half])
        if self.judges:  # its own policies are as cautious
            chances = np.array([0.0, 0.0, 0.0, free])
        elif serving is None:
            chances = chances[[SERVING, BASELINE, CHALLENGER, EXPLORING]]
        chances[BASELINE] += self.arms.holdout
        return self._served(replace(memory, chances=chances, changed=changed), memory.inner.greedy)

    def _served(self, memory: ArmMemory, greedy: Any) -> Plan:
        """The policies of arms and of the algorithm, each by its chance."""
        inner, chances, serving = memory.inner, memory.chances, memory.serving
        baseline = self.uniform() if self.arms.baseline is None else self.arms.baseline
        served_by = {BASELINE: baseline, SERVING: serving, CHALLENGER: self._tried(memory)}
        arms = [arm for arm in served_by if chances[arm] > 0.0]
        several = hasattr(inner.policy, "components")
        own = [*inner.policy.components] if several else [inner.policy]
        weights = chances[EXPLORING] * (inner.policy.weights if several else np.ones(1))
        policies = [*(served_by[arm] for arm in arms), *own]
        policy = self.mixture(policies, np.concatenate([chances[arms], weights]))
        arm_of = (*arms, *[EXPLORING] * len(own))
        inner_of = (*[-1] * len(arms), *range(len(own)))
        return Plan(policy, greedy, replace(memory, arm_of=arm_of, inner_of=inner_of))

    def adopted(self, plan: Plan, policy: Any) -> Plan:
        """The plan with another challenger, which is of the kind of the greedy policy."""
        memory, chances = plan.memory, plan.memory.chances.copy()
        if _kind(policy) != _kind(plan.greedy):
            raise InvalidArgument(f"policy must be one like {plan.greedy!r}, got {policy!r}")
        if self.judges or not chances[EXPLORING]:
            raise InvalidArgument("no share of users tries other policies")
        if not chances[CHALLENGER]:
            chances[[CHALLENGER, EXPLORING]] = 0.5 * chances[EXPLORING]
        inner = replace(memory.inner, greedy=policy)
        return self._served(replace(memory, inner=inner, chances=chances), plan.greedy)

    def mixed(self, plans: Mapping[int, Plan], users: Mapping[int, int]) -> Plan:
        newest, shares = plans[max(plans)], {v: users[v] / sum(users.values()) for v in plans}
        chances, arms, places, first = np.zeros(len(ARMS)), list[int](), list[int](), 0
        for version, plan in plans.items():
            memory, of = plan.memory, [*ARMS]  # an arm whose policy was another explored
            of[CHALLENGER] = CHALLENGER if plan is newest else EXPLORING
            of[SERVING] = SERVING if memory.since == newest.memory.since else EXPLORING
            np.add.at(chances, of, shares[version] * memory.chances)
            arms += [of[arm] for arm in memory.arm_of]
            places += [place if place < 0 else first + place for place in memory.inner_of]
            first = 1 + max(places)
        part = {v: round(users[v] * float(plans[v].memory.chances[EXPLORING])) for v in plans}
        inner = super().mixed({v: plan.memory.inner for v, plan in plans.items()}, part)
        policies = [policy for plan in plans.values() for policy in plan.policy.components]
        weights = np.concatenate([shares[v] * plan.policy.weights for v, plan in plans.items()])
        policy = self.mixture(policies, weights).as_version(newest.policy.version)
        told = {"inner": inner, "arm_of": tuple(arms), "inner_of": tuple(places)}
        return Plan(policy, newest.greedy, replace(newest.memory, chances=chances, **told))


def _kind(policy: Any) -> tuple[Any, ...]:
    """Type and sizes, which policies for one spec have in common."""
    own: Any = [getattr(policy, n, None) for n in ("sizes", "n_actions", "gains", "features")]
    return type(policy), *own[:2], np.shape(own[2]), getattr(own[3], "dimension", None)


def armed(kind: type[Algorithm[Any]], problem: Any) -> type[Algorithm[Any]]:
    """An algorithm's class as a problem needs it: with arms, if there are any."""
    if problem.arms is None or (kind.judges and not problem.arms.holdout):
        return kind
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (_Arming, kind), names)
