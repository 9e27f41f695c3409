"""Exact deviates: their law at many scales, the loop against the slow form, ties, tails, no floats.

Tests of distributions have fixed seeds, and fail by chance of the seed with a probability of 1e-9.
"""

import itertools
import math
import re
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.privacy.deviates import CELLS, Deviates, Scale, curve

BY_CHANCE = 1e-9
SCALES = (0.01, 0.3, 1.0, 1.7, 3.0, 10.0, 4.2247e3, 2.0**20, 1e9 / 7, 2.0**40, 2.0**51)


class Seeded:
    """Random bytes from a seed, counted."""

    def __init__(self, seed):
        self._rng = np.random.Generator(np.random.PCG64DXSM(seed))
        self.asked = 0

    def __call__(self, count):
        self.asked += 1
        return self._rng.bytes(count)


def drawn(squared, scale, count, seed=3):
    draws = Deviates(Seeded(seed))
    return draws.normal(scale, count) if squared else draws.laplace(scale, count)


def law(squared):
    return stats.norm if squared else stats.laplace


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("squared", [True, False])
def test_rounded_variables_have_exactly_their_masses(squared, scale):
    """Chi-square over whole numbers, or over bins of whole numbers of about equal mass."""
    count = 150_000
    seen = drawn(squared, scale, count)
    cuts = np.unique(np.floor(law(squared).ppf(np.linspace(0, 1, 302)[1:-1]) * scale))
    # A bin ends with a whole number, so its mass ends at the next half.
    masses = np.diff(law(squared).cdf((cuts + 0.5) / scale), prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(cuts, seen), minlength=len(masses))
    heavy = masses * count > 5
    assert counts[~heavy].sum() < 50
    expected = masses[heavy] * counts[heavy].sum() / masses[heavy].sum()
    if heavy.sum() > 1:
        assert stats.chisquare(counts[heavy], expected).pvalue > BY_CHANCE
    assert counts[heavy].sum() / count == pytest.approx(masses[heavy].sum(), abs=1e-4)


@pytest.mark.parametrize("squared", [True, False])
def test_low_order_bits_are_fair_coins(squared):
    """At a large scale the last twenty binary digits are uniform and independent of the others."""
    seen = np.abs(drawn(squared, 2.0**40, 200_000))
    digits = (seen[:, np.newaxis] >> np.arange(20)) & 1
    ones = digits.sum(axis=0)
    assert (np.abs(ones - 1e5) < 6.5 * math.sqrt(5e4)).all()
    words = np.bincount(seen & 0xFF, minlength=256)
    assert stats.chisquare(words).pvalue > BY_CHANCE
    high = seen > np.median(seen)
    table = [np.bincount(seen[part] & 0xF, minlength=16) for part in (high, ~high)]
    assert stats.chi2_contingency(table).pvalue > BY_CHANCE


@pytest.mark.parametrize("squared", [True, False])
def test_numbers_are_independent_of_their_places(squared):
    """Neighbours in an array, and the ends of the parts in which it is drawn."""
    seen = drawn(squared, 2.0**51, 200_001) / 2.0**51
    pairs = np.corrcoef(seen[:-1], seen[1:])[0, 1]
    assert abs(pairs) < 6.5 / math.sqrt(len(seen))
    assert abs(np.corrcoef(np.abs(seen[:-1]), np.abs(seen[1:]))[0, 1]) < 6.5 / math.sqrt(len(seen))
    ends = np.concatenate([seen[at - 50 : at] for at in range(65_000, 200_000, 65_000)])
    assert stats.kstest(ends, law(squared).cdf).pvalue > BY_CHANCE


@pytest.mark.parametrize("squared", [True, False])
def test_few_numbers_have_the_same_law_as_many(squared, monkeypatch):
    """A process that draws a few hundred compiles no loop."""
    monkeypatch.setattr(Deviates, "_few", lambda self, count: True)
    draws = Deviates(Seeded(5))
    draw = draws.normal if squared else draws.laplace
    few = np.concatenate([draw(3.3, 400) for _ in range(20)])
    many = drawn(squared, 3.3, 100_000)
    values = np.arange(-9, 10)
    table = [[(part == value).sum() for value in values] for part in (few, many)]
    assert stats.chi2_contingency(table).pvalue > BY_CHANCE


