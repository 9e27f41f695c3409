"""Counters in whole numbers: their factors, what neighbours differ by, and what is published."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from research.optimal_factors import optimum
from tacit.privacy.counters import KINDS, Blocks, NormalisedSquareRoot, Optimal, SmoothTree
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.counters.dense import Factor, sqrt_coefficients
from tacit.privacy.counters.grid import ItemGrid, root_up
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.noise import Noise

WHOLE = [Blocks, SmoothTree]
HISTORY = [NormalisedSquareRoot, Optimal]
GAUSSIAN = [*WHOLE, *HISTORY]
LAPLACE = WHOLE


class Scripted(Noise):
    """Noise that is known in advance; without a script there is none."""

    def __init__(self, script=None):
        super().__init__(0)
        self.script, self.drawn = script, 0

    def steps(self, pure, scale, count):
        row = np.zeros(count, np.int64) if self.script is None else self.script[self.drawn]
        self.drawn += 1
        return row


class Recorded(Noise):
    """Simulated noise, and a copy of it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.rows = []

    def steps(self, pure, scale, count):
        self.rows.append(super().steps(pure, scale, count))
        return self.rows[-1].copy()


def stream(counter, items):
    return np.stack([counter.release(item) for item in items])


def factors(cls, releases, **cost):
    """(B, C) of an exact counter of whole items, in steps, from what its code does."""
    cost = cost or {"mu": 1.0}
    options = {"releases": releases, "shape": (releases,), "whole": True} | cost
    probe = cls(2.0**20, **options, source=Scripted())
    # Noise of one whole step, in the units of its release.
    script = []
    for t in range(releases):
        script.append(np.eye(releases, dtype=np.int64)[t] << probe._places())
        probe.released += 1
    b = stream(cls(2.0**20, **options, source=Scripted(script)), np.zeros((releases, releases)))
    return b, np.linalg.solve(b, np.tri(releases))


@pytest.mark.parametrize("releases", [1, 2, 3, 8, 33, 64])
@pytest.mark.parametrize("cls", HISTORY)
def test_rounded_factors_multiply_to_prefix_sums(cls, releases):
    counter = cls(releases=releases, mu=1.0, source=Scripted())
    assert isinstance(counter, (NormalisedSquareRoot, Optimal))
    b, whole = np.tril(counter.factor.inverse), np.tril(counter.factor.whole)
    assert whole.dtype == np.int64
    c = whole / 2.0 ** counter._places()
    assert np.abs(b @ c - np.tri(releases)).max() < 1e-12
    assert np.allclose(np.linalg.norm(b, axis=1), counter.row_norms(releases), rtol=1e-12)
    # The column norm is that of the whole numbers, from above.
    squares = [sum(int(x) ** 2 for x in column) for column in whole.T]
    exact = Fraction(max(squares), 4 ** counter._places())
    claimed = Fraction(counter.column_norm) ** 2
    assert exact <= claimed <= exact * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_the_code_is_the_factorisation_that_is_claimed(cls):
    releases = 40
    b, c = factors(cls, releases)
    counter = cls(2.0**20, releases, whole=True, mu=1.0, source=Scripted())
    assert np.allclose(np.linalg.norm(b, axis=1), counter.row_norms(releases), rtol=1e-5)
    longest = np.linalg.norm(c, axis=0).max()
    assert longest <= counter.column_norm * (1.0 + 1e-9)
    assert longest >= counter.column_norm * 0.9998
    assert np.abs(np.triu(b, 1)).max() == 0.0


@pytest.mark.parametrize("cls", LAPLACE)
def test_pure_counters_are_the_factorisation_that_is_claimed(cls):
    b, c = factors(cls, 40, epsilon=1.0)
    counter = cls(2.0**20, 40, whole=True, epsilon=1.0, source=Scripted())
    assert np.array_equal(b, np.rint(b))
    assert np.abs(c).sum(axis=0).max() == pytest.approx(counter.column_norm, rel=1e-12)


@pytest.mark.parametrize("releases", [*range(1, 12), 16, 32, 64])
def test_optimal_factors_are_within_a_percent_of_the_certified_optimum(releases):
    bound = optimum(releases, within=1e-3).bound
    error = float(Optimal(releases=releases, mu=1.0).std.max())
    assert bound <= error * (1.0 + 1e-9)
    assert error <= 1.001 * bound


@pytest.mark.parametrize(
    ("releases", "limit"), [(8, 0.92), (16, 0.92), (32, 0.92), (64, 0.92), (1024, 0.95)]
)
def test_what_is_chosen_beats_the_square_root(releases, limit):
    budget = tacit.Budget(1.0, 1e-6)
    chosen = tacit.counter(budget, 1.0, releases)
    root = float((sqrt_coefficients(releases) ** 2).sum())
    assert chosen.std.max() <= limit * root / budget.mu


