"""Kills a learning process again and again, and checks that nothing is spent or told twice.

    python -m benchmarks.crash --kills 300

A child process runs UCBVI on riverswim with real noise, a ledger and autosave, and is killed
(SIGKILL): at a random moment, or at a chosen call that writes, flushes, renames or removes a file
(before it, after it, or in the middle of a write, with some of the bytes on disk). The next child
resumes. Every child notes what it fed and what it published, in a file that is not part of what is
tested. After every kill the parent checks these notes, the ledger and the state:

* a policy version is published as one policy, and a release as one release, whatever happened;
* what was published is known to the next child: it was on disk before;
* a block of users is released once, and every user is in the sums once, also if a child feeds her
  again because it cannot know whether she was counted (the noise is so small here that the sums
  tell);
* the ledger is whole, nobody has spent more than the limit, and every release was paid for;
* the guarantee is the same in every life;
* a copy of a state that was resumed is refused, and a state that was not is never refused.

Children are forked from a process that holds no agent, so a kill costs no start of an interpreter.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from tacit.privacy import storage
from tacit.privacy.errors import CorruptFile, DoubleSpend
from tacit.privacy.storage import read_state
from tacit.tabular import riverswim

WORLD = riverswim(3, 4)
BLOCK, BLOCKS = 10, 12
# So large that the noise of a sum is far below one user's part in it: a total of counts has a
# standard deviation below 0.2, and half a user, the threshold, is 2.
PRIVACY = tacit.JointDP(epsilon=3e5, delta=1e-6)
POPULATION = tacit.JointDP(epsilon=4e5, delta=1e-6)
_CALLS = ("write", "fsync", "replace", "link", "unlink", "ftruncate")


@dataclass
class Life:
    """How one child lives and dies.

    Attributes:
        call: at which of its calls that touch files it is killed; 0 for never.
        moment: ``"before"`` the call, ``"after"`` it, or ``"torn"``: in the middle of a write.
        delay: after how many seconds it is killed if no call does it.
    """

    call: int = 0
    moment: str = "before"
    delay: float = 60.0


@dataclass
class Tally:
    """What happened, over all runs."""

    kills: int = 0
    resumed: int = 0
    finished: int = 0
    releases: int = 0
    lost_blocks: int = 0
    restarted: int = 0
    stranded: int = 0
    refused_copies: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.resumed} resumed, {self.restarted} before the first save, "
            f"{self.stranded} runs lost; {self.releases} releases published, {self.lost_blocks} "
            f"blocks lost; {self.refused_copies} second resumes refused; "
            f"{len(self.problems)} problems"
        )


@dataclass(frozen=True)
class Case:
    """One kind of run: by which counter, with which ledger, and what a child does after a crash."""

    counter: str
    people: bool
    again: bool  # feeds the users of an interrupted block again, instead of new ones

    def agent(self, folder: Path) -> tacit.UCBVI:
        """A new agent, or the one whose state is in the folder."""
        ledger, state = folder / "ledger", folder / "state"

        def make(**files: Path) -> tacit.UCBVI:
            return tacit.UCBVI(
                WORLD.spec,
                BLOCK * BLOCKS,
                PRIVACY,
                schedule=f"fixed:size={BLOCK}",
                counter=self.counter,
                stationary=True,
                **files,
            )

        if state.exists():
            return make().load(state, ledger=ledger, autosave=state)
        if ledger.exists() and not self.people:
            # Killed before its first save: it has fed nobody, and nobody else has.
            ledger.unlink()
        return make(ledger=ledger, autosave=state)


CASES = tuple(
    Case(counter, people, again)
    for counter in ("auto", "binary tree")
    for people in (False, True)
    for again in (False, True)
)


# The child.


def live(case: Case, folder: Path, life: Life) -> None:
    """Serves users until all are through; notes what it feeds and publishes."""
    write = os.write
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: str, **content: Any) -> None:
        write(notes, json.dumps({"kind": kind} | content).encode() + b"\n")

    def publish(agent: tacit.UCBVI, kind: str) -> None:
        last, policy = agent._curator.last_release, agent.policy
        note(
            kind,
            version=policy.version,
            policy=_digest(policy.actions),
            index=-1 if last is None else last.index,
            release="" if last is None else _digest(*(last[part] for part in sorted(last.parts))),
            total=0.0 if last is None else float(last["transitions"].sum()),
            guarantee=str(agent.guarantee),
        )

    if life.call:
        _die_at(life)
    agent = case.agent(folder)
    publish(agent, "open")
    rng = np.random.default_rng()
    first = _next_user(folder, case.again)
    while agent.block_users > 0:
        size = agent.block_users
        episodes = WORLD.simulate(agent.policy, size, rng, "episodes")
        note("feed", first=first, users=size)
        agent.learn(episodes, [*range(first, first + size)])
        publish(agent, "publish")
        first += size


def _next_user(folder: Path, again: bool) -> int:
    feeds = [line for line in _notes(folder) if line["kind"] in ("feed", "publish")]
    if not feeds:
        return 0
    last = [line for line in feeds if line["kind"] == "feed"][-1]
    through = feeds[-1]["kind"] == "publish"
    return int(last["first"]) if again and not through else int(last["first"] + last["users"])


def _die_at(life: Life) -> None:
    """Lets the chosen call kill this process."""
    count = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def dying(call: Callable[..., Any], tear: Callable[..., Any] | None = None) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count != life.call:
                return call(*args, **options)
            if life.moment == "torn" and tear is not None:
                tear(*args)
            elif life.moment == "after":
                call(*args, **options)
            return die()

        return wrapped

    for name in _CALLS:
        real = getattr(os, name)
        tear = (lambda to, data, real=real: real(to, _part(data))) if name == "write" else None
        setattr(os, name, dying(real, tear))

    def opened(*args: Any, **options: Any) -> Any:
        file = open(*args, **options)  # noqa: SIM115
        if "w" not in file.mode:
            return file
        return _File(file, dying(file.write, lambda data: (file.write(_part(data)), file.flush())))

    storage.open = opened  # type: ignore[attr-defined]


class _File:
    """A file whose write may kill."""

    def __init__(self, file: Any, write: Callable[[bytes], int]) -> None:
        self._file, self.write = file, write
        self.flush, self.fileno = file.flush, file.fileno

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _part(data: bytes) -> bytes:
    return data[: random.randint(1, len(data) - 1)]  # noqa: S311


def _digest(*arrays: Any) -> str:
    joined = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return hashlib.sha256(joined).hexdigest()[:16]


# The parent.


def _forked(work: Callable[[], None], folder: Path, delay: float = 60.0) -> int:
    """Runs ``work`` in a child; its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            with open(folder / "error", "w") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(code)
    deadline = time.monotonic() + delay
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))


