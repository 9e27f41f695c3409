"""Average effects: their interval, and what is said where people are outside of the balls."""

import math

import numpy as np
import pytest

import tacit
from tacit import ActionCentred, JointDP, NonPrivate, check_statistic
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.trial import TrialSpec
from tacit.trial.effects import EffectSums
from tests.trial.cohorts import Cohort, Contexts
from tests.trial.test_statistics import people

JOINT = JointDP(1.0, 1e-6)


def estimated(world, n, privacy, average, seed=0, **options):
    agent = ActionCentred(world.spec, n, privacy, noise_seed=seed, **options)
    cohort = Cohort(world, n, np.random.default_rng(seed))
    cohort.effects = cohort.effects + average
    for until in world.spec.edges:
        agent.learn(cohort.advance(agent.policy, until))
    return agent


def sums(horizon, dimension, centre, radius, rows=None):
    sizes = (horizon, dimension, 2, 0.2)
    return EffectSums(*sizes, centre=centre, radius=radius, rows=rows)


@pytest.mark.parametrize("rows", [None, np.array([[2.0, 1.0], [1.0, 3.0]])])
def test_nobody_counts_for_more_than_was_declared(rows):
    statistic = sums(12, 2, np.full(1 if rows is None else 2, 0.1), 0.3, rows)
    block = lambda rng, n: people(n, 12, 2, 0.3, 0.5, 1)  # noqa: E731
    report = check_statistic(statistic, block, users=60, rounds=15)
    assert max(report.tightness.values()) > 0.9


def test_somebody_s_estimate_is_unbiased_by_chances_that_followed_her():
    block = people(8000, 60, 1, 0.3, 0.5, 2, effect=0.2)
    found = sums(60, 1, np.full(1, 0.2), 10.0).vectors(block)
    assert abs(10.0 * found[:, 0].mean()) < 7.0 * 10.0 * found[:, 0].std() / np.sqrt(8000)


def test_an_interval_covers_and_shrinks_with_epsilon():
    world = Contexts(60, 0.1, 4, looks=(0.5, 1.0))
    widths = []
    for privacy in (JOINT, JointDP(5.0, 1e-6), NonPrivate()):
        effect = estimated(world, 150, privacy, 0.15, report=1.0).effects()
        assert abs(effect.estimate - 0.15) < 6.5 * (effect.high - effect.low) / 3.9
        widths.append(effect.high - effect.low)
    assert widths[0] > widths[1] > widths[2] > 0.0


def test_each_feature_has_an_interval_of_its_own_effect():
    gram = ((1.0, 0.3), (0.3, 0.5))
    spec = TrialSpec(60, 2, probabilities=(0.3, 0.7), looks=(1.0,), gram=gram)
    agent = ActionCentred(spec, 3000, NonPrivate(), report=1.0, by_feature=True)
    rng, mix = np.random.default_rng(0), np.linalg.cholesky(np.array(gram))
    f = rng.standard_normal((3000, 61, 2)) @ mix.T
    actions = (rng.random((3000, 60)) < 0.3).astype(int)
    rewards = 0.3 * rng.standard_normal((3000, 60)) + f[:, :-1] @ [0.2, -0.1] * actions
    logged, lengths = np.where(actions == 1, 0.3, 0.7), np.full(3000, 60)
    ids = range(3000)
    agent.learn(tacit.VectorEpisodes(f, actions, rewards, lengths, None, ids, logged))
    for effect, truth in zip(agent.effects(), (0.2, -0.1), strict=True):
        assert abs(effect.estimate - truth) < 6.5 * (effect.high - effect.low) / 3.9 < 0.1


@pytest.mark.slow
def test_intervals_cover_in_19_of_20_trials():
    world = Contexts(60, 0.1, 8, looks=(1.0,))
    hits, widths = 0, []
    for seed in range(200):
        effect = estimated(world, 80, JOINT, 0.1, seed, report=1.0).effects()
        hits += effect.low <= 0.1 <= effect.high
        widths.append(effect.high - effect.low)
    assert np.median(widths) <= 0.3
    # Of 200 with a chance of .95: six deviations below.
    assert hits >= 200 * 0.95 - 6.2 * math.sqrt(200 * 0.95 * 0.05)


def test_people_outside_of_the_balls_are_said():
    world = Contexts(60, 0.1, 2, looks=(1.0,), reward_scale=0.01)
    effect = estimated(world, 400, NonPrivate(), 0.4, report=1.0).effects()
    assert effect.saturated
    assert (effect.low, effect.high) == (-math.inf, math.inf)


def test_a_report_shares_the_last_look():
    world = Contexts(40, 0.2, 2, looks=(0.5, 1.0))
    agent = estimated(world, 60, JOINT, 0.1, report=0.5)
    noise = [each.noise for each in agent.state.evidence]
    assert noise[1] == pytest.approx(noise[0] * math.sqrt(2.0), rel=1e-3)
    assert agent.effects().high < math.inf
    with pytest.raises(InvalidArgument, match="report"):
        estimated(world, 60, JOINT, 0.1).effects()
    with pytest.raises(InvalidArgument, match="two actions"):
        ActionCentred(TrialSpec(9, 2, actions=3, probabilities=(0.2, 0.6)), 9, JOINT, report=0.5)


def test_who_has_no_decision_counts_as_zero():
    block = people(5, 12, 2, 0.3, 0.5, 1)
    nothing = Block(5, dict(block.arrays) | {"lengths": np.zeros(5, dtype=int)})
    assert not sums(12, 2, np.full(1, 0.1), 0.3).vectors(nothing).any()
