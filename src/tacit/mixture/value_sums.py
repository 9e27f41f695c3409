"""The papers' value-targeted regression: sums of inputs and targets for one value function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.mixture.statistics import RegressionSums, checked_table, cut, possible_counts
from tacit.privacy.bounds.walks import MOST_PAIRS, Ints, Steps, Walks, extremes
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import read_steps
from tacit.privacy.standard import any_features
from tacit.privacy.statistic import Block, Bools, Floats
from tacit.privacy.symmetric import pack

# The least sensitivity of value sums, in shares of that for any values: blocks are weighted by
# their noise, and one that was asked nothing must not outweigh all others.
_LEAST_SHARE = 0.1
# The largest targets whose differences do not overflow.
_HUGE = 1e150


@dataclass(frozen=True, eq=False)
class ValueSums(RegressionSums):
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
    before ended (:class:`Walks`). That is exact. Where pairs are too many, the largest distances
    of each step add up; a distance is convex in q, so every state and action has its least and its
    largest q only. Twice the zero-out bound, which is always exact, and the bound for any V hold
    too; the least is declared. A tenth of the bound for any V is declared at least.
    """

    inputs: Floats  # p, (H, S, A, k)
    means: Floats  # p0 V / (B X), (H, S, A)
    values: Floats  # V / (B X), (H, S)
    support: Bools  # which transitions are possible, (S, A, S)
    horizon: int
    reward_features: Floats | None = None
    pooled: bool = False
    gram: float = 1.0
    reward: float = 1.0
    # whether the sensitivity is for the V at hand, or for any. Noise then depends on V, and through
    # it on earlier releases: nothing for one counter over many V
    own_values: bool = False

    def __post_init__(self) -> None:
        shape = np.shape(self.inputs)
        if len(shape) != 4 or 0 in shape:
            raise InvalidArgument(f"inputs must have shape (H, S, A, k), got {shape}")
        self._check(*shape[1:3])
        if shape[0] != self.horizon:
            raise InvalidArgument(f"inputs must have shape (H, S, A, k), got {shape}")
        H, S, A, _ = shape
        if self.pooled:
            raise InvalidArgument("value-targeted sums are per step; sum them after the gate")
        inputs = cut(checked_table("inputs", self.inputs, shape), (3,))
        self._set(inputs=inputs, own_values=bool(self.own_values), name="value sums")
        # Targets are cut in the end, whatever they are; their differences must not overflow.
        for name, size in (("means", (H, S, A)), ("values", (H, S))):
            table = np.clip(checked_table(name, getattr(self, name), size), -_HUGE, _HUGE)
            table.setflags(write=False)
            self._set(**{name: table})

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

    def _lengths(self, walks: Walks) -> Iterator[Floats]:
        """Squared lengths of all possible transitions, last step first."""
        s, a, t = walks.now, walks.action, walks.after
        own = np.zeros(self.support.shape[:2])
        if self.reward_features is not None:
            squares = (self.reward_features**2).sum(axis=-1)
            own = self.reward * (squares**2 + squares)
        for h in reversed(range(self.horizon)):
            squares = (self.inputs[h] ** 2).sum(axis=-1)[s, a] * (h < self.last)
            yield squares * (self.gram * squares + self._targets(h)[s, a, t] ** 2) + own[s, a]

    def _steps(self, s: Ints, a: Ints, targets: Callable[[int], Floats]) -> Steps:
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
        walks = Walks(self.support)
        return walks.longest(self._lengths(walks))

    @cached_property
    def _farthest(self) -> float:
        """The largest squared distance, or a bound on it."""
        walks, most = Walks(self.support), 4.0 * self._longest
        s, a, t = walks.now, walks.action, walks.after
        if self.horizon * len(s) ** 2 <= MOST_PAIRS:
            return min(most, walks.farthest(self._steps(s, a, lambda h: self._targets(h)[s, a, t])))
        s, a = np.nonzero(self.support.any(axis=-1))
        if self.horizon * (2 * len(s)) ** 2 > MOST_PAIRS:
            return most
        possible = self.support[s, a]

        def ends(step: int) -> Floats:
            q = self._targets(step)[s, a]
            least, largest = np.where(possible, q, 1.0), np.where(possible, q, -1.0)
            return np.concatenate([least.min(axis=1), largest.max(axis=1)])

        steps = self._steps(np.tile(s, 2), np.tile(a, 2), ends)
        return min(most, sum(extremes(base, paid)[0] for base, paid in steps))

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, H = block.users, self.horizon
        states, actions, rewards = read_steps(block, H, self.follows)
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
        counts, rewards = possible_counts(block, self.horizon, self.support)
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
