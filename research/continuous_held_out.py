"""The agent with functional noise, and baselines, on seeds on which no constants were chosen.

The worlds are fixed; a seed is of users, labels of actions, ties and noise. A score is the share of
what there is to gain that a policy has, 0 for uniform actions and 1 for the optimum. Scores are
medians with quartiles over the runs; those of ``cartpole`` are estimates from 2,000 episodes each.
Where a block of users is asked several times all of them are served at random: the score is of the
policy that is published in the end, for everybody who comes later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tacit
from research import wang_baselines
from research.jobs import RUNS, WORKERS, Job, Run, _world, run_jobs, spread
from research.tables import ColumnTable, columns_main
from research.wang_public_code import public_code
from tacit.continuous import line
from tacit.papers.result import PaperResult
from tacit.papers.wang_functional_2019 import Setting
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.registry import choose_agent
from tacit.simulation.permuted import PermutedWorld
from tacit.simulation.result import WORLD_VALUES, Result, median
from tacit.simulation.run import noise_seed
from tacit.simulation.tables import privacy_dict

Floats = NDArray[np.float64]

FITTED, PRINTED = "fitted_functional_q", "public_code"
ONLINE, SERVED = f"{FITTED}:serve=all", f"{FITTED}:serve=most"
OUTPUT, INPUT = "output_perturbation", "input_perturbation"
EVALUATION, NETWORK = "policy_evaluation", "network_q"
NAMES = {
    FITTED: "FittedFunctionalQ",
    ONLINE: "the same, all served",
    PRINTED: "Algorithm 1, public code",
    OUTPUT: "output perturbation",
    EVALUATION: "policy evaluation",
    INPUT: "input perturbation",
    NETWORK: "network state",
}
BASELINES = (OUTPUT, EVALUATION, INPUT, NETWORK)
"""Reconstructions, which are simulations."""
PAPER = JointDP(0.9, 1e-4)
"""The budget of the paper."""
ONE, TEN = JointDP(1.0, 1e-6), JointDP(10.0, 1e-6)
PLAIN = NonPrivate()
PAPER_USERS = 100


def budget_cell(privacy: Privacy) -> str:
    """A budget for a cell.

    >>> budget_cell(PAPER), budget_cell(PLAIN)
    ('0.9, 1e-4', 'not private')
    """
    if isinstance(privacy, NonPrivate):
        return "not private"
    return f"{privacy.epsilon:g}, {privacy.delta:.0e}".replace("e-0", "e-")


# Runs.


@dataclass(frozen=True)
class BoxJob(Job):
    """An agent in one of the worlds; ``kind`` is the agent's name."""

    def agent(self, seed: int) -> Any:
        """The agent, before its first user."""
        chosen = choose_agent(self.kind)
        chosen = replace(chosen, options={**chosen.options, **dict(self.options)})
        return chosen.build(_world(self.world).spec, self.users, self.privacy, seed)

    def run(self, seed: int) -> Run:
        """One run."""
        agent = self.agent(seed)
        result = tacit.run(agent, _world(self.world), seed, progress=False)
        return Run(result, agent.releases, agent.releases, self.kind)


@dataclass(frozen=True)
class CodeJob(BoxJob):
    """Algorithm 1 of Wang and Hegde, as their public code has it: no agent, and no guarantee."""

    def run(self, seed: int) -> Run:
        """One run, with the users and labels that agents have."""
        world: Any = _world(self.world)
        rng = np.random.default_rng(np.random.SeedSequence([1, seed]))
        found = public_code(
            world,
            users=self.users,
            labels=tuple(PermutedWorld.draw(world, rng).permutation),
            seed=seed,
            noise_seed=noise_seed(seed),
            **dict(self.options),
        )
        return self.told(found, found.more["greedy"].tolist(), seed)

    def told(self, found: PaperResult, greedy: Sequence[float], seed: int) -> Run:
        """A run of a paper's algorithm, with the values of greedy policies after each user."""
        world: Any = _world(self.world)
        result = Result(
            agent=self.kind,
            world=world.name,
            privacy=repr(self.privacy),
            seed=seed,
            served=np.arange(len(found.values) + 1),
            values=np.array([*found.values.tolist(), greedy[-1]]),
            greedy_values=np.array([greedy[0], *greedy]),
            **{name: getattr(world, name) for name in WORLD_VALUES},
            guarantee=found.guarantee,
            seconds={},
        )
        return Run(result, self.users, self.users, self.kind)


