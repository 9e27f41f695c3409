"""The local model: the devices' guarantee by brute force, sums of reports in distribution."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tacit import Block, LocalDP, Relation
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.local import flip_probability, noise_scale, report
from tacit.privacy.noise import Noise
from tacit.privacy.standard import ClippedSum, OneHotCounts

ONE_HOT = OneHotCounts(steps=2, cells=2, valued=True)
RESPONSE = LocalDP(epsilon=1.3, delta=0.0, mechanism="randomised response")


def user(cells, rewards):
    return Block(1, {"cells": np.array([cells]), "values": np.array([rewards])})


def likelihood(bits, vector, flip):
    """Probability of a report, given a user's vector of values in [0, 1]."""
    ones = vector * 0.5 + (1 - vector) * flip
    return float(np.prod(np.where(bits, ones, 1 - ones)))


def all_users():
    """Every user of the small world, invalid steps and rewards strictly inside (0, 1) included."""
    steps = [(c, r) for c in (0, 1, 9) for r in (0.0, 0.4, 1.0)]
    return [
        ONE_HOT.contributions(user([a[0], b[0]], [a[1], b[1]]))[0]
        for a, b in itertools.product(steps, steps)
    ]


def test_randomised_response_is_exactly_epsilon_dp():
    """All 81 users against each other, over all 256 reports."""
    flip = flip_probability(ONE_HOT, RESPONSE)
    users = all_users()
    table = np.array(
        [
            [likelihood(bits, vector, flip) for bits in itertools.product((0, 1), repeat=8)]
            for vector in users
        ]
    )
    assert np.allclose(table.sum(axis=1), 1.0)
    worst = (table[:, np.newaxis] / table).max()
    assert math.log(worst) == pytest.approx(1.3, rel=1e-9)


def test_device_reports_follow_their_likelihood():
    """Chi-square over the 256 possible reports, rejected wrongly with probability 1e-6."""
    data = user([0, 1], [0.4, 1.0])
    vector = ONE_HOT.contributions(data)[0]
    flip = flip_probability(ONE_HOT, RESPONSE)
    weights = 2 ** np.arange(8)[::-1]
    draws = [
        int(report(ONE_HOT, data, RESPONSE, noise_seed=seed) @ weights) for seed in range(20_000)
    ]
    observed = np.bincount(draws, minlength=256)
    expected = [
        20_000 * likelihood(bits, vector, flip) for bits in itertools.product((0, 1), repeat=8)
    ]
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def summed(model, users, size):
    """What so many devices reported together, and what one draw says of them; all hold zeros.

    Coordinates have noise of their own: each is a sample.
    """
    if model.reports_bits:
        # Beyond all cells: a one-hot without a one.
        statistic = OneHotCounts(steps=1, cells=size)
        block = Block(users, {"cells": np.full((users, 1), -1)})
    else:
        statistic, block = ClippedSum(size), Block(users, {"values": np.zeros((users, size))})
    devices, simulated = model.curator(), model.curator(noise_seed=5)
    rows = [block.take(slice(u, u + 1)) for u in range(users)]
    devices.collect(statistic, [report(statistic, row, model) for row in rows])
    simulated.add(block)
    real, fast = (c.release(statistic) for c in (devices, simulated))
    return statistic.layout.pack(real.parts), statistic.layout.pack(fast.parts)


@pytest.mark.parametrize("users", [1, 12])
@pytest.mark.parametrize(
    "model",
    [
        *(LocalDP(2.0, 1e-5), LocalDP(2.0, 0.0)),
        LocalDP(2.0, 0.0, mechanism="randomised response"),
        # Noise of few steps of the grid.
        *(LocalDP(1e5, 1e-5), LocalDP(1e7, 0.0)),
    ],
    ids=str,
)
def test_one_draw_has_the_law_of_many_reports(model, users):
    """Kolmogorov and Smirnov at 1e-10, means and variances at 7 standard errors: below 1e-9."""
    real, fast = summed(model, users, 4000)
    assert stats.ks_2samp(real, fast, method="asymp").pvalue > 1e-10
    squares = [(sample - real.mean()) ** 2 for sample in (real, fast)]
    error = math.hypot(*(square.std() / math.sqrt(square.size) for square in squares))
    assert abs(squares[0].mean() - squares[1].mean()) < 7.0 * error + 1e-12 * squares[0].mean()
    assert abs(real.mean() - fast.mean()) < 7.0 * math.sqrt(real.var() * 2.0 / real.size)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "randomised response"])
def test_stated_std_is_the_empirical_one(mechanism):
    """1,000 users, 3,000 runs: the ratio of variances is within 6 standard errors (16 %)."""
    model = LocalDP(3.0, 1e-5, mechanism=mechanism)
    statistic = OneHotCounts(steps=1, cells=3)
    block = Block(1000, {"counts": np.array([[800.0, 200.0, 0.0]])}, aggregate=True)
    values, stds = [], []
    for run in range(3000):
        curator = model.curator(noise_seed=run)
        curator.add(block)
        release = curator.release(statistic)
        values.append(release["counts"][0])
        stds.append(np.broadcast_to(release.std["counts"], (1, 3))[0])
    ratio = np.std(values, axis=0) / np.mean(stds, axis=0)
    assert ratio == pytest.approx(np.ones(3), abs=0.08)


