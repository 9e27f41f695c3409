"""Functional noise: kernels, paths, clips, and the exact cost of publishing a whole function.

Mistakes that would void the guarantee, and where they are caught:

* one path under two releases: ``test_two_releases_need_two_paths``;
* no clip: ``test_without_the_clip_the_claim_fails`` (and every test of a sensitivity);
* two users' functions under one path: ``test_users_need_paths_of_their_own``.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tacit.privacy.functions.functional import (
    OU,
    RBF,
    BandLimited,
    FunctionMechanism,
    GPPath,
    Kernel,
    Matern32,
    Matern52,
    OUPath,
    ProductOU,
    bridge,
    clip_function,
    function_norm,
    longest_function,
    through,
)

from research.function_sums import (
    FeatureKernel,
    FourierFeatures,
    FunctionSum,
    RegularGrid,
    SharedGrid,
)
from research.saved_paths import gp_path_of, ou_path_of, path_arrays
from tacit import JointDP, Relation, check_statistic
from tacit.audit.mechanisms import ExactAudit, audit_linear, audit_samples
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.statistic import Block, Statistic, StreamedBlock

REPLACE, ZERO = Relation.REPLACE_ONE, Relation.ZERO_OUT


def cubic(x: np.ndarray) -> np.ndarray:
    """A user's own feature map; it overflows at huge points."""
    return np.concatenate([np.ones((len(x), 1)), x, x**3], axis=1)


KERNELS: dict[str, Kernel] = {
    "ou": OU(3.0),
    "product ou": ProductOU((2.0, 5.0)),
    "rbf": RBF(0.4, 2),
    "matern32": Matern32(0.5),
    "matern52": Matern52(0.6, 3),
    "band-limited": BandLimited((7.0, 4.0)),
    "grid features": FeatureKernel(RegularGrid((0.0, 0.0), (1.0, 1.0), (4, 3)), 2),
    "fourier features": FeatureKernel(FourierFeatures((0.0,), (1.0,), 5)),
    "own features": FeatureKernel(cubic, 2, bound=1.5),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def some_points(kernel: Kernel, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, kernel.dimension))


# Kernels.


@every_kernel
def test_kernels_are_symmetric_positive_and_bounded(kernel: Kernel) -> None:
    x = some_points(kernel, 40)
    gram = kernel(x, x)
    assert np.array_equal(gram, gram.T) or np.abs(gram - gram.T).max() < 1e-15
    assert np.linalg.eigvalsh(gram)[0] > -1e-12
    assert np.diag(gram) == pytest.approx(kernel.diagonal(x), abs=1e-14)
    assert kernel.diagonal(x).max() <= kernel.bound**2 * (1.0 + 1e-12)
    assert kernel(x[:3], x[5:9]) == pytest.approx(gram[:3, 5:9], abs=1e-15)


def test_kernels_are_what_they_are_called() -> None:
    x, y = np.array([[0.1, 0.7, -0.4]]), np.array([[0.5, 0.2, 0.3]])
    d, r = np.abs(x - y)[0], float(np.linalg.norm(x - y))
    a, b = math.sqrt(3.0) * r / 0.7, math.sqrt(5.0) * r / 0.7
    expected = {
        OU(2.0): math.exp(-2.0 * d[0]),
        ProductOU((1.0, 2.0, 3.0)): math.exp(-d[0] - 2.0 * d[1] - 3.0 * d[2]),
        RBF(0.7, 3): math.exp(-((r / 0.7) ** 2) / 2.0),
        Matern32(0.7, 3): (1.0 + a) * math.exp(-a),
        Matern52(0.7, 3): (1.0 + b + b * b / 3.0) * math.exp(-b),
        BandLimited((4.0, 1.0, 2.0)): float(
            np.prod(np.sin(d * [4.0, 1.0, 2.0]) / (d * [4.0, 1.0, 2.0]))
        ),
    }
    for kernel, value in expected.items():
        assert kernel(x[:, : kernel.dimension], y[:, : kernel.dimension])[0, 0] == pytest.approx(
            value, rel=1e-13
        )


@every_kernel
def test_points_that_are_not_finite_are_the_zero_function(kernel: Kernel) -> None:
    x = some_points(kernel, 6)
    x[1, 0], x[2, 0], x[3, 0] = np.nan, np.inf, -np.inf
    x[4], x[5] = 1.7e308, -1.7e308
    with np.errstate(all="raise"):
        gram, diagonal = kernel(x, x), kernel.diagonal(x)
    assert np.isfinite(gram).all()
    assert not gram[1:4].any()
    assert not gram[:, 1:4].any()
    assert not diagonal[1:4].any()
    assert np.linalg.eigvalsh(gram)[0] > -1e-12
    assert diagonal.max() <= kernel.bound**2 * (1.0 + 1e-12)


def ou_norm(
    rate: float,
    function: Callable[[np.ndarray], np.ndarray],
    derivative: Callable[[np.ndarray], np.ndarray],
    low: float = 0.0,
    high: float = 1.0,
    breaks: Sequence[float] = (),
) -> float:
    """The norm of :class:`OU`'s space by quadrature; ``function`` is smooth between the breaks."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    ends = np.array([low, *sorted(breaks), high])
    half = np.diff(ends) / 2.0
    x = (ends[:-1, np.newaxis] + half[:, np.newaxis] * (1.0 + nodes)).ravel()
    w = (half[:, np.newaxis] * weights).ravel()
    inner = float(w @ (derivative(x) ** 2 + (rate * function(x)) ** 2))
    border = float((function(np.array([low, high])) ** 2).sum())
    return math.sqrt(border / 2.0 + inner / (2.0 * rate))


@pytest.mark.parametrize("rate", [0.3, 5.0, 40.0])
@pytest.mark.parametrize("at", [0.0, 0.21, 1.0])
def test_the_norm_of_the_ou_space_is_the_papers(rate: float, at: float) -> None:
    """|K_y| = 1, and <f, K_y> = f(y) by polarisation, with Lemma 6's inner product."""

    def section(x: np.ndarray) -> np.ndarray:
        return np.exp(-rate * np.abs(x - at))

    def slope(x: np.ndarray) -> np.ndarray:
        return np.asarray(-rate * np.sign(x - at) * section(x))

    breaks = (at,) if 0.0 < at < 1.0 else ()
    assert ou_norm(rate, section, slope, breaks=breaks) == pytest.approx(1.0, abs=1e-9)

    def norm(sign: float) -> float:
        return ou_norm(
            rate,
            lambda x: np.sin(3 * x) + sign * section(x),
            lambda x: 3 * np.cos(3 * x) + sign * slope(x),
            breaks=breaks,
        )

    assert (norm(1.0) ** 2 - norm(-1.0) ** 2) / 4.0 == pytest.approx(math.sin(3 * at), abs=1e-8)


