"""Agents and statistics with a slip: each is what somebody could write, and a check finds it."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import FittedFunctionalQ, JointDP, LocalDP, check_statistic
from tacit.continuous import Grid, QPolicy, line
from tacit.continuous.constants import FunctionalConstants
from tacit.continuous.statistics import clipped_sums as module
from tacit.continuous.statistics.clipped_sums import ResidualSums
from tacit.core.agent import Agent
from tacit.core.asks import Asks
from tacit.core.kinds import AgentKind
from tacit.privacy.curator import Release
from tacit.privacy.errors import CheckFailed
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Statistic
from tacit.testing.check_agent import check_agent
from tacit.testing.watched_gate import WatchedGate

Floats = NDArray[np.float64]

JOINT = JointDP(2.0, 1e-4)
WORLD: Any = line(horizon=8)
GRID = Grid((0.0,), (1.0,), (5,))
FIRST = QPolicy.uniform(dimension=1, actions=2)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def users(rng: np.random.Generator, count: int) -> Block:
    block: Block = WORLD.simulate(FIRST, count, rng, "episodes").block()
    return block


def fields() -> dict[str, Any]:
    """Of a statistic that most users are too long for."""
    draw = np.random.default_rng(0)
    return {
        "spec": WORLD.spec,
        "features": GRID,
        "root": np.eye(5),
        "values": draw.normal(size=(2, 5)),
        "predictions": draw.normal(size=(2, 5)),
        "clip": 0.7,
        "discount": 0.9,
        "centre": 0.25,
        "unit": 0.5,
    }


def check(cls: Any, **options: Any) -> None:
    given = {"privacy": JOINT, "releases": 3, "schedule": "fixed:size=20"} | options
    check_agent(partial(cls, **given), WORLD, users=60)


def with_release(answered: Any) -> Any:
    """Agents whose curator answers otherwise."""

    def mutant(*args: Any, **options: Any) -> Agent:
        agent = FittedFunctionalQ(*args, **options)
        curator: Any = agent._curator
        curator.release = partial(answered, curator)
        return agent

    return mutant


def one_path(curator: Any, statistic: Statistic, **options: Any) -> Release:
    """The same noise in every release."""
    if isinstance(curator.source, Noise):
        curator._source = Noise(7)
    answer: Release = type(curator).release(curator, statistic, **options)
    return answer


def raw_values(curator: Any, statistic: Statistic, **options: Any) -> Release:
    """Values are carried on without the noise that they were published with."""
    answer: Release = type(curator).release(curator, statistic, **options)
    newest = max(curator.blocks)
    raw = statistic.layout.unpack(statistic.total(curator._blocks[newest]))
    return Release(
        index=answer.index,
        statistic=answer.statistic,
        parts=raw,
        std=answer.std,
        users=answer.users,
        cost=answer.cost,
    )


class Overspent(FittedFunctionalQ.algorithm):  # type: ignore[misc]
    """Every release at the price of all of them."""

    def asks(self) -> Asks:
        questions = super().asks()
        ask = next(questions)
        with contextlib.suppress(StopIteration):
            while True:
                ask = questions.send((yield replace(ask, mu=self.mu * 0.9)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        (with_release(one_path), "noise"),
        (with_release(raw_values), "data flow|noise"),
        (AgentKind(Overspent), "too much|exceed"),
    ],
)
def test_a_slip_of_an_agent_is_found(mutant: Any, found: str) -> None:
    with pytest.raises(Exception, match=found):
        check(mutant)


def _without_clip(vectors: Floats, radius: float) -> Floats:
    return vectors


def test_a_clip_that_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "scaled_back", _without_clip)
    # The gate clips once more, so what is found is that vectors and bounded vectors differ.
    statistic = ResidualSums(**fields())
    vectors = statistic.vectors(users(np.random.default_rng(0), 50))
    assert np.linalg.norm(vectors, axis=1).max() > statistic.clip


class HalfDeclared(ResidualSums):
    """Two clipped users are taken to be at most one clip apart."""

    def l2(self, relation: Any) -> float:
        return self.clip


class Neighbourly(ResidualSums):
    """Residuals are centred on the mean of all users of the block."""

    def vectors(self, block: Block) -> Floats:
        vectors = super().vectors(block)
        return 0.5 * (vectors - vectors.mean(axis=0)) if len(vectors) else vectors


@pytest.mark.parametrize("mutant", [HalfDeclared, Neighbourly])
def test_a_slip_of_a_statistic_is_found(mutant: Any) -> None:
    check_statistic(ResidualSums(**fields()), users, rounds=15)
    with pytest.raises(CheckFailed):
        check_statistic(mutant(**fields()), users, rounds=15)


def paths_are_independent(releases: int = 40) -> None:
    """Of two actions, in every release: the correlation is 0 up to six deviations."""
    options: Any = {"constants": FunctionalConstants(depth=0.0, fewest=releases), "discount": 0.99}
    agent = FittedFunctionalQ(WORLD.spec, 5, JOINT, noise_seed=1, **options)
    block = users(np.random.default_rng(0), 5)
    nobody = np.full_like(block["states"], np.nan)
    with WatchedGate().open() as gate:
        agent.learn(Block(5, {**block.arrays, "states": nobody}))
    drawn = np.array(
        [p.release["residuals"] / p.release.std["residuals"] for p in gate.passages[1:]]
    )
    one, other = drawn[:, 0].ravel(), drawn[:, 1].ravel()
    assert abs(float(one @ other)) < 6.0 * math.sqrt(one.size)
    # Nor do two releases in a row.
    assert abs(float((drawn[1:] * drawn[:-1]).sum())) < 6.0 * math.sqrt(drawn.size)


def test_a_path_that_two_actions_share_is_found() -> None:
    paths_are_independent()
    original = Noise.steps

    def shared(self: Noise, pure: bool, scale: float, count: int) -> NDArray[np.int64]:
        drawn = original(self, pure, scale, count)
        half = len(drawn) // 2
        return np.concatenate([drawn[:half], drawn[:half], drawn[2 * half :]])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "steps", shared)
        with pytest.raises(AssertionError):
            paths_are_independent()


def test_devices_do_not_share_their_noise() -> None:
    """The noise of a sum of reports has the sum of their variances, up to six deviations.

    All users stayed at home, so that the sum is noise alone. Shared noise would have 30 times the
    variance.
    """
    found = []
    for seed in range(10):
        options: Any = {"serve": "all", "schedule": "fixed:size=30", "noise_seed": seed}
        agent = FittedFunctionalQ(WORLD.spec, 30, LocalDP(2.0, 1e-4), **options)
        block = users(np.random.default_rng(0), 30)
        nobody = np.full_like(block["states"], np.nan)
        with WatchedGate().open() as gate:
            agent.learn(Block(30, {**block.arrays, "states": nobody}))
        (passage,) = gate.passages
        std = float(np.max(passage.release.std["residuals"]))
        single = 2.0 * passage.statistic.clip / LocalDP(2.0, 1e-4).budget.mu  # type: ignore[attr-defined]
        assert std == pytest.approx(single * math.sqrt(30.0), rel=1e-4)
        found.append(passage.release["residuals"].ravel() / std)
    values = np.concatenate(found)
    assert abs(float((values**2).mean()) - 1.0) < 6.0 * math.sqrt(2.0 / values.size)
