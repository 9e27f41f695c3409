"""Tables of runs on worlds on which no constants were chosen: what is run, how it is shown.

Every run has a world of its own: seed 0 is a run in the world of seed 0, and so on. Numbers are
medians with quartiles over the runs; a star marks runs shorter than ten times the median.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from research.command_lines import parser_of, store
from research.jobs import DELTA, PROCESSES, RUNS, WORKERS, Job, Run, run_jobs, spread
from tacit.privacy.files import write_atomic
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.simulation.result import median
from tacit.simulation.tables import privacy_dict


def joint(epsilon: float) -> JointDP:
    """The budget of a row."""
    return JointDP(epsilon, DELTA)


def model_words(privacy: Privacy) -> str:
    """A model for a cell.

    >>> model_words(joint(1.0)), model_words(NonPrivate())
    ('1', 'not private')
    """
    if isinstance(privacy, NonPrivate):
        return "not private"
    return f"{privacy.epsilon:g}"


@dataclass(frozen=True)
class Case:
    """A row of a table.

    Attributes:
        cells: what it is, a cell for each of the table's own heads.
        job: what is run.
        plain: the same agent without privacy, to compare with.
        limit: how many users it may need.
        idle: a run in which there is nothing but noise.
        rival: what it is compared with, run by run.
    """

    cells: tuple[str, ...]
    job: Job
    plain: Job | None = None
    limit: int | None = None
    idle: Job | None = None
    rival: Job | None = None

    @property
    def chosen(self) -> bool:
        """Whether the agent chooses this statistic by itself."""
        own = self.job.with_options(statistic="auto").agent(0).algorithm.statistic_kind
        return dict(self.job.options).get("statistic", "auto") in ("auto", own)

    @property
    def jobs(self) -> list[Job]:
        """All of them."""
        return [job for job in (self.job, self.plain, self.idle, self.rival) if job is not None]


C = TypeVar("C")


@dataclass(frozen=True)
class Headed(Generic[C]):
    """What a table is about.

    Attributes:
        title: in words.
        heads: of the first columns.
        cases: the rows.
    """

    title: str
    heads: tuple[str, ...]
    cases: tuple[C, ...]

    def lines(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
        """The title, all heads, those of what was measured on the right, and the cells of rows."""
        return [
            f"### {self.title}",
            "",
            f"| {' | '.join([*self.heads, *heads])} |",
            "|---" * len(self.heads) + "|---:" * len(heads) + "|",
            *(f"| {' | '.join(cells)} |" for cells in rows),
        ]


@dataclass(frozen=True)
class Table(Headed[Case]):
    """A table of users to 90 %.

    Attributes:
        note: what to know when reading it.
        extra: further columns: how often the policy was replaced, which statistic the agent
            chooses by itself, and what is proven.
    """

    note: str = ""
    extra: Literal["", "replaced", "auto", "proven"] = ""


Tables = Mapping[str, Callable[[], Table]]


# What came out.

Found = Mapping[Job, Sequence[Run]]


@dataclass(frozen=True)
class Row:
    """A case and its runs.

    Attributes:
        case: what was run.
        runs: of it,
        plain: of its twin without privacy,
        idle: where there was nothing but noise,
        rival: and of what it is compared with.
    """

    case: Case
    runs: Sequence[Run]
    plain: Sequence[Run] = ()
    idle: Sequence[Run] = ()
    rival: Sequence[Run] = ()

    @classmethod
    def of(cls, case: Case, found: Found) -> Row:
        """From all runs."""
        others = (case.plain, case.idle, case.rival)
        return cls(case, found[case.job], *(found[job] if job else () for job in others))

    @property
    def ratio(self) -> float | None:
        """How many times the users it takes with privacy, where both get there."""
        private, plain = _median(self.runs), _median(self.plain)
        return private / plain if private is not None and plain else None

    @property
    def users(self) -> str:
        """To 90 %."""
        middle = _median(self.runs)
        star = "*" if middle is not None and self.case.job.users < 10 * middle else ""
        return spread(_reached(self.runs)) + star

    @property
    def kept(self) -> str:
        """Whether the limit is."""
        limit, middle = self.case.limit, _median(self.runs)
        if limit is None:
            return ""
        return f"{limit:,}: {'yes' if middle is not None and middle <= limit else 'no'}"

    @property
    def fewer(self) -> str:
        """In how many runs it needs fewer users than its rival."""
        if not self.rival:
            return ""
        mine, other = (
            np.array([math.inf if users is None else users for users in _reached(runs)])
            for runs in (self.runs, self.rival)
        )
        same = int((mine == other).sum())
        return f"{int((mine < other).sum())} of {len(mine)}{f', {same} equal' if same else ''}"

    @property
    def proven(self) -> str:
        """The epsilon of the guarantee."""
        guarantee = self.runs[0].result.guarantee
        return "none" if guarantee is None else f"{guarantee.epsilon:.2g}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        job = self.case.job
        values: dict[str, Any] = {
            "world": job.world,
            "agent": job.kind,
            "options": dict(job.options),
            "privacy": privacy_dict(job.privacy),
            "users": job.users,
            "statistic": self.runs[0].statistic,
            "limit": self.case.limit,
            "users_to_90": _reached(self.runs),
            "users_to_90_median": _median(self.runs),
            "greedy_users_to_90": _reached(self.runs, greedy=True),
            "greedy_users_to_90_median": _median(self.runs, greedy=True),
            "releases": self.runs[0].releases,
            "switches": [run.switches for run in self.runs],
        }
        if self.plain:
            values["plain_users_to_90"] = _reached(self.plain)
            values["ratio"] = self.ratio
        if self.idle:
            values["idle_releases"] = self.idle[0].releases
            values["idle_switches"] = [run.switches for run in self.idle]
        return values


def _reached(runs: Sequence[Run], greedy: bool = False) -> list[int | None]:
    return [run.result.greedy_users_to_90 if greedy else run.result.users_to_90 for run in runs]


def _median(runs: Sequence[Run], greedy: bool = False) -> float | None:
    return median(_reached(runs, greedy)) if runs else None


def _share(runs: Sequence[Run]) -> str:
    """How many of the releases replaced the policy: the median, of how many."""
    if not runs:
        return ""
    middle = float(np.median([run.switches for run in runs]))
    return f"{middle:g} of {runs[0].releases}"


def markdown(table: Table, rows: Sequence[Row]) -> str:
    """A table with its title."""
    heads = ["users to 90 %", "greedy"]
    if compared := any(row.plain for row in rows):
        heads += ["not private", "ratio"]
    if limited := any(row.case.limit is not None for row in rows):
        heads.append("limit kept")
    if rivals := any(row.rival for row in rows):
        heads.append("fewer than the other")
    extra = {"replaced": ["replaced", "noise alone"], "auto": ["auto"], "proven": ["proven ε"]}
    heads += extra.get(table.extra, [])
    found = []
    for row in rows:
        cells = [*row.case.cells, row.users, spread(_reached(row.runs, greedy=True))]
        if compared:
            ratio = "-" if row.ratio is None else f"{row.ratio:,.0f}"
            cells += [spread(_reached(row.plain)), ratio]
        if limited:
            cells.append(row.kept)
        if rivals:
            cells.append(row.fewer)
        if table.extra == "replaced":
            cells += [_share(row.runs), _share(row.idle)]
        if table.extra == "auto":
            cells.append("chosen" if row.case.chosen else "")
        if table.extra == "proven":
            cells.append(row.proven)
        found.append(cells)
    return "\n".join([*table.lines(heads, found), *(["", table.note] if table.note else [])])


def measure(
    tables: Tables, runs: int = RUNS, workers: int = WORKERS, quick: bool = False
) -> dict[str, tuple[Table, list[Row]]]:
    """Runs some tables; what several of them need is run once. ``quick`` is two rows of each."""
    made = {name: make() for name, make in tables.items()}
    if quick:
        runs = min(runs, 2)
        made = {name: replace(table, cases=table.cases[:2]) for name, table in made.items()}
    jobs = [job for table in made.values() for case in table.cases for job in case.jobs]
    found = run_jobs(jobs, range(runs), workers)
    return {
        name: (table, [Row.of(case, found) for case in table.cases]) for name, table in made.items()
    }


def file(text: str) -> Path:
    """A type for a table's file."""
    path = Path(text)
    if path.suffix not in (".json", ".md"):
        raise argparse.ArgumentTypeError(f"is {text!r}, but must end in .json or .md")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"is {text!r}, but there is no folder {path.parent}")
    return path


