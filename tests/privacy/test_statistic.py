"""Statistics: declared sensitivities are attained and never exceeded, hostile values count zero."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit import JointDP, LocalDP, NonPrivate, Relation, check_statistic
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, gate_total, pack, unpack

ZERO = Relation.ZERO_OUT


def vectors_of(dimension):
    """Random directions of random lengths, and the corners of the cube."""

    def sample(rng, users):
        values = rng.normal(size=(users, dimension)) * 10 ** rng.uniform(-3, 3, (users, 1))
        corners = rng.choice([-1.0, 1.0], (users, dimension)) * 100.0
        values = np.where(rng.random((users, 1)) < 0.5, corners, values)
        values[0], values[1] = 50.0, -50.0
        return Block(users, {"values": values})

    return sample


def one_hots_of(steps, cells, valued):
    def sample(rng, users):
        arrays = {"cells": rng.integers(0, cells, (users, steps))}
        if valued:
            arrays["values"] = rng.choice([0.0, 0.3, 1.0], (users, steps))
        return Block(users, arrays)

    return sample


def moments_of(steps, rows, columns):
    """Random steps, constant trajectories along axes and their alternating twins."""

    def sample(rng, users):
        p = rng.normal(size=(users, steps, rows)) * 10 ** rng.uniform(-2, 2, (users, 1, 1))
        q = rng.normal(size=(users, steps, columns)) * 10 ** rng.uniform(-2, 2, (users, 1, 1))
        axis, sign = np.eye(rows), (-1.0) ** np.arange(steps)
        half = users // 2
        p[:half] = 9.0 * axis[rng.integers(0, rows, half)][:, np.newaxis]
        q[:half] = 9.0 * np.eye(columns)[rng.integers(0, columns, half)][:, np.newaxis]
        flip = rng.random(half) < 0.5
        q[:half][flip] *= -1.0
        alternate = rng.random(half) < 0.3
        p[:half][alternate] *= sign[:, np.newaxis]
        q[:half][rng.random(half) < 0.2] = 0.0
        return Block(users, {"p": p, "q": q})

    return sample


@pytest.mark.parametrize(("dimension", "radius"), [(1, 1.0), (3, 0.2), (8, 5.0)])
def test_clipped_sum(dimension, radius):
    check_statistic(ClippedSum(dimension, radius), vectors_of(dimension), attained=0.97)


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize(("steps", "cells"), [(1, 2), (4, 3), (6, 10)])
def test_one_hot_counts(steps, cells, valued):
    report = check_statistic(
        OneHotCounts(steps, cells, valued), one_hots_of(steps, cells, valued), attained=0.97
    )
    assert report.declared["replace-one l1"] == (4 if valued else 2) * steps


def test_gram_cross():
    statistic = GramCross(rows=3, columns=2, steps=4, weight=0.8, tau=2.5)
    report = check_statistic(statistic, moments_of(4, 3, 2))
    assert report.tightness["replace-one l2"] > 0.97


def test_common_factor_keeps_the_regression_exact():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3, 2))
    p = rng.normal(size=(50, 4, 3)) * 10
    statistic = GramCross(rows=3, columns=2, steps=4, tau=0.5)
    parts = statistic.layout.unpack(statistic.total(Block(50, {"p": p, "q": p @ theta})))
    assert np.allclose(np.linalg.solve(parts["gram"], parts["cross"]), theta)


def test_one_hot_counts_by_hand():
    statistic = OneHotCounts(steps=2, cells=3, valued=True)
    block = Block(
        3,
        {
            "cells": np.array([[0, 2], [0, 7], [1, 1]]),
            "values": np.array([[0.5, 1.0], [9.0, 1.0], [np.nan, 0.25]]),
        },
    )
    parts = statistic.layout.unpack(statistic.total(block))
    assert parts["counts"].tolist() == [[2, 0, 0], [0, 1, 1]]
    assert parts["sums"].tolist() == [[1.5, 0, 0], [0, 0.25, 1.0]]


def test_aggregate_blocks_carry_sums():
    statistic = OneHotCounts(steps=1, cells=2)
    block = Block(10**9, {"counts": np.array([[4.0, 6.0]])}, aggregate=True)
    assert statistic.total(block).tolist() == [4.0, 6.0]
    with pytest.raises(InvalidArgument, match="aggregate"):
        ClippedSum(2).total(Block(5, {"values": np.zeros(2)}, aggregate=True))
    with pytest.raises(InvalidArgument, match="single users"):
        statistic.contributions(block)


@pytest.mark.parametrize(
    ("statistic", "arrays"),
    [
        (ClippedSum(3), {"values": np.zeros((0, 3))}),
        (OneHotCounts(2, 3), {"cells": np.zeros((0, 2), dtype=int)}),
        (GramCross(2, 1, 2), {"p": np.zeros((0, 2, 2)), "q": np.zeros((0, 2, 1))}),
    ],
)
def test_blocks_without_users_are_fine(statistic, arrays):
    block = Block(0, arrays)
    statistic.check(block)
    assert statistic.contributions(block).shape == (0, statistic.layout.size)
    assert not statistic.total(block).any()


@dataclass(frozen=True)
class NoClip(ClippedSum):
    def vectors(self, block):
        return np.nan_to_num(np.asarray(block["values"], dtype=float), posinf=0, neginf=0)


@dataclass(frozen=True)
class SeparateFactors(GramCross):
    """Gram and cross clipped with different factors: the regression breaks, so does the bound."""

    def vectors(self, block):
        p = np.nan_to_num(np.asarray(block["p"]), posinf=0, neginf=0, nan=0)
        gram = np.einsum("uhi,uhj->uij", p, p)
        clean = super().vectors(block)
        first = self.layout.parts[0].size
        clean[:, :first] = pack(gram).reshape(block.users, -1)
        return clean


@dataclass(frozen=True)
class InvalidIsNotZero(OneHotCounts):
    """Clamps invalid cells into range instead of dropping them."""

    def vectors(self, block):
        cells = np.clip(np.asarray(block["cells"]), 0, self.cells - 1)
        return super().vectors(Block(block.users, {"cells": cells}))


@pytest.mark.parametrize(
    ("broken", "sample", "message"),
    [
        (NoClip(2), vectors_of(2), "sensitivity"),
        (SeparateFactors(2, 1, 2), moments_of(2, 2, 1), "sensitivity"),
        (InvalidIsNotZero(3, 4), one_hots_of(3, 4, False), "zero"),
    ],
)
def test_broken_statistics_are_caught(broken, sample, message):
    with pytest.raises(CheckFailed, match=message):
        check_statistic(broken, sample)


def test_a_loose_bound_is_reported():
    @dataclass(frozen=True)
    class Loose(ClippedSum):
        def l2(self, relation):
            return 1.5 * super().l2(relation)

    assert check_statistic(Loose(2), vectors_of(2)).tightness["replace-one l2"] < 0.7
    with pytest.raises(CheckFailed, match="loose"):
        check_statistic(Loose(2), vectors_of(2), attained=0.95)


def test_the_gate_clips_what_a_broken_statistic_lets_through():
    """Defence in depth: zero-out bounds hold for any vectors, however wrong the statistic."""
    block = Block(3, {"values": np.array([[1e9, 0.0], [np.nan, 1.0], [0.3, 0.4]])})
    vectors = NoClip(2).contributions(block)
    assert np.linalg.norm(vectors[0]) == pytest.approx(1.0)
    assert vectors[2].tolist() == [0.3, 0.4]

    @dataclass(frozen=True)
    class Poison(ClippedSum):
        def vectors(self, block):
            return np.full((block.users, self.dimension), np.nan)

    assert not Poison(2).contributions(block).any()


@settings(max_examples=200, deadline=None)
@given(
    values=hnp.arrays(
        np.float64, (2, 5), elements=st.floats(allow_nan=True, allow_infinity=True, width=64)
    ),
    radius=st.floats(1e-6, 1e6),
)
def test_clipped_sum_for_any_floats(values, radius):
    first, second = ClippedSum(5, radius).contributions(Block(2, {"values": values}))
    assert np.linalg.norm(first - second) <= 2 * radius * (1 + 1e-9)
    for row, vector in zip(values, (first, second), strict=True):
        if not np.isfinite(row).all():
            assert not vector.any()
        elif np.abs(row).max() < radius and np.linalg.norm(row / radius) <= 1 - 1e-9:
            assert np.array_equal(vector, row)


@settings(max_examples=50, deadline=None)
@given(d=st.integers(1, 6), stack=st.integers(1, 3), seed=st.integers(0, 99))
def test_packing_symmetric_matrices_is_an_isometry(d, stack, seed):
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(stack, d, d))
    matrices += np.swapaxes(matrices, 1, 2)
    assert np.linalg.norm(pack(matrices)) == pytest.approx(np.linalg.norm(matrices))
    assert np.allclose(unpack(pack(matrices), d), matrices, rtol=1e-15)


@pytest.mark.parametrize(
    "arguments",
    [
        {"users": -1, "arrays": {}},
        {"users": 2, "arrays": {"a": np.zeros(3)}},
        {"users": 1, "arrays": {"a": np.array([object()])}},
        {"users": 1, "arrays": {"a": np.array(["text"])}},
        {"users": 2, "arrays": {"a": [[1], [2**70]]}},
    ],
)
def test_bad_blocks_are_refused(arguments):
    with pytest.raises(InvalidArgument):
        Block(**arguments)


def test_extended_precision_does_not_warn():
    block = Block(1, {"values": np.full((1, 1), np.longdouble("1e4000"))})
    assert not ClippedSum(1).total(block).any()


def test_fingerprints_tell_statistics_apart():
    prints = {
        s.fingerprint
        for s in (ClippedSum(2), ClippedSum(3), ClippedSum(2, 2.0), OneHotCounts(1, 2))
    }
    assert len(prints) == 4

    @dataclass(frozen=True)
    class Centred(ClippedSum):
        centre: np.ndarray | float = 0.0

    long = np.zeros(5000)
    other = long.copy()
    other[2500] = 1.0
    centres = {Centred(2, 1.0, c).fingerprint for c in (0.0, 1.0, long, other)}
    assert len(centres) == 4
    assert ClippedSum(2).fingerprint == ClippedSum(2).fingerprint


@dataclass(frozen=True)
class BoastfulSum(ClippedSum):
    """A statistic of somebody else's, whose own sum forgets the clip."""

    def total(self, block):
        return np.asarray(block["values"], dtype=np.float64).sum(axis=0)


@pytest.mark.parametrize("model", ["real", "simulated", "local", "none"])
def test_sums_of_other_peoples_statistics_are_clipped(model):
    """Whether it is summed in a real run, in a simulation, or without privacy."""
    statistic = BoastfulSum(1)
    block = Block(2, {"values": np.array([[1e9], [0.5]])})
    privacy = JointDP(1.0, 1e-6)
    if model == "local":
        privacy = LocalDP(1.0, 1e-6)
    elif model == "none":
        privacy = NonPrivate()
    seed = 0 if model in ("simulated", "local") else None
    curator = privacy.curator(noise_seed=seed)
    curator.add(block)
    released = curator.release(statistic)
    assert abs(float(released["sum"][0]) - 1.5) < 1e3
    assert float(gate_total(statistic, block)[0]) == 1.5
    # The package's own are summed by themselves.
    assert gate_total(ClippedSum(1), block)[0] == ClippedSum(1).total(block)[0] == 1.5
