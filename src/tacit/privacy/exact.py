"""Exact noise: whole numbers, drawn without floating-point arithmetic.

Floating-point noise has low-order bits that its theory knows nothing of. Here every user's vector
is rounded to a grid before anything is summed, sums and noise are whole numbers of grid steps, and
what is published is their sum. So there are no other bits.

**Rounding.** The grid has the step g, a power of two. Rounding moves a coordinate by at most g / 2,
so two users' vectors of n coordinates, at most D apart, are at most D / g + sqrt(n) steps apart
after it (D / g + n in the 1-norm). g is so small that this costs 0.01 % of noise or less. Grids are
public: they depend on the statistic, and on nobody's values.

**Noise.** The discrete Gaussian on Z^n with parameter s, P(z) ~ exp(-|z|^2 / (2 s^2)), is not
Gaussian-DP. Shifted by a whole vector v its Renyi divergence of any order a is at most
a |v|^2 / (2 s^2), as for the continuous one (Canonne, Kamath and Steinke, 2020), which is zCDP with
rho = |v|^2 / (2 s^2). Rhos of adaptively chosen releases add, also under a filter. So accounts are
kept as for Gaussian noise, with mu^2 = 2 rho, and only the total is converted, by the bound of the
same paper, to (epsilon, delta). That costs 7 % more noise at (1, 1e-6) than the exact curve of the
continuous Gaussian. The discrete Laplace, P(z) ~ exp(-|z| / b), is pure epsilon-DP with
epsilon = |v|_1 / b, and loses nothing.

Real noise comes from OpenDP's samplers and the operating system's entropy. A simulation protects
nobody, so it draws the same distributions from a seed, quickly and in floating point.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation, mu_from_budget, rho_from_budget
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.noise import Noise

if TYPE_CHECKING:
    from tacit.privacy.statistic import Block, Statistic

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Sampler: TypeAlias = Literal["floating-point", "exact"]

ROUNDING = 1e-4
"""By how much rounding may increase a sensitivity, and so the noise, at most."""

# Sums beyond this are not exact in the floats that releases are handed out as, and OpenDP's
# samplers saturate silently at 64 bits.
_LARGEST = 2.0**52
_CHUNK = 1 << 22


def grid_step(statistic: Statistic, norm: Literal["l1", "l2"]) -> float:
    """The step g of a statistic's grid: a power of two that keeps rounding below ``ROUNDING``."""
    size = statistic.layout.size
    sensitivity = statistic.sensitivity(Relation.ZERO_OUT, norm)
    spread = float(size) if norm == "l1" else math.sqrt(size)
    return 2.0 ** math.floor(math.log2(ROUNDING * sensitivity / spread))


def grid_sensitivity(
    statistic: Statistic, relation: Relation, norm: Literal["l1", "l2"], step: float
) -> float:
    """How far two users' rounded vectors are apart at most, in steps."""
    size = statistic.layout.size
    spread = float(size) if norm == "l1" else math.sqrt(size)
    # A few units in the last place, upwards.
    return (statistic.sensitivity(relation, norm) / step + spread) * (1.0 + 1e-12)


