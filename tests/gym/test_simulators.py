"""Private simulators: what they draw, what their files hold, and what they promise."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tacit
from research.worlds import pendulum
from tacit import CorruptFile, InvalidArgument, JointDP, NonPrivate, published
from tacit.continuous import SmoothSpec
from tacit.core.public_file import ReleasedModel, published_bytes
from tacit.gym.simulators import SimulatorEnv, load_simulator
from tacit.store import ledger
from tests.cli.calls import call
from tests.continuous.blocks import random_users

WORLD = tacit.tabular.riverswim(4, 6)
JOINT = JointDP(5.0, 1e-6)


def learnt(name="ConcurrentPSRL", users=4_000, privacy=JOINT, **more):
    agent = getattr(tacit, name)(WORLD.spec, users, privacy, noise_seed=0, **more)
    tacit.run(agent, WORLD, progress=False)
    return agent


@pytest.fixture(scope="module")
def agent():
    return learnt()


def file_of(horizon=3, **arrays):
    """Two draws of two states and two actions: the first stays, the second moves on."""
    stay, go = np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    moves = np.array([[[[s, s] for s in stay]], [[[g, g] for g in go]]])
    known = {"known": np.array([[[1.0, 1.0], [1.0, 0.2]]]), "start": np.array([1.0, 0.0])}
    rewards = np.array([[[[0.0, 0.5], [1.0, 1.0]]]] * 2)
    given = {"transitions": moves, "rewards": rewards, **known, **arrays}
    return published_bytes(ReleasedModel("finite", given, horizon, 2), {}, "simulator.npz")


class TestDraws:
    def test_every_episode_is_in_one_draw(self):
        users = SimulatorEnv(file_of()).vector(400)
        states, info = users.reset(seed=0)
        draws, paid, known = info["draw"], np.zeros(400), np.ones(400, bool)
        assert 100 < draws.sum() < 300
        for step in range(3):
            states, rewards, ended, truncated, info = users.step(np.ones(400, int))
            paid, known = paid + rewards, known & info["known"]
            assert (states == np.where(draws == 1, (step + 1) % 2, 0)).all()
            assert not ended.any()
            assert truncated.all() == (step == 2)
        assert (paid == np.where(draws == 1, 2.0, 1.5)).all()
        assert (known == (draws == 0)).all()

    def test_one_that_is_over_begins_again(self):
        users = SimulatorEnv(file_of(horizon=1)).vector(200)
        first = users.reset(seed=0)[1]["draw"]
        assert users.step(np.ones(200, int))[3].all()
        states, rewards, _, truncated, _ = users.step(np.ones(200, int))
        assert (states == 0).all() and not rewards.any() and not truncated.any()  # noqa: PT018
        assert (users.simulator.begin(0, users.np_random).states == []).all()
        assert (users._episodes.drawn != first).any()

    def test_rows_of_steps_are_told_apart(self):
        """Two rows: of all steps but the last, and of the last."""
        stored = SimulatorEnv(file_of()).simulator.stored
        moves = np.concatenate([stored["transitions"][:1], stored["transitions"][1:]], axis=1)
        both = {"rewards": np.zeros((1, 2, 2, 2)), "known": np.ones((2, 2, 2))}
        env = SimulatorEnv(file_of(transitions=moves, **both))
        env.reset(seed=0)
        assert [int(env.step(0)[0]) for _ in range(3)] == [0, 0, 1]

    def test_frequencies_are_those_of_the_rows(self):
        row, n = np.array([0.1, 0.0, 0.6, 0.3]), 100_000
        arrays = {"transitions": np.tile(row, (1, 1, 4, 1, 1)), "rewards": np.zeros((1, 1, 4, 1))}
        arrays |= {"start": row[::-1], "known": np.ones((1, 4, 1))}
        data = published_bytes(ReleasedModel("finite", arrays, 1, 1), {}, "simulator.npz")
        users = SimulatorEnv(data).vector(n)
        for found, chances in (
            (users.reset(seed=0)[0], row[::-1]),
            (users.step(np.zeros(n))[0], row),
        ):
            shares = np.bincount(found, minlength=4) / n
            assert (np.abs(shares - chances) <= 7 * np.sqrt(chances * (1 - chances) / n)).all()

    def test_after_a_few_users_rows_are_distributions(self) -> None:
        moves = learnt("UCBVI", 400, JointDP(1.0, 1e-6)).simulator(400).simulator.stored
        assert np.allclose(moves["transitions"].sum(axis=-1), 1.0)

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            *((name, {}) for name in ("ConcurrentPSRL", "UCBVI", "UCBPO")),
            ("ConcurrentPSRL", {"stationary": False}),
        ],
    )
    def test_without_privacy_it_becomes_the_world(self, name, options):
        agent = learnt(name, 20_000, NonPrivate(), **options)
        stored = agent.simulator(8).simulator.stored
        known = stored["known"] > 0.5
        assert known[..., 1].all()
        true = np.broadcast_to(WORLD.model.transitions_at(0), stored["transitions"].shape)
        visited = known & (stored["transitions"].std(axis=0).max(axis=-1) < 0.02)
        assert visited.any()
        gap = np.abs(stored["transitions"] - true)[:, visited]
        assert gap.max() < 0.15

    def test_many_small_rewards_are_not_taken_for_none(self) -> None:
        """Each is far below the noise of its cell; what all of them paid is not."""
        moves = np.random.default_rng(0).dirichlet(np.ones(3), (12, 2))
        moves = np.concatenate([moves, np.zeros((12, 2, 9))], axis=-1)
        moves = np.stack([np.roll(row, s, axis=-1) for s, row in enumerate(moves)])
        world = tacit.tabular.TabularWorld(moves, np.full((12, 2), 0.02), horizon=8)
        agent = tacit.ConcurrentPSRL(world.spec, 60_000, JointDP(1.0, 1e-6), noise_seed=0)
        tacit.run(agent, world, progress=False)
        users = agent.simulator(64).vector(6_400)
        users.reset(seed=0)
        actions = np.random.default_rng(0).integers(2, size=(8, 6_400))
        paid = sum(users.step(taken)[1].mean() for taken in actions)
        assert paid == pytest.approx(8 * 0.02, rel=0.25)

    def test_what_nobody_visited_is_marked_and_varies(self):
        agent = tacit.UCBVI(WORLD.spec, 1_000, JOINT, noise_seed=0)
        stored = agent.simulator(32).simulator.stored
        assert not stored["known"].any()
        assert (stored["transitions"].max(axis=0) == 1.0).all()
        assert (stored["transitions"].mean(axis=0) < 0.7).all()


@pytest.fixture(scope="module")
def pole():
    """After learning, in a tenth of its episode: 60 steps."""
    world = tacit.world("gym:CartPole-v1,horizon=60")
    agent = tacit.ModelPosterior(world.spec, 1_500, JointDP(10.0, 1e-6), noise_seed=0)
    tacit.run(agent, world, progress=False)
    return world, agent


class TestMoves:
    def test_episodes_are_as_long_as_true_ones(self, pole):
        world, agent = pole
        users, rng = agent.simulator().vector(500), np.random.default_rng(0)
        uniform = tacit.continuous.QPolicy.uniform(4, 2)
        for policy, least, most in ((agent.greedy_policy, 45, 60), (uniform, 10, 30)):
            states, _ = users.reset(seed=0)
            returns, going = np.zeros(500), np.ones(500, bool)
            for step in range(60):
                actions = policy.act_many(step, states, rng)
                states, rewards, ended, _, _ = users.step(actions)
                returns, going = returns + rewards * going, going & ~ended
            assert least < returns.mean() <= most
            assert least - 1 < world.value(policy) <= most

    def test_one_step_is_that_of_the_planner(self, pole):
        """With the posterior mean in place of draws, and without chance."""
        _, agent = pole
        model = agent.simulator(2).simulator
        state, rng = agent.state, np.random.default_rng(0)
        model.stored["weights"] = np.tile(state.moves.model, (2, 1, 1))
        model.stored["noise"] = np.zeros(4)
        episodes = model.begin(200, rng)
        episodes.states = here = rng.uniform(-0.2, 0.2, (200, 4)) * [2.0, 5.0, 1.0, 5.0]
        actions = rng.integers(2, size=200)
        nexts, paid, over = agent.algorithm.step(state, here, actions)
        rewards, ended, _ = episodes.step(actions)
        assert episodes.states == pytest.approx(nexts, abs=1e-12)
        assert rewards == pytest.approx(paid, abs=1e-12)
        assert (ended == over).all()

    def test_angles_and_ends_by_regression_are_those_of_the_planner(self):
        spec = SmoothSpec(
            (-np.pi, -8.0), (np.pi, 8.0), 3, 6, (-1.0, 0.0), angles=(0,), may_end=True
        )
        agent = tacit.ModelPosterior(spec, 200, NonPrivate(), schedule="fixed:size=100")
        rng = np.random.default_rng(0)
        data = random_users(rng, 100, spec)
        agent.learn(
            tacit.VectorEpisodes(*(data[n] for n in ("states", "actions", "rewards", "lengths")))
        )
        state = agent.state
        box = replace(state.ends.box, explained=0.0)
        signs = replace(state.ends.signs, moments=rng.normal(size=state.ends.signs.moments.shape))
        state = replace(state, ends=replace(state.ends, box=box, signs=signs))
        model = agent.algorithm.simulator(state, 1, rng)
        arrays = {**model.arrays, "weights": state.moves.model[np.newaxis], "noise": np.zeros(2)}
        data = published_bytes(replace(model, arrays=arrays), {}, "simulator.npz")
        episodes = SimulatorEnv(data).simulator.begin(300, rng)
        episodes.states = here = rng.uniform(spec.lows, spec.highs, (300, 2))
        actions = rng.integers(3, size=300)
        nexts, paid, over = agent.algorithm.step(state, here, actions)
        rewards, ended, _ = episodes.step(actions)
        assert episodes.states == pytest.approx(nexts, abs=1e-12)
        assert rewards == pytest.approx(paid, abs=1e-12)
        assert (ended == over).all() and 0 < ended.sum() < 300  # noqa: PT018

    def test_gymnasium_finds_nothing_wrong(self, pole):
        check_env(pole[1].simulator(4), skip_render_check=True)

    def test_functions_of_a_spec_are_code_and_no_release(self):
        world = pendulum(horizon=6)
        agent = tacit.ModelPosterior(world.spec, 64, NonPrivate(), schedule="fixed:size=32")
        with pytest.raises(InvalidArgument, match="nothing was released yet"):
            agent.simulator()
        agent.learn(world.simulate(agent.policy, 32, np.random.default_rng(0)))
        with pytest.raises(InvalidArgument, match="are code"):
            agent.simulator()

    @pytest.mark.parametrize("name", ["weights", "parents", "spread"])
    def test_a_damaged_one_is_refused(self, pole, name):
        stored = dict(pole[1].simulator(2).simulator.stored)
        stored[name] = stored[name] + (1000 if name == "parents" else np.nan)
        kept = {name: stored[name] for name in published.MoveSimulator.arrays}
        with pytest.raises(ValueError, match=r"finite|whole numbers"):
            SimulatorEnv(published_bytes(ReleasedModel("moves", kept, 60, 2), {}, "simulator.npz"))


class TestPromises:
    def test_the_guarantee_is_that_of_the_run(self, agent):
        env = agent.simulator(4)
        assert env.guarantee == agent.guarantee == env.vector(2).guarantee
        assert (env.facts["users"], env.facts["releases"]) == (agent.served, agent.releases)
        assert env.facts["agent"] == "concurrent_psrl"
        assert learnt("UCBVI", 500, NonPrivate()).simulator(2).guarantee is None

    def test_its_hash_is_in_the_ledger(self, agent):
        env = agent.simulator(4, seed=3)
        with agent.store.read() as db:
            last = [*ledger.read(db)][-1]
        said = {"hash": env.facts["hash"], "draws": 4, "seed": 3, "version": agent.policy.version}
        assert (last.event, last.body) == ("simulator", said)
        assert ledger.verify(agent.store) == []

    def test_gymnasium_finds_nothing_wrong(self, agent):
        check_env(agent.simulator(4), skip_render_check=True)

    def test_waiting_episodes_do_not_change_it(self):
        """A draw that reads users who were not released yet would be another one."""
        agent = tacit.UCBVI(WORLD.spec, 300, JOINT, noise_seed=0, schedule="fixed:size=100")
        rng = np.random.default_rng(0)
        agent.learn(WORLD.simulate(agent.policy, 100, rng))
        before = agent.simulator(4).simulator.stored
        agent.learn(WORLD.simulate(agent.policy, 50, rng))
        after = agent.simulator(4).simulator.stored
        assert agent.releases == 1
        assert all((before[name] == after[name]).all() for name in published.FiniteSimulator.arrays)

    def test_an_array_that_no_model_has_is_refused(self):
        with pytest.raises(ValueError, match="arrays that no simulator has: episodes"):
            SimulatorEnv(file_of(episodes=np.zeros((10, 3))))

    def test_who_has_no_model_says_so(self):
        agent = tacit.PolicyImprovement(WORLD.spec, 100, JOINT, noise_seed=0)
        with pytest.raises(InvalidArgument, match="policy_improvement has no model"):
            agent.simulator()
        with pytest.raises(InvalidArgument, match="draws of the world take"):
            tacit.UCBVI(WORLD.spec, 100, JOINT, noise_seed=0).simulator(10**7)


class TestFiles:
    def test_a_file_comes_back_as_it_was(self, agent, tmp_path):
        env, path = agent.simulator(4), tmp_path / "sim.npz"
        with pytest.raises(InvalidArgument, match="protects nobody"):
            env.save(path)
        env.save(path, force=True)
        again = load_simulator(path)
        assert again.facts == env.facts
        assert again.guarantee == env.guarantee
        for one in (env, again):
            one.reset(seed=5)
        assert [env.step(1)[:2] for _ in range(6)] == [again.step(1)[:2] for _ in range(6)]
        with pytest.raises(InvalidArgument, match="reset first"):
            env.step(1)
        with pytest.raises(InvalidArgument, match="action must be in"):
            env.step(2)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"transitions": np.ones((2, 1, 2, 2, 2))},
            {"rewards": np.full((2, 1, 2, 2), np.nan)},
            {"rewards": np.zeros((1, 1, 2, 2))},
            {"start": np.array([0.5, 0.6])},
            {"known": np.full((1, 2, 2), 2.0)},
        ],
    )
    def test_a_damaged_one_is_refused(self, wrong, tmp_path):
        (tmp_path / "sim.npz").write_bytes(file_of(**wrong))
        with pytest.raises(CorruptFile, match="is no published policy"):
            load_simulator(tmp_path / "sim.npz")

    def test_a_policy_is_no_simulator(self, agent, tmp_path):
        agent.publish(tmp_path / "policy.npz", force=True)
        with pytest.raises(CorruptFile, match="no simulator"):
            load_simulator(tmp_path / "policy.npz")

    def test_the_command_writes_one(self, tmp_path):
        store, out = tmp_path / "app.db", tmp_path / "sim.npz"
        agent = tacit.UCBVI(
            WORLD.spec, 40, JOINT, store=store, schedule="fixed:size=20", name="ward"
        )
        agent.learn(WORLD.simulate(agent.policy, 20, np.random.default_rng(0)))
        agent.store.close()
        done = call("simulate", str(store), "--out", str(out), "--draws", "3")
        assert done.exit_code == 0, done.output
        assert "3 draws of a model of 20 users" in " ".join(done.output.split())
        env = load_simulator(out)
        assert env.guarantee is not None and not env.guarantee.simulation_only  # noqa: PT018
        assert len(env.simulator.stored["rewards"]) == 3
        assert "finite" in call("policy", "show", str(out)).output