def test_numba_is_loaded_after_a_few_hundred_numbers():
    code = (
        "import sys\n"
        "from tacit.privacy.deviates import Deviates\n"
        "draws = Deviates()\n"
        "for wanted in (False, False, True):\n"
        "    draws.normal(3.3, 200)\n"
        "    assert ('numba' in sys.modules) == wanted\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("squared", [True, False])
def test_cells_cover_the_curve(squared):
    """Every height is at least the curve, every sure one at most; all fit into 64 bits."""
    cells = curve(squared)
    with localcontext() as context:
        context.prec = 60
        values = [
            cells.peak * (-_decimal(cells.exponent(Fraction(i, CELLS)))).exp()
            for i in range(CELLS * cells.end + 1)
        ]
        heights, sure = cells.heights.tolist(), cells.sure.tolist()
        for left, right, height, least in zip(values, values[1:], heights, sure, strict=False):
            assert left <= height <= left + 3
            assert least <= right
        # The integral beyond the end is below its envelope, and the envelope is in the table.
        assert heights[-1] >= cells.tail * values[-1]
    assert sum(heights) < 2**64
    assert cells.edges == [0, *itertools.accumulate(heights)]
    beyond = law(squared).sf(cells.end) / law(squared).pdf(cells.end)
    assert beyond * CELLS <= cells.tail * (1 + 1e-12)


def _decimal(x):
    return Decimal(x.numerator) / Decimal(x.denominator)


def number(cells, scale, first, second):
    """What two words mean, in fractions: a number, or None where the point is above the curve."""
    cell = max(i for i in range(CELLS * cells.end) if cells.edges[i] <= first)
    x = (Fraction(cell) + Fraction(2 * (second & (2**63 - 1)) + 1, 2**64)) / CELLS
    if first - cells.edges[cell] >= cells.peak * (-_decimal(cells.exponent(x))).exp():
        return None
    steps = math.floor(Fraction(scale) * x + Fraction(1, 2))
    return -steps if second >> 63 else steps


@pytest.mark.parametrize("squared", [True, False])
def test_words_of_every_cell_give_their_number(squared):
    """Also in the tails, out to 8 and 44 scales, where no draw would come; and at the curve."""
    cells, rng, scale = curve(squared), np.random.default_rng(3), 2.0**44 / 7.0
    for i in range(CELLS * cells.end):
        start, own = cells.edges[i], cells.edges[i + 1] - cells.edges[i]
        second = int(rng.integers(0, 2**63)) + 2**63 * int(rng.integers(2))
        if own < 1 << 20:  # selected once in 10^13 times, and then by further digits
            continue
        heights = [int(int(cells.sure[i]) * rng.random())]
        if i % 40 == 5:
            x = (Fraction(i) + Fraction(second & (2**63 - 1), 2**63)) / CELLS
            with localcontext() as context:
                context.prec = 60
                edge = int(cells.peak * (-_decimal(cells.exponent(x))).exp())
            gap = 1 + (edge >> 40)
            heights += [edge - gap, min(edge + gap, own - 1)]
        for height in heights:
            with localcontext() as context:
                context.prec = 60
                expected = number(cells, scale, start + height, second)
            settled = Deviates(Seeded(i))._settled(cells, Scale.of(scale), start + height, second)
            assert settled == expected


def both(cells, scale, words):
    """What the loop makes of words, and the slow form, with "open" where digits are missing."""
    from tacit.privacy.deviate_loops import fill

    made = Scale.of(scale)
    out = np.empty(len(words), dtype=np.int64)
    undecided = np.empty((len(words), 2), dtype=np.int64)
    numbers = np.uint64(made.multiplier), np.uint64(made.shift)
    tables = cells.starts, cells.heights, cells.sure, cells.guide
    filled, waiting = fill(words, tables, cells.squared, numbers, out, undecided)
    fast = out[:filled].tolist()
    for place, _ in undecided[:waiting].tolist():
        fast[place] = "open"
    rows = set(undecided[:waiting, 1].tolist())
    slow = []
    for row, (first, second) in enumerate(words.tolist()):
        if row in rows:
            slow.append("open")
            continue
        bits = Seeded(1)
        settled = Deviates(bits)._settled(cells, made, first, second)
        # What the loop decides needs no more digits.
        assert bits.asked == 0 or settled is None
        if settled is not None:
            slow.append(settled)
    return fast, slow


@pytest.mark.parametrize("scale", [2.0**-10, 0.7, 5.3, 2.0**30 / 3, 2.0**51])
@pytest.mark.parametrize("squared", [True, False])
def test_the_loop_computes_what_the_slow_form_computes(squared, scale):
    """On random words, and on words at the edges of cells and of what is taken at once."""
    cells, rng = curve(squared), np.random.default_rng(7)
    random = rng.integers(0, 2**64, (3000, 2), dtype=np.uint64)
    edges = [
        (min(edge + by, 2**64 - 1), int(rng.integers(0, 2**63)) * 2 + int(rng.integers(2)))
        for edge in cells.edges[:-1]
        for by in (0, 1, int(cells.sure[0] if edge == 0 else 2))
    ]
    edges += [
        (start + int(least) + by, digits)
        for start, least in zip(cells.edges, cells.sure.tolist(), strict=False)
        for by in (-1, 0, 1, 2**20)
        for digits in (0, 2**63 - 1, 2**64 - 1, 2**62)
        if 0 <= start + int(least) + by < 2**64
    ]
    edges += [(2**64 - 1, 5), (cells.edges[-1], 5), (cells.edges[-1] - 1, 2**63)]
    words = np.concatenate([random, np.array(edges[::3], dtype=np.uint64)])
    fast, slow = both(cells, scale, words)
    assert fast == slow
    assert fast.count("open") < len(words) / 3


def test_the_loop_has_no_floating_point_type():
    """Compiled here and now: what numba reads from its cache it does not show."""
    import numba

    from tacit.privacy.deviate_loops import _fill

    fresh, cells, scale = numba.njit(_fill), curve(True), Scale.of(3.0)
    words = np.random.default_rng(0).integers(0, 2**64, (100, 2), dtype=np.uint64)
    tables = cells.starts, cells.heights, cells.sure, cells.guide
    numbers = np.uint64(scale.multiplier), np.uint64(scale.shift)
    out, undecided = np.zeros(90, dtype=np.int64), np.zeros((9, 2), dtype=np.int64)
    fresh(words, tables, cells.squared, numbers, out, undecided)
    assert out.any()
    (text,) = fresh.inspect_llvm().values()
    assert not re.findall(r"\b(?:half|float|double|x86_fp80|fp128|bfloat)\b", text)
    assert re.search(r"\bi64\b", text)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("cell", [0, 17, 200])
def test_a_height_at_the_curve_is_decided_by_more_digits(squared, cell):
    """The height's whole part is the curve's: only what is drawn next can tell."""
    cells = curve(squared)
    fraction = 2**62
    x = Fraction(cell, CELLS) + Fraction(fraction, 2**63 * CELLS)
    with localcontext() as context:
        context.prec = 60
        level = cells.peak * (-_decimal(cells.exponent(x))).exp()
    first = cells.edges[cell] + int(level)
    share = float(level - int(level))
    taken = 0
    for seed in range(400):
        bits = Seeded(seed)
        taken += Deviates(bits)._settled(cells, Scale.of(8.0), first, fraction) is not None
        assert bits.asked >= 2
    assert abs(taken - 400 * share) < 6.5 * 10
    words = np.array([[first, fraction]], dtype=np.uint64)
    assert both(cells, 8.0, words)[0] == ["open"]


def test_a_half_is_decided_by_more_digits():
    """x = 1/2 - tiny and scale 1: both 0 and 1 are possible until further digits are drawn."""
    cells = curve(True)
    first, last = cells.edges[31], 2**63 - 1
    seen = set()
    for seed in range(20):
        bits = Seeded(seed)
        # 2^51 (1/2 - tiny) is no whole number, so that only digits beyond the 63rd decide.
        scale = Scale.of(float(np.nextafter(2.0**51, 0)))
        seen.add(Deviates(bits)._settled(cells, scale, first, last - (1 << 9)))
        assert bits.asked >= 0
    assert len(seen) <= 2
    assert Deviates(Seeded(1))._settled(cells, Scale.of(1.0), first, last) == 0


@pytest.mark.parametrize("squared", [True, False])
def test_the_tail_has_the_law_of_the_variable_beyond_the_cells(squared):
    cells, draws = curve(squared), Deviates(Seeded(2))
    found = []
    for _ in range(3000):
        point = draws._beyond(cells, 0)
        if point is not None:
            point.extend()
            found.append(float(point.low))
    # Of the envelope of the normal tail all but a few per cent are taken.
    assert len(found) > 2900 if squared else len(found) == 3000
    tail, end = law(squared), cells.end
    conditional = 1.0 - tail.sf(np.array(found)) / tail.sf(end)
    assert min(found) >= end
    assert stats.kstest(conditional, "uniform").pvalue > BY_CHANCE


@given(st.floats(2.0**-16, 2.0**51))
def test_a_scale_is_kept_to_the_last_bit(scale):
    assert Scale.of(scale).fraction == Fraction(scale)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 2.0**51), st.integers(0, 2**32 - 1), st.booleans())
