"""The baselines: what they promise, spend and learn; and slips that are found."""

from __future__ import annotations

import math
import os
from functools import partial

import numpy as np
import pytest
from tacit.continuous.fitted_q import fitted_q, middle

from tacit import JointDP, LocalDP, NonPrivate, Relation, check_statistic
from tacit.audit.check_agent import check_agent
from tacit.audit.watched_gate import WatchedGate
from tacit.continuous import InputPerturbation, OutputPerturbation, PrivatePolicyEvaluation
from tacit.continuous import input_perturbation as page
from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.reports import FirstVisits, OwnValues, RewardVectors, Trajectories
from tacit.continuous.statistics.steps import REWARDS_ONLY, steps_of
from tacit.continuous.worlds import cartpole, line, plane
from tacit.core.kinds import AgentKind
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.errors import CheckFailed, HorizonExceeded, InvalidArgument
from tacit.privacy.statistic import WHOLE_EPISODE, Block
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed

SHORT = line(horizon=4)
COARSE = Grid((0.0,), (1.0,), (3,))
JOINT = JointDP(0.9, 1e-4)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def users_of(spec):
    """Users of all kinds: at the ends and anywhere, with extreme rewards, ended and not."""

    def sample(rng, users):
        H, D = spec.horizon, spec.dimension
        states = rng.random((users, H + 1, D))
        states[rng.random(users) < 0.5] = rng.integers(0, 2, D)
        ends = rng.random((users, H)) < rng.random((users, 1))
        rewards = np.where(ends, *spec.reward_range)
        return VectorEpisodes(
            states,
            rng.integers(0, spec.actions, (users, H)),
            rewards,
            np.where(rng.random(users) < 0.2, rng.integers(0, H + 1, users), H + 1),
        ).block()

    return sample


STATISTICS = {
    "rewards": RewardVectors(SHORT.spec),
    "trajectories": Trajectories(SHORT.spec),
    "values": OwnValues(SHORT.spec, COARSE, 0.5, ridge=0.5, radius=0.05),
    "visits": FirstVisits(SHORT.spec, COARSE, 0.9, radius=1.5),
}


