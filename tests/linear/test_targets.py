"""statistic="targets": users are asked again after every block, and never pay more than agreed."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import LSVIUCB, JointDP, LSVIUCBPlusPlus, Relation, audit_linear
from tacit.audit.made_up_users import block_of_strangers
from tacit.audit.watched_gate import WatchedGate, difference, snapshot
from tacit.core.agent import Agent
from tacit.linear import LinearWorld, simplex, two_state
from tacit.linear.options import LinearConstants
from tacit.linear.statistics import FeatureSums, TargetSums
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.noise import NoiseSource
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block

Floats = NDArray[np.float64]

WORLD = simplex(dimension=3, states=8, actions=3, horizon=4)
JOINT = JointDP(10.0, 1e-6)
SIZE = 30


def made(blocks: int, cls: Any = LSVIUCB, world: LinearWorld = WORLD, **options: Any) -> Any:
    # With a large bonus values would all be cut at the steps left, and nobody asked about them.
    defaults = {"privacy": JOINT, "noise_seed": 3, "schedule": f"fixed:size={SIZE}", "scale": 0.1}
    return cls(world.spec, blocks * SIZE, statistic="targets", **defaults | options)


def serve(agent: Agent, world: LinearWorld, seed: int = 0) -> Iterator[Block]:
    """Serves block after block, and hands each out when it is through."""
    rng = np.random.default_rng(seed)
    while agent.block_users:
        block = world.simulate(agent.policy, agent.block_users, rng, "episodes").block()
        agent.learn(block)
        yield block


# What it costs.


def decayed_rounds(agent: Agent, rounds: int) -> Callable[[Floats, NoiseSource], Floats]:
    """Rounds of the agent's releases, about one number per block in place of its statistics."""
    privacy, costs = JointDP(10.0, 1e-6, relation=Relation.ZERO_OUT), agent.round

    def mechanism(inputs: Floats, source: NoiseSource) -> Floats:
        curator, released = JointCurator(privacy, source=source), []
        for value in inputs:
            curator.add(Block(1, {"values": value.reshape(1, 1)}))
            for mu in (costs.gram_mu, *[costs.target_mu] * (agent.spec.horizon - 1)):
                released.append(curator.release(ClippedSum(1), mu=mu, decay=costs.decay)["sum"])
        return np.concatenate(released)

    return mechanism


@pytest.mark.parametrize("growth", [1.1, 1.5, 2.0, 5.0])
def test_an_exact_audit_finds_the_whole_budget_and_no_more(growth: float) -> None:
    agent = made(4, growth=growth)
    worst = []
    for rounds in (1, 2, 6):
        mechanism = decayed_rounds(agent, rounds)
        audit = audit_linear(mechanism, list(np.eye(rounds)[..., np.newaxis]))
        assert audit.draws == rounds * WORLD.spec.horizon
        # A block of age a has spent all but decay^-2(a + 1) of it.
        ages = np.arange(rounds, 0, -1)
        expected = JOINT.budget.mu * np.sqrt(1.0 - growth ** (-2.0 * ages))
        np.testing.assert_allclose(audit.costs, expected, rtol=1e-9)
        assert audit.worst == 0
        worst.append(audit.mu)
    assert worst == sorted(worst)
    assert worst[-1] < JOINT.budget.mu
    if growth >= 2.0:
        assert worst[-1] > 0.999 * JOINT.budget.mu


@pytest.mark.parametrize("split", [0.2, 0.8])
def test_the_audit_knows_how_a_round_is_shared(split: float) -> None:
    agent = made(4, constants=LinearConstants(split=split))
    audit = audit_linear(decayed_rounds(agent, 1), [np.ones((1, 1))])
    assert audit.mu == pytest.approx(JOINT.budget.mu * math.sqrt(1.0 - agent.round.decay**-2.0))
    assert agent.round.gram_mu**2 / audit.mu**2 == pytest.approx(split)


