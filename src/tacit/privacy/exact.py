"""Exact noise: whole numbers, drawn without floating-point arithmetic.

Floating-point noise has low-order bits that its theory knows nothing of. Here every user's vector
is rounded to a grid before anything is summed, sums and noise are whole numbers of grid steps, and
what is published is their sum. So there are no other bits.

**Rounding.** The grid has the step g, a power of two. Rounding moves a coordinate by at most g / 2,
so two users' vectors of n coordinates, at most D apart, are at most D / g + sqrt(n) steps apart
after it (D / g + n in the 1-norm). g is so small that this costs 0.01 % of noise or less. Grids are
public: they depend on the statistic, and on nobody's values.

A block of weight w <= 1 is multiplied by it before it is rounded, for afterwards it would leave the
grid. Its users are then w D / g + sqrt(n) steps apart, and not w (D / g + sqrt(n)), which is what
they are charged for. So where m is the smallest weight of a release, its grid is m times finer and
the noise is for D / g + sqrt(n) / m: that is still 0.01 % of noise, and for every w >= m it is true
that w D / g + sqrt(n) <= w (D / g + sqrt(n) / m). A block that weighs less than 2^-20 of the
heaviest is left out and pays nothing.

**Noise.** The discrete Gaussian on Z^n with parameter s, P(z) ~ exp(-|z|^2 / (2 s^2)), is not
Gaussian-DP. Shifted by a whole vector v its Renyi divergence of any order a is at most
a |v|^2 / (2 s^2), as for the continuous one (Canonne, Kamath and Steinke, 2020), which is zCDP with
rho = |v|^2 / (2 s^2). Rhos of adaptively chosen releases add, also under a filter that stops when
their sum reaches a limit (Feldman and Zrnic, 2021: it holds for each order a, and the filter is the
same for all). So accounts are kept as for Gaussian noise, with mu^2 = 2 rho, and only the total is
converted, by the bound of the first paper, to (epsilon, delta). That costs 7 % more noise at
(1, 1e-6) than the exact curve of the continuous Gaussian. The discrete Laplace,
P(z) ~ exp(-|z| / b), is pure epsilon-DP with epsilon = |v|_1 / b, and loses nothing. Both are
products over coordinates, so divergences add over them.

A counter adds up noise of its nodes, each drawn once. A user's change moves each node she is in by
her whole vector, so a counter is a composition of such releases, and what it publishes are sums.

**Range.** A single release adds 64-bit integers: sums are at most 2^61 (refused by the number of
users, which is public, before anybody is charged) and the noise has a scale below 2^51, so that it
leaves 2^62 with a probability below exp(-2000). What is made a float is their sum, and
rounding it is post-processing. A counter adds whole numbers in floats, which is exact below 2^53:
sums are at most 2^52, and the noise of every release has a standard deviation of at most 2^43, so
that it leaves 2^52 with a probability below exp(-300) (of m Laplace nodes of scale b, by Chernoff,
2 (4/3)^m exp(-t / (2 b)) with t = 2^52 = 512 sqrt(2 m) b; up to m = 10^6).

Real noise comes from OpenDP's samplers and the operating system's entropy. A simulation protects
nobody, so it draws the same distributions from a seed, quickly and in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.gaussian_dp import mu_from_budget
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import StreamedBlock
from tacit.privacy.zcdp import rho_from_budget

if TYPE_CHECKING:
    from tacit.privacy.counters.base import Counter
    from tacit.privacy.statistic import Block, Statistic

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Sampler: TypeAlias = Literal["floating-point", "exact"]

ROUNDING = 1e-4
"""By how much rounding may increase a sensitivity, and so the noise, at most."""

SMALLEST_SHARE = 2.0**-20
"""What a block must weigh, in parts of the heaviest one, to be in a release at all."""

_LARGEST_SUM = 2.0**61
_LARGEST_FLOAT_SUM = 2.0**52
_LARGEST_SCALE = 2.0**51
_LARGEST_COUNTER_STD = 2.0**43
_CHUNK = 1 << 22

# From this scale on sums of discrete Gaussians are discrete Gaussian, but for exp(-pi^2 100).
_SMOOTH = 10.0


def grid_step(statistic: Statistic, norm: Literal["l1", "l2"], share: float = 1.0) -> float:
    """The step g of a statistic's grid: a power of two that keeps rounding below ``ROUNDING``.

    ``share`` is the smallest weight of a block, where the largest is 1.
    """
    sensitivity = statistic.sensitivity(Relation.ZERO_OUT, norm)
    step = ROUNDING * share * sensitivity / _spread(statistic, norm)
    if not 1e-150 < step < 1e150:
        raise InvalidArgument(
            f"{statistic.name} has a sensitivity of {sensitivity:.6g}, for which there is no grid "
            f"in floats: a step of {step:.6g} is out of range"
        )
    return 2.0 ** math.floor(math.log2(step))


def grid_sensitivity(
    statistic: Statistic, relation: Relation, norm: Literal["l1", "l2"], step: float
) -> float:
    """How far two users' rounded vectors are apart at most, in steps."""
    apart = statistic.sensitivity(relation, norm) / step + _spread(statistic, norm)
    # A few units in the last place, upwards.
    return apart * (1.0 + 1e-12)


