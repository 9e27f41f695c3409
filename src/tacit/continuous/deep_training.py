"""What networks learn from: returns of a few steps, the loss of double Q-learning, compiled loops.

A network is a flat vector; see :mod:`tacit.continuous.network_policy`. It sees states around their
middle and in units of their width, and its outputs are values in units of their own, so that all
numbers within are of order one: :class:`Units` has both. Needs jax, where it trains.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.continuous.network_policy import parameters
from tacit.continuous.statistics.steps import Steps
from tacit.privacy.errors import MissingExtra
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

END = 3.0
"""Where a coordinate ends that has no end."""

# How wide the range of values is, in units of a network that learns from public numbers alone.
_VALUES = 10.0

FIRST, SECOND, FLOOR = 0.9, 0.999, 1e-5
"""Adam's means of gradients and of their squares, and what is added to a deviation."""

TOGETHER = 4
"""Users whose gradients are computed at once, always so many."""


def deep_modules() -> Any:
    """The module jax, or how to install it."""
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise MissingExtra(
            f"deep Q-learning needs jax ({error}): pip install 'tacit[deep]'"
        ) from error


@dataclass(frozen=True, eq=False)
class Units:
    """How states and values look from within a network.

    Attributes:
        centre: of states, (D,).
        width: of states, (D,).
        middle: the reward that counts as none.
        unit: of rewards and values.
        discount: of future rewards.
    """

    centre: Floats
    width: Floats
    middle: float
    unit: float
    discount: float

    @classmethod
    def of_spec(cls, spec: BoxSpec, discount: float) -> Units:
        """From public numbers alone: the box fills -1 to 1, and values -5 to 5."""
        lows = np.where(np.isfinite(spec.lows), spec.lows, -END)
        highs = np.where(np.isfinite(spec.highs), spec.highs, END)
        width = np.maximum(0.5 * (highs - lows), 1e-9)
        low, high = spec.reward_range
        unit = (high - low) / (1.0 - discount) / _VALUES
        return cls(0.5 * (lows + highs), width, 0.5 * (low + high), unit, discount)

    @classmethod
    def of_steps(cls, steps: Steps, discount: float) -> Units:
        """From episodes that need no protection: means, deviations, and how large values are."""
        states = steps.states[:, :-1][steps.valid]
        if not len(states):
            D = steps.states.shape[-1]
            return cls(np.zeros(D), np.ones(D), 0.0, 1.0, discount)
        ahead, sums = np.zeros(len(steps.rewards)), np.zeros_like(steps.rewards)
        for t in range(steps.rewards.shape[1] - 1, -1, -1):
            ahead = np.where(steps.valid[:, t], steps.rewards[:, t] + discount * ahead, 0.0)
            sums[:, t] = ahead
        unit = math.sqrt(float((sums[steps.valid] ** 2).mean()))
        width = np.maximum(states.std(axis=0), 1e-3)
        return cls(states.mean(axis=0), width, 0.0, unit if unit > 0.0 else 1.0, discount)

    @property
    def nothing(self) -> float:
        """What a state is worth from where nothing is earned any more."""
        return -self.middle / (1.0 - self.discount) / self.unit

    def seen(self, states: Floats) -> Floats:
        """States as a network sees them."""
        return (states - self.centre) / self.width

    def outside(self, theta: Floats, sizes: tuple[int, ...]) -> Floats:
        """The network from states to values as they are, which is what is published."""
        theta = np.array(theta, dtype=np.float64)
        inputs, units = sizes[0], sizes[1]
        first = theta[: inputs * units].reshape(units, inputs)
        first /= self.width
        theta[inputs * units : inputs * units + units] -= first @ self.centre
        theta[parameters(sizes[:-1]) :] *= self.unit
        theta[-sizes[-1] :] += self.middle / (1.0 - self.discount)
        return theta

    def inside(self, theta: Floats, sizes: tuple[int, ...]) -> Floats:
        """The inverse of :meth:`outside`."""
        theta = np.array(theta, dtype=np.float64)
        inputs, units = sizes[0], sizes[1]
        theta[-sizes[-1] :] -= self.middle / (1.0 - self.discount)
        theta[parameters(sizes[:-1]) :] /= self.unit
        first = theta[: inputs * units].reshape(units, inputs)
        theta[inputs * units : inputs * units + units] += first @ self.centre
        first *= self.width
        return theta


class Returns(NamedTuple):
    """What was earned in the next few steps of each step, (users, H)."""

    earned: Floats  # discounted, in units of values
    later: Ints  # the number of the state after them
    factor: Floats  # what that state's value counts, 0 where it has none


