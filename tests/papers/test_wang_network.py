"""A network with private parameters: gradients, bounds, and the guarantee of the noise drawn."""

import numpy as np
import pytest

from tacit.continuous import line
from tacit.papers import wang_functional_2019 as paper
from tacit.privacy.budget import epsilon_from_mu, mu_from_budget
from tacit.privacy.noise import Noise

MU = mu_from_budget(0.9, 1e-4)
BUDGET = {"epsilon": 0.9, "delta": 1e-4}


def network_case(clip, rewards):
    """A batch of four users of five steps, all of them at one place: as bad as it can be."""
    Q = paper.Network((1, 4, 2), np.random.default_rng(0))
    steps = paper.StepBatch(np.full(20, 0.7), [1] * 20, rewards, np.full(20, 0.2))
    return paper._td_gradient(Q, steps, 0.9, clip)


class TestNetwork:
    def test_gradients_are_those_of_the_outputs(self):
        Q = paper.Network((1, 5, 4, 3), np.random.default_rng(1))
        states, actions = np.random.default_rng(2).random(6), [0, 1, 2, 2, 1, 0]
        found, theta = Q.gradients(states, actions), Q.theta.copy()
        for i in range(len(theta)):
            sides = []
            for step in (1e-6, -1e-6):
                Q.theta = theta + step * np.eye(len(theta))[i]
                sides.append(Q(states)[np.arange(6), actions])
            np.testing.assert_allclose(found[:, i], (sides[0] - sides[1]) / 2e-6, atol=1e-7)

    def test_greedy_policy_is_of_the_network_as_it_was(self):
        Q = paper.Network((1, 16, 2), np.random.default_rng(3))
        policy, states = Q.greedy(), np.linspace(0.0, 1.0, 50)
        expected = Q(states)
        Q.theta = Q.theta + 1.0
        np.testing.assert_allclose(policy.values(states[:, np.newaxis]), expected, atol=1e-12)

    @pytest.mark.parametrize("clip", [0.1, 1.0])
    def test_one_users_rewards_move_the_gradient_by_at_most_the_bound(self, clip):
        """R G / U, attained where all gradients are alike and longer than G."""
        low, high = np.zeros(20), np.zeros(20)
        high[5:10] = 0.5
        moved = np.linalg.norm(network_case(clip, high) - network_case(clip, low))
        assert moved == pytest.approx(0.5 * clip / 4, rel=1e-9)
        some = np.random.default_rng(4)
        for _ in range(20):
            low[5:10], high[5:10] = some.random((2, 5)) / 2
            moved = np.linalg.norm(network_case(clip, high) - network_case(clip, low))
            assert moved <= 0.5 * clip / 4 + 1e-12

    def test_guarantee_is_that_of_the_noise_drawn(self):
        """sigma from the budget; another sigma, another guarantee; and that much is drawn."""
        setting = paper.Setting(T=500, B=500, alpha=0.3)
        usual = paper.network_q(line(), **BUDGET, setting=setting)
        sigma = usual.constants["sigma"]
        assert sigma == pytest.approx(0.5 / 10 / MU)
        assert usual.guarantee.epsilon == pytest.approx(0.9)
        double = paper.network_q(line(), **BUDGET, setting=setting, sigma=2 * sigma)
        assert double.guarantee.mu == pytest.approx(MU / 2)
        assert double.guarantee.epsilon == pytest.approx(epsilon_from_mu(MU / 2, 1e-4))
        drawn = Noise(0).normal(usual.policy.theta.shape)
        change = double.policy.theta - usual.policy.theta
        np.testing.assert_allclose(change, -0.3 * sigma * drawn, atol=1e-12)

    def test_each_user_is_in_one_batch(self):
        setting = paper.Setting(T=2600, B=500)
        result = paper.network_q(line(), **BUDGET, setting=setting, clip=2.0)
        assert (result.episodes, result.guarantee.releases) == (50, 5)
        assert result.constants["sigma"] == pytest.approx(2.0 * 0.5 / 10 / MU)
        assert result.guarantee.unit == "one user's rewards; states and actions are public"
