"""What Sahu compares with, reconstructed: it says so, learns, and keeps its budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from research import linear_baselines as baselines
from tacit.linear import simplex
from tacit.privacy.budget import epsilon_from_mu

WORLD = simplex(3, 3, 4, 2)
each = pytest.mark.parametrize("run", [baselines.batched_lsvi_ucb, baselines.adaptive_lsvi_ucb])


@each
def test_it_says_what_it_is_and_has_the_budget(run: Any) -> None:
    found = run(WORLD, episodes=200, epsilon=1.0, delta=1e-6)
    assert found.algorithm.endswith(", reconstructed")
    assert found.errata == baselines.RECONSTRUCTED
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    again = run(WORLD, episodes=200, epsilon=1.0, delta=1e-6)
    assert np.array_equal(found.values, again.values)
    # Nobody has learnt anything before the first user.
    assert found.estimates[0] >= found.optimal_value - 1e-9


@each
def test_with_a_budget_without_end_it_learns(run: Any) -> None:
    episodes = 8_000 if run is baselines.adaptive_lsvi_ucb else 20_000
    found = run(WORLD, episodes=episodes, epsilon=1e8, delta=1e-6)
    gain = found.optimal_value - WORLD.baseline_value
    assert found.values[-1] > WORLD.baseline_value + 0.5 * gain
    assert found.regret[-1] < 0.8 * episodes * gain


def test_the_guarantee_follows_from_the_noise() -> None:
    usual = baselines.batched_lsvi_ucb(WORLD, episodes=300, epsilon=1.0, delta=1e-6)
    H, s = WORLD.model.horizon, usual.constants
    # 9 looks are in 4 nodes at most, and every one is an update.
    assert s["updates"] == 9
    vector = math.sqrt(8.0 * H**3 * 9) / usual.guarantee.mu
    mu = math.sqrt(2.0 * H * 4 / s["gram_noise"] ** 2 + 4.0 * H**3 * 9 / vector**2)
    assert usual.guarantee.mu == pytest.approx(mu)
    assert usual.guarantee.epsilon == pytest.approx(epsilon_from_mu(mu, 1e-6))


def test_adaptive_batches_replace_rarely() -> None:
    found = baselines.adaptive_lsvi_ucb(WORLD, episodes=2_000, epsilon=1e8, delta=1e-6)
    switches = found.more["switches"]
    assert (np.diff(switches) >= 0).all()
    assert 1 <= switches[-1] <= min(100, found.constants["updates"])
    # The policy is the same until the next one.
    assert len(np.unique(found.values)) <= switches[-1] + 1
