"""The curator's loop: one process leads, and takes full blocks through the gate.

What each step leaves if it is cut off is in :mod:`tacit.service`. Whatever an agent raises, it is
dropped and loaded from its save: that is what a crash would do, and there is one way to go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core.monitor import monitor
from tacit.core.session import users_draw
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError, TacitWarning
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.ledger import witness_of
from tacit.service.intake import Form, Rules
from tacit.service.store import Change, Fenced, Store

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.service.app_file import App


class Forked(TacitError):
    """The database, the agent's state and the ledger do not belong together: nothing is done."""


@dataclass(frozen=True)
class Facts:
    """What is public of an agent, for pages and devices; the database keeps it as JSON."""

    guarantee: str
    words: str
    spent: float  # of one user's budget, the dearest so far, in epsilon; and of how much
    limit: float
    delta: float
    users: int  # declared
    blocks: int
    monitoring: dict[str, list[Any]]
    local: dict[str, Any]  # what devices report, under local DP


def rules_of(agent: Agent) -> Rules:
    """What decides who is taken."""
    return Rules(agent.masked, agent.privacy.local, agent.privacy.episodes_per_user)


def form_of(agent: Agent) -> Form:
    """How its users are packed."""
    spec = agent.spec
    size = agent.statistic.layout.size if agent.privacy.local else 0
    states, actions = (spec.states, spec.state_labels), (spec.actions, spec.action_labels)
    return Form(spec.horizon, states, actions, size, not size and users_draw(agent.algorithm))


