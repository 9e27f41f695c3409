"""Threads and signals; see :mod:`research.hostile.owner`."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from research.hostile.owner_run import Run, Tally, folder_of
from tacit.privacy.curators import id_files
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.statistic import Block


def threads(workers: int, rounds: int, seed: int = 0) -> Tally:
    """Many threads give users to one agent, each her own, until ``rounds`` blocks are through."""
    users, tally = 4 * rounds, Tally(tried=1)
    with folder_of() as folder:
        run, lock = Run(folder, users, ids=bool(seed % 2)), threading.Lock()
        rng, order = random.Random(seed), iter(range(users))  # noqa: S311
        sizes = [rng.randint(1, 3) for _ in range(users + workers)]
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
        try:
            tally.add(run.judge(agent, f"{workers} threads"))
        except Exception as error:  # broken code can break the ledger itself
            tally.lost_runs += 1
            tally.note(f"{workers} threads: {error!r}")
    return tally


# Signals.


class Stopped(BaseException):
    """What a handler raises."""


def signals(count: int, seed: int = 0) -> Tally:
    """Real signals at random moments of learn, save and load, whose handler raises, so many."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    inline = id_files.INLINE
    alarm = Alarm(tally, rng)
    try:
        while tally.hit < count:
            kind, more = tally.tried % 4, {"counter": "binary tree", "ids": False}
            id_files.INLINE = 0 if kind == 1 else inline
            with folder_of() as folder:
                # Now and then long enough for the ledger to get its index.
                users = 60 if tally.tried % 9 else 240
                run = Run(folder, users, **(more if kind == 2 else {"ids": kind != 3}))
                tally.add(_signalled(run, rng, alarm))
                tally.tried += 1
    finally:
        id_files.INLINE = inline
        alarm.end()
    return tally


class Alarm:
    """Sends signals into calls, at any moment of them: it learns how long they take."""

    def __init__(self, tally: Tally, rng: random.Random) -> None:
        self._tally, self._rng, self._what = tally, rng, ""
        self._usual: dict[str, float] = {}
        self._before = signal.signal(signal.SIGALRM, self._handler)

    def end(self) -> None:
        """No more of them."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _handler(self, *_: object) -> None:
        if self._what:
            self._tally.hit += 1
            name = f"in_{self._what.split()[0]}"
            setattr(self._tally, name, getattr(self._tally, name) + 1)
            raise Stopped

    def into(self, what: str, call: Callable[[], None]) -> Stopped | None:
        """Makes a call, into which a signal comes or not; the exception if one came."""
        usual = self._usual.get(what, 0.01)
        if self._rng.random() < 0.2:  # none: those that come through in spite of one are short
            began = time.perf_counter()
            call()
            took = time.perf_counter() - began
            self._usual[what] = usual + 0.1 * (min(took, 4 * usual) - usual)
            return None
        pause = 1.3 * self._rng.random() * usual + 1e-5
        # Often another one comes soon, into whatever is done about the first.
        again = self._rng.random() * usual / 4 + 5e-5 if self._rng.random() < 0.5 else 0.0
        try:
            self._what = what
            signal.setitimer(signal.ITIMER_REAL, pause, again)
            call()
            self._what = ""
        except Stopped as error:
            self._what = ""
            return error
        finally:
            self._what = ""
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None


def _signalled(run: Run, rng: random.Random, alarm: Alarm) -> Tally:
    with run.overheard():
        agent = run.make(files=True)
        try:
            while agent.taken < run.users:
                before, some = agent.taken, min(rng.randint(1, 6), run.users - agent.taken)
                full = "a block" if some >= agent.block_users else "some"
                try:
                    error = alarm.into(f"learn {full}", partial(run.learn, agent, before, some))
                    taken = getattr(error, "users_taken", None)
                    if taken is not None and taken != agent.taken - before:
                        run.tally.wrong_receipts += 1
                        run.tally.note(f"signal: {taken} said, {agent.taken - before} taken")
                except BudgetExceeded:
                    pass
                if rng.random() < 0.15:
                    alarm.into("save", partial(agent.save, run.folder / "state"))
                if agent._curator._unsaved:
                    agent.save(run.folder / "state")
                elif rng.random() < 0.1 and agent.taken:
                    agent.save(run.folder / "state")
                    fresh = run.make(files=False)
                    load = partial(fresh.load, run.folder / "state", **run.files)
                    alarm.into("load", load)
                    # If it was refused, what could be loaded before can be loaded now.
                    agent = fresh if fresh.taken else run.load(run.folder / "state")
        except Exception as wrong:
            run.tally.lost_runs += 1
            run.tally.note(f"signals: {type(wrong).__name__}: {wrong}")
            return run.tally
        return run.judge(agent, "signals")


def terminated(times: int, seed: int = 0) -> Tally:
    """Processes that turn SIGTERM into an exit which saves, again and again until they are done."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    with folder_of() as folder:  # what is loaded now is there in all children
        first = Run(folder, 4)
        first.finish(first.make(files=True))
    while tally.hit < times:
        with folder_of() as folder:
            run = Run(folder, 40, ids=bool(tally.tried % 2))
            tally.tried += 1
            for life in range(200):
                code = _forked(run, life, rng.uniform(0.0, 0.15))
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
        rows = [{"visits": np.array(visits)} for visits in told.get("heard", [])]
        self.record = argparse.Namespace(rows=rows)


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
        told["heard"] = agent.record.rows["visits"].tolist()
        (run.folder / "end").write_text(json.dumps(told))


def _forked(run: Run, life: int, delay: float) -> int:
    """One life in a child that is told to end after so many seconds; its exit code."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            _live(run, life)
            code = 0
        except SystemExit:
            code = 1
        except BaseException:
            with open(run.folder / "error", "w") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(code)
    ready = run.folder / "ready"
    while not ready.exists() and not os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGTERM)
    ready.unlink(missing_ok=True)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
