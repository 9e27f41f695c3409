"""Gradients of a network's loss, one for each user; needs jax and optax."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.network_policy import parameters
from tacit.continuous.statistics.steps import steps_of
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import ball, scaled_back
from tacit.privacy.budget import Relation
from tacit.privacy.errors import MissingExtra
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

Gradients = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class EpisodeGradients(Statistic):
    """The gradient of the loss over a user's episode, clipped to norm ``radius``.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. The loss is the mean over valid
    steps of the Huber loss of q(s, a) against r + discount max q'(s'), where q' is the network
    ``target``. Rewards are counted from the middle of their range, in units of the range. Both
    networks are public.

    Sensitivity. Two points of a ball are at most 2 radius apart, and opposite points are.
    """

    spec: BoxSpec
    sizes: tuple[int, ...]  # units by layer
    theta: Floats  # the network
    target: Floats  # the network that makes the targets
    discount: float
    radius: float  # the largest norm of a user's gradient

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        object.__setattr__(self, "name", "users' gradients")

    @cached_property
    def layout(self) -> Layout:
        """``gradient``, flat."""
        return Layout((Part("gradient", (parameters(self.sizes),)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return ball(self.radius, relation)

    def vectors(self, block: Block) -> Floats:
        """One gradient for each user."""
        states, actions, rewards, valid, over = steps_of(block, self.spec, inside=True)
        low, high = self.spec.reward_range
        middle = 0.5 * (low + high)
        paid = np.where(valid, (rewards - middle) / (high - low), 0.0)
        # After an end nothing is earned: less than the middle, for ever.
        lost = -middle / (1.0 - self.discount) / (high - low)
        # Few different shapes, since each is compiled.
        room = max(1, 1 << (block.users - 1).bit_length()) if block.users else 1

        def padded(array: NDArray[Any], dtype: type) -> NDArray[Any]:
            larger = np.zeros((room, *array.shape[1:]), dtype=dtype)
            larger[: block.users] = array
            return larger

        gradients = _compiled(self.sizes, self.discount)(
            self.theta.astype(np.float32),
            self.target.astype(np.float32),
            padded(states, np.float32),
            padded(actions, np.int32),
            padded(paid, np.float32),
            padded(valid, np.bool_),
            padded(np.where(over, lost, 0.0), np.float32),
            padded(over, np.bool_),
        )
        vectors = np.asarray(gradients, dtype=np.float64)[: block.users]
        vectors = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
        return scaled_back(vectors, self.radius)


def deep_modules() -> tuple[Any, Any]:
    """The modules jax and optax, or how to install them."""
    try:
        return importlib.import_module("jax"), importlib.import_module("optax")
    except ImportError as error:
        raise MissingExtra(
            f"deep Q-learning needs jax and optax ({error}): pip install 'tacit[deep]'"
        ) from error


@lru_cache(maxsize=16)
def _compiled(sizes: tuple[int, ...], discount: float) -> Gradients:
    """Gradients of many episodes at once, (users, parameters)."""
    jax, _ = deep_modules()
    jnp = jax.numpy

    def outputs(theta: Any, inputs: Any) -> Any:
        start = 0
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            biases = start + fan_in * fan_out
            matrix = theta[start:biases].reshape(fan_out, fan_in)
            start = biases + fan_out
            inputs = inputs @ matrix.T + theta[biases:start]
            if layer < len(sizes) - 2:
                inputs = jax.nn.relu(inputs)
        return inputs

    def loss(theta: Any, target: Any, *user: Any) -> Any:
        states, actions, rewards, valid, lost, over = user
        later = jnp.where(over, lost, outputs(target, states[1:]).max(axis=-1))
        chosen = jnp.take_along_axis(outputs(theta, states[:-1]), actions[:, None], axis=-1)
        errors = jnp.where(valid, chosen[:, 0] - rewards - discount * later, 0.0)
        size = jnp.abs(errors)
        each = jnp.where(size < 1.0, 0.5 * errors**2, size - 0.5)
        return each.sum() / jnp.maximum(valid.sum(), 1)

    def gradients(theta: Any, target: Any, *users: Any) -> Any:
        # One by one, not as a batch: the order in which a batch is added up depends on its size,
        # and nobody's gradient may depend on anybody else, not even in its last digit.
        return jax.lax.map(lambda user: jax.grad(loss)(theta, target, *user), users)

    return cast(Gradients, jax.jit(gradients))
