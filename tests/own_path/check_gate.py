"""A curator asked directly, with real noise: what audited agents are too small, or too few, to ask.

More users than one chunk, both relations, releases of 70,000 numbers, and a hundred releases, the
late ones by themselves. And real agents whose releases are played back: other users must not change
anything that can be seen of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.errors import CheckFailed
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import WHOLE_EPISODE, Block
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import RecordingCurator, require_same
from tacit.testing.sample_users import block_of_strangers, some_rows, with_public
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path import statistics as tests
from tests.own_path.answers import Answer, answers_of

_CHUNKS = 1100
_MANY = 120


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """Sums, scales and accounts by our own rules; and what can be seen of real agents."""
    if trial.privacy.local:
        return []
    wrong = [w for relation in Relation for w in _chunks(trial, relation)]
    for size in (3, 600, 70_000):
        wrong += _sized(trial, size)
    return [real.judged("release", wrong), real.judged("real flow", _flow(trial))]


def _asked(
    privacy: Any, blocks: list[Block], ask: Callable[[Any, list[int]], None]
) -> tuple[list[Answer], list[str]]:
    """What a fresh curator answers, and what our own rules say against it."""
    with RecordingCurator().open() as recorder, real.drawing() as draws:
        curator = privacy.curator()
        numbers = [curator.add(block) for block in blocks]
        ask(curator, numbers)
    answers = answers_of(recorder, draws)
    found = [w for a in answers for w in a.wrong]
    power, limit = 1 if privacy.pure else 2, own.episode_limit(privacy)
    for number in numbers:
        cost = sum(a.costs.get(number, 0.0) ** power for a in answers)
        paid = float(curator._spent[number])
        if paid < cost * (1.0 - 1e-9) or max(paid, cost) > limit * (1.0 + 1e-9):
            found.append(f"block {number} paid {paid:.9g} of {limit:.9g} for {cost:.9g}")
    return answers, found


def _alone(trial: real.RealTrial, **changes: Any) -> Any:
    """The model for users who come once."""
    return dataclasses.replace(trial.privacy, episodes_per_user=1, disjoint=False, **changes)


def _chunks(trial: real.RealTrial, relation: Relation) -> list[str]:
    """Blocks of several chunks and of few users, asked for a part of their budget and the rest."""
    privacy, pool = _alone(trial, relation=relation), trial.pool
    statistic = trial.played[0].answers[0].record.statistic
    if statistic.protects != WHOLE_EPISODE:
        return []
    rows = [np.arange(n) % pool.users for n in (_CHUNKS, 40, 3)]

    def ask(curator: Any, numbers: list[int]) -> None:
        for block in numbers:
            if not privacy.pure:
                curator.release(statistic, block=block, mu=0.6 * privacy.budget.mu)
            curator.release(statistic, block=block)

    wrong = _asked(privacy, [some_rows(pool, r) for r in rows], ask)[1]
    return [f"{relation.value}: {w}" for w in wrong]


def _sized(trial: real.RealTrial, size: int) -> list[str]:
    """Small releases, again and again, or large ones, twice; without a delta of new blocks."""
    privacy, law = _alone(trial), trial.law
    times = _MANY if size < 10 else 2
    block = Block(2, {"values": np.random.default_rng(2).uniform(-0.01, 0.01, (2, size))})
    mu = None if privacy.pure else math.sqrt(own.episode_limit(privacy) * 0.9 / times)

    def ask(curator: Any, numbers: list[int]) -> None:
        for number in numbers * (1 if privacy.pure else times):
            curator.release(ClippedSum(size), block=number, mu=mu)

    answers, wrong = _asked(privacy, [block] * (times if privacy.pure else 1), ask)
    runs = [real.stacked([a]) for a in answers]
    half = len(runs) // 2
    for name, some in (("early", runs[:half]), ("late", runs[half:])):
        wrong += tests.law_wrong(np.concatenate(some), law, 1e-3, f"{name} releases of {size}")
    if size > 10:
        wrong += tests.shared_wrong(runs, law)
    return wrong


def _flow(trial: real.RealTrial) -> list[str]:
    """The same releases and other users: everything that can be seen is the same."""
    plain, first = trial.trial, trial.trial.first
    rng, seen = plain.rng(31), []
    strangers = [
        with_public(b, block_of_strangers(b, rng), plain.private_columns) for b in first.blocks
    ]
    try:
        for users in (first.blocks, first.blocks, strangers):
            agent = trial.make()
            seen.append(plain.play(agent, users=users, script=first.script, show=True))
        _, one, two = seen
        plain.same("real runs with the same releases and other users", two, one)
        for shown in (*one.shown, *two.shown):  # whose hashes have a key and a clock of their own
            for name in ("the published file", "the ledger"):
                shown.pop(name, None)
        for a, b in zip(one.shown, two.shown, strict=True):
            require_same((a, b), "real runs with the same releases and other users:")
        if one.said != two.said:
            raise CheckFailed("what real runs say differs with their users")
    except CheckFailed as error:
        return [str(error)]
    return []
