"""PUCB and LDPOB: their plans against slow ones, their noise, their gates, and that they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

import tacit
from tacit import LDPOB, PUCB, Budget, JointDP, LocalDP, NonPrivate
from tacit.core.agent import Agent
from tacit.finite.spec import FiniteSpec
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.tabular import TabularWorld, random_mdp

JOINT = JointDP(epsilon=1.0, delta=1e-6)
MECHANISMS = {
    "gaussian": LocalDP(epsilon=1.0, delta=1e-6),
    "laplace": LocalDP(epsilon=1.0, delta=0.0),
    "bits": LocalDP(epsilon=1.0, delta=0.0, mechanism="randomised response"),
}


def two_rooms(horizon: int = 3) -> TabularWorld:
    """The action names the next room; the second room pays."""
    transitions = np.zeros((2, 2, 2))
    transitions[:, 0, 0] = transitions[:, 1, 1] = 1.0
    return TabularWorld(transitions, np.array([[0.1, 0.1], [0.9, 0.9]]), horizon)


def random_world(seed: int = 0) -> TabularWorld:
    return random_mdp(states=3, actions=2, horizon=4, seed=seed)


def finished(agent: Agent, world: TabularWorld, seed: int = 0) -> Agent:
    """The agent after all its users, with the world's own labels."""
    rng = np.random.default_rng(seed)
    while agent.block_users > 0:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
    return agent


# Plans.


def slow_plan(agent: Agent, bonus) -> np.ndarray:
    """Optimistic values by loops; ``bonus(step, n, row)`` says how to read a cell, or None."""
    H, S, A = agent.spec.horizon, agent.spec.states, agent.spec.actions
    counts = agent.evidence.counts()
    q_values = np.zeros((H, S, A))
    value = [0.0] * S
    for h in reversed(range(H)):
        at = 0 if agent.stationary else h
        for s in range(S):
            for a in range(A):
                row = [float(x) for x in counts.transitions[at, s, a]]
                read = bonus(h, float(agent.evidence.counts().visits[at, s, a]), row)
                if read is None:
                    q_values[h, s, a] = H - h
                    continue
                for_reward, for_next, extra = read
                q = float(counts.rewards[at, s, a]) / for_reward + extra
                for after in range(S):
                    q += row[after] * value[after] / for_next
                q_values[h, s, a] = min(max(q, 0.0), H - h)
        value = [max(q_values[h, s]) for s in range(S)]
    return q_values


@pytest.mark.parametrize(
    "privacy",
    [JOINT, JointDP(epsilon=5.0, delta=0.0), NonPrivate()],
    ids=["gaussian", "laplace", "none"],
)
def test_pucb_plans_like_its_definition(privacy) -> None:
    world = random_world()
    # A small scale, so that not every value is cut.
    agent = PUCB(world.spec, users=60_000, privacy=privacy, scale=0.05, seed=3, noise_seed=4)
    finished(agent, world)
    H, S, A, K = 4, 3, 2, 60_000
    E = agent.count_width(agent.noise_std)
    known = []

    def bonus(h: int, n: float, row: list[float]):
        known.append(n >= 2 * E)
        if n < 2 * E:
            return None
        n = max(n, 1.0)
        L = math.log(4 * S * A * H * K / 0.1)
        conf = (H + 1) * math.sqrt(2 * L / max(n - E, 1.0))
        conf += (1 + S * H) * (3 * E / n + 2 * E**2 / n**2)
        return n, n, 0.05 * conf

    expected = slow_plan(agent, bonus)
    np.testing.assert_allclose(agent.q_values, expected, rtol=1e-12, atol=1e-12)
    assert any(known)
    assert (expected < np.arange(4, 0, -1).reshape(4, 1, 1)).any()


