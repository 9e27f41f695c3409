"""Linear-quadratic control over a finite horizon: optimal gains, and what gains cost.

The state moves by x_{h+1} = A x_h + B u_h + w_h, h = 1..H, and the cost is the sum over the steps
of x'Qx + u'Ru; nothing is paid for x_{H+1}. With P_{H+1} = 0, backwards in h,

    K_h = -(R + B'P_{h+1}B)^{-1} B'P_{h+1}A,        u = K_h x is optimal,
    P_h = Q + A'P_{h+1}A + A'P_{h+1}B K_h,

and the optimal cost is tr(P_1 E[x_1 x_1']) + sum_{h=1}^H tr(P_{h+1} Cov(w)). Theta = [A, B]' is
(n + d, n) throughout. All of it is about public numbers: models, not people.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tacit.lq.spec import LQSpec, check_array, check_semidefinite
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import read_only, whole_number


def model(A: ArrayLike, B: ArrayLike) -> Floats:
    """Theta = [A, B]', (n + d, n).

    >>> model([[0.5]], [[1.0, 2.0]]).tolist()
    [[0.5], [1.0], [2.0]]
    """
    a = check_array("A", A, None, None)
    n = len(a)
    a = check_array("A", a, n, n)
    # Row by row: loops are compiled for each order in memory.
    return np.ascontiguousarray(np.concatenate([a.T, check_array("B", B, n, None).T]))


def optimal_gains(
    A: ArrayLike, B: ArrayLike, Q: ArrayLike, R: ArrayLike, H: int
) -> tuple[Floats, Floats]:
    """Cost matrices P, (H + 1, n, n), and optimal gains K, (H, d, n), of Riccati's recursion.

    Args:
        A: (n, n).
        B: (n, d).
        Q: Cost of states.
        R: Cost of controls.
        H: Steps; ``P[h]`` is the cost from step h (from 0) on, and ``P[H]`` is zero.

    >>> P, K = optimal_gains([[1.0]], [[1.0]], [[1.0]], [[1.0]], H=2)
    >>> P.ravel().round(12).tolist(), K.ravel().round(12).tolist()
    ([1.5, 1.0, 0.0], [-0.5, -0.0])
    """
    from tacit.lq.control_loops import riccati

    theta = model(A, B)
    n, d = theta.shape[1], len(theta) - theta.shape[1]
    costs = check_semidefinite("Q", Q, n), check_semidefinite("R", R, d, definite=True)
    horizon = whole_number("H", H)
    P, K = np.empty((horizon + 1, n, n)), np.empty((horizon, d, n))
    riccati(read_only(theta), *costs, P, K)
    return P, K


def cautious_gains(spec: LQSpec, theta: Floats, covariance: Floats) -> Floats:
    """The gains of least average cost where the model is drawn anew at every step.

    Its columns are independent around those of theta, all with the same covariance C, so that
    the mean of [A, B]' P [A, B] is theta P theta' + tr(P) C; with C = 0 they are Riccati's.
    """
    n, Q, R = theta.shape[1], spec.state_cost, spec.control_cost
    gains = np.empty((spec.horizon, len(theta) - n, n))
    P = np.zeros((n, n))
    transposed = np.ascontiguousarray(theta.T)
    for h in range(spec.horizon - 1, -1, -1):
        M = theta @ P @ transposed + np.trace(P) * covariance
        gains[h] = -np.linalg.solve(R + M[n:, n:], M[n:, :n])
        P = Q + M[:n, :n] + np.ascontiguousarray(M[:n, n:]) @ gains[h]
        P = 0.5 * (P + P.T)
    return gains


def bounded_gains(gains: Floats, bound: float) -> Floats:
    """Gains whose spectral norm is at most a bound, step by step; zero where they are no numbers.

    >>> bounded_gains(np.array([[[3.0, 4.0]]]), bound=1.0).round(12).tolist()
    [[[0.6, 0.8]]]
    """
    finite = np.where(np.isfinite(gains).all(axis=(1, 2), keepdims=True), gains, 0.0)
    norms = np.linalg.norm(finite, 2, axis=(1, 2))[:, np.newaxis, np.newaxis]
    bounded: Floats = finite * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    return bounded


def expected_costs(
    spec: LQSpec, gains: Floats, models: Floats, control_noise: float | Floats
) -> Floats:
    """Mean costs of episodes, (M, L).

    Args:
        spec: Costs, first states and noise.
        gains: Finite, (M, H, d, n).
        models: (L, n + d, n).
        control_noise: One standard deviation for all gains, or one for each.
    """
    from tacit.lq.control_loops import expected_costs as fill

    costs = np.empty((len(gains), len(models)))
    variances = np.square(np.broadcast_to(control_noise, len(gains)))
    known = spec.start_moment, spec.noise_covariance, spec.state_cost, spec.control_cost
    fill(read_only(gains), read_only(models), variances, *known, costs)
    # Infinities of both signs meet where an unstable loop exceeds all numbers.
    costs[np.isnan(costs)] = math.inf
    return costs


def optimal_cost(spec: LQSpec, model: Floats) -> float:
    """Mean cost of an episode with the best gains of a model."""
    from tacit.lq.control_loops import riccati

    H, n, d = spec.horizon, spec.states, spec.controls
    P = np.empty((H + 1, n, n))
    riccati(read_only(model), spec.state_cost, spec.control_cost, P, np.empty((H, d, n)))
    parts = spec.start_moment[np.newaxis] * P[:1], spec.noise_covariance * P[1:H]
    # One after the other, as compiled loops add them.
    return float(np.cumsum(np.concatenate(parts))[-1])
