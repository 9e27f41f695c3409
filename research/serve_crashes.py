"""A service under fire: processes are killed and stopped, databases go, clocks are set back.

    python -m research.serve_crashes --kills 100 --seed 0 --store

Two processes serve one app on one store. Devices do whatever a device can: they read policies and
send episodes to either process until they are answered, send them twice, try a ticket twice, come
late, come again, or never. A curator forgets people, pins, rolls back, stops and starts. Meanwhile
a process is killed (SIGKILL), stopped for a while (SIGSTOP), ended (SIGTERM) or begun with a clock
that is off by a day, and PostgreSQL is killed too. In the end all is let finish, and what devices
and the curator were told (a journal that shares nothing with the service) is compared with the
store: who was accepted is in exactly one release or was forgotten, nobody pays twice, and the sums
that were released are those of exactly the people who paid: noise is negligible here, and every
person's rewards are known to the journal.
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
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select

from research.serve_warm import serve
from tacit.privacy.errors import TacitError
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.service.tokens import new_token
from tacit.store import ledger, runs
from tacit.store.schema import accounts, blocks, events, packets, people, releases, versions
from tacit.store.store import Store
from tacit.store.values import load

STORED = Path(__file__).with_name("serve_crashes.json")
PAGE = Path(__file__).with_name("notes") / "service.md"
BLOCK, H, WINDOW, DAY = 24, 3, 4, 86400.0
APP = f"""
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = {H}
stationary = false
[agent]
name = "AGENT"
users = 1000000
schedule = "fixed:size={BLOCK}"
[privacy]
epsilon = EPSILON
delta = 1e-7
model = "MODEL"
[files]
store = "STORE"
[serve]
rate = 1000000
window = {WINDOW}
"""
KINDS = {
    "joint": ("ucbvi", "joint"),
    "any version": ("policy_improvement", "joint"),
    "local": ("ucbvi", "local"),
    "mixed": ("concurrent_psrl", "joint"),
}


def app_text(agent: str, model: str, store: str, epsilon: float = 1e6) -> str:
    """The file of an app; its noise is negligible, so that sums can be compared."""
    text = APP.replace("AGENT", agent).replace("MODEL", model).replace("STORE", store)
    return text.replace("EPSILON", repr(epsilon))


@dataclass
class Told:
    """What happened, and what was wrong with it."""

    database: str
    kind: str
    kills: int = 0
    stops: int = 0
    ends: int = 0
    databases: int = 0  # times that the database was gone
    clocks: int = 0  # starts with a clock that was off by a day
    leaders: int = 0  # kills of the process that computed
    accepted: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    asked_again: int = 0  # requests without an answer, sent again
    forgotten: int = 0
    commands: int = 0
    releases: int = 0
    sums: int = 0  # releases whose sums were compared with the journal
    problems: list[str] = field(default_factory=list)


# Processes.


class Servers:
    """Two processes that serve; whoever ends is begun again."""

    def __init__(self, file: Path, rng: random.Random, told: Told) -> None:
        self._file, self._rng, self._told = os.fspath(file), rng, told
        self._context = multiprocessing.get_context("forkserver")
        # What is imported once is there in every process: most of a start.
        self._context.set_forkserver_preload(["research.serve_warm"])
        self.log = file.parent / "log"
        self.ports = [free_port(), free_port()]
        self._processes: list[Any] = [self._start(0), self._start(1)]

    def _start(self, place: int, *, right: bool = False) -> Any:
        offset = 0.0
        if not right and self._rng.random() < 0.2:
            offset = self._rng.choice([-DAY, DAY])
            self._told.clocks += 1
        given = (self._file, self.ports[place], offset, os.fspath(self.log))
        made = self._context.Process(target=serve, args=given, daemon=True)
        made.start()
        return made

    def end(self, place: int, how: int = signal.SIGKILL, *, right: bool = False) -> None:
        """Ends a process, and begins it again."""
        process = self._processes[place]
        self._told.leaders += "tacit_leader 1" in asked(self.ports[place], "/metrics")
        os.kill(process.pid, how)
        process.join(30.0)
        process.kill()
        process.join()
        process.close()
        self._processes[place] = self._start(place, right=right)

    def stop(self, place: int, seconds: float) -> None:
        """Stops a process for a while: it does not know, and wakes up in another world."""
        os.kill(self._processes[place].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self._processes[place].pid, signal.SIGCONT)

    def ready(self, place: int, seconds: float = 120.0) -> bool:
        """Waits until a process serves."""
        return until(lambda: bool(asked(self.ports[place], "/healthz")), seconds)

    def close(self) -> None:
        """Ends both."""
        for process in self._processes:
            os.kill(process.pid, signal.SIGTERM)
        for process in self._processes:
            process.join(30.0)
            process.kill()


def asked(port: int, path: str) -> str:
    """What a process answers without a token; "" if it does not."""
    with contextlib.suppress(OSError):
        address = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(address, timeout=1.0) as answer:
            return str(answer.read().decode())
    return ""


def until(what: Callable[[], bool], seconds: float) -> bool:
    """Waits until something is so; whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


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


