"""Releases of real runs, judged by our own rules; see :mod:`tests.own_path.own_rules`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.curator import Curator, JointCurator, Stream
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Bools, Floats
from tacit.testing.recording import RecordingCurator, ReleaseRecord
from tests.own_path import own_rules as own
from tests.own_path.noise_tests import Law, Measured

Ints: TypeAlias = NDArray[np.int64]
# How far a scale may be off without anybody being less safe, or paying for it.
_TIGHT, _WASTE = 1e-9, 1e-5


@dataclass(frozen=True, eq=False)
class Draw:
    """What was asked of the source, and what it drew."""

    pure: bool
    scale: float
    values: Ints


@dataclass(frozen=True, eq=False)
class Answer:
    """One release, beside what it must be.

    Attributes:
        record, place: what passed the curator, and which release of its run it is.
        noise: what was released minus our own sum, in steps.
        scale: what our own rules demand, in steps.
        draw: what the source drew for it.
        costs: by block, what it really cost: sensitivity over the scale that was asked for.
        wrong: what our own rules say against it.
        step: of its grid.
    """

    record: ReleaseRecord
    place: int
    noise: Floats
    scale: float
    draw: Draw | None
    costs: dict[int, float]
    wrong: tuple[str, ...] = ()
    step: float = 1.0

    @property
    def measured(self) -> Measured:
        """For the tests of noise; values on a grid repeat by chance, so their blur is a step."""
        privacy = self.record.curator.privacy
        law: Law = "laplace" if privacy.needs_l1 else "normal"
        gains = {self.record.block: 1.0 / (self.scale * self.step)}
        noise, blur = self.noise / self.scale, 1.0 / self.scale
        return Measured(self.record, self.place, noise, gains, law, blur)


def answers_of(recorder: RecordingCurator, draws: Sequence[Draw]) -> list[Answer]:
    """All releases of joint curators; each must have had one draw of its own."""
    records = [p for p in recorder.records if isinstance(p.curator, JointCurator)]
    drawn = dict(zip(map(id, records), draws, strict=False))
    found: list[Answer] = []
    streams: dict[Curator[Any], list[tuple[int, ReleaseRecord]]] = {}
    places: dict[Curator[Any], int] = {}
    for record in records:
        place = places.setdefault(record.curator, 0)
        places[record.curator] += 1
        if record.stream is not None:
            streams.setdefault(record.curator, []).append((place, record))
        else:
            found.append(_plain(recorder, record, place, drawn.get(id(record))))
    for some in streams.values():
        # A run that is read again has another object for the same stream.
        stream = some[-1][1].stream
        assert stream is not None
        found += _streamed(recorder, stream, some, [drawn.get(id(p)) for _, p in some])
    if len(records) != len(draws) and found:
        words = f"{len(records)} releases drew {len(draws)} times"
        found[0] = dataclasses.replace(found[0], wrong=(words, *found[0].wrong))
    order = {id(p): i for i, p in enumerate(records)}
    return sorted(found, key=lambda a: order[id(a.record)])


def _plain(
    recorder: RecordingCurator, record: ReleaseRecord, place: int, draw: Draw | None
) -> Answer:
    """One release of one block."""
    statistic, curator, where = record.statistic, record.curator, f"release {place}"
    assert isinstance(curator, JointCurator)
    privacy, cost, block = curator.privacy, float(record.release.cost or 0), record.block
    step = own.step_of(statistic, privacy.norm)
    far = own.apart(statistic, privacy.relation, privacy.norm, step)
    steps = statistic.layout.pack(record.release.parts) / step
    whole, is_open = own.total_of(statistic, recorder.blocks[curator, block], step)
    noise, wrong, asked = np.rint(steps) - whole.astype(np.float64), [], math.nan
    if np.abs(steps - np.rint(steps)).max(initial=0.0) > 1e-3:
        wrong.append(f"{where} is not on the grid of {step:g}")
    if draw is None:
        wrong.append(f"{where} drew nothing from the source")
    else:
        asked = draw.scale
        wrong += misfit(where, draw, far / cost, privacy.needs_l1)
        wrong += not_drawn(where, noise, draw, is_open)
    return Answer(record, place, noise, far / cost, draw, {block: far / asked}, (*wrong,), step)


def misfit(where: str, draw: Draw, demanded: float, pure: bool) -> list[str]:
    """Whether noise of another scale or law was asked for than sensitivity and cost demand."""
    found, ratio = [], draw.scale / demanded
    if not 1.0 - _TIGHT <= ratio <= 1.0 + _WASTE:
        words = "times the scale that sensitivity, cost and grid demand"
        found.append(f"{where} asked for noise of {ratio:.9f} {words}")
    if draw.pure != pure:
        found.append(f"{where} asked for {'Laplace' if draw.pure else 'Gaussian'} noise")
    return found


def not_drawn(where: str, noise: Floats, draw: Draw, is_open: Bools) -> list[str]:
    """Whether what was released is not our own sum plus what was drawn."""
    if draw.values.shape != noise.shape:
        return [f"{where} has {noise.size} entries and drew {draw.values.size} numbers"]
    off = np.abs(noise - draw.values) > np.where(is_open, 1.0, 0.0)
    words = f"is not its users' sum plus the noise that was drawn, in {off.sum()} of {off.size}"
    return [f"{where} {words} entries"] if off.any() else []


def _streamed(
    recorder: RecordingCurator,
    stream: Stream,
    some: list[tuple[int, ReleaseRecord]],
    draws: list[Any],
) -> list[Answer]:
    """The releases of a running sum, through the inverse of what its counter does to noise.

    What is published is A x + M z, z being what was drawn; M is found by playing single numbers
    through a counter of the same kind. Block k moves M^-1 A e_k, which is what it costs.
    """
    curator, statistic = stream._curator, stream.statistic
    privacy, relation, norm = curator.privacy, curator.privacy.relation, curator.privacy.norm
    step = own.step_of(statistic, norm)
    far = own.apart(statistic, relation, norm, step)
    prefix, rows = np.zeros(statistic.layout.size), []
    for _, record in some:
        raw, asked = recorder.blocks[curator, record.block], record.statistic
        prefix = prefix + own.total_of(asked, raw, step)[0]
        rows.append(asked.layout.pack(record.release.parts) / step - prefix)
    matrix = _responses(stream, len(some))
    alone = bool(np.abs(np.diag(matrix)).min() > 0.0)
    inverse = np.linalg.inv(matrix) if alone else np.linalg.pinv(matrix)
    noise, moves = inverse @ np.stack(rows), inverse @ np.tril(np.ones(inverse.shape))
    scales = np.array([1.0 if d is None else d.scale for d in draws])
    parts = np.abs(moves) * far / scales[:, np.newaxis]
    costs = parts.sum(axis=0) if privacy.needs_l1 else np.sqrt((parts**2).sum(axis=0))
    found = []
    for t, (place, record) in enumerate(some):
        claimed, draw = float(record.release.cost or math.nan), draws[t]
        wrong = [] if alone else ["some release of a stream has no noise of its own"]
        if costs[t] > claimed * (1.0 + 1e-7):
            wrong.append(f"the stream's block {t} costs {costs[t]:.9g}, charged is {claimed:.9g}")
        if draw is None or draw.pure != privacy.needs_l1:
            wrong.append(f"release {place} drew nothing, or noise of another law")
        # Fractions of C x are rounded, which moves it by less than this.
        elif np.abs(noise[t] - draw.values).max() > 1e-4 * draw.scale:
            wrong.append(f"release {place} of a stream is not its sum plus what was drawn")
        scale = float(scales[t] * max(1.0, costs.max() / claimed))
        paid = {record.block: float(costs[t])}
        found.append(Answer(record, place, noise[t], scale, draw, paid, tuple(wrong)))
    return found


class _Impulse(Noise):
    """Draws zeros, and in one place a number of a thousand times its scale."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._left, self.size = place, 1.0

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        self._left -= 1
        if self._left == -1:
            self.size = math.floor(1024.0 * scale)
        return np.full(count, self.size if self._left == -1 else 0.0).astype(np.int64)


def _responses(stream: Stream, releases: int) -> Floats:
    """M: how much of each draw is in each release, by the counter's own code."""
    columns = []
    # Of the same size: binary places may depend on it.
    zero = np.zeros(stream.statistic.layout.size, dtype=np.int64)
    for t in range(releases):
        source = _Impulse(t)
        counter = stream.counter.rebuild(zero.shape, source)
        out = [float(counter.release(zero)[0]) for _ in range(releases)]
        columns.append(np.array(out) / source.size)
    return np.array(columns).T
