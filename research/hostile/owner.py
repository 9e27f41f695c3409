"""An agent under fire: threads, exceptions at every line, signals, full memory, a failing disk.

    python -m research.hostile.owner --what learn stream save load --stride 1
    python -m research.hostile.owner --what threads signals term memory disk power --rounds 200

Every user has a cell of her own and the noise is far below one, so a release shows who is in it and
how often. Agents have a ledger and an autosave. After whatever happened a run goes on: in memory,
from a save that is made then, or from its autosave as after a kill. Four things are counted, and
all must be 0: runs that could not go on, users who are in more than one release or twice in one,
releases that nobody paid for, and receipts (``users_taken``) that were wrong.

Exceptions come at the n-th line of Tacit that a call runs, by tracing, for every n. Left out are
the end of a ``with`` statement and the word ``try`` itself, where CPython handles no signal.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import linecache
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.core.algorithm import Pace
from tacit.core.asks import Ask, Asks, State
from tacit.core.kinds import AgentKind
from tacit.core.setting import Setting
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.curators import id_files
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import BudgetExceeded, DoubleSpend
from tacit.privacy.standard import OneHotCounts
from tacit.privacy.statistic import Block

SPEC = FiniteSpec(states=2, actions=2, horizon=1, stationary=False)
PRIVACY = tacit.JointDP(epsilon=3e5, delta=1e-6)
PACKAGE = str(Path(tacit.__file__).parent)
HOW = ("in memory", "saved", "killed")
"""How a run goes on."""


@dataclass
class Tally:
    """What was tried and what went wrong."""

    tried: int = 0
    hit: int = 0
    lost_runs: int = 0
    users_twice: int = 0
    unpaid: int = 0
    wrong_receipts: int = 0
    lost_blocks: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost_runs or self.users_twice or self.unpaid or self.wrong_receipts)

    def add(self, other: Tally) -> None:
        """Adds what another one counted."""
        for name in asdict(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def note(self, problem: str) -> None:
        """Keeps the first few in words."""
        if len(self.problems) < 20:
            self.problems.append(problem)


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """How the agent sums."""

    counter: str = "blocks"
    size: int = 4


class CountsCells(FiniteAlgorithm):
    """Asks every block who was in it."""

    name = "cells"
    Options = CellOptions

    def __init__(self, setting: Setting, options: CellOptions) -> None:
        self.sums = np.zeros(setting.users)
        self._size = options.size
        super().__init__(setting, options)

    def asks(self) -> Asks:
        """One question."""
        release = yield Ask(OneHotCounts(steps=1, cells=self.users))
        counts = release["counts"].ravel()
        self.sums = counts if self.counter != "blocks" else self.sums + counts

    def plan(self) -> tuple[Policy, Policy]:
        """Any policy."""
        values = np.zeros((SPEC.horizon, SPEC.states, SPEC.actions))
        return self.best(values), self.best(values)

    def _choose_counter(self) -> str:
        return str(self.options.counter)

    def _pace(self) -> Pace:
        return Pace(f"fixed:size={self._size}", size=self._size)

    def state(self) -> State:
        """The sums."""
        return {}, {"sums": self.sums}

    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        """The sums."""
        self.sums = arrays["sums"]


CELLS = AgentKind(CountsCells)


def users_of(first: int, users: int) -> Block:
    """Users with a cell of their own each."""
    return Block(users, {"cells": np.arange(first, first + users).reshape(-1, 1)})


# One run.


@dataclass
class Run:
    """One agent from its start to the end of its users, whatever happens in between."""

    folder: Path
    users: int
    ids: bool = True
    counter: str = "blocks"
    size: int = 4
    releases: dict[tuple[int, bytes], Any] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def make(self, *, files: bool) -> Any:
        """An agent; with ``files`` it begins the run."""
        more = self.files if files else {}
        return CELLS(
            SPEC, self.users, PRIVACY, counter=self.counter, size=self.size,
            schedule=f"fixed:size={self.size}", **more,
        )  # fmt: skip

    @property
    def files(self) -> dict[str, Path]:
        """Of the agent."""
        return {"ledger": self.folder / "ledger", "autosave": self.folder / "state"}

    def learn(self, agent: Any, first: int, users: int) -> None:
        """Gives users to the agent."""
        ids = [*range(first, first + users)] if self.ids else None
        agent.learn(users_of(first, users), ids)

    @contextlib.contextmanager
    def overheard(self) -> Iterator[None]:
        """Notes every release that leaves the gate."""
        original = JointCurator._publish

        def publish(curator: JointCurator, release: Any) -> Any:
            result = original(curator, release)
            self._note(result)
            return result

        JointCurator._publish = publish  # type: ignore[method-assign]
        try:
            yield
        finally:
            JointCurator._publish = original  # type: ignore[method-assign]

    def _note(self, release: Any) -> None:
        counts = np.rint(release["counts"]).astype(np.int64).ravel()
        self.releases[release.index, counts.tobytes()] = counts

    def load(self, path: Path) -> Any:
        """Another agent, from a save; the release that it holds is as good as published."""
        agent = self.make(files=False).load(path, **self.files)
        if agent._curator.last_release is not None:
            self._note(agent._curator.last_release)
        return agent

    def go_on(self, agent: Any, how: str) -> Any:
        """The agent that goes on, in one of three ways."""
        if how == "in memory":
            return agent
        if how == "saved":
            agent.save(self.folder / "saved")
        # Of two saves the newer one can be resumed; which it is, is for the ledger to say.
        saved = [self.folder / name for name in ("saved", "state")]
        if saved[0].exists():
            with contextlib.suppress(DoubleSpend):
                return self.load(saved[0])
        return self.load(saved[1])

    def finish(self, agent: Any) -> None:
        """Serves everybody who was not taken."""
        for _ in range(2 * self.users):
            left = self.users - agent.taken
            if not left:
                return
            try:
                self.learn(agent, agent.taken, min(3, left))
            except BudgetExceeded:
                # A release could not be saved: that is to be done first.
                agent.save(self.folder / "state")
        raise RuntimeError("a run that never ends")

    def judge(self, agent: Any, where: str) -> Tally:
        """What went wrong."""
        tally, counts = self.tally, np.zeros(self.users, dtype=np.int64)
        if self.counter == "blocks":
            for counted in self.releases.values():
                counts += counted
            worst = int(counts.max(initial=0))
        else:  # running sums
            worst = max((int(c.max()) for c in self.releases.values()), default=0)
            counts = np.maximum.reduce([*self.releases.values(), counts])
        twice = int((counts > 1).sum())
        tally.users_twice += twice
        ledger = tacit.Ledger.open(self.folder / "ledger")
        paid = sum(entry.event in ("charge", "pending") for entry in ledger.entries)
        if paid < len({index for index, _ in self.releases}) or ledger.max_spent > ledger.limit:
            tally.unpaid += 1
            tally.note(f"{where}: {paid} charges for {len(self.releases)} releases")
        missing = int((counts == 0).sum())
        lost = agent._curator.entered - agent.releases
        tally.lost_blocks += lost
        if twice or worst > 1:
            tally.note(f"{where}: users {np.flatnonzero(counts > 1).tolist()} are in twice")
        if missing > max(0, lost) * self.size or agent.taken != self.users:
            tally.wrong_receipts += 1
            tally.note(f"{where}: {missing} users are in no release, {lost} blocks were lost")
        return tally


@contextlib.contextmanager
def folder_of() -> Iterator[Path]:
    """A folder in memory, where there is one: what is tested is the order of writes."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tacit-owner-", dir=where) as name:
        yield Path(name)


