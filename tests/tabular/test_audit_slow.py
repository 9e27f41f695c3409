"""Whole private runs, measured: what an observer of all releases really learns about one user.

The same users are served many times, and one of them, in the first block, lives one of two lives
that are as far apart as lives can be. Whoever sees all releases tells them apart as well as the
guarantee allows, and no better.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from tacit import UCBPO, UCBVI, JointDP, Relation, audit_samples
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Statistic
from tacit.tabular import TabularWorld

pytestmark = pytest.mark.slow

S, A, H, BLOCK, BLOCKS = 2, 2, 2, 8, 3
PRIVACY = JointDP(4.0, 1e-5)
RUNS = 3000

DESIGNS: dict[str, tuple[type[UCBVI], dict[str, Any]]] = {
    "stationary, masked and capped": (UCBVI, {"stationary": True}),
    "per step, masked": (UCBVI, {"stationary": False}),
    "policy optimisation": (UCBPO, {"stationary": True}),
}


class Halved:
    """A simulation with half the noise."""

    simulation = True

    def __init__(self, seed: int) -> None:
        self._noise = Noise(seed)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return 0.5 * self._noise.normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> np.ndarray:
        return 0.5 * self._noise.laplace(shape)


def world() -> TabularWorld:
    rng = np.random.default_rng(0)
    return TabularWorld(rng.dirichlet(np.ones(S), (S, A)), rng.random((S, A)), horizon=H, start=0)


@cache
def steady_seed(design: str) -> int:
    """A seed whose first policy acts the same at all steps: then a life can stay in one cell."""
    for seed in range(100):
        table = build(design, seed, 0).policy.table()
        if (table == table[0]).all():
            return seed
    raise AssertionError("no such seed")


def build(design: str, seed: int, noise_seed: int) -> UCBVI:
    cls, options = DESIGNS[design]
    size = f"fixed:size={BLOCK}"
    users = BLOCK * BLOCKS
    return cls(
        world().spec, users, PRIVACY, schedule=size, seed=seed, noise_seed=noise_seed, **options
    )


def make(design: str, seed: int, halved: bool = False) -> UCBVI:
    # The first policy, and so what the user can do, is the same in all runs.
    agent = build(design, steady_seed(design), seed)
    if halved:
        source = Halved(seed)
        agent._run.curator._source = source
        if agent._run.stream is not None:
            agent._run.stream.counter.source = source
    return agent


def life(agent: UCBVI, where: int) -> dict[str, np.ndarray]:
    """Always in one state, always paid, always as the policy says."""
    states = np.full(H + 1, where)
    table = agent.policy.table()
    actions = np.array([int(table[h, where].argmax()) for h in range(H)])
    return {"states": states, "actions": actions, "rewards": np.ones(H)}


def first_block(agent: UCBVI, where: int) -> Block:
    rng = np.random.default_rng(1)
    block = world().simulate(agent.policy, BLOCK, rng, "episodes").block()
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    for name, values in life(agent, where).items():
        arrays[name][0] = values
    return Block(BLOCK, arrays)


def difference(agent: UCBVI, statistic: Statistic) -> np.ndarray:
    """How far the two lives are apart at the gate."""
    blocks = [first_block(agent, where).take(slice(0, 1)) for where in (0, 1)]
    return statistic.contributions(blocks[1])[0] - statistic.contributions(blocks[0])[0]


def observed(design: str, seed: int, where: int, halved: bool) -> float:
    """One run; the projection of all its releases on what the other life would have changed.

    A stream's releases are sums that all contain the first block, with noise of covariance C
    between them: the best projection has the weights C^-1 1.
    """
    agent = make(design, seed, halved)
    statistic = agent.statistic if agent._run.stream is None else agent._run.stream.statistic
    towards = difference(agent, statistic)
    releases: list[float] = []
    gate: Any = agent._run.curator if agent._run.stream is None else agent._run.stream
    original = gate.release

    def release(*args: Any, **options: Any) -> Any:
        published = original(*args, **options)
        if not releases or agent._run.stream is not None:
            releases.append(float(statistic.layout.pack(published.parts) @ towards))
        return published

    gate.release = release
    rng = np.random.default_rng(1000 + seed)
    agent.learn(first_block(agent, where))
    while agent.block_users:
        agent.learn(world().simulate(agent.policy, agent.block_users, rng, "episodes").block())
    if agent._run.stream is None:
        return releases[0]
    return float(np.dot(stream_weights(agent), releases))


def stream_weights(agent: UCBVI) -> np.ndarray:
    """The best weights of a stream's releases, from its counter's code."""
    from tacit.testing.mechanisms import BasisNoise

    counter = agent._run.stream.counter
    probe = counter.rebuild((1,), counting := BasisNoise())
    for _ in range(BLOCKS):
        probe.release(np.zeros(1))
    draws = counting.draws
    played = counter.rebuild((draws,), BasisNoise(draws))
    B = np.stack([played.release(np.zeros(draws)) for _ in range(BLOCKS)])
    return np.linalg.pinv(B @ B.T) @ np.ones(BLOCKS)


def samples(design: str, halved: bool, runs: int = RUNS) -> list[np.ndarray]:
    return [
        np.array([observed(design, 2 * seed + where, where, halved) for seed in range(runs)])
        for where in (0, 1)
    ]


@pytest.mark.parametrize("design", DESIGNS)
def test_the_two_lives_are_as_far_apart_as_lives_can_be(design: str) -> None:
    agent = make(design, 0)
    statistic = agent.statistic if agent._run.stream is None else agent._run.stream.statistic
    length = float(np.linalg.norm(difference(agent, statistic)))
    assert length == pytest.approx(statistic.l2(Relation.REPLACE_ONE))


@pytest.mark.parametrize("design", DESIGNS)
def test_a_whole_run_costs_what_is_claimed(design: str) -> None:
    claim = make(design, 0).guarantee.mu
    audit = audit_samples(*samples(design, halved=False), confidence=0.999)
    assert 0.6 * claim <= audit.mu <= claim


@pytest.mark.parametrize("design", DESIGNS)
def test_half_the_noise_is_caught(design: str) -> None:
    claim = make(design, 0).guarantee.mu
    audit = audit_samples(*samples(design, halved=True, runs=1500), confidence=0.999)
    assert claim < audit.mu <= 2.0 * claim
    assert audit.epsilon(PRIVACY.delta) > PRIVACY.epsilon
    assert math.isfinite(audit.mu)
