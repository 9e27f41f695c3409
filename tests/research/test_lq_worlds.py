"""Systems drawn at random, and the room of Assumption 1."""

import numpy as np
import pytest

from research.worlds import build, random_system, thermostat
from research.worlds import lq as worlds
from tacit import InvalidArgument
from tacit.lq import riccati
from tests.refusals import refusals


@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_the_thermostat_is_as_assumption_1_has_it(horizon):
    """(a) to (e) of Chowdhury, Zhou and Shroff, with C_A = C_B = .6, C_w = .1, gamma = .5."""
    world, gamma = thermostat(horizon), 0.5
    spec = world.spec
    assert np.linalg.norm(world.theta) <= 1.0 == spec.norm_bound
    assert np.linalg.matrix_rank(np.hstack([world.B, world.A @ world.B])) == len(world.A)
    C_A, C_B, C_w = np.linalg.norm(world.A, 2), np.linalg.norm(world.B, 2), spec.noise_bound
    assert max(C_A, C_B, C_w) < 1.0
    assert C_A + gamma * C_B + C_w <= 1.0 + 1e-12
    users = world.simulate(world.optimal_policy, 2_000, np.random.default_rng(0))
    assert np.linalg.norm(users.states[:, 0], axis=1).max() <= 1.0
    assert np.linalg.norm(users.states, axis=2).max() <= 1.0 + 1e-12
    assert np.linalg.norm(users.actions, axis=2).max() <= gamma
    # What the paper needs and does not assume: no system of the set has larger optimal gains.
    angles, radii = np.linspace(0.0, np.pi, 181), np.linspace(0.05, 1.0, 20)
    largest = max(
        np.abs(
            riccati.optimal_gains([[r * np.cos(t)]], [[r * np.sin(t)]], world.Q, world.R, horizon)[
                1
            ]
        ).max()
        for t in angles
        for r in radii
    )
    assert largest <= gamma == spec.gain_bound
    assert horizon == 1 or largest > 0.7 * gamma


@pytest.mark.parametrize("sizes", [(1, 1, 5), (2, 1, 10), (3, 2, 15), (4, 2, 20), (6, 3, 30)])
def test_random_systems_are_what_they_are_accepted_for(sizes):
    n, d, H = sizes
    for seed in range(500, 510):
        world = random_system(n, d, H, seed)
        radius = np.abs(np.linalg.eigvals(world.A)).max()
        assert 0.7 <= radius <= 0.95
        assert np.linalg.norm(world.B, 2) == pytest.approx(0.5)
        assert np.linalg.norm(world.theta) <= 2.3
        assert max(np.linalg.norm(gain, 2) for gain in world.optimal_policy.gains) <= 2.2
        assert -world.baseline_value >= 1.3 * -world.optimal_value
        spec = world.spec
        assert (spec.norm_bound, spec.gain_bound, spec.noise_bound) == (2.5, 2.5, 0.15)
        np.testing.assert_allclose(spec.start_moment, np.eye(n) / n)
        np.testing.assert_array_equal(spec.state_cost, np.eye(n))
        np.testing.assert_array_equal(spec.control_cost, 0.05 * np.eye(d))
        assert (spec.states, spec.controls, spec.horizon) == sizes


def test_random_systems_are_decided_by_the_seed():
    a, b, c = random_system(seed=500), random_system(seed=500), random_system(seed=501)
    np.testing.assert_array_equal(a.theta, b.theta)
    assert (a.theta != c.theta).any()
    # Agents know the same of both.
    assert a.spec == c.spec


def test_systems_that_are_never_accepted_are_refused(monkeypatch):
    monkeypatch.setattr(worlds, "_ATTEMPTS", 50)
    # So large a system has too large a norm.
    with pytest.raises(InvalidArgument, match="no system with n=20, d=1, horizon=3 was accepted"):
        random_system(20, 1, horizon=3)
    with pytest.raises(InvalidArgument, match="over one step control gains nothing"):
        random_system(2, 1, horizon=1)


def test_names_rebuild_worlds():
    world = random_system(n=2, d=1, horizon=10, seed=503)
    again = build(world.name)
    assert (again.name, again.spec) == (world.name, world.spec)
    np.testing.assert_array_equal(again.theta, world.theta)


test_wrong_arguments_are_named = refusals(
    lambda options: random_system(**options),
    ({"n": 0}, "n must be an integer >= 1"),
    ({"d": 1.5}, "d must be an integer >= 1"),
    ({"seed": -1}, "seed must be an integer >= 0"),
    ({"n": 10**6}, "would need"),
    ({"d": 10**6}, "would need"),
    ({"horizon": 10**10}, "would need"),
)
