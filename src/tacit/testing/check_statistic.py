"""``check_statistic``: an attack on the declared sensitivity of anyone's statistic."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.errors import CheckFailed, InvalidArgument, require
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.testing.sample_users import HOSTILE_FLOATS, Sample, hostile_values, some_rows

# Block sizes at which a statistic's total is compared; a fast path may begin anywhere.
_TOTALS = (0, 1, 300, 3001)
# More users than 16 bits can count.
_MANY = (1 << 15) + 7
# How many users have each hostile value of a column in each of four ways.
_EACH = 8
# Types that a column may come as, and how many users have it so.
_TYPES, _TYPED = ("f8", "f4", "i8", "u8", "i1", "b1"), 160
# Steps of a user for which the asked rounds of search are made once.
_STEPS = 30
# Budgets at which randomised response is played through.
_EPSILONS = (0.5, 4.0)


@dataclass(frozen=True)
class StatisticReport:
    """Report of ``check_statistic``: declared sensitivities and the largest found by attack.

    They are by name, ``"replace-one l2"`` and so on; the pair are the two users whose vectors were
    found to be farthest apart.
    """

    declared: dict[str, float]
    seen: dict[str, float]
    pair: Block

    @property
    def tightness(self) -> dict[str, float]:
        """Largest found over declared: 1 means that nothing is wasted."""
        return {name: self.seen[name] / bound for name, bound in self.declared.items()}


def check_statistic(
    statistic: Statistic,
    sample: Sample,
    *,
    users: int = 300,
    rounds: int = 60,
    seed: int = 0,
    attained: float | None = None,
) -> StatisticReport:
    """Attacks a statistic's declared sensitivity and its treatment of hostile values.

    Random users, users with values that are not finite, huge, tiny or just out of range, the zero
    element, and a search that keeps changing the best pair found. Every column has every hostile
    value in turn, whatever the seed: at one step and at all, alone and beside zeros; and comes in
    other types, which may be refused, but not for what they hold. Also: nothing raises or warns
    on values, or changes them; a user without a single valid value contributes zero; no user's
    vector depends on others, present, equal or seen before; the total is the sum of the
    vectors for few and for thousands of users; zero-out and replace-one sensitivities fit
    together; randomised response over the declared number of one-hots keeps its epsilon.

    Args:
        statistic: what to attack.
        sample: ``sample(rng, users)`` makes a block of users; include the extreme ones you know.
        users: block size.
        rounds: of search, once for every 30 steps of a user.
        seed: of the attack.
        attained: fail unless every declared bound is reached to this fraction (a loose bound
            wastes the users' data).
    """
    attack = _Attack(statistic, sample, seed, users)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            attack.run(rounds)
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(f"values made {statistic.name} raise or warn: {error!r}") from error
    report = StatisticReport(attack.declared, attack.seen, attack.pair)
    if attained is not None:
        for name, ratio in report.tightness.items():
            require(ratio >= attained, f"{name} is loose: {ratio:.3f} of it was found")
    return report


class _Attack:
    """One attack on one statistic."""

    def __init__(self, statistic: Statistic, sample: Sample, seed: int, users: int) -> None:
        self.statistic, self.untouched = statistic, copy.deepcopy(statistic)
        self.sample, self.rng, self.users = sample, np.random.default_rng(seed), users
        self.declared: dict[str, float] = {}
        pure = any(statistic.l1(relation) is not None for relation in Relation)
        for relation in Relation:
            for norm in ("l2", "l1") if pure else ("l2",):
                try:
                    bound = statistic.sensitivity(relation, norm)
                except InvalidArgument as error:
                    raise CheckFailed(f"{norm}: {error}") from error
                self.declared[f"{relation.value} {norm}"] = bound
        # Vectors are no longer than this, so it is what rounding errors are measured by.
        self.length = statistic.l2(Relation.ZERO_OUT)
        self.seen = dict.fromkeys(self.declared, 0.0)
        self.best: tuple[float, Block] | None = None

    @property
    def pair(self) -> Block:
        """The best pair found; a user twice, where all users are alike."""
        if self.best is None or self.best[1].users == 0:
            return self.sample(self.rng, 2)
        parents = self.best[1]
        return parents if parents.users == 2 else some_rows(parents, np.zeros(2, dtype=np.int64))

    def run(self, rounds: int) -> None:
        fingerprint = self.statistic.fingerprint
        block = self.sample(self.rng, self.users)
        hostile = [self._corrupted(block), self._corrupted(block, whole_rows=True), _shrunk(block)]
        for candidate in (block, *hostile):
            self._measure(candidate)
            self._check_independence(candidate)
        best = self.best
        for candidate in self._with_hostile_columns():
            self._measure(candidate)
            self._check_total(candidate)
        # Users of other types would be a poor begin of a search.
        self.best = best
        self._check_memory(block)
        for candidate in (block, *hostile):
            for users in _TOTALS:
                self._check_total(
                    some_rows(candidate, self.rng.integers(0, candidate.users, users))
                )
        self._check_zero(block)
        # There is more to find where users have more steps.
        steps = max((a.shape[1] for a in block.arrays.values() if a.ndim > 1), default=1)
        for _ in range(rounds * math.ceil(steps / _STEPS)):
            self._measure(self._evolved())
        # What adds up vectors in floats does not wrap; a fast sum of its own may.
        if type(self.statistic).total is not Statistic.total:
            longest = int(np.linalg.norm(self._vectors(self.pair), axis=1).argmax())
            self._check_total(some_rows(self.pair, np.full(_MANY, longest)))
        require(
            self.statistic.fingerprint == fingerprint,
            f"{self.statistic.name}: its fields changed; it keeps something of the users it saw",
        )

    def _with_hostile_columns(self) -> Iterator[Block]:
        """Every column that may change with every hostile value, and as every type."""
        block = self.sample(self.rng, 4 * _EACH * len(HOSTILE_FLOATS))
        names = list(block.arrays)
        floats = [n for n in names if block[n].dtype.kind == "f"]
        for name in names:
            others = [other for other in floats if other != name]
            yield _with_hostile_column(block, [name], others)
            for kind in _TYPES:
                plain = _as_type(block.take(slice(0, _TYPED)), name, np.dtype(kind))
                try:
                    self._vectors(plain)
                except CheckFailed:
                    raise
                except Exception:  # noqa: S112 - types are public, and may be refused
                    continue
                yield _with_hostile_column(plain, [name], others)
        yield _with_hostile_column(block, floats, [])

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
        self.seen[name] = max(self.seen[name], value)
        require(
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
        require(groups >= 1, f"{name}: one_hots must be >= 1, got {groups}")
        low, high = float(vectors.min(initial=0.0)), float(vectors.max(initial=0.0))
        require(
            low >= 0.0 and high <= 1.0,
            f"{name}: one-hots must lie in [0, 1], values from {low:.6g} to {high:.6g} were found",
        )
        bits = vectors[:, ~self.statistic.fractional]
        require(
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
            require(
                loss <= epsilon * (1.0 + 1e-9),
                f"{name}: with one_hots = {groups}, randomised response of epsilon {epsilon:g} "
                f"really costs {loss:.6g}",
            )

    def _vectors(self, block: Block, statistic: Statistic | None = None) -> Floats:
        """The statistic's own vectors: its clip is attacked, not the curator's second one."""
        name, size = self.statistic.name, self.statistic.layout.size
        before = {key: array.tobytes() for key, array in block.arrays.items()}
        with np.errstate(all="ignore"):
            vectors = (self.statistic if statistic is None else statistic).vectors(block)
        require(
            vectors.shape == (block.users, size),
            f"{name}: vectors have shape {vectors.shape}, not {(block.users, size)}",
        )
        require(bool(np.isfinite(vectors).all()), f"{name}: a vector is not finite")
        same = all(array.tobytes() == before[key] for key, array in block.arrays.items())
        require(same, f"{name}: it changed the raw data of its block")
        return vectors

    def _gap(self, first: Floats, second: Floats) -> float:
        """The largest difference, relative to the longest vector allowed."""
        return float(np.abs(first - second).max(initial=0.0)) / self.length

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
        require(
            not self._vectors(Block(block.users, arrays)).any(),
            f"{self.statistic.name}: a user of invalid values must count zero",
        )

    def _check_memory(self, block: Block) -> None:
        """Vectors do not depend on the users that the statistic saw before."""
        expected = self._vectors(block)
        for first in (block.take(slice(0, 1)), self._corrupted(block)):
            other = copy.deepcopy(self.untouched)
            self._vectors(first, other)
            gap = self._gap(self._vectors(block, other), expected)
            require(
                gap < 1e-9,
                f"{self.statistic.name}: vectors depend on users seen before ({gap:.3g})",
            )

    def _check_independence(self, block: Block) -> None:
        """A user's vector alone, among others, and among hostile or equal others is the same."""
        together = self._vectors(block)
        name = self.statistic.name
        for row in self.rng.choice(block.users, min(8, block.users), replace=False):
            gap = self._gap(self._vectors(block.take(slice(row, row + 1)))[0], together[row])
            require(gap < 1e-9, f"{name}: users depend on each other ({gap:.3g})")
        shuffled = self.rng.integers(0, block.users, block.users)
        for rows in (shuffled, np.sort(shuffled), np.full(5, shuffled[0])):
            gap = self._gap(self._vectors(some_rows(block, rows)), together[rows])
            require(gap < 1e-9, f"{name}: users depend on equal users or their order ({gap:.3g})")

    def _check_total(self, block: Block) -> None:
        """The total is the sum of vectors that are within bounds already."""
        expected, scale = np.zeros(self.statistic.layout.size), self.length
        for start in range(0, max(block.users, 1), 300):
            vectors = self._vectors(block.take(slice(start, start + 300)))
            expected += vectors.sum(axis=0)
            scale += float(np.abs(vectors).sum(axis=0).max(initial=0.0))
        gap = float(np.abs(self.statistic.total(block) - expected).max())
        require(
            gap < 1e-9 * scale,
            f"{self.statistic.name}: the total of {block.users} users is off by {gap:.3g}",
        )

    # Hostile users, and users around those that were found to be far apart.

    def _evolved(self) -> Block:
        """A block around the best pair: its users changed a little, and fresh strangers."""
        fresh = self.sample(self.rng, self.users)
        if self.best is None or self.best[1].users == 0:
            return fresh
        parents = self.best[1]
        picks = self.rng.integers(0, parents.users, self.users)
        picks[: parents.users] = np.arange(parents.users)
        steps = {array.shape[1] for array in parents.arrays.values() if array.ndim > 1}
        copies = {length: self._copied_steps(length) for length in sorted(steps)}
        # Some take a few steps in a row from a stranger, in all arrays at once, and nothing else.
        shortest = min(steps, default=1)
        first = self.rng.integers(0, max(shortest, 1), (self.users, 1))
        last = first + self.rng.integers(0, 3, (self.users, 1))
        whole = self.rng.random(self.users) < 0.5
        arrays = {}
        for name, array in parents.arrays.items():
            child = array[picks]
            stranger = np.asarray(fresh[name], dtype=child.dtype)
            take = self.rng.random(child.shape) < self.rng.choice([0.02, 0.2, 0.6])
            few = whole.reshape((self.users,) + (1,) * (child.ndim - 1))
            changed = np.where(take, stranger, child)
            if child.dtype.kind == "f":
                changed = self._stretched(changed)
            if child.ndim > 1:
                changed = changed[np.arange(self.users)[:, np.newaxis], copies[child.shape[1]]]
                # States have one entry more than steps: that after the last one.
                at, more = np.arange(child.shape[1]), child.shape[1] - shortest
                window = (at >= first) & (at <= last + more)
                window = window.reshape(window.shape + (1,) * (child.ndim - 2))
                child = np.where(window, stranger, child)
            child = np.where(few, child, changed)
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

    def _corrupted(self, block: Block, whole_rows: bool = False) -> Block:
        arrays = {}
        for name, array in block.arrays.items():
            chosen = self.rng.random(array.shape) < 0.3
            if whole_rows:
                chosen = self.rng.random(array.shape[:1] + (1,) * (array.ndim - 1)) < 0.5
            values = self.rng.choice(hostile_values(array), array.shape)
            arrays[name] = np.where(chosen, values, array)
        return Block(block.users, arrays)


def _as_type(block: Block, name: str, dtype: np.dtype[Any]) -> Block:
    """The block with one column of another type, cut to small numbers that every type has."""
    with np.errstate(all="ignore"):
        numbers = np.nan_to_num(block[name].astype(np.float64), posinf=0.0, neginf=0.0)
        array = np.clip(numbers, 0.0, 100.0).astype(dtype)
    return Block(block.users, {**block.arrays, name: array})


def _with_hostile_column(block: Block, names: list[str], others: list[str]) -> Block:
    """Columns with hostile values: at all steps or at one, and the others' as they are or zero."""
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    row = np.arange(block.users)
    for name in names:
        array = arrays[name]
        values = hostile_values(array)
        which, way = row % len(values), row // len(values)
        chosen = np.ones(array.shape, dtype=bool)
        if array.ndim > 1:
            steps = np.arange(array.shape[1]) == (way // 4 % array.shape[1])[:, np.newaxis]
            chosen &= ((way % 2 == 0)[:, np.newaxis] | steps).reshape(
                steps.shape + (1,) * (array.ndim - 2)
            )
        filled = values[which].reshape((-1,) + (1,) * (array.ndim - 1))
        arrays[name] = np.where(chosen, filled, array)
        for other in others:
            arrays[other][way % 4 >= 2] = 0.0
    return Block(block.users, arrays)


def _shrunk(block: Block) -> Block:
    """The same users with numbers so small that squares lose digits or vanish; of half, one step.

    Whoever divides by a length must not divide by one that was rounded to half of what it is.
    """
    small = 10.0 ** -np.linspace(160.5, 162.5, max(block.users, 1))[: block.users]
    arrays = dict(block.arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            factors = np.ones(array.shape) * small.reshape((-1,) + (1,) * (array.ndim - 1))
            if array.ndim > 1:
                factors[::2, :1] = 1.0
            arrays[name] = np.multiply(array, factors).astype(array.dtype)
    return Block(block.users, arrays)
