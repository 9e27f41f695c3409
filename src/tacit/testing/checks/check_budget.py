"""Who is counted, how far one user can move a sum, and what her part in it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.privacy.budget import Budget, Relation
from tacit.privacy.curators.gate import Curator, Stream
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import require
from tacit.privacy.models import JointDP
from tacit.privacy.statistic import Block, Bools, Statistic
from tacit.testing.check_statistic import check_statistic
from tacit.testing.gate_noise import off_by, silence
from tacit.testing.made_up_users import joined, mixed, sampler_of, some_rows, with_ids
from tacit.testing.trial import Run, Trial

# More users than 16 bits can count.
_MANY = (1 << 15) + 7
# Statistics that are attacked.
_STATISTICS = 3


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
        report = check_statistic(
            passage.statistic, mixed(trial.sample, own), users=100, rounds=15, seed=trial.seed
        )
        trial.tightness.append(max(report.tightness.values()))
        # What adds up vectors in floats does not wrap; a fast sum of its own may.
        if place == places[0] and type(passage.statistic).total is not Statistic.total:
            _check_many(passage.statistic, report.pair)
    with silence():
        quiet = trial.play()
    wrong = off_by(quiet.gate)
    require(wrong is None, str(wrong))


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
        given: JointDP = replace(privacy, epsilon=declared.epsilon, delta=declared.delta)
        limit = given.episode_limit
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
