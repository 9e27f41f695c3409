"""Tests of whole numbers that should be noise, beside those of :mod:`tests.own_path.noise_tests`.

Bounds hold for any number of values. Each test gives a false alarm with a probability of at most
``ALARM``; an audit of the real path makes fewer than 20,000 of them, so below 1e-6 together.

*Sharing.* The sign of noise, and whether its size is above the median, are fair coins. Multiplied
with those of the entry k places on they are fair coins again, independent of one another (the pairs
form paths), so that Hoeffding's bound holds. Every distance k up to a limit is tried, in one long
vector of everything that a run published. *Projections* of that vector on random and even
directions have the variance of one entry, however many there are; a shared part adds up.
*Repeats*: two neighbours that both come again, with either sign, hardly ever do by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, gammaincc, ndtr, pdtrc

from tacit.privacy.statistic import Floats
from tests.own_path.noise_tests import Law, Shape, Tally

ALARM = 1e-11
_LAGS = (*range(1, 520), 1023, 1024, 1025, 4096, 65_535, 65_536, 65_537)
_FEW_LAGS = (*range(1, 34), 63, 64, 65, 128, 256, 511, 512, 513, *_LAGS[519:])
_DIRECTIONS = 24
_MEDIANS = {"normal": 0.6744897501960817, "laplace": math.log(2.0)}


def _beyond(law: Law, t: float) -> float:
    """With which chance noise is farther out than t scales."""
    return math.exp(-t) if law == "laplace" else 2.0 * float(ndtr(-t))


def _width(count: int) -> float:
    """Hoeffding: so many fair coins add up to more with a probability of ``ALARM``."""
    return math.sqrt(2.0 * count * math.log(2.0 / ALARM))


def law_wrong(values: Floats, law: Law, blur: float, what: str) -> list[str]:
    """Size, shape and tails of values in units of their scale."""
    n, tally, shape = values.size, Tally(law), Shape(law)
    tally.add(values)
    shape.add(values, blur)
    # Repeats are counted elsewhere: a grid has them by chance.
    found = [f"{what}: {text}" for text in shape.wrong() if "repeat" not in text]
    if n and tally.wrong():
        found.append(f"{what}: the variance of {n} values is {tally.ratio:.4f} of what is claimed")
    for t in (5.0, 6.0, 7.5, 9.0):
        chance = _beyond(law, t)
        seen = int(np.count_nonzero(np.abs(values) > t * (1.0 + 1e-3)))
        too_few = not seen and n * math.log1p(-chance) < math.log(ALARM)
        if too_few or (seen and bdtrc(seen - 1, n, chance) < ALARM):
            found.append(f"{what}: {seen} of {n} values are beyond {t:g}, not {n * chance:.3g}")
    return found


def bits_wrong(steps: NDArray[np.int64], scale: float, what: str) -> list[str]:
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


def shared_wrong(runs: Sequence[Floats], law: Law) -> list[str]:
    """Where one long vector per run has parts that tell of one another, or of another run's."""
    coins = [_coins(values, law) for values in runs]
    found: list[str] = []
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


def _coins(values: Floats, law: Law) -> NDArray[np.int8]:
    """Signs, sizes above the median, and their product, as fair coins."""
    sign = np.where(values > 0.0, 1, -1).astype(np.int8)
    large = np.where(np.abs(values) > _MEDIANS[law], 1, -1).astype(np.int8)
    return np.stack([sign, large, sign * large])


def _uneven(pairs: Sequence[NDArray[np.int8]], what: str) -> list[str]:
    count = sum(p.shape[1] for p in pairs)
    if not count:
        return []
    sums = np.sum([p.sum(axis=1, dtype=np.int64) for p in pairs], axis=0).tolist()
    return [
        f"{what} share {name}: {(1 + s / count) / 2:.1%} of {count} pairs agree"
        for name, s in zip(("signs", "sizes", "signs and sizes"), sums, strict=False)
        if abs(s) > _width(count)
    ]


def _projected(runs: Sequence[Floats], coins: Sequence[NDArray[np.int8]], law: Law) -> list[str]:
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


def repeats_wrong(runs: Sequence[NDArray[np.int64]], scale: float, law: Law) -> list[str]:
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
