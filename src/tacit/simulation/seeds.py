"""Many runs of one agent: a seed each, several at a time."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tacit.core.world import World
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.simulation.progress import progress_bar
from tacit.simulation.result import Result
from tacit.simulation.run import require, run

# Beside the streams of a run; see :mod:`tacit.simulation.run`.
_NOISE = 3

AgentMaker: TypeAlias = Callable[[Any, int], Any]
"""``make(spec, seed)``."""

WorldMaker: TypeAlias = World | Callable[[int], World]
"""A world, or ``make(seed)``."""

T = TypeVar("T")

DIED = "its process died (out of memory, or stopped from outside)"
"""The outcome of what was at work, or waited, when a process died."""

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


def _run_seed(make_agent: AgentMaker, make_world: WorldMaker, seed: int) -> Result | SeedFailed:
    what = "make_world: "
    try:
        # A world may be callable too; what simulates users is a world.
        made: Any = make_world if hasattr(make_world, "simulate") else make_world(seed)
        require("make_world(seed)", made, "a world", ("simulate", "spec"))
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


# Who runs them.


def outcomes(
    work: Callable[[Any], T],
    items: Mapping[int, Any],
    workers: int,
    executor: Executor | None = None,
) -> Generator[tuple[int, T | str], None, None]:
    """What ``work`` makes of every item as it comes, or in words why there is nothing."""
    if executor is None and workers == 1:
        yield from ((place, work(item)) for place, item in items.items())
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    packed = _packed(work)
    loads = {place: _packed(item) for place, item in items.items()}
    others = set(multiprocessing.active_children())
    with contextlib.ExitStack() as stack:
        if executor is None:
            # Spawned, not forked: a fork copies locks that other threads may hold.
            spawned = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(min(workers, len(items)), mp_context=spawned)
            executor = stack.enter_context(pool)
        futures = {executor.submit(_done, packed, load): i for i, load in loads.items()}
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


def _packed(what: Any) -> bytes:
    """Bytes; functions of a notebook or a script, which no module has, go along by value."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(what)
    except Exception as error:
        raise InvalidArgument(
            "what makes agents and worlds cannot be sent to other processes; use workers=1: "
            f"{type(error).__name__}: {error}"
        ) from error
    return data


@lru_cache(maxsize=1)
def _work(data: bytes) -> Any:
    """Once per process: worlds may be large."""
    return pickle.loads(data)  # noqa: S301  # made by the caller a moment ago


def _done(work: bytes, item: bytes) -> Any:
    try:
        make, what = _work(work), pickle.loads(item)  # noqa: S301  # as above
    except Exception as error:
        return f"another process cannot load it: {type(error).__name__}: {error}"
    return make(what)
