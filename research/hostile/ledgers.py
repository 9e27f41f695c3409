"""Ledgers under fire: many processes and kills on one, and power that fails at every write.

    python -m research.hostile.ledgers --kills 40
    python -m research.hostile.ledgers --power --faults

With ``--kills`` four processes, each with an agent of its own, learn from the same people and spend
from one ledger of people. Again and again one is killed (SIGKILL) and the next goes on from its
save. Then the ledger is read by a few lines of code that share nothing with the package: whether
anybody spent more than she may, whether everybody who was counted paid, and whether every process
had its turns. Without kills, how evenly the turns of four processes alternate is counted too.

With ``--power`` a process that lets people join is recorded by ``strace``: every write, flush,
cut and removal of a file. For each prefix of that list the files are made again as a disk may
have them when the power fails then: with all that was written, and with only what was flushed, for
each file on its own. Each time the ledger must open, with all that was acknowledged by then. With
``--faults`` these calls fail instead, the first of each kind, the second, and so on.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.pseudonyms import name_of

POPULATION = tacit.JointDP(1.0, 1e-6)
AGENT = tacit.JointDP(0.4, 1e-6)
PROCESSES = 4
PEOPLE = 300
BLOCK, USERS = 10, 60


@dataclass
class Told:
    """What happened, and what was wrong with it."""

    kills: int = 0
    runs: int = 0
    people: int = 0
    turns: list[int] = field(default_factory=list)
    points: int = 0
    problems: list[str] = field(default_factory=list)


# Processes and kills.


def _serve(folder: Path, worker: int, seed: int) -> None:
    """An agent serves people: goes on from its save if there is one, and begins anew at its end."""
    rng, ledger = np.random.default_rng(seed), Ledger.open(folder / "people.ledger")
    world = tacit.tabular.riverswim(3, 4)

    def make(**files: Any) -> Any:
        schedule = f"fixed:size={BLOCK}"
        return tacit.UCBVI(world.spec, USERS, AGENT, schedule=schedule, stationary=True, **files)

    while True:
        number = len([*folder.glob(f"done-{worker}-*")])
        state = folder / f"state-{worker}-{number}"
        files = {"ledger": ledger, "autosave": state}
        agent = make().load(state, **files) if state.exists() else make(**files)
        while agent.served < USERS:
            ids = rng.choice(PEOPLE, BLOCK, replace=False).tolist()
            agent.learn(world.simulate(agent.policy, BLOCK, rng, "episodes"), ids)
        (folder / f"done-{worker}-{number}").touch()


def forked(act: Callable[[], None]) -> int:
    """A process that does this; its number."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(1)
    return child


def kill_many(kills: int, seed: int = 0) -> Told:
    """Several agents on one ledger, one of which is killed again and again."""
    rng, told = random.Random(seed), Told(kills=kills)  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Ledger.create_for_people(folder / "people.ledger", POPULATION)
        _warm()

        def start(worker: int) -> int:
            chance = rng.randrange(2**32)
            return forked(lambda: _serve(folder, worker, chance))

        workers = [start(worker) for worker in range(PROCESSES)]
        try:
            for turn in range(kills):
                _grown(folder / "people.ledger", rng.randrange(20_000))
                worker = turn % PROCESSES
                os.kill(workers[worker], signal.SIGKILL)
                os.waitpid(workers[worker], 0)
                workers[worker] = start(worker)
            _grown(folder / "people.ledger", 20_000)
        finally:
            for worker, process in enumerate(workers):
                ended, _ = os.waitpid(process, os.WNOHANG)
                if ended:
                    told.problems.append(f"process {worker} ended by itself")
                    continue
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        _account(folder / "people.ledger", told)
        told.turns = [len([*folder.glob(f"state-{worker}-*")]) for worker in range(PROCESSES)]
        if not all(told.turns):
            told.problems.append(f"a process never had its turn: {told.turns}")
        if Ledger.open(folder / "people.ledger", every_line=True).max_spent > told_limit():
            told.problems.append("by the ledger somebody overspent")
    return told


def _grown(path: Path, size: int) -> None:
    """Waits until a ledger is so many bytes larger, three seconds at most."""
    end, deadline = path.stat().st_size + size, time.monotonic() + 3.0
    while path.stat().st_size < end and time.monotonic() < deadline:
        time.sleep(0.001)


def told_limit() -> float:
    """What a person may spend, with rounding."""
    return POPULATION.budget.mu**2 * (1 + 1e-8)


def _warm() -> None:
    """Compiles what agents need before anything forks."""
    world = tacit.tabular.riverswim(3, 4)
    agent = tacit.UCBVI(world.spec, BLOCK, AGENT, schedule=f"fixed:size={BLOCK}", stationary=True)
    rng = np.random.default_rng(0)
    agent.learn(world.simulate(agent.policy, BLOCK, rng, "episodes"))


