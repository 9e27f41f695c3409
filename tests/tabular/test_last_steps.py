"""Logs that end with the last step: its reward counts, in every family that reads tables."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit import Episodes, JointDP
from tacit.linear.statistics import FeatureSums
from tacit.privacy.statistic import Block
from tacit.service.app_file import read_app

H = 4


def garden():
    """Who picks is paid at once and has nothing later: right in the last step alone."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 0] = P[0, 1, 1] = P[1, :, 1] = 1.0
    return tacit.tabular.TabularWorld(P, np.array([[0.4, 0.9], [0.1, 0.0]]), H)


def learnt(kind, users=30_000, **options):
    """An agent that is given logs without the state after the last step, and its policies."""
    world = garden()
    spec = replace(world.spec, last_state=False)
    agent = kind(spec, users, JointDP(1.0, 1e-6), noise_seed=0, **options)
    rng, policies = np.random.default_rng(0), []
    while (room := min(agent.block_users, users - agent.served)) > 0:
        policies.append(agent.policy)
        made = world.simulate(agent.policy, room, rng)
        states = np.array(made.states)
        states[:, -1] = -1
        agent.learn(
            Episodes(states, made.actions, made.rewards, made.versions, None, made.components)
        )
    return agent, policies


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("kind", ["UCBVI", "UCBPO", "ConcurrentPSRL"])
def test_the_last_step_is_learnt(kind, stationary):
    agent, policies = learnt(getattr(tacit, kind), stationary=stationary)
    world = garden()
    greedy = agent.greedy_policy
    assert world.value(greedy) > 0.97 * world.optimal_value
    assert greedy.act(H - 1, 0) == 1, "it pays at once"
    assert greedy.act(0, 0) == 0
    found = tacit.monitor(agent)
    if not found.partial[-1]:
        off = found.returns[-1] - world.value(policies[-1])
        assert abs(off) < 6.0 * found.return_errors[-1]
        assert found.steps[-1] == pytest.approx(H, abs=0.2)


def test_counts_of_a_log_that_was_collected_elsewhere_have_the_last_step():
    world = garden()
    uniform = tacit.Policy.stochastic(np.full((H, 2, 2), 0.5))
    made = world.simulate(uniform, 20_000, np.random.default_rng(1))
    states = np.array(made.states)
    states[:, -1] = -1
    log = Episodes(states, made.actions, made.rewards)
    spec = replace(world.spec, last_state=False)
    offline = tacit.PessimisticVI(spec, log.users, JointDP(1.0, 1e-6), noise_seed=0)
    offline.learn(log)
    assert offline.state.learnt.transitions.shape[0] == 2
    assert offline.state.learnt.rewards[1, 0, 1] > 2 * offline.state.learnt.rewards[1, 0, 0]


def test_an_app_whose_log_has_no_next_states_counts_the_last_step(tmp_path):
    """From a CSV file to what a release tells, as tacit learn does it."""
    head = "[world]\nstates = 2\nactions = 2\nhorizon = 3\n"
    rest = """[agent]
users = 1000
[privacy]
epsilon = 1.0
delta = 1e-6
[log]
path = "log.csv"
next_state = ""
version = "version"
"""
    (tmp_path / "app.toml").write_text(head + rest)
    app = read_app(str(tmp_path / "app.toml"))
    assert app.spec.stationary
    assert not app.spec.last_state
    agent = tacit.UCBVI(app.spec, 1000, tacit.NonPrivate(), schedule="fixed:size=100")
    rows = ["user,step,state,action,reward,version"]
    for user in range(100):
        rows += [f"{user},{h},0,{agent.policy.act(h, 0)},1,0" for h in range(3)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    for episodes in app.episodes(str(tmp_path / "log.csv")):
        agent.learn(episodes)
    found = tacit.monitor(agent)
    assert [*found.returns, *found.steps] == pytest.approx([3.0, 3.0])
    # Whoever began without is not forced to begin anew.
    (tmp_path / "app.toml").write_text(head + "last_state = true\n" + rest)
    assert read_app(str(tmp_path / "app.toml")).spec.last_state


def test_linear_sums_of_single_steps_need_no_last_state():
    features = np.eye(4).reshape(2, 2, 4)
    columns = {
        "states": np.array([[0, 1, 0], [0, 1, -1]]),
        "actions": np.zeros((2, 2), dtype=np.int64),
        "rewards": np.ones((2, 2)),
    }
    block = Block(2, columns)
    sums = FeatureSums(features, 2)
    known, unknown = (sums.layout.unpack(row) for row in sums.vectors(block))
    for name in ("gram", "rewards"):
        assert np.array_equal(known[name], unknown[name])
    pooled = FeatureSums(features, 2, pooled=True)
    assert pooled.layout.unpack(pooled.vectors(block)[1])["rewards"].sum() == 1.0


def test_an_entry_beyond_the_horizon_says_what_followed_the_last_step():
    log = {
        "user": [1, 1, 1, 2, 2, 3, 3, 3, 3],
        "step": [0, 1, 2, 0, 1, 0, 1, 2, 2],
        "state": [0, 1, 2, 0, 1, 0, 1, 2, 1],
        "action": [0] * 9,
        "reward": [1.0] * 9,
    }
    made = Episodes.from_frame(log, horizon=2, next_state=None)
    assert made.states.tolist() == [[0, 1, 2], [0, 1, -1], [0, 1, -1]]
    assert made.rewards.shape == (3, 2)
    over = Episodes.from_frame(
        log | {"over": [0, 1] + [0] * 7}, horizon=2, next_state=None, terminal="over", end=3
    )
    assert over.states[0].tolist() == [0, 1, 3]
