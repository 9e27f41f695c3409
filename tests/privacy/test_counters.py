"""Counters: conformance, exact costs, error figures, and mutants that must be caught."""

import copy
import math
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

import tacit
from tacit.privacy.counters import Blocks, NormalisedSquareRoot, Optimal, SmoothTree
from tacit.privacy.counters.dense import sqrt_coefficients
from tacit.privacy.errors import CheckFailed, DoubleSpend, HorizonExceeded, InvalidArgument
from tacit.privacy.noise import Noise
from tacit.testing.mechanisms import BasisNoise, audit_counter
from tests.refusals import refusals
from tests.testing.check_counter import check_counter

GAUSSIAN = [Blocks, SmoothTree, NormalisedSquareRoot]
LAPLACE = [Blocks, SmoothTree]
EVERY = [*GAUSSIAN, Optimal]


def spent(cost, claimed):
    """Whether all of a claim is spent, but for what the grid and rounded factors add to noise."""
    return claimed * (1.0 - 3e-4) <= cost <= claimed * (1.0 + 1e-9)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_gaussian_conformance(cls):
    for releases, audit in check_counter(cls).items():
        assert spent(audit.cost, 0.7), f"{audit} at {releases}"


def test_optimal_conformance():
    lengths = (1, 2, 3, 4, 7, 8, 9, 31, 63, 64)
    for audit in check_counter(Optimal, lengths=lengths).values():
        assert spent(audit.cost, 0.7)


@pytest.mark.parametrize("cls", LAPLACE)
def test_laplace_conformance(cls):
    for releases, audit in check_counter(cls, laplace=True).items():
        assert audit.unit == "epsilon"
        assert spent(audit.cost, 0.9), f"{audit} at {releases}"


@pytest.mark.parametrize("laplace", [False, True])
def test_trees_are_exact_at_every_length(laplace):
    cost = {"epsilon": 0.7} if laplace else {"mu": 0.7}
    for releases in (*range(1, 70), 100, 127, 128, 255, 256, 300):
        counter = SmoothTree(releases=releases, **cost)
        columns = _columns(counter)
        power = 1 if laplace else 2
        norm = (columns**power).sum(axis=0).max() ** (1 / power)
        assert norm == pytest.approx(counter.column_norm, rel=1e-12), releases
        if releases in (1, 2, 5, 17, 100, 255, 256, 300):
            assert spent(audit_counter(counter).cost, 0.7)


def _columns(counter):
    """C = B^-1 A from the code, with triangular solves (B is unit lower triangular)."""
    noise = _rows(counter)
    noise = np.rint(noise / noise[0, 0])
    assert np.array_equal(np.diag(noise), np.ones(len(noise)))
    return solve_triangular(noise, np.tri(len(noise)), lower=True)


def _rows(counter):
    """B times the scale of the noise, from the code."""
    n = counter.releases
    assert n is not None
    source = BasisNoise(n)
    stream = counter.rebuild((n,), source)
    return np.stack([stream.release(np.zeros(n)) for _ in range(n)]) / np.array(source.units)


def test_errors_relative_to_the_binary_tree():
    """A binary tree over 2^p items has p + 1 levels, and sums p nodes at most."""
    limits = {10: (0.312, 0.532), 14: (0.287, 0.481), 17: (0.275, 0.426)}
    for power, (sqrt_limit, smooth_limit) in limits.items():
        n, tree = 2**power, math.sqrt(power * (power + 1))
        root = float((sqrt_coefficients(n) ** 2).sum())
        assert round(root / tree, 3) <= sqrt_limit
        laplace_tree = (power + 1) * math.sqrt(2.0 * power)
        smooth = SmoothTree(releases=n, epsilon=1.0).std.max()
        assert smooth / laplace_tree <= smooth_limit


# Broken counters, which the checks of counters find.


class NoisyByData(Blocks):
    """Noise that looks at the item: right variance on zeros, wrong on data."""

    def release(self, item):
        return super().release(item) + 1e-3 * np.abs(np.asarray(item))


