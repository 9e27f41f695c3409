import math

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.continuous import Custom, FeatureMap, Grid, Polynomial
from tests.refusals import refusals

MAPS = [
    Grid((0.0,), (1.0,), (5,)),
    Grid((-1.0, 2.0), (1.0, 6.0), (3, 4)),
    Polynomial((2.0, 1.0), 1.5, 3),
    Polynomial((1.0,), 0.3, 0),
]


def square(states):
    return np.concatenate([states, states**2], axis=1)


def test_points_have_a_weight_of_one_and_nothing_else():
    grid = Grid((-1.0, 2.0), (1.0, 6.0), (3, 4))
    assert grid.points[:2].tolist() == [[-1.0, 2.0], [-1.0, 2.0 + 4.0 / 3.0]]
    np.testing.assert_allclose(grid(grid.points), np.eye(12), atol=1e-14)


def test_interpolation_is_exact_for_bilinear_functions():
    grid = Grid((-1.0, 2.0), (1.0, 6.0), (3, 4))
    states = np.random.default_rng(0).uniform((-1.0, 2.0), (1.0, 6.0), (100, 2))

    def f(s):
        return 1.0 + 2.0 * s[:, 0] - 3.0 * s[:, 1] + 0.5 * s[:, 0] * s[:, 1]

    np.testing.assert_allclose(grid(states) @ f(grid.points), f(states), rtol=1e-13)


def test_weights_are_convex_wherever_a_state_is():
    grid = Grid((0.1,) * 3, (0.7, 0.8, 0.9), (4, 7, 2))
    weights = grid(np.random.default_rng(1).normal(size=(1000, 3)) * 2.0)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-13)


def test_cartpole_has_fifteen_features():
    features = Polynomial((2.4, 2.0, 0.2095, 2.0), 1.5, 2)
    assert features.size == len(features.monomials) == 15
    z = np.array([0.5, -1.0, 1.5, 0.25])
    pairs = [z[i] * z[j] for i in range(4) for j in range(i, 4)]
    np.testing.assert_allclose(features(z * [2.4, 2.0, 0.2095, 2.0]), [1.0, *z, *pairs], rtol=1e-12)


def test_non_finite_states_never_reach_the_function():
    seen = []

    def function(states):
        seen.append(states.copy())
        return states

    result = Custom(function, 1)([[np.nan], [2.0], [np.inf]])
    assert (result.tolist(), [s.tolist() for s in seen]) == ([[0.0], [2.0], [0.0]], [[[2.0]]])


def test_the_repr_of_a_function_is_the_same_in_every_run():
    assert repr(Custom(square, 2)).endswith(".square, size=2)")
    assert Custom(square, 2) == Custom(square, 2) != Custom(abs, 2)


@pytest.mark.parametrize("features", [*MAPS, Custom(square, 2)], ids=repr)
def test_a_state_that_is_not_finite_has_no_features_and_touches_nobody(features):
    D = features.dimension or 1
    states = np.full((4, D), 0.5)
    alone = features(states)
    states[1, -1], states[2, 0] = np.nan, -np.inf
    result = features(states)
    assert not result[1:3].any()
    assert (result[[0, 3]] == alone[[0, 3]]).all()
    assert not features(np.full((2, D), np.nan)).any()


@pytest.mark.parametrize("features", [*MAPS, Custom(square, 2)], ids=repr)
def test_shapes(features):
    D = features.dimension or 1
    assert isinstance(features, FeatureMap)
    assert features(np.zeros(D)).shape == (features.size,)
    assert features(np.zeros((0, D))).shape == (0, features.size)
    assert features(np.zeros((2, 3, D))).shape == (2, 3, features.size)


def test_states_with_other_coordinates_are_refused():
    with pytest.raises(InvalidArgument, match="coordinates"):
        MAPS[0](np.zeros((2, 2)))


test_wrong_arguments_are_named = refusals(
    lambda make: make(),
    (lambda: Grid((0.0,), (1.0, 2.0), (3,)), "less than highs"),
    (lambda: Grid((0.0,), (math.inf,), (3,)), "finite"),
    (lambda: Grid((-1e308,), (1e308,), (3,)), "less than highs"),
    (lambda: Grid((0.0,), (1.0,), (1,)), "shape must be an integer >= 2"),
    (lambda: Grid((0.0,), (1.0,), (3, 3)), "shape must be as long as lows"),
    (lambda: Grid((0.0,) * 3, (1.0,) * 3, (200,) * 3), "8,000,000 features"),
    (lambda: Polynomial((0.0,), 1.0, 2), "scales must be > 0"),
    (lambda: Polynomial((1.0,), 1e200, 2), "powers are not finite"),
    (lambda: Custom(3, 2), "callable"),
)
