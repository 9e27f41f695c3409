"""A service under fire: processes are killed, disks are full, databases go, clocks are set back.

    python -m research.serve_crashes --database sqlite --kills 300 --store
    python -m research.serve_crashes --database postgresql --kills 300 --store

Two processes serve one app on one database, and devices send episodes to both, again and again
under the same event id until they are answered. At random instants one of the processes is killed
(SIGKILL) and begun again, with a clock that is off by up to a day in either direction; now and then
the disk is full for a while (a file system of its own, where the machine lets us mount one), and
PostgreSQL is killed too and started again. In the end everything is let finish, and books are
compared that share nothing: what devices were told, the rows of the database, the lines of the
ledger, the policies that devices read, and the agent's own state. Nothing may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import secrets
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from research.serve_warm import serve
from tacit.privacy.errors import TacitError
from tacit.privacy.ledger import Ledger
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.service.store import Store, hashed, new_token

STORED = Path(__file__).with_name("serve_crashes.json")
PAGE = Path(__file__).parents[1] / "docs" / "service.md"
BLOCK, H = 24, 3
APP = f"""
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = {H}
[agent]
name = "ucbvi"
users = 100000
schedule = "fixed:size={BLOCK}"
[privacy]
epsilon = 1.0
delta = 1e-7
[serve]
database = "DATABASE"
rate = 1000000
window = 1000000
"""


@dataclass
class Told:
    """What happened, and what was wrong with it."""

    database: str
    kills: int = 0
    leaders: int = 0  # kills of the process that held the agent
    disks: int = 0  # times that the disk was full
    databases: int = 0  # times that the database was gone
    clocks: int = 0  # starts with a clock that was set back
    accepted: int = 0
    turned_away: int = 0
    asked_again: int = 0  # requests without an answer, sent again under the same id
    blocks: int = 0
    resumes: int = 0  # of the agent, by the ledger
    credits: int = 0  # blocks that were paid for before a crash, and pay nothing more
    problems: list[str] = field(default_factory=list)


# Processes.


class Servers:
    """Two processes that serve; whoever is killed is begun again."""

    def __init__(self, file: Path, rng: random.Random, told: Told) -> None:
        self._file, self._rng, self._told = os.fspath(file), rng, told
        self._context = multiprocessing.get_context("forkserver")
        # What is imported once is there in every process: most of a start.
        self._context.set_forkserver_preload(["research.serve_warm"])
        self.ports = [_free_port(), _free_port()]
        self._processes: list[Any] = [self._start(0), self._start(1)]

    def _start(self, place: int) -> Any:
        offset = self._rng.uniform(-86400, 86400)
        self._told.clocks += offset < 0
        made = self._context.Process(
            target=serve, args=(self._file, self.ports[place], offset), daemon=True
        )
        made.start()
        return made

    def kill(self, place: int) -> None:
        """Kills a process, and begins it again."""
        held = _leader(Path(self._file).parent)
        self._told.leaders += held == self._processes[place].pid
        self._processes[place].kill()
        self._processes[place].join()
        self._processes[place].close()
        self._told.kills += 1
        self._processes[place] = self._start(place)

    def ready(self, place: int, seconds: float = 120.0) -> bool:
        """Waits until a process serves."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.ports[place]), 1.0).close()
                return True
            time.sleep(0.02)
        return False

    def end(self) -> None:
        """Ends both, as a stop of the service does."""
        for process in self._processes:
            os.kill(process.pid, signal.SIGTERM)
        for process in self._processes:
            process.join(60.0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def _leader(folder: Path) -> int | None:
    """Who holds the lock, as the system knows it."""
    path = folder / "agent.state.leader"
    if not path.exists():
        return None
    number = path.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rsplit(":", 1)[1] == str(number):
            return int(words[4])
    return None


# Devices.


class Devices:
    """Threads that read the policy and send episodes, and remember what they were told."""

    def __init__(self, ports: list[int], token: str, threads: int, told: Told) -> None:
        self._ports, self._token, self._told = ports, token, told
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.answers: dict[tuple[str, str], str] = {}
        self.policies: dict[int, set[str]] = {}
        self._threads = [threading.Thread(target=self._run, args=(k,)) for k in range(threads)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Everybody gets her answer first."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        rng = random.Random(number)  # noqa: S311
        clients = [Client(f"http://127.0.0.1:{p}", self._token, tries=1) for p in self._ports]
        while not self._ended.is_set():
            with contextlib.suppress(TacitError):
                client = rng.choice(clients)
                policy = client.policy()
                with self._lock:
                    self.policies.setdefault(policy.version, set()).add(client._etag)
                for _ in range(rng.randrange(1, 12)):
                    self._one(clients, client, policy, rng)
        for client in clients:
            client.close()

    def _one(self, clients: list[Client], first: Client, policy: Any, rng: random.Random) -> None:
        state, states, actions, rewards = "new", ["new"], [], []
        for step in range(H):
            actions.append(policy.act(step, state))
            rewards.append(rng.randrange(2))
            state = rng.choice(["new", "idle", "busy"])
            states.append(state)
        body: dict[str, Any] = {"user": secrets.token_hex(8), "event": secrets.token_hex(8)}
        body |= {"version": policy.version, "ticket": first._ticket}
        body |= {"states": states, "actions": actions, "rewards": rewards}
        text, client = json.dumps(body).encode(), first
        while True:
            with contextlib.suppress(TacitError):
                code, _, answer = client.request("POST", "/v1/episodes", {}, text)
                if code in (200, 202, 409, 410, 422):
                    with self._lock:
                        told = str(json.loads(answer)["status"])
                        self.answers[str(body["user"]), str(body["event"])] = told
                    return
            with self._lock:
                self._told.asked_again += 1
            client = rng.choice(clients)
            time.sleep(0.02)


# Places: file systems that fill up, and databases that go.


@contextlib.contextmanager
def place(megabytes: int) -> Iterator[tuple[Path, bool]]:
    """A folder on a file system of its own, where that is allowed."""
    with tempfile.TemporaryDirectory() as name:
        mounted = (
            subprocess.run(  # noqa: S603
                ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", name],  # noqa: S607
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )
        try:
            yield Path(name), mounted
        finally:
            if mounted:
                subprocess.run(["umount", "-l", name], check=False)  # noqa: S603, S607


def fill(folder: Path, seconds: float) -> None:
    """The disk is full for a while."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"0" * 4096)
    time.sleep(seconds)
    ballast.unlink()


class Postgres:
    """A server of our own; :meth:`crash` kills it, and starts it again."""

    def __init__(self, folder: Path) -> None:
        from pgserver import postgres_server

        self._server = postgres_server.get_server(folder, cleanup_mode="delete")
        self.address = str(self._server.get_uri())

    def crash(self, seconds: float) -> None:
        """It is gone at once, without a word, and comes back."""
        pid = self._server.get_pid()
        if pid is not None:
            # An immediate end: as after a crash, its log is replayed.
            os.kill(int(pid), signal.SIGQUIT)
        time.sleep(seconds)
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Ends it."""
        self._server.cleanup()


# The books.


def audit(folder: Path, store: Store, devices: Devices, told: Told) -> None:
    """Compares what everybody says; see the module."""
    wrong = told.problems
    serving = store.serving()
    events = _rows(store, wrong)
    secret = serving["secret"]
    for (user, event), status in devices.answers.items():
        row = events.pop(hashed(secret, "event", user, event), None)
        accepted = status in ("waiting", "counted")
        told.accepted += accepted
        told.turned_away += not accepted
        if accepted and row is None:
            wrong.append("an accepted user is in no block")
        if not accepted and row is not None:
            wrong.append(f"a user who was told {status} is in a block")
    if events:
        wrong.append(f"{len(events)} users are in blocks who were never told")
    _blocks(store, serving, told)
    _ledger(folder, serving, told)
    _policies(store, devices, told)
    agent = read_app(os.fspath(folder / "app.toml"), logs=False).agent()
    if agent.served != serving["served"] or agent.taken != agent.served:
        wrong.append(f"the agent served {agent.served}, the database says {serving['served']}")


def _rows(store: Store, wrong: list[str]) -> dict[str, tuple[Any, ...]]:
    rows = store.ask("SELECT event, person, block, state, body FROM episodes")
    for _, _, _, state, body in rows:
        if (state == "counted") != (body is None):
            wrong.append(f"a row that is {state} has its raw data, or has lost it")
    people = Counter(person for _, person, *_ in rows)
    wrong += ["somebody has two rows"] * (max(people.values(), default=1) > 1)
    return {event: tuple(rest) for event, *rest in rows}


def _blocks(store: Store, serving: dict[str, Any], told: Told) -> None:
    wrong = told.problems
    found = store.ask("SELECT number, users, state, served_before FROM blocks ORDER BY number")
    sizes = dict(store.ask("SELECT block, COUNT(*) FROM episodes GROUP BY block"))
    served = 0
    for place, (number, users, state, before) in enumerate(found):
        if (number, before, state) != (place, served, "released") or sizes.get(number) != users:
            wrong.append(f"block {number}: {users} users, {state}, after {before}")
        served += users
    told.blocks = len(found)
    if served != serving["served"] or serving["waiting"] != sizes.get(serving["block"], 0):
        wrong.append("how many were served or wait is not what the blocks say")


def _ledger(folder: Path, serving: dict[str, Any], told: Told) -> None:
    """By the lines of the file alone: each block was charged once, all of a budget and no more."""
    wrong, ledger = told.problems, Ledger.open(folder / "budget.ledger", every_line=True)
    spent: dict[str, Fraction] = {}
    for line in (folder / "budget.ledger").read_text().splitlines()[1:]:
        entry = json.loads(line)
        told.resumes += entry["event"] == "resume"
        for key, cost in entry["costs"].items():
            spent[key] = spent.get(key, Fraction(0)) + Fraction(cost)
            told.credits += cost == 0.0
    numbers = sorted(int(key.partition("-")[0]) for key in spent)
    if numbers != list(range(told.blocks)):
        wrong.append("the ledger charged other blocks than were released, or one of them twice")
    if any(abs(float(s) / ledger.limit - 1.0) > 1e-9 for s in spent.values()):
        wrong.append("a block was charged more or less than a budget")
    if not ledger.has(serving["ledger_head"]):
        wrong.append("the ledger lacks the line of the last publication")


def _policies(store: Store, devices: Devices, told: Told) -> None:
    wrong = told.problems
    kept = {v: f'"{etag}"' for v, etag in store.ask("SELECT version, etag FROM policies")}
    if sorted(kept) != list(range(told.blocks + 1)):
        wrong.append("there is not one policy for each block")
    for version, etags in devices.policies.items():
        if etags != {kept.get(version)}:
            wrong.append(f"devices read {len(etags)} policies of version {version}, or another one")


def campaign(database: str, kills: int, seed: int) -> Told:
    """So many kills, and what they left."""
    rng, told = random.Random(seed), Told(database)  # noqa: S311
    with contextlib.ExitStack() as stack:
        folder, mounted = stack.enter_context(place(64))
        where, postgres = "service.db", None
        if database == "postgresql":
            data = stack.enter_context(tempfile.TemporaryDirectory())
            postgres = Postgres(Path(data) / "pg")
            stack.callback(postgres.close)
            where = postgres.address
        file = folder / "app.toml"
        file.write_text(APP.replace("DATABASE", where))
        store = Store(read_app(os.fspath(file), logs=False).database)
        servers = Servers(file, rng, told)
        devices = Devices(servers.ports, new_token(store, "device"), 3, told)
        _shoot(rng, told, servers, kills, folder if mounted else None, postgres)
        for number in (0, 1):
            servers.ready(number)
        devices.end()
        _settled(store, told)
        servers.end()
        audit(folder, store, devices, told)
        store.close_all()
    return told


def _shoot(
    rng: random.Random,
    told: Told,
    servers: Servers,
    kills: int,
    disk: Path | None,
    postgres: Postgres | None,
) -> None:
    for turn in range(kills):
        number = rng.randrange(2)
        servers.ready(number)
        time.sleep(rng.expovariate(3.0))
        if disk is not None and turn % 30 == 10:
            fill(disk, rng.uniform(0.2, 2.0))
            told.disks += 1
        if postgres is not None and turn % 30 == 20:
            postgres.crash(rng.uniform(0.1, 1.0))
            told.databases += 1
        servers.kill(number)


def _settled(store: Store, told: Told, seconds: float = 120.0) -> None:
    """Until no block is in the gate."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(TacitError, sqlite3.Error):
            sealed = store.ask("SELECT COUNT(*) FROM blocks WHERE state = 'sealed'")[0][0]
            if not sealed and store.serving()["waiting"] < BLOCK:
                return
        time.sleep(0.1)
    told.problems.append("a block was not released in the end")


def table(held: dict[str, Any]) -> list[str]:
    """The rows of the page, one per database."""
    names = ("kills", "leaders", "disks", "databases", "clocks", "accepted", "blocks", "credits")
    rows = []
    for database, words in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        if database in held:
            told = held[database]
            cells = [f"{told[name]:,}" for name in names]
            cells[3] = "-" if database == "sqlite" else cells[3]
            rows.append(f"| {words} | {' | '.join(cells)} | {len(told['problems'])} |")
    return rows


def show(held: dict[str, Any]) -> None:
    """Puts the rows into the page."""
    head, line, rest = PAGE.read_text().partition("\n|---|---|---|---|---|---|---|---|---|---|\n")
    after = rest.lstrip("\n").split("\n\n", 1)[1] if rest.startswith("| ") else rest.lstrip("\n")
    PAGE.write_text(head + line + "\n".join(table(held)) + "\n\n" + after)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--table", action="store_true", help="only: stored rows into the page")
    given = parser.parse_args()
    if given.table:
        show(json.loads(STORED.read_text()))
        return
    told = campaign(given.database, given.kills, given.seed)
    print(json.dumps(asdict(told), indent=2))
    if given.store:
        held = json.loads(STORED.read_text()) if STORED.exists() else {}
        held[given.database] = asdict(told)
        STORED.write_text(json.dumps(held, indent=2, sort_keys=True) + "\n")
    raise SystemExit(bool(told.problems))


if __name__ == "__main__":
    main()
