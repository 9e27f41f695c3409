"""Slot sums, the posterior of a mixture's weights, and the agent that plans by it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tacit.mixture.slot_sums import SLOT_EPISODE, SlotSums
from tacit.mixture.weights_posterior import SlotBlock

from tacit import Block, JointDP, LocalDP, MixturePosterior, NonPrivate, Relation, check_statistic
from tacit.audit.check_agent import check_agent
from tacit.mixture import hard_mixture, mixture_of_models
from tacit.mixture.estimate import PublicFeatures
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.tabular import riverswim

JOINT = JointDP(10.0, 1e-6)
HARD = hard_mixture(dimension=3, horizon=4)
S, A, H = HARD.spec.states, HARD.spec.actions, HARD.spec.horizon


def made(pooled: bool, policies: Any = None, world: Any = HARD) -> SlotSums:
    agent = MixturePosterior(
        world.spec, users=100, privacy=JOINT, stationary=pooled, noise_seed=0
    ).algorithm
    tables = agent.table, agent.public.support, agent.start > 0
    given = agent.policy.tables[1:9] if policies is None else policies
    return SlotSums(*tables, world.spec.horizon, given, 0, pooled)


def constant(action: int) -> Any:
    return np.full((H, S), action)


def followers(statistic: SlotSums, components: int) -> Any:
    """Users who follow their slot's policy along the chain and leave at some step, or cheat."""

    def sample(rng: np.random.Generator, users: int) -> Block:
        drawn = rng.integers(0, components, users)
        leave = rng.integers(0, H + 1, users)
        steps = np.arange(H + 1)
        states = np.where(steps <= leave[:, np.newaxis], steps, H + 1)
        actions = statistic.policies[drawn[:, np.newaxis], np.arange(H), states[:, :-1]]
        cheats = rng.random(users) < 0.2
        actions = np.where(cheats[:, np.newaxis], rng.integers(0, A, (users, H)), actions)
        versions = np.where(rng.random(users) < 0.9, 0, 1)
        columns = {"states": states, "actions": actions, "versions": versions}
        columns["rewards"] = rng.random((users, H))
        return Block(users, columns | {"components": drawn})

    return sample


@pytest.mark.parametrize("pooled", [True, False])
def test_sensitivities_hold_and_are_attained(pooled: bool) -> None:
    statistic = made(pooled)
    sample = followers(statistic, len(statistic.policies))
    check_statistic(statistic, sample, users=150, rounds=40, attained=0.99)
    assert statistic.protects == SLOT_EPISODE


def test_by_slot_two_users_are_half_as_far_apart() -> None:
    """2 |a| in units of the features; had actions differed too, it would be twice as much."""
    scale = PublicFeatures.of(HARD.spec).scale
    one = made(True, np.stack([constant(a) for a in range(A)]))
    assert one.l2(Relation.REPLACE_ONE) == pytest.approx(2 * math.sqrt(2) / scale, rel=1e-6)
    assert one.l2(Relation.ZERO_OUT) == pytest.approx(2 * math.sqrt(2) / scale, rel=1e-6)
    # A policy that changes its action has farther users: left at one step, or at the other.
    changing = np.stack([constant(0)] * A)
    changing[:, 1:] = np.arange(A)[:, np.newaxis, np.newaxis]
    other = made(True, changing)
    assert other.l2(Relation.REPLACE_ONE) == pytest.approx(4 * math.sqrt(2) / scale, rel=1e-6)
    per_step = made(False, constant(0)[np.newaxis])
    assert per_step.l2(Relation.REPLACE_ONE) == pytest.approx(4 / scale, rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7])
def test_the_bound_is_that_of_all_paths(scale: float) -> None:
    """Also where sums are as small as the decimals to which they are merged."""
    world = mixture_of_models(dimension=3, states=4, actions=4, horizon=3, seed=700)
    statistic = made(False, world=world)
    statistic = replace(statistic, table=scale * statistic.table)
    rows = np.array(list(itertools.product(range(4), repeat=4)))
    most = 0.0
    for m, policy in enumerate(statistic.policies):
        actions = policy[np.arange(3), rows[:, :-1]]
        users = len(rows)
        columns = {"states": rows, "actions": actions, "rewards": np.zeros((users, 3))}
        columns |= {"versions": np.zeros(users, int), "components": np.full(users, m)}
        vectors = np.vstack([statistic.vectors(Block(users, columns)), np.zeros(4)])
        apart = np.linalg.norm(vectors[:, np.newaxis] - vectors, axis=-1)
        most = max(most, float(apart.max()))
    assert most <= statistic.l2(Relation.REPLACE_ONE)
    assert most == pytest.approx(statistic.l2(Relation.REPLACE_ONE), rel=1e-6, abs=1e-8)


