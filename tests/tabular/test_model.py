import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.special import chdtrc, ndtr

from tacit import InvalidArgument
from tacit.tabular.model import FiniteModel, evaluate, optimal, policy_values
from tacit.tabular.policy import Policy
from tacit.tabular.world import simulate, simulate_episodes

# Every statistical test here has a fixed seed and would alarm falsely with about this probability.
ALARM = 1e-6


def simulate_counts(model, policy, users, rng, pooled=False):
    return simulate(model, policy, users, rng, "pooled" if pooled else "counts")


def random_model(seed=0, states=3, actions=2, horizon=3, stationary=False, values=(0.0, 0.25, 1.0)):
    """Random tables with impossible outcomes in them."""
    rng = np.random.default_rng(seed)
    L = 1 if stationary else horizon
    P = rng.dirichlet(np.ones(states), (L, states, actions))
    P[rng.random(P.shape) < 0.3] = 0.0
    P[..., 0] += P.sum(axis=-1) == 0
    R = rng.dirichlet(np.ones(len(values)), (L, states, actions))
    start = rng.dirichlet(np.ones(states))
    return FiniteModel(P / P.sum(axis=-1, keepdims=True), R, np.array(values), start, horizon)


def random_policy(seed, model, deterministic):
    rng = np.random.default_rng(seed)
    H, S, A = model.horizon, model.states, model.actions
    if deterministic:
        return Policy.deterministic(rng.integers(A, size=(H, S)), A, version=4)
    table = rng.dirichlet(np.ones(A), (H, S))
    table[0, 0] = np.eye(A)[0]
    return Policy.stochastic(table, version=4)


def trajectories(model, policy):
    """All paths of states and actions, with their probabilities."""
    H, S, A = model.horizon, model.states, model.actions
    table = policy.table()
    for path in itertools.product(range(S), *([range(A), range(S)] * H)):
        states, actions = path[0::2], path[1::2]
        p = model.start[states[0]]
        for h in range(H):
            p *= table[h, states[h], actions[h]]
            p *= model.transitions_at(h)[states[h], actions[h], states[h + 1]]
        if p > 0:
            yield states, actions, p


def brute_value(model, policy):
    return sum(
        p * sum(model.mean_rewards_at(h)[s[h], a[h]] for h in range(model.horizon))
        for s, a, p in trajectories(model, policy)
    )


def brute_counts(model, policy):
    expected = np.zeros((model.horizon, model.states, model.actions, model.states))
    for s, a, p in trajectories(model, policy):
        for h in range(model.horizon):
            expected[h, s[h], a[h], s[h + 1]] += p
    return expected


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_values_are_those_of_all_trajectories(stationary, deterministic):
    model = random_model(1, stationary=stationary)
    policy = random_policy(2, model, deterministic)
    assert evaluate(model, policy) == pytest.approx(brute_value(model, policy), abs=1e-12)
    values = policy_values(model, policy)
    assert values.shape == (model.horizon + 1, model.states)
    assert (values[-1] == 0).all()


@pytest.mark.parametrize("stationary", [True, False])
def test_the_optimum_is_that_of_all_policies(stationary):
    model = random_model(3, states=2, stationary=stationary)
    H, S, A = model.horizon, model.states, model.actions
    best = max(
        brute_value(model, Policy.deterministic(np.reshape(actions, (H, S)), A))
        for actions in itertools.product(range(A), repeat=H * S)
    )
    V, policy = optimal(model)
    assert float(model.start @ V[0]) == pytest.approx(best, abs=1e-12)
    assert evaluate(model, policy) == pytest.approx(best, abs=1e-12)


def signature(arrays):
    return tuple(np.asarray(array).ravel().tobytes() for array in arrays)


def outcome_of_counts(model, policy, users, rng, pooled):
    block = simulate_counts(model, policy, users, rng, pooled)
    return signature((block["transitions"], block["rewards"]))


def outcome_of_episodes(model, policy, users, rng, pooled):
    e = simulate_episodes(model, policy, users, rng)
    H, S, A = model.horizon, model.states, model.actions
    steps = 1 if pooled else H
    transitions, rewards = np.zeros((steps, S, A, S), dtype=np.int64), np.zeros((steps, S, A))
    at = np.broadcast_to(np.minimum(np.arange(H), steps - 1), e.actions.shape)
    np.add.at(transitions, (at, e.states[:, :-1], e.actions, e.states[:, 1:]), 1)
    np.add.at(rewards, (at, e.states[:, :-1], e.actions), e.rewards)
    return signature((transitions, rewards))


