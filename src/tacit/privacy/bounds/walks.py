"""Bounds on sums of the steps that users can make one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.statistic import Bools, Floats

Ints: TypeAlias = NDArray[np.int64]

MOST_PAIRS = 1 << 24
"""The most pairs of steps that are looked at again and again."""
ROUNDING = 1e-9
"""Rounding of lengths; a billionth of the budget is nobody's loss."""

# How many numbers are looked at in one go.
_CHUNK = 1 << 20
# How long a direction is looked for that all steps share, how often it is tilted, and how little
# of it a step may have.
_ROUNDS, _TILTS, _LEAST_ALONG = 200, 10, 1e-3


def _distances(base: Floats, paid: Floats, some: slice, rest: slice) -> Floats:
    """The largest squared distances of rows (base, r paid), for r in [0, 1] of each.

    Rewards are 0 or 1, as a distance is convex in each.
    """
    squares, squares_paid = (base**2).sum(axis=1), (paid**2).sum(axis=1)
    apart: Floats = squares[some, np.newaxis] + squares[rest] - 2.0 * (base[some] @ base[rest].T)
    if paid.shape[1]:
        one, other = squares_paid[some, np.newaxis], squares_paid[rest]
        products = paid[some] @ paid[rest].T
        apart += np.maximum(one + other - 2.0 * products, np.maximum(one, other))
    return apart


