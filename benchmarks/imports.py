"""``import tacit``: how long it takes, and what it must not drag along."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.row import Row, at_most, noted
from benchmarks.timing import seconds

BASE = "import numpy, scipy.special"
REPETITIONS = 9
# Slow to import, and needed by few: whoever needs one imports it where it is used.
HEAVY = (
    "numba",
    "matplotlib",
    "jax",
    "gymnasium",
    "scipy.stats",
    "scipy.optimize",
    "dp_accounting",
)


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    _run("import tacit")  # compiles the byte code once
    turns = [
        (seconds(lambda: _run(BASE)), seconds(lambda: _run("import tacit")))
        for _ in range(REPETITIONS)
    ]
    base, mine = (statistics.median(column) for column in zip(*turns, strict=True))
    yield noted("import", "numpy and scipy.special, fresh process", base, " s")
    yield at_most("import tacit", "on top of numpy and scipy.special", mine - base, 0.4, " s")
    yield _heavy()


def _heavy() -> Row:
    found = _run(f"import sys, tacit; print(*[m for m in {HEAVY!r} if m in sys.modules])").split()
    what = f"loads none of {', '.join(HEAVY)}"
    return Row("import tacit", what, ", ".join(found) or "none", "none", not found)


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout
