"""Sums of features of unusual transitions, by users whose policies belong to their slots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.core.sizes import check_size
from tacit.finite.mixed_policy import followed
from tacit.mixture.statistics import checked_table
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import read_steps
from tacit.privacy.statistic import Block, Bools, Floats, Layout, LoopSums, Part

Ints = NDArray[np.int64]

SLOT_EPISODE = "one user's whole episode, but for the policy of her slot, which is public"
"""What the sums protect: whoever takes the slot follows the same policy."""

# A policy with more different sums than this is bounded step by step.
_MOST_SUMS = 2048
# Sums that differ by less are the same but for rounding.
_DECIMALS = 9


@dataclass(frozen=True, eq=False)
class SlotSums(LoopSums):
    """Sums over a user's steps of b(s, a, s') = x(s') - x(usual next state), x = x(s, a).

    A usual transition adds nothing, so that what is released is what the features say of the
    others. Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H), ``versions``
    and ``components`` (users,), which are those of the slots. A user counts if she followed this
    version and her slot's policy in every step, began where users can, and made possible
    transitions only; otherwise she is the zero vector. The last step tells nothing about values
    and is left out, unless it is the only one. One part, ``sums`` (L, k): a row for every step
    that counts, or one for all.

    Sensitivity. Neighbours have the same slot and so the same policy. Along one deterministic
    policy the vectors that users can have are finitely many: they are found state by state from
    the start, equal ones merged, and zero is among them. L2 is the largest distance of two of
    them for any policy, and attained but for the rounding by which sums are merged, which is in it:
    every such path is some user's. Where a policy has more than 2,048 of them, twice what the
    longest steps add up to is declared: rows of their own in squares, a shared row by the triangle
    inequality.
    """

    table: Floats  # b, (S, A, S, k)
    support: Bools  # which transitions are possible, (S, A, S)
    start: Bools  # in which states users can start, (S,)
    horizon: int  # steps of an episode
    policies: Ints  # actions of all components, (M, H, S)
    version: int = 0  # theirs
    pooled: bool = False  # one row of sums for all steps

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        shape = np.shape(self.table)
        if len(shape) != 4 or shape[0] != shape[2] or 0 in shape:
            raise InvalidArgument(f"table must have shape (S, A, S, k), got {shape}")
        S, A = shape[:2]
        set_(self, "table", checked_table("table", self.table, shape))
        for name, size in (("support", (S, A, S)), ("start", (S,))):
            array = np.array(getattr(self, name), dtype=bool)
            if array.shape != size or not array.any():
                raise InvalidArgument(f"{name} must be true somewhere, of shape {size}")
            array.setflags(write=False)
            set_(self, name, array)
        set_(self, "horizon", check_size("horizon", self.horizon))
        policies = np.array(self.policies, dtype=np.int64)
        if policies.ndim != 3 or policies.shape[1:] != (self.horizon, S) or not len(policies):
            raise InvalidArgument(
                f"policies must have shape (M, {self.horizon}, {S}), got {policies.shape}"
            )
        if policies.min() < 0 or policies.max() >= A:
            raise InvalidArgument(f"policies must name actions 0..{A - 1}")
        policies.setflags(write=False)
        set_(self, "policies", policies)
        set_(self, "pooled", bool(self.pooled))
        set_(self, "name", "slot sums")

    @property
    def protects(self) -> str:
        """The episode of whoever takes a slot."""
        return SLOT_EPISODE

    @property
    def private_columns(self) -> frozenset[str]:
        """All but the component."""
        return frozenset({"states", "actions", "rewards", "versions"})

    @property
    def counted(self) -> int:
        """How many steps count."""
        return max(1, self.horizon - 1)

    @property
    def rows(self) -> int:
        """L."""
        return 1 if self.pooled else self.counted

    @cached_property
    def layout(self) -> Layout:
        """``sums``."""
        return Layout((Part("sums", (self.rows, self.table.shape[3])),))

    # Sensitivity.

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        """The longest vector and the largest distance, of any policy."""
        found = [self._of_policy(policy) for policy in np.unique(self.policies, axis=0)]
        longest, farthest = (max(pair[i] for pair in found) for i in (0, 1))
        # Merged sums were rounded at every step, in every coordinate.
        rounded = self.counted * 10.0**-_DECIMALS * math.sqrt(self.layout.size)
        longest, farthest = longest + rounded, farthest + 2.0 * rounded
        # A release of nothing has its noise.
        scale = max(float(np.abs(self.table).max()), 1e-9)
        return max(longest, 1e-9 * scale), max(farthest, 1e-9 * scale)

    def _of_policy(self, policy: Ints) -> tuple[float, float]:
        S, k = self.table.shape[2:]
        at = np.arange(S)
        # By row: a state that users can be in, and what they may have summed by then.
        found = np.zeros((int(self.start.sum()), 1 + self.rows * k))
        found[:, 0] = np.flatnonzero(self.start)
        longest, many = [], False
        for h in range(self.counted):
            row = slice(1, 1 + k) if self.pooled else slice(1 + h * k, 1 + (h + 1) * k)
            moves, steps = self.support[at, policy[h]], self.table[at, policy[h]]
            grown, length = [np.zeros((0, found.shape[1]))], 0.0
            for state in np.unique(found[:, 0]).astype(np.int64):
                same = found[found[:, 0] == state]
                for after in np.flatnonzero(moves[state]):
                    new = same.copy()
                    new[:, 0] = after
                    new[:, row] += 0.0 if many else steps[state, after]
                    grown.append(new)
                    length = max(length, float(np.linalg.norm(steps[state, after])))
            longest.append(length)
            found = np.unique(np.round(np.vstack(grown), _DECIMALS), axis=0)
            if len(found) > _MOST_SUMS:
                many = True
                found[:, 1:] = 0.0
                found = np.unique(found, axis=0)
        if many:
            total = sum(longest) if self.pooled else math.hypot(*longest)
            return total, 2.0 * total
        sums = np.unique(found[:, 1:], axis=0)
        return _extent(np.vstack([sums, np.zeros(sums.shape[1])]))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        # Rounding of the distances themselves.
        slack = 1.0 + 1e-9
        return self._bounds[checked_relation(relation) is not Relation.ZERO_OUT] * slack

    # Sums.

    def _sums(self, block: Block, separate: bool) -> Floats:
        S, _, _, k = self.table.shape
        follows = self.support.argmax(axis=2) if self.counted < self.horizon else None
        states, actions, _ = read_steps(block, self.horizon, follows)
        admitted, actions = followed(block, states, actions, self.policies, self.version)
        admitted = admitted & (actions >= 0).all(axis=1)
        inside = ((states >= 0) & (states < S)).all(axis=1)
        states, actions = np.where((states >= 0) & (states < S), states, 0), np.maximum(actions, 0)
        now, after = states[:, :-1], states[:, 1:]
        valid = admitted & inside & self.start[states[:, 0]]
        valid = valid & self.support[now, actions, after].all(axis=1)
        vectors = np.zeros((block.users, self.rows, k))
        for h in range(self.counted):
            row = 0 if self.pooled else h
            vectors[:, row] += self.table[now[:, h], actions[:, h], after[:, h]]
        vectors[~valid] = 0.0
        flat = vectors.reshape(block.users, self.rows * k)
        return flat if separate else flat.sum(axis=0, keepdims=True)


def _extent(vectors: Floats) -> tuple[float, float]:
    """The longest of some vectors, and the largest distance of two of them."""
    squares = (vectors**2).sum(axis=1)
    farthest = 0.0
    for vector, square in zip(vectors, squares, strict=True):
        farthest = max(farthest, float((squares + square - 2.0 * vectors @ vector).max()))
    return math.sqrt(float(squares.max())), math.sqrt(max(farthest, 0.0))
