"""Buffered linear Toeplitz factorisations: closed forms, optimality, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.counters.blt import BLT, _residues, tabulated
from tacit.privacy.errors import InvalidArgument

LONG = 2**17

HAND_MADE = [
    ((0.25,), (0.75,)),
    ((1e-9,), (2e-9,)),
    ((0.9,), (0.999999,)),
    ((1e-6, 0.1), (0.09, 0.5)),
    ((0.3, 0.5, 0.7), (0.300001, 0.500001, 0.700001)),
    ((1e-5, 3e-4, 7e-3, 0.16), (7e-5, 1.5e-3, 3.5e-2, 0.57)),
]


def square_root_errors(n: int) -> np.ndarray:
    """S_1 .. S_n, the errors of the Toeplitz square root."""
    j = np.arange(1, n, dtype=np.float64)
    f = np.concatenate(([1.0], np.exp(np.cumsum(np.log1p(-0.5 / j)))))
    return np.cumsum(f * f)


def powers(scales: np.ndarray, nodes: np.ndarray, n: int) -> np.ndarray:
    """``sum_i scales_i (1 - y_i)^k`` for ``k = 0 .. n - 1``."""
    k = np.arange(n, dtype=np.float64)
    total = np.zeros(n)
    for scale, node in zip(scales, nodes, strict=True):
        total += scale * np.exp(k * math.log1p(-node))
    return total


def coefficients(blt: BLT, n: int | None = None) -> np.ndarray:
    """``c_0 .. c_(n-1)``, the first column of ``C``."""
    return np.concatenate(([1.0], powers(blt.weights, np.array(blt.u), (n or blt.releases) - 1)))


def inverse_weights(blt: BLT) -> np.ndarray:
    """The ``wh_i`` of the coefficients of ``C^-1``."""
    return -_residues(np.array(blt.v), np.array(blt.u))


def inverse_coefficients(blt: BLT) -> np.ndarray:
    """The first column of ``C^-1``."""
    return np.concatenate(([1.0], powers(inverse_weights(blt), np.array(blt.v), blt.releases - 1)))


def prefix_coefficients(blt: BLT) -> np.ndarray:
    """``beta_0 .. beta_(n-1)``, the first column of ``B = A C^-1``; it decreases."""
    nodes, g = blt._prefix_mixture()
    return powers(g, nodes, blt.releases)


@pytest.fixture(scope="module")
def square_root() -> np.ndarray:
    return square_root_errors(2**20)


def interlacing(max_buffers: int = 5) -> st.SearchStrategy[tuple[tuple[float, ...], ...]]:
    """Valid (u, v), slow and fast, with ratios between neighbours of at least 1.001."""

    def build(gaps: list[float]) -> tuple[tuple[float, ...], ...]:
        x = np.exp(-np.cumsum(gaps))[::-1]
        return tuple(x[::2]), tuple(x[1::2])

    gap = st.floats(1e-3, 2.5)
    sizes = st.integers(1, max_buffers)
    return sizes.flatmap(lambda d: st.lists(gap, min_size=2 * d, max_size=2 * d)).map(build)


def brute_force(u: tuple[float, ...], v: tuple[float, ...], n: int) -> tuple[float, np.ndarray]:
    """Column norm and row norms from the coefficients, summed in extended precision."""
    blt = BLT(n, u, v)
    column = math.sqrt(math.fsum(coefficients(blt) ** 2))
    beta = prefix_coefficients(blt).astype(np.longdouble)
    return column, np.sqrt(np.cumsum(beta * beta)).astype(np.float64)


# Closed forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("u", "v"), HAND_MADE)
def test_closed_forms_equal_brute_force_on_a_long_stream(u, v):
    blt = BLT(LONG, u, v)
    column, rows = brute_force(u, v, LONG)
    assert blt.column_norm == pytest.approx(column, rel=1e-12)
    np.testing.assert_allclose(blt.row_norms(), rows, rtol=1e-12)
    assert blt.max_row_norm == pytest.approx(rows[-1], rel=1e-12)
    assert blt.max_error == pytest.approx(column * rows[-1], rel=1e-12)


@given(interlacing(), st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_closed_forms_equal_brute_force(parameters, n):
    column, rows = brute_force(*parameters, n)
    blt = BLT(n, *parameters)
    assert blt.column_norm == pytest.approx(column, rel=1e-12)
    np.testing.assert_allclose(blt.row_norms(), rows, rtol=1e-12)
    assert blt.max_row_norm == pytest.approx(rows[-1], rel=1e-12)


@pytest.mark.parametrize(("u", "v"), HAND_MADE)
def test_coefficients_are_those_of_the_product(u, v):
    # A recursion that shares nothing with partial fractions: multiply c by (1 - b x) / (1 - a x).
    blt = BLT(500, u, v)
    c, inverse = np.eye(1, 500)[0], np.eye(1, 500)[0]
    for a, b in zip(blt.a, blt.b, strict=True):
        c = divide_by_linear(c - b * np.concatenate(([0.0], c[:-1])), a)
        inverse = divide_by_linear(inverse - a * np.concatenate(([0.0], inverse[:-1])), b)
    np.testing.assert_allclose(coefficients(blt), c, rtol=0, atol=1e-12)
    np.testing.assert_allclose(inverse_coefficients(blt), inverse, rtol=0, atol=1e-12)


def divide_by_linear(series: np.ndarray, rate: float) -> np.ndarray:
    quotient, last = np.empty_like(series), 0.0
    for k, value in enumerate(series):
        last = value + rate * last
        quotient[k] = last
    return quotient


# The factorisation -------------------------------------------------------------------------------


@given(interlacing(), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_inverse_and_product(parameters, n):
    blt = BLT(n, *parameters)
    c, inverse, beta = (
        coefficients(blt),
        inverse_coefficients(blt),
        prefix_coefficients(blt),
    )
    np.testing.assert_allclose(np.convolve(c, inverse)[:n], np.eye(1, n)[0], atol=1e-12)
    np.testing.assert_allclose(np.convolve(c, beta)[:n], np.ones(n), rtol=1e-12)  # A = B C
    np.testing.assert_allclose(np.cumsum(inverse), beta, rtol=0, atol=1e-12)  # B = A C^-1


def test_buffers_stream_the_prefix_noise():
    blt = tabulated(200)
    z = np.random.default_rng(0).standard_normal(200)
    b, wh, buffers, total, noise = np.array(blt.b), inverse_weights(blt), np.zeros(4), 0.0, []
    for x in z:
        total += x + wh @ buffers
        buffers = b * buffers + x
        noise.append(total)
    np.testing.assert_allclose(noise, np.convolve(prefix_coefficients(blt), z)[:200], atol=1e-12)


# Fits --------------------------------------------------------------------------------------------


def test_the_table_is_near_the_optimum_at_every_length(square_root):
    """Also between its own lengths; no Toeplitz factorisation is better than the square root."""
    for n in (10, 11, 15, 16, 23, 33, 47, 100, 700, 1000, 6000, 11_000, 100_000, 777_777, 2**20):
        best = square_root[n - 1]
        assert best * (1 - 1e-12) <= tabulated(n).max_error <= best * 1.03, n


# Refusals ----------------------------------------------------------------------------------------


@given(interlacing(), st.data())
def test_refuses_parameters_that_do_not_interlace(parameters, data):
    u, v = (list(x) for x in parameters)
    with pytest.raises(InvalidArgument):
        BLT(10, tuple(v), tuple(u))
    i = data.draw(st.integers(0, len(u) - 1))
    bad = data.draw(
        st.one_of(
            st.floats(max_value=0.0),
            st.floats(min_value=1.0),
            st.sampled_from([math.nan, math.inf, -math.inf, 1e-17, v[i], 5e-324]),
        )
    )
    u[i] = bad
    with pytest.raises(InvalidArgument, match="must hold"):
        BLT(10, tuple(u), tuple(v))