def same_distribution(first, second):
    """The p-value of a two-sample chi-square test over everything that a block can be."""
    first, second = Counter(first), Counter(second)
    pairs = np.array([(first[key], second[key]) for key in first | second])
    rare = pairs.sum(axis=1) < 20
    pairs = np.vstack([pairs[~rare], pairs[rare].sum(axis=0, keepdims=True)])
    pairs = pairs[pairs.sum(axis=1) > 0]
    assert len(pairs) > 5
    return chdtrc(len(pairs) - 1, ((pairs[:, 0] - pairs[:, 1]) ** 2 / pairs.sum(axis=1)).sum())


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("deterministic", "stationary"), [(True, True), (False, False), (False, True)]
)
def test_both_simulators_draw_whole_blocks_from_one_distribution(deterministic, stationary, pooled):
    model = random_model(8, states=2, horizon=2, stationary=stationary, values=(0.0, 1.0))
    policy = random_policy(9, model, deterministic)
    rng = np.random.default_rng(10)
    draws = [
        [draw(model, policy, 2, rng, pooled) for _ in range(5000)]
        for draw in (outcome_of_counts, outcome_of_episodes)
    ]
    assert same_distribution(*draws) > ALARM


def decided_model():
    """Rewards are decided by the transition."""
    P, R = np.full((1, 2, 2, 2), 0.5), np.full((1, 2, 2, 2), 0.5)
    P[0, 1, 1] = R[0, 1, 1] = 0.25, 0.75
    decided = np.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    return FiniteModel(P, R, np.array([0.0, 1.0]), np.array([0.5, 0.5]), 2, decided)


def test_rewards_that_transitions_decide_have_that_distribution_too():
    model, rng = decided_model(), np.random.default_rng(10)
    policy = random_policy(9, model, True)
    draws = [
        [draw(model, policy, 2, rng, False) for _ in range(5000)]
        for draw in (outcome_of_counts, outcome_of_episodes)
    ]
    assert same_distribution(*draws) > ALARM


def assert_binomial(counts, probabilities, n):
    """Every cell, by a z-test at ALARM over all of them; impossible cells are empty."""
    assert (counts[probabilities <= 0] == 0).all()
    p = probabilities[probabilities > 0]
    z = (counts[probabilities > 0] - n * p) / np.sqrt(n * p * (1 - p) + 1e-9)
    assert ndtr(-np.abs(z).max()) * 2 * z.size > ALARM


@pytest.mark.parametrize("users", [0, 10**5, 10**12])
@pytest.mark.parametrize("deterministic", [True, False])
def test_counts_have_the_exact_means(users, deterministic):
    model = random_model(11, states=4, stationary=False)
    policy = random_policy(12, model, deterministic)
    rng = np.random.default_rng(13)
    block = simulate_counts(model, policy, users, rng)
    expected = brute_counts(model, policy)
    counts = block["transitions"]
    assert block.aggregate
    assert block.users == users
    assert counts.dtype == np.int64
    assert counts.shape == expected.shape
    assert (counts.sum(axis=(1, 2, 3)) == users).all()
    # Who arrives leaves.
    assert (counts.sum(axis=(1, 2))[:-1] == counts.sum(axis=(2, 3))[1:]).all()
    assert_binomial(counts, expected, users)
    visits = counts.sum(axis=3)
    mean = model.mean_rewards
    second = model.reward_probabilities @ model.reward_values**2
    z = (block["rewards"] - visits * mean) / np.sqrt(visits * (second - mean**2) + 1e-9)
    assert ndtr(-np.abs(z).max()) * 2 * z.size > ALARM


def test_wide_rows_are_searched_correctly():
    """More successors than the scan takes, with impossible ones among them."""
    rng = np.random.default_rng(20)
    S, n = 60, 300_000
    P = rng.dirichlet(np.full(S, 0.5), (1, S, 1))
    P[..., ::3] = 0.0
    P /= P.sum(axis=-1, keepdims=True)
    model = FiniteModel(P, np.ones((1, S, 1, 1)), np.array([0.5]), np.eye(S)[1], 2)
    policy = Policy.uniform(2, S, 1)
    e = simulate_episodes(model, policy, n, rng)
    assert_binomial(np.bincount(e.states[:, 1], minlength=S), P[0, 1, 0], n)
    assert_binomial(np.bincount(e.states[:, 2], minlength=S), P[0, 1, 0] @ P[0, :, 0], n)
    assert (e.rewards == 0.5).all()


