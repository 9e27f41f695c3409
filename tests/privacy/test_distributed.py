"""The distributed model: shares of noise, exactly convolved, and opened sums."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

import tacit
from tacit import Block, DistributedDP, InvalidArgument, JointDP, Relation, tabular
from tacit.privacy.distributed import SumPlan, added, distance_to_rounded, share
from tacit.privacy.noise import Noise, grid_sensitivity, grid_total
from tacit.privacy.standard import ClippedSum, OneHotCounts
from tests.refusals import refusals

MODEL = DistributedDP(1.0, 1e-6)


def rounded(scale, reach):
    """The probabilities of round(scale Z) from -reach to reach, accurate in the tails too."""
    k = np.arange(reach + 1)
    right = ndtr(-(k - 0.5) / scale) - ndtr(-(k + 0.5) / scale)
    return np.concatenate([right[:0:-1], right])


def convolved(scale, shares):
    """The law of the sum of so many round(scale Z), by the Fourier transform; index 0 is 0."""
    reach = math.ceil(13.0 * scale * math.sqrt(shares)) + shares
    one = np.zeros(1 << (2 * reach).bit_length())
    law = rounded(scale, reach)
    one[: reach + 1], one[-reach:] = law[reach:], law[:reach]
    return np.maximum(np.fft.ifft(np.fft.fft(one) ** shares).real, 0.0)


def exceeds(law, shift, epsilon):
    """The smallest delta with which a shift of the law is (epsilon, delta)-private."""
    return float(np.maximum(law - math.exp(epsilon) * np.roll(law, shift), 0.0).sum())


@pytest.mark.parametrize(
    ("shares", "scale"), [(2, 2.0), (2, 4.0), (8, 2.0), (8, 5.0), (64, 2.0), (64, 6.0), (500, 2.5)]
)
def test_a_sum_of_shares_is_as_near_to_a_rounded_gaussian_as_proven(shares, scale):
    law = convolved(scale, shares)
    w = shares * scale**2 + (shares - 1.0) / 12.0
    reach = law.size // 2 - 1
    other = np.zeros(law.size)
    near = rounded(math.sqrt(w), reach)
    other[: reach + 1], other[-reach:] = near[reach:], near[:reach]
    apart = 0.5 * np.abs(law - other).sum()
    assert apart <= distance_to_rounded(shares, scale) + 1e-13
    # The correction of the variance matters: without it the distance is far larger.
    plain = rounded(math.sqrt(shares) * scale, reach)
    other[: reach + 1], other[-reach:] = plain[reach:], plain[:reach]
    assert 0.5 * np.abs(law - other).sum() > 10.0 * apart


@pytest.mark.parametrize("devices", [1, 4, 40])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (4.0, 1e-5)])
def test_what_the_accountant_says_is_what_exact_convolution_finds(devices, epsilon, delta):
    model = DistributedDP(epsilon, delta, honest=1.0, bits=16)
    statistic = ClippedSum(1)
    plan = SumPlan.of(statistic, model, devices)
    apart = math.floor(grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", plan.step))
    found = exceeds(convolved(plan.scale, plan.least), apart, epsilon)
    assert 0.95 * delta < found <= delta
    # A share that is a tenth smaller is seen.
    assert exceeds(convolved(0.9 * plan.scale, plan.least), apart, epsilon) > 1.2 * delta


def test_noise_is_that_of_joint_dp():
    statistic = OneHotCounts(steps=20, cells=72)
    joint = statistic.l2(Relation.REPLACE_ONE) / JointDP(1.0, 1e-6).budget.mu
    plan = SumPlan.of(statistic, MODEL, 10_000)
    assert 1.0 < plan.std(10_000) / joint < 1.05
    # Its least honest part alone has all that was promised.
    assert plan.std(plan.least) >= joint
    assert SumPlan.of(statistic, DistributedDP(1.0, 1e-6, 0.5), 10_000).std(5_000) >= joint


def test_a_share_is_the_rounded_statistic_plus_its_noise(monkeypatch):
    statistic = OneHotCounts(steps=2, cells=5)
    data = Block(1, {"cells": np.array([[4, 1]])})
    plan = SumPlan.of(statistic, MODEL, 100)
    asked = []

    def steps(self, pure, scale, count):
        asked.append((pure, scale, count))
        return np.full(count, -7)

    monkeypatch.setattr(Noise, "steps", steps)
    sent = share(statistic, data, MODEL, devices=100)
    assert asked == [(False, plan.scale, statistic.layout.size)]
    expected = grid_total(statistic, data, plan.step) - 7
    assert np.array_equal(sent, expected % plan.modulus)
    assert sent.min() >= 0


def test_the_noise_of_real_sums_has_the_planned_variance(monkeypatch):
    # 240 numbers, sums of 10 shares, of known bytes: within 5 deviations, the same every time.
    monkeypatch.setattr(os, "urandom", np.random.default_rng(7).bytes)
    statistic, devices = ClippedSum(16), 10
    plan = SumPlan.of(statistic, MODEL, devices)
    nothing = Block(1, {"values": np.zeros((1, 16))})
    sums = [
        plan.opened(
            added([share(statistic, nothing, MODEL, devices=devices) for _ in range(devices)], 32)
        )
        for _ in range(15)
    ]
    z = np.concatenate(sums) / plan.std(devices)
    assert abs((z**2).sum() - z.size) < 5.0 * math.sqrt(2.0 * z.size)
    assert abs(z.mean()) < 5.0 / math.sqrt(z.size)


@given(st.integers(8, 62), st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_opened_sums_are_sums_as_long_as_they_fit(bits, values):
    plan = SumPlan(len(values), 1, 0.25, 5.0, bits, 1)
    total = added([[v & (plan.modulus - 1)] for v in values], bits)
    half = plan.modulus // 2
    expected = (sum(values) + half) % plan.modulus - half
    assert plan.opened(total)[0] == 0.25 * float(expected)


test_what_is_refused = refusals(
    lambda make: make(),
    (lambda: DistributedDP(1.0, 0.0), "delta > 0"),
    (lambda: DistributedDP(1.0, 1e-6, honest=0.0), "honest"),
    (lambda: DistributedDP(1.0, 1e-6, honest=1.5), "honest"),
    (lambda: DistributedDP(1.0, 1e-6, bits=63), "bits"),
    (lambda: SumPlan.of(ClippedSum(3), DistributedDP(1.0, 1e-6, bits=8), 1000), "too few"),
    (lambda: SumPlan.of(ClippedSum(3), MODEL, 10**9), "too few"),
    (lambda: SumPlan.of(ClippedSum(3), MODEL, 0), "devices"),
    (
        lambda: share(ClippedSum(2), Block(2, {"values": np.zeros((2, 2))}), MODEL, devices=9),
        "one user",
    ),
    (lambda: tacit.UCBVI(tabular.riverswim().spec, 10, MODEL), "ConcurrentPSRL"),
)


def test_a_curator_takes_opened_sums_and_nothing_else():
    curator, statistic = MODEL.curator(), ClippedSum(2)
    plan = SumPlan.of(statistic, MODEL, 100)
    with pytest.raises(InvalidArgument, match="not raw data"):
        curator.add(Block(1, {"values": np.zeros((1, 2))}))
    with pytest.raises(InvalidArgument, match="not be opened with fewer than 95"):
        curator.checked_sum(statistic, np.zeros(2, dtype=np.int64), devices=100, stayed=94)
    with pytest.raises(InvalidArgument, match="whole numbers"):
        curator.checked_sum(statistic, np.zeros(2), devices=100, stayed=100)
    total = np.array([3, plan.modulus - 5])
    assert curator.add(curator.checked_sum(statistic, total, devices=100, stayed=96)) == 0
    release = curator.release(statistic)
    assert np.array_equal(release["sum"], plan.step * np.array([3.0, -5.0]))
    assert release.users == 96
    assert release.std["sum"] == pytest.approx(plan.std(96))
    with pytest.raises(tacit.BudgetExceeded):
        curator.release(ClippedSum(2, radius=2.0), block=0)


def test_the_guarantee_names_its_assumptions():
    guarantee = MODEL.curator().guarantee
    assert guarantee.model == "distributed"
    assert guarantee.mu is None
    words = str(guarantee)
    assert "at least 95 % of its devices are honest" in words
    assert "if the secure sums show nothing but sums" in words
    assert tacit.Guarantee.from_dict(guarantee.to_dict()) == guarantee


def test_an_agent_learns_from_opened_sums_and_resumes(tmp_path):
    world = tabular.riverswim(states=3, horizon=6)
    rng = np.random.default_rng(3)

    def made():
        options = {"seed": 1, "store": tmp_path / "store.db"}
        return tacit.agent(world.spec, users=900, privacy=DistributedDP(20.0, 1e-6), **options)

    def next_sum(agent):
        devices = agent.block_users
        episodes = world.simulate(agent.policy, devices, rng, "episodes").block()
        shares = [
            share(agent.statistic, episodes.take(slice(i, i + 1)), agent.privacy, devices=devices)
            for i in range(devices)
        ]
        return added(shares, agent.privacy.bits), devices

    with pytest.warns(tacit.TacitWarning, match="epsilon"):
        agent = made()
    with pytest.raises(InvalidArgument, match="not raw data"):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    total, devices = next_sum(agent)
    with pytest.raises(InvalidArgument, match="fewer than"):
        agent.learn_sum(total, stayed=devices // 2)
    assert agent.learn_sum(total).taken == devices
    assert agent.served == devices
    with pytest.warns(tacit.TacitWarning, match="epsilon"):
        other = made()
    assert np.array_equal(other.greedy_policy.actions, agent.greedy_policy.actions)
    while other.block_users:
        total, devices = next_sum(other)
        # As many drop out as may: the sum is opened all the same, and counts who is in it.
        least = SumPlan.of(other.statistic, other.privacy, devices).least
        receipt = other.learn_sum(total, stayed=least)
        assert (receipt.users, len(receipt.published)) == (least, 1)
    assert world.value(other.greedy_policy) > 0.9 * world.optimal_value


@pytest.mark.parametrize("model", [MODEL, DistributedDP(4.0, 1e-4, bits=30)], ids=str)
def test_a_simulated_sum_has_the_law_of_devices_shares(model):
    """Kolmogorov and Smirnov at 1e-10, variances at 7 standard errors: below 1e-9."""
    statistic, devices, size = ClippedSum(3000), 20, 3000
    nothing = Block(1, {"values": np.zeros((1, size))})
    shares = [share(statistic, nothing, model, devices=devices) for _ in range(devices)]
    real = SumPlan.of(statistic, model, devices).opened(added(shares, model.bits))
    curator = model.curator(noise_seed=4)
    curator.add(Block(devices, {"values": np.zeros((devices, size))}))
    fast = curator.release(statistic)
    assert stats.ks_2samp(real, fast["sum"], method="asymp").pvalue > 1e-10
    for sample in (real, fast["sum"]):
        ratio = (sample**2).mean() / float(fast.std["sum"]) ** 2
        assert abs(ratio - 1.0) < 7.0 * math.sqrt(2.0 / size)