def test_the_norm_of_a_sum_is_the_integral() -> None:
    x, e = np.array([0.1, 0.35, 0.36, 0.9]), np.array([1.0, -2.0, 1.5, 0.4])

    def h(s: np.ndarray) -> np.ndarray:
        return np.asarray(e @ np.exp(-6.0 * np.abs(x[:, np.newaxis] - s)))

    def slope(s: np.ndarray) -> np.ndarray:
        gaps = s - x[:, np.newaxis]
        return np.asarray(e @ (-6.0 * np.sign(gaps) * np.exp(-6.0 * np.abs(gaps))))

    by_quadrature = ou_norm(6.0, h, slope, low=-0.5, high=1.2, breaks=x.tolist())
    assert function_norm(OU(6.0), x, e) == pytest.approx(by_quadrature, rel=1e-9)


def test_the_band_limited_norm_is_an_integral() -> None:
    """|K_y|^2 = (band / pi) int K_y^2 = 1; what lies beyond 500 is below 1 / (500 pi band)."""
    s = np.linspace(-500.0, 500.0, 1_000_001)
    section = BandLimited((6.0,))([0.3], s)[0]
    assert 6.0 / math.pi * np.trapezoid(section**2, s) == pytest.approx(1.0, abs=3e-4)


def test_multilinear_weights() -> None:
    grid = RegularGrid((0.0, -1.0), (2.0, 1.0), (5, 4))
    x = np.random.default_rng(0).uniform(-0.5, 2.5, (50, 2))
    weights = grid(x)
    assert weights.sum(axis=1) == pytest.approx(1.0)
    assert weights.min() >= 0.0
    inside = np.clip(x, [0.0, -1.0], [2.0, 1.0])
    assert weights @ grid.points == pytest.approx(inside, abs=1e-12)
    assert grid(grid.points) == pytest.approx(np.eye(20), abs=1e-12)
    assert not grid(np.array([[np.nan, 0.0], [0.0, np.inf]])).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: OU(0.0),
        lambda: OU(math.nan),
        lambda: ProductOU(()),
        lambda: ProductOU((1.0, -1.0)),
        lambda: RBF(-1.0),
        lambda: RBF(1.0, 0),
        lambda: BandLimited((math.inf,)),
        lambda: FeatureKernel(cubic, 2, bound=0.0),
        lambda: RegularGrid((0.0,), (1.0,), (1,)),
        lambda: RegularGrid((1.0,), (1.0,), (3,)),
        lambda: RegularGrid((0.0,), (1.0, 2.0), (3,)),
        lambda: FourierFeatures((0.0,), (0.0,), 2),
        lambda: FourierFeatures((0.0,), (1.0,), -1),
        lambda: OU(1.0)([[0.0, 1.0]], [0.0]),
        lambda: FunctionMechanism(OU(1.0), 0.0, 1.0),
        lambda: FunctionMechanism.for_mu(OU(1.0), 1.0, 0.0, "zero-out"),
        lambda: FunctionMechanism(OU(1.0), 1.0, 1.0).release([[0.0]], [[1.0, 2.0]], Noise(0)),
        lambda: clip_function(OU(1.0), [0.0, 1.0], [1.0], 1.0),
        lambda: SharedGrid(OU(1.0), np.array([[np.nan]])),
        lambda: SharedGrid(OU(1.0), np.zeros((0, 1))),
        lambda: FunctionSum(SharedGrid(OU(1.0), np.array([[0.0]])), 0),
        lambda: FunctionSum(SharedGrid(OU(1.0), np.array([[0.0]])), 1, clip=math.inf),
        lambda: OUPath(1.0, 0.0, Noise(0)),
        lambda: OUPath(1.0, 1.0, Noise(0), low=1.0, high=0.0),
        lambda: GPPath(OU(1.0), 1.0, Noise(0), limit=0),
    ],
)
def test_public_mistakes_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        make()


# The clip: never exceeded, attained.

anything = st.one_of(
    st.floats(-3.0, 3.0), st.floats(), st.sampled_from([1e308, -1e308, 1e-308, 5e-324])
)


@every_kernel
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_function_is_longer_than_the_clip_and_some_are_as_long(
    kernel: Kernel, data: st.DataObject
) -> None:
    steps = data.draw(st.integers(1, 5))
    clip = data.draw(st.sampled_from([1e-3, 1.0, 50.0]))
    x = data.draw(hnp.arrays(float, (steps, kernel.dimension), elements=anything))
    e = data.draw(hnp.arrays(float, steps, elements=anything))
    clipped = clip_function(kernel, x, e, clip)
    assert np.isfinite(clipped).all()
    assert clipped @ kernel(x, x) @ clipped <= (clip * (1.0 + 1e-9)) ** 2
    bad = ~np.isfinite(e) | ~np.isfinite(x).all(axis=1)
    assert not clipped[bad].any()
    # A function and its negative, both longer than the clip, are 2 clip apart.
    inside = np.full((1, kernel.dimension), 0.25)
    top = clip_function(kernel, inside, [1e300], clip)
    bottom = clip_function(kernel, inside, [-1e300], clip)
    gap = float((top - bottom) @ kernel(inside, inside) @ (top - bottom))
    assert math.sqrt(gap) == pytest.approx(2.0 * clip, rel=1e-9)


