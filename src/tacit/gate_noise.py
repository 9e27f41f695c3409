"""The noise of what passed the gate, in units of what it should be, and tests of it.

What was released minus the sum of the users' bounded vectors is noise. In units of the scale that
sensitivity and cost demand it must be standard normal (or Laplace of scale 1), independent between
entries and between releases. Running sums are put through the inverse of what their counter does
to its noise, from the counter's code, which leaves one fresh vector per release.

All tests are exact or conservative for any number of values: squares of normals add up to a
chi-square variable, absolute values of Laplace variables to a gamma variable, and products of
signs of independent symmetric numbers are fair coins, for which Hoeffding's bound holds.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.audit import counter_matrices
from tacit.privacy.curator import JointCurator, JointStream
from tacit.privacy.exact import ExactNoise, heard_shares
from tacit.privacy.gate import Stream
from tacit.privacy.local import LocalCurator, noise_scale
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Statistic
from tacit.watched_gate import Passage, WatchedGate

Law: TypeAlias = Literal["normal", "laplace", "sum of laplace"]

# The chance of a false alarm of one test on a part, a release or a pair of them; of one test on a
# single coordinate, of which there are thousands.
_ALARM = 1e-11
_ALARM_COORDINATE = 1e-13
# Grids and floats: what sizes may be off by without anybody looking.
_SLACK = 2e-3


@dataclass(frozen=True, eq=False)
class Measured:
    """The noise of one release.

    Attributes:
        passage: what was released.
        place: how many releases came before.
        noise: in units of its claimed scale, for all coordinates; zero where nothing is released.
        kept: which coordinates are released.
        gains: by block, what a user's vector is multiplied by in these units.
        law: how the noise must be distributed.
    """

    passage: Passage
    place: int
    noise: Floats
    kept: Bools
    gains: dict[int, float]
    law: Law


class Totals:
    """True sums over blocks, kept for runs in which the same users are asked the same again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], list[tuple[Block, Floats]]] = {}

    def of(self, statistic: Statistic, number: int, block: Block) -> Floats:
        """The sum over a block with this number."""
        known = self._known.setdefault((statistic.fingerprint, number), [])
        for before, total in known:
            if _equal(before, block):
                return total
        total = statistic.total(block)
        if len(self._known) > 5000:
            self._known.clear()
        # With one neighbour, and with the other.
        self._known[statistic.fingerprint, number] = [*known, (block, total)][-2:]
        return total


def _equal(one: Block, other: Block) -> bool:
    if one is other:
        return True
    if one.users != other.users or set(one.arrays) != set(other.arrays) or one.aggregate:
        return False
    # To the bit: some values are not numbers.
    return all(a.tobytes() == other[name].tobytes() for name, a in one.arrays.items())


def measured(gate: WatchedGate, totals: Totals | None = None) -> list[Measured] | None:
    """The noise of all releases, in their order; ``None`` where noise is not additive.

    Args:
        gate: what passed it.
        totals: sums that are known from other runs.
    """
    totals = Totals() if totals is None else totals
    found: list[Measured] = []
    streams: dict[Stream, list[tuple[int, Passage]]] = {}
    for place, passage in enumerate(gate.passages):
        if isinstance(passage.gate, LocalCurator):
            if passage.gate.privacy.mechanism == "randomised response":
                return None
        elif not isinstance(passage.gate, JointCurator):
            continue
        if passage.stream is not None:
            streams.setdefault(passage.stream, []).append((place, passage))
        elif isinstance(passage.gate, LocalCurator):
            found.append(_of_reports(gate, totals, place, passage))
        else:
            found.append(_of_release(gate, totals, place, passage))
    for stream, passages in streams.items():
        if isinstance(stream, JointStream):
            found += _of_stream(gate, totals, stream, passages)
        else:
            found += _of_report_stream(gate, totals, passages)
    return sorted(found, key=lambda m: m.place)


def _total(gate: WatchedGate, totals: Totals, passage: Passage, number: int) -> Floats:
    return totals.of(passage.statistic, number, gate.blocks[passage.gate, number])


