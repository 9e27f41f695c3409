"""A conformance check that anyone can run on their own agents.

``check_agent`` is what every agent of Tacit passes. It plays short simulations and looks at them
from both sides of the gate: while they run, everything that enters a curator or a stream, and
everything that comes out, is written down, or is played back in place of what would come out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from tacit.core.world import Form, World
from tacit.privacy.budget import Budget
from tacit.privacy.curator import Curator, JointCurator, JointStream, Stream
from tacit.privacy.errors import CheckFailed, DoubleSpend, InvalidArgument, require
from tacit.privacy.exact import grid_step
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.local import noise_scale, report
from tacit.privacy.statistic import Block, Bools
from tacit.simulation.run import run
from tacit.testing.check_statistic import check_statistic
from tacit.testing.gate_noise import Flips, grid_sum, measured, noise_failures, not_drawn
from tacit.testing.made_up_users import (
    Sample,
    block_of_strangers,
    hostile_blocks,
    joined,
    mixed,
    of_version,
    sampler_of,
    with_ids,
    with_public,
    with_row,
)
from tacit.testing.mechanisms import audit_counter
from tacit.testing.trial import Run, Trial
from tacit.testing.watched_gate import (
    Passage,
    WatchedGate,
    digest_of,
    require_same,
    snapshot,
)

Warn: TypeAlias = Literal["always", "error"]

# Statistics that are attacked.
_STATISTICS = 3
# Numbers of noise that are looked at, runs that they come from at most, and reports of bits.
_NOISE_VALUES, _NOISE_RUNS, _REPORTS = 2000, 20, 300
# The exact audit of a counter runs its code once per release, on matrices.
_AUDITED_RELEASES = 130


@dataclass(frozen=True)
class AgentReport:
    """What ``check_agent`` saw.

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
    """What came of one check: why it was not made, or what it found, or neither."""

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
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 1000,
    seed: int = 0,
    budget: Budget | None = None,
    sample: Sample | None = None,
) -> AgentReport:
    """Checks everything an agent promises.

    * protocol: attributes and their types; all declared users are served, releases and versions
      count up, and the agent runs on the form of data it asks for.
    * sensitivity: statistics are attacked by :func:`tacit.check_statistic`.
    * budget: everybody enters the gate once, no block spends more than an episode may, the
      guarantee is the declared budget; of users who return no more episodes count than it is for.
    * noise: what is released is the sum of the users' vectors plus one fresh draw of Tacit's
      sampler, to the last step of the grid, of the claimed law and at the scale that sensitivity
      and cost demand; in simulations and in real runs, of which no two are alike.
    * data flow: with all releases forced to be the same, other users lead to the same policies,
      questions, attributes, texts, files, return values and messages, bit for bit; a user changes
      nobody's contribution but hers, and hers in one block.
    * hostile users: no values raise, warn or touch anybody else.
    * resume: a simulation saved in the middle of a block goes on identically in a fresh agent.
    * real resume: a real run goes on with fresh noise; once, and with every cost on record, where
      there is a ledger; from a file that is there in time, where there is an autosave.

    Random checks have fixed seeds, but for real noise, which has none; that a correct agent fails
    one by chance has a probability below 1e-9.

    Args:
        make_agent: makes an agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with
            ``ledger=`` (and ``autosave=``, where it is offered) as well under joint DP; such as
            ``functools.partial(UCBVI, privacy=JointDP(1.0, 1e-6), schedule="fixed:size=100")``.
            Agents have ``load(path)`` (and ``ledger=``) beside what
            :class:`tacit.core.world.AnyAgent` asks.
        world: a small world. The check makes a few hundred short runs.
        users: how many users the agents are declared for; three releases are needed at least.
        seed: of the simulated users.
        budget: what the guarantee must state, where it is not the budget that was given.
        sample: makes hostile users for the attack on statistics; see
            :func:`tacit.check_statistic`. Made from the world's own users by default.

    Raises:
        CheckFailed: the message begins with the check's name.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(make_agent, world, Path(folder), users, seed, budget, sample)
        outcomes = []
        for outcome in _outcomes(trial):
            if outcome.failure is not None:
                raise outcome.failure
            outcomes.append(outcome)
        return AgentReport(
            str(getattr(trial.make(), "name", "agent")),
            tuple(o.name for o in outcomes if o.skipped is None),
            {o.name: o.skipped for o in outcomes if o.skipped is not None},
            len(trial.first.policies) - 1,
            tuple(trial.tightness),
        )


def agent_outcomes(
    make_agent: Callable[..., Any], world: World, **options: Any
) -> Iterator[Outcome]:
    """The checks of :func:`check_agent` one by one, whatever they find; for reports."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _outcomes(Trial(make_agent, world, Path(folder), **options))