# Who comes.


@dataclass
class Sent:
    """An episode of the journal."""

    user: str
    event: str
    ticket: str
    rewards: float  # that count, if it does
    steps: int
    body: bytes = b""
    told: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether its device was ever told so."""
        return not {"waiting", "counted"}.isdisjoint(self.told)


class Journal:
    """What devices and the curator were told, and nothing else."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: list[Sent] = []
        self.policies: dict[int, set[str]] = {}
        self.forgotten: dict[str, tuple[int, int]] = {}  # by user: removed, released
        self.unsure: set[str] = set()  # who may be forgotten by a request without an answer

    def users(self) -> list[str]:
        """Those who were accepted."""
        with self.lock:
            return [one.user for one in self.sent[-200:] if one.accepted]


class Devices:
    """Threads that do whatever a device can do."""

    def __init__(self, ports: list[int], token: str, threads: int, told: Told, seed: int) -> None:
        self._ports, self._token, self._told = ports, token, told
        self.journal = Journal()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + k),), daemon=True)  # noqa: S311
            for k in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Everybody gets her answer first."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, rng: random.Random) -> None:
        clients = [Client(f"http://127.0.0.1:{p}", self._token, tries=1) for p in self._ports]
        while not self._ended.is_set():
            with contextlib.suppress(TacitError):
                self.one(clients, rng)
        for client in clients:
            client.close()

    def one(self, clients: list[Client], rng: random.Random) -> None:
        """One device, with all that it may do."""
        client = rng.choice(clients)
        client._spent = True
        policy = client.policy()
        with self.journal.lock:
            self.journal.policies.setdefault(policy.version, set()).add(client._etag)
        if not client._ticket:
            self._ended.wait(0.02)
            return
        verb, user = rng.random(), secrets.token_hex(8)
        if verb < 0.03:
            return  # she never sends
        if verb < 0.06:
            self._ended.wait(rng.uniform(0.5, 2.0) * WINDOW)
        sent = self._send(clients, client, policy, user, rng)
        if 0.1 < verb < 0.2:
            self._post(clients, sent, rng)  # the same again
        elif 0.2 < verb < 0.25:  # a ticket that has been used
            self._send(clients, client, policy, secrets.token_hex(8), rng)
        elif 0.25 < verb < 0.3:  # she comes again, with a ticket of her own
            client._spent = True
            policy = client.policy()
            if client._ticket:
                self._send(clients, client, policy, user, rng)

    def _send(
        self, clients: list[Client], client: Client, policy: Any, user: str, rng: random.Random
    ) -> Sent:
        states, actions, rewards = ["new"], [], list[Any]()
        draw = np.random.default_rng(rng.randrange(2**32))
        for step in range(H):
            actions.append(policy.act(step, states[-1], draw))
            rewards.append(round(rng.random(), 6))
            states.append(rng.choice(["new", "idle", "busy"]))
        local, bad = client.task()["model"] == "local", rng.random() < 0.05
        if bad:
            rewards = [float("nan")] * H if local else ["nonsense"] * H
        event, counted = secrets.token_hex(8), (0.0, 0) if bad else (sum(rewards), H)
        sent = Sent(user, event, client._ticket, *counted)
        given = {"user": user, "event": event, "ticket": client._ticket}
        raw: dict[str, Any] = {"states": states, "actions": actions, "rewards": rewards}
        if hasattr(policy, "component"):
            raw["component"] = policy.component
        if local:
            client._task = client.get(f"/v1/task?version={policy.version}")
            raw = {"report": client._report(states, actions, rewards, None)}
        sent.body = json.dumps(given | raw).encode()
        with self.journal.lock:
            self.journal.sent.append(sent)
        self._post(clients, sent, rng)
        return sent

    def _post(self, clients: list[Client], sent: Sent, rng: random.Random) -> None:
        path = "/v1/reports" if b'"report"' in sent.body else "/v1/episodes"
        while True:
            client = rng.choice(clients)
            with contextlib.suppress(TacitError):
                code, _, answer = client.request("POST", path, {}, sent.body)
                if code in (200, 202, 409, 410, 422):
                    said = json.loads(answer)
                    with self.journal.lock:
                        sent.told.append(str(said.get("status", said.get("detail"))))
                    return
            with self.journal.lock:
                self._told.asked_again += 1
            time.sleep(0.05)


