"""Worlds a stated distance from linear, and what is measured in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research import misspecification as measured
from research.worlds import build, far
from research.worlds.misspecified import misspecified
from tacit.linear import simplex
from tacit.privacy.errors import InvalidArgument


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 0.5), st.integers(0, 5), st.booleans())
def test_every_row_is_exactly_so_far(distance: float, seed: int, stationary: bool) -> None:
    model = simplex(states=5, actions=3, horizon=4, stationary=stationary).model
    moved = misspecified(model, distance, seed)
    apart = np.abs(moved.transitions - model.transitions).sum(axis=-1) / 2.0
    assert apart == pytest.approx(distance, abs=1e-9)
    assert np.array_equal(moved.reward_probabilities, model.reward_probabilities)


@pytest.mark.parametrize("name", measured.KINDS)
def test_the_dial_changes_users_and_not_what_agents_know(name: str) -> None:
    plain, moved = build(f"{name}:seed=3"), far(name, 0.2, seed=3)
    assert plain.spec == moved.spec
    assert not np.allclose(plain.model.transitions, moved.model.transitions)
    again = build(moved.name)
    assert again.name == moved.name
    assert np.array_equal(again.model.transitions, moved.model.transitions)
    for job in measured.jobs(name, 0.2).values():
        assert job.agent(3).spec == plain.spec
    with pytest.raises(InvalidArgument, match="distance"):
        far(name, 0.7)
