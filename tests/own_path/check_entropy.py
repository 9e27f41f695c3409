"""Where real noise comes from: fresh bytes of the operating system, and nothing else.

``os.urandom`` is replaced by a tape, so that a run can be made again with the same bytes, or with
other bytes for one draw.
"""

import contextlib
import hashlib
import itertools
import os
import random
import threading
import warnings
from unittest import mock

import numpy as np

from tacit.privacy.deviates import Deviates
from tacit.privacy.noise import Noise
from tacit.testing.recording import RecordingCurator
from tests.own_path import runs as real

_ASK = 16
# On both sides of every limit of the sampler.
_DRAWN = (1, 7, 600, 70_000)


class Tape:
    """Bytes by key, draw and place; it remembers how many were asked for, draw by draw."""

    def __init__(self, key, other=None):
        self._key, self._other = key, other
        self._draw, self._place, self.numbers = 0, 0, 1
        self.asked, self.given = dict[int, int](), list[bytes]()

    def __call__(self, size):
        """As ``os.urandom``."""
        key = self._key + (b"other" if self._draw == self._other else b"")
        name = key + b"%d/%d/%d" % (self._draw, self._place, size)
        self._place += 1
        self.asked[self._draw] = self.asked.get(self._draw, 0) + size
        self.given.append(hashlib.shake_128(name).digest(size))
        return self.given[-1]

    def begin(self):
        """Another draw begins."""
        self._draw, self._place = self._draw + 1, 0

    def before(self, original):
        """A method that begins another draw."""

        def draw(*arguments, **options):
            self.begin()
            return original(*arguments, **options)

        return draw

    @contextlib.contextmanager
    def playing(self):
        """The operating system gives these bytes."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(os, "urandom", self))
            for name in ("steps", "words"):
                patched = self.before(Noise.__dict__[name])
                stack.enter_context(mock.patch.object(Noise, name, patched))
            yield


def entropy_outcomes(trial):
    """Runs on a tape, numbers on a tape, and processes."""
    pure = bool(trial.privacy.needs_l1)
    wrong = _runs(trial) + _numbers(pure) + _sampled(pure) + _broken(pure)
    wrong += _threads(pure)
    return [
        real.judged("entropy: bytes", wrong),
        real.judged("entropy: processes", _processes(trial)),
    ]


def _run(trial, tape):
    """What a whole run publishes (of devices: one block), if these bytes are given."""
    agent = trial.make()
    stop = agent.block_users if trial.privacy.local else trial.pool.users
    with tape.playing(), RecordingCurator().open() as recorder, real.drawing() as draws:
        real.serve(agent, trial.pool, stop=stop)
    tape.numbers = draws[0].values.size if draws else 1
    parts = [record.release.parts.values() for record in recorder.records]
    return [np.concatenate([np.ravel(part) for part in some]) for some in parts]


def _runs(trial):
    """The same bytes give the same run, in another world and after other agents; others do not."""
    tape, found, before = Tape(b"one"), [], (random.getstate(), np.random.get_state())  # noqa: NPY002
    with real.frozen_world():
        first = _run(trial, tape)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    other = _run(trial, Tape(b"two"))
    with mock.patch.object(os, "getpid", return_value=os.getpid() + 77):
        again = _run(trial, Tape(b"one"))
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    if [a.tobytes() for a in first] != [a.tobytes() for a in again]:
        found.append(
            "the same bytes of the operating system lead to other releases: noise also depends on "
            "clocks, shared generators, the process, or what was drawn before"
        )
    one, two = first[0], other[0]
    # Of bits some always agree.
    same = np.count_nonzero((one == two) & (one != 0.0)) if one.shape == two.shape else 0
    if np.array_equal(one, two) or (not trial.privacy.reports_bits and same > 2 + one.size // 50):
        found.append(f"with other bytes {same} of {one.size} entries are the same")
    if tape.asked.get(1, 0) < _ASK * tape.numbers:
        found.append(f"{tape.asked.get(1, 0)} bytes were asked for, for {tape.numbers} numbers")
    return found


def _numbers(pure):
    """Draws from one source: each depends on its own bytes, all of it, and no other does."""
    found, scale = [], 2.0**45 / 3.0

    def drawn(other, size):
        tape, source = Tape(b"numbers", other), Noise()
        with tape.playing():
            made = [np.array(source.steps(pure, scale, n)) for n in (size, size, 9)]
            return [*made, np.array(Noise().steps(pure, scale, size))], tape

    for size in _DRAWN:
        base, tape = drawn(None, size)
        for draw, made in enumerate(base, start=1):
            if tape.asked.get(draw, 0) < _ASK * made.size:
                found.append(f"{tape.asked.get(draw, 0)} bytes were asked for {made.size} numbers")
        large = [b for b in tape.given if len(b) >= _ASK]
        if len(set(large)) < len(large):
            found.append("the same bytes were asked for twice")
        for other in range(1, 5):
            for draw, (a, b) in enumerate(zip(base, drawn(other, size)[0], strict=True), start=1):
                same = int(np.count_nonzero(a == b))
                if draw == other and same:
                    found.append(f"with other bytes {same} of {size} numbers are the same")
                if draw != other and same < a.size:
                    found.append(f"draw {draw} depends on the bytes of draw {other}")
    return found


def _sampled(pure):
    """Real noise is what the sampler makes of the bytes, which test_deviates looks at."""
    found = []
    for size, scale in itertools.product(_DRAWN, (3.7, 2.0**45 / 3.0)):
        own = Tape(b"sampler")
        own.begin()
        draws = Deviates(own)
        with Tape(b"sampler").playing():
            same = Noise().steps(pure, scale, size)
        if not np.array_equal(same, (draws.laplace if pure else draws.normal)(scale, size)):
            found.append(f"{size} numbers are not what the sampler makes of the same bytes")
    return found


def _broken(pure):
    """Without bytes of the operating system nothing is drawn."""
    found = []
    for size in (3, 600):
        broken = mock.patch.object(os, "urandom", side_effect=OSError("no entropy"))
        with broken, contextlib.suppress(OSError):
            Noise().steps(pure, 2.0**30, size)
            found.append(f"{size} numbers are drawn although the operating system has no entropy")
    return found


def _threads(pure):
    """Threads that draw at the same time from one source share no number."""
    source, numbers = Noise(), list[int]()

    def draw():
        for size in (5, 700, 5, 700):
            numbers.extend(np.abs(source.steps(pure, 2.0**50, size)).tolist())

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    repeats = len(numbers) - len(set(numbers))
    # Of 4,230 numbers one repeats with a chance of 1e-8.
    return [f"threads share {repeats} of {len(numbers)} numbers"] if repeats else []


def in_child(work):
    """What a forked process says."""
    read, write = os.pipe()
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child == 0:
        try:
            os.write(write, work()[:60_000])
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def _processes(trial):
    """Parent and children draw differently, and a child's curator refuses."""
    if not hasattr(os, "fork"):
        return []
    found, pure, source = [], bool(trial.privacy.needs_l1), Noise()
    source.steps(pure, 2.0**40, 600)

    def draw():
        parts = [source.steps(pure, 2.0**48, n) for n in (5, 600)]
        return np.concatenate(parts).astype("<i8").tobytes()

    drawn = b"".join([in_child(draw), draw(), in_child(draw), draw()])
    numbers = np.abs(np.frombuffer(drawn, "<i8"))
    repeats = numbers.size - np.unique(numbers).size
    # Two of 2,420 repeat by chance with a probability below 1e-15.
    if numbers.size != 4 * 605 or repeats > 1:
        found.append(f"{repeats} of {numbers.size} numbers are those of another process")
    return found