@pytest.mark.parametrize("cls", [LSVIUCB, LSVIUCBPlusPlus])
def test_what_pairs_of_users_are_told_apart_by_is_within_budget(cls: Any) -> None:
    """Of everything that a run released: its noise against how far two users' vectors are apart."""
    agent = made(8, cls)
    with WatchedGate().open() as gate:
        blocks = list(serve(agent, WORLD))
    rng = np.random.default_rng(1)
    largest = 0.0
    for number, block in enumerate(blocks):
        # A block's own users, strangers, and one who was nowhere.
        others = [block_of_strangers(block, rng) for _ in range(8)]
        nobody = Block(1, {**{k: np.array(v[:1]) for k, v in block.arrays.items()}})
        nobody["states"][:] = -1
        costs = np.zeros((9 * SIZE + 1, 9 * SIZE + 1))
        for passage in gate.passages:
            if number not in passage.blocks:
                continue
            users = [block, *others, nobody]
            vectors = np.concatenate([passage.statistic.contributions(one) for one in users])
            squares = (vectors**2).sum(axis=1)
            apart = squares[:, np.newaxis] + squares - 2.0 * vectors @ vectors.T
            weight = agent.round.decay ** float(number - passage.blocks[-1])
            # Entries of weight 1 have all the same noise.
            name = "targets" if isinstance(passage.statistic, TargetSums) else "gram"
            costs += weight**2 * apart / float(np.max(passage.release.std[name])) ** 2
        spent = agent._curator.spent(number)
        assert costs.max() <= spent * (1.0 + 1e-9)
        largest = max(largest, costs.max() / spent)
    assert largest > 0.5


@pytest.mark.parametrize("growth", [1.3, 2.0])
@pytest.mark.parametrize("world", [WORLD, two_state(horizon=3)], ids=["simplex", "two states"])
def test_nobody_ever_spends_more_than_agreed(growth: float, world: LinearWorld) -> None:
    agent = made(60, LSVIUCBPlusPlus, world, growth=growth)
    limit = JOINT.episode_limit
    for rounds, _ in enumerate(serve(agent, world), 1):
        spent = [agent._curator.spent(b) for b in range(rounds)]
        assert max(spent) <= limit * (1.0 + 1e-9)
    # The oldest have nearly spent all: nothing is left unused either.
    assert agent._curator.spent(0) > limit * (1.0 - 1e-5)


# What is kept.


@pytest.mark.parametrize(("growth", "kept"), [(1.3, 26), (2.0, 9), (5.0, 4), (2000.0, 0)])
def test_old_blocks_are_forgotten(growth: float, kept: int) -> None:
    agent = made(40, growth=growth)
    sizes = []
    with WatchedGate().open() as gate:
        for rounds, _ in enumerate(serve(agent, WORLD), 1):
            blocks = agent._curator.blocks
            assert blocks == tuple(range(max(0, rounds - kept), rounds))
            raw = [agent._curator._raw(b).arrays.values() for b in blocks]
            sizes.append(sum(array.nbytes for arrays in raw for array in arrays))
            assert not agent._session.answers
    assert sizes[-1] == sizes[kept] == max(sizes)
    for passage in gate.passages:
        oldest = growth ** -float(passage.blocks[-1] - passage.blocks[0])
        assert oldest >= 1e-3
    # And none is forgotten that still counts.
    newest = gate.passages[-1].blocks
    assert growth ** -float(len(newest)) < 1e-3


def test_all_others_forget_at_once() -> None:
    for statistic in ("features", "counts"):
        agent = LSVIUCB(
            WORLD.spec, 90, JOINT, statistic=statistic, schedule="fixed:size=30", noise_seed=0
        )
        for _ in serve(agent, WORLD):
            assert agent._curator.blocks == ()


def test_a_round_asks_once_about_grams_and_once_about_every_step() -> None:
    agent = made(4, LSVIUCBPlusPlus)
    with WatchedGate().open() as gate:
        for _ in serve(agent, WORLD):
            pass
    H = WORLD.spec.horizon
    rounds = [gate.passages[i : i + H] for i in range(0, 4 * H, H)]
    assert len(gate.passages) == 4 * H
    for number, asked in enumerate(rounds):
        assert isinstance(asked[0].statistic, FeatureSums)
        assert not asked[0].statistic.following
        assert [one.statistic.step for one in asked[1:]] == [2, 1, 0]
        for one in asked:
            assert one.blocks == tuple(range(number + 1))
            shares = [agent.round.decay ** (b - number) for b in range(number + 1)]
            assert one.shares == pytest.approx(shares)
        # Upper and lower values, and squares of the upper: three functions in one question.
        assert all(len(one.statistic.targets) == 3 for one in asked[1:])


# Going on after a crash.


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of saves, none of which has to survive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Killed(BaseException):
    """What ends the process."""


Trace = list[tuple[int, bytes]]


