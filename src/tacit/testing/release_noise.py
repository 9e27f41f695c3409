"""The noise in releases: whether it is what was drawn, and how large it is.

There is one sampler, :class:`tacit.privacy.noise.Noise`. So a release must be, to the last step of
its grid, the sum of its users' bounded vectors plus one fresh draw of it, of the law and at the
scale that sensitivity and cost demand; whatever is done to noise after it was drawn, or in place of
drawing it, shows. A running sum is played again by a fresh counter with the same draws; what a
counter's code costs is another question (:func:`tacit.audit_counter`). That the sampler draws what
it says is for tests of its own.

An audit also measures noise: what was released minus the sum, in units of the scale that is
demanded, is standard normal (or Laplace of scale 1). Running sums are put through the inverse of
what their counter does to its noise, from the counter's code, which leaves one fresh vector per
release. Whether so many values are as large as that is tested exactly: squares of normals add up to
a chi-square variable, absolute values of Laplace variables to a gamma variable, and of randomised
response so many bits are 1 as a binomial variable says. Each test gives a false alarm with a
probability of 1e-11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, gammainccinv, gammaincinv

from tacit.privacy.curator import JointCurator, Stream
from tacit.privacy.distributed import SumPlan, added, share
from tacit.privacy.errors import CheckFailed
from tacit.privacy.local import LocalCurator, noise_scale
from tacit.privacy.models import DistributedDP, LocalDP
from tacit.privacy.noise import chunk_users, grid_sensitivity, grid_step
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.testing.mechanisms import counter_matrices
from tacit.testing.recording import NoiseDraw, RecordingCurator, ReleaseRecord

Law: TypeAlias = Literal["normal", "laplace"]
Ints: TypeAlias = NDArray[np.int64]

_ALARM = 1e-11
# Grids and floats: by how much sizes may be off.
_SLACK = 2e-3


@dataclass(frozen=True, eq=False)
class Measured:
    """The noise of one release.

    Attributes:
        place: how many releases came before.
        noise: in units of its claimed scale, for all coordinates.
        gains: by block, what a user's vector is multiplied by in these units.
        wrong: how it is not what was drawn, in words.
    """

    record: ReleaseRecord
    place: int
    noise: Floats
    gains: dict[int, float]
    wrong: str | None


def grid_sum(statistic: Statistic, block: Block, step: float) -> tuple[Ints, Ints]:
    """The sum over a block's users in whole steps, and by how many floats leave it open.

    Each chunk of users is rounded to the grid; see :mod:`tacit.privacy.noise`.
    """
    vectors, size = statistic.contributions(block), chunk_users(block)
    parts = [vectors[at : at + size].sum(axis=0) for at in range(0, len(vectors), size)]
    steps = np.array(parts).reshape(-1, statistic.layout.size) / step
    is_open = np.abs(steps - np.rint(steps)) > 0.5 - 1e-6
    return np.rint(steps).astype(np.int64).sum(axis=0), is_open.sum(axis=0)


def measured(recorder: RecordingCurator) -> list[Measured]:
    """The noise of all releases to which some was added, in their order."""
    found: list[Measured] = []
    streams: dict[tuple[Any, ...], list[tuple[int, ReleaseRecord]]] = {}
    for place, record in enumerate(recorder.records):
        curator, stream = record.curator, record.stream
        if stream is not None:
            # A run that is read again has another object for the same stream.
            same = (curator, stream.cost, stream.step, stream.statistic.layout.size)
            streams.setdefault(same, []).append((place, record))
        elif isinstance(curator, JointCurator) or not (
            (isinstance(curator, LocalCurator) and curator.privacy.reports_bits)
            or getattr(curator, "made", "") in recorder.blocks[curator, record.block].arrays
        ):
            found.append(_of_block(recorder, place, record))
    for records in streams.values():
        found += _of_stream(recorder, records)
    return sorted(found, key=lambda m: m.place)


def noise_failures(run: Sequence[Measured], before: dict[bytes, object] | None = None) -> list[str]:
    """Where the noise of a run is not what was drawn, or was drawn before, in words.

    Args:
        run: its releases.
        before: noise of runs before, by its bytes, which it is added to.
    """
    found = [one.wrong for one in run if one.wrong is not None]
    seen = {} if before is None else before
    for one in run:
        mine = object()
        for draw in one.record.drawn:
            # Few numbers repeat by chance.
            if draw.values.size > 3 and seen.setdefault(draw.values.tobytes(), mine) is not mine:
                found.append(f"release {one.place} has the noise of another one")
    return found


def _of_block(recorder: RecordingCurator, place: int, record: ReleaseRecord) -> Measured:
    """The noise in what was released about one block."""
    statistic, block, gains, unit = record.statistic, record.block, dict[int, float](), 1.0
    privacy, raw, drawn = (
        record.curator.privacy,
        recorder.blocks[record.curator, block],
        record.drawn,
    )
    vector = statistic.layout.pack(record.release.parts)
    step = grid_step(statistic, privacy.norm)
    if privacy.local:
        # Simulations draw the sum of all reports; of Laplace noise that of scale 1.
        scale, unit = math.sqrt(raw.users) * noise_scale(statistic, privacy) / step, 1.0
        if privacy.needs_l1:
            scale, unit = float(raw.users), noise_scale(statistic, privacy) / step
    elif privacy.devices_add:
        # All devices of a simulation are honest: more noise than is claimed.
        step = SumPlan.of(statistic, privacy, raw.users).step
        _, each, _ = demanded_shares(statistic, privacy, raw.users, step)
        scale = math.sqrt(raw.users * each**2 + (raw.users - 1.0) / 12.0)
        gains[block] = 1.0 / (scale * step)
    else:
        apart = grid_sensitivity(statistic, privacy.relation, privacy.norm, step)
        scale = apart / float(record.release.cost or math.nan)
        gains[block] = 1.0 / (scale * step)
    whole, is_open = grid_sum(statistic, raw, step)
    noise, what = vector / step - whole, f"release {place} of {statistic.name}"
    wrong = not_drawn(what, noise, is_open, drawn, Demanded(privacy.needs_l1, scale, unit))
    return Measured(record, place, noise / (scale * unit), gains, wrong)


def demanded_shares(
    statistic: Statistic, privacy: DistributedDP, devices: int, step: float
) -> tuple[int, float, float]:
    """How many honest devices are in a sum, the scale of each one's noise, and of all, in steps.

    Args:
        statistic: That they are asked.
        privacy: The model.
        devices: For how many the sum is planned.
        step: Of its grid.
    """
    honest = max(1, math.ceil(privacy.honest * devices))
    total = grid_sensitivity(statistic, privacy.relation, "l2", step) / privacy.report_cost
    return honest, math.sqrt(max(total**2 - (honest - 1.0) / 12.0, 0.0) / honest), total


def secure_sum(
    statistic: Statistic, block: Block, privacy: DistributedDP, devices: int
) -> tuple[Ints, Floats, list[str]]:
    """The honest devices' shares added up, and the noise in their sum, with no help of others.

    Args:
        statistic: that the devices are asked.
        block: of the honest ones.
        privacy: the model.
        devices: that the sum was planned for.

    Returns:
        The sum modulo 2^bits; its noise in units of what is claimed; how shares are not what they
        should be, in words.
    """
    plan = SumPlan.of(statistic, privacy, devices)
    _, each, total = demanded_shares(statistic, privacy, devices, plan.step)
    needs, wrong, sent = Demanded(False, each), list[str](), list[Ints]()
    whole, seen = np.zeros(plan.size, dtype=np.int64), set[bytes]()
    for i in range(block.users):
        user = block.take(slice(i, i + 1))
        with RecordingCurator().open() as recorder:
            sent.append(share(statistic, user, privacy, devices=devices))
        mine, is_open = grid_sum(statistic, user, plan.step)
        whole += mine
        drawn = (*recorder.drawn,)
        # What was added, as the number that is nearest to none.
        noise = (sent[-1] - mine + plan.modulus // 2) % plan.modulus - plan.modulus // 2
        words = not_drawn(f"the share of device {i}", noise.astype(float), is_open, drawn, needs)
        wrong += [] if words is None else [words]
        wrong += ["a share has noise from a seed"] * any(draw.seeded for draw in drawn)
        if plan.size > 3 and noise.tobytes() in seen:
            wrong.append("two devices add the same noise")
        seen.add(noise.tobytes())
    opened = added(sent, privacy.bits)
    return opened, (plan.opened(opened) / plan.step - whole) / total, wrong


class Demanded(NamedTuple):
    """The law and scale of noise, in steps, that sensitivity and cost demand."""

    pure: bool
    scale: float
    unit: float = 1.0


def not_drawn(
    what: str, noise: Floats, is_open: Ints, drawn: tuple[NoiseDraw, ...], demanded: Demanded
) -> str | None:
    """How noise is not one draw of the law and scale that are demanded, in words; else ``None``.

    Args:
        what: the release, in words.
        noise: in steps.
        is_open: by how many steps floats leave its entries open.
        drawn: all draws for the release.
        demanded: the law and scale.
    """
    pure, scale, unit = demanded
    right = [
        (one.pure, one.values.size) == (pure, noise.size) and _near(one.scale, scale)
        for one in drawn
    ]
    if right != [True]:
        words = [(one.pure, one.scale, one.values.size) for one in drawn]
        return (
            f"{what} needs one draw of {noise.size} numbers at a scale of {scale:.6g} steps; drawn "
            f"was (pure, scale, how many) {words}"
        )
    return _off(what, noise - np.rint(unit * drawn[0].values), noise, is_open)


def _near(scale: float, demanded: float) -> bool:
    """Whether noise is as large as is demanded, and no larger."""
    return demanded * (1.0 - 1e-9) <= scale <= demanded * (1.0 + 1e-5)


def _off(what: str, gap: Floats, steps: Floats, is_open: Ints) -> str | None:
    """Which entries are off by more than floats are, in words."""
    # Weights of parts are multiplied in and out again, which may round.
    rounded = 1e-3 + 1e-14 * float(np.abs(steps).max(initial=0.0))
    off = int(np.count_nonzero(np.abs(gap) > is_open + rounded))
    words = "are not the sum of their users' vectors plus the noise that was drawn"
    return f"{what}: {off} of {gap.size} entries {words}" if off else None


class _Replay:
    """Draws again what was drawn."""

    simulation = True

    def __init__(self, drawn: list[NoiseDraw]) -> None:
        self._left = iter(drawn)

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        """The next of them, if it is of this law and scale."""
        draw = next(self._left, None)
        if draw is None or not (draw.pure == pure and _near(draw.scale, scale)):
            raise CheckFailed(f"a stream lacks a draw of {count} numbers at {scale:.6g} steps")
        return draw.values


def _of_stream(
    recorder: RecordingCurator, records: list[tuple[int, ReleaseRecord]]
) -> list[Measured]:
    """The fresh noise of a running sum, release by release."""
    stream = records[-1][1].stream
    assert stream is not None  # noqa: S101
    size = stream.statistic.layout.size
    source = _Replay([draw for _, record in records for draw in record.drawn])
    counter = stream.counter.rebuild((size,), source)
    prefix, is_open = np.zeros((2, size), dtype=np.int64)
    rows, wrong = [], list[str | None]()
    for place, record in records:
        raw = recorder.blocks[record.curator, record.block]
        whole, undecided = grid_sum(record.statistic, raw, stream.step)
        prefix, is_open = prefix + whole, is_open + undecided
        steps = record.statistic.layout.pack(record.release.parts) / stream.step
        rows.append(steps - prefix)
        try:
            gap = steps - counter.release(whole)
            wrong.append(_off(f"release {place}", gap, steps, is_open))
        except CheckFailed as error:
            wrong.append(f"release {place}: {error}")
    unit, moved = _inverse(stream, len(rows))
    noise, columns = unit @ np.stack(rows), moved / stream.step
    entered = [record.block for _, record in records]
    return [
        Measured(record, place, noise[t], dict(zip(entered, columns[t], strict=True)), wrong[t])
        for t, (place, record) in enumerate(records)
    ]


def _inverse(stream: Stream, releases: int) -> tuple[Floats, Floats]:
    """W and W A, with W B z independent unit noise.

    With one vector drawn per release W is the inverse of B. Normal noise that was drawn otherwise
    has a W as well, from its covariance.
    """
    counter = stream.counter
    key = (type(counter), counter.releases, releases, counter.scale, repr(counter._options()))
    if key not in _inverses:
        if len(_inverses) > 100:
            _inverses.clear()
        inputs, noise = counter_matrices(counter, releases)
        square = noise.shape[0] == noise.shape[1]
        unit = np.linalg.inv(noise if square else np.linalg.cholesky(noise @ noise.T))
        _inverses[key] = unit, unit @ inputs
    return _inverses[key]


# Agents that are audited have equal counters, run after run.
_inverses: dict[tuple[Any, ...], tuple[Floats, Floats]] = {}


# How large noise is.


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
        self.total += float(np.abs(noise).sum() if self.law == "laplace" else noise @ noise)

    @property
    def ratio(self) -> float:
        """Measured over claimed variance."""
        ratio = self.total / max(self.values, 1)
        return ratio**2 if self.law == "laplace" else ratio

    @property
    def wrong(self) -> bool:
        """Whether that is too small or too large, but for the chance of a false alarm."""
        shape, unit = (self.values, 1.0) if self.law == "laplace" else (self.values / 2.0, 2.0)
        low, high = (f(shape, _ALARM / 2.0) for f in (gammaincinv, gammainccinv))
        return not low * (1.0 - _SLACK) <= self.total / unit <= high * (1.0 + _SLACK)


@dataclass(eq=False)
class Flips:
    """Bits of randomised response, and whether they are as often 1 as is claimed.

    A true 0 is reported as 1 with a chance that follows from the declared epsilon, ``flip``, a
    true 1 with 1/2; how many of those seen are reported as ones is binomial.
    """

    flip: float
    seen: list[int] = field(default_factory=lambda: [0, 0])
    ones: list[int] = field(default_factory=lambda: [0, 0])

    @classmethod
    def of(cls, statistic: Statistic, privacy: LocalDP) -> Flips:
        """For a claim, by the formula and not by the code that draws."""
        return cls(1.0 / (1.0 + math.exp(privacy.report_cost / (statistic.one_hots or 1))))

    def chances(self, vector: Floats) -> Floats:
        """With which chance each bit of a user is 1; fractions are rounded at random first."""
        return self.flip + vector * (0.5 - self.flip)

    def add(self, bits: Floats, vector: Floats) -> None:
        """One report, beside what is true."""
        for truth in (0, 1):
            of_these = vector == float(truth)
            self.seen[truth] += int(np.count_nonzero(of_these))
            self.ones[truth] += int(bits[of_these].sum())

    @property
    def wrong(self) -> list[str]:
        """Where ones are too rare or too many, in words."""
        found = []
        for truth, chance in enumerate((self.flip, 0.5)):
            n, ones = self.seen[truth], self.ones[truth]
            rare = min(bdtr(ones, n, chance), bdtrc(ones - 1, n, chance) if ones else 1.0)
            if n > 0 and rare < _ALARM / 2.0:
                found.append(
                    f"of {n} bits that are {truth}, {ones} were reported as 1; by the claimed "
                    f"epsilon it should be {n * chance:.0f}"
                )
        return found
