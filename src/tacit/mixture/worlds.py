"""Worlds that are linear mixture MDPs: known features in unknown weights, Bernoulli rewards."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from tacit.mixture.spec import MixtureSpec, check_table, check_weight_set
from tacit.numerics.regression import helmert
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import check_bytes, checked_number, flag, numbers, whole_number
from tacit.tabular.model import FiniteModel
from tacit.tabular.spec import check_mean_rewards
from tacit.tabular.world import BERNOULLI, FiniteWorld, bernoulli, start_distribution, weighed

_TOLERANCE = 1e-8
# How many worlds are drawn at most, and how many probabilities of base models for all of them.
_ATTEMPTS, _DRAWN_PROBABILITIES = 2000, 20_000_000


class MixtureWorld(FiniteWorld):
    """A finite world given by features of next states and their weights.

    P_h(s' | s, a) = <psi(s' | s, a), theta_h>; rewards are Bernoulli with a mean that is known to
    agents, or linear in features that are. What is given are read-only attributes too, and so is
    ``reward_weights``, omega, (1 or H, m).

    Args:
        transition_features: psi, (S, A, d, S), indexed [s, a, i, s']. A feature need not be a
            distribution of s', only what the weights make of them.
        weights: theta, (1, d), or (H, d) where it depends on the step.
        rewards: mean rewards, (1, S, A), or (H, S, A) where they depend on the step.
        horizon: H, steps of an episode.
        reward_features: varphi, (S, A, m), in which mean rewards are linear.
        start: the first state, or the distribution of it, (S,).
        known_rewards: whether agents know the mean rewards; else they need reward_features.
        center, directions, radius: as in a :class:`~tacit.mixture.spec.MixtureSpec`.
        name: the built-in worlds have names that rebuild them.

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
        name: str = "mixture",
    ) -> None:
        horizon = whole_number("horizon", horizon)
        given = numbers("transition_features", transition_features)
        S = given.shape[0] if given.ndim else 0
        self.transition_features = check_table("transition_features", given, S, None, None, S)
        A, d = self.transition_features.shape[1:3]
        theta = numbers("weights", weights)
        steps = None if theta.shape[:1] == (1,) else horizon
        self.weights = check_table("weights", theta, steps, d)
        self.rewards = check_mean_rewards("rewards", rewards, horizon, (S, A))
        self.known_rewards = flag("known_rewards", known_rewards)
        moves = (np.matmul(theta, self.transition_features) for theta in self.weights)
        size = (len(self.weights), S, A, S)
        model = FiniteModel(
            transitions=weighed("<transition_features, weights>", moves, size),
            reward_probabilities=bernoulli("rewards", self.rewards),
            reward_values=BERNOULLI,
            start=start_distribution(start, S),
            horizon=horizon,
        )
        super().__init__(model, name)
        self._weight_set = check_weight_set(d, center, directions, radius)
        _check_coordinates(self.weights, **self._weight_set)
        self.reward_features: Floats | None = None
        self.reward_weights: Floats | None = None
        if reward_features is not None:
            self.reward_features = check_table("reward_features", reward_features, S, A, None)
            flat = self.reward_features.reshape(S * A, -1)
            self.reward_weights, away = _solved(flat, self.rewards.reshape(-1, S * A))
            if (away > _TOLERANCE).any():
                raise InvalidArgument("rewards must be <reward_features, omega> at every step")
        elif not self.known_rewards:
            raise InvalidArgument("reward_features must be given where known_rewards is False")

    @cached_property
    def spec(self) -> MixtureSpec:
        """Public description."""
        return MixtureSpec(
            **self._sizes(),
            transition_features=self.transition_features,
            stationary_transitions=len(self.weights) == 1,
            stationary_rewards=len(self.rewards) == 1,
            reward_features=self.reward_features,
            known_rewards=self.model.mean_rewards if self.known_rewards else None,
            **self._weight_set,
        )


def _check_coordinates(weights: Floats, center: Floats, directions: Floats, radius: float) -> None:
    """Refuses weights that are not center + directions @ eta with |eta| <= radius."""
    eta, away = _solved(directions, weights - center)
    for h, length in enumerate(np.linalg.norm(eta, axis=1).tolist()):
        wrong = f"weights at step {h} must be center + directions @ eta"
        if away[h].max() > _TOLERANCE * (1.0 + np.abs(weights).max()):
            raise InvalidArgument(f"{wrong}, but the nearest differ by {away[h].max():.3g}")
        if length > radius * (1.0 + _TOLERANCE):
            said = f"{wrong} with |eta| <= radius = {radius:.6g}, but |eta| is {length:.6g}"
            raise InvalidArgument(said)


