"""Linear-quadratic agents: what they promise, what they learn, and what they publish."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import chi2

from research.worlds import random_system
from tacit import CertaintyEquivalence, JointDP, LocalDP, NonPrivate
from tacit.lq import Ball, GainPolicy, LQWorld, dosing
from tacit.lq.estimate import (
    BlockEvidence,
    ModelRegression,
    SystemPosterior,
    best_weight,
    scaled_inputs,
)
from tacit.lq.riccati import cautious_gains, optimal_gains
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.testing.check_agent import check_agent

SMALL = random_system(2, 1, 5, seed=500)
JOINT = JointDP(1.0, 1e-6)
FEW = "fixed:size=60"
MODELS = {"joint": JOINT, "local": LocalDP(1.0, 1e-6), "none": NonPrivate()}


def play(agent, world, seed=0):
    """Serves all users; what was published, with the greedy policies."""
    rng, published = np.random.default_rng(seed), []
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
        published.append((agent.policy, agent.greedy_policy))
    return published


def loss(world, policy):
    best = world.optimal_value
    return (best - world.value(policy)) / (best - world.baseline_value)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_it_passes_the_check(model):
    make = partial(CertaintyEquivalence, privacy=MODELS[model], schedule=FEW)
    report = check_agent(make, SMALL, users=240)
    assert bool(report.skipped) == (model == "none")
    assert max(report.tightness) <= 1.0 + 1e-9
    assert report.releases == 4


@pytest.mark.parametrize(("privacy", "users"), [(JOINT, 6000), (NonPrivate(), 400)])
def test_it_learns(privacy, users):
    world = random_system(2, 1, 10, seed=503)
    agent = CertaintyEquivalence(world.spec, users, privacy, seed=1, noise_seed=1)
    published = play(agent, world, seed=1)
    assert loss(world, published[-1][1]) < 0.1
    assert loss(world, published[-1][0]) < 0.3
    zero = world.baseline_value
    assert all(world.value(greedy) >= 2.0 * zero for _, greedy in published)


def test_devices_alone_suffice():
    world = random_system(2, 1, 10, seed=503)
    agent = CertaintyEquivalence(world.spec, 30_000, LocalDP(20.0, 1e-6), seed=1, noise_seed=1)
    published = play(agent, world, seed=1)
    assert loss(world, published[-1][1]) < 0.1


def test_nothing_but_noise_is_applied_until_something_is_known():
    world = random_system(3, 2, 15, seed=501)
    agent = CertaintyEquivalence(world.spec, 40, JOINT, schedule="fixed:size=10", noise_seed=3)
    many = CertaintyEquivalence(world.spec, 10_000, JOINT, noise_seed=3).algorithm.first_noise
    for served, greedy in play(agent, world):
        assert not served.gains.any()
        assert not greedy.gains.any()
        assert 0.0 < served.noise < 0.2 * many  # few users explore less
        assert greedy.noise == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [JOINT, JointDP(10.0, 1e-6), NonPrivate()])
def test_the_uncertainty_is_honest(privacy):
    """A 90 % set of the posterior holds the truth in about so many of 20 runs.

    At a true rate of 90 % fewer than 13 have a chance of 4e-4.
    """
    held, size = 0, 0.0
    for seed in range(500, 520):
        world = random_system(2, 1, 10, seed=seed)
        agent = CertaintyEquivalence(world.spec, 10_000, privacy, seed=seed, noise_seed=seed)
        play(agent, world, seed)
        known = agent.state.posterior
        error = world.theta - known.mean
        distance = float((error * np.linalg.solve(known.covariance, error)).sum())
        held += distance <= chi2.ppf(0.9, world.theta.size)
        size += distance / world.theta.size / 20
    assert held >= 13
    assert 0.5 < size < 2.0


@pytest.mark.parametrize("privacy", [JOINT, NonPrivate()])
@pytest.mark.parametrize(
    ("start", "noise"), [((0.0, 0.0), 0.0), ((0.0, 0.0), 0.1), ((1.0, 0.0), 0.0)]
)
def test_degenerate_worlds_do_not_break_it(start, noise, privacy):
    world = LQWorld(
        [[1.1, 0.3], [0.0, 0.9]],
        [[0.0], [1.0]],
        np.diag([1.0, 0.0]),
        np.eye(1),
        horizon=6,
        noise=noise,
        start=Ball(0.0, start),
    )
    agent = CertaintyEquivalence(world.spec, 600, privacy, noise_seed=0, schedule="fixed:size=150")
    for policy, greedy in play(agent, world):
        assert np.isfinite(policy.gains).all()
        assert np.isfinite(greedy.gains).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": "trajectory"}, "clip"),
        ({"privacy": JointDP(1.0, 0.0)}, "Gaussian"),
        ({"privacy": LocalDP(1.0, 0.0)}, "Gaussian"),
        ({"bonus": "theory"}, "tacit.papers has what a paper prints and proves"),
        ({"spec": object()}, "LQSpec"),
    ],
)
def test_wrong_options_are_refused(options, message):
    given = {"spec": SMALL.spec, "users": 100, "privacy": JOINT} | options
    with pytest.raises(InvalidArgument, match=message):
        CertaintyEquivalence(**given)


def test_certain_gains_are_riccatis_and_cautious_ones_are_smaller():
    world = dosing()
    spec = world.spec
    n, p, H = spec.states, spec.states + spec.controls, spec.horizon
    _, optimal = optimal_gains(world.A, world.B, world.Q, world.R, H)
    gains = cautious_gains(spec, world.theta, np.zeros((p, p)))
    np.testing.assert_allclose(gains, optimal, atol=1e-12)
    spread = np.zeros((p, p))
    spread[n:, n:] = np.eye(spec.controls)
    careful = cautious_gains(spec, world.theta, spread)
    assert np.linalg.norm(careful) < 0.8 * np.linalg.norm(gains)


def test_expected_grams_are_those_of_simulated_users():
    world = dosing()
    spec = world.spec
    p = 4
    policy = GainPolicy(0.3 * world.optimal_policy.gains, noise=0.2)
    users = 20_000
    episodes = world.simulate(policy, users, np.random.default_rng(1))
    z = np.concatenate([episodes.states[:, :-1], episodes.actions], axis=-1)
    seen = np.einsum("uhi,uhj->ij", z, z) / users
    asked = TrajectorySums(3, 1, spec.horizon, tau=1e300, floor=0.5)
    known = SystemPosterior(world.theta, np.eye(p))
    gram, energies = ModelRegression(spec, 1.0).expected(known, policy, asked)
    np.testing.assert_allclose(gram, seen, atol=0.02 * np.trace(seen) / p)
    assert energies[:, 0].sum() == pytest.approx(np.trace(gram))
    np.testing.assert_allclose(energies[:, 1], 0.25)


def test_units_keep_the_energy_and_the_weight_is_best():
    gram = np.diag([1.0, 0.5, 0.04])
    inputs = scaled_inputs(gram, 0.3)
    assert np.trace(inputs @ gram @ inputs.T) == pytest.approx(np.trace(gram))
    assert inputs[2, 2] > inputs[1, 1] > inputs[0, 0]
    # Without noise of the Gram: energy of inputs and of residuals are equal, w^2 = 2 Ez / Er.
    assert best_weight(3.0, 0.1, 0.0) == pytest.approx(math.sqrt(60.0), rel=0.06)


def test_without_noise_the_posterior_is_least_squares():
    world = SMALL
    spec = world.spec
    p, n = 3, 2
    regression = ModelRegression(spec, prior_std=1e3)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, p))
    w = 0.1 * rng.normal(size=(200, n))
    centre, inputs = rng.normal(size=(p, n)), np.eye(p) + 0.1 * rng.normal(size=(p, p))
    theta = rng.normal(size=(p, n)) / 2.0
    residuals = z @ (theta - centre) + w
    sums = {"gram": inputs @ z.T @ z @ inputs.T, "cross": inputs @ z.T @ residuals}
    release = Release(0, "sums", sums, dict.fromkeys(sums, 0.0), 200, None)
    asked = TrajectorySums(n, 1, spec.horizon, tau=1e9, centre=centre, inputs=inputs, floor=1.0)
    policy = GainPolicy(np.zeros((spec.horizon, 1, n)), 0.1)
    block = BlockEvidence(release, asked, 200, policy)
    known = regression.posterior([block], [1.0], regression.prior)
    squares = centre + np.linalg.lstsq(z, residuals, rcond=None)[0]
    np.testing.assert_allclose(known.mean, squares, atol=1e-6)
    variance = np.trace(spec.noise_covariance) / n
    np.testing.assert_allclose(known.covariance, variance * np.linalg.inv(z.T @ z), rtol=1e-4)