def killing(patch: pytest.MonkeyPatch, place: int, when: str, seen: Trace) -> None:
    """Kills the process at its ``place``-th release: before it, in the middle, or right after.

    In the middle is when it is paid for and drawn, but neither on disk nor seen by anybody.
    """
    release, save = JointCurator.release, JointCurator._save
    calls, saves = itertools.count(), itertools.count()

    def releasing(curator: JointCurator, *args: Any, **options: Any) -> Release:
        here = next(calls) == place
        if here and when == "before":
            raise Killed
        released = release(curator, *args, **options)
        seen.append(trace_of(released))
        if here and when == "after":
            raise Killed
        return released

    def saving(curator: JointCurator, path: Any) -> None:
        if when == "in the middle" and next(saves) == place:
            raise Killed
        save(curator, path)

    patch.setattr(JointCurator, "release", releasing)
    patch.setattr(JointCurator, "_save", saving)


def trace_of(released: Release) -> tuple[int, bytes]:
    return released.index, b"".join(part.tobytes() for part in released.parts.values())


ROUNDS = 3
DESIGNS: dict[str, tuple[Any, LinearWorld, dict[str, Any]]] = {
    "plain": (LSVIUCB, WORLD, {}),
    "plus plus": (LSVIUCBPlusPlus, WORLD, {}),
    "two states, weighted": (LSVIUCB, two_state(horizon=4), {"weights": "variance"}),
}


@cache
def uninterrupted(design: str) -> tuple[list[Block], list[dict[str, str]], Trace, list[float]]:
    """Blocks, all that is public after each, all releases, and what everybody spent."""
    cls, world, options = DESIGNS[design]
    agent = made(ROUNDS, cls, world, **options)
    blocks, snapshots = [], []
    with WatchedGate().open() as gate:
        for block in serve(agent, world):
            blocks.append(block)
            snapshots.append(snapshot(agent))
    trace = [trace_of(passage.release) for passage in gate.passages]
    return blocks, snapshots, trace, [agent._curator.spent(b) for b in range(ROUNDS)]


def learn_all(agent: Agent, blocks: list[Block]) -> None:
    for block in blocks:
        agent.learn(block)


@pytest.mark.parametrize("when", ["before", "in the middle", "after"])
@pytest.mark.parametrize("design", DESIGNS)
def test_a_crash_anywhere_changes_nothing(design: str, when: str, tmp_path: Any) -> None:
    cls, world, options = DESIGNS[design]
    blocks, snapshots, trace, spent = uninterrupted(design)
    assert len(trace) > 2 * ROUNDS
    for place in range(len(trace)):
        path, seen = tmp_path / str(place), []
        agent = made(ROUNDS, cls, world, autosave=path, **options)
        with pytest.MonkeyPatch.context() as patch:
            killing(patch, place, when, seen)
            with pytest.raises(Killed):
                learn_all(agent, blocks)
        fresh = made(ROUNDS, cls, world, seed=8, noise_seed=9, **options)
        with WatchedGate().open() as gate:
            fresh.load(path)
            if fresh.releases:
                assert not difference(snapshots[fresh.releases - 1], snapshot(fresh))
            for number in range(fresh.releases, ROUNDS):
                fresh.learn(blocks[number])
                assert not difference(snapshots[number], snapshot(fresh))
        seen += [trace_of(passage.release) for passage in gate.passages]
        # Every release was made once: what is drawn again was seen by nobody, and is the same.
        assert seen == trace
        assert [fresh._curator.spent(b) for b in range(ROUNDS)] == spent
        assert (fresh.served, fresh.block_users) == (ROUNDS * SIZE, 0)


def test_a_crash_before_the_first_release_loses_nothing(tmp_path: Any) -> None:
    blocks, snapshots, *_ = uninterrupted("plain")
    path = tmp_path / "state"
    made(ROUNDS, autosave=path)
    fresh = made(ROUNDS, seed=8, noise_seed=9).load(path)
    for block, expected in zip(blocks, snapshots, strict=True):
        fresh.learn(block)
        assert not difference(expected, snapshot(fresh))


