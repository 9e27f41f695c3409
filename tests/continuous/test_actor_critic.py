"""Private policy gradients: derivatives, sensitivity, budgets, what is learnt, and policies."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tacit import ActorCritic, JointDP, NonPrivate, Relation, check_statistic, published
from tacit.continuous import (
    ActionBox,
    BoxSpec,
    GaussianPolicy,
    Grid,
    SoftmaxPolicy,
    line,
)
from tacit.continuous.actor_critic import PolicyGradients
from tacit.continuous.kernel_features import Custom
from tacit.continuous.stochastic_policy import normals
from tacit.data.episodes import VectorEpisodes
from tacit.gym import from_gymnasium
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.models import LocalDP
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent

JOINT = JointDP(1.0, 1e-6)
FEATURES = Grid((0.0,), (1.0,), (3,))
SHORT = line(horizon=4)
BOX = ActionBox((-2.0,), (2.0,), 9)
VECTORS = BoxSpec((0.0,), (1.0,), BOX.size, 4, (-1.0, 1.0), action_box=BOX)


def softmax(scale=1.0):
    return SoftmaxPolicy(FEATURES, scale * np.random.default_rng(1).normal(size=(2, 3)))


def gaussian(sigma=0.5):
    return GaussianPolicy(FEATURES, [[0.5, -0.2, 0.3]], box=BOX, sigma=sigma)


def users(rng, n, actions=2, lowest=0.0):
    states = rng.random((n, 5, 1))
    states[rng.random(n) < 0.5] = rng.integers(0, 3) / 2
    labels = rng.integers(0, actions, (n, 4))
    labels[rng.random(n) < 0.5] = rng.integers(0, actions)
    rewards = np.where(rng.random((n, 1)) < 0.5, lowest, rng.choice([0.01, 0.5], (n, 1)))
    lengths = np.where(rng.random(n) < 0.2, rng.integers(0, 5, n), 5)
    return VectorEpisodes(states, labels, np.tile(rewards, 4), lengths).block()


def statistic(policy=None, clips=(0.05, 0.05), spec=SHORT.spec, values=(0.3, 0.3, 0.3)):
    return PolicyGradients(spec, policy or softmax(0.0), np.array(values), 0.9, 0.8, clips)


class TestPolicies:
    def test_chances_and_draws_agree(self):
        policy, state = softmax(), np.array([[0.2]])
        logits = policy.weights @ FEATURES(state[0])
        chances = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(policy.probabilities(state)[0], chances)
        drawn = policy.act_many(0, np.repeat(state, 20_000, axis=0), np.random.default_rng(0))
        # Six standard deviations.
        assert abs(np.mean(drawn == 1) - chances[1]) < 6 * 0.5 / np.sqrt(20_000)

    @pytest.mark.parametrize("policy", [softmax(), gaussian()])
    def test_scores_are_derivatives(self, policy):
        state, action, step = np.array([0.3]), np.array(1), 1e-6
        z = FEATURES(state)

        def log_chance(moved):
            outputs = policy.weights @ z + moved
            if isinstance(policy, GaussianPolicy):
                return float(-((BOX.aims(action) - outputs) ** 2).sum() / (2 * policy.sigma))
            return float(outputs[action] - np.log(np.exp(outputs).sum()))

        for row, score in enumerate(policy.scores(state, action)):
            moved = np.zeros(len(policy.weights))
            moved[row] = step
            slope = (log_chance(moved) - log_chance(-moved)) / (2 * step)
            assert score == pytest.approx(slope, abs=1e-6)

    @pytest.mark.parametrize("policy", [softmax(), gaussian(), gaussian(0.0)])
    def test_published(self, policy, tmp_path):
        policy.publish(tmp_path / "policy.npz")
        read, state = published.load(tmp_path / "policy.npz"), np.array([0.35])
        np.testing.assert_allclose(
            published.PublishedValues(read.weights, 0.0, (), read.stored, 0).values(state),
            policy.values(state),
        )
        if isinstance(policy, GaussianPolicy):
            drawn = [read.act(0, state, np.random.default_rng(s))[0] for s in range(400)]
            wanted = 2.0 * policy.means(state)[0]
            assert np.mean(drawn) == pytest.approx(wanted, abs=6 * 2 * policy.sigma / 20 + 1e-9)
            assert policy.action(state, np.random.default_rng(0)).shape == (1,)
        else:
            drawn = [read.act(0, state, np.random.default_rng(s)) for s in range(400)]
            assert np.mean(drawn) == pytest.approx(policy.probabilities(state)[1], abs=6 * 0.5 / 20)

    def test_values_of_worlds_know_what_is_drawn(self):
        world = line(horizon=5)
        policy = SoftmaxPolicy(FEATURES, np.random.default_rng(0).normal(size=(2, 3)))
        drawn = world.simulate(policy, 4000, np.random.default_rng(0)).rewards.sum(axis=1)
        assert world.value(policy) == pytest.approx(drawn.mean(), abs=6 * drawn.std() / 63)

    def test_one_coin_makes_independent_normals(self):
        drawn = normals(np.random.default_rng(0).random(40_000), 2)
        # Six standard deviations of means, variances and the correlation.
        np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=6 / 200)
        np.testing.assert_allclose(np.cov(drawn.T), np.eye(2), atol=6 * 1.5 / 200)


class TestStatistic:
    def test_by_hand(self):
        """Two steps, then an end: errors, advantages, and sums that are not clipped."""
        asked = statistic(softmax(), clips=(100.0, 100.0), values=(1.0, 2.0, 4.0))
        states = np.array([[[0.0], [0.5], [1.0], [1.0], [1.0]]])
        rewards, actions = np.full((1, 4), 0.25), np.array([[0, 1, 0, 0]])
        block = VectorEpisodes(states, actions, rewards, [2]).block()
        parts = asked.layout.unpack(asked.vectors(block)[0])
        later = 0.5 - 2.0
        first = 0.5 + 0.9 * 2.0 - 1.0 + 0.9 * 0.8 * later
        np.testing.assert_allclose(parts["critic"], np.array([first, later, 0.0]) / 100.0)
        z = FEATURES(states[0, :2])
        chances = softmax().probabilities(states[0, :2])
        scores = np.eye(2) - chances
        expected = first * np.outer(scores[0], z[0]) + later * np.outer(scores[1], z[1])
        np.testing.assert_allclose(parts["actor"], expected / 100.0)
        np.testing.assert_allclose(parts["moments"], np.diag([0.5, 0.5, 0.0]))
        assert parts["short"].tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("kind", ["softmax", "gaussian"])
    def test_attacked(self, kind):
        if kind == "softmax":
            asked, made = statistic(), users
        else:
            asked = statistic(gaussian(), spec=VECTORS)
            made = partial(users, actions=BOX.size, lowest=-1.0)
        check_statistic(asked, made, users=60, rounds=20, attained=0.85)

    @pytest.mark.parametrize("size", [2.7e-162, 1.6e-162, 1e-30])
    def test_tiny_features_weigh_no_more_than_others(self, size):
        """Squares of the first two are rounded to what is a third less, or twice as much."""
        features = Custom(lambda states: states, size=1)
        spec = BoxSpec((0.0,), (1.0,), 2, 4, (0.0, 1.0), features=features)
        policy = SoftmaxPolicy(features, np.zeros((2, 1)))
        asked = PolicyGradients(spec, policy, np.zeros(1), 0.9, 0.9, (1e-3, 1e-3))
        states = np.full((1, 5, 1), size)
        states[:, 0] = 1.0
        block = VectorEpisodes(states, np.zeros((1, 4), np.int64), np.ones((1, 4)), [4]).block()
        length = np.linalg.norm(asked.vectors(block)[0])
        assert length <= asked.l2(Relation.ZERO_OUT) * (1 + 1e-12)

    def test_a_missing_clip_is_found(self, monkeypatch):
        monkeypatch.setattr("tacit.continuous.actor_critic.scaled_back", lambda rows, _: rows)
        with pytest.raises(CheckFailed):
            check_statistic(statistic(), users, users=60, rounds=5)


class TestAgent:
    def test_steps_stay_within_the_trust_region(self):
        """Whatever is released, outputs change by at most the region, as the metric measures it."""
        agent = ActorCritic(SHORT.spec, 400, JOINT, noise_seed=1, schedule="fixed:size=20")
        for block in range(6):
            before = agent.state.theta
            agent.learn(SHORT.simulate(agent.policy, 20, np.random.default_rng(block)))
            known = agent.state
            metric, _ = agent.algorithm._metric(known.moments, known.noise, agent.served)
            step = known.theta - before
            change = np.sqrt(np.einsum("rm,mk,rk->", step, metric, step) / len(step))
            assert change <= 0.3 * (1 + 1e-9)

    def test_it_learns_the_line(self):
        world = line()
        agent = ActorCritic(world.spec, 3000, JointDP(10.0, 1e-6), noise_seed=0)
        result = run(agent, world, progress=False)
        assert result.values[-1] > 20.0
        assert result.greedy_values[-1] > 20.6

    def test_pure_dp_is_refused(self):
        for privacy in (JointDP(1.0, 0.0), LocalDP(1.0, 0.0)):
            with pytest.raises(InvalidArgument, match="no 1-norm"):
                ActorCritic(SHORT.spec, 40, privacy)

    @pytest.mark.slow
    @pytest.mark.parametrize("privacy", [JOINT, LocalDP(4.0, 1e-6), NonPrivate()])
    def test_it_passes_check_agent(self, privacy):
        make = partial(ActorCritic, privacy=privacy, schedule="fixed:size=30")
        check_agent(make, SHORT, users=90)

    @pytest.mark.slow
    def test_it_passes_check_agent_with_vectors(self):
        world = from_gymnasium("Pendulum-v1", 4, (-16.3, 0.0), evaluation_users=2, levels=9)
        make = partial(ActorCritic, privacy=JOINT, schedule="fixed:size=30")
        check_agent(make, world, users=90)