def _kept(passage: Passage) -> Bools:
    layout = passage.statistic.layout
    if passage.mask is None:
        return np.ones(layout.size, dtype=bool)
    return layout.pack_mask(passage.mask)


def _of_release(gate: WatchedGate, totals: Totals, place: int, passage: Passage) -> Measured:
    statistic, release, curator = passage.statistic, passage.release, passage.gate
    assert isinstance(curator, JointCurator)  # noqa: S101
    pure = curator.privacy.pure
    sensitivity = statistic.sensitivity(curator.privacy.relation, "l1" if pure else "l2")
    largest = max(abs(share) for share in passage.shares)
    scale = largest * sensitivity / float(release.cost or math.nan)
    pairs = list(zip(passage.blocks, passage.shares, strict=True))
    total = sum(share * _total(gate, totals, passage, b) for b, share in pairs)
    kept = _kept(passage)
    noise = np.where(kept, (statistic.layout.pack(release.parts) - total) / scale, 0.0)
    gains = {b: share / scale for b, share in pairs}
    return Measured(passage, place, noise, kept, gains, "laplace" if pure else "normal")


def _of_stream(
    gate: WatchedGate, totals: Totals, stream: JointStream, passages: list[tuple[int, Passage]]
) -> list[Measured]:
    """Its fresh noise, release by release."""
    made = _inverse(stream, len(passages))
    if made is None:
        return []
    unit, columns = made
    prefix: Floats = np.zeros(stream.statistic.layout.size)
    rows = []
    for _, passage in passages:
        prefix = prefix + _total(gate, totals, passage, passage.blocks[0])
        rows.append(passage.statistic.layout.pack(passage.release.parts) - prefix)
    whitened = unit @ (np.stack(rows) / stream.step)
    entered = [passage.blocks[0] for _, passage in passages]
    law: Law = "laplace" if stream._curator.privacy.pure else "normal"
    return [
        Measured(
            passage,
            place,
            whitened[t],
            _kept(passage),
            {b: float(columns[t, k]) / stream.step for k, b in enumerate(entered)},
            law,
        )
        for t, (place, passage) in enumerate(passages)
    ]


def _inverse(stream: JointStream, releases: int) -> tuple[Floats, Floats] | None:
    """W and W A, with W B z independent unit noise; ``None`` where no W is known.

    With one vector drawn per release W is the inverse of B. Normal noise that was drawn otherwise
    has a W as well, from its covariance.
    """
    counter = stream.counter
    key = (type(counter), counter.releases, releases, counter.scale, repr(counter._options()))
    if key not in _inverses:
        if len(_inverses) > 100:
            _inverses.clear()
        inputs, noise = counter_matrices(counter, releases)
        unit: Floats | None = None
        if noise.shape[0] == noise.shape[1] and np.linalg.cond(noise) < 1e9:
            unit = np.asarray(np.linalg.inv(noise), dtype=np.float64)
        elif counter.mu is not None and np.linalg.cond(noise @ noise.T) < 1e12:
            lower = np.linalg.cholesky(noise @ noise.T)
            unit = np.asarray(np.linalg.inv(lower), dtype=np.float64)
        _inverses[key] = None if unit is None else (unit, unit @ inputs)
    return _inverses[key]


# Agents that are audited have equal counters, run after run.
_inverses: dict[tuple[Any, ...], tuple[Floats, Floats] | None] = {}


def _of_reports(gate: WatchedGate, totals: Totals, place: int, passage: Passage) -> Measured:
    """The noise of a block's reports, added up; weights are as large as the noise's."""
    statistic, curator = passage.statistic, passage.gate
    assert isinstance(curator, LocalCurator)  # noqa: S101
    scale, law = _report_scale(statistic, curator)
    pairs = list(zip(passage.blocks, passage.shares, strict=True))
    users = sum(share**2 * gate.blocks[curator, b].users for b, share in pairs)
    scale *= math.sqrt(users)
    total = sum(share * _total(gate, totals, passage, b) for b, share in pairs)
    noise = (statistic.layout.pack(passage.release.parts) - total) / scale
    kept = _kept(passage)
    return Measured(passage, place, np.where(kept, noise, 0.0), kept, {}, law)


