"""The gate: whatever a statistic makes of a user, she moves a sum by the declared bound at most."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tacit import Block, DistributedDP, InvalidArgument, JointDP, LocalDP, Relation
from tacit.privacy.distributed import SumPlan, added, share
from tacit.privacy.local import report
from tacit.privacy.noise import grid_step, grid_total
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import FiledBlock, LoopSums, gate_total
from tacit.tabular.first_visits import FirstVisits

REST = 999
HOSTILE = {
    "not a number": [math.nan, 0.0],
    "infinite": [math.inf, 0.0],
    "both": [math.inf, -math.inf],
    "too long": [3e6, -4e6],
    "as long as floats are": [1e308, -1e308],
}
HEARD = {"too long": [0.6, -0.8], "as long as floats are": [math.sqrt(0.5), -math.sqrt(0.5)]}


@dataclass(frozen=True)
class Raw(ClippedSum):
    """Declares a bound and keeps none, user by user."""

    def vectors(self, block):
        return np.array(block["values"], dtype=np.float64)


@dataclass(frozen=True)
class RawLoop(LoopSums):
    """The same in a loop of the package's own that adds users up by itself."""

    dimension: int = 2

    @property
    def layout(self):
        return ClippedSum(self.dimension).layout

    def l2(self, relation):
        return ClippedSum(self.dimension).l2(relation)

    @property
    def columns(self):
        return self

    def read(self, block):
        return np.array(block["values"], dtype=np.float64)

    def _sums(self, values, separate):
        return values if separate else values.sum(axis=0, keepdims=True)


@dataclass(frozen=True)
class RawTotal(Raw):
    """Adds up by itself, and nobody says that its users are within bounds."""

    def total(self, block):
        return np.array(block["values"], dtype=np.float64).sum(axis=0)


RawLoop.__module__ = RawTotal.__module__ = "tacit.planted"
STATISTICS = [Raw(2), RawLoop(2), RawTotal(2)]


def crowd(kind, rest=REST):
    """Users with 0.5 each, one of whom is hostile, and what they add up to."""
    values = np.tile([0.5, 0.0], (rest + 1, 1))
    values[7] = HOSTILE[kind]
    return Block(rest + 1, {"values": values}), rest * np.array([0.5, 0.0]) + HEARD.get(kind, 0.0)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
def test_one_user_moves_no_sum_by_more_than_the_bound(statistic, kind):
    block, expected = crowd(kind)
    assert gate_total(statistic, block) == pytest.approx(expected)
    filed = FiledBlock(block.users, [lambda: iter([block])], 1)
    assert gate_total(statistic, filed) == pytest.approx(expected)
    step = grid_step(statistic, "l2")
    for some in (block, filed):
        assert grid_total(statistic, some, step) * step == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("seed", [None, 1])
def test_joint(statistic, kind, seed):
    block, expected = crowd(kind)
    plain = JointDP(8.0, 1e-6).curator(noise_seed=seed)
    plain.add(block)
    entered = JointDP(8.0, 1e-6).curator(noise_seed=seed)
    entered.add(block)
    running = entered.stream(statistic, releases=3)
    for release in (plain.release(statistic), running.release(0)):
        # Ten standard deviations.
        assert np.abs(release["sum"] - expected).max() < 10 * float(release.std["sum"])


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
def test_local(statistic, kind):
    block, expected = crowd(kind, 30)
    model = LocalDP(8.0, 1e-6)
    devices = [block.take(slice(i, i + 1)) for i in range(block.users)]
    for real in (True, False):
        curator = model.curator(noise_seed=None if real else 1)
        if real:
            curator.collect(statistic, [report(statistic, user, model) for user in devices])
        else:
            curator.add(block)
        release = curator.release(statistic)
        assert np.abs(release["sum"] - expected).max() < 10 * float(release.std["sum"])


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
def test_distributed(statistic, kind):
    block, expected = crowd(kind, 99)
    model, devices = DistributedDP(8.0, 1e-6), block.users
    plan = SumPlan.of(statistic, model, devices)
    users = [block.take(slice(i, i + 1)) for i in range(devices)]
    sent = [share(statistic, user, model, devices=devices) for user in users]
    opened = plan.opened(added(sent, model.bits))
    assert np.abs(opened - expected).max() < 10 * plan.std(devices)
    curator = model.curator(noise_seed=1)
    curator.add(block)
    release = curator.release(statistic)
    assert np.abs(release["sum"] - expected).max() < 10 * float(release.std["sum"])