class TestSensitivities:
    @pytest.mark.parametrize("name", STATISTICS)
    def test_attacked(self, name):
        tight = {"rewards": 0.99, "trajectories": 0.9, "values": 0.9, "visits": 0.9}
        check_statistic(
            STATISTICS[name], users_of(SHORT.spec), users=100, rounds=40, attained=tight[name]
        )

    def test_attacked_in_two_dimensions(self):
        spec = plane(horizon=3).spec
        grid = Grid((0.0, 0.0), (1.0, 1.0), (2, 2))
        for statistic in (
            Trajectories(spec),
            OwnValues(spec, grid, 0.5, 0.5, 0.05),
            FirstVisits(spec, grid, 0.9, 1.2),
        ):
            check_statistic(statistic, users_of(spec), users=60, rounds=15)

    def test_declared(self):
        rewards = STATISTICS["rewards"]
        assert rewards.l2(Relation.REPLACE_ONE) == 2.0
        assert rewards.l2(Relation.ZERO_OUT) == 1.0
        assert rewards.l1(Relation.REPLACE_ONE) == 4.0
        # 5 places and 4 rewards that move by 1, 4 actions that move by sqrt 2.
        assert STATISTICS["trajectories"].l2(Relation.REPLACE_ONE) == math.sqrt(5 + 4 + 8)
        assert STATISTICS["visits"].l2(Relation.REPLACE_ONE) == math.sqrt(2.0) * 1.5
        assert STATISTICS["values"].l2(Relation.REPLACE_ONE) == 0.1

    @pytest.mark.parametrize(
        ("name", "method", "mutant"),
        [
            ("rewards", "l2", lambda self, relation: 0.9 * math.sqrt(self.spec.horizon)),
            ("trajectories", "l2", lambda self, relation: 3.0),
            ("values", "l2", lambda self, relation: 1.2 * self.radius),
            ("visits", "l2", lambda self, relation: 1.0 * self.radius),
        ],
    )
    def test_a_smaller_declaration_is_found(self, name, method, mutant, monkeypatch):
        statistic = STATISTICS[name]
        zero = statistic.l2(Relation.ZERO_OUT)
        monkeypatch.setattr(
            type(statistic),
            method,
            lambda self, relation: (
                zero if relation is Relation.ZERO_OUT else max(zero, mutant(self, relation))
            ),
        )
        with pytest.raises(CheckFailed):
            check_statistic(statistic, users_of(SHORT.spec), users=100, rounds=40)

    def test_a_missing_clip_is_found(self, monkeypatch):
        """The gate's own clip would keep the bound; a fit that raises on values is worse."""
        monkeypatch.setattr(
            "tacit.continuous.statistics.reports.scaled_back", lambda vectors, radius: vectors
        )
        with pytest.raises(CheckFailed):
            check_statistic(STATISTICS["values"], users_of(SHORT.spec), users=100, rounds=5)

    def test_first_visits_by_hand(self):
        statistic = FirstVisits(SHORT.spec, COARSE, 0.5, radius=100.0)
        states = np.array([[[0.0], [0.1], [0.9], [0.05], [0.5]]])
        actions, rewards = np.array([[1, 1, 0, 0]]), np.array([[0.5, 0.0, 0.0, 0.25]])
        vector = statistic.vectors(VectorEpisodes(states, actions, rewards).block())[0]
        parts = statistic.layout.unpack(vector)
        # Action 1 at point 0 twice, of which the first counts; action 0 at points 2 and 0.
        assert parts["visits"].tolist() == [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        first = (0.5 + 0.125 * 0.25) / (1 + 0.5 + 0.25 + 0.125)
        third = (0.5 * 0.25) / 1.5
        expected = [[0.0, 0.0, 4 * third - 1.0], [4 * first - 1.0, 0.0, 0.0]]
        np.testing.assert_allclose(parts["returns"], expected, atol=1e-12)


class TestFittedQ:
    def test_two_places(self):
        """Exact: two places, action 1 leads to the better one; values by hand."""
        spec = BoxSpec((0.0,), (1.0,), actions=2, horizon=4, reward_range=(0.0, 1.0))
        grid = Grid((0.0,), (1.0,), (2,))
        places = np.array([0.0, 0.0, 1.0, 1.0])[:, np.newaxis]
        actions = np.array([0, 1, 0, 1])
        there = np.array([0.0, 1.0, 0.0, 1.0])[:, np.newaxis]
        rewards = there[:, 0].copy()
        weights = fitted_q(
            grid(places)[np.newaxis],
            grid(there)[np.newaxis],
            actions[np.newaxis],
            rewards[np.newaxis],
            np.ones((1, 4), dtype=bool),
            np.zeros((1, 4), dtype=bool),
            spec,
            0.9,
            ridge=1e-9,
        )[0]
        values = weights + middle(spec, 0.9)
        # To the good place and on: 1 / (1 - .9) = 10; one step in the bad one first: 9.
        np.testing.assert_allclose(values, [[9.0, 9.0], [10.0, 10.0]], atol=0.02)

    def test_hostile_values_are_dropped(self):
        spec = SHORT.spec
        block = users_of(spec)(np.random.default_rng(0), 5)
        arrays = {name: np.array(array) for name, array in block.arrays.items()}
        arrays["states"][0, 2], arrays["actions"][1, 0] = np.nan, 99
        arrays["rewards"][2, 3], arrays["lengths"][3] = -np.inf, -7
        arrays["states"][4], arrays["lengths"][4] = 1e300, 10**12
        states, actions, rewards, valid, _ = steps_of(Block(5, arrays), spec, inside=True)
        assert np.isfinite(states).all()
        assert states.max() <= 1.0
        assert (actions >= 0).all()
        assert (actions < 2).all()
        assert rewards.max() <= 0.5
        assert not valid[0, 1]
        assert not valid[0, 2]
        assert not valid[1, 0]
        assert not valid[2, 3]
        assert not valid[3].any()

    def test_shapes_are_public(self):
        block = users_of(SHORT.spec)(np.random.default_rng(0), 5)
        with pytest.raises(InvalidArgument, match="shape"):
            steps_of(block, line(horizon=5).spec, inside=True)


MAKERS = {
    "output": partial(OutputPerturbation, features=COARSE, discount=0.5),
    "evaluation": partial(PrivatePolicyEvaluation, features=COARSE),
    "rewards": partial(InputPerturbation, features=COARSE),
    "episode": partial(InputPerturbation, features=COARSE, protect="episode"),
}


class TestConformance:
    @pytest.mark.parametrize("privacy", [JOINT, NonPrivate(), LocalDP(5.0, 1e-4)], ids=repr)
    def test_output(self, privacy):
        make = partial(MAKERS["output"], privacy=privacy, schedule="fixed:size=20")
        check_agent(make, SHORT, users=60, seeds=20, sample=users_of(SHORT.spec))

    @pytest.mark.parametrize("privacy", [JOINT, NonPrivate()], ids=repr)
    def test_evaluation(self, privacy):
        make = partial(MAKERS["evaluation"], privacy=privacy)
        check_agent(make, SHORT, users=60, seeds=20, sample=users_of(SHORT.spec))

    @pytest.mark.parametrize("protect", ["episode", "rewards"])
    def test_input(self, protect):
        make = partial(MAKERS[protect], privacy=JOINT)
        check_agent(make, SHORT, users=6, seeds=12, sample=users_of(SHORT.spec))

    def test_public_data_is_public_only_where_it_is_said(self):
        """States of which nobody said that they are public."""

        class Careless(page.InputPerturbation):
            @property
            def protects(self):
                return WHOLE_EPISODE

            def statistic(self):
                return Unsaid(self.spec)

        class Unsaid(RewardVectors):
            protects = WHOLE_EPISODE
            private_columns = None

        make = partial(AgentKind(Careless), features=COARSE, privacy=JOINT)
        with pytest.raises(CheckFailed, match="states, actions, lengths cannot be public"):
            check_agent(make, SHORT, users=6, seeds=12, sample=users_of(SHORT.spec))

    def test_a_lost_release_gives_nobody_another_ones_states(self, monkeypatch):
        agent = MAKERS["rewards"](SHORT.spec, users=6, privacy=JOINT, noise_seed=0)
        data = SHORT.simulate(agent.policy, 6, np.random.default_rng(0), "episodes").block()
        agent.learn(data.take(slice(0, 2)))

        def fails(*_, **__):
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(type(agent._curator), "release", fails)
            with pytest.raises(OSError, match="disk full"):
                agent.learn(data.take(slice(2, 3)))
        agent.learn(data.take(slice(3, 6)))
        assert {len(parts) for parts in agent.published.values()} == {5}
        kept = np.concatenate(agent.published["states"])
        np.testing.assert_array_equal(kept, np.delete(data["states"], 2, axis=0))
        assert agent.finished
        assert agent.weights.any()

    def test_shapes_of_public_arrays_are_checked(self):
        agent = MAKERS["rewards"](SHORT.spec, users=6, privacy=JOINT, noise_seed=0)
        block = SHORT.simulate(agent.policy, 1, np.random.default_rng(0), "episodes").block()
        short = dict(block.arrays) | {"states": block["states"][:, :-1]}
        with pytest.raises(InvalidArgument, match="'states' must have shape"):
            agent.learn(Block(1, short))
        agent.learn(block)
        assert agent.releases == 1


class TestBudgets:
    @pytest.mark.parametrize("name", MAKERS)
    def test_noise_and_guarantee(self, name):
        """Every user enters the gate once, with noise for the whole budget."""
        agent = MAKERS[name](SHORT.spec, 30, JOINT, noise_seed=1)
        rng, users = np.random.default_rng(0), 0
        with WatchedGate().open() as gate:
            while agent.block_users:
                users += agent.block_users
                agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng))
        assert users == 30
        assert sorted({p.blocks for p in gate.passages}) == [
            (i,) for i in range(len(gate.passages))
        ]
        for passage in gate.passages:
            scale = passage.statistic.l2(Relation.REPLACE_ONE) / JOINT.budget.mu
            for part in passage.statistic.layout.parts:
                assert np.max(passage.release.std[part.name]) == pytest.approx(scale / part.weight)
        guarantee = agent.guarantee
        assert (guarantee.epsilon, guarantee.delta) == (0.9, 1e-4)
        assert guarantee.unit == (REWARDS_ONLY if name == "rewards" else WHOLE_EPISODE)

    def test_noise_of_rewards(self):
        """(high - low) sqrt(T) / mu on every reward."""
        agent = InputPerturbation(line().spec, 300, JOINT, noise_seed=3)
        episodes = line().simulate(agent.policy, 300, np.random.default_rng(0))
        agent.learn(episodes)
        noisy = np.concatenate(agent.published["rewards"])
        std = 0.5 * math.sqrt(50) / JOINT.budget.mu
        # 15,000 values: their standard deviation is within 3 % unless with probability 1e-6.
        assert np.std(noisy - episodes.rewards) == pytest.approx(std, rel=0.03)

    def test_public_states_change_nothing_else(self):
        """With only rewards protected, forced releases and the same states: the same policy."""
        rng = np.random.default_rng(0)
        episodes = SHORT.simulate(QPolicy.uniform(1, 2), 10, rng)
        weights = []
        script = ()
        for rewards in (episodes.rewards, 0.5 - episodes.rewards):
            agent = MAKERS["rewards"](SHORT.spec, 10, JOINT, noise_seed=1)
            with WatchedGate(script).open() as gate:
                agent.learn(VectorEpisodes(episodes.states, episodes.actions, rewards))
            script = [passage.release for passage in gate.passages]
            weights.append(agent.greedy_policy.weights.tobytes())
        assert weights[0] == weights[1]