def test_a_number_is_its_point_times_the_scale_rounded(scale, seed, squared):
    """The same words at scale 2^51, which shows the point, and at another one."""
    fine, coarse = (drawn(squared, s, 5, seed).tolist() for s in (2.0**51, scale))
    for point, steps in zip(fine, coarse, strict=True):
        exact = Fraction(point, 2**51) * Fraction(scale)
        assert abs(exact - steps) <= Fraction(1, 2) + Fraction(scale) / 2**51


@pytest.mark.parametrize("squared", [True, False])
def test_opendp_draws_the_same_at_large_scales(squared):
    """Discrete noise of scale 10^5 is that of rounded real numbers, up to exp(-10^10).

    Two samples of 4,000 are compared by Kolmogorov and Smirnov; the error probability is 1e-12,
    since OpenDP takes no seed.
    """
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    domain, scale = dp.vector_domain(dp.atom_domain(T="i64")), 1e5
    if squared:
        theirs = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)([0] * 4000)
    else:
        theirs = dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale)([0] * 4000)
    assert stats.ks_2samp(theirs, drawn(squared, scale, 4000)).pvalue > 1e-12


def test_a_source_that_gives_too_few_bytes_is_refused():
    for count in (3, 3000):
        with pytest.raises(ValueError, match=r"bytes|reshape|size"):
            Deviates(lambda wanted: bytes(wanted - 1)).normal(8.0, count)
