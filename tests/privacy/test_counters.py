"""Counters: conformance, exact costs, error figures, and mutants that must be caught."""

from __future__ import annotations

import copy
import math
import os
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

import tacit
from tacit.privacy.counters import (
    KINDS,
    Blocks,
    BufferedToeplitz,
    Counter,
    Endless,
    NormalisedSquareRoot,
    Optimal,
    SmoothTree,
)
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.counters.dense import sqrt_coefficients, square_root_error
from tacit.privacy.errors import (
    CheckFailed,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
)
from tacit.privacy.noise import Noise
from tacit.testing.check_counter import check_counter
from tacit.testing.mechanisms import BasisNoise, audit_counter, audit_linear

GAUSSIAN = [Blocks, SmoothTree, BufferedToeplitz, NormalisedSquareRoot]
LAPLACE = [Blocks, SmoothTree]
EVERY = [*GAUSSIAN, Optimal, Endless]


def spent(cost: float, claimed: float) -> bool:
    """Whether all of a claim is spent, but for what the grid and rounded factors add to noise."""
    return claimed * (1.0 - 3e-4) <= cost <= claimed * (1.0 + 1e-9)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_gaussian_conformance(cls: type[Counter]) -> None:
    report = check_counter(cls)
    for releases, audit in report.audits.items():
        assert spent(audit.cost, 0.7), f"{audit} at {releases}"


def test_optimal_conformance() -> None:
    lengths = (1, 2, 3, 4, 7, 8, 9, 31, 63, 64)
    for audit in check_counter(Optimal, lengths=lengths).audits.values():
        assert spent(audit.cost, 0.7)


def test_endless_conformance() -> None:
    """What is paid is for a stream that never ends, so no length uses it up."""
    costs = [audit.cost for _, audit in sorted(check_counter(Endless).audits.items())]
    assert costs == sorted(costs)
    assert 0.8 * 0.7 < costs[-1] < 0.7


@pytest.mark.parametrize("cls", LAPLACE)
def test_laplace_conformance(cls: type[Counter]) -> None:
    report = check_counter(cls, laplace=True)
    for releases, audit in report.audits.items():
        assert audit.unit == "epsilon"
        assert spent(audit.cost, 0.9), f"{audit} at {releases}"


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_exact_mu_at_400_releases(cls: type[Counter]) -> None:
    audit = audit_counter(cls(sensitivity=3.0, releases=400, mu=0.7))
    assert spent(audit.mu, 0.7)
    assert audit.draws == 400


@pytest.mark.parametrize("laplace", [False, True])
def test_trees_are_exact_at_every_length(laplace: bool) -> None:
    cost = {"epsilon": 0.7} if laplace else {"mu": 0.7}
    for releases in (*range(1, 70), 100, 127, 128, 255, 256, 300):
        counter = SmoothTree(releases=releases, **cost)
        columns = _columns(counter)
        power = 1 if laplace else 2
        norm = (columns**power).sum(axis=0).max() ** (1 / power)
        assert norm == pytest.approx(counter.column_norm, rel=1e-12), releases
        if releases in (1, 2, 5, 17, 100, 255, 256, 300):
            assert spent(audit_counter(counter).cost, 0.7)


def _columns(counter: Counter) -> np.ndarray:
    """C = B^-1 A from the code, with triangular solves (B is unit lower triangular)."""
    noise = _rows(counter)
    noise = np.rint(noise / noise[0, 0])
    assert np.array_equal(np.diag(noise), np.ones(len(noise)))
    return solve_triangular(noise, np.tri(len(noise)), lower=True)


def _rows(counter: Counter) -> np.ndarray:
    """B times the scale of the noise, from the code."""
    n = counter.releases
    assert n is not None
    source = BasisNoise(n)
    stream = counter.rebuild((n,), source)
    return np.stack([stream.release(np.zeros(n)) for _ in range(n)]) / np.array(source.units)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_analytic_std_is_the_codes_own(cls: type[Counter]) -> None:
    counter = cls(releases=257, shape=(257,), mu=0.3)
    rows = np.linalg.norm(_rows(counter), axis=1)
    assert np.allclose(rows, counter.std, rtol=1e-6)