Measured: TypeAlias = Iterable[tuple[str, str, list[dict[str, Any]]]]
"""Tables, one after the other: their names, in Markdown, and their rows as plain values."""


def table_main(
    module: ModuleSpec,
    about: str,
    names: Iterable[str],
    measured: Callable[[argparse.Namespace], Measured],
) -> Callable[..., int]:
    """The command line of a module with tables.

    Args:
        module: where they are.
        about: what that module says about itself.
        names: of its tables.
        measured: makes those in ``only``, from the arguments ``runs``, ``workers`` and ``quick``.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        parser = parser_of(module, about)
        parser.add_argument("--output", type=file, default=None, help="a .json or .md file, if any")
        parser.add_numbers({"runs": (1, RUNS, "seeds of every row"), "workers": PROCESSES})
        parser.add_argument(
            "--only", nargs="+", choices=list(names), default=list(names), help="some tables only"
        )
        parser.add_quick()
        parser.add_store()
        given = parser.parse_args(arguments)
        start = time.perf_counter()
        texts, values = [], {}
        for name, text, rows in measured(given):
            print(text, end="\n\n", flush=True)
            texts.append(text)
            values[name] = rows
            if given.store:
                store(module.name, {name: {"runs": given.runs, "text": text, "rows": rows}})
        if given.output is not None:
            seconds = time.perf_counter() - start
            content = {"runs": given.runs, "seconds": seconds, "tables": values}
            as_json = given.output.suffix == ".json"
            data = json.dumps(content, indent=1, allow_nan=False) if as_json else "\n\n".join(texts)
            parser.written(lambda: write_atomic(given.output, f"{data}\n".encode(), 0o644))
            print(f"The tables are in {given.output}.")
        return 0

    return main


def tables_main(module: ModuleSpec, about: str, tables: Tables) -> Callable[..., int]:
    """The command line of a module whose tables are all measured together."""

    def measured(given: argparse.Namespace) -> Measured:
        chosen = {name: tables[name] for name in given.only}
        found = measure(chosen, given.runs, given.workers, given.quick)
        for name, (table, rows) in found.items():
            yield name, markdown(table, rows), [row.to_dict() for row in rows]

    return table_main(module, about, tables, measured)


# Tables with columns of their own.


class AnyCase(Protocol):
    """What every case has."""

    @property
    def cells(self) -> tuple[str, ...]:
        """What it is, a cell for each of the table's own heads."""
        ...