class Curator:
    """A thread that does whatever a curator can do."""

    def __init__(self, ports: list[int], token: str, devices: Devices, told: Told, seed: int):
        self._clients = [Client(f"http://127.0.0.1:{p}", token, tries=1) for p in ports]
        self._devices, self._told = devices, told
        self._rng, self._ended = random.Random(seed), threading.Event()  # noqa: S311
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """In the end all is as it should be: it serves, and nothing is pinned."""
        self._ended.set()
        self._thread.join()
        for what in ("start", "unpin"):
            self.ask("/v1/commands", {"what": what})
        for client in self._clients:
            client.close()

    def _run(self) -> None:
        while not self._ended.wait(self._rng.expovariate(4.0)):
            verb = self._rng.random()
            if verb < 0.6:
                self._forget()
            elif verb < 0.9:
                self._command(verb)
            else:
                with contextlib.suppress(TacitError):
                    client = self._rng.choice(self._clients)
                    client.get("/v1/state")
                    client.request("GET", "/v1/policies/0")

    def _forget(self) -> None:
        users = self._devices.journal.users()
        if not users:
            return
        user = self._rng.choice(users)
        found = self.ask("/v1/forget", {"user": user}, user)
        before = self._devices.journal.forgotten.get(user, (0, 0))
        new = before[0] + found["removed"], max(before[1], found["released"])
        self._devices.journal.forgotten[user] = new

    def _command(self, verb: float) -> None:
        self._told.commands += 1
        if verb < 0.8:
            with contextlib.suppress(TacitError):
                version = self._rng.choice(self._clients).get("/v1/state")["latest"]
                what = "pin" if verb < 0.65 else "serve"
                back = max(0, version - self._rng.randrange(3))
                self.ask("/v1/commands", {"what": what, "version": back})
        elif verb < 0.85:
            self.ask("/v1/commands", {"what": "unpin"})
        else:
            self.ask("/v1/commands", {"what": "stop"})
            self._ended.wait(self._rng.uniform(0.0, 0.5))
            self.ask("/v1/commands", {"what": "start"})

    def ask(self, path: str, content: dict[str, Any], user: str = "") -> dict[str, Any]:
        """Asks until there is an answer; what cannot be done is one."""
        text = json.dumps(content).encode()
        while True:
            with contextlib.suppress(TacitError):
                code, _, body = self._rng.choice(self._clients).request("POST", path, {}, text)
                if code in (200, 422):
                    found: dict[str, Any] = json.loads(body)
                    return found
            self._devices.journal.unsure.add(user)
            time.sleep(0.1)


# The books.


def audit(store: Store, journal: Journal, told: Told, log: Path) -> None:
    """Compares the store with the journal; see the module."""
    wrong = told.problems
    wrong += ledger.verify(store)
    with store.read() as db:
        run = runs.find(db, "run")
        rows = {row.event: row for row in db.execute(select(events))}
        of = db.execute(select(people).where(people.c.person != "")).all()
        names = store.pseudonyms(db, [sent.user for sent in journal.sent])
        mine = {sent.user: name for sent, name in zip(journal.sent, names, strict=True)}
        keys = store.pseudonyms(db, [f"{mine[s.user]} {s.event}" for s in journal.sent])
        _events(journal, dict(zip(keys, journal.sent, strict=True)), rows, wrong)
        _people(journal, mine, of, wrong)
        _accounts(db, run, of, wrong)
        _releases(db, store, {name: user for user, name in mine.items()}, journal, told)
        _versions(db, run, journal, told)
    text = log.read_text() if log.exists() else ""
    if any(sent.user in text or sent.event in text for sent in journal.sent):
        wrong.append("the log names people or events")
    for sent in journal.sent:
        told.accepted += sent.accepted
        for said in sent.told:
            told.answers[said] = told.answers.get(said, 0) + 1
    told.forgotten = sum(removed for removed, _ in journal.forgotten.values())


