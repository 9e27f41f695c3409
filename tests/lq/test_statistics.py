"""What linear-quadratic agents ask: attacked, by hand, unbiased, and equal however computed."""

import math

import numpy as np
import pytest

from tacit import Block, Relation, check_statistic
from tacit.lq import Ball, GainPolicy, LQWorld
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.statistic import Statistic, StreamedBlock

N, D, H = 2, 1, 4
P = N + D


def statistic(**options):
    rng = np.random.default_rng(3)
    own = {
        "weight": 1.7,
        "centre": rng.normal(size=(P, N)) / 2.0,
        "inputs": np.eye(P) + 0.2 * rng.normal(size=(P, P)),
    }
    own |= {"tau": 3.0, "floor": 0.1, "spread": np.diag([0.2, 0.1, 0.0])}
    return TrajectorySums(N, D, H, **own | options)


def users(rng, count, scale=1.0):
    """Users of all sizes, some who stay where they are, some who end early."""
    sizes = scale * np.exp(2.0 * rng.normal(size=(count, 1, 1)))
    states = sizes * rng.normal(size=(count, H + 1, N))
    actions = sizes * rng.normal(size=(count, H, D))
    still = rng.random(count) < 0.5
    states[still] = 0.0
    axis = rng.integers(0, P, size=count)
    for user in np.flatnonzero(still):
        size = 10.0 ** rng.uniform(0.0, 4.0)
        if axis[user] < N:
            states[user, 0, axis[user]] = size
        else:
            actions[user, :, axis[user] - N] = size
    lengths = np.where(rng.random(count) < 0.8, H, rng.integers(0, H + 1, count))
    return Block(count, {"states": states, "actions": actions, "lengths": lengths})


def one(states, actions, length=H):
    return Block(
        1,
        {
            "states": np.array(states, dtype=float).reshape(1, H + 1, N),
            "actions": np.array(actions, dtype=float).reshape(1, H, D),
            "lengths": np.array([length]),
        },
    )


def test_the_declared_sensitivity_survives_an_attack_and_is_attained():
    report = check_statistic(statistic(), users, attained=0.97)
    assert max(report.tightness.values()) <= 1.0 + 1e-9


def test_hostile_users_never_exceed_the_bound():
    asked = statistic()
    rng = np.random.default_rng(0)
    extremes = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e154, 1e-308, 0.0, 1.0])
    count = 20_000
    states = rng.choice(extremes, size=(count, H + 1, N))
    actions = rng.choice(extremes, size=(count, H, D))
    ordinary = rng.random(states.shape) < 0.6
    states[ordinary] = rng.normal(size=states.shape)[ordinary]
    ordinary = rng.random(actions.shape) < 0.6
    actions[ordinary] = rng.normal(size=actions.shape)[ordinary]
    lengths = rng.integers(-5, H + 5, size=count)
    block = Block(count, {"states": states, "actions": actions, "lengths": lengths})
    vectors = asked.vectors(block)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1).max() <= asked.l2(Relation.ZERO_OUT) * (1.0 + 1e-12)
    apart = np.linalg.norm(vectors - np.roll(vectors, 1, axis=0), axis=1).max()
    assert apart <= asked.l2(Relation.REPLACE_ONE) * (1.0 + 1e-12)


def test_bounds_are_those_of_the_proof():
    asked = statistic(tau=0.7)
    assert asked.l2(Relation.ZERO_OUT) == 0.7
    assert asked.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2.0) * 0.7, rel=1e-15)
    # Two users in orthogonal directions, of which caps take next to nothing.
    far = TrajectorySums(N, D, H, tau=0.7, floor=1e-9)
    first = one([[5, 0], [0, 0], [0, 0], [0, 0], [0, 0]], np.zeros(H))
    second = one([[0, 5], [0, 0], [0, 0], [0, 0], [0, 0]], np.zeros(H))
    distance = np.linalg.norm(far.vectors(first) - far.vectors(second))
    assert distance == pytest.approx(far.l2(Relation.REPLACE_ONE), rel=1e-9)


