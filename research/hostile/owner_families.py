"""Agents of every family under fire: also those that ask earlier blocks again, and reports.

Their sums do not show who is in them, as those of :mod:`research.hostile.owner_run` do. What can be
seen is counted: users whom the curator took against users whom the agent says it took, releases
against charges, and whether a run comes to its end.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from benchmarks.crash import KINDS
from research.hostile.owner_lines import AtLine
from research.hostile.owner_run import HOW, Tally, folder_of
from tacit.privacy.errors import BudgetExceeded

_LOCAL = tacit.LocalDP(epsilon=1.0, delta=1e-6)
FAMILIES = (*KINDS, "reports")


class Served:
    """A run of one kind of agent; ``"reports"`` is of devices, block by block, without files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.reports = name, folder, name == "reports"
        kind = KINDS["ucbvi" if self.reports else name]
        self.world, self._kind = kind.world, kind
        self.users = kind.users * min(kind.blocks, 3)
        self.rng, self.tally = np.random.default_rng(0), Tally()
        self.files = {} if self.reports else {n: folder / n for n in ("ledger", "autosave")}

    def make(self, **files: Path) -> Any:
        """A fresh agent."""
        size = f"fixed:size={self._kind.users}"
        if self.reports:
            return tacit.UCBVI(self.world.spec, self.users, _LOCAL, schedule=size)
        module, name = self._kind.agent.split(":")
        make = getattr(__import__(module, fromlist=[name]), name)
        options = dict(self._kind.options) | {"schedule": size}
        privacy = tacit.JointDP(epsilon=3e5, delta=1e-6)
        return tacit.AgentKind(make)(self.world.spec, self.users, privacy, **options, **files)

    def learn(self, agent: Any, users: int) -> None:
        """Some users, or the reports of a block."""
        if self.reports:
            agent.learn_reports(np.zeros((agent.block_users, agent.statistic.layout.size)))
            return
        agent.learn(self.world.simulate(agent.policy, users, self.rng, "episodes"))

    def load(self, path: Path) -> Any:
        """Another agent, from a save."""
        return self.make().load(path, **self.files)

    def go_on(self, agent: Any, how: str) -> Any:
        """In memory, from a save, or as after a kill, which devices' reports have not."""
        if how == "in memory" or (self.reports and how == "killed"):
            return agent
        saved = self.folder / "saved" if self.reports else self.files["autosave"]
        if how == "saved":
            agent.save(saved)
        return self.load(saved)

    def finish(self, agent: Any) -> None:
        """Serves everybody who was not taken."""
        for _ in range(3 * self.users):
            if not (left := self.users - agent.taken):
                return
            try:
                self.learn(agent, min(7, left))
            except BudgetExceeded:
                agent.save(self.files["autosave"])
        raise RuntimeError("a run that never ends")

    def judge(self, agent: Any, where: str) -> Tally:
        """What went wrong."""
        tally, curator = self.tally, agent._curator
        tally.blocks += agent.releases
        tally.lost_blocks += curator.entered - agent.releases
        if (agent.taken, agent.served, curator.users) != (self.users,) * 3:
            tally.wrong_receipts += 1
            tally.note(f"{where}: {agent.taken} taken, {curator.users} of {self.users} in blocks")
        if not self.reports:
            ledger = tacit.Ledger.open(self.files["ledger"], every_line=True)
            paid = sum(entry.event in ("charge", "pending") for entry in ledger.entries)
            if paid < curator.releases or ledger.max_spent > ledger.limit * (1 + 1e-9):
                tally.unpaid += 1
                tally.note(f"{where}: {paid} charges for {curator.releases} releases")
        return tally


def interrupted(name: str, times: int, seed: int = 0) -> Tally:
    """An exception at a random line of the call that fills a block, again and again."""
    tally, rng = Tally(), random.Random(seed)  # noqa: S311
    lines = 0
    while tally.hit < times:
        error = (KeyboardInterrupt, MemoryError)[tally.tried % 2]
        how, place = HOW[tally.tried % 3], rng.randint(1, lines) if lines else 10**9
        with folder_of() as folder:
            run = Served(name, folder)
            agent = run.make(**run.files)
            if not run.reports:
                run.learn(agent, 2)
            before, at, taken = agent.taken, AtLine(place, error), None
            try:
                with at:
                    run.learn(agent, agent.block_users)
            except (KeyboardInterrupt, MemoryError) as raised:
                taken = getattr(raised, "users_taken", None)
            lines = lines or 10**9 - at.left
            where = f"{name}, line {place} ({at.where}), {error.__name__}, {how}"
            if taken is not None and taken != agent.taken - before:
                run.tally.wrong_receipts += 1
                run.tally.note(f"{where}: {taken} said, {agent.taken - before} taken")
            try:
                agent = run.go_on(agent, how)
                run.finish(agent)
                tally.add(run.judge(agent, where))
            except Exception as wrong:
                tally.lost_runs += 1
                tally.note(f"{where}: {type(wrong).__name__}: {wrong}")
        tally.tried += 1
        tally.hit += bool(at.where)
    return tally


def crowded(name: str, workers: int = 4) -> Tally:
    """Several threads give users, or blocks of reports, until all are taken."""
    with folder_of() as folder:
        run, lock, wrong = Served(name, folder), threading.Lock(), list[str]()
        agent, left = run.make(**run.files), [run.users]

        def work(act: Callable[[], None]) -> None:
            try:
                act()
            except BaseException as error:
                wrong.append(repr(error))

        def some() -> None:
            rng = np.random.default_rng(threading.get_ident())
            while True:
                with lock:
                    mine = min(3, left[0])
                    left[0] -= mine
                if not mine:
                    return
                # Another thread may have published meanwhile: then they come again.
                receipt = agent.learn(run.world.simulate(agent.policy, mine, rng, "episodes"))
                with lock:
                    left[0] += receipt.retired
                    run.tally.wrong_receipts += receipt.taken + receipt.retired != mine

        def reports() -> None:
            while agent.taken < run.users:
                with lock:  # a block's reports come from one who asked how many there are to be
                    if agent.taken < run.users:
                        run.learn(agent, 0)

        act = reports if run.reports else some
        crowd = [threading.Thread(target=work, args=(act,)) for _ in range(workers)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tacit.TacitWarning)
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
        run.tally.tried, run.tally.lost_runs = 1, len(wrong)
        run.tally.problems += wrong
        return run.judge(agent, f"{workers} threads")


def families(times: int, seed: int = 0) -> Tally:
    """All of them."""
    tally = Tally()
    for name in FAMILIES:
        tally.add(crowded(name))
        tally.add(interrupted(name, times, seed))
    return tally
