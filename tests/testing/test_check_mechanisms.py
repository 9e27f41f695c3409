"""The conformance checks themselves: broken counters and statistics that must not pass.

Each mutant is a plausible slip that an adversarial review got past an earlier version of the
checks, or a near relative of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tacit import Relation, check_counter, check_statistic
from tacit.privacy.counters import Blocks, BufferedToeplitz, Counter, Optimal, SmoothTree
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic
from tacit.testing.sample_users import HOSTILE_FLOATS, hostile_blocks

# Counters that keep their promises; that all of ours do is in the tests of counters.


def test_what_a_counter_spends_of_its_claim_is_reported() -> None:
    """All but what the grid adds to the noise."""
    report = check_counter(Blocks, attained=1 - 2e-4)
    assert set(report.tightness) >= {1, 33, 64, 65, 130}
    assert all(1 - 2e-4 < spent <= 1 + 1e-9 for spent in report.tightness.values())


def test_a_function_is_checked_as_it_builds() -> None:
    """The audit is of what the function makes, not of the class with its own defaults."""

    def make(**arguments: Any) -> Counter:
        return BufferedToeplitz(parameters=((0.02, 0.4), (0.1, 0.8)), **arguments)

    assert min(check_counter(make).tightness.values()) > 1 - 3e-4

    def halved(**arguments: Any) -> Counter:
        counter = Blocks(**arguments)
        counter.scale /= 2.0
        return counter

    with pytest.raises(CheckFailed, match="NOT COVERED"):
        check_counter(halved)


def test_a_counter_that_offers_no_pure_dp_says_so_itself() -> None:
    with pytest.raises(InvalidArgument, match="Gaussian noise only"):
        check_counter(Optimal, laplace=True)


# Counters that do not: the distribution.


class LaplaceInGauss(Blocks):
    """Claims mu, draws Laplace: no guarantee for changes spread over many coordinates."""

    def _draw(self) -> np.ndarray:
        return self.source.steps(True, self.scale / self._grid.step, self.size)


class GaussInLaplace(Blocks):
    """Claims pure DP, draws Gaussian: there is none."""

    def _draw(self) -> np.ndarray:
        return self.source.steps(False, self.scale / self._grid.step, self.size)


class MixedNoise(Blocks):
    """Every other coordinate is Gaussian; the standard deviation is right."""

    def _draw(self) -> np.ndarray:
        fresh, scale = super()._draw(), self.scale / self._grid.step
        if self.size > 1:
            fresh[1::2] = self.source.steps(False, math.sqrt(2.0) * scale, self.size // 2)
        return fresh


class SaysNoNoise(Blocks):
    """Takes a cost, and calls itself free of noise so that nothing is audited."""

    def _check_cost(self, mu: float | None, epsilon: float | None) -> Any:
        super()._check_cost(mu, epsilon)
        return "none"


class CutOff(Blocks):
    """Draws beyond 4 scales are cut: a large enough gap between two sums is certain."""

    def _draw(self) -> np.ndarray:
        most = int(4.0 * self.scale / self._grid.step)
        return np.clip(super()._draw(), -most, most)


class Rounds(Blocks):
    """Draws are rounded to a tenth of a scale: right in size, and on a grid of its own."""

    def _draw(self) -> np.ndarray:
        coarse = max(1, int(0.1 * self.scale / self._grid.step))
        return coarse * np.rint(super()._draw() / coarse).astype(np.int64)


# The calibration.


class SquaredSens(Blocks):
    """The scale grows with the square of the sensitivity."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scale *= self.sensitivity / 2.0


class MuHalf(Blocks):
    """Ignores a mu above 0.7, at the price of noise that nobody asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.mu is not None:
            self.scale = self.sensitivity / min(self.mu, 0.7)


class MuFloor(Blocks):
    """Ignores a mu below 0.1, at the users' expense."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scale = self.sensitivity / max(self.mu or 0.0, 0.1)


class ForgetsSensitivity(Blocks):
    """Calibrated for the default sensitivity, and says that this was asked for."""

    def __init__(self, sensitivity: float = 1.0, *args: Any, **options: Any) -> None:
        super().__init__(1.0, *args, **options)


