"""All who use a service, and a journal of what they were told.

Devices read policies and send episodes to either process until they are answered, send them twice,
try a ticket twice, come late, come again, or never. A curator forgets people, pins, rolls back,
stops and starts. A nightly job learns in another run of the same store, by the library, publishes,
verifies, rolls back and goes on with a successor; it is a process, and is killed as others are.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

import tacit
from research.campaign.servers import WINDOW, H, begin, token_of
from tacit.data.episodes import Episodes
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.store import ledger, schema
from tacit.store.store import Store

STATES = ["new", "idle", "busy"]
SHARED = {"forget": 12.0, "serve": 3.0, "pin": 1.0, "unpin": 1.0, "stop": 1.0, "look": 2.0}
"""What a curator does, by how often."""
DOINGS = ("roll_back", "forget", "publish", "verify", "successor", "pause")
"""What a nightly job does besides learning."""


@dataclass
class Sent:
    """An episode of the journal."""

    user: str
    event: str
    run: str
    ticket: str
    rewards: float  # that count, if it does
    steps: int
    states: int  # that she saw
    size: int = 0  # of a report
    parts: int = 1  # messages; several where decisions and outcomes come apart
    told: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether its device was ever told so."""
        return not {"waiting", "counted", "closed"}.isdisjoint(self.told)

    @property
    def whole(self) -> bool:
        """Whether all of it is in its block, if any is."""
        return self.parts in (1, self.told.count("waiting"))


class Journal:
    """A file to which everybody adds, in lines, what was sent and what was told."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, what: str, *values: Any) -> None:
        """One line."""
        os.write(self._file, (json.dumps([what, *values]) + "\n").encode())

    def sent(self, sent: Sent) -> None:
        """Before an episode is sent."""
        self.add("sent", *vars(sent).values())


class Told:
    """A journal, read: what everybody but the store knows."""

    def __init__(self, path: Path) -> None:
        self.sent: dict[str, Sent] = {}
        self.policies: dict[int, set[str]] = {}
        self.forgotten: dict[str, tuple[int, int]] = {}  # by user: removed, released
        self.unsure: Counter[str] = Counter()  # who may be forgotten by what was not answered
        self.heads: list[str] = []  # of the ledger
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._head, self._wrong = self.heads.append, self.wrong.append
        for line in path.read_text().splitlines():
            what, *values = json.loads(line)
            self.counts[what] += 1
            getattr(self, f"_{what}")(*values)

    def _sent(self, user: str, event: str, *rest: Any) -> None:
        self.sent.setdefault(event, Sent(user, event, *rest))

    def _told(self, event: str, status: str) -> None:
        self.sent[event].told.append(status)
        self.counts[status] += 1

    def _policy(self, version: int, etag: str) -> None:
        self.policies.setdefault(version, set()).add(etag)

    def _forgot(self, user: str, removed: int, released: int) -> None:
        before = self.forgotten.get(user, (0, 0))
        self.forgotten[user] = before[0] + removed, max(before[1], released)

    def _unsure(self, user: str, times: int = 1) -> None:
        self.unsure[user] += times

    def _did(self, what: str) -> None:
        self.counts[what] += 1


def recent(path: Path) -> list[str]:
    """Users who came of late."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 20_000))
        lines = file.read().decode().splitlines()[1:]
    return [json.loads(line)[1] for line in lines if line.startswith('["sent"')]


# Devices.


