"""What is on disk: saves that go on as they should, ledgers that know every cost."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import CheckFailed, DoubleSpend, HorizonExceeded, InvalidArgument, require
from tacit.privacy.ledger import Ledger
from tacit.privacy.statistic import Block
from tacit.testing.trial import Trial
from tacit.testing.watched_gate import WatchedGate, digest_of, require_same, snapshot


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