class AnyRow(Protocol):
    """What every row has."""

    @property
    def case(self) -> AnyCase:
        """What was run."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        ...


R = TypeVar("R", bound=AnyRow)


@dataclass(frozen=True)
class ColumnTable(Headed[C], Generic[C, R]):
    """A table that says by itself what its columns show.

    Attributes:
        columns: of what was measured.
        note: what to know when reading it.
    """

    columns: Mapping[str, Callable[[R], str]]
    note: str = ""

    def markdown(self, rows: Sequence[R], note: str) -> str:
        """With its title."""
        cells = ([*row.case.cells, *(cell(row) for cell in self.columns.values())] for row in rows)
        return "\n".join([*self.lines(list(self.columns), cells), "", note])


def columns_main(
    module: ModuleSpec,
    about: str,
    names: Iterable[str],
    measure: Callable[[Sequence[str], int, int, bool], Iterable[tuple[str, C, list[R]]]],
    text: Callable[[str, C, list[R]], str],
) -> Callable[..., int]:
    """The command line of a module whose tables are measured one after the other.

    Args:
        module: where they are.
        about: what that module says about itself.
        names: of its tables.
        measure: some tables by name, with so many runs and workers, or a small part of it.
        text: of a table by name with its rows.
    """

    def measured(given: argparse.Namespace) -> Measured:
        for name, table, rows in measure(given.only, given.runs, given.workers, given.quick):
            yield name, text(name, table, rows), [row.to_dict() for row in rows]

    return table_main(module, about, names, measured)
