"""Exact noise: the samplers' distributions, the grid to the last bit, what it costs and refuses.

Tests of distributions are chi-square tests that fail by chance with a probability of 1e-7.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tacit import (
    LDPOB,
    LDPUCRLVTR,
    LSVIUCB,
    OFU,
    PUCB,
    UCBPO,
    UCBVI,
    AdaptiveLSVIUCB,
    BatchedLSVIUCB,
    Block,
    CertaintyEquivalence,
    FittedFunctionalQ,
    FunctionalQ,
    JointDP,
    LinOptPO,
    LinOptVI,
    LocalDP,
    LSVIUCBPlusPlus,
    Relation,
)
from tacit.audit.check_agent import check_agent
from tacit.audit.watched_gate import Passage, WatchedGate
from tacit.continuous import (
    InputPerturbation,
    OutputPerturbation,
    PrivatePolicyEvaluation,
    cartpole,
    line,
)
from tacit.finite.visits import VisitCounts
from tacit.linear import simplex, two_state
from tacit.lq import double_integrator
from tacit.mixture import mixture_of_models
from tacit.privacy import exact
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import LocalCurator, noise_scale, report
from tacit.privacy.errors import (
    BudgetExceeded,
    DoubleSpend,
    InvalidArgument,
    MissingExtra,
)
from tacit.privacy.exact import ExactNoise, grid_sensitivity, grid_step, grid_total
from tacit.privacy.gaussian_dp import delta_from_mu, mu_from_budget
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Statistic, StreamedBlock
from tacit.privacy.zcdp import epsilon_from_rho, rho_from_budget
from tacit.simulation.run import run
from tacit.tabular import riverswim

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

JOINT = JointDP(1.0, 1e-6, sampler="exact")
PURE = JointDP(1.0, 0.0, sampler="exact")
LOCAL = LocalDP(4.0, 1e-6, sampler="exact")
LAPLACE = LocalDP(4.0, 0.0, sampler="exact")
BY_CHANCE = 1e-7


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


# Distributions.


def masses(pure: bool, scale: float, reach: int) -> Floats:
    """The probabilities of -reach..reach."""
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-np.abs(z) / scale) if pure else np.exp(-0.5 * (z / scale) ** 2)
    return weights / weights.sum()


def assert_drawn_from(drawn: Ints, probabilities: Floats) -> None:
    """Chi-square over -reach..reach, rare values joined at both ends."""
    reach = len(probabilities) // 2
    assert np.abs(drawn).max() <= reach
    counts = np.bincount(drawn + reach, minlength=len(probabilities)).astype(float)
    expected = probabilities * len(drawn)
    edges = np.cumsum(expected)
    first = int(np.searchsorted(edges, 10.0))
    last = len(expected) - int(np.searchsorted(np.cumsum(expected[::-1]), 10.0))
    inside = slice(first + 1, last - 1)
    seen = [counts[: first + 1].sum(), *counts[inside], counts[last - 1 :].sum()]
    meant = [expected[: first + 1].sum(), *expected[inside], expected[last - 1 :].sum()]
    assert stats.chisquare(seen, np.array(meant) * len(drawn) / sum(meant)).pvalue > BY_CHANCE


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.7])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("seed", [11, None], ids=["simulated", "opendp"])
def test_samplers_draw_from_their_masses(seed: int | None, pure: bool, scale: float) -> None:
    drawn = ExactNoise(seed).steps(pure, scale, 8_000)
    assert drawn.dtype == np.int64
    assert_drawn_from(drawn, masses(pure, scale, 200))


@pytest.mark.parametrize("scale", [54_321.5, 2.0**40, 2.0**50])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("seed", [12, None], ids=["simulated", "opendp"])
def test_large_scales_are_right_from_the_tails_to_the_last_bit(
    seed: int | None, pure: bool, scale: float
) -> None:
    """Twenty quantiles; and the lowest four bits, which are uniform up to exp(-2 (pi s / 16)^2)."""
    drawn = ExactNoise(seed).steps(pure, scale, 4_000)
    continuous = stats.laplace(scale=scale) if pure else stats.norm(scale=scale)
    bins = np.searchsorted(continuous.ppf(np.linspace(0, 1, 21)[1:-1]), drawn)
    assert stats.chisquare(np.bincount(bins, minlength=20)).pvalue > BY_CHANCE
    if scale < 2.0**50:  # A simulated candidate is a float, whose own last bits begin here.
        assert stats.chisquare(np.bincount(drawn % 16, minlength=16)).pvalue > BY_CHANCE


@pytest.mark.parametrize(("pure", "scale"), [(True, 0.5), (True, 4.0), (False, 1.5), (False, 12.0)])
def test_a_sum_of_many_draws_has_the_convolved_masses(pure: bool, scale: float) -> None:
    one = masses(pure, scale, 150)
    five = one
    for _ in range(4):
        five = np.convolve(five, one)
    drawn = ExactNoise(13).sum_of_steps(pure, scale, 5, 20_000)
    assert_drawn_from(drawn, five)
    with pytest.raises(InvalidArgument, match="user by user"):
        ExactNoise().sum_of_steps(pure, scale, 5, 1)
    assert not ExactNoise(1).sum_of_steps(pure, scale, 0, 4).any()
    with pytest.raises(InvalidArgument, match="steps"):
        ExactNoise(1).sum_of_steps(True, 1e10, 10**9, 1)


def test_within_its_range_noise_cannot_saturate() -> None:
    """At the largest scale 64 bits are 2048 Laplace scales; the next one is refused."""
    for seed in (1, None):
        source = ExactNoise(seed)
        drawn = source.laplace_steps(exact._LARGEST_SCALE, 500)
        assert np.abs(drawn).max() < 2.0**51 * 40 < 2.0**57
        for scale in (2.0 * exact._LARGEST_SCALE, math.inf, math.nan, 0.0, -1.0):
            with pytest.raises(InvalidArgument, match="steps"):
                source.laplace_steps(scale, 1)
            with pytest.raises(InvalidArgument, match="steps"):
                source.gaussian_steps(scale, 1)


def test_an_exact_source_is_no_floating_point_source() -> None:
    for draw in ("normal", "laplace"):
        with pytest.raises(InvalidArgument, match="no fractions"):
            getattr(ExactNoise(1), draw)((2,))
    with pytest.raises(InvalidArgument, match="no fractions"):
        ExactNoise(1).laplace_sum(3, (2,))
    source = ExactNoise(5)
    source.gaussian_steps(3.0, 7)
    for twin in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):  # noqa: S301
        assert isinstance(twin, ExactNoise)
        again = ExactNoise(5)
        again.gaussian_steps(3.0, 7)
        assert (twin.gaussian_steps(9.0, 5) == again.gaussian_steps(9.0, 5)).all()
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(ExactNoise())


# The grid, to the last bit.

GRAM = GramCross(2, 1, 3, weight=0.7)
COUNTS = OneHotCounts(3, 4, valued=True)
VISITS = VisitCounts(3, 2, 4)


def some_users(statistic: Statistic, users: int, seed: int, spread: float = 1.0) -> Block:
    rng = np.random.default_rng(seed)
    if isinstance(statistic, ClippedSum):
        return Block(users, {"values": spread * rng.normal(size=(users, statistic.dimension))})
    if isinstance(statistic, GramCross):
        p = spread * rng.normal(size=(users, statistic.steps, statistic.rows))
        q = spread * rng.normal(size=(users, statistic.steps, statistic.columns))
        return Block(users, {"p": p, "q": q})
    if isinstance(statistic, OneHotCounts):
        shape = (users, statistic.steps)
        cells = rng.integers(-1, statistic.cells + 1, shape)
        return Block(users, {"cells": cells, "values": spread * rng.random(shape)})
    assert isinstance(statistic, VisitCounts)
    shape = (users, statistic.horizon)
    return Block(
        users,
        {
            "states": rng.integers(-1, statistic.states, (users, statistic.horizon + 1)),
            "actions": rng.integers(-1, statistic.actions, shape),
            "rewards": spread * rng.random(shape),
        },
    )


def assert_on_grid(statistic: Statistic, parts: Any, step: float) -> Ints:
    """The release is what whole steps unpack to, bit for bit; returns the steps."""
    steps = np.rint(statistic.layout.pack(parts) / step)
    assert np.abs(steps).max() < 2.0**53
    for name, values in statistic.layout.unpack(step * steps).items():
        assert values.tobytes() == np.asarray(parts[name]).tobytes()
    return steps.astype(np.int64)


@pytest.mark.parametrize("statistic", [ClippedSum(5, 3.0), GRAM, COUNTS, VISITS], ids=str)
@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "real"])
def test_releases_are_on_the_grid(statistic: Statistic, seed: int | None) -> None:
    for model in (JOINT, PURE) if statistic is not GRAM else (JOINT,):
        curator = model.curator(noise_seed=seed)
        curator.add(some_users(statistic, 30, 1))
        step = grid_step(statistic, "l1" if model.pure else "l2")
        assert math.frexp(step)[0] == 0.5
        released = curator.release(statistic)
        assert_on_grid(statistic, released.parts, step)
        for kind in ("blocks", "binary tree", "smooth tree", "auto"):
            curator = model.curator(noise_seed=seed)
            stream = curator.stream(statistic, releases=5, kind=kind)
            for number in range(5):
                released = stream.release(some_users(statistic, 30, number))
                assert_on_grid(statistic, released.parts, step)


def test_no_zero_has_a_sign() -> None:
    """With next to no noise sums are zero, and whether it is -0.0 would be a bit about somebody."""
    loud = JointDP(1e9, 1e-6, sampler="exact")
    values = np.array([[1e-9, -1e-9], [-1e-9, 1e-9]])
    curator = loud.curator(noise_seed=1)
    curator.add(Block(2, {"values": values}))
    stream = loud.curator(noise_seed=2).stream(ClippedSum(2), releases=40, kind="binary tree")
    found = [curator.release(ClippedSum(2), mu=100.0).parts["sum"] for _ in range(40)]
    found += [stream.release(Block(2, {"values": values})).parts["sum"] for _ in range(40)]
    local = LocalDP(1e9, 1e-6, sampler="exact")
    found += [
        report(ClippedSum(2), Block(1, {"values": values[:1]}), local, noise_seed=i)
        for i in range(40)
    ]
    zeros = np.concatenate(found)
    zeros = zeros[zeros == 0.0]
    assert len(zeros) > 20
    assert not np.signbit(zeros).any()


@pytest.mark.parametrize("kind", ["blocks", "binary tree", "smooth tree"])
@pytest.mark.parametrize("epsilon", [1.0, 3e-7])
def test_counters_add_whole_numbers_without_an_error(kind: str, epsilon: float) -> None:
    """Two runs with the same noise differ by exactly their sums, at any scale and size of sum."""
    statistic = OneHotCounts(1, 2)
    model = JointDP(epsilon, 0.0, sampler="exact")
    step = grid_step(statistic, "l1")
    runs = []
    for users in (0, 10_000_000_007):
        stream = model.curator(noise_seed=4).stream(statistic, releases=12, kind=kind)
        out = []
        for _ in range(12):
            sums = Block(users, {"counts": np.array([[float(users), 0.0]])}, aggregate=True)
            out.append(assert_on_grid(statistic, stream.release(sums).parts, step)[0])
        runs.append(out)
    one = round(10_000_000_007 / step)
    assert [b - a for a, b in zip(*runs, strict=True)] == [one * (t + 1) for t in range(12)]
    assert one * 12 > 2**50
    noisiest = max(abs(a) for a in runs[0])
    assert noisiest > (2**36 if epsilon < 1 else 2**12)


def test_single_releases_add_integers_beyond_what_floats_hold() -> None:
    statistic = OneHotCounts(1, 1)
    step = grid_step(statistic, "l2")
    users = 2**44 + 1
    curator = JOINT.curator(noise_seed=9)
    for _ in range(3):
        curator.add(Block(users, {"counts": np.array([[float(users)]])}, aggregate=True))
    released = curator.release(statistic).parts["counts"][0, 0]
    sensitivity = grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", step)
    noise = ExactNoise(9).gaussian_steps(sensitivity / math.sqrt(JOINT.episode_limit), 1)[0]
    total = 3 * round(users / step) + int(noise)
    assert total > 2**53
    assert released == step * float(total)


# Sensitivity of rounded vectors.


def shift(statistic: Statistic, pair: Block, share: float, step: float) -> Floats:
    one, other = (
        grid_total(statistic, pair.take(slice(i, i + 1)), share, step).astype(float) for i in (0, 1)
    )
    return one - other


def check_pair(statistic: Statistic, pair: Block, share: float) -> float:
    """The largest ratio of what two users are apart to what they are charged for."""
    found = 0.0
    norms = [("l2", 2), ("l1", 1)] if statistic.l1(Relation.ZERO_OUT) is not None else [("l2", 2)]
    for norm, order in norms:
        step = grid_step(statistic, norm, share)  # type: ignore[arg-type]
        rounding = exact.uneven_rounding(statistic, norm, share)  # type: ignore[arg-type]
        apart = float(np.linalg.norm(shift(statistic, pair, share, step), order))
        most = grid_sensitivity(statistic, Relation.REPLACE_ONE, norm, step)  # type: ignore[arg-type]
        assert apart <= share * (most + rounding)
        for user in (0, 1):
            alone = grid_total(statistic, pair.take(slice(user, user + 1)), share, step)
            least = grid_sensitivity(statistic, Relation.ZERO_OUT, norm, step)  # type: ignore[arg-type]
            assert float(np.linalg.norm(alone.astype(float), order)) <= share * (least + rounding)
        found = max(found, apart / (share * (most + rounding)))
    return found


ATTACKED = {
    "sum": ClippedSum(4, 2.5),
    "tiny sum": ClippedSum(2, 1e-90),
    "huge sum": ClippedSum(2, 1e90),
    "counts": COUNTS,
    "gram": GRAM,
    "trajectory": GramCross(2, 2, 3, pooled=True, clip="trajectory", tau=2.0),
    "visits": VISITS,
    "pooled visits": VisitCounts(3, 2, 4, pooled=True, weight=0.6),
}


@pytest.mark.parametrize("name", ATTACKED)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1e-300, 1e-6, 0.5, 1.0, 3.0, 1e9, 1e200, math.nan, math.inf]),
    share=st.one_of(st.just(1.0), st.floats(2.0**-20, 1.0)),
)
def test_rounded_users_are_never_farther_apart(
    name: str, seed: int, size: float, share: float
) -> None:
    statistic = ATTACKED[name]
    with np.errstate(all="ignore"):
        pair = some_users(statistic, 2, seed, size)
    check_pair(statistic, pair, share)


WORST: dict[str, tuple[Statistic, Block]] = {
    "sum": (ClippedSum(4), Block(2, {"values": np.array([[0.5] * 4, [-0.5] * 4])})),
    "counts": (
        COUNTS,
        Block(2, {"cells": np.array([[0] * 3, [1] * 3]), "values": np.ones((2, 3))}),
    ),
    "gram": (
        GramCross(2, 1, 1),
        # a = 1: the worst pair has <p, r> = 1/2 and opposite q.
        Block(
            2,
            {
                "p": np.array([[[1.0, 0.0]], [[0.5, math.sqrt(0.75)]]]),
                "q": np.array([[[1.0]], [[-1.0]]]),
            },
        ),
    ),
    "visits": (
        VISITS,
        Block(
            2,
            {
                "states": np.array([[0] * 5, [1] * 5]),
                "actions": np.array([[0] * 4, [1] * 4]),
                "rewards": np.ones((2, 4)),
            },
        ),
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_pair_attains_the_sensitivity(name: str) -> None:
    statistic, pair = WORST[name]
    assert check_pair(statistic, pair, 1.0) > 0.99


def test_rounding_can_push_two_users_apart_by_all_that_is_added_for_it() -> None:
    statistic = ClippedSum(4, 2.0 * 15_000.51)
    assert grid_step(statistic, "l2") == 1.0
    pair = Block(2, {"values": 15_000.51 * np.array([[1.0] * 4, [-1.0] * 4])})
    apart = float(np.linalg.norm(shift(statistic, pair, 1.0, 1.0)))
    assert apart == 60_004.0 > statistic.l2(Relation.REPLACE_ONE) + 1.9
    most = grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", 1.0)
    assert apart <= most == pytest.approx(60_004.04)


@pytest.mark.parametrize("pure", [False, True])
def test_users_of_light_blocks_pay_for_their_rounding_too(pure: bool) -> None:
    """A vector that weighs half a step is rounded to a whole one: twice what its weight says.

    The noise of two neighbours is the same, so their difference over its scale is the true cost.
    """
    statistic, model = ClippedSum(16), PURE if pure else JOINT
    coarse = grid_step(statistic, "l1" if pure else "l2")
    straddling = 0.25 / coarse
    shares = [0.51 / straddling, 1.51 / straddling, 0.0123, 0.37, 2.0**-20, 1.0]
    for share in shares:
        released, curators = [], []
        for sign in (1.0, -1.0):
            curator = model.curator(noise_seed=3)
            curator.add(Block(1, {"values": np.zeros((1, 16))}))
            curator.add(Block(1, {"values": np.full((1, 16), sign * 0.25)}))
            released.append(curator.release(statistic, weights=[1.0, share]))
            curators.append(curator)
        apart = np.abs(released[0].parts["sum"] - released[1].parts["sum"])
        scale = float(released[0].std["sum"]) / (math.sqrt(2.0) if pure else 1.0)
        true = apart.sum() / scale if pure else float((apart**2).sum()) / scale**2
        paid = curators[0].spent(1)
        assert 0.9 * paid < true <= paid
        # On the grid of equal weights it would not be.
        steps = np.rint(share * 0.25 / coarse)
        if share == shares[0]:
            assert 2.0 * 16 * steps > 1.9 * share * 2.0 * 16 * 0.25 / coarse


def test_a_block_too_light_to_be_heard_is_left_out_and_pays_nothing() -> None:
    statistic = ClippedSum(1)
    out = []
    for value in (1.0, -1.0):
        curator = JOINT.curator(noise_seed=3)
        for content in (0.5, value):
            curator.add(Block(1, {"values": np.array([[content]])}))
        out.append(curator.release(statistic, weights=[1.0, 2.0**-21]))
        assert curator.spent(1) == 0.0
        assert curator.spent(0) == pytest.approx(JOINT.episode_limit)
    assert out[0].parts["sum"] == out[1].parts["sum"]


def test_decaying_releases_stay_within_budget_for_ever() -> None:
    """40 blocks, the oldest far below what is heard; the true cost of user 0 is added up."""
    statistic = ClippedSum(3)
    runs = []
    for sign in (1.0, -1.0):
        curator, out = JOINT.curator(noise_seed=8), []
        for number in range(40):
            value = sign * 0.57 if number == 0 else 0.1
            curator.add(Block(1, {"values": np.full((1, 3), value)}))
            released = curator.release(statistic, decay=1.6)
            out.append((released.parts["sum"], released.std["sum"]))
        runs.append(out)
        assert curator.spent(0) <= JOINT.episode_limit * (1 + 1e-12)
    true = sum(float(((a - b) ** 2).sum()) / std**2 for (a, std), (b, _) in zip(*runs, strict=True))
    assert 0.9 * JOINT.episode_limit < true < JOINT.episode_limit


# Odd users, odd blocks.


def test_hostile_users_empty_blocks_and_blocks_in_parts() -> None:
    statistic = ClippedSum(2)
    step = grid_step(statistic, "l2")
    values = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e300, -1e300], [0.3, 0.4]])
    total = grid_total(statistic, Block(4, {"values": values}), 1.0, step)
    clean = np.array([[0.0, 0.0], [0.0, 0.0], [math.sqrt(0.5), -math.sqrt(0.5)], [0.3, 0.4]])
    assert (total == np.rint(clean / step).sum(axis=0)).all()
    empty = Block(0, {"values": np.zeros((0, 2))})
    assert not grid_total(statistic, empty, 1.0, step).any()
    parts = [Block(2, {"values": values[:2]}), Block(2, {"values": values[2:]})]
    streamed = StreamedBlock(4, lambda: iter(parts))
    assert (grid_total(statistic, streamed, 1.0, step) == total).all()
    with pytest.raises(InvalidArgument, match="parts of 4"):
        grid_total(statistic, StreamedBlock(5, lambda: iter(parts)), 1.0, step)
    curator = JOINT.curator()
    stream = curator.stream(statistic, releases=2)
    assert stream.release(empty).users == 0
    assert stream.release(Block(4, {"values": values})).users == 4


def test_masks_hide_entries_and_change_no_others() -> None:
    statistic = ClippedSum(3)
    values = []
    for mask in (None, {"sum": np.array([True, False, True])}):
        curator = JOINT.curator(noise_seed=6)
        curator.add(some_users(statistic, 9, 1))
        values.append(curator.release(statistic, mask=mask).parts["sum"])
    assert values[1][1] == 0.0
    assert values[0][[0, 2]].tolist() == values[1][[0, 2]].tolist()


# What does not fit is refused before anybody pays.


def test_sums_that_do_not_fit_are_refused_before_anybody_pays() -> None:
    statistic = OneHotCounts(1, 1)

    def sums(users: int) -> Block:
        return Block(users, {"counts": np.array([[float(users)]])}, aggregate=True)

    curator = JOINT.curator(noise_seed=1)
    for _ in range(2):
        curator.add(sums(2**46))
    assert curator.release(statistic, blocks=[0], mu=0.01)
    before = curator.spent(0)
    with pytest.raises(InvalidArgument, match="fewer users"):
        curator.release(statistic, mu=0.01, weights=[1.0, 1e-3])
    assert (curator.spent(0), curator.spent(1)) == (before, 0.0)
    # A running sum is kept in floats, and all of it counts, also after a resume.
    stream = JOINT.curator(noise_seed=1).stream(statistic, releases=9)
    stream.release(sums(2**37))
    stream.release(sums(2**36))
    with pytest.raises(InvalidArgument, match=r"must stay below 4\.5e"):
        stream.release(sums(2**37))
    assert stream.counter.released == 2
    assert stream._curator.blocks == ()
    with pytest.raises(InvalidArgument, match=r"must stay below 4\.5e"):
        JOINT.curator(noise_seed=1, users=2**40).stream(statistic, releases=9)


def test_noise_that_does_not_fit_is_refused_before_anybody_pays() -> None:
    statistic = ClippedSum(100)
    tiny = JointDP(1e-12, 0.0, sampler="exact")
    curator = tiny.curator(noise_seed=1)
    curator.add(some_users(statistic, 3, 1))
    with pytest.raises(InvalidArgument, match="too small"):
        curator.release(statistic)
    assert curator.spent(0) == 0.0
    with pytest.raises(InvalidArgument, match="too small"):
        JointDP(1e-6, 0.0, sampler="exact").curator().stream(statistic, releases=9)
    with pytest.raises(InvalidArgument, match="too small"):
        report(statistic, some_users(statistic, 1, 1), LocalDP(1e-12, 0.0, sampler="exact"))


@pytest.mark.parametrize("radius", [5e-324, 1e-300, 1e-149, 1e160, 1e299])
def test_sensitivities_beyond_any_grid_are_refused(radius: float) -> None:
    statistic = ClippedSum(1, radius)
    with pytest.raises(InvalidArgument, match="no grid"):
        grid_step(statistic, "l2")
    curator = JOINT.curator(noise_seed=1)
    curator.add(Block(1, {"values": np.ones((1, 1))}))
    with pytest.raises(InvalidArgument, match="no grid"):
        curator.release(statistic)
    assert curator.spent(0) == 0.0


def test_designs_that_no_grid_holds_are_refused_when_they_are_made() -> None:
    for kind in ("square root", "fresh"):
        with pytest.raises(InvalidArgument, match="smooth tree"):
            JOINT.curator().stream(ClippedSum(1), releases=9, kind=kind)
    with pytest.raises(InvalidArgument, match="own source"):
        JOINT.curator(source=ExactNoise(1))
    with pytest.raises(InvalidArgument, match="bits"):
        LocalDP(1.0, 0.0, mechanism="randomised response", sampler="exact")
    for model in (JointDP, LocalDP):
        with pytest.raises(InvalidArgument, match="floating-point or exact"):
            model(1.0, 1e-6, sampler="discrete")
    spec = riverswim(3, 4).spec
    with pytest.raises(InvalidArgument, match="smooth tree"):
        UCBVI(spec, users=100, privacy=JOINT, counter="square root")
    with pytest.raises(InvalidArgument, match="as printed"):
        UCBVI(spec, users=16, privacy=JOINT, stationary=False, calibration="as_printed")
    with pytest.raises(InvalidArgument, match="as printed"):
        LSVIUCB(two_state(horizon=3).spec, users=99, privacy=JOINT, calibration="as_printed")
    with pytest.raises(InvalidArgument, match="as printed"):
        LinOptVI(MIXTURE.spec, users=99, privacy=JOINT, calibration="as_printed")


def test_without_opendp_real_noise_is_refused_before_any_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    statistic, data = ClippedSum(1), some_users(ClippedSum(1), 1, 1)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    for model in (JOINT, PURE, LOCAL, LAPLACE):
        with pytest.raises(MissingExtra, match=r"tacit\[exact\]"):
            model.curator()
    monkeypatch.setattr(Statistic, "contributions", lambda *_: pytest.fail("data was read"))
    with pytest.raises(MissingExtra):
        report(statistic, data, LOCAL)
    with pytest.raises(MissingExtra):
        UCBVI(riverswim(3, 4).spec, users=100, privacy=JOINT)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    # A simulation never needs it, not even to be resumed.
    curator = JOINT.curator(noise_seed=1)
    curator.add(data)
    curator.save(tmp_path / "save")
    JointCurator.load(tmp_path / "save").release(statistic)


# Accounts.


def test_budgets_are_spent_in_zcdp() -> None:
    rho = rho_from_budget(1.0, 1e-6)
    assert JOINT.episode_limit == 2.0 * rho < mu_from_budget(1.0, 1e-6) ** 2
    assert LOCAL.report_cost == math.sqrt(2.0 * rho_from_budget(4.0, 1e-6))
    assert PURE.episode_limit == LAPLACE.report_cost / 4.0 == 1.0
    thrice = JointDP(1.0, 1e-6, episodes_per_user=3, sampler="exact")
    assert thrice.episode_limit == pytest.approx(2.0 * rho / 9.0)
    curator = JOINT.curator(noise_seed=1)
    curator.add(some_users(ClippedSum(2), 5, 1))
    for _ in range(4):
        released = curator.release(ClippedSum(2), mu=math.sqrt(2.0 * rho / 4.0))
        sensitivity = 2.0 * math.sqrt(4.0) / math.sqrt(2.0 * rho)
        assert sensitivity < released.std["sum"] < sensitivity * (1.0 + exact.ROUNDING)
    assert curator.spent(0) == pytest.approx(2.0 * rho, rel=1e-12)
    with pytest.raises(BudgetExceeded):
        curator.release(ClippedSum(2), mu=1e-3)
    with pytest.raises(BudgetExceeded):
        curator.release(ClippedSum(2))
    with pytest.raises(BudgetExceeded, match="whole budget"):
        JOINT.curator().stream(ClippedSum(2), releases=3, mu=math.sqrt(2.0 * rho) * 1.001)


def test_guarantees_say_what_was_done() -> None:
    joint = JOINT.curator().guarantee
    assert joint.mu is None
    assert (joint.epsilon, joint.delta, joint.sampler) == (1.0, 1e-6, "exact")
    for words in (
        "discrete Gaussian",
        "0.0243561-zCDP",
        "7.2% more",
        "0.01% of noise",
        "every bit",
    ):
        assert words in str(joint)
    pure = PURE.curator().guarantee
    assert "discrete Laplace" in str(pure)
    assert "zCDP" not in str(pure)
    local = LOCAL.curator().guarantee
    assert local.mu is None
    assert "report from the device with discrete Gaussian" in str(local)
    assert not joint.simulation_only
    assert JOINT.curator(noise_seed=1).guarantee.simulation_only
    assert "sampler" not in repr(JointDP(1.0, 1e-6))
    assert "sampler='exact'" in repr(JOINT)


def discrete_delta(sigma: float, epsilon: float, apart: int = 1) -> float:
    """The true delta of a discrete Gaussian that is moved by ``apart``, by its masses."""
    reach = math.ceil(40.0 * sigma) + 10
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    first = np.exp(-0.5 * (z / sigma) ** 2)
    other = np.exp(-0.5 * ((z - apart) / sigma) ** 2)
    return float(np.maximum(first - math.exp(epsilon) * other, 0.0).sum() / first.sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 5.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_the_true_delta_is_within_the_claim(epsilon: float, delta: float) -> None:
    """Noise as the accounts demand for a change of 1, 2 and 3 steps, coarser than any grid here."""
    for apart in (1, 2, 3):
        sigma = apart / math.sqrt(2.0 * rho_from_budget(epsilon, delta))
        assert discrete_delta(sigma, epsilon, apart) <= delta


@pytest.mark.parametrize(
    ("budget", "releases"), [((0.5, 1e-5), 1), ((1.0, 1e-6), 16), ((8.0, 1e-6), 4)]
)
def test_dp_accounting_agrees(budget: tuple[float, float], releases: int) -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    sigma = math.sqrt(releases / (2.0 * rho_from_budget(*budget)))
    one = pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-3)
    true = one.self_compose(releases).get_epsilon_for_delta(budget[1])
    assert 0.8 * budget[0] < true <= budget[0]


def test_accounts_in_mu_would_be_wrong() -> None:
    """At sigma 1 and epsilon 2 the discrete Gaussian has 19 % more delta than mu = 1 allows."""
    true, continuous = discrete_delta(1.0, 2.0), delta_from_mu(1.0, 2.0)
    assert true / continuous == pytest.approx(1.19, abs=0.01)
    assert epsilon_from_rho(0.5, true) > 2.0
    # Calibrated by mu to (2, delta) the noise would be too small; by rho it is enough.
    for epsilon, delta in ((2.0, continuous), (1.0, 1e-6)):
        by_mu = 1.0 / mu_from_budget(epsilon, delta)
        by_rho = 1.0 / math.sqrt(2.0 * rho_from_budget(epsilon, delta))
        assert discrete_delta(by_mu, epsilon) > delta
        assert discrete_delta(by_rho, epsilon) <= delta


def test_discrete_laplace_is_exactly_pure() -> None:
    drawn = masses(True, 3.0, 400)
    ratio = drawn[:-2] / drawn[2:]
    assert math.log(ratio.max()) == pytest.approx(2.0 / 3.0, rel=1e-9)


# Save and resume.


@pytest.mark.parametrize("kind", ["blocks", "binary tree", "smooth tree"])
def test_a_simulation_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    statistic = COUNTS
    whole = JOINT.curator(noise_seed=7)
    stream = whole.stream(statistic, releases=8, kind=kind)
    expected = [stream.release(some_users(statistic, 5, i)).parts for i in range(8)]
    first = JOINT.curator(noise_seed=7)
    stream = first.stream(statistic, releases=8, kind=kind)
    found = [stream.release(some_users(statistic, 5, i)).parts for i in range(3)]
    first.save(tmp_path / "save")
    again = JointCurator.load(tmp_path / "save")
    assert isinstance(again.source, ExactNoise)
    resumed = again.resume_stream("stream", statistic)
    assert resumed.reach == stream.reach > 0.0
    found += [resumed.release(some_users(statistic, 5, i)).parts for i in range(3, 8)]
    for one, other in zip(expected, found, strict=True):
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_a_real_run_resumes_once_with_fresh_noise_on_the_same_grid(tmp_path: Path) -> None:
    statistic, ledger = ClippedSum(4), tmp_path / "ledger"
    curator = JOINT.curator(ledger=ledger)
    stream = curator.stream(statistic, releases=4)
    stream.release(some_users(statistic, 5, 1))
    curator.save(tmp_path / "save")
    again = JointCurator.load(tmp_path / "save", ledger=ledger)
    assert not again.source.simulation
    assert again.guarantee.sampler == "exact"
    released = again.resume_stream("stream", statistic).release(some_users(statistic, 5, 2))
    assert_on_grid(statistic, released.parts, grid_step(statistic, "l2"))
    with pytest.raises(DoubleSpend):
        JointCurator.load(tmp_path / "save", ledger=ledger)


# The local model.


@pytest.mark.parametrize("model", [LOCAL, LAPLACE], ids=["gaussian", "laplace"])
def test_devices_report_on_the_grid(model: LocalDP) -> None:
    statistic = VISITS
    step = grid_step(statistic, "l2" if model is LOCAL else "l1")
    block = some_users(statistic, 6, 1)
    reports = [report(statistic, block.take(slice(i, i + 1)), model) for i in range(6)]
    for one in reports:
        assert (one / step == np.rint(one / step)).all()
        # All coordinates have noise, also those where the user never was.
        assert (one != 0.0).mean() > 0.9
    real = model.curator()
    real.collect(statistic, np.array(reports))
    released = real.release(statistic)
    assert_on_grid(statistic, released.parts, step)
    assert real.guarantee.sampler == "exact"
    assert not real.guarantee.simulation_only
    one = block.take(slice(0, 1))
    twice = [report(statistic, one, model, noise_seed=5) for _ in range(2)]
    assert twice[0].tobytes() == twice[1].tobytes()
    assert report(statistic, one, model).tobytes() != reports[0].tobytes()


@pytest.mark.parametrize("model", [LOCAL, LAPLACE], ids=["gaussian", "laplace"])
def test_simulated_reports_add_up_like_real_ones(model: LocalDP) -> None:
    """Sums of noise against their standard deviation: 600 values, 8 sigmas, below 1e-12."""
    statistic = ClippedSum(600)
    curator = model.curator(noise_seed=2)
    curator.add(Block(50, {"values": np.zeros((50, 600))}))
    released = curator.release(statistic)
    unit = noise_scale(statistic, model) * (1.0 if model is LOCAL else math.sqrt(2.0))
    assert released.std["sum"] == pytest.approx(math.sqrt(50) * unit)
    ratio = (released.parts["sum"] ** 2).mean() / (50 * unit**2)
    assert abs(ratio - 1.0) < 8.0 * math.sqrt(2.1 / 600)
    step = grid_step(statistic, "l2" if model is LOCAL else "l1")
    assert_on_grid(statistic, released.parts, step)


# Agents.

TABULAR = riverswim(3, 4)
LINEAR = simplex(dimension=3, states=8, actions=3, horizon=4)
MIXTURE = mixture_of_models(3, 4, 4, 4, seed=700)
EASY, EASY_PURE = JointDP(10.0, 1e-6, sampler="exact"), JointDP(10.0, 0.0, sampler="exact")
DEVICE, DEVICE_PURE = LocalDP(20.0, 1e-6, sampler="exact"), LocalDP(20.0, 0.0, sampler="exact")

Case = tuple[Callable[..., Any], Any, Any, dict[str, Any]]


def every_agent() -> dict[str, Case]:
    """All that finite agents can ask, under every model that they take."""
    cases: list[Case] = []
    for privacy in (EASY, EASY_PURE, DEVICE, DEVICE_PURE):
        joint, gaussian = isinstance(privacy, JointDP), privacy.delta > 0
        cases += [(agent, TABULAR, privacy, {}) for agent in (UCBVI, UCBPO)]
        cases.append((PUCB if joint else LDPOB, TABULAR, privacy, {}))
        if joint:
            for kind in ("binary tree", "auto"):
                cases.append((UCBVI, TABULAR, privacy, {"counter": kind, "stationary": False}))
        asked = ["counts"] + ["features"] * gaussian + ["targets"] * (gaussian and joint)
        for agent in (LSVIUCB, LSVIUCBPlusPlus, BatchedLSVIUCB, AdaptiveLSVIUCB):
            cases += [(agent, LINEAR, privacy, {"statistic": name}) for name in asked]
        asked = ["counts"] + ["model", "values"] * gaussian
        cases += [(LinOptVI, MIXTURE, privacy, {"statistic": name}) for name in asked]
        cases += [(LinOptPO, MIXTURE, privacy, {"statistic": name}) for name in asked[1:]]
        if gaussian and not joint:
            cases.append((LDPUCRLVTR, MIXTURE, privacy, {}))
    return {f"{a.__name__}, {p}, {o}": (a, w, p, o) for a, w, p, o in cases}  # type: ignore[attr-defined]


CASES = every_agent()


def passed_step(passage: Passage) -> float:
    """The grid of a release: finer if its oldest block weighs less."""
    gate = passage.gate
    if isinstance(passage.stream, JointStream):
        return passage.stream.step
    assert isinstance(gate, (JointCurator, LocalCurator))
    if isinstance(gate, LocalCurator):
        return grid_step(passage.statistic, "l2" if gate.privacy.delta > 0 else "l1")
    smallest = min(abs(share) for share in passage.shares) / max(passage.shares)
    return grid_step(passage.statistic, "l1" if gate.privacy.pure else "l2", smallest)


@pytest.mark.parametrize("name", CASES)
def test_every_finite_agent_runs_with_exact_noise(name: str) -> None:
    make, world, privacy, options = CASES[name]
    agent = make(
        world.spec, users=150, privacy=privacy, noise_seed=3, schedule="fixed:size=50", **options
    )
    with WatchedGate().open() as gate:
        run(agent, world, progress=False)
    assert agent.releases == 3 <= len(gate.passages)
    for passage in gate.passages:
        steps = passage.statistic.layout.pack(passage.release.parts) / passed_step(passage)
        assert np.abs(steps).max() > 100.0
        assert np.abs(steps - np.rint(steps)).max() < 1e-3
    assert agent.guarantee.sampler == "exact"
    assert agent.guarantee.mu is None
    assert "discrete" in agent.guarantee.mechanism


CHECKED: dict[str, Case] = {
    "tabular, joint": (UCBVI, TABULAR, EASY, {}),
    "tabular, tree": (UCBPO, TABULAR, EASY_PURE, {"counter": "smooth tree"}),
    "tabular, local": (LDPOB, TABULAR, DEVICE_PURE, {}),
    "linear, joint": (LSVIUCBPlusPlus, LINEAR, EASY, {"statistic": "features"}),
    "linear, targets": (LSVIUCB, LINEAR, EASY, {"statistic": "targets", "scale": 0.1}),
    "linear, local": (AdaptiveLSVIUCB, LINEAR, DEVICE, {"statistic": "features"}),
    "mixture, joint": (LinOptVI, MIXTURE, EASY, {"statistic": "values"}),
    "mixture, local": (LDPUCRLVTR, MIXTURE, DEVICE, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_agents_with_exact_noise_pass_the_check(name: str) -> None:
    make, world, privacy, options = CHECKED[name]
    maker = partial(make, privacy=privacy, schedule="fixed:size=60", **options)
    found = check_agent(maker, world, users=240, seeds=16)
    assert {"budget", "noise", "sensitivity", "resume", "real resume"} <= set(found.passed)
    assert found.releases == 4


# Agents on vectors. Their statistics are clipped in coordinates, so the grid is that of any sum.

LINE, CART = line(horizon=4), cartpole(horizon=4)
CONTROL = double_integrator(horizon=4)
VECTORS: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "functional, grid": (FittedFunctionalQ, LINE, {"releases": 3}),
    "functional, map": (FittedFunctionalQ, CART, {"releases": 3}),
    "functional, rewards": (FittedFunctionalQ, LINE, {"protect": "rewards"}),
    "functional, reward function": (
        FittedFunctionalQ,
        LINE,
        {"protect": "reward_function", "radius": 0.1},
    ),
    "functional, online": (FunctionalQ, LINE, {"batch": 20}),
    "input, rewards": (InputPerturbation, LINE, {}),
    "input, episodes": (InputPerturbation, LINE, {"protect": "episode"}),
    "output": (OutputPerturbation, LINE, {}),
    "evaluation": (PrivatePolicyEvaluation, LINE, {}),
    "control": (CertaintyEquivalence, CONTROL, {}),
    "control, optimism": (OFU, CONTROL, {}),
}


def assert_exact(agent: Any, gate: WatchedGate) -> None:
    assert agent.served == agent.users
    assert agent.releases <= len(gate.passages)
    for passage in gate.passages:
        steps = passage.statistic.layout.pack(passage.release.parts) / passed_step(passage)
        assert np.abs(steps).max() > 100.0
        assert np.abs(steps - np.rint(steps)).max() < 1e-3
    assert agent.guarantee.sampler == "exact"
    assert "discrete Gaussian" in agent.guarantee.mechanism


@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "real"])
@pytest.mark.parametrize("name", VECTORS)
def test_every_agent_on_vectors_runs_with_exact_noise(name: str, seed: int | None) -> None:
    make, world, options = VECTORS[name]
    agent = make(world.spec, 60, EASY, noise_seed=seed, **options)
    rng = np.random.default_rng(8)
    with WatchedGate().open() as gate:
        while users := agent.block_users:
            ids = [f"user {agent.served + i}" for i in range(users)]
            agent.learn(world.simulate(agent.policy, users, rng), user_ids=ids)
    assert_exact(agent, gate)


@pytest.mark.parametrize(
    "name", [n for n in VECTORS if VECTORS[n][0] != FittedFunctionalQ and "input" not in n]
)
def test_devices_with_vectors_report_with_exact_noise(name: str) -> None:
    make, world, options = VECTORS[name]
    agent = make(world.spec, 6, DEVICE, **options | ({"batch": 3} if "batch" in options else {}))
    rng = np.random.default_rng(9)
    while users := agent.block_users:
        data = world.simulate(agent.policy, users, rng)
        block = data if isinstance(data, Block) else data.block()
        rows = [report(agent.statistic, block.take(slice(i, i + 1)), DEVICE) for i in range(users)]
        agent.learn_reports(np.array(rows))
    assert agent.served == 6
    assert agent.guarantee.sampler == "exact"


@pytest.mark.parametrize("privacy", [EASY_PURE, DEVICE_PURE], ids=["joint", "local"])
@pytest.mark.parametrize("name", [name for name in VECTORS if name != "input, rewards"])
def test_without_delta_agents_on_vectors_are_refused_when_they_are_made(
    name: str, privacy: Any, tmp_path: Path
) -> None:
    make, world, options = VECTORS[name]
    own = {"ledger": tmp_path / "ledger"} if isinstance(privacy, JointDP) else {}
    with pytest.raises(InvalidArgument, match=r"delta > 0|Gaussian"):
        make(world.spec, 60, privacy, noise_seed=3, **options, **own)
    assert list(tmp_path.iterdir()) == []


def test_radii_beyond_any_grid_are_refused_when_an_agent_is_made() -> None:
    for make in (OutputPerturbation, PrivatePolicyEvaluation):
        for radius in (1e-200, 1e200):
            with pytest.raises(InvalidArgument, match=r"radius .* no grid"):
                make(LINE.spec, 60, EASY, radius=radius)
