"""Studies: tables of runs, made by one command and stored row by row for the pages that show them.

A study is a list of cases (what is run) and of columns (what is shown of the runs of a case). Every
row is stored with its runs in ``research/NAME.json`` as soon as it is measured; pages are filled
from there by :mod:`research.results`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

import tacit
from research.worlds import build
from tacit.privacy.files import write_atomic
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.simulation.plots import short
from tacit.simulation.result import Result

T = TypeVar("T")
DELTA, RUNS = 1e-6, 10
PLAIN = NonPrivate()
HERE = Path(__file__).parent


def joint(epsilon: float, delta: float = DELTA) -> JointDP:
    """The usual budget of a row."""
    return JointDP(epsilon, delta)


# Command lines.


class Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line, without the usage, with exit code 2."""

    def __init__(self, module: str, about: str | None) -> None:
        super().__init__(
            prog=f"python -m {module}",
            description=(about or "").partition("\n")[0],
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and exits."""
        self.exit(2, f"{self.prog}: {message}\n")


def whole(least: int) -> Callable[[str], int]:
    """A type for whole numbers of at least ``least``.

    >>> whole(1)("1000000")
    1000000
    """

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            words = f"is {text!r}, but must be a whole number of at least {least}"
            raise argparse.ArgumentTypeError(words)
        return int(text)

    return parse


# What is stored.


def load(name: str) -> dict[str, Any]:
    """The stored content of a study."""
    path = HERE / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def store(name: str, content: Mapping[str, Any]) -> None:
    """Replaces it, a row in a line."""
    rows = (f"{json.dumps(key)}: {json.dumps(row)}" for key, row in content.items())
    write_atomic(HERE / f"{name}.json", ("{\n" + ",\n".join(rows) + "\n}\n").encode(), 0o644)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """A table whose first columns are names and whose others are numbers."""
    rule = "|---" * names + "|---:" * (len(head) - names) + "|"
    return "\n".join([_line(head), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# What is run.


@lru_cache(maxsize=16)
def world_of(text: str) -> Any:
    """Several runs in a row are about one world."""
    return build(text)


def seeded(world: str, seed: int) -> str:
    """A world of the seed: ``SEED`` in its text is replaced.

    >>> seeded("simplex:states=100,seed=SEED", 3)
    'simplex:states=100,seed=3'
    """
    return world.replace("SEED", str(seed))


@dataclass(frozen=True)
class Case:
    """A row of a table.

    Attributes:
        cells: its names, one for each of the table's first heads.
        world: a text; ``SEED`` in it stands for the seed of the run.
        agent: a text, or ``"auto"``.
        privacy: the model and its budget.
        users: how many are declared.
        runs: how many seeds, unless the command says so.
        beside: further cases of the same row, by a name that columns know.
    """

    cells: tuple[str, ...]
    world: str
    agent: str
    privacy: Privacy
    users: int
    runs: int = RUNS
    beside: Mapping[str, Case] = field(default_factory=dict, hash=False)

    def run(self, seed: int) -> Result:
        """One run, with the users, labels and noise of the seed."""
        world = world_of(seeded(self.world, seed))
        given: dict[str, Any] = {"users": self.users, "privacy": self.privacy}
        return tacit.run(self.agent, world, seed, progress=False, **given)


def with_progress(items: Iterable[T], total: int) -> Iterator[T]:
    """The same, under a progress bar where somebody is watching."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    given: dict[str, Any] = {"console": console, "disable": not console.is_terminal}
    yield from track(items, "running", total=total, transient=True, **given)


def run_all(
    jobs: Iterable[T], run: Callable[[T, int], Any], runs: int, workers: int = 2
) -> dict[T, list[Any]]:
    """Every job with seeds 0, 1, ...; what comes out does not depend on ``workers``.

    Args:
        jobs: what is run, each of them once.
        run: called with a job and a seed; a function of a module.
        runs: how many seeds.
        workers: processes; 1 runs all in this one.
    """
    pairs = [(job, seed) for seed in range(runs) for job in dict.fromkeys(jobs)]
    if workers == 1:
        done = list(with_progress((run(*pair) for pair in pairs), len(pairs)))
    else:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        # Spawned, not forked: a fork copies locks that other threads may hold.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            done = list(with_progress(pool.map(run, *zip(*pairs, strict=True)), len(pairs)))
    found: dict[T, list[Any]] = {}
    for (job, _), one in zip(pairs, done, strict=True):
        found.setdefault(job, []).append(one)
    return found


# What is shown.


def amount(value: float) -> str:
    """A number for a table.

    >>> amount(0.123456), amount(152.0), amount(12345.6), amount(2.5e8), amount(math.inf)
    ('0.123', '152', '12,346', '250M', 'not reached')
    """
    if math.isinf(value):
        return "not reached"
    if value >= 1e7:
        return short(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def spread(
    values: Sequence[float | None],
    ends: tuple[float, float] | None = (0.25, 0.75),
    words: Callable[[float], str] = amount,
) -> str:
    """The median and two quantiles, quartiles by default; a value ``None`` counts as infinite.

    >>> spread([3, 1, 2, None]), spread([None, None]), spread([0.5, 20_000.0, 3e8])
    ('2.5 [2, 3]', 'not reached', '20,000 [0.5, 300M]')
    """
    numbers = np.array([math.inf if value is None else float(value) for value in values])
    if np.isinf(numbers).all():
        return words(math.inf)
    middle = words(float(np.median(numbers)))
    if ends is None:
        return middle
    low, high = np.quantile(numbers, ends, method="nearest")
    return f"{middle} [{words(low)}, {words(high)}]"


Runs = Mapping[str, Sequence[Result]]
"""Runs of a row: of its case under ``""``, of those beside it under their names."""
Columns = Mapping[str, Callable[[Case, Runs], str]]


@dataclass(frozen=True)
class Study:
    """A table.

    Attributes:
        name: of the table on pages, and of the file beside this module.
        heads: of the first columns, which name a case.
        cases: the rows.
        columns: what is shown of the runs of a case.
    """

    name: str
    heads: tuple[str, ...]
    cases: tuple[Case, ...]
    columns: Columns

    @property
    def file(self) -> str:
        """Where it is stored."""
        return self.name.replace(" ", "_")

    def measure(self, case: Case, runs: int | None = None) -> dict[str, Any]:
        """The row of a case, with the numbers of all of its runs."""
        found = {
            name: [one.run(seed) for seed in range(one.runs if runs is None else runs)]
            for name, one in {"": case, **case.beside}.items()
        }
        return {
            "cells": [*case.cells, *(show(case, found) for show in self.columns.values())],
            "runs": {name: _plain(results) for name, results in found.items()},
        }

    def table(self) -> str:
        """What is stored, in Markdown."""
        stored = load(self.file)
        rows = [stored[key]["cells"] for key in map(key_of, self.cases) if key in stored]
        return markdown([*self.heads, *self.columns], rows, len(self.heads))


def _plain(results: Sequence[Result]) -> dict[str, list[float | None]]:
    """What is kept of runs."""
    return {
        "users_to_90": [result.users_to_90 for result in results],
        "greedy_users_to_90": [result.greedy_users_to_90 for result in results],
        "value": [round(result.final_value, 6) for result in results],
        "greedy_value": [round(result.greedy_value, 6) for result in results],
        "regret": [result.summary["regret"] for result in results],
    }


def key_of(case: Case) -> str:
    """Of a row, as stored.

    >>> key_of(Case(("line", "1"), "line", "auto", PLAIN, 10))
    'line, 1'
    """
    return ", ".join(case.cells)


def study_main(
    module: str, about: str | None, studies: Mapping[str, Study]
) -> Callable[[Sequence[str] | None], int]:
    """The command line of a module with studies."""

    def main(arguments: Sequence[str] | None = None) -> int:
        parser = Parser(module, about)
        parser.add_argument(
            "name", choices=studies, metavar="NAME", help=f"of {', '.join(studies)}"
        )
        parser.add_argument("--only", default="", help="rows whose name has this text")
        parser.add_argument("--runs", type=whole(1), default=None, help="seeds of a row")
        parser.add_argument("--again", action="store_true", help="run what is stored as well")
        parser.add_argument("--show", action="store_true", help="only show what is stored")
        given = parser.parse_args(arguments)
        study = studies[given.name]
        for case in () if given.show else study.cases:
            key = key_of(case)
            if given.only in key and (given.again or key not in load(study.file)):
                row = study.measure(case, given.runs)
                store(study.file, load(study.file) | {key: row})
                print(_line(row["cells"]), flush=True)
        print(study.table())
        return 0

    return main
