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
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Part, Statistic
from tacit.privacy.symmetric import pack, packed_size
from tacit.visits import read_codes, read_rewards

Ints = NDArray[np.int64]

# Above this many single steps, or pairs of paths, bounds for any features are used.
_MOST_STEPS = 5000
_MOST_PAIRS = 1 << 26
# Rounding of the running length; a billionth of the budget is nobody's loss.
_ROUNDING = 1e-9


def any_features(gram: float, cross: float) -> float:
    """A bound on |y - y'|^2 for y = (sqrt(a) x x', x q), |x| <= 1, |q|^2 <= m, any signs.

    x may be a matrix, and q a vector: with <x, x'> <= 1 in Frobenius norm the columns of
    [x'; q' / sqrt(2 a)] give a positive semidefinite block matrix of trace at most 1 + m / (2 a),
    whose blocks x x' and x q / sqrt(2 a) (twice) are what is counted. Two such matrices have a
    non-negative inner product, so a |x x' - ..|^2 + |x q - ..|^2 <= 2 a (1 + m / (2 a))^2.
    """
    return 2.0 * (gram + cross / 2.0) ** 2 / gram


def _table(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array


def _cut(vectors: Floats, axes: tuple[int, ...]) -> Floats:
    """Each cut to length 1."""
    length = np.sqrt((vectors**2).sum(axis=axes, keepdims=True))
    cut: Floats = vectors / np.maximum(length, 1.0)
    return cut


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
    |v| cut to 1. A user is Y = sum w y. |Y| <= C, with C = ``clip`` or less where steps cannot add
    up to it: sqrt(T) max |y| per step and T max |y| pooled, over T steps. |Y - Y'| <= 2 C, and at
    most what differences of steps add up to, sqrt(T) D or T D: D is the largest |w y - w' y'| for
    w, w' in [0, 1], which is convex in both, so it is the largest distance of two possible steps,
    or of one from zero, found by looking at all pairs; rewards are 0 or 1 by the same argument.
    With too many of them D^2 <= any_features(a, 2) + any_features(b, b), since |e - p0|^2 <= 2.

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
        x.setflags(write=False)
        object.__setattr__(self, "features", x)
        object.__setattr__(self, "mean", _table("mean", self.mean, (S, A, S)))
        support = np.array(self.support, dtype=bool)
        if support.shape != (S, A, S):
            raise InvalidArgument(f"support must have shape {(S, A, S)}, got {support.shape}")
        support.setflags(write=False)
        object.__setattr__(self, "support", support)
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
        lengths: Floats = squares + (self._grams**2).sum(axis=-1) + (self._paid**2).sum(axis=-1)
        return lengths

    @cached_property
    def _farthest(self) -> float:
        """D^2."""
        s, a, t = np.nonzero(self.support)
        outcomes = 2 if self._paying else 1
        if len(s) * outcomes > _MOST_STEPS:
            rewards = any_features(self.reward, self.reward) if self._paying else 0.0
            most = any_features(self.gram, 2.0) + rewards
            return float(min(most, 4.0 * self._lengths.max()))
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        steps = np.concatenate([self._grams[s, a], crosses], axis=1)
        if self._paying:
            paid = self._paid[s, a]
            steps = np.concatenate(
                [np.hstack([steps, 0.0 * paid]), np.hstack([steps, paid])], axis=0
            )
        squares = (steps**2).sum(axis=1)
        pairs = squares[:, np.newaxis] + squares - 2.0 * steps @ steps.T
        return float(max(pairs.max(), squares.max()))

    @cached_property
    def _longest(self) -> float:
        top = math.sqrt(float(self._lengths.max()))
        if top <= 0.0:
            raise InvalidArgument("all features are zero: there is nothing to learn")
        return self.horizon * top if self.pooled else math.sqrt(self.horizon) * top

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
        steps = self.horizon if self.pooled else math.sqrt(self.horizon)
        return max(self.bound, min(2.0 * self.bound, steps * math.sqrt(self._farthest)))

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
        counts, rewards = _counts(block, self.horizon, self.features.shape[:2])
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
    the gate). One step is y = (sqrt(a) p p', p q, sqrt(b) v v', sqrt(b) r v), of squared length at
    most a + 1 + 2 b, and two are at most any_features(a, 1) + any_features(b, b) apart, squared:
    4.5 and 4.5 for a = b = 1. Over the T steps, T times that. This holds for every V, also one
    that an adversary chose, because p and q are cut.

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
        if len(shape) != 4 or shape[0] != self.horizon or 0 in shape:
            raise InvalidArgument(f"inputs must have shape (H, S, A, k), got {shape}")
        H, S, A, _ = shape
        if self.pooled:
            raise InvalidArgument("value-targeted sums are per step; sum them after the gate")
        p = _cut(_table("inputs", self.inputs, shape), (3,))
        p.setflags(write=False)
        object.__setattr__(self, "inputs", p)
        object.__setattr__(self, "means", _table("means", self.means, (H, S, A)))
        object.__setattr__(self, "values", _table("values", self.values, (H, S)))
        support = np.array(self.support, dtype=bool)
        if support.shape != (S, A, S):
            raise InvalidArgument(f"support must have shape {(S, A, S)}, got {support.shape}")
        support.setflags(write=False)
        object.__setattr__(self, "support", support)
        _check_options(self, (S, A))
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
        counts, rewards = _counts(block, self.horizon, self.inputs.shape[1:3])
        counts = counts * self.support
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