class Devices:
    """Threads that do whatever a device can do."""

    def __init__(self, addresses: list[str], token: str, journal: Path, seed: int) -> None:
        self._addresses, self._token = addresses, token
        self.path, self.journal = journal, Journal(journal)
        self._ended, self.again, self._known = threading.Event(), 0, set[tuple[int, str]]()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + k),), daemon=True)  # noqa: S311
            for k in range(4)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Everybody gets her answer first."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, rng: random.Random) -> None:
        clients = [Client(address, self._token, tries=1) for address in self._addresses]
        while not self._ended.is_set():
            with contextlib.suppress(TacitError):
                self.one(clients, rng)
        for client in clients:
            client.close()

    def read(self, client: Client) -> Any:
        """The policy, for one more user of this device."""
        client._spent = True
        policy = client.policy()
        if (policy.version, client._etag) not in self._known:
            self._known.add((policy.version, client._etag))
            self.journal.add("policy", policy.version, client._etag)
        return policy

    def one(self, clients: list[Client], rng: random.Random) -> None:
        """One device, with all that it may do."""
        client = rng.choice(clients)
        policy = self.read(client)
        if not client._ticket:
            self._ended.wait(0.02)
            return
        verb, user = rng.random(), secrets.token_hex(8)
        if verb < 0.03:
            return  # she never sends
        if verb < 0.06:
            self._ended.wait(rng.uniform(0.5, 2.0) * WINDOW)
        if verb > 0.9:  # somebody of before, perhaps of the nightly job
            user = rng.choice(recent(self.path) or [user])
        body, event = self._send(clients, client, policy, user, rng, apart=0.7 < verb < 0.93)
        if 0.1 < verb < 0.2:
            self._post(clients, body, event, rng)  # the same again
        elif 0.2 < verb < 0.25:  # a ticket that has been used
            self._send(clients, client, policy, secrets.token_hex(8), rng)
        elif 0.25 < verb < 0.3:  # she comes again, with a ticket of her own
            policy = self.read(client)
            if client._ticket:
                self._send(clients, client, policy, user, rng)

    def _send(
        self, clients: list[Client], client: Client, policy: Any, user: str, rng: random.Random,
        *, apart: bool = False,
    ) -> tuple[bytes, str]:  # fmt: skip
        states, actions, rewards = ["new"], [], list[Any]()
        draw = np.random.default_rng(rng.randrange(2**32))
        for step in range(H):
            actions.append(policy.act(step, states[-1], draw))
            rewards.append(round(rng.random(), 6))
            states.append(rng.choice(STATES))
        local = client.task()["model"] == "local"
        apart, bad = apart and not local, not apart and rng.random() < 0.05
        if bad:
            rewards = [float("nan")] * H if local else ["nonsense"] * H
        event, paid, steps = secrets.token_hex(8), 0.0 if bad else sum(rewards), 0 if bad else H
        given = {"user": user, "event": event, "ticket": client._ticket}
        raw: dict[str, Any] = {"states": states, "actions": actions, "rewards": rewards}
        if hasattr(policy, "component"):
            raw["component"] = policy.component
        if local:
            client._task = client.get(f"/v1/task?version={policy.version}")
            raw = {"report": client._report(states, actions, rewards, None)}
        size, seen = len(raw.get("report", ())), 0 if bad else len({*states[:H]})
        told = client._ticket, paid, steps, seen, size, 2 * H if apart else 1
        self.journal.sent(Sent(user, event, "run", *told))
        bodies = [given | raw]
        if apart:  # the first decision takes the place, and the rest comes as it comes
            given |= {"component": raw["component"]} if "component" in raw else {}
            both = [*zip(range(H), states, actions, strict=False)]
            bodies = [given | {"step": h, "state": s, "action": a} for h, s, a in both]
            del given["ticket"]
            ends = [*zip(range(H), rewards, states[1:], strict=True)]
            bodies += [given | {"step": h, "reward": r, "next_state": n} for h, r, n in ends]
            bodies[1:] = rng.sample(bodies[1:], len(bodies) - 1)
        for each in bodies:
            self._post(clients, body := json.dumps(each).encode(), event, rng)
            self._ended.wait(apart * rng.choice((0.0, 0.0, rng.expovariate(5.0))))
        return body, event

    def _post(self, clients: list[Client], body: bytes, event: str, rng: random.Random) -> None:
        of = {"report": "reports", "action": "decisions", "reward": "outcomes"}
        path = next((of[name] for name in of if f'"{name}"'.encode() in body), "episodes")
        hers = {"Authorization": f"Bearer {token_of(json.loads(body)['user'])}"}
        while True:
            with contextlib.suppress(TacitError):
                code, _, answer = rng.choice(clients).request("POST", f"/v1/{path}", hers, body)
                if code in (200, 202, 409, 410, 422):
                    said = json.loads(answer)
                    self.journal.add("told", event, str(said.get("status", said.get("detail"))))
                    return
            self.again += 1
            time.sleep(0.05)


class Curator:
    """A thread that does whatever a curator can do."""

    def __init__(
        self, addresses: list[str], token: str, journal: Path, seed: int, case: Any
    ) -> None:
        self._clients = [Client(address, token, tries=1) for address in addresses]
        self._path, self._journal, self._case, self.commands = journal, Journal(journal), case, 0
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
        verbs = self._case.verbs
        while not self._ended.wait(self._rng.expovariate(self._case.rate)):
            (verb,) = self._rng.choices([*verbs], [*verbs.values()])
            with contextlib.suppress(TacitError):
                self._do(verb)

    def _do(self, verb: str) -> None:
        client = self._rng.choice(self._clients)
        if verb == "forget":
            users = recent(self._path)
            user = self._rng.choice(users[-50:]) if users else ""
            if user:
                found = self.ask("/v1/forget", {"user": user}, user)
                self._journal.add("forgot", user, found["removed"], found["released"])
            return
        if verb == "look":
            head = client.get("/v1/state")["ledger_head"]
            client.request("GET", "/v1/policies/0")
            self._journal.add("head", head)
            return
        self.commands += 1
        if verb in ("pin", "serve"):
            version = client.get("/v1/state")["latest"]
            back = max(0, version - self._rng.randrange(3))
            self.ask("/v1/commands", {"what": verb, "version": back})
        else:
            self.ask("/v1/commands", {"what": verb})
        if verb == "stop":
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
            if user:
                self._journal.add("unsure", user)
            time.sleep(0.1)


# The nightly job.


