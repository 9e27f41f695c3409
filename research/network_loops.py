"""Compiled inner loops of a small network: forward, backward, optimisers, noise paths.

A network is one flat vector: for each layer its weights, (outputs, inputs) row by row, then its
biases. Hidden units are rectified, the outputs are not. Batches have one column per example.
Imported only where it runs: numba is slow to load.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, Ints, compiled

Replay: TypeAlias = tuple[Floats, Ints, Floats, Floats, NDArray[np.bool_]]
"""States (n, D), actions, rewards, next states, and whether the episode ended there."""
Path: TypeAlias = tuple[Floats, Ints, Floats, Ints]
"""What is known of a noise path; see :func:`path_at`."""


@compiled
def forward(theta: Floats, sizes: Ints, units: Floats) -> None:
    """Fills all layers of ``units``, (sum of sizes, examples), whose first rows are the inputs."""
    layers, weights, left = len(sizes) - 1, 0, 0
    for layer in range(layers):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        right, biases = left + fan_in, weights + fan_in * fan_out
        matrix = theta[weights:biases].reshape(fan_out, fan_in)
        outputs = units[right : right + fan_out]
        np.dot(matrix, units[left:right], out=outputs)
        for o in range(fan_out):
            bias = theta[biases + o]
            for k in range(units.shape[1]):
                outputs[o, k] += bias
                if layer < layers - 1:
                    outputs[o, k] = max(outputs[o, k], 0.0)
        weights, left = biases + fan_out, right


@compiled
def backward(theta: Floats, sizes: Ints, units: Floats, deltas: Floats, gradient: Floats) -> None:
    """The gradient of a sum over examples of a loss of the outputs, from what :func:`forward` left.

    The last rows of ``deltas`` hold the derivatives of the loss by the outputs; the others are
    overwritten by those by the units.
    """
    layers, weights, left = len(sizes) - 1, len(theta), sizes.sum() - sizes[-1]
    for layer in range(layers - 1, -1, -1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        biases, right = weights - fan_out, left
        weights, left = biases - fan_in * fan_out, left - fan_in
        inputs, errors = units[left:right], deltas[right : right + fan_out]
        for o in range(fan_out):
            gradient[biases + o] = errors[o].sum()
        np.dot(errors, inputs.T, out=gradient[weights:biases].reshape(fan_out, fan_in))
        if layer > 0:
            matrix = theta[weights:biases].reshape(fan_out, fan_in)
            np.dot(matrix.T, errors, out=deltas[left:right])
            for i in range(fan_in):
                for k in range(units.shape[1]):
                    if inputs[i, k] <= 0.0:
                        deltas[left + i, k] = 0.0


@compiled
def sgd(theta: Floats, gradient: Floats, rate: float) -> None:
    """One plain step down the gradient."""
    for i in range(len(theta)):
        theta[i] -= rate * gradient[i]


@compiled
def rmsprop(
    theta: Floats, gradient: Floats, squares: Floats, rate: float, decay: float, floor: float
) -> None:
    """One step of RMSprop, as PyTorch defines it; ``squares`` are the mean of squared gradients."""
    for i in range(len(theta)):
        squares[i] = decay * squares[i] + (1.0 - decay) * gradient[i] * gradient[i]
        theta[i] -= rate * gradient[i] / (math.sqrt(squares[i]) + floor)


@compiled
def path_at(
    rng: np.random.Generator, path: Path, beta: float, sigma: float, state: Floats, noise: Floats
) -> None:
    """Samples one path per action at a state, given all that was sampled of them before.

    Each coordinate has an Ornstein-Uhlenbeck path of its own, of variance sigma^2 / D and with
    kernel exp(-beta |x - y|); the path at a state is their sum. Between two known points, at
    distances a and b, a new one has mean
    (e^(-beta a) (1 - e^(-2 beta b)) g(left) + e^(-beta b) (1 - e^(-2 beta a)) g(right)) / c with
    c = 1 - e^(-2 beta (a + b)), and variance (1 - e^(-2 beta a)) (1 - e^(-2 beta b)) / c of the
    process's own; beside one known point, e^(-beta a) g and 1 - e^(-2 beta a).

    A path is, by coordinate, the known points in order (D, capacity), the places of their values,
    these values (D, capacity, actions), and how many there are; there must be room for one more. A
    point that was sampled before has its value from then.
    """
    points, places, values, counts = path
    dimension, actions = values.shape[0], values.shape[2]
    std = sigma / math.sqrt(dimension)
    noise[:] = 0.0
    for d in range(dimension):
        known, x = counts[d], state[d]
        at, high = 0, known
        while at < high:
            middle = (at + high) // 2
            if points[d, middle] < x:
                at = middle + 1
            else:
                high = middle
        if at == known or points[d, at] != x:
            # In two loops, which compile to two moves of memory.
            for k in range(known, at, -1):
                points[d, k] = points[d, k - 1]
            for k in range(known, at, -1):
                places[d, k] = places[d, k - 1]
            points[d, at], places[d, at], counts[d] = x, known, known + 1
            a, b = math.inf, math.inf
            if at > 0:
                a = x - points[d, at - 1]
            if at < known:
                b = points[d, at + 1] - x
            of_left, of_right = -math.expm1(-2.0 * beta * a), -math.expm1(-2.0 * beta * b)
            both = -math.expm1(-2.0 * beta * (a + b))
            spread = std * math.sqrt(of_left * of_right / both)
            on_left = math.exp(-beta * a) * of_right / both
            on_right = math.exp(-beta * b) * of_left / both
            for action in range(actions):
                value = spread * rng.standard_normal()
                if at > 0:
                    value += on_left * values[d, places[d, at - 1], action]
                if at < known:
                    value += on_right * values[d, places[d, at + 1], action]
                values[d, known, action] = value
        for action in range(actions):
            noise[action] += values[d, places[d, at], action]


@compiled
def draw_batch(rng: np.random.Generator, size: int, chosen: Ints, taken: NDArray[np.bool_]) -> None:
    """Different numbers below ``size``, by Floyd's method; ``taken`` is all false before and after.

    They are not in random order.
    """
    batch = len(chosen)
    for k in range(batch):
        top = size - batch + k
        number = int(rng.random() * (top + 1))
        if taken[number]:
            number = top
        taken[number] = True
        chosen[k] = number
    for k in range(batch):
        taken[chosen[k]] = False


@compiled
def q_gradient(
    rng: np.random.Generator,
    theta: Floats,
    target: Floats,
    sizes: Ints,
    replay: Replay,
    chosen: Ints,
    discount: float,
    kernel: tuple[float, float],
    path: Path,
    target_path: Path,
    huber: bool,
    work: tuple[Floats, Floats, Floats],
    gradient: Floats,
) -> None:
    """The gradient of the mean loss of chosen transitions, with the paths added to both networks.

    The kernel is beta and sigma; without sigma nothing is drawn. With ``huber`` errors beyond 1
    count linearly; else half their squares count. ``work`` are units and deltas (sum of sizes,
    batch) and noise (actions,).
    """
    states, actions, rewards, next_states, ended = replay
    units, deltas, noise = work
    beta, sigma = kernel
    batch, dimension, labels = len(chosen), sizes[0], sizes[-1]
    first = units.shape[0] - labels
    for k in range(batch):
        for d in range(dimension):
            units[d, k] = next_states[chosen[k], d]
    forward(target, sizes, units)
    noise[:] = 0.0
    for k in range(batch):
        goal = rewards[chosen[k]]
        if not ended[chosen[k]]:
            if sigma > 0.0:
                path_at(rng, target_path, beta, sigma, next_states[chosen[k]], noise)
            best = -math.inf
            for action in range(labels):
                best = max(best, units[first + action, k] + noise[action])
            goal += discount * best
        # Kept where the derivatives of this example come to stand.
        deltas[first, k] = goal
    for k in range(batch):
        for d in range(dimension):
            units[d, k] = states[chosen[k], d]
    forward(theta, sizes, units)
    for k in range(batch):
        if sigma > 0.0:
            path_at(rng, path, beta, sigma, states[chosen[k]], noise)
        action = actions[chosen[k]]
        error = units[first + action, k] + noise[action] - deltas[first, k]
        if huber:
            error = min(max(error, -1.0), 1.0)
        deltas[first:, k] = 0.0
        deltas[first + action, k] = error / batch
    backward(theta, sizes, units, deltas, gradient)
