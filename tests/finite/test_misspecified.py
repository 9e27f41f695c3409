"""Worlds a stated distance from linear, and a bonus that is told of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research import misspecification as measured
from tacit.finite.misspecified import misspecified
from tacit.linear import simplex
from tacit.mixture import mixture_of_models
from tacit.privacy.errors import InvalidArgument

DOCS = Path(__file__).parents[2] / "docs"


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 0.5), st.integers(0, 5), st.booleans())
def test_every_row_is_exactly_so_far(distance: float, seed: int, stationary: bool) -> None:
    model = simplex(states=5, actions=3, horizon=4, stationary=stationary).model
    moved = misspecified(model, distance, seed)
    far = np.abs(moved.transitions - model.transitions).sum(axis=-1) / 2.0
    assert far == pytest.approx(distance, abs=1e-9)
    assert np.array_equal(moved.reward_probabilities, model.reward_probabilities)


@pytest.mark.parametrize("make", [simplex, mixture_of_models])
def test_the_dial_of_a_world_changes_its_users_and_not_what_agents_know(make: object) -> None:
    plain, moved = make(seed=3), make(seed=3, misspecification=0.2)  # type: ignore[operator]
    assert plain.spec == moved.spec
    assert not np.allclose(plain.model.transitions, moved.model.transitions)
    assert moved.name.endswith("misspecification=0.2")
    with pytest.raises(InvalidArgument, match="misspecification"):
        make(misspecification=0.7)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("page", "world"), [("linear", "simplex"), ("mixture", "mixture_of_models")]
)
def test_the_documentation_shows_what_is_stored(page: str, world: str) -> None:
    rows = list(measured.stored().values())
    assert measured.markdown(rows, world) in (DOCS / f"{page}.md").read_text()
