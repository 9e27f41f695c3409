"""Many runs: worlds times agents times budgets times seeds, over processes or a cluster.

Every run is a job of its own that depends on nothing but its description, so tables do not depend
on who ran what. Results are stored as they come, if there is a :class:`Store`, and what is stored
is not run again: an interrupted sweep goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeAlias

from tacit.core.kinds import maker
from tacit.core.targets import fingerprint, split
from tacit.core.world import AnyAgent, World
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.html import card
from tacit.privacy.models import Privacy
from tacit.registry import agent_entry, build_world, choose_agent, named_world
from tacit.simulation.compare import privacy_dict, privacy_words, rows
from tacit.simulation.progress import Progress, progress_bar
from tacit.simulation.result import Result
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed, outcomes, seed_list
from tacit.simulation.store import Store
from tacit.simulation.tables import bootstrap_interval, frame, interquartile_mean, save_results

AgentLike: TypeAlias = str | Callable[..., AnyAgent]
WorldLike: TypeAlias = str | Callable[[], World]

# How often a job may be started whose process died each time.
_TRIES = 3


class SweepFailed(TacitError):
    """Some runs failed; the message has the first reason, ``sweep`` all other results."""

    def __init__(self, message: str, sweep: Sweep) -> None:
        super().__init__(message)
        self.sweep = sweep


@dataclass(frozen=True)
class Job:
    """One run: what it is of, and a seed."""

    world: WorldLike
    agent: AgentLike
    privacy: Privacy
    users: int
    seed: int

    @property
    def line(self) -> str:
        """The label of its runs: agent and budget."""
        return f"{_name(self.agent)}, {_budget_words(self.privacy)}"

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

    def run(self) -> Result:
        """Runs it, here."""
        world = build_world(self.world) if isinstance(self.world, str) else self.world()
        return run(self.build(world), world, self.seed, progress=False)

    def build(self, world: World) -> AnyAgent:
        """Its agent; the noise is simulated."""
        if isinstance(self.agent, str):
            choice = choose_agent(self.agent)
            if choice.budget:
                raise InvalidArgument(f"{self.agent!r} has a budget; a sweep's are its budgets")
            return choice.build(world.spec, self.users, self.privacy, self.seed)
        given = {"users": self.users, "privacy": self.privacy}
        seeds = {"seed": self.seed, "noise_seed": noise_seed(self.seed)}
        made: AnyAgent = maker(self.agent)(world.spec, **given, **seeds)
        return made


@dataclass(frozen=True)
class Sweep:
    """What a sweep found: results in the order of its jobs, those that are there."""

    jobs: tuple[Job, ...]
    results: Mapping[int, Result] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.results)} of {len(self.jobs)} runs, {len(self.worlds)} worlds>"

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        worlds = [world for world in self.worlds if self.labelled(world)]
        return "".join(card(world, self.table(world)) for world in worlds)

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
        """By agent and budget in a world: medians of users, and of scores the middle half's mean.

        It has its 95 % interval beside it. Where no optimum is known, medians of returns.
        """
        labelled = self.labelled(world)
        (_, users, *rest), *lines = rows(labelled)
        if len(rest) < 4:  # no optimum is known: returns, and no scores
            shown = [(*line[:-1], str(len(labelled[line[0]]))) for line in lines]
            return [("", users, *rest[:-1], "runs"), *shown]
        greedy = rest[2]
        table: list[tuple[str, ...]] = [
            ("", users, "score: middle half\n(95 % interval)", greedy, "runs")
        ]
        for line, results in zip(lines, labelled.values(), strict=True):
            table.append((*line[:2], _spread(results), line[4], str(len(results))))
        return table

    def to_frame(self) -> Any:
        """A row per release of every run, as a data frame of pandas."""
        return frame(self.labelled())

    def save(self, path: str) -> None:
        """See :func:`tacit.simulation.tables.save_results`."""
        save_results(self.labelled(), path)

    def plot(self, path: str | None = None, style: str | None = None, band: str = "deciles") -> Any:
        """A row per world; see :func:`tacit.simulation.plots.plot_results`."""
        from tacit.simulation.plots import plot_results

        lines: dict[str, list[Result]] = {}
        for place, result in self.results.items():
            lines.setdefault(self.jobs[place].line, []).append(result)
        return plot_results(lines, path, style=style, band=band, by_world=True)


def _budget_words(privacy: Privacy) -> str:
    """The budget in a line's label; delta is the same for all.

    >>> from tacit import JointDP, LocalDP
    >>> _budget_words(JointDP(1.0, 1e-6)), _budget_words(LocalDP(2.0, 1e-6))
    ('epsilon 1', 'local, epsilon 2')
    """
    words = privacy_words(privacy).partition(", delta")[0]
    return words.removeprefix("joint privacy, ").replace(" privacy,", ",")


def _spread(results: Sequence[Result]) -> str:
    scores = [result.score for result in results if math.isfinite(result.score)]
    if not scores:
        return "-"
    low, high = bootstrap_interval(scores)
    return f"{interquartile_mean(scores):.3f} ({low:.3f} to {high:.3f})"


def sweep(
    worlds: Iterable[WorldLike],
    agents: Iterable[AgentLike],
    budgets: Iterable[Privacy],
    *,
    users: int,
    seeds: Iterable[int],
    store: Store | None = None,
    only_stored: bool = False,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Progress = True,
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
        store: where results are kept, and looked for first.
        only_stored: whether nothing is made or run: what an interrupted sweep, or one that is
            still at work elsewhere, has so far.
        executor: who runs the jobs: any of ``concurrent.futures``, or a Dask client's
            ``get_executor()``. Processes by default, also from a notebook.
        workers: processes, without an executor; 1 runs everything here.
        progress: whether to show a progress bar, on standard error.
        callback: called with every job and its result, here, as they come.

    Raises:
        SweepFailed: Runs failed; the others have been run, and are stored.
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
    _check(jobs, only_stored)
    results: dict[int, Result] = {}
    failed: list[str] = []
    with progress_bar("runs", len(jobs), progress) as advance:
        if store is not None:
            stored = {i: store.get(job.description) for i, job in enumerate(jobs)}
            results |= {i: result for i, result in stored.items() if result is not None}
            advance(len(results))
        left = [] if only_stored else [i for i in range(len(jobs)) if i not in results]
        todo = {place: jobs[place] for place in left}
        finished = outcomes(_outcome, todo, workers, executor, _TRIES)
        with contextlib.closing(finished):
            for place, outcome in finished:
                job = jobs[place]
                advance(1)
                if isinstance(outcome, str):
                    failed.append(f"{_name(job.world)}: {job.line}, seed {job.seed}: {outcome}")
                    continue
                results[place] = outcome
                if store is not None:
                    store.put(job.description, outcome)
                if callback is not None:
                    callback(job, outcome)
    made = Sweep(jobs, dict(sorted(results.items())))
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise SweepFailed(f"{failed[0]}{more}", made)
    return made


def _check(jobs: Sequence[Job], names_only: bool) -> None:
    """Makes every agent once: a mistake in the last of them must not cost the time of the rest."""
    built: dict[str, World] = {}
    for job in jobs:
        if job.seed != jobs[0].seed:
            continue
        if isinstance(job.world, str):
            named_world(job.world)
        if isinstance(job.agent, str):
            agent_entry(split(job.agent)[0])
        if names_only:
            continue
        key = _known_as(job.world)
        if key not in built:
            built[key] = build_world(job.world) if isinstance(job.world, str) else job.world()
        job.build(built[key])


def _outcome(job: Job) -> Result | str:
    try:
        return job.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _name(what: Any) -> str:
    """What people call a world or an agent."""
    if isinstance(what, str):
        return what
    return str(getattr(what, "name", None) or getattr(what, "__name__", None) or repr(what))


def _known_as(what: Any) -> str:
    """What a store knows it by: its text and the bytes of a file, or of a function."""
    if isinstance(what, str):
        return fingerprint(what)
    import cloudpickle

    return f"{_name(what)} {hashlib.sha256(cloudpickle.dumps(what)).hexdigest()[:16]}"
