"""Private gradients of a network: exact, bounded, paid for; and what is said without jax."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
from tacit.continuous.deep_training import Units, returns_of
from tacit.continuous.statistics.gradients import EpisodeGradients

from tacit import JointDP, LocalDP, NonPrivate, Relation, check_statistic
from tacit.audit.watched_gate import WatchedGate
from tacit.continuous import DeepQ
from tacit.continuous.network_policy import NetworkPolicy, first_network
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.steps import Steps
from tacit.continuous.worlds import cartpole, line, trap
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.errors import CheckFailed, InvalidArgument, MissingExtra
from tacit.privacy.statistic import WHOLE_EPISODE, Block
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed

JOINT = JointDP(0.9, 1e-4)
SHORT = line(horizon=4)
SIZES = (1, 3, 2)
FIELDS = [field for field in fields(EpisodeGradients) if field.init]


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


pytestmark_deep = pytest.mark.usefixtures("_deep")


def statistic(radius=1.0, spec=SHORT.spec, scale=1.0, ahead=1):
    rng = np.random.default_rng(0)
    theta, target = scale * first_network(rng, SIZES), scale * first_network(rng, SIZES)
    return EpisodeGradients(spec, SIZES, theta, target, 0.9, ahead, radius)


def users(rng, n):
    states = rng.random((n, 5, 1))
    states[rng.random(n) < 0.5] = rng.integers(0, 2)
    return VectorEpisodes(
        states,
        rng.integers(0, 2, (n, 4)),
        0.5 * rng.integers(0, 2, (n, 4)),
        np.where(rng.random(n) < 0.2, rng.integers(0, 5, n), 5),
    ).block()


def steps(rewards, ended=None, valid=None):
    n, horizon = np.shape(rewards)
    over = np.zeros((n, horizon), bool) if ended is None else np.array(ended)
    good = np.ones((n, horizon), bool) if valid is None else np.array(valid)
    places = np.zeros((n, horizon), np.int64)
    return Steps(np.zeros((n, horizon + 1, 1)), places, np.array(rewards, float), good, over)


class TestReturns:
    PLAIN = Units(np.zeros(1), np.ones(1), 0.0, 1.0, 0.5)

    def test_by_hand(self):
        earned, later, factor = returns_of(steps([[1.0, 2.0, 4.0]]), self.PLAIN, 2)
        np.testing.assert_allclose(earned, [[2.0, 4.0, 4.0]])
        assert later.tolist() == [[2, 3, 3]]
        np.testing.assert_allclose(factor, [[0.25, 0.25, 0.5]])

    def test_nothing_is_counted_across_an_end_or_a_step_that_does_not_count(self):
        end = [[False, True, False]]
        earned, later, factor = returns_of(steps([[1.0, 2.0, 4.0]], end), self.PLAIN, 3)
        np.testing.assert_allclose(earned[0, :2], [2.0, 2.0])
        np.testing.assert_allclose(factor[0, :2], 0.0)
        gap = [[True, False, True]]
        earned, later, factor = returns_of(steps([[1.0, 2.0, 4.0]], valid=gap), self.PLAIN, 3)
        assert (earned[0, 0], later[0, 0], factor[0, 0]) == (1.0, 1, 0.5)
        assert (earned[0, 2], later[0, 2], factor[0, 2]) == (4.0, 3, 0.5)

    def test_an_end_is_worth_nothing_in_any_units(self):
        """Counted from another middle, the same episode has the same value."""
        told = steps([[1.0, 2.0, 4.0]], [[False, False, True]])
        for middle in (0.0, 3.0):
            units = Units(np.zeros(1), np.ones(1), middle, 2.0, 0.5)
            earned = returns_of(told, units, 3).earned
            shift = middle / 0.5
            np.testing.assert_allclose(2.0 * earned + shift, [[3.0, 4.0, 4.0]])

    def test_units_from_outside_and_back(self):
        rng = np.random.default_rng(3)
        sizes = (2, 4, 3)
        units = Units(rng.normal(size=2), rng.uniform(1, 2, 2), 0.7, 5.0, 0.9)
        theta, states = first_network(rng, sizes), rng.normal(size=(6, 2))
        outside = units.outside(theta, sizes)
        inner = NetworkPolicy.of(theta, sizes).values(units.seen(states))
        expected = 5.0 * inner + 0.7 / (1.0 - 0.9)
        np.testing.assert_allclose(NetworkPolicy.of(outside, sizes).values(states), expected)
        np.testing.assert_allclose(units.inside(outside, sizes), theta)


@pytestmark_deep
class TestGradients:
    def test_against_the_compiled_network(self):
        """Two implementations of one gradient, by jax and by hand."""
        from tacit.continuous import network_loops as network

        asked = statistic(radius=1e6, scale=3.0)
        block = users(np.random.default_rng(1), 6)
        arrays = dict(block.arrays) | {"lengths": np.full(6, 5)}
        vectors = 1e6 * asked.vectors(Block(6, arrays))[:, :-1]
        sizes = np.array(SIZES)
        for user in range(6):
            states = 2.0 * np.asarray(arrays["states"][user]) - 1.0
            actions, rewards = arrays["actions"][user], arrays["rewards"][user]
            units = np.zeros((6, 4))
            units[0] = states[1:, 0]
            network.forward(asked.theta, sizes, units)
            best = units[-2:].argmax(axis=0)
            network.forward(asked.target, sizes, units)
            goals = (rewards - 0.25) / 0.5 * (1.0 - 0.9) * 10.0 + 0.9 * units[-2:][
                best, np.arange(4)
            ]
            units[0] = states[:-1, 0]
            network.forward(asked.theta, sizes, units)
            deltas, gradient = np.zeros_like(units), np.empty_like(asked.theta)
            errors = np.clip(units[4 + actions, np.arange(4)] - goals, -1.0, 1.0)
            deltas[4 + actions, np.arange(4)] = errors / 4
            network.backward(asked.theta, sizes, units, deltas, gradient)
            np.testing.assert_allclose(vectors[user], gradient, atol=1e-5)

    def test_a_gradient_is_the_same_whoever_else_is_there(self):
        """To the bit: among any number of others, and at any place among them."""
        asked, block = statistic(radius=1e6, scale=3.0), users(np.random.default_rng(2), 37)
        together = asked.vectors(block)
        for first, last in ((0, 1), (5, 6), (3, 10), (20, 37)):
            some = asked.vectors(block.take(slice(first, last)))
            np.testing.assert_array_equal(some, together[first:last])

    def test_attacked(self):
        check_statistic(statistic(radius=0.1), users, users=60, rounds=20, attained=0.9)
        bound = statistic(radius=0.1).l2(Relation.REPLACE_ONE)
        assert bound == pytest.approx(2.0 * math.sqrt(1.01))

    def test_a_missing_clip_is_found(self):
        class Unclipped(EpisodeGradients):
            def vectors(self, block):
                return 20.0 * statistic(radius=2.0).vectors(block)

        asked = Unclipped(*(getattr(statistic(radius=0.1), f.name) for f in FIELDS))
        with pytest.raises(CheckFailed):
            check_statistic(asked, users, users=60, rounds=5)


@pytestmark_deep
class TestAgent:
    make = staticmethod(partial(DeepQ, hidden=(4,), steps=5, target_every=2))

    def learnt(self, privacy=JOINT, agent=None, **options):
        agent = agent or self.make(SHORT.spec, 20, privacy, noise_seed=1, **options)
        rng = np.random.default_rng(0)
        while agent.block_users:
            agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng))
        return agent

    def test_budget_and_noise(self):
        """Every user is asked once, for all that she has; what is released is a running sum."""
        with WatchedGate().open() as gate:
            agent = self.learnt()
        assert len(gate.passages) == agent.releases == 5
        stds = [np.max(passage.release.std["gradient"]) for passage in gate.passages]
        for passage in gate.passages:
            assert passage.release.cost == pytest.approx(JOINT.budget.mu)
        alone = 2.0 * math.sqrt(1.01) / JOINT.budget.mu
        # Sums of five blocks with noise of their own would end with sqrt(5) of it.
        assert alone * 0.99 < max(stds) < 1.8 * alone
        assert (agent.guarantee.epsilon, agent.guarantee.delta) == (0.9, 1e-4)
        assert agent.guarantee.unit == WHOLE_EPISODE
        assert isinstance(agent.policy, NetworkPolicy)
        assert not agent._curator.blocks
        assert not agent.algorithm._replay.size

    def test_steps_and_batch_follow_from_the_budget(self):
        sizes = [
            DeepQ(SHORT.spec, 1000, JointDP(epsilon, 1e-6)).block_users
            for epsilon in (0.1, 1.0, 10.0)
        ]
        assert sizes[0] == 17 > sizes[1] > sizes[2] == 10

    def test_forced_releases_make_the_same_network(self):
        """The network depends on users by what was released and by nothing else."""
        script, thetas = (), []
        for seed in (0, 1):
            agent = self.make(SHORT.spec, 20, JOINT, noise_seed=1)
            with WatchedGate(script).open() as gate:
                rng = np.random.default_rng(seed)
                while agent.block_users:
                    uniform = QPolicy.uniform(1, 2)
                    agent.learn(SHORT.simulate(uniform, agent.block_users, rng))
            script = [passage.release for passage in gate.passages]
            thetas.append(agent.theta.tobytes())
        assert thetas[0] == thetas[1]

    @pytest.mark.parametrize("privacy", [JOINT, NonPrivate()], ids=["joint", "none"])
    def test_resumes(self, tmp_path, privacy):
        """What is saved in the middle goes on as if nothing had happened."""
        make = partial(DeepQ, SHORT.spec, 20, privacy, hidden=(4,), steps=4, noise_seed=1)
        rng = np.random.default_rng(0)
        data = [SHORT.simulate(QPolicy.uniform(1, 2), 5, rng) for _ in range(4)]
        whole, half = make(), make()
        for part in data:
            whole.learn(part)
        for part in data[:2]:
            half.learn(part)
        half.save(tmp_path / "save")
        other = make().load(tmp_path / "save")
        for part in data[2:]:
            other.learn(part)
        assert other.theta.tobytes() == whole.theta.tobytes()
        assert other.greedy_policy.theta.tobytes() == whole.greedy_policy.theta.tobytes()

    def test_hostile_users_neither_raise_nor_spread(self):
        agent = self.make(SHORT.spec, 3, NonPrivate())
        hostile = VectorEpisodes(
            np.full((3, 5, 1), [[[np.nan]], [[1e300]], [[-np.inf]]]),
            np.full((3, 4), 9),
            np.full((3, 4), np.inf),
        )
        agent.learn(hostile)
        assert np.isfinite(agent.theta).all()

    def test_a_private_curator_opens_no_episode(self):
        """What is public without privacy is refused with it, by the curator."""
        from tacit.continuous.statistics.gradients import OpenEpisodes

        curator = JOINT.curator(users=3, noise_seed=0)
        number = curator.add(users(np.random.default_rng(0), 3))
        with pytest.raises(InvalidArgument, match="protects"):
            curator.public(OpenEpisodes(SHORT.spec), number, ("states",))
        with pytest.raises(InvalidArgument, match="protects"):
            curator.release(OpenEpisodes(SHORT.spec))

    def test_a_public_start_is_told_in_the_guarantee(self):
        first = self.learnt(privacy=NonPrivate())
        agent = self.make(SHORT.spec, 20, JOINT, start=first.greedy_policy, noise_seed=1)
        assert "a network taken for public" in str(agent.guarantee)
        assert "a network taken for public" not in str(self.make(SHORT.spec, 20, JOINT).guarantee)
        states = np.linspace(0.0, 1.0, 5)[:, np.newaxis]
        theta = agent.units.outside(agent.theta, agent.sizes)
        again = NetworkPolicy.of(theta, agent.sizes).values(states)
        np.testing.assert_allclose(again, first.greedy_policy.values(states))
        assert agent.greedy_policy.greedy(states).tolist() == (
            first.greedy_policy.greedy(states).tolist()
        )
        # A save of one start is no save of another, wherever they differ.
        moved = first.greedy_policy.theta.copy()
        moved[-1] += 1.0
        second = NetworkPolicy.of(moved, first.greedy_policy.sizes)
        others = self.make(SHORT.spec, 20, JOINT, start=second, noise_seed=1)
        assert others.algorithm.identity() != agent.algorithm.identity()
        other = NetworkPolicy.of(first_network(np.random.default_rng(0), (3, 4, 2)), (3, 4, 2))
        with pytest.raises(InvalidArgument, match="start must be a network from 1"):
            self.make(SHORT.spec, 20, JOINT, start=other)

    def test_refusals(self):
        for privacy in (LocalDP(1.0, 1e-4), JointDP(1.0, 0.0)):
            with pytest.raises(InvalidArgument, match="JointDP with delta > 0"):
                self.make(SHORT.spec, 20, privacy)
        for options, message in [({"steps": 0}, "steps"), ({"radius": 0.0}, "radius")]:
            with pytest.raises(InvalidArgument, match=message):
                DeepQ(SHORT.spec, 20, JOINT, **options)

    def test_it_learns(self):
        world = trap()
        agent = DeepQ(world.spec, 300, NonPrivate(), seed=500)
        assert run(agent, world, seed=500, progress=False).greedy_values[-1] > 20.0
        private = DeepQ(world.spec, 1000, JointDP(3.0, 1e-4), seed=500, noise_seed=noise_seed(500))
        result = run(private, world, seed=500, progress=False)
        assert result.greedy_values[-1] > 15.0
        assert result.guarantee.epsilon == 3.0

    def test_cartpole(self):
        world = cartpole()
        agent = DeepQ(world.spec, 10, JOINT, noise_seed=0, steps=1)
        agent.learn(world.simulate(agent.policy, 10, np.random.default_rng(0)))
        assert agent.policy.act(0, [0.0, 0.0, 0.1, 0.0], np.random.default_rng(0)) in (0, 1)