class FewLevels(SmoothTree):
    """At most three nodes for a user, or one: right for few releases, wrong beyond."""

    @property
    def column_norm(self) -> float:
        nodes = min(self.zeros, 1 if self.distribution == "laplace" else 3)
        return float(nodes) if self.distribution == "laplace" else math.sqrt(nodes)


# Shapes and coordinates.


class SymBad(Blocks):
    """The noise of symmetric items is divided by 100."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        return super()._advance(fresh) // (100 if self.symmetric else 1)


class SymLoud(Blocks):
    """The noise of symmetric items is multiplied by 10."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        return super()._advance(fresh) * (10 if self.symmetric else 1)


class ScalarBad(Blocks):
    """Plain numbers go out without noise."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        return super()._advance(fresh) * (0 if self.shape == () else 1)


class TwoDBad(Blocks):
    """Matrices get one value of noise per row: differences within a row are exact."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        noise = super()._advance(fresh)
        if len(self.shape) == 2 and not self.symmetric:
            return np.repeat(noise.reshape(self.shape)[:, 0], self.shape[1])
        return noise


class Skewed(Blocks):
    """Right along every axis, wrong along (1, 1): two coordinates cancel each other's noise."""

    def _draw(self) -> np.ndarray:
        fresh = super()._draw()
        if self.shape == (2, 2) and not self.symmetric:
            # Covariance with an inverse of ones on the diagonal and 0.9 off it.
            turned = np.linalg.cholesky(np.linalg.inv([[1.0, 0.9], [0.9, 1.0]])) @ fresh[:2]
            fresh[:2] = np.rint(turned)
        return fresh


class Twin(Blocks):
    """Coordinates 2i and 2i + 1 share their noise, in batches of more than 40."""

    smallest = 40

    def _draw(self) -> np.ndarray:
        fresh = super()._draw()
        if self.size % 2 == 0 and self.size > self.smallest:
            fresh = np.repeat(fresh[::2], 2)
        return fresh


class MiddleTwin(Blocks):
    """The same for lengths that no stream has which is audited whole."""

    def _draw(self) -> np.ndarray:
        fresh = super()._draw()
        return np.repeat(fresh[::2], 2) if self.size in range(40, 60, 2) else fresh


class LargeTwin(Twin):
    """The same in batches too large for an exact audit."""

    smallest = 1000