class Curator:
    """Leads if nobody else does, and then releases; see :meth:`turn`."""

    def __init__(self, app: App, store: Store) -> None:
        self._app, self._store = app, store
        self._agent: Agent | None = None
        self._epoch = -1
        self._lock: int | None = None
        self.problem = ""
        """Why it does not lead, where it should; public words."""

    # Leading.

    @property
    def leads(self) -> bool:
        """Whether this process holds the agent."""
        return self._agent is not None

    def turn(self) -> bool:
        """Does what is to be done, if this process leads or can; whether anything was done.

        It may be called again after anything that it raises.
        """
        if not self._app.serving.curator or not self._seize():
            return False
        try:
            if self._agent is None:
                self._open()
                return True
            return self._step()
        except Fenced:
            self.resign()
            return False

    def resign(self) -> None:
        """Lets another process lead; the state on disk is all that it needs."""
        self._agent, self._epoch = None, -1
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _seize(self) -> bool:
        """The lock beside the state: it is gone with the process that held it."""
        if self._lock is not None:
            return True
        path = f"{self._app.files['state']}.leader"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def _open(self) -> None:
        """Loads the agent, once the witnesses agree, and compares it with the database."""
        with self._store.change() as change:
            self._epoch = change.serving["epoch"] + 1
            change.put(epoch=self._epoch)
            serving = change.serving
        state, path = self._app.files["state"], self._app.files["ledger"]
        begun = serving["version"] >= 0
        if begun and not state.exists():
            raise Forked(f"the database is of an agent whose state, {state.name}, is not here")
        if begun and serving["ledger"]:
            opened = Ledger.open(path)
            if opened.id != serving["ledger"] or not opened.has(serving["ledger_head"]):
                raise Forked(
                    "the ledger lacks a line that the database has seen: it is an older copy, or "
                    "another one (docs/service.md, restore)"
                )
        if not begun and not state.exists() and path.exists():
            _set_aside(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)
            agent = self._app.agent()
        if not begun and agent.served:
            raise Forked(
                "the agent has served users of whom the database knows nothing: it is new, or "
                "another one (docs/service.md, restore)"
            )
        if agent.privacy.local and not state.exists():
            agent.save(state)
        self._agent = agent
        if not begun:
            self._publish("")

    def _step(self) -> bool:
        """The next thing to do."""
        serving = self._store.serving()
        asked = self._store.ask("SELECT COUNT(*) FROM commands WHERE state = 'asked'")[0][0]
        if serving["stopped"] and not asked:
            return False
        sealed = self._store.ask("SELECT number FROM blocks WHERE state = 'sealed'")
        if sealed:
            self._release(sealed[0][0])
            return True
        agent = self._the_agent()
        if agent.served != serving["served"]:
            raise Forked(
                f"the agent has served {agent.served} users, by the database {serving['served']}: "
                "one of them is an older copy (docs/service.md, restore)"
            )
        if self._obey():
            return True
        if serving["stopped"] or not 0 < serving["room"] <= serving["waiting"]:
            return False
        self._seal()
        return True

    def _the_agent(self) -> Agent:
        assert self._agent is not None  # noqa: S101
        return self._agent

    # A block.

    def _seal(self, *, early: bool = False) -> None:
        """Step 2: from now on it is known who is in the block. ``early``, whoever waits."""
        agent = self._the_agent()
        with self._store.change(self._epoch) as change:
            serving = change.serving
            number, waiting = serving["block"], serving["waiting"]
            together = early or agent.masked
            users = waiting if together else min(waiting, serving["room"])
            if users < waiting:
                change.ask(
                    "UPDATE episodes SET block = ? WHERE block = ? AND id NOT IN "
                    "(SELECT id FROM episodes WHERE block = ? ORDER BY id LIMIT ?)",
                    (number + 1, number, number, users),
                )
            change.ask(
                "INSERT INTO blocks VALUES (?, ?, ?, ?, 'sealed', ?)",
                (number, serving["version"], users, agent.served, time.time()),
            )
            accepts = 0 if agent.masked else 1
            change.put(
                block=number + 1,
                waiting=waiting - users,
                accepts=accepts,
                people_left=serving["people_left"] - users,
            )

    def _release(self, number: int) -> None:
        """Steps 3 and 4: through the gate unless it is through, and published."""
        row = self._store.ask("SELECT users, served_before FROM blocks WHERE number = ?", (number,))
        users, before = row[0]
        served = self._the_agent().served
        if served == before and users:
            self._learn(number, users)
            served = self._the_agent().served
        if served != before + users:
            raise Forked(
                f"block {number} has {users} users after {before}, but the agent has served "
                f"{served}: one of them is an older copy (docs/service.md, restore)"
            )
        self._publish(f"block {number}", block=number)
        self._store.tidy()

    def _learn(self, number: int, users: int) -> None:
        """The agent takes the rows of a block. Whatever it raises, its save is what counts."""
        rows = self._store.ask(
            "SELECT body, version, person FROM episodes WHERE block = ? ORDER BY id", (number,)
        )
        bodies, versions, people = ([*column] for column in zip(*rows, strict=True))
        if len(bodies) != users or not all(bodies):
            raise Forked(f"block {number} has other rows than when it was sealed")
        agent, form = self._the_agent(), form_of(self._the_agent())
        packed = [bytes(body) for body in bodies]
        asked = self._store.ask(
            "SELECT version FROM commands WHERE state = 'asked' AND what <> 'unpin' ORDER BY id"
        )
        with self._reloading(), warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)
            if agent.privacy.local:
                agent.learn_reports(form.reports(packed), people)
                agent.save(self._app.files["state"])
            elif users < agent.block_users and asked:
                # A block that ends early, because another policy is to serve.
                agent.learn(form.episodes(packed, versions, people))
                agent.roll_back(self._stored_policy(asked[0][0]))
                agent.save(self._app.files["state"])
            else:
                agent.learn(form.episodes(packed, versions, people))

    @contextlib.contextmanager
    def _reloading(self) -> Any:
        """After an exception the agent in memory is dropped: its save is what happened."""
        try:
            yield
        except BaseException:
            self._agent = None
            raise

    # What serves.

    def _publish(self, why: str, *, block: int | None = None, command: int | None = None) -> None:
        """Step 4, in one transaction: idempotent, as all of it is in the agent's save."""
        agent = self._the_agent()
        body, facts = policy_body(agent), facts_of(agent, self._app)
        line, head, name = 0, "", ""
        if not agent.privacy.local:
            ledger = Ledger.open(self._app.files["ledger"])
            (line, head), name = witness_of(ledger), ledger.id
        version, newest = agent.policy.version, agent.algorithm.newest
        with self._store.change(self._epoch) as change:
            _keep_policy(change, version, body, agent.served, line, head)
            if block is not None:
                change.ask("UPDATE blocks SET state = 'released' WHERE number = ?", (block,))
                change.ask(
                    "UPDATE episodes SET state = 'counted', body = NULL WHERE block = ?", (block,)
                )
            if command is not None:
                _answer(change, command, "done", why)
            known = max(newest, change.serving["newest"])
            change.put(
                ledger=name,
                ledger_head=head,
                ledger_line=line,
                version=version,
                newest=known,
                accepts=1,
                room=agent.block_users,
                people_left=agent.users - agent.served,
                served=agent.served,
                pinned=int(agent.algorithm.pinned is not None),
                facts=json.dumps(asdict(facts)),
            )

    def _stored_policy(self, version: int) -> Any:
        rows = self._store.ask("SELECT body FROM policies WHERE version = ?", (version,))
        if not rows:
            raise InvalidArgument(f"version {version} was never published")
        from tacit.finite.policy import Policy

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.json"
            path.write_bytes(bytes(rows[0][0]))
            return Policy.load(path)

    def _obey(self) -> bool:
        """The first command that waits: an older policy serves, is pinned, or is not any more."""
        rows = self._store.ask(
            "SELECT id, what, version FROM commands WHERE state = 'asked' ORDER BY id LIMIT 1"
        )
        if not rows:
            return False
        number, what, version = rows[0]
        agent, state = self._the_agent(), self._app.files["state"]
        try:
            if what == "unpin":
                with self._reloading():
                    agent.unpin()
                    agent.save(state)
            else:
                policy = self._stored_policy(version)
                if agent.privacy.local:
                    raise InvalidArgument("devices report for the version that serves: no way back")
                # Refused before anybody's block ends early; what it changes is not kept.
                agent.algorithm.reinstate(policy)
                if agent.masked and self._store.serving()["waiting"]:
                    # Who waits followed another version: their block ends first.
                    self._seal(early=True)
                    self._agent = None
                    return True
                with self._reloading():
                    agent.roll_back(policy, pin=what == "pin")
                    agent.save(state)
        except (InvalidArgument, CorruptFile) as error:
            with self._store.change(self._epoch) as change:
                _answer(change, number, "failed", str(error))
            return True
        self._publish(f"{what} {version}", command=number)
        return True


