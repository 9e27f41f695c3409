"""A conformance check that anyone can run on their own agents.

``check_agent`` is what every agent of Tacit passes. It plays short simulations and looks at them
from both sides of the curator: while they run, all that curators are asked, draw and release is
recorded, or releases are played back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias
from unittest import mock

import numpy as np
from numpy.random import Generator
from sqlalchemy import func, select

from tacit.core.world import World
from tacit.privacy.budget import Budget
from tacit.privacy.curator import Stream
from tacit.privacy.distributed import SumPlan
from tacit.privacy.errors import CheckFailed, HorizonExceeded, InvalidArgument, require
from tacit.privacy.local import noise_scale, report
from tacit.privacy.noise import grid_step
from tacit.privacy.statistic import Block, Bools
from tacit.simulation.run import run
from tacit.store import ledger
from tacit.store.schema import blocks, packets
from tacit.store.store import Store
from tacit.testing.check_statistic import check_statistic
from tacit.testing.mechanisms import audit_counter
from tacit.testing.recording import RecordedRun, RecordingCurator, Trial, require_same, snapshot
from tacit.testing.release_noise import (
    Demanded,
    Flips,
    grid_sum,
    measured,
    noise_failures,
    not_drawn,
    secure_sum,
)
from tacit.testing.sample_users import (
    block_of_strangers,
    hostile_blocks,
    joined,
    of_version,
    sampler_of,
    with_ids,
    with_row,
)

Warn: TypeAlias = Literal["always", "error"]

# Numbers of noise that are looked at, runs that they come from at most, and reports of bits.
_NOISE_VALUES, _NOISE_RUNS, _REPORTS = 1000, 6, 300
# Transactions of a block at most, each of which is interrupted twice.
_MOST_FAULTS = 40
# The exact audit of a counter runs its code once per release, on matrices.
_AUDITED_RELEASES = 130


@dataclass(frozen=True)
class AgentReport:
    """Report of ``check_agent``.

    Checks that were made, and those that were not and why; publications of the run that was looked
    at; the largest found over the declared sensitivity, by statistic attacked.
    """

    agent: str
    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    releases: int
    tightness: tuple[float, ...]

    def __str__(self) -> str:
        lines = [f"{self.agent}: {len(self.passed)} checks passed, {self.releases} releases"]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check: why it was skipped, or what it found, or neither."""

    name: str
    skipped: str | None
    failure: CheckFailed | None

    @property
    def verdict(self) -> str:
        """In a word."""
        return "skipped" if self.skipped else "passed" if self.failure is None else "failed"

    @property
    def reason(self) -> str | None:
        """Why it was skipped, or what it found."""
        return self.skipped or (None if self.failure is None else str(self.failure))


def check_agent(
    make_agent: Callable[..., Any], world: World, *, users: int = 1000, seed: int = 0
) -> AgentReport:
    """Checks everything an agent promises.

    * protocol: all declared users are served, and releases and versions count up.
    * sensitivity: statistics are attacked by :func:`tacit.check_statistic`.
    * budget: each user is in one block, no block spends more than an episode may, the ledger
      says what was spent, the guarantee is the declared budget; of users who return no more
      episodes count than it is for, and receipts say so.
    * noise: what is released is the sum of the users' vectors plus one fresh draw of Tacit's
      sampler, to the last step of the grid, of the claimed law and at the scale that sensitivity
      and cost demand; in simulations and in real runs, of which no two are alike.
    * data flow: with all releases forced to be the same, other users lead to the same policies,
      questions, attributes, texts, files, return values and messages, bit for bit; a user changes
      no contribution but hers, and hers in one block.
    * hostile users: no values raise, warn or change the contribution of others.
    * resume: a simulation whose store is opened again in the middle of a block, or after an
      exception at any of a block's transactions, goes on identically.
    * store: a real run goes on with fresh noise; of a block that was released no episode is left;
      its ledger is right after exceptions, and after a successor took over.

    Random checks have fixed seeds, but for real noise, which has none; that a correct agent fails
    one by chance has a probability below 1e-9.

    Args:
        make_agent: makes an agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with
            ``store=`` as well; such as
            ``functools.partial(UCBVI, privacy=JointDP(1.0, 1e-6), schedule="fixed:size=100")``.
        world: a small world. The check makes a few hundred short runs.
        users: how many users the agents are declared for; three releases are needed at least.
        seed: of the simulated users.

    Raises:
        CheckFailed: the message begins with the check's name.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(make_agent, world, Path(folder), users, seed)
        outcomes = []
        for outcome in _outcomes(trial):
            if outcome.failure is not None:
                raise outcome.failure
            outcomes.append(outcome)
        return AgentReport(
            trial.make().name,
            tuple(o.name for o in outcomes if o.skipped is None),
            {o.name: o.skipped for o in outcomes if o.skipped is not None},
            len(trial.first.policies) - 1,
            tuple(trial.tightness),
        )


def agent_outcomes(
    make_agent: Callable[..., Any], world: World, *, only: Sequence[str] = (), **options: Any
) -> Iterator[Outcome]:
    """The checks of :func:`check_agent`, or some, one by one, whatever they find; for reports."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _outcomes(Trial(make_agent, world, Path(folder), **options), only)


