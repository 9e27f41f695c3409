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
import pickle
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tacit.core.stored_run import warn_of_budget
from tacit.core.world import World
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError, TacitWarning
from tacit.privacy.models import Privacy
from tacit.privacy.validation import whole_number
from tacit.registry import AgentChoice, choose_agent
from tacit.registry import world as build
from tacit.simulation import identity
from tacit.simulation.result import Result
from tacit.simulation.run import noise_seed, progress_bar, run
from tacit.simulation.tables import frame, privacy_dict, privacy_words, rows, save_results

AgentLike: TypeAlias = str | AgentChoice | Callable[..., Any]
WorldLike: TypeAlias = str | World | Callable[[], World]

_TRIES = 3  # how often jobs are started whose processes died
DIED = "its process died (out of memory, or stopped from outside)"  # or of others meanwhile

T = TypeVar("T")


class SweepFailed(TacitError):
    """Some runs failed; the message has the first ``reason``, ``sweep`` all other results."""

    def __init__(self, message: str, sweep: Sweep, reason: str) -> None:
        super().__init__(message)
        self.sweep, self.reason = sweep, reason


@dataclass(frozen=True)
class Job:
    """One run: what it is of, and a seed."""

    world: WorldLike
    agent: AgentChoice | Callable[..., Any]
    privacy: Privacy
    users: int
    seed: int
    label: str = ""  # of the line it belongs to; agent and budget by default
    digests: tuple[str, ...] = ()  # of world, agent, and files of yours
    control: bool = False  # beside it, see :func:`tacit.run`

    @property
    def line(self) -> str:
        """The label of its runs."""
        return self.label or f"{_name(self.agent)}, {_budget_words(self.privacy)}"

    @property
    def description(self) -> dict[str, Any]:
        """All that its result depends on, as plain values."""
        world, agent, _ = self.digests or self.identified().digests
        return {
            "world": f"{_name(self.world)} {world}",
            "agent": f"{_name(self.agent)} {agent}",
            "privacy": privacy_dict(self.privacy) | {"model_words": repr(self.privacy)},
            "users": self.users,
            "seed": self.seed,
            "tacit": identity.code_version(),
        }

    def identified(self, world: World | None = None, agent: Any = None) -> Job:
        """The same, with the digests of its world and agent: both are made, or given."""
        world = _built(self.world) if world is None else world
        agent = self.build(world) if agent is None else agent
        make = self.agent.make if isinstance(self.agent, AgentChoice) else self.agent
        files = identity.sources_digest(make, type(agent), type(world), self.world)
        found = identity.world_digest(world), identity.agent_digest(agent, make), files
        return replace(self, digests=found)

    def run(self, progress: bool = False) -> Result:
        """Runs it, here."""
        world = _built(self.world)
        agent = self.build(world)
        here = self.identified(world, agent).digests
        known = self.digests or here
        # Another process has read its files anew; it has none of what came by value.
        edited = isinstance(self.world, str) and here[0] != known[0]
        if edited or here[2] not in (known[2], identity.sources_digest()):
            raise InvalidArgument("files are not those here that the sweep was begun with")
        result = run(agent, world, self.seed, progress, control=self.control)
        return replace(result, identity=identity.facts(known, agent))

    def build(self, world: World) -> Any:
        """Its agent; the noise is simulated."""
        given: dict[str, Any] = {"users": self.users, "privacy": self.privacy, "seed": self.seed}
        if isinstance(self.agent, AgentChoice):
            return self.agent.build(world.spec, **given)
        return self.agent(world.spec, **given, noise_seed=noise_seed(self.seed))


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
    left_out: Mapping[str, str] = field(default_factory=dict)  # and why

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.results)} of {len(self.jobs)} runs, {len(self.worlds)} worlds>"

    @property
    def worlds(self) -> list[str]:
        """Their names, in the order of the jobs; with a digest where two have one name."""
        return list(dict.fromkeys(world for world, _ in self._names()))

    def _names(self) -> list[tuple[str, str]]:
        """World and line of each job; what has another's name, and not its content, has more."""
        told, found = defaultdict[Any, set[str]](set), list[tuple[str, str]]()
        named = [(_name(job.world), job.line, *(job.digests or ("", ""))[:2]) for job in self.jobs]
        for world, line, place, agent in named:
            told[world].add(place)
            told[world, place, line].add(agent)
        for world, line, place, agent in named:
            line += f" [{agent[:6]}]" if len(told[world, place, line]) > 1 else ""
            found.append((world + (f" [{place[:6]}]" if len(told[world]) > 1 else ""), line))
        return found

    def labelled(self, world: str | None = None) -> dict[str, list[Result]]:
        """Results by agent and budget, of one world or of all; then its name comes first."""
        found: dict[str, list[Result]] = {}
        several, names = world is None and len(self.worlds) > 1, self._names()
        for place, result in self.results.items():
            at, line = names[place]
            if world in (None, at):
                found.setdefault(f"{at}: {line}" if several else line, []).append(result)
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

    def plot(self, path: str | None = None, **look: Any) -> Any:
        """Panels of every world; see :func:`tacit.simulation.plots.plot_results`."""
        from tacit.simulation.plots import plot_results

        return plot_results(self.labelled(), path, **look)


