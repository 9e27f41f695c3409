"""What the sampler draws, by its law and word by word; see tests/privacy/test_deviates.py as well.

*By its words*: the sampler is fed words that select each cell of the normal and the Laplace curve,
out to 8 and 44 scales, just below and just above the curve; each must give the number, or the
rejection, that integers of our own say. So tails are looked at where no number of draws would ever
come.
"""

import contextlib
import hashlib
import math
import os
import random
import threading
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from unittest import mock

import numpy as np

from tacit.privacy.deviates import CELLS, Deviates, curve
from tacit.privacy.noise import Noise
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import RecordingCurator
from tests.own_path import noise_statistics as tests
from tests.own_path import runs as real

# On both sides of all limits of the sampler, and how often.
_SIZES = ((1, 40), (7, 20), (511, 3), (513, 20), (65_537, 1), (200_000, 2))
_SMALL = (0.4, 1.0, 3.7)


def sampler_outcomes(trial):
    """For the law that the agent uses."""
    if trial.privacy.reports_bits:
        return [Outcome("sampler", "reports are bits: see real noise", None)]
    pure, law = bool(trial.privacy.needs_l1), trial.law
    return [
        real.judged("sampler: law", _by_law(pure, law)),
        real.judged("sampler: words", _by_words(pure)),
    ]


def _by_law(pure, law):
    found = []
    scale, source = 2.0**49 / 3.0, Noise()
    for size, times in _SIZES:
        draws = [source.steps(pure, scale, size) for _ in range(times)]
        what = f"{times} draws of {size}"
        if any(d.shape != (size,) or d.dtype != np.int64 for d in draws):
            found.append(f"{what}: not so many whole numbers")
            continue
        rows = [d / scale for d in draws]
        found += tests.law_wrong(np.concatenate(rows), law, 1.0 / scale, what)
        found += tests.law_wrong(np.concatenate([row[-64:] for row in rows]), law, 1e-4, "the last")
        found += tests.bits_wrong(np.concatenate(draws), scale, what)
        found += tests.repeats_wrong(draws, scale, law)
        if size > 500:
            found += tests.shared_wrong(rows, law)
    for small in _SMALL:
        found += _masses(pure, small, 400) + _masses(pure, small, 20_000)
    return found


def _masses(pure, scale, count):
    """Each whole number has its own chance at a small scale, zero and both signs included."""
    from scipy.special import gammaincc, ndtr

    def below(x):
        if not pure:
            return np.asarray(ndtr(x / scale))
        tail = 0.5 * np.exp(-np.abs(x) / scale)
        return np.where(x < 0.0, tail, 1.0 - tail)

    drawn = np.clip(Noise().steps(pure, scale, count), -99, 99)
    edges = np.arange(-99.0, 99.0) + 0.5
    chances = np.diff(below(edges), prepend=0.0, append=1.0)
    seen = np.bincount(drawn + 99, minlength=199)
    often = chances * count > 5.0
    rest = count - seen[often].sum(), max(1.0 - chances[often].sum(), 1e-300) * count
    chi = float(((seen[often] - chances[often] * count) ** 2 / (chances[often] * count)).sum())
    chi += (rest[0] - rest[1]) ** 2 / max(rest[1], 1.0)
    # The tail of chi-square is approximate with few of each: twice as far is far enough.
    if gammaincc(often.sum() / 2.0, chi / 3.0) < tests.ALARM:
        return [f"{count} numbers of scale {scale:g} do not have the chances of rounded noise"]
    return []


def _height(cells, x):
    """K f(x), by an exponential of our own choice of digits."""
    with localcontext() as context:
        context.prec = 60
        exponent = x * x / 2 if cells.squared else x
        ratio = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        return Decimal(cells.peak) * (-ratio).exp()


