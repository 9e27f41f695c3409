"""BLT for long streams.

**Buffered linear Toeplitz factorisations: prefix sums with little noise and little memory.**

A counter that publishes ``n`` prefix sums factorises the matrix ``A`` of prefix sums (ones on and
below the diagonal) as ``A = B C`` and publishes ``B (C x + z) = A x + B z``. What privacy costs is
the largest column norm of ``C``; what a release suffers is the norm of its row of ``B``. The
product of the two largest norms is the error of the factorisation.

A *buffered linear Toeplitz* (BLT) factorisation takes ``C`` Toeplitz, with the generating function

    c(x) = prod_i (1 - b_i x) / (1 - a_i x),      1 > a_1 > b_1 > a_2 > b_2 > ... > a_d > b_d > 0.

Partial fractions of ``c``, of ``1 / c`` and of ``1 / ((1 - x) c)`` give

    C:     1, then c_k = sum_i w_i a_i^(k-1),  w_i = prod_j (a_i - b_j) / prod_{j != i} (a_i - a_j),
    C^-1:  1, then sum_i wh_i b_i^(k-1),      wh_i = prod_j (b_i - a_j) / prod_{j != i} (b_i - b_j),
    B:     beta_k = sum_{i=0..d} g_i b_i^k,    g_i = -wh_i / (1 - b_i),
                                               b_0 = 1, g_0 = prod_j (1 - a_j) / (1 - b_j).

So ``C^-1 z`` needs ``d`` running sums of past noise however many releases there are, and four of
them come within one percent of the best Toeplitz factorisation of 100,000 releases, which would
have to remember all of its noise.

Signs. The factors of ``w_i`` that are negative are ``a_i - b_j`` and ``a_i - a_j`` with ``j < i``,
equally many, so ``w_i > 0``; ``wh_i`` has one negative factor more, so ``wh_i < 0`` and
``g_i > 0``. Every sum below therefore has positive terms only and nothing cancels. What could
cancel is ``1 - a_i``, tiny for long streams; everything is computed from ``u = 1 - a`` and
``v = 1 - b``, where ``a_i - b_j = v_j - u_i`` and ``1 - a_i a_j = u_i + u_j - u_i u_j``.

Norms. Column ``s`` of ``C`` holds ``c_0 .. c_(n-1-s)`` and row ``t`` of ``B`` holds
``beta_0 .. beta_t``: the first column and the last row are the longest, and their squares are
geometric sums (``m`` terms of ratio ``r`` add up to ``(1 - r^m) / (1 - r)``),

    ||C||^2 = 1 + sum_ij w_i w_j sum_{k < n-1} (a_i a_j)^k,
    ||B||^2 = sum_ij g_i g_j sum_{k < n} (b_i b_j)^k.

The shipped table minimises ``||B|| ||C||`` by a descent (commit f6f6f1c7, ``research/blt_fit.py``).

References:
    Landau (1913), Abschaetzung der Koeffizientensumme einer Potenzreihe.
    Dvijotham, McMahan, Pillutla, Steinke, Thakurta (2024), Efficient and near-optimal noise
    generation for streaming differential privacy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters.base import Counter, Floats
from tacit.privacy.counters.grid import LARGEST, FixedPoint, Ints, Resolution
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import whole_number

Array = NDArray[np.float64]

TABLE_NAME = "blt_table.json"
_MOST_RELEASES = 2**40
_BUFFERS = 4
# What rounding adds to the sensitivity, at most.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class BLT:
    """A factorisation ``A = B C`` of the prefix sums of ``releases`` items.

    Attributes:
        u: ``1 - a_i``, the distances of the poles of ``c`` from one.
        v: ``1 - b_i``, the distances of its zeros; ``0 < u_1 < v_1 < u_2 < v_2 < ... < 1``, also in
            floating point: ``1 - u`` and ``1 - v`` must interlace as well.

    >>> round(BLT(releases=3, u=(0.25,), v=(0.75,)).max_error, 6)
    1.390625
    """

    releases: int
    u: tuple[float, ...]
    v: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", whole_number("releases", self.releases))
        # Rounded as 1 - u and 1 - v are, so that the claim is about the very numbers that a counter
        # multiplies by, also after 2^40 steps.
        object.__setattr__(self, "u", tuple(1.0 - (1.0 - float(x)) for x in self.u))
        object.__setattr__(self, "v", tuple(1.0 - (1.0 - float(x)) for x in self.v))
        if len(self.u) != len(self.v) or not self.u:
            raise InvalidArgument(
                f"u and v must have the same positive length, got {len(self.u)} and {len(self.v)}"
            )
        # Checked on a and b, the numbers a counter multiplies by: there 1 - u may round to 1.
        chain = [1.0, *(x for pair in zip(self.a, self.b, strict=True) for x in pair), 0.0]
        if not all(left > right for left, right in pairwise(chain)):
            raise InvalidArgument(
                "0 < u_1 < v_1 < u_2 < v_2 < ... < 1 must hold and survive rounding in 1 - u and "
                f"1 - v, got u = {self.u} and v = {self.v}"
            )

    @property
    def buffers(self) -> int:
        """The number ``d`` of running sums that a counter keeps."""
        return len(self.u)

    @property
    def a(self) -> tuple[float, ...]:
        """The decay rates of ``C``."""
        return tuple(1.0 - x for x in self.u)

    @property
    def b(self) -> tuple[float, ...]:
        """The decay rates of ``C^-1``, by which a counter shrinks its buffers at every step."""
        return tuple(1.0 - x for x in self.v)

    @property
    def weights(self) -> Array:
        """The positive ``w_i`` of ``c_k = sum_i w_i a_i^(k-1)``, ``k >= 1``."""
        return _residues(np.array(self.u), np.array(self.v))

    @property
    def column_norm(self) -> float:
        """The norm of the first column of ``C``, which is the largest of all columns."""
        w = self.weights
        return math.sqrt(1.0 + float(w @ _geometric_sums(np.array(self.u), self.releases - 1) @ w))

    @property
    def max_row_norm(self) -> float:
        """The norm of the last row of ``B``, which is the largest of all rows."""
        nodes, g = self._prefix_mixture()
        return math.sqrt(float(g @ _geometric_sums(nodes, self.releases) @ g))

    @property
    def max_error(self) -> float:
        """``column_norm * max_row_norm``: the largest standard deviation of any release.

        In units of what one private sum would need for the same guarantee.
        """
        return self.column_norm * self.max_row_norm

    def row_norms(self, n: int | None = None) -> Array:
        """Norms of the first ``n`` rows of ``B`` (all of them by default).

        Row ``t`` has the norm ``sqrt(beta_0^2 + ... + beta_(t-1)^2)``, ``t = 1 .. n``. The closed
        form is used for every ``t``: a running sum would lose a digit or two on long streams.
        """
        last = self.releases if n is None else n
        return self.row_norms_at(np.arange(1, last + 1, dtype=np.float64))

    def row_norms_at(self, t: Array) -> Array:
        """Norms of the rows with these numbers; the first is 1."""
        nodes, g = self._prefix_mixture()
        squares = g[0] ** 2 * t
        for i in range(1, nodes.size):
            for j in range(i + 1):
                log_ratio = math.log1p(-nodes[i]) + math.log1p(-nodes[j])
                gap = nodes[i] + nodes[j] - nodes[i] * nodes[j]
                twice = 1.0 if i == j else 2.0
                squares -= twice * g[i] * g[j] / gap * np.expm1(log_ratio * t)
        return np.asarray(np.sqrt(squares))

    def _prefix_mixture(self) -> tuple[Array, Array]:
        """``1 - b_i`` and ``g_i`` for ``i = 0 .. d``; the ``g_i`` are positive and sum to one."""
        nodes = np.array((0.0, *self.v))
        return nodes, _residues(nodes, np.array(self.u))


@lru_cache(maxsize=256)
def tabulated(releases: int) -> BLT:
    """The shipped factorisation of four buffers that is best for so many releases.

    The table has lengths 16, 32, .., 2^24; in between the better one of two neighbours is taken,
    with an error within 1 % of a fit's. Up to nine releases a Pade approximant is optimal.

    >>> round(tabulated(2**17).max_error, 3)
    4.848
    """
    n = whole_number("releases", releases, most=_MOST_RELEASES)
    if n <= 2 * _BUFFERS + 1:
        return _pade(n, max(1, n // 2))
    lengths = sorted(_table())
    near = [m for m in lengths if m <= n][-1:] + [m for m in lengths if m >= n][:1]
    return min((BLT(n, *_table()[m]) for m in near), key=lambda blt: blt.max_error)


@cache
def _table() -> dict[int, tuple[tuple[float, ...], tuple[float, ...]]]:
    """The shipped parameters by releases."""
    text = files("tacit.privacy.counters").joinpath(TABLE_NAME).read_text(encoding="utf-8")
    return {entry["releases"]: (entry["u"], entry["v"]) for entry in json.loads(text)}


def _pade(n: int, d: int) -> BLT:
    """The BLT whose ``c`` agrees with ``(1 - x)^(-1/2)`` up to ``x^(2 d)``.

    Its poles and zeros are ``cos^2(j pi / (4 d + 2))`` for odd and for even ``j = 1 .. 2 d``.
    """
    x = np.sin(np.arange(1, 2 * d + 1) * (math.pi / (4 * d + 2))) ** 2
    return BLT(n, tuple(x[::2]), tuple(x[1::2]))


def _residues(nodes: Array, zeros: Array) -> Array:
    """``prod_j |y_i - z_j| / prod_{j != i} |y_i - y_j|`` for nodes ``y`` and zeros ``z``."""
    between = np.abs(np.subtract.outer(nodes, nodes))
    np.fill_diagonal(between, 1.0)
    across = np.abs(np.subtract.outer(nodes, zeros))
    return np.asarray(across.prod(axis=1) / between.prod(axis=1))


def _gaps(nodes: Array) -> Array:
    """``1 - (1 - y_i)(1 - y_j)`` without cancellation."""
    return np.asarray(np.add.outer(nodes, nodes) - np.multiply.outer(nodes, nodes))


def _geometric_sums(nodes: Array, m: int) -> Array:
    """``sum_{k < m} ((1 - y_i)(1 - y_j))^k`` for all pairs of nodes; ``m`` where both are zero."""
    log_rates = np.log1p(-nodes)
    gaps = _gaps(nodes)
    sums = -np.expm1(m * np.add.outer(log_rates, log_rates))
    return np.asarray(np.divide(sums, gaps, out=np.full_like(gaps, m), where=gaps > 0.0))


class BufferedToeplitz(Counter):
    """BLT: a Toeplitz factorisation whose noise streams through a handful of buffers.

    C's coefficients are 1 and sums of ``buffers`` geometric series, and so are those of its
    inverse; the noise of the running sum is the running sum of C^-1 z, which needs one buffer per
    series. With four buffers the worst-case error is within 1 % of the square root's up to 2^17
    releases, at constant memory and time per release. See :mod:`tacit.privacy.counters.blt`.

    C's numbers are rounded to 2^-32 and w = C x + z is computed in whole numbers
    (:mod:`tacit.privacy.counters.grid`). What is published is the running sum of C^-1 w, by
    the recursion x_t = w_t - sum_i w_i s_i, s_i = a_i s_i + x_t, in floating point. Rounding C x
    moves that by less than 1e-4 times the noise.

    >>> counter = BufferedToeplitz(releases=2**17, mu=1.0)
    >>> counter.memory, bool(counter.std.max() < 4.86)
    (11, True)
    """

    kind = "blt"
    kept = ("buffers", "back", "published")

    def __init__(
        self,
        sensitivity: float = 1.0,
        releases: int | None = None,
        shape: tuple[int, ...] = (),
        *,
        parameters: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
        numerators: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> None:
        n = self._check_releases(releases) or 1
        self.fit = _dyadic(tabulated(n) if parameters is None else BLT(n, *parameters))
        self._fixed = FixedPoint.of(self.fit.a, tuple(self.fit.weights))
        if numerators is not None:
            self._fixed = FixedPoint(*(tuple(map(int, row)) for row in numerators))
        super().__init__(sensitivity, releases, shape, **options)

    @property
    def column_norm(self) -> float:
        """Closed form of the first column's norm, with what rounding adds."""
        return self._fixed.column_norm(self.fit.releases) + _ROUNDING

    def row_norms(self, upto: int) -> Floats:
        """Roots of the cumulative squares of the coefficients of A C^-1."""
        return self.fit.row_norms(upto)

    def _row_norm(self, release: int) -> float:
        return float(self.fit.row_norms_at(np.array([float(release)]))[0])  # in constant time

    @property
    def memory(self) -> int:
        """The running sum, what was published, one more, and buffers of C and of its inverse."""
        return 3 + 2 * self.fit.buffers

    @property
    def largest_sum(self) -> float:
        """Largest sum of item sizes, by the places of the buffers."""
        return LARGEST >> self._resolution.buffers

    def _start(self) -> None:
        self._buffers: Ints = np.zeros((self.fit.buffers, self.size), np.int64)
        if not self._fixed.valid:
            raise InvalidArgument("numerators must be whole numbers between 0 and 2^32")
        self._decay = np.array(self._fixed.decays)[:, np.newaxis] / 2.0**32
        self._weights = np.array(self._fixed.weights) / 2.0**32
        self._back = np.zeros((self.fit.buffers, self.size))
        self._published = np.zeros(self.size)
        least = self.fit.releases * self._grid.apart / 2.0
        if self.largest_sum < least:
            raise InvalidArgument(
                f"exact sums of {self.fit.releases:,} releases need {least:.3g} steps, but must "
                f"stay below {self.largest_sum:.3g}: declare fewer releases"
            )

    @property
    def _resolution(self) -> Resolution:
        added = _ROUNDING * self._grid.apart / math.sqrt(self.size)
        return self._fixed.resolution(self.fit.releases, added)

    def _places(self) -> int:
        return self._resolution.noise

    def _released(self, steps: Ints, fresh: Ints) -> Floats:
        unit = self._resolution
        w = self._fixed.step(self._buffers, steps, unit) + fresh
        return self._inverted(np.ldexp(w.astype(np.float64), -unit.noise))

    def _inverted(self, seen: Floats) -> Floats:
        """The next entry of A C^-1 w."""
        item = seen - self._weights @ self._back
        self._back *= self._decay
        self._back += item
        self._published += item
        return self._published.copy()

    def _options(self) -> dict[str, Any]:
        # The parameters themselves, so that a saved counter does not depend on a later fit.
        return {
            "parameters": [list(self.fit.u), list(self.fit.v)],
            "numerators": [list(self._fixed.decays), list(self._fixed.weights)],
        }


def _dyadic(fit: BLT) -> BLT:
    """The fit with all decay rates rounded to 2^-32, as the fixed point has them."""
    u, v = (tuple(round(x * 2.0**32) / 2.0**32 for x in row) for row in (fit.u, fit.v))
    try:
        return BLT(fit.releases, u, v)
    except InvalidArgument:
        raise InvalidArgument(
            f"{fit.releases:,} releases are too many for exact noise: declare fewer"
        ) from None
