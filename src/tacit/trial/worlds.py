"""Trial worlds: the same people, decision after decision, from look to look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from typing import Any

import numpy as np

from tacit.core.world import Form
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import check_users, checked_number, flag, one_of, whole_number
from tacit.trial.spec import LOOKS, TrialSpec

_PERSON = _DRIFT = _CONTEXT = 0.1  # sd of rewards' means by person, in time and by context
_LASTS, _WEARS_OFF = 0.7, 0.8  # from decision to decision: correlation of drifts, rest of a burden
_STAYS, _SHARED = 0.5, 0.25  # contexts from decision to decision; variance between people
_SPAN = 1.5  # features of a linear world have the length 1 at this many standard deviations
_LEAST = 0.01  # probabilities of rewards are cut at this and at one minus this
_POINTS = 4096  # contexts of a linear world that stand for all


@dataclass(frozen=True)
class Conditions:
    """Conditions of a trial; :func:`micro_randomised` explains them."""

    effects: Floats  # coefficients of the proximal effect in the features
    linear: bool
    deviation: float
    dropout: float
    habituation: float
    burden: float
    rate: float


class TrialWorld:
    """A micro-randomised trial, simulated.

    The best policy is one for everybody, who knows the context and not the person; values are
    those of a person who stays, and leave out that probabilities of rewards are cut at .01 and .99.
    """

    exchangeable_actions = False  # 0 is no message

    def __init__(self, spec: TrialSpec, conditions: Conditions, name: str) -> None:
        self.spec, self.conditions, self.name = spec, conditions, name

    @cached_property
    def points(self) -> Floats:
        """Features that stand for all contexts, equally often."""
        if not self.conditions.linear:
            return np.eye(self.spec.dimension)
        return _Contexts(_POINTS, self.spec.dimension, True, np.random.default_rng(0)).features()

    @cached_property
    def advantages(self) -> Floats:
        """Mean gain of the trial's rewards by a message at each of the points."""
        fades, tails = self.over_time()
        return np.asarray(self.points @ self.conditions.effects * fades.mean() - tails.mean())

    def over_time(self) -> tuple[Floats, Floats]:
        """At each decision, what is left of effects, and the later cost of a message."""
        H, c = self.spec.horizon, self.conditions
        h = np.arange(H, dtype=np.float64)
        return np.exp(-c.habituation * h / H), c.burden * (1.0 - np.power(_WEARS_OFF, H - 1 - h))

    @property
    def optimal_value(self) -> float:
        """Expected reward of a person under the best policy."""
        return self._value(0.5 * np.sign(self.advantages))

    @property
    def baseline_value(self) -> float:
        """The same if every decision is a fair coin."""
        return self._value(np.zeros(len(self.points)))

    reference_value = baseline_value  # the zero point of losses

    def value(self, policy: Any) -> float:
        """The same under a policy that knows nothing of the person."""
        return self._value(policy.chances(self.points) - 0.5)

    def _value(self, centred: Floats) -> float:
        H = self.spec.horizon
        rate = self.conditions.rate - 0.5 * self.over_time()[1].mean()  # with every other message
        return float(H * (rate + np.mean(centred * self.advantages)))

    def cohort(self, rng: np.random.Generator) -> Cohort:
        """The same people at every look."""
        return Cohort(self, rng)

    def simulate(
        self, policy: Any, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> VectorEpisodes:
        """Whole histories of new people of one policy. Args: see World.simulate."""
        people = self.cohort(rng)
        people.start(users)
        return people.advance(policy, self.spec.horizon, form)


class _Contexts:
    """The contexts of some people, which move on from decision to decision."""

    def __init__(self, users: int, dimension: int, linear: bool, rng: np.random.Generator) -> None:
        self.users, self.dimension, self.linear, self.rng = users, dimension, linear, rng
        if linear:
            lags = np.abs(np.subtract.outer(np.arange(dimension - 1), np.arange(dimension - 1)))
            self._mix = np.linalg.cholesky(0.6**lags).T if dimension > 1 else np.zeros((0, 0))
            self._means = np.sqrt(_SHARED) * rng.standard_normal((users, dimension - 1))
        else:
            self.now = rng.integers(dimension, size=users)

    def features(self) -> Floats:
        """Those of the next decision, (users, D), of a length of at most 1."""
        n, D = self.users, self.dimension
        if not self.linear:
            drawn = self.rng.integers(D, size=n)
            self.now = np.where(self.rng.random(n) < _STAYS, self.now, drawn)
            return np.eye(D)[self.now]
        moving = np.sqrt(1.0 - _SHARED) * self.rng.standard_normal((n, D - 1))
        x = np.concatenate([np.ones((n, 1)), (self._means + moving) @ self._mix], axis=1)
        x /= _SPAN * np.sqrt(D)
        return np.asarray(x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)))


