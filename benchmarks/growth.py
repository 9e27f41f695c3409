"""What one more user costs when many came before: in a large block, and in a store.

An agent is brought to 10^4, 10^5 and 10^6 users in large batches; then users come one by one, or a
hundred at a time, and are timed. It must cost the same at all three sizes. Times are those of the
processor, without those of the disk, which does the same at every size.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from benchmarks.row import Row, at_least, at_most, noted
from tacit.data.episodes import Episodes
from tacit.tabular import riverswim

SIZES = (10**4, 10**5, 10**6)
TIMED = {1: 4_000, 100: 10_000}
"""How many users are timed at once, by the size of a batch: at least a fortieth of all."""
FLUSHED = {1: 250, 100: 10_000}
"""Those of a store, where every batch is a flush of the disk."""
WINDOWS = 4
BLOCK = 1_000
WORLD = riverswim(3, 4)


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    pool = _pool()
    ones = [pool.take(slice(i, i + 1)) for i in range(BLOCK)]
    hundreds = [pool.take(slice(i, i + 100)) for i in range(0, BLOCK, 100)]
    batches = {1: ones, 100: hundreds}
    plain = _rate(lambda: _append(ones), TIMED[1])
    for name, stored, again in (
        ("one large block", False, False),
        ("store", True, False),
        ("store, returning users", True, True),
    ):
        found: dict[tuple[int, int], float] = {}
        with tempfile.TemporaryDirectory() as folder:
            agent = _agent(Path(folder) / "app.db" if stored else "")
            for size in SIZES:
                _fill(agent, pool, size)
                for batch, parts in batches.items():
                    timed = FLUSHED[batch] if stored else max(TIMED[batch], size // 40)
                    call = _serving(agent, parts, batch, timed, again)
                    found[size, batch] = _rate(call, timed)
        for batch in batches:
            rates = [found[size, batch] for size in SIZES]
            for size, rate in zip(SIZES, rates, strict=True):
                what = f"{name}, batches of {batch}: users per second after {size:,}"
                yield noted("growth", what, rate)
            what = f"{name}, batches of {batch}: fastest over slowest size"
            yield at_most("growth", what, max(rates) / min(rates), 1.5)
        if not stored:
            share = min(found[size, 1] for size in SIZES) / plain
            yield at_least(
                "growth", "batches of 1, times a loop that copies and appends", share, 0.25
            )


def _pool() -> Episodes:
    """Users who followed the first policy, whose version never changes for those who wait."""
    first = _agent("").policy
    found: Episodes = WORLD.simulate(first, BLOCK, np.random.default_rng(0), "episodes")
    return found


def _agent(store: Path | str) -> Any:
    users = 2 * SIZES[-1]
    size = BLOCK if store else users
    return tacit.PolicyImprovement(
        WORLD.spec,
        users,
        tacit.JointDP(1.0, 1e-6, episodes_per_user=3),
        schedule=f"fixed:size={size}",
        store=store,
    )


def _fill(agent: Any, pool: Episodes, users: int) -> None:
    """Brings an agent to so many users."""
    while agent.taken < users:
        first = agent.taken
        some = min(BLOCK, users - first)
        agent.learn(pool.take(slice(0, some)), [*range(first, first + some)])


def _serving(
    agent: Any, parts: list[Episodes], batch: int, timed: int, again: bool
) -> Callable[[], None]:
    """Serves users: new ones, or those who came first."""

    def serve() -> None:
        start = 0 if again else agent.taken
        for place, first in enumerate(range(start, start + timed, batch)):
            agent.learn(parts[place % len(parts)], [*range(first, first + batch)])

    return serve


def _append(ones: list[Episodes]) -> None:
    """What anybody would write who only keeps a copy of each user, with her id, under a lock."""
    kept: list[Any] = []
    lock = threading.Lock()
    for user in range(TIMED[1]):
        block = ones[user % len(ones)].block().sealed()
        with lock:
            kept.append((block, user))


def _rate(call: Callable[[], None], timed: int) -> float:
    """Users per second of processor time, in the fastest of several windows."""
    best = float("inf")
    for _ in range(WINDOWS):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return timed / best