def _of_report_stream(
    gate: WatchedGate, totals: Totals, passages: list[tuple[int, Passage]]
) -> list[Measured]:
    """What each release adds to the one before."""
    found, before = [], None
    for place, passage in passages:
        statistic, curator = passage.statistic, passage.gate
        assert isinstance(curator, LocalCurator)  # noqa: S101
        scale, law = _report_scale(statistic, curator)
        vector = statistic.layout.pack(passage.release.parts)
        block = passage.blocks[0]
        users = gate.blocks[curator, block].users
        added = vector if before is None else vector - before
        before = vector
        noise = (added - _total(gate, totals, passage, block)) / (scale * math.sqrt(users))
        found.append(Measured(passage, place, noise, _kept(passage), {}, law))
    return found


def _report_scale(statistic: Statistic, curator: LocalCurator) -> tuple[float, Law]:
    """The standard deviation of one report's noise, and how sums of it are distributed."""
    scale = noise_scale(statistic, curator.privacy)
    if curator.privacy.mechanism == "laplace":
        return scale * math.sqrt(2.0), "sum of laplace"
    return scale, "normal"


@dataclass(eq=False)
class Tally:
    """How many values were seen, and what their squares (or absolute values) add up to.

    Attributes:
        law: how they must be distributed.
        values: how many.
        total: the sum of their squares, or of absolute values for Laplace noise.
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


def _limits(law: Law, values: NDArray[Any], alarm: float) -> tuple[Floats, Floats]:
    """Between what a tally lies but for the chance of a false alarm."""
    from scipy.special import gammainccinv, gammaincinv, ndtri

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
    coordinates: dict[tuple[Layout, Law], list[Floats]] = field(default_factory=dict)
    signs: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    stated: list[str] = field(default_factory=list)

    def add(self, run: list[Measured]) -> None:
        """All releases of one run."""
        self.runs += 1
        signs: list[tuple[int, NDArray[np.int8]]] = []
        for one in run:
            layout = one.passage.statistic.layout
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
        kept = one.noise[one.kept]
        self.places.setdefault(one.place, Tally(one.law)).add(kept)
        pieces = layout._pieces(one.noise)
        masks = layout._pieces(one.kept)  # type: ignore[arg-type]
        for part, noise, mask in zip(layout.parts, pieces, masks, strict=True):
            values = noise[mask.astype(bool)]
            self.parts.setdefault(part.name, Tally(one.law)).add(values)
            if values.size > 1:
                # Noise that was made to add up hides no sums, whatever the size of its entries.
                law: Law = "normal" if one.law == "normal" else "sum of laplace"
                unit = math.sqrt(values.size * (2.0 if one.law == "laplace" else 1.0))
                tally = self.sums.setdefault(part.name, Tally(law))
                tally.add(np.array([values.sum() / unit]))
        sizes = np.abs(one.noise) if one.law == "laplace" else one.noise**2
        found = self.coordinates.setdefault(
            (layout, one.law), [np.zeros(layout.size), np.zeros(layout.size)]
        )
        found[0] += sizes
        found[1] += one.kept

    def _check_stated(self, one: Measured, layout: Layout) -> None:
        """What a release says of its own noise."""
        passage = one.passage
        if not isinstance(passage.gate, JointCurator) or self.stated:
            return
        unit = math.sqrt(2.0) if one.law == "laplace" else 1.0
        if passage.stream is not None:
            expected = passage.std
        else:
            expected = unit / max(abs(gain) for gain in one.gains.values())
            expected *= max(abs(share) for share in passage.shares)
        for part in layout.parts:
            std = float(np.max(passage.release.std[part.name])) * part.weight
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
        found = []
        if self.parts:
            law = next(iter(self.parts.values())).law
            whole = Tally(law, self.values, sum(t.total for t in self.parts.values()))
            if whole.wrong():
                found.append(
                    f"the variance of {whole.values} noise values is {whole.ratio:.3f} of what "
                    "sensitivity and cost demand"
                )
        groups: list[tuple[str, Tally]] = [(f"part {k}", t) for k, t in self.parts.items()]
        groups += [(f"release {k}", t) for k, t in self.places.items()]
        groups += [(f"the sum of part {k}", t) for k, t in self.sums.items()]
        for what, tally in groups:
            if tally.values and tally.wrong():
                found.append(
                    f"{what}: the variance of {tally.values} noise values is {tally.ratio:.3f} of "
                    "what sensitivity and cost demand"
                )
        for (layout, law), (totals, counts) in self.coordinates.items():
            low, high = _limits(law, np.maximum(counts, 1.0), _ALARM_COORDINATE)
            off = (totals < low * (1.0 - _SLACK)) | (totals > high * (1.0 + _SLACK))
            for i in np.flatnonzero(off & (counts > 0))[:1]:
                found.append(
                    f"coordinate {i} of {layout.size}: the size of {int(counts[i])} noise values "
                    f"is {totals[i] / counts[i]:.3g} of what sensitivity and cost demand"
                )
        return found + self.stated

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


# What passes the gate when nothing is added to it.


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """All sources of additive noise draw zeros for a while; for sums that should be exact."""

    def zeros(self: Noise, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def sums(self: Noise, count: int, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def steps(self: ExactNoise, scale: float, count: int) -> NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    def sum_of_steps(
        self: ExactNoise, pure: bool, scale: float, users: int, count: int
    ) -> NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    replaced: list[tuple[type, str, Any]] = [
        (Noise, "normal", zeros),
        (Noise, "laplace", zeros),
        (Noise, "laplace_sum", sums),
        (ExactNoise, "gaussian_steps", steps),
        (ExactNoise, "laplace_steps", steps),
        (ExactNoise, "sum_of_steps", sum_of_steps),
    ]
    originals = [(cls, name, cls.__dict__[name]) for cls, name, _ in replaced]
    try:
        for cls, name, other in replaced:
            setattr(cls, name, other)
        yield
    finally:
        for cls, name, original in originals:
            setattr(cls, name, original)


def off_by(gate: WatchedGate) -> str | None:
    """Where sums that were released in silence are not those of the users' vectors, in words.

    Under exact noise they must be, to the last bit, sums of whole numbers that every user's vector
    was rounded to before anything was added.
    """
    before: dict[Stream, NDArray[Any]] = {}
    for place, passage in enumerate(gate.passages):
        statistic, curator = passage.statistic, passage.gate
        if not isinstance(curator, JointCurator):
            continue
        vector = statistic.layout.pack(passage.release.parts)
        vectors = gate.contributions(passage)
        largest = max(abs(share) for share in passage.shares)
        shares = {
            b: share / largest for b, share in zip(passage.blocks, passage.shares, strict=True)
        }
        step = 1.0
        if curator._exact:
            smallest = 1.0
            if passage.stream is None:
                shares, smallest = heard_shares(shares)
            step = curator._step(statistic, smallest)
            total = sum(np.rint(shares[b] * v / step).sum(axis=0) for b, v in vectors.items())
        else:
            total = sum(shares[b] * v.sum(axis=0) for b, v in vectors.items())
        expected = np.asarray(total, dtype=np.float64)
        if passage.stream is not None:
            expected = expected + before.get(passage.stream, np.zeros(1))
            before[passage.stream] = expected
        if passage.mask is not None:
            expected = np.where(statistic.layout.pack_mask(passage.mask), expected, 0.0)
        length = statistic.l2(curator.privacy.relation) * max(passage.release.users, 1)
        gap = float(np.abs(vector / (largest * step) - expected).max())
        # Weights of parts are multiplied in and out again, which may round.
        allowed = 1e-9 * length / step
        if curator._exact:
            allowed = min(allowed, 1e-3)
        if gap > allowed:
            unit = "grid steps" if curator._exact else f"of at most {length:.4g}"
            return (
                f"without its noise release {place} is not the sum of its users' vectors: it is "
                f"off by {gap:.4g} {unit}"
            )
    return None
