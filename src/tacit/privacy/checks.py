"""Conformance checks that anyone can run on their own counters and statistics.

``check_counter`` and ``check_statistic`` are what Tacit's own pass. They raise
:class:`CheckFailed` with the number that is wrong, and return a short report otherwise. Random
checks have a fixed seed and say how improbable a false alarm is.
"""

from __future__ import annotations

import math
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.audit import BasisNoise, ExactAudit, audit_counter
from tacit.privacy.budget import Relation
from tacit.privacy.counters import Counter
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitError
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.privacy.storage import read_state

# Six standard deviations: a false alarm in 5e8 tests, and fewer than 1e3 are made per check.
_SIGMAS = 6.0


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


def check_counter(
    make: Callable[..., Counter],
    *,
    laplace: bool = False,
    releases: int = 33,
    lengths: tuple[int, ...] = (1, 2, 3, 4, 7, 8, 9, 31),
) -> CounterReport:
    """Checks everything a counter promises.

    Noise-free sums are exact (numbers, vectors, symmetric matrices); the claimed standard
    deviation is the empirical one; the exact audit of the code does not exceed the claim; a
    simulation resumes identically and a real run with fresh noise; releases beyond the horizon,
    wrong shapes and infinite items are refused and change nothing; the noise does not depend on
    the items, so streams may be adaptive; the state is no larger than promised and secret.

    Args:
        make: a counter class, or a function with the same arguments.
        laplace: check it with Laplace instead of Gaussian noise.
        releases: length of the streams.
        lengths: at which lengths the exact audit is made.

    >>> from tacit.privacy.counters import BinaryTree
    >>> check_counter(BinaryTree, releases=8, lengths=(8,)).kind
    'binary tree'
    """
    cost: dict[str, Any] = {"epsilon": 0.9} if laplace else {"mu": 0.7}
    if make(releases=1, **_no_cost(make, cost)).distribution == "none":
        cost = {}
    build = _Builder(make, cost, releases)
    _check_sums(build)
    ratio = _check_std(build, laplace)
    audits = {} if not cost else {n: _check_exact(build, n) for n in (*lengths, releases)}
    _check_refusals(build)
    _check_adaptive(build)
    with tempfile.TemporaryDirectory() as folder:
        _check_resume(build, Path(folder))
    return CounterReport(build(()).kind, audits, ratio)


def _no_cost(make: Callable[..., Counter], cost: dict[str, Any]) -> dict[str, Any]:
    """The cost arguments, or none for a counter that takes none."""
    try:
        make(releases=1, **cost)
    except InvalidArgument:
        return {}
    return cost


@dataclass(frozen=True)
class _Builder:
    make: Callable[..., Counter]
    cost: dict[str, Any]
    releases: int

    def __call__(
        self, shape: tuple[int, ...], source: NoiseSource | None = None, **options: Any
    ) -> Counter:
        arguments = {"sensitivity": 2.0, "releases": self.releases} | self.cost | options
        return self.make(shape=shape, source=Noise(7) if source is None else source, **arguments)


def _require(passed: bool, message: str) -> None:
    if not passed:
        raise CheckFailed(message)


def _check_sums(build: _Builder) -> None:
    rng = np.random.default_rng(1)
    shapes: list[tuple[tuple[int, ...], bool]] = [((), False), ((3,), False), ((2, 4), False)]
    if build((3,)).distribution != "laplace":
        shapes += [((3, 3), True), ((2, 3, 3), True)]
    for shape, symmetric in shapes:
        items = rng.normal(size=(build.releases, *shape))
        if symmetric:
            items += np.swapaxes(items, -1, -2)
        counter = build(shape, BasisNoise(), symmetric=symmetric)
        sums = np.stack([counter.release(item) for item in items])
        error = float(np.abs(sums - np.cumsum(items, axis=0)).max())
        _require(error < 1e-10, f"without noise the sums of shape {shape} are off by {error:.3g}")


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