@pytest.mark.parametrize(
    ("name", "stationary"),
    [
        ("gaussian", True),
        ("gaussian", False),
        ("laplace", True),
        ("laplace", False),
        ("bits", False),
        ("none", True),
        ("none", False),
    ],
)
def test_ldpob_plans_like_its_definition(name: str, stationary: bool) -> None:
    world = random_world()
    privacy = MECHANISMS.get(name, NonPrivate())
    agent = LDPOB(
        world.spec,
        users=3_000_000,
        privacy=privacy,
        stationary=stationary,
        scale=0.02,
        schedule="fixed:size=1000000",
        noise_seed=4,
    )
    finished(agent, world)
    c = agent.algorithm._noise_widths(3_000_000)
    assert (c.reward > 0) == (name != "none")
    H, S, A, K = 4, 3, 2, 3_000_000

    def bonus(h: int, n: float, row: list[float]):
        n_r, n_p = max(1.0, n + 2 * c.visits), max(1.0, sum(row) + 2 * c.row)
        L = math.log(6 * S * A * K * H / 0.1)
        beta_r = math.sqrt(2 * L / n_r) + (c.reward + 3 * c.visits) / n_r
        beta_p = math.sqrt(14 * S * L / n_p) + (S * c.entry + 3 * c.row) / n_p
        return n_r, n_p, 0.02 * (beta_r + (H - h) * beta_p)

    expected = slow_plan(agent, bonus)
    np.testing.assert_allclose(agent.q_values, expected, rtol=1e-9, atol=1e-9)
    assert (expected < np.arange(4, 0, -1).reshape(4, 1, 1)).any()


def optimal_q(world: TabularWorld) -> np.ndarray:
    model, H = world.model, world.spec.horizon
    means = model.reward_probabilities @ model.reward_values
    q_values, value = np.zeros((H, *means.shape[1:])), np.zeros(world.spec.states)
    for h in reversed(range(H)):
        rewards, transitions = means[min(h, len(means) - 1)], model.transitions
        q_values[h] = rewards + transitions[min(h, len(transitions) - 1)] @ value
        value = q_values[h].max(axis=1)
    return q_values


@pytest.mark.parametrize("seed", range(4))
def test_they_are_optimistic(seed: int) -> None:
    world = random_world(seed)
    best = optimal_q(world)
    agents = [
        PUCB(world.spec, 300_000, JOINT, noise_seed=seed),
        PUCB(world.spec, 300_000, NonPrivate(), noise_seed=seed),
        LDPOB(
            world.spec,
            10**9,
            LocalDP(4.0, 0.0),
            schedule="geometric:growth=3,first=1000000",
            noise_seed=seed,
        ),
        LDPOB(world.spec, 300_000, NonPrivate(), noise_seed=seed),
    ]
    rng = np.random.default_rng(seed)
    for agent in agents:
        while agent.block_users > 0:
            agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
            assert (agent.q_values >= best - 1e-9).all(), agent.name


def test_the_greedy_policy_ignores_the_bonus() -> None:
    world = two_rooms()
    agent = PUCB(world.spec, users=20_000, privacy=JOINT, scale=1e6, noise_seed=1)
    finished(agent, world)
    # Everything looks best possible to the optimist; what is known is enough for the other.
    assert (agent.q_values == np.arange(3, 0, -1).reshape(3, 1, 1)).all()
    assert world.value(agent.greedy_policy) == pytest.approx(world.optimal_value)


# Noise and gate.


def test_the_width_covers_the_noise_of_every_count() -> None:
    spec = random_mdp(states=3, actions=2, horizon=2, seed=0).spec
    options = {"schedule": "fixed:size=1000", "failure": 0.3, "noise_seed": 0}
    agent = PUCB(spec, 10**4, JOINT, **options)
    cells = 2 * 3 * 2 * (3 + 2)
    assert agent.count_width(2.0) == pytest.approx(2.0 * -ndtri(0.3 / (3 * cells * 10) / 2))
    assert agent.count_width(0.0) == 0.0
    pure = PUCB(spec, 10**4, JointDP(5.0, 0.0), **options)
    # Laplace noise has heavier tails, which the bound knows: one variable of scale 1.
    p = 0.3 / (3 * cells * 10)
    assert pure.count_width(math.sqrt(2.0)) > math.log(1 / p)


