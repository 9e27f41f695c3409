"""How far a simulation is, and where its time goes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from tacit.privacy.errors import InvalidArgument

Progress: TypeAlias = bool | Literal["always"]
"""Whether there is a progress bar: where a terminal is watched (True), nowhere, or always."""


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
def progress_bar(title: str, total: int, progress: Progress) -> Iterator[Callable[[int], None]]:
    """A progress bar where somebody is watching; yields what moves it on."""
    if not isinstance(progress, (bool, str)) or progress not in (True, False, "always"):
        raise InvalidArgument(f"progress is {progress!r}, but must be True, False or 'always'")
    if progress is False or not (progress == "always" or sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress as parts
    from rich.console import Console

    shown = parts.TextColumn("{task.description}"), parts.BarColumn(), parts.TaskProgressColumn()
    times = parts.TimeElapsedColumn(), parts.TextColumn("left"), parts.TimeRemainingColumn()
    console = Console(stderr=True, force_terminal=True if progress == "always" else None)
    with parts.Progress(*shown, *times, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(units: int) -> None:
            bar.advance(task, units)

        yield advance
