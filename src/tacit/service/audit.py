"""``tacit audit --service``: an agent audited through a running service, over HTTP.

A service of its own is begun in an empty folder, as ``tacit serve`` does, with real noise. Users
whose data is known are played against it, block after block, and what it makes public is compared
with what it was told:

* *noise*: the values of each version, as its pages show them, minus the true ones, in units of the
  noise that the budget demands. They must be normal (or Laplace) numbers of scale 1, fresh in every
  block;
* *one release per block*: users who were accepted, users who were served, blocks and policies, and
  what the ledger was charged, line by line, must be one another's counts; who sends an episode
  again is not counted again;
* *nothing raw stays*: when all blocks are out and the service has ended, no file of its folder has
  the numbers of any user's episode, nor her id;
* *no secret in a log*: no file and no line of its log has a token.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tacit.audit.real.recorded import RealOutcome, judged
from tacit.audit.real.statistics import law_wrong, seen_scale
from tacit.core.world import World
from tacit.finite.visits import VisitCounts
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.ledger import Ledger
from tacit.privacy.models import JointDP
from tacit.privacy.statistic import Block
from tacit.service.app_file import App, read_app
from tacit.service.client import Client
from tacit.service.store import Store, new_token

USERS, BLOCKS = 25, 60
_MAIN = "from tacit.cli.app import main; main()"


@dataclass
class Played:
    """What was sent to a service, and what it said."""

    blocks: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # accepted, by version
    policies: dict[int, Any] = field(default_factory=dict)
    repeated: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)


def audit_service(
    agent: str,
    world: World,
    privacy: JointDP,
    folder: Path,
    *,
    blocks: int = BLOCKS,
    seed: int = 0,
    before: str = "",
) -> list[RealOutcome]:
    """Audits an agent through a service in an empty folder; see the module.

    ``before`` is Python that the service's process runs first: planted bugs, in tests.
    """
    port = _free_port()
    file = folder / "app.toml"
    file.write_text(_app(agent, world, privacy, port, blocks))
    app = read_app(os.fspath(file), logs=False, allow_code=True)  # as whoever audits named it
    statistic = app.agent(files=False).statistic
    if not isinstance(statistic, VisitCounts):
        raise InvalidArgument(f"--service is for agents that count visits, and {agent} does not")
    with _running(file, before):
        played = _play(app, world, port, blocks, np.random.default_rng(seed))
    return [
        _noise(played, statistic, privacy),
        _counts(app, played),
        _raw(folder, played),
        _secrets(folder, played),
    ]


def _app(agent: str, world: World, privacy: JointDP, port: int, blocks: int) -> str:
    spec: Any = world.spec
    if not hasattr(spec, "states") or privacy.local:
        raise InvalidArgument("--service is for finite worlds and joint DP")
    values = ", ".join(map(str, spec.reward_values))
    return f"""
[world]
states = {spec.states}
actions = {spec.actions}
horizon = {spec.horizon}
stationary = {str(spec.stationary).lower()}
reward_values = [{values}]
[agent]
name = "{agent}"
users = {2 * USERS * blocks}
schedule = "fixed:size={USERS}"
[privacy]
epsilon = {privacy.epsilon}
delta = {privacy.delta}
[serve]
port = {port}
rate = 100000
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


@contextlib.contextmanager
def _running(file: Path, before: str) -> Iterator[None]:
    """``tacit serve`` in a process of its own, whose log is a file."""
    code = f"{before}\n{_MAIN}"
    with (file.parent / "log.txt").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code, "serve", os.fspath(file), "--allow-code"],
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _play(app: App, world: World, port: int, blocks: int, rng: np.random.Generator) -> Played:
    store, played = Store(app.database), Played()
    played.tokens = [new_token(store, role) for role in ("device", "curator")]
    store.close_all()
    address = f"http://127.0.0.1:{port}"
    device, curator = (Client(address, token, tries=60) for token in played.tokens)
    try:
        for version in range(blocks):
            policy = _wait(device, version)
            played.policies[version] = policy
            _send(device, world, policy, version, rng, played)
        _wait(device, blocks)
        # Whoever would be released twice is, by now.
        time.sleep(1.0)
        played.state = curator.get("/v1/state")
    finally:
        device.close()
        curator.close()
    return played