def test_pucb_pays_for_three_counts_and_no_more() -> None:
    world = random_world()
    agent = PUCB(world.spec, 5000, JOINT, schedule="fixed:size=1000", noise_seed=0)
    finished(agent, world)
    counter = tacit.counter(
        Budget(1.0, 1e-6), math.sqrt(6 * 4), releases=5, sampler="floating-point"
    )
    assert agent.noise_std == pytest.approx(counter.std[-1])
    guarantee = agent.guarantee
    assert guarantee is not None
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    assert guarantee.mu == pytest.approx(Budget(1.0, 1e-6).mu)
    for block in range(5):
        spent = agent._curator.spent(block)
        assert spent == pytest.approx(Budget(1.0, 1e-6).mu ** 2)
    with pytest.raises(HorizonExceeded):
        agent.learn(world.simulate(agent.policy, 1, np.random.default_rng(0), "episodes"))


def test_visits_are_counted_on_their_own() -> None:
    """The sum of S noisy transitions would have more noise than the width covers."""
    world = random_mdp(states=4, actions=2, horizon=2, seed=0)
    agent = PUCB(world.spec, 3000, JOINT, schedule="fixed:size=1000", noise_seed=0)
    agent.learn(world.simulate(agent.policy, 1000, np.random.default_rng(0), agent.form))
    counts = agent.evidence.counts()
    assert not np.allclose(counts.visits, counts.transitions.sum(axis=-1))
    assert np.abs(counts.visits.sum(axis=(1, 2)) - 1000).max() < 6 * agent.noise_std * math.sqrt(8)


@pytest.mark.parametrize("name", MECHANISMS)
def test_widths_of_reports_hold_and_are_not_vacuous(name: str) -> None:
    """The noise of all counts is within its bound, and the bound within thrice the largest."""
    users, spec = 50_000, FiniteSpec(states=8, actions=4, horizon=3, stationary=False)
    agent = LDPOB(spec, users, MECHANISMS[name], schedule="fixed:size=50000", noise_seed=7)
    rng = np.random.default_rng(1)
    truth = rng.multinomial(users, np.full(8 * 4 * 8, 1 / 256), size=3).reshape(3, 8, 4, 8)
    sums = rng.binomial(truth.sum(axis=-1), 0.5)
    agent.learn(tacit.Block(users, {"transitions": truth, "rewards": sums}, aggregate=True))
    counts, c = agent.evidence.counts(), agent.algorithm._noise_widths(users)
    for noise, width in [
        (counts.rewards - sums, c.reward),
        (agent.evidence.counts().visits - truth.sum(axis=-1), c.visits),
        (counts.transitions.sum(axis=-1) - truth.sum(axis=-1), c.row),
        (counts.transitions - truth, c.entry),
    ]:
        assert np.abs(noise).max() < width < 3.0 * np.abs(noise).max()


def test_local_noise_grows_with_the_reports() -> None:
    world = random_world()
    agent = LDPOB(world.spec, 4000, LocalDP(1.0, 0.0), schedule="fixed:size=1000", noise_seed=0)
    stds = []
    rng = np.random.default_rng(0)
    while agent.block_users > 0:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
        stds.append(agent.evidence.counts().noise.max())
    reports = 1000.0 * np.arange(1, 5)
    np.testing.assert_allclose(stds, np.sqrt(2 * reports) * 6 * 4)
    guarantee = agent.guarantee
    assert guarantee is not None
    assert (guarantee.model, guarantee.epsilon, guarantee.delta) == ("local", 1.0, 0.0)


