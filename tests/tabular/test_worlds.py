import json

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.tabular import TabularWorld, deep_sea, grid, health_coach, load_world, riverswim
from tacit.tabular.policy import Policy


def constant(world, action):
    shape = (world.spec.horizon, world.spec.states)
    return Policy.deterministic(np.full(shape, action), world.spec.actions)


def test_riverswim():
    world = riverswim(states=6, horizon=20)
    assert world.optimal_value == pytest.approx(3.0645, abs=5e-5)
    assert world.baseline_value == pytest.approx(0.0451, abs=5e-5)
    P, R = world.model.transitions[0], world.model.mean_rewards[0]
    np.testing.assert_allclose(P[2, 1], [0, 0.05, 0.6, 0.35, 0, 0])
    np.testing.assert_allclose(P[0, 1], [0.6, 0.4, 0, 0, 0, 0])
    np.testing.assert_allclose(P[5, 1], [0, 0, 0, 0, 0.4, 0.6])
    assert all(P[s, 0, max(s - 1, 0)] == 1 for s in range(6))
    assert {(s, a): R[s, a] for s, a in np.argwhere(R).tolist()} == {(0, 0): 0.005, (5, 1): 1.0}
    assert world.spec.start == (1, 0, 0, 0, 0, 0)


def test_grid():
    world = grid(side=3, horizon=4)
    P, R = world.model.transitions[0], world.model.mean_rewards[0]
    # From the middle: up, down, left, right.
    for action, to in enumerate((1, 7, 3, 5)):
        assert P[4, action, to] == pytest.approx(0.9)
        assert P[4, action, 4] == pytest.approx(0.1)
    assert P[0, 0, 0] == 1.0
    assert (R[8] == 1).all()
    assert R.sum() == 4
    # Four moves are needed, so the goal is never reached before the episode is over.
    assert world.optimal_value == 0.0
    assert grid(side=3, horizon=5).optimal_value == pytest.approx(0.9**4)


def test_deep_sea():
    world = deep_sea(depth=6)
    assert world.spec.horizon == world.spec.states == 6
    assert world.optimal_value == pytest.approx(1.0)
    assert world.value(constant(world, 0)) == pytest.approx(0.01)
    assert world.baseline_value == pytest.approx(2**-6 + 0.005)
    slippery = deep_sea(depth=6, slip=True)
    assert slippery.value(constant(slippery, 1)) == pytest.approx((5 / 6) ** 5)
    assert slippery.optimal_value > (5 / 6) ** 5


def test_health_coach_is_what_its_story_says():
    world = health_coach()
    assert world.spec.states >= 30
    assert (world.spec.actions, world.spec.horizon) == (4, 14)
    assert world.optimal_value >= 2 * world.baseline_value
    best = max(world.value(constant(world, action)) for action in range(4))
    assert best == pytest.approx(0.4688, abs=5e-5)
    assert best < world.optimal_value / 2
    # Every kind of message has its moment, and none is sent to the overburdened.
    actions = world.optimal_policy.actions[0].reshape(5, 4, 2)
    assert set(actions.ravel().tolist()) == {0, 1, 2, 3}
    assert (actions[:, 3] == 0).all()


STAY_OR_SWAP = np.stack([np.eye(2), np.eye(2)[::-1]], axis=1)


def test_worlds_that_depend_on_the_step():
    P = np.stack([STAY_OR_SWAP, STAY_OR_SWAP[:, ::-1]])
    R = np.zeros((2, 2, 2))
    R[1, 1] = 0.5
    world = TabularWorld(P, R, horizon=2, start=[0.5, 0.5])
    assert not world.spec.stationary
    assert (world.optimal_value, world.baseline_value, world.name) == (0.5, 0.25, "tabular")


def test_rewards_with_several_values():
    values, probabilities = [0.0, 0.5, 1.0], np.zeros((2, 2, 3))
    probabilities[..., 1] = 1.0
    probabilities[1, 0] = 0.25, 0.25, 0.5
    world = TabularWorld(STAY_OR_SWAP, (values, probabilities), horizon=1, start=1)
    assert world.spec.reward_values == (0.0, 0.5, 1.0)
    assert world.optimal_value == pytest.approx(0.625)
    rewards = world.simulate(constant(world, 0), 1000, np.random.default_rng(0)).rewards
    assert set(rewards.ravel().tolist()) == {0.0, 0.5, 1.0}


DESCRIPTION = {
    "horizon": 3,
    "start": 0,
    "transitions": STAY_OR_SWAP.tolist(),
    "rewards": [[0.0, 0.0], [1.0, 1.0]],
}


def test_worlds_from_files(tmp_path):
    path = tmp_path / "swap.json"
    path.write_text(json.dumps(DESCRIPTION))
    world = load_world(path)
    assert (world.name, world.optimal_value) == ("swap", 2.0)
    path = tmp_path / "swap.toml"
    path.write_text(
        'name = "two"\nhorizon = 3\ntransitions = [[[1, 0], [0, 1]], [[0, 1], [1, 0]]]\n'
        "[rewards]\nvalues = [0, 1.0]\n"
        "probabilities = [[[1, 0], [1, 0]], [[0, 1], [0, 1.0]]]\n"
    )
    world = load_world(str(path))
    assert (world.name, world.optimal_value) == ("two", 2.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.json", "{", "describes no world"),
        ("w.json", json.dumps({"horizon": 3}), "it must have"),
        ("w.json", json.dumps(DESCRIPTION | {"gamma": 0.9}), "it must have.*and may have"),
        ("w.json", json.dumps(DESCRIPTION | {"horizon": 2.5}), "horizon must be an integer >= 1"),
        ("w.json", json.dumps(DESCRIPTION | {"rewards": [["a", 0.5]]}), "must be numbers alone"),
        ("w.json", json.dumps(DESCRIPTION | {"transitions": [[[0.5, 0.2]]]}), "shape"),
        ("w.json", json.dumps(DESCRIPTION | {"rewards": [[0, 0], [0, 2]]}), "state 1, action 1"),
        ("w.toml", b"\xff\xfe", "describes no world"),
        ("w.yaml", "horizon: 3", r"must end in .json or .toml, got 'w.yaml'"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArgument, match=message) as caught:
        load_world(path)
    assert name in str(caught.value)
