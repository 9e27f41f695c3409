"""Conformance checks that anyone can run on their own counters and statistics.

``check_counter`` and ``check_statistic`` are what Tacit's own pass. They raise
:class:`CheckFailed` with the number that is wrong, and return a short report otherwise. Random
checks have a fixed seed and say how improbable a false alarm is.

They find slips, not sabotage: code that recognises a check, or goes wrong only at a size that is
not tried, passes. Neither replaces the proof.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.audit import BasisNoise, ExactAudit, audit_counter, audit_linear
from tacit.privacy.budget import Relation
from tacit.privacy.counters import Counter
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitError
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.privacy.storage import read_state
from tacit.privacy.symmetric import packed_size, unpack

# Six standard deviations: a false alarm in 5e8 tests, and fewer than 1e3 are made per check.
_SIGMAS = 6.0
# Eight for correlations, of which 1e5 are looked at: a false alarm in 1e10 checks.
_CORRELATION_SIGMAS = 8.0

_DISTRIBUTIONS = {"mu": "gaussian", "epsilon": "laplace"}

_SENSITIVITY = 2.0
# Where a counter's cost is audited beside its length: other calibrations, other shapes.
_SHORT = 3
_SENSITIVITIES = (0.3, 2.0)
_COSTS = (0.05, 0.7, 3.0)
_SHAPES: tuple[tuple[int, ...], ...] = ((), (2,), (2, 2), (2, 2, 2), (48,))
_SYMMETRIC_SHAPES: tuple[tuple[int, ...], ...] = ((2, 2), (2, 2, 2))

# Block sizes at which a statistic's total is compared; a fast path may begin anywhere.
_TOTALS = (0, 1, 300, 3001)
# Budgets at which randomised response is played through.
_EPSILONS = (0.5, 4.0)


class CheckFailed(TacitError, AssertionError):
    """A conformance check failed; the message says which and by how much."""


@dataclass(frozen=True)
class CounterReport:
    """What ``check_counter`` saw.

    Attributes:
        kind: the counter's name.
        audits: exact audits by number of releases (none for a counter without noise).
        worst_std_ratio: the empirical over the claimed standard deviation, farthest from 1.
    """

    kind: str
    audits: dict[int, ExactAudit]
    worst_std_ratio: float

    @property
    def tightness(self) -> dict[int, float]:
        """Exact over claimed cost by number of releases: 1 means that no noise is wasted."""
        return {n: _tightness(audit) for n, audit in self.audits.items()}


def check_counter(
    make: Callable[..., Counter],
    *,
    laplace: bool = False,
    releases: int = 33,
    lengths: tuple[int, ...] = (1, 2, 3, 4, 7, 8, 9, 31, 64, 65, 130),
    attained: float | None = None,
) -> CounterReport:
    """Checks everything a counter promises.

    Noise-free sums are exact (numbers, vectors, symmetric matrices); the exact audit of the code
    does not exceed the claim, at several lengths, for small and large sensitivities and costs,
    and, coordinate by coordinate, for items of all shapes; the noise is of the claimed
    distribution and linear in what was drawn; the claimed standard deviation is the empirical
    one, and coordinates are uncorrelated; a simulation resumes identically and a real run with
    fresh noise; releases beyond the horizon, wrong shapes and infinite items are refused and
    change nothing; the noise does not depend on the items, small or huge, so streams may be
    adaptive; the state is no larger than promised and secret.

    Args:
        make: a counter class, or a function with the same arguments.
        laplace: check it with Laplace instead of Gaussian noise.
        releases: length of the streams.
        lengths: at which lengths the exact audit is made.
        attained: fail where less than this fraction of the claimed cost is really spent (too
            much noise). In any case a cost may not be used up at one calibration or shape and
            less than half at another.

    >>> from tacit.privacy.counters import BinaryTree
    >>> check_counter(BinaryTree, releases=8, lengths=(8,)).tightness[8].__round__(6)
    1.0
    """
    unit, cost = ("epsilon", 0.9) if laplace else ("mu", 0.7)
    build = _Builder(make, unit, _accepted_cost(make, unit, cost), releases)
    _check_sums(build)
    audits: dict[int, ExactAudit] = {}
    if build.cost is not None:
        _check_draws(build)
        for n in (*lengths, releases):
            audits[n] = _check_length(build, n, attained)
        _check_calibrations(build, attained)
        _check_shapes(build, attained)
        _check_linear(build)
    ratio = _check_std(build, laplace)
    _check_refusals(build)
    _check_adaptive(build)
    with tempfile.TemporaryDirectory() as folder:
        _check_resume(build, Path(folder))
    return CounterReport(build(()).kind, audits, ratio)


def _accepted_cost(make: Callable[..., Counter], unit: str, cost: float) -> float | None:
    """The cost, or none for a counter that takes none because it adds no noise."""
    try:
        counter = make(releases=1, **{unit: cost})
    except InvalidArgument:
        with contextlib.suppress(InvalidArgument):
            if make(releases=1).distribution == "none":
                return None
        raise
    expected = _DISTRIBUTIONS[unit]
    _require(
        counter.distribution == expected,
        f"with a claim of {unit} the distribution must be {expected!r}, "
        f"not {counter.distribution!r}",
    )
    return cost


@dataclass(frozen=True)
class _Builder:
    make: Callable[..., Counter]
    unit: str
    cost: float | None
    releases: int

    def __call__(
        self, shape: tuple[int, ...], source: NoiseSource | None = None, **options: Any
    ) -> Counter:
        arguments: dict[str, Any] = {"sensitivity": _SENSITIVITY, "releases": self.releases}
        if self.cost is not None:
            arguments[self.unit] = self.cost
        arguments |= options
        counter = self.make(shape=shape, source=Noise(7) if source is None else source, **arguments)
        for name, value in arguments.items():
            claim = getattr(counter, name)
            _require(claim == value, f"built with {name}={value!r}, it claims {claim!r}")
        return counter

    @property
    def symmetric_too(self) -> bool:
        return self.unit == "mu"


def _require(passed: bool, message: str) -> None:
    if not passed:
        raise CheckFailed(message)


def _check_sums(build: _Builder) -> None:
    rng = np.random.default_rng(1)
    shapes: list[tuple[tuple[int, ...], bool]] = [((), False), ((3,), False), ((2, 4), False)]
    if build.symmetric_too:
        shapes += [((3, 3), True), ((2, 3, 3), True)]
    for shape, symmetric in shapes:
        items = rng.normal(size=(build.releases, *shape))
        if symmetric:
            items += np.swapaxes(items, -1, -2)
        counter = build(shape, BasisNoise(), symmetric=symmetric)
        sums = np.stack([counter.release(item) for item in items])
        error = float(np.abs(sums - np.cumsum(items, axis=0)).max())
        _require(error < 1e-10, f"without noise the sums of shape {shape} are off by {error:.3g}")


# Exact audits of what ``make`` makes.


def _check_length(build: _Builder, releases: int, attained: float | None) -> ExactAudit:
    audit = _audit_vectors(build, releases)
    _judge(build, audit, f"at {releases} releases", attained)
    return audit


def _check_calibrations(build: _Builder, attained: float | None) -> None:
    """The noise follows the sensitivity and the cost that were asked for."""
    reference = _tightness(_audit_vectors(build, _SHORT))
    for sensitivity in _SENSITIVITIES:
        for cost in _COSTS:
            audit = _audit_vectors(build, _SHORT, sensitivity=sensitivity, cost=cost)
            where = f"at sensitivity {sensitivity:g}, {build.unit} {cost:g}, {_SHORT} releases"
            _judge(build, audit, where, attained, reference)


def _check_shapes(build: _Builder, attained: float | None) -> None:
    """Every shape of item, in every direction that a user may change it."""
    reference = _tightness(_audit_vectors(build, _SHORT))
    shapes = [(shape, False) for shape in _SHAPES]
    if build.symmetric_too:
        shapes += [(shape, True) for shape in _SYMMETRIC_SHAPES]
    for shape, symmetric in shapes:
        audit = _audit_shape(build, shape, symmetric)
        kind = "symmetric items" if symmetric else "items"
        _judge(build, audit, f"for {kind} of shape {shape}", attained, reference)


def _judge(
    build: _Builder,
    audit: ExactAudit,
    where: str,
    attained: float | None,
    reference: float = 0.0,
) -> None:
    _require(
        audit.unit == build.unit,
        f"{where}: the claim is {build.unit}, but the noise is {_DISTRIBUTIONS[audit.unit]}",
    )
    _require(audit.passed, f"{where}: {audit}")
    ratio = _tightness(audit)
    _require(
        ratio >= 0.5 * reference,
        f"{where}: {audit.unit} {audit.cost:.6g} is {ratio:.3f} of the claim, elsewhere it is "
        f"{reference:.3f}: the noise must follow the sensitivity and the cost alone",
    )
    if attained is not None:
        _require(ratio >= attained, f"{where}: the claim is loose, {ratio:.3f} of it is spent")


def _tightness(audit: ExactAudit) -> float:
    return audit.cost / audit.claimed if audit.claimed else math.inf


def _audit_vectors(
    build: _Builder,
    releases: int,
    *,
    sensitivity: float = _SENSITIVITY,
    cost: float | None = None,
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


def _audit_shape(build: _Builder, shape: tuple[int, ...], symmetric: bool) -> ExactAudit:
    """A short stream, scalar by scalar: nothing is assumed of coordinates."""

    def mechanism(items: Floats, source: NoiseSource) -> list[Floats]:
        counter = build(shape, source, releases=_SHORT, symmetric=symmetric)
        return [counter.release(item) for item in items]

    basis = _basis(shape, symmetric)
    audit = _laplace_cost if build.unit == "epsilon" else _gaussian_cost
    try:
        costs = [_SENSITIVITY * audit(mechanism, _changes(basis, k)) for k in range(_SHORT)]
    except InvalidArgument as error:
        raise CheckFailed(f"for items of shape {shape}: {error}") from error
    return ExactAudit(build.unit, build.cost, np.array(costs), _SHORT * len(basis))


def _basis(shape: tuple[int, ...], symmetric: bool) -> Floats:
    """Orthonormal items; in the Frobenius norm, if symmetric."""
    if not symmetric:
        size = math.prod(shape)
        return np.eye(size).reshape(size, *shape)
    packed = packed_size(shape[-1])
    size = math.prod(shape[:-2]) * packed
    return unpack(np.eye(size).reshape(size, *shape[:-2], packed), shape[-1])


def _changes(basis: Floats, position: int) -> Floats:
    """Each basis item as a change of the item at ``position`` of a stream."""
    changes = np.zeros((len(basis), _SHORT, *basis.shape[1:]))
    changes[:, position] = basis
    return changes


def _gaussian_cost(
    mechanism: Callable[[Floats, NoiseSource], list[Floats]], changes: Floats
) -> float:
    """The largest mu over all unit combinations of the changes.

    mu^2 is a quadratic form in the change, so the costs of all e_i and e_i + e_j determine it.
    """
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


def _laplace_cost(
    mechanism: Callable[[Floats, NoiseSource], list[Floats]], changes: Floats
) -> float:
    """The largest epsilon over all changes of 1-norm 1, which a basis item attains.

    Publishing A x + B z with B invertible is publishing B^-1 A x + z.
    """
    counting = _OneLaplace(None)
    zero = np.zeros_like(changes[0])
    size = np.ravel(mechanism(zero, counting)).size
    if counting.draws != size:
        raise InvalidArgument(f"{counting.draws} Laplace variables for {size} published numbers")
    noise = np.stack([np.ravel(mechanism(zero, _OneLaplace(k))) for k in range(size)], axis=1)
    shifts = np.stack([np.ravel(mechanism(v, _OneLaplace(None))) for v in changes], axis=1)
    if np.linalg.matrix_rank(noise) < size:
        return math.inf
    return float(np.abs(np.linalg.solve(noise, shifts)).sum(axis=0).max())


class _OneLaplace:
    """Zeros, but for a one at the k-th Laplace variable drawn."""

    simulation = True

    def __init__(self, k: int | None) -> None:
        self._k = k
        self.draws = 0

    def normal(self, shape: tuple[int, ...]) -> Floats:
        raise InvalidArgument("the claim is epsilon, but some of the noise is gaussian")

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        values = np.zeros(math.prod(shape))
        if self._k is not None and 0 <= self._k - self.draws < values.size:
            values[self._k - self.draws] = 1.0
        self.draws += values.size
        return values.reshape(shape)


class _Multiplied:
    """Simulated noise, multiplied by a factor, and which distributions were asked for."""

    simulation = True

    def __init__(self, seed: int, factor: float) -> None:
        self._noise = Noise(seed)
        self._factor = factor
        self.asked: set[str] = set()

    def normal(self, shape: tuple[int, ...]) -> Floats:
        self.asked.add("gaussian")
        return self._factor * self._noise.normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        self.asked.add("laplace")
        return self._factor * self._noise.laplace(shape)


def _check_draws(build: _Builder) -> None:
    """All noise is of the claimed distribution."""
    for shape in ((), (5,), (2, 2)):
        source = _Multiplied(3, 1.0)
        counter = build(shape, source)
        for _ in range(build.releases):
            counter.release(np.zeros(shape))
        _require(
            source.asked == {_DISTRIBUTIONS[build.unit]},
            f"the claim is {build.unit}, but the noise for items of shape {shape} is "
            f"{' and '.join(sorted(source.asked)) or 'not drawn from the source'}",
        )


def _check_linear(build: _Builder) -> None:
    """The exact audits are of linear mechanisms: no draw is cut off, rounded or folded."""
    for factor in (-1.0, 1e-3, 1e3):
        plain, multiplied = build((4,), Noise(13)), build((4,), _Multiplied(13, factor))
        for t in range(build.releases):
            expected = factor * plain.release(np.zeros(4))
            gap = float(np.abs(multiplied.release(np.zeros(4)) - expected).max())
            scale = abs(factor) * plain.std_at(t + 1)
            _require(gap <= 1e-9 * scale, f"release {t + 1}: noise is not linear in its draws")


# What is published.


def _check_std(build: _Builder, laplace: bool) -> float:
    """Empirical against claimed standard deviation at every release."""
    coordinates = 50_000
    counter = build((coordinates,), Noise(11))
    claimed = counter.std
    _require(claimed.shape == (build.releases,), f"std has shape {claimed.shape}")
    # The squared noise has relative variance kurtosis - 1: 2 for normal, at most 5 for Laplace.
    band = _SIGMAS * math.sqrt((5.0 if laplace else 2.0) / coordinates)
    worst = 1.0
    for t in range(build.releases):
        noise = counter.release(np.zeros(coordinates))
        if t in (0, build.releases - 1):
            _check_correlation(noise, t + 1)
        if claimed[t] == 0.0:
            _require(not noise.any(), f"release {t + 1} claims no noise and has some")
            continue
        ratio = float((noise @ noise) / coordinates / claimed[t] ** 2)
        _require(
            abs(ratio - 1.0) < band,
            f"release {t + 1}: variance is {ratio:.3f} of the claim (allowed: 1 +- {band:.3f})",
        )
        worst = max(worst, ratio, key=lambda r: abs(math.log(r)))
        _require(
            math.isclose(counter.std_at(t + 1), claimed[t], rel_tol=1e-12),
            f"std_at({t + 1}) differs from std",
        )
    return math.sqrt(worst)


def _check_correlation(noise: Floats, release: int) -> None:
    """No coordinate shares noise with the one a fixed number of places further, at any number."""
    if not noise.any():
        return
    spectrum = np.abs(np.fft.rfft(noise)) ** 2
    correlation = np.fft.irfft(spectrum, noise.size)[1 : noise.size // 2 + 1] / (noise @ noise)
    lag = int(np.abs(correlation).argmax())
    # Every pair half-way around is in the sum twice.
    band = _CORRELATION_SIGMAS * math.sqrt(2.0 / noise.size)
    _require(
        abs(float(correlation[lag])) < band,
        f"release {release}: the noise of coordinates {lag + 1} apart has correlation "
        f"{correlation[lag]:.3f} (allowed: +- {band:.3f})",
    )


def _check_refusals(build: _Builder) -> None:
    counter = build((2,))
    for item, what in ((np.zeros(3), "a wrong shape"), (np.array([np.nan, 0.0]), "a NaN")):
        _refuses(InvalidArgument, partial(counter.release, item), what)
    _require(counter.released == 0, "a refused item was counted")
    for _ in range(build.releases):
        counter.release(np.ones(2))
    before = counter.dump()
    _refuses(HorizonExceeded, lambda: counter.release(np.ones(2)), "a release beyond the horizon")
    after = counter.dump()
    _require(
        before[0] == after[0]
        and all(np.array_equal(before[1][name], after[1][name]) for name in before[1]),
        "a refused release changed the state",
    )


def _refuses(error: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except error:
        return
    raise CheckFailed(f"{what} must raise {error.__name__}")


def _check_adaptive(build: _Builder) -> None:
    """With equal noise an adaptive stream and a zero stream have equal errors."""
    shapes: list[tuple[tuple[int, ...], bool]] = [((4,), False), ((), False)]
    if build.symmetric_too:
        shapes += [((2, 2), True)]
    for shape, symmetric in shapes:
        for size in (1.0, -1.0, 1e-6, 1e6, -1e6):
            _check_stream(build, shape, symmetric, size)


def _check_stream(build: _Builder, shape: tuple[int, ...], symmetric: bool, size: float) -> None:
    plain, adaptive = (build(shape, Noise(5), symmetric=symmetric) for _ in range(2))
    zero, total = np.zeros(shape), np.zeros(shape)
    factors = size * np.arange(1.0, 1.0 + zero.size).reshape(shape)
    item = np.full(shape, size)
    for t in range(build.releases):
        noise = plain.release(zero)
        total = total + item
        published = adaptive.release(item)
        gap = float(np.abs(published - total - noise).max())
        _require(
            gap < 1e-9 + 1e-13 * float(np.abs(total).max()),
            f"release {t + 1} of items of size {abs(size):g} and shape {shape}: the noise depends "
            f"on the items ({gap:.3g})",
        )
        item = np.sign(published) * factors
        if symmetric:
            item = item + np.swapaxes(item, -1, -2)


def _check_resume(build: _Builder, folder: Path) -> None:
    path, half = folder / "counter", build.releases // 2
    rng = np.random.default_rng(3)
    items = rng.normal(size=(build.releases, 3))

    simulated = build((3,), Noise(9))
    for item in items[:half]:
        simulated.release(item)
    simulated.save(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    _require(mode == 0o600, f"a save holds secrets and must have mode 0600, not {mode:o}")
    promised = simulated.memory * simulated.size
    held = sum(a.size for a in simulated.dump()[1].values())
    _require(held <= promised, f"the state has {held} numbers, {promised} were promised")
    resumed = Counter.load(path)
    for item in items[half:]:
        same = np.array_equal(simulated.release(item), resumed.release(item))
        _require(same, "a resumed simulation must go on bit for bit")

    real = build((3,), Noise())
    for item in items[:half]:
        real.release(item)
    real.save(path)
    _require(read_state(path, "counter").meta["noise"] is None, "a real generator was saved")
    first, second = Counter.load(path), Counter.load(path)
    values = [c.release(items[half]) for c in (real, first, second)]
    if real.distribution != "none":
        fresh = len({v.tobytes() for v in values}) == 3
        _require(fresh, "a resumed real counter must draw fresh noise")


@dataclass(frozen=True)
class StatisticReport:
    """What ``check_statistic`` saw: declared sensitivities and the largest found by attack.

    Attributes:
        declared: by name, ``"replace-one l2"`` and so on.
        seen: the largest found, by the same names.
    """

    declared: dict[str, float]
    seen: dict[str, float]

    @property
    def tightness(self) -> dict[str, float]:
        """Largest found over declared: 1 means that nothing is wasted."""
        return {name: self.seen[name] / bound for name, bound in self.declared.items()}


def check_statistic(
    statistic: Statistic,
    sample: Callable[[np.random.Generator, int], Block],
    *,
    users: int = 300,
    rounds: int = 60,
    seed: int = 0,
    attained: float | None = None,
) -> StatisticReport:
    """Attacks a statistic's declared sensitivity and its treatment of hostile values.

    Random users, users with values that are not finite, huge or just out of range, the zero
    element, and a search that keeps changing the best pair found. Also: nothing raises or warns
    on values, or changes them; a user without a single valid value contributes zero; nobody's
    vector depends on anybody else, present, equal or seen before; the total is the sum of the
    vectors for few and for thousands of users; zero-out and replace-one sensitivities fit
    together; randomised response over the declared number of one-hots keeps its epsilon.

    Args:
        statistic: what to attack.
        sample: ``sample(rng, users)`` makes a block of users; include the extreme ones you know.
        users: block size.
        rounds: rounds of search.
        seed: of the attack.
        attained: fail unless every declared bound is reached to this fraction (a loose bound
            wastes the users' data).
    """
    untouched = copy.deepcopy(statistic)
    attack = _Attack(statistic, untouched, sample, np.random.default_rng(seed), users)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            attack.run(rounds)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"values made {statistic.name} raise or warn: {error!r}") from error
    report = StatisticReport(attack.declared, attack.seen)
    if attained is not None:
        for name, ratio in report.tightness.items():
            _require(ratio >= attained, f"{name} is loose: {ratio:.3f} of it was found")
    return report


class _Attack:
    """One attack on one statistic."""

    def __init__(
        self,
        statistic: Statistic,
        untouched: Statistic,
        sample: Callable[[np.random.Generator, int], Block],
        rng: np.random.Generator,
        users: int,
    ) -> None:
        self.statistic = statistic
        self.untouched = untouched
        self.sample = sample
        self.rng = rng
        self.users = users
        self.declared: dict[str, float] = {}
        for relation in Relation:
            bounds = {"l2": statistic.l2(relation), "l1": statistic.l1(relation)}
            for norm, bound in bounds.items():
                if bound is not None:
                    self.declared[f"{relation.value} {norm}"] = bound
        self._check_bounds("l2")
        if any(name.endswith("l1") for name in self.declared):
            self._check_bounds("l1")
        # Vectors are no longer than this, so it is what rounding errors are measured by.
        self.length = statistic.l2(Relation.ZERO_OUT)
        self.seen = dict.fromkeys(self.declared, 0.0)
        self.best: tuple[float, Block] | None = None

    def _check_bounds(self, norm: str) -> None:
        """0 < zero-out <= replace-one <= 2 zero-out, by the triangle inequality."""
        zero, replace = (
            self.declared.get(f"{relation.value} {norm}", math.nan)
            for relation in (Relation.ZERO_OUT, Relation.REPLACE_ONE)
        )
        slack = 1.0 + 1e-9
        _require(
            0.0 < zero <= replace * slack <= 2.0 * zero * slack**2 < math.inf,
            f"{self.statistic.name}: {norm} is declared {zero:g} for zero-out and {replace:g} for "
            f"replace-one; it must be 0 < zero-out <= replace-one <= 2 zero-out, and finite",
        )

    def run(self, rounds: int) -> None:
        fingerprint = self.statistic.fingerprint
        block = self.sample(self.rng, self.users)
        hostile = [self._corrupt(block), self._corrupt(block, whole_rows=True)]
        for candidate in (block, *hostile):
            self._measure(candidate)
            self._check_independence(candidate)
        self._check_memory(block)
        self._check_totals(block)
        for candidate in hostile:
            self._check_totals(candidate)
        self._check_zero(block)
        for _ in range(rounds):
            self._measure(self._evolve())
        _require(
            self.statistic.fingerprint == fingerprint,
            f"{self.statistic.name}: its fields changed; it keeps something of the users it saw",
        )

    def _measure(self, block: Block) -> None:
        """Distances between all users of the block, the zero element included."""
        vectors = self._vectors(block)
        gram = vectors @ vectors.T
        lengths = np.diag(gram)
        squares = lengths[:, np.newaxis] + lengths - 2.0 * gram
        pair = np.unravel_index(int(squares.argmax()), squares.shape)
        farthest = float(np.linalg.norm(vectors[pair[0]] - vectors[pair[1]]))
        longest = float(np.sqrt(lengths.max()))
        self._saw(Relation.REPLACE_ONE, "l2", max(farthest, longest))
        self._saw(Relation.ZERO_OUT, "l2", longest)
        some = self.rng.choice(block.users, min(40, block.users), replace=False)
        chosen = vectors[np.union1d(some, pair)]
        if f"{Relation.ZERO_OUT.value} l1" in self.declared:
            sums = np.abs(vectors).sum(axis=1)
            apart = max(float(np.abs(v - chosen).sum(axis=1).max()) for v in chosen)
            self._saw(Relation.REPLACE_ONE, "l1", max(apart, float(sums.max())))
            self._saw(Relation.ZERO_OUT, "l1", float(sums.max()))
        if self.statistic.one_hots is not None:
            self._check_one_hots(self.statistic.one_hots, vectors, chosen)
        if self.best is None or farthest > self.best[0]:
            rows = np.zeros(block.users, dtype=bool)
            rows[list(pair)] = True
            self.best = (farthest, block.take(rows))

    def _saw(self, relation: Relation, norm: str, value: float) -> None:
        name = f"{relation.value} {norm}"
        if name not in self.declared:
            return
        self.seen[name] = max(self.seen[name], value)
        _require(
            value <= self.declared[name] * (1.0 + 1e-9),
            f"{self.statistic.name}: {name} sensitivity {value:.6g} was found, "
            f"{self.declared[name]:.6g} is declared",
        )

    def _check_one_hots(self, groups: int, vectors: Floats, chosen: Floats) -> None:
        """Plays randomised response through, see :mod:`tacit.privacy.local`.

        A coordinate v is reported as 1 with probability q + v (1/2 - q), independently, so the
        likelihood ratio of the worst report is the product over coordinates of the worse answer's.
        """
        name = self.statistic.name
        _require(groups >= 1, f"{name}: one_hots must be >= 1, got {groups}")
        low, high = float(vectors.min(initial=0.0)), float(vectors.max(initial=0.0))
        _require(
            low >= 0.0 and high <= 1.0,
            f"{name}: one-hots must lie in [0, 1], values from {low:.6g} to {high:.6g} were found",
        )
        bits = vectors[:, ~self.statistic.fractional]
        _require(
            bool(((bits == 0.0) | (bits == 1.0)).all()),
            f"{name}: a coordinate that is not declared fractional must be 0 or 1",
        )
        users = np.vstack([np.zeros(vectors.shape[1]), chosen])
        for epsilon in _EPSILONS:
            flip = 1.0 / (1.0 + math.exp(epsilon / groups))
            chance = flip + users * (0.5 - flip)
            one, zero = np.log(chance), np.log1p(-chance)
            loss = max(
                float(np.maximum(o - one, z - zero).sum(axis=1).max())
                for o, z in zip(one, zero, strict=True)
            )
            _require(
                loss <= epsilon * (1.0 + 1e-9),
                f"{name}: with one_hots = {groups}, randomised response of epsilon {epsilon:g} "
                f"really costs {loss:.6g}",
            )

    def _vectors(self, block: Block, statistic: Statistic | None = None) -> Floats:
        """The statistic's own vectors: what is attacked is its clip, not the gate's second one."""
        name, size = self.statistic.name, self.statistic.layout.size
        before = {key: array.tobytes() for key, array in block.arrays.items()}
        with np.errstate(all="ignore"):
            vectors = (self.statistic if statistic is None else statistic).vectors(block)
        _require(
            vectors.shape == (block.users, size),
            f"{name}: vectors have shape {vectors.shape}, not {(block.users, size)}",
        )
        _require(bool(np.isfinite(vectors).all()), f"{name}: a vector is not finite")
        same = all(array.tobytes() == before[key] for key, array in block.arrays.items())
        _require(same, f"{name}: it changed the raw data of its block")
        return vectors

    def _gap(self, first: Floats, second: Floats) -> float:
        """The largest difference, relative to the longest vector allowed."""
        return float(np.abs(first - second).max(initial=0.0)) / self.length

    def _evolve(self) -> Block:
        """A block around the best pair: its users changed a little, and fresh strangers."""
        fresh = self.sample(self.rng, self.users)
        if self.best is None or self.best[1].users == 0:
            return fresh
        parents = self.best[1]
        picks = self.rng.integers(0, parents.users, self.users)
        picks[: parents.users] = np.arange(parents.users)
        steps = {array.shape[1] for array in parents.arrays.values() if array.ndim > 1}
        copies = {length: self._copied_steps(length) for length in sorted(steps)}
        arrays = {}
        for name, array in parents.arrays.items():
            child = array[picks]
            stranger = np.asarray(fresh[name], dtype=child.dtype)
            take = self.rng.random(child.shape) < self.rng.choice([0.02, 0.2, 0.6])
            child = np.where(take, stranger, child)
            if child.dtype.kind == "f":
                child = self._stretched(child)
            if child.ndim > 1:
                child = child[np.arange(self.users)[:, np.newaxis], copies[child.shape[1]]]
            # The parents themselves stay in the block.
            child[: parents.users] = array
            arrays[name] = child
        return Block(self.users, arrays)

    def _stretched(self, values: NDArray[Any]) -> NDArray[Any]:
        """Some values multiplied by special factors, some users' by factors near 1."""
        factors = self.rng.choice([-1.0, 0.0, 0.5, 2.0, 1e3], values.shape)
        factors = np.where(self.rng.random(values.shape) < 0.1, factors, 1.0)
        some = self.rng.random((self.users,) + (1,) * (values.ndim - 1)) < 0.5
        near = 1.0 + self.rng.choice([0.03, 0.3]) * self.rng.normal(size=values.shape)
        with np.errstate(all="ignore"):
            return (values * np.where(some, factors * near, factors)).astype(values.dtype)

    def _copied_steps(self, length: int) -> NDArray[np.int64]:
        """Per user, which step comes in place of which: some are copied from another.

        The worst users often do the same at every step, and no one step alone leads there.
        """
        steps = np.tile(np.arange(length), (self.users, 1))
        copied = self.rng.random(steps.shape) < self.rng.choice([0.0, 0.3, 1.0], (self.users, 1))
        sources = self.rng.integers(0, length, (self.users, 1))
        return np.where(copied, sources, steps)

    def _corrupt(self, block: Block, whole_rows: bool = False) -> Block:
        arrays = {}
        for name, array in block.arrays.items():
            chosen = self.rng.random(array.shape) < 0.3
            if whole_rows:
                chosen = np.broadcast_to(
                    self.rng.random(array.shape[:1] + (1,) * (array.ndim - 1)) < 0.5, array.shape
                )
            arrays[name] = np.where(chosen, self._hostile(array), array)
        return Block(block.users, arrays)

    def _hostile(self, array: NDArray[Any]) -> NDArray[Any]:
        values: list[Any]
        ends = [array.min(), array.max()] if array.size else [0, 0]
        if array.dtype.kind == "f":
            values = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -1.0, 2.0, 0.5, 1e9]
            near = [float(ends[0]) - 1.0, float(ends[1]) + 1.0, float(ends[1]) + 2.0]
            values += [value for value in near if math.isfinite(value)]
        elif array.dtype.kind == "b":
            values = [True, False]
        else:
            limits = np.iinfo(array.dtype)
            values = [limits.min, limits.max, 0, 1, limits.max - 1, -1]
            # One too many, and one too few, are the mistakes that are made.
            values += [int(ends[0]) - 1, int(ends[1]) + 1, int(ends[1]) + 2]
            values = [value for value in values if limits.min <= value <= limits.max]
        return self.rng.choice(np.array(values, dtype=array.dtype), array.shape)

    def _check_zero(self, block: Block) -> None:
        """A user all of whose numbers are NaN, or the most negative integer, counts zero."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in block.arrays.items():
            if array.dtype.kind == "f":
                arrays[name] = np.full(array.shape, np.nan)
            elif array.dtype.kind == "i":
                arrays[name] = np.full_like(array, np.iinfo(array.dtype.str).min)
            else:
                # Every value of an unsigned or boolean array may be a valid one.
                return
        _require(
            not self._vectors(Block(block.users, arrays)).any(),
            f"{self.statistic.name}: a user of invalid values must count zero",
        )

    def _check_memory(self, block: Block) -> None:
        """Vectors do not depend on the users that the statistic saw before."""
        expected = self._vectors(block)
        for first in (block.take(slice(0, 1)), self._corrupt(block)):
            other = copy.deepcopy(self.untouched)
            self._vectors(first, other)
            gap = self._gap(self._vectors(block, other), expected)
            _require(
                gap < 1e-9,
                f"{self.statistic.name}: vectors depend on users seen before ({gap:.3g})",
            )

    def _check_independence(self, block: Block) -> None:
        """A user's vector alone, among others, and among hostile or equal others is the same."""
        together = self._vectors(block)
        name = self.statistic.name
        for row in self.rng.choice(block.users, min(8, block.users), replace=False):
            gap = self._gap(self._vectors(block.take(slice(row, row + 1)))[0], together[row])
            _require(gap < 1e-9, f"{name}: users depend on each other ({gap:.3g})")
        shuffled = self.rng.integers(0, block.users, block.users)
        for rows in (shuffled, np.sort(shuffled), np.full(5, shuffled[0])):
            gap = self._gap(self._vectors(_rows(block, rows)), together[rows])
            _require(gap < 1e-9, f"{name}: users depend on equal users or their order ({gap:.3g})")

    def _check_totals(self, block: Block) -> None:
        """What passes the gate is the sum of vectors that are within bounds already."""
        for users in _TOTALS:
            crowd = _rows(block, self.rng.integers(0, block.users, users))
            expected, scale = np.zeros(self.statistic.layout.size), self.length
            for part in _parts(crowd):
                vectors = self._vectors(part)
                expected += vectors.sum(axis=0)
                scale += float(np.abs(vectors).sum(axis=0).max(initial=0.0))
            gap = float(np.abs(self.statistic.total(crowd) - expected).max())
            _require(
                gap < 1e-9 * scale,
                f"{self.statistic.name}: the total of {users} users is off by {gap:.3g}",
            )


def _rows(block: Block, rows: NDArray[np.int64]) -> Block:
    """Some users of a block, in this order and as often as named."""
    return Block(len(rows), {name: array[rows] for name, array in block.arrays.items()})


def _parts(block: Block, users: int = 300) -> Iterator[Block]:
    """The block in parts, the last of which may be smaller; an empty block is its own part."""
    for start in range(0, max(block.users, 1), users):
        yield block.take(slice(start, start + users))
