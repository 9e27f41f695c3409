"""Posterior sampling on private counts."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import PSRL, JointDP, LocalDP, NonPrivate, check_agent, registry
from tacit.simulation.seeds import noise_seed
from tacit.tabular import riverswim

WORLD = riverswim(3, 4)


def learnt(privacy: Any, users: int = 4000, **options: Any) -> Any:
    agent = PSRL(WORLD.spec, users, privacy, noise_seed=1, **options)
    tacit.run(agent, WORLD, seed=1, progress=False)
    return agent


@pytest.mark.parametrize("stationary", [True, False])
def test_the_posterior_is_that_of_the_counts(stationary: bool) -> None:
    """Without noise a cell's mean is (n(s') + 1 / S) / (n + 1), in loops."""
    agent = learnt(NonPrivate(), stationary=stationary)
    counts, (mean, paid, worth) = agent.evidence.counts(), agent.posterior()
    for cell in np.ndindex(worth.shape):
        row = counts.transitions[cell]
        n = row.sum()
        assert worth[cell] == pytest.approx(n)
        assert mean[cell] == pytest.approx((row + 1.0 / 3.0) / (n + 1.0))
        average = counts.rewards[cell] / n if n else 0.0
        assert paid[cell] == pytest.approx((n * average + 0.5) / (n + 1.0))


def test_noise_makes_visits_worth_less() -> None:
    exact, noisy = learnt(NonPrivate()).posterior(), learnt(JointDP(1.0, 1e-6)).posterior()
    assert noisy[2].sum() < exact[2].sum()
    np.testing.assert_allclose(noisy[0].sum(axis=-1), 1.0)


def test_plans_equal_the_slow_reference() -> None:
    agent = learnt(NonPrivate())
    H, S, A = 4, 3, 2
    mean, paid, _ = agent.posterior()
    value, best = [0.0] * S, np.zeros((H, S), dtype=int)
    for h in range(H - 1, -1, -1):
        q = [
            [paid[0, s, a] + sum(mean[0, s, a, t] * value[t] for t in range(S)) for a in range(A)]
            for s in range(S)
        ]
        best[h] = [int(np.argmax(row)) for row in q]
        value = [max(row) for row in q]
    np.testing.assert_array_equal(agent.greedy_policy.actions, best)


def test_drawn_worlds_have_the_posteriors_mean() -> None:
    """Averages of 4,000 draws are within 5 standard errors: a false alarm is rarer than 1e-4."""
    algorithm = learnt(JointDP(10.0, 1e-6)).algorithm
    mean, _, worth = algorithm.posterior()
    seen: list[Any] = []
    algorithm.best = lambda q: None
    values = type(algorithm)._values
    algorithm._values = lambda P, r: (seen.append(P), values(algorithm, P, r))[1]
    for _ in range(4000):
        algorithm.plan()
    drawn = np.array(seen[0::2])
    error = np.sqrt(mean * (1.0 - mean) / (worth + 2.0)[..., np.newaxis] / 4000)
    assert (np.abs(drawn.mean(axis=0) - mean) <= 5.0 * error + 1e-9).all()


@pytest.mark.parametrize(
    "privacy", [JointDP(1.0, 1e-6), LocalDP(4.0, 1e-6), NonPrivate()], ids=["joint", "local", "no"]
)
def test_it_conforms(privacy: Any) -> None:
    def make(spec: Any, users: int, **options: Any) -> Any:
        return PSRL(spec, users, privacy, schedule="fixed:size=40", **options)

    check_agent(make, WORLD, users=160)


def test_it_learns_riverswim() -> None:
    world = riverswim(6, 20)
    ratios = []
    for seed in range(5):
        privacy = JointDP(10.0, 1e-6)
        agent = PSRL(world.spec, 100_000, privacy, seed=seed, noise_seed=noise_seed(seed))
        result = tacit.run(agent, world, seed=seed, progress=False)
        ratios.append(result.greedy_value / world.optimal_value)
    assert statistics.median(ratios) > 0.9


def test_it_is_found_by_its_name() -> None:
    assert registry.agent_entry("psrl").target == "tacit.tabular.psrl:PSRL"
    assert "psrl" in registry.agent_names()
    with pytest.raises(tacit.InvalidArgument, match="draws a world in place of a bonus"):
        PSRL(WORLD.spec, 100, NonPrivate(), scale=2.0)
