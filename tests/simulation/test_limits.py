"""How few users could suffice: values by hand, and known ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tacit
from tacit import JointDP, LocalDP, NonPrivate
from tacit.simulation.limits import fewest_users, limits

ONE = JointDP(1.0, 1e-6)
Z = 1.2815515655446004  # one in ten is larger


def test_two_worlds_by_hand():
    mu = ONE.budget.mu
    assert fewest_users(ONE) == math.ceil(2.0 * Z / mu) == 11
    assert fewest_users(ONE, reach=0.25) == math.ceil(8.0 * Z / mu)
    # Nine labellings against one: 0.1 / 9 each, whose quantile is 2.2870.
    assert fewest_users(ONE, worlds=10.0) == math.ceil((Z + 2.28707) / mu)
    assert fewest_users(JointDP(0.5, 0.0)) == math.ceil(2.0 * math.log(9.0))
    assert fewest_users(JointDP(0.5, 0.0), worlds=10.0) == math.ceil(2.0 * math.log(81.0))
    assert fewest_users(NonPrivate()) == 1
    assert fewest_users(LocalDP(1.0, 0.0)) is None


def coin(reach):
    """With probability ``reach`` to a room with two doors, of which one pays."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 1], transitions[0, :, 2] = reach, 1.0 - reach
    transitions[1, :, 2] = transitions[2, :, 2] = 1.0
    rewards = np.zeros((3, 2))
    rewards[1, 1] = 1.0
    return tacit.tabular.TabularWorld(transitions, rewards, horizon=2, name="coin")


@pytest.mark.parametrize("reach", [1.0, 0.5, 0.1])
def test_a_state_that_few_come_to(reach):
    found = limits(coin(reach), ONE)
    assert found.least == math.ceil(2.0 * Z / ONE.budget.mu / reach)
    assert found.why == "actions in any order in 1 states that matter"


def test_known_worlds():
    found = limits(tacit.tabular.riverswim(6, 20), ONE)
    assert found.least == 18
    assert limits(tacit.tabular.riverswim(6, 20), JointDP(0.1, 1e-6)).least > 150


def test_where_nothing_is_known_it_says_so():
    river = tacit.tabular.riverswim(3, 4)
    assert limits(river, NonPrivate()).why == "no limit is known of what is not private"
    assert limits(river, LocalDP(1.0, 0.0)).why == "no limit is known of local DP"
    assert limits(tacit.lq.double_integrator(), ONE).least is None
    assert limits(tacit.continuous.line(8), ONE).least == 11
    assert limits(tacit.linear.simplex(states=8), ONE).least == 11
    nothing = tacit.tabular.TabularWorld([[[1.0], [1.0]]], [[0.5, 0.5]], horizon=1, name="dull")
    assert "no single state" in limits(nothing, ONE).why