def require_releases(agent: Any, releases: int) -> None:
    """Refuses agents that publish too seldom to be checked, but for those that ask all at once."""
    if releases < 3 and not getattr(agent, "batch", False):
        raise InvalidArgument(
            f"users is {agent.users}, for which this agent publishes {releases} times; the check "
            "needs 3: give more users, or another schedule"
        )


def _outcomes(trial: Trial) -> Iterator[Outcome]:
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
        ("real resume", check_real, noiseless),
    ]
    try:
        first: Run = _guarded("protocol", lambda: trial.first)
    except CheckFailed as error:
        # Without a run there is nothing to look at.
        yield Outcome("protocol", None, error)
        return
    require_releases(trial.make(), len(first.blocks))
    for name, check, reason in checks:
        failure = None
        if reason is None:
            try:
                _guarded(name, partial(check, trial))
            except CheckFailed as error:
                failure = error
        yield Outcome(name, reason, failure)


def _guarded(name: str, check: Callable[[], Any]) -> Any:
    """Whatever a check raises is a failure of this name."""
    try:
        return check()
    except CheckFailed as error:
        message = str(error)
        prefixed = message.startswith(f"{name}: ")
        raise CheckFailed(message if prefixed else f"{name}: {message}") from error
    except Exception as error:
        raise CheckFailed(f"{name}: it raised {type(error).__name__}: {error}") from error


# The protocol of agents.


def check_protocol(trial: Trial) -> None:
    """Attributes, types, order; the loop serves everybody."""
    agent = trial.make()
    kinds: dict[str, Any] = {
        "users": int,
        "block_users": int,
        "releases": int,
        "guarantee": Guarantee if trial.privacy.private else type(None),
    }
    for name, kind in kinds.items():
        value = getattr(agent, name)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        require(fits, f"{name} is {value!r}, but must be of type {kind.__name__}")
    forms, spec = get_args(Form), trial.world.spec
    require(agent.form in forms, f"form is {agent.form!r}, but must be one of {forms}")
    require(
        agent.users == trial.users and agent.releases == 0 and agent.block_users >= 1,
        f"made for {trial.users} users, a fresh agent states users = {agent.users}, "
        f"releases = {agent.releases} and block_users = {agent.block_users}",
    )
    require(agent.spec == spec, f"spec is {agent.spec!r}, but the world's is {spec!r}")
    served = sum(block.users for block in trial.first.blocks)
    require(served == trial.users, f"{served} users were served, {trial.users} were declared")
    versions = [policy.version for policy in trial.first.policies]
    increase = all(a < b for a, b in pairwise(versions))
    require(increase, f"versions of published policies must increase, got {versions}")
    trial.same("the same seeds again", trial.play())
    agent = trial.make()
    served = int(run(agent, trial.world, trial.seed, progress=False).served[-1])
    everybody = served == trial.users and agent.block_users == 0
    require(everybody, f"tacit.run served {served} of {trial.users} users")
    trial.publish(agent, trial.folder / "policy")
    require((trial.folder / "policy").stat().st_size > 0, "publish wrote an empty file")


# Who is counted, how far one user can move a sum, and what her part in it costs.


