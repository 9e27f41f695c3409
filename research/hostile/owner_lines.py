"""Exceptions at every line of learn, save and load; see :mod:`research.hostile.owner`."""

from __future__ import annotations

import gc
import linecache
import sys
from pathlib import Path
from typing import Any

import tacit
from research.hostile.owner_run import HOW, Run, Tally, folder_of

PACKAGE = str(Path(tacit.__file__).parent)


class AtLine:
    """Raises at the n-th line of Tacit that is run while this is on."""

    def __init__(self, place: int, error: type[BaseException]) -> None:
        self.left, self.error, self.where = place, error, ""

    def __enter__(self) -> AtLine:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE):
            return None
        seen: set[int] = set()

        def line(frame: Any, event: str, _: object) -> Any:
            if event == "line":
                text = linecache.getline(name, frame.f_lineno).lstrip()
                leaving = text.startswith("with ") and frame.f_lineno in seen
                leaving |= text.startswith("try:")
                seen.add(frame.f_lineno)
                self.left -= 1
                if self.left <= 0 and not self.where and not leaving:
                    self.where = f"{Path(name).name}:{frame.f_lineno} {text.strip()[:50]}"
                    sys.settrace(None)
                    raise self.error("at a line")
            return line

        return line


def one_line(
    what: str, place: int, error: type[BaseException], how: str, run: Run
) -> tuple[Tally, bool]:
    """One exception at the n-th line of a call; whether the call has so many lines."""
    with run.overheard():
        agent = run.make(files=True)
        run.learn(agent, 0, 2)
        if what != "learn":
            run.learn(agent, 2, 3)
        before, at = agent.taken, AtLine(place, error)
        if what == "load":
            fresh = run.make(files=False)
            agent.save(run.folder / "state")
        caught, taken = False, None
        try:
            with at:
                if what == "learn":
                    run.learn(agent, before, 5)
                elif what == "save":
                    agent.save(run.folder / "saved")
                else:
                    fresh.load(run.folder / "state", **run.files)
        except BaseException as raised:
            if isinstance(raised, AssertionError):
                raise
            caught, taken = True, getattr(raised, "users_taken", None)
        gc.collect()
        where = f"{what}, line {place} ({at.where}), {error.__name__}, {how}"
        if caught and what == "learn" and taken is not None and taken != agent.taken - before:
            run.tally.wrong_receipts += 1
            run.tally.note(f"{where}: {taken} said to be taken, {agent.taken - before} were")
        try:
            if what == "load":
                if fresh.taken == 0:
                    # It was refused: what could be loaded before can be loaded now.
                    fresh = run.load(run.folder / "state")
                agent = fresh
            agent = run.go_on(agent, how)
            run.finish(agent)
        except BaseException as wrong:
            run.tally.lost_runs += 1
            run.tally.note(f"{where}: {type(wrong).__name__}: {wrong}")
            return run.tally, bool(at.where)
        run.tally.hit += bool(at.where)
        return run.judge(agent, where), bool(at.where)


def lines(
    what: str,
    *,
    stride: int = 1,
    start: int = 1,
    stop: int = sys.maxsize,
    ids: bool = True,
    counter: str = "blocks",
) -> tuple[Tally, bool]:
    """Both exceptions at every ``stride``-th line of a call; the ways of going on take turns.

    Also whether the call has no line ``stop``.
    """
    tally, place = Tally(), start
    errors = (KeyboardInterrupt, MemoryError)
    while place < stop:
        error, how = errors[tally.tried % 2], HOW[tally.tried % 3]
        with folder_of() as folder:
            found, reached = one_line(
                what, place, error, how, Run(folder, 8, ids=ids, counter=counter)
            )
        tally.add(found)
        tally.tried += 1
        if tally.tried == 1:
            gc.freeze()  # all that is loaded now need not be looked through again and again
        place += stride * (tally.tried % 2 == 0)
        if not reached:
            return tally, True
    return tally, False
