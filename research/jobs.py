"""Runs of most experiments, a world per seed and several at a time, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import Number
from research.epsilon_cost import with_progress
from research.figures import INK, EndLabel, label_ends
from research.worlds import build
from tacit.simulation.plots import short
from tacit.simulation.run import noise_seed
from tacit.simulation.sweep import SeedFailed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.privacy.models import Privacy
    from tacit.simulation.result import Result

Floats = NDArray[np.float64]

DELTA = 1e-6
RUNS, WORKERS = 10, 2
PROCESSES: Number = (1, WORKERS, "processes")
NUMBERS: Mapping[str, Number] = {
    "runs": (1, RUNS, "seeds of every line"),
    "users": (100, None, "of every run"),
    "workers": PROCESSES,
}
"""The arguments that most figures have in common."""


@dataclass(frozen=True)
class Run:
    """What came out.

    Attributes:
        result: the run.
        switches: how often its policy was replaced,
        releases: of how many times it could have been.
        statistic: what was asked of users.
    """

    result: Result
    switches: int
    releases: int
    statistic: str


@dataclass(frozen=True)
class Job:
    """An agent in a world; every seed has its own world.

    Attributes:
        world: its name and options, all but the seed.
        kind: the class of the agent.
        privacy: its model and budget.
        users: how many are declared.
        options: of the agent.
    """

    world: str
    kind: str
    privacy: Privacy
    users: int
    options: tuple[tuple[str, Any], ...] = ()

    def with_options(self, **options: Any) -> Job:
        """The same with other options of the agent."""
        return replace(self, options=tuple({**dict(self.options), **options}.items()))

    def with_world(self, **options: Any) -> Job:
        """The same with options of the world."""
        return replace(self, world=_with(self.world, options))

    def agent(self, seed: int) -> Any:
        """The agent, before its first user."""
        return getattr(tacit, self.kind)(
            _world(_with(self.world, {"seed": seed})).spec,
            users=self.users,
            privacy=self.privacy,
            seed=seed,
            noise_seed=noise_seed(seed),
            **dict(self.options),
        )

    def run(self, seed: int) -> Run:
        """One run, in the world of that seed."""
        agent, world = self.agent(seed), _world(_with(self.world, {"seed": seed}))
        result = tacit.run(agent, world, seed, progress=False)
        # Most agents replace their policy at every release.
        switches = getattr(agent.plan.memory, "switches", agent.releases)
        asked = str(getattr(agent.algorithm, "statistic_kind", "counts"))
        return Run(result, switches, agent.releases, asked)


def _with(world: str, options: Mapping[str, Any]) -> str:
    """A world's name with more options.

    >>> _with("simplex", {"seed": 3}), _with("simplex:states=100", {"seed": 3})
    ('simplex:seed=3', 'simplex:states=100,seed=3')
    """
    more = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{world}{',' if ':' in world else ':'}{more}" if more else world


@lru_cache(maxsize=16)
def _world(name: str) -> Any:
    """Several jobs in a row are about one world."""
    return build(name)


J = TypeVar("J", bound=Job)


def run_jobs(jobs: Sequence[J], seeds: Sequence[int], workers: int = WORKERS) -> dict[J, list[Run]]:
    """Every job with every seed, under a progress bar; results do not depend on ``workers``.

    Raises:
        SeedFailed: A run failed; the message says which and why.
    """
    jobs = list(dict.fromkeys(jobs))
    # All jobs of a seed in a row: they share its world.
    pairs = [(job, seed) for seed in seeds for job in jobs]
    found: dict[tuple[Job, int], Run] = {}
    for job, seed, run in with_progress(_running(pairs, min(workers, len(pairs))), len(pairs)):
        found[job, seed] = run
    return {job: [found[job, seed] for seed in seeds] for job in jobs}


def _running(pairs: Sequence[tuple[Job, int]], workers: int) -> Iterator[tuple[Job, int, Run]]:
    if workers == 1:
        yield from map(_run_pair, pairs)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    # Spawned, not forked: a fork copies locks that other threads may hold.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(_run_pair, pair) for pair in pairs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _run_pair(pair: tuple[Job, int]) -> tuple[Job, int, Run]:
    job, seed = pair
    try:
        return job, seed, job.run(seed)
    except Exception as error:
        raise SeedFailed(
            seed, f"{job.kind} on {job.world}: {type(error).__name__}: {error}"
        ) from error


def sized(
    runs: int, users: int | None, quick: bool, few: int, usual: int | None = None
) -> tuple[int, int | None]:
    """How many runs of how many users; ``quick`` are two at the most, of few users.

    >>> sized(10, None, False, 30), sized(10, None, True, 30), sized(10, 5, True, 30)
    ((10, None), (2, 30), (2, 5))
    """
    if users is None:
        users = few if quick else usual
    return min(runs, 2) if quick else runs, users


K = TypeVar("K")


@dataclass(frozen=True)
class ByWorld(Generic[K]):
    """Runs in several worlds.

    Attributes:
        users: by world.
        results: by world and by what was run there, one per seed.
    """

    users: Mapping[str, int]
    results: Mapping[str, Mapping[K, Sequence[Result]]]

    @classmethod
    def of(
        cls,
        worlds: Mapping[str, int],
        making: Mapping[K, Callable[[str, int], Job]],
        runs: int,
        users: int | None,
        workers: int,
    ) -> Self:
        """Runs what is made for a world and its users, or for ``users`` in every world."""
        of_world = {world: number if users is None else users for world, number in worlds.items()}
        jobs = {
            world: {key: make(world, number) for key, make in making.items()}
            for world, number in of_world.items()
        }
        everything = [job for some in jobs.values() for job in some.values()]
        found = run_jobs(everything, range(runs), workers)
        results = {
            world: {key: [run.result for run in found[job]] for key, job in some.items()}
            for world, some in jobs.items()
        }
        return cls(of_world, results)

    @property
    def runs(self) -> int:
        """How many seeds."""
        return len(next(iter(next(iter(self.results.values())).values())))

    def table(
        self,
        what: Sequence[str],
        name: Callable[[K], str],
        cells: Callable[[str, K], Sequence[str]],
    ) -> str:
        """In Markdown: a row for each of what was run, and for each world a cell for each head."""
        worlds = self.users.items()
        heads = [
            f"{world}, {short(users)} users: {head}" for world, users in worlds for head in what
        ]
        lines = [f"| | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
        for key in next(iter(self.results.values())):
            found = [cell for world in self.users for cell in cells(world, key)]
            lines.append(f"| {name(key)} | {' | '.join(found)} |")
        return "\n".join(lines)

    def regrets(self, world: str, key: K) -> Floats:
        """Of all users, one per run, in optimal returns."""
        return np.array(
            [
                run.regret[-1] / (run.optimal_value - run.reference_value)
                for run in self.results[world][key]
            ]
        )


P = TypeVar("P")


@dataclass(frozen=True)
class ByJob(Generic[P, J]):
    """Runs of jobs, of which several panels draw some.

    Attributes:
        panels: what was run.
        results: of every job, one per seed.
    """

    panels: P
    results: Mapping[J, Sequence[Result]]

    @classmethod
    def of(cls, panels: P, found: Mapping[J, Sequence[Run]]) -> Self:
        """From runs."""
        return cls(panels, {job: [run.result for run in runs] for job, runs in found.items()})

    @property
    def runs(self) -> int:
        """How many seeds."""
        return len(next(iter(self.results.values())))

    @property
    def any_result(self) -> Result:
        """For what all have in common."""
        return next(iter(self.results.values()))[0]


# How they are shown.


def footnote(axes: Axes, text: str) -> None:
    """Small print below all panels."""
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.supxlabel(text, x=0.012, ha="left", fontsize=8.5, color=INK)


def label_panels(sheet: Sequence[Axes], labels: Sequence[Sequence[EndLabel]]) -> None:
    """The labels of every panel."""
    for axes, ends in zip(sheet, labels, strict=True):
        label_ends(axes, ends)


def spread(values: Sequence[float | None]) -> str:
    """The median and the quartiles; ``None`` counts as infinite.

    >>> spread([3, 1, 2, None]), spread([None, None]), spread([0.5, 20_000.0, 3e8])
    ('2.5 [2, 3]', 'not reached', '20,000 [0.5, 300M]')
    """
    numbers = np.array([math.inf if value is None else float(value) for value in values])
    if np.isinf(numbers).all():
        return "not reached"
    low, high = np.quantile(numbers, [0.25, 0.75], method="nearest")
    return f"{amount(float(np.median(numbers)))} [{amount(low)}, {amount(high)}]"


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
