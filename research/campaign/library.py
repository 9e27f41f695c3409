"""One run under fire: exceptions at every line, threads, power; in memory and in a file.

    python -m research.campaign --what learn successor --stride 50
    python -m research.campaign --what threads power --rounds 20

Every user has a cell of her own and the noise is far below one, so a release shows who is in it and
how often. After whatever happened a run goes on: by the same agent, or by one that is opened. Then
all that was declared come, and three things must be 0: runs that could not go on; users who are in
no release, or in one twice; and books that are wrong, which are the ledger with its accounts, what
each block was charged, episodes that are left of a released block, and what receipts and errors
(``users_taken``) said.

Exceptions come at the n-th line of Tacit that a call runs, by tracing, for every n. Left out are
the end of a ``with`` statement and the word ``try`` itself, where CPython handles no signal.
"""

from __future__ import annotations

import itertools
import linecache
import os
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit import published
from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm, BlockInfo, BlockSizes, Plan, Progress
from tacit.core.constructors import make_agent
from tacit.privacy.curator import Release
from tacit.privacy.standard import OneHotCounts
from tacit.privacy.statistic import Block, Floats
from tacit.store import ledger, schema
from tacit.store.store import Store
from tacit.store.values import load, record
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec

PACKAGE = str(Path(tacit.__file__).parent)
SPEC = FiniteSpec(states=2, actions=2, horizon=1, stationary=False)
PRIVACY = tacit.JointDP(epsilon=3e5, delta=1e-6)
SIZE = 4  # users of a block
CALLS = ("learn", "open", "publish", "roll_back", "forget", "successor")
KINDS = ("memory", "file", "counter")
"""Where a run is: in memory, in a file, or in a file with blocks that a counter adds up."""


