"""The regression that serves every value function: sums of features and next states.

Transitions are P(. | s, a) = p0(s, a) + x(s, a)' eta, with x(s, a) in R^{k x S} and p0 public
(features along the public directions, and at the public centre) and eta unknown. A transition
that the features give no probability under any weights is impossible, so it is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.reading import read_steps
from tacit.data.sizes import check_size
from tacit.numerics.regression import always_one
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.walks import MOST_PAIRS, ROUNDING, Walks, extremes, opposed
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Layout, LoopSums, Part
from tacit.privacy.symmetric import pack, packed_size

# Above this many single steps bounds for any features are used.
_MOST_STEPS = 5000
# The largest numbers of a public table with which nothing overflows.
_LARGEST = 1e6


@dataclass(frozen=True, eq=False)
class ModelSums(LoopSums):
    """Sums over a user's steps of w x x' and w x (e_{s'} - p0): a regression free of any value.

    Every transition informs on all weights, and one release serves all value functions.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A step counts if its
    values are valid and its transition possible. Where rewards are unknown, w v v' and w r v come
    beside, v = varphi(s, a). Parts: ``gram`` (L, k, k), ``cross`` (L, k), ``reward_gram`` (L, m, m)
    and ``rewards`` (L, m), with L = 1 if ``pooled``, else H.

    The weight w <= 1 of a step is lowered where the user's vector could become longer than
    ``clip`` whatever the next state and reward turn out to be. It does not depend on them, so what
    follows a weighted step is still an unbiased sample.

    Sensitivity. One step is y = (x x', x (e - p0), v v', r v), with |x| and |v| cut to 1. A user is
    Y = sum w y, with w = 0 for a dropped step. Per step, steps have entries of their own, so
    lengths l_h *add up* to sqrt(sum l_h^2), and the last one is only its reward part. Pooled, they
    add up to sum l_h.

    * |Y| <= C: ``clip``, or what the longest steps add up to if that is less; a step begins where
      the one before ended, or anywhere if that was dropped (:class:`Walks`). The weights keep to
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
      of steps with weights >= 0; see :func:`~tacit.privacy.bounds.walks.opposed`.

    The least is declared. With too many pairs to look at, rho and theta are 1 and a squared
    distance at most any_features(1, m) + any_features(1, 1) for |e - p0|^2 <= m: p0 need not be a
    distribution.
    """

    features: Floats  # x, (S, A, k, S)
    mean: Floats  # p0, (S, A, S)
    support: Bools  # which transitions are possible, (S, A, S)
    horizon: int  # steps of an episode
    reward_features: Floats | None = None  # v, (S, A, m), or ``None`` where rewards are known
    pooled: bool = False  # one row of sums for all steps, instead of one each
    # the longest vector a user may have; ``None`` for what steps can add up to
    clip: float | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.features)
        if len(shape) != 4 or shape[0] != shape[3] or 0 in shape:
            raise InvalidArgument(f"features must have shape (S, A, k, S), got {shape}")
        S, A, _, _ = shape
        x = cut(checked_table("features", self.features, shape), (2, 3))
        mean = checked_table("mean", self.mean, (S, A, S))
        if np.abs(mean).max() > _LARGEST:
            raise InvalidArgument(f"mean must be probabilities, or at most {_LARGEST:g} in size")
        support = np.array(self.support, dtype=bool)
        if support.shape != (S, A, S) or not support.any():
            raise InvalidArgument(
                f"support must allow some transition, in shape {(S, A, S)}, got {support.shape}"
            )
        support.setflags(write=False)
        given = {"features": x, "mean": mean, "support": support, "pooled": bool(self.pooled)}
        given |= {"horizon": check_size("horizon", self.horizon), "name": "model sums"}
        if self.reward_features is not None:
            shape = np.shape(self.reward_features)
            if len(shape) != 3 or shape[:2] != (S, A) or 0 in shape:
                raise InvalidArgument(f"reward_features must have shape {S, A} + (m,), got {shape}")
            table = checked_table("reward_features", self.reward_features, shape)
            given["reward_features"] = cut(table, (2,))
        if self.clip is not None:
            given["clip"] = positive("clip", self.clip)
        for name, value in given.items():
            object.__setattr__(self, name, value)

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.features.shape[2])

    @property
    def rows(self) -> int:
        """L: one row per step, or one for all."""
        return 1 if self.pooled else self.horizon

    @property
    def last(self) -> int:
        """The first step whose transition does not count, unless other steps share its weights."""
        return self.horizon if self.pooled else self.horizon - 1

    @property
    def follows(self) -> Any:
        """A possible next state (S, A) for the last step, if its transition does not count."""
        return None if self.last == self.horizon else self.support.argmax(axis=2)

    @property
    def _paying(self) -> int:
        return 0 if self.reward_features is None else int(self.reward_features.shape[2])

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``cross``, and ``reward_gram``, ``rewards`` where rewards are unknown."""
        L, k, m = self.rows, self.free, self._paying
        parts = [Part("gram", (L, k, k), symmetric=True), Part("cross", (L, k))]
        if m:
            parts += [Part("reward_gram", (L, m, m), symmetric=True), Part("rewards", (L, m))]
        return Layout(tuple(parts))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards, where they are unknown and some combination of their features is always 1."""
        one = None if self.reward_features is None else always_one(self.reward_features)
        if one is None:
            return {}
        paid, noise = release["rewards"], float(np.max(release.std["rewards"]))
        spread = noise * float(np.linalg.norm(one)) * math.sqrt(len(paid))
        found: dict[str, tuple[Any, Any]] = {"rewards": (float((paid @ one).sum()), spread)}
        return found if self.clip is None else found | {"partial": (1.0, 0.0)}

    @cached_property
    def _packed(self) -> int:
        """How many numbers a Gram matrix is."""
        return packed_size(self.free)

    @cached_property
    def _offsets(self) -> Floats:
        """What x p0 is, (S, A, k)."""
        offsets: Floats = (self.features @ self.mean[..., np.newaxis])[..., 0]
        return offsets

    @cached_property
    def _grams(self) -> Floats:
        """Packed x x' and v v', (S, A, G)."""
        x, v = self.features, self._paid
        outer = v[..., :, np.newaxis] * v[..., np.newaxis, :]
        return np.concatenate([pack(x @ np.swapaxes(x, 2, 3)), pack(outer)], axis=-1)

    @cached_property
    def _paid(self) -> Floats:
        """The v, (S, A, m); m = 0 where rewards are known."""
        if self.reward_features is None:
            return np.zeros((*self.features.shape[:2], 0))
        return self.reward_features

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
        own = self._grams[..., self._packed :]
        lengths = (own**2).sum(axis=-1) + (self._paid**2).sum(axis=-1)
        return np.where(self.support.any(axis=-1), lengths, 0.0)

    def _add_up(self, step: float, last: float) -> float:
        """What squared lengths of steps add up to, if rows are per step with another last one."""
        if self.pooled:
            return self.horizon * math.sqrt(step)
        return math.sqrt((self.horizon - 1) * step + last)

    @property
    def _steps(self) -> tuple[Floats, Floats]:
        """All possible steps but for what rewards pay, and what a reward of 1 adds."""
        s, a, t = np.nonzero(self.support)
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        return np.hstack([self._grams[s, a], crosses]), self._paid[s, a]

    @cached_property
    def _pairs(self) -> tuple[float, float]:
        """What distances of steps add up to, and rho."""
        if self.support.sum() > _MOST_STEPS:
            squares = self._lengths.max(), self._last_lengths.max()
            rewards = any_features(1.0, 1.0) if self._paying else 0.0
            squares_of_mean = (self.mean**2).sum(-1, keepdims=True)
            targets = np.where(self.support, 1.0 - 2.0 * self.mean + squares_of_mean, 0.0)
            # Where p0 is nearly e, almost all of it cancels.
            targets += 4.0 * np.finfo(np.float64).eps * self.mean.shape[-1] * (1 + squares_of_mean)
            most = any_features(1.0, float(targets.max())) + rewards
            step, last = min(most, 4.0 * float(squares[0])), min(rewards, 4.0 * float(squares[1]))
            return self._add_up(step, last), 1.0
        step, rho = extremes(*self._steps)
        s, a = np.nonzero(self.support.any(axis=-1))
        own = self._grams[s, a, self._packed :]
        last, rho_last = extremes(own, self._paid[s, a])
        return self._add_up(step, last), max(rho, rho_last)

    @cached_property
    def _farthest(self) -> float:
        """What distances of two users' steps add up to, with a look at where they are."""
        apart, walks = self._pairs[0], Walks(self.support)
        if self.clips or self.horizon * len(walks.now) ** 2 > MOST_PAIRS:
            return apart
        steps, paid = self._steps
        last = steps
        if not self.pooled:
            last = self._grams[walks.now, walks.action, self._packed :]
        every = [last, *[steps] * (self.horizon - 1)]
        most = walks.farthest(((step, paid) for step in every), self.pooled)
        return min(apart, most if self.pooled else math.sqrt(most))

    @cached_property
    def _opposition(self) -> float:
        """The theta of the class."""
        if self.support.sum() > _MOST_STEPS:
            return 1.0
        steps, paid = self._steps
        # Other rewards are between these two.
        ends = (0.0, 1.0) if paid.shape[1] else (0.0,)
        theta = opposed(np.vstack([np.hstack([steps, r * paid]) for r in ends]))
        # Rounded up to what every machine finds: blocks are made by the noise.
        return min(1.0, math.ceil(theta * 1e3) / 1e3)

    @cached_property
    def _longest(self) -> float:
        """What the longest steps that a user can make one after the other add up to."""
        top = float(self._lengths.max())
        if top < 1e-200:
            raise InvalidArgument("all features are zero, or nearly: there is nothing to learn")
        walks = Walks(self.support)
        at = walks.now, walks.action
        step = (self._grams[at] ** 2).sum(axis=-1) + (self._paid[at] ** 2).sum(axis=-1)
        step += self._crosses[(*at, walks.after)]
        if self.pooled:
            return walks.longest([np.sqrt(step)] * self.horizon)
        every = [self._last_lengths[at], *[step] * (self.horizon - 1)]
        # One step without rewards tells nothing, but a release of nothing has its noise.
        return math.sqrt(walks.longest(every)) or math.sqrt(top)

    @property
    def clips(self) -> bool:
        """Whether some user's steps may be weighted down."""
        return self.clip is not None and self.clip < self._longest

    @property
    def bound(self) -> float:
        """C."""
        return self._longest if self.clip is None else min(self.clip, self._longest)

    @property
    def typical(self) -> float:
        """The length of a user's vector if steps were orthogonal and of average length."""
        return math.sqrt(self.horizon * float(self._lengths.mean()))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        if checked_relation(relation) is Relation.ZERO_OUT:
            return self.bound
        C, rho = self.bound, self._pairs[1]
        against = rho * C**2
        if self.pooled:
            against = min(rho * self._longest**2, self._opposition * C**2)
        return max(C, min(self._farthest, math.sqrt(2.0 * (C**2 + against))))

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block's transitions (H, S, A, S) and rewards (H, S, A)."""
        if self.clips:
            raise InvalidArgument("clipped sums need users one by one, not an aggregate block")
        counts, rewards = possible_counts(block, self.horizon, self.support)
        visits = counts.sum(axis=-1)
        last, crosses = self.last, np.zeros((self.horizon, self.free))
        grams = np.einsum("hsa,sag->hg", visits, self._grams, optimize=True)
        crosses[:last] = np.einsum(
            "hsat,sakt->hk", counts[:last], self.features, optimize=True
        ) - np.einsum("hsa,sak->hk", visits[:last], self._offsets, optimize=True)
        grams[last:, : self._packed] = 0.0
        paid = np.einsum("hsa,sam->hm", rewards, self._paid, optimize=True)
        sums = [grams, crosses, paid]
        if self.pooled:
            sums = [part.sum(axis=0, keepdims=True) for part in sums]
        joined: Floats = self._joined(*(part[np.newaxis] for part in sums))[0]
        return joined

    def _joined(self, grams: Floats, crosses: Floats, paid: Floats) -> Floats:
        """Packed vectors, part after part."""
        rows, own = len(grams), self._packed
        parts = [grams[..., :own], crosses, grams[..., own:], paid]
        flat = [part.reshape(rows, math.prod(part.shape[1:])) for part in parts]
        return np.concatenate(flat, axis=1)

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.mixture.sum_loops import sum_steps

        rows, L = block.users if separate else 1, self.rows
        sums = np.zeros((rows, L, self._grams.shape[2]))
        crosses, paid = np.zeros((rows, L, self.free)), np.zeros((rows, L, self._paying))
        limit = self.bound**2 * (1.0 - ROUNDING) if self.clips else math.inf
        tables = self.support, self._grams, self.features, self._offsets, self._paid
        how = limit, self.pooled, self.last, separate
        steps = read_steps(block, self.horizon, self.follows)
        given: Any = (*steps, *tables, *how, sums, crosses, paid)
        sum_steps(*given)
        return self._joined(sums, crosses, paid)


def checked_table(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """A read-only copy of a public table."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array


def cut(vectors: Floats, axes: tuple[int, ...]) -> Floats:
    """Each cut to length 1, read-only."""
    largest = np.abs(vectors).max(axis=axes, keepdims=True)
    # Squares of the longest would be infinite.
    scaled = vectors / np.maximum(largest, 1.0)
    length = np.sqrt((scaled**2).sum(axis=axes, keepdims=True))
    cut: Floats = scaled / np.maximum(length, 1.0 / np.maximum(largest, 1.0))
    cut.setflags(write=False)
    return cut


def possible_counts(block: Block, horizon: int, support: Bools) -> tuple[Floats, Floats]:
    """A simulated block's possible transitions, and what they paid, dropped ones the average."""
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


def any_features(gram: float, cross: float) -> float:
    """The largest |y - y~|^2 of y = (sqrt(a) x x', x q), |x| <= 1, |q|^2 <= m, with any signs.

    x is a vector and q a number, or x is a matrix (k, n) with Frobenius norm and q in R^n. Let
    z = [x; q' / sqrt(2 a)], of k + 1 rows. z z' is positive semidefinite with trace
    |x|^2 + |q|^2 / (2 a) <= 1 + m / (2 a) =: t, so |z z'| <= t in Frobenius norm, and two such
    matrices have a non-negative inner product: they are at most sqrt(2) t apart. The blocks of z z'
    are x x', twice x q / sqrt(2 a), and |q|^2 / (2 a). So of two of each, |y - y~|^2 =
    a |x x' - x~ x~'|^2 + |x q - x~ q~|^2 is at most a |z z' - z~ z~'|^2, and so at most 2 a t^2 =
    2 (a + m / 2)^2 / a. It grows with a, so for a < m / 2 it is at most what it is there: 4 m.

    Zero is one of the y. Vectors attain both: unit vectors with <x, x~> = min(1, m / (2 a)), and
    numbers q~ = -q of size sqrt(m). It holds for y times weights in [0, 1] too: |w y - w~ y~|^2 is
    convex in each weight, so it is largest where they are 0 or 1.
    """
    if 2.0 * gram < cross:
        return 4.0 * cross
    return 2.0 * (gram + cross / 2.0) ** 2 / gram
