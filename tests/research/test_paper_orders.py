"""How regret of the papers' corrected algorithms grows: the page has what is stored."""

from __future__ import annotations

import numpy as np
import pytest

from research import paper_orders
from research.mixture_orders import slope
from research.paper_orders import Point, contexts, rows, stored, worst


def test_every_point_is_stored() -> None:
    found = stored()
    assert {point.key for row in rows() for point in row.points} == set(found)


def test_regret_grows_like_the_root_of_the_users_where_nothing_is_private() -> None:
    """The theorems have 1/2; constants that are proven start late, hence the margin."""
    found = stored()
    for row in rows():
        if row.along == "episodes":
            regrets, shares = zip(*(worst(found[point.key]) for point in row.points), strict=True)
            assert slope([float(size) for size in row.sizes], np.array(regrets)) < 0.7, row
            assert shares[-1] < 0.6, row


def test_the_worst_gap_counts() -> None:
    runs = {"regrets": [[[1.0, 10.0], [3.0, 10.0]], [[4.0, 5.0], [6.0, 5.0]]]}
    assert worst(runs) == (5.0, 1.0)


def test_points_are_the_papers_algorithms() -> None:
    regret, random = Point("UCB-VI", None, 300, states=3).run(1.0, 0)
    world = contexts(3, 2, 2, 1.0)
    assert random == pytest.approx(300 * (world.optimal_value - world.baseline_value))
    again = paper_orders.tabular.ucb_vi(
        world, episodes=300, epsilon=1.0, delta=1e-6, privatizer="none", printed=False, seed=0
    )
    assert regret == pytest.approx(again.regret[-1])
    assert Point("LinOpt-VI", 1.0, 300).promise > Point("LinOpt-VI", 100.0, 300).promise
