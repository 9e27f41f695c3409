"""Linear-quadratic control over a finite horizon: optimal gains, exact costs and their gradient.

The state moves by x_{h+1} = A x_h + B u_h + w_h, h = 1..H, and the cost is the sum over the steps
of x'Qx + u'Ru; nothing is paid for x_{H+1}. With P_{H+1} = 0, backwards in h,

    K_h = -(R + B'P_{h+1}B)^{-1} B'P_{h+1}A,        u = K_h x is optimal,
    P_h = Q + A'P_{h+1}A + A'P_{h+1}B K_h,

and the optimal cost is tr(P_1 E[x_1 x_1']) + sum_{h=1}^H tr(P_{h+1} Cov(w)). Other gains cost what
the second moments of the closed loop say. Theta = [A, B]' is (n + d, n) throughout. All of it is
about public numbers: models, not people.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.sizes import check_size
from tacit.lq.spec import check_array, check_definite, check_number, check_semidefinite
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]


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

    ``P[h]`` is the cost from step h (from 0) on; ``P[H]`` is zero.

    >>> P, K = optimal_gains([[1.0]], [[1.0]], [[1.0]], [[1.0]], H=2)
    >>> P.ravel().round(12).tolist(), K.ravel().round(12).tolist()
    ([1.5, 1.0, 0.0], [-0.5, -0.0])
    """
    from tacit.lq.riccati_loops import riccati

    theta = model(A, B)
    n, d = _sizes(theta)
    state_cost, control_cost = check_semidefinite("Q", Q, n), check_definite("R", R, d)
    horizon = check_size("H", H)
    P, K = np.empty((horizon + 1, n, n)), np.empty((horizon, d, n))
    riccati(theta, state_cost, control_cost, P, K)
    return P, K


def expected_cost(
    A: ArrayLike,
    B: ArrayLike,
    gains: ArrayLike,
    control_noise: float,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
    Q: ArrayLike,
    R: ArrayLike,
) -> float:
    """What an episode costs on average, exactly.

    Args:
        A: (n, n).
        B: (n, d).
        gains: (H, d, n); u = K_h x plus noise.
        control_noise: the standard deviation of the noise of each coordinate of the control.
        start_moment: the mean of x x' of first states x, (n, n).
        noise_covariance: of w, (n, n).
        Q: (n, n).
        R: (d, d).

    Returns:
        The cost; infinite where it exceeds all numbers.

    >>> one, none, gains = [[1.0]], [[0.0]], [[[-0.5]], [[0.0]]]
    >>> expected_cost(one, one, gains, 0.0, one, none, Q=one, R=one)
    1.5
    """
    K = check_array("gains", gains, None, None, None)
    costs = expected_costs(
        K[np.newaxis], model(A, B)[np.newaxis], control_noise, start_moment, noise_covariance, Q, R
    )
    return float(costs[0, 0])


def expected_costs(
    gains: ArrayLike,
    thetas: ArrayLike,
    control_noise: float | ArrayLike,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
    Q: ArrayLike,
    R: ArrayLike,
) -> Floats:
    """:func:`expected_cost` of many gains in many models at once.

    Args:
        gains: (M, H, d, n).
        thetas: models [A, B]', (L, n + d, n).
        control_noise: a standard deviation for all gains, or one for each, (M,).
        start_moment: (n, n).
        noise_covariance: (n, n).
        Q: (n, n).
        R: (d, d).

    Returns:
        Costs, (M, L).
    """
    from tacit.lq.riccati_loops import expected_costs as fill

    K = check_array("gains", gains, None, None, None, None)
    M, _, d, n = K.shape
    models = check_array("thetas", thetas, None, n + d, n)
    if np.ndim(control_noise) == 0:
        noises = np.full(M, check_number("control_noise", control_noise, 0.0))  # type: ignore[arg-type]
    else:
        noises = check_array("control_noise", control_noise, M)
        if (noises < 0.0).any():
            raise InvalidArgument(f"control_noise must be >= 0, got {noises.min()}")
    costs = np.empty((M, len(models)))
    fill(
        K,
        models,
        noises**2,
        check_semidefinite("start_moment", start_moment, n),
        check_semidefinite("noise_covariance", noise_covariance, n),
        check_semidefinite("Q", Q, n),
        check_semidefinite("R", R, d),
        costs,
    )
    # Infinities of both signs meet where an unstable loop exceeds all numbers.
    costs[np.isnan(costs)] = math.inf
    return costs


def energy(
    A: ArrayLike,
    B: ArrayLike,
    gains: ArrayLike,
    control_noise: float,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
) -> float:
    """The mean over episodes of the sum over steps of |x|^2 + |u|^2, exactly.

    >>> energy([[1.0]], [[1.0]], [[[-1.0]], [[0.0]]], 0.0, [[1.0]], [[0.25]])
    2.25
    """
    theta = model(A, B)
    n, d = _sizes(theta)
    eyes = np.eye(n), np.eye(d)
    return expected_cost(A, B, gains, control_noise, start_moment, noise_covariance, *eyes)


def cost_gradient(
    theta: ArrayLike,
    Q: ArrayLike,
    R: ArrayLike,
    H: int,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
) -> tuple[float, Floats]:
    """The optimal cost of a model, and its gradient by the model.

    Args:
        theta: [A, B]', (n + d, n).
        Q: (n, n).
        R: (d, d).
        H: steps of an episode.
        start_moment: (n, n).
        noise_covariance: (n, n).

    Returns:
        The cost, and the gradient, (n + d, n).
    """
    from tacit.lq.riccati_loops import cost_gradient as fill

    given = check_array("theta", theta, None, None)
    n, d = _sizes(given)
    horizon = check_size("H", H)
    gradient = np.empty((n + d, n))
    cost = fill(
        given,
        check_semidefinite("start_moment", start_moment, n),
        check_semidefinite("noise_covariance", noise_covariance, n),
        check_semidefinite("Q", Q, n),
        check_definite("R", R, d),
        np.empty((horizon + 1, n, n)),
        np.empty((horizon, d, n)),
        gradient,
    )
    return float(cost), gradient


def _sizes(theta: Floats) -> tuple[int, int]:
    """How many coordinates states and controls have, n and d."""
    rows, n = theta.shape
    if rows <= n:
        raise InvalidArgument(
            f"theta must have more rows than columns, (n + d, n), got {theta.shape}"
        )
    return n, rows - n
