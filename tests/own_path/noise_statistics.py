"""Tests of numbers that should be noise: size, shape, bits, and that nothing shares it.

Bounds hold for any number of values. Each test gives a false alarm with a probability of at most
``ALARM``; a run of all checks makes fewer than 20,000 of them, so below 1e-9 together.

*Size*: squares of normals add up to a chi-square variable, absolute values of Laplace variables to
a gamma variable. *Shape*: by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart the
empirical distribution of n values is farther than t from the true one with a probability of at most
2 exp(-2 n t^2). How many values are beyond a threshold is binomial; noise without tails is found by
that, and its tails are what a small delta hangs on. *Sharing*: the sign of noise, and whether its
size is above the median, are fair coins. Multiplied with those of the entry k places on they are
fair coins again, independent of one another (the pairs form paths), as Hoeffding's bound needs it.
Every distance k up to a limit is tried, in one long vector of everything that a run published.
*Projections* of that vector on random and even directions have the variance of one entry, however
many there are; a shared part adds up. *Repeats*: two neighbours that both come again, with either
sign, hardly ever do by chance.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.special import bdtr, bdtrc, gammaincc, gammainccinv, gammaincinv, ndtr, ndtri, pdtrc

Law = Literal["normal", "laplace", "sum of laplace"]

# Grids and floats: by how much sizes may be off.
_SLACK = 2e-3
# Beyond these thresholds values are counted. Whoever cuts noise off takes a whole number.
_TAILS = (1.01, 2.02, 3.03, 4.04, 5.0, 6.0, 7.5, 9.0)
ALARM = 1e-14
_LAGS = (*range(1, 520), 1023, 1024, 1025, 4096, 65_535, 65_536, 65_537)
_FEW_LAGS = (*range(1, 34), 63, 64, 65, 128, 256, 511, 512, 513, *_LAGS[519:])
_DIRECTIONS = 24
_MEDIANS = {"normal": 0.6744897501960817, "laplace": math.log(2.0)}


@dataclass(eq=False)
class Tally:
    """How many values of a law were seen, and what their squares add up to.

    The ``total`` is of absolute values for Laplace noise.
    """

    law: Law
    values: int = 0
    total: float = 0.0

    def add(self, noise):
        """Counts values that have the claimed scale as their unit."""
        self.values += noise.size
        size = np.abs(noise).sum() if self.law == "laplace" else noise @ noise
        self.total += float(size)

    @property
    def ratio(self):
        """Measured over claimed variance."""
        ratio = self.total / max(self.values, 1)
        return ratio**2 if self.law == "laplace" else ratio

    def wrong(self, alarm=ALARM):
        """Whether that is too small or too large, but for the chance of a false alarm."""
        low, high = _limits(self.law, np.array([self.values]), alarm)
        return not low[0] * (1.0 - _SLACK) <= self.total <= high[0] * (1.0 + _SLACK)


def _below(law, values):
    """With which probability noise is below."""
    if law == "laplace":
        tail = 0.5 * np.exp(-np.abs(values))
        return np.where(values < 0.0, tail, 1.0 - tail)
    return np.asarray(ndtr(values), dtype=np.float64)


def _limits(law, values, alarm):
    """Between what a tally lies but for the chance of a false alarm."""
    if law == "sum of laplace":
        # Between a Laplace variable's and a normal one's: squares have a variance of 5 at most.
        width = -float(ndtri(alarm / 2.0)) * np.sqrt(5.0 * values)
        return values - width, values + width
    shape, unit = (values, 1.0) if law == "laplace" else (values / 2.0, 2.0)
    low = unit * gammaincinv(shape, alarm / 2.0)
    return low, unit * gammainccinv(shape, alarm / 2.0)


def _width(count):
    """Hoeffding: so many fair coins add up to more with a probability of ``ALARM``."""
    return math.sqrt(2.0 * count * math.log(2.0 / ALARM))


def law_wrong(values, law, blur, what):
    """Size, shape and tails of values in units of their scale, each off by ``blur`` at most."""
    n, tally, found = values.size, Tally(law), list[str]()
    tally.add(values)
    if n and tally.wrong():
        found.append(f"{what}: the variance of {n} values is {tally.ratio:.4f} of what is claimed")
    if not n or law == "sum of laplace":
        return found
    found += [f"{what}: {words}" for words in distance_wrong(values, law, blur)]
    return found + [f"{what}: {words}" for words in tails_wrong(values, law, blur)]


def distance_wrong(values, law, blur):
    """The Kolmogorov-Smirnov distance; densities are at most 1/2."""
    n, below = values.size, _below(law, np.sort(values))
    above = float((np.arange(1, n + 1) / n - below).max())
    gap = max(above, float((below - np.arange(n) / n).max()))
    allowed = math.sqrt(math.log(2.0 / ALARM) / (2.0 * n)) + 0.5 * blur
    words = f"the distribution of {n} values is {gap:.3f} away from what is claimed"
    return [f"{words}, {allowed:.3f} is chance"] if gap > allowed else []


def tails_wrong(values, law, blur):
    """How many values are far out, at least and at most; the first threshold that is wrong."""
    n, sizes = values.size, np.abs(values)
    for threshold in _TAILS:
        chance = 2.0 * float(_below(law, np.array([-threshold]))[0])
        many = int(np.count_nonzero(sizes > threshold - blur))
        few = int(np.count_nonzero(sizes > threshold + blur))
        too_few = bdtr(many, n, chance) < ALARM / 2.0
        if too_few or (few > 0 and bdtrc(few - 1, n, chance) < ALARM / 2.0):
            return [f"{many} of {n} values are beyond {threshold:g}, not {n * chance:.3g}"]
    return []


def bits_wrong(steps, scale, what):
    """Signs are even, and so are low bits where the scale is far above them."""
    n, found = steps.size, []
    if n < 100:
        return []
    signed = steps[steps != 0]
    if abs(float(np.sign(signed).sum())) > _width(signed.size):
        found.append(f"{what}: {np.mean(signed > 0):.2%} of {signed.size} values are positive")
    bits = min(8, int(math.log2(max(scale, 1.0))) - 2, int(math.log2(n / 20.0)))
    for bit in range(bits):
        ones = int(np.count_nonzero((steps >> bit) & 1))
        if abs(2 * ones - n) > _width(n):
            found.append(f"{what}: bit {bit} is 1 in {ones} of {n} whole numbers")
    if bits >= 1:
        count, mean = np.bincount(steps & ((1 << bits) - 1), minlength=1 << bits), n / (1 << bits)
        if (
            gammaincc(((1 << bits) - 1) / 2.0, float(((count - mean) ** 2).sum()) / mean / 2)
            < ALARM
        ):
            found.append(f"{what}: the lowest {bits} bits of {n} whole numbers are not even")
    return found


def shared_wrong(runs, law):
    """Where one long vector per run has parts that tell of one another, or of another run's."""
    coins = [_coins(values, law) for values in runs]
    found = []
    for k in _LAGS if sum(r.size for r in runs) < 100_000 else _FEW_LAGS:
        pairs = [c[:, : c.shape[1] - k] * c[:, k:] for c in coins if c.shape[1] > k]
        found += _uneven(pairs, f"entries {k} apart")
    size = min((c.shape[1] for c in coins), default=0)
    beyond = zip(coins, coins[2:], strict=False)
    found += _uneven([a[:, :size] * b[:, :size] for a, b in pairwise(coins)], "neighbouring runs")
    found += _uneven([a[:, :size] * b[:, :size] for a, b in beyond], "runs two apart")
    half = size // 2
    found += _uneven([c[:, :half] * c[:, ::-1][:, :half] for c in coins], "mirrored entries")
    found += _uneven([c[:, :half] * c[:, half : 2 * half] for c in coins], "halves")
    return found[:4] + _projected(runs, coins, law)[:4]