def _budget_words(privacy: Privacy) -> str:
    """The budget in a line's label, as "local, epsilon 2"; delta is the same for all."""
    words = privacy_words(privacy).partition(", delta")[0]
    return words.removeprefix("joint privacy, ").replace(" privacy,", ",")


def sweep(
    worlds: Iterable[WorldLike],
    agents: Iterable[AgentLike],
    budgets: Iterable[Privacy],
    *,
    users: int | Sequence[int],
    seeds: Iterable[int],
    fitting: bool = False,
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: bool = True,
    callback: Callable[[Job, Result], None] | None = None,
) -> Sweep:
    """Runs every agent with every budget and every seed on every world.

    Args:
        worlds: texts as ``riverswim:states=6``, environments of Gymnasium, or functions without
            arguments that make either.
        agents: texts as ``ucbvi:growth=1.3``, or what is called as ``tacit.UCBVI`` is.
        budgets: privacy models.
        users: of every run, or a number for each world.
        seeds: of every agent; a seed means the same in ``tacit run``.
        fitting: whether worlds that cannot be made here, and what refuses a world, are left out.
        folder: where results are kept, each under the hash of all that it depends on.
        executor: who runs the jobs: any of ``concurrent.futures``, or a Dask client's
            ``get_executor()``. Processes by default, also from a notebook.
        workers: processes, without an executor; 1 runs everything here.
        progress: whether to show a progress bar, on standard error.
        callback: called with every job and its result, here, as they come.

    Raises:
        SweepFailed: Runs failed; the others have been run, and are kept.
    """
    found = [build(one) if hasattr(one, "unwrapped") else one for one in worlds]
    numbers = [*users] if isinstance(users, Sequence) else [users] * len(found)
    counts = [whole_number("users", one) for one in numbers]
    if len(counts) != len(found):
        raise InvalidArgument(f"users must be one number, or {len(found)}, got {len(counts)}")
    choices = [choose_agent(one) if isinstance(one, str) else one for one in agents]
    if own := [one.text for one in choices if isinstance(one, AgentChoice) and one.budget]:
        raise InvalidArgument(f"{own[0]!r} has a budget; a sweep's are its budgets")
    placed, workers = list(zip(found, counts, strict=True)), whole_number("workers", workers)
    lines = itertools.product(placed, choices, budgets, seed_list(seeds))
    all_jobs = [Job(w, agent, one, count, seed) for (w, count), agent, one, seed in lines]
    jobs, left_out = _identified(all_jobs, fitting)
    if not jobs:
        raise InvalidArgument("worlds, agents, budgets and seeds must not be empty")
    made = run_jobs(jobs, folder, executor, workers, progress, callback)
    return replace(made, left_out=left_out)


def run_jobs(
    jobs: Sequence[Job],
    folder: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: bool = True,
    callback: Callable[[Job, Result], None] | None = None,
) -> Sweep:
    """Runs all jobs but those whose results are kept.

    Args:
        jobs: In the order of the results.
        folder: As all that follows, see :func:`sweep`.
        executor: Of processes.
        workers: Processes.
        progress: On standard error.
        callback: Of results.
    """
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
        raise InvalidArgument(f"{os.fspath(folder)!r} is no folder")
    results, failed = dict[int, Result](), dict[int, str]()
    for place, job in enumerate(jobs if folder is not None else ()):
        with contextlib.suppress(FileNotFoundError, CorruptFile):
            results[place] = Result.load(kept_at(folder, job))  # type: ignore[arg-type]
    left = [place for place in range(len(jobs)) if place not in results]
    workers = workers if len(left) > 1 else 1  # a single one needs no other process
    if workers > 1 or executor is not None:  # others are silent
        for privacy, users in {(job.privacy, job.users): 0 for job in jobs}:
            warn_of_budget(privacy, users)
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
                    if folder is not None:
                        path = kept_at(folder, jobs[place])
                        path.parent.mkdir(parents=True, exist_ok=True)
                        outcome.save(path)
                    if callback is not None:
                        callback(jobs[place], outcome)
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