class Halves(Blocks):
    """The second half of a large vector repeats the noise of the first."""

    def _draw(self) -> np.ndarray:
        fresh = super()._draw()
        return np.tile(fresh[: self.size // 2], 2) if self.size > 1000 else fresh


# Items.


class SkipBig(Blocks):
    """No noise once the sum exceeds 1e4."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        noise = super()._advance(fresh)
        return noise if np.abs(self._sum).max() < 1e4 / self._grid.step else 0 * noise


class SkipNegative(Blocks):
    """No noise on numbers below -1e4."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        return np.where(self._sum > -1e4 / self._grid.step, super()._advance(fresh), 0)


class LouderMatrices(Blocks):
    """The noise of symmetric items grows with them."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        noise = super()._advance(fresh)
        grown = 1.0 + self._grid.step * float(np.abs(self._sum).max())
        return noise * grown if self.symmetric else noise


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (LaplaceInGauss, r"claim is mu, but the noise is laplace"),
        (SaysNoNoise, "distribution must be 'gaussian'"),
        (CutOff, "NOT COVERED"),
        (Rounds, "not linear"),
        (SquaredSens, r"sensitivity 0\.3.*NOT COVERED"),
        (MuHalf, r"mu 3, .*0\.233 of the claim, elsewhere it is 1\.000"),
        (MuFloor, r"mu 0\.05, .*NOT COVERED"),
        (ForgetsSensitivity, r"built with sensitivity=2\.0, it claims 1\.0"),
        (FewLevels, r"at (31|33|64|130) releases.*NOT COVERED"),
        (SymBad, r"symmetric items of shape \(2, 2\): exact mu 69\.99.*NOT COVERED"),
        (SymLoud, r"symmetric items of shape \(2, 2\).*0\.100 of the claim"),
        (ScalarBad, r"items of shape \(\): exact mu inf.*NOT COVERED"),
        (TwoDBad, r"items of shape \(2, 2\): exact mu inf.*NOT COVERED"),
        (Skewed, r"items of shape \(2, 2\): exact mu 0\.96.*NOT COVERED"),
        (Twin, r"at 64 releases: exact mu inf.*NOT COVERED"),
        (MiddleTwin, r"items of shape \(48,\): exact mu inf.*NOT COVERED"),
        (LargeTwin, "5000 numbers is not linear in their own draws"),
        (Halves, "5000 numbers is not linear in their own draws"),
        (SkipBig, r"size 1e\+06.*depends on the items"),
        (SkipNegative, r"size 1e\+06.*depends on the items"),
        (LouderMatrices, r"off by|depends on the items"),
    ],
)
def test_broken_gaussian_counters_are_caught(mutant: type[Counter], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_counter(mutant)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (GaussInLaplace, r"claim is epsilon, but the noise is gaussian"),
        (MixedNoise, "at 2 releases no exact audit is possible"),
        (SaysNoNoise, "distribution must be 'laplace'"),
        (CutOff, "NOT COVERED"),
        (Rounds, "not linear"),
        (SquaredSens, r"sensitivity 0\.3.*NOT COVERED"),
        (FewLevels, r"at (31|33|64|130) releases.*NOT COVERED"),
        (ScalarBad, r"items of shape \(\): exact epsilon inf.*NOT COVERED"),
        (TwoDBad, r"items of shape \(2, 2\): exact epsilon inf.*NOT COVERED"),
        (Twin, r"at 64 releases: exact epsilon inf.*NOT COVERED"),
        (MiddleTwin, r"items of shape \(48,\): exact epsilon inf.*NOT COVERED"),
        (LargeTwin, "5000 numbers is not linear in their own draws"),
        (SkipBig, r"size 1e\+06.*depends on the items"),
    ],
)
def test_broken_laplace_counters_are_caught(mutant: type[Counter], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_counter(mutant, laplace=True)


class ExtraDraw(Blocks):
    """Two draws per release: honest, but not of the form that has an exact Laplace audit."""

    def _draw(self) -> np.ndarray:
        return super()._draw() + super()._draw()


def test_a_laplace_counter_that_cannot_be_audited_is_told_so() -> None:
    with pytest.raises(CheckFailed, match=r"no exact audit is possible.*drew 2 in 1"):
        check_counter(ExtraDraw, laplace=True)


class Loose(Blocks):
    """Twice the noise, everywhere."""

    kind = "loose blocks"

    @property
    def column_norm(self) -> float:
        return 2.0


@pytest.mark.parametrize("laplace", [False, True])
def test_a_loose_claim_is_reported_and_refused_on_request(laplace: bool) -> None:
    report = check_counter(Loose, laplace=laplace)
    assert report.tightness[33] == pytest.approx(0.5, rel=2e-4)
    assert report.audits[33].cost == pytest.approx(0.5 * (0.9 if laplace else 0.7), rel=2e-4)
    check_counter(Loose, laplace=laplace, attained=0.49)
    with pytest.raises(CheckFailed, match=r"at 1 releases: the claim is loose, 0\.500 of it"):
        check_counter(Loose, laplace=laplace, attained=0.51)


# Statistics.


def values(rng: np.random.Generator, users: int) -> Block:
    return Block(users, {"values": rng.normal(size=(users, 3)) * 3.0})


def cells(rng: np.random.Generator, users: int) -> Block:
    return Block(users, {"cells": rng.integers(0, 4, (users, 2))})


def small_cells(rng: np.random.Generator, users: int) -> Block:
    return Block(users, {"cells": rng.integers(0, 4, (users, 2)).astype(np.uint8)})


def valued_cells(rng: np.random.Generator, users: int) -> Block:
    arrays = dict(cells(rng, users).arrays)
    return Block(users, arrays | {"values": rng.choice([0.0, 0.3, 1.0], (users, 2))})


def steps(rng: np.random.Generator, users: int) -> Block:
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
        (GramCross(3, 1, 2, weight=2.0, pooled=True), steps),
        (GramCross(3, 1, 2, clip="trajectory", tau=2.0), steps),
    ],
)
def test_standard_statistics_pass(
    statistic: Statistic, sample: Callable[[np.random.Generator, int], Block]
) -> None:
    report = check_statistic(statistic, sample)
    assert max(report.tightness.values()) <= 1 + 1e-9
    check_statistic(statistic, sample, users=1, rounds=2)


@dataclass(frozen=True)
class CachedCentre(ClippedSum):
    """Centres by the mean of the first block it ever sees."""

    cache: dict[str, np.ndarray] = field(default_factory=dict)

    def vectors(self, block: Block) -> np.ndarray:
        raw = np.asarray(block["values"], dtype=float)
        finite = np.isfinite(raw).all(axis=1)
        if "centre" not in self.cache:
            self.cache["centre"] = raw[finite].mean(axis=0)
        centred = np.where(finite[:, np.newaxis], raw - self.cache["centre"], np.nan)
        return super().vectors(Block(block.users, {"values": centred}))


@dataclass(frozen=True)
class KeepsRows(ClippedSum):
    """Right vectors, and a note of the last user: a field that is saved as if it were public."""

    seen: list[Any] = field(default_factory=list)

    def vectors(self, block: Block) -> np.ndarray:
        self.seen[:] = np.asarray(block["values"])[-1:].tolist()
        return super().vectors(block)


@dataclass(frozen=True)
class Dedupe(ClippedSum):
    """Equal rows count once."""

    def vectors(self, block: Block) -> np.ndarray:
        clipped = super().vectors(block)
        first = np.unique(np.asarray(block["values"], dtype=float), axis=0, return_index=True)[1]
        keep = np.zeros(block.users, dtype=bool)
        keep[first] = True
        return np.where(keep[:, np.newaxis], clipped, 0.0)


@dataclass(frozen=True)
class ByRank(ClippedSum):
    """Later users count less."""

    def vectors(self, block: Block) -> np.ndarray:
        return super().vectors(block) / np.arange(1, block.users + 1)[:, np.newaxis]


@dataclass(frozen=True)
class FastTotal(ClippedSum):
    """A faster total for large blocks, without the clip."""

    def total(self, block: Block) -> np.ndarray:
        if block.users > 1000:
            return np.nan_to_num(np.asarray(block["values"], dtype=float)).sum(axis=0)
        return super().total(block)


@dataclass(frozen=True)
class HostileTotal(ClippedSum):
    """A faster total that is right for finite values only."""

    def total(self, block: Block) -> np.ndarray:
        raw = np.nan_to_num(np.asarray(block["values"], dtype=float), posinf=1.0, neginf=-1.0)
        return super().total(Block(block.users, {"values": raw}))


@dataclass(frozen=True)
class TinyTotal(ClippedSum):
    """A faster total that divides by each number, which is right unless one is next to nothing."""

    def total(self, block: Block) -> np.ndarray:
        raw = np.abs(np.asarray(block["values"], dtype=float))
        with np.errstate(all="ignore"):
            odd = np.isinf(1.0 / raw) & (raw > 0.0)
        return np.where(odd.any(), np.nan, 1.0) * super().total(block)


@dataclass(frozen=True)
class SmallestInteger(ClippedSum):
    """Right for floats; of integers the smallest has no size."""

    def vectors(self, block: Block) -> np.ndarray:
        raw = block["values"]
        if raw.dtype.kind == "i" and (np.abs(raw) < 0).any():
            raise OverflowError("no size")
        return super().vectors(block)


@dataclass(frozen=True)
class FloatsOnly(ClippedSum):
    """Refuses a type, whatever it holds, as it may."""

    def vectors(self, block: Block) -> np.ndarray:
        if block["values"].dtype.kind != "f":
            raise TypeError("values must be floats")
        return super().vectors(block)


@pytest.mark.parametrize("seed", range(20))
def test_hostile_values_do_not_depend_on_the_seed(seed: int) -> None:
    check_statistic(FloatsOnly(3), values, users=50, rounds=1, seed=seed)
    with pytest.raises(CheckFailed, match=r"total of .* users is off by nan"):
        check_statistic(TinyTotal(3), values, users=50, rounds=0, seed=seed)
    with pytest.raises(CheckFailed, match="OverflowError"):
        check_statistic(SmallestInteger(3), values, users=50, rounds=0, seed=seed)


def test_agents_are_served_all_kinds_of_hostile_floats() -> None:
    block = Block(40, {"rewards": np.ones((40, 3)), "states": np.ones((40, 4), dtype=np.int64)})
    made = hostile_blocks(block, np.random.default_rng(0))
    served = np.concatenate([np.ravel(other["rewards"]) for other in made.values()])
    texts = {repr(float(value)) for value in served}
    assert {repr(float(value)) for value in HOSTILE_FLOATS} <= texts
    assert {"nan", "inf", "-inf", "5e-324", "-5e-324", "-0.0", "1e+308"} <= texts


@dataclass(frozen=True)
class NobodyRaises(ClippedSum):
    """A block without users, which is how a curator asks for shapes, raises."""

    def vectors(self, block: Block) -> np.ndarray:
        np.asarray(block["values"]).max()
        return super().vectors(block)


@dataclass(frozen=True)
class TinyCentred(ClippedSum):
    """Depends on the others by less than 1e-9, which is all that its radius allows."""

    def vectors(self, block: Block) -> np.ndarray:
        clipped = super().vectors(block)
        return 0.5 * (clipped - clipped.mean(axis=0))


@dataclass(frozen=True)
class InPlace(ClippedSum):
    """Clips the raw data itself: every later look sees other numbers."""

    def vectors(self, block: Block) -> np.ndarray:
        clipped = super().vectors(block)
        np.copyto(block["values"], clipped)
        return clipped


@dataclass(frozen=True)
class Flat(ClippedSum):
    """One number too few per user."""

    def vectors(self, block: Block) -> np.ndarray:
        return super().vectors(block)[:, :-1]


@dataclass(frozen=True)
class OffByOne(OneHotCounts):
    """The cell after the last is let through, and indexes out of range."""

    def _steps(self, block: Block) -> Any:
        raw = np.asarray(block["cells"], dtype=float)
        valid = (raw >= 0) & (raw <= self.cells) & (raw == np.floor(raw))
        return np.where(valid, raw, 0).astype(int), np.ones(raw.shape), valid


@dataclass(frozen=True)
class MinusOneRaises(OneHotCounts):
    """-1 is taken for a programmer's mistake."""

    def vectors(self, block: Block) -> np.ndarray:
        if (np.asarray(block["cells"]) == -1).any():
            raise IndexError("no such cell")
        return super().vectors(block)


@dataclass(frozen=True)
class WrongHots(OneHotCounts):
    """One group declared for two steps: randomised response spends twice its epsilon."""

    @property
    def one_hots(self) -> int:
        return 1

    def l1(self, relation: Relation) -> float:
        return float(self.steps * (2 if relation is Relation.REPLACE_ONE else 1))


@dataclass(frozen=True)
class WrongValuedHots(OneHotCounts):
    """Forgets that the sums are one-hots of their own."""

    @property
    def one_hots(self) -> int:
        return self.steps

    def l1(self, relation: Relation) -> float:
        return float(2 * self.steps * (2 if relation is Relation.REPLACE_ONE else 1))


@dataclass(frozen=True)
class SignedHots(OneHotCounts):
    """Entries of -1 where randomised response expects a probability."""

    def vectors(self, block: Block) -> np.ndarray:
        return -super().vectors(block)


@dataclass(frozen=True)
class HiddenFractions(OneHotCounts):
    """Says that its sums are bits, so that the noise of rounding is left out."""

    @property
    def fractional(self) -> np.ndarray:
        return np.zeros(self.layout.size, dtype=bool)


@pytest.mark.parametrize(
    ("broken", "sample", "message"),
    [
        (CachedCentre(3), values, "depend on users seen before"),
        (KeepsRows(3), values, "its fields changed"),
        (Dedupe(3), values, "depend on equal users"),
        (ByRank(3), values, "depend on each other"),
        (FastTotal(3), values, "total of 3001 users is off"),
        (HostileTotal(3), values, r"total of (1|300|512) users is off"),
        (NobodyRaises(3), values, "raise"),
        (TinyCentred(3, 1e-10), values, "depend on each other"),
        (InPlace(3), values, "changed the raw data"),
        (Flat(3), values, "shape"),
        (OffByOne(2, 4), cells, "raise or warn: IndexError"),
        (OffByOne(2, 4), small_cells, "raise or warn: IndexError"),
        (MinusOneRaises(2, 4), cells, "raise or warn: IndexError"),
        (WrongHots(2, 4), cells, r"epsilon 0\.5 really costs 1$"),
        (WrongValuedHots(2, 4, valued=True), valued_cells, r"epsilon 0\.5 really costs 1$"),
        (SignedHots(2, 4), cells, r"must lie in \[0, 1\]"),
        (HiddenFractions(2, 4, valued=True), valued_cells, "must be 0 or 1"),
    ],
)
def test_broken_statistics_are_caught(
    broken: Statistic, sample: Callable[[np.random.Generator, int], Block], message: str
) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_statistic(broken, sample)


@dataclass(frozen=True)
class Declares(ClippedSum):
    """Any bounds: zero-out and replace-one, in the 2-norm and in the 1-norm."""

    two: tuple[float, float] = (1.0, 2.0)
    one: tuple[float | None, float | None] = (None, None)

    def l2(self, relation: Relation) -> float:
        return self.two[relation is Relation.REPLACE_ONE]

    def l1(self, relation: Relation) -> float | None:  # type: ignore[override]
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
def test_bounds_that_do_not_fit_together_are_refused(pair: tuple[float, float]) -> None:
    with pytest.raises(CheckFailed, match="l2 is declared"):
        check_statistic(Declares(3, two=pair), values)
    with pytest.raises(CheckFailed, match="l1 is declared"):
        check_statistic(Declares(3, one=pair), values)


def test_a_one_norm_goes_with_both_relations_or_neither() -> None:
    check_statistic(Declares(3), values, rounds=2)
    check_statistic(Declares(3, one=(math.sqrt(3), 2 * math.sqrt(3))), values, rounds=2)
    for pair in ((math.sqrt(3), None), (None, 2 * math.sqrt(3))):
        with pytest.raises(CheckFailed, match="l1 is declared"):
            check_statistic(Declares(3, one=pair), values)


# Statistics of which some arrays are public.


@dataclass(frozen=True)
class PaidWhere(Statistic):
    """One reward in [-1, 1], at one of four public places."""

    share: float = 1.0
    public: bool = True

    @property
    def layout(self) -> Layout:
        return Layout((Part("paid", (4,)),))

    @property
    def private_columns(self) -> frozenset[str] | None:
        return frozenset({"rewards"}) if self.public else None

    def l2(self, relation: Relation) -> float:
        # At two places they would be sqrt(2) apart, and at one and the same they are 2.
        return 1.0 if relation is Relation.ZERO_OUT else 2.0 * self.share

    def vectors(self, block: Block) -> Any:
        rewards = np.asarray(block["rewards"], dtype=float)
        places = np.asarray(block["places"], dtype=float)
        paid = np.where(np.isfinite(rewards), np.clip(rewards, -1.0, 1.0), 0.0)
        if not self.public:
            paid = np.abs(paid)
        return np.where(places[:, np.newaxis] == np.arange(4), paid[:, np.newaxis], 0.0)


def paid_users(rng: np.random.Generator, users: int) -> Block:
    return Block(
        users, {"rewards": rng.uniform(-1.0, 1.0, users), "places": rng.integers(0, 4, users)}
    )


def test_pairs_share_what_is_public() -> None:
    found = check_statistic(PaidWhere(), paid_users, attained=0.99)
    assert found.pair["places"][0] == found.pair["places"][1]
    assert found.pair["rewards"][0] != found.pair["rewards"][1]
    with pytest.raises(CheckFailed, match="replace-one l2 sensitivity"):
        check_statistic(PaidWhere(share=0.9), paid_users)


def test_pairs_share_nothing_else() -> None:
    """Positive alone, users at one place are 1 apart, and sqrt(2) at two."""
    everything = PaidWhere(share=math.sqrt(0.5), public=False)
    found = check_statistic(everything, paid_users, attained=0.99)
    assert found.pair["places"][0] != found.pair["places"][1]
    with pytest.raises(CheckFailed, match="replace-one l2 sensitivity"):
        check_statistic(PaidWhere(share=0.6, public=False), paid_users)