def _solved(basis: Floats, rows: Floats) -> tuple[Any, Any]:
    """The nearest combinations of a basis to some rows, and how far these are."""
    found = np.linalg.lstsq(basis, rows.T, rcond=None)[0].T
    return found, np.abs(found @ basis.T - rows)


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
    d, H = whole_number("dimension", dimension, 2), whole_number("horizon", horizon, 2)
    seed, per_step = whole_number("seed", seed, least=0), flag("per_step", per_step)
    known = flag("known_rewards", known_rewards)
    bits, S, A = d - 1, H + 2, 2 ** min(d - 1, 64)  # no more can be written down
    check_bytes("transition_features", (S, A, d, S))
    most = min(1.0 / H, 1.0 - 1.0 / H) / bits
    gap = checked_number("gap", gap, f"in (0, {most:.6g}]", lambda x: 0.0 < x <= most)
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
    features.setflags(write=False)  # not copied then
    in_goal = np.zeros((S, A))
    in_goal[H + 1] = 1.0
    name = f"hard_mixture:dimension={d},horizon={H},per_step={per_step},gap={gap}"
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
        all weights were the same less than .8: worlds are drawn until one is like that.
    Source:
        Invented for this library, after Modi, Jiang, Tewari and Singh, 2020 (Sample complexity of
        reinforcement learning using linearly combined model ensembles).

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
    sizes = {"dimension": dimension, "states": states, "actions": actions, "horizon": horizon}
    d, S, A, H = (whole_number(name, size, least=2) for name, size in sizes.items())
    seed, known = whole_number("seed", seed, least=0), flag("known_rewards", known_rewards)
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


def _simplex(d: int) -> dict[str, Any]:
    """Public knowledge of d weights that add up to 1: at most 1 from the middle of the simplex."""
    return {"center": np.full(d, 1.0 / d), "directions": helmert(d), "radius": 1.0}


def _drawn(rng: Generator, shape: tuple[int, int, int], horizon: int) -> tuple[Floats, Floats, int]:
    """First accepted base models (S, A, d, S), their weights (d,) and the state that pays."""
    S, A, d = shape
    allowed, halves = _DRAWN_PROBABILITIES // (math.prod(shape) * S), 0.5 ** np.arange(d)
    for _ in range(max(1, min(_ATTEMPTS, allowed))):
        models = rng.dirichlet(np.full(S, 0.1), shape)
        weights = rng.permutation(halves / halves.sum() if d != 4 else [0.7, 0.15, 0.1, 0.05])
        goal = int(rng.integers(1, S))
        # Uniform has less than .5, and the optimum for uniform weights less than .8.
        best, unknowing, uniform = _values(models, weights, np.eye(S)[goal], horizon)[:, 0]
        if unknowing < 0.8 * best and uniform < 0.5 * best:
            return models, weights, goal
    raise InvalidArgument(
        f"in no world with dimension={d}, states={S}, actions={A}, horizon={horizon} do weights "
        "matter enough: take four actions, and fewer states"
    )


def _values(models: Floats, weights: Floats, rewards: Floats, horizon: int) -> Floats:
    """Values (3, S): the optimum, the optimum for uniform weights, and acting uniformly."""
    P, believed = np.matmul(weights, models), models.mean(axis=2)
    best, belief, unknowing, uniform = np.zeros((4, len(models)))
    for _ in range(horizon):
        expected = believed @ belief
        best, belief = rewards + (P @ best).max(axis=1), rewards + expected.max(axis=1)
        unknowing = rewards + P[np.arange(len(P)), expected.argmax(axis=1)] @ unknowing
        uniform = rewards + (P @ uniform).mean(axis=1)
    return np.stack([best, unknowing, uniform])


def _named(known_rewards: bool) -> str:
    """In the name of a world only where it is not as usual."""
    return "" if known_rewards else ",known_rewards=False"


WORLDS = ("hard_mixture", "mixture_of_models")
"""Names of worlds that a command line knows."""
