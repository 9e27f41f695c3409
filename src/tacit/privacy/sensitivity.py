"""Sensitivities from public tables alone, with proofs, and clips that enforce them.

* Vectors in a ball: how they are scaled back to it, and how far apart two of them are.
* Sums over steps of features and of the outcomes that followed them.
* Sums over the walks that users can make, one step after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.statistic import Bools, Floats, Layout, Part, Statistic
from tacit.privacy.validation import positive

ACUTE = math.sqrt(2.0)
"""How many radii apart two points of a ball are at most, if they are at no obtuse angle."""


def scaled_back(vectors: Floats, radius: float) -> Floats:
    """Rows in the ball of a radius; rows that are not finite are zero.

    >>> scaled_back(np.array([[3.0, 4.0], [0.0, 0.5], [np.nan, 1.0]]), 1.0).tolist()
    [[0.6000000000000001, 0.8], [0.0, 0.5], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    good = np.isfinite(lengths)
    scaled: Floats = np.where(good, vectors, 0.0) * (
        radius / np.maximum(np.where(good, lengths, radius), radius)
    )
    return scaled


def ball(radius: float, relation: Relation, apart: float = 2.0) -> float:
    """Two points of a ball are at most 2 radius apart, as opposite ones are; zero is a radius away.

    ``apart`` replaces the 2 where no two can be opposite.

    >>> ball(1.5, Relation.REPLACE_ONE), ball(1.5, Relation.ZERO_OUT)
    (3.0, 1.5)
    """
    return radius * (apart if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)


class InBall(Statistic):
    """One part, which gives the statistic its name, of users scaled back to length ``clip``.

    Two of them are at most ``apart`` times that apart; see :func:`ball`.
    """

    clip: float
    part: Part
    apart: ClassVar[float] = 2.0

    def _sums_to(self, part: Part) -> None:
        """Bound that ``__post_init__`` of a subclass declares."""
        positive("clip", self.clip)
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "name", part.name)

    @cached_property
    def layout(self) -> Layout:
        """The one part."""
        return Layout((self.part,))

    def l2(self, relation: Relation) -> float:
        """The distance of two users, or one's length."""
        return ball(self.clip, relation, self.apart)


MOST_PAIRS = 1 << 25
"""The most pairs of steps that are looked at; above, bounds that hold for any features."""
SHORTEST = 1e-100
"""Shorter vectors than this are zero: their squares would be rounded away."""
# Rows of the table of all pairs that are made at a time.
_PAIR_ROWS = 256


def inner_products(table: Floats) -> Iterator[tuple[slice, Floats]]:
    """Some rows of a table at a time, and their inner products with all of them."""
    for start in range(0, len(table), _PAIR_ROWS):
        some = slice(start, start + _PAIR_ROWS)
        yield some, table[some] @ table.T


