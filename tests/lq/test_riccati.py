import math

import numpy as np
import pytest
from scipy.linalg import block_diag, solve_discrete_are

from tacit.lq import riccati
from tests.lq.models import cost_gradient, cost_in, costs_in

SIZES = [(1, 1, 1), (2, 1, 5), (3, 2, 4), (2, 3, 5)]


def positive(rng, size, least=0.0):
    """A random positive semidefinite matrix; of rank one only, if nothing is added."""
    root = rng.normal(size=(size, 1 if least == 0.0 else size))
    return root @ root.T + least * np.eye(size)


def system(sizes, seed=0):
    n, d, H = sizes
    rng = np.random.default_rng(seed)
    return {
        "A": rng.normal(size=(n, n)) * 0.8 / math.sqrt(n),
        "B": rng.normal(size=(n, d)) * 0.6,
        "Q": positive(rng, n),
        "R": positive(rng, d, 0.2),
        "H": H,
        "start": positive(rng, n, 0.1),
        "noise": positive(rng, n, 0.05),
        "gains": rng.normal(size=(H, d, n)) * 0.3,
    }


def whole_horizon(s, x):
    """The least cost of a deterministic system, over all controls at once, by least squares."""
    A, B, H = s["A"], s["B"], s["H"]
    n, d = B.shape
    # The states of all steps are F x + G u.
    F = np.concatenate([np.linalg.matrix_power(A, h) for h in range(H)])
    G = np.zeros((H * n, H * d))
    for h in range(H):
        for k in range(h):
            block = np.linalg.matrix_power(A, h - 1 - k) @ B
            G[h * n : (h + 1) * n, k * d : (k + 1) * d] = block
    Q, R = block_diag(*[s["Q"]] * H), block_diag(*[s["R"]] * H)
    u = -np.linalg.solve(R + G.T @ Q @ G, G.T @ Q @ F @ x)
    states = F @ x + G @ u
    return states @ Q @ states + u @ R @ u, u.reshape(H, d)


@pytest.mark.parametrize("sizes", SIZES)
def test_deterministic_optimum_is_that_of_least_squares_over_the_whole_horizon(sizes):
    s = system(sizes)
    x = np.random.default_rng(1).normal(size=sizes[0])
    cost, controls = whole_horizon(s, x)
    P, K = riccati.optimal_gains(s["A"], s["B"], s["Q"], s["R"], s["H"])
    assert x @ P[0] @ x == pytest.approx(cost, rel=1e-10)
    state = x
    for h in range(s["H"]):
        np.testing.assert_allclose(K[h] @ state, controls[h], atol=1e-10)
        state = s["A"] @ state + s["B"] @ controls[h]


def test_long_horizons_reach_the_algebraic_equation():
    s = system((3, 2, 1), seed=5)
    Q = s["Q"] + np.eye(3)
    P, K = riccati.optimal_gains(s["A"], s["B"], Q, s["R"], 400)
    stationary = solve_discrete_are(s["A"], s["B"], Q, s["R"])
    np.testing.assert_allclose(P[0], stationary, rtol=1e-10)
    gain = -np.linalg.solve(s["R"] + s["B"].T @ stationary @ s["B"], s["B"].T @ stationary @ s["A"])
    np.testing.assert_allclose(K[0], gain, rtol=1e-9)


def costs_of(s, gains, noise):
    return cost_in(s["A"], s["B"], gains, noise, s["start"], s["noise"], s["Q"], s["R"])


@pytest.mark.parametrize("sizes", SIZES)
def test_cost_of_the_optimal_gains_is_what_the_recursion_says(sizes):
    s = system(sizes, seed=7)
    P, K = riccati.optimal_gains(s["A"], s["B"], s["Q"], s["R"], s["H"])
    # P_{h+1} belongs to the noise of step h: the noise of the last step costs nothing.
    optimum = np.trace(P[0] @ s["start"]) + sum(np.trace(s["noise"] @ p) for p in P[1:])
    assert costs_of(s, K, 0.0) == pytest.approx(optimum, rel=1e-11)
    rng = np.random.default_rng(8)
    for _ in range(20):
        other = K + 0.1 * rng.normal(size=K.shape)
        assert costs_of(s, other, 0.0) >= optimum
    assert costs_of(s, K, 0.3) > optimum


@pytest.mark.parametrize("sizes", SIZES)
def test_expected_cost_and_energy_equal_a_recursion_in_plain_numpy(sizes):
    s = system(sizes, seed=9)
    n, d, H = sizes
    S, cost, energy, noise = s["start"], 0.0, 0.0, 0.35
    for h in range(H):
        K = s["gains"][h]
        U = K @ S @ K.T + noise**2 * np.eye(d)
        cost += np.trace(s["Q"] @ S) + np.trace(s["R"] @ U)
        energy += np.trace(S) + np.trace(U)
        L = s["A"] + s["B"] @ K
        S = L @ S @ L.T + s["noise"] + noise**2 * s["B"] @ s["B"].T
    assert costs_of(s, s["gains"], noise) == pytest.approx(cost, rel=1e-12)
    # Where all cost the same, the cost is the energy.
    found = costs_of(s | {"Q": np.eye(n), "R": np.eye(d)}, s["gains"], noise)
    assert found == pytest.approx(energy, rel=1e-12)


def test_many_costs_at_once_are_the_single_ones():
    s = system((3, 2, 5), seed=13)
    rng = np.random.default_rng(14)
    gains = 0.3 * rng.normal(size=(4, 5, 2, 3))
    thetas = 0.4 * rng.normal(size=(6, 5, 3))
    noises = np.array([0.0, 0.1, 0.2, 0.5])
    rest = s["start"], s["noise"], s["Q"], s["R"]
    many = costs_in(gains, thetas, noises, *rest)
    assert many.shape == (4, 6)
    for m, j in np.ndindex(4, 6):
        A, B = thetas[j, :3].T, thetas[j, 3:].T
        assert many[m, j] == cost_in(A, B, gains[m], noises[m], *rest)
    np.testing.assert_array_equal(costs_in(gains, thetas, 0.5, *rest)[3], many[3])


def test_costs_beyond_all_numbers_are_infinite():
    one = [[1.0]]
    huge = cost_in([[1e200]], one, np.zeros((9, 1, 1)), 0.0, one, one, one, one)
    assert huge == math.inf


@pytest.mark.parametrize("sizes", SIZES)
def test_gradient_equals_finite_differences(sizes):
    s = system(sizes, seed=15)
    theta = riccati.model(s["A"], s["B"])
    rest = s["Q"], s["R"], s["H"], s["start"], s["noise"]
    cost, gradient = cost_gradient(theta, *rest)
    _, K = riccati.optimal_gains(s["A"], s["B"], s["Q"], s["R"], s["H"])
    assert cost == pytest.approx(costs_of(s, K, 0.0), rel=1e-12)
    rng = np.random.default_rng(16)
    for _ in range(5):
        way = rng.normal(size=theta.shape)
        way /= np.linalg.norm(way)

        def along(t, way=way):
            return cost_gradient(theta + t * way, *rest)[0]

        # Richardson's extrapolation of central differences.
        wide, narrow = ((along(t) - along(-t)) / (2 * t) for t in (2e-3, 1e-3))
        numerical = (4.0 * narrow - wide) / 3.0
        assert abs((gradient * way).sum() - numerical) <= 1e-7 * max(1.0, cost)