def test_short_functions_are_not_touched() -> None:
    x, e = np.array([0.0, 0.5, 0.2]), np.array([0.3, -0.2, 0.1])
    assert function_norm(OU(1.0), x, e) < 0.4
    assert clip_function(OU(1.0), x, e, 0.4).tolist() == e.tolist()


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-15])
@pytest.mark.parametrize("size", [1.0, 1e7, 1e300])
def test_cancelling_coefficients_do_not_slip_through(gap: float, size: float) -> None:
    """The true norm, to 60 digits, of a function whose norm is lost to rounding in floats."""
    first, second = clip_function(OU(1.0), [0.0, gap], [size, -size], 1.0)
    with localcontext() as context:
        context.prec = 60
        a, b = Decimal(float(first)), Decimal(float(second))
        square = a * a + b * b + 2 * a * b * (-Decimal(gap)).exp()
    assert 0 <= square <= Decimal(1.0 + 1e-9)


def test_a_huge_coefficient_of_nothing_drowns_nobody() -> None:
    """A section of length zero, or nearly, leaves the other steps what they are."""
    kernel = FeatureKernel(lambda x: x, 1, bound=2.0)
    for nothing in (0.0, 1e-200, np.nan):
        clipped = clip_function(kernel, [1.0, nothing], [5.0, 1e300], 0.5)
        assert clipped == pytest.approx([0.5, 0.0], rel=1e-12)
    short = clip_function(kernel, [1.0, 1e-20], [5.0, -5e20], 0.5)
    assert short @ np.array([1.0, 1e-20]) == pytest.approx(0.0, abs=1e-9)


# Functions on a grid.


