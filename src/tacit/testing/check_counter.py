"""``check_counter``: everything a counter promises, checked on anyone's counter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.counters import Counter
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.errors import CheckFailed, HorizonExceeded, InvalidArgument, require
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.statistic import Floats
from tacit.store.values import dump, load
from tacit.testing.mechanisms import ExactAudit, audit_counter, audit_linear, counter_matrices

_DISTRIBUTIONS = {"mu": "gaussian", "epsilon": "laplace"}

_SENSITIVITY = 2.0
# Where a counter's cost is audited beside its length: other calibrations, other shapes.
_SHORT = 3
_SENSITIVITIES = (0.3, 2.0)
_COSTS = (0.05, 0.7, 3.0)
_SHAPES = ((), (2,), (2, 2), (2, 2, 2), (48,))


@dataclass(frozen=True)
class CounterReport:
    """Report of ``check_counter``: exact audits by number of releases."""

    audits: dict[int, ExactAudit]

    @property
    def tightness(self) -> dict[int, float]:
        """Exact over claimed cost by number of releases: 1 means that no noise is wasted."""
        return {n: audit.tightness for n, audit in self.audits.items()}


def check_counter(
    make: Callable[..., Counter],
    *,
    laplace: bool = False,
    releases: int = 33,
    lengths: tuple[int, ...] = (1, 2, 3, 4, 7, 8, 9, 31, 64, 65, 130),
    attained: float | None = None,
) -> CounterReport:
    """Checks everything a counter promises.

    Noise-free sums are exact; the exact audit of the code does not exceed the claim, at several
    lengths, sensitivities and costs, and for items of all shapes; the noise is of the claimed
    distribution and size, and linear in what was drawn for each coordinate; it does not depend on
    the items, so streams may be adaptive; a simulation resumes identically and a real
    run with fresh noise; there are no more releases than declared.

    Args:
        make: a counter class, or a function with the same arguments.
        laplace: check it with Laplace instead of Gaussian noise.
        releases: length of the streams.
        lengths: at which lengths the exact audit is made.
        attained: fail where less than this fraction of the claimed cost is really spent (too
            much noise). In any case a cost may not be used up at one calibration or shape and
            less than half at another.

    >>> from tacit.privacy.counters import SmoothTree
    >>> check_counter(SmoothTree, releases=8, lengths=(8,)).tightness[8].__round__(3)
    1.0
    """
    unit, cost = ("epsilon", 0.9) if laplace else ("mu", 0.7)
    build = _Builder(make, unit, cost, releases)
    build(())  # what it refuses it says itself
    audits: dict[int, ExactAudit] = {}
    for n in (*lengths, releases):
        audits[n] = _audit_vectors(build, n)
        _judge(build, audits[n], f"at {n} releases", attained)
    _check_short(build, attained)
    _check_noise(build)
    _check_horizon(build)
    for shape in ((4,), (), (2, 4)):
        for size in (1.0, -1.0, 1e-6, 1e6, -1e6):
            _check_adaptive(build, shape, size)
    _check_resume(build)
    return CounterReport(audits)


@dataclass(frozen=True)
class _Builder:
    make: Callable[..., Counter]
    unit: str
    cost: float
    releases: int

    def __call__(
        self, shape: tuple[int, ...], source: NoiseSource | None = None, **options: Any
    ) -> Counter:
        arguments: dict[str, Any] = {"sensitivity": _SENSITIVITY, "releases": self.releases}
        arguments |= {self.unit: self.cost} | options
        counter = self.make(shape=shape, source=Noise(7) if source is None else source, **arguments)
        for name, value in arguments.items():
            claim = getattr(counter, name)
            require(claim == value, f"built with {name}={value!r}, it claims {claim!r}")
        law, expected = counter.distribution, _DISTRIBUTIONS[self.unit]
        words = f"with a claim of {self.unit} the distribution must be {expected!r}, not {law!r}"
        require(law == expected, words)
        return counter


# Exact audits of what ``make`` makes.


def _check_short(build: _Builder, attained: float | None) -> None:
    """The noise follows the sensitivity and the cost that were asked for.

    It does for every shape of item, in every direction that a user may change it.
    """
    reference = _audit_vectors(build, _SHORT).tightness
    for sensitivity in _SENSITIVITIES:
        for cost in _COSTS:
            audit = _audit_vectors(build, _SHORT, sensitivity, cost)
            where = f"at sensitivity {sensitivity:g}, {build.unit} {cost:g}, {_SHORT} releases"
            _judge(build, audit, where, attained, reference)

    for shape in _SHAPES:
        audit = _audit_shape(build, shape)
        _judge(build, audit, f"for items of shape {shape}", attained, reference)


def _judge(
    build: _Builder, audit: ExactAudit, where: str, attained: float | None, reference: float = 0.0
) -> None:
    require(
        audit.unit == build.unit,
        f"{where}: the claim is {build.unit}, but the noise is {_DISTRIBUTIONS[audit.unit]}",
    )
    require(audit.passed, f"{where}: {audit}")
    ratio = audit.tightness
    require(
        ratio >= 0.5 * reference,
        f"{where}: {audit.unit} {audit.cost:.6g} is {ratio:.3f} of the claim, elsewhere it is "
        f"{reference:.3f}: the noise must follow the sensitivity and the cost alone",
    )
    if attained is not None:
        require(ratio >= attained, f"{where}: the claim is loose, {ratio:.3f} of it is spent")


def _audit_vectors(
    build: _Builder, releases: int, sensitivity: float = _SENSITIVITY, cost: float | None = None
) -> ExactAudit:
    """A whole stream of vectors, whose coordinates are taken to be alike."""
    claimed = build.cost if cost is None else cost

    def make(dimension: int, source: NoiseSource) -> Counter:
        options = {"releases": releases, "sensitivity": sensitivity, build.unit: claimed}
        return build((dimension,), source, **options)

    try:
        return audit_counter(make, releases, sensitivity=sensitivity, claimed=claimed)
    except (InvalidArgument, IndexError) as error:
        raise CheckFailed(f"at {releases} releases no exact audit is possible: {error}") from error


def _audit_shape(build: _Builder, shape: tuple[int, ...]) -> ExactAudit:
    """A short stream, scalar by scalar: nothing is assumed of coordinates."""

    def mechanism(items: Floats, source: NoiseSource) -> Any:
        counter = build(shape, source, releases=_SHORT)
        return [counter.release(item) for item in items]

    basis = np.eye(math.prod(shape)).reshape(-1, *shape)
    # Each basis item is a change of the item at one position of a stream.
    changes: Any = np.zeros((_SHORT, len(basis), _SHORT, *shape))
    changes[np.arange(_SHORT), :, np.arange(_SHORT)] = basis
    try:
        costs = [_SENSITIVITY * _cost(build.unit, mechanism, at_one) for at_one in changes]
    except InvalidArgument as error:
        raise CheckFailed(f"for items of shape {shape}: {error}") from error
    return ExactAudit(build.unit, build.cost, np.array(costs), _SHORT * len(basis))


def _cost(unit: str, mechanism: Callable[[Floats, NoiseSource], Any], changes: Any) -> float:
    """The largest epsilon of the changes, or mu over all their unit combinations.

    mu^2 is a quadratic form in the change, so the costs of all e_i and e_i + e_j determine it.
    """
    if unit == "epsilon":
        return audit_linear(mechanism, list(changes)).cost
    size = len(changes)
    rows, columns = np.triu_indices(size)
    costs = audit_linear(mechanism, list(changes[rows] + changes[columns])).costs
    if not np.isfinite(costs).all():
        return math.inf
    form = np.zeros((size, size))
    form[rows, columns] = costs**2
    squares = np.diag(form) / 4.0
    form = (np.maximum(form, form.T) - squares - squares[:, np.newaxis]) / 2.0
    return math.sqrt(float(np.linalg.eigvalsh(form)[-1]))


# What is published.


class _Recorded(Noise):
    """A simulation that remembers what it drew, in units of what was asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[Floats] = []

    def steps(self, pure: bool, scale: float, count: int) -> NDArray[np.int64]:
        """Draws, and writes it down."""
        values = super().steps(pure, scale, count)
        self.drawn.append(values / scale)
        return values


