"""Linear-quadratic agents on worlds on which none of their constants was chosen, in tables.

Run 0 is in the world of seed 0, and so on; ``dosing`` is one world, with as many runs. Constants
were chosen on other seeds. Users to 90 % are medians with quartiles over the runs; a star marks
runs shorter than ten times the median. Greedy are the published gains alone; users are served with
noise in their controls besides, which costs something as long as there is something to learn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

import tacit
from research.jobs import DELTA, RUNS, WORKERS, Job, Run, _with, _world, run_jobs, spread
from research.tables import ColumnTable, columns_main, joint, model_words
from tacit.privacy.models import LocalDP, NonPrivate, Privacy
from tacit.registry import agent_entry
from tacit.simulation.plots import short
from tacit.simulation.result import median
from tacit.simulation.run import noise_seed
from tacit.simulation.tables import privacy_dict

CERTAIN = "certainty_equivalence"
JOINT_USERS = {1.0: 100_000, 10.0: 10_000}
LOCAL_USERS = {1.0: 2_000_000, 10.0: 100_000}
SHORT_USERS = 10_000
# Gains that cost more than this, in units of zero control, are what the safeguard is there for.
WORST = 2.0
COVERED = 0.9


# Runs.


@dataclass(frozen=True)
class LQJob(Job):
    """An agent in a world; every seed has its own, if it is drawn at random.

    ``kind`` is the agent's name.
    """

    def world_of(self, seed: int) -> Any:
        """The world of a run."""
        drawn = self.world.startswith("random_system")
        return _world(_with(self.world, {"seed": seed} if drawn else {}))

    def agent(self, seed: int) -> Any:
        """The agent, before its first user."""
        return agent_entry(self.kind).make(
            self.world_of(seed).spec,
            users=self.users,
            privacy=self.privacy,
            seed=seed,
            noise_seed=noise_seed(seed),
            **dict(self.options),
        )

    def run(self, seed: int) -> LQRun:
        """One run."""
        agent, world = self.agent(seed), self.world_of(seed)
        result = tacit.run(agent, world, seed, progress=False)
        known = agent.state.posterior
        return LQRun(
            result,
            agent.releases,
            agent.releases,
            "trajectory sums",
            known.mahalanobis(world.theta),
            world.theta.size,
        )


@dataclass(frozen=True)
class LQRun(Run):
    """What came out.

    Attributes:
        distance: squared, of the truth from the last posterior, in standard deviations; not a
            number where there is no posterior.
        degrees: what it is on average if the posterior is right, n (n + d).
    """

    distance: float = math.nan
    degrees: int = 1

    @property
    def ratio(self) -> float:
        """1 on average, if the posterior is right."""
        return self.distance / self.degrees

    @property
    def covered(self) -> bool:
        """Whether the posterior's 90 % set holds the truth."""
        from scipy.special import gammaincinv

        most = 2.0 * float(gammaincinv(0.5 * self.degrees, COVERED))  # of chi-square
        return self.distance <= most

    @property
    def worst_greedy(self) -> float:
        """The largest cost of gains published at a release, in units of zero control."""
        return float((self.result.greedy_values[1:] / self.result.baseline_value).max())

    @property
    def worst_serving(self) -> float:
        """The same of what users are served with, noise included."""
        return float((self.result.values[1:] / self.result.baseline_value).max())

    @property
    def first_serving(self) -> float:
        """What the first users cost, whose controls are nothing but noise."""
        return float(self.result.values[0] / self.result.baseline_value)


def run_all(jobs: Sequence[LQJob], seeds: Sequence[int], workers: int) -> dict[LQJob, list[LQRun]]:
    """Every job with every seed."""
    return cast("dict[LQJob, list[LQRun]]", run_jobs(jobs, seeds, workers)) if jobs else {}


# Tables.


@dataclass(frozen=True)
class Case:
    """A row of a table.

    Attributes:
        cells: what it is, a cell for each of the table's own heads.
        jobs: whose runs it is about, all taken together.
        limit: how many users the greedy gains may need.
    """

    cells: tuple[str, ...]
    jobs: tuple[LQJob, ...]
    limit: int | None = None