def _notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "notes"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def _lives(rng: random.Random) -> Iterator[Life]:
    """Every second one dies at one of its first calls, in all three ways; the others at random."""
    deaths = [(call, moment) for call in range(1, 37) for moment in ("before", "torn", "after")]
    while True:
        rng.shuffle(deaths)
        for call, moment in deaths:
            yield Life(call=call, moment=moment)
            yield Life(delay=rng.uniform(0.0, 0.3))


def kill_many(
    kills: int, seed: int = 0, say: Callable[[str], None] | None = None, cases: Any = CASES
) -> Tally:
    """Kills children until enough died; what happened, with every problem found."""
    rng, tally = random.Random(seed), Tally()  # noqa: S311
    lives = _lives(rng)
    _warm_up()
    number = 0
    while tally.kills < kills:
        case = cases[number % len(cases)]
        number += 1
        with tempfile.TemporaryDirectory(prefix="tacit-crash-") as name:
            folder = Path(name)
            if case.people:
                tacit.Ledger.create_for_people(folder / "ledger", POPULATION)
            try:
                _one_run(case, folder, lives, kills, tally)
                found = examine(case, folder, tally)
            except CorruptFile as error:
                found = [str(error)]
            tally.problems += [f"{case}: {problem}" for problem in found]
        if say is not None:
            say(str(tally))
        if tally.problems:
            break
    return tally


def _one_run(case: Case, folder: Path, lives: Iterator[Life], kills: int, tally: Tally) -> None:
    """One agent from its first start until it is through, or until enough were killed."""
    while tally.kills < kills:
        state, copy = folder / "state", folder / "copy"
        before = state.exists()
        if before:
            shutil.copyfile(state, copy)
        life = next(lives)
        code = _forked(lambda life=life: live(case, folder, life), folder, life.delay)  # type: ignore[misc]
        if code == 1 and _is_stranded(folder):
            tally.stranded += 1
            return
        if code not in (0, -signal.SIGKILL):
            error = folder / "error"
            tally.problems.append(
                f"{case}, {life}: code {code}\n{error.read_text() if error.exists() else ''}"
            )
            return
        if code:
            tally.kills += 1
            tally.resumed += before
            tally.restarted += not before
        if before:
            _try_copy(folder, tally)
        if code == 0:
            tally.finished += 1
            return


def _is_stranded(folder: Path) -> bool:
    """Whether the run was killed after a resume that had no successor, and before its next save.

    No state can be resumed then; nothing is told twice, but the run is over.
    """
    if not (folder / "ledger").exists():
        return False
    last = tacit.Ledger.open(folder / "ledger").entries[-1:]
    return any(entry.event == "resume" and not entry.successor for entry in last)


