"""Outcome sums, the posterior of a linear MDP, and the agent that plans by it."""

import math
from functools import partial

import numpy as np
import pytest

from tacit import Block, JointDP, LinearPosterior, LocalDP, NonPrivate, Relation, check_statistic
from tacit.linear import LinearWorld, linear_from_tabular, simplex, two_state
from tacit.linear.posterior import OutcomePosterior, OutcomeSums, ReleasedOutcomes, Worlds
from tacit.linear.posterior_loops import sample_box, sample_distributions
from tacit.linear.statistics import weighted_grams
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.tabular import riverswim
from tacit.tabular.model import evaluate
from tacit.tabular.policy import Policy
from tacit.tabular.world import simulate_episodes
from tacit.testing.check_agent import check_agent
from tests.tabular.samples import users_of

S, A, d, H = 3, 2, 2, 4
PLAIN = np.array([[[1, 0], [0.6, 0.4]], [[0, 1], [0.3, 0.7]], [[0.2, 0.8], [0.9, 0.1]]])
ONE_HOT = np.eye(6).reshape(3, 2, 6)
SMALL = simplex(dimension=3, states=8, actions=3, horizon=4)
JOINT = JointDP(10.0, 1e-6)


def sample(rng, users):
    return Block(users, users_of(rng, users, S, A, H))


@pytest.mark.parametrize(
    "statistic",
    [
        OutcomeSums(PLAIN, H, np.ones(1), clip=1.7, reward_clip=1.2, reward=0.8),
        OutcomeSums(PLAIN, H, np.ones(1)),
        OutcomeSums(ONE_HOT, H, np.ones(1), clip=1.5, reward_clip=1.0, reward=2.0),
        OutcomeSums(ONE_HOT, H, np.linspace(1.0, 0.0, H), reward_clip=1.0),
        OutcomeSums(PLAIN, H, np.linspace(1.0, 0.2, H), reward=0.0),
        OutcomeSums(PLAIN, H, np.ones(H), clip=1.1, reward_clip=0.7, reward_rows=H),
    ],
    ids=["pooled, clipped", "pooled", "one-hot", "per step", "known rewards", "all per step"],
)
def test_sensitivities_hold_and_are_attained(statistic):
    check_statistic(statistic, sample, users=150, rounds=60, attained=0.95)


def test_sensitivities_by_hand():
    statistic = OutcomeSums(ONE_HOT, H, np.ones(1), clip=1.5, reward_clip=1.0, reward=2.0)
    assert statistic.l2(Relation.ZERO_OUT) == pytest.approx(2.5)
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(2.5 * math.sqrt(2.0))
    per_step = OutcomeSums(ONE_HOT, H, np.array([1.0, 0.5, 0.5, 0.0]), reward=0.0)
    assert per_step.l2(Relation.ZERO_OUT) == pytest.approx(math.sqrt(1.5))
    with pytest.raises(InvalidArgument, match="negative"):
        OutcomeSums(-PLAIN, H, np.ones(1))


def test_a_clip_does_not_look_at_what_it_weighs():
    """Weights depend on the past: sums are weights times what follows, without bias."""
    world = SMALL
    pooled = OutcomeSums(world.features, 4, np.ones(1), clip=1.2, reward_clip=0.8)
    rng = np.random.default_rng(3)
    block = simulate_episodes(world.model, Policy.uniform(4, 8, 3), 200_000, rng).block()
    parts = pooled.layout.unpack(pooled.total(block))
    visits, paying = pooled.visits(block)
    expected = weighted_grams(world.features, visits) @ world.measures
    # Standard errors are below 200: six of them, for 27 entries.
    assert np.abs(parts["next"] - expected).max() < 1_200
    paid = weighted_grams(world.features, paying)[0] @ world.rewards[0]
    assert np.abs(parts["rewards"][0] - paid).max() < 1_200
    assert visits.sum() < 0.9 * 4 * 200_000


def test_without_data_samples_are_the_prior():
    """Dirichlet(a): an entry of S has the variance (1/S)(1 - 1/S) / (a S + 1)."""
    rng = np.random.default_rng(0)
    shares, rewards = rng.beta(0.4, 0.4, 4096), rng.beta(0.3, 0.3, 4096)
    samples, chain = np.empty((6000, 1, 2, 4)), np.full((1, 2, 4), 0.25)
    nothing = np.zeros((1, 2, 2)), np.zeros((1, 2, 4))
    sample_distributions(rng, *nothing, shares, 0.4, 20, chain, samples)
    assert np.allclose(samples.sum(axis=-1), 1.0)
    assert samples.mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert samples.var(axis=0) == pytest.approx(0.1875 / 2.6, abs=0.012)
    paid, begin = np.empty((6000, 1, 2)), np.full((1, 2), 0.5)
    sample_box(rng, np.zeros((1, 2, 2)), np.zeros((1, 2)), rewards, 0.3, 20, begin, paid)
    assert paid.var(axis=0) == pytest.approx(0.25 / 1.6, abs=0.02)


