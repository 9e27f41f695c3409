"""The noise of what passed the gate, in units of what it should be.

What was released minus the sum of the users' bounded vectors is noise. In units of the scale that
sensitivity and cost demand it must be standard normal (or Laplace of scale 1), independent between
entries and between releases: see :mod:`tacit.testing.noise_tests`. Running sums are put through
the inverse of what their counter does to its noise, from the counter's code, which leaves one fresh
vector per release.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.curators.gate import Stream
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import LocalCurator, noise_scale
from tacit.privacy.exact import chunk_users, grid_step
from tacit.privacy.models import LocalDP
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.testing.mechanisms import counter_matrices
from tacit.testing.watched_gate import Passage, WatchedGate

Law: TypeAlias = Literal["normal", "laplace", "sum of laplace"]


@dataclass(frozen=True, eq=False)
class Measured:
    """The noise of one release.

    Attributes:
        place: how many releases came before.
        noise: in units of its claimed scale, for all coordinates.
        gains: by block, what a user's vector is multiplied by in these units.
        law: how the noise must be distributed.
        blur: by how much a value may be off, in these units: numbers are rounded, and exact noise
            is on a grid to which every user's vector was rounded.
    """

    passage: Passage
    place: int
    noise: Floats
    gains: dict[int, float]
    law: Law
    blur: float = 0.0


class Totals:
    """True sums over blocks, kept for runs in which the same users are asked the same again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Floats] = {}

    def of(self, statistic: Statistic, block: Block) -> Floats:
        """The sum over a block."""
        if block.aggregate:
            return statistic.total(block)
        # To the bit: some values are not numbers.
        data = ((name, array.tobytes()) for name, array in block.arrays.items())
        key = (statistic.fingerprint, *data)
        if key not in self._known:
            if len(self._known) > 5000:
                self._known.clear()
            self._known[key] = statistic.total(block)
        return self._known[key]


def measured(gate: WatchedGate, totals: Totals | None = None) -> list[Measured] | None:
    """The noise of all releases, in their order; ``None`` where noise is not additive."""
    totals = Totals() if totals is None else totals
    found: list[Measured] = []
    streams: dict[Stream, list[tuple[int, Passage]]] = {}
    for place, passage in enumerate(gate.passages):
        if isinstance(passage.gate, LocalCurator):
            if passage.gate.privacy.reports_bits:
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
    return totals.of(passage.statistic, gate.blocks[passage.gate, number])


def _of_release(gate: WatchedGate, totals: Totals, place: int, passage: Passage) -> Measured:
    statistic, release, curator = passage.statistic, passage.release, passage.gate
    assert isinstance(curator, JointCurator)  # noqa: S101
    pure, block = curator.privacy.pure, passage.blocks[0]
    sensitivity = statistic.sensitivity(curator.privacy.relation, curator.privacy.norm)
    scale = sensitivity / float(release.cost or math.nan)
    vector = statistic.layout.pack(release.parts)
    noise = (vector - _total(gate, totals, passage, block)) / scale
    step = grid_step(statistic, curator.privacy.norm)
    blur = (rounding(vector, 1) + step * (release.users / 2 + 1)) / scale
    law: Law = "laplace" if pure else "normal"
    return Measured(passage, place, noise, {block: 1.0 / scale}, law, blur)


def rounding(vector: Floats, terms: int) -> float:
    """How far sums of so many terms as large as these may be off, in floats."""
    return 4.0 * terms * float(np.spacing(np.abs(vector).max(initial=1e-300)))