def _whole_stream(cls, items, source):
    cost = {"mu": 0.5}
    return cls(2.0**18, len(items), items.shape[1:], whole=True, source=source, **cost)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_what_is_published_is_a_function_of_w_alone(cls):
    """Another stream, with the noise that makes its w the same, publishes the same bits."""
    rng = np.random.default_rng(1)
    releases, size = 24, 3
    first, second = rng.integers(-(2**30), 2**30, size=(2, releases, size))
    noise = Recorded(5)
    counter = _whole_stream(cls, first, noise)
    published = stream(counter, first)
    assert np.array_equal(stream(_whole_stream(cls, first, Scripted(noise.rows)), first), published)
    moved = _products(cls, first) - _products(cls, second)
    script = [row + change for row, change in zip(noise.rows, moved, strict=True)]
    other = stream(_whole_stream(cls, second, Scripted(script)), second)
    assert not np.array_equal(first, second)
    assert np.array_equal(other, published)


def _products(cls, items):
    """C x in the units of the noise of each release, as whole numbers."""
    counter = _whole_stream(cls, items, Scripted())
    if cls in WHOLE:
        c = np.rint(factors(cls, len(items))[1]).astype(np.int64)
        return c @ items
    places, rows = [], []
    for item in items:
        places.append(counter._places())
        counter.release(item)
        rows.append(counter._seen[len(rows)])
    whole = [np.ldexp(row, p) for row, p in zip(rows, places, strict=True)]
    assert all(np.array_equal(row, np.rint(row)) for row in whole)
    return np.array(whole).astype(np.int64)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_a_release_is_the_sum_and_b_times_the_noise(cls):
    rng = np.random.default_rng(2)
    items = rng.integers(-(10**6), 10**6, size=(20, 20))
    noise = Recorded(6)
    counter = _whole_stream(cls, items, noise)
    places = []
    published = []
    for item in items:
        places.append(counter._places())
        published.append(counter.release(item))
    b = factors(cls, 20)[0]
    drawn = np.stack(
        [np.ldexp(z.astype(float), -p) for z, p in zip(noise.rows, places, strict=True)]
    )
    expected = np.cumsum(items, axis=0) + b @ drawn
    assert np.abs(np.stack(published) - expected).max() <= 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("cls", HISTORY)
@pytest.mark.parametrize("size", [1, 3])
def test_neighbours_are_no_further_apart_than_claimed(cls, size):
    """Items in floats, on the counter's own grid: what moves is w."""
    rng = np.random.default_rng(3)
    releases, sensitivity = 60, 2.0
    change = rng.normal(size=size)
    change *= sensitivity / np.linalg.norm(change)
    worst = 0.0
    for k in (0, 1, 30, 59):
        items = rng.normal(size=(releases, size)) * 1e3
        other = items.copy()
        other[k] += change
        counters = [cls(sensitivity, releases, (size,), mu=1.0, source=Scripted()) for _ in "ab"]
        w = [_seen(c, x) for c, x in zip(counters, (items, other), strict=True)]
        worst = max(worst, float(np.linalg.norm(w[0] - w[1])))
    claimed = counters[0].column_norm * counters[0]._grid.apart
    assert worst <= claimed
    # The finer grid of neighbours is never used up.
    assert worst >= 0.999 * claimed


def _seen(counter, items):
    stream(counter, items)
    return counter._seen[: len(items)]


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_a_dump_goes_on_bit_for_bit(cls):
    items = np.random.default_rng(5).normal(size=(30, 3))
    source = Noise(3)
    counter = cls(2.0, 30, (3,), mu=0.4, source=source)
    stream(counter, items[:17])
    meta, arrays = counter.dump()
    held = sum(array.size for array in arrays.values())
    assert held <= counter.memory * counter.size
    again = revive_counter(meta, arrays, Noise.from_state(source.state()))
    assert type(again) is cls
    assert again.largest_sum == counter.largest_sum
    assert again._reach == counter._reach > 0
    assert np.array_equal(stream(again, items[17:]), stream(counter, items[17:]))


@pytest.mark.parametrize("cls", HISTORY)
def test_another_factor_is_refused(cls, monkeypatch):
    counter = cls(2.0, 8, mu=0.4, source=Noise(1))
    counter.release(1.0)
    dumped = counter.dump()
    monkeypatch.setattr(Factor, "digest", "another")
    with pytest.raises(CorruptFile, match="another factor"):
        revive_counter(*dumped, Noise(1))


