from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tacit import InvalidArgument
from tacit.lq import (
    Point,
    UniformBall,
    dosing,
    double_integrator,
    from_control,
)

PARTS = {"horizon": 5, "noise": UniformBall(0.1), "start": Point((1.0, 0.0))}


def test_dosing_is_the_documented_world():
    world = dosing()
    assert world.A.tolist() == [[0.70, 0.08, 0.0], [0.20, 0.85, 0.0], [0.0, 0.18, 0.78]]
    assert world.B.tolist() == [[0.5], [0.0], [0.0]]
    assert world.Q.tolist() == np.diag([0.05, 0.05, 1.0]).tolist()
    assert world.R.tolist() == [[0.1]]
    spec = world.spec
    assert (spec.horizon, spec.noise_bound, spec.norm_bound, spec.gain_bound) == (24, 0.08, 2, 2)
    centre = np.array([0.3, 0.3, 0.6])
    np.testing.assert_allclose(
        spec.start_moment, np.outer(centre, centre) + 0.25**2 / 5.0 * np.eye(3)
    )
    np.testing.assert_allclose(spec.noise_covariance, 0.08**2 / 5.0 * np.eye(3))
    assert world.name == "dosing"


@pytest.mark.parametrize(
    "options",
    [{}, {"horizon": 7}, {"horizon": 60, "step": 1.0}, {"step": 0.05, "noise": 0.0}],
)
def test_double_integrator_is_the_exact_motion_of_a_pushed_cart(options):
    world = double_integrator(**options)
    step = options.get("step", 0.3)
    cart = from_control(
        [[0.0, 1.0], [0.0, 0.0]],
        [[0.0], [1.0]],
        step=step,
        horizon=3,
        noise=UniformBall(0.0),
        start=Point((1.0, 0.0)),
    )
    np.testing.assert_allclose(world.A, cart.A, rtol=1e-14)
    np.testing.assert_allclose(world.B, cart.B, rtol=1e-14)
    assert world.optimal_value > world.baseline_value
    assert (world.spec.norm_bound, world.spec.gain_bound) == (2.5, 3.0)


@pytest.mark.parametrize(
    "world",
    [dosing(), double_integrator(9, 0.25, 0.05)],
    ids=lambda world: world.name,
)
def test_names_rebuild_worlds(world):
    makers = {f.__name__: f for f in (dosing, double_integrator)}
    kind, _, text = world.name.partition(":")
    pairs = (pair.split("=") for pair in text.split(",") if pair)
    read = {key: float(value) if "." in value else int(value) for key, value in pairs}
    again = makers[kind](**read)
    assert again.name == world.name
    assert again.spec == world.spec
    np.testing.assert_array_equal(again.theta, world.theta)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: double_integrator(step=0.0), "step must be > 0 and finite"),
        (lambda: double_integrator(step=1.5), "step must be at most 1"),
        (lambda: double_integrator(noise=-0.1), "noise must be a finite number >= 0"),
        (lambda: double_integrator(horizon=0), "horizon must be an integer >= 1"),
        (lambda: from_control(np.eye(2), **PARTS), "must have A, B and dt"),
        (lambda: from_control(np.eye(2), np.ones((3, 1)), **PARTS), "B must have shape"),
        (lambda: from_control(np.eye(2), np.ones((2, 1)), step=0.0, **PARTS), "step must be"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


def system(dt):
    A, B = [[-0.3, 1.0], [-1.5, -0.2]], [[0.2], [1.0]]
    return SimpleNamespace(A=np.array(A), B=np.array(B), dt=dt)


def test_continuous_time_is_held_exactly():
    s, step, u = system(0), 0.4, 0.7
    world = from_control(s, step=step, **PARTS)
    x = np.array([1.0, -2.0])
    solved = solve_ivp(lambda _, y: s.A @ y + s.B[:, 0] * u, (0.0, step), x, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(world.A @ x + world.B[:, 0] * u, solved.y[:, -1], rtol=1e-8)
    unsaid = from_control(system(None), step=step, **PARTS)
    np.testing.assert_array_equal(unsaid.A, world.A)
    arrays = from_control(s.A, s.B, step=step, **PARTS)
    np.testing.assert_array_equal(arrays.theta, world.theta)


def test_discrete_time_is_taken_as_it_is():
    for dt in (0.1, True):
        s = system(dt)
        np.testing.assert_array_equal(from_control(s, **PARTS).A, s.A)
    np.testing.assert_array_equal(from_control(system(0.1), step=0.1, **PARTS).B, s.B)
    np.testing.assert_array_equal(from_control(s.A, s.B, **PARTS).A, s.A)


@pytest.mark.parametrize(
    ("dt", "step", "words"),
    [
        (0, None, "step must be given"),
        (None, None, "step must be given"),
        (0.1, 0.2, "step must be that of the system, 0.1, got 0.2"),
        (True, 1.0, "step must be that of the system, True, got 1.0"),
    ],
)
def test_steps_that_contradict_the_system_are_refused(dt, step, words):
    with pytest.raises(InvalidArgument, match=words):
        from_control(system(dt), step=step, **PARTS)


def test_defaults_of_from_control_are_identities():
    noise = UniformBall(0.1)
    world = from_control(
        0.5 * np.eye(2), np.ones((2, 2)), horizon=3, noise=noise, start=Point((1.0, 1.0)), name="me"
    )
    assert world.Q.tolist() == np.eye(2).tolist()
    assert world.R.tolist() == np.eye(2).tolist()
    assert world.name == "me"
