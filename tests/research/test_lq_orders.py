"""Private-OFU-RL where its assumptions are true: the page has what is stored, runs the paper's."""

import numpy as np
import pytest

from research import lq_orders
from research.study import load
from research.worlds import thermostat
from tacit.papers import chowdhury_lq_2021 as paper


def test_orders_are_those_of_the_bound():
    stored = load("lq_orders")
    for epsilon in lq_orders.EPSILONS:
        assert 0.4 < lq_orders.order_of_users(stored, epsilon) < 0.55
    assert -0.55 < lq_orders.order_of_epsilon(stored, lq_orders.mu_of) < -0.4
    # The truth was in every set of every run: of ten runs with a chance of 0.9 each, at least.
    rows = [row for place in stored.values() for runs in place.values() for row in runs]
    assert len(rows) == 80
    assert all(row["inside"] for row in rows)


@pytest.mark.parametrize("epsilon", [None, 1e6])
def test_planning_for_every_user_is_the_papers_algorithm(epsilon, monkeypatch):
    """With blocks of one user, runs of the same users are those of tacit.papers."""
    world, K = thermostat(), 30
    starts, noises = paper._users(world, K, np.random.default_rng(0))
    came = [0]

    def users(_world, count, _rng):
        first, came[0] = came[0] % K, came[0] + count
        return starts[first : first + count].copy(), noises[first : first + count].copy()

    monkeypatch.setattr(paper, "_users", users)
    given = {"episodes": K, "gamma": 0.5, "printed": False, "seed": 3}
    if epsilon is None:
        expected = paper.private_ofu_rl(
            world, epsilon=1.0, delta=1e-6, regularizer="ridge", **given
        )
    else:
        expected = paper.private_ofu_rl(world, epsilon=epsilon, delta=1e-6, **given)
    found = lq_orders.run(world, K, epsilon, 0.5, 3, growth=1.0)
    np.testing.assert_array_equal(found.served, np.arange(1, K + 1))
    np.testing.assert_allclose(found.regret, expected.regret, rtol=1e-6)
    assert found.inside == bool(expected.more["inside"].all())


def test_costs_are_exact():
    world = thermostat()
    gains = world.optimal_policy.gains
    assert -lq_orders.cost_of(world, gains) == pytest.approx(world.optimal_value)
    assert -lq_orders.cost_of(world, 0 * gains) == pytest.approx(world.baseline_value)


def test_what_a_curve_says():
    curve = lq_orders.Curve(
        np.array([1.0, 2.0, 4.0, 8.0]),
        np.array([1.0, 2.0, 3.0, 3.5]),
        np.array([1, 1, 0.5, 0.1]),
        True,
    )
    assert curve.at([2, 3, 6]) == pytest.approx([2.0, 2.5, 3.25])
    assert curve.helped == 4
    still = lq_orders.Curve(np.array([1.0]), np.array([1.0]), np.array([1.0]), True)
    assert still.helped is None