def test_a_save_keeps_its_grid():
    meta, arrays = Blocks(mu=1.0, source=Noise(1)).dump()
    assert revive_counter(meta, arrays, Noise(1)).released == 0
    step, scale = meta["calibration"]
    for other in ([2.0 * step, scale], [step, 0.9 * scale]):
        with pytest.raises(CorruptFile, match="grid that it had"):
            revive_counter(meta | {"calibration": other}, arrays, Noise(1))


def test_real_and_simulated_counters_say_which_they_are():
    budget = tacit.Budget(1.0, 1e-6)
    for options, simulation in [
        ({}, False),
        ({"noise_seed": 1}, True),
        ({"source": Noise(2)}, True),
    ]:
        guarantee = tacit.counter(budget, 1.0, 20, **options).guarantee
        assert (guarantee.sampler, guarantee.simulation_only) == ("exact", simulation)
    with pytest.raises(InvalidArgument, match="noise_seed or source"):
        tacit.counter(budget, 1.0, 20, source=Noise(1), noise_seed=1)
    with pytest.raises(TypeError, match="sampler"):
        tacit.counter(budget, 1.0, 20, sampler="exact")


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_in_and_out(kind):
    counter = KINDS[kind](100.0, 4, (2,), whole=True, mu=0.5, source=Noise(1))
    large = np.array([2**40 + 1, -(2**40)])
    published = counter.release(large)
    assert np.abs(published - large).max() < 20 * counter.std[0]
    for wrong in (np.array([0.5, 1.0]), np.array([2.0**54, 0.0]), np.array([np.nan, 0.0])):
        with pytest.raises(InvalidArgument):
            counter.release(wrong)
    with pytest.raises(InvalidArgument, match="shape"):
        counter.release(np.array([1, 2, 3]))
    for large in (2**60, 2**62, -(2**63)):
        if large > counter.largest_sum or large < 0:
            with pytest.raises(InvalidArgument, match="must stay below"):
                counter.release(np.full(2, large))
    assert counter.released == 1


def test_a_dumped_stream_has_its_counter():
    """The stream's own entries of a dump do not replace the counter's."""
    from tacit.privacy.standard import ClippedSum

    block = tacit.Block(40, {"values": np.full((40, 2), 0.5)})
    for kind in ("auto", "smooth tree"):
        curator = tacit.JointDP(epsilon=1.0, delta=1e-6).curator(source=Noise(4))
        running = curator.stream(ClippedSum(2), releases=6, kind=kind)
        running.release_block(block)
        meta, arrays = running.dump()
        twin = revive_counter(meta, arrays, Noise.from_state(curator.source.state()))
        assert twin._reach == running.counter._reach > 0
        total = np.array([20000, -7])
        assert np.array_equal(twin.release(total), running.counter.release(total))


def test_what_does_not_fit_is_refused_before_anything_is_drawn():
    with pytest.raises(InvalidArgument, match="scale"):
        Blocks(mu=1e-12, source=Noise(1))
    with pytest.raises(InvalidArgument, match="at most 64"):
        Optimal(releases=65, mu=1.0)
    with pytest.raises(InvalidArgument, match=r"2,048 .*smooth tree"):
        NormalisedSquareRoot(releases=2049, mu=1.0)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2**120))
def test_roots_are_rounded_up(square):
    root = Fraction(root_up(square))
    assert square <= root**2 <= square * (1 + Fraction(1, 2**50))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 6),
    power=st.integers(-3, 9),
    sensitivity=st.floats(1e-3, 1e3),
)
def test_rounded_items_are_no_further_apart_than_claimed(seed, size, power, sensitivity):
    rng = np.random.default_rng(seed)
    grid = ItemGrid.of(sensitivity, size, "l2", whole=False)
    item = rng.normal(size=size) * sensitivity * 10.0**power
    change = rng.normal(size=size)
    change *= sensitivity * (1 - 1e-9) / np.linalg.norm(change)
    # The change itself must survive the addition.
    other = item + change
    if np.linalg.norm(other - item) > sensitivity:
        return
    apart = grid.steps(item, (size,)) - grid.steps(other, (size,))
    assert np.linalg.norm(apart.astype(float)) <= grid.apart


def test_what_was_revived_does_not_share_its_noise():
    """Going on with one of two changes nothing in the other, or in what they came from."""
    for cls in GAUSSIAN:
        dumped = cls(2.0, 8, (3,), mu=0.4, source=Noise(1)).dump()
        first, second = (revive_counter(*dumped, Noise(2)) for _ in range(2))
        once = stream(first, np.ones((4, 3)))
        assert np.array_equal(stream(second, np.ones((4, 3))), once)