def _account(path: Path, told: Told) -> None:
    """Reads a ledger as an auditor would, with nothing of ours."""
    previous, costs = "", dict[str, float]()
    joined: Counter[tuple[str, bytes]] = Counter()
    for line in path.read_text().splitlines():
        record = json.loads(line)
        body = line.replace(f'"hash": "{record["hash"]}", ', "", 1)
        if hashlib.sha256((previous + body).encode()).hexdigest() != record["hash"]:
            told.problems.append("the chain is broken")
        previous = record["hash"]
        if record.get("event") == "start":
            costs[record["run"]] = record["terms"]["user_limit"]
        if record.get("event") == "join":
            names = base64.b64decode(record["people"])
            joined.update((record["run"], names[i : i + 16]) for i in range(0, len(names), 16))
    spent: Counter[bytes] = Counter()
    for (run, who), times in joined.items():
        if times > 1:
            told.problems.append("somebody paid twice for one run")
        spent[who] += costs[run]  # type: ignore[assignment]
    told.runs, told.people = len(costs), len(spent)
    told.problems += [f"spent {s}" for s in spent.values() if s > told_limit()]


# Turns.

_JOINER = """
import sys
from tacit import JointDP
from tacit.privacy.ledger import Ledger, Terms
ledger = Ledger.open(sys.argv[1])
ledger.record_start(sys.argv[2], Terms.of(JointDP(0.1, 1e-6)))
print("ready", flush=True)
sys.stdin.readline()
first = 1000 * int(sys.argv[2])
for number in range(first, first + int(sys.argv[3])):
    ledger.join([number.to_bytes(16)])
"""


def _joiner(path: Path, number: int, joins: int) -> Any:
    command = [sys.executable, "-c", _JOINER, str(path), str(number), str(joins)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe)  # noqa: S603


def take_turns(joins: int = 50, processes: int = PROCESSES) -> list[int]:
    """How often each of some processes had its turn by the time the first had all of its own."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "people.ledger"
        Ledger.create_for_people(path, POPULATION)
        workers = [_joiner(path, number, joins) for number in range(processes)]
        for worker in workers:
            worker.stdout.readline()
        for worker in workers:
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        for worker in workers:
            worker.communicate(timeout=120)
        turns = Counter[str]()
        for entry in Ledger.open(path).entries:
            if entry.event == "join":
                turns[entry.run] += 1
                if turns[entry.run] == joins:
                    break
        return [turns[str(n)] for n in range(processes)]


# Power.

_RECORDED = """
import os, sys
from tacit import JointDP
from tacit.privacy.ledger import Ledger, Terms, journal
from tacit.privacy.pseudonyms import name_of
journal.INDEX_LINES = 4
ledger = Ledger.open(sys.argv[1])
ledger.record_start("run", Terms.of(JointDP(0.5, 1e-6)))
for number in range(int(sys.argv[2])):
    try:
        ledger.join([name_of(number, ledger.key)])
    except OSError:
        continue
    os.write(1, b"paid %d\\n" % number)