@dataclass(frozen=True)
class Row:
    """A case and its runs."""

    case: Case
    runs: Sequence[LQRun]

    @property
    def greedy(self) -> list[int | None]:
        """Users until the published gains are good."""
        return [run.result.greedy_users_to_90 for run in self.runs]

    @property
    def serving(self) -> list[int | None]:
        """Users until served users have it good, on average."""
        return [run.result.users_to_90 for run in self.runs]

    def users(self, reached: Sequence[int | None]) -> str:
        """A median, with a star if runs are too short for it."""
        middle = median(reached)
        short_run = middle is not None and self.case.jobs[0].users < 10 * middle
        return f"{spread(reached)}{'*' if short_run else ''}"

    @property
    def kept(self) -> bool | None:
        """Whether the limit is."""
        middle, limit = median(self.greedy), self.case.limit
        return None if limit is None else middle is not None and middle <= limit

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        job, honest = self.case.jobs[0], not math.isnan(self.runs[0].distance)
        return {
            "worlds": [one.world for one in self.case.jobs],
            "agent": job.kind,
            "options": dict(job.options),
            "privacy": privacy_dict(job.privacy),
            "users": job.users,
            "limit": self.case.limit,
            "greedy_users_to_90": self.greedy,
            "greedy_users_to_90_median": median(self.greedy),
            "users_to_90": self.serving,
            "users_to_90_median": median(self.serving),
            "worst_greedy": max(run.worst_greedy for run in self.runs),
            "worst_serving": max(run.worst_serving for run in self.runs),
            "first_serving": max(run.first_serving for run in self.runs),
            "distance_ratios": [run.ratio for run in self.runs] if honest else None,
            "covered": sum(run.covered for run in self.runs) if honest else None,
            "releases": self.runs[0].releases,
        }


Columns = Mapping[str, Callable[[Row], str]]


def _limit(row: Row) -> str:
    return "" if row.kept is None else f"{row.case.limit:,}: {'yes' if row.kept else 'no'}"


def _cost(cost: float) -> str:
    """In units of zero control.

    >>> _cost(1.1549), _cost(456347.7)
    ('1.15', '456,348')
    """
    return f"{cost:.2f}" if cost < 100 else f"{cost:,.0f}"


def _last(row: Row) -> str:
    """Losses after the last release."""
    greedy = float(np.median([run.result.greedy_losses[-1] for run in row.runs]))
    serving = float(np.median([run.result.losses[-1] for run in row.runs]))
    return f"{greedy:.2g}, {serving:.2g}"


USERS: Columns = {
    "users to 90 %, greedy": lambda row: row.users(row.greedy),
    "serving": lambda row: row.users(row.serving),
}
COSTS: Columns = {
    "worst greedy": lambda row: _cost(max(run.worst_greedy for run in row.runs)),
    "worst serving": lambda row: _cost(max(run.worst_serving for run in row.runs)),
    "at first": lambda row: _cost(max(run.first_serving for run in row.runs)),
}
LOSSES: Columns = {"last losses, greedy and serving": _last}
HONESTY: Columns = {
    "distance² / (n p), mean": lambda row: f"{np.mean([run.ratio for run in row.runs]):.2f}",
    "largest": lambda row: f"{max(run.ratio for run in row.runs):.2f}",
    "in the 90 % set": lambda row: f"{sum(r.covered for r in row.runs)} of {len(row.runs)}",
}


@dataclass(frozen=True)
class Table(ColumnTable[Case, Row]):
    """A table whose runs start at seed ``first_seed``."""

    first_seed: int = 0


@dataclass(frozen=True)
class Place:
    """A world.

    Attributes:
        label: what it is called.
        world: its name and options, all but the seed.
        limits: how many users the greedy gains may need, by epsilon.
    """

    label: str
    world: str
    limits: Mapping[float, int] = field(default_factory=dict)

    def job(self, privacy: Privacy, users: int, agent: str = CERTAIN, **options: Any) -> LQJob:
        """An agent there."""
        return LQJob(self.world, agent, privacy, users, tuple(options.items()))


def random_place(n: int, d: int, horizon: int, *limits: int) -> Place:
    """A random system, with the limits at epsilon 1 and 10."""
    return Place(
        f"random_system {n}, {d}, {horizon}",
        f"random_system:n={n},d={d},horizon={horizon}",
        dict(zip((1.0, 10.0), limits, strict=True)),
    )


MIDDLE = random_place(3, 2, 15, 800, 150)
DOSING = Place("dosing", "dosing", {1.0: 1_200, 10.0: 150})
PLACES = (
    random_place(2, 1, 10, 900, 90),
    MIDDLE,
    random_place(4, 2, 20, 1_800, 280),
    random_place(6, 3, 30, 2_700, 350),
    DOSING,
)
ALL_ZERO = (
    "Costs are in units of zero control, the largest over all releases and runs; at first: before "
    "the first release, when controls are nothing but noise"
)