def _by_words(pure):
    """Cells own the words that the curve gives them, and words give the numbers they should."""
    cells, found = curve(not pure), []
    for i in range(0, CELLS * cells.end):
        own, height = cells.edges[i + 1] - cells.edges[i], _height(cells, Fraction(i, CELLS))
        if not height <= own <= height + 4:
            found.append(f"cell {i} owns {own} words, the curve gives it {height:.1f}")
    tail = cells.edges[-1] - cells.edges[-2]
    ends = _height(cells, Fraction(cells.end)) * (CELLS // cells.end if cells.squared else CELLS)
    if tail < ends or cells.edges[-1] > 2**64:
        found.append("the tail beyond the last cell owns too few words")
    if found:
        return found[:2]
    rng = np.random.default_rng(3)
    for scale in (2.0**20 * 1.37, 2.0**44 / 7.0):
        words, numbers = _probes(cells, scale, rng)
        drawn = _fed(pure, scale, words, len(numbers))
        if drawn != numbers:
            bad = next(
                (i for i, p in enumerate(zip(drawn, numbers, strict=False)) if p[0] != p[1]), 0
            )
            found.append(f"drawn together, number {bad} of chosen words is another one")
        alone = [words[i] for i in rng.choice(len(words), 120, replace=False).tolist()]
        for i in range(3, 64 * 4, 9):
            alone += _near(cells, i, int(rng.integers(0, 2**63)), 40)
        # A word that is certainly taken comes after one that may be rejected.
        after = (7, 12345 << 40)
        for pair in alone:
            expected = _number(cells, scale, *pair)
            if expected is None:
                expected = _number(cells, scale, *after)
            for few in (False, True):  # by the loop, and as a process that never loads numba
                with mock.patch.object(Deviates, "_few", lambda self, count, few=few: few):
                    if _fed(pure, scale, [pair, after], 1) != [expected]:
                        found.append(f"drawn alone, words {pair} give another number")
    return found[:3]


def _probes(cells, scale, rng):
    """Words for every cell, at random heights, and some just below or above the curve."""
    words = []
    for i in range(CELLS * cells.end):
        second = int(rng.integers(0, 2**63, dtype=np.uint64)) | int(rng.integers(0, 2)) << 63
        start, own = cells.edges[i], cells.edges[i + 1] - cells.edges[i]
        if own < 1 << 20:  # selected once in 10^13 times, and then by further digits
            continue
        words.append((start + int(int(cells.sure[i]) * rng.random() * 0.999), second))
        if i % 40 == 5:
            words += _near(cells, i, second, 16)
    numbers = [_number(cells, scale, *pair) for pair in words]
    return words, [n for n in numbers if n is not None]


def _near(cells, i, second, digits):
    """Words just below and just above the curve, to so many binary digits."""
    x = (Fraction(i) + Fraction(second & (2**63 - 1), 2**63)) / CELLS
    start, edge = cells.edges[i], int(_height(cells, x))
    gap, last = edge >> digits, cells.edges[i + 1] - 1
    return [(start + edge - gap, second), (min(start + edge + gap, last), second)]


def _number(cells, scale, first, second):
    """What two words mean, in fractions: the number, or nothing if the point is rejected."""
    low, high = 0, CELLS * cells.end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cells.edges[middle] <= first else (low, middle)
    x = (Fraction(low) + Fraction(2 * (second & (2**63 - 1)) + 1, 2**64)) / CELLS
    if first - cells.edges[low] >= _height(cells, x):
        return None
    steps = math.floor(Fraction(scale) * x + Fraction(1, 2))
    return -steps if second >> 63 else steps


def _fed(pure, scale, words, count):
    """What a real source draws from these words, and then from others that it certainly takes."""
    stream = b"".join(a.to_bytes(8, "little") + b.to_bytes(8, "little") for a, b in words)

    def bits(size):
        nonlocal stream
        if size < 16:  # digits that two words leave open
            return (b"\x5a" * 16)[:size]
        given, stream = stream[:size], stream[size:]
        return given.ljust(size, b"\x01")

    with mock.patch("os.urandom", bits):
        return [int(n) for n in Noise().steps(pure, scale, count)]


# Every real number is a function of fresh bytes of the operating system, and of nothing else:
# ``os.urandom`` is replaced by a tape, so that a run can be made again with the same bytes, or with
# other bytes for one draw.

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

    def before(self, original):
        """A method that begins another draw."""

        def draw(*arguments, **options):
            self._draw, self._place = self._draw + 1, 0
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
    wrong = _runs(trial) + _numbers(pure) + _broken(pure) + _threads(pure)
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
