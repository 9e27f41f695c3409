"""UCBPO: mirror steps by a slow reference, how far they get, what is drawn, and that it learns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import UCBPO, JointDP, NonPrivate
from tacit.simulation.run import noise_seed, run
from tacit.tabular import TabularWorld, riverswim
from tacit.tabular.mirror_loops import mirror_steps
from tacit.tabular.policy import Policy
from tacit.tabular.ucbpo import Optimistic, drawn

JOINT = JointDP(5.0, 1e-6)


def random_world(seed, S, A, H, stationary):
    rng = np.random.default_rng(seed)
    shape = (S, A) if stationary else (H, S, A)
    return TabularWorld(
        rng.dirichlet(np.full(S, 0.5), shape), rng.random(shape), horizon=H, start=0
    )


def optimistic(seed, S, A, H, L):
    rng = np.random.default_rng(seed)
    transitions, rewards = rng.dirichlet(np.full(S, 0.5), (L, S, A)), rng.random((L, S, A))
    return Optimistic(transitions, rewards, rng.random((H, S, A)) - 0.2)


def evaluated(world, pi):
    """Q of a policy, and its values at the first step, in loops."""
    P, r, bonus = world
    H, S, A = pi.shape
    V, Q = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):
        for s in range(S):
            for a in range(A):
                paid = r[min(h, len(r) - 1), s, a] + bonus[h, s, a]
                mean = sum(P[min(h, len(P) - 1), s, a, t] * V[t] for t in range(S))
                Q[h, s, a] = min(max(paid + mean, 0.0), H - h)
        V = np.array([sum(pi[h, s, a] * Q[h, s, a] for a in range(A)) for s in range(S)])
    return Q, V


def best_and_width(world, H):
    """Values of the best policy at the first step, and what it expects of bonuses, in loops."""
    P, r, bonus = world
    S, A = r.shape[1:]
    V, W = np.zeros(S), np.zeros(S)
    for h in reversed(range(H)):
        after, wide = V.copy(), W.copy()
        p, paid = P[min(h, len(P) - 1)], r[min(h, len(r) - 1)]
        for s in range(S):
            raw = paid[s] + bonus[h, s] + [p[s, a] @ after for a in range(A)]
            q = np.minimum(np.maximum(raw, 0.0), H - h)
            a = int(np.argmax(q))
            V[s], W[s] = q[a], min(max(bonus[h, s, a], 0.0) + p[s, a] @ wide, H - h)
    return V, W


def improved(world, pi, eta, enough, most):
    """Each step weights every action by exp(eta Q of the policy so far), in loops."""
    logs, taken = np.log(pi), 0
    while True:
        pi = np.exp(logs - logs.max(axis=2, keepdims=True))
        pi /= pi.sum(axis=2, keepdims=True)
        Q, V = evaluated(world, pi)
        if V[0] >= enough or taken == most:
            return pi, taken
        logs, eta, taken = logs + eta * Q, 1.1 * eta, taken + 1


@given(
    seed=st.integers(0, 10**6),
    S=st.integers(1, 3),
    A=st.integers(1, 3),
    H=st.integers(1, 3),
    stationary=st.booleans(),
    size=st.sampled_from([5, 2000]),
    privacy=st.sampled_from([JOINT, NonPrivate()]),
)
@settings(max_examples=20, deadline=None)
def test_policies_equal_the_slow_reference(seed, S, A, H, stationary, size, privacy):
    world = random_world(seed, S, A, H, stationary)
    agent = UCBPO(
        world.spec,
        3 * size,
        privacy,
        stationary=stationary,
        schedule=f"fixed:size={size}",
        noise_seed=seed,
        steps=100,
    )
    rng = np.random.default_rng(seed)
    table = np.full((H, S, A), 1 / A)
    for version in (1, 2):
        before = np.maximum(table, 1e-3)
        before /= before.sum(axis=2, keepdims=True)
        along = agent.algorithm.on_policy(agent.plan)
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
        model = agent.algorithm.model(agent.state, along)
        bonuses = agent.algorithm.value_iteration(model, rng)[1]
        known = Optimistic(model.P, model.r, bonuses)
        V, W = best_and_width(known, H)
        expected, _ = improved(known, before, 1.0, V[0] - 0.05 * W[0] - 1e-9 * H, 100)
        table = agent.plan.memory.table
        np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-12)
        assert agent.policy.version == version
        assert agent.greedy_policy.is_deterministic
        if privacy.private:
            assert agent.policy.is_deterministic
            chances = np.take_along_axis(table, agent.policy.actions[..., np.newaxis], 2)
            assert (chances > 0).all()
        else:
            np.testing.assert_allclose(agent.policy.table(), table, rtol=1e-12)


@given(
    seed=st.integers(0, 10**6),
    S=st.integers(1, 4),
    A=st.integers(2, 4),
    H=st.integers(1, 5),
    every=st.booleans(),
    eta=st.sampled_from([0.05, 1.0, 10.0]),
    growth=st.sampled_from([1.0, 1.1]),
)
@settings(max_examples=40, deadline=None)
def test_steps_get_as_near_to_the_best_policy_as_is_proven(seed, S, A, H, every, eta, growth):
    """From uniform probabilities M steps are at most (H ln A / eta + H^2) / M below; none falls."""
    world = optimistic(seed, S, A, H, H if every else 1)
    best, _ = world.best(H)
    paid = world.rewards[np.minimum(np.arange(H), len(world.rewards) - 1)] + world.bonus
    start, last = np.eye(S)[0], -math.inf
    for steps in (1, 2, 3, 5, 10, 30):
        pi, q = np.full((H, S, A), 1 / A), np.empty((H, S, A))
        how = math.inf, eta, growth, steps
        assert mirror_steps(world.transitions, paid, start, *how, pi, q) == steps
        value = float((pi[0, 0] * q[0, 0]).sum())
        assert best[0] - value <= (H * math.log(A) / eta + H**2) / steps + 1e-9
        assert value >= last - 1e-9
        last = value


def test_a_draw_is_to_any_user_as_the_policy_is():
    """4,000 draws: shares of actions, and the mean return, within five standard errors of it.

    That a right one fails has probability below 1e-4, over the 48 shares and the mean.
    """
    world, n = random_world(3, 4, 3, 4, stationary=True), 4000
    rng = np.random.default_rng(1)
    table = np.maximum(rng.dirichlet(np.ones(3), (4, 4)), 0.01)
    table /= table.sum(axis=2, keepdims=True)
    draws = [drawn(table, rng) for _ in range(n)]
    shares = np.mean([policy.table() for policy in draws], axis=0)
    error = np.sqrt(table * (1 - table) / n)
    assert (np.abs(shares - table) <= 5 * error).all()
    values = np.array([world.value(policy) for policy in draws])
    wanted = world.value(Policy.stochastic(table))
    assert abs(values.mean() - wanted) <= 5 * values.std() / math.sqrt(n)
    assert values.std() > 0.01


@pytest.mark.parametrize("privacy", [JointDP(10.0, 1e-6), NonPrivate()], ids=["joint", "none"])
def test_it_learns_riverswim(privacy):
    world = riverswim(6, 20)
    scores = []
    for seed in range(2):
        agent = UCBPO(world.spec, 50_000, privacy, seed=seed, noise_seed=noise_seed(seed))
        scores.append(run(agent, world, seed, progress=False).score)
    assert min(scores) > 0.98