def nightly(file: str, folder: Path, clock: Path, log: str) -> None:
    """A process that uses the library on the store of a service, until it ends."""
    begin(clock, "", log)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    journal, app = Journal(folder / "journal"), read_app(file, logs=False)
    job = _Job(journal, folder, app)
    while True:
        try:
            with Store(app.store) as store:
                job.work(store)
        except TacitError:
            time.sleep(0.1)
        except Exception:
            journal.add("wrong", traceback.format_exc())
            time.sleep(1.0)


class _Job:
    """Verbs of the library, one after the other, in the newest run of a chain of successors."""

    def __init__(self, journal: Journal, folder: Path, app: Any) -> None:
        self._journal, self._folder, self._app = journal, folder, app
        self._pending, self._rng = folder / "pending", random.Random()  # noqa: S311

    def work(self, store: Store) -> None:
        """Until something is raised."""
        agent = self._agent(store)
        agent.start()
        while True:
            self._learn(agent)
            time.sleep(self._rng.expovariate(10.0))
            if self._rng.random() < 0.3:
                verb = self._rng.choice(DOINGS)
                with contextlib.suppress(InvalidArgument):
                    agent = getattr(self, f"_{verb}")(agent) or agent
                self._journal.add("did", verb)

    def _agent(self, store: Store) -> Any:
        with store.read() as db:
            rows = db.execute(select(schema.runs).where(schema.runs.c.run.like("night%"))).all()
        open_ = [row.run for row in rows if not row.succeeded]
        if not rows:
            return self._app.agent(store)
        return tacit.open(store, open_[0])

    def _learn(self, agent: Any) -> None:
        """The batch that is under way, or a new one; its file outlives this process."""
        if not self._pending.exists():
            self._write(agent)
        given = json.loads(self._pending.read_text())
        data = Episodes(given["states"], given["actions"], given["rewards"], given["versions"])
        n = len(given["users"])
        receipt = agent.learn(data, given["users"], events=given["events"])
        taken = receipt.counted + receipt.waiting + receipt.known
        if taken + receipt.refused + receipt.retired != n:
            self._journal.add("wrong", f"a receipt of {n}: {receipt}")
        status = "waiting" if taken else "refused" if receipt.refused else "late"
        # Of some it is not said which: whoever was refused came to the service in between.
        for event in given["events"] if taken in (0, n) else ():
            self._journal.add("told", event, status)
        self._pending.unlink()

    def _write(self, agent: Any) -> None:
        rng, policy = self._rng, agent.policy
        users = [secrets.token_hex(8) for _ in range(rng.randint(1, 7))]
        if rng.random() < 0.4:  # somebody who also uses the service, who may have nothing left
            users = [rng.choice(recent(self._folder / "journal") or users)]
        given: dict[str, Any] = {"users": users, "versions": [policy.version] * len(users)}
        given["events"] = [secrets.token_hex(8) for _ in users]
        given["states"] = [[0, *(rng.randrange(3) for _ in range(H))] for _ in users]
        given["rewards"] = [[round(rng.random(), 6) for _ in range(H)] for _ in users]
        draw = np.random.default_rng(rng.randrange(2**32))
        given["actions"] = [
            [int(policy.act(h, row[h], draw)) for h in range(H)] for row in given["states"]
        ]
        for user, event, paid in zip(users, given["events"], given["rewards"], strict=True):
            self._journal.sent(Sent(user, event, "night", "", sum(paid), H, 0))
        self._pending.with_suffix(".new").write_text(json.dumps(given))
        self._pending.with_suffix(".new").rename(self._pending)

    def _roll_back(self, agent: Any) -> None:
        agent.roll_back(max(0, agent.run_row().latest - self._rng.randrange(3)))

    def _forget(self, agent: Any) -> None:
        users = recent(self._folder / "journal")
        if users:
            user = self._rng.choice(users[-50:])
            self._journal.add("unsure", user)  # if it ends before it is told
            found = agent.forget(user)
            self._journal.add("forgot", user, found["removed"], found["released"])
            self._journal.add("unsure", user, -1)

    def _publish(self, agent: Any) -> None:
        path = self._folder / "policy.json"
        agent.publish(path)
        self._journal.add("head", tacit.published.about(path)["ledger_head"])

    def _verify(self, agent: Any) -> None:
        """Verifies and exports: who audits has all entries, in their order."""
        with agent.store.read() as db:
            lines = [entry.line() for entry in ledger.read(db)]
        if [json.loads(line)["seq"] for line in lines] != [*range(1, len(lines) + 1)]:
            self._journal.add("wrong", "an export lacks entries")
        for problem in ledger.verify(agent.store, json.loads(lines[-1])["hash"]):
            self._journal.add("wrong", problem)

    def _successor(self, agent: Any) -> Any:
        if self._pending.exists() or agent.run_row().latest < 2:
            return None
        return agent.successor(10**6, schedule="fixed:size=8", name=f"night-{secrets.token_hex(4)}")

    def _pause(self, agent: Any) -> None:
        agent.stop()
        time.sleep(self._rng.uniform(0.0, 0.2))
        agent.start()
