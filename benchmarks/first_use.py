"""The first minutes: what the first run compiles, how long imports take, how much is installed.

Times are of the processor, of this process's children, so that other work on the machine matters
little; values are beside the parts that they consist of.
"""

from __future__ import annotations

import importlib.metadata
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tacit
from benchmarks.row import Row, at_most, noted

RUNS = {
    "riverswim": "--world riverswim --epsilon 1 --delta 1e-6 --users 1e5",
    "simplex": "--world simplex --epsilon 1 --delta 1e-6 --users 1e4",
    "dosing": "--world dosing --epsilon 1 --delta 1e-6 --users 1e5",
    "line": "--world line --epsilon 0.9 --delta 1e-4 --users 100",
    "CartPole": "--world gym:CartPole-v1 --epsilon 1 --delta 1e-6 --users 60",
    "Blackjack": "--world gym:Blackjack-v1 --epsilon 1 --delta 1e-6 --users 3000",
}
MOST = 5.0
"""Seconds that a first run may take longer than the second, where loops were compiled ahead."""
PARTS = "import numpy, scipy.special, numba, typer, rich.console"
REPETITIONS = 5
_MEGABYTE = 1 << 20


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    parts = statistics.median(_cpu("-c", PARTS) for _ in range(REPETITIONS))
    yield noted("first use", f"{PARTS}: processor", parts, " s")
    yield from _imports()
    yield from _cold(parts)
    yield from _sizes()


def _imports() -> Iterator[Row]:
    # The readers as they are shipped alone: without the package around them.
    alone = (
        f"import sys; sys.path.insert(0, {str(Path(tacit.__file__).parent)!r}); import published"
    )
    turns = (
        ("import tacit", "import tacit", "import numpy, scipy.special", 2.0),
        ("import tacit_policies", alone, "import numpy", 1.5),
    )
    for name, code, parts, limit in turns:
        mine, base = (
            statistics.median(_cpu("-c", one) for _ in range(REPETITIONS)) for one in (code, parts)
        )
        yield at_most("first use", f"{name}, over {parts}", mine / base, limit)


def _cold(parts: float) -> Iterator[Row]:
    """First and second runs, in caches of their own; and after ``tacit doctor --compile``."""
    with tempfile.TemporaryDirectory() as folder:
        ahead = {"NUMBA_CACHE_DIR": f"{folder}/ahead"}
        spent = _cpu("-m", "tacit.cli.app", "doctor", "--compile", **ahead)
        yield noted("first use", "tacit doctor --compile: processor", spent, " s")
        for name, run in RUNS.items():
            command = ("-m", "tacit.cli.app", "run", *run.split())
            alone = {"NUMBA_CACHE_DIR": f"{folder}/{name}"}
            first, second = _cpu(*command, **alone), _cpu(*command, **alone)
            prepared = _cpu(*command, **ahead)
            words = f"{name}: first run less the second"
            yield noted("first use", f"{words}, nothing compiled ahead", first - second, " s")
            yield at_most("first use", f"{words}, compiled ahead", prepared - second, MOST, " s")
            yield noted("first use", f"{name}: second run, over its imports", second / parts)


def _sizes() -> Iterator[Row]:
    package = Path(tacit.__file__).parent
    own, readers = _size(package), _size(package / "published")
    needed = ("numpy", "scipy", "numba", "llvmlite", "matplotlib", "gymnasium", "typer", "rich")
    sizes = {name: _installed(name) for name in needed}
    yield noted("install", f"{', '.join(needed)}", sum(sizes.values()) / _MEGABYTE, " MB")
    share = own / sum(sizes.values())
    yield at_most("install", "tacit, over what it needs", share, 0.05)
    yield at_most("install", "tacit-policies, over NumPy", readers / sizes["numpy"], 0.01)


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.suffix in (".py", ".json"))


def _installed(name: str) -> int:
    files = importlib.metadata.files(name) or []
    paths = (Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file())


def _cpu(*arguments: str, **environment: str) -> float:
    """Seconds of the processor that a Python takes, with its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    given = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    subprocess.run([sys.executable, *arguments], env=given, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