def _check_noise(build: _Builder) -> None:
    """The noise of many coordinates is what was drawn for each, and as large as is stated.

    In every coordinate it must be the combination B z of its own draws z that the exact audit was
    of: no draw is cut off, rounded, folded or shared.
    """
    source, size, n = _Recorded(11), 5000, build.releases
    counter = build((size,), source)
    stated = counter.std
    require(stated.shape == (n,), f"std has shape {stated.shape}")
    matrix = counter_matrices(counter, n)[1]
    released = np.stack([counter.release(np.zeros(size)) for _ in range(n)])
    drawn = np.concatenate(source.drawn).reshape(-1, size)
    require(
        len(drawn) == matrix.shape[1],
        f"{len(drawn)} vectors of noise are drawn for {size} numbers, {matrix.shape[1]} for one",
    )
    stds = np.linalg.norm(matrix, axis=1) * (math.sqrt(2.0) if build.unit == "epsilon" else 1.0)
    # The grid, by which noise is a little larger, depends on how many numbers there are.
    expected = (stated / stds)[:, np.newaxis] * (matrix @ drawn)
    gaps = np.abs(released - expected).max(axis=1) / stated
    for t in range(n):
        require(
            math.isclose(stds[t], stated[t], rel_tol=1e-3),
            f"release {t + 1}: the standard deviation is {stds[t]:.6g}, stated is {stated[t]:.6g}",
        )
        words = f"release {t + 1}: the noise of {size} numbers is not linear in their own draws"
        require(float(gaps[t]) <= 1e-9, words)
        same = math.isclose(counter.std_at(t + 1), stated[t], rel_tol=1e-12)
        require(same, f"std_at({t + 1}) differs from std")