def seed_list(seeds: Iterable[int]) -> list[int]:
    """Seeds as a list; they are a list, not a number of runs."""
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)):
        raise InvalidArgument(f"seeds must be a list of integers, got {seeds!r}")
    return [whole_number("seeds", seed, least=0) for seed in seeds]


def _identified(jobs: Sequence[Job], fitting: bool) -> tuple[list[Job], dict[str, str]]:
    """Jobs with digests, and what is left out: a mistake must not cost the time of the rest."""
    built, known, left_out = dict[int, Any](), dict[Any, Job | None](), dict[str, str]()
    for job in jobs:
        at = id(job.world)
        key = at, id(job.agent), repr(job.privacy)
        if key in known:
            continue
        try:
            built[at] = built[at] if at in built else _built(job.world)
            known[key] = job.identified(built[at])
        except Exception as error:  # whatever an agent of yours says of another's spec
            if not fitting:
                raise
            known[key] = None
            left_out[f"{_name(job.world)}: {job.line}"] = f"{type(error).__name__}: {error}"
    found = [(job, known[id(job.world), id(job.agent), repr(job.privacy)]) for job in jobs]
    return [replace(job, digests=like.digests) for job, like in found if like], left_out


def _built(world: WorldLike) -> World:
    made = hasattr(world, "simulate") or isinstance(world, str)
    return build(world if made else world())  # type: ignore[operator]


def _outcome(job: Job) -> Result | str:
    try:
        return replace(job.run(), policy=None)  # large, and made for another process
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _name(what: Any) -> str:
    """Name of a world or an agent for people."""
    if isinstance(what, (str, AgentChoice)):
        return what if isinstance(what, str) else what.text
    named = getattr(what, "algorithm", what)  # a constructor is called as its algorithm
    return str(getattr(named, "name", None) or getattr(what, "__name__", None) or repr(what))


def outcomes(
    work: Callable[[Any], T],
    items: Mapping[int, Any],
    workers: int,
    executor: Executor | None = None,
) -> Generator[tuple[int, T | str], None, None]:
    """Outcomes of all items as they come, each with its key, or in words why there is none.

    Args:
        work: Is called with every item.
        items: By key.
        workers: Processes, without an executor; 1 runs everything here.
        executor: Of ``concurrent.futures``, or a Dask client's.
    """
    if executor is None and workers == 1:
        yield from ((place, work(item)) for place, item in items.items())
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    loads = {place: _packed(work, item) for place, item in items.items()}
    others = set(multiprocessing.active_children())
    with contextlib.ExitStack() as stack:
        if executor is None:
            # Spawned, not forked: a fork copies locks that other threads may hold.
            spawned = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(min(workers, len(items)), mp_context=spawned)
            executor = stack.enter_context(pool)
        futures = {executor.submit(_done, load): i for i, load in loads.items()}
        for future in futures:
            stack.callback(future.cancel)
        try:
            for future in as_completed(futures):
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    outcome = DIED
                yield futures[future], outcome
        except BaseException:  # an interruption, or nobody asks any more: they would go on
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


def _packed(work: Any, what: Any) -> bytes:
    """Bytes; functions of yours go along by value, with your modules that they import."""
    import cloudpickle

    makers = [getattr(getattr(what, name, None), "__module__", None) for name in ("agent", "world")]
    names = {name for one in makers for name in identity.own_sources(one or "builtins")}
    own = [sys.modules[name] for name in sorted(names & {*sys.modules} - {"__main__"})]
    try:
        with contextlib.ExitStack() as stack:
            for module in own:
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
            data: bytes = cloudpickle.dumps((work, what))
    except Exception as error:
        raise InvalidArgument(
            "what makes agents and worlds cannot be sent to other processes; use workers=1: "
            f"{type(error).__name__}: {error}"
        ) from error
    return data


def _done(load: bytes) -> Any:
    try:
        make, what = pickle.loads(load)  # noqa: S301  # made by the caller a moment ago
    except Exception as error:
        return f"another process cannot load it: {type(error).__name__}: {error}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(delta|epsilon) is", TacitWarning)
        return make(what)
