import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.signal import StateSpace

from tacit import InvalidArgument
from tacit.lq import Ball, GainPolicy, LQSpec, LQWorld, dosing, double_integrator
from tacit.lq.world import PART
from tacit.privacy.statistic import StreamedBlock
from tests.refusals import refusals

# Every statistical test here has a fixed seed and would alarm falsely with about this probability.
ALARM = 1e-6


def make(n=3, d=2, horizon=4, noise=None, start=None, seed=0, **options):
    rng = np.random.default_rng(seed)
    return LQWorld(
        0.5 * rng.normal(size=(n, n)),
        rng.normal(size=(n, d)),
        np.eye(n),
        0.1 * np.eye(d),
        horizon,
        0.3 if noise is None else noise,
        Ball(1.0, (0.0,) * n, surface=True) if start is None else start,
        **options,
    )


def some_policy(world, noise=0.2, seed=1, version=5):
    n, d = world.B.shape
    gains = 0.3 * np.random.default_rng(seed).normal(size=(world.horizon, d, n))
    return GainPolicy(gains, noise, version)


def parts_of(world, policy, episodes):
    """Noise of the states and of the controls, as the episodes have it."""
    x, u = episodes.states, episodes.actions
    after = np.einsum("ij,khj->khi", world.A, x[:, :-1]) + np.einsum("ia,kha->khi", world.B, u)
    return x[:, 1:] - after, u - np.einsum("hai,khi->kha", policy.gains, x[:, :-1])


def close_to_mean(values, mean):
    """Whether means of independent rows are right; the bound counts all of the coordinates."""
    values = values.reshape(len(values), -1)
    error = np.abs(values.mean(axis=0) - np.ravel(mean))
    quantile = stats.norm.isf(0.5 * ALARM / values.shape[1])
    return bool((error <= quantile * values.std(axis=0) / math.sqrt(len(values)) + 1e-12).all())


# In more than five dimensions balls are drawn another way.
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_noise_is_bounded_and_has_its_covariance(n):
    world = make(n=n, d=1, horizon=2, noise=0.3)
    policy = some_policy(world)
    episodes = world.simulate(policy, 20_000, np.random.default_rng(2))
    drawn = parts_of(world, policy, episodes)[0].reshape(-1, n)
    lengths = np.linalg.norm(drawn, axis=1)
    assert lengths.max() <= 0.3 + 1e-12
    assert close_to_mean(drawn, np.zeros(n))
    assert close_to_mean(np.einsum("ki,kj->kij", drawn, drawn), 0.09 / (n + 2) * np.eye(n))
    assert world.spec.noise_covariance.tolist() == (0.3**2 / (n + 2) * np.eye(n)).tolist()
    # The length has the right distribution, and not only the right mean square.
    assert stats.kstest((lengths / 0.3) ** n, "uniform").pvalue > ALARM


@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize(("surface", "radius"), [(True, 0.7), (False, 0.7), (False, 0.0)])
def test_starts_are_where_they_say_and_have_their_moment(surface, radius, n):
    centre = tuple(np.linspace(-0.5, 0.8, n))
    start = Ball(radius, centre, surface)
    world = make(n=n, d=1, horizon=1, start=start)
    first = world.simulate(some_policy(world), 20_000, np.random.default_rng(3)).states[:, 0]
    distance = np.linalg.norm(first - centre, axis=1)
    if radius == 0.0:
        np.testing.assert_array_equal(first, np.broadcast_to(centre, first.shape))
    elif surface:
        np.testing.assert_allclose(distance, radius, rtol=1e-12)
    else:
        assert stats.kstest((distance / radius) ** n, "uniform").pvalue > ALARM
    assert close_to_mean(first, centre)
    assert close_to_mean(np.einsum("ki,kj->kij", first, first), start.moment())
    np.testing.assert_allclose(world.spec.start_moment, start.moment())


def test_signs_of_controls_are_fair_and_independent():
    world = make(horizon=3)
    policy = some_policy(world, noise=0.2)
    episodes = world.simulate(policy, 30_000, np.random.default_rng(4))
    noise, signs = parts_of(world, policy, episodes)
    np.testing.assert_allclose(np.abs(signs), 0.2, rtol=1e-9)
    flat = np.sign(signs).reshape(30_000, -1)
    # All pairs of signs of a user, of signs and noise, and of users side by side.
    assert close_to_mean(np.einsum("ki,kj->kij", flat, flat), np.eye(6))
    assert close_to_mean(np.einsum("ki,kj->kij", flat, noise.reshape(30_000, -1)), np.zeros(54))
    assert close_to_mean(flat[:-1] * flat[1:], np.zeros(6))
    assert close_to_mean(flat, np.zeros(6))


