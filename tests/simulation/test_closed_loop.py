"""The compiled loop does what single steps do: same users, same counts, same plans, same regret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tacit import UCBPO, UCBVI, JointDP, NonPrivate
from tacit.core.agent import Agent
from tacit.core.kinds import AgentKind
from tacit.core.permuted import PermutedWorld
from tacit.finite.model import FiniteModel, evaluate
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.errors import InvalidArgument
from tacit.simulation import closed_loop, serve_loops
from tacit.simulation.run import run
from tacit.tabular import TabularWorld, riverswim, ucbvi
from tacit.tabular.gym import ImportedWorld


class OwnUCBVI(ucbvi.UCBVI):
    """The same algorithm; as somebody's own class, it is never put into the compiled loop."""


StepByStep = AgentKind(OwnUCBVI)


def random_world(S: int, A: int, H: int, stationary: bool = True, seed: int = 0) -> TabularWorld:
    rng = np.random.default_rng(seed)
    shape = (S, A) if stationary else (H, S, A)
    transitions = rng.dirichlet(np.full(S, 0.5), shape)
    start = rng.dirichlet(np.ones(S))
    return TabularWorld(transitions, rng.random(shape), horizon=H, start=start)


def many_rewards() -> TabularWorld:
    rng = np.random.default_rng(1)
    rewards = ([0.0, 0.3, 0.7, 1.0], rng.dirichlet(np.ones(4), (4, 3)))
    return TabularWorld(rng.dirichlet(np.ones(4), (4, 3)), rewards, horizon=6)


def rewards_by_transition() -> TabularWorld:
    rng = np.random.default_rng(2)
    values, transitions = np.array([0.0, 0.5, 1.0]), rng.dirichlet(np.ones(4), (4, 2))
    table = rng.choice(values, (4, 2, 4))
    probabilities = np.stack([(transitions * (table == v)).sum(axis=2) for v in values], axis=-1)
    start = np.eye(4)[0]
    model = FiniteModel(transitions[np.newaxis], probabilities[np.newaxis], values, start, 5, table)
    return ImportedWorld(model, "by transition", 0.0, 1.0)


WORLDS = {
    "whole rows": (random_world(5, 3, 6), {}),
    "lists": (riverswim(states=30, horizon=25), {}),
    "lists per step": (riverswim(states=30, horizon=8), {"stationary": False}),
    "per step": (random_world(4, 2, 5), {"stationary": False}),
    "not stationary": (random_world(4, 2, 5, stationary=False), {}),
    "pooled all the same": (random_world(4, 2, 5, stationary=False), {"stationary": True}),
    "many rewards": (many_rewards(), {"scale": 0.5}),
    "rewards by transition": (rewards_by_transition(), {"scale": 2.0}),
    "one action": (random_world(3, 1, 4), {}),
    "one step": (random_world(3, 3, 1), {}),
    "one state": (random_world(1, 3, 4), {}),
}


def make(world: TabularWorld, users: int, seed: int = 0, **options: Any) -> Agent:
    return UCBVI(world.spec, users, NonPrivate(), schedule="every", seed=seed, **options)


def is_best(actions: np.ndarray, Q: np.ndarray) -> bool:
    """Up to rounding: variances are differences, and their roots double the lost digits."""
    chosen = np.take_along_axis(Q, actions[..., np.newaxis], axis=2)[..., 0]
    return bool(np.allclose(chosen, Q.max(axis=2), rtol=0, atol=1e-6))


def plain_q_values(agent: Agent) -> np.ndarray:
    """Values of what the agent has estimated, without a bonus."""
    transitions, rewards, _ = agent.algorithm._world
    H, S, A = agent.spec.horizon, agent.spec.states, agent.spec.actions
    Q, V = np.zeros((H, S, A)), np.zeros(S)
    for h in reversed(range(H)):
        at = min(h, len(rewards) - 1)
        Q[h] = np.minimum(rewards[at] + transitions[at] @ V, H - h)
        V = Q[h].max(axis=1)
    return Q


