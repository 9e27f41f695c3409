"""Runs the benchmarks and prints one table; exit code 1 if a limit is missed."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks.row import Row

Benchmark = Callable[[], Iterable[Row]]


def found() -> dict[str, Benchmark]:
    """The benchmarks of this folder by name: every module that has ``rows``."""
    names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    return {name: m.rows for name, m in modules.items() if hasattr(m, "rows")}


def run(chosen: dict[str, Benchmark]) -> list[Row]:
    """All rows, with a progress line on the error stream."""
    console = Console(stderr=True)
    rows: list[Row] = []
    start = time.monotonic()
    with console.status("") as status:
        for number, (name, benchmark) in enumerate(chosen.items(), 1):
            line = f"{name}, {number} of {len(chosen)}"
            status.update(line)
            if not console.is_terminal:
                console.print(line, highlight=False)
            for row in benchmark():
                rows.append(row)
                status.update(f"{line}: {len(rows)} rows, {time.monotonic() - start:.0f} s")
    return rows


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table; only a terminal gets colours."""
    shown = Table("benchmark", "measured")
    shown.add_column("value", justify="right", no_wrap=True)
    shown.add_column("limit", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    colours = {None: "", True: "green", False: "bold red"}
    for row in rows:
        colour = colours[row.ok]
        verdict = f"[{colour}]{row.verdict}[/]" if colour else ""
        shown.add_row(row.name, row.what, row.measured, row.limit, verdict)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named benchmarks, or all."""
    available = found()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(available)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run ({names})")
    wanted = parser.parse_args(arguments).names or list(available)
    if unknown := [name for name in wanted if name not in available]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {names}")
    rows = run({name: available[name] for name in wanted})
    # A pipe has no width of its own; wide enough that the rows stay on one line each.
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(rows))
    missed = [row for row in rows if row.ok is False]
    limits = sum(row.ok is not None for row in rows)
    console.print(f"{limits - len(missed)} of {limits} limits met", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
