"""Tests of noise that was measured: its size, its shape, and that nothing shares it.

All tests are exact or conservative for any number of values.

* Size: squares of normals add up to a chi-square variable, absolute values of Laplace variables to
  a gamma variable.
* Shape: by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart the empirical distribution of
  n values is farther than t from the true one with a probability of at most 2 exp(-2 n t^2). How
  many values are beyond a threshold is binomial; noise without tails is found by that, and its
  tails are what a small delta hangs on. Values hardly repeat: densities are below 1, so each of n
  values is as close as w to an earlier one with a probability below n w, whatever the others are,
  and a binomial variable bounds how many are. Noise on a coarse grid, or cut off, repeats.
* Sharing: products of signs of independent symmetric numbers are fair coins, for which Hoeffding's
  bound holds.

Each test gives a false alarm with a probability of 1e-11 at most, of single coordinates 1e-13. A
record has some hundreds of the former and thousands of the latter: below 1e-8 together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, gammainccinv, gammaincinv, ndtr, ndtri

from tacit.privacy.curator import JointCurator
from tacit.privacy.statistic import Floats, Layout
from tacit.testing.recording import ReleaseRecord

# The chance of a false alarm of one test on a part, a release or a pair of them; of one test on a
# single coordinate, of which there are thousands.
_ALARM = 1e-11
_ALARM_COORDINATE = 1e-13
# Grids and floats: what sizes may be off by without anybody looking.
_SLACK = 2e-3
# Beyond what numbers of values are counted, in units of their scale. Who cuts noise off takes
# a whole number.
_TAILS = (1.01, 2.02, 3.03, 4.04)
# Values this close are the same.
_SAME = 1e-12
# How many values are kept to look at their shape.
_KEPT = 1 << 20


Law: TypeAlias = Literal["normal", "laplace", "sum of laplace"]


@dataclass(frozen=True, eq=False)
class Measured:
    """The noise of one release.

    Attributes:
        place: how many releases came before.
        noise: in units of its claimed scale, for all coordinates.
        gains: by block, what a user's vector is multiplied by in these units.
        law: how the noise must be distributed.
        blur: by how much a value may be off, in these units.
    """

    record: ReleaseRecord
    place: int
    noise: Floats
    gains: dict[int, float]
    law: Law
    blur: float = 0.0


@dataclass(eq=False)
class Tally:
    """How many values of a law were seen, and what their squares add up to.

    The ``total`` is of absolute values for Laplace noise.
    """

    law: Law
    values: int = 0
    total: float = 0.0

    def add(self, noise: Floats) -> None:
        """Counts values that have the claimed scale as their unit."""
        self.values += noise.size
        size = np.abs(noise).sum() if self.law == "laplace" else noise @ noise
        self.total += float(size)

    @property
    def ratio(self) -> float:
        """Measured over claimed variance."""
        ratio = self.total / max(self.values, 1)
        return ratio**2 if self.law == "laplace" else ratio

    def wrong(self, alarm: float = _ALARM) -> bool:
        """Whether that is too small or too large, but for the chance of a false alarm."""
        low, high = _limits(self.law, np.array([self.values]), alarm)
        return not low[0] * (1.0 - _SLACK) <= self.total <= high[0] * (1.0 + _SLACK)


@dataclass(eq=False)
class Shape:
    """Values of noise, the first million of them, and whether they look like their law.

    ``blur`` is by how much one may be off.
    """

    law: Law
    blur: float = 0.0
    kept: list[Floats] = field(default_factory=list)
    values: int = 0

    def add(self, noise: Floats, blur: float) -> None:
        """Takes values that have the claimed scale as their unit."""
        if self.values < _KEPT:
            self.blur = max(self.blur, blur)
            self.kept.append(noise)
            self.values += noise.size

    def wrong(self) -> list[str]:
        """What is wrong with them, in words."""
        if not self.values:
            return []
        values = np.sort(np.concatenate(self.kept))
        found = self._repeats(values)
        # What reports add up to is between the two laws that are known.
        if self.law != "sum of laplace":
            found += self._tails(values) + self._distance(values)
        return found

    def _distance(self, values: Floats) -> list[str]:
        """The Kolmogorov-Smirnov distance; densities are at most 1/2."""
        n, below = values.size, _below(self.law, values)
        above = float((np.arange(1, n + 1) / n - below).max())
        gap = max(above, float((below - np.arange(n) / n).max()))
        allowed = math.sqrt(math.log(2.0 / _ALARM) / (2.0 * n)) + 0.5 * self.blur
        if gap <= allowed:
            return []
        return [
            f"the distribution of {n} noise values is {gap:.3f} away from what is claimed, "
            f"{allowed:.3f} is chance"
        ]

    def _tails(self, values: Floats) -> list[str]:
        """How many are far out, at least and at most."""
        n, sizes = values.size, np.abs(values)
        for threshold in _TAILS:
            chance = 2.0 * float(_below(self.law, np.array([-threshold]))[0])
            many = int(np.count_nonzero(sizes > threshold - self.blur))
            few = int(np.count_nonzero(sizes > threshold + self.blur))
            if _unlikely(many, few, n, chance):
                count = many if many < n * chance else few
                return [
                    f"of {n} noise values {count} are beyond {threshold} times their scale, "
                    f"{n * chance:.0f} should be"
                ]
        return []

    def _repeats(self, values: Floats) -> list[str]:
        """How many are the same as another one."""
        n = values.size
        repeats = int(np.count_nonzero(np.diff(np.rint(values / _SAME)) == 0.0))
        chance = n * (_SAME + self.blur)
        if repeats and chance < 1.0 and bdtrc(repeats - 1, n, chance) < _ALARM:
            return [f"of {n} noise values {repeats} repeat another one to twelve digits"]
        return []


def _unlikely(most: int, least: int, trials: int, chance: float) -> bool:
    """Whether a binomial variable is hardly ever as small as ``most``, or as large as ``least``."""
    too_few = bdtr(most, trials, chance) < _ALARM / 2.0
    return bool(too_few or (least > 0 and bdtrc(least - 1, trials, chance) < _ALARM / 2.0))


def _below(law: Law, values: Floats) -> Floats:
    """With which probability noise is below."""
    if law == "laplace":
        tail = 0.5 * np.exp(-np.abs(values))
        return np.where(values < 0.0, tail, 1.0 - tail)
    return np.asarray(ndtr(values), dtype=np.float64)


def _limits(law: Law, values: NDArray[Any], alarm: float) -> tuple[Floats, Floats]:
    """Between what a tally lies but for the chance of a false alarm."""
    if law == "sum of laplace":
        # Between a Laplace variable's and a normal one's: squares have a variance of 5 at most.
        width = -float(ndtri(alarm / 2.0)) * np.sqrt(5.0 * values)
        return values - width, values + width
    shape, unit = (values, 1.0) if law == "laplace" else (values / 2.0, 2.0)
    low = unit * gammaincinv(shape, alarm / 2.0)
    return low, unit * gammainccinv(shape, alarm / 2.0)


@dataclass(eq=False)
class NoiseRecord:
    """The noise of many runs of one agent, and what is wrong with it."""

    runs: int = 0
    parts: dict[str, Tally] = field(default_factory=dict)
    places: dict[int, Tally] = field(default_factory=dict)
    sums: dict[str, Tally] = field(default_factory=dict)
    looks: dict[str, Shape] = field(default_factory=dict)
    coordinates: dict[tuple[Layout, Law], list[Floats]] = field(default_factory=dict)
    signs: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    stated: list[str] = field(default_factory=list)

    def add(self, run: list[Measured]) -> None:
        """All releases of one run."""
        self.runs += 1
        signs: list[tuple[int, NDArray[np.int8]]] = []
        for one in run:
            layout = one.record.statistic.layout
            self._add_sizes(one, layout)
            self._check_stated(one, layout)
            sign = np.sign(one.noise).astype(np.int8)
            for place, other in signs:
                self._multiply(f"releases {place}", f"{one.place}", other, sign)
            signs.append((one.place, sign))
            self._multiply("neighbouring entries", "", sign[1:], sign[:-1])
            pieces = layout._pieces(sign.astype(np.float64))
            for i, part in enumerate(layout.parts):
                for j in range(i):
                    names = f"parts {layout.parts[j].name}", part.name
                    self._multiply(*names, pieces[j], pieces[i])

    def _multiply(self, first: str, second: str, one: NDArray[Any], two: NDArray[Any]) -> None:
        size = min(one.size, two.size)
        if size:
            products = one[:size] * two[:size]
            seen = self.signs.setdefault((first, second), [0, 0])
            seen[0] += int(products.sum())
            seen[1] += int(np.count_nonzero(products))

    def _add_sizes(self, one: Measured, layout: Layout) -> None:
        self.places.setdefault(one.place, Tally(one.law)).add(one.noise)
        for part, values in zip(layout.parts, layout._pieces(one.noise), strict=True):
            self.parts.setdefault(part.name, Tally(one.law)).add(values)
            self.looks.setdefault(part.name, Shape(one.law)).add(values, one.blur)
            if values.size > 1:
                # Noise that was made to add up hides no sums, whatever the size of its entries.
                law: Law = "normal" if one.law == "normal" else "sum of laplace"
                unit = math.sqrt(values.size * (2.0 if one.law == "laplace" else 1.0))
                tally = self.sums.setdefault(part.name, Tally(law))
                tally.add(np.array([values.sum() / unit]))
        nothing = [np.zeros(layout.size), np.zeros(layout.size)]
        found = self.coordinates.setdefault((layout, one.law), nothing)
        found[0] += np.abs(one.noise) if one.law == "laplace" else one.noise**2
        found[1] += 1.0

    def _check_stated(self, one: Measured, layout: Layout) -> None:
        """What a release says of its own noise."""
        record = one.record
        if not isinstance(record.curator, JointCurator) or self.stated:
            return
        stream = record.stream
        if stream is not None:
            expected = stream.step * stream.counter.std_at(record.block + 1)
        else:
            unit = math.sqrt(2.0) if one.law == "laplace" else 1.0
            expected = unit / max(abs(gain) for gain in one.gains.values())
        for part in layout.parts:
            std = float(np.max(record.release.std[part.name])) * part.weight
            if abs(std - expected) > _SLACK * expected:
                self.stated.append(
                    f"release {one.place} states a standard deviation of {std:.4g} for "
                    f"{part.name}, sensitivity and cost demand {expected:.4g}"
                )

    @property
    def values(self) -> int:
        """How many numbers were seen."""
        return sum(tally.values for tally in self.parts.values())

    @property
    def ratio(self) -> float:
        """Measured over claimed variance, of all values."""
        weighted = sum(tally.ratio * tally.values for tally in self.parts.values())
        return weighted / max(self.values, 1)

    def sizes(self) -> list[str]:
        """Where noise is smaller or larger than claimed, in words."""
        groups = [(f"part {k}: ", t) for k, t in self.parts.items()]
        if groups:
            whole = Tally(groups[0][1].law, self.values, sum(t.total for _, t in groups))
            groups.insert(0, ("", whole))
        groups += [(f"release {k}: ", t) for k, t in self.places.items()]
        groups += [(f"the sum of part {k}: ", t) for k, t in self.sums.items()]
        found = [
            f"{what}the variance of {tally.values} noise values is {tally.ratio:.3f} of what "
            "sensitivity and cost demand"
            for what, tally in groups
            if tally.values and tally.wrong()
        ]
        for (layout, law), (totals, counts) in self.coordinates.items():
            low, high = _limits(law, np.maximum(counts, 1.0), _ALARM_COORDINATE)
            off = (totals < low * (1.0 - _SLACK)) | (totals > high * (1.0 + _SLACK))
            for i in np.flatnonzero(off & (counts > 0))[:1]:
                found.append(
                    f"coordinate {i} of {layout.size}: the size of {int(counts[i])} noise values "
                    f"is {totals[i] / counts[i]:.3g} of what sensitivity and cost demand"
                )
        return found + self.stated

    def shapes(self) -> list[str]:
        """Where noise does not look like noise, in words."""
        found = [f"part {name}: {text}" for name, one in self.looks.items() for text in one.wrong()]
        if len(self.looks) > 1:
            some = list(self.looks.values())
            whole = Shape(some[0].law)
            for one in some:
                for values in one.kept:
                    whole.add(values, one.blur)
            found = whole.wrong() + found
        return found

    def wrong(self) -> list[str]:
        """All of it, in words."""
        return self.sizes() + self.shapes() + self.shared()

    def shared(self) -> list[str]:
        """Where noise is shared, in words."""
        found = []
        for (first, second), (total, count) in self.signs.items():
            # Hoeffding: P(|sum| >= t) <= 2 exp(-t^2 / (2 n)).
            width = math.sqrt(2.0 * count * math.log(2.0 / _ALARM))
            if abs(total) > width:
                both = f"{first} and {second}" if second else first
                found.append(
                    f"{both} share noise: of {count} pairs {(1.0 + total / count) / 2.0:.1%} have "
                    "the same sign"
                )
        return found

    @property
    def overlap(self) -> float:
        """The largest correlation of signs between two releases, in standard deviations."""
        seen = [v for k, v in self.signs.items() if k[0].startswith("releases") and v[1]]
        return max((abs(total) / math.sqrt(count) for total, count in seen), default=0.0)