def _wait(device: Client, version: int, seconds: float = 120.0) -> Any:
    """The policy of a version, once it serves."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        policy = device.policy()
        if policy.version >= version:
            return policy
        time.sleep(0.01)
    raise TacitError(f"version {version} was not published in {seconds:g} seconds")


def _send(
    device: Client,
    world: World,
    policy: Any,
    version: int,
    rng: np.random.Generator,
    played: Played,
) -> None:
    """A block of users who follow a version; every third episode is sent twice."""
    if policy.version != version:
        return
    users: Any = world.simulate(_followed(policy), USERS, rng, "episodes")
    # Rewards that no other file has by chance: cut to what a reward may be, and told apart.
    rewards = np.clip(users.rewards, 0.0, 1.0) * (1.0 - rng.random(users.rewards.shape) * 1e-3)
    taken = played.blocks.setdefault(version, [])
    for row in range(USERS):
        user = f"user-{rng.integers(2**62):x}"
        made = {
            "states": users.states[row].tolist(),
            "actions": users.actions[row].tolist(),
            "rewards": rewards[row].tolist(),
        }
        for _ in range(2 if row % 3 == 0 else 1):
            told = device.send(user, **made, event=user)
        played.repeated += row % 3 == 0
        if told["accepted"]:
            taken.append(made | {"user": user})


def _followed(policy: Any) -> Any:
    """A published policy as simulated users follow it."""
    from tacit.finite.policy import Policy

    return Policy(policy.probabilities, policy.actions, policy.version, policy.n_actions)


# Verdicts.


def _noise(played: Played, statistic: VisitCounts, privacy: JointDP) -> RealOutcome:
    """What is public of every block, minus the truth, in units of the noise that is demanded."""
    told = played.state.get("monitoring") or {}
    names = [name for name in told if name.startswith("state ")]
    found: list[float] = []
    pure = privacy.pure
    cost = privacy.epsilon if pure else privacy.budget.mu
    for place, version in enumerate(told.get("version", [])):
        sent = played.blocks.get(version, [])
        if not sent:
            continue
        asked = _asked(statistic, played.policies.get(version), version)
        scale = asked.sensitivity(privacy.relation, privacy.norm) / cost
        spread = scale * (2.0**0.5 if pure else 1.0)
        total = asked.layout.unpack(asked.total(_block(sent, version)))
        truth = asked.monitored(
            Release(0, asked.name, total, asked.layout.stds(spread), len(sent), cost)
        )
        users = told["users"][place]
        value, wide = truth["rewards"]
        found.append((told["return"][place] * users - float(value)) / float(wide))
        values, widths = truth["visits"]
        found += [
            (told[name][place] * users - values[s]) / widths[s]
            for s, name in enumerate(names)
            if widths[s] > 0.0
        ]
    noise = np.array(found)
    # Sums of several Laplace numbers are near normal; their scale is what is tested then.
    wrong = law_wrong(noise, "normal", 0.05, "noise") if not pure else []
    if len(told.get("version", [])) < len(played.blocks):
        wrong.append(f"{len(told.get('version', []))} of {len(played.blocks)} blocks told anything")
    # Forty normal numbers have a spread beyond these with a probability below 1e-6.
    if len(noise) >= 40 and not 0.5 < float(noise.std()) < 2.0:
        wrong.append(f"noise is {noise.std():.3g} times what the budget demands")
    power = f"a scale that is off by {seen_scale(noise.size, 'normal'):.0%}"
    return judged("noise over HTTP", wrong, power)


def _asked(statistic: VisitCounts, policy: Any, version: int) -> VisitCounts:
    if statistic.policy is None or policy is None:
        return statistic
    return replace(statistic, policy=policy.actions, version=version)


def _block(sent: Sequence[dict[str, Any]], version: int) -> Block:
    from tacit.core.episodes import Episodes

    columns = {name: [made[name] for made in sent] for name in ("states", "actions", "rewards")}
    return Episodes(**columns, versions=[version] * len(sent)).block()


def _counts(app: App, played: Played) -> RealOutcome:
    """Users, blocks, policies and charges are one another's counts."""
    wrong, state = [], played.state
    accepted = sum(map(len, played.blocks.values()))
    if state["served"] + state["waiting"] != accepted:
        wrong.append(f"{state['served']} users served of {accepted} who were accepted")
    ledger = Ledger.open(app.files["ledger"], every_line=True)
    spent: dict[str, Fraction] = {}
    for line in app.files["ledger"].read_text().splitlines()[1:]:
        for key, cost in json.loads(line)["costs"].items():
            spent[key] = spent.get(key, Fraction(0)) + Fraction(cost)
    if len(spent) != state["newest"]:
        wrong.append(f"{len(spent)} blocks were charged, {state['newest']} versions published")
    if state["served"] != USERS * len(spent):
        wrong.append(f"{len(spent)} blocks of {USERS} were charged for {state['served']} users")
    if any(float(cost) > ledger.limit * (1.0 + 1e-9) for cost in spent.values()):
        wrong.append("a block was charged more than its budget")
    if not ledger.has(state["ledger_head"]):
        wrong.append("the ledger lacks the line of the last publication")
    power = f"one of {accepted} users, or {played.repeated} repeats, counted twice"
    return judged("one release per block", wrong, power)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "app.toml":
            yield path.name, path.read_bytes()


def _raw(folder: Path, played: Played) -> RealOutcome:
    """No file has what a user sent, in bytes or in text, nor her id."""
    marks: dict[bytes, str] = {}
    for sent in played.blocks.values():
        for made in sent:
            marks[made["user"].encode()] = "an id"
            for reward in made["rewards"]:
                if reward:
                    marks[struct.pack("<d", reward)] = "a reward"
                    marks[repr(reward).encode()] = "a reward"
    wrong = []
    for name, held in _files(folder):
        found = {what for mark, what in marks.items() if mark in held}
        wrong += [f"{name} has {what} of a released user" for what in sorted(found)]
    return judged("nothing raw stays", wrong, f"one of {len(marks)} numbers and ids, in any file")


def _secrets(folder: Path, played: Played) -> RealOutcome:
    wrong = [
        f"{name} has a token"
        for name, held in _files(folder)
        if any(token.split("-", 3)[3].encode() in held for token in played.tokens)
    ]
    return judged("no secret in a log", wrong, "one token, once, in any file or log")