def test_noise_is_independent_of_steps_users_and_starts():
    world = make(horizon=4)
    policy = some_policy(world)
    episodes = world.simulate(policy, 40_000, np.random.default_rng(5))
    noise = parts_of(world, policy, episodes)[0]
    for other in (noise[:, 1:], noise[:, :-1] ** 2 - (noise[:, :-1] ** 2).mean(axis=0)):
        pairs = np.einsum("ki,kj->kij", noise[:, 0], other[:, -1])
        assert close_to_mean(pairs, np.zeros(9))
    assert close_to_mean(noise[1:, 0] * noise[:-1, 0], np.zeros(3))
    assert close_to_mean(noise[64:, 0] * noise[:-64, 0], np.zeros(3))
    assert close_to_mean(noise[:, 0] * episodes.states[:, 0], np.zeros(3))
    first = noise[:PART, 0] * noise[PART : 2 * PART, 0]
    assert close_to_mean(first, np.zeros(3))


def test_means_of_costs_are_the_value():
    for world in (make(horizon=6), dosing()):
        policy = some_policy(world)
        episodes = world.simulate(policy, 60_000, np.random.default_rng(6))
        x, u = episodes.states[:, :-1], episodes.actions
        costs = np.einsum("khi,ij,khj->k", x, world.Q, x)
        costs += np.einsum("kha,ab,khb->k", u, world.R, u)
        assert close_to_mean(costs, -world.value(policy))


def test_streamed_users_are_those_of_the_episodes_every_time():
    world = make()
    policy, users = some_policy(world), 2 * PART + 77
    episodes = world.simulate(policy, users, np.random.default_rng(7))
    block = world.simulate(policy, users, np.random.default_rng(7), "streamed")
    assert isinstance(block, StreamedBlock)
    assert block.aggregate
    assert block.users == users
    for _ in range(2):
        parts = list(block.parts())
        assert [part.users for part in parts] == [PART, PART, 77]
        for name in ("states", "actions", "versions", "lengths"):
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, getattr(episodes, name))
    assert "rewards" not in parts[0].arrays
    assert (episodes.versions == 5).all()
    assert (episodes.lengths == world.horizon + 1).all()  # no episode ends early


def test_values_of_a_world_in_one_dimension_by_hand():
    # x' = x + u + w, two steps, cost x^2 + u^2: u = -x/2 at first, then nothing.
    noise = 0.6
    world = LQWorld([[1.0]], [[1.0]], [[1.0]], [[1.0]], 2, noise, Ball(0.0, (2.0,)))
    variance = 0.6**2 / 3.0
    assert world.baseline_value == pytest.approx(-(4.0 + 4.0 + variance))
    assert world.optimal_value == pytest.approx(-(4.0 + 1.0 + 1.0 + variance))
    assert world.reference_value == world.baseline_value
    np.testing.assert_allclose(world.optimal_policy.gains.ravel(), [-0.5, 0.0], atol=1e-15)
    noisy = GainPolicy(world.optimal_policy.gains, 0.5)
    # Both controls cost .25 more, and the first moves the second state.
    assert world.value(noisy) == pytest.approx(world.optimal_value - 3 * 0.25)


def test_spec_says_what_is_public_and_nothing_of_the_system():
    world = make(norm_bound=9.0, gain_bound=8.0)
    spec = world.spec
    assert (spec.states, spec.controls, spec.horizon) == (3, 2, 4)
    assert (spec.noise_bound, spec.norm_bound, spec.gain_bound) == (0.3, 9.0, 8.0)
    assert not hasattr(spec, "actions")
    other = make(norm_bound=9.0, gain_bound=8.0, seed=1)
    assert (other.A != world.A).all()
    assert other.spec == spec
    assert hash(other.spec) == hash(spec)
    assert repr(other.spec) == repr(spec)


def test_text_of_a_spec_rebuilds_it_exactly():
    spec = make(norm_bound=10.0 / 3.0, gain_bound=7.1, start=Ball(0.1, (0.1, 0.2, 0.3))).spec
    again = eval(repr(spec), {"LQSpec": LQSpec})  # noqa: S307
    assert again == spec
    assert repr(again) == repr(spec)
    moved = spec.start_moment.copy()
    moved[0, 0] = np.nextafter(moved[0, 0], 1.0)
    assert replace(spec, start_moment=moved) != spec
    assert repr(replace(spec, start_moment=moved)) != repr(spec)
    assert replace(spec, horizon=9) != spec
    assert spec != "spec"