def grid_total(statistic: Statistic, block: Block, share: float, step: float) -> Ints:
    """The sum over a block's users of ``share`` times their vectors, each rounded to the grid.

    An aggregate block, which only simulations have, is rounded as a whole.
    """
    size = statistic.layout.size
    bound = abs(share) * statistic.sensitivity(Relation.ZERO_OUT, "l2") / step + 1.0
    if block.users * bound > _LARGEST:
        raise InvalidArgument(
            f"exact sums of {block.users} users do not fit into {_LARGEST:.0f}: use smaller blocks"
        )
    if block.aggregate:
        return np.rint(share * statistic.total(block) / step).astype(np.int64)
    total = np.zeros(size, dtype=np.int64)
    chunk = max(1, _CHUNK // size)
    for start in range(0, block.users, chunk):
        vectors = statistic.contributions(block.take(slice(start, start + chunk)))
        total += np.rint(share * vectors / step).astype(np.int64).sum(axis=0)
    return total


class ExactNoise(Noise):
    """A source of noise in whole numbers; see the module.

    As a :class:`~tacit.privacy.noise.NoiseSource` it would be asked for numbers of scale 1, which
    no grid has. Counters get :meth:`scaled` instead.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        if seed is None:
            # Before anybody's data is there, not at the first release.
            _measurement("gaussian", 1.0)

    def gaussian_steps(self, scale: float, count: int) -> Ints:
        """Independent discrete Gaussians with parameter ``scale``, in steps."""
        _check_scale(scale)
        if self.simulation:
            return _simulated_gaussian(self._ready(count), scale, count)
        return _opendp("gaussian", scale, count)

    def laplace_steps(self, scale: float, count: int) -> Ints:
        """Independent discrete Laplace variables with parameter ``scale``, in steps."""
        _check_scale(scale)
        if self.simulation:
            return _simulated_laplace(self._ready(count), scale, count)
        return _opendp("laplace", scale, count)

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        """One or the other."""
        return self.laplace_steps(scale, count) if pure else self.gaussian_steps(scale, count)

    def scaled(self, scale: float) -> ScaledNoise:
        """The source for a counter whose noise has this scale, in steps."""
        return ScaledNoise(self, scale)


class ScaledNoise:
    """Steps divided by the scale that a counter multiplies them with.

    The product is a whole number up to rounding in the last place; whoever takes what the counter
    publishes rounds it back (:func:`whole`), which is exact as long as it fits into 52 bits.
    """

    def __init__(self, source: ExactNoise, scale: float) -> None:
        self._source = source
        self._scale = scale

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence protects nobody."""
        return self._source.simulation

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Discrete Gaussians over the scale."""
        steps = self._source.gaussian_steps(self._scale, math.prod(shape))
        return steps.reshape(shape) / self._scale

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Discrete Laplace variables over the scale."""
        steps = self._source.laplace_steps(self._scale, math.prod(shape))
        return steps.reshape(shape) / self._scale


# Counters whose releases are sums of independent noise, each drawn once and taken as it is.
_WHOLE = ("blocks", "binary tree", "smooth tree")


def whole_kind(kind: str) -> str:
    """The counter for exact noise: as asked for, if it can be, or the smooth tree for "auto"."""
    if kind == "auto":
        return "smooth tree"
    if kind not in _WHOLE:
        raise InvalidArgument(
            f"a {kind} counter adds fractions of old noise up, which no grid holds: with exact "
            f"noise take one of {', '.join(_WHOLE)}"
        )
    return kind


def exact_words(pure: bool, epsilon: float, delta: float) -> str:
    """What the noise is and what it costs, for a guarantee."""
    rounding = f"values rounded to a grid, for which {ROUNDING:.2%} of noise is added"
    if pure:
        return f"discrete Laplace noise, {rounding}"
    rho = rho_from_budget(epsilon, delta)
    more = math.sqrt(mu_from_budget(epsilon, delta) ** 2 / (2.0 * rho)) - 1.0
    return (
        f"discrete Gaussian noise, {rho:.6g}-zCDP ({more:.1%} more than continuous noise needs), "
        f"{rounding}"
    )


def whole(values: Floats) -> Floats:
    """The whole numbers that were meant."""
    rounded: Floats = np.rint(values)
    return rounded


def _check_scale(scale: float) -> None:
    if not 0.0 < scale < _LARGEST:
        raise InvalidArgument(
            f"exact noise of scale {scale:.6g} steps does not fit into {_LARGEST:.0f}"
        )


def _opendp(kind: Literal["gaussian", "laplace"], scale: float, count: int) -> Ints:
    measurement = _measurement(kind, scale)
    drawn: list[int] = measurement([0] * count)
    return np.array(drawn, dtype=np.int64)


def _measurement(kind: Literal["gaussian", "laplace"], scale: float) -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise MissingExtra(
            "exact noise needs OpenDP: pip install 'tacit[exact]' (or give noise_seed to simulate)"
        ) from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)
    return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale)


def _simulated_laplace(rng: np.random.Generator, scale: float, count: int) -> Ints:
    """The difference of two geometric variables with ratio exp(-1 / scale)."""
    stop = -math.expm1(-1.0 / scale)
    first, second = rng.geometric(stop, (2, count))
    difference: Ints = (first - second).astype(np.int64)
    return difference


def _simulated_gaussian(rng: np.random.Generator, scale: float, count: int) -> Ints:
    """Discrete Laplace candidates, accepted in proportion to the Gaussian."""
    width = math.floor(scale) + 1
    found: list[Ints] = []
    missing = count
    while missing > 0:
        tries = 2 * missing + 16
        candidates = _simulated_laplace(rng, float(width), tries)
        excess = (np.abs(candidates) - scale**2 / width) / scale
        kept = candidates[rng.random(tries) < np.exp(-0.5 * excess**2)][:missing]
        found.append(kept)
        missing -= len(kept)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
