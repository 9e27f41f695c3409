"""The keyboard: whom it is drawn for, and what its page says of it."""

import itertools

import numpy as np
import pytest

from research.worlds import build, keyboard
from tests.mixture.test_worlds import unknowing_value
from tests.refusals import refusals
from tests.tabular.families import uniform


def test_keyboards_are_accepted():
    seen = set()
    for seed, horizon in itertools.product(range(20), (2, 8, 40)):
        world = keyboard(horizon=horizon, seed=seed)
        assert world.baseline_value < 0.6 * world.optimal_value
        assert unknowing_value(world) < 0.8 * world.optimal_value
        assert (world.weights >= 0).all()
        assert world.weights.sum() == pytest.approx(1.0)
        assert world.spec.start[10] == 1.0
        assert world.spec.stationary
        seen.add(tuple(world.weights[0].tolist()))
    assert len(seen) > 20
    # Agents are told the same, whoever the people are.
    assert keyboard(seed=1).spec == keyboard(seed=2).spec


def test_keyboard_as_documented():
    world = keyboard()
    models = world.transition_features
    np.testing.assert_allclose(models.sum(axis=-1), 1.0)
    assert (models >= 0).all()
    taken = np.arange(12) % 3 == 2
    assert (taken == world.model.mean_rewards[0].T).all()
    # What is taken is of the suggested class.
    for action in range(4):
        others = taken & (np.arange(12) // 3 != action)
        assert (models[:, action][..., others] == 0).all()
    # Notes (style 0), after a noun, willing: a verb is wanted with .85.
    row = models[1, 1, 0]
    assert row[3 * 1 + 2] == pytest.approx(0.7 * (0.85 + 0.15 * 0.1))
    # By hand: a noun is wanted and not looked at, or looked at and borne with.
    assert row[3 * 0 + 1] == pytest.approx(0.05 * (0.3 + 0.7 * 0.9 * 0.5))
    assert row[3 * 0 + 0] == pytest.approx(0.05 * 0.7 * 0.9 * 0.5)
    # Chat (style 3), after a small word, annoyed, and a noun is not suggested, but wanted.
    row = models[9, 2, 3]
    assert row[3 * 2 + 2] == pytest.approx(0.35 * (0.05 + 0.95 * 0.3))
    assert row[0] == pytest.approx(0.85 * (0.65 * 0.5 + 0.35 * 0.7))
    assert row[1] == pytest.approx(0.85 * 0.65 * 0.5)
    # After a taken one attention is 1 at least, or falls to it.
    assert (models[2::3][..., 0::3] == 0).all()


@pytest.mark.parametrize("options", [{}, {"horizon": 5, "seed": 3, "known_rewards": False}])
def test_values_agree_and_the_name_rebuilds_the_world(options):
    world = keyboard(**options)
    assert world.value(world.optimal_policy) == pytest.approx(world.optimal_value, abs=1e-12)
    assert world.value(uniform(world)) == world.baseline_value
    again = build(world.name)
    assert (again.name, again.spec) == (world.name, world.spec)
    np.testing.assert_array_equal(again.weights, world.weights)


test_mistakes_are_named = refusals(
    lambda options: keyboard(**options),
    ({"horizon": 1}, "horizon must be (an integer )?>= 2, got 1"),
    ({"horizon": 10**9}, "would need"),
    ({"seed": "x"}, "seed must be an integer >= 0"),
)