def _events(
    journal: Journal, sent: dict[str, Sent], rows: dict[str, Any], wrong: list[str]
) -> None:
    fates = {"waiting": "waiting", "counted": "counted", "forgotten": "forgotten"}
    for key, one in sent.items():
        row = rows.pop(key, None)
        fate = fates.get(row.fate, row.fate) if row is not None else ""
        if one.accepted and not fate:
            wrong.append("lost: an accepted event is not in the store")
        if not one.accepted and fate:
            wrong.append(f"a device that was told {one.told} has an event that is {fate}")
        sure = one.user not in journal.unsure
        if fate == "forgotten" and sure and not journal.forgotten.get(one.user, (0, 0))[0]:
            wrong.append("an event was forgotten, and nobody asked for it")
        if one.accepted and "forgotten" in one.told and fate != "forgotten":
            wrong.append("a device was told that it was forgotten, and is not")
        if fate == "unreadable":
            wrong.append("rows were set aside")
    if rows:
        wrong.append(f"{len(rows)} events are in the store that nobody sent")
    tickets = Counter(row.ticket for row in sent.values() if row.accepted)
    wrong += ["a ticket was accepted twice"] * (max(tickets.values(), default=1) > 1)


def _people(journal: Journal, mine: dict[str, str], rows: Sequence[Any], wrong: list[str]) -> None:
    count = Counter(row.person for row in rows)
    released = {row.person for row in rows if row.fate == "released"}
    accepted = Counter(s.user for s in journal.sent if s.accepted)
    for user, times in accepted.items():
        removed, kept = journal.forgotten.get(user, (0, 0))
        lost = times - count[mine[user]] - removed
        if lost and not (lost == 1 and user in journal.unsure):
            wrong.append(f"{times} accepted, {count[mine[user]]} in blocks, {removed} forgotten")
        if count[mine[user]] > 1:
            wrong.append("twice: somebody has two places")
        if kept and mine[user] not in released:
            wrong.append("the curator was told that she was released, and she is not")
    if set(count) - {mine[user] for user in accepted}:
        wrong.append("people have places who were never accepted")


def _accounts(db: Any, run: Any, rows: Sequence[Any], wrong: list[str]) -> None:
    spent, reserved = Counter[str](), Counter[str]()
    for row in rows:
        (spent if row.fate == "released" else reserved)[row.person] += row.pays
    for row in db.execute(select(accounts)):
        if (row.spent, row.reserved) != (spent[row.person], reserved[row.person]):
            wrong.append("an account is not what its episodes paid")
        if row.spent > run.cost:
            wrong.append("overspent: somebody paid more than once")


def _releases(db: Any, store: Store, users: dict[str, str], journal: Journal, told: Told) -> None:
    """The sums are those of the people who paid."""
    wrong = told.problems
    known = {s.user: s for s in journal.sent if s.accepted}
    stages = {row.block: row for row in db.execute(select(blocks))}
    for row in db.execute(select(releases).order_by(releases.c.block)):
        told.releases += 1
        if stages[row.block].stage not in ("released", "done"):
            wrong.append(f"block {row.block} has a release, and is {stages[row.block].stage}")
        found = load(row.value)
        if found.parts.keys() != {"rewards", "transitions"}:
            continue  # not all that people did is asked for
        inside = [known[users[name]] for name in ledger.released(db, "run", row.block)]
        sums = float(found["rewards"].sum()), float(found["transitions"].sum())
        expected = sum(s.rewards for s in inside), sum(s.steps for s in inside)
        told.sums += 1
        if max(abs(a - b) for a, b in zip(sums, expected, strict=True)) > 0.25:
            wrong.append(f"block {row.block} has the sums {sums}, its people {expected}")
    undone = {row.block for row in stages.values() if row.stage != "done"}
    raw = set(db.scalars(select(packets.c.block)))
    wrong += ["raw data of a released block is there"] * (not raw <= undone)


def _versions(db: Any, run: Any, journal: Journal, told: Told) -> None:
    wrong = told.problems
    kept = {row.version: f'"{row.etag}"' for row in db.execute(select(versions))}
    backs = sum(entry.event == "roll back" for entry in ledger.read(db, "run"))
    done = db.scalar(select(func.count()).select_from(blocks).where(blocks.c.stage == "done"))
    # A block that is rolled back between its commits has no version of its own.
    dropped = 1 + done + backs - len(kept)
    if not 0 <= dropped <= backs or sorted(kept) != list(range(len(kept))):
        wrong.append(f"{len(kept)} versions of {done} blocks and {backs} ways back")
    for version, etags in journal.policies.items():
        if etags != {kept.get(version)}:
            wrong.append(f"devices read {len(etags)} policies of version {version}, or another one")


# The campaign.


