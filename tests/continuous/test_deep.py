"""Private gradients of a network: exact, bounded, paid for; and what is said without jax."""

from __future__ import annotations

import math
import os
import sys
from functools import partial

import numpy as np
import pytest

from tacit import JointDP, LocalDP, NonPrivate, Relation, check_statistic
from tacit.audit.watched_gate import WatchedGate
from tacit.continuous import DeepQ
from tacit.continuous import deep_q as page
from tacit.continuous.network_policy import NetworkPolicy, first_network
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.gradients import EpisodeGradients
from tacit.continuous.worlds import cartpole, line
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.errors import CheckFailed, InvalidArgument, MissingExtra
from tacit.privacy.statistic import WHOLE_EPISODE, Block
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed

JOINT = JointDP(0.9, 1e-4)
SHORT = line(horizon=4)
SIZES = (1, 3, 2)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_without_jax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tacit\[deep\]'"):
        DeepQ(line().spec, 10, JOINT)


@pytest.fixture
def _deep():
    pytest.importorskip("jax")
    pytest.importorskip("optax")


pytestmark_deep = pytest.mark.usefixtures("_deep")


def statistic(radius=1.0, spec=SHORT.spec, scale=1.0):
    rng = np.random.default_rng(0)
    theta, target = scale * first_network(rng, SIZES), scale * first_network(rng, SIZES)
    return EpisodeGradients(spec, SIZES, theta, target, 0.9, radius)


def users(rng, n):
    states = rng.random((n, 5, 1))
    states[rng.random(n) < 0.5] = rng.integers(0, 2)
    return VectorEpisodes(
        states,
        rng.integers(0, 2, (n, 4)),
        0.5 * rng.integers(0, 2, (n, 4)),
        np.where(rng.random(n) < 0.2, rng.integers(0, 5, n), 5),
    ).block()


@pytestmark_deep
class TestGradients:
    def test_against_the_compiled_network(self):
        """Two implementations of one gradient, by jax and by hand."""
        from tacit.continuous import network_loops as network

        asked = statistic(radius=1e6, scale=3.0)
        block = users(np.random.default_rng(1), 6)
        arrays = dict(block.arrays) | {"lengths": np.full(6, 5)}
        vectors = asked.vectors(Block(6, arrays))
        sizes = np.array(SIZES)
        for user in range(6):
            states = np.asarray(arrays["states"][user])
            actions, rewards = arrays["actions"][user], arrays["rewards"][user]
            units = np.zeros((6, 4))
            units[0] = states[1:, 0]
            network.forward(asked.target, sizes, units)
            goals = (rewards - 0.25) / 0.5 + 0.9 * units[-2:].max(axis=0)
            units[0] = states[:-1, 0]
            network.forward(asked.theta, sizes, units)
            deltas, gradient = np.zeros_like(units), np.empty_like(asked.theta)
            errors = np.clip(units[4 + actions, np.arange(4)] - goals, -1.0, 1.0)
            deltas[4 + actions, np.arange(4)] = errors / 4
            network.backward(asked.theta, sizes, units, deltas, gradient)
            np.testing.assert_allclose(vectors[user], gradient, atol=1e-5)

    def test_attacked(self):
        check_statistic(statistic(radius=0.1), users, users=60, rounds=20, attained=0.9)
        assert statistic(radius=0.1).l2(Relation.REPLACE_ONE) == 0.2

    def test_a_missing_clip_is_found(self, monkeypatch):
        monkeypatch.setattr(
            "tacit.continuous.statistics.gradients.scaled_back", lambda vectors, radius: vectors
        )
        with pytest.raises(CheckFailed):
            check_statistic(statistic(radius=0.1), users, users=60, rounds=5)

    def test_an_end_is_worth_nothing(self):
        """After an end the target is the reward and nothing more, in units of the range."""
        asked = statistic(radius=1e6)
        states, actions = np.full((1, 5, 1), 0.5), np.zeros((1, 4), dtype=np.int64)
        rewards = np.full((1, 4), 0.25)
        by_length = [
            asked.vectors(VectorEpisodes(states, actions, rewards, [length]).block())[0]
            for length in (5, 1)
        ]
        assert np.isfinite(by_length).all()
        assert np.abs(by_length[0] - by_length[1]).max() > 1e-3