GOOD = {
    "A": np.eye(2),
    "B": np.ones((2, 1)),
    "Q": np.eye(2),
    "R": np.eye(1),
    "horizon": 3,
    "noise": 0.1,
    "start": Ball(0.0, (1.0, 0.0)),
}


test_wrong_worlds_are_refused = refusals(
    lambda change: LQWorld(**(GOOD | change)),
    ({"A": np.ones((2, 3))}, "A must have shape"),
    ({"B": np.ones((3, 1))}, "B must have shape"),
    ({"Q": -np.eye(2)}, "Q must be positive semidefinite"),
    ({"Q": [[1.0, 1.0], [0.0, 1.0]]}, "Q must be symmetric"),
    ({"R": np.zeros((1, 1))}, "R must be positive definite"),
    ({"horizon": 0}, "horizon must be an integer >= 1"),
    ({"noise": -1.0}, "noise is -1.0, but must be a finite number >= 0"),
    ({"start": (0.0, 0.0)}, "start must be Ball"),
    ({"start": Ball(0.0, (1.0,))}, "the centre of start must have 2 coordinates, got 1"),
    ({"norm_bound": 0.1}, r"norm_bound must be at least 2, got 0.1"),
    ({"gain_bound": 1e-9}, "gain_bound must be at least"),
)


def test_wrong_simulations_are_refused():
    world, rng = LQWorld(**GOOD), np.random.default_rng(0)
    policy = some_policy(world)
    with pytest.raises(InvalidArgument, match="form must be one of"):
        world.simulate(policy, 1, rng, "counts")
    with pytest.raises(InvalidArgument, match="users must be an integer >= 0"):
        world.simulate(policy, -1, rng)
    with pytest.raises(InvalidArgument, match=r"policy must have gains of shape \(3, 1, 2\)"):
        world.simulate(GainPolicy.zero(2, 1, 2), 1, rng)
    with pytest.raises(InvalidArgument, match="policy must be GainPolicy"):
        world.value(policy.gains)


def policy(noise=0.25, version=7):
    gains = np.random.default_rng(0).normal(size=(3, 2, 4))
    return GainPolicy(gains, noise, version)


def test_act_is_the_gain_times_the_state_plus_signs():
    p, rng = policy(), np.random.default_rng(1)
    x = np.arange(4.0)
    seen = set()
    for _ in range(200):
        away = (p.act(2, x, rng) - p.gains[2] @ x) / p.noise
        np.testing.assert_allclose(np.abs(away), 1.0, rtol=1e-12)
        seen.add(tuple(np.sign(away)))
    # Each of the four is missed with probability .75^200.
    assert len(seen) == 4
    quiet = policy(noise=0.0)
    np.testing.assert_array_equal(quiet.act(0, x, rng), quiet.gains[0] @ x)
    for step, state, words in (
        (3, x, "step must be an integer in 0..2"),
        (-1, x, "step must be an integer in 0..2"),
        (0, np.zeros(3), r"state must have shape \(4,\)"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            p.act(step, state, rng)
    for wrong in ({"gains": [[[np.inf]]]}, {"noise": -0.1}, {"version": -1}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            GainPolicy(**({"gains": np.zeros((1, 1, 1))} | wrong))


@pytest.mark.parametrize("options", [{}, {"horizon": 60, "step": 1.0}, {"step": 0.05}])
def test_double_integrator_is_the_exact_motion_of_a_pushed_cart(options):
    world, step = double_integrator(**options), options.get("step", 0.3)
    pushed = StateSpace([[0, 1], [0, 0]], [[0], [1]], np.eye(2), np.zeros((2, 1)))
    held = pushed.to_discrete(step)
    np.testing.assert_allclose(world.A, held.A, rtol=1e-14)
    np.testing.assert_allclose(world.B, held.B, rtol=1e-14)
    assert world.optimal_value > world.baseline_value
    assert (world.spec.norm_bound, world.spec.gain_bound) == (2.5, 3.0)


def test_importing_the_family_does_not_import_numba():
    code = "import sys, tacit.lq; sys.exit('numba' in sys.modules or 'gymnasium' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
