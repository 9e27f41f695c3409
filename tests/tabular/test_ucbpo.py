"""UCBPO: mirror steps by a slow reference, and that they learn."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import UCBPO, JointDP, NonPrivate
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed
from tacit.tabular import TabularWorld, riverswim

JOINT = JointDP(5.0, 1e-6)


def random_world(seed: int, S: int, A: int, H: int, stationary: bool) -> TabularWorld:
    rng = np.random.default_rng(seed)
    shape = (S, A) if stationary else (H, S, A)
    return TabularWorld(
        rng.dirichlet(np.full(S, 0.5), shape), rng.random(shape), horizon=H, start=0
    )


def mirror_steps(agent: UCBPO, before: np.ndarray) -> np.ndarray:
    """Each step weights every action by exp(eta Q of the policy so far), in loops."""
    P, r, bonus = agent.algorithm._world
    H, S, A = before.shape
    L = len(r)
    # Logarithms are kept between steps, so that tiny probabilities are not lost.
    logs = np.log(np.maximum(before, 1e-3))
    for _ in range(agent.steps):
        pi = np.exp(logs)
        pi /= pi.sum(axis=2, keepdims=True)
        V, Q = [0.0] * S, np.zeros((H, S, A))
        for h in reversed(range(H)):
            row = min(h, L - 1)
            for s in range(S):
                for a in range(A):
                    mean = sum(P[row, s, a, t] * V[t] for t in range(S))
                    q = r[row, s, a] + mean + bonus[h, s, a]
                    Q[h, s, a] = min(max(q, 0.0), H - h)
            V = [sum(pi[h, s, a] * Q[h, s, a] for a in range(A)) for s in range(S)]
        logs = logs + agent.eta * Q
        logs -= logs.max(axis=2, keepdims=True)
    table = np.exp(logs)
    return table / table.sum(axis=2, keepdims=True)


@given(
    seed=st.integers(0, 10**6),
    S=st.integers(1, 3),
    A=st.integers(1, 3),
    H=st.integers(1, 3),
    stationary=st.booleans(),
    size=st.sampled_from([5, 2000]),
    privacy=st.sampled_from([JOINT, NonPrivate()]),
)
@settings(max_examples=30, deadline=None)
def test_policies_equal_the_slow_reference(
    seed: int, S: int, A: int, H: int, stationary: bool, size: int, privacy: Any
) -> None:
    world = random_world(seed, S, A, H, stationary)
    agent = UCBPO(
        world.spec,
        3 * size,
        privacy,
        stationary=stationary,
        schedule=f"fixed:size={size}",
        noise_seed=seed,
    )
    rng = np.random.default_rng(seed)
    assert np.allclose(agent.policy.table(), 1 / A)
    for version in (1, 2):
        before = np.array(agent.policy.table())
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
        expected = mirror_steps(agent, before)
        np.testing.assert_allclose(agent.policy.table(), expected, rtol=1e-6, atol=1e-12)
        assert agent.policy.version == version
        assert agent.greedy_policy.is_deterministic


def test_steps_and_their_size() -> None:
    world = random_world(0, 2, 3, 4, stationary=False)
    own = UCBPO(world.spec, 500, JOINT, eta=0.1, steps=3, noise_seed=0)
    assert (own.eta, own.steps) == (0.1, 3)
    agent = UCBPO(world.spec, 500, JOINT, noise_seed=0)
    assert (agent.eta, agent.steps) == (math.log(3) / 2, 15)


@pytest.mark.parametrize("options", [{"eta": 0.0}, {"eta": math.inf}, {"steps": 0}], ids=str)
def test_arguments_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        UCBPO(riverswim(3, 4).spec, 100, JOINT, noise_seed=0, **options)


def test_a_save_with_other_steps_is_refused(tmp_path: Any) -> None:
    spec, path = riverswim(3, 4).spec, tmp_path / "state"
    UCBPO(spec, 100, JOINT, noise_seed=0, steps=3).save(path)
    with pytest.raises(InvalidArgument, match="steps"):
        UCBPO(spec, 100, JOINT, noise_seed=0, steps=4).load(path)


def test_a_loaded_policy_is_the_same_to_the_bit(tmp_path: Any) -> None:
    """Dividing probabilities by their sum once more would change some of them."""
    world, path = random_world(0, 6, 5, 8, stationary=True), tmp_path / "state"
    options: dict[str, Any] = {"schedule": "fixed:size=50", "noise_seed": 0}
    agent = UCBPO(world.spec, 150, JOINT, **options)
    agent.learn(world.simulate(agent.policy, 50, np.random.default_rng(0), "episodes"))
    agent.save(path)
    loaded = UCBPO(world.spec, 150, JOINT, **options).load(path)
    assert np.array_equal(loaded.policy.table(), agent.policy.table())


def test_every_action_stays_possible() -> None:
    world = riverswim(3, 4)
    agent = UCBPO(world.spec, 10**5, NonPrivate())
    run(agent, world, 0, progress=False)
    assert (agent.policy.table() > 0).all()


@pytest.mark.parametrize("privacy", [JointDP(10.0, 1e-6), NonPrivate()], ids=["joint", "none"])
def test_it_learns_riverswim(privacy: Any) -> None:
    world = riverswim(6, 20)
    scores = []
    for seed in range(5):
        agent = UCBPO(world.spec, 100_000, privacy, seed=seed, noise_seed=noise_seed(seed))
        run(agent, world, seed, progress=False)
        scores.append(world.value(agent.greedy_policy) / world.optimal_value)
    assert statistics.median(scores) > 0.9
