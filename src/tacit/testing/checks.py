"""The checks of :func:`tacit.check_agent`, one by one."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from tacit.core.world import Form
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.curators.gate import Curator, Stream
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import noise_scale, report
from tacit.privacy.errors import CheckFailed, DoubleSpend, HorizonExceeded, InvalidArgument, require
from tacit.privacy.exact import grid_step
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.statistic import Block, Bools, Statistic
from tacit.simulation.run import run
from tacit.testing.check_statistic import check_statistic
from tacit.testing.gate_noise import Flips, Sums, measured, noise_failures, not_drawn
from tacit.testing.made_up_users import (
    block_of_strangers,
    hostile_blocks,
    joined,
    mixed,
    of_version,
    sampler_of,
    some_rows,
    with_ids,
    with_public,
    with_row,
)
from tacit.testing.mechanisms import audit_counter
from tacit.testing.trial import Run, Trial, publish
from tacit.testing.watched_gate import (
    Passage,
    WatchedGate,
    digest_of,
    frozen_world,
    require_same,
    snapshot,
)

Warn: TypeAlias = Literal["always", "error"]

# More users than 16 bits can count.
_MANY = (1 << 15) + 7
# Statistics that are attacked.
_STATISTICS = 3
# Numbers of noise that are looked at, runs that they come from at most, and reports of bits.
_NOISE_VALUES, _NOISE_RUNS, _REPORTS = 2000, 20, 300
# The exact audit of a counter runs its code once per release, on matrices.
_AUDITED_RELEASES = 130


# The protocol of agents: attributes, portions of users, and what is refused.


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
    publish(agent, trial.folder / "policy")
    require((trial.folder / "policy").stat().st_size > 0, "publish wrote an empty file")


def check_chunks(trial: Trial) -> None:
    """Users come in any portions."""
    rng = trial.rng(1)
    agent = trial.make()
    for r, block in enumerate(trial.first.blocks):
        pieces = min(block.users, 4)
        cuts = np.sort(rng.choice(np.arange(1, block.users), pieces - 1, replace=False))
        edges = [0, *(int(cut) for cut in cuts), block.users]
        for start, stop in pairwise(edges):
            require(
                agent.block_users == block.users - start,
                f"{start} of {block.users} users came, and block_users is {agent.block_users}",
            )
            # Whoever fills a buffer again changes nobody who waits for her block.
            part = block.take(slice(start, stop)).sealed()
            agent.learn(part)
            for array in part.arrays.values():
                array.setflags(write=True)
                array.fill(0)
        where = f"users in {pieces} portions instead of one:"
        after = trial.first.snapshots[r + 1]
        require_same(after, snapshot(agent), where, f"differ at release {r + 1}")
    if len(trial.first.blocks) == 1:
        return
    # Some come late, after the next policy was published.
    block = trial.first.blocks[0]
    late = block.take(slice(0, max(1, trial.first.blocks[1].users // 2)))
    apart, together = trial.make(), trial.make()
    apart.learn(block)
    if getattr(apart, "masked", False):
        # They teach it nothing: they are not taken, and it says so.
        before = snapshot(apart)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            apart.learn(late)
        require(bool(said), f"{late.users} users of a retired version are lost without a word")
        require_same(before, snapshot(apart), "users of a retired version:")
        return
    apart.learn(late)
    together.learn(joined([block, late]))
    require_same(snapshot(apart), snapshot(together), "users of two blocks at once:")


def check_refusals(trial: Trial) -> None:
    """What cannot be taken is refused, and changes nothing."""
    agent, block = trial.make(), trial.first.blocks[0]
    half = max(1, block.users // 2)
    rest = block.take(slice(half, block.users))
    _refuse_all(trial, agent, block, trial.users)
    one = trial.world.simulate(agent.policy, 1, trial.rng(2), "episodes")
    ids = not isinstance(one, Block)
    if ids and half < block.users:
        agent.learn(with_ids(block.take(slice(0, half)), range(half)))
        trial.refuse(agent, rest, InvalidArgument, "users without ids after users with ids")
        _refuse_all(trial, agent, rest, trial.users - half)
        agent.learn(with_ids(rest, range(half, block.users)))
        later = enumerate(trial.first.blocks[1:], start=1)
        users = [with_ids(other, range(10**6 * r, 10**6 * r + other.users)) for r, other in later]
        rest_of_run = trial.play(agent, users=users)
    else:
        rest_of_run = trial.play(agent, users=trial.first.blocks)
    both = reversed(trial.first.snapshots), reversed(rest_of_run.snapshots)
    for mine, theirs in zip(*both, strict=False):
        require_same(mine, theirs, "after refusals")
    trial.refuse(agent, block.take(slice(0, 1)), HorizonExceeded)


def _refuse_all(trial: Trial, agent: Any, block: Block, most: int) -> None:
    """One user too many; each array a column short or left out, or with an axis too many."""
    first = trial.first.blocks[0]
    too_many = some_rows(first, np.arange(most + 1) % first.users)
    trial.refuse(agent, too_many, HorizonExceeded)
    for name, array in block.arrays.items():
        others = {k: a for k, a in block.arrays.items() if k != name}
        # A statistic may do without some of them.
        if array.ndim > 1:
            for wrong in ({name: array[:, :-1]}, {name: array[..., np.newaxis]}, {}):
                trial.refuse(agent, Block(block.users, others | wrong), InvalidArgument)


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
        # What adds up vectors in floats does not wrap; a fast sum of its own may.
        if place == places[0] and type(passage.statistic).total is not Statistic.total:
            _check_many(passage.statistic, found.pair)


def _check_many(statistic: Statistic, pair: Block) -> None:
    """The sum over more users than 16 bits can count is still what they add up to."""
    vectors = statistic.contributions(pair)
    longest = int(np.linalg.norm(vectors, axis=1).argmax())
    many = some_rows(pair, np.full(_MANY, longest))
    gap = np.abs(statistic.total(many) - _MANY * vectors[longest]).max()
    fits = bool(gap <= 1e-9 * _MANY * statistic.l2(Relation.ZERO_OUT))
    require(fits, f"{statistic.name}: the total of {_MANY} equal users is off by {gap:.4g}")


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
    gate, privacy, sums = trial.first.gate, trial.privacy, Sums()
    audited: set[Stream] = set()
    for passage in gate.passages:
        if isinstance(passage.stream, JointStream) and passage.stream not in audited:
            audited.add(passage.stream)
            _audit_stream(passage.stream, passage)
    if privacy.local:
        _check_reports(trial)
    values = runs = 0
    while runs < _NOISE_RUNS and values < _NOISE_VALUES:
        found = measured(
            gate if runs == 0 else trial.play(trial.make(runs), stream=runs).gate, sums
        )
        wrong = [one.wrong for one in found if one.wrong is not None]
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
        whole, is_open = Sums().of(statistic, user, step)
        words = not_drawn(
            "a report", sent / step - whole, is_open, (*gate.drawn,), privacy.needs_l1, scale
        )
        require(words is None, str(words))
    wrong = [] if flips is None else flips.wrong
    require(not wrong, "; ".join(wrong))


def _check_real_noise(trial: Trial) -> None:
    """Nobody can compute it, who knows the public seed, the clock and shared generators."""
    released = []
    for _ in range(2):
        with frozen_world():
            gate = trial.play(trial.make(real=True)).gate
        released.append(gate.passages[0].release)
        wrong = noise_failures(measured(gate))
        require(not wrong, f"in real runs, {'; '.join(wrong[:3])}")
    parts = released[0].parts
    same = [name for name in parts if np.array_equal(parts[name], released[1][name])]
    require(
        not same,
        f"two real runs with the same public seed, clock and shared generators release the "
        f"same {', '.join(same)}: their noise can be computed",
    )


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
    with warnings.catch_warnings(action="error"):
        _check_values(trial)
        _check_masks(trial)


def _check_values(trial: Trial) -> None:
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
        where = int(rng.integers(0, last + 1))
        row = int(rng.integers(0, trial.first.blocks[where].users))
        whose = f"one user's values {kind}"
        _one_changed(trial, whose, where, row, hostile[where][kind], "error")
        _replay(trial, f"with everybody's values {kind}", [b[kind] for b in hostile], "error")
    versions = "versions" in trial.first.blocks[0].arrays and trial.private_columns is None
    # Which version somebody followed is public. Where others teach nothing they are not taken; see
    # check_chunks.
    if versions and not getattr(trial.make(), "masked", False):
        first = trial.first.policies[0].version
        old = [of_version(block, first) for block in trial.first.blocks]
        _one_changed(trial, "one user of an old policy", last, 0, old[last], "error")
        _replay(trial, "with everybody of an old policy", old, "error")


def _check_masks(trial: Trial) -> None:
    """A statistic that knows its policy counts those who followed it, in both senses."""
    gate = trial.first.gate
    for place, passage in enumerate(gate.passages):
        raw = gate.blocks[passage.gate, passage.blocks[-1]]
        policy = trial.first.policies[passage.blocks[-1]]
        table = getattr(policy, "actions", None)
        if table is None or policy.n_actions < 2 or "versions" not in raw.arrays:
            continue
        version = of_version(raw, policy.version + 1)
        actions = np.asarray(raw["actions"])
        other = Block(raw.users, dict(raw.arrays) | {"actions": (actions + 1) % policy.n_actions})
        checks_version = not passage.statistic.contributions(version).any()
        checks_actions = not passage.statistic.contributions(other).any()
        require(
            checks_actions or not checks_version,
            f"release {place}: counts are of one policy's version, but count actions that it "
            "never takes",
        )
        require(
            checks_version or not checks_actions,
            f"release {place}: counts are masked by the policy, but count users who followed "
            "another version",
        )


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
    trial.refuse(fresh, block.take(slice(0, 1)), HorizonExceeded)


def check_real(trial: Trial) -> None:
    """A real run goes on with fresh noise, once, and every cost is on disk."""
    block = trial.first.blocks[0]
    agent = trial.make(real=True)
    if trial.privacy.local:
        trial.refuse(agent, block, InvalidArgument, "raw data for a real local curator")
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
