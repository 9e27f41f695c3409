"""UCBVI: what it plans, by a slow and obvious reference; what it promises; that it learns."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import UCBVI, JointDP, LocalDP, NonPrivate
from tacit.core.problem import Schedule
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import noise_seed, run
from tacit.tabular import TabularWorld, riverswim, ucbvi

JOINT = JointDP(5.0, 1e-6)


def random_world(seed, S, A, H, stationary):
    rng = np.random.default_rng(seed)
    shape = (S, A) if stationary else (H, S, A)
    transitions = rng.dirichlet(np.full(S, 0.5), shape)
    return TabularWorld(transitions, rng.random(shape), horizon=H, start=0)


def after_blocks(agent, world, blocks, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(blocks):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    return agent


def nearest_distribution(counts):
    """The nearest non-negative counts of the same sum, by bisection, as a distribution."""
    total = sum(counts)
    low, high = min(counts) - total, max(counts)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(c - middle, 0.0) for c in counts) > total:
            low = middle
        else:
            high = middle
    return [max(c - high, 0.0) / total for c in counts]


def practical_reference(agent):
    """Optimistic and plain Q of the practical agent, in loops.

    With n the count of a cell, lowered by a standard deviation of its noise, and s, s_r the noise
    of a transition and a reward count, the bonus is

        c sqrt(2 ln(cells / 0.05)) sqrt(var(V) / n + (s^2 sum (V - PV)^2 + s_r^2) / n^2)
        + c' (steps left) / n,

    where the sum is over the next states that P does not rule out.
    """
    options, counts = agent.algorithm.options, agent.state.counts()
    L, S, A = counts.rewards.shape
    H = agent.spec.horizon
    log_term = math.log(L * S * A / 0.05)
    Q, plain_Q = np.zeros((H, S, A)), np.zeros((H, S, A))
    V, plain_V = [0.0] * S, [0.0] * S
    for h in reversed(range(H)):
        row, left = min(h, L - 1), H - h
        for s in range(S):
            for a in range(A):
                cell = counts.transitions[row, s, a].tolist()
                noise = float(counts.noise[row, s, a])
                reward_noise = float(counts.reward_noise[row, s, a])
                total, spread = sum(cell), noise * math.sqrt(S)
                if not counts.reached[row, s, a] or total <= ucbvi.KNOWN * spread:
                    Q[h, s, a] = left
                    plain_Q[h, s, a] = min(sum(plain_V) / S, left)
                    continue
                n = max(total - spread, 1e-3)
                P = nearest_distribution(cell)
                r = min(max(counts.rewards[row, s, a] / total, 0.0), 1.0)
                mean = sum(p * v for p, v in zip(P, V, strict=True))
                variance = max(sum(p * v * v for p, v in zip(P, V, strict=True)) - mean**2, 0.0)
                apart = sum((v - mean) ** 2 for p, v in zip(P, V, strict=True) if p > 1e-12)
                of_noise = noise**2 * apart + reward_noise**2
                bonus = options.scale * (
                    ucbvi.SAMPLING
                    * math.sqrt(2 * log_term)
                    * math.sqrt(variance / n + of_noise / n**2)
                    + ucbvi.RANGE_TERM * left / n
                )
                Q[h, s, a] = min(r + mean + bonus, left)
                plain = r + sum(p * v for p, v in zip(P, plain_V, strict=True))
                plain_Q[h, s, a] = min(plain, left)
        V = [max(Q[h, s]) for s in range(S)]
        plain_V = [max(plain_Q[h, s]) for s in range(S)]
    return Q, plain_Q


def is_greedy(policy, Q):
    chosen = np.take_along_axis(Q, policy.actions[..., np.newaxis], axis=2)[..., 0]
    return bool(np.allclose(chosen, Q.max(axis=2), rtol=0, atol=1e-9))


SIZES = {
    "seed": st.integers(0, 10**6),
    "S": st.integers(1, 4),
    "A": st.integers(1, 3),
    "H": st.integers(1, 4),
}


def values_of(agent):
    """Optimistic values of what is known; policies of before were deterministic."""
    rng = np.random.default_rng(0)
    model = agent.algorithm.model(agent.state, along=True)
    return agent.algorithm.value_iteration(model, rng)[0]


def assert_planned(agent, Q, plain_Q, rtol):
    """Values and both policies are those of a reference."""
    np.testing.assert_allclose(values_of(agent), Q, rtol=rtol, atol=1e-9)
    assert is_greedy(agent.policy, Q)
    assert is_greedy(agent.greedy_policy, plain_Q)


@given(
    **SIZES,
    stationary=st.booleans(),
    blocks=st.integers(1, 3),
    size=st.sampled_from([3, 60, 1000]),
    privacy=st.sampled_from([JOINT, JointDP(5.0, 0.0), LocalDP(20.0, 1e-6), NonPrivate()]),
)
@settings(max_examples=30, deadline=None)
def test_practical_values_equal_the_slow_reference(
    seed, S, A, H, stationary, blocks, size, privacy
):
    world = random_world(seed, S, A, H, stationary)
    agent = UCBVI(
        world.spec,
        3 * size,
        privacy,
        schedule=f"fixed:size={size}",
        scale=0.7,
        seed=seed,
        noise_seed=seed,
    )
    after_blocks(agent, world, blocks, seed)
    assert_planned(agent, *practical_reference(agent), rtol=1e-7)


def test_a_cell_that_no_policy_could_reach_is_worth_all_it_could_be():
    world = random_world(1, 3, 2, 3, stationary=False)
    agent = UCBVI(world.spec, 10**5, NonPrivate(), stationary=False, schedule="fixed:size=50000")
    first = np.array(agent.policy.actions)
    after_blocks(agent, world, 1)
    other = np.take_along_axis(values_of(agent), 1 - first[..., np.newaxis], axis=2)[..., 0]
    assert (other == np.array([3.0, 2.0, 1.0])[:, np.newaxis]).all()


def test_without_noise_the_greedy_policy_becomes_optimal():
    world = random_world(3, 3, 2, 3, stationary=True)
    agent = UCBVI(world.spec, 10**6, NonPrivate(), schedule="geometric:growth=2,first=10")
    result = run(agent, world, 0, progress=False)
    assert world.value(agent.greedy_policy) == pytest.approx(world.optimal_value, rel=1e-3)
    assert result.greedy_score > 0.99


def users_to_90(privacy, users, stationary, seeds=5, **options):
    """The median; a run that never gets there counts as infinite."""
    world = riverswim(6, 20)
    found = []
    for seed in range(seeds):
        agent = UCBVI(
            world.spec,
            users,
            privacy,
            stationary=stationary,
            seed=seed,
            noise_seed=noise_seed(seed),
            **options,
        )
        needed = run(agent, world, seed, progress=False).users_to_90
        found.append(math.inf if needed is None else needed)
    return statistics.median(found)


def test_it_learns_riverswim_with_a_thousand_users():
    assert users_to_90(JointDP(10.0, 1e-6), 10_000, stationary=True) <= 1_200


@pytest.mark.parametrize(
    "options",
    [
        {"users": 0},
        {"users": 2.5},
        {"users": True},
        {"privacy": 1.0},
        {"privacy": LocalDP(4.0, 0.0, mechanism="randomised response")},
        {"scale": 0.0},
        {"scale": math.nan},
        {"bonus": "theory"},
        {"calibration": "as_printed"},
        {"schedule": "sometimes"},
        {"schedule": Schedule("mine", (5,))},
        {"counter": "binary tree"},
    ],
    ids=str,
)
def test_arguments_are_checked(options):
    arguments = {"users": 100, "privacy": JOINT, "noise_seed": 0} | options
    with pytest.raises(InvalidArgument):
        UCBVI(riverswim(3, 4).spec, **arguments)


def make(**options):
    arguments = {"users": 90, "privacy": JOINT, "schedule": "fixed:size=30", "noise_seed": 1}
    return UCBVI(riverswim(3, 4).spec, **arguments | options)


@pytest.mark.parametrize("other", [{"stationary": False}, {"scale": 2.0}, {"users": 120}], ids=str)
def test_a_run_with_other_arguments_is_not_gone_on_with(other, tmp_path):
    path = tmp_path / "runs.db"
    make(store=path)
    with pytest.raises(InvalidArgument, match="other arguments"):
        make(store=path, **other)
    assert make(store=path).releases == 0
