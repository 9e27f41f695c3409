"""Many runs: worlds times agents times budgets times seeds, over processes or a cluster.

Every run is a job of its own that depends on nothing but its description, so tables do not depend
on who ran what. Results are kept as they come, if there is a folder for them, and what is kept is
not run again: an interrupted sweep goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tacit.core.world import World
from tacit.imports import fingerprint
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.models import Privacy
from tacit.privacy.validation import whole_number
from tacit.registry import AgentChoice, build_world, choose_agent
from tacit.simulation.result import Result
from tacit.simulation.run import noise_seed, require, run
from tacit.simulation.tables import frame, privacy_dict, privacy_words, rows, save_results
from tacit.simulation.workers import DIED, outcomes, progress_bar

AgentLike: TypeAlias = str | AgentChoice | Callable[..., Any]
WorldLike: TypeAlias = str | World | Callable[[], World]

WorldMaker: TypeAlias = World | Callable[[int], World]
# How often jobs are started whose processes died.
_TRIES = 3


# More runs than this are a slip.
_MOST_RUNS = 10**6


class SeedFailed(TacitError):
    """One of several runs failed: that with this ``seed``."""

    def __init__(self, seed: int, reason: str) -> None:
        super().__init__(seed, reason)  # both, so that it can be pickled
        self.seed, self.reason = seed, reason

    def __str__(self) -> str:
        return f"the run with seed {self.seed} failed: {self.reason}"


class SweepFailed(TacitError):
    """Some runs failed; the message has the first ``reason``, ``sweep`` all other results."""

    def __init__(self, message: str, sweep: Sweep, reason: str) -> None:
        super().__init__(message)
        self.sweep, self.reason = sweep, reason


@dataclass(frozen=True)
class Job:
    """One run: what it is of, and a seed."""

    world: WorldLike
    agent: AgentLike
    privacy: Privacy
    users: int
    seed: int
    label: str = ""  # of the line it belongs to; agent and budget by default

    @property
    def line(self) -> str:
        """The label of its runs."""
        return self.label or f"{_name(self.agent)}, {_budget_words(self.privacy)}"

    @property
    def description(self) -> dict[str, Any]:
        """All that its result depends on, as plain values."""
        return {
            "world": _known_as(self.world),
            "agent": _known_as(self.agent),
            "privacy": privacy_dict(self.privacy) | {"model_words": repr(self.privacy)},
            "users": self.users,
            "seed": self.seed,
            "tacit": version("tacit"),
        }

    def run(self, progress: bool = False) -> Result:
        """Runs it, here."""
        world = _built(self.world)
        return run(self.build(world), world, self.seed, progress)

    def build(self, world: World) -> Any:
        """Its agent; the noise is simulated."""
        choice = self.agent
        if isinstance(choice, str):
            choice = choose_agent(choice)
            if choice.budget:
                raise InvalidArgument(f"{self.agent!r} has a budget; a sweep's are its budgets")
        if isinstance(choice, AgentChoice):
            return choice.build(world.spec, self.users, self.privacy, self.seed)
        given = {"users": self.users, "privacy": self.privacy}
        seeds = {"seed": self.seed, "noise_seed": noise_seed(self.seed)}
        made: Any = choice(world.spec, **given, **seeds)
        return made


def kept_at(folder: str | os.PathLike[str], job: Job) -> Path:
    """Where a folder keeps the result of a job: under the hash of its description."""
    text = json.dumps(job.description, sort_keys=True, allow_nan=False)
    key = hashlib.sha256(text.encode()).hexdigest()
    return Path(folder, key[:2], f"{key}.json")


@dataclass(frozen=True)
class Sweep:
    """Results of a sweep in the order of its jobs, those that are there."""

    jobs: tuple[Job, ...]
    results: Mapping[int, Result] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.results)} of {len(self.jobs)} runs, {len(self.worlds)} worlds>"

    @property
    def worlds(self) -> list[str]:
        """Their names, in the order of the jobs."""
        return list(dict.fromkeys(_name(job.world) for job in self.jobs))

    def labelled(self, world: str | None = None) -> dict[str, list[Result]]:
        """Results by agent and budget, of one world or of all; then its name comes first."""
        found: dict[str, list[Result]] = {}
        several = world is None and len(self.worlds) > 1
        for place, result in self.results.items():
            job = self.jobs[place]
            if world in (None, _name(job.world)):
                label = f"{_name(job.world)}: {job.line}" if several else job.line
                found.setdefault(label, []).append(result)
        return found

    def table(self, world: str) -> list[tuple[str, ...]]:
        """Medians by agent and budget; see :func:`tacit.simulation.tables.rows`."""
        return rows(self.labelled(world))

    def to_frame(self) -> Any:
        """A row per release of every run, as a data frame of pandas."""
        return frame(self.labelled())

    def save(self, path: str) -> None:
        """Writes all results; see :func:`tacit.simulation.tables.save_results`."""
        save_results(self.labelled(), path)

    def plot(self, path: str | None = None) -> Any:
        """A row per world; see :func:`tacit.simulation.plots.plot_results`."""
        from tacit.simulation.plots import plot_results

        lines: dict[str, list[Result]] = {}
        for place, result in self.results.items():
            lines.setdefault(self.jobs[place].line, []).append(result)
        return plot_results(lines, path, by_world=True)


def _budget_words(privacy: Privacy) -> str:
    """The budget in a line's label; delta is the same for all.

    >>> from tacit import JointDP, LocalDP
    >>> _budget_words(JointDP(1.0, 1e-6)), _budget_words(LocalDP(2.0, 1e-6))
    ('epsilon 1', 'local, epsilon 2')
    """
    words = privacy_words(privacy).partition(", delta")[0]
    return words.removeprefix("joint privacy, ").replace(" privacy,", ",")


def sweep(
    worlds: Iterable[WorldLike],
    agents: Iterable[AgentLike],
    budgets: Iterable[Privacy],
    *,
    users: int,
    seeds: Iterable[int],
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: bool = True,
    callback: Callable[[Job, Result], None] | None = None,
) -> Sweep:
    """Runs every agent with every budget and every seed on every world.

    Args:
        worlds: texts as ``riverswim:states=6``, or functions without arguments that make a world.
        agents: texts as ``ucbvi:growth=1.3``, or what is called as ``tacit.UCBVI`` is: with the
            spec, ``users``, ``privacy``, ``seed`` and ``noise_seed``.
        budgets: privacy models.
        users: of every run.
        seeds: of every agent; a seed means the same in ``tacit run``.
        folder: where results are kept, each under the hash of all that it depends on, and looked
            for first. Code that is named and not passed is known by its name alone, so after a
            change of it take another folder.
        executor: who runs the jobs: any of ``concurrent.futures``, or a Dask client's
            ``get_executor()``. Processes by default, also from a notebook.
        workers: processes, without an executor; 1 runs everything here.
        progress: whether to show a progress bar, on standard error.
        callback: called with every job and its result, here, as they come.

    Raises:
        SweepFailed: Runs failed; the others have been run, and are kept.
    """
    users, workers = whole_number("users", users), whole_number("workers", workers)
    jobs = tuple(
        Job(world, agent, budget, users, seed)
        for world, agent, budget, seed in itertools.product(
            list(worlds), list(agents), list(budgets), seed_list(seeds)
        )
    )
    if not jobs:
        raise InvalidArgument("worlds, agents, budgets and seeds must not be empty")
    _check(jobs)
    results: dict[int, Result] = {}
    if folder is not None:
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise InvalidArgument(f"{os.fspath(folder)!r} is no folder")
        for place, job in enumerate(jobs):
            with contextlib.suppress(FileNotFoundError, CorruptFile):
                results[place] = Result.load(kept_at(folder, job))

    def finished(job: Job, result: Result) -> None:
        if folder is not None:
            path = kept_at(folder, job)
            path.parent.mkdir(parents=True, exist_ok=True)
            result.save(path)
        if callback is not None:
            callback(job, result)

    return run_jobs(jobs, results, finished, executor, workers, progress)


def run_jobs(
    jobs: Sequence[Job],
    known: Mapping[int, Result] | None = None,
    finished: Callable[[Job, Result], None] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: bool = True,
) -> Sweep:
    """Runs all jobs but those whose results are known; see :func:`sweep`.

    Args:
        jobs: In the order of the results.
        known: Results that are there, by place.
        finished: Called with every job and its result, here, as they come.
        executor: As of :func:`sweep`.
        workers: As of :func:`sweep`.
        progress: As of :func:`sweep`.
    """
    results, failed = dict(known or {}), dict[int, str]()
    left = [place for place in range(len(jobs)) if place not in results]
    workers = workers if len(left) > 1 else 1  # a single one needs no other process
    with progress_bar("runs", len(jobs), progress) as advance:
        advance(len(results))
        for _ in range(_TRIES):
            failed = {place: why for place, why in failed.items() if why != DIED}
            made = outcomes(_outcome, {i: jobs[i] for i in left}, workers, executor)
            with contextlib.closing(made):
                for place, outcome in made:
                    if isinstance(outcome, str):
                        failed[place] = outcome
                        continue
                    results[place] = outcome
                    advance(1)
                    if finished is not None:
                        finished(jobs[place], outcome)
            # Nobody knows whose fault it was: those that may have been at work come last.
            died = [place for place in left if failed.get(place) == DIED]
            left = died[workers:] + died[:workers]
            if not left:
                break
    whole = Sweep(tuple(jobs), dict(sorted(results.items())))
    if failed:
        job, reason = jobs[min(failed)], failed[min(failed)]
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        words = f"{_name(job.world)}: {job.line}, seed {job.seed}: {reason}{more}"
        raise SweepFailed(words, whole, reason)
    return whole


def run_seeds(
    make_agent: Callable[[Any, int], Any],
    make_world: WorldMaker,
    seeds: Sequence[int],
    workers: int = 2,
    progress: bool = True,
) -> list[Result]:
    """Runs one agent per seed, several at a time, each in a process of its own.

    The results, in the order of the seeds, do not depend on the number of workers. With more than
    one, scripts need the usual ``if __name__ == "__main__":`` around their own code; functions of a
    notebook's cell are sent along.

    Args:
        make_agent: ``make_agent(spec, seed)``, which gives the agent a ``seed`` and, of
            :func:`noise_seed`, a ``noise_seed``.
        make_world: a world, or ``make_world(seed)``.
        seeds: one run each.
        workers: processes; 1 runs them in this one, one after another.
        progress: whether to show a progress bar, on standard error.

    Raises:
        SeedFailed: A run failed; the message says which seed and why. No further runs are started.
    """
    if not callable(make_agent):
        raise InvalidArgument(f"make_agent must be a function, got {make_agent!r}")
    if not (callable(make_world) or hasattr(make_world, "simulate")):
        raise InvalidArgument(f"make_world must be a world or a function, got {make_world!r}")
    seeds, workers = seed_list(seeds), whole_number("workers", workers)
    work, results = partial(_run_seed, make_agent, make_world), dict[int, Result]()
    # A single one needs no other process.
    finished = outcomes(work, dict(enumerate(seeds)), workers if len(seeds) > 1 else 1)
    with progress_bar("seeds", len(seeds), progress) as advance, contextlib.closing(finished):
        for place, outcome in finished:
            if isinstance(outcome, SeedFailed):
                raise outcome
            if isinstance(outcome, str):
                raise SeedFailed(seeds[place], outcome)
            results[place] = outcome
            advance(1)
    return [results[place] for place in range(len(seeds))]


def _run_seed(make_agent: Any, make_world: Any, seed: int) -> Result | SeedFailed:
    what = "make_world: "
    try:
        # A world may be callable too; what simulates users is a world.
        made: Any = make_world if hasattr(make_world, "simulate") else make_world(seed)
        require("make_world(seed)", made, "a world", "simulate", "spec")
        what = ""
        return run(make_agent(made.spec, seed), made, seed, progress=False)
    except Exception as error:
        failed = SeedFailed(seed, f"{what}{type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed


def seed_list(seeds: Iterable[int]) -> list[int]:
    """Seeds as a list; they are a list, not a number of runs."""
    single = isinstance(seeds, np.ndarray) and seeds.ndim == 0
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)) or single:
        raise InvalidArgument(f"seeds must be a list of integers, got {seeds!r}")
    found = list(itertools.islice(seeds, _MOST_RUNS + 1))
    if len(found) > _MOST_RUNS:
        raise InvalidArgument(f"seeds must be at most {_MOST_RUNS:,}, got more")
    for seed in found:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InvalidArgument(f"seeds holds {seed!r}, but must hold integers of at least 0")
    return found


def _check(jobs: Sequence[Job]) -> None:
    """Makes every agent once: a mistake in the last of them must not cost the time of the rest."""
    built: dict[str, World] = {}
    for job in jobs:
        if job.seed == jobs[0].seed:
            key = _known_as(job.world)
            if key not in built:
                built[key] = _built(job.world)
            job.build(built[key])


def _built(world: WorldLike) -> World:
    if isinstance(world, str):
        return build_world(world)
    made: World = world if hasattr(world, "simulate") else world()  # type: ignore[assignment]
    return made


def _outcome(job: Job) -> Result | str:
    try:
        return job.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _name(what: Any) -> str:
    """Name of a world or an agent for people."""
    if isinstance(what, (str, AgentChoice)):
        return what if isinstance(what, str) else what.text
    named = getattr(what, "algorithm", what)  # a constructor is called as its algorithm
    return str(getattr(named, "name", None) or getattr(what, "__name__", None) or repr(what))


def _known_as(what: Any) -> str:
    """Key of a kept result: a text and the bytes of its file, or the hash of a function."""
    if isinstance(what, str):
        return fingerprint(what)
    import cloudpickle

    return f"{_name(what)} {hashlib.sha256(cloudpickle.dumps(what)).hexdigest()[:16]}"