def _of_stream(
    gate: WatchedGate, totals: Totals, stream: JointStream, passages: list[tuple[int, Passage]]
) -> list[Measured]:
    """Its fresh noise, release by release."""
    made = _inverse(stream, len(passages))
    if made is None:
        return []
    unit, columns = made
    prefix: Floats = np.zeros(stream.statistic.layout.size)
    rows, released = [], []
    for _, passage in passages:
        prefix = prefix + _total(gate, totals, passage, passage.blocks[0])
        released.append(passage.statistic.layout.pack(passage.release.parts))
        rows.append(released[-1] - prefix)
    whitened = unit @ (np.stack(rows) / stream.step)
    blur = rounding(np.stack(released), len(rows)) / stream.step
    blur += passages[-1][1].release.users / 2 + 1
    blur *= float(np.abs(unit).sum(axis=1).max())
    entered = [passage.blocks[0] for _, passage in passages]
    law: Law = "laplace" if stream._curator.privacy.pure else "normal"
    found = []
    for t, (place, passage) in enumerate(passages):
        gains = {b: float(columns[t, k]) / stream.step for k, b in enumerate(entered)}
        found.append(Measured(passage, place, whitened[t], gains, law, blur))
    return found


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
    """The noise of a block's reports, added up."""
    vector = passage.statistic.layout.pack(passage.release.parts)
    users = gate.blocks[passage.gate, passage.blocks[0]].users
    noise = vector - _total(gate, totals, passage, passage.blocks[0])
    return _reported(passage, place, noise, users, vector, passage.release.users)


def _reported(
    passage: Passage, place: int, noise: Floats, users: float, vector: Floats, terms: int
) -> Measured:
    """The noise of so many reports, beside a published vector that adds up so many."""
    privacy: LocalDP = passage.gate.privacy  # type: ignore[attr-defined]
    laplace = privacy.mechanism == "laplace"
    law: Law = "sum of laplace" if laplace else "normal"
    scale = math.sqrt(users * (2.0 if laplace else 1.0)) * noise_scale(passage.statistic, privacy)
    blur = report_blur(passage.statistic, privacy, terms, vector) / scale
    return Measured(passage, place, noise / scale, {}, law, blur)


def _of_report_stream(
    gate: WatchedGate, totals: Totals, passages: list[tuple[int, Passage]]
) -> list[Measured]:
    """What each release adds to the one before."""
    found, before = [], None
    for place, passage in passages:
        vector = passage.statistic.layout.pack(passage.release.parts)
        block = passage.blocks[0]
        users = gate.blocks[passage.gate, block].users
        noise = vector - (0.0 if before is None else before) - _total(gate, totals, passage, block)
        before = vector
        found.append(_reported(passage, place, noise, users, vector, users))
    return found


def report_blur(statistic: Statistic, privacy: LocalDP, users: int, vector: Floats) -> float:
    """By how much a sum of reports may be off, by grids and floats."""
    return rounding(vector, users) + grid_step(statistic, privacy.norm) * (users / 2 + 1)


# What passes the gate when nothing is added to it.


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """All sources of additive noise draw zeros for a while; for sums that should be exact."""

    def zeros(self: Noise, *arguments: Any) -> NDArray[np.int64]:
        # The shape comes last.
        return np.zeros(arguments[-1], dtype=np.int64)

    with contextlib.ExitStack() as stack:
        for name in ("steps", "laplace_sum"):
            stack.enter_context(mock.patch.object(Noise, name, zeros))
        yield


def off_by(gate: WatchedGate) -> str | None:
    """Where sums that were released in silence are not those of the users' vectors, in words.

    They must be, to the last bit, sums of whole numbers that every user's vector was rounded to
    before anything was added.
    """
    before: dict[Stream, Floats] = {}
    for place, passage in enumerate(gate.passages):
        statistic, curator = passage.statistic, passage.gate
        if not isinstance(curator, JointCurator):
            continue
        vector, block = statistic.layout.pack(passage.release.parts), passage.blocks[0]
        vectors = gate.contributions(passage)[block]
        step = grid_step(statistic, curator.privacy.norm)
        if isinstance(passage.stream, JointStream):
            step = passage.stream.step
        size = chunk_users(gate.blocks[curator, block])
        parts = [vectors[at : at + size].sum(axis=0) / step for at in range(0, len(vectors), size)]
        expected = np.asarray(sum(np.rint(part) for part in parts), dtype=np.float64)
        if passage.stream is not None:
            expected = expected + before.get(passage.stream, np.zeros(1))
            before[passage.stream] = expected
        length = statistic.l2(curator.privacy.relation) * max(passage.release.users, 1)
        gap = float(np.abs(vector / step - expected).max())
        # Weights of parts are multiplied in and out again, which may round.
        if gap > min(1e-9 * length / step, 1e-3):
            return (
                f"without its noise release {place} is not the sum of its users' vectors: it is "
                f"off by {gap:.4g} grid steps"
            )
    return None