def _check_options(statistic: ModelSums | ValueSums, sizes: tuple[int, int]) -> None:
    """What both regressions check, and cut reward features to length 1."""
    if statistic.horizon < 1:
        raise InvalidArgument(f"horizon must be >= 1, got {statistic.horizon!r}")
    clip = getattr(statistic, "clip", None)
    if clip is not None and not (math.isfinite(clip) and clip > 0):
        raise InvalidArgument(f"clip must be > 0, got {clip!r}")
    for name in ("gram", "reward"):
        value = getattr(statistic, name)
        if not 1e-12 <= value <= 1e12:
            raise InvalidArgument(f"{name} must be in [1e-12, 1e12], got {value!r}")
    if statistic.reward_features is not None:
        shape = np.shape(statistic.reward_features)
        if len(shape) != 3 or shape[:2] != sizes or 0 in shape:
            raise InvalidArgument(f"reward_features must have shape {sizes} + (m,), got {shape}")
        v = _cut(_table("reward_features", statistic.reward_features, shape), (2,))
        v.setflags(write=False)
        object.__setattr__(statistic, "reward_features", v)


def _counts(block: Block, horizon: int, sizes: tuple[int, ...]) -> tuple[Floats, Floats]:
    S, A = sizes
    counts = np.asarray(block["transitions"], dtype=np.float64)
    rewards = np.asarray(block["rewards"], dtype=np.float64)
    if counts.shape != (horizon, S, A, S) or rewards.shape != (horizon, S, A):
        raise InvalidArgument(
            f"an aggregate block must have transitions of shape {(horizon, S, A, S)} and rewards "
            f"of shape {(horizon, S, A)}, got {counts.shape} and {rewards.shape}"
        )
    return counts, rewards


