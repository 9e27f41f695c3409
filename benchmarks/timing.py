"""Time of one piece of work relative to another, both measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from timeit import Timer

import numpy as np


def ratio(
    work: Callable[[], object], peer: Callable[[], object], *, calls: int, repetitions: int = 50
) -> float:
    """How many times as long ``work`` takes as ``peer``.

    The two take turns, so a slow moment of the machine hits both; and the least of many
    repetitions is taken of each, because other processes only ever add time.

    Args:
        work: what is measured.
        peer: what it is measured against.
        calls: calls of each per repetition; enough to dwarf the clock's resolution.
        repetitions: how often the two take turns.
    """
    timers = Timer(work), Timer(peer)
    for timer in timers:  # caches warm, buffers allocated
        timer.timeit(calls)
    turns = [[timer.timeit(calls) for timer in timers] for _ in range(repetitions)]
    mine, theirs = (min(column) for column in zip(*turns, strict=True))
    return mine / theirs


def seconds(work: Callable[[], object], *, repetitions: int = 1) -> float:
    """The least wall-clock time of ``work`` over some repetitions."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def processor(*works: Callable[[], object], turns: int) -> list[float]:
    """The least processor time of each; they take turns, after one that compiles."""
    times = np.empty((turns + 1, len(works)))
    for turn in times:
        for place, work in enumerate(works):
            start = time.process_time()
            work()
            turn[place] = time.process_time() - start
    return [float(least) for least in times[1:].min(axis=0)]
