"""Linear MDPs: simulated users in a finite world whose probabilities are linear in features."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_size, numbers, read_only
from tacit.linear.spec import LinearSpec, check_features
from tacit.privacy.arguments import flag
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.model import FiniteModel
from tacit.tabular.world import (
    BERNOULLI,
    ROUNDING,
    FiniteWorld,
    bernoulli,
    start_distribution,
    weighed,
)


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

    What is given are attributes too, read-only; ``model`` are the probabilities that they make.

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
        horizon = check_size("horizon", horizon)
        self.features = check_features(features)
        S, A, d = self.features.shape
        self.measures = _factors("measures", measures, horizon, (d, S))
        self.rewards = _factors("rewards", rewards, horizon, (d,))
        self.known_rewards = flag("known_rewards", known_rewards)
        model = FiniteModel(
            transitions=weighed(
                "<features, measures>",
                (self.features @ measure for measure in self.measures),
                (len(self.measures), S, A, S),
            ),
            reward_probabilities=_rewards(self.features, self.rewards),
            reward_values=BERNOULLI,
            start=start_distribution(start, S),
            horizon=horizon,
        )
        super().__init__(model, "linear" if name is None else str(name))

    @cached_property
    def spec(self) -> LinearSpec:
        """What an agent may know; every |v| <= 1 gives factor i at most sum_s' |mu_i(s')|."""
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
        sizes = ", ".join(map(str, shape))
        raise InvalidArgument(
            f"{name} must have shape (1 or horizon={horizon}, {sizes}), got {array.shape}"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        step, factor, *_ = bad[0].tolist()
        raise InvalidArgument(
            f"{name} at step {step}, factor {factor} must be finite, got {array[tuple(bad[0])]}"
        )
    return read_only(array)


def _rewards(features: Floats, rewards: Floats) -> Floats:
    means = np.moveaxis(features @ rewards.T, -1, 0)
    near = np.clip(means, 0.0, 1.0)
    near = np.where(np.abs(means - near) <= ROUNDING, near, means)
    return bernoulli("<features, rewards>", near)
