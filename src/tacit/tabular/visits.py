"""Statistic of visits: counts of transitions, and sums of rewards."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, LoopSums, Part, Statistic
from tacit.tabular.policy import by_row, row_of, settle

if TYPE_CHECKING:
    from tacit.privacy.models import LocalDP


@dataclass(frozen=True, eq=False)
class VisitCounts(LoopSums):
    """Transitions N(s, a, s') and reward sums R(s, a) of users' episodes, bounded.

    Reads ``states`` (users, H + 1), ``actions``, ``rewards`` (users, H) and, if there is a policy,
    ``versions`` (users,). A step counts if its state, action, next state and reward are valid
    (rewards are cut to [0, 1]); with ``policy`` it counts only if the user followed that version
    and the action is the policy's. Everything else is dropped. ``policy`` (M, H, S) are the
    components of a mixed policy: then ``components`` (users,) say which of them each user drew, an
    action must be that one's, and nothing counts of a user whose component is none.

    A *cell* is what a step is counted under: (step, s, a), or (s, a) when ``pooled``. What follows
    the last step makes no difference where it has cells of its own: if that is no state, it counts
    as state 0. When pooled it has them if it is ``apart``, as for logs that end with it. With a
    deterministic ``policy`` there are only the cells it can reach, so no noise is spent on others.
    ``cap`` (pooled only) counts a user's first ``cap`` steps in a cell. Whether a step is among
    the first depends on the past only, so what follows it is still an unbiased sample.
    Parts: ``transitions`` (cells, S), and ``rewards`` (cells,) with weight w.

    Formal guarantees:
        - Sensitivity, per step: Each of the H steps is in one cell: two users differ in at most two
          entries of ``transitions``, by 1 each, and the same for rewards of 1. Over H steps with
          cells of their own, L2^2 = 2 H (1 + w^2) and L1 = 2 H (1 + w) for replace-one, half of
          both against zero.
        - Sensitivity, pooled: Let n_i <= cap be a user's steps in cell i, sum n_i <= H, over M
          cells. sum n_i^2 is convex, so it is largest when cells are filled one after the other;
          call that F(H). Her transitions have squared length at most F(H) (all steps of a cell into
          one state), and two vectors without negative entries are at most sqrt(2 F(H)) apart.
          Rewards differ in cell i by at most max(n_i, n'_i), and the larger of the two uses at most
          2 H steps in all: sum max(n_i, n'_i)^2 <= F(2 H). So L2^2 = 2 F(H) + w^2 F(2 H) for
          replace-one and (1 + w^2) F(H) against zero. In the 1-norm, with T(m) = min(m, M cap):
          L1 = 2 T(H) + w T(2 H), and (1 + w) T(H). With a last step ``apart`` F(n) is that of n - 1
          steps, plus 1, and F(2 n) that of 2 n - 2, plus 2.
    """

    states: int
    actions: int
    horizon: int
    pooled: bool = False
    cap: int | None = None
    weight: float = 1.0
    policy: Ints | None = None
    version: int = 0
    apart: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        sizes = (self.states, self.actions, self.horizon)
        if min(sizes) < 1 or not 0 < self.weight < math.inf:
            raise InvalidArgument(f"sizes and weight must be > 0, got {sizes}, {self.weight}")
        if self.cap is not None and (not self.pooled or self.cap < 1):
            raise InvalidArgument(f"cap must be >= 1 and goes with pooled, got {self.cap!r}")
        if self.policy is not None:
            table = np.array(self.policy, dtype=np.int64)
            if table.shape[-2:] != (self.horizon, self.states) or table.ndim not in (2, 3):
                raise InvalidArgument(
                    f"policy must have shape {(self.horizon, self.states)}, got {table.shape}"
                )
            if table.min() < 0 or table.max() >= self.actions:
                raise InvalidArgument(f"policy must name actions 0..{self.actions - 1}")
            settle(self, policy=table)
        settle(self, name="visit counts")

    @property
    def rows(self) -> int:
        """L: steps that are told apart, of which the first stands for all before the others."""
        return min(1 + self.apart, self.horizon) if self.pooled else self.horizon

    @cached_property
    def cells(self) -> Ints:
        """The cell of (step, state, action), -1 where the step is dropped."""
        H, S, A, L = self.horizon, self.states, self.actions, self.rows
        taken = np.ones((H, S, A), dtype=bool)
        if self.policy is not None:
            tables = self.policy.reshape(-1, H, S)
            taken = (np.arange(A) == tables[..., np.newaxis]).any(axis=0)
        some = by_row(taken, L) > 0
        numbers = np.cumsum(some.reshape(-1)).reshape(L, S, A) - 1
        return np.where(taken, numbers[row_of(np.arange(H), H, L)], -1)

    @cached_property
    def size(self) -> int:
        """How many cells there are."""
        return int(self.cells.max()) + 1

    @cached_property
    def where(self) -> tuple[Ints, Ints, Ints]:
        """Row, state and action of every cell; see :attr:`rows`."""
        rows, states, actions = np.nonzero(by_row(self.cells >= 0, self.rows))
        return rows, states, actions

    @cached_property
    def clips(self) -> bool:
        """Whether users must be counted one by one."""
        return self.cap is not None

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of all users, or of who followed the policy."""
        free = self.rows > 1 or self.horizon == 1
        follows = np.zeros((self.states, self.actions), dtype=np.int64) if free else None
        version = None if self.policy is None else self.version
        return StepColumns(self.horizon, follows, version, self.policy)

    @cached_property
    def layout(self) -> Layout:
        """``transitions`` and ``rewards``."""
        moves = Part("transitions", (self.size, self.states))
        return Layout((moves, Part("rewards", (self.size,), weight=self.weight)))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        return math.sqrt(self._apart(relation, 2))

    def l1(self, relation: Relation) -> float:
        """L1 sensitivity; the class has the proof."""
        return self._apart(relation, 1)

    def _apart(self, relation: Relation, power: int) -> float:
        extra, once = self.weight**power, self._most(1, power)
        if relation is Relation.ZERO_OUT:
            return (1.0 + extra) * once
        return 2.0 * once + extra * self._most(2, power)

    def _most(self, users: int, power: int) -> float:
        """The largest sum of n_i^power when the steps of so many users fall into cells."""
        if not self.pooled:
            return float(users * self.horizon)
        last = self.rows - 1  # steps that are apart: none or one
        steps, size = self.horizon - last, int((self.where[0] == 0).sum())
        cap = min(steps, self.cap or steps)
        full, rest = divmod(users * steps, cap)
        found = full * cap**power + rest**power if full < size else size * cap**power
        return float(found + min(users * last, self.size - size))

    @property
    def one_hots(self) -> int | None:
        """One per step and part, unless they are pooled."""
        return None if self.pooled else self.horizon * len(self.layout.parts)

    @property
    def fractional(self) -> Bools:
        """The reward sums."""
        parts = {part.name: part.name == "rewards" for part in self.layout.parts}
        return np.asarray(self.layout.pack(parts) > 0)

    def aggregate(self, block: Block) -> Floats:
        """From transitions and rewards of a simulated block: "counts" or "pooled"."""
        if self.cap is not None and self.cap < self.horizon:
            raise InvalidArgument("capped counts need users one by one, not an aggregate block")
        counts, sums = (np.asarray(block[x], np.float64) for x in ("transitions", "rewards"))
        steps = counts.shape[0] if counts.ndim == 4 else 0
        shape = (steps, self.states, self.actions, self.states)
        allowed = (1, self.horizon) if self.rows == 1 else (self.horizon,)
        if steps not in allowed or counts.shape != shape or sums.shape != shape[:3]:
            raise InvalidArgument(
                f"transitions must be (steps, S, A, S) with steps in {allowed} and rewards "
                f"(steps, S, A), got {counts.shape} and {sums.shape}"
            )
        counts, sums = (by_row(array, self.rows)[self.where] for array in (counts, sums))
        return self.layout.pack({"transitions": counts, "rewards": sums})

    def monitored(self, release: Any) -> dict[str, tuple[Floats, Floats]]:
        """Rewards of all steps that count, and visits of each state."""
        noise = {name: float(np.max(std)) for name, std in release.std.items()}
        states, S = self.where[1], self.states
        cells = np.bincount(states, minlength=S)
        moved = release.parts["transitions"].reshape(self.size, S).sum(axis=1)
        partial = self.cap is not None and self.cap < self.horizon
        return ({"partial": (np.ones(()), np.zeros(()))} if partial else {}) | {
            "rewards": (release.parts["rewards"].sum(), noise["rewards"] * np.sqrt(self.size)),
            "visits": (
                np.bincount(states, moved, minlength=S),
                noise["transitions"] * np.sqrt(S * cells),
            ),
        }

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.tabular.count_loops import count_visits

        rows, cap = len(steps.states) if separate else 1, self.cap or self.horizon
        sums = {part.name: np.zeros((rows, *part.shape)) for part in self.layout.parts}
        count_visits(*steps[:4], self.cells, cap, separate, *sums.values())
        return self.layout.pack(sums, users=rows)


def question(statistic: Statistic, privacy: LocalDP) -> str:
    """The query of ``agent.statistic`` to the devices of a local agent, as JSON, all of it public.

    A device adds the noise itself: ``clients/js/report.js`` does it in a browser, and refuses a
    question whose noise does not keep what its budget promises.

    >>> from tacit import LocalDP
    >>> asked = question(VisitCounts(2, 2, 3), LocalDP(1.0, 1e-6))
    >>> json.loads(asked)["statistic"], json.loads(asked)["mechanism"]
    ('visit counts', 'gaussian')
    """
    from tacit.privacy.local import noise_scale
    from tacit.privacy.noise import grid_step

    if type(statistic) is not VisitCounts or statistic.apart:
        raise InvalidArgument(f"questions are about visit counts, not {statistic.name}: use UCBVI")
    if not privacy.local or privacy.reports_bits:
        raise InvalidArgument(f"questions have Gaussian or Laplace noise, not {privacy!r}")
    step = grid_step(statistic, privacy.norm)
    names = ("states", "actions", "horizon", "pooled", "cap", "weight", "version")
    return json.dumps(
        {"tacit": "question", "format": 1, "statistic": statistic.name}
        | {name: getattr(statistic, name) for name in names}
        | {
            "policy": None if statistic.policy is None else statistic.policy.tolist(),
            "mechanism": privacy.mechanism,
            "epsilon": privacy.epsilon,
            "delta": 0.0 if privacy.needs_l1 else privacy.delta,
            "episodes_per_user": privacy.episodes_per_user,
            "step": step,
            "scale": noise_scale(statistic, privacy) / step,
        }
    )