@every_kernel
def test_coordinates_have_the_length_of_the_function(kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    grid = SharedGrid(kernel, some_points(kernel, 30))
    gram = kernel(grid.points, grid.points)
    assert grid.root @ grid.root.T == pytest.approx(gram, abs=1e-12)
    weights = rng.normal(size=(20, 30)) * (rng.random((20, 30)) < 0.3)
    lengths = np.linalg.norm(grid.of_weights(weights), axis=1)
    norms = np.sqrt(np.einsum("ui,ij,uj->u", weights, gram, weights))
    assert lengths == pytest.approx(norms, abs=1e-9)
    assert lengths == pytest.approx([function_norm(kernel, grid.points, w) for w in weights])
    assert grid.values(grid.of_weights(weights)) == pytest.approx(weights @ gram, abs=1e-10)


def test_values_and_coordinates_are_inverse() -> None:
    kernel = OU(5.0)
    grid = SharedGrid(kernel, np.linspace(0.0, 1.0, 51))
    e = np.random.default_rng(2).normal(size=(2, 3, 51))
    h = e @ kernel(grid.points, grid.points)
    coordinates = grid.coordinates(h)
    assert grid.size == 51
    assert coordinates == pytest.approx(grid.of_weights(e), abs=1e-10)
    assert grid.values(coordinates) == pytest.approx(h, abs=1e-12)
    assert (coordinates**2).sum(axis=-1) == pytest.approx(
        np.einsum("abi,ij,abj->ab", e, kernel(grid.points, grid.points), e), rel=1e-9
    )


@pytest.mark.parametrize(
    ("kernel", "points"),
    [
        (RBF(0.5), np.linspace(0.0, 1.0, 200)),
        (BandLimited((9.0,)), np.linspace(0.0, 1.0, 300)),
        (OU(1.0), np.array([0.0, 0.5, 0.5, 1.0])),
        (OU(1.0), np.array([0.0, 0.5, 0.5 + 1e-14, 1.0])),
        (FeatureKernel(FourierFeatures((0.0,), (1.0,), 3)), np.linspace(0.0, 1.0, 40)),
    ],
)
def test_singular_grids_need_no_jitter(kernel: Kernel, points: np.ndarray) -> None:
    """Fewer coordinates than points; lengths, values and the noise's covariance still agree."""
    grid = SharedGrid(kernel, points)
    gram = kernel(grid.points, grid.points)
    assert grid.size < len(points)
    assert grid.root @ grid.root.T == pytest.approx(gram, abs=1e-10)
    e = np.random.default_rng(0).normal(size=(10, len(points)))
    lengths = np.linalg.norm(grid.of_weights(e), axis=1)
    assert lengths == pytest.approx(np.sqrt(np.einsum("ui,ij,uj->u", e, gram, e)), rel=1e-9)
    again = grid.coordinates(grid.values(grid.of_weights(e)))
    assert grid.values(again) == pytest.approx(e @ gram, abs=1e-9)


def test_a_band_has_no_more_coordinates_on_a_finer_grid() -> None:
    sizes = [SharedGrid(BandLimited((9.0,)), np.linspace(0, 1, n)).size for n in (100, 200, 400)]
    assert max(sizes) <= 20


def test_evaluation_off_the_grid_is_exact_for_functions_of_the_grid() -> None:
    for kernel in (ProductOU((2.0, 3.0)), RBF(0.5, 2)):
        grid = SharedGrid(kernel, RegularGrid((0.0, 0.0), (1.0, 1.0), (6, 7)).points)
        e = np.random.default_rng(3).normal(size=42)
        x = some_points(kernel, 9, seed=4)
        assert grid.evaluate(grid.of_weights(e), x) == pytest.approx(
            e @ kernel(grid.points, x), abs=1e-6
        )


def test_nearest_points() -> None:
    grid = SharedGrid(ProductOU((1.0, 1.0)), RegularGrid((0.0, 0.0), (1.0, 2.0), (4, 5)).points)
    x = np.random.default_rng(5).uniform(-1.0, 3.0, (200, 2))
    brute = ((x[:, np.newaxis] - grid.points) ** 2).sum(axis=2).argmin(axis=1)
    assert grid.nearest(x).tolist() == brute.tolist()
    hostile = np.array([[np.nan, 0.0], [np.inf, 0.0], [1e308, -1e308]])
    assert grid.nearest(hostile).tolist() == [-1, -1, 15]


def test_grids_are_told_apart() -> None:
    points = np.linspace(0.0, 1.0, 500)
    other = points.copy()
    other[250] += 1e-3
    texts = {
        repr(SharedGrid(OU(1.0), points)),
        repr(SharedGrid(OU(2.0), points)),
        repr(SharedGrid(OU(1.0), other)),
        repr(SharedGrid(Matern32(1.0), points)),
    }
    assert len(texts) == 4
    assert SharedGrid(OU(1.0), points) == copy.deepcopy(SharedGrid(OU(1.0), points))
    marks = {FunctionSum(SharedGrid(OU(1.0), p), 3).fingerprint for p in (points, other)}
    assert len(marks) == 2


# The statistic.


def users_of(statistic: FunctionSum) -> Callable[[np.random.Generator, int], Block]:
    """Random functions, and users with one large coefficient."""

    def sample(rng: np.random.Generator, users: int) -> Block:
        T, corners = statistic.steps, statistic.corners
        shape = (users, T) if corners == 1 else (users, T, corners)
        e = rng.normal(size=(users, T)) * 10.0 ** rng.uniform(-3, 3, (users, 1))
        e[0], e[1] = 100.0, -100.0
        points = rng.integers(0, len(statistic.grid.points), shape)
        which = rng.integers(0, statistic.functions, (users, T))
        points[:2], which[:2] = 0, 0
        arrays = {"coefficients": e, "points": points, "functions": which}
        if corners > 1:
            arrays["weights"] = rng.dirichlet(np.ones(corners), (users, T))
        return Block(users, arrays)

    return sample


STATISTICS = {
    "ou": FunctionSum(SharedGrid(OU(4.0), np.linspace(0, 1, 11)), 5, 2, 1.5),
    "one function": FunctionSum(SharedGrid(Matern52(0.3), np.linspace(0, 1, 6)), 3),
    "plane": FunctionSum(
        SharedGrid(ProductOU((2.0, 3.0)), RegularGrid((0, 0), (1, 1), (4, 5)).points),
        steps=4, functions=3, clip=0.2, corners=4,
    ),
    "singular": FunctionSum(SharedGrid(RBF(0.7), np.linspace(0, 1, 60)), 6, 2, 8.0),
    "band": FunctionSum(SharedGrid(BandLimited((5.0,)), np.linspace(0, 1, 40)), 3, corners=2),
    "features": FunctionSum(
        SharedGrid(KERNELS["own features"], some_points(KERNELS["own features"], 12)), 2, 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_function_sums_are_bounded_and_tight(statistic: FunctionSum) -> None:
    report = check_statistic(statistic, users_of(statistic), rounds=15, attained=1.0 - 1e-9)
    assert report.declared == {
        "replace-one l2": 2.0 * statistic.clip,
        "zero-out l2": statistic.clip,
    }


@pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
def test_the_fast_total_is_the_generic_one(statistic: FunctionSum) -> None:
    block = users_of(statistic)(np.random.default_rng(7), 500)
    expected = Statistic.total(statistic, block)
    assert statistic.total(block) == pytest.approx(expected, abs=1e-11)
    assert statistic.total(block.sealed()) == pytest.approx(expected, abs=1e-11)
    streamed = StreamedBlock(
        500, lambda: iter([block.take(slice(0, 123)), block.take(slice(123, 500))])
    )
    assert statistic.total(streamed) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("name", ["singular", "ou", "band"])
def test_cancelling_coefficients_on_a_grid(name: str) -> None:
    """Rounding decides neither the length nor, beyond 1e-9, the direction of a user's vector."""
    statistic = STATISTICS[name]
    block = users_of(statistic)(np.random.default_rng(9), 60)
    e, points = np.array(block["coefficients"]), np.array(block["points"])
    points[:, 0], points[:, 1] = (
        5,
        np.where(np.arange(60) % 2, 5, 6).reshape((60,) + (1,) * (points.ndim - 2)),
    )
    e[:, 0], e[:, 1], e[:, 2:] = 0.1, -0.1, 0.0
    e *= 10.0 ** np.linspace(-5, 308, 60)[:, np.newaxis]
    for user in range(60):
        alone = Block(
            1,
            {
                **{n: a[[user]] for n, a in block.arrays.items()},
                "coefficients": e[[user]],
                "points": points[[user]],
            },
        )
        vector = statistic.vectors(alone)[0]
        assert np.linalg.norm(vector) <= statistic.clip * (1.0 + 1e-12)
        assert statistic.total(alone) == pytest.approx(vector, abs=1e-9 * statistic.clip)


def test_function_sums_by_hand() -> None:
    """Two users, two functions, steps dropped: against kernel sums at the grid's points."""
    kernel, X = OU(2.0), np.linspace(0.0, 1.0, 5)
    statistic = FunctionSum(SharedGrid(kernel, X), steps=4, functions=2, clip=3.0)
    e = np.array([[1.0, -0.5, np.nan, 0.25], [4.0, 4.0, 7.0, 4.0]])
    points = np.array([[0, 3, 1, 4], [2, 2, 9, 1]])
    which = np.array([[0, 1, 0, 0], [1, 1, 1, 0]])
    block = Block(2, {"coefficients": e, "points": points, "functions": which})
    K = kernel(X, X)
    first = np.stack([1.0 * K[0] + 0.25 * K[4], -0.5 * K[3]])
    second = np.stack([4.0 * K[1], 8.0 * K[2]])
    length = math.sqrt(4.0**2 + 8.0**2)
    values = statistic.grid.values(statistic.layout.unpack(statistic.total(block))["coordinates"])
    assert values == pytest.approx(first + second * 3.0 / length, abs=1e-12)


def test_weights_between_grid_points() -> None:
    """A step between points is its weights' combination, and is clipped as such."""
    lattice = RegularGrid((0.0,), (1.0,), (6,))
    statistic = FunctionSum(SharedGrid(OU(2.0), lattice.points), 2, clip=50.0, corners=2)
    states = np.array([0.13, 0.77])
    places, weights = lattice.multilinear(states[:, np.newaxis])
    block = Block(
        1,
        {
            "points": places[np.newaxis],
            "weights": weights[np.newaxis],
            "coefficients": np.array([[2.0, -1.0]]),
        },
    )
    dense = np.array([2.0, -1.0]) @ lattice(states[:, np.newaxis])
    assert statistic.total(block) == pytest.approx(statistic.grid.of_weights(dense), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("points", np.zeros((2, 3), dtype=int)),
        ("coefficients", np.zeros((2, 4, 1))),
        ("functions", np.zeros(2)),
    ],
)
def test_shapes_are_public(name: str, array: np.ndarray) -> None:
    statistic = FunctionSum(SharedGrid(OU(2.0), np.linspace(0, 1, 5)), steps=4, functions=2)
    arrays = {
        "points": np.zeros((2, 4), dtype=int),
        "coefficients": np.zeros((2, 4)),
        "functions": np.zeros((2, 4), dtype=int),
    }
    with pytest.raises(InvalidArgument, match=name):
        statistic.total(Block(2, {**arrays, name: array}))


# Paths.


class Counting:
    """Noise that counts its draws."""

    simulation = True

    def __init__(self, seed: int = 0) -> None:
        self.noise, self.drawn = Noise(seed=seed), 0

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        self.drawn += math.prod(shape)
        return self.noise.normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> np.ndarray:
        raise AssertionError("paths are Gaussian")


class Unit:
    """Zeros, but for a one at the k-th draw: shows the coefficients of a linear sampler."""

    simulation = True

    def __init__(self, k: int) -> None:
        self.left = k

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        values = np.zeros(math.prod(shape))
        if 0 <= self.left < values.size:
            values[self.left] = 1.0
        self.left -= values.size
        return values.reshape(shape)

    def laplace(self, shape: tuple[int, ...]) -> np.ndarray:
        raise AssertionError("paths are Gaussian")


def covariance(sample: Callable[[NoiseSource], np.ndarray], draws: int) -> np.ndarray:
    """The exact covariance of a linear sampler."""
    B = np.stack([sample(Unit(k)) for k in range(draws)], axis=1)
    return np.asarray(B @ B.T)


def decimal_bridge(rate: float, x: float, left: float, right: float) -> tuple[float, ...]:
    """Weights and variance from the 2 x 2 matrix conditional, to 700 digits."""
    with localcontext() as context:
        context.prec = 700
        context.Emin = -999999999

        def K(s: float, t: float) -> Decimal:
            return (-Decimal(rate) * abs(Decimal(s) - Decimal(t))).exp()

        to_left, to_right, across = K(x, left), K(x, right), K(left, right)
        determinant = 1 - across * across
        on_left = (to_left - to_right * across) / determinant
        on_right = (to_right - to_left * across) / determinant
        variance = 1 - on_left * to_left - on_right * to_right
        return float(on_left), float(on_right), float(variance)


@pytest.mark.parametrize(
    ("rate", "left", "x", "right"),
    [
        (5.0, 0.1, 0.3, 0.8),
        (1e-6, 0.0, 0.4, 1.0),
        (1.0, 0.0, 1e-9, 1.0),
        (1.0, 0.0, 1e-160, 1e-150),
        (1.0, 0.3, math.nextafter(0.3, 1.0), math.nextafter(math.nextafter(0.3, 1.0), 1.0)),
        (3.0, 0.0, 1e-12, 200.0),
        (40.0, 0.0, 5.0, 15.0),
    ],
)
def test_bridges_have_all_their_digits(rate: float, left: float, x: float, right: float) -> None:
    assert bridge(rate, x, left, right) == pytest.approx(
        decimal_bridge(rate, x, left, right), rel=1e-12
    )


def test_bridges_at_the_ends_of_the_scale() -> None:
    a = math.exp(-2.0 * 0.3)
    assert bridge(2.0, 0.5, 0.2, None) == pytest.approx((a, 0.0, 1.0 - a * a), abs=1e-15)
    assert bridge(2.0, 0.2, None, 0.5) == pytest.approx((0.0, a, 1.0 - a * a), abs=1e-15)
    assert bridge(2.0, 0.2, None, None) == (0.0, 0.0, 1.0)
    assert bridge(1.0, 0.0, -1.7e308, 1.7e308) == (0.0, 0.0, 1.0)
    assert bridge(1e300, 0.0, -1e300, 1e300) == (0.0, 0.0, 1.0)
    assert bridge(1e-300, 2e-300, 1e-300, 3e-300) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_bridges_are_the_matrix_conditional(seed: int) -> None:
    """Given many points, only the neighbours count: weights and variance to 1e-10."""
    rng = np.random.default_rng(seed)
    kernel, drawn = OU(4.0), np.sort(rng.random(12))
    for x in [*rng.random(20), -0.3, 1.4]:
        K, k = kernel(drawn, drawn), kernel([x], drawn)[0]
        weights = np.linalg.solve(K, k)
        at = int(np.searchsorted(drawn, x))
        left = float(drawn[at - 1]) if at > 0 else None
        right = float(drawn[at]) if at < len(drawn) else None
        on_left, on_right, variance = bridge(4.0, float(x), left, right)
        expected = np.zeros(12)
        if left is not None:
            expected[at - 1] = on_left
        if right is not None:
            expected[at] = on_right
        assert weights == pytest.approx(expected, abs=1e-10)
        assert 1.0 - weights @ k == pytest.approx(variance, abs=1e-10)


QUERIES = [0.5, 0.2, 0.9, 0.2, 0.21, -4.0, 1e-8, 0.0, 7.0, 0.50001, -0.0]


def test_ou_paths_have_exactly_the_covariance() -> None:
    """Point by point or at once, in any order: B B' = sigma^2 K, from the sampler's own numbers."""
    gram = 9.0 * OU(2.5)(QUERIES, QUERIES)
    draws = len(set(QUERIES))

    def one_by_one(source: NoiseSource) -> np.ndarray:
        path = OUPath(2.5, 3.0, source)
        return np.array([path.value(x) for x in QUERIES])

    def at_once(source: NoiseSource) -> np.ndarray:
        return OUPath(2.5, 3.0, source).values(QUERIES)

    def in_parts(source: NoiseSource) -> np.ndarray:
        path = OUPath(2.5, 3.0, source)
        return np.concatenate([path.values(QUERIES[:4]), path.values(QUERIES[4:])])

    for sample in (one_by_one, at_once, in_parts):
        assert covariance(sample, draws) == pytest.approx(gram, abs=1e-12)


@every_kernel
def test_gp_paths_have_exactly_the_covariance(kernel: Kernel) -> None:
    """Up to the nugget, which is at most 2e-9 of a value's variance."""
    x = some_points(kernel, 9)
    x[5] = x[2]

    def sample(source: NoiseSource) -> np.ndarray:
        path = GPPath(kernel, 2.0, source)
        assert path.nugget <= 2e-9 * kernel.bound**2
        return np.concatenate([path.values(x[:4]), path.values(x[4:5]), path.values(x[5:])])

    assert covariance(sample, 8) == pytest.approx(4.0 * kernel(x, x), abs=1e-7)


def test_sampled_paths_have_the_covariance() -> None:
    """Real draws. 6 standard errors for each of 2 x 10 entries: wrong alarm below 4e-8."""
    x, runs = np.array([0.3, 0.1, 0.9, 0.31]), 1500
    gram = 4.0 * OU(3.0)(x, x)
    for path in (OUPath, GPPath):
        rows = np.empty((runs, 4))
        for run in range(runs):
            source = Noise(seed=run)
            drawn = OUPath(3.0, 2.0, source) if path is OUPath else GPPath(OU(3.0), 2.0, source)
            rows[run] = np.concatenate([drawn.values(x[:2]), drawn.values(x[2:])])
        error = rows.T @ rows / runs - gram
        variance = (np.outer(np.diag(gram), np.diag(gram)) + gram**2) / runs
        assert (np.abs(error) < 6.0 * np.sqrt(variance)).all()


def test_the_same_point_has_the_same_value_and_is_drawn_once() -> None:
    source = Counting()
    path = OUPath(1.0, 1.0, source)
    first = path.values([[0.3, 0.7], [0.3, -0.0]])
    assert first.shape == (2, 2)
    assert first[0, 0] == first[1, 0]
    assert source.drawn == path.size == 3
    assert path.values([0.7, 0.0]).tolist() == [first[0, 1], first[1, 1]]
    assert path.value(0.7) == first[0, 1]
    assert source.drawn == 3


def test_points_off_the_line() -> None:
    source = Counting()
    path = OUPath(1.0, 1.0, source, low=0.0, high=1.0)
    ends = path.values([0.0, 1.0])
    got = path.values([-3.0, 2.0, -np.inf, np.inf, np.nan])
    assert got[:4].tolist() == [ends[0], ends[1], ends[0], ends[1]]
    assert math.isnan(got[4])
    assert math.isnan(path.value(math.nan))
    assert source.drawn == 2
    free = OUPath(1.0, 1.0, source)
    assert np.isnan(free.values([np.inf, -np.inf, np.nan])).all()
    assert math.isnan(free.value(math.inf))
    assert source.drawn == 2
    assert np.isnan(GPPath(RBF(1.0), 1.0, source).values([np.nan, np.inf])).all()
    assert source.drawn == 2


def test_many_points_stay_in_order() -> None:
    """Thousands of points, against a plain sorted list with the same normals, bit for bit."""
    rng = np.random.default_rng(0)
    xs = np.concatenate([rng.random(3000), np.linspace(0.4, 0.41, 1500), -rng.random(1000)])
    xs = xs[rng.permutation(len(xs))]
    path = OUPath(20.0, 2.0, Noise(seed=5))
    got = [path.value(x) for x in xs.tolist()]
    source = Noise(seed=5)
    drawn: dict[float | None, float] = {}
    order: list[float] = []
    for x in xs.tolist():
        at = bisect_left(order, x)
        left = order[at - 1] if at else None
        right = order[at] if at < len(order) else None
        on_left, on_right, variance = bridge(20.0, x, left, right)
        mean = on_left * drawn.get(left, 0.0) + on_right * drawn.get(right, 0.0)
        drawn[x] = mean + 2.0 * math.sqrt(variance) * float(source.normal((1,))[0])
        insort(order, x)
    assert got == [drawn[x] for x in xs.tolist()]
    assert path_arrays(path)["points"].tolist() == order


def test_saved_paths_are_values() -> None:
    xs = np.random.default_rng(1).random(2000)
    path = OUPath(3.0, 1.0, Noise())
    values = path.values(xs)
    arrays = path_arrays(path)
    assert set(arrays) == {"points", "values"}
    again = ou_path_of(arrays, 3.0, 1.0, Noise())
    assert again.values(xs).tolist() == values.tolist()
    assert again.values(xs[:5] + 1e-12) == pytest.approx(values[:5], abs=1e-3)
    assert ou_path_of(path_arrays(OUPath(3.0, 1.0, Noise())), 3.0, 1.0, Noise()).size == 0
    with pytest.raises(InvalidArgument):
        ou_path_of({"points": xs, "values": xs}, 3.0, 1.0, Noise())
    with pytest.raises(TypeError):
        copy.deepcopy(path)


def test_saved_gp_paths_continue_in_distribution() -> None:
    kernel, x = Matern32(0.5), np.linspace(0.0, 1.0, 7)
    y = np.array([0.05, 0.55, 1.3])

    def sample(source: NoiseSource) -> np.ndarray:
        path = GPPath(kernel, 2.0, source)
        first = path.values(x)
        again = gp_path_of(path_arrays(path), kernel, 2.0, source)
        assert again.values(x).tolist() == first.tolist()
        return np.concatenate([first, again.values(y)])

    both = np.concatenate([x, y])
    assert covariance(sample, 10) == pytest.approx(4.0 * kernel(both, both), abs=1e-7)
    with pytest.raises(InvalidArgument):
        gp_path_of({"points": x, "values": x[:3]}, kernel, 2.0, Noise())


def test_gp_paths_have_a_limit() -> None:
    source = Counting()
    path = GPPath(RBF(0.3), 1.0, source, limit=5)
    kept = path.values([0.1, 0.2, 0.3])
    with pytest.raises(HorizonExceeded, match="limit 5"):
        path.values([0.1, 0.4, 0.5, 0.6])
    assert source.drawn == path.size == 3
    assert path.values([0.3, 0.1]).tolist() == [kept[2], kept[0]]


@pytest.mark.parametrize("count", [50, 400])
def test_paths_of_smooth_kernels_never_get_too_little_noise(count: int) -> None:
    """Numerically dependent points: the factor's L L' is at least K, so nothing comes for free."""
    kernel, x = RBF(1.0), np.linspace(0.0, 1.0, count)
    path = GPPath(kernel, 1.0, Noise(seed=0))
    for part in np.array_split(np.random.default_rng(0).permutation(x), 10):
        path.values(part)
    order = path_arrays(path)["points"]
    excess = path._factor @ path._factor.T - kernel(order, order)
    assert np.linalg.eigvalsh(excess)[0] > 0.5 * path.nugget


# The guarantee, exactly: the code is run with unit vectors in place of its noise.

Run = Callable[[np.ndarray, np.ndarray, NoiseSource], np.ndarray]
Users = tuple[np.ndarray, np.ndarray]


def exact_cost(run: Run, first: Users, second: Users, claimed: float) -> ExactAudit:
    """The exact mu between two data sets, of everything that ``run`` publishes."""

    def switch(which: np.ndarray, source: NoiseSource) -> np.ndarray:
        return run(*(first if which[0] else second), source)

    return audit_linear(switch, [np.ones(1)], claimed=claimed)


def neighbours(kernel: Kernel, users: int = 3, steps: int = 4) -> tuple[Users, Users]:
    """Data sets that differ in the first user, whose long function becomes its negative."""
    rng = np.random.default_rng(11)
    points = rng.random((users, steps, kernel.dimension))
    coefficients = rng.normal(size=(users, steps)) * 30.0
    changed = coefficients.copy()
    changed[0] *= -1.0
    return (points, coefficients), (points, changed)


@every_kernel
@pytest.mark.parametrize("own_points", [True, False])
def test_a_published_function_costs_exactly_its_claim(kernel: Kernel, own_points: bool) -> None:
    """At distance 2 c: never more than mu at any points, and mu at the user's own points."""
    mechanism = FunctionMechanism.for_mu(kernel, clip=1.5, mu=0.8, relation=REPLACE)
    first, second = neighbours(kernel)
    spies = some_points(kernel, 6, seed=12)

    def dialogue(points: np.ndarray, e: np.ndarray, source: NoiseSource) -> np.ndarray:
        published = mechanism.release(points, e, source)
        answers = [published(spies[:2]), published(spies), published(spies[3:4])]
        if own_points:
            answers += [published(points[0]), published(spies[1:])]
        return np.concatenate(answers)

    audit = exact_cost(dialogue, first, second, mechanism.mu(REPLACE))
    assert audit.claimed == pytest.approx(0.8)
    assert audit.passed, str(audit)
    if own_points:
        assert audit.mu == pytest.approx(0.8, rel=1e-4)
    zeroed = (first[0], np.where(np.arange(3)[:, np.newaxis] == 0, np.nan, first[1]))
    audit = exact_cost(dialogue, first, zeroed, mechanism.mu(ZERO))
    assert audit.passed, str(audit)
    if own_points:
        assert audit.mu == pytest.approx(0.4, rel=1e-4)


@pytest.mark.parametrize("name", ["ou", "plane", "singular"])
def test_a_curators_release_costs_exactly_its_claim(name: str) -> None:
    """The grid form, through the gate: the noise is a path on the grid, and mu is the budget's."""
    statistic = STATISTICS[name]
    model = JointDP(epsilon=1.0, delta=1e-6, relation=REPLACE)
    block = users_of(statistic)(np.random.default_rng(3), 4)
    kernel, X = statistic.grid.kernel, statistic.grid.points

    def run(which: np.ndarray, source: NoiseSource) -> np.ndarray:
        curator = JointCurator(model, source=source)
        e = np.array(block["coefficients"])
        e[0] *= 1.0 if which[0] else -1.0
        curator.add(Block(4, {**block.arrays, "coefficients": e}))
        return np.asarray(curator.release(statistic)["coordinates"])

    audit = audit_linear(run, [np.ones(1)], claimed=model.budget.mu)
    assert audit.passed
    assert audit.mu == pytest.approx(model.budget.mu, rel=1e-9)
    sigma = 2.0 * statistic.clip / model.budget.mu
    zero = run(np.ones(1), Unit(-1))

    def noise(source: NoiseSource) -> np.ndarray:
        return statistic.grid.values(run(np.ones(1), source) - zero).ravel()

    expected = np.kron(np.eye(statistic.functions), sigma**2 * kernel(X, X))
    assert covariance(noise, statistic.layout.size) == pytest.approx(expected, rel=1e-9, abs=1e-7)


def test_the_likelihood_ratio_of_a_dialogue_is_the_claimed_gaussian() -> None:
    """Answers choose the next question; 5 standard errors of mean and variance: alarm below 2e-6.

    The log-likelihood ratio of all answers is N(mu^2 / 2, mu^2) under the first data set.
    """
    kernel, clip, mu, runs = OU(4.0), 2.0, 1.2, 1000
    mechanism = FunctionMechanism.for_mu(kernel, clip, mu, REPLACE)
    (points, first), (_, second) = neighbours(kernel, users=1)
    h = [clip_function(kernel, points[0], e[0], clip) for e in (first, second)]
    ratios = np.empty((2, runs))
    for case, e in enumerate((first, second)):
        for run in range(runs):
            published = mechanism.release(points, e, Noise(seed=2 * run + case))
            asked, answers = [0.4], [float(published([0.4])[0])]
            for _ in range(3):
                asked.append(abs(math.sin(7.0 * answers[-1])))
                answers.append(float(published(asked[-1:])[0]))
            X = np.concatenate([asked, points[0, :, 0]])
            y = np.concatenate([answers, published(points[0])])
            means = [coefficients @ kernel(points[0], X) for coefficients in h]
            inverse = np.linalg.inv(kernel(X, X)) / mechanism.sigma**2
            losses = [(y - m) @ inverse @ (y - m) for m in means]
            ratios[case, run] = (losses[1] - losses[0]) / 2.0
    for sign, sample in zip((1.0, -1.0), ratios, strict=True):
        assert abs(sample.mean() - sign * mu**2 / 2.0) < 5.0 * mu / math.sqrt(runs)
        assert abs(sample.var() / mu**2 - 1.0) < 5.0 * math.sqrt(2.0 / runs)
    seen = audit_samples(ratios[1], ratios[0], confidence=1.0 - 1e-6)
    assert 0.0 < seen.mu <= mu


# Mutants: each breaks one link of the proof, and the audit sees it.


@dataclass(frozen=True)
class OnePath(FunctionMechanism):
    """A mutant that draws its path once and keeps it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kept", [])

    def _path(self, source: NoiseSource) -> OUPath | GPPath:
        kept: list[OUPath | GPPath] = getattr(self, "kept")  # noqa: B009
        if not kept:
            kept.append(super()._path(source))
        return kept[0]


@pytest.mark.parametrize("kernel", [OU(3.0), RBF(0.4)], ids=["ou", "rbf"])
@pytest.mark.parametrize("broken", [False, True])
def test_two_releases_need_two_paths(kernel: Kernel, broken: bool) -> None:
    """The user takes part in the first release; with paths of their own it costs mu, no more."""
    first, second = neighbours(kernel)
    x = np.concatenate([first[0][0], some_points(kernel, 3)])

    def run(points: np.ndarray, e: np.ndarray, source: NoiseSource) -> np.ndarray:
        mechanism = (OnePath if broken else FunctionMechanism)(kernel, 1.0, 4.0)
        answers = [
            mechanism.release(points, e, source)(x),
            mechanism.release(points[1:], e[1:], source)(x),
        ]
        return np.concatenate(answers)

    audit = exact_cost(run, first, second, claimed=0.5)
    assert audit.passed != broken
    assert audit.mu == pytest.approx(math.inf if broken else 0.5, rel=1e-4)


@pytest.mark.parametrize("broken", [False, True])
def test_without_the_clip_the_claim_fails(broken: bool) -> None:
    kernel = OU(3.0)
    first, second = neighbours(kernel)
    mechanism = FunctionMechanism(kernel, 1e12 if broken else 1.0, 4.0)

    def run(points: np.ndarray, e: np.ndarray, source: NoiseSource) -> np.ndarray:
        return mechanism.release(points, e, source)(points[0])

    audit = exact_cost(run, first, second, claimed=0.5)
    assert audit.passed != broken
    if broken:
        norm = function_norm(kernel, first[0][0], first[1][0])
        assert audit.mu == pytest.approx(2.0 * norm / 4.0, rel=1e-9)


@pytest.mark.parametrize("broken", [False, True])
def test_users_need_paths_of_their_own(broken: bool) -> None:
    """Each user's function published by itself: under a common path their difference is bare."""
    kernel = OU(3.0)
    first, second = neighbours(kernel, users=2)

    def run(points: np.ndarray, e: np.ndarray, source: NoiseSource) -> np.ndarray:
        mechanism = (OnePath if broken else FunctionMechanism)(kernel, 1.0, 4.0)
        alone = [mechanism.release(points[[u]], e[[u]], source)(points[0]) for u in range(2)]
        return np.concatenate(alone)

    audit = exact_cost(run, first, second, claimed=0.5)
    assert audit.passed != broken
    assert audit.mu == pytest.approx(math.inf if broken else 0.5, rel=1e-9)


def test_published_functions_say_nothing_of_their_users() -> None:
    published = FunctionMechanism(OU(3.0), 1.0, 4.0).release([[0.123]], [[0.456]], Noise(seed=0))
    assert "0.123" not in repr(published)
    assert "0.456" not in repr(published)
    assert np.isnan(published([np.nan])).all()


# Any function, as the output of a network: values at public points.


def test_the_shortest_function_is_no_longer_than_any_with_its_values() -> None:
    """Lemma 6 and Corollary 7: a network of one input, its slope bounded by its matrices."""
    rng = np.random.default_rng(4)
    for rate in (0.5, 5.0, 40.0):
        first, second = rng.normal(size=(8, 1)), rng.normal(size=(1, 8))
        biases = rng.normal(size=(8, 1))

        def network(x: np.ndarray, W: Any = first, V: Any = second, b: Any = biases) -> np.ndarray:
            return np.asarray(V @ np.tanh(W @ x[np.newaxis] + b))[0]

        def slope(x: np.ndarray, W: Any = first, V: Any = second, b: Any = biases) -> np.ndarray:
            return np.asarray(V @ (W * (1.0 - np.tanh(W @ x[np.newaxis] + b) ** 2)))[0]

        points = np.linspace(0.0, 1.0, 21)
        found = function_norm(OU(rate), points, through(OU(rate), points, network(points)))
        whole = ou_norm(rate, network, slope)
        steepest = float(np.linalg.norm(first) * np.linalg.norm(second))
        height = float(np.abs(network(np.linspace(0.0, 1.0, 5001))).max())
        bound = longest_function(OU(rate), height, steepest)
        assert found <= whole * (1.0 + 1e-9) <= bound * (1.0 + 2e-9)
        assert found > 0.85 * whole


@pytest.mark.parametrize("rate", [0.1, 2.0])
def test_how_large_a_function_can_be_is_its_norm(rate: float) -> None:
    """f(x)^2 <= <f, f>, which a section attains; what Lemma 6's proof says fails for constants."""
    square = ou_norm(rate, np.ones_like, np.zeros_like) ** 2
    assert square == pytest.approx(1.0 + rate / 2.0)
    assert (2.0 * rate * square < 1.0) == (rate < 0.4)


def test_the_longest_function_is_almost_attained() -> None:
    """By a zigzag below the height; two of them, of opposite signs, are twice that apart."""
    rate, height, slope, teeth = 3.0, 2.0, 7.0, 200
    corners = np.linspace(0.0, 1.0, 2 * teeth + 1)

    def zigzag(x: np.ndarray) -> np.ndarray:
        inside = np.abs((x * teeth + 0.5) % 1.0 - 0.5) / teeth
        return np.asarray(height - slope * inside)

    def steps(x: np.ndarray) -> np.ndarray:
        return np.where((x * teeth) % 1.0 < 0.5, -slope, slope)

    norm = ou_norm(rate, zigzag, steps, breaks=corners[1:-1].tolist())
    bound = longest_function(OU(rate), height, slope)
    assert 0.99 * bound < norm <= bound
    apart = ou_norm(
        rate, lambda x: 2.0 * zigzag(x), lambda x: 2.0 * steps(x), breaks=corners[1:-1].tolist()
    )
    # What the paper prints after Corollary 7, with values within ``height``.
    printed = math.sqrt(2.0 * height**2 * (1.0 + rate / 2.0) + slope**2 / rate)
    assert apart > 1.39 * printed
    assert bound == pytest.approx(printed / math.sqrt(2.0))


def test_a_function_that_is_no_number_anywhere_counts_zero_there() -> None:
    coefficients = through(OU(2.0), [0.0, 1.0], [math.nan, 0.0])
    assert not coefficients.any()
    with pytest.raises(InvalidArgument, match="values"):
        through(OU(2.0), [0.0, 1.0], [1.0])
    for slope in (-1.0, math.inf):
        with pytest.raises(InvalidArgument, match="slope"):
            longest_function(OU(2.0), 1.0, slope)