# The second is so weak that values of the prior are proposed.
@pytest.mark.parametrize("precision", [30.0, 0.4])
def test_samples_follow_prior_times_likelihood(precision):
    """Two states, one factor: u is Beta(a, a) times a normal likelihood, integrated on a grid."""
    rng, a, at = np.random.default_rng(1), 0.4, 0.9
    shares = rng.beta(a, a, 4096)
    samples, chain = np.empty((20_000, 1, 1, 2)), np.full((1, 1, 2), 0.5)
    linear = precision * np.array([[[at, 1.0 - at]]])
    sample_distributions(rng, np.array([[[precision]]]), linear, shares, a, 50, chain, samples)
    u = (np.arange(100_000) + 0.5) / 100_000
    density = (u * (1 - u)) ** (a - 1) * np.exp(-precision * (u - at) ** 2)
    mean = (u * density).sum() / density.sum()
    second = (u**2 * density).sum() / density.sum()
    found = samples[:, 0, 0, 0]
    assert found.mean() == pytest.approx(mean, abs=0.006)
    assert found.var() == pytest.approx(second - mean**2, abs=0.003)


def test_values_are_those_of_dynamic_programming():
    statistic = OutcomeSums(SMALL.features, 4, np.ones(1))
    start = np.asarray(SMALL.spec.start)
    posterior = OutcomePosterior(statistic, start)
    world = Worlds(SMALL.measures[np.newaxis], SMALL.rewards[np.newaxis])
    values, best = posterior.values(world)
    assert best[0] == pytest.approx(SMALL.optimal_value)
    policy = Policy.deterministic(values[0].argmax(axis=-1), 3)
    assert evaluate(SMALL.model, policy) == pytest.approx(SMALL.optimal_value)
    uniform = np.full((4, 8, 3), 1 / 3)
    assert posterior.values(world, uniform)[1][0] == pytest.approx(SMALL.baseline_value)


@pytest.mark.parametrize("stationary", [True, False])
def test_one_model_for_all_steps_is_found_where_there_is_one(stationary):
    """Sums per step, of a world that changes from step to step and of one that does not."""
    world = simplex(seed=520, stationary=stationary)
    statistic = OutcomeSums(world.features, 10, np.ones(10))
    posterior = OutcomePosterior(statistic, np.asarray(world.spec.start))
    policy, rng = Policy.uniform(10, 20, 10), np.random.default_rng(0)
    parts = statistic.layout.unpack(
        statistic.total(world.simulate(policy, 3_000, rng).block())
        + 10.0 * rng.standard_normal(statistic.layout.size)
    )
    block = ReleasedOutcomes(parts["next"], parts["rewards"], 10.0, 10.0, 3_000, policy)
    found = posterior.worlds([block], posterior.first, rng)
    assert bool((found.measures[:, 0] == found.measures[:, 5]).all()) == stationary


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [JOINT, NonPrivate()], ids=["joint", "none"])
def test_it_passes_check_agent(privacy):
    make = partial(LinearPosterior, privacy=privacy, schedule="fixed:size=60")
    check_agent(make, SMALL, users=180)


def test_it_learns_with_few_users():
    world = simplex(seed=520)
    agent = LinearPosterior(
        world.spec, users=1_500, privacy=JointDP(1.0, 1e-6), seed=1, noise_seed=1
    )
    assert 100 <= agent.schedule.blocks[0] <= 150
    result = run(agent, world, seed=1, progress=False)
    assert result.losses[0] > 0.4
    assert result.greedy_losses[-1] < 0.1
    assert agent.policy.weights[1] <= 0.1


def test_known_rewards_and_tables_of_states():
    known = simplex(dimension=3, states=8, actions=3, horizon=4, known_rewards=True)
    agent = LinearPosterior(known.spec, users=300, privacy=JOINT, noise_seed=0)
    assert [part.name for part in agent.statistic.layout.parts] == ["next"]
    run(agent, known, progress=False)
    table = linear_from_tabular(riverswim(3, 4))
    run(LinearPosterior(table.spec, users=300, privacy=JOINT, noise_seed=0), table, progress=False)


def test_refusals():
    with pytest.raises(InvalidArgument, match="shares"):
        LinearPosterior(two_state().spec, users=100, privacy=JOINT)
    with pytest.raises(InvalidArgument, match="LinearSpec"):
        LinearPosterior(riverswim().spec, users=100, privacy=JOINT)
    for privacy in (LocalDP(1.0, 1e-6), JointDP(1.0, 0.0)):
        with pytest.raises(InvalidArgument, match="JointDP with delta"):
            LinearPosterior(SMALL.spec, users=100, privacy=privacy)


def test_a_larger_budget_needs_a_smaller_first_block():
    sizes = [
        LinearPosterior(SMALL.spec, users=10**6, privacy=p, noise_seed=0).schedule.blocks[0]
        for p in (JointDP(0.1, 1e-6), JointDP(1.0, 1e-6), JOINT, NonPrivate())
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 5 * sizes[1] > 20 * sizes[3]


def test_greedy_serves_once_it_beats_the_explorer():
    """20 factors of three next states each: by its own loss it would not serve for long."""
    rng = np.random.default_rng(3)
    features = rng.dirichlet(np.full(20, 0.2), size=(50, 8)) * np.where(np.arange(20), 1.0, 0.1)
    measures = np.where(rng.random((1, 20, 50)).argsort() < 3, rng.random((1, 20, 50)), 0.0)
    shares = [x / x.sum(axis=-1, keepdims=True) for x in (features, measures)]
    world = LinearWorld(*shares, np.eye(20)[:1], 10)
    agent = LinearPosterior(world.spec, 4_000, JointDP(1.0, 1e-6), noise_seed=0)
    assert run(agent, world, seed=0, progress=False).losses[-1] < 0.3
