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
from pathlib import Path
from typing import Any

import numpy as np

from research.hostile.owner_run import Run, Tally, folder_of
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.statistic import Block


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
                pause = rng.choice((1e-4, 1e-3, 1e-2, 1e-1)) * rng.random() + 1e-5
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