def _try_copy(folder: Path, tally: Tally) -> None:
    """A copy of a state that was resumed must be refused."""
    ledger, copy = folder / "ledger", folder / "copy"
    token = read_state(copy, "curator").meta["token"]
    resumed = {e.label for e in tacit.Ledger.open(ledger).entries if e.event == "resume"}
    if token not in resumed:
        return  # killed before it had resumed

    def attempt() -> None:
        with contextlib.suppress(DoubleSpend):
            tacit.JointCurator.load(copy, ledger=ledger)
            raise AssertionError("a state was resumed twice")

    if _forked(attempt, folder):
        tally.problems.append(f"a copy of a resumed state: {(folder / 'error').read_text()}")
    tally.refused_copies += 1


def examine(case: Case, folder: Path, tally: Tally) -> list[str]:
    """What is wrong with a run, by its notes, its ledger and its files."""
    problems: list[str] = []

    def require(well: bool, problem: str) -> None:
        if not well:
            problems.append(problem)

    policies: dict[int, set[str]] = {}
    releases: dict[int, set[str]] = {}
    totals: dict[int, float] = {}
    blocks: dict[int, tuple[int, int]] = {}
    guarantees: set[str] = set()
    feeds: list[tuple[int, int]] = []
    known = -1
    for line in _notes(folder):
        if line["kind"] == "feed":
            feeds.append((line["first"], line["users"]))
            continue
        version, index = line["version"], line["index"]
        require(version >= known, f"version {known} was published, but {version} was resumed")
        require(version == index + 1, f"version {version} after release {index}")
        known = max(known, version)
        policies.setdefault(version, set()).add(line["policy"])
        guarantees.add(line["guarantee"])
        if index >= 0:
            releases.setdefault(index, set()).add(line["release"])
            totals[index] = line["total"]
            blocks.setdefault(index, feeds[-1])
    for version, seen in policies.items():
        require(len(seen) == 1, f"policy {version} was published as {len(seen)} policies")
    for index, seen in releases.items():
        require(len(seen) == 1, f"release {index} was published as {len(seen)} releases")
    require(len(guarantees) <= 1, f"the guarantee changed: {guarantees}")
    require([*blocks] == [*range(len(blocks))], f"releases {[*blocks]} are not one after another")
    if not case.again:
        require(len(set(blocks.values())) == len(blocks), "a block was released twice")
    counted: set[int] = set()
    expected = 0.0
    for index, (first, users) in blocks.items():
        new = set(range(first, first + users)) - counted
        counted |= new
        part = len(new) * WORLD.spec.horizon
        expected = part if case.counter == "auto" else expected + part
        require(
            abs(totals[index] - expected) < WORLD.spec.horizon / 2,
            f"release {index} counts {totals[index]:.2f} steps, and {expected} were new",
        )
    require(case.again or len(counted) == BLOCK * len(blocks), "a user was fed to two blocks")
    problems += _examine_files(case, folder, len(blocks), counted)
    tally.releases += len(blocks)
    tally.lost_blocks += len(set(feeds)) - len(set(blocks.values()))
    return problems


def _examine_files(case: Case, folder: Path, releases: int, counted: set[int]) -> list[str]:
    """What is wrong with the ledger and with what lies about."""
    problems = []
    if (folder / "ledger").exists():
        ledger = tacit.Ledger.open(folder / "ledger")  # refuses a bad line
        paid = [e for e in ledger.entries if e.event in ("charge", "pending")]
        if len(paid) < releases:
            problems.append(f"{releases} releases, but {len(paid)} were paid for")
        if ledger.max_spent > ledger.limit * (1 + 1e-9):
            problems.append(f"{ledger.max_spent} of {ledger.limit} was spent")
        if case.people and any(ledger.spent_by(user) == 0 for user in counted):
            problems.append("a user was counted who had not paid")
    for path in folder.iterdir():
        if path.name.startswith((".tacit", "state", "ledger")) and path.stat().st_mode & 0o077:
            problems.append(f"others can read {path.name}")
    return problems


def _warm_up() -> None:
    """Compiles and imports, in the parent, whatever an agent needs; this agent is then gone."""
    agent = tacit.UCBVI(
        WORLD.spec, 2 * BLOCK, PRIVACY, schedule=f"fixed:size={BLOCK}", stationary=True
    )
    rng = np.random.default_rng(0)
    while agent.block_users:
        agent.learn(WORLD.simulate(agent.policy, agent.block_users, rng, "episodes"))


def main(arguments: list[str] | None = None) -> int:
    """Kills, and prints what happened; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, not of the noise")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    terminal = sys.stderr.isatty()
    say = (lambda line: print(f"\r{line}", end="", file=sys.stderr)) if terminal else None
    tally = kill_many(given.kills, given.seed, say)
    if terminal:
        print(file=sys.stderr)
    print(json.dumps(asdict(tally)) if given.json else tally)
    for problem in tally.problems:
        print(problem, file=sys.stderr)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
