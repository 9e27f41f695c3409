"""Sparse models: the same as dense ones, entry by entry, and nothing of size S A S."""

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.tabular.model import (
    FiniteModel,
    SparseModel,
    check_policy,
    evaluate,
    optimal,
    policy_values,
)
from tacit.tabular.policy import MixedPolicy, Policy, uniform_policy
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.world import simulate, simulate_episodes

S, A, H = 6, 3, 5


def pair(seed, everything=True):
    """A sparse model, and the dense one with the same users where all actions are allowed."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.3), size=(S, A))
    P[P < 0.05] = 0.0
    P /= P.sum(axis=2, keepdims=True)
    R = rng.choice([0.0, 0.5, 1.0], size=(S, A, S))
    start = rng.dirichlet(np.ones(S))
    allowed = np.ones((S, A), dtype=bool) if everything else rng.random((S, A)) < 0.6
    allowed[:, 1] = True
    s, a, t = np.nonzero(P * allowed[:, :, np.newaxis])
    order = rng.permutation(len(s))
    s, a, t = s[order], a[order], t[order]
    sparse = SparseModel(S, A, H, s, a, t, P[s, a, t], R[s, a, t], start)
    if not everything:
        return sparse, None
    levels = np.array([0.0, 0.5, 1.0])
    chances = np.stack([(P * (level == R)).sum(axis=2) for level in levels], axis=-1)
    dense = FiniteModel(P[np.newaxis], chances[np.newaxis], levels, start, H, R)
    return sparse, dense


def test_values_and_optimum_are_those_of_the_dense_model():
    for seed in range(5):
        sparse, dense = pair(seed)
        V, best = optimal(sparse)
        W, dense_best = optimal(dense)
        assert pytest.approx(W) == V
        assert np.array_equal(best.actions, dense_best.actions)
        rng = np.random.default_rng(seed)
        for policy in (best, Policy.stochastic(rng.dirichlet(np.ones(A), (H, S)))):
            assert policy_values(sparse, policy) == pytest.approx(policy_values(dense, policy))
        assert sparse.spec == dense.spec


def test_users_are_distributed_as_in_the_dense_model():
    """Means of 60,000 returns and of visits: five standard errors, a false alarm below 1e-4."""
    sparse, dense = pair(3)
    policy = Policy.stochastic(np.random.default_rng(0).dirichlet(np.ones(A), (H, S)))
    n = 60_000
    mine = simulate_episodes(sparse, policy, n, np.random.default_rng(1))
    other = simulate_episodes(dense, policy, n, np.random.default_rng(2))
    exact = float(dense.start @ policy_values(dense, policy)[0])
    returns = mine.rewards.sum(axis=1)
    assert abs(returns.mean() - exact) < 5 * returns.std() / np.sqrt(n)
    for step in (0, 2, H):
        shares = [np.bincount(e.states[:, step], minlength=S) / n for e in (mine, other)]
        assert np.abs(shares[0] - shares[1]).max() < 5 * np.sqrt(0.5 / n)
    # nothing impossible ever happens, and every reward is that of its transition
    for s, a, t, r in zip(
        mine.states[:500, 0],
        mine.actions[:500, 0],
        mine.states[:500, 1],
        mine.rewards[:500, 0],
        strict=True,
    ):
        assert sparse.transitions_at(0)[int(s), int(a), int(t)] > 0
        assert sparse.transition_rewards[int(s), int(a), int(t)] == r


def test_streamed_users_are_the_same_whenever_they_are_made():
    sparse, _ = pair(4, everything=False)
    policy = uniform_policy(sparse.spec)
    block = simulate(sparse, policy, 70_000, np.random.default_rng(5), "streamed")
    once, again = list(block.parts()), list(block.parts())
    assert sum(part.users for part in once) == block.users == 70_000
    assert len(once) > 1
    for one, other in zip(once, again, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one.arrays)
    assert not np.array_equal(once[0]["states"][:1000], once[1]["states"][:1000])


def test_policies_choose_only_what_states_allow():
    sparse, _ = pair(5, everything=False)
    spec, allowed = sparse.spec, sparse.allowed
    assert not allowed.all()
    assert np.array_equal(spec.allowed, allowed)
    uniform = uniform_policy(spec)
    assert not uniform.table()[:, ~allowed].any()
    episodes = simulate_episodes(sparse, uniform, 2000, np.random.default_rng(0))
    assert allowed[episodes.states[:, :-1], episodes.actions].all()
    _, best = optimal(sparse)
    check_policy(spec, best)
    state, action = np.argwhere(~allowed)[0]
    wrong = best.actions.copy()
    wrong[2, state] = action
    message = f"not at step 2 in state {state}"
    for policy in (Policy.deterministic(wrong, A), Policy.uniform(H, S, A)):
        with pytest.raises(InvalidArgument, match="actions that states allow"):
            simulate_episodes(sparse, policy, 3, np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match=message):
        policy_values(sparse, Policy.deterministic(wrong, A))


def test_users_of_mixed_policies():
    """Each follows the component that she drew; the value is the mean of theirs."""
    sparse, _ = pair(6, everything=False)
    rng = np.random.default_rng(0)
    parts = [
        Policy.deterministic(
            [[rng.choice(row) for row in sparse.spec.admissible] for _ in range(H)], A
        )
        for _ in range(2)
    ]
    mixed = MixedPolicy(parts, weights=[0.3, 0.7])
    episodes = simulate_episodes(sparse, mixed, 4000, rng)
    for part, policy in enumerate(parts):
        own = episodes.components == part
        told = policy.actions[np.arange(H), episodes.states[own, :-1]]
        assert np.array_equal(episodes.actions[own], told)
    expected = 0.3 * evaluate(sparse, parts[0]) + 0.7 * evaluate(sparse, parts[1])
    assert evaluate(sparse, mixed) == pytest.approx(expected)
    wrong = MixedPolicy([parts[0], Policy.uniform(H, S, A)], weights=[0.5, 0.5])
    with pytest.raises(InvalidArgument, match=r"allow|deterministic"):
        simulate_episodes(sparse, wrong, 3, rng)


def test_many_states_take_the_memory_of_their_transitions():
    """A dense table of these would have 80 GB; nothing of its size may be made on the way."""
    n = 10**4
    s = np.repeat(np.arange(n), 2)
    a = np.tile([0, 1], n)
    t = (s + 1 + 2 * a) % n
    ones = np.ones(2 * n)
    model = SparseModel(n, 100, 1, s, a, t, ones, (t == 3).astype(float), np.eye(1, n)[0])
    V, best = optimal(model)
    assert (V[0, 0], best.actions[0, 0]) == (1.0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": [0, 0, 9]}, "source must be in 0..1"),
        ({"action": [0, 1, -1]}, "action must be in 0..1"),
        ({"target": [0.5, 1.0, 0.0]}, "target must be whole numbers"),
        ({"target": [0, 1]}, "one entry per transition"),
        ({"probability": [1.0, 0.9, 1.0]}, "must add up to 1"),
        ({"probability": [1.0, 0.0, 1.0]}, "probability must be above 0"),
        ({"reward": [0.0, 2.0, 0.0]}, "reward must be in"),
        ({"source": [0, 0, 0], "action": [0, 1, 1], "target": [0, 1, 1]}, "only once"),
        ({"source": [0, 0, 0], "action": [0, 1, 1], "probability": [1, 0.5, 0.5]}, "state 1 must"),
        ({"start": [0.5, 0.6]}, "start"),
        ({"largest_return": 0.0}, "largest_return"),
    ],
)
def test_mistakes_are_named(change, message):
    columns = {
        "source": [0, 0, 1],
        "action": [0, 1, 0],
        "target": [0, 1, 0],
        "probability": [1.0, 1.0, 1.0],
        "reward": [0.0, 1.0, 0.0],
        "start": [1.0, 0.0],
    }
    with pytest.raises(InvalidArgument, match=message):
        SparseModel(2, 2, 3, **{k: np.array(v) for k, v in (columns | change).items()}).spec  # noqa: B018


@pytest.mark.parametrize(
    "admissible", [((0,),), ((0,), ()), ((0,), (2,)), ((0, 0), (1,)), ((0,), (-1,)), 3, ("ab", 1)]
)
def test_admissible_actions_are_checked(admissible):
    with pytest.raises(InvalidArgument, match="admissible"):
        FiniteSpec(2, 2, 3, stationary=True, admissible=admissible)
