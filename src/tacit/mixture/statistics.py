"""What mixture agents ask of users.

Transitions are P(. | s, a) = p0(s, a) + x(s, a)' eta, with x(s, a) in R^{k x S} and p0 public
(features along the public directions, and at the public centre) and eta unknown. A transition
that the features give no probability under any weights is impossible, so it is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from tacit.finite import check_size
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import any_features
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Part, Statistic
from tacit.privacy.symmetric import pack, packed_size
from tacit.visits import read_codes, read_rewards

# Above this many single steps bounds for any features are used.
_MOST_STEPS = 5000
# How many numbers are looked at in one go.
_CHUNK = 1 << 20
# The largest numbers of public tables with which nothing overflows, in squares and in sums.
_LARGEST = 1e6
_HUGE = 1e150
# How long a direction is looked for that all steps share.
_ROUNDS = 200
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
        products = base[some] @ base[rest].T
        of_paid = paid[some] @ paid[rest].T
        one, other = squares_paid[some, np.newaxis], squares_paid[rest]
        apart = squares[some, np.newaxis] + squares[rest] - 2.0 * products
        # Rewards are 0 or 1, as a distance is convex in each.
        apart += np.maximum(one + other - 2.0 * of_paid, np.maximum(one, other))
        farthest = max(farthest, float(apart.max()))
        products += np.minimum(of_paid, 0.0)
        products /= lengths[some, np.newaxis] * lengths[rest]
        rho = max(rho, -float(products.min()))
    return farthest, min(rho, 1.0)


def _margin(rows: Floats) -> float:
    """The kappa with <g, y> >= kappa |y| for every row y: large, if not the largest.

    g is found by the Frank-Wolfe method for the shortest convex combination of unit rows; whatever
    is found, kappa holds for it.
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    g, best = units.mean(axis=0), 0.0
    for _ in range(_ROUNDS):
        products = units @ g
        best = max(best, float(products.min()) / max(float(np.linalg.norm(g)), 1e-9))
        towards = units[int(products.argmin())] - g
        gain = -float(g @ towards)
        if gain <= 1e-12:
            break
        g = g + min(1.0, gain / float(towards @ towards)) * towards
    return max(0.0, best - _ROUNDING)


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

    * |Y| <= C: ``clip``, or what the longest steps add up to if that is less. The weights keep to
      ``clip`` because |Y + w y|^2 is convex in the reward: no reward in [0, 1] makes it larger than
      its bound for 0 and 1.
    * |Y - Y'| is at most what the largest distances |w y - w' y'| of two steps add up to. They are
      convex in each of w, w', r and r', so largest where these are 0 or 1: between two possible
      steps, or one and zero. All pairs are looked at, so for one step the bound is exact.
    * |Y - Y'|^2 <= 2 C^2 - 2 <Y, Y'>, and -<Y, Y'> <= C^2. With rho the largest of 0 and
      -cos(y, y') over pairs of steps, it is also at most rho C^2 per step: it is the sum of
      -w w' <y_h, y'_h> <= rho |w y_h| |w' y'_h|, to which Cauchy-Schwarz applies. Pooled, it is the
      sum over all pairs, so at most rho R R' with R = sum |w y|, which is at most what the longest
      steps add up to. Let g be a unit vector with <g, y> >= kappa |y|, kappa > 0, for every step.
      Then kappa R <= <g, Y> <= C, so it is at most rho C^2 / kappa^2. And steps within an angle of
      arccos kappa of g have sums within it, which are at most twice that angle apart: it is at most
      -cos(2 arccos kappa) C^2 = (1 - 2 kappa^2) C^2, or 0 if that is negative.

    The least is declared. With too many pairs to look at, rho is 1, kappa is 0 and a squared
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
    def _lengths(self) -> Floats:
        """The longest |y|^2 of every state and action."""
        crosses = self.features - self._offsets[..., np.newaxis]
        squares = np.where(self.support, (crosses**2).sum(axis=2), 0.0).max(axis=-1)
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
            targets = np.where(
                self.support, 1.0 - 2.0 * self.mean + (self.mean**2).sum(-1, keepdims=True), 0.0
            )
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
    def _opposition(self) -> float:
        """The largest -<Y, Y'> / C^2 of pooled sums, as far as kappa tells."""
        s, a, t = np.nonzero(self.support)
        if len(s) > _MOST_STEPS:
            return 1.0
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        steps, paid = np.hstack([self._grams[s, a], crosses]), self._paid[s, a]
        # Other rewards are between these two.
        kappa = _margin(np.vstack([np.hstack([steps, r * paid]) for r in (0.0, 1.0)]))
        if kappa <= 0.0:
            return 1.0
        return max(0.0, min(1.0, self._pairs[1] / kappa**2, 1.0 - 2.0 * kappa**2))

    @cached_property
    def _longest(self) -> float:
        """What the longest steps add up to."""
        top, last = float(self._lengths.max()), float(self._last_lengths.max())
        if top <= 0.0:
            raise InvalidArgument("all features are zero: there is nothing to learn")
        # One step without rewards tells nothing, but a release of nothing has its noise.
        return self._add_up(top, last) or math.sqrt(top)

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
        apart, rho = self._pairs
        against = rho * C**2
        if self.pooled:
            against = min(rho * self._longest**2, self._opposition * C**2)
        return max(C, min(apart, math.sqrt(2.0 * (C**2 + against))))

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
        from tacit.mixture.kernels import sum_steps

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

    Attributes:
        inputs: p, (H, S, A, k).
        means: p0 V / (B X), (H, S, A).
        values: V / (B X), (H, S).
        support: which transitions are possible, (S, A, S).
        horizon, reward_features, gram, reward: as in :class:`ModelSums`.
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
        object.__setattr__(self, "name", "value sums")

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.inputs.shape[3])

    def l2(self, relation: Relation) -> float:
        """See the class."""
        a, b, moves = self.gram, self.reward, self.horizon - 1
        if checked_relation(relation) is Relation.ZERO_OUT:
            squares = moves * (a + 1.0) + (self.horizon * 2.0 * b if self._paying else 0.0)
        else:
            squares = moves * any_features(a, 1.0)
            squares += self.horizon * any_features(b, b) if self._paying else 0.0
        if squares <= 0.0:
            raise InvalidArgument("an episode of one step has no transitions to learn from")
        return math.sqrt(squares)

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