def check_sensitivity(trial: Trial) -> None:
    """One user moves a sum by no more than was declared, and sums are sums."""
    passages = trial.first.gate.passages
    distinct: dict[str, int] = {}
    for place, passage in enumerate(passages):
        distinct.setdefault(passage.statistic.fingerprint, place)
    places = list(distinct.values())
    some = {places[0], places[len(places) // 2], places[-1]}
    for place in sorted(some)[:_STATISTICS]:
        passage = passages[place]
        raw = trial.first.gate.blocks[passage.gate, passage.blocks[-1]]
        own = sampler_of(raw, trial.first.policies[passage.blocks[-1]])
        found = check_statistic(
            passage.statistic, mixed(trial.sample, own), users=100, rounds=15, seed=trial.seed
        )
        trial.tightness.append(max(found.tightness.values()))


def check_budget(trial: Trial) -> None:
    """Everybody is counted as often as the guarantee allows for, and pays for it."""
    guarantee, privacy = trial.make().guarantee, trial.privacy
    declared = trial.budget or Budget(privacy.epsilon, privacy.delta)
    stated = Budget(guarantee.epsilon, guarantee.delta)
    near = abs(stated.epsilon - declared.epsilon) <= 1e-9 * declared.epsilon
    require(
        near and stated.delta == declared.delta,
        f"the guarantee states {stated}, but the budget is {declared}",
    )
    for name in ("relation", "episodes_per_user"):
        stands, asked = getattr(guarantee, name), getattr(privacy, name)
        require(stands == asked, f"the guarantee is for {name} {stands}, not {asked}")
    gate, limit = trial.first.gate, None
    if privacy.joint:
        given = {"epsilon": declared.epsilon, "delta": declared.delta}
        limit = dataclasses.replace(privacy, **given).episode_limit
    entered = sum(block.users for block in gate.blocks.values())
    require(
        entered <= trial.users,
        f"{trial.users} users came, and {entered} entered the gate: somebody entered twice",
    )
    spent: dict[tuple[Curator, int], float] = {}
    streams: set[tuple[Stream, int]] = set()
    for passage in gate.passages:
        if not isinstance(passage.gate, JointCurator):
            continue
        for number in passage.blocks:
            if passage.stream is not None:
                first = (passage.stream, number) not in streams
                require(first, f"block {number} entered stream {passage.stream.name} twice")
                streams.add((passage.stream, number))
            spent[passage.gate, number] = passage.gate.spent(number)
    for (_, number), cost in spent.items():
        within = limit is not None and cost <= limit * (1.0 + 1e-9)
        require(within, f"block {number} has spent {cost:.6g}, an episode has {limit}")
    _check_returning(trial)


def _check_returning(trial: Trial) -> None:
    """Of users who come too often only the episodes count that the guarantee is for.

    With ids that return, within blocks and between them, the gate must hold the rows of first
    comers, and no others, of what it holds without ids.
    """
    rng = trial.rng(6)
    if isinstance(trial.world.simulate(trial.first.policies[0], 1, rng, "episodes"), Block):
        return
    ids = [
        rng.integers(0, max(1, trial.users // 2), block.users).tolist()
        for block in trial.first.blocks
    ]
    users = [with_ids(block, who) for block, who in zip(trial.first.blocks, ids, strict=True)]
    returning = trial.play(users=users, script=trial.first.script)
    once = getattr(trial.privacy, "disjoint", False)
    counted = _counted(ids, trial.privacy.episodes_per_user, once)
    pairs = zip(_by_curator(trial.first), _by_curator(returning), strict=True)
    for everybody, admitted in pairs:
        # An agent may take its users to the gate in a way of its own.
        if everybody.users != counted.size:
            continue
        expected = everybody.take(counted)
        require(
            admitted.users == expected.users,
            f"of {counted.size} users, some of whom came again, {admitted.users} episodes are "
            f"counted, not {expected.users}: ids do not reach the gate",
        )
        for name, array in expected.arrays.items():
            require(
                array.tobytes() == np.asarray(admitted[name], dtype=array.dtype).tobytes(),
                f"of users who came again other episodes are counted than the first "
                f"({name} differ): ids at the gate are not those of their rows",
            )


def _counted(ids: Sequence[Sequence[int]], most: int, once_per_block: bool) -> Bools:
    """Which rows of all blocks count, if nobody counts more often than that."""
    seen: Counter[int] = Counter()
    kept = []
    for block in ids:
        here: set[int] = set()
        for user in block:
            kept.append(seen[user] < most and not (once_per_block and user in here))
            seen[user] += kept[-1]
            here.add(user)
    return np.array(kept, dtype=bool)


def _by_curator(run: Run) -> list[Block]:
    """All that entered each curator, in its order."""
    found: dict[Curator, list[Block]] = {}
    for (curator, _), block in run.gate.blocks.items():
        found.setdefault(curator, []).append(block)
    return [joined(blocks) for blocks in found.values()]


# Noise, and the counters that it goes through.


def check_noise(trial: Trial) -> None:
    """It is what was drawn, at the scale that sensitivity and cost demand, also in real runs."""
    gate, privacy = trial.first.gate, trial.privacy
    audited: set[Stream] = set()
    for passage in gate.passages:
        if isinstance(passage.stream, JointStream) and passage.stream not in audited:
            audited.add(passage.stream)
            _audit_stream(passage.stream, passage)
    if privacy.local:
        _check_reports(trial)
    values = runs = 0
    while runs < _NOISE_RUNS and values < _NOISE_VALUES:
        played = trial.first if runs == 0 else trial.play(trial.make(runs), stream=runs)
        found = measured(played.gate)
        wrong = noise_failures(found)
        require(not wrong, "; ".join(wrong[:3]))
        values, runs = values + sum(one.noise.size for one in found), runs + 1
    if privacy.joint:
        _check_real_noise(trial)


def _check_reports(trial: Trial) -> None:
    """Reports of devices have the noise, or the flipped bits, that is claimed."""
    privacy, passage = trial.privacy, trial.first.gate.passages[0]
    statistic = passage.statistic
    users = trial.first.gate.blocks[passage.gate, passage.blocks[0]]
    flips = Flips.of(statistic, privacy) if privacy.reports_bits else None
    for i in range(_REPORTS if flips else 1):
        user = users.take(slice(i % users.users, i % users.users + 1))
        with WatchedGate().open() as gate:
            sent = report(statistic, user, privacy, noise_seed=i)
        if flips is not None:
            flips.add(sent, statistic.contributions(user)[0])
            continue
        step = grid_step(statistic, privacy.norm)
        scale = noise_scale(statistic, privacy) / step
        whole, is_open = grid_sum(statistic, user, step)
        words = not_drawn(
            "a report", sent / step - whole, is_open, (*gate.drawn,), privacy.needs_l1, scale
        )
        require(words is None, str(words))
    wrong = [] if flips is None else flips.wrong
    require(not wrong, "; ".join(wrong))


def _check_real_noise(trial: Trial) -> None:
    """It is what was drawn, from no seed that somebody could know, and never the same."""
    released = []
    for _ in range(2):
        gate = trial.play(trial.make(real=True)).gate
        released.append(gate.passages[0].release)
        wrong = noise_failures(measured(gate))
        seeded = any(draw.seeded for passage in gate.passages for draw in passage.drawn)
        wrong += ["noise is drawn from a seed: it can be computed"] if seeded else []
        require(not wrong, f"in real runs, {'; '.join(wrong[:3])}")
    parts = released[0].parts
    same = [name for name in parts if np.array_equal(parts[name], released[1][name])]
    require(not same, f"two real runs release the same {', '.join(same)}")


def _audit_stream(stream: JointStream, passage: Passage) -> None:
    counter, privacy = stream.counter, stream._curator.privacy
    needed = stream.statistic.sensitivity(privacy.relation, privacy.norm)
    covered = stream.step * counter.sensitivity
    require(
        covered >= needed * (1.0 - 1e-12),
        f"the counter's sensitivity is {covered:.6g}, the statistic's is {needed:.6g}",
    )
    if counter.releases is None or counter.releases > _AUDITED_RELEASES:
        return
    audit, cost = audit_counter(counter), passage.release.cost
    paid = cost is not None and audit.cost <= cost * (1.0 + 1e-9)
    require(paid, f"the stream charges {cost}, but {audit}")


# What is public depends on releases alone, whoever the users are and whatever they send.


def check_data_flow(trial: Trial) -> None:
    """Given the releases, other users change nothing that anybody can see."""
    rng = trial.rng(3)
    pool = joined(trial.first.blocks)
    strangers = [
        with_public(block, block_of_strangers(block, rng, pool), trial.private_columns)
        for block in trial.first.blocks
    ]
    _replay(trial, "with everybody replaced", strangers)
    last = len(trial.first.blocks) - 1
    for where in sorted({0, last // 2, last}):
        row = int(rng.integers(0, trial.first.blocks[where].users))
        _one_changed(trial, "one user replaced", where, row, strangers[where])
    for where in sorted({0, last // 2, max(0, last - 1), last}):
        _block_changed(trial, where, strangers[where])


def _replay(trial: Trial, what: str, users: Sequence[Block], warn: Warn = "always") -> Run:
    """The same releases with other users: everything public must be the same."""
    same = f"the releases were the same {what}"
    try:
        other = trial.play(users=users, script=trial.first.script, show=True, warn=warn)
    except Exception as error:
        raise CheckFailed(f"{same}, and yet it raised {type(error).__name__}: {error}") from error
    trial.same(same, other, trial.again)
    mine, theirs = trial.first.gate.passages, other.gate.passages
    for place, (asked, also) in enumerate(zip(mine, theirs, strict=False)):
        require(
            asked.request == also.request,
            f"{same}, and yet another statistic, block, weight or cost was asked for at release "
            f"{place}",
        )
    as_many = len(mine) == len(theirs)
    require(as_many, f"{what}: {len(theirs)} releases instead of {len(mine)}")
    quiet = trial.again.said == other.said
    require(quiet, f"{same}, and yet what was logged or printed differs")
    for r, (one, two) in enumerate(zip(trial.again.shown, other.shown, strict=True), start=1):
        require_same(one, two, f"{same}:", f"differ at release {r}")
    return other


def _changed(trial: Trial, other: Run) -> Iterator[tuple[int, int]]:
    """Of how many users of which blocks contributions changed, release by release."""
    for one, two in zip(trial.first.gate.passages, other.gate.passages, strict=True):
        after = other.gate.contributions(two)
        for number, vectors in trial.first.gate.contributions(one).items():
            rows = int((vectors != after[number]).any(axis=1).sum())
            if rows:
                yield number, rows


def _block_changed(trial: Trial, where: int, others: Block) -> None:
    """Whoever came in one block is in no other."""
    users = list(trial.first.blocks)
    users[where] = others
    what = f"all users of block {where} replaced"
    for number, changed in _changed(trial, _replay(trial, f"with {what}", users)):
        words = f"{what}: the contributions of {changed} users of block {number} changed"
        require(number == where, f"{words}: they are in both")


def _one_changed(
    trial: Trial, what: str, where: int, row: int, others: Block, warn: Warn = "always"
) -> None:
    """Nobody's contribution but hers, in a row of a block, changes, and hers in one block."""
    users = list(trial.first.blocks)
    users[where] = with_row(users[where], row, others)
    touched: set[int] = set()
    for number, changed in _changed(trial, _replay(trial, f"with {what}", users, warn)):
        require(changed <= 1, f"{what}: the contributions of {changed} users changed")
        touched.add(number)
    require(len(touched) <= 1, f"{what}: she is in several blocks, {sorted(touched)}")


def check_hostile(trial: Trial) -> None:
    """No value raises, warns, or touches what anybody else contributes."""
    rng = trial.rng(4)
    last = len(trial.first.blocks) - 1
    hostile = [
        {
            kind: with_public(block, changed, trial.private_columns)
            for kind, changed in hostile_blocks(block, rng).items()
        }
        for block in trial.first.blocks
    ]
    for kind in hostile[0]:
        for _ in range(3):
            where = int(rng.integers(0, last + 1))
            row = int(rng.integers(0, trial.first.blocks[where].users))
            whose = f"one user's values {kind}"
            _one_changed(trial, whose, where, row, hostile[where][kind], "error")
        _replay(trial, f"with everybody's values {kind}", [b[kind] for b in hostile], "error")
    versions = "versions" in trial.first.blocks[0].arrays and trial.private_columns is None
    # Which version somebody followed is public. Where others teach nothing they are not taken.
    if versions and not getattr(trial.make(), "masked", False):
        first = trial.first.policies[0].version
        old = [of_version(block, first) for block in trial.first.blocks]
        _one_changed(trial, "one user of an old policy", last, 0, old[last], "error")
        _replay(trial, "with everybody of an old policy", old, "error")


# What is on disk: saves that go on as they should, ledgers that know every cost.


def check_resume(trial: Trial) -> None:
    """A simulation that was saved goes on as if it had not been."""
    path, agent = trial.folder / "state", trial.make()
    # In the middle of a block, and not of the first one where there are several.
    middle = len(trial.first.blocks) // 2
    block = trial.first.blocks[middle]
    half = block.users // 2
    for earlier in trial.first.blocks[:middle]:
        agent.learn(earlier)
    if half:
        agent.learn(block.take(slice(0, half)))
    agent.save(path)
    before = snapshot(agent)
    # Another seed: everything that matters must be in the file.
    fresh = trial.make(1)
    fresh.load(path)
    after = snapshot(fresh)
    # What is made by planning need not be in the file.
    known = {name: value for name, value in before.items() if name in after}
    require_same(known, after, "right after loading,")
    fresh.learn(block.take(slice(half, block.users)))
    require_same(trial.first.snapshots[middle + 1], snapshot(fresh), "one release after loading,")
    rest = trial.play(fresh, users=trial.first.blocks[middle + 1 :])
    expected = dataclasses.replace(trial.first, snapshots=trial.first.snapshots[middle + 1 :])
    trial.same("going on after loading", rest, expected)


def check_real(trial: Trial) -> None:
    """A real run goes on with fresh noise, once, and every cost is on disk."""
    block = trial.first.blocks[0]
    agent = trial.make(real=True)
    if trial.privacy.local:
        with contextlib.suppress(InvalidArgument):
            agent.learn(block)
            raise CheckFailed("a real local curator takes raw data")
        return
    path, ledger = trial.folder / "real", trial.folder / "ledger"
    real = not agent.guarantee.simulation_only
    require(real, "without noise_seed the guarantee says that it is a simulation")
    half = block.users // 2
    before, after = block.take(slice(0, half)), block.take(slice(half, block.users))
    if len(trial.first.blocks) > 1:
        before, after = trial.first.blocks[:2]
    agent.learn(before)
    agent.save(path)
    released = []
    for _ in range(2):
        fresh = trial.make(real=True)
        fresh.load(path)
        with WatchedGate().open() as gate:
            fresh.learn(after)
        released.append(gate.passages[0].release)
    parts = released[0].parts
    fresh_noise = any(not np.array_equal(parts[name], released[1][name]) for name in parts)
    require(fresh_noise, "a real run that is resumed twice draws the same noise twice")
    agent = trial.make(real=True, ledger=ledger)
    with WatchedGate().open() as gate:
        agent.learn(before)
    agent.save(path)
    trial.make(real=True).load(path, ledger=ledger)
    for what, options in (("again", {"ledger": ledger}), ("without its ledger", {})):
        try:
            trial.make(real=True).load(path, **options)
        except DoubleSpend:
            continue
        raise CheckFailed(f"a save with a ledger was resumed {what}")
    _check_ledger(gate, ledger)
    _check_autosave(trial, before)


def _check_ledger(gate: WatchedGate, path: Path) -> None:
    """It knows of every block what the curator knows."""
    require(path.exists(), "a ledger was given, and there is none after a release")
    ledger = Ledger.open(path)
    for curator, number in gate.blocks:
        if not isinstance(curator, JointCurator):
            continue
        recorded, spent = ledger.spent(curator.accounts.keys[number]), curator.spent(number)
        require(
            spent > 0.0 and math.isclose(recorded, spent, rel_tol=1e-9),
            f"block {number} has spent {spent:.6g}, and its ledger says {recorded:.6g}",
        )


def _check_autosave(trial: Trial, block: Block) -> None:
    """After a release the file is there, and a fresh agent goes on from it."""
    path = trial.folder / "autosave"
    try:
        agent = trial.make(real=True, autosave=path)
    except (TypeError, InvalidArgument):
        # Not every agent offers it.
        return
    agent.learn(block)
    require(path.exists(), "autosave was given, and there is no file after a release")
    fresh = trial.make(real=True)
    fresh.load(path)
    require(
        fresh.releases == agent.releases and digest_of(fresh.policy) == digest_of(agent.policy),
        f"after {agent.releases} releases the file of autosave leads to another policy, "
        f"that of {fresh.releases}",
    )