def test_one_user_by_hand():
    asked = TrajectorySums(
        N, D, H, tau=2.5, weight=2.0, floor=0.5, centre=np.diag([0.5, 0.0, 0.0])[:, :2]
    )
    block = one([[1, 0], [0.5, 0.2], [0, 3.0], [0, 0], [0, 0]], [0.0, 1.0, 0, 0], length=3)
    parts = asked.layout.unpack(asked.vectors(block)[0])
    # Step 1: z = (1, 0, 0), r = (0, .2) within the cap .5; energy 1 + 2 * .25.
    # Step 2: z = (.5, .2, 1), r = (-.25, 3) cut to .5; energy 1.29 + .5, and 1 is left of tau.
    z, r = np.array([0.5, 0.2, 1.0]), np.array([-0.25, 3.0])
    r *= 0.5 / np.linalg.norm(r)
    weight = 1.0 / 1.79
    gram = np.outer([1, 0, 0], [1, 0, 0]) + weight * np.outer(z, z)
    cross = np.outer([1, 0, 0], [0, 0.2]) + weight * np.outer(z, r)
    np.testing.assert_allclose(parts["gram"], gram, atol=1e-15)
    np.testing.assert_allclose(parts["cross"], cross, atol=1e-15)


def test_steps_after_the_end_and_steps_that_are_no_numbers_do_not_count():
    asked = statistic(tau=100.0)
    rng = np.random.default_rng(5)
    states, actions = rng.normal(size=(1, H + 1, N)), rng.normal(size=(1, H, D))
    short = one(states, actions, length=2)
    cut = states.copy()
    cut[0, 3:] = np.nan
    np.testing.assert_array_equal(asked.vectors(short), asked.vectors(one(cut, actions)))
    assert not asked.vectors(one(states, actions, length=0)).any()
    assert not asked.vectors(one(np.full((H + 1, N), np.inf), actions)).any()


def test_totals_are_the_sum_of_the_vectors():
    asked, block = statistic(), users(np.random.default_rng(1), 3000)
    total = asked.total(block)
    np.testing.assert_allclose(total, Statistic.total(asked, block), rtol=1e-12, atol=1e-9)
    halves = StreamedBlock(
        3000, lambda: iter([block.take(slice(1000)), block.take(slice(1000, None))])
    )
    np.testing.assert_allclose(asked.total(halves), total, rtol=1e-12, atol=1e-9)
    assert not asked.total(block.take(slice(0, 0))).any()


def test_a_predictable_clip_does_not_bias():
    """Regression on clipped sums of a million users; z-scores of the error in Theta.

    Large noise and a tau that cuts nearly everybody. Predictably clipped, the normalised error of
    each entry is standard normal up to small terms; 6 entries beyond 5.5 have chance 3e-7.
    """
    world = LQWorld(
        [[0.9, 0.2], [0.0, 0.8]],
        [[0.0], [0.5]],
        np.eye(2),
        np.eye(1),
        horizon=H,
        noise=1.0,
        start=Ball(1.0, (0.0, 0.0), surface=True),
    )
    policy = GainPolicy(np.zeros((H, 1, 2)), noise=0.5)
    asked = TrajectorySums(2, 1, H, tau=2.0, weight=1.0, centre=world.theta, floor=1.0)
    block = world.simulate(policy, 200_000, np.random.default_rng(8), "streamed")
    assert isinstance(block, StreamedBlock)
    parts = asked.layout.unpack(asked.total(block))
    variance = np.linalg.inv(parts["gram"]) * 0.25
    error = np.linalg.solve(parts["gram"], parts["cross"])
    assert (np.abs(error) / np.sqrt(np.diag(variance))[:, np.newaxis]).max() < 5.5


def test_wrong_shapes_are_refused_and_fields_are_read_only():
    asked = statistic()
    wrong = Block(
        2, {"states": np.zeros((2, H, N)), "actions": np.zeros((2, H, D)), "lengths": np.full(2, H)}
    )
    with pytest.raises(InvalidArgument, match="states"):
        asked.check(wrong)
    with pytest.raises(ValueError, match="read-only"):
        asked.centre[0, 0] = 1.0


class ResidualsUncut(TrajectorySums):
    """Pays for the cap, but lets residuals be as long as they are."""

    def vectors(self, block):
        states = np.asarray(block["states"], dtype=float)
        z = np.concatenate([states[:, :-1], np.asarray(block["actions"])], axis=-1)
        p, r = z @ self.inputs.T, states[:, 1:] - z @ self.centre
        energy = (p**2).sum(-1) + 0.5 * self.weight**2 * self.floor**2
        s = np.minimum(1.0, (self.tau or 0.0) / H / energy)[..., np.newaxis]
        sums = {
            "gram": np.einsum("uhi,uhj->uij", s * p, p),
            "cross": np.einsum("uhi,uhj->uij", s * p, r),
        }
        return self.layout.pack(sums, users=block.users)

    def contributions(self, block):
        return self.vectors(block)

    def total(self, block):
        return Statistic.total(self, block)


def test_wrong_clips_are_found():
    asked = ResidualsUncut(N, D, H, tau=3.0, weight=1.7, floor=0.1)
    with pytest.raises(CheckFailed):
        check_statistic(asked, users)
