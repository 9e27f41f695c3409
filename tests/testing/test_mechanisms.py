"""Audits: exact ones against closed forms, empirical ones against their stated error."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.privacy.budget import epsilon_from_mu
from tacit.privacy.counters import SmoothTree
from tacit.privacy.errors import InvalidArgument
from tacit.testing.mechanisms import audit_counter, audit_linear, audit_samples


class Plain:
    """Releases item + noise of one standard deviation, by hand."""

    def __init__(self, dimension, source, std=2.0):
        self.shape, self.source, self.std = (dimension,), source, std

    def release(self, item):
        return item + self.std * self.source.normal(self.shape)


def test_one_gaussian_release_costs_sensitivity_over_std():
    audit = audit_counter(Plain, releases=3, sensitivity=1.5, claimed=0.75)
    assert audit.costs == pytest.approx([0.75] * 3)
    assert audit.passed
    assert not audit_counter(Plain, releases=3, sensitivity=1.5, claimed=0.74).passed


def test_a_reused_draw_is_infinitely_expensive():
    class Reused(Plain):
        kept = None

        def release(self, item):
            if self.kept is None:
                self.kept = self.source.normal(self.shape)
            return item + self.kept

    audit = audit_counter(Reused, releases=3)
    assert audit.mu == math.inf
    assert "NOT COVERED" in str(audit_counter(Reused, releases=3, claimed=1.0))


def test_two_reads_with_fresh_noise_cost_sqrt_two():
    def twice(x, source):
        return [x + source.normal((2,)), x + source.normal((2,))]

    audit = audit_linear(twice, [[1.0, 0.0], [0.6, 0.8]])
    assert audit.costs == pytest.approx([math.sqrt(2)] * 2)


def test_laplace_audit_refuses_what_it_cannot_decide():
    class TwoDraws(Plain):
        def release(self, item):
            return item + self.source.laplace(self.shape) + self.source.laplace(self.shape)

    with pytest.raises(InvalidArgument, match="one vector per release"):
        audit_counter(TwoDraws, releases=2)


def test_laplace_counters_are_exact_and_a_missing_level_is_seen():
    cost = audit_counter(SmoothTree(releases=100, epsilon=0.3)).cost
    assert 0.3 * (1 - 2e-4) < cost <= 0.3

    class MissingLevel(SmoothTree):
        @property
        def column_norm(self):
            return super().column_norm - 1.0

    assert not audit_counter(MissingLevel(releases=100, epsilon=0.3)).passed
    with pytest.raises(InvalidArgument, match="epsilon"):
        _ = audit_counter(SmoothTree(releases=2, epsilon=0.3)).mu


@pytest.mark.parametrize("first", [1.0, 1e-4])
def test_whole_noise_of_any_scale_is_played(first):
    """A draw of one scale, then one of another that is billions of times larger or smaller."""

    def twice(x, source):
        return [x + first * 1e4 * source.steps(False, 1e4, 1), x + source.steps(False, 3e12, 1)]

    audit = audit_linear(twice, [np.ones(1)])
    assert audit.mu == pytest.approx(math.hypot(1.0 / (first * 1e8), 1.0 / 3e12), rel=1e-9)

    class Growing:
        def __init__(self, dimension, source):
            self.dimension, self.source, self.scale = dimension, source, 1e2

        def release(self, item):
            self.scale *= 1e5
            return item + self.source.steps(False, self.scale, self.dimension)

    costs = audit_counter(Growing, releases=2, sensitivity=1e7).costs
    assert costs == pytest.approx([1.0, 1e-5], rel=1e-9)


def test_empirical_bound_holds_at_its_stated_rate():
    """At confidence 0.9, 400 audits of N(0,1) against N(1,1).

    If the bound failed with probability 0.1, more than 70 failures would have probability
    below 1e-5; the measured rate is far lower, since Clopper-Pearson is conservative.
    """
    rng = np.random.default_rng(4)
    bounds = [
        audit_samples(rng.normal(0, 1, 400), rng.normal(1, 1, 400), confidence=0.9).mu
        for _ in range(400)
    ]
    assert sum(bound > 1.0 for bound in bounds) <= 70
    assert np.median(bounds) > 0.5


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_empirical_bound_is_close_with_many_samples(mu):
    rng = np.random.default_rng(5)
    audit = audit_samples(rng.normal(0, 1, 200_000), rng.normal(-mu, 1, 200_000))
    assert 0.9 * mu < audit.mu <= mu
    assert audit.epsilon(1e-6) == pytest.approx(epsilon_from_mu(audit.mu, 1e-6))


def test_equal_samples_give_nothing_and_separate_ones_stay_finite():
    rng = np.random.default_rng(6)
    null = audit_samples(rng.normal(size=1000), rng.normal(size=1000))
    assert null.mu < 0.2
    assert audit_samples(np.zeros(50), np.zeros(50)).mu == 0.0
    assert audit_samples(np.zeros(50), np.zeros(50)).epsilon(1e-6) == 0.0
    apart = audit_samples(np.zeros(1000), np.ones(1000))
    # 500 judged, none wrong: both rates are bounded by 1 - 0.025^(1/500).
    rate = 1 - 0.025 ** (1 / 500)
    assert apart.false_positives == pytest.approx(rate)
    assert ndtr(-apart.mu / 2) == pytest.approx(rate)