def uneven_rounding(statistic: Statistic, norm: Literal["l1", "l2"], share: float) -> float:
    """What that grows by so that it holds per unit of weight, from a weight of ``share`` to 1."""
    return _spread(statistic, norm) * (1.0 / share - 1.0)


def _spread(statistic: Statistic, norm: Literal["l1", "l2"]) -> float:
    """How far two users can be apart by rounding alone, in steps."""
    size = statistic.layout.size
    return float(size) if norm == "l1" else math.sqrt(size)


def heard_shares(shares: Mapping[int, float]) -> tuple[dict[int, float], float]:
    """Weights by block, with 0 in place of those too small to be heard, and the smallest left."""
    heard = {b: w if abs(w) >= SMALLEST_SHARE else 0.0 for b, w in shares.items()}
    return heard, min(abs(w) for w in heard.values() if w != 0.0)


def reach(statistic: Statistic, step: float, users: int, share: float = 1.0) -> float:
    """How many steps a sum over so many users can have at most, whatever their values are."""
    length = statistic.sensitivity(Relation.ZERO_OUT, "l2") / step
    return users * (abs(share) * length + 1.0) if share else 0.0


def check_reach(steps: float, *, floats: bool = False) -> None:
    """Refuses sums that might not fit: into integers, or into the floats that counters keep."""
    limit = _LARGEST_FLOAT_SUM if floats else _LARGEST_SUM
    if steps > limit:
        raise InvalidArgument(
            f"exact sums of so many users can reach {steps:.3g} steps, but must stay below "
            f"{limit:.3g}: use fewer users, or blocks whose weights differ less"
        )


def check_scale(scale: float, largest: float = _LARGEST_SCALE) -> None:
    """Refuses noise that would not fit, before anybody is charged for it."""
    if not 0.0 < scale <= largest:
        raise InvalidArgument(
            f"exact noise must have a scale of at most {largest:.3g} steps, got {scale:.3g}: this "
            f"budget is too small for this statistic"
        )


