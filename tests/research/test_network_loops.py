"""Small networks: forward, backward, optimisers and noise paths."""

import math
from itertools import pairwise

import numpy as np
import pytest

from research import network_loops as network
from research.wang_public_code import new_path
from tacit.papers.wang_functional_2019 import Network

SIZES = (2, 5, 4, 3)


def first_network(rng, sizes):
    return Network(sizes, rng).theta


def outputs(theta, sizes, inputs):
    """By the book: rows are examples."""
    start = 0
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        matrix = theta[start : start + fan_in * fan_out].reshape(fan_out, fan_in)
        start += fan_in * fan_out
        inputs = inputs @ matrix.T + theta[start : start + fan_out]
        start += fan_out
        if layer < len(sizes) - 2:
            inputs = np.maximum(inputs, 0.0)
    return inputs


def finite_differences(function, theta, step=1e-6):
    gradient = np.empty_like(theta)
    for i in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (function(up) - function(down)) / (2.0 * step)
    return gradient


def compute(theta, inputs):
    units = np.zeros((sum(SIZES), len(inputs)))
    units[: SIZES[0]] = inputs.T
    network.forward(theta, np.array(SIZES), units)
    return units


class TestNetwork:
    def test_forward(self):
        rng = np.random.default_rng(0)
        theta, inputs = first_network(rng, SIZES), rng.normal(size=(7, 2))
        units = compute(theta, inputs)
        np.testing.assert_allclose(units[-3:].T, outputs(theta, SIZES, inputs), atol=1e-12)

    def test_backward_is_the_gradient(self):
        rng = np.random.default_rng(1)
        theta, inputs = first_network(rng, SIZES), rng.normal(size=(7, 2))
        aims = rng.normal(size=(7, 3))
        units, gradient = compute(theta, inputs), np.empty_like(theta)
        deltas = np.zeros_like(units)
        deltas[-3:] = units[-3:] - aims.T
        network.backward(theta, np.array(SIZES), units, deltas, gradient)
        expected = finite_differences(
            lambda t: 0.5 * ((outputs(t, SIZES, inputs) - aims) ** 2).sum(), theta
        )
        np.testing.assert_allclose(gradient, expected, atol=1e-7)

    def test_optimisers(self):
        rng = np.random.default_rng(2)
        theta, gradient, squares = rng.normal(size=(3, 6))
        squares = squares**2
        after, kept = theta.copy(), squares.copy()
        network.rmsprop(after, gradient, kept, 0.01, 0.99, 1e-8)
        mean = 0.99 * squares + 0.01 * gradient**2
        np.testing.assert_allclose(kept, mean)
        np.testing.assert_allclose(after, theta - 0.01 * gradient / (np.sqrt(mean) + 1e-8))
        after = theta.copy()
        network.sgd(after, gradient, 0.5)
        np.testing.assert_allclose(after, theta - 0.5 * gradient)

    def test_batches_are_drawn_without_replacement(self):
        rng = np.random.default_rng(3)
        chosen, taken, counts = np.zeros(4, np.int64), np.zeros(10, bool), np.zeros(10)
        for _ in range(5000):
            network.draw_batch(rng, 10, chosen, taken)
            assert len(set(chosen.tolist())) == 4
            assert not taken.any()
            counts[chosen] += 1
        # Each of ten counts is within 6 standard deviations: fails with probability below 1e-7.
        assert np.abs(counts - 2000).max() < 6 * math.sqrt(5000 * 0.4 * 0.6)


