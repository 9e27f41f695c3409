"""Linear-quadratic control over a finite horizon: optimal gains.

The state moves by x_{h+1} = A x_h + B u_h + w_h, h = 1..H, and the cost is the sum over the steps
of x'Qx + u'Ru; nothing is paid for x_{H+1}. With P_{H+1} = 0, backwards in h,

    K_h = -(R + B'P_{h+1}B)^{-1} B'P_{h+1}A,        u = K_h x is optimal,
    P_h = Q + A'P_{h+1}A + A'P_{h+1}B K_h,

and the optimal cost is tr(P_1 E[x_1 x_1']) + sum_{h=1}^H tr(P_{h+1} Cov(w)). Other gains cost what
the second moments of the closed loop say (:func:`tacit.lq.safeguard.expected_costs`). Theta =
[A, B]' is (n + d, n) throughout. All of it is about public numbers: models, not people.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import check_size, read_only
from tacit.lq.arguments import check_array, check_definite, check_semidefinite
from tacit.privacy.statistic import Floats


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
    n, d = theta.shape[1], len(theta) - theta.shape[1]
    state_cost, control_cost = check_semidefinite("Q", Q, n), check_definite("R", R, d)
    horizon = check_size("H", H)
    P, K = np.empty((horizon + 1, n, n)), np.empty((horizon, d, n))
    riccati(read_only(theta), state_cost, control_cost, P, K)
    return P, K
