"""Kills a learning process again and again, and checks that nothing is spent or told twice.

    python -m benchmarks.crash --kills 300
    python -m benchmarks.crash --agent fitted_functional_q --kills 100
    python -m benchmarks.crash --agent all --kills 300

A child process runs an agent (:data:`KINDS`) with real noise, a ledger and autosave, and is killed
(SIGKILL): at a random moment, at a chosen call that writes, flushes, renames or removes a file
(before it, after it, or in the middle of a write, with some of the bytes on disk), or right after
a chosen charge, state or record of a save. The next child resumes. Every child notes what it fed,
paid and published, in a file that is not part of what is tested. After every kill the parent checks
these notes, the ledger and the state:

* a policy version is published as one policy, and a release as one release, whatever happened;
* what was published is known to the next child: it was on disk before;
* the releases that were published about a block cost its users no more than they have, and no more
  than the ledger says; an agent that asks once has released every block once;
* every user is in the sums once, also if a child feeds her again because it cannot know whether
  she was counted (the noise is so small here that the sums tell, where they count steps);
* the ledger is whole, nobody has spent more than the limit, and every release was paid for;
* the guarantee is the same in every life;
* a copy of a state that was resumed is refused, and a state that was not is never refused;
* a run ends with as many policies as it has blocks, less one for each kill at most.

Children are forked from a process that holds no agent, so a kill costs no start of an interpreter.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.worlds import random_system
from tacit.continuous import line
from tacit.continuous.estimate import FunctionalConstants
from tacit.core.kinds import maker
from tacit.mixture import mixture_of_models
from tacit.privacy import storage
from tacit.privacy.curators import saves as gate
from tacit.privacy.errors import CorruptFile, DoubleSpend
from tacit.privacy.storage import read_state
from tacit.tabular import riverswim

# So large that the noise of a sum is far below one user's part in it: a total of counts has a
# standard deviation below 0.2, and half a user, the threshold, is 2.
PRIVACY = tacit.JointDP(epsilon=3e5, delta=1e-6)
POPULATION = tacit.JointDP(epsilon=4e5, delta=1e-6)
_CALLS = ("write", "fsync", "replace", "link", "unlink", "ftruncate")


@dataclass(frozen=True)
class Kind:
    """An agent that is killed.

    Attributes:
        agent: its class, as a text ``"module:name"``.
        make_world: makes the world whose users it serves.
        options: of the agent.
        users: of a block.
        blocks: how many there are.
        steps_in: the part of a release whose entries add up to the steps of all users; "" for none.
        asks_once: whether a block is in one release only.
    """

    agent: str
    make_world: Callable[[], Any]
    options: tuple[tuple[str, Any], ...] = ()
    users: int = 10
    blocks: int = 12
    steps_in: str = ""
    asks_once: bool = True

    @cached_property
    def world(self) -> Any:
        """The world whose users it serves."""
        return self.make_world()

    def make(self, **files: Path) -> Any:
        """A new agent."""
        module, name = self.agent.split(":")
        more: dict[str, Any] = dict(self.options)
        more["schedule"] = f"fixed:size={self.users}"
        made = maker(getattr(importlib.import_module(module), name))
        return made(self.world.spec, self.users * self.blocks, PRIVACY, **more, **files)


KINDS = {
    "ucbvi": Kind(
        "tacit.tabular.ucbvi:UCBVI",
        partial(riverswim, 3, 4),
        (("stationary", True),),
        steps_in="transitions",
    ),
    "concurrent_psrl": Kind(
        "tacit.tabular.concurrent_psrl:ConcurrentPSRL", partial(riverswim, 3, 4), (("running", 0),)
    ),
    "policy_improvement": Kind(
        "tacit.tabular.policy_improvement:PolicyImprovement",
        partial(riverswim, 3, 4),
        blocks=6,
        asks_once=False,
    ),
    "linopt_vi": Kind(
        "tacit.mixture.linopt_vi:LinOptVI",
        partial(mixture_of_models, 3, 4, 4, 4),
        (("statistic", "model"),),
        blocks=6,
    ),
    "certainty_equivalence": Kind(
        "tacit.lq.certainty_equivalence:CertaintyEquivalence",
        partial(random_system, n=2, d=1, horizon=4),
        blocks=6,
    ),
    "fitted_functional_q": Kind(
        "tacit.continuous.fitted_functional_q:FittedFunctionalQ",
        partial(line, horizon=6),
        (("constants", FunctionalConstants(depth=0.0, fewest=3)),),
        blocks=4,
        asks_once=False,
    ),
}


@dataclass
class Life:
    """How one child lives and dies.

    Attributes:
        call: at which of its calls that touch files it is killed; 0 for never.
        moment: ``"before"`` the call, ``"after"`` it, or ``"torn"``: in the middle of a write. Or
            calls are not those that touch files: with ``"charge"`` it is killed after so many
            charges are on the ledger, with ``"state"`` after so many states are written (one comes
            with every resume), with ``"record"`` after the ledger has so many saves.
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

    def add(self, other: Tally) -> None:
        """Takes in what happened elsewhere."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.resumed} resumed, {self.restarted} before the first save, "
            f"{self.stranded} runs lost; {self.releases} releases published, {self.lost_blocks} "
            f"blocks lost; {self.refused_copies} second resumes refused; "
            f"{len(self.problems)} problems"
        )


@dataclass(frozen=True)
class Case:
    """One kind of run: with which ledger, and what a child does after a crash."""

    people: bool
    again: bool  # feeds the users of an interrupted block again, instead of new ones
    kind: str = "ucbvi"

    def agent(self, folder: Path) -> Any:
        """A new agent, or the one whose state is in the folder."""
        ledger, state = folder / "ledger", folder / "state"
        kind = KINDS[self.kind]
        if state.exists():
            return kind.make().load(state, ledger=ledger, autosave=state)
        if ledger.exists() and not self.people:
            # Killed before its first save: it has fed nobody, and nobody else has.
            ledger.unlink()
        return kind.make(ledger=ledger, autosave=state)


def cases_of(kind: str) -> tuple[Case, ...]:
    """All kinds of run of an agent."""
    return tuple(Case(people, again, kind) for people in (False, True) for again in (False, True))


CASES = cases_of("ucbvi")


# The child.


def live(case: Case, folder: Path, life: Life) -> None:
    """Serves users until all are through; notes what it feeds, pays and publishes."""
    write = os.write
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: str, **content: Any) -> None:
        write(notes, json.dumps({"kind": kind} | content).encode() + b"\n")

    def publish(agent: Any, kind: str) -> None:
        last, policies = agent._curator.last_release, (agent.policy, agent.greedy_policy)
        arrays = [agent.algorithm.policy_arrays(policy) for policy in policies]
        note(
            kind,
            version=agent.policy.version,
            policy=_digest(*(a[name] for a in arrays for name in sorted(a))),
            release=None if last is None else _told(last, steps_in),
            served=agent.served,
            guarantee=str(agent.guarantee),
        )

    steps_in = KINDS[case.kind].steps_in
    _overhear(note, steps_in)
    if life.call:
        (_die_at if life.moment in ("before", "after", "torn") else _die_after)(life)
    agent = case.agent(folder)
    publish(agent, "open")
    world, rng = KINDS[case.kind].world, np.random.default_rng()
    first = _next_user(folder, case.again)
    while agent.block_users > 0:
        size = agent.block_users
        episodes = world.simulate(agent.policy, size, rng, "episodes")
        note("feed", first=first, users=size)
        agent.learn(episodes, [*range(first, first + size)])
        publish(agent, "publish")
        first += size


def _told(release: tacit.Release, steps_in: str) -> dict[str, Any]:
    """What a release told the world."""
    total = float(release[steps_in].sum()) if steps_in in release.parts else None
    digest = _digest(*(release[part] for part in sorted(release.parts)))
    return {"index": release.index, "digest": digest, "total": total}


def _overhear(note: Callable[..., None], steps_in: str) -> None:
    """Notes which users a block has, what its releases cost, and what they told."""
    curator: Any = tacit.JointCurator
    add, charge, publish, reopen = (
        getattr(curator, name) for name in ("add", "_charge", "_publish", "_reopen")
    )

    def added(self: Any, block: Any, user_ids: Any = None) -> Any:
        number = add(self, block, user_ids)
        note("block", key=self.accounts.keys[number], first=user_ids[0], users=len(user_ids))
        return number

    def charged(self: Any, costs: Any, label: str) -> None:
        charge(self, costs, label)
        note(
            "charge",
            index=self.releases,
            costs={self.accounts.keys[b]: c for b, c in costs.items()},
        )

    def published(self: Any, release: Any) -> Any:
        publish(self, release)
        note("release", release=_told(release, steps_in))
        return release

    def reopened(self: Any, *args: Any) -> None:
        reopen(self, *args)
        if self.last_release is not None:
            # It was on disk, so it is as good as published, before anything else is asked.
            note("release", release=_told(self.last_release, steps_in))

    curator.add, curator._charge, curator._publish = added, charged, published
    curator._reopen = reopened


def _next_user(folder: Path, again: bool) -> int:
    feeds = [line for line in _notes(folder) if line["kind"] in ("feed", "publish")]
    if not feeds:
        return 0
    last = [line for line in feeds if line["kind"] == "feed"][-1]
    through = feeds[-1]["kind"] == "publish"
    return int(last["first"]) if again and not through else int(last["first"] + last["users"])


def _die_after(life: Life) -> None:
    """Kills this process when so many charges, states or saves are on disk."""
    count = 0

    def dying(call: Callable[..., Any]) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal count
            done = call(*args, **options)
            count += 1
            if count == life.call:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return done

        return wrapped

    ledger: Any = tacit.Ledger
    if life.moment == "charge":
        ledger.charge = dying(ledger.charge)
    elif life.moment == "record":
        ledger.record_save = dying(ledger.record_save)
    else:
        gate.write_state = dying(gate.write_state)  # type: ignore[attr-defined]


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


def _whole_life(case: Case) -> float:
    """How many seconds a child takes that nobody kills; moments of death are drawn from these."""
    with tempfile.TemporaryDirectory(prefix="tacit-crash-") as name:
        folder = Path(name)
        if case.people:
            tacit.Ledger.create_for_people(folder / "ledger", POPULATION)
        start = time.monotonic()
        _forked(lambda: live(case, folder, Life()), folder)
        return time.monotonic() - start


def _lives(rng: random.Random, longest: float) -> Iterator[Life]:
    """Every second one dies at one of its first calls, in all three ways; the others at random.

    Of those some die right after a charge, which is where agents that ask again lose most.
    """
    deaths = [(call, moment) for call in range(1, 37) for moment in ("before", "torn", "after")]
    deaths += [(call, moment) for call in range(1, 7) for moment in ("charge", "state", "record")]
    while True:
        rng.shuffle(deaths)
        for call, moment in deaths:
            yield Life(call=call, moment=moment)
            yield Life(delay=rng.uniform(0.0, longest))


def kill_many(
    kills: int,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    cases: Sequence[Case] = CASES,
) -> Tally:
    """Kills children until enough died; what happened, with every problem found.

    All cases are of one agent.
    """
    rng, tally = random.Random(seed), Tally()  # noqa: S311
    _warm_up(cases[0].kind)
    lives = _lives(rng, _whole_life(cases[0]))
    number = 0
    while tally.kills < kills:
        case = cases[number % len(cases)]
        number += 1
        _one_run(case, lives, kills, tally)
        if say is not None:
            say(str(tally))
        if tally.problems:
            break
    return tally


def kill_exactly(scripts: Iterable[Sequence[Life]], case: Case) -> Tally:
    """One run for each script, killed as it says and then left alone until it is through."""
    tally = Tally()
    _warm_up(case.kind)
    for script in scripts:
        _one_run(case, iter([*script, Life()]), sys.maxsize, tally)
    return tally


def _one_run(case: Case, lives: Iterator[Life], kills: int, tally: Tally) -> None:
    """One agent from its first start until it is through, or until enough were killed."""
    with tempfile.TemporaryDirectory(prefix="tacit-crash-") as name:
        folder = Path(name)
        if case.people:
            tacit.Ledger.create_for_people(folder / "ledger", POPULATION)
        before, finished = tally.kills, tally.finished
        try:
            _live_again_and_again(case, folder, lives, kills, tally)
            least = 0
            if tally.finished > finished:
                least = KINDS[case.kind].blocks - (tally.kills - before)
            found = examine(case, folder, tally, least)
        except CorruptFile as error:
            found = [str(error)]
        tally.problems += [f"{case}: {problem}" for problem in found]


def _live_again_and_again(
    case: Case, folder: Path, lives: Iterator[Life], kills: int, tally: Tally
) -> None:
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


@dataclass
class _Story:
    """What the notes of a run tell."""

    policies: dict[int, set[str]] = field(default_factory=dict)
    releases: dict[int, set[str]] = field(default_factory=dict)
    totals: dict[int, float | None] = field(default_factory=dict)
    costs: dict[int, dict[str, float]] = field(default_factory=dict)
    blocks: dict[str, range] = field(default_factory=dict)
    fed_for: dict[int, tuple[int, int]] = field(default_factory=dict)
    guarantees: set[str] = field(default_factory=set)
    feeds: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> _Story:
        story, known = cls(), -1
        for told in _notes(folder):
            if told["kind"] == "feed":
                story.feeds.append((told["first"], told["users"]))
            elif told["kind"] == "block":
                users = range(told["first"], told["first"] + told["users"])
                story.blocks[told["key"]] = users
            elif told["kind"] == "charge":
                # A later one with the same number took the place of one that nobody saw.
                if told["index"] in story.releases:
                    story.problems.append(f"release {told['index']} was paid for again")
                story.costs[told["index"]] = told["costs"]
            elif told["release"] is not None:
                index = told["release"]["index"]
                story.releases.setdefault(index, set()).add(told["release"]["digest"])
                story.totals[index] = told["release"]["total"]
            if told["kind"] in ("open", "publish"):
                version = told["version"]
                if version < known:
                    story.problems.append(f"version {known} was published, {version} was resumed")
                known = max(known, version)
                story.policies.setdefault(version, set()).add(told["policy"])
                story.guarantees.add(told["guarantee"])
                if version > 0:
                    story.fed_for.setdefault(version, story.feeds[-1])
        return story


def examine(case: Case, folder: Path, tally: Tally, least: int = 0) -> list[str]:
    """What is wrong with a run, by its notes, its ledger and its files.

    A run that is through has published ``least`` policies.
    """
    kind, story = KINDS[case.kind], _Story.of(folder)
    problems = story.problems

    def require(well: bool, problem: str) -> None:
        if not well:
            problems.append(problem)

    for version, seen in story.policies.items():
        require(len(seen) == 1, f"policy {version} was published as {len(seen)} policies")
    for index, seen in story.releases.items():
        require(len(seen) == 1, f"release {index} was published as {len(seen)} releases")
    require(len(story.guarantees) <= 1, f"the guarantee changed: {story.guarantees}")
    indices = [*story.releases]
    require(indices == [*range(len(indices))], f"releases {indices} are not one after another")
    published = max(story.policies, default=0)
    require(published >= least, f"{published} policies came of it, not {least} or more")
    if kind.asks_once:
        # The last policy may not be planned yet.
        require(published in (len(indices), len(indices) - 1), f"version {published}: {indices}")
        if not case.again:
            fed = [*story.fed_for.values()]
            require(len(set(fed)) == len(fed), "a block was released twice")
    counted = _examine_sums(case, story)
    problems += _examine_files(case, folder, story, counted)
    tally.releases += len(indices)
    tally.lost_blocks += len(set(story.feeds)) - len(set(story.fed_for.values()))
    return problems


def _examine_sums(case: Case, story: _Story) -> set[int]:
    """Whether sums that count steps count every user once; who was counted."""
    kind = KINDS[case.kind]
    owners: dict[int, str] = {}
    for index in sorted(story.releases):
        costs = story.costs.get(index, {})
        if not costs:
            story.problems.append(f"release {index} was not paid for")
            continue
        if kind.asks_once and len(costs) > 1:
            story.problems.append(f"release {index} is about {len(costs)} blocks")
        expected, largest = 0.0, max(costs.values())
        for key, cost in costs.items():
            new = sum(owners.setdefault(user, key) == key for user in story.blocks[key])
            # Gaussian costs are squares of weights.
            expected += math.sqrt(cost / largest) * new * kind.world.spec.horizon
        total = story.totals[index]
        if total is not None and abs(total - expected) >= kind.world.spec.horizon / 2:
            story.problems.append(
                f"release {index} counts {total:.2f} steps, and {expected:.2f} were new"
            )
    return set(owners)


def _examine_files(case: Case, folder: Path, story: _Story, counted: set[int]) -> list[str]:
    """What is wrong with the ledger and with what lies about."""
    problems = []
    if (folder / "ledger").exists():
        ledger = tacit.Ledger.open(folder / "ledger")  # refuses a bad line
        paid = [e for e in ledger.entries if e.event in ("charge", "pending")]
        if len(paid) < len(story.releases):
            problems.append(f"{len(story.releases)} releases, but {len(paid)} were paid for")
        if ledger.max_spent > ledger.limit * (1 + 1e-9):
            problems.append(f"{ledger.max_spent} of {ledger.limit} was spent")
        if case.people and any(ledger.spent_by(user) == 0 for user in counted):
            problems.append("a user was counted who had not paid")
        published: dict[str, float] = {}
        for index in story.releases:
            for key, cost in story.costs.get(index, {}).items():
                published[key] = published.get(key, 0.0) + cost
        for key, cost in published.items():
            if cost > min(PRIVACY.episode_limit, ledger.spent(key)) * (1 + 1e-9):
                problems.append(f"what was told of block {key} cost {cost}, and it paid less")
    for path in folder.iterdir():
        if path.name.startswith((".tacit", "state", "ledger")) and path.stat().st_mode & 0o077:
            problems.append(f"others can read {path.name}")
    return problems


def _warm_up(name: str) -> None:
    """Compiles and imports, in the parent, whatever an agent needs; this agent is then gone."""
    kind = KINDS[name]
    agent, world, rng = kind.make(), kind.world, np.random.default_rng(0)
    for _ in range(min(2, kind.blocks)):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))


def _shares(kills: int) -> dict[str, int]:
    """How many of the kills each agent gets."""
    each = kills // len(KINDS)
    shares = dict.fromkeys(KINDS, each)
    shares["ucbvi"] += kills - each * len(KINDS)
    return shares


def main(arguments: list[str] | None = None) -> int:
    """Kills, and prints what happened; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=300, help="how many (300)")
    parser.add_argument(
        "--agent", default="ucbvi", choices=[*KINDS, "all"], help="which one is killed (ucbvi)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments, not of the noise")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    terminal = sys.stderr.isatty()
    say = (lambda line: print(f"\r{line}", end="", file=sys.stderr)) if terminal else None
    shares = _shares(given.kills) if given.agent == "all" else {given.agent: given.kills}
    tally = Tally()
    for name, kills in shares.items():
        one = kill_many(kills, given.seed, say, cases_of(name))
        if len(shares) > 1 and not given.json:
            print(f"{name}: {one}")
        tally.add(one)
    if terminal:
        print(file=sys.stderr)
    if given.json:
        print(json.dumps(asdict(tally)))
    else:
        print(f"all: {tally}" if len(shares) > 1 else tally)
    for problem in tally.problems:
        print(problem, file=sys.stderr)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