class Cohort:
    """The people of one trial: ``simulate`` moves them on to their next look.

    Attributes:
        served: Whole histories that were served so far, rounded up: a half of two people is one.
        served_value: On the scale of the world's values, what they were given since the look
            before, also for their own histories, by those who were still there.
    """

    def __init__(self, world: TrialWorld, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.users = self.looks = self.served = self.at = 0
        self.served_value = world.baseline_value

    def start(self, users: int) -> None:
        """Recruits them."""
        spec, c, rng = self.world.spec, self.world.conditions, self.rng
        n = self.users = check_users(users)
        H, D = spec.horizon, spec.dimension
        self._contexts = _Contexts(n, D, c.linear, rng)
        # Of variance 1, bounded; where contexts are groups, half of it is the person's everywhere.
        own = np.sqrt(3.0) * rng.uniform(-1, 1, (n, D))
        if not c.linear:
            own = (own + np.sqrt(3.0) * rng.uniform(-1, 1, (n, 1))) / np.sqrt(2.0)
        points = self.world.points
        spread = np.sqrt(np.mean((points @ c.effects) ** 2) / np.mean(np.sum(points**2, axis=1)))
        self._effects = c.effects + c.deviation * spread * own
        self._level = _PERSON * rng.standard_normal(n)
        self._drift = _DRIFT * rng.standard_normal(n)
        self._weight = np.zeros(n)
        self._leaves = np.where(rng.random(n) < c.dropout, rng.integers(1, H + 1, n), H)
        self._own: Any = None
        self._features = np.full((n, H + 1, D), np.nan)
        self._actions = np.full((n, H), -1)
        self._rewards, self._propensities = np.full((2, n, H), np.nan)

    def simulate(
        self, policy: Any, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> VectorEpisodes:
        """Histories up to the next look, served since the last. Args: see World.simulate."""
        spec = self.world.spec
        if not self.looks:
            self.start(users)
        if users != self.users or self.looks == len(spec.edges):
            raise InvalidArgument(
                f"a cohort of {self.users} people has {len(spec.edges)} looks, of all of them"
            )
        until = spec.edges[self.looks]
        self.looks += 1
        self.served = max(self.served + 1, -(-users * until // spec.horizon))
        return self.advance(policy, until, form)

    def advance(self, policy: Any, until: int, form: Form) -> VectorEpisodes:
        """Moves them on to a decision; all that happened so far."""
        one_of("form", form, ("episodes",))
        fades, tails = self.world.over_time()
        best = np.sign(self.world.advantages)
        gained = possible = 0.0
        if self._own is None:  # what devices keep does not depend on the version
            self._own = policy.history(self.users)
        for h in range(self.at, until):
            f, live = self._contexts.features(), self._leaves > h
            p = policy.chances(f, self._own)
            a, r = self._respond(h, f, p, float(fades[h]))
            p_taken = np.where(a == 1, p, 1.0 - p)
            self._own.add(f, a, p, np.where(live, r, np.nan))
            for kept, new in ((self._features, f), (self._actions, a), (self._rewards, r)):
                kept[live, h] = new[live]
            self._propensities[live, h] = p_taken[live]
            mine = np.einsum("nd,nd->n", f, self._effects) * fades[h] - tails[h]
            gained += float(((p - 0.5) * mine)[live].sum())
            common = self.world.points @ self.world.conditions.effects * fades[h] - tails[h]
            possible += float(0.5 * (best * common).mean() * live.sum())
        self.at = until
        low, gap = self.world.baseline_value, self.world.optimal_value - self.world.baseline_value
        self.served_value = low + (gap * gained / possible if possible > 0 else 0.0)
        return VectorEpisodes(
            self._features.copy(),
            self._actions.copy(),
            self._rewards.copy(),
            np.minimum(self._leaves, self.at),
            np.full(self.users, policy.version),
            user_ids=range(self.users),
            propensities=self._propensities.copy(),
        )

    def _respond(self, h: int, f: Floats, p: Floats, fade: float) -> tuple[Any, Floats]:
        """Actions and rewards of everybody at a decision."""
        c, n = self.world.conditions, self.users
        a = (self.rng.random(n) < p).astype(np.int64)
        new = np.sqrt(1.0 - _LASTS**2) * _DRIFT * self.rng.standard_normal(n)
        self._drift = _LASTS * self._drift + new
        levels = _CONTEXT * np.cos(np.arange(f.shape[1]))
        levels -= levels[0] * np.eye(len(levels))[0] if c.linear else levels.mean()
        differs = self._level + self._drift + f @ levels
        mine = np.einsum("nd,nd->n", f, self._effects) * fade
        # Rare rewards differ less between people; a burden is what messages before have left.
        mean = c.rate + min(1.0, 2.0 * c.rate, 2.0 - 2.0 * c.rate) * differs + mine * (a - 0.5)
        mean = np.clip(mean - self._weight, _LEAST, 1.0 - _LEAST)
        self._weight = _WEARS_OFF * self._weight + (1.0 - _WEARS_OFF) * c.burden * a
        return a, (self.rng.random(n) < mean).astype(np.float64)


def micro_randomised(
    decisions: int = 140,
    effect: float = 0.2,
    contexts: int = 8,
    linear: bool = False,
    average: float = 0.0,
    deviation: float = 0.5,
    dropout: float = 0.3,
    habituation: float = 0.0,
    burden: float = 0.0,
    rate: float = 0.5,
    probabilities: Any = None,
    looks: Any = None,
) -> TrialWorld:
    """A micro-randomised trial of one message: at each decision a person gets it or does not.

    With 79 people and the defaults it has the shape of Oralytics; with 122 and 60 decisions that of
    MiWaves; with 96, 450 decisions and an effect of .1 that of HeartSteps.

    State:
        Features of the context: indicators of ``contexts`` groups, of which one stays from one
        decision to the next with .5 and is drawn anew else; or, ``linear``, a constant and
        correlated normal ones, which differ between people, of a length of at most 1.
    Actions:
        0 no message, 1 a message.
    Reward:
        The proximal outcome, 0 or 1. It has the mean ``rate``, by person, context and time more or
        less (sd about .1 each, correlated by .7 from decision to decision; where it is rare, less).
        A message changes it by ``effect``, up in every other context and down in the rest (in
        linear worlds with drawn coefficients, that is its root mean square), plus ``average``, and
        for a person by ``deviation`` of ``effect`` more or less. Effects fade by the factor
        exp(-``habituation``) until the end. A message costs ``burden`` at the decisions after it.
    Optimum:
        By the sign of the mean effect in the context, less the burden. A person leaves with the
        probability ``dropout``, at any decision.
    Source:
        Invented for this library; sizes from the protocols of Oralytics, MiWaves and HeartSteps.

    Args:
        decisions: of a person, the horizon.
        effect: in probability.
        contexts: how many groups, or linear features with the constant.
        linear: whether features are linear.
        average: effect in any context.
        deviation: sd of a person's effects, as a share of ``effect``.
        dropout: probability to leave.
        habituation: how fast effects fade.
        burden: cost of a message later on.
        rate: mean of rewards; .05 is rare.
        probabilities: of a message, the smallest and the largest; .2 and .8.
        looks: shares of decisions after which the policy may change; .4 and 1.

    >>> world = micro_randomised(decisions=60)
    >>> world.name, world.optimal_value, world.baseline_value
    ('micro_randomised:decisions=60', 36.0, 30.0)
    """
    told: dict[str, Any] = dict(locals())
    for name, most in _MOST.items():
        least = -1 if name == "average" else 0
        inside = partial(lambda a, b, x: a <= x <= b, least, most)
        checked_number(name, told[name], f"in [{least}, {most}]", inside)
    if (room := 2.0 * min(rate, 1.0 - rate)) < effect + abs(average):
        raise InvalidArgument(f"effects must be at most {room:g} where rate is {rate!r}")
    D, gram = whole_number("contexts", contexts, most=1000), None
    effects = average + effect * np.where(np.arange(D) % 2, 1.0, -1.0)
    if flag("linear", linear):
        points = _Contexts(_POINTS, D, True, np.random.default_rng(0)).features()
        gram = (points.T @ points / len(points)).round(3).tolist()
        effects = np.random.default_rng(D).standard_normal(D)
        effects[0] *= 0.5
        effects *= effect / np.sqrt(np.mean((points @ effects) ** 2))
        effects[0] += average * _SPAN * np.sqrt(D)
    usual = {k: p.default for k, p in signature(micro_randomised).parameters.items()}
    usual |= {"probabilities": (0.2, 0.8), "looks": LOOKS}
    for name in ("probabilities", "looks"):
        told[name] = tuple(np.ravel(usual[name] if told[name] is None else told[name]).tolist())
    chances, times = told["probabilities"], told["looks"]
    spec = TrialSpec(decisions, D, 2, chances, times, gram=gram, usual_reward=rate)
    conditions = Conditions(effects, linear, deviation, dropout, habituation, burden, rate)
    texts = [
        f"{name}={':'.join(map(str, np.ravel(value).tolist()))}"
        for name, value in told.items()
        if value != usual[name]
    ]
    return TrialWorld(spec, conditions, "micro_randomised" + ":" * bool(texts) + ",".join(texts))


_MOST = dict.fromkeys(("effect", "average", "dropout", "burden", "rate"), 1)
_MOST |= dict.fromkeys(("deviation", "habituation"), 10)


WORLDS = ("micro_randomised",)