def agents() -> Table:
    """Certainty equivalence everywhere."""
    cases = []
    for place in PLACES:
        cases += [
            Case(
                (place.label, f"{epsilon:g}"),
                (place.job(joint(epsilon), users),),
                place.limits[epsilon],
            )
            for epsilon, users in JOINT_USERS.items()
        ]
        plain = NonPrivate()
        cases.append(Case((place.label, model_words(plain)), (place.job(plain, SHORT_USERS),)))
    return Table(
        "Certainty equivalence under joint DP",
        ("world", "ε"),
        tuple(cases),
        {**USERS, "limit kept": _limit, **COSTS, **LOSSES},
        f"Declared users: {short(JOINT_USERS[1.0])} at ε = 1, else {short(SHORT_USERS)}. "
        f"{ALL_ZERO}. Losses: 0 is optimal, 1 is zero control.",
    )


def honesty() -> Table:
    """What the posterior says of its own error, at the end of runs of several lengths."""
    cases = []
    for users in (SHORT_USERS, JOINT_USERS[1.0]):
        jobs = tuple(place.job(joint(1.0), users) for place in PLACES)
        cases += [
            Case((place.label, "1", short(users)), (job,))
            for place, job in zip(PLACES, jobs, strict=True)
        ]
        cases.append(Case(("all", "1", short(users)), jobs))
    others: list[Privacy] = [joint(10.0), NonPrivate()]
    cases += [
        Case(
            ("all", model_words(privacy), short(SHORT_USERS)),
            tuple(place.job(privacy, SHORT_USERS) for place in PLACES),
        )
        for privacy in others
    ]
    return Table(
        "The posterior's honesty",
        ("world", "ε", "users"),
        tuple(cases),
        HONESTY,
        "The squared Mahalanobis distance of the truth from the last posterior, divided by the "
        "number of entries of (A, B): 1 on average if the posterior is right, more if it is too "
        "sure of itself. How often its 90 % set holds the truth.",
    )


def local() -> Table:
    """Users who add the noise themselves."""
    cases = [
        Case((place.label, f"{epsilon:g}", short(users)), (place.job(privacy, users),))
        for place in (MIDDLE, DOSING)
        for epsilon, users in LOCAL_USERS.items()
        for privacy in [LocalDP(epsilon, DELTA)]
    ]
    return Table(
        "Certainty equivalence under local DP",
        ("world", "ε", "users"),
        tuple(cases),
        {**USERS, **COSTS, **LOSSES, **HONESTY},
        f"{ALL_ZERO}.",
    )


TABLES = {make.__name__: make for make in (agents, local, honesty)}


def measure(
    names: Sequence[str], runs: int = RUNS, workers: int = WORKERS, quick: bool = False
) -> Iterator[tuple[str, Table, list[Row]]]:
    """Tables as they are done; what several need is run once. ``quick`` is two rows of each."""
    runs = min(runs, 2) if quick else runs
    found: dict[tuple[LQJob, int], list[LQRun]] = {}
    for name in names:
        table = TABLES[name]()
        cases, first = table.cases[:2] if quick else table.cases, table.first_seed
        jobs = dict.fromkeys(job for case in cases for job in case.jobs)
        missing = [job for job in jobs if (job, first) not in found]
        done = run_all(missing, range(first, first + runs), workers)
        found |= {(job, first): several for job, several in done.items()}
        yield (
            name,
            table,
            [Row(case, [run for job in case.jobs for run in found[job, first]]) for case in cases],
        )


def markdown(table: Table, rows: Sequence[Row]) -> str:
    """A table with its title."""
    return table.markdown(rows, table.note)


def worst_words(rows: Sequence[Row]) -> str:
    """Whether costs stayed below the limit, over everything published."""
    runs = [run for row in rows for run in row.runs]
    worst = {
        "gains alone": max(run.worst_greedy for run in runs),
        "with the noise of served users": max(run.worst_serving for run in runs),
        "noise alone, before the first release": max(run.first_serving for run in runs),
    }
    words = [
        f"{cost:.2f} ({what}: {'kept' if cost < WORST else 'not kept'})"
        for what, cost in worst.items()
    ]
    return (
        f"Worst published costs over all releases of {len(runs)} runs, which must stay below "
        f"{WORST:g} times zero control: {', '.join(words)}."
    )


def text(name: str, table: Table, rows: Sequence[Row]) -> str:
    """What is printed: agents with the worst that was published."""
    worst = f" {worst_words(rows)}" if name == "agents" else ""
    return f"{markdown(table, rows)}{worst}"


main = columns_main(__spec__, __doc__, TABLES, measure, text)


if __name__ == "__main__":
    sys.exit(main())
