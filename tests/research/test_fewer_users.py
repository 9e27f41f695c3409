"""How few users suffice: what the page says is what is stored, and the helpers do what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tacit
from research import fewer_users


def test_medians_and_bands() -> None:
    values = [5, None, 3, 9, 1, 7, 2, 8, 4, 6]
    assert fewer_users.median(values) == 5.5
    assert fewer_users.ninetieth(values) == 9
    assert math.isinf(fewer_users.ninetieth([1, None]))
    found = {"serving": [1000, 2000, 3000], "agent": fewer_users.AGENT}
    assert fewer_users.cell(found) == "2,000 (3,000)"
    assert fewer_users.cell(found | {"agent": "an earlier one"}) == "2,000 (3,000)*"
    assert fewer_users.cell(None) == "-"


def test_labels_are_in_another_order_in_every_state() -> None:
    world = tacit.tabular.grid(side=3, horizon=4)
    turned = fewer_users.mixed_up(world, 1)
    assert turned.optimal_value == pytest.approx(world.optimal_value)
    one = world.model.transitions[0]
    other = turned.model.transitions[0]
    for state in range(9):
        rows = {tuple(row) for row in one[state].round(12)}
        assert rows == {tuple(row) for row in other[state].round(12)}
    assert not np.allclose(one, other)


@pytest.mark.slow
def test_limits_of_riverswim() -> None:
    """Known from another script: 18 users at least, and an oracle that needs over a hundred."""
    found = fewer_users.limits("riverswim, 6 states")
    assert 15 <= found["limit"] <= 21
    assert 80 <= found["oracle"] <= 250
