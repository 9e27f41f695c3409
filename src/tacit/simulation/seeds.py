"""Many runs of one agent: a seed each, several at a time."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from tacit.core.targets import load
from tacit.core.world import AnyAgent, World
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.simulation.progress import Progress, progress_bar
from tacit.simulation.result import Result
from tacit.simulation.run import require, run

# Beside the streams of a run; see :mod:`tacit.simulation.run`.
_NOISE = 3

AgentMaker: TypeAlias = Callable[[Any, int], AnyAgent] | Mapping[str, Any]
"""``make(spec, seed)``, or a description: the name of a class or function and its options."""

WorldMaker: TypeAlias = World | Callable[[int], World] | Mapping[str, Any]
"""A world, ``make(seed)``, or a description."""

# More runs than this are a slip.
_MOST_RUNS = 10**6


class SeedFailed(TacitError):
    """One of several runs failed: that with this ``seed``."""

    def __init__(self, seed: int, reason: str) -> None:
        super().__init__(seed, reason)  # both, so that it can be pickled
        self.seed = seed
        self.reason = reason

    def __str__(self) -> str:
        return f"the run with seed {self.seed} failed: {self.reason}"


def noise_seed(seed: int) -> int:
    """A seed for an agent's privacy noise in a simulation, independent of the run's own.

    >>> noise_seed(0) == noise_seed(0) != noise_seed(1)
    True
    """
    state = np.random.SeedSequence([_NOISE, seed]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def run_seeds(
    make_agent: AgentMaker,
    make_world: WorldMaker,
    seeds: Sequence[int],
    workers: int = 2,
    progress: Progress = True,
) -> list[Result]:
    """Runs one agent per seed, several at a time, each in a process of its own.

    The results, in the order of the seeds, do not depend on the number of workers. With more than
    one, scripts need the usual ``if __name__ == "__main__":`` around their own code; functions of a
    notebook's cell are sent along.

    A description is a dictionary whose ``"make"`` is "module:name" and whose other entries are
    arguments. An agent's is called with the spec, ``seed`` and ``noise_seed`` as well.

    Args:
        make_agent: ``make_agent(spec, seed)``, or a description such as
            ``{"make": "tacit:UCBVI", "users": 10_000, "privacy": tacit.NonPrivate()}``.
        make_world: a world, ``make_world(seed)``, or a description.
        seeds: one run each.
        workers: processes; 1 runs them in this one, one after another.
        progress: whether to show a progress bar, on standard error.

    Raises:
        SeedFailed: A run failed; the message says which seed and why. No further runs are started.
    """
    if not (callable(make_agent) or isinstance(make_agent, Mapping)):
        raise InvalidArgument(f"make_agent must be a function or a description, got {make_agent!r}")
    worlds = callable(make_world) or isinstance(make_world, Mapping)
    if not (worlds or hasattr(make_world, "simulate")):
        raise InvalidArgument(
            f"make_world must be a world, a function or a description, got {make_world!r}"
        )
    seeds = seed_list(seeds)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidArgument(f"workers is {workers!r}, but must be an integer of at least 1")
    with progress_bar("seeds", len(seeds), progress) as advance:
        if workers == 1 or len(seeds) < 2:
            results = []
            for seed in seeds:
                results.append(_run_seed(make_agent, make_world, seed))
                advance(1)
            return results
        return _run_parallel(make_agent, make_world, seeds, min(workers, len(seeds)), advance)


def _run_parallel(
    make_agent: AgentMaker,
    make_world: WorldMaker,
    seeds: Sequence[int],
    workers: int,
    advance: Callable[[int], None],
) -> list[Result]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    import cloudpickle

    try:
        # By value where no module has it: a lambda, or a function of a notebook's cell.
        recipe = cloudpickle.dumps((make_agent, make_world))
    except Exception as error:
        raise InvalidArgument(
            "make_agent and make_world cannot be sent to other processes; use workers=1: "
            f"{type(error).__name__}: {error}"
        ) from error
    # Spawned, not forked: a fork copies locks that other threads may hold, and cannot do it safely.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_remember, initargs=(recipe,)
    ) as pool:
        futures = {pool.submit(_run_remembered, seed): i for i, seed in enumerate(seeds)}
        results: dict[int, Result] = {}
        for future in as_completed(futures):
            place = futures[future]
            try:
                results[place] = future.result()
            except BrokenProcessPool as error:
                raise SeedFailed(
                    seeds[place], "its process died (out of memory, or stopped from outside)"
                ) from error
            except SeedFailed:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            advance(1)
    return [results[place] for place in range(len(seeds))]


_recipe: list[tuple[AgentMaker, WorldMaker] | str] = []


def _remember(recipe: bytes) -> None:
    """Once per process: worlds may be large. What this process cannot load is said by its runs."""
    try:
        _recipe.append(pickle.loads(recipe))  # noqa: S301  # made by the parent a moment ago
    except Exception as error:
        _recipe.append(f"another process cannot load it: {type(error).__name__}: {error}")


def _run_remembered(seed: int) -> Result:
    recipe = _recipe[0]
    if isinstance(recipe, str):
        raise SeedFailed(seed, recipe)
    return _run_seed(*recipe, seed)


def _run_seed(make_agent: AgentMaker, make_world: WorldMaker, seed: int) -> Result:
    try:
        world = _build_world(make_world, seed)
    except Exception as error:
        raise SeedFailed(seed, f"make_world: {type(error).__name__}: {error}") from error
    try:
        return run(_build_agent(make_agent, world.spec, seed), world, seed, progress=False)
    except Exception as error:
        raise SeedFailed(seed, f"{type(error).__name__}: {error}") from error


def _build_agent(make_agent: AgentMaker, spec: Any, seed: int) -> AnyAgent:
    if isinstance(make_agent, Mapping):
        make, options = _described(make_agent)
        made: AnyAgent = make(spec, **{"seed": seed, "noise_seed": noise_seed(seed)} | options)
        return made
    return make_agent(spec, seed)


def _build_world(make_world: WorldMaker, seed: int) -> World:
    if isinstance(make_world, Mapping):
        make, options = _described(make_world)
        made: World = make(**options)
        return made
    # A world may be callable too; what simulates users is a world.
    if hasattr(make_world, "simulate"):
        return cast(World, make_world)
    built = make_world(seed)
    require("make_world(seed)", built, "a world", ("simulate", "spec"))
    return built


def _described(description: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    options = dict(description)
    name = options.pop("make", None)
    return load(name if isinstance(name, str) else repr(name)), options


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
