"""The conformance checks themselves: broken statistics that must not pass.

Each mutant is a plausible slip that an adversarial review got past an earlier version of the
checks, or a near relative of one.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tacit import Relation, check_statistic
from tacit.privacy.errors import CheckFailed
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block
from tacit.testing.sample_users import HOSTILE_FLOATS, hostile_blocks


def values(rng, users):
    return Block(users, {"values": rng.normal(size=(users, 3)) * 3.0})


def cells(rng, users):
    return Block(users, {"cells": rng.integers(0, 4, (users, 2))})


def small_cells(rng, users):
    return Block(users, {"cells": rng.integers(0, 4, (users, 2)).astype(np.uint8)})


def valued_cells(rng, users):
    arrays = dict(cells(rng, users).arrays)
    return Block(users, arrays | {"values": rng.choice([0.0, 0.3, 1.0], (users, 2))})


def steps(rng, users):
    p, q = rng.normal(size=(users, 2, 3)), rng.normal(size=(users, 2, 1))
    return Block(users, {"p": p, "q": q})


@pytest.mark.parametrize(
    ("statistic", "sample"),
    [
        (ClippedSum(3), values),
        (ClippedSum(3, 1e-3), values),
        (ClippedSum(3, 1e9), values),
        (OneHotCounts(2, 4), cells),
        (OneHotCounts(2, 4), small_cells),
        (OneHotCounts(2, 4, valued=True), valued_cells),
        (GramCross(3, 1, 2), steps),
        (GramCross(3, 1, 2, weight=2.0, tau=2.0), steps),
    ],
)
def test_standard_statistics_pass(statistic, sample):
    report = check_statistic(statistic, sample)
    assert max(report.tightness.values()) <= 1 + 1e-9
    check_statistic(statistic, sample, users=1, rounds=2)


def vectors_of(change, kind=ClippedSum):
    """A kind of statistic whose vectors are changed: change(statistic, block, vectors)."""
    changed = lambda self, block: change(self, block, kind.vectors(self, block))  # noqa: E731
    return dataclass(frozen=True)(type("Broken", (kind,), {"vectors": changed}))


def total_of(change):
    """A clipped sum with a faster total of its own, or none of it."""
    return dataclass(frozen=True)(type("Broken", (ClippedSum,), {"total": change}))


def numbers(block):
    return np.asarray(block["values"], dtype=float)


@dataclass(frozen=True)
class CachedCentre(ClippedSum):
    """Centres by the mean of the first block it ever sees."""

    cache: dict[str, np.ndarray] = field(default_factory=dict)

    def vectors(self, block):
        raw = numbers(block)
        finite = np.isfinite(raw).all(axis=1)
        if "centre" not in self.cache:
            self.cache["centre"] = raw[finite].mean(axis=0)
        centred = np.where(finite[:, np.newaxis], raw - self.cache["centre"], np.nan)
        return super().vectors(Block(block.users, {"values": centred}))


@dataclass(frozen=True)
class KeepsRows(ClippedSum):
    """Right vectors, and a note of the last user: a field that is saved as if it were public."""

    seen: list[Any] = field(default_factory=list)

    def vectors(self, block):
        self.seen[:] = np.asarray(block["values"])[-1:].tolist()
        return super().vectors(block)


def once(self, block, clipped):
    """Equal rows count once."""
    keep = np.zeros(block.users, dtype=bool)
    keep[np.unique(numbers(block), axis=0, return_index=True)[1]] = True
    return np.where(keep[:, np.newaxis], clipped, 0.0)


def unclipped(self, block):
    """Without the clip, for large blocks."""
    if block.users > 1000:
        return np.nan_to_num(numbers(block)).sum(axis=0)
    return ClippedSum.total(self, block)


def finite_only(self, block):
    """Right for finite values only."""
    raw = np.nan_to_num(numbers(block), posinf=1.0, neginf=-1.0)
    return ClippedSum.total(self, Block(block.users, {"values": raw}))


def dividing(self, block):
    """Divides by each number, which is right unless one is next to nothing."""
    raw = np.abs(numbers(block))
    with np.errstate(all="ignore"):
        odd = np.isinf(1.0 / raw) & (raw > 0.0)
    return np.where(odd.any(), np.nan, 1.0) * ClippedSum.total(self, block)


def smallest_integer(self, block, clipped):
    """Right for floats; of integers the smallest has no size."""
    raw = block["values"]
    if raw.dtype.kind == "i" and (np.abs(raw) < 0).any():
        raise OverflowError("no size")
    return clipped


def floats_only(self, block, clipped):
    """Refuses a type, whatever it holds, as it may."""
    if block["values"].dtype.kind != "f":
        raise TypeError("values must be floats")
    return clipped


@pytest.mark.parametrize("seed", range(5))
def test_hostile_values_do_not_depend_on_the_seed(seed):
    check_statistic(vectors_of(floats_only)(3), values, users=50, rounds=1, seed=seed)
    with pytest.raises(CheckFailed, match=r"total of .* users is off by nan"):
        check_statistic(total_of(dividing)(3), values, users=50, rounds=0, seed=seed)
    with pytest.raises(CheckFailed, match="OverflowError"):
        check_statistic(vectors_of(smallest_integer)(3), values, users=50, rounds=0, seed=seed)


def test_agents_are_served_all_kinds_of_hostile_floats():
    block = Block(40, {"rewards": np.ones((40, 3)), "states": np.ones((40, 4), dtype=np.int64)})
    made = hostile_blocks(block, np.random.default_rng(0))
    served = np.concatenate([np.ravel(other["rewards"]) for other in made.values()])
    texts = {repr(float(value)) for value in served}
    assert {repr(float(value)) for value in HOSTILE_FLOATS} <= texts
    assert {"nan", "inf", "-inf", "5e-324", "-5e-324", "-0.0", "1e+308"} <= texts


def in_place(self, block, clipped):
    """Clips the raw data itself: every later look sees other numbers."""
    np.copyto(block["values"], clipped)
    return clipped


def refuses_minus_one(self, block, counts):
    """-1 is taken for a programmer's mistake."""
    if (np.asarray(block["cells"]) == -1).any():
        raise IndexError("no such cell")
    return counts


