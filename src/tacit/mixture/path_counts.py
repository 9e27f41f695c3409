"""Counts along a policy, for mixtures whose transitions are sparse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.reading import read_codes, read_steps
from tacit.data.sizes import check_size
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Layout, LoopSums, Part

Ints = NDArray[np.int64]

# Above this many sums over pairs of paths they are too many to look at.
_MOST_PAIRS = 1 << 24
# How many numbers are looked at in one go.
_CHUNK = 1 << 20


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
    policy: Ints  # its actions, (H, S)
    version: int = 0  # its version
    rewards: bool = False  # whether they are unknown, and summed
    nonnegative = True

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
        if not self.start.any():
            raise InvalidArgument("start must allow some state")
        object.__setattr__(self, "horizon", check_size("horizon", self.horizon))
        if np.asarray(self.policy).dtype.kind not in "iu":
            raise InvalidArgument("policy must be a table of integers")
        table = np.array(self.policy, dtype=np.int64)
        table.setflags(write=False)
        if table.shape != (self.horizon, S) or table.min() < 0 or table.max() >= A:
            raise InvalidArgument(
                f"policy must name actions 0..{A - 1} in a table {(self.horizon, S)}"
            )
        object.__setattr__(self, "policy", table)
        object.__setattr__(self, "name", "path counts")

    @property
    def states(self) -> int:
        """S."""
        return len(self.start)

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
        entries = self.counted.sum(axis=(0, 1))
        spread = noise["transitions"] * np.sqrt(entries)
        found = {"partial": (1.0, 0.0), "visits": (counts.sum(axis=(0, 1)), spread)}
        if self.paying.any():
            paid = noise["rewards"] * math.sqrt(int(self.paying.sum()))
            found["rewards"] = float(sums.sum()), paid
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
        H, S = self.horizon, self.states
        live: Bools = np.asarray(self.moves.any(axis=2))
        now, after = live.sum(axis=1), self.moves.any(axis=1).sum(axis=1)
        cost = int((now * after * (now + 2 * after)).sum())
        both = cost <= _MOST_PAIRS
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
        """See the class."""
        return math.sqrt(self.l1(relation))

    def aggregate(self, block: Block) -> Floats:
        """From a simulated block of what followed this policy, (H, S, S) and (H, S)."""
        counts = np.asarray(block["transitions"], dtype=np.float64)
        rewards = np.asarray(block["rewards"], dtype=np.float64)
        shape = (self.horizon, self.states)
        if counts.shape != (*shape, shape[1]) or rewards.shape != shape:
            raise InvalidArgument(
                f"an aggregate block must have transitions of shape {(*shape, shape[1])} and "
                f"rewards of shape {shape}, got {counts.shape} and {rewards.shape}"
            )
        actions: NDArray[np.generic] = block["actions"]
        live = np.asarray(self.moves.any(axis=2))
        if actions.shape != shape or not np.array_equal(actions[live], self.policy[live]):
            raise InvalidArgument("the block's users followed another policy")
        transitions = np.zeros(self.layout.parts[0].shape)
        transitions[: int(self.counted.sum())] = counts[self.counted]
        return self.layout.pack({"transitions": transitions, "rewards": rewards[self.paying]})

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.mixture.sum_loops import count_paths

        users, follows = block.users, self.support.argmax(axis=2) if self.horizon > 1 else None
        steps = read_steps(block, self.horizon, follows)
        admitted = read_codes(block, "versions", (users,)) == self.version
        first = self.layout.parts[0].shape[0]
        places = np.full(self.counted.shape, -1, dtype=np.int64)
        places[self.counted] = np.arange(int(self.counted.sum()))
        visits = np.full(self.paying.shape, -1, dtype=np.int64)
        visits[self.paying] = first + np.arange(int(self.paying.sum()))
        sums = np.zeros((users if separate else 1, self.layout.size))
        public = self.start, self.policy, self.support
        count_paths(*steps, admitted, *public, places, visits, separate, sums)
        return sums