def test_errors_relative_to_the_binary_tree() -> None:
    """A binary tree over 2^p items has p + 1 levels, and sums p nodes at most."""
    limits = {10: (0.312, 0.532), 14: (0.287, 0.481), 17: (0.275, 0.426)}
    for power, (sqrt_limit, smooth_limit) in limits.items():
        n, tree = 2**power, math.sqrt(power * (power + 1))
        assert round(square_root_error(n) / tree, 3) <= sqrt_limit
        blt = BufferedToeplitz(releases=n, mu=1.0).std.max()
        assert blt <= 1.01 * square_root_error(n)
        laplace_tree = (power + 1) * math.sqrt(2.0 * power)
        smooth = SmoothTree(releases=n, epsilon=1.0).std.max()
        assert smooth / laplace_tree <= smooth_limit


def test_smooth_tree_is_never_worse_than_the_balanced_one() -> None:
    for n in (1, 2, 3, 10, 100, 1000, 5000):
        half = 1
        while math.comb(2 * half, half) <= n:
            half += 1
        assert SmoothTree(releases=n, mu=1.0).std.max() <= half * (1 + 2e-4)
        balanced = math.sqrt(2) * half**1.5
        assert SmoothTree(releases=n, epsilon=1.0).std.max() <= balanced * (1 + 2e-4)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_symmetric_noise_is_isotropic_in_frobenius_norm(cls: type[Counter]) -> None:
    """Exact audit with scalar draws: the cost of a change M is its Frobenius norm over scale."""

    def mechanism(items: np.ndarray, source: object) -> list[np.ndarray]:
        counter = cls(releases=3, shape=(2, 2), symmetric=True, mu=0.5, source=source)
        return [counter.release(item) for item in items]

    changes = []
    for matrix in (np.diag([1.0, 0.0]), np.array([[0, 1], [1, 0]]) / math.sqrt(2)):
        change = np.zeros((3, 2, 2))
        change[0] = matrix
        changes.append(change)
    audit = audit_linear(mechanism, changes, claimed=0.5)
    # Off the diagonal a matrix is rounded to the grid in a coordinate of its own.
    assert all(spent(cost, 0.5) for cost in audit.costs)


def test_symmetric_std_is_the_diagonals() -> None:
    counter = Blocks(shape=(40, 40), symmetric=True, mu=1.0, source=Noise(3))
    noise = np.stack([counter.release(np.zeros((40, 40))) for _ in range(50)])
    steps = np.diff(noise, axis=0)
    diagonal = np.einsum("tii->ti", steps).std()
    off = steps[:, *np.triu_indices(40, 1)].std()
    assert diagonal == pytest.approx(1.0, rel=0.1)
    assert off == pytest.approx(math.sqrt(0.5), rel=0.05)
    assert np.array_equal(noise, np.swapaxes(noise, 1, 2))


# Mutants: each is a privacy bug that was seen in the wild, and must be caught.


class HalvedNoise(SmoothTree):
    def _draw(self) -> np.ndarray:
        return super()._draw() // 2


