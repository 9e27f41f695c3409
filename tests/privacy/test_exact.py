"""Exact noise: the samplers' distributions, the grid to the last bit, what it costs and refuses.

Tests of distributions are chi-square tests that fail by chance with a probability of 1e-7.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit import Block, FittedFunctionalQ, JointDP, LocalDP, Relation
from tacit.continuous import line
from tacit.continuous.estimate import GRID
from tacit.privacy import noise as exact
from tacit.privacy.budget import mu_from_budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.local import report
from tacit.privacy.noise import Noise, grid_sensitivity, grid_step, grid_total
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import StreamedBlock
from tacit.tabular.visits import VisitCounts

JOINT = JointDP(1.0, 1e-6)
PURE = JointDP(1.0, 0.0)
LOCAL = LocalDP(4.0, 1e-6)
LAPLACE = LocalDP(4.0, 0.0)


GRAM = GramCross(2, 1, 3, weight=0.7)
COUNTS = OneHotCounts(3, 4, valued=True)
VISITS = VisitCounts(3, 2, 4)


def some_users(statistic, users, seed, spread=1.0):
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


def assert_on_grid(statistic, parts, step):
    """The release is what whole steps unpack to, bit for bit; returns the steps."""
    steps = np.rint(statistic.layout.pack(parts) / step)
    assert np.abs(steps).max() < 2.0**53
    for name, values in statistic.layout.unpack(step * steps).items():
        assert values.tobytes() == np.asarray(parts[name]).tobytes()
    return steps.astype(np.int64)


@pytest.mark.parametrize("statistic", [ClippedSum(5, 3.0), GRAM, COUNTS, VISITS], ids=str)
@pytest.mark.parametrize("seed", [3, None], ids=["simulated", "real"])
def test_releases_are_on_the_grid(statistic, seed):
    for model in (JOINT, PURE) if statistic is not GRAM else (JOINT,):
        curator = model.curator(noise_seed=seed)
        curator.add(some_users(statistic, 30, 1))
        step = grid_step(statistic, "l1" if model.pure else "l2")
        assert math.frexp(step)[0] == 0.5
        released = curator.release(statistic)
        assert_on_grid(statistic, released.parts, step)
        for kind in ("blocks", "smooth tree"):
            curator = model.curator(noise_seed=seed)
            stream = curator.stream(statistic, releases=5, kind=kind)
            for number in range(5):
                released = stream.release_block(some_users(statistic, 30, number))
                assert_on_grid(statistic, released.parts, step)


def test_no_zero_has_a_sign(monkeypatch):
    """Without noise sums are zero, and whether it is -0.0 would be a bit about somebody."""
    values = np.array([[1e-9, -1e-9], [-1e-9, 1e-9]])
    monkeypatch.setattr(
        Noise, "steps", lambda self, pure, scale, count: np.zeros(count, dtype=np.int64)
    )
    curator = JOINT.curator()
    curator.add(Block(2, {"values": values}))
    found = [curator.release(ClippedSum(2)).parts["sum"]]
    for kind in ("smooth tree", "blocks", "auto"):
        stream = JOINT.curator().stream(ClippedSum(2), releases=4, kind=kind)
        found += [stream.release_block(Block(2, {"values": values})).parts["sum"] for _ in range(4)]
    found.append(report(ClippedSum(2), Block(1, {"values": values[:1]}), LOCAL))
    zeros = np.concatenate(found)
    assert not zeros.any()
    assert not np.signbit(zeros).any()


@pytest.mark.parametrize("kind", ["blocks", "smooth tree"])
@pytest.mark.parametrize("epsilon", [1.0, 3e-7])
def test_counters_add_whole_numbers_without_an_error(kind, epsilon):
    """Two runs with the same noise differ by exactly their sums, at any scale and size of sum."""
    statistic = OneHotCounts(1, 2)
    model = JointDP(epsilon, 0.0)
    step = grid_step(statistic, "l1")
    runs = []
    for users in (0, 10_000_000_007):
        stream = model.curator(noise_seed=4).stream(statistic, releases=12, kind=kind)
        out = []
        for _ in range(12):
            sums = Block(users, {"counts": np.array([[float(users), 0.0]])}, aggregate=True)
            out.append(assert_on_grid(statistic, stream.release_block(sums).parts, step)[0])
        runs.append(out)
    one = round(10_000_000_007 / step)
    assert [b - a for a, b in zip(*runs, strict=True)] == [one * (t + 1) for t in range(12)]
    assert one * 12 > 2**50
    noisiest = max(abs(a) for a in runs[0])
    assert noisiest > (2**36 if epsilon < 1 else 2**12)


def test_single_releases_add_integers_beyond_what_floats_hold():
    statistic = OneHotCounts(1, 1)
    step = grid_step(statistic, "l2")
    users = 2**45 + 1
    curator = JOINT.curator(noise_seed=9)
    curator.add(Block(users, {"counts": np.array([[float(users)]])}, aggregate=True))
    released = curator.release(statistic).parts["counts"][0, 0]
    sensitivity = grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", step)
    noise = Noise(9).steps(False, sensitivity / math.sqrt(JOINT.episode_limit), 1)[0]
    total = round(users / step) + int(noise)
    assert total > 2**53
    assert released == step * float(total)


def shift(statistic, pair, step):
    one, other = (
        grid_total(statistic, pair.take(slice(i, i + 1)), step).astype(float) for i in (0, 1)
    )
    return one - other


def check_pair(statistic, pair):
    """The largest ratio of what two users are apart to what they are charged for."""
    found = 0.0
    norms = [("l2", 2), ("l1", 1)] if statistic.l1(Relation.ZERO_OUT) is not None else [("l2", 2)]
    for norm, order in norms:
        step = grid_step(statistic, norm)
        apart = float(np.linalg.norm(shift(statistic, pair, step), order))
        most = grid_sensitivity(statistic, Relation.REPLACE_ONE, norm, step)
        assert apart <= most
        for user in (0, 1):
            alone = grid_total(statistic, pair.take(slice(user, user + 1)), step)
            least = grid_sensitivity(statistic, Relation.ZERO_OUT, norm, step)
            assert float(np.linalg.norm(alone.astype(float), order)) <= least
        found = max(found, apart / most)
    return found


ATTACKED = {
    "sum": ClippedSum(4, 2.5),
    "tiny sum": ClippedSum(2, 1e-90),
    "huge sum": ClippedSum(2, 1e90),
    "counts": COUNTS,
    "gram": GRAM,
    "visits": VISITS,
    "pooled visits": VisitCounts(3, 2, 4, pooled=True, weight=0.6),
}


@pytest.mark.parametrize("name", ATTACKED)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1e-300, 1e-6, 0.5, 1.0, 3.0, 1e9, 1e200, math.nan, math.inf]),
)
def test_rounded_users_are_never_farther_apart(name, seed, size):
    statistic = ATTACKED[name]
    with np.errstate(all="ignore"):
        pair = some_users(statistic, 2, seed, size)
    check_pair(statistic, pair)


WORST = {
    "sum": (ClippedSum(4), Block(2, {"values": np.array([[0.5] * 4, [-0.5] * 4])})),
    "counts": (
        COUNTS,
        Block(2, {"cells": np.array([[0] * 3, [1] * 3]), "values": np.ones((2, 3))}),
    ),
    "gram": (
        GramCross(2, 1, 1),
        Block(2, {"p": np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), "q": np.zeros((2, 1, 1))}),
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
def test_the_worst_pair_attains_the_sensitivity(name):
    statistic, pair = WORST[name]
    assert check_pair(statistic, pair) > 0.99


def test_rounding_can_push_two_users_apart_by_all_that_is_added_for_it():
    statistic = ClippedSum(4, 2.0 * 15_000.51)
    assert grid_step(statistic, "l2") == 1.0
    pair = Block(2, {"values": 15_000.51 * np.array([[1.0] * 4, [-1.0] * 4])})
    apart = float(np.linalg.norm(shift(statistic, pair, 1.0)))
    assert apart == 60_004.0 > statistic.l2(Relation.REPLACE_ONE) + 1.9
    most = grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", 1.0)
    # Two for rounding in four coordinates, and 2^-18 of a length for adding up in floats.
    assert apart <= most == pytest.approx(60_004.1544, abs=1e-3)


def test_hostile_users_empty_blocks_and_blocks_in_parts():
    statistic = ClippedSum(2)
    step = grid_step(statistic, "l2")
    values = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e300, -1e300], [0.3, 0.4]])
    total = grid_total(statistic, Block(4, {"values": values}), step)
    clean = np.array([[0.0, 0.0], [0.0, 0.0], [math.sqrt(0.5), -math.sqrt(0.5)], [0.3, 0.4]])
    assert (total == np.rint(clean.sum(axis=0) / step)).all()
    empty = Block(0, {"values": np.zeros((0, 2))})
    assert not grid_total(statistic, empty, step).any()
    parts = [Block(2, {"values": values[:2]}), Block(2, {"values": values[2:]})]
    streamed = StreamedBlock(4, lambda: iter(parts))
    halves = sum(grid_total(statistic, part, step) for part in parts)
    assert (grid_total(statistic, streamed, step) == halves).all()
    assert np.abs(halves - total).max() <= 1
    with pytest.raises(InvalidArgument, match="parts of 4"):
        grid_total(statistic, StreamedBlock(5, lambda: iter(parts)), step)
    curator = JOINT.curator()
    stream = curator.stream(statistic, releases=2)
    assert stream.release_block(empty).users == 0
    assert stream.release_block(Block(4, {"values": values})).users == 4


# What does not fit is refused before anybody pays.


def test_sums_that_do_not_fit_are_refused_before_anybody_pays():
    statistic = OneHotCounts(1, 1)

    def sums(users):
        return Block(users, {"counts": np.array([[float(users)]])}, aggregate=True)

    curator = JOINT.curator(noise_seed=1)
    for users in (2**46, 2**47):
        curator.add(sums(users))
    assert curator.release(statistic, block=0, mu=0.01)
    with pytest.raises(InvalidArgument, match="fewer users"):
        curator.release(statistic, block=1, mu=0.01)
    assert curator.spent(1) == 0.0
    # Of a running sum all counts that ever entered, also after a resume.
    stream = JOINT.curator(noise_seed=1).stream(statistic, releases=9)
    stream.release_block(sums(2**34))
    stream.release_block(sums(2**33))
    with pytest.raises(InvalidArgument, match=r"must stay below 5\.6"):
        stream.release_block(sums(2**34))
    assert stream.counter.released == 2


def test_noise_that_does_not_fit_is_refused_before_anybody_pays():
    statistic = ClippedSum(100)
    tiny = JointDP(1e-12, 0.0)
    curator = tiny.curator(noise_seed=1)
    curator.add(some_users(statistic, 3, 1))
    with pytest.raises(InvalidArgument, match="too small"):
        curator.release(statistic)
    assert curator.spent(0) == 0.0
    with pytest.raises(InvalidArgument, match="too small"):
        JointDP(1e-6, 0.0).curator().stream(statistic, releases=9)
    with pytest.raises(InvalidArgument, match="too small"):
        report(statistic, some_users(statistic, 1, 1), LocalDP(1e-12, 0.0))


@pytest.mark.parametrize("radius", [5e-324, 1e-300, 1e-149, 1e160, 1e299])
def test_sensitivities_beyond_any_grid_are_refused(radius):
    statistic = ClippedSum(1, radius)
    with pytest.raises(InvalidArgument, match="no grid"):
        grid_step(statistic, "l2")
    curator = JOINT.curator(noise_seed=1)
    curator.add(Block(1, {"values": np.ones((1, 1))}))
    with pytest.raises(InvalidArgument, match="no grid"):
        curator.release(statistic)
    assert curator.spent(0) == 0.0


def rounded_delta(sigma, epsilon, apart=1):
    """The true delta of round(sigma Z) that is moved by ``apart``, by its masses."""
    reach = math.ceil(40.0 * sigma) + 10
    edges = np.arange(-reach, reach + 2) - 0.5
    # Masses of the upper half are computed from above, where nothing cancels.
    first = _mass(edges / sigma)
    other = _mass((edges - apart) / sigma)
    return float(np.maximum(first - math.exp(epsilon) * other, 0.0).sum())


def _mass(edges):
    upper = edges[:-1] > 0
    return np.where(upper, -np.diff(stats.norm.sf(edges)), np.diff(stats.norm.cdf(edges)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 5.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_the_true_delta_is_within_the_claim(epsilon, delta):
    """Noise as the accounts demand for a change of 1, 2 and 3 steps, coarser than any grid here."""
    for apart in (1, 2, 3):
        sigma = apart / mu_from_budget(epsilon, delta)
        assert rounded_delta(sigma, epsilon, apart) <= delta * (1.0 + 1e-9)


@pytest.mark.parametrize("model", [LOCAL, LAPLACE], ids=["gaussian", "laplace"])
def test_devices_report_on_the_grid(model):
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


LINE = line(horizon=4)


@pytest.mark.parametrize("clip", [1e-200, 1e200])
def test_clips_beyond_any_grid_are_refused_when_an_agent_is_made(monkeypatch, clip):
    constants = replace(GRID, clip=clip, largest_clip=clip)
    monkeypatch.setattr("tacit.continuous.fitted_functional_q.GRID", constants)
    with pytest.raises(InvalidArgument, match=r"clip .* no grid"):
        FittedFunctionalQ(line(horizon=4).spec, 60, JOINT)


def test_chunks_are_as_small_as_their_bound_on_additions():
    """However many numbers a user has, those of a chunk stay below what the sensitivity is for."""
    for numbers, users in ((1, 512), (200, 512), (256, 512), (1000, 131), (131_072, 1)):
        block = Block(600, {"values": np.broadcast_to(np.float64(0.0), (600, numbers))})
        assert exact.chunk_users(block) == users
        assert users * numbers <= exact.ADDITIONS
    with pytest.raises(InvalidArgument, match="numbers each"):
        exact.chunk_users(Block(1, {"values": np.zeros((1, 131_073))}))
    assert exact._SUMMING == 2.0**-18


@pytest.mark.parametrize("steps", [3, 40])
def test_sums_in_floats_are_within_their_bound(steps):
    """Compiled sums of a chunk against fractions, for values that floats cannot hold."""
    statistic = VisitCounts(3, 2, steps)
    block = some_users(VisitCounts(3, 2, steps), 60, 3)
    total = np.zeros(statistic.layout.size, dtype=object)
    for vector in statistic.contributions(block):
        total += np.array([Fraction(float(x)) for x in vector], dtype=object)
    gaps = [abs(Fraction(float(x)) - y) for x, y in zip(statistic.total(block), total, strict=True)]
    bound = exact._SUMMING / 2.0 * statistic.l2(Relation.ZERO_OUT)
    assert math.sqrt(sum(float(gap) ** 2 for gap in gaps)) <= bound