def _set_aside(path: Path) -> None:
    """A first start that was cut off left a ledger without a state; nobody was charged on it."""
    if any(entry.event != "start" for entry in Ledger.open(path, every_line=True).entries):
        raise Forked(f"{path.name} is there without a state and a database: it is another run's")
    for name in (path, path.with_name(f"{path.name}.index")):
        if name.exists():
            name.rename(f"{name}.unused-{time.time_ns()}")


def _keep_policy(
    change: Change, version: int, body: bytes, users: int, line: int, head: str
) -> None:
    """A version is written once, and never changes."""
    if not change.ask("SELECT version FROM policies WHERE version = ?", (version,)):
        etag = hashlib.sha256(body).hexdigest()
        change.ask(
            "INSERT INTO policies VALUES (?, ?, ?, ?, ?, ?, ?)",
            (version, body, etag, users, time.time(), line, head),
        )


def _answer(change: Change, command: int, state: str, words: str) -> None:
    change.ask("UPDATE commands SET state = ?, answer = ? WHERE id = ?", (state, words, command))


def policy_body(agent: Agent) -> bytes:
    """What devices read: the published file in its JSON form."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        agent.publish(path)
        return path.read_bytes()


def facts_of(agent: Agent, app: App) -> Facts:
    """What pages and devices are told; releases and declarations alone."""
    guarantee, privacy = agent.guarantee, agent.privacy
    assert guarantee is not None  # noqa: S101
    spent = 0.0
    if privacy.local:
        spent = float(privacy.epsilon) if agent.served else 0.0
    elif agent.served:
        spent = _epsilon(Ledger.open(app.files["ledger"]).max_spent, privacy)
    columns = monitor(agent).columns()
    safe = {name: [_json_number(x) for x in column] for name, column in columns.items()}
    return Facts(
        guarantee=guarantee.short,
        words=str(guarantee),
        spent=spent,
        limit=float(privacy.epsilon),
        delta=float(guarantee.delta),
        users=agent.users,
        blocks=agent.releases,
        monitoring=safe,
        local=_asked_of_devices(agent) if privacy.local else {},
    )


def _epsilon(spent: float, privacy: Any) -> float:
    from tacit.privacy.gaussian_dp import epsilon_from_mu

    if privacy.pure:
        return spent
    return min(epsilon_from_mu(spent**0.5, privacy.delta), float(privacy.epsilon))


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _asked_of_devices(agent: Agent) -> dict[str, Any]:
    """The statistic that devices report, and the noise that they add, as JSON values."""
    from dataclasses import fields

    import numpy as np

    from tacit.finite.question import question
    from tacit.privacy.exact import grid_step
    from tacit.privacy.local import noise_scale

    statistic, privacy = agent.statistic, agent.privacy
    held = {field.name: getattr(statistic, field.name) for field in fields(statistic) if field.init}
    found: dict[str, Any] = {
        "statistic": type(statistic).__name__,
        "fields": {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in held.items()},
        "size": statistic.layout.size,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "mechanism": privacy.mechanism,
    }
    if not privacy.reports_bits:
        found["scale"] = noise_scale(statistic, privacy)
        found["step"] = grid_step(statistic, privacy.norm)
    with contextlib.suppress(InvalidArgument):
        # For clients in JavaScript, where they can answer it.
        found["question"] = question(statistic, privacy)
    return found


class Loop:
    """A thread that lets a curator have its turn, again and again, whatever it raises."""

    def __init__(self, curator: Curator, heard: Callable[[], None], pause: float = 0.2) -> None:
        self._curator, self._heard, self._pause = curator, heard, pause
        self._wanted, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="tacit-curator", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Somebody came: look now."""
        self._wanted.set()

    def close(self) -> None:
        """Ends after the turn that it is in."""
        self._ended = True
        self._wanted.set()
        self._thread.join(timeout=60.0)

    def _run(self) -> None:
        wait = self._pause
        while not self._ended:
            self._wanted.wait(wait)
            self._wanted.clear()
            try:
                while not self._ended and self._curator.turn():
                    self._heard()
                self._curator.problem, wait = "", self._pause
            except Exception as error:
                # What is said is typed and public: a Forked, a full disk, a database that is gone.
                known = isinstance(error, (TacitError, OSError))
                self._curator.problem = str(error) if known else type(error).__name__
                wait = min(2.0 * wait, 10.0)
                self._heard()
        self._curator.resign()