class TestLoss:
    """q_gradient against finite differences of the loss that the paper writes down."""

    @pytest.mark.parametrize("huber", [True, False])
    def test_gradient(self, huber):
        rng = np.random.default_rng(4)
        theta, target = first_network(rng, SIZES), 20.0 * first_network(rng, SIZES)
        n = 12
        replay = (
            rng.normal(size=(n, 2)),
            rng.integers(3, size=n),
            rng.normal(size=n),
            rng.normal(size=(n, 2)),
            np.arange(n) % 4 == 0,
        )
        chosen = np.array([0, 3, 5, 8, 11])
        path = new_path(2, 3)
        units = sum(SIZES)
        work = (np.zeros((units, 5)), np.zeros((units, 5)), np.zeros(3))
        gradient = np.empty_like(theta)
        network.q_gradient(
            rng,
            *(theta, target, np.array(SIZES), replay, chosen, 0.9, (1.0, 0.0), path, path),
            *(huber, work, gradient),
        )
        states, actions, rewards, next_states, ended = (array[chosen] for array in replay)
        later = np.where(ended, 0.0, outputs(target, SIZES, next_states).max(axis=1))

        def loss(t):
            error = outputs(t, SIZES, states)[np.arange(5), actions] - rewards - 0.9 * later
            size = np.abs(error)
            each = np.where(size < 1.0, 0.5 * size**2, size - 0.5) if huber else 0.5 * size**2
            return each.mean()

        np.testing.assert_allclose(gradient, finite_differences(loss, theta), atol=1e-4)

    def test_noise_is_in_targets_and_losses(self):
        """With known paths, gradients are those of Q + g: the bracket is around both."""
        rng = np.random.default_rng(5)
        theta = first_network(rng, (1, 4, 2))
        replay = (
            *(np.array([[0.3]]), np.array([1]), np.array([0.2]), np.array([[0.6]])),
            np.array([False]),
        )

        def known(value):
            path = new_path(1, 2)
            path[0][0, 0], path[2][0, 0], path[3][0] = *value, 1
            return path

        work = (np.zeros((7, 1)), np.zeros((7, 1)), np.zeros(2))
        gradient, expected = np.empty_like(theta), np.empty_like(theta)
        paths = known((0.3, (5.0, 0.7))), known((0.6, (-4.0, 3.0)))
        chosen, sizes = np.array([0]), np.array((1, 4, 2))
        network.q_gradient(
            *(rng, theta, theta, sizes, replay, chosen, 0.9, (1.0, 0.1), *paths),
            *(False, work, gradient),
        )
        here, there = outputs(theta, (1, 4, 2), np.array([[0.3], [0.6]]))
        error = here[1] + 0.7 - 0.2 - 0.9 * max(there[0] - 4.0, there[1] + 3.0)
        units, deltas = np.zeros((7, 1)), np.zeros((7, 1))
        units[0] = 0.3
        network.forward(theta, sizes, units)
        deltas[-1] = error
        network.backward(theta, sizes, units, deltas, expected)
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


class TestPaths:
    def test_covariance(self):
        """Points in any order have the covariance of the kernel, in one and two dimensions."""
        rng = np.random.default_rng(6)
        points = rng.random((7, 2))
        points[3, 0] = points[1, 0]
        runs, beta, sigma, noise = 4000, 2.0, 0.5, np.zeros(2)
        for dimension in (1, 2):
            values = np.empty((runs, len(points), 2))
            path = new_path(dimension, 2)
            for run in range(runs):
                path[3][:] = 0
                for i, point in enumerate(points):
                    network.path_at(rng, path, beta, sigma, point[:dimension], noise)
                    values[run, i] = noise
            distances = np.abs(points[:, np.newaxis] - points)[..., :dimension]
            kernel = sigma**2 * np.exp(-beta * distances).mean(axis=-1)
            for action in range(2):
                found = values[..., action].T @ values[..., action] / runs
                # An entry's standard deviation is at most sigma^2 sqrt(2 / runs).
                assert np.abs(found - kernel).max() < 6 * sigma**2 * math.sqrt(2 / runs)
            cross = values[..., 0].T @ values[..., 1] / runs
            assert np.abs(cross).max() < 6 * sigma**2 / math.sqrt(runs)

    def test_a_point_keeps_its_value(self):
        rng, noise = np.random.default_rng(7), np.zeros(3)
        path, seen = new_path(1, 3), {}
        for x in [0.2, 0.9, 0.2, 0.5, 0.0, 1.0, 0.9, 0.5, 0.0]:
            network.path_at(rng, path, 1.0, 1.0, np.array([x]), noise)
            np.testing.assert_array_equal(seen.setdefault(x, noise.copy()), noise)
        assert path[0][0, : path[3][0]].tolist() == [0.0, 0.2, 0.5, 0.9, 1.0]
