"""Logs in Parquet to private sums: as fast as Arrow, in the memory of a batch; one user at a time.

    python -m benchmarks logs                # 10^7 steps; memory at 10^6 and 10^7
    TACIT_STEPS=1e8 python -m benchmarks logs   # memory at 10^8 as well

The peer scans the same columns of the same file and makes a ``bincount`` of all transitions, with
no regard to users. Ours also sorts out who is who, makes sure that nobody counts twice, and clips.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from benchmarks.row import Row, at_least, at_most, noted
from benchmarks.timing import processor
from tacit.data.episodes import Episodes
from tacit.tabular import riverswim
from tacit.tabular.visits import VisitCounts

S, A, H = 20, 4, 10
GROUP = 1 << 20
STEPS = 10**7
COLUMNS = ("user", "step", "state", "action", "reward", "next_state")


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, STEPS)
        works = (
            lambda: bare(path),
            lambda: counts(path),
            lambda: counts(path, cap=2),
        )
        scan, plain, clipped = processor(*works, turns=3)
        yield noted("logs", f"{STEPS:,} steps: an Arrow scan with a bincount", scan, " s")
        yield at_least("logs", "counts per episode, times its speed", scan / plain, 0.5)
        yield at_most("logs", "clipped counts, times as long as it", clipped / scan, 5.0)
        same = bool(np.array_equal(counts(path), bare(path)))
        yield Row("logs", "the counts are those of the scan", str(same), "True", same)
        path.unlink()
        yield from _memory(Path(folder))
    yield from _one_by_one()


def write(path: Path, steps: int) -> None:
    """A log of episodes of H steps, sorted by user."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    users = GROUP // H
    types = {name: pa.int64() for name in COLUMNS} | {"reward": pa.float64()}
    schema = pa.schema(list(types.items()))
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, steps // H, users):
            n = min(users, steps // H - start)
            rng = np.random.default_rng(start)
            states = rng.integers(0, S, (n, H + 1))
            columns = {
                "user": np.repeat(np.arange(start, start + n), H),
                "step": np.tile(np.arange(H), n),
                "state": states[:, :-1].ravel(),
                "action": rng.integers(0, A, n * H),
                "reward": rng.integers(0, 2, n * H).astype(float),
                "next_state": states[:, 1:].ravel(),
            }
            writer.write_table(pa.table(columns, schema))


def bare(path: Path) -> Any:
    """All transitions, with no regard to whose they are."""
    import pyarrow.parquet as pq

    total = np.zeros(S * A * S, dtype=np.int64)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=GROUP, columns=list(COLUMNS)):
            read = [batch[name].to_numpy() for name in COLUMNS]
            _, _, state, action, _, after = read
            total += np.bincount((state * A + action) * S + after, minlength=len(total))
    return total.reshape(S, A, S)


def counts(path: Path, cap: int | None = None) -> Any:
    """The same by what passes the gate."""
    block = Episodes.parquet_block(path, horizon=H)
    statistic = VisitCounts(S, A, H, pooled=True, cap=cap)
    return statistic.layout.unpack(statistic.total(block))["transitions"].reshape(S, A, S)


def _memory(folder: Path) -> Iterator[Row]:
    """The peak of a process that sums logs of different lengths."""
    most = int(float(os.environ.get("TACIT_STEPS", "1e7")))
    found = {}
    for steps in (10**6, 10**7, 10**8):
        if steps > most:
            continue
        path = folder / f"{steps}.parquet"
        write(path, steps)
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from benchmarks.logs import counts\n"
            "counts(Path(sys.argv[1]), cap=2)\n"
            # Not ru_maxrss, which a child has from its parent.
            "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
        )
        found[steps] = int(done.stdout) / 1024
        path.unlink()
        yield noted("logs", f"{steps:,} steps: peak of memory", found[steps], " MB")
    ratio = max(found.values()) / found[10**6]
    yield at_most("logs", f"peak at {max(found):,} steps over that at 1,000,000", ratio, 1.25)


def _one_by_one() -> Iterator[Row]:
    """What ``learn`` of one user costs beyond a list that she is appended to."""
    world, users = riverswim(3, 4), 1_000_000
    agent = tacit.UCBVI(
        world.spec, 2 * users, tacit.JointDP(1.0, 1e-8), schedule=f"fixed:size={2 * users}"
    )
    pool = world.simulate(agent.policy, 1000, np.random.default_rng(0), "episodes")
    ones = [pool.take(slice(i, i + 1)) for i in range(1000)]
    for size in (10**4, users):
        while agent.taken < size:
            first = agent.taken
            agent.learn(pool, [*range(first, first + 1000)])
        times = []
        for _ in range(5):
            first, kept = agent.taken, list[Any]()
            start = time.process_time()
            for place in range(1000):
                agent.learn(ones[place], [first + place])
            middle = time.process_time()
            for place in range(1000):
                kept.append((ones[place].block(), first + place))
            times.append((middle - start) - (time.process_time() - middle))
        what = f"one user after {size:,}: learn beyond a plain append"
        yield at_most("logs", what, min(times) / 1000 * 1e6, 20.0, " us")
