"""How the cost of a ledger of people grows with the people on it.

    python -m benchmarks.growth_ledger

People join one run in steps of ten. How many join per second is measured over the last tenth before
10^4, 10^5 and 10^6 people are on the ledger, and how long opening it then takes. The files are in
memory where there is a place for that (/dev/shm): what a disk takes to flush a line is the same for
every line, and would hide how the rest grows. Rates are of processor time, so that other work on
the machine does not count.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.row import Row, at_most, noted
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.models import JointDP

SIZES = (10**4, 10**5, 10**6)
STEP = 10
# So much slower may people join when there are a hundred times as many; and in seconds, opening.
MOST_SLOWDOWN = 1.5
MOST_OPENING = 1.0


def joined(ledger: Ledger, first: int, last: int, step: int) -> float:
    """The seconds of processor time in which people join, by their numbers."""
    began = time.process_time()
    for start in range(first, last, step):
        names = [
            number.to_bytes(8) + os.urandom(8) for number in range(start, min(start + step, last))
        ]
        # Names are hashes: spread over the index, not in the order in which people come.
        ledger.join([name[8:] + name[:8] for name in names])
    return time.process_time() - began


def measured(sizes: Sequence[int] = SIZES, step: int = STEP) -> list[tuple[int, float, float]]:
    """For each size: the size, users per second before it, seconds to open a ledger so large."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    found = []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / "people.ledger"
        ledger = Ledger.create_for_people(path, JointDP(1.0, 1e-6))
        ledger.record_start("run", Terms.of(JointDP(0.5, 1e-6)))
        people = 0
        for size in sizes:
            # What is far from the sizes comes in larger steps: it is not measured.
            joined(ledger, people, size - size // 10, 100 * step)
            seconds = joined(ledger, size - size // 10, size, step)
            people = size
            began = time.perf_counter()
            known = sum(Ledger.open(path).accounts.values())
            found.append((size, size // 10 / seconds, time.perf_counter() - began))
            if known != size:
                raise AssertionError(f"{known} people are on the ledger, and {size} joined")
    return found


def rows(sizes: Sequence[int] = SIZES, step: int = STEP) -> list[Row]:
    """The rows of a table: slowdowns, rates, and the time to open the largest."""
    found, name = measured(sizes, step), "ledger of people"
    rates = [rate for _, rate, _ in found]
    table = [noted(name, f"joins at {size:,}", rate, " users/s") for size, rate, _ in found]
    slowdown = max(rates) / min(rates)
    between = f"joins from {sizes[0]:,} to {sizes[-1]:,}, fastest to slowest"
    table.append(at_most(name, between, slowdown, MOST_SLOWDOWN))
    table.append(at_most(name, f"opening at {sizes[-1]:,}", found[-1][2], MOST_OPENING, " s"))
    return table


if __name__ == "__main__":
    for row in rows():
        print(f"{row.name:20} {row.what:48} {row.measured:>16} {row.limit:>14} {row.verdict}")