def require_releases(agent: Any, releases: int) -> None:
    """Refuses agents that publish too seldom to be checked, but for those that ask all at once."""
    if releases < 3 and not agent.algorithm.offline:
        raise InvalidArgument(
            f"users is {agent.users}, for which this agent publishes {releases} times; the check "
            "needs 3: give more users, or another schedule"
        )


def _outcomes(trial: Trial, only: Sequence[str] = ()) -> Iterator[Outcome]:
    """All checks, one after the other; a failed one does not end it."""
    noiseless = None if trial.privacy.private else "there is no noise"
    checks: list[tuple[str, Callable[[Trial], None], str | None]] = [
        ("protocol", check_protocol, None),
        ("sensitivity", check_sensitivity, None),
        ("budget", check_budget, None if trial.privacy.private else "there is no budget"),
        ("noise", check_noise, noiseless),
        ("data flow", check_data_flow, None),
        ("hostile users", check_hostile, None),
        ("resume", check_resume, None),
        ("store", check_store, noiseless),
    ]
    if (failure := _failure("protocol", lambda _: trial.first, trial)) is not None:
        # Without a run there is nothing to look at.
        yield Outcome("protocol", None, failure)
        return
    require_releases(trial.make(), len(trial.first.blocks))
    for name, check, reason in checks:
        if not only or name in only:
            yield Outcome(name, reason, None if reason else _failure(name, check, trial))


def _failure(name: str, check: Callable[[Trial], object], trial: Trial) -> CheckFailed | None:
    """The failure that a check finds or raises, under its name."""
    try:
        check(trial)
    except Exception as error:
        raised = "" if isinstance(error, CheckFailed) else f"it raised {type(error).__name__}: "
        failure = CheckFailed(f"{name}: {raised}{str(error).removeprefix(f'{name}: ')}")
        failure.__cause__ = error
        return failure
    return None


# The protocol of agents.


def check_protocol(trial: Trial) -> None:
    """All declared users are served, in order, by versions that increase."""
    agent, spec = trial.make(), trial.world.spec
    require(
        agent.users == trial.places and agent.releases == 0 and agent.block_users >= 1,
        f"made for {trial.places} users, a fresh agent states users = {agent.users}, "
        f"releases = {agent.releases} and block_users = {agent.block_users}",
    )
    require(agent.spec == spec, f"spec is {agent.spec!r}, but the world's is {spec!r}")
    served = sum(block.users for block in trial.first.blocks)
    require(served == trial.places, f"{served} users were served, {trial.places} were declared")
    versions = [policy.version for policy in trial.first.policies]
    increase = all(a < b for a, b in pairwise(versions))
    require(increase, f"versions of published policies must increase, got {versions}")
    trial.same("the same seeds again", trial.play())
    agent = trial.make()
    served = int(run(agent, trial.world, trial.seed, progress=False).served[-1])
    everybody = served == trial.users and agent.block_users == 0
    require(everybody, f"tacit.run served {served} of {trial.users} users")
    agent.publish(trial.folder / "policy", force=True)
    require((trial.folder / "policy").stat().st_size > 0, "publish wrote an empty file")


