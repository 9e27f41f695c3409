"""Little memory, a failing disk, no power; see :mod:`research.hostile.owner`."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from research.hostile.owner_run import HOW, Run, Tally, folder_of, users_of
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.statistic import Block


def memory(times: int, seed: int = 0) -> Tally:
    """Little memory is left, somewhere in ``learn``; then there is enough again."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    page, most = resource.getpagesize(), resource.getrlimit(resource.RLIMIT_AS)
    while tally.hit < times or tally.tried < min(times, 8):
        tally.tried += 1
        with folder_of() as folder:
            # Columns beyond what the allocator keeps for itself.
            run = Run(folder, 150, ids=bool(tally.tried % 2), size=50)
            with run.overheard():
                agent, again = run.make(files=True), 0
                while agent.taken < run.users:
                    before = agent.taken
                    some = min(rng.randint(1, 12), run.users - before)
                    ids = [*range(before, before + some)] if run.ids else None
                    wide = {"pad": np.ones((some, 100_000))} | dict(users_of(before, some).arrays)
                    data = Block(some, wide)
                    now = int(Path("/proc/self/statm").read_text().split()[0]) * page
                    # More each time, so that it is not always the same line that has too little.
                    most_free = rng.choice((48 << 20, 600 << 20))
                    limit = now + rng.randrange(1 << 16, most_free) * (1 + again)
                    again += 1
                    resource.setrlimit(resource.RLIMIT_AS, (limit, most[1]))
                    taken = None
                    try:
                        agent.learn(data, ids)
                    except MemoryError as error:
                        tally.hit += 1
                        taken = getattr(error, "users_taken", None)
                    except BudgetExceeded:
                        resource.setrlimit(resource.RLIMIT_AS, most)
                        agent.save(folder / "state")
                    finally:
                        resource.setrlimit(resource.RLIMIT_AS, most)
                    if taken is not None and taken != agent.taken - before:
                        run.tally.wrong_receipts += 1
                    again *= agent.taken == before
                tally.add(run.judge(agent, "memory"))
        if tally.tried > 20 * times:
            tally.note("memory was never short")
            return tally
    return tally


_CALLS = ("open", "write", "fsync", "replace", "link", "unlink", "ftruncate", "lseek")


@contextlib.contextmanager
def calls(before: Callable[[str], None]) -> Iterator[None]:
    """Calls ``before`` with its name before every call of the system that changes files."""
    originals = {name: getattr(os, name) for name in _CALLS}

    def made(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            before(name)
            return originals[name](*args, **options)

        return call

    for name in _CALLS:
        setattr(os, name, made(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def disk(*, stride: int = 1) -> Tally:
    """The n-th call of the system fails in learn, save and load, for every n: full, and broken."""
    tally = Tally()
    for what in ("learn", "save", "load"):
        place, reached = 1, True
        while reached:
            for number in (errno.ENOSPC, errno.EIO):
                with folder_of() as folder:
                    run = Run(folder, 12, ids=bool(tally.tried // 2 % 2))
                    with run.overheard():
                        reached = _failing(run, what, place, number, HOW[tally.tried % 3])
                    tally.add(run.tally)
                tally.tried += 1
                tally.hit += reached
            place += stride
    return tally


def _failing(run: Run, what: str, place: int, number: int, how: str) -> bool:
    """One call that fails, and the run to its end; whether there were so many calls."""
    agent, left = run.make(files=True), [place]
    run.learn(agent, 0, 2)
    if what == "load":
        agent.save(run.folder / "state")
        fresh = run.make(files=False)

    def failing(name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(number, os.strerror(number))

    taken, before = None, agent.taken
    try:
        with calls(failing):
            if what == "learn":
                run.learn(agent, 2, 8)
            elif what == "save":
                agent.save(run.folder / "state")
            else:
                fresh.load(run.folder / "state", **run.files)
    except OSError as error:
        taken = getattr(error, "users_taken", None)
    if taken is not None and taken != agent.taken - before:
        run.tally.wrong_receipts += 1
    where = f"{what}, call {place} fails, {how}"
    try:
        if what == "load":
            agent = fresh if fresh.taken else run.load(run.folder / "state")
        agent = run.go_on(agent, how)
        run.finish(agent)
        run.judge(agent, where)
    except Exception as wrong:
        run.tally.lost_runs += 1
        run.tally.note(f"{where}: {type(wrong).__name__}: {wrong}")
    return left[0] <= 0


class Disk:
    """What is surely on a disk: flushed files, under names whose folder was flushed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    def flushed(self, descriptor: int) -> None:
        """After a flush of a file or of the folder."""
        status = os.fstat(descriptor)
        if os.path.samestat(status, os.stat(self.folder)):
            self.names = {p.name: p.stat().st_ino for p in self.folder.iterdir()}
        else:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._data[status.st_ino] = Path(path).read_bytes()

    @property
    def left(self) -> dict[str, bytes]:
        """What a power failure leaves."""
        return {name: self._data.get(inode, b"") for name, inode in self.names.items()}


def power(*, stride: int = 1) -> Tally:
    """The power fails before every call of the system: what was flushed is what is left."""
    tally, shots = Tally(), list[tuple[dict[str, bytes], dict[Any, Any]]]()
    with folder_of() as folder:
        run, flush = Run(folder, 12), os.fsync
        held = Disk(folder)

        def fsync(descriptor: int) -> None:
            flush(descriptor)
            held.flushed(descriptor)

        def shoot(_: str) -> None:
            shots.append((held.left, dict(run.releases)))

        os.fsync = fsync  # type: ignore[assignment]
        try:
            with run.overheard():
                agent = run.make(files=True)
                with calls(shoot):
                    for first in range(0, 12, 3):
                        run.learn(agent, first, 3)
        finally:
            os.fsync = flush
    for files, told in shots[::stride]:
        tally.tried += 1
        with folder_of() as folder:
            for name, data in files.items():
                (folder / name).write_bytes(data)
            run = Run(folder, 12, releases=told)
            try:
                with run.overheard():
                    agent = run.load(folder / "state")
                    run.finish(agent)
                tally.add(run.judge(agent, "power"))
            except Exception as wrong:
                tally.lost_runs += 1
                tally.note(f"power: {type(wrong).__name__}: {wrong}")
    return tally