def test_rounding_never_makes_an_impossible_transition():
    """1 - .6 - .35 leaves more than .05: the gap must not lead to the last state."""
    P = np.zeros((1, 4, 1, 4))
    P[..., 0], P[..., 1], P[..., 2] = 0.6, 0.35, 0.05
    model = FiniteModel(P, np.ones((1, 4, 1, 1)), np.array([0.0]), np.eye(4)[0], 50)
    policy = Policy.uniform(50, 4, 1)
    rng = np.random.default_rng(21)
    for _ in range(200):
        counts = simulate_counts(model, policy, 10**12, rng, pooled=True)["transitions"]
        assert counts[..., 3].sum() == 0
    assert (model.moves.cumulative[..., 2:] == 1).all()
    assert (model.moves.conditional[..., 2] == 1).all()


def test_rewards_decided_by_the_transition():
    P = np.full((1, 2, 1, 2), 0.5)
    R = np.array([[[[0.5, 0.5]], [[0.5, 0.5]]]])
    decided = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    model = FiniteModel(P, R, np.array([0.0, 1.0]), np.array([1.0, 0.0]), 4, decided)
    policy = Policy.uniform(4, 2, 1)
    rng = np.random.default_rng(22)
    e = simulate_episodes(model, policy, 100, rng)
    assert (e.rewards == (e.states[:, :-1] != e.states[:, 1:])).all()
    for pooled in (True, False):
        block = simulate_counts(model, policy, 10**6, rng, pooled)
        changed = block["transitions"][:, [0, 1], 0, [1, 0]]
        assert (block["rewards"][..., 0] == changed).all()
    with pytest.raises(InvalidArgument, match="state 0, action 0 must be distributed"):
        FiniteModel(P, R, np.array([0.0, 1.0]), np.array([1.0, 0.0]), 4, np.zeros((2, 1, 2)))


def test_a_policy_for_another_world_is_refused():
    model = random_model(27)
    other = Policy.uniform(3, 4, 2)
    rng = np.random.default_rng(0)
    for use in (
        lambda: evaluate(model, other),
        lambda: simulate_counts(model, other, 1, rng),
        lambda: simulate_episodes(model, other, 1, rng),
    ):
        with pytest.raises(InvalidArgument, match=r"\(3, 4, 2\), this world has \(3, 3, 2\)"):
            use()
    with pytest.raises(InvalidArgument, match="policy must be"):
        evaluate(model, np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": ((2, 1, 0), 0.7)}, "transitions at step 2, state 1, action 0.*sum 1"),
        ({"transitions": ((1, 2, 1, 0), -0.1)}, "step 1, state 2, action 1.*smallest entry -0.1"),
        ({"transitions": ((0, 0, 0, 0), np.nan)}, "step 0, state 0, action 0"),
        ({"reward_probabilities": ((0, 2, 1), 0.9)}, "reward_probabilities at step 0, state 2"),
        ({"start": ((0,), 2.0)}, "start must be probabilities"),
        ({"reward_values": ((1,), 1.5)}, r"reward_values must be different numbers in \[0, 1\]"),
        ({"reward_values": ((1,), 0.0)}, "different"),
    ],
)
def test_errors_name_the_row(change, message):
    model = random_model(30)
    names = ("transitions", "reward_probabilities", "reward_values", "start")
    arrays = {name: getattr(model, name).copy() for name in names}
    ((name, (index, value)),) = change.items()
    arrays[name][index] = value
    with pytest.raises(InvalidArgument, match=message):
        FiniteModel(**arrays, horizon=3)


def test_what_would_not_fit_is_refused_before_it_is_allocated():
    shape = (1, 30_000, 1, 30_000)
    with pytest.raises(InvalidArgument, match="7,200,000,000 bytes"):
        FiniteModel(
            np.broadcast_to(0.0, shape), np.ones((1, 30_000, 1, 1)), np.zeros(1), np.zeros(1), 5
        )
    H, S = 60_000, 100
    model = FiniteModel(
        np.eye(S)[np.newaxis, :, np.newaxis], np.ones((1, S, 1, 1)), np.zeros(1), np.eye(S)[0], H
    )
    policy = Policy.deterministic(np.zeros((H, S), dtype=np.int64), 1)
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match=r"\(60000, 100, 1, 100\).*pooled|pooled.*\(60000"):
        simulate_counts(model, policy, 1, rng)
    assert simulate_counts(model, policy, 1, rng, pooled=True)["transitions"][0, 0, 0, 0] == H
    with pytest.raises(InvalidArgument, match="episodes of a block"):
        simulate_episodes(model, policy, 10**6, rng)