class TestLearning:
    def score(self, make, users, seed, world=None, **options):
        world = world or line()
        agent = make(world.spec, users, seed=seed, noise_seed=noise_seed(seed), **options)
        result = run(agent, world, seed=seed, progress=False)
        return result.greedy_values[-1]

    @pytest.mark.parametrize(
        "make",
        [OutputPerturbation, PrivatePolicyEvaluation, InputPerturbation],
        ids=lambda m: m.name,
    )
    def test_without_noise_they_learn(self, make):
        assert self.score(make, 100, 500, privacy=NonPrivate()) > 20.3

    def test_at_the_papers_budget(self):
        """Averages of users' own fits need 100 users; evaluations thousands; rewards still more."""
        for seed in (500, 501):
            assert self.score(OutputPerturbation, 100, seed, privacy=JOINT) > 19.5
        assert self.score(PrivatePolicyEvaluation, 10_000, 500, privacy=JOINT) > 20.3

    def test_cartpole_has_features_of_its_own(self):
        world = cartpole()
        agent = OutputPerturbation(world.spec, 40, NonPrivate())
        assert agent.features is world.spec.features
        agent.learn(world.simulate(agent.policy, 40, np.random.default_rng(0)))
        assert np.isfinite(agent.weights).all()

    def test_the_last_policy_is_greedy(self):
        agent = PrivatePolicyEvaluation(SHORT.spec, 10, JOINT, noise_seed=0, rounds=2, epsilon=0.3)
        rng = np.random.default_rng(0)
        assert agent.policy.epsilon == 1.0
        agent.learn(SHORT.simulate(agent.policy, 5, rng))
        assert agent.policy.epsilon == 0.3
        agent.learn(SHORT.simulate(agent.policy, 5, rng))
        assert agent.policy.epsilon == 0.0
        assert agent.block_users == 0

    def test_resume(self, tmp_path):
        episodes = SHORT.simulate(QPolicy.uniform(1, 2), 12, np.random.default_rng(0))
        for name, make in MAKERS.items():
            whole = make(SHORT.spec, 12, JOINT, noise_seed=1)
            half = make(SHORT.spec, 12, JOINT, noise_seed=1)
            whole.learn(episodes)
            half.learn(episodes.take(slice(0, 7)))
            half.save(tmp_path / name)
            other = make(SHORT.spec, 12, JOINT, noise_seed=1).load(tmp_path / name)
            other.learn(episodes.take(slice(7, 12)))
            assert other.greedy_policy.weights.tobytes() == whole.greedy_policy.weights.tobytes()


