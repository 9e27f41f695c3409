"""Processes that run the jobs of a sweep, and the progress bar beside them."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Executor, as_completed
from functools import lru_cache, partial
from typing import Any, TypeVar

from tacit.privacy.errors import InvalidArgument

T = TypeVar("T")

DIED = "its process died (out of memory, or stopped from outside)"
"""The outcome of what was at work, or waited, when a process died."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, where standard error is a terminal; yields what moves it on."""
    if not isinstance(progress, bool):
        raise InvalidArgument(f"progress is {progress!r}, but must be True or False")
    if not progress or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as parts
    from rich.console import Console

    shown = parts.TextColumn("{task.description}"), parts.BarColumn(), parts.TaskProgressColumn()
    times = parts.TimeElapsedColumn(), parts.TextColumn("left"), parts.TimeRemainingColumn()
    with parts.Progress(*shown, *times, console=Console(stderr=True), transient=True) as bar:
        yield partial(bar.advance, bar.add_task(title, total=total))


def outcomes(
    work: Callable[[Any], T],
    items: Mapping[int, Any],
    workers: int,
    executor: Executor | None = None,
) -> Generator[tuple[int, T | str], None, None]:
    """Outcomes of all items as they come, each with its key.

    Args:
        work: Is called with every item.
        items: By key.
        workers: Processes, without an executor; 1 runs everything here.
        executor: Of ``concurrent.futures``, or a Dask client's.

    Yields:
        The key, and what ``work`` returned, or in words why there is nothing.
    """
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