@dataclass(frozen=True)
class OffByOne(OneHotCounts):
    """The cell after the last is let through, and indexes out of range."""

    def _steps(self, block):
        raw = np.asarray(block["cells"], dtype=float)
        valid = (raw >= 0) & (raw <= self.cells) & (raw == np.floor(raw))
        return np.where(valid, raw, 0).astype(int), np.ones(raw.shape), valid


@dataclass(frozen=True)
class WrongHots(OneHotCounts):
    """One group declared for two steps: randomised response spends twice its epsilon."""

    @property
    def one_hots(self):
        return 1

    def l1(self, relation):
        return float(self.steps * (2 if relation is Relation.REPLACE_ONE else 1))


@dataclass(frozen=True)
class WrongValuedHots(OneHotCounts):
    """Forgets that the sums are one-hots of their own."""

    @property
    def one_hots(self):
        return self.steps

    def l1(self, relation):
        return float(2 * self.steps * (2 if relation is Relation.REPLACE_ONE else 1))


@dataclass(frozen=True)
class HiddenFractions(OneHotCounts):
    """Says that its sums are bits, so that the noise of rounding is left out."""

    @property
    def fractional(self):
        return np.zeros(self.layout.size, dtype=bool)


@pytest.mark.parametrize(
    ("broken", "sample", "message"),
    [
        (CachedCentre(3), values, "depend on users seen before"),
        (KeepsRows(3), values, "its fields changed"),
        (vectors_of(once)(3), values, "depend on equal users"),
        (
            vectors_of(lambda _, block, v: v / np.arange(1, block.users + 1)[:, np.newaxis])(3),
            values,
            "depend on each other",
        ),
        (total_of(unclipped)(3), values, "total of 3001 users is off"),
        (total_of(finite_only)(3), values, r"total of (1|300|512) users is off"),
        # A block without users, which is how a curator asks for shapes, raises.
        (vectors_of(lambda _, block, v: v + 0 * np.asarray(block["values"]).max())(3), values, "r"),
        (vectors_of(lambda *a: (a[2] - a[2].mean(axis=0)) / 2)(3, 1e-10), values, "on each other"),
        (vectors_of(in_place)(3), values, "changed the raw data"),
        (vectors_of(lambda *a: a[2][:, :-1])(3), values, "shape"),
        (OffByOne(2, 4), cells, "raise or warn: IndexError"),
        (OffByOne(2, 4), small_cells, "raise or warn: IndexError"),
        (vectors_of(refuses_minus_one, OneHotCounts)(2, 4), cells, "raise or warn: IndexError"),
        (WrongHots(2, 4), cells, r"epsilon 0\.5 really costs 1$"),
        (WrongValuedHots(2, 4, valued=True), valued_cells, r"epsilon 0\.5 really costs 1$"),
        (vectors_of(lambda *a: -a[2], OneHotCounts)(2, 4), cells, r"must lie in \[0, 1\]"),
        (HiddenFractions(2, 4, valued=True), valued_cells, "must be 0 or 1"),
    ],
)
def test_broken_statistics_are_caught(broken, sample, message):
    with pytest.raises(CheckFailed, match=message):
        check_statistic(broken, sample)


@dataclass(frozen=True)
class Declares(ClippedSum):
    """Any bounds: zero-out and replace-one, in the 2-norm and in the 1-norm."""

    two: tuple[float, float] = (1.0, 2.0)
    one: tuple[float | None, float | None] = (None, None)

    def l2(self, relation):
        return self.two[relation is Relation.REPLACE_ONE]

    def l1(self, relation):
        return self.one[relation is Relation.REPLACE_ONE]


@pytest.mark.parametrize(
    "pair",
    [
        (0.0, 0.0),
        (-1.0, 1.0),
        (2.0, 1.0),
        (1.0, 2.1),
        (1.0, math.inf),
        (math.inf, math.inf),
        (1.0, math.nan),
        (math.nan, 1.0),
    ],
)
def test_bounds_that_do_not_fit_together_are_refused(pair):
    with pytest.raises(CheckFailed, match=r"^l2: "):
        check_statistic(Declares(3, two=pair), values)
    with pytest.raises(CheckFailed, match=r"^l1: "):
        check_statistic(Declares(3, one=pair), values)


def test_a_one_norm_goes_with_both_relations_or_neither():
    check_statistic(Declares(3), values, rounds=2)
    check_statistic(Declares(3, one=(math.sqrt(3), 2 * math.sqrt(3))), values, rounds=2)
    for pair in ((math.sqrt(3), None), (None, 2 * math.sqrt(3))):
        with pytest.raises(CheckFailed, match=r"^l1: "):
            check_statistic(Declares(3, one=pair), values)
