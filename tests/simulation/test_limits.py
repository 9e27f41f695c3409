"""How few users could suffice: values by hand."""

from __future__ import annotations

import math

from tacit import JointDP, LocalDP, NonPrivate
from tacit.simulation.plan import fewest_users

Z = 1.2815515655446004  # one in ten is larger


def test_two_worlds_by_hand():
    for epsilon in (0.1, 1.0, 10.0):
        privacy = JointDP(epsilon, 1e-6)
        assert fewest_users(privacy) == math.ceil(2.0 * Z / privacy.budget.mu)
    assert fewest_users(JointDP(1.0, 1e-6)) == 11
    assert fewest_users(JointDP(0.5, 0.0)) == math.ceil(2.0 * math.log(9.0))
    assert fewest_users(NonPrivate()) == 1
    assert fewest_users(LocalDP(1.0, 0.0)) is None
