"""Linear MDPs: finite worlds whose probabilities are linear in known features.

Rewards of the built-in worlds are Bernoulli, so they all lie in {0, 1}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.linear.statistics import check_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import (
    Floats,
    check_bytes,
    checked_number,
    flag,
    numbers,
    positive,
    whole_number,
)
from tacit.tabular.model import FiniteModel
from tacit.tabular.spec import FeatureSpec, fingerprint, finite
from tacit.tabular.world import (
    BERNOULLI,
    ROUNDING,
    FiniteWorld,
    bernoulli,
    model_of,
    start_distribution,
    weighed,
)


@dataclass(frozen=True, eq=False, repr=False)
class LinearSpec(FeatureSpec):
    """Public description of a finite linear MDP.

    Next states and mean rewards are linear in d known features phi(s, a):
    P_h(s' | s, a) = <phi(s, a), mu_h(s')> and r_h(s, a) = <phi(s, a), theta_h>, with unknown
    mu and theta. It has what a :class:`~tacit.tabular.spec.FiniteSpec` has, and:

    Attributes:
        features: phi, (S, A, d).
        stationary_transitions: whether mu is the same at every step.
        stationary_rewards: whether theta is the same at every step.
        known_rewards: mean rewards, (1 or H, S, A), where they are known, else ``None``.
        weight_bound: |sum_s' mu_h(s') v(s')| <= weight_bound for all |v| <= 1, and |theta_h| <= it;
            for bounds that are proven, which take sqrt(d) where it is ``None``.

    >>> spec = LinearSpec(states=1, actions=2, horizon=3, features=[[[1.0, 0.0], [0.5, 0.5]]],
    ...                   stationary_transitions=True, stationary_rewards=False)
    >>> spec.dimension, spec.nonnegative, spec.stationary
    (2, True, False)
    """

    stationary: bool = field(init=False)
    features: Floats = field(kw_only=True)
    stationary_transitions: bool = field(kw_only=True)
    stationary_rewards: bool = field(kw_only=True)
    known_rewards: Floats | None = field(default=None, kw_only=True)
    weight_bound: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        features = check_features(self.features)
        if features.shape[:2] != (self.states, self.actions):
            raise InvalidArgument(
                f"features must have shape ({self.states}, {self.actions}, d), got {features.shape}"
            )
        object.__setattr__(self, "features", features)
        self._check_known_rewards()
        if self.weight_bound is not None:
            positive("weight_bound", self.weight_bound)

    @property
    def dimension(self) -> int:
        """Number of features, d."""
        return int(self.features.shape[2])

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no feature is negative."""
        return bool((self.features >= 0).all())

    @cached_property
    def digest(self) -> str:
        """A fingerprint of features, start, reward values and known rewards."""
        return fingerprint(self.features, self.start, self.reward_values, self.known_rewards)

    def __repr__(self) -> str:
        return self._text(self.digest, dimension=self.dimension)


class LinearWorld(FiniteWorld):
    """A finite world given by its features and factors.

    P_h(s' | s, a) = <phi(s, a), mu_h(s')>; rewards are Bernoulli with the mean
    <phi(s, a), theta_h>. Labels of actions are not exchangeable: the features, which agents know,
    tell actions apart.

    Args:
        features: phi, (S, A, d).
        measures: mu, (1, d, S), or (H, d, S) where it depends on the step. A factor's measure
            need not be a distribution, only what features make of it.
        rewards: theta, (1, d), or (H, d) where it depends on the step.
        horizon: H, steps of an episode.
        start: the first state, or the distribution of it, (S,).
        known_rewards: whether agents are told the mean rewards.
        name: what it is called; the built-in worlds have names that rebuild them.

    >>> world = LinearWorld(features=[[[1.0, 0.0], [0.0, 1.0]]] * 2, measures=[np.eye(2)],
    ...                     rewards=[[0.1, 0.9]], horizon=3)
    >>> world.spec.dimension, round(world.optimal_value, 12), round(world.baseline_value, 12)
    (2, 2.7, 1.5)
    """

    exchangeable_actions = False

    def __init__(
        self,
        features: ArrayLike,
        measures: ArrayLike,
        rewards: ArrayLike,
        horizon: int,
        *,
        start: int | ArrayLike = 0,
        known_rewards: bool = False,
        name: str | None = None,
    ) -> None:
        horizon = whole_number("horizon", horizon)
        self.features = check_features(features)
        S, A, d = self.features.shape
        self.measures = _factors("measures", measures, horizon, (d, S))
        self.rewards = _factors("rewards", rewards, horizon, (d,))
        self.known_rewards = flag("known_rewards", known_rewards)
        steps, shape = (self.features @ m for m in self.measures), (len(self.measures), S, A, S)
        P = weighed("<features, measures>", steps, shape)
        R, first = _rewards(self.features, self.rewards), start_distribution(start, S)
        model = FiniteModel(P, R, BERNOULLI, first, horizon)
        super().__init__(model, "linear" if name is None else str(name))

    @cached_property
    def spec(self) -> LinearSpec:
        """Public description; every |v| <= 1 gives factor i at most sum_s' |mu_i(s')|."""
        of_values = np.linalg.norm(np.abs(self.measures).sum(axis=-1), axis=-1).max()
        return LinearSpec(
            **self._sizes(),
            features=self.features,
            stationary_transitions=len(self.measures) == 1,
            stationary_rewards=len(self.rewards) == 1,
            known_rewards=self.model.mean_rewards if self.known_rewards else None,
            weight_bound=float(max(of_values, np.linalg.norm(self.rewards, axis=-1).max())),
        )


def _factors(name: str, values: ArrayLike, horizon: int, shape: tuple[int, ...]) -> Floats:
    """A read-only copy of what belongs to the factors, with an axis of steps in front."""
    array = numbers(name, values)
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape or len(array) not in (1, horizon):
        raise InvalidArgument(
            f"{name} must have shape (1 or horizon={horizon}, *{shape}), got {array.shape}"
        )
    return finite(name, array, "step")


def _rewards(features: Floats, rewards: Floats) -> Floats:
    means = np.moveaxis(features @ rewards.T, -1, 0)
    near = np.clip(means, 0.0, 1.0)
    return bernoulli("<features, rewards>", np.where(np.abs(means - near) <= ROUNDING, near, means))


_CODES, _BITS, _ATTEMPTS = 100, 8, 2000
_KNOWN = ",known_rewards=True"  # in the name of a world only where it is not as usual


def two_state(
    seed: int = 0, softness: float = 0.9, horizon: int = 20, known_rewards: bool = False
) -> LinearWorld:
    """Two states and a hundred actions, one of which is to be taken in one state alone.

    State:
        0 (the start) and 1.
    Actions:
        0 to 99, each with a code of its own in {-1, 1}^8. The seed draws the codes, a star among
        the actions and a bit for every step. Right is the star in state 0 and everything else in
        state 1. What is right leads to state 0 with probability ``softness`` where the step's bit
        is 0 and 1 - ``softness`` where it is 1; what is wrong the other way round. The 10
        features are (code, right, wrong) / 3, so that eight of them are a distraction.
    Reward:
        Bernoulli with mean .99 for what is right and .01 for what is wrong; unknown to agents
        unless ``known_rewards`` (then what pays most at once is best, and known).
    Optimum:
        .99 ``horizon``, by doing what is right.
    Source:
        After the experiments of Min, Wang, Zhou and Gu, 2021 (Variance-aware off-policy evaluation
        with linear function approximation), with transitions that are not deterministic and a
        star that may be any action.

    Args:
        seed: Draws codes, star and bits.
        softness: Probability of state 0 after a right action.
        horizon: Steps of an episode.
        known_rewards: Whether agents know the mean rewards.

    >>> world = two_state()
    >>> round(world.optimal_value, 4), world.spec.dimension, world.spec.stationary_transitions
    (19.8, 10, False)
    """
    seed, H = whole_number("seed", seed, least=0), whole_number("horizon", horizon)
    check_bytes("measures of all steps (horizon)", (H, _BITS + 2, 2))
    softness = checked_number("softness", softness, "in [0, 1]", lambda p: 0.0 <= p <= 1.0)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(2**_BITS, size=_CODES, replace=False)
    codes = 2.0 * (drawn[:, np.newaxis] >> np.arange(_BITS) & 1) - 1.0
    star = int(rng.integers(_CODES))
    bits = rng.integers(2, size=H)
    right = np.zeros((2, _CODES))
    right[0, star] = 1.0
    right[1] = 1.0 - right[0]
    of_codes = np.broadcast_to(codes, (2, _CODES, _BITS))
    features = np.concatenate([of_codes, np.stack([right, 1.0 - right], axis=-1)], axis=-1)
    to_0 = np.where(bits[:, np.newaxis] == [1, 0], 1.0 - softness, softness)
    measures = np.zeros((H, _BITS + 2, 2))
    measures[:, _BITS:] = 3.0 * np.stack([to_0, 1.0 - to_0], axis=-1)
    rewards = np.zeros((1, _BITS + 2))
    rewards[0, _BITS:] = 3.0 * np.array([0.99, 0.01])
    known = flag("known_rewards", known_rewards)
    name = f"two_state:seed={seed},softness={float(softness)},horizon={H}{_KNOWN if known else ''}"
    return LinearWorld(features / 3.0, measures, rewards, H, known_rewards=known, name=name)


def simplex(
    dimension: int = 5,
    states: int = 20,
    actions: int = 10,
    horizon: int = 10,
    seed: int = 0,
    stationary: bool = True,
    known_rewards: bool = False,
) -> LinearWorld:
    """Actions that mix a few latent factors, in which it pays to go where the reward is first.

    State:
        0 (the start) to ``states - 1``, without meaning.
    Actions:
        0 to ``actions - 1``. The features of an action in a state are weights of ``dimension``
        latent factors, drawn from Dirichlet(.2); those of the factor that pays are multiplied by
        .1 and all are normalised again. Every factor has a distribution of next states, drawn
        from Dirichlet(.1), for every step anew unless ``stationary``.
    Reward:
        Bernoulli. Of the factors one has the mean 1, one .05 and the others 0, at every step;
        unknown to agents unless ``known_rewards``.
    Optimum:
        Depends on the seed. Uniform has less than .5 of it, the myopic policy, which takes what
        pays most at once, less than .88.
    Source:
        Invented for this library. Simplex features are those of Jin, Yang, Wang and Jordan, 2020
        (Provably efficient reinforcement learning with linear function approximation).

    Worlds are drawn until one is accepted by that criterion; larger ones hardly ever are.

    Args:
        dimension: Latent factors, d.
        states: S.
        actions: A.
        horizon: Steps of an episode.
        seed: Draws features, measures and rewards.
        stationary: Whether measures are the same at every step.
        known_rewards: Whether agents know the mean rewards.

    >>> world = simplex()
    >>> world.baseline_value < 0.5 * world.optimal_value
    True
    """
    stationary, known = flag("stationary", stationary), flag("known_rewards", known_rewards)
    # Up to these sizes accepted worlds are common enough to be found by drawing.
    d = whole_number("dimension", dimension, 3, 20)
    S = whole_number("states", states, 2, 100 if stationary else 50)
    A, H = whole_number("actions", actions, 2, 20), whole_number("horizon", horizon, 2, 10**6)
    seed = whole_number("seed", seed, least=0)
    L = 1 if stationary else H
    check_bytes("transitions", (L, S, A, S))
    features, measures, rewards = _drawn(np.random.default_rng(seed), (S, A, d), L, H)
    name = (
        f"simplex:dimension={d},states={S},actions={A},horizon={H},seed={seed},"
        f"stationary={stationary}{_KNOWN if known else ''}"
    )
    factors = features, measures, rewards[np.newaxis], H
    return LinearWorld(*factors, known_rewards=known, name=name)


def linear_from_tabular(world: Any) -> LinearWorld:
    """A finite world as a linear MDP: one feature for every state and action, so d = S A.

    Users, values and losses are those of the world: any with a ``model``, or a model itself.

    >>> from tacit.registry import build_world
    >>> linear_from_tabular(build_world("riverswim")).spec.dimension
    12
    """
    model = model_of(world)
    S, A = model.states, model.actions
    check_bytes("features", (S, A, S * A))
    made = LinearWorld(
        np.eye(S * A).reshape(S, A, S * A),
        model.transitions.reshape(-1, S * A, S),
        model.mean_rewards.reshape(-1, S * A),
        model.horizon,
        start=model.start,
        name=f"linear_from_tabular({getattr(world, 'name', 'model')})",
    )
    made._become(world)
    return made


def _drawn(
    rng: np.random.Generator, shape: tuple[int, int, int], steps: int, horizon: int
) -> tuple[Floats, Floats, Floats]:
    """First accepted world: features (S, A, d), measures (L, d, S) and factor rewards (d,)."""
    S, A, d = shape
    for _ in range(_ATTEMPTS):
        features = rng.dirichlet(np.full(d, 0.2), (S, A))
        measures = rng.dirichlet(np.full(S, 0.1), (steps, d))
        rewards = np.zeros(d)
        pays, crumbs = rng.permutation(d)[:2]
        rewards[pays], rewards[crumbs] = 1.0, 0.05
        features[..., pays] *= 0.1
        features /= features.sum(axis=-1, keepdims=True)
        if _accepted(features, measures, rewards, horizon):
            return features, measures, rewards
    raise InvalidArgument("no world of these sizes was accepted: take three actions")


def _accepted(features: Floats, measures: Floats, rewards: Floats, horizon: int) -> bool:
    """Whether uniform has less than .5 and the myopic policy less than .88 of the optimum.

    Values are linear in the features, so no transitions between states are needed.
    """
    S = len(features)
    uniform = features.mean(axis=1)
    myopic = features[np.arange(S), (features @ rewards).argmax(axis=1)]
    best, of_uniform, of_myopic = np.zeros(S), np.zeros(S), np.zeros(S)
    for h in range(horizon - 1, -1, -1):
        mu = measures[min(h, len(measures) - 1)]
        best = (features @ (rewards + mu @ best)).max(axis=1)
        of_uniform = uniform @ (rewards + mu @ of_uniform)
        of_myopic = myopic @ (rewards + mu @ of_myopic)
    return bool(of_uniform[0] < 0.5 * best[0] and of_myopic[0] < 0.88 * best[0])


WORLDS = ("simplex", "two_state")  # that a command line knows