def grid_total(statistic: Statistic, block: Block, share: float, step: float) -> Ints:
    """The sum over a block's users of ``share`` times their vectors, each rounded to the grid.

    An aggregate block, which only simulations have, is rounded as a whole.
    """
    size = statistic.layout.size
    total = np.zeros(size, dtype=np.int64)
    if isinstance(block, StreamedBlock):
        users = 0
        for part in block.parts():
            total += grid_total(statistic, part, share, step)
            users += part.users
        if users != block.users:
            raise InvalidArgument(f"a block of {block.users} users has parts of {users}")
        return total
    if block.aggregate:
        return np.rint(share * statistic.total(block) / step).astype(np.int64)
    chunk = max(1, _CHUNK // size)
    for start in range(0, block.users, chunk):
        vectors = statistic.contributions(block.take(slice(start, start + chunk)))
        total += np.rint(share * vectors / step).astype(np.int64).sum(axis=0)
    return total


class ExactNoise(Noise):
    """A source of noise in whole numbers; see the module.

    As a :class:`~tacit.privacy.noise.NoiseSource` it would be asked for numbers of scale 1, which
    no grid has, and refuses. Counters get :meth:`scaled` instead.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        if seed is None:
            # Before anybody's data is there, not at the first release.
            _measurement(False, 1.0)

    def gaussian_steps(self, scale: float, count: int) -> Ints:
        """Independent discrete Gaussians with parameter ``scale``, in steps."""
        return self._drawn(False, scale, count)

    def laplace_steps(self, scale: float, count: int) -> Ints:
        """Independent discrete Laplace variables with parameter ``scale``, in steps."""
        return self._drawn(True, scale, count)

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        """One or the other."""
        return self.laplace_steps(scale, count) if pure else self.gaussian_steps(scale, count)

    def _drawn(self, pure: bool, scale: float, count: int) -> Ints:
        check_scale(scale)
        if self.simulation:
            simulated = _simulated_laplace if pure else _simulated_gaussian
            return simulated(self._ready(count), scale, count)
        drawn: list[int] = _measurement(pure, scale)([0] * count)
        return np.array(drawn, dtype=np.int64)

    def sum_of_steps(self, pure: bool, scale: float, users: int, count: int) -> Ints:
        """The sum of ``users`` independent draws, ``count`` times; in simulations only.

        Of discrete Laplace variables it is the difference of two negative binomials. A sum of
        discrete Gaussians is no discrete Gaussian, but of scale s >= 10 it cannot be told from
        one: the characteristic functions differ by less than n exp(-pi^2 s^2) < n 1e-428.
        """
        if not self.simulation:
            raise InvalidArgument("real noise is drawn user by user, on her device")
        check_scale(scale * math.sqrt(max(users, 1)))
        if users == 0:
            return np.zeros(count, dtype=np.int64)
        rng = self._ready(count)
        if pure:
            check_reach(users * scale)
            stop = -math.expm1(-1.0 / scale)
            first, second = rng.negative_binomial(users, stop, (2, count))
            difference: Ints = (first - second).astype(np.int64)
            return difference
        if scale >= _SMOOTH:
            return _simulated_gaussian(rng, math.sqrt(users) * scale, count)
        total = np.zeros(count, dtype=np.int64)
        for _ in range(users):
            total += _simulated_gaussian(rng, scale, count)
        return total

    def scaled(self, counter: Counter) -> ScaledNoise:
        """The source for a counter of whole numbers, at the counter's scale."""
        check_scale(float(counter.std.max()), _LARGEST_COUNTER_STD)
        return ScaledNoise(self, counter.scale)

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Refused."""
        raise InvalidArgument("exact noise has no fractions: no standard normals")

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Refused."""
        raise InvalidArgument("exact noise has no fractions: no Laplace variables of scale 1")

    def laplace_sum(self, count: int, shape: tuple[int, ...]) -> Floats:
        """Refused."""
        return self.laplace(shape)

    def __reduce__(self) -> tuple[Any, ...]:
        # The parent's would come back as a floating-point source.
        super().__reduce__()
        return (ExactNoise.from_state, (self.state(),))


class ScaledNoise:
    """Whole steps of the scale that a counter asks for; the counter adds them as they are."""

    def __init__(self, source: ExactNoise, scale: float) -> None:
        self._source = source
        self._scale = scale

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence protects nobody."""
        return self._source.simulation

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Discrete Gaussians."""
        return self._steps(False, shape)

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Discrete Laplace variables."""
        return self._steps(True, shape)

    def _steps(self, pure: bool, shape: tuple[int, ...]) -> Floats:
        steps = self._source.steps(pure, self._scale, math.prod(shape))
        return steps.reshape(shape).astype(np.float64)


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
    # Upwards: six digits must never be a stronger claim than the number.
    shown = f"{rho * (1.0 + 5e-6):.6g}"
    return (
        f"discrete Gaussian noise, {shown}-zCDP ({more:.1%} more than continuous noise needs), "
        f"{rounding}"
    )


def _measurement(pure: bool, scale: float) -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise MissingExtra(
            "exact noise needs OpenDP: pip install 'tacit[exact]' (or give noise_seed to simulate)"
        ) from error
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if pure:
        return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)


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