class TestRefusals:
    def test_arguments(self):
        spec = SHORT.spec
        for make, options, message in [
            (InputPerturbation, {"protect": "states"}, "protect"),
            (InputPerturbation, {"ridge": 0.0}, "ridge"),
            (OutputPerturbation, {"radius": -1.0}, "radius"),
            (OutputPerturbation, {"discount": 1.0}, "discount"),
            (PrivatePolicyEvaluation, {"rounds": 0}, "rounds"),
            (PrivatePolicyEvaluation, {"epsilon": 2.0}, "epsilon"),
            (PrivatePolicyEvaluation, {"features": cartpole().spec.features}, "features"),
        ]:
            with pytest.raises(InvalidArgument, match=message):
                make(spec, 10, JOINT, **options)
        with pytest.raises(InvalidArgument, match="finite box"):
            InputPerturbation(cartpole().spec, 10, JOINT, protect="episode")

    def test_more_users_than_declared(self):
        agent = OutputPerturbation(SHORT.spec, 3, JOINT, noise_seed=0)
        with pytest.raises(HorizonExceeded):
            agent.learn(SHORT.simulate(agent.policy, 4, np.random.default_rng(0)))

    def test_sums(self):
        agent = OutputPerturbation(SHORT.spec, 3, JOINT, noise_seed=0)
        with pytest.raises(InvalidArgument, match="aggregate"):
            agent.learn(Block(3, {}, aggregate=True))