def extremes(base: Floats, paid: Floats) -> tuple[float, float]:
    """The largest squared distance of two rows (base, r paid), and the largest -cosine.

    r is in [0, 1] for each. The zero row is one of them; cosines are bounded where they are
    negative, and exact if no two rows of ``paid`` have a negative product.
    """
    squares, squares_paid = (base**2).sum(axis=1), (paid**2).sum(axis=1)
    farthest, rho = float((squares + squares_paid).max()), 0.0
    lengths = np.sqrt(np.where(squares > 0.0, squares, np.inf))
    rows = max(1, _CHUNK // len(base))
    for begin in range(0, len(base), rows):
        some, rest = slice(begin, begin + rows), slice(begin, None)
        farthest = max(farthest, float(_distances(base, paid, some, rest).max()))
        products = base[some] @ base[rest].T
        products += np.minimum(paid[some] @ paid[rest].T, 0.0)
        products /= lengths[some, np.newaxis] * lengths[rest]
        rho = max(rho, -float(products.min()))
    return farthest, min(rho, 1.0)


Steps: TypeAlias = Iterable[tuple[Floats, Floats]]
"""Rows (base, r paid) of all possible transitions at one step after the other, last step first."""


class Walks:
    """All that two users can do: a dynamic programme over where they are.

    At every step each of them makes a possible transition from where she is, or drops the step
    (her reward is no number, say), after which she can be anywhere.
    """

    def __init__(self, support: Bools) -> None:
        self.states = len(support)
        self.now, self.action, self.after = np.nonzero(support)
        self._here, self._begins = np.unique(self.now, return_index=True)

    def _by_state(self, values: Floats) -> Floats:
        """The largest of each state; a state that nothing leads out of has none."""
        largest = np.full(self.states, -np.inf)
        largest[self._here] = np.maximum.reduceat(values, self._begins)
        return largest

    def longest(self, lengths: Iterable[Floats]) -> float:
        """The most that these numbers of all possible transitions add up to, last step first."""
        ahead = np.zeros(self.states)
        for length in lengths:
            ahead = np.maximum(self._by_state(length + ahead[self.after]), ahead.max())
        return float(ahead.max())

    def farthest(self, steps: Steps, pooled: bool = False) -> float:
        """The most that squared distances add up to, or distances where steps are pooled."""
        ends = np.append(self._begins[1:], len(self.now))
        ahead = np.zeros((self.states, self.states))
        for base, paid in steps:
            lengths = (base**2).sum(axis=1) + (paid**2).sum(axis=1)
            lengths = np.sqrt(lengths) if pooled else lengths
            # One drops the step, or both do.
            alone = self._by_state(lengths + ahead.max(axis=0)[self.after])
            most = np.maximum(np.maximum(alone[:, np.newaxis], alone), ahead.max())
            for state, begin, end in zip(self._here, self._begins, ends, strict=True):
                apart = _distances(base, paid, slice(begin, end), slice(None))
                if pooled:
                    apart = np.sqrt(np.maximum(apart, 0.0))
                apart += ahead[self.after[begin:end]][:, self.after]
                most[state] = np.maximum(most[state], self._by_state(apart.max(axis=0)))
            ahead = most
        return float(ahead.max())


def shared_axis(units: Floats) -> Floats:
    """A unit vector with a large product with every row, if there is one; else a useless one.

    It points at the shortest convex combination of the rows, by the Frank-Wolfe method.
    """
    g: Floats = units.mean(axis=0)
    best, most = g, -math.inf
    for _ in range(_ROUNDS):
        products = units @ g
        least = float(products.min()) / max(float(np.linalg.norm(g)), 1e-9)
        best, most = (g, least) if least > most else (best, most)
        towards = units[int(products.argmin())] - g
        gain = -float(g @ towards)
        if gain <= 1e-12:
            break
        g = g + min(1.0, gain / float(towards @ towards)) * towards
    return best / max(float(np.linalg.norm(best)), 1e-9)


def _worst_partners(units: Floats, g: Floats) -> tuple[float, Ints]:
    """The c of :func:`opposed` for an axis g, and every row's worst partner, as pairs (n, 2)."""
    along = units @ g
    if along.min() <= _LEAST_ALONG:
        return math.inf, np.zeros((0, 2), dtype=np.int64)
    scaled = units / along[:, np.newaxis]
    partners, products = np.empty(len(units), dtype=np.int64), np.empty(len(units))
    rows = max(1, _CHUNK // len(units))
    for begin in range(0, len(units), rows):
        some = scaled[begin : begin + rows] @ scaled.T
        partners[begin : begin + rows] = some.argmin(axis=1)
        products[begin : begin + rows] = some.min(axis=1)
    pairs = np.stack([np.arange(len(units)), partners], axis=1)[products < 0.0]
    # Rounding of the products.
    error = units.shape[1] * np.finfo(np.float64).eps / float(along.min()) ** 2
    return max(0.0, error - float(products.min())), np.sort(pairs, axis=1)


def _tilted(units: Floats, pairs: Ints, g: Floats) -> Floats:
    """A better axis for these pairs: the largest log c is convex in g, and smoothed here."""
    from scipy.optimize import minimize

    i, j = pairs.T
    logs = np.log(np.maximum(-(units[i] * units[j]).sum(axis=1), 1e-300))

    def largest(x: Floats, sharpness: float) -> tuple[float, Floats]:
        length = float(np.linalg.norm(x))
        along = units @ x / max(length, 1e-9)
        if along.min() <= _LEAST_ALONG:
            return 1e6, np.zeros_like(x)
        values = logs - np.log(along[i]) - np.log(along[j])
        top = float(values.max())
        shares = np.exp(sharpness * (values - top))
        total = float(shares.sum())
        shares /= -total
        slope = np.bincount(i, shares, len(units)) + np.bincount(j, shares, len(units))
        gradient = units.T @ (slope / along)
        gradient -= x * float(gradient @ x) / length**2
        return top + math.log(total) / sharpness, gradient / length

    for sharpness in (16.0, 64.0, 256.0):
        found = minimize(
            largest, g, (sharpness,), "L-BFGS-B", jac=True, options={"maxiter": _ROUNDS}
        ).x
        g = found / max(float(np.linalg.norm(found)), 1e-9)
    return g


def opposed(rows: Floats) -> float:
    """A bound on the largest -cosine of two sums of rows with weights >= 0.

    Let g be a unit vector with <g, y> > 0 for every row, and c >= 0 the least with
    <y, y'> + c <g, y> <g, y'> >= 0 for every two. For two sums Y and Y' of length 1, with
    z = <g, Y> <g, Y'>, -<Y, Y'> <= c z then, as it is a sum over pairs of rows. And
    <Y, Y'> is at least z less the product of what is left of their lengths beside g, which is at
    most 1 - z: so -<Y, Y'> <= 1 - 2 z. One of the two bounds is at most c / (2 + c), whatever z.

    It holds for every g; a search only makes it small. Rows that all lie within an angle of 45
    degrees of g, or that have no negative products, have 0.
    """
    lengths = np.linalg.norm(rows, axis=1)
    units = rows[lengths > 0.0] / lengths[lengths > 0.0, np.newaxis]
    if not len(units):
        return 0.0
    g = shared_axis(units)
    best, pairs = _worst_partners(units, g)
    for _ in range(_TILTS if len(units) ** 2 <= MOST_PAIRS else 0):
        if math.isinf(best) or not len(pairs):
            break
        g = _tilted(units, pairs, g)
        c, worst = _worst_partners(units, g)
        stuck, best = c > best * (1.0 - 1e-3), min(best, c)
        if stuck:
            break
        pairs = np.unique(np.vstack([pairs, worst]), axis=0)
    return 1.0 if math.isinf(best) else min(1.0, best / (2.0 + best) + ROUNDING)
