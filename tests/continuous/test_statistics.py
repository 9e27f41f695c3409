"""Visits and residuals: brute force, declared sensitivities, hostile users."""

import math

import numpy as np
import pytest

from tacit import check_statistic
from tacit.continuous import BoxSpec, Grid, Polynomial
from tacit.continuous.estimate import bumps, root_of
from tacit.continuous.statistics import ResidualSums, Units, VisitSums, steps_of
from tacit.continuous.sum_loops import FINE
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block
from tests.continuous.blocks import random_users

SPEC = BoxSpec((0.0,), (1.0,), actions=2, horizon=4, reward_range=(0.0, 0.5), discount=0.9)
GRID = Grid((0.0,), (1.0,), (5,))
QUADRATIC = Polynomial((1.0,), clip=1.5, degree=2)
KERNEL = bumps(GRID.points, 0.3)
ROOT = root_of(KERNEL)


def users(rng, count):
    return random_users(rng, count, SPEC, beyond=0.1)


def residuals(**changes):
    rng = np.random.default_rng(0)
    given = {
        "spec": SPEC,
        "features": GRID,
        "root": ROOT,
        "values": rng.normal(size=(2, 5)),
        "predictions": rng.normal(size=(2, 5)),
        "clip": 0.7,
        "discount": 0.9,
        "units": Units(0.25, 0.5, -1.0, (-math.inf, math.inf)),
        "offset": 0.1,
    }
    return ResidualSums(**given | changes)


def rounded(states):
    """The nearest of the places that a grid of one coordinate tells apart, within a cell."""
    cells, each = len(GRID.points) - 1, FINE - 1
    return np.rint(np.clip(states, 0.0, 1.0) * cells * each) / (cells * each)


def by_hand(statistic, block):
    """Step by step, as the class says it."""
    rows, units = [], statistic.units
    for u in range(block.users):
        total = np.zeros((SPEC.actions, statistic.root.shape[1]))
        length = int(block["lengths"][u])
        for t in range(min(length, SPEC.horizon)):
            s, ahead = (statistic.features(rounded(block["states"][u, k])) for k in (t, t + 1))
            a = int(block["actions"][u, t])
            low, high = units.value_range
            value = min(high, max(low, float((statistic.values @ ahead).max()) - statistic.offset))
            if t + 1 == length:
                if units.ending is None:
                    continue
                value = units.ending
            reward = (float(block["rewards"][u, t]) - units.centre) / units.unit
            e = reward + statistic.discount * value - float(statistic.predictions[a] @ s)
            total[a] += e * (s @ statistic.root)
        norm = float(np.linalg.norm(total))
        rows.append((total * min(1.0, statistic.clip / max(norm, 1e-300))).ravel())
    return np.array(rows)


@pytest.mark.parametrize("ending", [None, -1.0])
@pytest.mark.parametrize("clip", [0.7, 100.0])
def test_residuals_are_what_they_are_by_hand(ending, clip):
    block = users(np.random.default_rng(1), 50)
    statistic = residuals(units=Units(0.25, 0.5, ending, (-0.5, 0.8)), clip=clip)
    np.testing.assert_allclose(statistic.vectors(block), by_hand(statistic, block), atol=1e-12)


@pytest.mark.parametrize("points", [5, 200])
def test_roots_are_those_of_the_kernel(points):
    """Also of fine grids, on which it is singular: fewer coordinates, and no jitter."""
    gram = bumps(np.linspace(0.0, 1.0, points)[:, np.newaxis], 0.5)
    root = root_of(gram)
    assert (root.shape[1] < points) == (points > 5)
    np.testing.assert_allclose(root @ root.T, gram, atol=1e-10)
    assert gram[0, -1] == pytest.approx(math.exp(-2.0))


def test_visits_are_what_they_are_by_hand():
    block = users(np.random.default_rng(3), 40)
    steps = steps_of(block, SPEC)
    for features in (GRID, QUADRATIC):
        statistic = VisitSums(SPEC, features, clip=1e6)
        found = statistic.layout.unpack(statistic.total(block))["visits"]
        states = steps.states[:, :-1][steps.valid]
        phi = features(rounded(states) if features is GRID else states)
        wanted = phi.sum(axis=0) if features is GRID else phi.T @ phi
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_an_end_at_the_last_step_is_told_from_none():
    block = users(np.random.default_rng(4), 30)
    H = SPEC.horizon
    for length, last in ((H, True), (H + 1, False)):
        full = Block(30, {**block.arrays, "lengths": np.full(30, length)})
        assert steps_of(full, SPEC).valid.all()
        assert not steps_of(full, SPEC).ended[:, :-1].any()
        assert (steps_of(full, SPEC).ended[:, -1] == last).all()


@pytest.mark.parametrize("features", [GRID, QUADRATIC])
def test_visits_withstand_attacks(features):
    check_statistic(VisitSums(SPEC, features, clip=1.5), users, rounds=15)


def test_residuals_withstand_attacks():
    report = check_statistic(residuals(), users, rounds=15)
    assert report.tightness["replace-one l2"] > 0.9
    identity = {"features": QUADRATIC, "root": np.eye(3)}
    three = {"values": np.ones((2, 3)), "predictions": np.ones((2, 3))}
    check_statistic(residuals(**identity, **three), users, rounds=15)


def test_two_users_attain_the_sensitivity():
    zeros = np.zeros((2, 5))
    statistic = residuals(values=zeros, predictions=zeros, offset=0.0)
    block = users(np.random.default_rng(5), 2)
    arrays = dict(block.arrays)
    arrays["states"] = np.full((2, 5, 1), 0.5)
    arrays["actions"] = np.zeros((2, 4), dtype=np.int64)
    arrays["rewards"] = np.array([[0.0] * 4, [0.5] * 4])
    arrays["lengths"] = np.full(2, 4)
    one, other = statistic.vectors(Block(2, arrays))
    assert np.linalg.norm(one - other) == pytest.approx(statistic.l2(Relation.REPLACE_ONE))