# Who is counted, how far one user can move a sum, and what her part in it costs.


def check_sensitivity(trial: Trial) -> None:
    """One user moves a sum by no more than was declared, and sums are sums."""
    records = trial.first.recorder.records
    distinct: dict[str, int] = {}
    for place, record in enumerate(records):
        distinct.setdefault(record.statistic.fingerprint, place)
    places = list(distinct.values())
    for place in sorted({places[0], places[len(places) // 2], places[-1]}):
        record = records[place]
        raw = trial.first.recorder.blocks[record.curator, record.block]
        own = sampler_of(raw, trial.first.policies[record.block])
        found = check_statistic(record.statistic, own, users=100, rounds=15, seed=trial.seed)
        trial.tightness.append(max(found.tightness.values()))


def check_budget(trial: Trial) -> None:
    """Each user is counted as often as the guarantee allows for, and pays for it."""
    guarantee, privacy = trial.make().guarantee, trial.privacy
    declared = Budget(privacy.epsilon, privacy.delta)
    stated = Budget(guarantee.epsilon, guarantee.delta)
    near = abs(stated.epsilon - declared.epsilon) <= 1e-9 * declared.epsilon
    require(
        near and stated.delta == declared.delta,
        f"the guarantee states {stated}, but the budget is {declared}",
    )
    for name in ("relation", "episodes_per_user"):
        stands, asked = getattr(guarantee, name), getattr(privacy, name)
        require(stands == asked, f"the guarantee is for {name} {stands}, not {asked}")
    recorder = trial.first.recorder
    entered = sum(block.users for block in recorder.blocks.values())
    require(
        entered <= trial.places,
        f"{trial.places} users came, and {entered} entered the curator: somebody entered twice",
    )
    streamed = [record.block for record in recorder.records if record.stream is not None]
    twice = [block for block in streamed if streamed.count(block) > 1]
    require(not twice, f"blocks {twice} entered a stream twice")
    spent = defaultdict[int, Fraction](Fraction)
    for record in recorder.records:
        cost = record.release.cost or 0.0
        price = Fraction(1) if not privacy.joint else Fraction(cost if privacy.pure else cost**2)
        spent[record.block] += price
    if privacy.joint:
        limit = privacy.episode_limit
        for number, paid in spent.items():
            within = paid <= limit * (1.0 + 1e-9)
            require(within, f"block {number} has spent {float(paid):.6g}, an episode has {limit}")
    check_ledger(trial.first.agent, spent)
    _check_returning(trial)


def check_ledger(agent: Any, spent: Mapping[int, Fraction] | None = None) -> None:
    """A ledger is one, says of every block what it spent, and nothing raw is left of it."""
    wrong = ledger.verify(agent.store)
    require(not wrong, f"the ledger: {'; '.join(wrong[:3])}")
    with agent.store.read() as db:
        entries = [e.body for e in ledger.read(db, agent.run_name) if e.event == "release"]
        done = select(blocks.c.block).where(blocks.c.stage.in_(("released", "done")))
        here = (packets.c.run == agent.run_name, packets.c.block.in_(done))
        left = db.scalar(select(func.count()).select_from(packets).where(*here))
    require(not left, f"{left} packets of episodes are left of blocks that were released")
    recorded = defaultdict[int, Fraction](Fraction)
    for body in entries:
        recorded[body["block"]] += Fraction(body["cost"])
    for number, paid in (spent or {}).items():
        words = f"{float(paid):.6g}, and the ledger says {float(recorded[number]):.6g}"
        require(recorded[number] == paid, f"block {number} has spent {words}")


def _check_returning(trial: Trial) -> None:
    """Of users who come too often only the episodes count that the guarantee is for.

    With ids that return, within blocks and between them, the curator must hold the rows of first
    comers, and no others, of those who came.
    """
    rng = trial.rng(6)
    agent, sizes = trial.make(), [block.users for block in trial.first.blocks]
    if isinstance(trial.world.simulate(trial.first.policies[0], 1, rng, "episodes"), Block):
        return
    few = max(1, trial.places // 2)
    ids = [rng.integers(0, few, size).tolist() for size in sizes]
    everybody, receipts = joined(trial.first.blocks), []
    with RecordingCurator(trial.first.script).open() as recorder:
        for block, who in zip(trial.first.blocks, ids, strict=True):
            if "versions" in block.arrays:
                block = of_version(block, agent.policy.version)
            receipts.append(agent.learn(with_ids(block, who)))
        if not agent.releases:  # one block of all: others come until it is full
            more = everybody.take(slice(0, agent.users - agent.taken))
            ids.append([*range(few, few + more.users)])
            receipts.append(agent.learn(with_ids(more, ids[-1])))
            everybody = joined([everybody, more])
    counted = _counted([who for some in ids for who in some], trial.privacy, sizes)
    expected = everybody.take(counted)
    refused, out = sum(r.refused for r in receipts), everybody.users - expected.users
    kept = sum(r.counted + r.waiting for r in receipts)
    require(
        (refused, kept) == (out, expected.users),
        f"of {everybody.users} users, some of whom came again, {out} may not count; receipts say "
        f"that {refused} do not",
    )
    admitted = joined([*recorder.blocks.values()])
    for name in expected.arrays.keys() - {"versions", "components"}:
        first = expected[name][: admitted.users]
        require(
            first.tobytes() == np.asarray(admitted[name], dtype=first.dtype).tobytes(),
            f"of users who came again other episodes are counted than the first "
            f"({name} differ): ids at the curator are not those of their rows",
        )
    check_ledger(agent)


def _counted(ids: Sequence[int], privacy: Any, sizes: Sequence[int]) -> Bools:
    """Rows that count, none more often than that; blocks fill with those who do."""
    seen, here, kept, left = Counter[int](), set[int](), list[bool](), [*sizes]
    for user in ids:
        again = privacy.separate_blocks and user in here
        kept.append(seen[user] < privacy.episodes_per_user and not again)
        if kept[-1]:
            seen[user] += 1
            here.add(user)
            left[0] -= 1
            if not left[0]:
                left, here = left[1:], set()
    return np.array(kept, dtype=bool)


# Noise, and the counters that it goes through.


def check_noise(trial: Trial) -> None:
    """It is what was drawn, at the scale that sensitivity and cost demand, also in real runs."""
    recorder, privacy = trial.first.recorder, trial.privacy
    for stream in [p.stream for p in recorder.records if p.stream is not None][-1:]:
        _audit_stream(stream)
    if privacy.local:
        _check_reports(trial)
    values = runs = 0
    while runs < _NOISE_RUNS and values < _NOISE_VALUES:
        played = trial.first if runs == 0 else trial.play(trial.make(runs), stream=runs)
        found = measured(played.recorder)
        wrong = noise_failures(found)
        require(not wrong, "; ".join(wrong[:3]))
        values, runs = values + sum(one.noise.size for one in found), runs + 1
    if privacy.joint:
        _check_real_noise(trial)
    elif not privacy.local:
        _check_sums(trial)


def _check_sums(trial: Trial) -> None:
    """A secure sum has the noise of its honest devices, and is not opened with fewer of them."""
    agent, block = trial.make(real=True), trial.first.blocks[0]
    devices, statistic, before = agent.block_users, agent.statistic, snapshot(agent)
    honest = max(1, math.ceil(trial.privacy.honest * devices))
    total, _, wrong = secure_sum(statistic, block.take(slice(0, honest)), trial.privacy, devices)
    require(not wrong, "; ".join(wrong[:3]))
    with contextlib.suppress(InvalidArgument):
        agent.learn_sum(total, stayed=honest - 1)
        raise CheckFailed(f"a sum of {honest - 1} devices is opened, {honest} must be in it")
    require_same((before, snapshot(agent)), "after a sum that was refused,")
    with RecordingCurator().open() as recorder:
        agent.learn_sum(total, stayed=honest)
    released = statistic.layout.pack(recorder.records[0].release.parts)
    expected = SumPlan.of(statistic, trial.privacy, devices).opened(total)
    # Weights of parts are multiplied in and out again, which may round.
    require(np.allclose(released, expected, rtol=1e-12), "an opened sum is not what is released")


def _check_reports(trial: Trial) -> None:
    """Reports of devices have the noise, or the flipped bits, that is claimed."""
    privacy, record = trial.privacy, trial.first.recorder.records[0]
    statistic = record.statistic
    users = trial.first.recorder.blocks[record.curator, record.block]
    flips = Flips.of(statistic, privacy) if privacy.reports_bits else None
    for i in range(_REPORTS if flips else 1):
        user = users.take(slice(i % users.users, i % users.users + 1))
        with RecordingCurator().open() as recorder:
            sent = report(statistic, user, privacy, noise_seed=i)
        if flips is not None:
            flips.add(sent, statistic.contributions(user)[0])
            continue
        step = grid_step(statistic, privacy.norm)
        whole, is_open = grid_sum(statistic, user, step)
        needs = Demanded(privacy.needs_l1, noise_scale(statistic, privacy) / step)
        words = not_drawn("a report", sent / step - whole, is_open, (*recorder.drawn,), needs)
        require(words is None, str(words))
    wrong = [] if flips is None else flips.wrong
    require(not wrong, "; ".join(wrong))


def _check_real_noise(trial: Trial) -> None:
    """It is what was drawn, from no seed that somebody could know, and never the same."""
    released = []
    for _ in range(2):
        recorder = trial.play(trial.make(real=True)).recorder
        released.append(recorder.records[0].release)
        wrong = noise_failures(measured(recorder))
        seeded = any(draw.seeded for record in recorder.records for draw in record.drawn)
        wrong += ["noise is drawn from a seed: it can be computed"] if seeded else []
        require(not wrong, f"in real runs, {'; '.join(wrong[:3])}")
    parts = released[0].parts
    same = [name for name in parts if np.array_equal(parts[name], released[1][name])]
    require(not same, f"two real runs release the same {', '.join(same)}")


def _audit_stream(stream: Stream) -> None:
    counter, privacy = stream.counter, stream._curator.privacy
    needed = stream.statistic.sensitivity(privacy.relation, privacy.norm)
    covered = stream.step * counter.sensitivity
    require(
        covered >= needed * (1.0 - 1e-12),
        f"the counter's sensitivity is {covered:.6g}, the statistic's is {needed:.6g}",
    )
    if counter.releases is None or counter.releases > _AUDITED_RELEASES:
        return
    audit, cost = audit_counter(counter), stream.cost
    paid = audit.cost <= cost * (1.0 + 1e-9)
    require(paid, f"the stream charges {cost}, but {audit}")


# What is public depends on releases alone, whoever the users are and whatever they send.


def check_data_flow(trial: Trial) -> None:
    """Given the releases, other users change nothing that anybody can see."""
    rng = trial.rng(3)
    pool = joined(trial.first.blocks)
    strangers = [block_of_strangers(block, rng, pool) for block in trial.first.blocks]
    _replay(trial, "with everybody replaced", strangers)
    _one_changed(trial, "one user of every block replaced", strangers, rng)
    for where in sorted({0, (len(strangers) - 1) // 2}):
        users = list(trial.first.blocks)
        users[where] = strangers[where]
        what = f"all users of block {where} replaced"
        for number, changed in _changed(trial, _replay(trial, f"with {what}", users)):
            words = f"{what}: the contributions of {changed} users of block {number} changed"
            require(number == where, f"{words}: they are in both")


def _replay(trial: Trial, what: str, users: Sequence[Block], warn: Warn = "always") -> RecordedRun:
    """The same releases with other users: everything public must be the same."""
    same = f"the releases were the same {what}"
    try:
        other = trial.play(users=users, script=trial.first.script, show=True, warn=warn)
    except Exception as error:
        raise CheckFailed(f"{same}, and yet it raised {type(error).__name__}: {error}") from error
    trial.same(same, other, trial.again)
    mine, theirs = trial.first.recorder.records, other.recorder.records
    for place, (asked, also) in enumerate(zip(mine, theirs, strict=False)):
        require(
            asked.request == also.request,
            f"{same}, and yet another statistic or block was asked, or its users, cost or noise "
            f"are other ones, at release {place}",
        )
    as_many = len(mine) == len(theirs)
    require(as_many, f"{what}: {len(theirs)} releases instead of {len(mine)}")
    quiet = trial.again.said == other.said
    require(quiet, f"{same}, and yet what was logged or printed differs")
    for r, (one, two) in enumerate(zip(trial.again.shown, other.shown, strict=True), start=1):
        require_same((one, two), f"{same}:", f"differ at release {r}")
    return other


def _changed(trial: Trial, other: RecordedRun) -> Iterator[tuple[int, int]]:
    """Of how many users of which blocks contributions changed, release by release."""
    for one, two in zip(trial.first.recorder.records, other.recorder.records, strict=True):
        before, after = trial.first.recorder.contributions(one), other.recorder.contributions(two)
        rows = int((before != after).any(axis=1).sum())
        if rows:
            yield one.block, rows


def _one_changed(
    trial: Trial, what: str, others: Sequence[Block], rng: Generator, warn: Warn = "always"
) -> None:
    """No contribution changes but that of one user of each block, who is another one."""
    users = [
        with_row(block, int(rng.integers(0, block.users)), other)
        for block, other in zip(trial.first.blocks, others, strict=True)
    ]
    for number, changed in _changed(trial, _replay(trial, f"with {what}", users, warn)):
        words = f"{what}: the contributions of {changed} users of block {number} changed"
        require(changed <= 1, words)


def check_hostile(trial: Trial) -> None:
    """No value raises, warns, or touches what anybody else contributes."""
    rng = trial.rng(4)
    hostile = [hostile_blocks(block, rng) for block in trial.first.blocks]
    for kind in hostile[0]:
        some = [block[kind] for block in hostile]
        _one_changed(trial, f"one user's values {kind}", some, rng, "error")
        _replay(trial, f"with everybody's values {kind}", some, "error")
    # Which version somebody followed is public. Where others teach nothing they are not taken.
    agent = trial.make()
    if "versions" in trial.first.blocks[0].arrays and not agent.algorithm.on_policy(agent.plan):
        old = [of_version(block, agent.policy.version) for block in trial.first.blocks]
        _one_changed(trial, "one user of an old policy", old, rng, "error")


# Stores: a run goes on from its store, and no user is lost or counted twice.


class Interrupted(Exception):
    """Raised by a check within an agent's transaction, or right after it."""


@contextlib.contextmanager
def interrupted(store: Store, when: int) -> Iterator[None]:
    """Raises within the n-th transaction that writes (2 n), or right after it (2 n + 1)."""
    true, left = store.write, [when]

    @contextlib.contextmanager
    def write() -> Iterator[Any]:
        with true() as db:
            yield db
            if left[0] == 0:
                raise Interrupted
            left[0] -= 1
        if left[0] == 0:
            raise Interrupted
        left[0] -= 1

    with mock.patch.object(store, "write", write):
        yield


def check_resume(trial: Trial) -> None:
    """A simulation goes on as if nothing had happened, whenever its store is opened again."""
    # In the middle of a block, and not of the first one where there are several.
    middle = len(trial.first.blocks) // 2
    block = trial.first.blocks[middle]
    half, path = block.users // 2, trial.folder / "simulated.db"
    first = trial.make(store=path)
    for earlier in trial.first.blocks[:middle]:
        first.learn(earlier)
    require_same((trial.first.snapshots[middle], snapshot(first)), "in a file,")
    if half:
        first.learn(block.take(slice(0, half)))
    before = snapshot(first)
    first.store.close()
    rest = block.take(slice(half, block.users))
    for when in range(_MOST_FAULTS):
        copied = trial.folder / "copied.db"
        shutil.copyfile(path, copied)
        agent = trial.make(store=copied)
        require_same((before, snapshot(agent)), "right after opening,")
        where = f"after an exception at transaction {when / 2:g} of a block,"
        finished = True
        try:
            with interrupted(agent.store, when):
                agent.learn(rest)
        except Interrupted as error:
            finished, taken = False, error.users_taken  # type: ignore[attr-defined]
            # The same agent goes on, or one that is opened.
            if when % 4 > 1:
                agent.store.close()
                agent = trial.make(store=copied)
            came = agent.taken - sum(b.users for b in trial.first.blocks[:middle]) - half
            require(came == taken, f"{where} {came} users are taken, the error says {taken}")
            while agent.step():
                pass
            if taken < rest.users:
                agent.learn(rest.take(slice(taken, None)))
        require_same((trial.first.snapshots[middle + 1], snapshot(agent)), where)
        if finished:
            break
        check_ledger(agent)
        agent.store.close()
    rest_of = trial.play(agent, users=trial.first.blocks[middle + 1 :])
    agent.store.close()
    expected = dataclasses.replace(trial.first, snapshots=trial.first.snapshots[middle + 1 :])
    trial.same("going on after opening", rest_of, expected)


def check_store(trial: Trial) -> None:
    """A real run goes on with fresh noise, and its ledger knows every cost and user."""
    block = trial.first.blocks[0]
    path = trial.folder / "real.db"
    agent = trial.make(real=True, store=path)
    if not trial.privacy.joint:
        with contextlib.suppress(InvalidArgument):
            agent.learn(block)
            raise CheckFailed("a real curator of devices takes raw data")
        agent.store.close()
        return
    real = not agent.guarantee.simulation_only
    require(real, "without noise_seed the guarantee says that it is a simulation")
    ids, half = [f"user {i}" for i in range(block.users)], block.users // 2
    if half:
        agent.learn(block.take(slice(0, half)), ids[:half])
    agent.store.close()
    released = []
    for name in ("one.db", "other.db"):
        shutil.copyfile(path, trial.folder / name)
        fresh = trial.make(real=True, store=trial.folder / name)
        with RecordingCurator().open() as recorder:
            fresh.learn(block.take(slice(half, None)), ids[half:])
        released.append(recorder.records[0].release)
        check_ledger(fresh)
        fresh.store.close()
    parts = released[0].parts
    fresh_noise = any(not np.array_equal(parts[name], released[1][name]) for name in parts)
    require(fresh_noise, "a real run that is gone on with twice draws the same noise twice")
    _check_successor(trial, path, ids)


def _check_successor(trial: Trial, path: Path, ids: Sequence[str]) -> None:
    """Rolled back, forgotten and succeeded, a run has each user once, and only goes forward."""
    block, agent = trial.first.blocks[0], trial.make(real=True, store=path)
    half = block.users // 2
    gone = agent.forget(ids[0]) if half else {"removed": 0}
    require(gone["removed"] == min(half, 1), f"{gone['removed']} episodes of one user were erased")
    # Her place stays, and is empty.
    agent.learn(block.take(slice(half, None)), ids[half:])
    version, served = agent.policy.version, agent.served
    agent.roll_back(version)
    forward = (agent.policy.version, agent.served) == (version + 1, served)
    require(forward and served == block.users, f"rolled back, it says that {agent.served} came")
    with contextlib.suppress(InvalidArgument):  # not every state is a start for others
        heir = agent.successor(trial.users)
        after = heir.progress
        require(after.all_served == served, f"a successor knows of {after.all_served} users")
        with contextlib.suppress(HorizonExceeded):
            agent.learn(block)
            raise CheckFailed("an agent that has a successor takes users")
        if trial.privacy.episodes_per_user == 1 and half:
            again = of_version(block, heir.policy.version) if "versions" in block.arrays else block
            receipt = heir.learn(again.take(slice(half, None)), ids[half:])
            refused = receipt.refused + receipt.retired == block.users - half
            require(refused, "a successor takes people again who had spent their budget before")
        check_ledger(heir)
    check_ledger(agent)
    agent.store.close()