@dataclass(frozen=True, eq=False)
class BoundedSteps(Statistic):
    """A statistic of weighted steps, each a Gram matrix, a next state and a reward.

    Sensitivity. One step is y = (sqrt(a) phi phi', phi x') with x = (e_{s'}, sqrt(b) r),
    so |x|^2 <= m = 1 + b; with q = |phi|^2 <= 1, |y|^2 = a q^2 + |x|^2 q. Two steps have
    <y, y'> = a t^2 + t c, where t = <phi, phi'> and c = <x, x'>. Let Y = sum w y be a user's vector
    (a dropped step has w = 0). Lengths l_h *add up* to sqrt(sum l_h^2) per step, where steps have
    entries of their own, and to sum l_h when pooled.

    * |Y| <= C: ``clip``, or what the longest steps add up to if that is less.
    * |Y - Y'|^2 = |Y|^2 + |Y'|^2 - 2 <Y, Y'> <= 2 C^2 + 2 g, where g is the least known bound on
      -<Y, Y'>: 0 without negative features; C^2; m^2 W^2 / (4 a), with W what the largest public
      weights add up to, as a t^2 + t c >= -c^2 / (4 a); and rho C^2 per step or rho R^2 pooled,
      where rho is the largest of 0 and -cos(y, y') over pairs of steps and R is what the longest
      steps add up to, as -<Y, Y'> is a sum of -w w' <y, y'> <= rho |w y| |w' y'|.
      <y, y'> < 0 only for t < 0. As c <= |x| |x'|, -cos is then at most
      (-t - a t^2 / (|x| |x'|)) / (k k') with k^2 = a q^2 / |x|^2 + q, which increases with |x| and
      |x'|: it is largest for the same next state and rewards of 1.
    * |Y - Y'| is at most what the distances |w y_h - w' y'_h| of steps add up to; per step it is
      equal. A distance is convex in each weight, so largest for 0 or for the largest weight that a
      clip leaves, C / |y| at most. It depends on the next states only by whether they are the
      same, and they are the states of the step after. So the most over H steps is a dynamic
      programme over two cases (same state or not), after a look at all pairs of the table. Per
      step and without a clip the bound is therefore exact.

    The least is declared. Where pairs are too many to look at, rho and distances are not known.

    Attributes:
        features: phi, (S, A, d).
        horizon: steps of an episode.
        pooled: one sum for all steps, instead of one per step.
        clip: the longest vector a user may have; ``None`` for what steps can add up to.
        gram: squared weight a of the Gram matrix.
        reward: squared weight b of the rewards; 0 leaves them out.
        weights: public weights in [0, 1], (1 or H, S, A); ``None`` for 1.
    """

    features: Floats
    horizon: int
    pooled: bool = False
    clip: float | None = None
    gram: float = 1.0
    reward: float = 1.0
    weights: Floats | None = None

    @property
    def _weights(self) -> Floats:
        assert self.weights is not None  # noqa: S101
        return self.weights

    @property
    def dimension(self) -> int:
        """Of the features, d."""
        return int(self.features.shape[2])

    @property
    def states(self) -> int:
        """S."""
        return int(self.features.shape[0])

    @property
    def _cross(self) -> float:
        """1 + b."""
        return 1.0 + self.reward

    @property
    def rows(self) -> int:
        """L."""
        return 1 if self.pooled else self.horizon

    @cached_property
    def _lengths(self) -> Floats:
        """|phi|^2, (S, A)."""
        return np.asarray((self.features**2).sum(axis=-1))

    @cached_property
    def _longest(self) -> float:
        """Sum of the longest steps."""
        return self._add_up(self._weights * self._step_lengths)

    @cached_property
    def _step_lengths(self) -> Floats:
        """The largest |y|, (S, A)."""
        q = self._lengths
        return np.asarray(np.sqrt(self.gram * q * q + self._cross * q))

    def _add_up(self, lengths: Floats) -> float:
        """Sum of the largest lengths of a table (1 or H, S, A); see the class."""
        tops = np.broadcast_to(lengths.max(axis=(1, 2)), (self.horizon,))
        return float(tops.sum() if self.pooled else np.linalg.norm(tops))

    @property
    def clips(self) -> bool:
        """Whether some user's steps may be weighted down."""
        return self.clip is not None and self.clip < self._longest

    @property
    def bound(self) -> float:
        """C."""
        return float(self.clip) if self.clips and self.clip is not None else self._longest

    @cached_property
    def _replace(self) -> float:
        C, W = self.bound, self._add_up(self._weights)
        reach = self._longest if self.pooled else C
        # The largest -<Y, Y'>.
        against = min(
            self._opposition() * reach**2, (self._cross * W) ** 2 / (4.0 * self.gram), C**2
        )
        best = math.sqrt(2.0 * (C**2 + against))
        if self._lengths.size**2 * len(self._weights) <= MOST_PAIRS:
            best = min(best, self._farthest())
        return max(best, C)

    def _opposition(self) -> float:
        """The rho of the class, or 1 where pairs are too many."""
        if (self.features >= 0).all():
            return 0.0
        if self._lengths.size**2 > MOST_PAIRS:
            return 1.0
        counts = (self._weights * self._step_lengths).max(axis=0) > 0
        length = np.where(counts, self._step_lengths, np.inf).reshape(-1)
        rho = 0.0
        for some, t in inner_products(self.features.reshape(-1, self.dimension)):
            cosine = (self.gram * t * t + self._cross * t) / (length[some, np.newaxis] * length)
            rho = max(rho, -float(cosine.min()))
        return rho

    def _farthest(self) -> float:
        """Largest sum of the distances of two users' steps."""
        power = 1 if self.pooled else 2
        most_weight = self.bound / np.maximum(self._step_lengths, SHORTEST)
        tables = [self._distances(np.minimum(w, most_weight)) ** power for w in self._weights]
        # The most from here on, for two users in the same state and for two in different ones.
        most = np.zeros(2)
        for step in reversed(range(self.horizon)):
            most = (tables[min(step, len(tables) - 1)] + most).max(axis=1)
        return float(most.max() ** (1.0 / power))

    def _distances(self, weights: Floats) -> Floats:
        """The largest distance of two steps, [same state or not][same next state or not].

        It is convex in each reward, so rewards are 0 or 1.
        """
        S, A = weights.shape
        w, q = weights.reshape(-1), self._lengths.reshape(-1)
        own, squares = w * w * q, self.gram * (w * q) ** 2
        # One of the two may be a dropped step.
        most: Floats = np.full((2, 2), (squares + self._cross * own).max())
        for some, t in inner_products(self.features.reshape(S * A, -1)):
            here = np.arange(len(t)), np.arange(S * A)[some] // A
            products = w[some, np.newaxis] * w * t
            both = own[some, np.newaxis] + own
            apart = both - 2.0 * products
            common = squares[some, np.newaxis] + squares - 2.0 * self.gram * products * t
            common += self.reward * np.maximum(apart, np.maximum(own[some, np.newaxis], own))
            for other, of_next in enumerate((apart, both)):
                pairs = common + of_next
                largest = pairs.reshape(-1, S, A).max(axis=2)
                most[0, other] = max(most[0, other], largest[here].max())
                largest[here] = 0.0
                most[1, other] = max(most[1, other], largest.max())
        if S == 1:
            most[1], most[:, 1] = 0.0, 0.0
        return np.asarray(np.sqrt(most))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        if checked_relation(relation) is Relation.ZERO_OUT:
            return self.bound
        return self._replace


Ints: TypeAlias = NDArray[np.int64]

MOST_TILTED_PAIRS = 1 << 24
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
    for _ in range(_TILTS if len(units) ** 2 <= MOST_TILTED_PAIRS else 0):
        if math.isinf(best) or not len(pairs):
            break
        g = _tilted(units, pairs, g)
        c, worst = _worst_partners(units, g)
        stuck, best = c > best * (1.0 - 1e-3), min(best, c)
        if stuck:
            break
        pairs = np.unique(np.vstack([pairs, worst]), axis=0)
    return 1.0 if math.isinf(best) else min(1.0, best / (2.0 + best) + ROUNDING)