def test_noise_that_depends_on_data_is_caught():
    with pytest.raises(CheckFailed, match=r"depends on the items|NOT COVERED"):
        check_counter(NoisyByData)


class WrongStd(NormalisedSquareRoot):
    @property
    def std(self):
        return 0.9 * super().std


class NoHorizon(SmoothTree):
    def release(self, item):
        if self.released == self.releases:
            self.released -= 1
        return super().release(item)


class SharedRows(Blocks):
    """All numbers of a row of a matrix have one noise."""

    def _advance(self, fresh):
        if len(self.shape) == 2:
            fresh = np.repeat(fresh.reshape(self.shape)[:, 0], self.shape[1])
        return super()._advance(fresh)


test_broken_promises_are_caught = refusals(
    lambda mutant: check_counter(mutant),
    (SharedRows, r"shape \(2, 2\) is not linear in its own draws"),
    (WrongStd, "standard deviation is"),
    (NoHorizon, "horizon"),
    error=CheckFailed,
)


@pytest.mark.parametrize("cls", EVERY)
def test_an_interrupted_release_cannot_be_retried(cls, monkeypatch):
    """A retry would put the item into the sum twice, at the price of once."""
    counter = cls(releases=4, mu=1.0, source=Noise(1))
    counter.release(1.0)
    # An interrupt while drawing: nothing has happened, and the retry is a first try.
    before, reached = counter._sum.copy(), counter._reach
    with monkeypatch.context() as patch:
        patch.setattr(counter.source, "steps", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            counter.release(1.0)
    assert (counter.released, counter._reach) == (1, reached)
    assert np.array_equal(counter._sum, before)
    counter.release(1.0)
    assert np.array_equal(counter._sum, 2 * before)
    # An interrupt later: the counter has ended.
    with monkeypatch.context() as patch:
        patch.setattr(counter, "_released", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            counter.release(1.0)
    with pytest.raises(HorizonExceeded, match="interrupted"):
        counter.release(1.0)
    with pytest.raises(HorizonExceeded, match="interrupted"):
        counter.dump()


def _interrupt(*args):
    raise KeyboardInterrupt


@pytest.mark.parametrize("cls", EVERY)
def test_counters_are_never_copied(cls):
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            copier(cls(releases=4, mu=1.0))


def test_a_forked_counter_refuses_to_go_on():
    counter = Blocks(mu=1.0)
    counter.release(1.0)
    pid = os.fork()
    if pid == 0:
        try:
            counter.release(1.0)
        except DoubleSpend:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    counter.release(1.0)


@pytest.mark.parametrize(("sensitivity", "mu"), [(5e-324, 1e10), (1.0, 1e-320), (1e200, 1e-7)])
def test_noise_out_of_range_is_refused(sensitivity, mu):
    with pytest.raises(InvalidArgument, match="range"):
        Blocks(sensitivity, mu=mu)


def test_counter_picks_by_budget_and_length():
    budget = tacit.Budget(1.0, 1e-6)
    few = tacit.counter(budget, 1.0, 64)
    assert few.kind == "optimal"
    short = tacit.counter(budget, 1.0, 65)
    assert short.kind == tacit.counter(budget, 1.0, 1024).kind == "normalised square root"
    assert short.std.shape == (65,)
    unknown = tacit.counter(budget, 1.0, None)
    assert (unknown.kind, unknown.releases) == ("blocks", None)
    assert tacit.counter(tacit.Budget(1.0, 0.0), 1.0, None).kind == "blocks"
    assert tacit.counter(budget, 1.0, 10_000).kind == "smooth tree"
    assert tacit.counter(budget, 1.0, np.int64(10_000)).kind == "smooth tree"
    assert tacit.counter(budget, 1.0, 1000, shape=(1_000_000,)).kind == "smooth tree"
    pure = tacit.Budget(1.0, 0.0)
    assert tacit.counter(pure, 1.0, 10**12).kind == "smooth tree"
    assert tacit.counter(pure, 1.0, 1).kind == "blocks"
    assert tacit.counter(pure, 1.0, 1000).kind == "smooth tree"


@settings(max_examples=40, deadline=None)
@given(releases=st.integers(1, 400), pure=st.booleans())
def test_the_choice_is_the_best_of_all(releases, pure):
    budget = tacit.Budget(0.8, 0.0 if pure else 1e-5)
    chosen = tacit.counter(budget, 2.0, releases)
    kinds = [c.kind for c in (LAPLACE if pure else GAUSSIAN)]
    best = min(tacit.counter(budget, 2.0, releases, kind=k).std.max() for k in kinds)
    assert chosen.std.max() <= best * (1 + 1e-9)


def test_guarantee_of_a_counter():
    counter = tacit.counter(tacit.Budget(1.0, 1e-6), 1.0, 64, noise_seed=1)
    guarantee = counter.guarantee
    assert guarantee is not None
    assert (guarantee.epsilon, guarantee.delta, guarantee.releases) == (1.0, 1e-6, 64)
    assert guarantee.simulation_only
    real = tacit.counter(tacit.Budget(1.0, 1e-6), 1.0, 64).guarantee
    assert real is not None
    assert not real.simulation_only
    with pytest.raises(InvalidArgument, match=r"tacit\.counter"):
        _ = Blocks(mu=1.0).guarantee


test_public_mistakes_name_the_argument = refusals(
    lambda arguments: Blocks(**arguments),
    ({"sensitivity": 0.0, "mu": 1.0}, "sensitivity"),
    ({"sensitivity": math.nan, "mu": 1.0}, "sensitivity"),
    ({"mu": -1.0}, "mu"),
    ({"mu": 1.0, "epsilon": 1.0}, "exactly one"),
    ({}, "exactly one"),
    ({"mu": 1.0, "releases": 0}, "releases"),
    ({"mu": 1.0, "releases": 2.5}, "releases"),
    ({"mu": 1.0, "shape": (0,)}, "shape"),
)


def test_more_refusals():
    with pytest.raises(InvalidArgument, match="in advance"):
        SmoothTree(mu=1.0)
    with pytest.raises(InvalidArgument, match="Gaussian noise only"):
        Optimal(releases=3, epsilon=1.0)
    for gone in ("magic", "binary tree", "square root", "fresh", "noiseless"):
        with pytest.raises(InvalidArgument, match="kind must be auto or one of optimal"):
            tacit.counter(tacit.Budget(1, 1e-6), 1.0, 3, kind=gone)
    with pytest.raises(InvalidArgument, match=r"tacit\.Budget"):
        tacit.counter((1, 1e-6), 1.0, 3)
    with pytest.raises(InvalidArgument, match="std_at"):
        _ = Blocks(mu=1.0).std
    counter = SmoothTree(releases=2, mu=1.0)
    counter.release(1.0)
    counter.release(1.0)
    with pytest.raises(HorizonExceeded, match="declared for 2 releases"):
        counter.release(1.0)


def test_blocks_need_no_horizon():
    counter = Blocks(mu=1.0, source=Noise(1))
    for _ in range(1000):
        counter.release(1.0)
    assert counter.std_at(900) == pytest.approx(30.0, rel=2e-4)


def test_what_a_counter_refuses_changes_nothing():
    counter = Blocks(releases=2, shape=(2,), mu=1.0, source=Noise(1))
    for item in (np.zeros(3), np.array([np.nan, 0.0])):
        with pytest.raises(InvalidArgument):
            counter.release(item)
    assert counter.released == 0
    for _ in range(2):
        counter.release(np.ones(2))
    before = counter.dump()
    with pytest.raises(HorizonExceeded):
        counter.release(np.ones(2))
    after = counter.dump()
    assert before[0] == after[0]
    assert all(np.array_equal(before[1][name], after[1][name]) for name in before[1])


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_what_a_counter_hands_out_cannot_change_the_next_one(cls):
    before = cls(releases=100, mu=1.0)
    norms, stds = before.row_norms(100), before.std
    norms *= 1e-6
    stds *= 1e-6
    after = cls(releases=100, mu=1.0)
    assert after.scale == before.scale
    assert audit_counter(after).passed
