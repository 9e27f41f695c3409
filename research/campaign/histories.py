"""Generated histories of a service: two processes on one store, all who use it, and accidents.

A process is killed (SIGKILL), stopped for a while (SIGSTOP) or ended (SIGTERM), the database is
killed, the disk is full, clocks are moved. In the end all is let finish: two more blocks must be
released, and then the store is compared with the journal. Named cases are histories in which one
thing happens all the time.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, update

from research.campaign.books import audit
from research.campaign.clients import SHARED, Curator, Devices, Told, nightly
from research.campaign.servers import (
    DAY,
    KINDS,
    WINDOW,
    Disk,
    Servers,
    app_text,
    place,
    until,
    write_app,
)
from tacit.privacy.errors import TacitError
from tacit.service.app_file import read_app
from tacit.service.tokens import new_token
from tacit.store import ledger, runs
from tacit.store.schema import blocks, stores
from tacit.store.store import Store


@dataclass(frozen=True)
class Case:
    """What happens in a history."""

    words: str
    kinds: tuple[str, ...] = tuple(KINDS)
    databases: tuple[str, ...] = ("sqlite", "postgresql")
    verbs: dict[str, float] = field(default_factory=lambda: SHARED)
    rate: float = 4.0  # of the curator, per second
    twist: str = ""  # of plans
    most: float = 0.0  # costs that a person may spend over all runs


_BACK = {"serve": 4.0, "pin": 1.0, "unpin": 1.0, "forget": 1.0}
CASES = {
    "histories": Case("every verb and every accident"),
    "forgets": Case("forgets while blocks fill and seal, during long plans",
                    ("on-policy", "local"), verbs={"forget": 1.0}, rate=12.0, twist="long"),
    "back": Case("older versions served beside devices, kills between the two commits",
                 ("on-policy", "local"), verbs=_BACK, rate=6.0, twist="killed"),
    "raises": Case("plan raises on every second release", ("on-policy", "local"), twist="raises"),
    "last budget": Case("two runs and people with budget for one", ("on-policy",), most=1.5),
    "back, counter": Case("versions rolled back under a counter", ("counter",), verbs=_BACK),
}  # fmt: skip


@dataclass
class History:
    """A history while it happens."""

    database: str
    kind: str
    case: Case
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def happens(self) -> Iterator[tuple[Servers, Store, Any, Disk]]:
        """Servers, devices, a curator and a nightly job; at the end what they left is audited."""
        with place(self.database) as (folder, where, postgres, disk):
            store = self._store(folder, where)
            tokens = [new_token(store, role) for role in ("device", "curator")]
            files = [folder / "0" / "app.toml", folder / "1" / "app.toml"]
            servers = Servers(files, self.counts, self.case.twist)
            try:
                for number in (0, 1):
                    servers.ready(number)
                journal = files[0].parent / "journal"
                devices = Devices(servers.addresses, tokens[0], journal, self.seed)
                curator = Curator(servers.addresses, tokens[1], journal, self.seed, self.case)
                clock = files[0].parent / "clock2"
                night = os.fspath(files[0].parent / "night.toml")
                servers.add(nightly, night, files[0].parent, clock, os.fspath(servers.log))
                yield servers, store, postgres, disk
                self._finish(servers, store, devices, curator)
                servers.close()
                told = Told(journal)
                self.wrong += audit(store, told, servers.log, self.counts)
                self._count(told, curator, devices)
            finally:
                servers.close()
                store.close()
                if self.wrong:
                    kept = Path(tempfile.mkdtemp(prefix="campaign-")) / "evidence"
                    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("pg"))
                    print(f"journal, log and an SQLite store are kept in {kept}", flush=True)

    def _store(self, folder: Path, where: str) -> Store:
        for name in ("0", "1"):
            (folder / name).mkdir()
            write_app(folder / name / "app.toml", app_text(*KINDS[self.kind], where))
        text = app_text("ucbvi", "joint", 10**6, where).replace("size=24", "size=8")
        night = folder / "0" / "night.toml"
        night.write_text(text.replace("[serve]", 'name = "night"\n[serve]'))
        store = Store(read_app(os.fspath(night), logs=False).store)
        if self.case.most:
            read_app(os.fspath(night), logs=False).agent(store)
            with store.write() as db:
                cost = int(runs.find(db, "night").cost * self.case.most)
                db.execute(update(stores).values(most=cost))
        return store

    def _finish(self, servers: Servers, store: Store, devices: Devices, curator: Curator) -> None:
        """All goes well for a while: it must go on, and then come to rest."""
        for clock in servers.clocks:
            clock.set(0.0)
        for number in (0, 1, 2):
            servers.end(number)
            servers.ready(number)
        curator.end()
        before = self._done(store)
        if not until(lambda: servers.revive() and self._done(store) >= before + 2, 120.0):
            self.wrong.append("wedged: no block is released any more")
        devices.end()
        if not until(lambda: servers.revive() and self._settled(store), 60.0):
            self.wrong.append("wedged: a block was not released in the end")

    def _done(self, store: Store) -> int:
        query = select(func.count()).select_from(blocks)
        with contextlib.suppress(TacitError), store.read() as db:
            query = query.where(blocks.c.run == "run", blocks.c.stage == "done")
            return int(db.scalar(query) or 0)
        return 0

    def _settled(self, store: Store) -> bool:
        with contextlib.suppress(TacitError), store.read() as db:
            return all(row.stage == "open" for row in runs.undone(db, runs.find(db, "run")))
        return False

    def _count(self, told: Told, curator: Curator, devices: Devices) -> None:
        sent = told.sent.values()
        self.counts["accepted"] = sum(one.accepted for one in sent)
        self.counts["apart"] = sum(one.accepted and one.parts > 1 for one in sent)
        self.counts["forgotten"] = sum(removed for removed, _ in told.forgotten.values())
        self.counts["commands"], self.counts["asked again"] = curator.commands, devices.again
        self.counts["report sizes"] = len({one.size for one in sent if one.accepted and one.size})
        for name in ("late", "refused", "used", "successor", "publish", "verify", "roll_back"):
            self.counts[name] = told.counts[name]

    def accident(self, rng: random.Random, servers: Servers, postgres: Any, disk: Disk) -> None:
        """One of them."""
        number, what = rng.choices((0, 1, 2), (4, 4, 1))[0], rng.random()
        servers.ready(number)
        time.sleep(rng.expovariate(2.0))
        if what < 0.05 and disk.small:
            disk.fill(rng.uniform(0.2, 1.0))
            self.counts["disk full"] += 1
            if postgres is not None:
                postgres.ensure()
        elif what < 0.1 and postgres is not None:
            postgres.crash(rng)
            self.counts["database killed"] += 1
        elif what < 0.16:
            servers.stop(number, rng.uniform(0.3, 1.2 * WINDOW))
            self.counts["stopped"] += 1
        elif what < 0.22:
            servers.end(number, signal.SIGTERM)
        elif what < 0.3:
            servers.clocks[number].set(rng.choice([-DAY, -100.0, 0.0, 0.0, 100.0, DAY]))
            self.counts["clocks"] += 1
        else:
            servers.end(number)
            if rng.random() < 0.5:  # and another one, while it begins
                servers.end((number + 1) % 2)


def history(database: str, kind: str, name: str, kills: int, seed: int) -> History:
    """One history with so many kills, audited."""
    rng, told = random.Random(seed), History(database, kind, CASES[name], seed)  # noqa: S311
    with told.happens() as (servers, store, postgres, disk):
        if name == "histories":
            told.wrong += _stranger(servers.log.parent)
        while told.counts["kills"] < kills:
            told.accident(rng, servers, postgres, disk)
            with contextlib.suppress(TacitError):
                told.wrong += ledger.verify(store)
    if kind == "local" and kills > 20 and told.counts["report sizes"] < 2:
        told.wrong.append("reports of one size alone: nothing was shown")
    return told


def _stranger(folder: Path) -> list[str]:
    """A process whose app file differs is refused by name, and so is its check."""
    file, wrong = folder / "other.toml", list[str]()
    file.write_text((folder / "app.toml").read_text().replace("horizon = 3", "horizon = 4"))
    for more in ([], ["--check"]):
        command = [sys.executable, "-m", "tacit.cli.app", "serve", os.fspath(file), *more]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
            said, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired:
            said, code = "it served", 0
        if not code or "other arguments" not in " ".join(said.split()):
            wrong.append(f"a stranger was told {said[-300:]!r}")
    return wrong


# Failover, and a process that holds the lock of a database.


def failover(kills: int, seed: int = 0) -> History:
    """The leader is killed again and again; the two processes share a database alone."""
    told = History("postgresql", "on-policy", CASES["histories"], seed)
    times = list[float]()
    with told.happens() as (servers, store, _, _):
        while len(times) < kills:
            leader = next((k for k in (0, 1) if servers.leads(k)), None)
            if leader is None or not servers.ready(1 - leader):
                continue
            start = time.monotonic()
            os.kill(servers.processes[leader].pid, signal.SIGKILL)
            told.counts["kills"] += 1
            if not until(lambda other=1 - leader: servers.leads(other), 30.0):  # type: ignore[misc]
                told.wrong.append("wedged: nobody leads")
            times.append(time.monotonic() - start)
            servers.again(leader)
            servers.ready(leader)
            with contextlib.suppress(TacitError):
                told.wrong += ledger.verify(store)
    told.counts["median ms"] = round(1000 * statistics.median(times))
    told.counts["worst ms"] = round(1000 * max(times))
    told.wrong += ["wedged: another led after more than 5 s"] * (max(times) > 5.0)
    return told


def held(times: int, seed: int = 0) -> History:
    """A process is stopped while it holds the lock of the database: how long nobody is taken in."""
    told, longest = History("postgresql", "on-policy", CASES["histories"], seed), 0.0
    with told.happens() as (_, store, _, _):
        for _ in range(times):
            command = [sys.executable, "-c", _HOLDS, store.where]
            holder = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603
            assert holder.stdout is not None  # noqa: S101
            holder.stdout.readline()
            start, before = time.monotonic(), _taken(store)
            until(lambda before=before: _taken(store) > before, 120.0)  # type: ignore[misc]
            longest = max(longest, time.monotonic() - start)
            holder.kill()
            holder.wait()
            told.counts["stopped"] += 1
    told.counts["longest ms"] = round(1000 * longest)
    told.wrong += ["wedged: the lock was held for longer than 15 s"] * (longest > 15.0)
    return told


_HOLDS = """
import os, signal, sys
from tacit.store.store import Store
store = Store(sys.argv[1])
with store.write():
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def _taken(store: Store) -> int:
    from tacit.store.schema import events

    with contextlib.suppress(TacitError), store.read() as db:
        query = select(func.count()).select_from(events).where(events.c.run == "run")
        return int(db.scalar(query) or 0)
    return 0


NAMED = {"failover": failover, "held": held}
