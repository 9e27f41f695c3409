"""Real runs and their stores: who counts how often, and that nothing is drawn, paid or kept twice.

In silence, a run whose store is opened again in the middle of a block must release what an
uninterrupted one does, bit for bit.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any

import numpy as np

from tacit.privacy.errors import CheckFailed
from tacit.testing.check_agent import Outcome, check_ledger
from tacit.testing.recording import RecordingCurator
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path import statistics as tests
from tests.own_path.answers import answers_of


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """People, and stores that are opened again."""
    wrong = [w for name, options in trial.models for w in _people(trial, name, options)]
    opened = _opened(trial) if trial.privacy.joint else []
    return [real.judged("people", wrong), real.judged("store", opened)]


def _people(trial: real.RealTrial, name: str, options: dict[str, Any]) -> list[str]:
    """In silence: the rows are summed that the declared rule counts, after an opening too."""
    pool, path = trial.pool, trial.folder("people") / "run.db"
    ids, at = real.mixed_ids(pool.users, pool.users, 1), 0
    with RecordingCurator().open() as recorder, real.drawing(quiet=True):
        while at < pool.users:
            agent = trial.make(store=path, **options)
            privacy, end = agent.privacy, min(pool.users, at + max(1, agent.block_users // 2))
            at = real.serve(agent, pool, ids, at, end)
            agent.store.close()
    if privacy.separate_blocks and privacy.episodes_per_user > 1:
        return []  # which block somebody is in depends on who came before
    kept = np.flatnonzero(own.counted([ids], privacy.episodes_per_user, False)[0])
    blocks = [*recorder.blocks.values()]
    count = sum(block.users for block in blocks)
    wrong = not 0 < count <= len(kept)
    for column in [] if privacy.local else ("states", "rewards"):
        if column in pool.arrays and blocks:
            seen = np.concatenate([block[column] for block in blocks])
            wrong |= seen.tobytes() != pool[column][kept[:count]].tobytes()
    return [f"{name}: other rows count than the first of everybody"] if wrong else []


def _opened(trial: real.RealTrial) -> list[str]:
    """A store that is opened again, copied, forked and read by others."""
    path, pool, found = trial.folder("store") / "run.db", trial.pool, list[str]()
    agent = trial.make(store=path)
    cut = agent.block_users + agent.block_users // 3
    at = real.serve(agent, pool, [f"u{i}" for i in range(pool.users)], 0, min(cut, pool.users))
    try:
        check_ledger(agent)
    except CheckFailed as error:
        found.append(str(error))
    for file in path.parent.iterdir():
        if stat.S_IMODE(file.stat().st_mode) & 0o077 and file.stat().st_size:
            found.append(f"{file.suffix} of a store can be read by others")
    agent.store.close()
    left = pool["states"][0].tobytes() if "states" in pool.arrays else b"nobody"
    if len(left) > 24 and left in path.read_bytes() and at > cut:
        found.append("episodes that were released are still in the file")
    draws = []
    for name in ("one", "two"):
        copied = path.with_name(name)
        shutil.copyfile(path, copied)
        again = trial.make(store=copied)
        with RecordingCurator().open() as recorder, real.drawing() as drawn:
            real.serve(again, pool, [f"v{i}" for i in range(pool.users)], at)
        if again._run.stream is None:
            found += [f"opened, {w}" for a in answers_of(recorder, drawn) for w in a.wrong]
        draws += [d.values for d in drawn]
        if again.guarantee.simulation_only:
            found.append("opened again, a real run says that it is a simulation")
        again.store.close()
    if draws and min(d.size for d in draws) > 3:
        scale = 2.0**20
        found += tests.repeats_wrong(draws, scale, trial.law)
    if hasattr(os, "fork"):
        found += _forked(trial)
    return found


def _forked(trial: real.RealTrial) -> list[str]:
    """A child refuses to go on with its parent's agent."""
    from tests.own_path.check_entropy import in_child

    agent = trial.make()

    def learn() -> bytes:
        try:
            real.serve(agent, trial.pool, stop=agent.block_users)
        except Exception as error:
            return type(error).__name__.encode()
        return b"went on"

    said = in_child(learn)
    return [] if said != b"went on" else ["a forked process goes on with its parent's agent"]