# Exceptions at every line.


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
        fresh = run.make(files=False)
        if what == "load":
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
    what: str, *, stride: int = 1, start: int = 1, ids: bool = True, counter: str = "blocks"
) -> Tally:
    """Exceptions at every ``stride``-th line of learn, save or load, and every way of going on."""
    tally, place = Tally(), start
    errors = (KeyboardInterrupt, MemoryError)
    while True:
        error, how = errors[tally.tried % 2], HOW[tally.tried // 2 % 3]
        with folder_of() as folder:
            found, reached = one_line(
                what, place, error, how, Run(folder, 12, ids=ids, counter=counter)
            )
        tally.add(found)
        tally.tried += 1
        place += stride
        if not reached:
            return tally


# Threads.


def threads(workers: int, rounds: int, seed: int = 0) -> Tally:
    """Many threads give users to one agent, each her own, until ``rounds`` blocks are through."""
    users, tally = 4 * rounds, Tally(tried=1)
    with folder_of() as folder:
        run, lock = Run(folder, users, ids=bool(seed % 2)), threading.Lock()
        rng, order = random.Random(seed), iter(range(users))  # noqa: S311
        sizes = [rng.randint(1, 3) for _ in range(users)]
        agent, wrong = run.make(files=True), list[str]()

        def work() -> None:
            while True:
                with lock:
                    mine = [user for _, user in zip(range(sizes.pop()), order, strict=False)]
                if not mine:
                    return
                try:
                    data = Block(len(mine), {"cells": np.array(mine).reshape(-1, 1)})
                    agent.learn(data, mine if run.ids else None)
                    if mine[0] % 50 == 0:
                        agent.save(folder / "state")
                except BaseException as error:
                    wrong.append(repr(error))
                    return

        with run.overheard():
            crowd = [threading.Thread(target=work) for _ in range(workers)]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
        for problem in wrong:
            run.tally.lost_runs += 1
            run.tally.note(f"{workers} threads: {problem}")
        if not wrong and (agent.releases, agent.block_users) != (rounds, 0):
            run.tally.lost_runs += 1
            run.tally.note(f"{workers} threads: {agent.releases} of {rounds} rounds")
        tally.add(run.judge(agent, f"{workers} threads"))
    return tally


# Signals.


class Stopped(BaseException):
    """What a handler raises."""


def signals(count: int, seed: int = 0) -> Tally:
    """Real signals at random moments of ``learn``, whose handler raises, until so many came."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    armed = [False]

    def handler(*_: object) -> None:
        if armed[0]:
            tally.hit += 1
            raise Stopped

    before = signal.signal(signal.SIGALRM, handler)
    try:
        while tally.hit < count:
            with folder_of() as folder:
                tally.add(_signalled(Run(folder, 60, ids=bool(tally.tried % 2)), rng, armed))
                tally.tried += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return tally


def _signalled(run: Run, rng: random.Random, armed: list[bool]) -> Tally:
    with run.overheard():
        agent = run.make(files=True)
        try:
            while agent.taken < run.users:
                before, taken = agent.taken, None
                pause = rng.choice((1e-4, 1e-3, 1e-2)) * rng.random() + 1e-5
                some = min(rng.randint(1, 6), run.users - before)
                try:
                    armed[0] = True
                    # A second one comes soon, into whatever is done about the first.
                    signal.setitimer(signal.ITIMER_REAL, pause, max(pause / 8, 5e-5))
                    run.learn(agent, before, some)
                    armed[0] = False
                except Stopped as error:
                    armed[0] = False
                    taken = getattr(error, "users_taken", None)
                except BudgetExceeded:
                    armed[0] = False
                finally:
                    armed[0] = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
                if taken is not None and taken != agent.taken - before:
                    run.tally.wrong_receipts += 1
                    run.tally.note(f"signal: {taken} said, {agent.taken - before} taken")
                if rng.random() < 0.05 or agent._curator._unsaved:
                    agent.save(run.folder / "state")
                elif rng.random() < 0.02 and agent.releases:
                    agent = run.go_on(agent, "saved")
        except Exception as wrong:
            run.tally.lost_runs += 1
            run.tally.note(f"signals: {type(wrong).__name__}: {wrong}")
            return run.tally
        return run.judge(agent, "signals")


def terminated(times: int, seed: int = 0) -> Tally:
    """Processes that turn SIGTERM into an exit which saves, again and again until they are done."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    while tally.hit < times:
        with folder_of() as folder:
            run = Run(folder, 40, ids=bool(tally.tried % 2))
            _folder[0] = str(folder)
            tally.tried += 1
            for life in range(200):
                code = _forked(lambda life=life: _live(run, life), rng.uniform(0.0, 0.03))  # type: ignore[misc]
                tally.hit += code == 1
                if code not in (0, 1):
                    tally.lost_runs += 1
                    error = folder / "error"
                    tally.note(f"SIGTERM: {error.read_text() if error.exists() else code}")
                if code != 1:
                    break
            for line in (folder / "notes").read_text().splitlines():
                index, told = json.loads(line)
                counts = np.array(told)
                run.releases[index, counts.tobytes()] = counts
            tally.add(run.judge(_Ended(folder), "SIGTERM"))
    return tally


class _Ended:
    """What is left of an agent whose process is gone."""

    def __init__(self, folder: Path) -> None:
        told = json.loads((folder / "end").read_text()) if (folder / "end").exists() else {}
        self.taken, self.releases = told.get("taken", 0), told.get("releases", 0)
        self._curator = argparse.Namespace(entered=told.get("entered", 0))


def _live(run: Run, life: int) -> None:
    """One life: resumes, serves, and saves when it is told to end."""

    def note(release: Any) -> None:
        counts = np.rint(release["counts"]).astype(np.int64).ravel()
        with open(run.folder / "notes", "a") as file:
            file.write(json.dumps([release.index, counts.tolist()]) + "\n")

    def end(*_: object) -> None:
        sys.exit(1)

    run._note = note  # type: ignore[method-assign]
    (run.folder / "notes").touch()
    with run.overheard():
        saved = run.folder / "state"
        agent = run.load(saved) if life else run.make(files=True)
        try:
            signal.signal(signal.SIGTERM, end)
            (run.folder / "ready").touch()
            run.finish(agent)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            agent.save(saved)
        told = {"taken": agent.taken, "releases": agent.releases}
        told["entered"] = agent._curator.entered
        (run.folder / "end").write_text(json.dumps(told))


def _forked(work: Callable[[], None], delay: float) -> int:
    """Runs ``work`` in a child that is told to end after so many seconds; its exit code."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            work()
            code = 0
        except SystemExit:
            code = 1
        except BaseException:
            import traceback

            with open(Path(_folder[0]) / "error", "w") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(code)
    ready = Path(_folder[0]) / "ready"
    while not ready.exists() and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGTERM)
    ready.unlink(missing_ok=True)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


_folder: list[str] = [""]


# Memory and disks.


def memory(times: int, seed: int = 0) -> Tally:
    """Little memory is left, somewhere in ``learn``; then there is enough again."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    page, most = resource.getpagesize(), resource.getrlimit(resource.RLIMIT_AS)
    while tally.hit < times:
        tally.tried += 1
        with folder_of() as folder:
            run = Run(folder, 60, ids=bool(tally.tried % 2), size=12)
            with run.overheard():
                agent = run.make(files=True)
                while agent.taken < run.users:
                    before = agent.taken
                    some = min(rng.randint(1, 5), run.users - before)
                    ids = [*range(before, before + some)] if run.ids else None
                    wide = {"pad": np.ones((some, 20_000))} | dict(users_of(before, some).arrays)
                    data = Block(some, wide)
                    now = int(Path("/proc/self/statm").read_text().split()[0]) * page
                    limit = now + rng.randrange(1 << 16, 3 << 20)
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
    """The n-th call of the system fails, with a full or a broken disk, for every n."""
    tally, place = Tally(), 1
    while True:
        number, how = (28, 5)[tally.tried % 2], HOW[tally.tried // 2 % 3]
        left = [place]

        def failing(name: str, left: list[int] = left, number: int = number) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(number, os.strerror(number))

        with folder_of() as folder:
            run = Run(folder, 12, ids=bool(tally.tried % 2))
            with run.overheard():
                agent = run.make(files=True)
                run.learn(agent, 0, 2)
                taken, before = None, agent.taken
                try:
                    with calls(failing):
                        run.learn(agent, 2, 8)
                except OSError as error:
                    taken = getattr(error, "users_taken", None)
                if taken is not None and taken != agent.taken - before:
                    run.tally.wrong_receipts += 1
                where = f"call {place} fails, {how}"
                try:
                    agent = run.go_on(agent, how)
                    run.finish(agent)
                    tally.add(run.judge(agent, where))
                except Exception as wrong:
                    tally.lost_runs += 1
                    tally.note(f"{where}: {type(wrong).__name__}: {wrong}")
        tally.tried += 1
        tally.hit += left[0] <= 0
        place += stride
        if left[0] > 0:
            return tally


class Disk:
    """What is surely on a disk: what was flushed of a file, under names whose folder was flushed."""

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

    def copy_to(self, folder: Path) -> None:
        """What a power failure leaves."""
        for name, inode in self.names.items():
            (folder / name).write_bytes(self._data.get(inode, b""))


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
            with tempfile.TemporaryDirectory() as name:
                held.copy_to(Path(name))
                files = {p.name: p.read_bytes() for p in Path(name).iterdir()}
            shots.append((files, dict(run.releases)))

        os.fsync = fsync
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


def everything(rounds: int, stride: int) -> dict[str, Callable[[], Tally]]:
    """All of it, by name."""

    def of(parts: list[Tally]) -> Tally:
        whole = Tally()
        for part in parts:
            whole.add(part)
        return whole

    return {
        "threads": lambda: of([threads(n, rounds, seed=n // 2) for n in (2, 4, 8)]),
        "learn": lambda: lines("learn", stride=stride),
        "stream": lambda: lines("learn", stride=stride, ids=False, counter="binary tree"),
        "save": lambda: lines("save", stride=stride),
        "load": lambda: lines("load", stride=stride),
        "signals": lambda: signals(50 * rounds),
        "term": lambda: terminated(5 * rounds // 2),
        "memory": lambda: memory(rounds // 4),
        "disk": lambda: disk(stride=max(1, stride // 8)),
        "power": lambda: power(stride=max(1, stride // 8)),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", nargs="+", default=[*everything(1, 1)])
    parser.add_argument("--rounds", type=int, default=200, help="of a run of threads, and the rest")
    parser.add_argument("--stride", type=int, default=1, help="every so many lines or calls")
    parser.add_argument("--beside", action="store_true", help="ids are in a file of their own")
    options = parser.parse_args()
    if options.beside:
        id_files.INLINE = 0
    for name in options.what:
        tally = everything(options.rounds, options.stride)[name]()
        print(json.dumps({"what": name} | asdict(tally)), flush=True)


if __name__ == "__main__":
    main()