@dataclass(frozen=True, eq=False)
class PathCounts(Statistic):
    """Counts N_h(s, s') of the transitions that inform on weights, along the block's own policy.

    For sparse worlds: only what the policy can reach and the weights can change is counted.

    Reads ``states`` (users, H + 1), ``actions``, ``rewards`` (users, H) and ``versions`` (users,).
    A user's steps count from the first on, as long as her path is one that the policy can take: she
    followed this version, started in a possible state, took the policy's action, and went where
    the features allow. The first step that is not so ends her path, and nothing after it counts.
    Parts: ``transitions``, one entry per counted transition, and ``rewards``, the reward sum of
    every reachable (h, s) with squared weight b, where rewards are unknown.

    Sensitivity. At each step a live path adds 1 to one entry of ``transitions`` (or none) and
    r <= 1 to one of ``rewards``. Two live paths differ by 0 if they take the same transition, else
    by the number of them that count; rewards by b in the same state, else 2 b; a dead path adds
    nothing. The largest squared distance over pairs of paths, which may die at any step, is found
    by a dynamic programme over pairs of states. Entries are one-hots, so for the 1-norm the same
    holds with sqrt(b) in place of b. Where pairs are too many, every step counts 2 (1 + b).

    Attributes:
        support: which transitions are possible, (S, A, S).
        informs: which of them the weights can change, (S, A, S).
        start: in which states users can start, (S,).
        horizon: steps of an episode.
        policy: its actions, (H, S).
        version: its version.
        reward: squared weight b; 0 where rewards are known.
    """

    support: Bools
    informs: Bools
    start: Bools
    horizon: int
    policy: Ints
    version: int = 0
    reward: float = 0.0

    def __post_init__(self) -> None:
        shape = np.shape(self.support)
        if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
            raise InvalidArgument(f"support must have shape (S, A, S), got {shape}")
        S, A, _ = shape
        expected = {"support": shape, "informs": shape, "start": (S,)}
        for name, size in expected.items():
            array = np.array(getattr(self, name), dtype=bool)
            if array.shape != size:
                raise InvalidArgument(f"{name} must have shape {size}, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        table = np.array(self.policy, dtype=np.int64)
        if table.shape != (self.horizon, S) or table.min() < 0 or table.max() >= A:
            raise InvalidArgument(
                f"policy must name actions 0..{A - 1} in a table {(self.horizon, S)}"
            )
        table.setflags(write=False)
        object.__setattr__(self, "policy", table)
        if not 0.0 <= self.reward <= 1e12:
            raise InvalidArgument(f"reward must be in [0, 1e12], got {self.reward!r}")
        object.__setattr__(self, "name", "path counts")

    @property
    def states(self) -> int:
        """S."""
        return int(self.support.shape[0])

    @cached_property
    def moves(self) -> Bools:
        """Which transitions the policy can make, (H, S, S), and users can reach."""
        at = np.arange(self.states)
        moves = np.array([self.support[at, self.policy[h]] for h in range(self.horizon)])
        here = self.start
        for h in range(self.horizon):
            moves[h] &= here[:, np.newaxis]
            here = moves[h].any(axis=0)
        return moves

    @cached_property
    def counted(self) -> Bools:
        """Which of them are counted, (H, S, S): nothing is learnt from the last step."""
        at = np.arange(self.states)
        informs = np.array([self.informs[at, self.policy[h]] for h in range(self.horizon)])
        counted: Bools = self.moves & informs
        if self.horizon > 1:
            counted[-1] = False
        return counted

    @cached_property
    def paying(self) -> Bools:
        """In which (h, s) rewards are summed."""
        if self.reward == 0.0:
            return np.zeros((self.horizon, self.states), dtype=bool)
        return np.asarray(self.moves.any(axis=2))

    @cached_property
    def layout(self) -> Layout:
        """``transitions`` and perhaps ``rewards``."""
        # A policy that nothing can be learnt from still has a release, of one entry.
        parts = [Part("transitions", (max(1, int(self.counted.sum())),))]
        if self.paying.any():
            shape = (int(self.paying.sum()),)
            parts.append(Part("rewards", shape, weight=math.sqrt(self.reward)))
        return Layout(tuple(parts))

    def dense(self, transitions: Floats, rewards: Floats | None) -> tuple[Floats, Floats]:
        """Released entries as (H, S, S) and (H, S)."""
        counts, sums = np.zeros(self.counted.shape), np.zeros(self.paying.shape)
        counts[self.counted] = transitions[: int(self.counted.sum())]
        if rewards is not None:
            sums[self.paying] = rewards
        return counts, sums

    def _farthest(self, reward: float, apart: bool) -> float:
        """The largest distance of two paths, or of one from none, with rewards that count so."""
        H, S = self.horizon, self.states
        degree = int(self.moves.sum(axis=2).max())
        if apart and H * S * S * degree * degree > _MOST_PAIRS:
            return 2.0 * float(self.counted.any(axis=(1, 2)).sum() + reward * H)
        alone, pair = np.zeros(S), np.zeros((S, S))
        for h in range(H - 1, -1, -1):
            paid = reward * self.paying[h]
            one = np.full(S, 0.0)
            two = np.zeros((S, S))
            lists = [np.flatnonzero(row) for row in self.moves[h]]
            for s in range(S):
                if len(lists[s]):
                    one[s] = paid[s] + (self.counted[h, s, lists[s]] + alone[lists[s]]).max()
            for s in range(S) if apart else ():
                for t in range(s, S):
                    if not (len(lists[s]) and len(lists[t])):
                        two[s, t] = two[t, s] = max(one[s], one[t])
                        continue
                    here = self.counted[h, s, lists[s]].astype(float)[:, np.newaxis]
                    both = here + self.counted[h, t, lists[t]]
                    if s == t:
                        both = both - np.diag(np.diag(both))
                    both = both + pair[np.ix_(lists[s], lists[t])]
                    rewards = paid[s] if s == t else paid[s] + paid[t]
                    two[s, t] = two[t, s] = max(float(both.max()) + rewards, one[s], one[t])
            alone, pair = one, two
        first = np.flatnonzero(self.start)
        if not apart:
            return float(alone[first].max())
        return float(max(pair[np.ix_(first, first)].max(), alone[first].max()))

    @cached_property
    def _bounds(self) -> dict[str, float]:
        """Squared 2-norms and 1-norms; at least 1, so that a release of nothing has its noise."""
        root = math.sqrt(self.reward)
        return {
            "zero l2": max(1.0, self._farthest(self.reward, apart=False)),
            "replace l2": max(1.0, self._farthest(self.reward, apart=True)),
            "zero l1": max(1.0, self._farthest(root, apart=False)),
            "replace l1": max(1.0, self._farthest(root, apart=True)),
        }

    def l2(self, relation: Relation) -> float:
        """See the class."""
        zero = checked_relation(relation) is Relation.ZERO_OUT
        return math.sqrt(self._bounds["zero l2" if zero else "replace l2"])

    def l1(self, relation: Relation) -> float:
        """See the class."""
        zero = checked_relation(relation) is Relation.ZERO_OUT
        return self._bounds["zero l1" if zero else "replace l1"]

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
        """From a simulated block of what followed this policy, (H, S, S) and (H, S)."""
        counts = np.asarray(block["transitions"], dtype=np.float64)
        rewards = np.asarray(block["rewards"], dtype=np.float64)
        shape = (self.horizon, self.states)
        if counts.shape != (*shape, self.states) or rewards.shape != shape:
            raise InvalidArgument(
                f"an aggregate block must have transitions of shape {(*shape, self.states)} and "
                f"rewards of shape {shape}, got {counts.shape} and {rewards.shape}"
            )
        if not np.array_equal(
            np.asarray(block["actions"])[self.moves.any(axis=2)],
            self.policy[self.moves.any(axis=2)],
        ):
            raise InvalidArgument("the block's users followed another policy")
        transitions = np.zeros(self.layout.parts[0].shape)
        transitions[: int(self.counted.sum())] = counts[self.counted]
        return self.layout.pack({"transitions": transitions, "rewards": rewards[self.paying]})

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.mixture.kernels import count_paths

        users, H = block.users, self.horizon
        states = read_codes(block, "states", (users, H + 1))
        actions = read_codes(block, "actions", (users, H))
        rewards = read_rewards(block, "rewards", (users, H))
        admitted = read_codes(block, "versions", (users,)) == self.version
        first = self.layout.parts[0].shape[0]
        places = np.full(self.counted.shape, -1, dtype=np.int64)
        places[self.counted] = np.arange(int(self.counted.sum()))
        visits = np.full(self.paying.shape, -1, dtype=np.int64)
        visits[self.paying] = first + np.arange(int(self.paying.sum()))
        sums = np.zeros((users if separate else 1, self.layout.size))
        count_paths(
            states,
            actions,
            rewards,
            admitted,
            self.start,
            self.policy,
            self.support,
            places,
            visits,
            separate,
            sums,
        )
        sums[:, first:] *= math.sqrt(self.reward)
        return sums
