"""Linear agents on worlds on which none of their constants was chosen: users to 90 %, in tables.

Every run has a world of its own: seed 0 is a run in the world of seed 0, and so on. Constants were
chosen on other seeds. Numbers are medians with quartiles over the runs; a star marks runs shorter
than ten times the median.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from tacit.experiments.arguments import Parser, whole
from tacit.experiments.compare import median, privacy_dict
from tacit.experiments.linear_comparison import DELTA, RUNS, WORKERS, Job, Run, run_jobs, spread
from tacit.experiments.plots import _short as short
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
from tacit.privacy.storage import write_atomic

AGENTS = ("LSVIUCB", "LSVIUCBPlusPlus", "BatchedLSVIUCB", "AdaptiveLSVIUCB")
PLAIN_USERS = 2_000
LOCAL_USERS = {8.0: 10**8, 1.0: 10**10}


@dataclass(frozen=True)
class Place:
    """A world, and whether the agent keeps one model for all of its steps.

    Attributes:
        label: what it is called.
        world: its name and options, all but the seed.
        users: how many are declared, by epsilon: above ten times what is needed.
        limits: how many LSVIUCB may need, by epsilon.
        per_step: whether the agent is told to keep a model per step.
    """

    label: str
    world: str
    users: Mapping[float, int]
    limits: Mapping[float, int]
    per_step: bool = False

    def job(self, agent: str, privacy: Privacy, **options: Any) -> Job:
        """An agent there."""
        if isinstance(privacy, NonPrivate):
            users = PLAIN_USERS
        else:
            known = LOCAL_USERS if isinstance(privacy, LocalDP) else self.users
            users = known[privacy.epsilon]
        job = Job(self.world, agent, privacy, users)
        if self.per_step:
            options = {"stationary": False, **options}
        return job.with_options(**options)


TWO_STATE = Place("two_state", "two_state", {1.0: 20_000, 10.0: 3_000}, {1.0: 750, 10.0: 100})
POOLED = Place("simplex, pooled", "simplex", {1.0: 100_000, 10.0: 12_000}, {1.0: 3_200, 10.0: 400})
PER_STEP = Place(
    "simplex, per step",
    "simplex",
    {1.0: 300_000, 10.0: 30_000},
    {1.0: 8_500, 10.0: 750},
    per_step=True,
)
CHANGING = replace(
    PER_STEP, label="simplex, not stationary", world="simplex:stationary=False", per_step=False
)
LARGE = Place(
    "simplex, 100 states, per step",
    "simplex:states=100",
    {1.0: 300_000},
    {1.0: 8_500},
    per_step=True,
)
PLACES = (TWO_STATE, POOLED, PER_STEP, CHANGING, LARGE)


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
        own = self.job.with_options(statistic="auto").agent(0).statistic_kind
        return dict(self.job.options).get("statistic", "auto") in ("auto", own)

    @property
    def jobs(self) -> list[Job]:
        """All of them."""
        return [job for job in (self.job, self.plain, self.idle, self.rival) if job is not None]


@dataclass(frozen=True)
class Table:
    """What one table is about.

    Attributes:
        title: in words.
        heads: of the first columns.
        cases: the rows.
        note: what to know when reading it.
    """

    title: str
    heads: tuple[str, ...]
    cases: tuple[Case, ...]
    note: str = ""


def agents() -> Table:
    """All agents, with privacy and without."""
    return Table(
        "Users to 90 % under joint DP",
        ("world", "agent", "ε"),
        tuple(
            Case(
                (place.label, agent, f"{epsilon:g}"),
                place.job(agent, joint(epsilon)),
                place.job(agent, NonPrivate()),
                place.limits[epsilon] if agent == "LSVIUCB" else None,
            )
            for agent in AGENTS
            for place in PLACES
            for epsilon in place.users
        ),
        "BatchedLSVIUCB has batches of one size, which the number of declared users sets; it "
        "cannot be good before the first has ended.",
    )


def local() -> Table:
    """Local DP."""
    rows = [
        Case(
            (place.label, "LSVIUCB", kind, f"{epsilon:g}"),
            place.job("LSVIUCB", LocalDP(epsilon, DELTA), statistic=kind),
            place.job("LSVIUCB", NonPrivate()),
        )
        for place in (TWO_STATE, POOLED, PER_STEP)
        for kind in ("features", "counts")
        for epsilon in LOCAL_USERS
    ]
    rows += [
        Case(
            (place.label, agent, "auto", f"{epsilon:g}"),
            place.job(agent, LocalDP(epsilon, DELTA)),
            place.job(agent, NonPrivate()),
        )
        for agent in ("LSVIUCBPlusPlus", "AdaptiveLSVIUCB")
        for place in (TWO_STATE, POOLED, PER_STEP)
        for epsilon in LOCAL_USERS
    ]
    declared = [f"{short(users)} at ε = {epsilon:g}" for epsilon, users in LOCAL_USERS.items()]
    return Table(
        "Users to 90 % under local DP",
        ("world", "agent", "statistic", "ε"),
        tuple(rows),
        f"Declared users: {' and '.join(declared)}.",
    )


def weights() -> Table:
    """What variance weights bring."""
    return Table(
        "LSVIUCBPlusPlus with variance weights and without",
        ("world", "ε", "weights"),
        tuple(
            Case(
                (place.label, model_words(privacy), kind),
                place.job("LSVIUCBPlusPlus", privacy, weights=kind),
                rival=place.job("LSVIUCBPlusPlus", privacy, weights=other),
            )
            for place in (TWO_STATE, POOLED, PER_STEP, CHANGING)
            for privacy in (joint(1.0), joint(10.0), NonPrivate())
            for kind, other in permutations(("variance", "none"))
        ),
    )


def noise() -> Table:
    """How the noise of a Gram matrix is shaped."""
    rows = []
    for dimension in (5, 20):
        for per_step in (False, True):
            place = replace(
                PER_STEP if per_step else POOLED,
                label=f"simplex, d = {dimension}, {'per step' if per_step else 'pooled'}",
                world=f"simplex:dimension={dimension}",
                users={1.0: 3_000_000},
            )
            jobs = {
                shape: place.job("LSVIUCB", joint(1.0), gram_noise=shape, statistic="features")
                for shape in ("frobenius", "triangle")
            }
            rows += [
                Case((place.label, shape), jobs[shape], rival=jobs[other])
                for shape, other in permutations(jobs)
            ]
    return Table(
        "Noise of the Gram matrix: the same in all directions, or i.i.d. on the upper triangle",
        ("world", "noise"),
        tuple(rows),
        "LSVIUCB at ε = 1 with statistic 'features'.",
    )


def switching() -> Table:
    """When a policy is replaced."""
    kinds = ("schedule", "determinant", "rayleigh")
    rows = []
    for place in (TWO_STATE, POOLED, PER_STEP):
        for epsilon in (1.0, None):
            privacy: Privacy = NonPrivate() if epsilon is None else joint(epsilon)
            for kind in kinds:
                job = place.job("LSVIUCB", privacy, switching=kind)
                # One user per block at so small a budget is a drop in the noise.
                idle = replace(job, privacy=joint(0.1), users=200)
                rows.append(
                    Case(
                        (place.label, model_words(privacy), kind),
                        job,
                        idle=idle.with_options(schedule="every") if epsilon else None,
                    )
                )
    return Table(
        "When the policy is replaced",
        ("world", "ε", "switching"),
        tuple(rows),
        "LSVIUCB. Noise alone: how often it is replaced in 200 releases about one user each at "
        "ε = 0.1, of which nothing can be learnt.",
    )


def statistics() -> Table:
    """What is asked of users."""
    longer = [replace(place, users={1.0: 1_000_000}) for place in PLACES if place != LARGE]
    return Table(
        "What is asked of users",
        ("world", "statistic"),
        tuple(
            Case((place.label, kind), place.job("LSVIUCB", joint(1.0), statistic=kind))
            for place in (*longer, LARGE)
            for kind in ("features", "counts", "targets")
        ),
        "LSVIUCB at ε = 1. Declared users: 1M, of 100 states 300k.",
    )


TABLES = {
    "agents": agents,
    "local": local,
    "weights": weights,
    "noise": noise,
    "switching": switching,
    "statistics": statistics,
}


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


def markdown(name: str, table: Table, rows: Sequence[Row]) -> str:
    """A table with its title."""
    heads = [*table.heads, "users to 90 %", "greedy"]
    if compared := any(row.plain for row in rows):
        heads += ["not private", "ratio"]
    if limited := any(row.case.limit is not None for row in rows):
        heads.append("limit kept")
    if rivals := any(row.rival for row in rows):
        heads.append("fewer than the other")
    if name == "switching":
        heads += ["replaced", "noise alone"]
    if name in ("local", "statistics"):
        heads.append("auto")
    lines = [
        f"### {table.title}",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(table.heads) + "|---:" * (len(heads) - len(table.heads)) + "|",
    ]
    for row in rows:
        cells = [*row.case.cells, row.users, spread(_reached(row.runs, greedy=True))]
        if compared:
            ratio = "-" if row.ratio is None else f"{row.ratio:,.0f}"
            cells += [spread(_reached(row.plain)), ratio]
        if limited:
            cells.append(row.kept)
        if rivals:
            cells.append(row.fewer)
        if name == "switching":
            cells += [_share(row.runs), _share(row.idle)]
        if name in ("local", "statistics"):
            cells.append("chosen" if row.case.chosen else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def measure(
    names: Sequence[str], runs: int = RUNS, workers: int = WORKERS, quick: bool = False
) -> dict[str, tuple[Table, list[Row]]]:
    """Runs some tables; what several of them need is run once. ``quick`` is two rows of each."""
    tables = {name: TABLES[name]() for name in names}
    if quick:
        runs = min(runs, 2)
        tables = {name: replace(table, cases=table.cases[:2]) for name, table in tables.items()}
    jobs = [job for table in tables.values() for case in table.cases for job in case.jobs]
    found = run_jobs(jobs, range(runs), workers)
    return {
        name: (table, [Row.of(case, found) for case in table.cases])
        for name, table in tables.items()
    }


def file(text: str) -> Path:
    """A type for a table's file."""
    path = Path(text)
    if path.suffix not in (".json", ".md"):
        raise argparse.ArgumentTypeError(f"is {text!r}, but must end in .json or .md")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"is {text!r}, but there is no folder {path.parent}")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser(
        prog="python -m tacit.experiments.linear_held_out",
        description="Linear agents on worlds on which none of their constants was chosen.",
    )
    parser.add_argument("--output", type=file, default=None, help="a .json or .md file, if any")
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every row")
    parser.add_argument("--workers", type=whole(1), default=WORKERS, help="processes")
    parser.add_argument(
        "--only", nargs="+", choices=list(TABLES), default=list(TABLES), help="some tables only"
    )
    parser.add_argument("--quick", action="store_true", help="a small part of it, as a test")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    measured = measure(given.only, given.runs, given.workers, given.quick)
    text = "\n\n".join(markdown(name, *parts) for name, parts in measured.items())
    print(text)
    if given.output is not None:
        content = {
            "runs": given.runs,
            "seconds": time.perf_counter() - start,
            "tables": {
                name: [row.to_dict() for row in rows] for name, (_, rows) in measured.items()
            },
        }
        as_json = given.output.suffix == ".json"
        data = json.dumps(content, indent=1, allow_nan=False) if as_json else text
        try:
            write_atomic(given.output, f"{data}\n".encode(), 0o644)
        except OSError as error:
            parser.error(f"argument --output: cannot be written: {error}")
        print(f"\nThe tables are in {given.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