def _coins(values, law):
    """Signs, sizes above the median, and their product, as fair coins."""
    sign = np.where(values > 0.0, 1, -1).astype(np.int8)
    large = np.where(np.abs(values) > _MEDIANS[law], 1, -1).astype(np.int8)
    return np.stack([sign, large, sign * large])


def _uneven(pairs, what):
    count = sum(p.shape[1] for p in pairs)
    if not count:
        return []
    sums = np.sum([p.sum(axis=1, dtype=np.int64) for p in pairs], axis=0).tolist()
    return [
        f"{what} share {name}: {(1 + s / count) / 2:.1%} of {count} pairs agree"
        for name, s in zip(("signs", "sizes", "signs and sizes"), sums, strict=False)
        if abs(s) > _width(count)
    ]


def _projected(runs, coins, law):
    """The variance of everything in many directions, of values, signs and sizes."""
    longest, rng = max((r.size for r in runs), default=0), np.random.default_rng(5)
    unit, found = math.sqrt(2.0) if law == "laplace" else 1.0, []
    for d in range(_DIRECTIONS):
        # Even, over a random half, or in random directions.
        weights = np.ones(longest) if d == 0 else rng.integers(0, 2, longest).astype(np.float64)
        if d % 2:
            weights = 2.0 * weights - 1.0
        rows = ([r / unit for r in runs], [c[0] for c in coins], [c[1] for c in coins])
        for name, some in zip(("values", "signs", "sizes"), rows, strict=True):
            exact = law == "normal" and name == "values"
            tally = Tally("normal" if exact else "sum of laplace")
            for row in some:
                w = weights[: row.size]
                if not w.any():  # half of very few may be none of them
                    continue
                tally.add(np.array([w @ row / math.sqrt(max(float(w @ w), 1.0))]))
            # Sums of many, and of squares of many, are nearly normal; of few they are not.
            enough = tally.values >= (8 if exact else 40) and (exact or longest >= 20)
            if enough and tally.wrong():
                words = "of what independent ones do"
                found.append(f"{name} in direction {d} vary by {tally.ratio:.2f} {words}")
    return found


def repeats_wrong(runs, scale, law):
    """Neighbours that come again, in any place, with either sign; and too many single repeats."""
    chance = 0.5 / scale if law == "laplace" else 1.0 / (math.sqrt(math.pi) * scale)
    found = []
    for name, width in (("values", 1), ("pairs of neighbours", 2)):
        rows = [np.stack([r[:-1], r[1:]])[:width].T for r in runs if r.size > 1]
        table = np.abs(np.concatenate(rows)) if rows else np.zeros((0, width))
        n, single = len(table), min(1.0, chance) ** width
        copies = np.unique(table, axis=0, return_counts=True)[1].astype(np.float64)
        pairs, mean = float((copies * (copies - 1.0) / 2.0).sum()), 0.55 * n * n * single
        # Where values are crowded, repeats come in clusters and say nothing.
        if pairs > 2.0 and n * single < 0.5 and pdtrc(pairs - 1.0, mean) < ALARM:
            found.append(f"{int(pairs)} {name} of {n} come again, {mean:.2g} by chance")
    return found