def _check_horizon(build: _Builder) -> None:
    """No more releases than the noise is for."""
    counter = build((2,))
    for _ in range(build.releases):
        counter.release(np.ones(2))
    try:
        counter.release(np.ones(2))
    except HorizonExceeded:
        return
    raise CheckFailed("a release beyond the horizon must raise HorizonExceeded")


def _check_adaptive(build: _Builder, shape: tuple[int, ...], size: float) -> None:
    """A release is the sum of the items plus the noise that a stream of zeros has."""
    plain, adaptive = (build(shape, Noise(5)) for _ in range(2))
    zero, total = np.zeros(shape), np.zeros(shape)
    factors = size * np.arange(1.0, 1.0 + zero.size).reshape(shape)
    item = np.full(shape, size)
    # Items are rounded to a grid, each of them by less than this.
    allowed = 1e-4 * _SENSITIVITY
    for t in range(build.releases):
        noise = plain.release(zero)
        total = total + item
        published = adaptive.release(item)
        gap = float(np.abs(published - total - noise).max())
        require(
            gap < allowed * (t + 1) + 1e-13 * float(np.abs(total).max()),
            f"release {t + 1} of items of size {abs(size):g} and shape {shape}: the noise depends "
            f"on the items ({gap:.3g})",
        )
        item = np.sign(published) * factors


def _check_resume(build: _Builder) -> None:
    """Read again, a counter goes on where it was: with its noise, or with fresh real noise."""
    half = build.releases // 2
    items = np.random.default_rng(3).normal(size=(build.releases, 3))
    source = Noise(9)
    simulated = build((3,), source)
    for item in items[:half]:
        simulated.release(item)
    resumed = _read_again(simulated, Noise.from_state(source.state()))
    for item in items[half:]:
        same = np.array_equal(simulated.release(item), resumed.release(item))
        require(same, "a resumed simulation must go on bit for bit")

    real = build((3,), Noise())
    for item in items[:half]:
        real.release(item)
    readers = [real, _read_again(real, Noise()), _read_again(real, Noise())]
    fresh = len({counter.release(items[half]).tobytes() for counter in readers}) == 3
    require(fresh, "a resumed real counter must draw fresh noise")


def _read_again(counter: Counter, source: Noise) -> Counter:
    """The counter as a store gives it back: from its bytes."""
    meta, arrays = load(dump(counter.dump()))
    return revive_counter(meta, arrays, source, type(counter))
