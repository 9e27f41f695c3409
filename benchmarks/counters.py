"""Counters: time per release, and memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.row import Row, noted
from benchmarks.timing import ratio
from tacit.privacy.counters import Blocks, Counter, NormalisedSquareRoot, SmoothTree
from tacit.privacy.noise import Noise

LONG = 2**17
HISTORY = 1024
# Dimension, and calls per repetition.
SIZES = ((256, 200), (65_536, 4))
STEP = "one release / drawing its noise, d = {:,}"


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _steps()
    yield _history_step()
    yield _constant_memory()


def _steps() -> Iterator[Row]:
    for kind in (SmoothTree, Blocks):
        for dimension, calls in SIZES:
            factor = _step(_vector_counter(kind, dimension, LONG), calls)
            yield noted(kind.kind, STEP.format(dimension), factor, "x")


def _history_step() -> Row:
    """Around the middle of a stream; short dimension only, as it keeps all items."""
    dimension = SIZES[0][0]
    counter = _vector_counter(NormalisedSquareRoot, dimension, HISTORY)
    item = np.ones(dimension)
    calls, repetitions = 4, 20
    while counter.released < (HISTORY - calls * repetitions) // 2:
        counter.release(item)
    what = f"{STEP.format(dimension)}, in the middle of {HISTORY:,}"
    return noted("normalised square root", what, _step(counter, calls, repetitions), "x")


def _constant_memory() -> Row:
    dimension = 64
    counter = _vector_counter(SmoothTree, dimension, LONG)
    item = np.ones(dimension)
    held = {}
    for releases in (100, 10_000):
        while counter.released < releases:
            counter.release(item)
        held[releases] = _numbers(vars(counter))
    return Row(
        "smooth tree",
        f"numbers held after 10,000 releases, d = {dimension}",
        f"{held[10_000]:,}",
        f"{held[100]:,} after 100, and a vector for each level",
        held[10_000] <= held[100] + 64 * 17,
    )


def _vector_counter(kind: type[Counter], dimension: int, releases: int) -> Counter:
    # Real noise, keyed by the operating system: that is what is deployed.
    return kind(releases=releases, shape=(dimension,), mu=1.0)


def _step(counter: Counter, calls: int, repetitions: int = 50) -> float:
    item = np.ones(counter.size)
    noise = Noise()
    return ratio(
        lambda: counter.release(item),
        lambda: noise.steps(False, 2.0**40, counter.size),
        calls=calls,
        repetitions=repetitions,
    )


def _numbers(value: object) -> int:
    """Numbers in arrays and containers, however nested; a history in a list would show, too."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_numbers, value))
    return int(isinstance(value, int | float))