def test_std_covers_the_rounding_of_fractional_values():
    """Values of one half, 400 runs: the stated std is not below the empirical one (less 6 se)."""
    statistic = OneHotCounts(steps=1, cells=2, valued=True)
    model = LocalDP(8.0, 0.0, mechanism="randomised response")
    arrays = {"cells": np.zeros((500, 1), dtype=int), "values": np.full((500, 1), 0.5)}
    sums, stds = [], []
    for run in range(400):
        curator = model.curator(noise_seed=run)
        curator.add(Block(500, arrays))
        release = curator.release(statistic)
        sums.append(release["sums"][0, 0])
        stds.append(np.asarray(release.std["sums"])[0, 0])
    ratio = np.std(sums) / np.mean(stds)
    assert 0.6 < ratio < 1 + 6 / math.sqrt(800)


def test_each_user_reports_once():
    curator = LocalDP(1.0, 1e-6).curator(noise_seed=0)
    curator.add(Block(5, {"values": np.ones((5, 1))}))
    with pytest.raises(InvalidArgument, match="whole budget"):
        curator.release(ClippedSum(1), mu=0.1)
    assert curator.release(ClippedSum(1)).users == 5
    for again in (ClippedSum(1), ClippedSum(1, 2.0)):
        with pytest.raises(BudgetExceeded, match="one report"):
            curator.release(again)


def test_hostile_reports_and_hostile_values():
    curator = LocalDP(1.0, 1e-6).curator()
    number = curator.collect(ClippedSum(2), [[1.0, 2.0], [np.nan, 5.0], [np.inf, 0.0]])
    assert curator.release(ClippedSum(2), block=number)["sum"].tolist() == [1.0, 2.0]
    with pytest.raises(InvalidArgument, match="shape"):
        curator.collect(ClippedSum(2), [[1.0]])
    quiet = report(ClippedSum(2), Block(1, {"values": np.array([[np.nan, 0.0]])}), LocalDP(1, 1e-6))
    assert np.isfinite(quiet).all()
    with pytest.raises(InvalidArgument, match="one user"):
        report(ClippedSum(1), Block(2, {"values": np.zeros((2, 1))}), LocalDP(1.0, 1e-6))


def test_reports_beyond_the_declared_are_dropped():
    model = LocalDP(1e3, 1e-6)
    curator = model.curator(noise_seed=1)
    curator.add(Block(3, {"cells": np.zeros((3, 1), dtype=int)}), user_ids=["a", "a", "b"])
    statistic = OneHotCounts(steps=1, cells=2)
    release = curator.release(statistic)
    std = np.ravel(release.std["counts"])[0]
    assert release["counts"][0, 0] == pytest.approx(2.0, abs=6 * std)
    # The third report was not admitted, and its noise is not in the sum.
    assert std == pytest.approx(math.sqrt(2) * noise_scale(statistic, model))
    assert release.users == 2
    real = model.curator()
    number = real.collect(statistic, [[1.0, 0.0], [1.0, 0.0]], user_ids=["a", "a"])
    assert real.release(statistic, block=number)["counts"].tolist() == [[1.0, 0.0]]
    with pytest.raises(InvalidArgument, match="collect"):
        real.add(Block(1, {"cells": np.zeros((1, 1), dtype=int)}))


def test_local_guarantees():
    guarantee = LocalDP(1.0, 1e-6, mechanism="randomised response").curator().guarantee
    assert guarantee.delta == 0.0
    assert guarantee.mu is None
    assert guarantee.relation is Relation.REPLACE_ONE
    assert LocalDP(1.0, 1e-6).curator(noise_seed=1).guarantee.simulation_only
    assert LocalDP(1.0, 0.0).mechanism == "laplace"
    with pytest.raises(InvalidArgument, match="pure"):
        LocalDP(1.0, 0.0, mechanism="gaussian")
    with pytest.raises(InvalidArgument, match="mechanism"):
        LocalDP(1.0, 0.0, mechanism="magic")


@pytest.mark.parametrize("model", [LocalDP(1e-12, 0.0), LocalDP(1e-12, 1e-20)], ids=str)
def test_noise_that_no_device_draws_is_not_simulated(model):
    block = Block(3, {"values": np.zeros((3, 100))})
    with pytest.raises(InvalidArgument, match="too small"):
        report(ClippedSum(100), block.take(slice(0, 1)), model)
    curator = model.curator(noise_seed=1)
    curator.add(block)
    with pytest.raises(InvalidArgument, match="too small"):
        curator.release(ClippedSum(100))


COUNT = OneHotCounts(steps=1, cells=2)
ONE, ZERO = (Block(1, {"cells": np.array([[cell]])}) for cell in (0, 1))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0, 100.0])
def test_randomised_response_keeps_its_factor_in_whole_numbers(epsilon, monkeypatch):
    """The two thresholds of 64-bit words, found by asking with words on both sides."""
    privacy = LocalDP(epsilon, 0.0, mechanism="randomised response")

    def sends(word, data):
        words = iter([0, word])

        def given(self, count):
            return np.full(count, next(words), dtype=np.uint64)

        monkeypatch.setattr(Noise, "words", given)
        return bool(report(COUNT, data, privacy)[0])

    def threshold(send):
        """How many words make a 1."""
        low, high = 0, 2**64
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if send(middle) else (low, middle)
        return low

    of_one, of_zero = (threshold(lambda word, d=data: sends(word, d)) for data in (ONE, ZERO))
    share = math.exp(epsilon)
    assert of_one == 2**63
    assert of_one <= share * of_zero
    assert 2**64 - of_zero <= share * (2**64 - of_one)
    if epsilon < 40:
        assert of_zero == pytest.approx(2**64 / (1 + share), rel=1e-9)