def returns_of(steps: Steps, units: Units, ahead: int) -> Returns:
    """Returns of up to ``ahead`` steps, fewer before an end or a step that does not count."""
    users, horizon = steps.valid.shape
    paid = np.where(steps.valid, (steps.rewards - units.middle) / units.unit, 0.0)
    earned, factor = np.zeros((users, horizon)), np.ones((users, horizon))
    later = np.tile(np.arange(horizon), (users, 1))
    going: Bools = steps.valid.copy()
    for k in range(min(ahead, horizon)):
        here, there = slice(None, horizon - k), slice(k, None)
        taken = going[:, here] & steps.valid[:, there]
        earned[:, here] += np.where(taken, factor[:, here] * paid[:, there], 0.0)
        factor[:, here] = np.where(taken, units.discount * factor[:, here], factor[:, here])
        later[:, here] += taken
        over = taken & steps.ended[:, there]
        earned[:, here] += np.where(over, factor[:, here] * units.nothing, 0.0)
        factor[:, here] = np.where(over, 0.0, factor[:, here])
        going[:, here] = taken & ~over
        going[:, horizon - k :] = False
    return Returns(earned, later, factor)


def adam(state: Any, gradient: Any, step: Any, rate: Any) -> Any:
    """One step of Adam: the network and its two means after it. Of NumPy or of jax."""
    theta, first, second = state
    first = FIRST * first + (1.0 - FIRST) * gradient
    second = SECOND * second + (1.0 - SECOND) * gradient**2
    size = (second / (1.0 - SECOND**step)) ** 0.5 + FLOOR
    return theta - rate * first / (1.0 - FIRST**step) / size, first, second


def _outputs(sizes: tuple[int, ...], theta: Any, inputs: Any) -> Any:
    """A network's outputs, by jax."""
    relu, start = deep_modules().nn.relu, 0
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        biases = start + fan_in * fan_out
        matrix = theta[start:biases].reshape(fan_out, fan_in)
        start = biases + fan_out
        inputs = inputs @ matrix.T + theta[biases:start]
        if layer < len(sizes) - 2:
            inputs = relu(inputs)
    return inputs


def _double_q(here: Any, there: Any, aim: Any, told: Any) -> Any:
    """The loss: the network chooses what comes later, its older self says what that is worth.

    Of the network's outputs at both states, the older one's at the later, and of actions, what was
    earned, factors and weights. Errors beyond one count linearly (Huber).
    """
    jax = deep_modules()
    jnp, (actions, earned, factors, weights) = jax.numpy, told

    def at(values: Any, chosen: Any) -> Any:
        return jnp.take_along_axis(values, chosen[:, None], axis=-1)[:, 0]

    goal = jax.lax.stop_gradient(earned + factors * at(aim, there.argmax(axis=-1)))
    errors = jnp.where(weights > 0.0, at(here, actions) - goal, 0.0)
    size = jnp.abs(errors)
    return (weights * jnp.where(size < 1.0, 0.5 * errors**2, size - 0.5)).sum()


@lru_cache(maxsize=16)
def loss_of(sizes: tuple[int, ...]) -> Callable[..., Any]:
    """The loss of double Q-learning, of a network, its older self, and examples.

    Examples are states, actions, what was earned, later states, factors and weights.
    """

    def loss(theta: Any, target: Any, examples: Any) -> Any:
        states, actions, earned, later, factors, weights = examples
        here, there = _outputs(sizes, theta, states), _outputs(sizes, theta, later)
        aim = _outputs(sizes, target, later)
        return _double_q(here, there, aim, (actions, earned, factors, weights))

    return loss


@lru_cache(maxsize=16)
def gradients_of(sizes: tuple[int, ...]) -> Callable[..., Any]:
    """Gradients of many episodes, (users, parameters); of so many that ``TOGETHER`` divides it."""
    jax = deep_modules()

    def loss(theta: Any, target: Any, user: Any) -> Any:
        states, actions, earned, later, factors, weights = user
        values = _outputs(sizes, theta, states)
        aim = _outputs(sizes, target, states)[later]
        return _double_q(values[:-1], values[later], aim, (actions, earned, factors, weights))

    def gradients(theta: Any, target: Any, *users: Any) -> Any:
        # Not all at once: the order in which a batch is added up depends on its size, and nobody's
        # gradient may depend on how many others there are, not even in its last digit.
        def one(user: Any) -> Any:
            return jax.grad(loss)(theta, target, user)

        return jax.lax.map(one, users, batch_size=TOGETHER)

    found: Callable[..., Any] = jax.jit(gradients)
    return found


@lru_cache(maxsize=16)
def trainer(sizes: tuple[int, ...], follow: float, keep: float) -> Callable[..., Any]:
    """A compiled loop of gradient steps on examples that need no protection.

    It takes a carry of ``theta``, ``first``, ``second``, ``target``, ``average`` and the number of
    steps made; the examples; which of them each step takes, (steps, batch); and a rate. The target
    follows the network by ``follow`` of the way at each step, the average keeps ``keep`` of itself.
    """
    jax = deep_modules()
    slope = jax.grad(loss_of(sizes))

    def train(carry: Any, examples: Any, chosen: Any, rate: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            *state, target, average, count = carry
            gradient = slope(state[0], target, tuple(column[rows] for column in examples))
            theta, *means = adam(state, gradient, count + 1.0, rate)
            target = target + follow * (theta - target)
            average = keep * average + (1.0 - keep) * theta
            return (theta, *means, target, average, count + 1.0), None

        return jax.lax.scan(step, carry, chosen)[0]

    found: Callable[..., Any] = jax.jit(train)
    return found
