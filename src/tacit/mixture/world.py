"""Linear mixture MDPs: simulated users in a finite world of known features in unknown weights."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_size, numbers, read_only
from tacit.mixture.spec import (
    MixtureSpec,
    check_reward_features,
    check_transition_features,
    check_weight_set,
)
from tacit.privacy.arguments import flag
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.feature_spec import check_mean_rewards, finite
from tacit.tabular.model import FiniteModel
from tacit.tabular.world import BERNOULLI, FiniteWorld, bernoulli, start_distribution, weighed

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
        """What an agent may know."""
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