class Failing:
    """Releases fail, for a while."""

    def __init__(self, place: int) -> None:
        self.calls = itertools.count()
        self.place = place
        self.release = JointCurator.release

    def __call__(self, curator: JointCurator, *args: Any, **options: Any) -> Release:
        if next(self.calls) == self.place:
            raise OSError("a cable was cut")
        return self.release(curator, *args, **options)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_round_that_fails_loses_its_users_and_nothing_else(place: int, tmp_path: Any) -> None:
    """The process lives on. Its users are not asked in a round of their own again."""
    blocks, *_ = uninterrupted("plain")
    agent = made(ROUNDS)
    failing = Failing(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JointCurator, "release", lambda *args, **options: failing(*args, **options))
        with pytest.raises(OSError, match="cable"):
            agent.learn(blocks[0])
        assert (agent.served, agent.releases) == (SIZE, 0)
        agent.save(tmp_path / "state")
    resumed = made(ROUNDS, noise_seed=9).load(tmp_path / "state")
    # No answer of the lost round is taken for one of the next.
    for one in (agent, resumed):
        assert (one.served, one.releases, one.block_users) == (SIZE, 0, SIZE)
        one.learn(blocks[1])
        one.learn(blocks[2])
        assert (one.served, one.releases, one.block_users) == (3 * SIZE, 2, 0)
        assert max(one._curator.spent(b) for b in range(3)) <= JOINT.episode_limit * (1 + 1e-9)
    assert not difference(snapshot(agent), snapshot(resumed))
    # A save of a whole state holds nothing that is to be caught up with.
    agent.save(tmp_path / "whole")
    again = made(ROUNDS, noise_seed=9).load(tmp_path / "whole")
    assert not difference(snapshot(agent), snapshot(again))


def test_a_disk_that_was_full_once_does_no_harm_later(tmp_path: Any) -> None:
    """A release that could not be saved was paid for and seen by nobody."""
    blocks, *_ = uninterrupted("plain")
    agent = made(ROUNDS, autosave=tmp_path / "full")
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 1, "in the middle", [])
        with pytest.raises(Killed):
            agent.learn(blocks[0])
    with pytest.raises(BudgetExceeded, match="save first"):
        agent.learn(blocks[1])
    assert (agent.served, agent.releases, agent.block_users) == (SIZE, 0, SIZE)
    agent.save(tmp_path / "state")
    agent.learn(blocks[1])
    agent.save(tmp_path / "state")
    resumed = made(ROUNDS, noise_seed=9).load(tmp_path / "state")
    assert not difference(snapshot(agent), snapshot(resumed))
    for one in (agent, resumed):
        one.learn(blocks[2])
        assert (one.served, one.releases) == (3 * SIZE, 2)
    assert not difference(snapshot(agent), snapshot(resumed))


def test_a_crash_that_cost_users_something_does_not_stop_later_ones(tmp_path: Any) -> None:
    """With a ledger, what was paid stays paid. Blocks that cannot pay any more are not asked."""
    path, ledger = tmp_path / "state", tmp_path / "ledger"
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"noise_seed": None, "growth": 2.0}
    agent = made(20, ledger=ledger, autosave=path, **options)
    for _ in range(4):
        agent.learn(WORLD.simulate(agent.policy, SIZE, rng, "episodes"))
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 2, "in the middle", [])
        with pytest.raises(Killed):
            agent.learn(WORLD.simulate(agent.policy, SIZE, rng, "episodes"))
    agent = made(20, **options).load(path, ledger=ledger, autosave=path)
    assert agent.releases == 5
    for rounds in range(6, 21):
        agent.learn(WORLD.simulate(agent.policy, SIZE, rng, "episodes"))
        assert (agent.releases, agent.served) == (rounds, rounds * SIZE)
        spent = [agent._curator.spent(b) for b in range(rounds)]
        assert max(spent) <= JOINT.episode_limit * (1.0 + 1e-9)
        # Those whom the crash cost nothing are all still asked.
        assert agent._curator.blocks[-1] == rounds - 1
        assert set(agent._curator.blocks) >= set(range(max(5, rounds - 9), rounds))


def test_a_crash_while_catching_up_does_not_end_the_run(tmp_path: Any) -> None:
    """Catching up makes releases too: they must be on disk before anybody sees them."""
    path, ledger = tmp_path / "state", tmp_path / "ledger"
    rng = np.random.default_rng(0)
    agent = made(3, ledger=ledger, autosave=path, noise_seed=None)
    agent.learn(WORLD.simulate(agent.policy, SIZE, rng, "episodes"))
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 1, "after", [])
        with pytest.raises(Killed):
            agent.learn(WORLD.simulate(agent.policy, SIZE, rng, "episodes"))
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 0, "after", [])
        with pytest.raises(Killed):
            made(3, noise_seed=None).load(path, ledger=ledger, autosave=path)
    agent = made(3, noise_seed=None).load(path, ledger=ledger, autosave=path)
    assert agent.releases == 2