@pytest.mark.parametrize("before", [0, 4], ids=["from scratch", "goes on"])
@pytest.mark.parametrize("name", WORLDS)
def test_every_policy_is_one_that_single_steps_would_have_planned(
    name: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 60 users in parts of 25, 25 and the rest.
    monkeypatch.setattr(closed_loop, "_PART_USERS", 25)
    world, options = WORLDS[name]
    users = 60
    permuted = PermutedWorld.draw(world, np.random.default_rng(5))
    inverse = np.argsort(permuted.permutation)
    agent, twin = make(world, users, **options), make(world, users, **options)
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for each, rng in zip((agent, twin), rngs, strict=True):
        for _ in range(before):
            each.learn(permuted.simulate(each.policy, 1, rng, "episodes"))
    assert agent.policy.actions is not None
    assert (agent.policy.actions == twin.policy.actions).all()

    parts = closed_loop.play(agent, permuted, rngs[0])
    assert parts is not None
    parts = list(parts)
    sizes = [25, 25, 10] if before == 0 else [25, 25, 6]
    assert [part.users for part in parts] == sizes

    for part in parts:
        for k in range(part.users):
            actions, greedy = inverse[part.policies[k]], inverse[part.greedy[k]]
            if twin.releases == 0:
                assert (actions == twin.policy.actions).all()
                assert (greedy == twin.greedy_policy.actions).all()
            else:
                assert is_best(actions, twin.q_values)
                assert is_best(greedy, plain_q_values(twin))
            # Ties were broken otherwise: the twin serves its user with the other's choice.
            twin.algorithm.policy = Policy.deterministic(actions, world.spec.actions, twin.releases)
            twin.learn(permuted.simulate(twin.policy, 1, rngs[1], "episodes"))

    for array in ("transitions", "visits", "reached", "variance"):
        mine, other = getattr(agent.evidence, array), getattr(twin.evidence, array)
        np.testing.assert_array_equal(mine, other, err_msg=array)
    np.testing.assert_allclose(agent.evidence.rewards, twin.evidence.rewards, rtol=1e-12)
    assert agent.served == twin.served == agent.releases == twin.releases == users
    assert agent.block_users == 0
    assert agent.policy.version == agent.greedy_policy.version == users
    np.testing.assert_allclose(agent.q_values, twin.q_values, rtol=1e-12)
    assert is_best(agent.policy.actions, twin.q_values)
    assert is_best(agent.greedy_policy.actions, plain_q_values(twin))
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


@pytest.mark.parametrize("name", ["whole rows", "lists", "not stationary", "rewards by transition"])
def test_values_are_those_of_single_evaluations(name: str) -> None:
    world, _ = WORLDS[name]
    spec = world.spec
    rng = np.random.default_rng(0)
    policies = rng.integers(0, spec.actions, (200, spec.horizon, spec.states)).astype(np.int16)
    policies[50:60] = policies[50]
    single = [evaluate(world.model, Policy.deterministic(p, spec.actions)) for p in policies]
    values = closed_loop.values_of(world.model, policies)
    np.testing.assert_allclose(values, single, rtol=1e-12)
    assert len(set(values[50:60].tolist())) == 1


def test_a_result_has_every_release() -> None:
    world, users = random_world(5, 3, 6), 80
    agent = make(world, users)
    first = agent.policy
    result = run(agent, world, seed=3, progress=False)
    assert result.served.tolist() == list(range(users + 1))
    assert set(result.seconds) == {"total", "simulate and learn", "evaluate"}
    again = run(make(world, users), world, seed=3, progress=False)
    assert (result.values == again.values).all()
    assert (result.greedy_values == again.greedy_values).all()
    # The labels of the run, as the loop draws them.
    permuted = PermutedWorld.draw(world, np.random.default_rng(np.random.SeedSequence([1, 3])))
    assert result.values[0] == pytest.approx(permuted.value(first), rel=1e-12)
    assert result.values[-1] == pytest.approx(permuted.value(agent.policy), rel=1e-12)
    assert result.greedy_values[-1] == pytest.approx(permuted.value(agent.greedy_policy), rel=1e-12)
    assert (result.values <= world.optimal_value + 1e-12).all()


def test_regret_is_distributed_as_step_by_step() -> None:
    """Two samples of 150 runs; equal distributions fail either test with probability 10^-5.

    Each of the six comparisons has its sixth of that.
    """
    world, users, runs = random_world(3, 2, 4, seed=3), 30, 150

    def regrets(kind: AgentKind, first: int) -> np.ndarray:
        results = []
        for seed in range(first, first + runs):
            agent = kind(world.spec, users, NonPrivate(), schedule="every", seed=seed)
            results.append(run(agent, world, seed=seed, progress=False))
        single = {"simulate", "learn"} if kind is StepByStep else {"simulate and learn"}
        assert set(results[0].seconds) == {"total", "evaluate", *single}
        return np.array([[r.regret[users // 2], r.regret[-1], r.greedy_value] for r in results])

    mine, other = regrets(UCBVI, 0), regrets(StepByStep, runs)
    for column in range(mine.shape[1]):
        assert ks_2samp(mine[:, column], other[:, column]).pvalue > 1e-5 / 6
        apart = mine[:, column].mean() - other[:, column].mean()
        error = np.sqrt((mine[:, column].var() + other[:, column].var()) / runs)
        assert abs(apart) < 4.8 * error  # two-sided, of a normal variable


def test_ties_are_broken_evenly() -> None:
    states = 30_000
    q_values = np.tile(np.array([[0.5], [2.0], [1.0], [2.0], [2.0]]), states)
    q_values[:, ::2] = np.array([[3.0], [2.0], [1.0], [0.0], [-1.0]])
    value, actions = np.zeros(states), np.zeros(states, dtype=np.int16)
    serve_loops._best(np.random.default_rng(0), q_values, value, actions)
    assert (value == q_values.max(axis=0)).all()
    assert (actions[::2] == 0).all()
    shares = np.bincount(actions[1::2], minlength=5) / (states // 2)
    assert shares[0] == shares[2] == 0.0
    # Five standard deviations.
    np.testing.assert_allclose(shares[[1, 3, 4]], 1 / 3, atol=5 * np.sqrt(2 / 9 / (states // 2)))


def test_it_can_be_saved_and_goes_on(tmp_path: Path) -> None:
    world = random_world(4, 2, 5)
    agent = make(world, 50)
    run(agent, world, progress=False)
    agent.save(tmp_path / "agent")
    loaded = make(world, 50).load(tmp_path / "agent")
    assert loaded.policy.actions is not None
    assert (loaded.policy.actions == agent.policy.actions).all()
    assert (loaded.evidence.transitions == agent.evidence.transitions).all()
    assert loaded.evidence.transitions.sum() == 50 * 5


def test_it_goes_on_after_what_is_impossible_here() -> None:
    elsewhere, world = random_world(30, 2, 25), riverswim(states=30, horizon=25)
    agent, rng = UCBVI(elsewhere.spec, 40, NonPrivate(), schedule="every"), np.random.default_rng(0)
    for _ in range(20):
        agent.learn(elsewhere.simulate(agent.policy, 1, rng, "episodes"))
    before = agent.evidence.transitions.copy()
    parts = closed_loop.play(agent, world, rng)
    assert parts is not None
    assert sum(part.users for part in parts) == 20
    added = agent.evidence.transitions - before
    assert added.sum() == 20 * 25
    assert (added[world.model.transitions == 0] == 0).all()


class Drifting(TabularWorld):
    """Its users are not those of its model."""

    def simulate(self, *arguments: Any, **options: Any) -> Any:
        return super().simulate(*arguments, **options)


def test_it_is_for_the_plain_baseline_alone() -> None:
    world = random_world(3, 2, 4)
    spec, rng = world.spec, np.random.default_rng(0)
    every: dict[str, Any] = {"schedule": "every"}
    agents = [
        UCBVI(spec, 10, JointDP(1.0, 1e-6), **every),
        UCBVI(spec, 10, NonPrivate()),
        UCBVI(spec, 10, NonPrivate(), schedule="fixed:size=2"),
        UCBPO(spec, 10, NonPrivate(), **every),
        StepByStep(spec, 10, NonPrivate(), **every),
    ]
    for agent in agents:
        assert closed_loop.play(agent, world, rng) is None
    assert closed_loop.play(make(world, 10), world, rng) is not None

    drifting = Drifting(world.model.transitions[0], world.model.mean_rewards[0], horizon=4)
    assert closed_loop.play(make(world, 10), drifting, rng) is None

    with_ids = make(world, 10)
    with_ids.learn(world.simulate(with_ids.policy, 1, rng, "episodes"), user_ids=["somebody"])
    assert closed_loop.play(with_ids, world, rng) is None
    assert with_ids.served == 1


def test_another_world_is_refused() -> None:
    agent = make(random_world(3, 2, 4), 10)
    with pytest.raises(InvalidArgument, match="another world"):
        closed_loop.play(agent, random_world(4, 2, 4), np.random.default_rng(0))
    assert isinstance(agent.spec, FiniteSpec)
    assert agent.served == 0
