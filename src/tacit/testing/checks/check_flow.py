"""What is public depends on releases alone, whoever the users are and whatever they send."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

from tacit.privacy.errors import require
from tacit.privacy.statistic import Block
from tacit.testing.made_up_users import (
    block_of_strangers,
    hostile_blocks,
    joined,
    of_version,
    with_public,
    with_row,
)
from tacit.testing.trial import Run, Trial
from tacit.testing.watched_gate import require_same

Warn: TypeAlias = Literal["always", "error"]


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
    other = trial.play(users=users, script=trial.first.script, show=True, warn=warn)
    same = f"the releases were the same {what}"
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