@pytest.mark.parametrize("kind", [PUCB, LDPOB])
def test_without_privacy_there_is_no_noise_and_no_guarantee(kind) -> None:
    world = two_rooms()
    agent = finished(kind(world.spec, 20_000, NonPrivate()), world)
    assert agent.guarantee is None
    assert agent.noise_std == 0.0
    rows = 1 if agent.stationary else 3
    assert agent.evidence.counts().visits.reshape(rows, -1).sum(axis=1) == pytest.approx(
        20_000 * 3 / rows
    )
    np.testing.assert_allclose(
        agent.evidence.counts().transitions.sum(axis=-1), agent.evidence.counts().visits
    )
    assert world.value(agent.greedy_policy) == pytest.approx(world.optimal_value)


def test_each_baseline_has_its_model() -> None:
    spec = random_world().spec
    with pytest.raises(InvalidArgument, match="JointDP or NonPrivate"):
        PUCB(spec, 100, LocalDP(1.0, 0.0))
    with pytest.raises(InvalidArgument, match="LocalDP or NonPrivate"):
        LDPOB(spec, 100, JOINT)
    with pytest.raises(InvalidArgument, match="stationary=False"):
        LDPOB(spec, 100, MECHANISMS["bits"], stationary=True)
    with pytest.raises(InvalidArgument, match="failure"):
        PUCB(spec, 100, JOINT, failure=1.0)
    with pytest.raises(InvalidArgument, match="scale"):
        LDPOB(spec, 100, LocalDP(1.0, 0.0), scale=0.0)


def test_bits_of_fractional_rewards_are_drawn_user_by_user() -> None:
    whole = FiniteSpec(states=2, actions=2, horizon=2, stationary=False)
    halves = FiniteSpec(2, 2, 2, stationary=False, reward_values=(0.0, 0.5, 1.0))
    assert LDPOB(whole, 10, MECHANISMS["bits"], noise_seed=0).form == "counts"
    assert LDPOB(halves, 10, MECHANISMS["bits"], noise_seed=0).form == "episodes"
    assert LDPOB(halves, 10, MECHANISMS["laplace"], noise_seed=0).form == "counts"


# Learning.


def test_pucb_learns_with_many_users() -> None:
    world = two_rooms()
    few = PUCB(world.spec, 2000, JOINT, noise_seed=1)
    many = PUCB(world.spec, 200_000, JOINT, noise_seed=1)
    first = tacit.run(few, world, progress=False)
    last = tacit.run(many, world, progress=False)
    assert last.greedy_value == pytest.approx(world.optimal_value)
    assert last.users_to_90 is not None
    assert first.users_to_90 is None


@pytest.mark.parametrize("name", MECHANISMS)
def test_ldpob_learns_with_very_many_users(name: str) -> None:
    world = two_rooms()
    privacy = MECHANISMS[name]
    agent = LDPOB(world.spec, 10**8, privacy, stationary=name != "bits", noise_seed=1)
    result = tacit.run(agent, world, progress=False)
    assert result.users_to_90 is not None
    assert result.greedy_values[-1] == pytest.approx(world.optimal_value)


@pytest.mark.parametrize("kind", ["pucb", "ldpob"])
def test_a_resumed_simulation_goes_on_as_if_nothing_had_happened(kind: str, tmp_path) -> None:
    world = random_world()

    def make() -> Agent:
        if kind == "pucb":
            return PUCB(world.spec, 5000, JOINT, schedule="fixed:size=1000", noise_seed=0)
        return LDPOB(world.spec, 5000, LocalDP(1.0, 0.0), schedule="fixed:size=1000", noise_seed=0)

    def serve(agent: Agent, rng: np.random.Generator, blocks: int) -> None:
        for _ in range(blocks):
            agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))

    rng, agent = np.random.default_rng(0), make()
    serve(agent, rng, 2)
    agent.save(tmp_path / "agent")
    state = rng.bit_generator.state
    serve(agent, rng, 3)
    rng.bit_generator.state = state
    resumed = make().load(tmp_path / "agent")
    serve(resumed, rng, 3)
    np.testing.assert_array_equal(resumed.evidence.counts().visits, agent.evidence.counts().visits)
    np.testing.assert_array_equal(resumed.q_values, agent.q_values)
    assert resumed.policy.version == agent.policy.version == 5
