"""The systems that the papers compare with, reconstructed: they say so, learn, keep a budget."""

import re
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.papers import baselines
from tacit.tabular import TabularWorld

MOVES = np.zeros((2, 2, 2))
MOVES[:, 0, 0] = MOVES[:, 1, 1] = 1.0
TABULAR = TabularWorld(MOVES, [[0.0, 0.2], [0.0, 1.0]], 2)
ALL = [(baselines.pucb, TABULAR, "joint"), (baselines.ldp_ob, TABULAR, "local")]
each = pytest.mark.parametrize(("run", "world", "model"), ALL, ids=["pucb", "ldp_ob"])


@each
def test_it_says_what_it_is_and_has_the_budget(run, world, model):
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
def test_with_a_budget_without_end_it_learns(run, world, model):
    episodes = 20_000
    found = run(world, episodes=episodes, epsilon=1e8, delta=1e-6)
    gain = found.optimal_value - world.baseline_value
    assert found.values[-1] > world.baseline_value + 0.5 * gain
    assert found.regret[-1] < 0.8 * episodes * gain


@pytest.mark.parametrize("run", [baselines.pucb, baselines.ldp_ob])
def test_without_delta_noise_is_that_of_laplace(run):
    found = run(TABULAR, episodes=100, epsilon=1.0)
    assert (found.guarantee.epsilon, found.guarantee.delta, found.guarantee.mu) == (1.0, 0.0, None)


def test_nothing_but_papers_imports_them():
    for path in Path(tacit.__file__).parent.rglob("*.py"):
        found = re.search(r"papers\.baselines import|papers import .*baselines", path.read_text())
        assert not found or path.parent.name == "papers", path
