"""One run of an agent whose releases show who is in them; see :mod:`research.hostile.owner`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
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
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import BudgetExceeded, DoubleSpend
from tacit.privacy.standard import OneHotCounts
from tacit.privacy.statistic import Block

SPEC = FiniteSpec(states=2, actions=2, horizon=1, stationary=False)
PRIVACY = tacit.JointDP(epsilon=3e5, delta=1e-6)
HOW = ("in memory", "saved", "killed")
"""How a run goes on."""


@dataclass
class Tally:
    """What was tried, how often the blow fell, what went wrong, and which blocks were lost or not.

    ``in_learn``, ``in_save`` and ``in_load`` say where signals came.
    """

    tried: int = 0
    hit: int = 0
    lost_runs: int = 0
    users_twice: int = 0
    unpaid: int = 0
    wrong_receipts: int = 0
    lost_blocks: int = 0
    blocks: int = 0
    in_learn: int = 0
    in_save: int = 0
    in_load: int = 0
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


class Cells(OneHotCounts):
    """Counts that monitoring keeps, so that what it keeps is in every save."""

    def monitored(self, release: Any) -> dict[str, Any]:
        """Who was in it."""
        counts = release["counts"].ravel()
        return {"visits": (counts, np.zeros(len(counts)))}


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
        release = yield Ask(Cells(steps=1, cells=self.users))
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

        JointCurator._publish = publish  # type: ignore[assignment, method-assign]
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
        tally.blocks += agent.releases
        if twice or worst > 1:
            tally.note(f"{where}: users {np.flatnonzero(counts > 1).tolist()} are in twice")
        if missing > max(0, lost) * self.size or agent.taken != self.users:
            tally.wrong_receipts += 1
            tally.note(f"{where}: {missing} users are in no release, {lost} blocks were lost")
        # Monitoring has every block that is through once, as it was released.
        released = {counted.tobytes() for counted in self.releases.values()}
        rows = agent.record.rows
        heard = {np.rint(row["visits"]).astype(np.int64).tobytes() for row in rows}
        if not len(rows) == len(heard) == agent.releases or not heard <= released:
            tally.wrong_receipts += 1
            tally.note(f"{where}: monitoring has {len(rows)} of {agent.releases} blocks")
        return tally


@contextlib.contextmanager
def folder_of() -> Iterator[Path]:
    """A folder in memory, where there is one: what is tested is the order of writes."""
    memory = "/dev/shm"  # noqa: S108  (a folder of its own is made in it)
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tacit-owner-", dir=where) as name:
        yield Path(name)
