"""Real runs that are saved, loaded and killed: nothing is drawn, paid or counted twice, or lost.

Crashes are an exception, raised after the charge (where noise is drawn), before the state replaces
the old one, and after it did but before anybody was told. In silence, a run that was interrupted
must release what an uninterrupted one does, bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tacit.privacy.curator import Release
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import BudgetExceeded, DoubleSpend, TacitError
from tacit.privacy.noise import Noise
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block, Floats
from tacit.testing.check_agent import Outcome
from tacit.testing.watched_gate import WatchedGate
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path import statistics as tests
from tests.own_path.answers import Draw, answers_of

_NAME = "real resume"
_CRASHES = ("between charge and draw", "before the save", "after the save")


class Crash(BaseException):
    """The process is killed here."""


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """Saves at the edges of blocks and within them, and crashes."""
    if trial.privacy.local:
        return [real.judged(f"{_NAME}: saves", _devices(trial))]
    wrong, runs = [], list[Floats]()
    for name, options in trial.models[:3]:
        for ids in (None, real.mixed_ids(trial.pool.users, trial.pool.users, 1)):
            wrong += [f"{name}: {w}" for w in _silent(trial, options, ids)]
    for _ in range(1 if trial.quick else 6):
        wrong += _real(trial, runs)
    wrong += tests.law_wrong(np.concatenate([*runs, np.zeros(0)]), trial.law, 1e-3, "resumed")
    crashed = [w for where in _CRASHES for w in _crashed(trial, where)]
    crashed += _replayed(trial) + _asked_again(trial)
    return [real.judged(f"{_NAME}: saves", wrong), real.judged(f"{_NAME}: crashes", crashed)]


def _cuts(trial: real.RealTrial) -> list[int]:
    """After one block, in the middle of the next, and in the middle of the first."""
    first, last = trial.make().block_users, trial.pool.users - 1
    return sorted({min(first, last), min(first + max(1, first // 3), last), first // 2} - {0})


def _same(some: list[Release], others: list[Release]) -> bool:
    return len(some) == len(others) and all(
        a.users == b.users and all(a[name].tobytes() == b[name].tobytes() for name in a.parts)
        for a, b in zip(some, others, strict=True)
    )


def _silent(trial: real.RealTrial, options: dict[str, Any], ids: real.Ids) -> list[str]:
    """In silence an interrupted run releases what an uninterrupted one does."""
    run = trial.play(quiet=True, ids=ids, **options)
    expected, found = [p.release for p in run.gate.passages], []
    for cut in _cuts(trial):
        folder = trial.folder("silent")
        # With a ledger and without.
        files: dict[str, Any] = {"ledger": folder / "ledger"} if ids is None else {}
        with WatchedGate().open() as gate, real.drawing(quiet=True):
            agent = trial.make(**options, **files)
            at = 0
            # In pieces, so that several wait for one block.
            for stop in (cut // 3, 2 * cut // 3, cut):
                at = real.serve(agent, trial.pool, ids, at, stop)
            agent.save(folder / "state")
            again = trial.make(**options)
            again.load(folder / "state", **files)
            real.serve(again, trial.pool, ids, at)
        if not _same([p.release for p in gate.passages], expected):
            who = "with ids" if ids is not None else "without ids"
            found.append(f"saved after {cut} users, {who}, sums are not those of a whole run")
    return found


def _repeated(draws: list[Draw]) -> list[str]:
    """Whether any two draws have numbers in common that chance does not give them."""
    law = "laplace" if draws and draws[0].pure else "normal"
    scale = min((d.scale for d in draws), default=1.0)
    return tests.repeats_wrong([d.values for d in draws], scale, law)  # type: ignore[arg-type]


def _real(trial: real.RealTrial, runs: list[Floats]) -> list[str]:
    """A save that is loaded twice, by agents that then draw: all of it is new and as it should."""
    found, usual = [], trial.played[0].by_agent()[0]
    for cut in _cuts(trial):
        state = trial.folder("resume") / "state"
        with real.drawing() as draws:
            agent = trial.make()
            at = real.serve(agent, trial.pool, None, 0, cut)
            agent.save(state)
        for _ in range(2):
            again = trial.make()
            again.load(state)
            curator = again._curator
            if again.guarantee != agent.guarantee:
                found.append("after a resume the guarantee is another one")
            if any(curator.spent(b) < agent._curator.spent(b) for b in curator.accounts.keys):
                found.append("after a resume a block has paid less")
            with WatchedGate().open() as gate, real.drawing() as after:
                gate.blocks.update({(curator, b): curator._raw(b) for b in curator.blocks})
                real.serve(again, trial.pool, None, at)
            draws += after
            if again._stream is None:
                answers = answers_of(gate, after)
                found += [f"after a resume, {w}" for a in answers for w in a.wrong]
                runs.append(real.stacked(answers))
            elif any(
                a.draw and a.draw.scale != d.scale
                for a, d in zip(usual[-len(after) :], after, strict=False)
            ):
                found.append("after a resume a stream asks for noise of another scale")
        found += [f"saved after {cut} users: {w}" for w in _repeated(draws)]
    with contextlib.suppress(TacitError, TypeError):
        richer = dataclasses.replace(trial.privacy, epsilon=2.0 * trial.privacy.epsilon)
        trial.make(privacy=richer).load(state)
        found.append("a save goes on with another budget")
    return found


@contextlib.contextmanager
def _crashing(where: str, published: list[Release]) -> Iterator[None]:
    """The next release is cut off."""
    original = JointCurator._publish

    def publish(self: JointCurator, release: Release) -> Release:
        published.append(original(self, release))
        raise Crash(where)

    points: dict[str, list[tuple[Any, str]]] = {
        _CRASHES[0]: [(Noise, "steps")],
        _CRASHES[1]: [(os, "replace")],
        _CRASHES[2]: [],
    }
    with contextlib.ExitStack() as stack:
        for owner, name in points[where]:
            stack.enter_context(mock.patch.object(owner, name, side_effect=Crash(where)))
        if not points[where]:
            stack.enter_context(mock.patch.object(JointCurator, "_publish", publish))
        stack.enter_context(contextlib.suppress(Crash))
        yield


def _crashed(trial: real.RealTrial, where: str) -> list[str]:
    """A run with ledger and autosave is killed in its second block, or its only one."""
    folder, pool = trial.folder("crash"), trial.pool
    ledger, state, found = folder / "ledger", folder / "state", list[str]()
    published: list[Release] = []
    with real.drawing() as draws:
        agent = trial.make(ledger=ledger, autosave=state)
        first = agent.block_users
        at = real.serve(agent, pool, None, 0, first if first < pool.users else 0)
        stop = min(pool.users, at + agent.block_users)
        with _crashing(where, published):
            real.serve(agent, pool, None, at, stop)
            found.append("a release passed no such point")
        before = real.ledger_costs(ledger)
        if len(before) <= (at > 0):
            found.append("the charge is not on the ledger")
        shutil.copy(state, folder / "copy")
        again = trial.make()
        again.load(state, ledger=ledger, autosave=state)
        accounts, last = again._curator.accounts, again._curator.last_release
        for block, key in accounts.keys.items():
            if accounts.exact[block] < before.get(key, Fraction(0)):
                found.append(f"block {block} is held to have paid less than the ledger says")
        if published and last is not None and last.index == published[-1].index:
            if not _same(published[-1:], [last]):
                found.append("the release that was saved is another one when resumed")
        elif published and (last is None or last.index < published[-1].index):
            found.append("the release that was saved is not resumed")
        real.serve(again, pool, None, stop)
    found += _repeated(draws) + _books(trial, ledger, before)
    try:
        trial.make().load(folder / "copy", ledger=ledger)
        found.append("the save is resumed a second time")
    except DoubleSpend:
        pass
    return [f"{where}: {w}" for w in found]


def _books(trial: real.RealTrial, ledger: Path, before: dict[str, Fraction]) -> list[str]:
    """Nothing that was paid is forgotten, and nobody pays more than she has."""
    limit, now, found = own.episode_limit(trial.privacy), real.ledger_costs(ledger), []
    for key, cost in (before | now).items():
        if cost > limit * (1.0 + 1e-9) or now.get(key, Fraction(0)) < before.get(key, Fraction(0)):
            found.append(f"{key} spent {float(cost):.6g} in the end, it has {limit:.6g}")
    return found


def _replayed(trial: real.RealTrial) -> list[str]:
    """In silence: killed after the save of its first release, a run goes on as if it had not."""
    folder, published = trial.folder("crash"), list[Release]()
    ledger, state = folder / "ledger", folder / "state"
    expected = [p.release for p in trial.play(quiet=True).gate.passages]
    with real.drawing(quiet=True), WatchedGate().open() as gate:
        agent = trial.make(ledger=ledger, autosave=state)
        stop = agent.block_users
        with _crashing(_CRASHES[2], published):
            real.serve(agent, trial.pool, None, 0, stop)
        again = trial.make()
        again.load(state, ledger=ledger, autosave=state)
        real.serve(again, trial.pool, None, stop)
    if _same(published + [p.release for p in gate.passages], expected):
        return []
    return ["killed after a save, a run releases other sums than one that was not"]


def _asked_again(trial: real.RealTrial) -> list[str]:
    """A block that paid for an answer nobody saw has paid for it when its curator is resumed."""
    folder, privacy, found = trial.folder("crash"), trial.privacy, []
    ledger, state, limit = folder / "ledger", folder / "state", own.episode_limit(trial.privacy)
    mu = None if privacy.pure else math.sqrt(0.8 * limit)
    alone = privacy.curator()
    alone.add(Block(2, {"values": np.ones((2, 1))}))
    alone.release(ClippedSum(1), mu=mu)
    alone.save(folder / "alone")
    if JointCurator.load(folder / "alone").accounts.exact != alone.accounts.exact:
        found.append("a save without a ledger forgets what its blocks have paid")
    curator = privacy.curator(ledger=ledger, autosave=state)
    block = curator.add(Block(2, {"values": np.ones((2, 1))}))
    curator.save(state)
    with _crashing(_CRASHES[0], []):
        curator.release(ClippedSum(1), mu=mu)
    again = JointCurator.load(state, ledger=ledger, autosave=state)
    paid = sum(real.ledger_costs(ledger).values(), Fraction(0))
    if paid < 0.79 * limit or again.accounts.exact[block] < paid:
        found.append("what a block paid for an answer that nobody saw is forgotten when resumed")
    with contextlib.suppress(BudgetExceeded):
        again.release(ClippedSum(1), block=block, mu=mu)
        found.append("a block pays more than it has, after a resume")
    return found


def _devices(trial: real.RealTrial) -> list[str]:
    """Of reports: who was counted before a save is not counted again after it."""
    agent, pool = trial.make(), trial.pool
    if trial.privacy.episodes_per_user > 1:
        return []
    cut, path = agent.block_users, trial.folder("devices") / "state"
    who = [f"{i}" if i % 2 else i for i in range(cut)] * (1 + pool.users // cut)
    real.serve(agent, pool, who, 0, cut)
    agent.save(path)
    again = trial.make()
    again.load(path)
    with WatchedGate().open() as gate:
        real.serve(again, pool, who, cut, min(pool.users, 2 * cut))
    counted = sum(block.users for block in gate.blocks.values())
    return [f"{counted} users are counted again after a resume"] if counted else []