@contextlib.contextmanager
def place(database: str) -> Iterator[tuple[Path, str, Postgres | None]]:
    """A folder, a store in it, and the database that can be killed."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        if database == "sqlite":
            yield Path(name), "app.db", None
            return
        postgres = Postgres(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pg")
        stack.callback(postgres.close)
        yield Path(name), postgres.address, postgres


def campaign(database: str, kind: str, kills: int, seed: int) -> Told:
    """So many accidents, and what they left."""
    rng, told = random.Random(seed), Told(database, kind)  # noqa: S311
    with place(database) as (folder, where, postgres):
        file = folder / "app.toml"
        file.write_text(app_text(*KINDS[kind], where))
        store = Store(read_app(os.fspath(file), logs=False).store)
        tokens = [new_token(store, role) for role in ("device", "curator")]
        servers = Servers(file, rng, told)
        for number in (0, 1):
            servers.ready(number)
        devices = Devices(servers.ports, tokens[0], 4, told, seed)
        curator = Curator(servers.ports, tokens[1], devices, told, seed)
        for _ in range(kills):
            _accident(rng, told, servers, postgres)
            with contextlib.suppress(TacitError):
                told.problems += ledger.verify(store)
        for number in (0, 1):
            servers.end(number, right=True)
            servers.ready(number)
        curator.end()
        _goes_on(store, told)
        devices.end()
        _settled(store, told)
        servers.close()
        audit(store, devices.journal, told, servers.log)
        store.close()
    return told


def _accident(rng: random.Random, told: Told, servers: Servers, postgres: Postgres | None) -> None:
    number, what = rng.randrange(2), rng.random()
    servers.ready(number)
    time.sleep(rng.expovariate(2.0))
    if postgres is not None and what < 0.15:
        postgres.crash(rng.uniform(0.1, 1.0))
        told.databases += 1
    elif what < 0.3:
        servers.stop(number, rng.uniform(0.5, 1.5 * WINDOW))
        told.stops += 1
    elif what < 0.4:
        servers.end(number, signal.SIGTERM)
        told.ends += 1
    else:
        servers.end(number)
        told.kills += 1


def _goes_on(store: Store, told: Told, seconds: float = 120.0) -> None:
    """Two more blocks are released while devices come."""

    def done() -> int:
        with contextlib.suppress(TacitError), store.read() as db:
            query = select(func.count()).select_from(blocks).where(blocks.c.stage == "done")
            return int(db.scalar(query) or 0)
        return 0

    before = done()
    if not until(lambda: done() >= before + 2, seconds):
        told.problems.append("wedged: no block is released any more")


def _settled(store: Store, told: Told, seconds: float = 60.0) -> None:
    """Until all blocks but the one that fills are done."""

    def settled() -> bool:
        with contextlib.suppress(TacitError), store.read() as db:
            run = runs.find(db, "run")
            return all(row.stage == "open" for row in runs.undone(db, run))
        return False

    if not until(settled, seconds):
        told.problems.append("wedged: a block was not released in the end")


def table(held: dict[str, Any]) -> list[str]:
    """The rows of the page, one per campaign."""
    names = ["kills", "leaders", "stops", "ends", "databases", "clocks", "commands"]
    names += ["accepted", "forgotten", "releases", "sums"]
    rows = []
    for key in sorted(held):
        cells = [f"{held[key][name]:,}" for name in names]
        if held[key]["database"] == "sqlite":
            cells[4] = "-"
        rows.append(f"| {key} | {' | '.join(cells)} | {len(held[key]['problems'])} |")
    return rows


def show(held: dict[str, Any]) -> None:
    """Puts the rows into the page."""
    mark = "\n" + "|---" * 13 + "|\n"
    head, line, rest = PAGE.read_text().partition(mark)
    after = rest.lstrip("\n").split("\n\n", 1)[1] if rest.startswith("| ") else rest.lstrip("\n")
    PAGE.write_text(head + line + "\n".join(table(held)) + "\n\n" + after)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--kind", choices=[*KINDS], action="append")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args(arguments)
    held, wrong = json.loads(STORED.read_text()) if STORED.exists() else {}, 0
    for database in given.database or ["sqlite", "postgresql"]:
        for kind in given.kind or KINDS:
            told = campaign(database, kind, given.kills, given.seed)
            print(json.dumps(asdict(told)), flush=True)
            wrong += len(told.problems)
            held[f"{database}, {kind}"] = asdict(told)
    print(*table(held), sep="\n")
    if given.store:
        STORED.write_text(json.dumps(held, indent=2, sort_keys=True) + "\n")
        show(held)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
