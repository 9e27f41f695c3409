"""Statistic of a user's first visits: where they led and what they paid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, LoopSums, Part
from tacit.tabular.policy import by_row, settle


@dataclass(frozen=True, eq=False)
class FirstVisits(LoopSums):
    """A user's first visits to the first ``most`` cells of a public set that she comes to.

    A cell is a state and an action, or a step, a state and an action where ``wanted`` says so: it
    has a row for each of the last L steps, of which the first stands for all before it, too. What
    follows the last step makes no difference if it has a row of its own; where that is no state, it
    counts as state 0. The set is the same for all users, or one for each component of the policy.
    Reads ``states`` (users, H + 1), ``actions``, ``rewards`` (users, H), ``versions`` and
    ``components`` (users,). A step counts if its state, action, next state and reward are valid,
    its cell is wanted, the user has not been there before, fewer than ``most`` of her steps
    counted already, she followed ``version`` of the policy, and the action is that of the
    component that she drew. Everything else is dropped, and nothing counts of a user whose
    component is none. Whether a step counts depends on the past only, so what follows it is an
    unbiased sample. With ``whole`` all of her steps in wanted cells count, however many; then there
    is one set for all.

    Parts, all of them times ``unit``: ``transitions`` (L, S, A, S), one for the next state of each
    step that counts; ``rewards`` (L, S, A), what these steps paid, in [0, 1], with weight w; and
    ``first_paid`` (L, S, A), one where she was paid anything for the first time, whether the step
    counts or not, with weight v (nothing with ``whole``).

    Formal guarantees:
        - Sensitivity: Steps that count are in different cells, so a user's transitions are at most
          m = min(most, L S A, H) ones in coordinates of their own, her rewards at most m numbers in
          [0, 1], and there is at most one first pay: her vector has squared length at most
          q = m (1 + w^2) + v^2 times unit^2. With ``whole`` she has n_i steps in cell i and sum
          n_i <= H, of which L - 1 are in cells of single steps and the others may all be in one, so
          that q = (1 + w^2) ((H - L + 1)^2 + L - 1). ``unit`` is 1 / sqrt(q): no user's vector is
          longer than 1, whatever is asked. No entry is negative, so the inner product of two users'
          vectors is not negative either, and their squared distance is at most the sum of both
          squared lengths: sqrt(2) for replace-one, 1 against zero. It is attained by two users in 2
          m different cells with rewards of 1. In the 1-norm the length is at most
          p = m (1 + w) + v, or H (1 + w), times unit, and twice as much for replace-one; with
          ``norm="l1"``, ``unit`` is 1 / p.
    """

    wanted: Bools  # (L, S, A), or (M, L, S, A)
    most: int
    policy: Ints  # (M, H, S), the actions of every component
    version: int = 0
    weight: float = 1.0
    paid_weight: float = 1.0
    norm: Literal["l2", "l1"] = "l2"
    whole: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        wanted, policy = np.array(self.wanted, dtype=bool), np.array(self.policy, dtype=np.int64)
        cells, H = wanted.shape[-3:], policy.shape[1] if policy.ndim == 3 else 0
        if len(cells) != 3 or policy.shape[2:] != cells[1:2] or cells[0] not in (1, min(2, H), H):
            got = f"got {wanted.shape} and {policy.shape}"
            raise InvalidArgument(f"wanted must be (1, 2 or H, S, A), policy (M, H, S), {got}")
        if wanted.ndim > 3 and (self.whole or wanted.shape[:-3] != policy.shape[:1]):
            raise InvalidArgument("wanted must be one set of cells, or one for each component")
        if policy.min() < 0 or policy.max() >= cells[2]:
            raise InvalidArgument(f"policy must name actions 0..{cells[2] - 1}")
        if self.most < 1 or not (self.weight > 0 and self.paid_weight > 0):
            raise InvalidArgument("most and the weights must be > 0")
        settle(self, name="first visits", wanted=wanted, policy=policy)

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return int(self.policy.shape[1])

    @property
    def cells(self) -> tuple[int, ...]:
        """Steps that are told apart (1 or H), states and actions."""
        return self.wanted.shape[-3:]

    @cached_property
    def layout(self) -> Layout:
        """``transitions``, ``rewards`` and ``first_paid``, the same whatever is wanted."""
        cells = self.cells
        rewards = Part("rewards", cells, weight=self.weight)
        first_paid = Part("first_paid", cells, weight=self.paid_weight)
        return Layout((Part("transitions", (*cells, self.cells[1])), rewards, first_paid))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards of the steps that count, and visits of each state, both times ``unit``."""
        noise = {name: float(np.max(std)) for name, std in release.std.items()}
        S, cells = self.cells[1], self.wanted[:, 0].size
        visits = release["transitions"].sum(axis=(0, 2, 3))
        some = {} if self.whole and self.wanted.all() else {"partial": (1.0, 0.0)}
        return some | {
            "unit": (self.unit, 0.0),
            "rewards": (release["rewards"].sum(), noise["rewards"] * math.sqrt(S * cells)),
            "visits": (visits, np.full(S, noise["transitions"] * math.sqrt(S * cells))),
        }

    @property
    def unit(self) -> float:
        """Contribution of one visit to a sum."""
        return 1.0 / (self._length if self.norm == "l2" else self._sum)

    @property
    def _most(self) -> int:
        return self.horizon if self.whole else min(self.most, math.prod(self.cells), self.horizon)

    @property
    def _length(self) -> float:
        """The longest vector in units, in the 2-norm."""
        if self.whole:
            apart = self.cells[0] - 1
            cells = (self.horizon - apart) ** 2 + apart
            return math.sqrt(cells * (1.0 + self.weight**2))
        return math.sqrt(self._most * (1.0 + self.weight**2) + self.paid_weight**2)

    @property
    def _sum(self) -> float:
        """The same in the 1-norm."""
        return self._most * (1.0 + self.weight) + (0.0 if self.whole else self.paid_weight)

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        apart = 1.0 if relation is Relation.ZERO_OUT else math.sqrt(2.0)
        return apart * (1.0 if self.norm == "l2" else self._length / self._sum)

    def l1(self, relation: Relation) -> float:
        """L1 sensitivity; the class has the proof."""
        apart = 1.0 if relation is Relation.ZERO_OUT else 2.0
        return apart * (1.0 if self.norm == "l1" else self._sum / self._length)

    def aggregate(self, block: Block) -> Floats:
        """From transitions and rewards of a simulated block, where all steps count."""
        if not self.whole:
            raise InvalidArgument("first visits need users one by one, not an aggregate block")
        counts, sums = (np.asarray(block[x], np.float64) for x in ("transitions", "rewards"))
        cells = self.cells
        if len(counts) == len(sums) == self.horizon:
            counts, sums = by_row(counts, cells[0]), by_row(sums, cells[0])
        if counts.shape != (*cells, self.cells[1]) or sums.shape != cells:
            must, got = f"{(*cells, cells[1])} and {cells}", f"{counts.shape} and {sums.shape}"
            raise InvalidArgument(f"transitions and rewards must be {must}, got {got}")
        kept = self.unit * self.wanted
        values = {"transitions": counts * kept[..., np.newaxis], "rewards": sums * kept}
        return self.layout.pack(values | {"first_paid": np.zeros(cells)})

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of who followed the policy."""
        free = self.cells[0] > 1 or self.horizon == 1
        follows = np.zeros(self.cells[1:], dtype=np.int64) if free else None
        return StepColumns(self.horizon, follows, self.version, self.policy)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.tabular.exploration_loops import count_first_visits

        rows = len(steps.states) if separate else 1
        sums = {part.name: np.zeros((rows, *part.shape)) for part in self.layout.parts}
        how = self.wanted.reshape(-1, *self.cells), self._most, self.whole, separate
        count_first_visits(*steps, *how, *sums.values())
        scaled = {name: self.unit * array for name, array in sums.items()}
        return self.layout.pack(scaled, users=rows)