@pytestmark_deep
class TestAgent:
    make = staticmethod(partial(DeepQ, hidden=(4,), steps=6, target_every=2))

    def learnt(self, **options):
        agent = self.make(SHORT.spec, 20, JOINT, noise_seed=1, **options)
        agent.learn(SHORT.simulate(agent.policy, 20, np.random.default_rng(0)))
        return agent

    def test_budget_and_noise(self):
        with WatchedGate().open() as gate:
            agent = self.learnt()
        assert len(gate.passages) == 6
        mu = JOINT.budget.mu / math.sqrt(6)
        for passage in gate.passages:
            assert passage.release.cost == pytest.approx(mu)
            assert np.max(passage.release.std["gradient"]) == pytest.approx(2 * agent.radius / mu)
        assert (agent.guarantee.epsilon, agent.guarantee.delta) == (0.9, 1e-4)
        assert agent.guarantee.unit == WHOLE_EPISODE
        assert (agent.releases, agent.block_users) == (1, 0)
        assert isinstance(agent.policy, NetworkPolicy)
        assert not agent._curator.blocks

    def test_forced_releases_make_the_same_network(self):
        """The network depends on users by what was released and by nothing else."""
        episodes = [
            SHORT.simulate(QPolicy.uniform(1, 2), 20, np.random.default_rng(s)) for s in (0, 1)
        ]
        script, thetas = (), []
        for data in episodes:
            agent = self.make(SHORT.spec, 20, JOINT, noise_seed=1)
            with WatchedGate(script).open() as gate:
                agent.learn(data)
            script = [passage.release for passage in gate.passages]
            thetas.append(agent.theta.tobytes())
        assert thetas[0] == thetas[1]

    def test_resumes_within_its_steps(self, tmp_path, monkeypatch):
        """A crash in the middle of the steps; the save that was written before it goes on."""
        whole = self.learnt()
        original, calls = page.DeepQ._take_step, []

        def crashing(self, *args):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            original(self, *args)

        monkeypatch.setattr(page.DeepQ, "_take_step", crashing)
        with pytest.raises(KeyboardInterrupt):
            self.learnt(autosave=tmp_path / "save")
        monkeypatch.setattr(page.DeepQ, "_take_step", original)
        other = self.make(SHORT.spec, 20, JOINT, noise_seed=1).load(tmp_path / "save")
        assert other.block_users == 0
        assert other.theta.tobytes() == whole.theta.tobytes()
        whole.save(tmp_path / "whole")
        again = self.make(SHORT.spec, 20, JOINT, noise_seed=1).load(tmp_path / "whole")
        assert again.policy.theta.tobytes() == whole.policy.theta.tobytes()

    def test_hostile_users_neither_raise_nor_spread(self):
        agent = self.make(SHORT.spec, 3, NonPrivate())
        agent.learn(
            VectorEpisodes(
                np.full((3, 5, 1), [[[np.nan]], [[1e300]], [[-np.inf]]]),
                np.full((3, 4), 9),
                np.full((3, 4), np.inf),
            )
        )
        assert np.isfinite(agent.theta).all()

    def test_refusals(self):
        for privacy in (LocalDP(1.0, 1e-4), JointDP(1.0, 0.0)):
            with pytest.raises(InvalidArgument, match="JointDP with delta > 0"):
                self.make(SHORT.spec, 20, privacy)
        for options, message in [({"steps": 0}, "steps"), ({"radius": 0.0}, "radius")]:
            with pytest.raises(InvalidArgument, match=message):
                DeepQ(SHORT.spec, 20, JOINT, **options)

    def test_it_learns(self):
        world = line()
        agent = DeepQ(world.spec, 100, NonPrivate(), seed=500)
        result = run(agent, world, seed=500, progress=False)
        assert result.greedy_values[-1] > 19.5
        private = DeepQ(world.spec, 100, JOINT, seed=500, noise_seed=noise_seed(500))
        assert run(private, world, seed=500, progress=False).guarantee.epsilon == 0.9

    def test_cartpole(self):
        world = cartpole()
        agent = DeepQ(world.spec, 10, JOINT, noise_seed=0, steps=3)
        agent.learn(world.simulate(agent.policy, 10, np.random.default_rng(0)))
        assert agent.policy.act(0, [0.0, 0.0, 0.1, 0.0], np.random.default_rng(0)) in (0, 1)
