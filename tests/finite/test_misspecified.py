"""Worlds a stated distance from linear, and a bonus that is told of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research import misspecification as measured
from tacit import LSVIUCB, LinOptVI, NonPrivate
from tacit.finite.misspecified import misspecified
from tacit.linear import simplex
from tacit.mixture import mixture_of_models
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run

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


def test_lsvi_is_wider_by_the_bound_and_by_what_regression_makes_of_it() -> None:
    world = simplex(states=6, actions=3, horizon=4)
    plain, told = (
        LSVIUCB(world.spec, 500, NonPrivate(), statistic="features", misspecification=m)
        for m in (0.0, 0.1)
    )
    for agent in (plain, told):
        run(agent, world, progress=False)
    algorithm = told.algorithm
    model = algorithm.way.model()
    values = np.array([[0.0, 1.0, 2.0, 0.5, 0.0, 3.0]])
    phi = algorithm.features.reshape(-1, world.spec.dimension)
    gram = model._sums.gram[0]
    n = np.trace(gram) / (phi**2).sum(axis=1).mean()
    leverage = np.einsum("nd,de,ne->n", phi, model.inverse[0], phi)
    expected = 0.1 * 3.0 * (1.0 + np.sqrt(n * leverage)).reshape(6, 3)
    assert algorithm._missed(model, 0, values)[0] == pytest.approx(expected)
    assert (told.q_values >= 0).all()


def test_linopt_is_wider_too() -> None:
    world = mixture_of_models(states=5, actions=3, horizon=5)
    agent = LinOptVI(world.spec, 500, NonPrivate(), statistic="model", misspecification=0.1)
    run(agent, world, progress=False)
    model = agent.algorithm.model()
    values = np.array([[0.0, 1.0, 2.0, 0.5, 3.0]])
    wide = model.next_values(0, values)[1]
    model.missed = 0.0
    assert (wide - model.next_values(0, values)[1] >= 0.1 * 3.0 - 1e-12).all()


@pytest.mark.parametrize(
    ("page", "world"), [("linear", "simplex"), ("mixture", "mixture_of_models")]
)
def test_the_documentation_shows_what_is_stored(page: str, world: str) -> None:
    rows = list(measured.stored().values())
    assert measured.markdown(rows, world) in (DOCS / f"{page}.md").read_text()