def _check_exact(build: _Builder, releases: int) -> ExactAudit:
    audit = audit_counter(build((1,), releases=releases), releases)
    _require(audit.passed, f"at {releases} releases: {audit}")
    return audit


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
    plain, adaptive = build((4,), Noise(5)), build((4,), Noise(5))
    item, total = np.ones(4), np.zeros(4)
    for t in range(build.releases):
        noise = plain.release(np.zeros(4))
        total = total + item
        published = adaptive.release(item)
        gap = float(np.abs(published - total - noise).max())
        _require(gap < 1e-9, f"release {t + 1}: the noise depends on the items ({gap:.3g})")
        item = np.sign(published) * np.arange(4)


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

    Random users, users with values that are not finite, huge or out of range, the zero element,
    and a search that keeps changing the best pair found. Also: nothing raises or warns on values;
    a user without a single valid value contributes zero; nobody's vector depends on anybody
    else; the total is the sum of the vectors.

    Args:
        statistic: what to attack.
        sample: ``sample(rng, users)`` makes a block of users; include the extreme ones you know.
        users: block size.
        rounds: rounds of search.
        seed: of the attack.
        attained: fail unless every declared bound is reached to this fraction (a loose bound
            wastes the users' data).
    """
    attack = _Attack(statistic, sample, np.random.default_rng(seed), users)
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
        sample: Callable[[np.random.Generator, int], Block],
        rng: np.random.Generator,
        users: int,
    ) -> None:
        self.statistic = statistic
        self.sample = sample
        self.rng = rng
        self.users = users
        self.declared: dict[str, float] = {}
        for relation in Relation:
            bounds = {"l2": statistic.l2(relation), "l1": statistic.l1(relation)}
            for norm, bound in bounds.items():
                if bound is not None:
                    self.declared[f"{relation.value} {norm}"] = bound
        self.seen = dict.fromkeys(self.declared, 0.0)
        self.best: tuple[float, Block] | None = None

    def run(self, rounds: int) -> None:
        block = self.sample(self.rng, self.users)
        for candidate in (block, self._corrupt(block), self._corrupt(block, whole_rows=True)):
            self._measure(candidate)
            self._check_independence(candidate)
        self._check_zero(block)
        for _ in range(rounds):
            self._measure(self._evolve())

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
        if f"{Relation.ZERO_OUT.value} l1" in self.declared:
            sums = np.abs(vectors).sum(axis=1)
            some = self.rng.choice(block.users, min(40, block.users), replace=False)
            apart = np.abs(vectors[some, np.newaxis] - vectors[some]).sum(axis=2)
            between = np.abs(vectors[pair[0]] - vectors[pair[1]]).sum()
            self._saw(Relation.REPLACE_ONE, "l1", float(max(apart.max(), between, sums.max())))
            self._saw(Relation.ZERO_OUT, "l1", float(sums.max()))
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

    def _vectors(self, block: Block) -> Floats:
        """The statistic's own vectors: what is attacked is its clip, not the gate's second one."""
        with np.errstate(all="ignore"):
            vectors = self.statistic.vectors(block)
        _require(bool(np.isfinite(vectors).all()), f"{self.statistic.name}: a vector is not finite")
        return vectors

    def _evolve(self) -> Block:
        """A block around the best pair: its users changed a little, and fresh strangers."""
        fresh = self.sample(self.rng, self.users)
        if self.best is None or self.best[1].users == 0:
            return fresh
        parents = self.best[1]
        arrays = {}
        picks = self.rng.integers(0, parents.users, self.users)
        # The parents themselves stay in the block.
        picks[: parents.users] = np.arange(parents.users)
        for name, array in parents.arrays.items():
            inherited = array[picks].copy()
            stranger = np.asarray(fresh[name], dtype=inherited.dtype)
            take = self.rng.random(inherited.shape) < self.rng.choice([0.02, 0.2, 0.6])
            take[: parents.users] = False
            inherited[take] = stranger[take]
            if inherited.dtype.kind == "f":
                scaled = self.rng.random(inherited.shape) < 0.1
                scaled[: parents.users] = False
                factors = self.rng.choice([-1.0, 0.0, 0.5, 2.0, 1e3], inherited.shape)
                with np.errstate(all="ignore"):
                    inherited = np.where(scaled, inherited * factors, inherited)
            arrays[name] = inherited
        return Block(self.users, arrays)

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
        if array.dtype.kind == "f":
            values: list[Any] = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -1.0, 2.0, 1e9]
        elif array.dtype.kind == "b":
            values = [True, False]
        else:
            limits = np.iinfo(array.dtype)
            values = [limits.min, limits.max, 0, 1, limits.max - 1]
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

    def _check_independence(self, block: Block) -> None:
        """A user's vector alone, among others, and among hostile others is the same."""
        together = self._vectors(block)
        for row in self.rng.choice(block.users, min(8, block.users), replace=False):
            alone = self._vectors(block.take(slice(row, row + 1)))[0]
            gap = float(np.abs(together[row] - alone).max())
            _require(gap < 1e-9, f"{self.statistic.name}: users depend on each other ({gap:.3g})")
        # What passes the gate is the sum of vectors that are within bounds already.
        total = self.statistic.total(block)
        gap = float(np.abs(total - together.sum(axis=0)).max())
        scale = 1.0 + float(np.abs(together).sum(axis=0).max())
        _require(gap < 1e-9 * scale, f"{self.statistic.name}: total is off by {gap:.3g}")
