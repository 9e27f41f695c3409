"""The systems that the papers compare with, reconstructed: they say so, learn, keep a budget."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.linear import LinearWorld, simplex
from tacit.mixture import hard_mixture
from tacit.papers import baselines
from tacit.privacy.budget import epsilon_from_mu
from tacit.privacy.errors import InvalidArgument
from tacit.tabular import TabularWorld

MOVES = np.zeros((2, 2, 2))
MOVES[:, 0, 0] = MOVES[:, 1, 1] = 1.0
TABULAR = TabularWorld(MOVES, [[0.0, 0.2], [0.0, 1.0]], 2)
LINEAR, MIXTURE = simplex(3, 3, 4, 2), hard_mixture(2, 2, gap=0.5)
ALL: list[tuple[Any, Any, str]] = [
    (baselines.pucb, TABULAR, "joint"),
    (baselines.ldp_ob, TABULAR, "local"),
    (baselines.batched_lsvi_ucb, LINEAR, "joint"),
    (baselines.adaptive_lsvi_ucb, LINEAR, "joint"),
    (baselines.ldp_ucrl_vtr, MIXTURE, "local"),
]
each = pytest.mark.parametrize(
    ("run", "world", "model"), ALL, ids=["pucb", "ldp_ob", "batched", "adaptive", "ldp_ucrl_vtr"]
)


@each
def test_it_says_what_it_is_and_has_the_budget(run: Any, world: Any, model: str) -> None:
    found = run(world, episodes=200, epsilon=1.0, delta=1e-6)
    assert found.algorithm.endswith(", reconstructed")
    assert "reconstructed" in run.__doc__.partition("\n")[0]
    assert found.errata == baselines.RECONSTRUCTED
    assert not found.printed
    assert found.guarantee.model == model
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert found.guarantee.delta == 1e-6
    assert found.guarantee.simulation_only
    again = run(world, episodes=200, epsilon=1.0, delta=1e-6)
    assert np.array_equal(found.values, again.values)
    assert (found.values <= found.optimal_value + 1e-9).all()
    # Nobody has learnt anything before the first user.
    assert found.estimates[0] >= found.optimal_value - 1e-9


@each
def test_with_a_budget_without_end_it_learns(run: Any, world: Any, model: str) -> None:
    episodes = 8_000 if run is baselines.adaptive_lsvi_ucb else 20_000
    found = run(world, episodes=episodes, epsilon=1e8, delta=1e-6)
    gain = found.optimal_value - world.baseline_value
    assert found.values[-1] > world.baseline_value + 0.5 * gain
    assert found.regret[-1] < 0.8 * episodes * gain


@pytest.mark.parametrize("run", [baselines.pucb, baselines.ldp_ob])
def test_without_delta_noise_is_that_of_laplace(run: Any) -> None:
    found = run(TABULAR, episodes=100, epsilon=1.0)
    assert (found.guarantee.epsilon, found.guarantee.delta, found.guarantee.mu) == (1.0, 0.0, None)


def test_guarantees_of_linear_ones_follow_from_the_noise() -> None:
    usual = baselines.batched_lsvi_ucb(LINEAR, episodes=300, epsilon=1.0, delta=1e-6)
    H, s = LINEAR.model.horizon, usual.constants
    # 9 looks are in 4 nodes at most, and every one is an update.
    assert s["updates"] == 9
    vector = math.sqrt(8.0 * H**3 * 9) / usual.guarantee.mu
    mu = math.sqrt(2.0 * H * 4 / s["gram_noise"] ** 2 + 4.0 * H**3 * 9 / vector**2)
    assert usual.guarantee.mu == pytest.approx(mu)
    assert usual.guarantee.epsilon == pytest.approx(epsilon_from_mu(mu, 1e-6))


def test_adaptive_batches_replace_rarely() -> None:
    found = baselines.adaptive_lsvi_ucb(LINEAR, episodes=2_000, epsilon=1e8, delta=1e-6)
    switches = found.more["switches"]
    assert (np.diff(switches) >= 0).all()
    assert 1 <= switches[-1] <= min(100, found.constants["updates"])
    # The policy is the same until the next one.
    assert len(np.unique(found.values)) <= switches[-1] + 1


def test_long_features_are_refused() -> None:
    features = 2.0 * LINEAR.features
    long = LinearWorld(features, LINEAR.measures / 2.0, LINEAR.rewards / 2.0, LINEAR.model.horizon)
    with pytest.raises(InvalidArgument, match="norm at most 1"):
        baselines.batched_lsvi_ucb(long, episodes=100, epsilon=1.0, delta=1e-6)


def test_nothing_but_papers_imports_them() -> None:
    for path in Path(tacit.__file__).parent.rglob("*.py"):
        found = re.search(r"papers\.baselines import|papers import .*baselines", path.read_text())
        assert not found or path.parent.name == "papers", path