class HalvedBuffers(BufferedToeplitz):
    """Enough is drawn; half of it is added."""

    def _released(self, steps: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        return super()._released(steps, fresh // 2)


class ReusedNode(SmoothTree):
    """The node drawn at release 2 is used again at release 6."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        if self.released == 2:
            self._kept = fresh
        return super()._advance(self._kept if self.released == 6 else fresh)


class RedrawnNodes(SmoothTree):
    """Every read draws all nodes again, so that averaging releases removes the noise."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        super()._advance(fresh)
        for level in range(len(self._nodes)):
            if self._label >> level & 1:
                self._nodes[level] = self._draw()
        return self._nodes.sum(axis=0)


class MissingLevel(SmoothTree):
    """Calibrated for one node per user too few."""

    @property
    def column_norm(self) -> float:
        return math.sqrt(max(1, self.zeros - 1))


class LastUserOnly(BufferedToeplitz):
    """Calibrated for the last column of C, which is the shortest."""

    column_norm = 1.0


class MeanColumn(NormalisedSquareRoot):
    """Calibrated for the mean entry of a column, not for its length."""

    @property
    def column_norm(self) -> float:
        return float(self.factor.whole.max(axis=0).mean()) / 2.0**self.factor.places


class SharedNoise(NormalisedSquareRoot):
    """Noise is drawn once and used in every release."""

    def _released(self, steps: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        if self.released == 1:
            self._once = fresh
        return super()._released(steps, self._once)


class LeakyStart(BufferedToeplitz):
    """The first release goes out without noise."""

    def _released(self, steps: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        return super()._released(steps, fresh * (self.released > 1))


class LeakyEnd(Blocks):
    """The last block goes out without noise of its own."""

    def _advance(self, fresh: np.ndarray) -> np.ndarray:
        return super()._advance(fresh * (self.released < (self.releases or 0)))


@pytest.mark.parametrize(
    "mutant",
    [
        *(HalvedNoise, HalvedBuffers, ReusedNode, RedrawnNodes, MissingLevel, LastUserOnly),
        *(MeanColumn, SharedNoise, LeakyStart, LeakyEnd),
    ],
)
def test_mutants_are_caught_by_the_exact_audit(mutant: type[Counter]) -> None:
    audit = audit_counter(mutant(releases=32, mu=0.7))
    assert not audit.passed, f"{mutant.__name__}: {audit}"
    with pytest.raises(CheckFailed):
        check_counter(mutant)


def test_mutants_do_not_replace_their_parents() -> None:
    dumped = SmoothTree(releases=4, mu=1.0, source=Noise(1)).dump()
    assert type(revive_counter(*dumped, Noise(1))) is SmoothTree


class NoisyByData(Blocks):
    """Noise that looks at the item: right variance on zeros, wrong on data."""

    def release(self, item: np.ndarray) -> np.ndarray:
        return super().release(item) + 1e-3 * np.abs(np.asarray(item))


def test_noise_that_depends_on_data_is_caught() -> None:
    with pytest.raises(CheckFailed, match=r"depends on the items|NOT COVERED"):
        check_counter(NoisyByData)


class WrongStd(NormalisedSquareRoot):
    @property
    def std(self) -> np.ndarray:
        return 0.9 * super().std


class NoHorizon(SmoothTree):
    def release(self, item: np.ndarray) -> np.ndarray:
        if self.released == self.releases:
            self.released -= 1
        return super().release(item)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (WrongStd, "standard deviation is"),
        (NoHorizon, "horizon"),
    ],
)
def test_broken_promises_are_caught(mutant: type[Counter], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_counter(mutant)


@pytest.mark.parametrize("cls", EVERY)
def test_an_interrupted_release_cannot_be_retried(cls, monkeypatch) -> None:
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


def _interrupt(*args: object) -> np.ndarray:
    raise KeyboardInterrupt


@pytest.mark.parametrize("cls", EVERY)
def test_counters_are_never_copied(cls: type[Counter]) -> None:
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            copier(cls(releases=4, mu=1.0))


def test_a_forked_counter_refuses_to_go_on() -> None:
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


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_what_a_counter_hands_out_cannot_change_the_next_one(cls: type[Counter]) -> None:
    before = cls(releases=100, mu=1.0)
    norms, stds = before.row_norms(100), before.std
    norms *= 1e-6
    stds *= 1e-6
    after = cls(releases=100, mu=1.0)
    assert after.scale == before.scale
    assert audit_counter(after).passed


@pytest.mark.parametrize(("sensitivity", "mu"), [(5e-324, 1e10), (1.0, 1e-320), (1e200, 1e-7)])
def test_noise_out_of_range_is_refused(sensitivity: float, mu: float) -> None:
    with pytest.raises(InvalidArgument, match="range"):
        Blocks(sensitivity, mu=mu)


# The front door.


def test_counter_picks_by_budget_and_length() -> None:
    budget = tacit.Budget(1.0, 1e-6)
    few = tacit.counter(budget, 1.0, 64)
    assert few.kind == "optimal"
    assert "optimal: the smallest" in few.why
    short = tacit.counter(budget, 1.0, 65)
    assert short.kind == tacit.counter(budget, 1.0, 1024).kind == "normalised square root"
    assert short.std.shape == (65,)
    assert "normalised square root: nearly" in short.why
    unknown = tacit.counter(budget, 1.0, None)
    assert (unknown.kind, unknown.releases) == ("endless", None)
    assert "nobody knows" in unknown.why
    assert tacit.counter(tacit.Budget(1.0, 0.0), 1.0, None).kind == "blocks"
    assert tacit.counter(budget, 1.0, 10_000).kind == "blt"
    assert tacit.counter(budget, 1.0, np.int64(10_000)).kind == "blt"
    assert "0.15% more" in tacit.counter(budget, 1.0, 10_000).why
    assert tacit.counter(budget, 1.0, 1000, shape=(1_000_000,)).kind == "blt"
    assert tacit.counter(budget, 1.0, 60, shape=(1_000_000,)).kind == "blt"
    pure = tacit.Budget(1.0, 0.0)
    assert tacit.counter(pure, 1.0, 10**12).kind == "smooth tree"
    assert tacit.counter(pure, 1.0, 1).kind == "blocks"
    assert tacit.counter(pure, 1.0, 1000).kind == "smooth tree"
    assert "smooth tree" in tacit.counter(pure, 1.0, 1000).why


def test_the_error_of_long_square_roots_is_known_without_them() -> None:
    for releases in (1, 2, 1024, 1025, 100_000):
        exact = float((sqrt_coefficients(releases) ** 2).sum())
        assert square_root_error(releases) == pytest.approx(exact, rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(releases=st.integers(1, 400), pure=st.booleans())
def test_the_choice_is_the_best_of_all(releases: int, pure: bool) -> None:
    budget = tacit.Budget(0.8, 0.0 if pure else 1e-5)
    chosen = tacit.counter(budget, 2.0, releases)
    kinds = [c.kind for c in (LAPLACE if pure else [*GAUSSIAN, Endless])]
    best = min(tacit.counter(budget, 2.0, releases, kind=k).std.max() for k in kinds)
    assert chosen.std.max() <= best * (1 + 1e-9)


def test_guarantee_of_a_counter() -> None:
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


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"sensitivity": 0.0, "mu": 1.0}, "sensitivity"),
        ({"sensitivity": math.nan, "mu": 1.0}, "sensitivity"),
        ({"mu": -1.0}, "mu"),
        ({"mu": 1.0, "epsilon": 1.0}, "exactly one"),
        ({}, "exactly one"),
        ({"mu": 1.0, "releases": 0}, "releases"),
        ({"mu": 1.0, "releases": 2.5}, "releases"),
        ({"mu": 1.0, "shape": (0,)}, "shape"),
        ({"mu": 1.0, "shape": (2, 3), "symmetric": True}, "symmetric"),
        ({"epsilon": 1.0, "shape": (2, 2), "symmetric": True}, "Laplace"),
    ],
)
def test_public_mistakes_name_the_argument(arguments: dict, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        Blocks(**arguments)


def test_more_refusals() -> None:
    with pytest.raises(InvalidArgument, match="in advance"):
        SmoothTree(mu=1.0)
    with pytest.raises(InvalidArgument, match="Gaussian noise only"):
        Optimal(releases=3, epsilon=1.0)
    for gone in ("magic", "binary tree", "square root", "fresh", "noiseless"):
        with pytest.raises(InvalidArgument, match="kind must be auto or one of optimal"):
            tacit.counter(tacit.Budget(1, 1e-6), 1.0, 3, kind=gone)
    with pytest.raises(InvalidArgument, match=r"tacit\.Budget"):
        tacit.counter((1, 1e-6), 1.0, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="std_at"):
        _ = Blocks(mu=1.0).std
    counter = SmoothTree(releases=2, mu=1.0)
    counter.release(1.0)
    counter.release(1.0)
    with pytest.raises(HorizonExceeded, match="declared for 2 releases"):
        counter.release(1.0)


def test_blocks_need_no_horizon() -> None:
    counter = Blocks(mu=1.0, source=Noise(1))
    for _ in range(1000):
        counter.release(1.0)
    assert counter.std_at(900) == pytest.approx(30.0, rel=2e-4)


def test_kinds_are_all_there() -> None:
    assert set(KINDS) == {
        *("optimal", "normalised square root", "blt", "endless", "smooth tree", "blocks"),
    }


def test_a_million_releases_stay_finite_and_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("smooth tree", "blt", "endless", "blocks"):
            std = tacit.counter(tacit.Budget(1, 1e-6), 1.0, 1_000_000, kind=kind).std
            assert np.isfinite(std).all()
            assert (std > 0).all()


def test_what_a_counter_refuses_changes_nothing() -> None:
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
