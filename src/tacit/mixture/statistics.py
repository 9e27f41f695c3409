"""What mixture agents ask of users.

Transitions are P(. | s, a) = p0(s, a) + x(s, a)' eta, with x(s, a) in R^{k x S} and p0 public
(features along the public directions, and at the public centre) and eta unknown. A transition
that the features give no probability under any weights is impossible, so it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.sizes import check_size
from tacit.finite.visits import read_codes, read_rewards
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import any_features
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Part, Statistic
from tacit.privacy.symmetric import pack, packed_size

Ints: TypeAlias = NDArray[np.int64]

# Above this many single steps bounds for any features are used.
_MOST_STEPS = 5000
# The most pairs of steps that are looked at again and again.
_MOST_PAIRS = 1 << 24
# How many numbers are looked at in one go.
_CHUNK = 1 << 20
# The least sensitivity of value sums, in shares of that for any values: blocks are weighted by
# their noise, and one that was asked nothing must not outweigh all others.
_LEAST_SHARE = 0.1
# The largest numbers of public tables with which nothing overflows, in squares and in sums.
_LARGEST = 1e6
_HUGE = 1e150
# How long a direction is looked for that all steps share, how often it is tilted, and how little
# of it a step may have.
_ROUNDS, _TILTS, _LEAST_ALONG = 200, 10, 1e-3
# Rounding of the running length; a billionth of the budget is nobody's loss.
_ROUNDING = 1e-9


def _table(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array


def _cut(vectors: Floats, axes: tuple[int, ...]) -> Floats:
    """Each cut to length 1, read-only."""
    largest = np.abs(vectors).max(axis=axes, keepdims=True)
    # Squares of the longest would be infinite.
    scaled = vectors / np.maximum(largest, 1.0)
    length = np.sqrt((scaled**2).sum(axis=axes, keepdims=True))
    cut: Floats = scaled / np.maximum(length, 1.0 / np.maximum(largest, 1.0))
    cut.setflags(write=False)
    return cut


def _support(values: ArrayLike, shape: tuple[int, int, int]) -> Bools:
    array = np.array(values, dtype=bool)
    if array.shape != shape:
        raise InvalidArgument(f"support must have shape {shape}, got {array.shape}")
    if not array.any():
        raise InvalidArgument("support must allow some transition")
    array.setflags(write=False)
    return array


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


def _extremes(base: Floats, paid: Floats) -> tuple[float, float]:
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


_Steps: TypeAlias = Iterable[tuple[Floats, Floats]]
"""Rows (base, r paid) of all possible transitions at one step after the other, last step first."""


class _Walks:
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

    def farthest(self, steps: _Steps, pooled: bool = False) -> float:
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


def _axis(units: Floats) -> Floats:
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
    """The c of :func:`_opposed` for an axis g, and every row's worst partner, as pairs (n, 2)."""
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


def _opposed(rows: Floats) -> float:
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
    g = _axis(units)
    best, pairs = _worst_partners(units, g)
    for _ in range(_TILTS if len(units) ** 2 <= _MOST_PAIRS else 0):
        if math.isinf(best) or not len(pairs):
            break
        g = _tilted(units, pairs, g)
        c, worst = _worst_partners(units, g)
        stuck, best = c > best * (1.0 - 1e-3), min(best, c)
        if stuck:
            break
        pairs = np.unique(np.vstack([pairs, worst]), axis=0)
    return 1.0 if math.isinf(best) else min(1.0, best / (2.0 + best) + _ROUNDING)


