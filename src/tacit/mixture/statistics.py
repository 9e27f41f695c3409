"""Sums of features and next states, and counts along a policy.

Transitions are P(. | s, a) = p0(s, a) + x(s, a)' eta, with x(s, a) in R^{k x S} and p0 public and
eta unknown. One that has no probability under any weights is impossible, so it is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.regression import always_one
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps
from tacit.privacy.sensitivity import MOST_TILTED_PAIRS, ROUNDING, Walks, extremes, opposed
from tacit.privacy.statistic import Block, Bools, Floats, Layout, LoopSums, Part, pack, packed_size

# Above this many single steps not all pairs of them are looked at.
_MOST_STEPS = 5000
# Above this many sums over pairs of paths they are too many to look at.
_MOST_PAIRS = 1 << 24
# How many numbers are looked at in one go.
_CHUNK = 1 << 20


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

    Sensitivity. One step is y = (x x', x (e - p0), v v', r v). A user is Y = sum w y, with w = 0
    for a dropped step. Per step, steps have entries of their own, so lengths l_h *add up* to
    sqrt(sum l_h^2), and the last one is only its reward part. Pooled, they add up to sum l_h.

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
      of steps with weights >= 0; see :func:`~tacit.privacy.sensitivity.opposed`.

    The least is declared; with too many pairs of steps to look at, 2 C.
    """

    features: Floats  # x, (S, A, k, S)
    mean: Floats  # p0, (S, A, S)
    support: Bools  # which transitions are possible, (S, A, S)
    horizon: int  # steps of an episode
    reward_features: Floats | None = None  # v, (S, A, m), or ``None`` where rewards are known
    pooled: bool = False  # one row of sums for all steps, instead of one each
    # the longest vector a user may have; ``None`` for what steps can add up to
    clip: float | None = None
    name = "model sums"

    @property
    def last(self) -> int:
        """The first step whose transition does not count, unless other steps share its weights."""
        return self.horizon if self.pooled else self.horizon - 1

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``cross``, and ``reward_gram``, ``rewards`` where rewards are unknown."""
        L, k, m = 1 if self.pooled else self.horizon, self.features.shape[2], self._paid.shape[2]
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
        """Numbers of a packed Gram matrix."""
        return packed_size(self.features.shape[2])

    @cached_property
    def _offsets(self) -> Floats:
        """Offsets x p0, (S, A, k)."""
        return np.asarray((self.features @ self.mean[..., np.newaxis])[..., 0])

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
        return np.asarray(((self.features - self._offsets[..., np.newaxis]) ** 2).sum(axis=2))

    @cached_property
    def _lengths(self) -> Floats:
        """The longest |y|^2 of every state and action."""
        squares = np.where(self.support, self._crosses, 0.0).max(axis=-1)
        lengths = squares + (self._grams**2).sum(axis=-1) + (self._paid**2).sum(axis=-1)
        return np.where(self.support.any(axis=-1), lengths, 0.0)

    @property
    def _steps(self) -> tuple[Floats, Floats]:
        """All possible steps but for what rewards pay, and what a reward of 1 adds."""
        s, a, t = np.nonzero(self.support)
        crosses = self.features[s, a, :, t] - self._offsets[s, a]
        return np.hstack([self._grams[s, a], crosses]), self._paid[s, a]

    @cached_property
    def _pairs(self) -> tuple[float, float]:
        """Sum of the largest distances of steps, and rho."""
        step, rho = extremes(*self._steps)
        s, a = np.nonzero(self.support.any(axis=-1))
        last, rho_last = extremes(self._grams[s, a, self._packed :], self._paid[s, a])
        apart = math.sqrt((self.horizon - 1) * step + last)
        return self.horizon * math.sqrt(step) if self.pooled else apart, max(rho, rho_last)

    @cached_property
    def _farthest(self) -> float:
        """Sum of distances of two users' steps, which begin where the steps before ended."""
        apart, walks = self._pairs[0], Walks(self.support)
        if self.clips or self.horizon * len(walks.now) ** 2 > MOST_TILTED_PAIRS:
            return apart
        steps, paid = self._steps
        last = steps if self.pooled else self._grams[walks.now, walks.action, self._packed :]
        every = [last, *[steps] * (self.horizon - 1)]
        most = walks.farthest(((step, paid) for step in every), self.pooled)
        return min(apart, most if self.pooled else math.sqrt(most))

    @cached_property
    def _opposition(self) -> float:
        """The theta of the class."""
        steps, paid = self._steps
        ends = (0.0, 1.0) if paid.shape[1] else (0.0,)  # other rewards are between these two
        theta = opposed(np.vstack([np.hstack([steps, r * paid]) for r in ends]))
        # Rounded up to what every machine finds: blocks are made by the noise.
        return min(1.0, math.ceil(theta * 1e3) / 1e3)

    @cached_property
    def _longest(self) -> float:
        """Length of the longest steps that a user can make one after the other."""
        top = float(self._lengths.max())
        if top < 1e-200:
            raise InvalidArgument("all features are zero, or nearly: there is nothing to learn")
        at = (walks := Walks(self.support)).now, walks.action
        paid = (self._paid[at] ** 2).sum(axis=-1)
        step = (self._grams[at] ** 2).sum(axis=-1) + paid + self._crosses[(*at, walks.after)]
        if self.pooled:
            return walks.longest([np.sqrt(step)] * self.horizon)
        # Of the last step there is the reward part alone.
        last = (self._grams[at][:, self._packed :] ** 2).sum(axis=-1) + paid
        every = [last, *[step] * (self.horizon - 1)]
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
        """Least of the bounds above."""
        if checked_relation(relation) is Relation.ZERO_OUT:
            return self.bound
        C = self.bound
        if self.support.sum() > _MOST_STEPS:
            return 2.0 * C
        rho = self._pairs[1]
        against = rho * C**2
        if self.pooled:
            against = min(rho * self._longest**2, self._opposition * C**2)
        return max(C, min(self._farthest, math.sqrt(2.0 * (C**2 + against))))

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block's transitions (H, S, A, S) and rewards (H, S, A)."""
        if self.clips:
            raise InvalidArgument("clipped sums need users one by one, not an aggregate block")
        (S, A, k, _), H, last = self.features.shape, self.horizon, self.last
        told, rewards = _tables(block, (H, S, A, S))
        counts, all_of_them = told * self.support, told.sum(axis=-1)
        visits, crosses = counts.sum(axis=-1), np.zeros((H, k))
        # Impossible transitions are dropped, and paid what others did.
        share = np.divide(visits, all_of_them, out=np.ones_like(visits), where=all_of_them > 0)
        grams = np.einsum("hsa,sag->hg", visits, self._grams, optimize=True)
        crosses[:last] = np.einsum(
            "hsat,sakt->hk", counts[:last], self.features, optimize=True
        ) - np.einsum("hsa,sak->hk", visits[:last], self._offsets, optimize=True)
        grams[last:, : self._packed] = 0.0
        paid = np.einsum("hsa,sam->hm", rewards * share, self._paid, optimize=True)
        sums = [grams, crosses, paid]
        if self.pooled:
            sums = [part.sum(axis=0, keepdims=True) for part in sums]
        return np.asarray(self._joined(*(part[np.newaxis] for part in sums))[0])

    def _joined(self, grams: Floats, crosses: Floats, paid: Floats) -> Floats:
        """Packed vectors, part after part."""
        rows, own = len(grams), self._packed
        parts = [grams[..., :own], crosses, grams[..., own:], paid]
        flat = [part.reshape(rows, math.prod(part.shape[1:])) for part in parts]
        return np.concatenate(flat, axis=1)

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of all users; a possible next state for the last, if its transition is free."""
        free = self.last != self.horizon
        return StepColumns(self.horizon, self.support.argmax(axis=2) if free else None)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.mixture.sum_loops import sum_steps

        tables = self.support, self._grams, self.features, self._offsets, self._paid
        lead = len(steps.states) if separate else 1, self.layout.parts[0].shape[0]
        sums, crosses, paid = (np.zeros((*lead, tables[i].shape[2])) for i in (1, 2, 4))
        limit = self.bound**2 * (1.0 - ROUNDING) if self.clips else math.inf
        how = limit, self.pooled, self.last, separate, sums, crosses, paid
        given: Any = (*steps[:3], *tables, *how)
        sum_steps(*given)
        return self._joined(sums, crosses, paid)


def _max_plus(left: Floats, right: Floats) -> Floats:
    """The largest left[i, j] + right[j, k] over j."""
    rows = max(1, _CHUNK // max(1, right.size))
    out = np.empty((len(left), right.shape[1]))
    for begin in range(0, len(left), rows):
        some = left[begin : begin + rows, :, np.newaxis]
        out[begin : begin + rows] = (some + right).max(axis=1)
    return out


@dataclass(frozen=True, eq=False)
class PathCounts(LoopSums):
    """Counts N_h(s, s') of the transitions that inform on weights, along the block's own policy.

    For sparse worlds: only what the policy can reach and the weights can change is counted.

    Reads ``states`` (users, H + 1), ``actions``, ``rewards`` (users, H) and ``versions`` (users,).
    A user's steps count from the first on, as long as her path is one that the policy can take: she
    followed this version, started in a possible state, took the policy's action, and went where
    the features allow. The first step that is not so ends her path, and nothing after it counts.
    Parts: ``transitions``, one entry per counted transition, and ``rewards``, the reward sum of
    every reachable (h, s), where rewards are unknown.

    Sensitivity. At each step a live path adds 1 to one entry of ``transitions`` (or none) and
    r <= 1 to one of ``rewards``; both belong to this step only, so squared distances add up over
    steps. Two live paths differ by 0 in transitions if they take the same one, else by the number
    of them that count; in rewards by (r - r')^2 <= 1 in the same state, else by r^2 + r'^2 <= 2. A
    path that ended adds nothing. The largest sum over pairs of paths, each of which may end at any
    step, is a dynamic programme over pairs of states, from the last step: both go on, or one ended
    and the other goes on alone. It is attained: every path that the policy can take is some user's,
    and so is every reward of 0 or 1, by which the 1-norm is the same. Where pairs are too many, 2 L
    is declared, L the largest for one path: entries are not negative, so
    |Y - Y'|^2 <= |Y|^2 + |Y'|^2. Nothing less than 1 is declared.
    """

    support: Bools  # which transitions are possible, (S, A, S)
    informs: Bools  # which of them the weights can change, (S, A, S)
    start: Bools  # in which states users can start, (S,)
    horizon: int  # steps of an episode
    policy: NDArray[np.int64]  # its actions, (H, S)
    version: int = 0  # its version
    rewards: bool = False  # whether they are unknown, and summed
    nonnegative = True
    name = "path counts"

    @cached_property
    def moves(self) -> Bools:
        """Which transitions the policy can make, (H, S, S), and users can reach."""
        moves, here = self.support[np.arange(len(self.start)), self.policy], self.start
        for h in range(self.horizon):
            moves[h] &= here[:, np.newaxis]
            here = moves[h].any(axis=0)
        return moves

    @cached_property
    def counted(self) -> Bools:
        """Which of them are counted, (H, S, S): nothing is learnt from the last step."""
        counted = self.moves & self.informs[np.arange(len(self.start)), self.policy]
        if self.horizon > 1:
            counted[-1] = False
        return np.asarray(counted)

    @cached_property
    def paying(self) -> Bools:
        """In which (h, s) rewards are summed."""
        return np.asarray(self.moves.any(axis=2)) & self.rewards

    @cached_property
    def layout(self) -> Layout:
        """``transitions`` and perhaps ``rewards``."""
        # A policy that nothing can be learnt from still has a release, of one entry.
        parts = [Part("transitions", (max(1, int(self.counted.sum())),))]
        if self.paying.any():
            parts.append(Part("rewards", (int(self.paying.sum()),)))
        return Layout(tuple(parts))

    @property
    def one_hots(self) -> int:
        """One per step that counts, and one per step whose rewards do."""
        counted, paying = self.counted.any(axis=(1, 2)).sum(), self.paying.any(axis=1).sum()
        return max(1, int(counted + paying))

    @property
    def fractional(self) -> Bools:
        """The reward sums."""
        marks = np.zeros(self.layout.size, dtype=bool)
        marks[self.layout.parts[0].shape[0] :] = True
        return marks

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards where they are unknown; visits of next states that tell about the weights."""
        noise = {name: float(np.max(std)) for name, std in release.std.items()}
        counts, sums = self.dense(release["transitions"], release.parts.get("rewards"))
        spread = noise["transitions"] * np.sqrt(self.counted.sum(axis=(0, 1)))
        found = {"partial": (1.0, 0.0), "visits": (counts.sum(axis=(0, 1)), spread)}
        if self.paying.any():
            found["rewards"] = sums.sum(), noise["rewards"] * math.sqrt(int(self.paying.sum()))
        return found

    def dense(self, transitions: Floats, rewards: Floats | None) -> tuple[Floats, Floats]:
        """Released entries as (H, S, S) and (H, S)."""
        counts, sums = np.zeros(self.counted.shape), np.zeros(self.paying.shape)
        counts[self.counted] = transitions[: int(self.counted.sum())]
        if rewards is not None:
            sums[self.paying] = rewards
        return counts, sums

    @cached_property
    def _farthest(self) -> tuple[float, float]:
        """The largest distance, squared, of a path from none and of two."""
        H, S = self.policy.shape
        live: Bools = np.asarray(self.moves.any(axis=2))
        now, after = live.sum(axis=1), self.moves.any(axis=1).sum(axis=1)
        both = int((now * after * (now + 2 * after)).sum()) <= _MOST_PAIRS
        alone, pair = np.zeros(S), np.zeros((S, S))
        for h in range(H - 1, -1, -1):
            here, there = np.flatnonzero(live[h]), np.flatnonzero(self.moves[h].any(axis=0))
            if not len(here):
                continue
            at, to = np.ix_(here, there), np.ix_(there, there)
            gain = np.where(self.moves[h][at], self.counted[h][at], -np.inf)
            paid = 1.0 * self.paying[h][here]
            one, two = np.zeros(S), np.zeros((S, S))
            one[here] = paid + (gain + alone[there]).max(axis=1)
            if both:
                # One of the two may have ended.
                two = np.maximum(one[:, np.newaxis], one)
                later, later_apart = pair[to], pair[to]
                np.fill_diagonal(later_apart, -np.inf)
                apart = _max_plus(_max_plus(gain, later), gain.T) + paid[:, np.newaxis] + paid
                # From the same state: different transitions, or the same, which cancel.
                split = (_max_plus(gain, later_apart) + gain).max(axis=1)
                same = np.where(gain >= 0.0, np.diag(later), -np.inf).max(axis=1)
                np.fill_diagonal(apart, np.maximum(split, same) + paid)
                square = np.ix_(here, here)
                two[square] = np.maximum(two[square], apart)
            alone, pair = one, two
        first = np.flatnonzero(self.start)
        longest = float(alone[first].max())
        return longest, float(pair[np.ix_(first, first)].max()) if both else 2.0 * longest

    def l1(self, relation: Relation) -> float:
        """At least 1, so that a release of nothing has its noise."""
        return max(1.0, self._farthest[checked_relation(relation) is not Relation.ZERO_OUT])

    def l2(self, relation: Relation) -> float:
        """Root of the 1-norm, as squared distances are distances."""
        return math.sqrt(self.l1(relation))

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block of what followed this policy, (H, S, A, S) and (H, S, A)."""
        told, paid = _tables(block, (self.horizon, *self.support.shape))
        counts, rewards = (a[*np.indices(self.policy.shape), self.policy] for a in (told, paid))
        if counts.sum() != told.sum():
            raise InvalidArgument("the users of an aggregate block followed another policy")
        transitions = np.zeros(self.layout.parts[0].shape)
        transitions[: int(self.counted.sum())] = counts[self.counted]
        return self.layout.pack({"transitions": transitions, "rewards": rewards[self.paying]})

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of who followed the policy's version."""
        follows = self.support.argmax(axis=2) if self.horizon > 1 else None
        return StepColumns(self.horizon, follows, self.version)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.mixture.sum_loops import count_paths

        counted, paying, first = self.counted, self.paying, self.layout.parts[0].shape[0] - 1
        places = np.where(counted, np.cumsum(counted).reshape(counted.shape) - 1, -1)
        visits = np.where(paying, np.cumsum(paying).reshape(paying.shape) + first, -1)
        sums = np.zeros((len(steps.states) if separate else 1, self.layout.size))
        public = self.start, self.policy, self.support
        count_paths(*steps[:4], *public, places, visits, separate, sums)
        return sums


def _tables(block: Block, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Transitions (H, S, A, S) and rewards (H, S, A) of an aggregate block."""
    counts, paid = (np.asarray(block[name], np.float64) for name in ("transitions", "rewards"))
    if counts.shape != shape or paid.shape != shape[:3]:
        raise InvalidArgument(
            f"an aggregate block must have transitions of shape {shape} and rewards of shape "
            f"{shape[:3]}, got {counts.shape} and {paid.shape}"
        )
    return counts, paid