"""
_TRACED = "openat,open,close,write,pwrite64,fsync,fdatasync,ftruncate,unlink,dup,dup2,fcntl"
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")


@dataclass
class Disk:
    """Files as they are, and as they were when last flushed; ``None`` if there is none."""

    now: dict[str, bytes | None] = field(default_factory=dict)
    flushed: dict[str, bytes | None] = field(default_factory=dict)
    told: int = 0  # how many people were told that they paid


def record(folder: Path, joins: int) -> Iterator[Disk]:
    """The disk after each call of a process that lets people join, as ``strace`` saw them."""
    path, trace = folder / "people.ledger", folder / "trace"
    Ledger.create_for_people(path, POPULATION)
    disk = Disk({str(path): path.read_bytes()}, {str(path): path.read_bytes()})
    command = ["strace", "-xx", "-s", "10000000", "-e", f"trace={_TRACED}", "-o", str(trace)]
    child = [sys.executable, "-c", _RECORDED, str(path), str(joins)]
    subprocess.run([*command, *child], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    opened: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        match = _CALL.match(line)
        if match and int(match[3]) >= 0 and _replay(disk, opened, str(path), *match.groups()):
            yield disk


def _replay(disk: Disk, opened: dict[str, str], path: str, call: str, text: str, out: str) -> bool:
    """Does again what a call did; whether it changed anything."""
    given = text.split(", ")
    if call in ("openat", "open", "unlink"):
        name = _bytes(given[1] if call == "openat" else given[0]).decode()
        if not name.startswith(path):
            opened.pop(out, None)
            return False
        if call == "unlink":
            disk.now[name] = None
            return True
        opened[out] = name
        if "O_TRUNC" in text or ("O_CREAT" in text and disk.now.get(name) is None):
            disk.now[name] = b""
            return True
        return False
    if call == "close":
        opened.pop(given[0], None)
        return False
    if given[0] == "1" and call == "write":
        disk.told += 1
        return True
    name = opened.get(given[0], "")
    if not name:
        return False
    held = disk.now.get(name) or b""
    if call in ("fsync", "fdatasync"):
        disk.flushed[name] = held
    elif call == "ftruncate":
        disk.now[name] = held[: int(given[1])]
    elif call in ("write", "pwrite64"):
        data = _bytes(given[1])
        place = int(given[3]) if call == "pwrite64" else len(held)
        if call == "write" and not name.endswith(".ledger"):
            place = 0  # the note of who holds the lock
        held = held.ljust(place, b"\0")
        disk.now[name] = held[:place] + data + held[place + len(data) :]
    else:
        return False
    return True


def _bytes(quoted: str) -> bytes:
    return bytes.fromhex(quoted.strip('"').replace("\\x", ""))


def lose_power(joins: int = 30, step: int = 1) -> Told:
    """Opens the ledger as the disk may have it after each call."""
    told = Told()
    with tempfile.TemporaryDirectory() as name:
        recorded, again = Path(name) / "recorded", Path(name) / "again"
        recorded.mkdir()
        for point, disk in enumerate(record(recorded, joins)):
            if point % step:
                continue
            for ledger, rest in itertools.product(("now", "flushed"), repeat=2):
                told.points += 1
                shutil.rmtree(again, ignore_errors=True)
                again.mkdir()
                for file in {*disk.now, *disk.flushed}:
                    kept = getattr(disk, ledger if file.endswith(".ledger") else rest).get(file)
                    if kept is not None:
                        (again / Path(file).name).write_bytes(kept)
                try:
                    _check(again / "people.ledger", range(disk.told))
                except Exception as error:
                    told.problems.append(f"call {point}, {ledger}, {rest}: {error!r}")
    return told


def fail_calls(joins: int = 30, step: int = 1) -> Told:
    """Lets the n-th call of each kind that changes a file fail, also those of SQLite."""
    told = Told()
    calls = "pwrite64,write,fsync,fdatasync,ftruncate,unlink"
    for n in itertools.count(1, step):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "people.ledger"
            Ledger.create_for_people(path, POPULATION)
            command = ["strace", "-o", f"{name}/trace", "-e", f"trace={calls}"]
            command += ["-P", str(path), "-P", f"{path}.index", "-P", f"{path}.index-journal"]
            command += ["-e", f"inject={calls}:error=EIO:when={n}"]
            child = [sys.executable, "-c", _RECORDED, str(path), str(joins)]
            done = subprocess.run([*command, *child], capture_output=True, check=False)  # noqa: S603
            told.points += 1
            paid = [int(line.split()[1]) for line in done.stdout.splitlines()]
            try:
                _check(path, paid)
            except Exception as error:
                told.problems.append(f"call {n}: {error!r}")
            if "INJECTED" not in (Path(name) / "trace").read_text():
                return told
    raise AssertionError("unreachable")


def _check(path: Path, told: Iterable[int]) -> None:
    """Whether a ledger opens and has all that was acknowledged; with its index and without."""
    ledger, plain = Ledger.open(path), Ledger.open(path, every_line=True)
    if ledger.accounts != plain.accounts or ledger.head != plain.head:
        raise AssertionError("the index says something else than the chain")
    for number in told:
        if not ledger.spent_by(number):
            raise AssertionError(f"person {number} paid, and it is forgotten")
    again = Ledger.open(path)
    again.record_start("after", Terms.of(AGENT))
    again.join([name_of(number, again.key) for number in (*told, 1001, 1002)])
    if Ledger.open(path).accounts != Ledger.open(path, every_line=True).accounts:
        raise AssertionError("it does not go on")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given, problems = parser.parse_args(), 0
    if given.kills:
        told = kill_many(given.kills, given.seed)
        print(
            f"{told.kills} kills, {told.runs} runs of {PROCESSES} processes, {told.people} people"
        )
        print(f"generations of each process: {told.turns}")
        print("problems:", told.problems or "none")
        print("turns of four processes, until the first had 50:", take_turns())
        problems += len(told.problems)
    if given.power:
        told = lose_power()
        print(f"{told.points} states of the disk; problems:", told.problems or "none")
        problems += len(told.problems)
    if given.faults:
        told = fail_calls()
        print(f"{told.points} times calls of each kind failed; problems:", told.problems or "none")
        problems += len(told.problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