def test_too_many_sums_have_a_looser_bound() -> None:
    world = mixture_of_models(dimension=3, states=6, actions=4, horizon=8, seed=700)
    statistic = made(True, world=world)
    longest, farthest = statistic.l2(Relation.ZERO_OUT), statistic.l2(Relation.REPLACE_ONE)
    assert farthest == pytest.approx(2 * longest)
    steps = np.linalg.norm(statistic.table, axis=-1)[statistic.support]
    assert longest <= 7 * steps.max() * 1.001


# The posterior.


@pytest.mark.parametrize("per_step", [False, True])
def test_moments_are_those_of_users(per_step: bool) -> None:
    world = hard_mixture(dimension=3, horizon=4, per_step=per_step)
    agent = MixturePosterior(world.spec, users=100, privacy=JOINT, noise_seed=0).algorithm
    policy, posterior = agent.policy, agent.posterior
    users = policy.split(100_000, np.random.default_rng(0)).astype(np.float64)
    rows = world.weights[: posterior.rows, :2] * agent.public.scale
    mean, spread, slopes = posterior.expected(policy.tables, users, rows.reshape(-1))
    block = world.simulate(policy, 100_000, np.random.default_rng(1)).block()
    total = agent.statistic().total(block)
    # Five standard deviations in at most six entries.
    assert (np.abs(total - mean) < 5.0 * np.sqrt(np.diag(spread))).all()
    vectors = agent.statistic().vectors(block)
    drawn = block["components"]
    within = sum(vectors[drawn == m].var(axis=0).sum() * n for m, n in enumerate(users) if n)
    assert np.trace(spread) == pytest.approx(within, rel=0.05)
    assert (np.diag(slopes) > 0).all()


def test_weights_are_found() -> None:
    agent = MixturePosterior(HARD.spec, users=100, privacy=JOINT, noise_seed=0).algorithm
    users = agent.policy.split(20_000, np.random.default_rng(0))
    block = HARD.simulate(agent.policy, 20_000, np.random.default_rng(1)).block()
    sums = agent.statistic().total(block)
    found = agent.posterior.given([SlotBlock.of(sums, 1.0, agent.policy.tables, users)])
    true = HARD.weights[0, :2] * agent.public.scale
    off = found.mean - true
    # Mahalanobis distance of two normal numbers: above 30 with probability e^-15.
    assert off @ np.linalg.solve(found.covariance, off) < 30.0
    assert np.abs(off).max() < 0.5 * np.abs(true).max()


# The agent.


def test_all_scales_of_the_prior_count_as_they_explain() -> None:
    posterior = MixturePosterior(
        HARD.spec, users=10, privacy=JOINT, noise_seed=0
    ).algorithm.posterior
    D, prior = posterior.size, math.sqrt(posterior.first.covariance[0, 0])
    # Where nothing is known all are as probable.
    mean, covariance = posterior._over_scales(np.zeros((D, D)), np.zeros(D))
    assert mean == pytest.approx(0.0)
    expected = prior**2 * np.mean(np.array([1.0, 0.7, 0.5, 0.35, 0.25]) ** 2)
    assert covariance == pytest.approx(expected * np.eye(D))
    # Where they do not agree on the mean, this is uncertainty too.
    information, at = np.eye(D) * 4.0 / prior**2, np.full(D, 0.5 * prior)
    mean, covariance = posterior._over_scales(information, information @ at)
    assert (mean > 0.2 * at).all()
    assert (mean < 0.8 * at).all()
    assert covariance[0, 1] > 1e-3 * prior**2


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [JOINT, NonPrivate()], ids=["joint", "none"])
def test_it_passes_check_agent(privacy: Any) -> None:
    make = partial(MixturePosterior, privacy=privacy, schedule="fixed:size=60")
    check_agent(make, HARD, users=180, seeds=12)


def test_it_learns_with_few_users() -> None:
    world = hard_mixture(seed=520)
    agent = MixturePosterior(
        world.spec, users=1_600, privacy=JointDP(1.0, 1e-6), seed=1, noise_seed=1
    )
    assert agent.schedule.blocks[:2] == (229, 229)
    assert SLOT_EPISODE in agent.guarantee.unit
    result = run(agent, world, seed=1, progress=False)
    assert result.losses[0] > 0.2
    assert result.greedy_losses[-1] < 0.1


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="features of transitions"):
        MixturePosterior(riverswim().spec, users=100, privacy=JOINT)
    with pytest.raises(InvalidArgument, match="rewards must be known"):
        MixturePosterior(hard_mixture(known_rewards=False).spec, users=100, privacy=JOINT)
    for privacy in (LocalDP(1.0, 1e-6), JointDP(1.0, 0.0)):
        with pytest.raises(InvalidArgument, match="JointDP with delta"):
            MixturePosterior(HARD.spec, users=100, privacy=privacy)