@dataclass(frozen=True)
class Signed(FirstVisits):
    """Counts that a user may make negative: a norm alone would let two users be 2 apart."""

    def vectors(self, block):
        return np.array(block["values"], dtype=np.float64)

    def total(self, block):
        return np.array(block["values"], dtype=np.float64).sum(axis=0)


@dataclass(frozen=True)
class SignedLoop(RawLoop):
    """A loop of the package's own, whose sum shows that somebody was negative."""

    nonnegative = True


SignedLoop.__module__ = "tacit.planted"


def test_who_is_negative_where_nobody_can_be_counts_as_zero():
    """What is declared, sqrt(2), is what users can be apart, whatever a subclass makes of them."""
    counts = Signed(np.ones((1, 2, 1), dtype=bool), 2, np.zeros((1, 2, 2), dtype=np.int64))
    one = np.zeros(counts.layout.size)
    one[0] = 1.0
    values = np.array([one, -one, [*one[:-1], -1e-300], 5.0 * one, np.roll(one, 1)])
    block = Block(5, {"values": values})
    found = counts.contributions(block)
    np.testing.assert_array_equal(found, [one, 0.0 * one, 0.0 * one, one, np.roll(one, 1)])
    np.testing.assert_array_equal(gate_total(counts, block), found.sum(axis=0))
    apart = max(float(np.linalg.norm(x - y)) for x in found for y in found)
    assert apart == pytest.approx(counts.sensitivity(Relation.REPLACE_ONE, "l2"))
    crowd = Block(3, {"values": np.array([[0.5, 0.0], [0.5, 0.0], [0.0, -1.0]])})
    assert gate_total(SignedLoop(2), crowd).tolist() == [1.0, 0.0]
    assert gate_total(RawLoop(2), crowd).tolist() == [1.0, -1.0]


def test_bounds_are_of_both_norms_and_of_each_user_alone():
    @dataclass(frozen=True)
    class Pure(Raw):
        def l1(self, relation):
            return 1.2 if relation is Relation.ZERO_OUT else 2.4

    values = np.array([[3.0, 0.0], [2.0, -2.0], [0.5, 0.5], [np.nan, 0.1], [1e-320, 0.0]])
    expected = [[1.0, 0.0], [0.6, -0.6], [0.5, 0.5], [0.0, 0.0], [1e-320, 0.0]]
    found = Pure(2).contributions(Block(5, {"values": values}))
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    alone = [Pure(2).contributions(Block(1, {"values": row[np.newaxis]}))[0] for row in values]
    np.testing.assert_array_equal(found, alone)
    # What is within bounds is not touched, to the last bit, nor what was given.
    assert np.isnan(values[3, 0])
    np.testing.assert_array_equal(found[[2, 4]], values[[2, 4]])


@pytest.mark.parametrize("sums", [[np.nan, 0.0], [np.inf, 0.0], [0.0, 1e300]])
def test_a_sum_that_is_not_finite_is_never_made_a_whole_number(sums):
    """Simulated sums are nobody's to clip: they are refused, and nothing is spent."""

    @dataclass(frozen=True)
    class Aggregated(ClippedSum):
        def aggregate(self, block):
            return np.array(block["sums"], dtype=np.float64)

    block = Block(5, {"sums": np.array(sums)}, aggregate=True)
    with pytest.raises(InvalidArgument, match="whole number"):
        grid_total(Aggregated(2), block, 2.0**-20)
    curator = JointDP(1.0, 1e-6).curator(noise_seed=1)
    number = curator.add(block)
    with pytest.raises(InvalidArgument, match="whole number"):
        curator.release(Aggregated(2))
    assert curator.spent(number) == 0.0
