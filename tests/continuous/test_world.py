import math

import numpy as np
import pytest

from research.worlds import cartpole, plane, trap
from tacit import InvalidArgument
from tacit.continuous import BoxSpec, BoxWorld, Grid, Polynomial, QPolicy, line
from tacit.continuous.worlds import roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.statistic import StreamedBlock

RNG = np.random.default_rng
WORLDS = {"line": line, "plane": plane, "cartpole": cartpole}


def jagged(world, seed=0, epsilon=0.0, version=0):
    """A policy that changes its mind all the time."""
    spec = world.spec
    features = spec.features or Grid(spec.lows, spec.highs, (7,) * spec.dimension)
    weights = RNG(seed).normal(size=(spec.actions, features.size))
    return QPolicy(features, weights, epsilon, version)


def always(action, D=1):
    weights = np.zeros((2 * D, 1))
    weights[action] = 1.0
    return QPolicy(Polynomial((1.0,) * D, 1.0, 0), weights)


def up(horizon):
    return BoxWorld(lambda s: s[..., 0], "up", horizon, reward_range=(0.0, 1.0))


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_a_stream_has_the_same_users_every_time(make):
    world = make()
    policy = jagged(world, epsilon=0.3, version=4)
    whole = world.simulate(policy, 5000, RNG(1), "episodes")
    stream = world.simulate(policy, 5000, RNG(1), "streamed")
    assert isinstance(whole, VectorEpisodes)
    assert isinstance(stream, StreamedBlock)
    for _ in range(2):
        parts = list(stream.parts())
        assert [part.users for part in parts] == [4096, 904]
        for name, array in whole.block().arrays.items():
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, array)
    other = world.simulate(policy, 5000, RNG(2), "episodes")
    assert not np.array_equal(other.states, whole.states)


@pytest.mark.parametrize("make", [line, trap, plane])
def test_one_coordinate_moves_as_the_action_says(make):
    world = make()
    D = world.spec.dimension
    policy = QPolicy.uniform(D, 2 * D)
    episodes = world.simulate(policy, 4000, RNG(3))
    states, actions = episodes.states, episodes.actions
    assert ((states >= 0.0) & (states <= 1.0)).all()
    moves = np.diff(states, axis=1)
    own = np.take_along_axis(moves, (actions // 2)[:, :, np.newaxis], axis=2)[..., 0]
    assert np.count_nonzero(moves) == np.count_nonzero(own)
    directed = np.where(actions % 2 == 1, own, -own)
    assert ((directed >= 0.0) & (directed <= 0.25)).all()
    # Uniform on [0, .25] where nothing can be clipped; five moments' worth of a mean and a square.
    before = np.take_along_axis(states[:, :-1], (actions // 2)[:, :, np.newaxis], axis=2)[..., 0]
    free = directed[(before > 0.25) & (before < 0.75)] / 0.25
    assert abs(free.mean() - 0.5) < 6 * math.sqrt(1 / 12 / len(free))
    assert abs((free**2).mean() - 1 / 3) < 6 * math.sqrt(4 / 45 / len(free))


def test_the_end_of_an_episode():
    starts = np.array([[0.0], [10.0], [20.0]])

    def advance(step, who, here, taken):
        assert here[:, 0].tolist() == [10.0 * user + step for user in who]
        return here + 1.0, (who == 1) & (step == 1) | (who == 0) & (step == 3)

    states, actions, lengths = roll_out(
        QPolicy.uniform(1, 2), starts, RNG(0).random((4, 3)), advance
    )
    assert (lengths.tolist(), states[0, :, 0].tolist()) == ([4, 2, 5], [0.0, 1.0, 2.0, 3.0, 4.0])
    assert states[1, :3, 0].tolist() == [10.0, 11.0, 12.0]
    assert np.isnan(states[1, 3:]).all()
    assert actions[1, 2:].tolist() == [-1, -1]
    assert (actions[[0, 2]] >= 0).all()


def test_one_and_two_steps_by_hand():
    # E min(S + U, 1) = 5/8 - E U^2 / 2, and E max(S - U, 0) = 3/8 + E U^2 / 2, E U^2 = 1/48.
    world = up(1)
    # E (S + U + V - 1)^+ for W = U + V <= 1/2 is E W^2 / 2, E W^2 = 2/48 + 2/64.
    second = 3 / 4 - (2 / 48 + 2 / 64) / 2
    assert up(2).value(always(1)) == pytest.approx(5 / 8 - 1 / 96 + second, abs=1e-6)
    assert world.value(always(1)) == pytest.approx(5 / 8 - 1 / 96, abs=1e-6)
    assert world.value(always(0)) == pytest.approx(3 / 8 + 1 / 96, abs=1e-6)
    assert world.optimal_value == world.value(always(1))
    assert world.baseline_value == pytest.approx(0.5, abs=1e-6)
    # Up leads above .9 with .1 + E U, and S + U is still below .1 with 4 * .1^2 / 2.
    assert trap(horizon=1).value(always(1)) == pytest.approx(0.5 * 0.225 + 0.2 * 0.02, abs=1e-6)
    assert trap(horizon=1).value(always(0)) == pytest.approx(0.2 * 0.225 + 0.5 * 0.02, abs=1e-6)


@pytest.mark.parametrize("make", [line, trap, plane])
def test_values_are_the_mean_return_of_users(make):
    """Within six standard errors (1e-8) and the error that the world states."""
    world = make()
    stated = 0.01 if make is plane else 0.001
    assert world.value(QPolicy.uniform(world.spec.dimension, world.spec.actions)) == (
        world.baseline_value
    )
    for seed, epsilon in enumerate((0.0, 0.3, 1.0)):
        policy = jagged(world, seed, epsilon)
        assert world.value(policy) < world.optimal_value
        returns = world.simulate(policy, 10_000, RNG(seed)).rewards.sum(axis=1)
        error = 6 * returns.std() / math.sqrt(len(returns)) + stated
        assert abs(world.value(policy) - returns.mean()) < error


def test_policies_and_forms_of_other_worlds_are_refused():
    world = line()
    for policy in (QPolicy.uniform(2, 2), QPolicy.uniform(1, 4), "up"):
        with pytest.raises(InvalidArgument, match="policy must be"):
            world.value(policy)
        with pytest.raises(InvalidArgument, match="policy must be"):
            world.simulate(policy, 1, RNG(0))
    with pytest.raises(InvalidArgument, match="form must be"):
        world.simulate(QPolicy.uniform(1, 2), 1, RNG(0), "counts")
    with pytest.raises(InvalidArgument, match="users"):
        world.simulate(QPolicy.uniform(1, 2), -1, RNG(0))


def test_a_spec_says_what_is_wrong():
    good = {"lows": (0.0,), "highs": (1.0,), "actions": 2, "horizon": 5}
    spec = BoxSpec(**good)
    assert repr(spec) == repr(BoxSpec(np.zeros(1), np.ones(1), np.int64(2), 5, [0, 1]))
    assert BoxSpec(**good, features=Grid((0.0,), (1.0,), (3,))) != spec
    wrong = [
        ({"lows": (0.0, 0.0)}, "less than highs"),
        ({"lows": (math.nan,)}, "lows must be a sequence of numbers"),
        ({"highs": (math.inf,)}, "finite unless there are features"),
        ({"reward_range": (0.0, math.inf)}, "reward_range"),
        ({"discount": 1.0}, "discount"),
        ({"features": Grid((0.0,) * 2, (1.0,) * 2, (2, 2))}, "must take"),
    ]
    for change, match in wrong:
        with pytest.raises(InvalidArgument, match=match):
            BoxSpec(**(good | change))