class _RegressionSums(Statistic):
    """What :class:`ModelSums` and :class:`ValueSums` share: parts and their names."""

    horizon: int
    pooled: bool
    gram: float
    reward: float
    reward_features: Floats | None

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """L: one row per step, or one for all."""
        return 1 if self.pooled else self.horizon

    @property
    def last(self) -> int:
        """The first step whose transition does not count.

        Nothing follows the last step of an episode, so its transition matters only to weights
        that other steps share.
        """
        return self.horizon if self.pooled else self.horizon - 1

    @property
    def _paying(self) -> int:
        return 0 if self.reward_features is None else int(self.reward_features.shape[2])

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``cross``, and ``reward_gram``, ``rewards`` where rewards are unknown."""
        L, k, m = self.rows, self.free, self._paying
        parts = [
            Part("gram", (L, k, k), symmetric=True, weight=math.sqrt(self.gram)),
            Part("cross", (L, k)),
        ]
        if m:
            weight = math.sqrt(self.reward)
            parts.append(Part("reward_gram", (L, m, m), symmetric=True, weight=weight))
            parts.append(Part("rewards", (L, m), weight=weight))
        return Layout(tuple(parts))


@dataclass(frozen=True, eq=False)
class ModelSums(_RegressionSums):
    """Sums over a user's steps of w x x' and w x (e_{s'} - p0): a regression free of any value.

    Every transition informs on all weights, and one release serves all value functions.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A step counts if its
    values are valid and its transition possible. Where rewards are unknown, w v v' and w r v come
    beside, v = varphi(s, a). Parts: ``gram`` (L, k, k) with squared weight a, ``cross`` (L, k),
    ``reward_gram`` (L, m, m) and ``rewards`` (L, m) with squared weight b.

    The weight w <= 1 of a step is lowered where the user's vector could become longer than
    ``clip`` whatever the next state and reward turn out to be. It does not depend on them, so what
    follows a weighted step is still an unbiased sample.

    Sensitivity. One step is y = (sqrt(a) x x', x (e - p0), sqrt(b) v v', sqrt(b) r v), with |x| and
    |v| cut to 1. A user is Y = sum w y, with w = 0 for a dropped step. Per step, steps have entries
    of their own, so lengths l_h *add up* to sqrt(sum l_h^2), and the last one is only its reward
    part. Pooled, they add up to sum l_h.

    * |Y| <= C: ``clip``, or what the longest steps add up to if that is less; a step begins where
      the one before ended, or anywhere if that was dropped (:class:`_Walks`). The weights keep to
      ``clip`` because |Y + w y|^2 is convex in the reward: no reward in [0, 1] makes it larger than
      its bound for 0 and 1.
    * |Y - Y'| is at most what the distances |w y - w' y'| of their steps add up to; per step it is
      equal. They are convex in each of w, w', r and r', so largest where these are 0 or 1: between
      two possible steps, or one and zero. All pairs are looked at. Without a clip so is where steps
      begin, and per step the bound is exact.
    * |Y - Y'|^2 <= 2 C^2 - 2 <Y, Y'>, and -<Y, Y'> <= C^2. With rho the largest of 0 and
      -cos(y, y') over pairs of steps, it is also at most rho C^2 per step: it is the sum of
      -w w' <y_h, y'_h> <= rho |w y_h| |w' y'_h|, to which Cauchy-Schwarz applies. Pooled, it is the
      sum over all pairs, so at most rho R R' with R = sum |w y|, which is at most what the longest
      steps add up to. It is also at most theta C^2, where theta bounds the -cosine of any two sums
      of steps with weights >= 0; see :func:`_opposed`.

    The least is declared. With too many pairs to look at, rho and theta are 1 and a squared
    distance at most any_features(a, m) + any_features(b, b) for |e - p0|^2 <= m: p0 need not be a
    distribution.

    Attributes:
        features: x, (S, A, k, S).
        mean: p0, (S, A, S).
        support: which transitions are possible, (S, A, S).
        horizon: steps of an episode.
        reward_features: v, (S, A, m), or ``None`` where rewards are known.
        pooled: one row of sums for all steps, instead of one each.
        clip: the longest vector a user may have; ``None`` for what steps can add up to.
        gram: squared weight a.
        reward: squared weight b.
    """

    features: Floats
    mean: Floats
    support: Bools
    horizon: int
    reward_features: Floats | None = None
    pooled: bool = False
    clip: float | None = None
    gram: float = 1.0
    reward: float = 1.0

    def __post_init__(self) -> None:
        shape = np.shape(self.features)
        if len(shape) != 4 or shape[0] != shape[3] or 0 in shape:
            raise InvalidArgument(f"features must have shape (S, A, k, S), got {shape}")
        S, A, _, _ = shape
        x = _cut(_table("features", self.features, shape), (2, 3))
        object.__setattr__(self, "features", x)
        mean = _table("mean", self.mean, (S, A, S))
        if np.abs(mean).max() > _LARGEST:
            raise InvalidArgument(f"mean must be probabilities, or at most {_LARGEST:g} in size")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "support", _support(self.support, (S, A, S)))
        _check_options(self, (S, A))
        object.__setattr__(self, "name", "model sums")

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.features.shape[2])

    @cached_property
    def _offsets(self) -> Floats:
        """What x p0 is, (S, A, k)."""
        offsets: Floats = (self.features @ self.mean[..., np.newaxis])[..., 0]
        return offsets

    @cached_property
    def _grams(self) -> Floats:
        """Packed and weighted x x' and v v', (S, A, G)."""
        x = self.features
        packed = math.sqrt(self.gram) * pack(x @ np.swapaxes(x, 2, 3))
        if self.reward_features is None:
            return packed
        v = self.reward_features
        outer = v[..., :, np.newaxis] * v[..., np.newaxis, :]
        return np.concatenate([packed, math.sqrt(self.reward) * pack(outer)], axis=-1)

    @cached_property
    def _paid(self) -> Floats:
        """Weighted v, (S, A, m)."""
        if self.reward_features is None:
            return np.zeros((*self.features.shape[:2], 0))
        return math.sqrt(self.reward) * self.reward_features

    @cached_property
    def _crosses(self) -> Floats:
        """|x (e - p0)|^2, (S, A, S)."""
        crosses: Floats = ((self.features - self._offsets[..., np.newaxis]) ** 2).sum(axis=2)
        return crosses

    @cached_property
    def _lengths(self) -> Floats:
        """The longest |y|^2 of every state and action."""
        squares = np.where(self.support, self._crosses, 0.0).max(axis=-1)
        lengths = squares + (self._grams**2).sum(axis=-1) + (self._paid**2).sum(axis=-1)
        return np.where(self.support.any(axis=-1), lengths, 0.0)

    @cached_property
    def _last_lengths(self) -> Floats:
        """The same for the reward part, which is all of the last step where rows are per step."""
        own = self._grams[..., packed_size(self.free) :]
        lengths = (own**2).sum(axis=-1) + (self._paid**2).sum(axis=-1)
        return np.where(self.support.any(axis=-1), lengths, 0.0)

    def _add_up(self, step: float, last: float) -> float:
        """What squared lengths of steps add up to, if rows are per step with another last one."""
        if self.pooled:
            return self.horizon * math.sqrt(step)
        return math.sqrt((self.horizon - 1) * step + last)

    @cached_property
    def _pairs(self) -> tuple[float, float]:
        """What distances of steps add up to, and rho."""
        s, a, t = np.nonzero(self.support)
        if len(s) > _MOST_STEPS:
            squares = self._lengths.max(), self._last_lengths.max()
            rewards = any_features(self.reward, self.reward) if self._paying else 0.0
            squares_of_mean = (self.mean**2).sum(-1, keepdims=True)
            targets = np.where(self.support, 1.0 - 2.0 * self.mean + squares_of_mean, 0.0)
            # Where p0 is nearly e, almost all of it cancels.
            targets += 4.0 * np.finfo(np.float64).eps * self.mean.shape[-1] * (1 + squares_of_mean)
            most = any_features(self.gram, float(targets.max())) + rewards
            step, last = min(most, 4.0 * float(squares[0])), min(rewards, 4.0 * float(squares[1]))
            return self._add_up(step, last), 1.0
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        step, rho = _extremes(np.hstack([self._grams[s, a], crosses]), self._paid[s, a])
        s, a = np.nonzero(self.support.any(axis=-1))
        own = self._grams[s, a, packed_size(self.free) :]
        last, rho_last = _extremes(own, self._paid[s, a])
        return self._add_up(step, last), max(rho, rho_last)

    @cached_property
    def _farthest(self) -> float:
        """What distances of two users' steps add up to, with a look at where they are."""
        apart, walks = self._pairs[0], _Walks(self.support)
        if self.clips or self.horizon * len(walks.now) ** 2 > _MOST_PAIRS:
            return apart
        s, a, t = walks.now, walks.action, walks.after
        own = packed_size(self.free)
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        steps = np.hstack([self._grams[s, a], crosses])
        last = steps if self.pooled else self._grams[s, a, own:]
        every = [last, *[steps] * (self.horizon - 1)]
        most = walks.farthest(((step, self._paid[s, a]) for step in every), self.pooled)
        return min(apart, most if self.pooled else math.sqrt(most))

    @cached_property
    def _opposition(self) -> float:
        """The theta of the class."""
        s, a, t = np.nonzero(self.support)
        if len(s) > _MOST_STEPS:
            return 1.0
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        steps, paid = np.hstack([self._grams[s, a], crosses]), self._paid[s, a]
        # Other rewards are between these two.
        ends = (0.0, 1.0) if paid.shape[1] else (0.0,)
        theta = _opposed(np.vstack([np.hstack([steps, r * paid]) for r in ends]))
        # Rounded up to what every machine finds: blocks are made by the noise.
        return min(1.0, math.ceil(theta * 1e3) / 1e3)

    @cached_property
    def _longest(self) -> float:
        """What the longest steps that a user can make one after the other add up to."""
        top = float(self._lengths.max())
        if top < 1e-200:
            raise InvalidArgument("all features are zero, or nearly: there is nothing to learn")
        walks = _Walks(self.support)
        at = walks.now, walks.action
        step = (self._grams[at] ** 2).sum(axis=-1) + (self._paid[at] ** 2).sum(axis=-1)
        step += self._crosses[(*at, walks.after)]
        every = [step] * self.horizon
        if self.pooled:
            return walks.longest([np.sqrt(step)] * self.horizon)
        every[0] = self._last_lengths[at]
        # One step without rewards tells nothing, but a release of nothing has its noise.
        return math.sqrt(walks.longest(every)) or math.sqrt(top)

    @property
    def clips(self) -> bool:
        """Whether some user's steps may be weighted down."""
        return self.clip is not None and self.clip < self._longest

    @property
    def bound(self) -> float:
        """C."""
        return float(self.clip) if self.clips and self.clip is not None else self._longest

    @property
    def typical(self) -> float:
        """The length of a user's vector if steps were orthogonal and of average length."""
        return math.sqrt(self.horizon * float(self._lengths.mean()))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        if checked_relation(relation) is Relation.ZERO_OUT:
            return self.bound
        C = self.bound
        rho = self._pairs[1]
        against = rho * C**2
        if self.pooled:
            against = min(rho * self._longest**2, self._opposition * C**2)
        return max(C, min(self._farthest, math.sqrt(2.0 * (C**2 + against))))

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        return self._sums(block, separate=True)

    def total(self, block: Block) -> Floats:
        """The sum over users, without making their vectors."""
        if block.aggregate:
            return self.aggregate(block)
        total: Floats = self._sums(block, separate=False)[0]
        return total

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block's transitions (H, S, A, S) and rewards (H, S, A)."""
        if self.clips:
            raise InvalidArgument("clipped sums need users one by one, not an aggregate block")
        counts, rewards = _counts(block, self.horizon, self.support)
        visits = counts.sum(axis=-1)
        H, last = self.horizon, self.last
        own = packed_size(self.free)
        grams = np.einsum("hsa,sag->hg", visits, self._grams, optimize=True)
        crosses = np.zeros((H, self.free))
        crosses[:last] = np.einsum(
            "hsat,sakt->hk", counts[:last], self.features, optimize=True
        ) - np.einsum("hsa,sak->hk", visits[:last], self._offsets, optimize=True)
        grams[last:, :own] = 0.0
        paid = np.einsum("hsa,sam->hm", rewards, self._paid, optimize=True)
        if self.pooled:
            grams, crosses = grams.sum(axis=0, keepdims=True), crosses.sum(axis=0, keepdims=True)
            paid = paid.sum(axis=0, keepdims=True)
        joined: Floats = self._joined(grams[np.newaxis], crosses[np.newaxis], paid[np.newaxis])[0]
        return joined

    def _joined(self, grams: Floats, crosses: Floats, paid: Floats) -> Floats:
        """Packed vectors, part after part."""
        rows, own = len(grams), packed_size(self.free)
        parts = [grams[..., :own], crosses, grams[..., own:], paid]
        flat = [part.reshape(rows, math.prod(part.shape[1:])) for part in parts]
        return np.concatenate(flat, axis=1)

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.mixture.sum_loops import sum_steps

        users, H = block.users, self.horizon
        states = read_codes(block, "states", (users, H + 1))
        actions = read_codes(block, "actions", (users, H))
        rewards = read_rewards(block, "rewards", (users, H))
        rows, L = users if separate else 1, self.rows
        sums = np.zeros((rows, L, self._grams.shape[2]))
        crosses, paid = np.zeros((rows, L, self.free)), np.zeros((rows, L, self._paying))
        limit = self.bound**2 * (1.0 - _ROUNDING) if self.clips else math.inf
        sum_steps(
            states,
            actions,
            rewards,
            self.support,
            self._grams,
            self.features,
            self._offsets,
            self._paid,
            limit,
            self.pooled,
            self.last,
            separate,
            sums,
            crosses,
            paid,
        )
        return self._joined(sums, crosses, paid)


@dataclass(frozen=True, eq=False)
class ValueSums(_RegressionSums):
    """Sums over a user's steps of p p' and p q: the value-targeted regression of the paper.

    At step h with the public value function V of the next step, p = x V / B and
    q = (V(s') - p0 V) / (B X), for public scales B and X by which |p| <= 1 and |q| <= 1; both are
    cut to that. A user's sums are made with the V of her own block, and never again with another.

    Reads and parts as :class:`ModelSums`.

    Sensitivity. Steps have rows of their own (also where weights are shared: rows are summed after
    the gate), so squares add up over steps. One step is
    y = (sqrt(a) p p', p q, sqrt(b) v v', sqrt(b) r v) or, dropped, zero. As |p|, |q|, |v| and r are
    at most 1, |y|^2 <= a + 1 + 2 b, and two are at most any_features(a, 1) + any_features(b, b)
    apart, squared: 4.5 and 4.5 for a = b = 1. Nothing follows the last step, so its p is zero: over
    T steps, the first term counts T - 1 times and the second T times. This holds for every V, also
    one that an adversary chose, because p and q are cut; it does not depend on V, so one counter
    serves all blocks.

    With ``own_values`` the bound is for the V at hand, which is public, and usually much smaller:
    inputs of one V are seldom as long, as opposed and as often met as those of the worst one.
    Squared distances of steps are convex in each reward, so all pairs of possible transitions are
    looked at, with rewards of 0 or 1, or with one step dropped; and a step begins where the one
    before ended (:class:`_Walks`). That is exact. Where pairs are too many, the largest distances
    of each step add up; a distance is convex in q, so every state and action has its least and its
    largest q only. Twice the zero-out bound, which is always exact, and the bound for any V hold
    too; the least is declared. A tenth of the bound for any V is declared at least.

    Attributes:
        inputs: p, (H, S, A, k).
        means: p0 V / (B X), (H, S, A).
        values: V / (B X), (H, S).
        support: which transitions are possible, (S, A, S).
        horizon, reward_features, gram, reward: as in :class:`ModelSums`.
        own_values: whether the sensitivity is for the V at hand, or for any. Noise then depends on
            V, and through it on earlier releases: nothing for one counter over many V, nor for
            theory that needs noise to be normal over all blocks.
    """

    inputs: Floats
    means: Floats
    values: Floats
    support: Bools
    horizon: int
    reward_features: Floats | None = None
    pooled: bool = False
    gram: float = 1.0
    reward: float = 1.0
    own_values: bool = False

    def __post_init__(self) -> None:
        shape = np.shape(self.inputs)
        if len(shape) != 4 or 0 in shape:
            raise InvalidArgument(f"inputs must have shape (H, S, A, k), got {shape}")
        _check_options(self, shape[1:3])
        if shape[0] != self.horizon:
            raise InvalidArgument(f"inputs must have shape (H, S, A, k), got {shape}")
        H, S, A, _ = shape
        if self.pooled:
            raise InvalidArgument("value-targeted sums are per step; sum them after the gate")
        object.__setattr__(self, "inputs", _cut(_table("inputs", self.inputs, shape), (3,)))
        # Targets are cut in the end, whatever they are; their differences must not overflow.
        for name, size in (("means", (H, S, A)), ("values", (H, S))):
            table = np.clip(_table(name, getattr(self, name), size), -_HUGE, _HUGE)
            table.setflags(write=False)
            object.__setattr__(self, name, table)
        object.__setattr__(self, "support", _support(self.support, (S, A, S)))
        object.__setattr__(self, "own_values", bool(self.own_values))
        object.__setattr__(self, "name", "value sums")

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.inputs.shape[3])

    def l2(self, relation: Relation) -> float:
        """See the class."""
        zero = checked_relation(relation) is Relation.ZERO_OUT
        a, b, moves = self.gram, self.reward, self.horizon - 1
        if zero:
            squares = moves * (a + 1.0) + (self.horizon * 2.0 * b if self._paying else 0.0)
        else:
            squares = moves * any_features(a, 1.0)
            squares += self.horizon * any_features(b, b) if self._paying else 0.0
        if squares <= 0.0:
            raise InvalidArgument("an episode of one step has no transitions to learn from")
        if not self.own_values:
            return math.sqrt(squares)
        own = self._longest if zero else self._farthest
        return math.sqrt(squares) * max(_LEAST_SHARE, min(1.0, math.sqrt(own / squares)))

    def _targets(self, step: int) -> Floats:
        """All q of a step, (S, A, S)."""
        targets: Floats = np.clip(self.values[step] - self.means[step][..., np.newaxis], -1.0, 1.0)
        return targets

    def _lengths(self, walks: _Walks) -> Iterator[Floats]:
        """Squared lengths of all possible transitions, last step first."""
        s, a, t = walks.now, walks.action, walks.after
        own = np.zeros(self.support.shape[:2])
        if self.reward_features is not None:
            squares = (self.reward_features**2).sum(axis=-1)
            own = self.reward * (squares**2 + squares)
        for h in reversed(range(self.horizon)):
            squares = (self.inputs[h] ** 2).sum(axis=-1)[s, a] * (h < self.last)
            yield squares * (self.gram * squares + self._targets(h)[s, a, t] ** 2) + own[s, a]

    def _steps(self, s: Ints, a: Ints, targets: Callable[[int], Floats]) -> _Steps:
        """Steps at these states and actions, with these q."""
        own, paid = np.zeros((len(s), 0)), np.zeros((len(s), 0))
        if self.reward_features is not None:
            v, weight = self.reward_features[s, a], math.sqrt(self.reward)
            own, paid = weight * pack(v[:, :, np.newaxis] * v[:, np.newaxis]), weight * v
        for h in reversed(range(self.horizon)):
            p = self.inputs[h, s, a] * (h < self.last)
            outer = math.sqrt(self.gram) * pack(p[:, :, np.newaxis] * p[:, np.newaxis])
            yield np.hstack([outer, p * targets(h)[:, np.newaxis], own]), paid

    @cached_property
    def _longest(self) -> float:
        """The largest squared length."""
        walks = _Walks(self.support)
        return walks.longest(self._lengths(walks))

    @cached_property
    def _farthest(self) -> float:
        """The largest squared distance, or a bound on it."""
        walks, most = _Walks(self.support), 4.0 * self._longest
        s, a, t = walks.now, walks.action, walks.after
        if self.horizon * len(s) ** 2 <= _MOST_PAIRS:
            return min(most, walks.farthest(self._steps(s, a, lambda h: self._targets(h)[s, a, t])))
        s, a = np.nonzero(self.support.any(axis=-1))
        if self.horizon * (2 * len(s)) ** 2 > _MOST_PAIRS:
            return most
        possible = self.support[s, a]

        def ends(step: int) -> Floats:
            q = self._targets(step)[s, a]
            least, largest = np.where(possible, q, 1.0), np.where(possible, q, -1.0)
            return np.concatenate([least.min(axis=1), largest.max(axis=1)])

        steps = self._steps(np.tile(s, 2), np.tile(a, 2), ends)
        return min(most, sum(_extremes(base, paid)[0] for base, paid in steps))

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, H = block.users, self.horizon
        states = read_codes(block, "states", (users, H + 1))
        actions = read_codes(block, "actions", (users, H))
        rewards = read_rewards(block, "rewards", (users, H))
        S, A = self.inputs.shape[1:3]
        now, after = states[:, :-1], states[:, 1:]
        valid = (now >= 0) & (now < S) & (after >= 0) & (after < S)
        valid &= (actions >= 0) & (actions < A) & ~np.isnan(rewards)
        now, after, taken = (np.where(valid, array, 0) for array in (now, after, actions))
        valid &= self.support[now, taken, after]
        steps = np.arange(H)
        p = self.inputs[steps, now, taken] * valid[..., np.newaxis]
        p[:, self.last :] = 0.0
        q = np.clip(self.values[steps, after] - self.means[steps, now, taken], -1.0, 1.0)
        values = {"gram": p[..., :, np.newaxis] * p[..., np.newaxis, :], "cross": p * q[..., None]}
        if self.reward_features is not None:
            v = self.reward_features[now, taken] * valid[..., np.newaxis]
            values["reward_gram"] = v[..., :, np.newaxis] * v[..., np.newaxis, :]
            values["rewards"] = v * np.where(valid, rewards, 0.0)[..., np.newaxis]
        return self.layout.pack(values, users=users)

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block's transitions (H, S, A, S) and rewards (H, S, A)."""
        counts, rewards = _counts(block, self.horizon, self.support)
        visits = counts.sum(axis=-1)
        p = self.inputs.copy()
        p[self.last :] = 0.0
        q = np.clip(self.values[:, np.newaxis, np.newaxis] - self.means[..., np.newaxis], -1.0, 1.0)
        values = {
            "gram": np.einsum("hsa,hsak,hsal->hkl", visits, p, p, optimize=True),
            "cross": np.einsum("hsa,hsak->hk", (counts * q).sum(axis=-1), p, optimize=True),
        }
        if self.reward_features is not None:
            v = self.reward_features
            values["reward_gram"] = np.einsum("hsa,sam,san->hmn", visits, v, v, optimize=True)
            values["rewards"] = np.einsum("hsa,sam->hm", rewards, v, optimize=True)
        return self.layout.pack(values)


def _check_options(statistic: ModelSums | ValueSums, sizes: tuple[int, ...]) -> None:
    """What both regressions check, and cut reward features to length 1."""
    object.__setattr__(statistic, "horizon", check_size("horizon", statistic.horizon))
    object.__setattr__(statistic, "pooled", bool(statistic.pooled))
    clip = getattr(statistic, "clip", None)
    if clip is not None and not (math.isfinite(clip) and clip > 0):
        raise InvalidArgument(f"clip must be > 0, got {clip!r}")
    if clip is not None:
        object.__setattr__(statistic, "clip", float(clip))
    for name in ("gram", "reward"):
        value = getattr(statistic, name)
        if not 1e-12 <= value <= 1e12:
            raise InvalidArgument(f"{name} must be in [1e-12, 1e12], got {value!r}")
        object.__setattr__(statistic, name, float(value))
    if statistic.reward_features is not None:
        shape = np.shape(statistic.reward_features)
        if len(shape) != 3 or shape[:2] != sizes or 0 in shape:
            raise InvalidArgument(f"reward_features must have shape {sizes} + (m,), got {shape}")
        v = _cut(_table("reward_features", statistic.reward_features, shape), (2,))
        object.__setattr__(statistic, "reward_features", v)


def _counts(block: Block, horizon: int, support: Bools) -> tuple[Floats, Floats]:
    """A simulated block's possible transitions, and what they paid.

    Which rewards belong to dropped transitions is not known; they are taken to pay the average.
    """
    S, A, _ = support.shape
    counts = np.asarray(block["transitions"], dtype=np.float64)
    rewards = np.asarray(block["rewards"], dtype=np.float64)
    if counts.shape != (horizon, S, A, S) or rewards.shape != (horizon, S, A):
        raise InvalidArgument(
            f"an aggregate block must have transitions of shape {(horizon, S, A, S)} and rewards "
            f"of shape {(horizon, S, A)}, got {counts.shape} and {rewards.shape}"
        )
    possible = counts * support
    kept, all_of_them = possible.sum(axis=-1), counts.sum(axis=-1)
    share = np.divide(kept, all_of_them, out=np.ones_like(kept), where=all_of_them > 0)
    return possible, rewards * share
