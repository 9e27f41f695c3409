"""What a few of a user's steps show: where she went, and what it paid, when she first tried it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.finite.mixed_policy import followed
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import read_steps
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, LoopSums, Part


@dataclass(frozen=True, eq=False)
class FirstVisits(LoopSums):
    """A user's first visits to the first ``most`` cells of a public set that she comes to.

    A cell is a state and an action, or a step, a state and an action where ``wanted`` says so.
    Reads ``states`` (users, H + 1), ``actions``, ``rewards`` (users, H), ``versions`` and
    ``components`` (users,). A step counts if its state, action, next state and reward are valid,
    its cell is wanted, the user has not been there before, fewer than ``most`` of her steps
    counted already, she followed ``version`` of the policy, and the action is that of the
    component that she drew. Everything else is dropped, and nothing counts of a user whose
    component is none. Whether a step counts depends on the past only, so what follows it is an
    unbiased sample.

    Parts: ``transitions`` (cells, S), one for the next state of each step that counts;
    ``rewards`` (cells,), what these steps paid, in [0, 1], with weight w; and ``first_paid``
    (all cells that a component may come to), one where she was paid anything for the first time, in
    whatever cell, with weight v.

    Sensitivity. Steps that count are in different cells, so a user's transitions are at most
    m = min(most, cells, H) ones in coordinates of their own, her rewards at most m numbers in
    [0, 1], and there is at most one first pay: her vector has squared length at most
    q = m (1 + w^2) + v^2. No entry is negative, so the inner product of two users' vectors is not
    negative either, and their squared distance is at most the sum of both squared lengths: 2 q for
    replace-one, q against zero. It is attained by two users in 2 m different cells with rewards of
    1. In the 1-norm, 2 m (1 + w) + 2 v, and half of it.
    """

    wanted: Bools  # (1 or H, S, A)
    most: int
    policy: Ints  # (M, H, S), the actions of every component
    version: int = 0
    weight: float = 1.0
    paid_weight: float = 1.0

    def __post_init__(self) -> None:
        wanted, policy = np.array(self.wanted, dtype=bool), np.array(self.policy, dtype=np.int64)
        if wanted.ndim != 3 or policy.ndim != 3 or policy.shape[2] != wanted.shape[1]:
            raise InvalidArgument(
                f"wanted must be (1 or H, S, A) and policy (M, H, S), got {wanted.shape} and "
                f"{policy.shape}"
            )
        if len(wanted) not in (1, policy.shape[1]) or not wanted.any():
            raise InvalidArgument("wanted must be some cells, of all steps or of each of them")
        if policy.min() < 0 or policy.max() >= wanted.shape[2]:
            raise InvalidArgument(f"policy must name actions 0..{wanted.shape[2] - 1}")
        if isinstance(self.most, bool) or int(self.most) != self.most or self.most < 1:
            raise InvalidArgument(f"most must be a whole number >= 1, got {self.most!r}")
        for name in ("weight", "paid_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name} must be > 0, got {value!r}")
        for name, array in (("wanted", wanted), ("policy", policy)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "name", "first visits")

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return int(self.policy.shape[1])

    @property
    def states(self) -> int:
        """How many states there are."""
        return int(self.policy.shape[2])

    @cached_property
    def where(self) -> tuple[Ints, Ints, Ints]:
        """Row (step, or 0 for all steps), state and action of every cell."""
        found = self.wanted & self._reached
        # Where nobody comes to any of them, there must still be something to add up.
        rows, states, actions = np.nonzero(found if found.any() else self.wanted)
        return rows, states, actions

    @cached_property
    def where_paid(self) -> tuple[Ints, Ints, Ints]:
        """The same of every cell that any component may come to."""
        rows, states, actions = np.nonzero(self._reached)
        return rows, states, actions

    @cached_property
    def size(self) -> int:
        """How many cells there are: those that are wanted and that any component may come to."""
        return len(self.where[0])

    @cached_property
    def _reached(self) -> Bools:
        L, _, A = self.wanted.shape
        taken = (self.policy[..., np.newaxis] == np.arange(A)).any(axis=0)
        found: Bools = taken if L > 1 else taken.any(axis=0, keepdims=True)
        return found

    def _numbers(self, where: tuple[Ints, Ints, Ints]) -> Ints:
        """The number of each of some cells, -1 elsewhere."""
        cells = np.full(self.wanted.shape, -1, dtype=np.int64)
        cells[where] = np.arange(len(where[0]))
        return cells

    @cached_property
    def layout(self) -> Layout:
        """``transitions``, ``rewards`` and ``first_paid``."""
        return Layout(
            (
                Part("transitions", (self.size, self.states)),
                Part("rewards", (self.size,), weight=self.weight),
                Part("first_paid", (len(self.where_paid[0]),), weight=self.paid_weight),
            )
        )

    @property
    def _most(self) -> int:
        return min(self.most, self.size, self.horizon)

    def l2(self, relation: Relation) -> float:
        """See the class."""
        users = 1.0 if checked_relation(relation) is Relation.ZERO_OUT else 2.0
        return math.sqrt(users * (self._most * (1.0 + self.weight**2) + self.paid_weight**2))

    def l1(self, relation: Relation) -> float:
        """See the class."""
        users = 1.0 if checked_relation(relation) is Relation.ZERO_OUT else 2.0
        return users * (self._most * (1.0 + self.weight) + self.paid_weight)

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.tabular.first_visit_loops import count_first_visits

        states, actions, rewards = read_steps(block, self.horizon)
        admitted, taken = followed(block, states, actions, self.policy, self.version)
        rows = block.users if separate else 1
        sums = [np.zeros((rows, *part.shape)) for part in self.layout.parts]
        cells, paid_cells = self._numbers(self.where), self._numbers(self.where_paid)
        steps = (states, taken, rewards, admitted)
        count_first_visits(*steps, cells, paid_cells, self._most, separate, *sums)
        names = [part.name for part in self.layout.parts]
        return self.layout.pack(dict(zip(names, sums, strict=True)), users=rows)
