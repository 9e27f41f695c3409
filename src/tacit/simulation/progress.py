"""How far a simulation is, and where its time goes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from tacit.privacy.errors import InvalidArgument


class Clock:
    """Where the time of a run goes."""

    def __init__(self) -> None:
        self._start = self._since = time.perf_counter()
        self._now = ""
        self._spent: dict[str, float] = {}

    def __call__(self, what: str) -> None:
        """Says what is done from now on."""
        before, self._since = self._since, time.perf_counter()
        self._spent[self._now] = self._spent.get(self._now, 0.0) + self._since - before
        self._now = what

    def seconds(self) -> dict[str, float]:
        """By what was done, and in total."""
        self("")
        spent = {what: seconds for what, seconds in self._spent.items() if what}
        return {"total": self._since - self._start} | spent


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