@dataclass
class Tally:
    """What was tried, how often the blow fell, and what went wrong."""

    tried: int = 0
    hit: int = 0
    blocks: int = 0
    lost_runs: int = 0
    wrong_users: int = 0
    wrong_books: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost_runs or self.wrong_users or self.wrong_books)

    def add(self, other: Tally) -> None:
        """Adds what another one counted; of problems the first few are kept."""
        for name in asdict(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        del self.problems[20:]


# A run whose releases show who is in them.


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """How blocks are summed."""

    counter: str = "blocks"


@record
@dataclass(frozen=True, eq=False)
class Sums:
    """What releases add up to."""

    sums: Floats


class CountsCells(Algorithm[Sums]):
    """Asks every block who is in it."""

    name = "cells"
    Options = CellOptions

    def init(self) -> Sums:
        """Nobody."""
        return Sums(np.zeros(cells_of(self.users)))

    def plan(self, state: Sums, last: Plan | None, at: Progress, rng: Any) -> Plan:
        """Any policy."""
        policy = Policy.uniform(SPEC.horizon, SPEC.states, SPEC.actions)
        return Plan(policy, policy)

    def query(self, state: Sums, plan: Plan, block: BlockInfo) -> OneHotCounts:
        """Who they are."""
        return OneHotCounts(steps=1, cells=cells_of(self.users))

    def update(self, state: Sums, plan: Plan, release: Release, block: BlockInfo, rng: Any) -> Sums:
        """They and those before."""
        counts = release["counts"].ravel()
        return Sums(counts if self.counter != "blocks" else state.sums + counts)

    def _choose_counter(self) -> str:
        return str(self.options.counter)

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes("cells", size=SIZE)


CELLS = partial(make_agent, CountsCells)


def cells_of(users: int) -> int:
    """As many as anybody may have, in a run and its successor."""
    return max(16, 2 * users)


def users_of(first: int, users: int) -> Block:
    """Users with a cell of their own each."""
    return Block(users, {"cells": np.arange(first, first + users).reshape(-1, 1)})


@dataclass
class Run:
    """One run from its start to the end of its users, whatever happens in between."""

    folder: Path
    users: int
    kind: str = "file"
    ids: bool = True
    tally: Tally = field(default_factory=Tally)
    forgotten: set[int] = field(default_factory=set)
    given: int = 0  # users who were taken, in their order
    heir: bool = False

    def __post_init__(self) -> None:
        self.store: Store | None = Store() if self.kind == "memory" else None

    def open(self) -> Agent:
        """An agent that begins the run, or goes on with it."""
        options: dict[str, Any] = {"store": self.folder / "run.db"}
        if self.store is not None:
            options["store"] = self.store
        if self.kind == "counter":
            options["counter"] = "smooth tree"
        if self.heir:
            options["name"] = "heir"
        return CELLS(SPEC, self.users, PRIVACY, **options)

    def learn(self, agent: Agent, users: int) -> None:
        """The next so many users come; the journal knows how many were taken, whatever is said."""
        before, ids = agent.taken, [*range(self.given, self.given + users)]
        try:
            receipt = agent.learn(users_of(self.given, users), ids if self.ids else None)
            self.expect(receipt.counted + receipt.waiting == users, f"a receipt: {receipt}")
            self.given += users
        except BaseException as error:
            said = getattr(error, "users_taken", None)
            agent._run.view = None  # the store says it, and not what an agent remembers
            came = agent.taken - before
            if said is not None:  # else it was raised before or after all of it
                self.expect(said == came, f"{said} were said to be taken, {came} were")
            self.given = self.given + came
            raise

    def expect(self, true: bool, words: str) -> None:
        """What books and receipts must be."""
        if not true:
            self.tally.wrong_books += 1
            self.tally.problems.append(words)

    @contextmanager
    def survives(self, where: str) -> Iterator[None]:
        """A run that cannot go on is lost."""
        try:
            yield
        except Exception as wrong:
            self.tally.lost_runs += 1
            self.tally.problems.append(f"{where}: {_words(wrong)}")

    def finish(self, agent: Agent) -> None:
        """All that are left come, in portions of three."""
        while agent.step():
            pass
        while left := agent.users - agent.taken:
            self.learn(agent, min(3, left))
        self.tally.blocks += agent.releases

    def judge(self, agent: Agent) -> None:
        """Who is in which release, and whether the books say the same."""
        for problem in ledger.verify(agent.store):
            self.expect(False, problem)
        counts, charged = np.zeros(cells_of(self.users)), dict[tuple[str, int], Fraction]()
        with agent.store.read() as db:
            rows = db.execute(
                schema.releases.select().order_by(schema.releases.c.run, schema.releases.c.block)
            ).all()
            people = db.execute(schema.people.select()).all()
            left = db.execute(schema.packets.select()).all()
            entries = [e for e in ledger.read(db) if e.event == "release"]
        last = dict[str, Floats]()
        for row in rows:
            counted = load(row.value)["counts"].ravel().round()
            if self.kind == "counter":
                counted, last[row.run] = counted - last.get(row.run, 0.0), counted
            counts += counted
        for entry in entries:
            key = entry.run, entry.body["block"]
            charged[key] = charged.get(key, Fraction(0)) + Fraction(entry.body["cost"])
        limit = Fraction(PRIVACY.episode_limit) * Fraction(1 + 1e-9)
        self.expect(all(0 < cost <= limit for cost in charged.values()), f"charges {charged}")
        self.expect(len(charged) == len(rows) == len(entries), "a block was charged twice")
        self.expect(not left, f"{len(left)} packets are left")
        if self.ids:
            fates = [person.fate for person in people]
            there, gone = fates.count("released"), fates.count("forgotten")
            self.expect(len(fates) == self.given and there + gone == len(fates), f"{fates}")
        due = np.zeros(len(counts))
        due[: self.given] = 1.0
        due[[*self.forgotten]] = 0.0
        if (wrong := int(np.abs(counts - due).sum())) > 0:
            self.tally.wrong_users += wrong
            self.tally.problems.append(f"users are in releases {counts.astype(int).tolist()} times")


@contextmanager
def folder_of() -> Iterator[Path]:
    """A folder for a run; in memory, where there is one."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


# Exceptions at every line.


class AtLine:
    """Raises at the n-th line of Tacit that is run while this is on."""

    def __init__(self, place: int, error: type[BaseException]) -> None:
        self.left, self.error, self.where = place, error, ""
        self._seen: dict[Any, set[int]] = {}  # lines by frame: a generator's is entered twice

    def __enter__(self) -> AtLine:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE):
            return None
        seen = self._seen.setdefault(frame, set())

        def line(frame: Any, event: str, _: object) -> Any:
            if event == "line":
                text = linecache.getline(name, frame.f_lineno).lstrip()
                leaving = text.startswith("with ") and frame.f_lineno in seen
                leaving |= text.startswith("try:")
                seen.add(frame.f_lineno)
                self.left -= 1
                if self.left <= 0 and not self.where and not leaving:
                    self.where = f"{Path(name).name}:{frame.f_lineno} {text.strip()[:50]}"
                    sys.settrace(None)
                    raise self.error("at a line")
            return line

        return line


def one_line(what: str, place: int, error: type[BaseException], again: bool, run: Run) -> bool:
    """One exception at the n-th line of a call; whether the call has so many lines.

    Then the same agent goes on, or (``again``) one that is opened.
    """
    where = f"{what}, {run.kind}, line {place}"
    fault = AtLine(place, error)
    try:
        agent = run.open()
        run.learn(agent, 3 if what == "learn" else 6)
        calls: dict[str, Callable[[], Any]] = {
            "learn": lambda: run.learn(agent, 6),
            "open": run.open,
            "publish": lambda: agent.publish(run.folder / "policy.npz"),
            "roll_back": lambda: agent.roll_back(0),
            "forget": lambda: agent.forget(5),
            "successor": lambda: agent.successor(run.users, name="heir"),
        }
        try:
            with fault:
                calls[what]()
        except BaseException:  # what was raised, or what became of it on its way
            if not fault.where:
                raise
        where += f" ({fault.where}), {error.__name__}, {'opened' if again else 'the same'}"
        if again and run.store is None:
            agent = run.open()
        if what == "forget":
            agent.forget(5)  # twice does no harm
            run.forgotten.add(5)
        if what == "publish" and (run.folder / "policy.npz").exists():
            run.expect(published.about(run.folder / "policy.npz") is not None, "half a file")
        if what == "successor":
            run.heir = True
            with suppress(tacit.HorizonExceeded):  # it has one
                agent.successor(run.users, name="heir")
            agent = run.open()
        run.finish(agent)
        run.judge(agent)
    except Exception as wrong:
        run.tally.lost_runs += 1
        run.tally.problems.append(_words(wrong))
    run.tally.problems = [f"{where}: {text}" for text in run.tally.problems]
    run.tally.hit += bool(fault.where)
    if run.store is None:
        with suppress(Exception):
            agent.store.close()
    return bool(fault.where)


def _words(error: Exception) -> str:
    """What was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
    return f"{type(error).__name__}: {error} ({where})"


def lines(what: str, kind: str, stride: int = 1) -> Tally:
    """An exception at every ``stride``-th line of a call; kinds and ways to go on take turns."""
    tally, places = Tally(), itertools.count(1, stride)
    for n, place in enumerate(places):
        with folder_of() as folder:
            run = Run(folder, 10, kind, ids=what == "forget" or n % 4 < 2)
            error = (KeyboardInterrupt, MemoryError)[n % 2]
            reached = one_line(what, place, error, bool(n // 2 % 2), run)
        tally.add(run.tally)
        tally.tried += 1
        if not reached:
            return tally
    return tally


# Threads.


def threads(count: int, blocks: int, kind: str) -> Tally:
    """So many threads on one agent or, every second one, on an agent of its own."""
    tally = Tally(tried=1)
    with folder_of() as folder:
        run = Run(folder, blocks * SIZE, kind)
        agent, turn, taken = run.open(), itertools.count(), list[int]()

        def serve(number: int) -> None:
            mine = run.open() if run.store is None and number % 2 else agent
            while (user := next(turn)) < run.users:
                with run.survives(f"user {user}"):
                    receipt = mine.learn(users_of(user, 1), [user])
                    taken.append(receipt.counted + receipt.waiting)

        working = [threading.Thread(target=serve, args=(n,)) for n in range(count)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        run.given = run.users
        run.expect(sum(taken) == run.users, f"receipts say that {sum(taken)} were taken")
        with run.survives("threads"):
            agent._run.view = None
            while agent.step():
                pass
            run.tally.blocks += agent.releases
            run.expect(agent.served == run.users, f"{agent.served} were served")
            run.judge(agent)
    tally.add(run.tally)
    return tally


# Power: all that a disk may hold after it fails.


def recorded(folder: str) -> None:
    """A run in a file, for :func:`power`; after each call a line says how many were taken."""
    warnings.simplefilter("ignore")
    run = Run(Path(folder), 14, "file")
    with open(Path(folder) / "acks", "w", buffering=1) as acks:
        agent = run.open()
        print(0, file=acks)
        for turn in range(5):
            run.learn(agent, 3 if turn < 4 else 2)
            print(run.given, file=acks)
            if turn == 2:
                agent.roll_back(0)


_TRACED = "pwrite64,write,ftruncate,unlink"
_CALL = re.compile(
    r'(?P<call>\w+)\((?:\d+<(?P<path>[^>]*)>, )?(?:"(?P<text>[^"]*)")?'
    r"(?:\.\.\.)?(?:, )?(?P<numbers>[-\d, ]*)\) += (?P<done>\d+)"
)


def _operations(folder: Path, trace: Path) -> Iterator[tuple[str, str, bytes, int]]:
    """Call, file, bytes and number of each change of a file, in their order."""
    for line in trace.read_text().splitlines():
        found = _CALL.search(line)
        if found is None:
            continue
        name, data = (bytes.fromhex((found[n] or "").replace("\\x", "")) for n in ("path", "text"))
        path = (name or data).decode(errors="replace")
        if path.startswith(os.fspath(folder)):
            numbers = [int(n) for n in found["numbers"].split(", ") if n]
            yield found["call"], Path(path).name, data, numbers[-1] if numbers else 0


def power(stride: int = 1) -> Tally:
    """The files of a run after every prefix of what was written to them; also half of the last."""
    tally = Tally()
    with folder_of() as folder:
        trace, words = folder / "trace", "from research.campaign import library as it; "
        command = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={_TRACED}"]
        command += ["-o", os.fspath(trace), sys.executable, "-c"]
        command.append(f"{words}it.recorded({os.fspath(folder)!r})")
        subprocess.run(command, check=True)  # noqa: S603
        files, given = dict[str, bytearray](), -1
        for n, (call, name, data, at) in enumerate(_operations(folder, trace)):
            if name == "acks":
                given = int(data)
                continue
            if name.endswith("-shm"):
                continue
            held = files.setdefault(name, bytearray())
            if call == "unlink":
                del files[name]
            elif call == "ftruncate":
                held[at:] = bytes(max(0, at - len(held)))
            else:
                for part in (data[: len(data) // 2], data) if n % 5 == 0 else (data,):
                    held.extend(bytes(max(0, at + len(part) - len(held))))
                    held[at : at + len(part)] = part
                    if n % stride == 0:
                        tally.add(_after(files, given, f"power, change {n} of {name}"))
            tally.tried += 1
    return tally


def _after(files: dict[str, bytearray], given: int, where: str) -> Tally:
    """A run goes on from these files; so many were acknowledged, or it was not there."""
    with folder_of() as folder:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        run = Run(folder, 14)
        run.tally.hit = 1
        with run.survives("opened"):
            agent = run.open()
            run.given = agent.taken
            run.expect(run.given >= given, f"{given} were acknowledged, {run.given} are there")
            run.finish(agent)
            run.judge(agent)
            agent.store.close()
    run.tally.problems = [f"{where}: {text}" for text in run.tally.problems]
    return run.tally


def everything(rounds: int, stride: int) -> dict[str, Callable[[], Tally]]:
    """All of it, by name."""

    def of(parts: Iterator[Tally]) -> Tally:
        whole = Tally()
        for part in parts:
            whole.add(part)
        return whole

    counts, both = (2, 4, 8), [(what, kind) for what in CALLS for kind in KINDS]
    return {f"{what}, {kind}": partial(lines, what, kind, stride) for what, kind in both} | {
        "threads": lambda: of(threads(n, rounds, kind) for n in counts for kind in KINDS[:2]),
        "power": lambda: power(stride),
    }
