"""Linear mixture MDPs: simulated users in a finite world of known features in unknown weights.

Rewards of the built-in worlds are Bernoulli, so they all lie in {0, 1}.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_bytes, check_seed, check_size, numbers, read_only
from tacit.mixture.spec import (
    MixtureSpec,
    check_reward_features,
    check_transition_features,
    check_weight_set,
)
from tacit.numerics.regression import helmert
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import flag
from tacit.tabular.feature_spec import check_mean_rewards, finite
from tacit.tabular.model import FiniteModel
from tacit.tabular.world import (
    BERNOULLI,
    FiniteWorld,
    bernoulli,
    model_of,
    start_distribution,
    weighed,
)

_TOLERANCE = 1e-8


class MixtureWorld(FiniteWorld):
    """A finite world given by features of next states and their weights.

    P_h(s' | s, a) = <psi(s' | s, a), theta_h>; rewards are Bernoulli with a mean that is known to
    agents, or linear in features that are. Labels of actions are not exchangeable: the features,
    which agents know, tell actions apart.

    Args:
        transition_features: psi, (S, A, d, S), indexed [s, a, i, s']. A feature need not be a
            distribution of s', only what the weights make of them.
        weights: theta, (1, d), or (H, d) where it depends on the step.
        rewards: mean rewards, (1, S, A), or (H, S, A) where they depend on the step.
        horizon: H, steps of an episode.
        reward_features: varphi, (S, A, m), in which mean rewards must be linear; needed unless
            ``known_rewards``.
        start: the first state, or the distribution of it, (S,).
        known_rewards: whether agents are told the mean rewards.
        center, directions, radius: what is public of the weights; see
            :class:`~tacit.mixture.spec.MixtureSpec`.
        name: what it is called; the built-in worlds have names that rebuild them.

    What is given are attributes too, read-only, and so are ``coordinates``, eta, (1 or H, k), the
    shortest where there are several, and ``reward_weights``, omega, (1 or H, m).

    >>> models = [[[[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]]]] * 2
    >>> world = MixtureWorld(models, weights=[[0.75, 0.25]], rewards=[[[0, 0], [1, 1]]], horizon=3)
    >>> world.spec.dimension, round(world.optimal_value, 12), round(world.baseline_value, 12)
    (2, 1.4, 1.0)
    """

    exchangeable_actions = False

    def __init__(
        self,
        transition_features: ArrayLike,
        weights: ArrayLike,
        rewards: ArrayLike,
        horizon: int,
        *,
        reward_features: ArrayLike | None = None,
        start: int | ArrayLike = 0,
        known_rewards: bool = True,
        center: ArrayLike | None = None,
        directions: ArrayLike | None = None,
        radius: float | None = None,
        name: str | None = None,
    ) -> None:
        horizon = check_size("horizon", horizon)
        self.transition_features = check_transition_features(transition_features)
        S, A, d, _ = self.transition_features.shape
        self.weights = _weights(weights, horizon, d)
        self.rewards = check_mean_rewards("rewards", rewards, horizon, (S, A))
        self.known_rewards = flag("known_rewards", known_rewards)
        model = FiniteModel(
            transitions=weighed(
                "<transition_features, weights>",
                (np.matmul(theta, self.transition_features) for theta in self.weights),
                (len(self.weights), S, A, S),
            ),
            reward_probabilities=bernoulli("rewards", self.rewards),
            reward_values=BERNOULLI,
            start=start_distribution(start, S),
            horizon=horizon,
        )
        super().__init__(model, "mixture" if name is None else str(name))
        self._weight_set = check_weight_set(d, center, directions, radius)
        self.coordinates = _coordinates(self.weights, *self._weight_set)
        self.reward_features: Floats | None = None
        self.reward_weights: Floats | None = None
        if reward_features is not None:
            self.reward_features = check_reward_features(reward_features, S, A)
            self.reward_weights = _reward_weights(self.reward_features, self.rewards)
        elif not self.known_rewards:
            raise InvalidArgument("reward_features must be given where known_rewards is False")

    @cached_property
    def spec(self) -> MixtureSpec:
        """Public description."""
        center, directions, radius = self._weight_set
        return MixtureSpec(
            **self._sizes(),
            transition_features=self.transition_features,
            stationary_transitions=len(self.weights) == 1,
            stationary_rewards=len(self.rewards) == 1,
            reward_features=self.reward_features,
            known_rewards=self.model.mean_rewards if self.known_rewards else None,
            center=center,
            directions=directions,
            radius=radius,
        )


def _weights(values: ArrayLike, horizon: int, dimension: int) -> Floats:
    array = numbers("weights", values)
    if array.ndim != 2 or array.shape[1] != dimension or len(array) not in (1, horizon):
        raise InvalidArgument(
            f"weights must have shape (1 or {horizon}, {dimension}), got {array.shape}"
        )
    return finite("weights", array, "step")


def _coordinates(weights: Floats, center: Floats, directions: Floats, radius: float) -> Floats:
    """The eta with weights = center + directions @ eta, which must be there and short enough."""
    away = weights - center
    # Right where directions are orthonormal, and far cheaper where they are many.
    eta: Floats = away @ directions
    size = 1.0 + np.abs(weights).max()
    if (np.abs(eta @ directions.T - away) > _TOLERANCE * size).any():
        eta = np.asarray(np.linalg.lstsq(directions, away.T, rcond=None)[0].T, np.float64)
    distance = np.abs(eta @ directions.T - away).max(axis=1)
    for h in np.flatnonzero(distance > _TOLERANCE * size).tolist():
        raise InvalidArgument(
            f"weights at step {h} must be center + directions @ eta for some eta, "
            f"but the nearest differ by {distance[h]:.3g}"
        )
    length = np.linalg.norm(eta, axis=1)
    for h in np.flatnonzero(length > radius * (1.0 + _TOLERANCE)).tolist():
        raise InvalidArgument(
            f"weights at step {h} must be center + directions @ eta with |eta| <= radius "
            f"= {radius:.6g}, but |eta| is {length[h]:.6g}"
        )
    return read_only(eta)


def _reward_weights(features: Floats, rewards: Floats) -> Floats:
    """The omega with rewards = <features, omega>, which must be there."""
    S, A, m = features.shape
    flat, means = features.reshape(S * A, m), rewards.reshape(len(rewards), S * A)
    omega = np.linalg.lstsq(flat, means.T, rcond=None)[0].T
    nearest = (omega @ flat.T).reshape(rewards.shape)
    bad = np.argwhere(np.abs(nearest - rewards) > _TOLERANCE)
    if len(bad):
        step, state, action = bad[0].tolist()
        raise InvalidArgument(
            f"rewards at step {step}, state {state}, action {action} must be "
            f"<reward_features, omega> for an omega of that step, but the nearest is "
            f"{nearest[step, state, action]:.6g} and not {rewards[step, state, action]:.6g}"
        )
    return read_only(omega)


# How many worlds are drawn at most, and how many probabilities of base models for all of them.
_ATTEMPTS, _DRAWN_PROBABILITIES = 2000, 20_000_000

# Features of tabular worlds above this are refused: agents that use them need several times more.
_MOST_ONE_HOT_BYTES = 256 * 2**20


def hard_mixture(
    dimension: int = 5,
    horizon: int = 6,
    per_step: bool = False,
    gap: float = 0.03,
    seed: int = 0,
    known_rewards: bool = True,
) -> MixtureWorld:
    """A chain that users leave for a goal, a little sooner if every bit of the action is right.

    State:
        0 (the start) to ``horizon`` on a chain, and the goal, ``horizon + 1``. The end of the
        chain and the goal absorb.
    Actions:
        All 2^(``dimension`` - 1) vectors a of {-1, 1}^(``dimension`` - 1), in an order drawn by
        the seed. On the chain an action leads to the goal with probability 1 / ``horizon`` +
        <theta, a>, else one further. The seed draws theta from {-``gap``, ``gap``}^(``dimension``
        - 1), for every step anew if ``per_step``. The last of the ``dimension`` features has the
        weight 1, the others have theta. Agents know that, and |theta| <= 2 ``gap``
        sqrt(``dimension`` - 1): twice what it is.
    Reward:
        1 in the goal; known, or linear in two features, (goal, not goal), unless
        ``known_rewards``.
    Optimum:
        With p = 1 / ``horizon`` + ``gap`` (``dimension`` - 1), the sum over steps h = 1 to
        ``horizon`` - 1 of 1 - (1 - p)^h: 2.9712 at the defaults, by the action with the signs of
        theta. Uniform has the same with p = 1 / ``horizon``: 2.0094.
    Source:
        The lower bound of Zhou, Gu and Szepesvari, 2021 (Nearly minimax optimal reinforcement
        learning for linear mixture Markov decision processes), where theta depends on the step.

    Args:
        dimension: Features, d; one more than an action has bits.
        horizon: Steps of an episode.
        per_step: Whether theta depends on the step.
        gap: Size of the entries of theta.
        seed: Draws theta and the order of actions.
        known_rewards: Whether agents know the mean rewards.

    >>> world = hard_mixture()
    >>> round(world.optimal_value, 4), world.spec.actions, world.spec.dimension, world.spec.free
    (2.9712, 16, 5, 4)
    """
    d, H = _at_least_2("dimension", dimension), _at_least_2("horizon", horizon)
    seed, per_step = check_seed("seed", seed), flag("per_step", per_step)
    known = flag("known_rewards", known_rewards)
    bits = d - 1
    # No more than 64 bits, so that the number of actions can be written down.
    S, A = H + 2, 2 ** min(bits, 64)
    check_bytes("transition_features", (S, A, d, S))
    most = min(1.0 / H, 1.0 - 1.0 / H) / bits
    if isinstance(gap, bool) or not isinstance(gap, (int, float)) or not 0 < gap <= most:
        raise InvalidArgument(
            f"gap must be a number in (0, {most:.6g}] at dimension={d}, horizon={H}, so that there "
            f"are probabilities, got {gap!r}"
        )
    rng = np.random.default_rng(seed)
    vectors = 2.0 * (rng.permutation(A)[:, np.newaxis] >> np.arange(bits) & 1) - 1.0
    signs = rng.integers(2, size=(H if per_step else 1, bits)) * 2.0 - 1.0
    features = np.zeros((S, A, d, S))
    for x in range(H):
        features[x, :, :bits, x + 1] = -vectors
        features[x, :, bits, x + 1] = 1.0 - 1.0 / H
        features[x, :, :bits, H + 1] = vectors
        features[x, :, bits, H + 1] = 1.0 / H
    for x in (H, H + 1):
        features[x, :, bits, x] = 1.0
    # Not to be changed, and so not to be copied either.
    features.setflags(write=False)
    in_goal = np.zeros((S, A))
    in_goal[H + 1] = 1.0
    name = f"hard_mixture:dimension={d},horizon={H},per_step={per_step},gap={float(gap)}"
    return MixtureWorld(
        features,
        np.concatenate([gap * signs, np.ones((len(signs), 1))], axis=1),
        in_goal[np.newaxis],
        H,
        reward_features=np.stack([in_goal, 1.0 - in_goal], axis=-1),
        known_rewards=known,
        center=np.eye(d)[bits],
        directions=np.eye(d)[:, :bits],
        radius=2.0 * gap * math.sqrt(bits),
        name=f"{name},seed={seed}{_named(known)}",
    )


def mixture_of_models(
    dimension: int = 4,
    states: int = 10,
    actions: int = 4,
    horizon: int = 10,
    seed: int = 0,
    known_rewards: bool = True,
) -> MixtureWorld:
    """A few known models of the world, mixed by unknown weights.

    State:
        0 (the start) to ``states - 1``, without meaning.
    Actions:
        0 to ``actions - 1``. In each of ``dimension`` base models every state and action has a
        distribution of next states, drawn from Dirichlet(.1). Next states are drawn from the base
        models with the weights .7, .15, .1 and .05 in an order drawn by the seed; with another
        dimension than 4, each weight is half of the next larger one. Agents know that the weights
        add up to 1.
    Reward:
        1 in one state, which is not the start; known, or linear in one feature for every state
        unless ``known_rewards``.
    Optimum:
        Depends on the seed. Uniform has less than .5 of it, and the policy that were optimal if
        all weights were the same less than .8.
    Source:
        Invented for this library. Mixtures of base models are those of Modi, Jiang, Tewari and
        Singh, 2020 (Sample complexity of reinforcement learning using linearly combined model
        ensembles).

    Worlds are drawn until one is accepted by that criterion, at most 2,000 and as many as have
    20 million probabilities in all; where none is, the sizes are refused.

    Args:
        dimension: Base models, d.
        states: S.
        actions: A.
        horizon: Steps of an episode.
        seed: Draws models, weights and the state that pays.
        known_rewards: Whether agents know the mean rewards.

    >>> world = mixture_of_models()
    >>> world.baseline_value < 0.5 * world.optimal_value
    True
    """
    d, S = _at_least_2("dimension", dimension), _at_least_2("states", states)
    A, H = _at_least_2("actions", actions), _at_least_2("horizon", horizon)
    seed, known = check_seed("seed", seed), flag("known_rewards", known_rewards)
    check_bytes("transition_features", (S, A, d, S))
    check_bytes("values of all steps (horizon)", (H + 1, S))
    rng = np.random.default_rng(seed)
    models, weights, goal = _drawn(rng, (S, A, d), H)
    models.setflags(write=False)
    rewards = np.zeros((1, S, A))
    rewards[:, goal] = 1.0
    name = f"mixture_of_models:dimension={d},states={S},actions={A},horizon={H},seed={seed}"
    return MixtureWorld(
        models,
        weights[np.newaxis],
        rewards,
        H,
        reward_features=np.repeat(np.eye(S)[:, np.newaxis], A, axis=1),
        known_rewards=known,
        name=name + _named(known),
        **_simplex(d),
    )


def mixture_from_tabular(world: Any, known_rewards: bool = False) -> MixtureWorld:
    """A finite world as a linear mixture MDP: a feature for each state, action and next state.

    So d = S A S, and the weights are the probabilities themselves; agents know that those of a
    state and an action add up to 1. Rewards have a feature for each state and action. Users,
    values and losses are those of the world: any with a ``model``, or a model itself. Features have
    S^4 A^2 entries, so this is for small worlds: more than 256 MiB of them are refused.

    >>> from tacit.registry import build_world
    >>> spec = mixture_from_tabular(build_world("riverswim")).spec
    >>> spec.dimension, spec.free
    (72, 60)
    """
    model, known = model_of(world), flag("known_rewards", known_rewards)
    S, A = model.states, model.actions
    if S < 2:
        raise InvalidArgument("world must have at least 2 states: with one, all is known")
    d = S * A * S
    needed = 8 * S * A * d * S
    if needed > _MOST_ONE_HOT_BYTES:
        raise InvalidArgument(
            f"world has {S} states and {A} actions, so that there are {d:,} features of each "
            f"next state, which need {needed:,} bytes; at most {_MOST_ONE_HOT_BYTES:,} are allowed"
        )
    features = np.zeros((S * A, d, S))
    for row in range(S * A):
        features[row, row * S : (row + 1) * S] = np.eye(S)
    of_row = _simplex(S)
    made = MixtureWorld(
        features.reshape(S, A, d, S),
        model.transitions.reshape(-1, d),
        model.mean_rewards,
        model.horizon,
        reward_features=np.eye(S * A).reshape(S, A, S * A),
        start=model.start,
        known_rewards=known,
        center=np.tile(of_row["center"], S * A),
        directions=np.kron(np.eye(S * A), of_row["directions"]),
        # That of worlds without chance, which no row exceeds.
        radius=math.sqrt(S * A * (1.0 - 1.0 / S)),
        name=f"mixture_from_tabular({getattr(world, 'name', 'model')})",
    )
    made._become(world)
    return made


def _simplex(d: int) -> dict[str, Any]:
    """Public knowledge of d weights that add up to 1: at most 1 from the middle of the simplex."""
    return {"center": np.full(d, 1.0 / d), "directions": helmert(d), "radius": 1.0}


def _drawn(
    rng: np.random.Generator, shape: tuple[int, int, int], horizon: int
) -> tuple[Floats, Floats, int]:
    """First accepted base models (S, A, d, S), their weights (d,) and the state that pays."""
    S, A, d = shape
    allowed = _DRAWN_PROBABILITIES // (math.prod(shape) * S)
    for _ in range(max(1, min(_ATTEMPTS, allowed))):
        models = rng.dirichlet(np.full(S, 0.1), shape)
        weights = rng.permutation(_sorted_weights(d))
        goal = int(rng.integers(1, S))
        # Uniform has less than .5, and the optimum for uniform weights less than .8.
        best, unknowing, uniform = _values(models, weights, np.eye(S)[goal], horizon)[:, 0]
        if unknowing < 0.8 * best and uniform < 0.5 * best:
            return models, weights, goal
    raise InvalidArgument(
        f"no world with dimension={d}, states={S}, actions={A}, horizon={horizon} was found whose "
        "uniform policy, and whose optimum for uniform weights, are far enough below the optimum: "
        "take four actions, and fewer states"
    )


def _sorted_weights(d: int) -> Floats:
    if d == 4:
        return np.array([0.7, 0.15, 0.1, 0.05])
    halved = 0.5 ** np.arange(d, dtype=np.float64)
    return np.asarray(halved / halved.sum())


def _values(models: Floats, weights: Floats, rewards: Floats, horizon: int) -> Floats:
    """Values (3, S): the optimum, the optimum for uniform weights, and acting uniformly."""
    S = len(models)
    P, believed = np.matmul(weights, models), models.mean(axis=2)
    everywhere = np.arange(S)
    best, belief, unknowing, uniform = np.zeros((4, S))
    for _ in range(horizon):
        expected = believed @ belief
        taken = P[everywhere, expected.argmax(axis=1)]
        best = rewards + (P @ best).max(axis=1)
        belief = rewards + expected.max(axis=1)
        unknowing = rewards + taken @ unknowing
        uniform = rewards + (P @ uniform).mean(axis=1)
    return np.stack([best, unknowing, uniform])


def _named(known_rewards: bool) -> str:
    """In the name of a world only where it is not as usual."""
    return "" if known_rewards else ",known_rewards=False"


def _at_least_2(name: str, value: int) -> int:
    if check_size(name, value) < 2:
        raise InvalidArgument(
            f"{name} must be >= 2, got {value!r}: with less there is nothing to learn"
        )
    return int(value)


WORLDS = ("hard_mixture", "mixture_of_models")
"""Names of worlds that a command line knows."""
