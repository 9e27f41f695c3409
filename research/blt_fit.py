"""Fits buffered linear Toeplitz factorisations: see :mod:`tacit.privacy.counters.blt`.

A counter that publishes ``n`` prefix sums factorises the matrix ``A`` of prefix sums (ones on and
below the diagonal) as ``A = B C`` and publishes ``B (C x + z) = A x + B z``. What privacy costs is
the largest column norm of ``C``; what a release suffers is the norm of its row of ``B``. The
product of the two largest norms is the error of the factorisation.

Optimum. No Toeplitz factorisation has a smaller error than the square root ``B = C`` of ``A``, with
the coefficients ``f_0 = 1``, ``f_j = f_(j-1) (2 j - 1) / (2 j)`` of ``(1 - x)^(-1/2)`` and the
error ``S_n = sum_{j < n} f_j^2``. Proof: let the polynomials ``b`` and ``c`` have the two first
columns as coefficients, so that ``b c`` begins with ``n`` ones. For every analytic ``g`` with
``|g| <= 1`` on the unit disc, the coefficient of ``x^(n-1)`` in ``b c g`` is
``g_0 + ... + g_(n-1)`` and at most the mean of ``|b c|`` on the circle, hence at most
``||b|| ||c||`` by Cauchy and Schwarz; the largest such ``g_0 + ... + g_(n-1)`` is ``S_n`` (Landau
1913). A BLT whose ``c`` is the ``(d, d)`` Pade approximant of ``(1 - x)^(-1/2)`` has the
coefficients ``f_0 .. f_2d``, so ``d`` buffers reach the optimum as long as ``n <= 2 d + 1``; longer
streams are fitted numerically.

References:
    Landau (1913), Abschaetzung der Koeffizientensumme einer Potenzreihe.
    Dvijotham, McMahan, Pillutla, Steinke, Thakurta (2024), Efficient and near-optimal noise
    generation for streaming differential privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.blt import (
    BLT,
    _gaps,
    _geometric_sums,
    _pade,
    _residues,
)
from tacit.privacy.validation import whole_number

Array = NDArray[np.float64]

TABLE_BUFFERS = 4
TABLE_RELEASES = tuple(2**k for k in range(1, 25))

_MOST_RELEASES = 2**40
_MOST_BUFFERS = 10


def fit_blt(releases: int, buffers: int = 4) -> BLT:
    """The BLT factorisation of least ``max_error``.

    >>> from tacit.privacy.counters.blt import tabulated
    >>> fit_blt(1000).max_error <= tabulated(1000).max_error
    True
    """
    n = whole_number("releases", releases, most=_MOST_RELEASES)
    d = whole_number("buffers", buffers, most=_MOST_BUFFERS)
    if n <= 2 * d + 1:
        return _pade(n, max(1, n // 2))
    # The decay times that make up a square root reach from one step to all n of them.
    spread = _from_sequence(n, np.geomspace(1.0 / n, 0.7, 2 * d))
    return min(_descend(spread), _descend(_pade(n, d)), key=_error)


def _sequence(blt: BLT) -> Array:
    """``u_1, v_1, u_2, v_2, ..``, which increases."""
    return np.array((blt.u, blt.v)).T.ravel()


def _from_sequence(n: int, x: Array) -> BLT:
    return BLT(n, tuple(x[::2]), tuple(x[1::2]))


def _error(blt: BLT) -> float:
    return blt.max_error


def _descend(blt: BLT, steps: int = 1000) -> BLT:
    """Lowers ``max_error`` by the BFGS method until a step promises less than 1e-13 of it.

    The increasing sequence ``x`` of ``u`` and ``v`` is written as
    ``log x_k = -sum_{m >= k} exp(p_m)``: every real ``p`` interlaces, and a unit of ``p`` means the
    same for slow and fast decays. Every step lowers the error or is not taken.
    """
    n = blt.releases
    p = np.log(np.diff(np.log(_sequence(blt)), append=0.0))
    value, gradient = _loss(p, n)
    inverse_hessian = np.eye(p.size)
    for _ in range(steps):
        direction = -inverse_hessian @ gradient
        slope = float(gradient @ direction)
        if slope > -1e-13:
            break
        # At most two units at once: further away the quadratic model says nothing.
        length = min(1.0, 2.0 / float(np.max(np.abs(direction))))
        new_value, new_gradient = _loss(p + length * direction, n)
        while not new_value <= value + 1e-4 * length * slope and length > 1e-9:
            length /= 2.0
            new_value, new_gradient = _loss(p + length * direction, n)
        if not new_value < value:
            break
        move, change = length * direction, new_gradient - gradient
        p, value, gradient = p + move, new_value, new_gradient
        curvature = float(move @ change)
        if curvature > 0.0:  # otherwise the update would not stay positive definite
            project = np.eye(p.size) - np.outer(move, change) / curvature
            inverse_hessian = project @ inverse_hessian @ project.T
            inverse_hessian += np.outer(move, move) / curvature
    return min(blt, _from_sequence(n, _interlace(p)), key=_error)


def _interlace(p: Array) -> Array:
    """The increasing sequence in (0, 1) that the free parameters ``p`` stand for."""
    return np.asarray(np.exp(-np.cumsum(np.exp(p)[::-1])[::-1]))


def _loss(p: Array, n: int) -> tuple[float, Array]:
    """``log ||C||^2 + log ||B||^2`` at ``p``, and its gradient."""
    # Far-off trial points may overflow or divide by zero; the line search takes finite values only.
    with np.errstate(all="ignore"):
        x = _interlace(p)
        if not x[0] * n > 1e-3:  # constant over the whole stream: a plateau without a way back
            return math.inf, np.zeros_like(p)
        u, v = x[::2], x[1::2]
        column, column_u, column_v = _squared_norm(u, v, n - 1)
        row, row_v, row_u = _squared_norm(np.concatenate(([0.0], v)), u, n)
        slopes = np.empty_like(x)
        slopes[::2] = column_u / (1.0 + column) + row_u / row
        slopes[1::2] = column_v / (1.0 + column) + row_v[1:] / row
        # d log x_k / d p_m = -exp(p_m) for k <= m.
        return float(np.log1p(column) + np.log(row)), -np.exp(p) * np.cumsum(x * slopes)


def _squared_norm(nodes: Array, zeros: Array, m: int) -> tuple[float, Array, Array]:
    """``Q = sum_ij h_i h_j G_ij`` and its gradients in the nodes and in the zeros.

    ``h`` are the residues and ``G_ij`` the sum of ``m`` powers of ``r = (1 - y_i)(1 - y_j)``, with
    ``dG/dr = (G - m r^(m-1)) / (1 - r)``. With ``q_i = 2 h_i (G h)_i``,
    ``dQ = sum_i q_i dlog h_i + sum_ij h_i h_j dG_ij``, and ``log h_i`` is a sum of logarithms of
    differences.
    """
    h = _residues(nodes, zeros)
    G = _geometric_sums(nodes, m)
    q = 2.0 * h * (G @ h)
    log_rates = np.log1p(-nodes)
    last = m * np.exp((m - 1) * np.add.outer(log_rates, log_rates))
    gaps = _gaps(nodes)
    gaps[gaps == 0.0] = 1.0  # the pair of y_0 = 0 with itself, which never moves
    through_sums = 2.0 * h * (((last - G) / gaps) @ (h * (1.0 - nodes)))
    between = np.subtract.outer(nodes, nodes)
    np.fill_diagonal(between, np.inf)
    across = 1.0 / np.subtract.outer(nodes, zeros)
    through_nodes = q * across.sum(axis=1) - (np.add.outer(q, q) / between).sum(axis=1)
    return float(h @ G @ h), through_sums + through_nodes, -(q @ across)