@dataclass(frozen=True)
class PaperJob(CodeJob):
    """What the paper compares with, reconstructed; ``kind`` is the function."""

    def run(self, seed: int) -> Run:
        """One run; only the last greedy policy is known."""
        found = baseline(self.kind, self.privacy, self.users, seed)
        policy = found.policy.greedy() if self.kind == NETWORK else found.policy
        last = float(_world(self.world).value(policy))
        return self.told(found, [last] * len(found.values), seed)


def baseline(kind: str, privacy: Any, users: int, seed: int) -> PaperResult:
    """A baseline on line; a network takes ten steps, each of a tenth of the users."""
    world = line()
    budget = {"epsilon": privacy.epsilon, "delta": privacy.delta, "seed": seed}
    if kind == NETWORK:
        steps = world.spec.horizon * users
        return wang_baselines.network_q(
            world, setting=Setting(T=steps, B=max(50, steps // 10), alpha=1.0), **budget
        )
    found: PaperResult = getattr(wang_baselines, kind)(world, users=users, **budget)
    return found


def printed_job(users: int, **options: Any) -> CodeJob:
    """It on line, where nothing is private."""
    return CodeJob("line", PRINTED, PLAIN, users, tuple(sorted(options.items())))


def score(result: Result, value: float | None = None) -> float:
    """Of a value, or of the last greedy policy: 0 is uniform and 1 is optimal."""
    value = float(result.greedy_values[-1]) if value is None else value
    return (value - result.baseline_value) / (result.optimal_value - result.baseline_value)


def lost(result: Result) -> float:
    """What served users lost on average, of what there was to gain."""
    gap = result.optimal_value - result.baseline_value
    return float(result.regret[-1] / (result.users * gap))


def scores(runs: Sequence[Run]) -> list[float]:
    """Of the last greedy policies."""
    return [score(run.result) for run in runs]


def quartiles(values: Sequence[float]) -> str:
    """A median with quartiles for a cell.

    >>> quartiles([0.5, 0.9, 1.0])
    '0.900 [0.700, 0.950]'
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def mean_return(runs: Sequence[Run]) -> tuple[float, float]:
    """The mean value of the last greedy policies, and its standard error."""
    values = np.array([run.result.greedy_values[-1] for run in runs])
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(error)


# Tables.


@dataclass(frozen=True)
class Case:
    """A row of a table.

    Attributes:
        cells: what it is, a cell for each of the table's own heads.
        jobs: whose runs it is about, by a name that columns know.
        target: what the median score, or the mean return, must reach.
    """

    cells: tuple[str, ...]
    jobs: Mapping[str, BoxJob]
    target: float | None = None


@dataclass(frozen=True)
class Row:
    """A case and its runs, by the name of the job."""

    case: Case
    runs: Mapping[str, Sequence[Run]]

    def met(self, value: float) -> str:
        """Whether the target is."""
        if self.case.target is None:
            return ""
        return f"{self.case.target:g}: {'yes' if value >= self.case.target else 'no'}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "cells": list(self.case.cells),
            "target": self.case.target,
            "runs": {name: _plain(self.case.jobs[name], runs) for name, runs in self.runs.items()},
        }


def _plain(job: BoxJob, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "world": job.world,
        "agent": job.kind,
        "options": dict(job.options),
        "privacy": privacy_dict(job.privacy),
        "users": job.users,
        "scores": scores(runs),
        "score_median": float(np.median(scores(runs))),
        "returns": [float(run.result.greedy_values[-1]) for run in runs],
        "lost": [lost(run.result) for run in runs],
        "users_to_90_median": median([run.result.users_to_90 for run in runs]),
        "unit": None if runs[0].result.guarantee is None else runs[0].result.guarantee.unit,
    }


class Table(ColumnTable[Case, Row]):
    """A table of such rows."""


def _score(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        return quartiles(scores(row.runs[name])) if name in row.runs else "-"

    return cell


def _kept(row: Row) -> str:
    return row.met(float(np.median(scores(row.runs[FITTED]))))


def _lost(name: str) -> Callable[[Row], str]:
    return lambda row: quartiles([lost(run.result) for run in row.runs[name]])


def _reached(row: Row) -> str:
    return spread([run.result.users_to_90 for run in row.runs[ONLINE]])


def _mean(row: Row) -> str:
    middle, error = mean_return(row.runs["own"])
    return f"{middle:.2f} ± {error:.2f}"


def _unit(row: Row) -> str:
    guarantee = row.runs["own"][0].result.guarantee
    return "nothing" if guarantee is None else guarantee.unit


@dataclass(frozen=True)
class Place:
    """A world, a number of users and a budget for it.

    Attributes:
        world: its name.
        users: how many.
        privacy: the budget.
        target: what the median score must reach.
    """

    world: str
    users: int
    privacy: JointDP
    target: float

    def job(self, kind: str, privacy: Privacy | None = None, **options: Any) -> BoxJob:
        """An agent there."""
        privacy = self.privacy if privacy is None else privacy
        return BoxJob(self.world, kind, privacy, self.users, tuple(options.items()))

    @property
    def cells(self) -> tuple[str, str, str]:
        """For the first columns."""
        return self.world, f"{self.users:,}", budget_cell(self.privacy)


HEADS = ("world", "users", "ε, δ")
PLACES = (
    Place("line", 45, PAPER, 0.9),
    Place("line", 45, ONE, 0.9),
    Place("line", 6, TEN, 0.9),
    Place("plane", 256, PAPER, 0.9),
    Place("plane", 256, ONE, 0.9),
    Place("plane", 32, TEN, 0.9),
    Place("trap", 300, PAPER, 0.95),
    Place("cartpole", 600, ONE, 0.9),
)


def agents() -> Table:
    """Fitted Q everywhere."""
    return Table(
        "FittedFunctionalQ",
        HEADS,
        tuple(
            Case(
                place.cells,
                {FITTED: place.job(FITTED), "plain": place.job(FITTED, PLAIN)},
                place.target,
            )
            for place in PLACES
        ),
        {"score": _score(FITTED), "at least": _kept, "not private": _score("plain")},
        "Scores of the greedy policy in the end. In trap, .87 is the score of settling for less.",
    )


def paper() -> Table:
    """The size of the paper's experiment: mean returns."""
    at = partial(Place("line", PAPER_USERS, PAPER, 0.0).job)
    rows: dict[tuple[str, str], BoxJob] = {}
    for privacy in (PAPER, JointDP(0.45, 1e-4), PLAIN):
        for kind in (FITTED, ONLINE):
            rows[NAMES[kind], budget_cell(privacy)] = at(kind, privacy)
        for kind in BASELINES if privacy.private else ():
            rows[NAMES[kind], budget_cell(privacy)] = PaperJob("line", kind, privacy, PAPER_USERS)
    first = True
    cases = []
    for cells, job in rows.items():
        cases.append(Case(cells, {"own": job}, 20.6 if first else None))
        first = False
    return Table(
        f"Baselines at the same budgets: line with {PAPER_USERS} users",
        ("agent", "ε, δ"),
        tuple(cases),
        {
            "mean return": _mean,
            "at least": lambda row: row.met(mean_return(row.runs["own"])[0]),
            "score": _score("own"),
            "what is protected": _unit,
        },
        "Mean returns of the greedy policy in the end, with standard errors; the optimum is 20.71, "
        "uniform actions have 10.86. Baselines are reconstructions of tacit.papers.",
    )


def online() -> Table:
    """Users who gain while they are learnt from."""
    cases = []
    for world in ("line", "trap", "plane"):
        for users in (1_000,) if world == "plane" else (1_000, 10_000):
            place = Place(world, users, PAPER, 0.0)
            jobs = {ONLINE: place.job(ONLINE)}
            # Its users are served at random, however many there are.
            if users == 1_000:
                jobs[FITTED] = place.job(FITTED)
            cases.append(Case(place.cells, jobs))
    return Table(
        "All served: users follow what was learnt so far",
        HEADS,
        tuple(cases),
        {
            "score in the end": _score(ONLINE),
            "lost while served": _lost(ONLINE),
            "users to 90 %": _reached,
            "score with nobody served": _score(FITTED),
        },
        "Lost is what served users lose on average, 0 if all are served optimally and 1 if all are "
        "served at random, as with nobody served. Served policies have 30 % uniform "
        "actions, which costs; scores are of the greedy policy.",
    )


def served() -> Table:
    """What it costs to serve most users meanwhile, in users of the batch agent."""
    cases = []
    for place in PLACES:
        if place.world in ("line", "plane") and place.privacy in (PAPER, ONE):
            at = Place(place.world, 10 * place.users, place.privacy, 0.0)
            jobs = {SERVED: at.job(SERVED), FITTED: place.job(FITTED)}
            cases.append(Case(at.cells, jobs))
    return Table(
        "Most served: few users explore",
        HEADS,
        tuple(cases),
        {
            "users, nobody served": lambda row: f"{row.case.jobs[FITTED].users:,}",
            "its score": _score(FITTED),
            "users to 90 %": lambda row: spread(_first_good(row)),
            "times as many": _times,
            "score then": lambda row: quartiles([_then(run.result) for run in row.runs[SERVED]]),
            "lost while served": _lost(SERVED),
        },
        "Users to 90 % are those before the first policy that serves others with nine tenths of "
        "what there is to gain; the score then is that of this policy.",
    )


FOUR = 4.0
"""How many times the batch agent's users an agent may need that serves most of them."""


def _first_good(row: Row) -> list[int | None]:
    return [run.result.users_to_90 for run in row.runs[SERVED]]


def _times(row: Row) -> str:
    """The median over the batch agent's users, and whether it is at most four."""
    needed = median(_first_good(row))
    if needed is None:
        return "not reached"
    times = needed / row.case.jobs[FITTED].users
    return f"{times:.1f}, at most {FOUR:g}: {'yes' if times <= FOUR else 'no'}"


def _then(result: Result) -> float:
    """The score of the policy that serves users after the first block."""
    return score(result, float(result.values[1]))


TABLES = {make.__name__: make for make in (agents, paper, online, served)}


def measure(
    names: Sequence[str], runs: int = RUNS, workers: int = WORKERS, quick: bool = False
) -> Iterator[tuple[str, Table, list[Row]]]:
    """Tables as they are done. ``quick`` is two rows of each."""
    for name in names:
        table = TABLES[name]()
        cases = table.cases[:2] if quick else table.cases
        number = min(runs, 2) if quick else runs
        jobs: list[Job] = [job for case in cases for job in case.jobs.values()]
        found = run_jobs(jobs, range(number), workers)
        rows = [Row(case, {key: found[job] for key, job in case.jobs.items()}) for case in cases]
        yield name, table, rows


def markdown(table: Table, rows: Sequence[Row]) -> str:
    """A table with its title."""
    runs = len(next(iter(rows[0].runs.values())))
    return table.markdown(rows, f"{runs} runs, seeds 0 to {runs - 1}. {table.note}")


main = columns_main(__spec__, __doc__, TABLES, measure, lambda _, *found: markdown(*found))


if __name__ == "__main__":
    sys.exit(main())
