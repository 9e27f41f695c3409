"""Who counts how often, and that noise is for all of her episodes together.

Runs with ids that return, within blocks and between them, in silence: what is released must be the
sum over the rows that the declared rule counts, to the grid step. The scales that were asked for
are added up person by person, by the moves of all of her episodes in every release, and compared
with the budget by an accountant of our own. Names of ids are compared with those of a hash of our
own, and somebody comes back after many others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from tacit.privacy.curators.participants import Participants
from tacit.privacy.statistic import Block
from tacit.testing.check_agent import Outcome
from tacit.testing.watched_gate import WatchedGate
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path.answers import Answer, answers_of
from tests.own_path.check_noise import report_scale

_NAME = "people"
_CROWD = 20_000


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """As given, and for users with one or three episodes, disjoint or not."""
    wrong, users = [], trial.pool.users
    for name, options in trial.models:
        for people in (users // 3, users * 4):
            ids = real.mixed_ids(users, people, people)
            wrong += [f"{name}: {w}" for w in _run(trial, options, ids)]
    wrong += _forgets()
    return [real.judged(_NAME, wrong)]


def _forgets() -> list[str]:
    """Names that another process would not give, and people who are new again after many others."""
    people, key = Participants(1, once_per_block=False), bytes(range(16))
    people.join_by(lambda names: [True] * len(names), key)
    texts: dict[int | str, str] = {"Ada": "sAda", "7": "s7", 7: "i0x7", -1: "i-0x1", "": "s"}
    hashed = (blake2b(text.encode(), key=key, digest_size=16) for text in texts.values())
    found = []
    if [str(name) for name in people.names([*texts])] != [digest.hexdigest() for digest in hashed]:
        found.append("the name of an id is not that of another process")
    crowd = range(_CROWD)
    for block, start in enumerate(range(0, _CROWD, _CROWD // 10)):
        ids = crowd[start : start + _CROWD // 10]
        people.admit(Block(len(ids), {"x": np.zeros(len(ids))}), ids)
        people.due(block)
        people.settle(block + 1)
    again = [0, _CROWD // 2, _CROWD - 1]
    if people.admit(Block(3, {"x": np.zeros(3)}), again).users:
        found.append(f"who comes back after up to {_CROWD:,} others counts again")
    return found


def _run(trial: real.RealTrial, options: dict[str, Any], ids: list[Any]) -> list[str]:
    agent, pool = trial.make(**options), trial.pool
    privacy, at = agent.privacy, 0
    cuts: list[tuple[int, int]] = []
    given: list[Block] = []
    with WatchedGate().open() as gate, real.drawing(quiet=True) as draws:
        while at < pool.users and agent.block_users:
            cuts.append((at, min(pool.users, at + agent.block_users)))
            given.append(pool.take(slice(*cuts[-1])))
            at = real.serve(agent, pool, ids, *cuts[-1])
    who = [ids[start:end] for start, end in cuts]
    kept = own.counted(who, privacy.episodes_per_user, bool(privacy.disjoint))
    expected = [block.take(rows) for block, rows in zip(given, kept, strict=True)]
    if privacy.local:
        by_block = [draws[start:end] for start, end in cuts]
        return _reported(trial, gate, expected, by_block, privacy)
    found = []
    for (_, number), admitted in gate.blocks.items():
        found += _rows(number, expected[number], admitted)
    answers = answers_of(gate, draws)
    return found + [w for a in answers for w in a.wrong] + _paid(answers, who, kept, privacy)


def _rows(number: int, expected: Block, admitted: Block) -> list[str]:
    if expected.users != admitted.users:
        return [f"block {number} counts {admitted.users} episodes, not {expected.users}"]
    for name, array in expected.arrays.items():
        if name != "versions" and array.tobytes() != admitted[name].tobytes():
            return [f"block {number} counts other rows than the first of everybody"]
    return []


def _paid(answers: list[Answer], who: list[Any], kept: list[Any], privacy: Any) -> list[str]:
    """What all releases together cost the person whom they cost most."""
    moves: dict[Any, dict[int, float]] = {}
    for place, a in enumerate(answers):
        # Of a stream a block's cost is over all releases: moves within it are added up at most.
        name = place if a.passage.stream is None else id(a.passage.stream)
        moves.setdefault(name, {}).update(a.costs)
    g, power = privacy.episodes_per_user, 1 if privacy.needs_l1 else 2
    grown = g if power == 1 or privacy.disjoint else g * g
    # However often somebody came: it is covered that she comes as often as is declared.
    people: dict[Any, dict[int, float]] = {
        ("block", b): {b: grown ** (1.0 / power)} for b in range(len(who))
    }
    for b, (ids, rows) in enumerate(zip(who, kept, strict=True)):
        for user in (user for user, counts in zip(ids, rows.tolist(), strict=True) if counts):
            person = people.setdefault((isinstance(user, str), user), {})
            person[b] = person.get(b, 0.0) + 1.0
    limit, found = own.episode_limit(privacy) * grown, []
    for person in people.values():
        parts = [sum(n * some.get(b, 0.0) for b, n in person.items()) for some in moves.values()]
        cost = sum(part**power for part in parts)
        if cost > limit * (1.0 + 1e-9):
            found.append(f"a person's releases cost {cost:.9g}, she has {limit:.9g}")
    return found


def _reported(
    trial: real.RealTrial, gate: WatchedGate, expected: list[Block], draws: Any, privacy: Any
) -> list[str]:
    """Of reports: those count that the rule counts, and each carries its share of the budget."""
    found: list[str] = []
    for place, passage in enumerate(p for p in gate.passages if p.stream is None):
        statistic, block = passage.statistic, passage.blocks[0]
        users = expected[block].users
        if passage.release.users != users:
            found.append(f"release {place} counts {passage.release.users} reports, not {users}")
        if privacy.reports_bits:
            continue
        step, scale = report_scale(trial, statistic)
        scale *= privacy.episodes_per_user ** (1.0 / trial.power)
        scale /= trial.privacy.episodes_per_user ** (1.0 / trial.power)
        total = np.rint(statistic.contributions(expected[block]) / step).sum(axis=0)
        if any(d.scale < scale * (1.0 - 1e-9) for d in draws[block]):
            found.append(f"a report has noise for more than one of {privacy.episodes_per_user}")
        off = np.abs(statistic.layout.pack(passage.release.parts) / step - total).max(initial=0.0)
        if off > 0.5:
            found.append(f"release {place} is not the sum of the reports that count")
    return found
