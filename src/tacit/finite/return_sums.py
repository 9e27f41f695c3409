"""What is asked of users where there are many states: what they got from a cell on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.reading import read_steps
from tacit.finite.spec import settle
from tacit.privacy.arguments import positive, whole_number
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReturnSums(LoopSums):
    """What users got after their first visits of a cell, less a public centre, bounded.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A *cell* is what a step
    is summed under: ``cells`` (S, A), or (H, S, A) by step, says which, -1 for none. An episode
    ends at its first step with an invalid state, action or reward, and is worth nothing from there
    on; rewards are cut to [0, 1].

    With the centre V, (H, S), a step's residual is d_t = r_t + V_{t+1}(s_{t+1}) - V_t(s_t),
    where V is 0 after the last step, and what followed a step is e_t = d_t + trace e_{t+1}. With
    trace 1 that is the return from the step on, less V_t(s_t); with trace 0 it is one step of it,
    as good on average if V is right, and with far less variance. The entry of each of a user's
    first ``first`` different cells is e_t at her first step there, cut to [-most, most]; then all
    of them are scaled to a length of at most ``length``. Which steps count is decided by the past.
    Parts: ``returns`` (C,) and, with ``weight`` w > 0, ``visits`` (C,), 1 for each of those cells.

    Sensitivity. Let k = min(first, H, C), b = most, L = min(length, b sqrt(k)), and let two users
    have entries x, y in cells A and B, j of them in common. Outside of those j the products x_c y_c
    are 0, and within them each has a squared length of at most min(L^2, j b^2), so
    |x - y|^2 <= 2 L^2 + 2 min(L^2, j b^2). Their visits differ in at most min(2 (k - j), C - j)
    cells. So L2^2 = max over j = 0..k of 2 L^2 + 2 min(L^2, j b^2) + w^2 min(2 (k - j), C - j) for
    replace-one, attained by opposite entries in common cells; and L^2 + w^2 k against zero. In the
    1-norm, |x| <= m = min(sqrt(k) L, k b): L1 = 2 m + w min(2 k, C), and m + w k.
    """

    cells: Ints
    centre: Floats
    trace: float = 1.0
    first: int = 8
    most: float = 0.5
    length: float = math.inf
    weight: float = 0.0

    def __post_init__(self) -> None:
        cells, centre = np.array(self.cells), np.array(self.centre, dtype=np.float64)
        cells = cells[np.newaxis] if cells.ndim == 2 else cells
        if cells.ndim != 3 or cells.dtype.kind not in "iu" or cells.size == 0 or cells.max() < 0:
            raise InvalidArgument(
                "cells must be whole numbers of shape (S, A) or (H, S, A), some of them >= 0"
            )
        S = cells.shape[1]
        if centre.ndim != 2 or centre.shape[0] < 1 or centre.shape[1] != S:
            raise InvalidArgument(f"centre must have shape (H, {S}), got {centre.shape}")
        if len(cells) not in (1, len(centre)):
            raise InvalidArgument(f"cells must be for {len(centre)} steps as centre is")
        if not ((centre >= 0) & (centre <= len(centre))).all():
            raise InvalidArgument("centre must be from 0 to H, as returns are")
        if not 0.0 <= self.trace <= 1.0:
            raise InvalidArgument(f"trace must be in [0, 1], got {self.trace!r}")
        if not (math.isfinite(self.weight) and self.weight >= 0.0):
            raise InvalidArgument(f"weight must be >= 0, got {self.weight!r}")
        if not self.length > 0.0:
            raise InvalidArgument(f"length must be > 0, got {self.length!r}")
        positive("most", self.most)
        whole_number("first", self.first)
        settle(self, name="return sums", cells=cells.astype(np.int64), centre=centre)

    @property
    def horizon(self) -> int:
        """H, steps of an episode."""
        return len(self.centre)

    @cached_property
    def size(self) -> int:
        """C, how many cells there are."""
        return int(self.cells.max()) + 1

    @cached_property
    def layout(self) -> Layout:
        """``returns`` and perhaps ``visits``."""
        parts = [Part("returns", (self.size,))]
        if self.weight > 0.0:
            parts.append(Part("visits", (self.size,), weight=self.weight))
        return Layout(tuple(parts))

    @property
    def _kept(self) -> int:
        return min(self.first, self.horizon, self.size)

    @property
    def _longest(self) -> float:
        return min(self.length, self.most * math.sqrt(self._kept))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        k, w2, L2 = self._kept, self.weight**2, self._longest**2
        if checked_relation(relation) is Relation.ZERO_OUT:
            return math.sqrt(L2 + w2 * k)
        apart = max(
            2.0 * min(L2, j * self.most**2) + w2 * min(2 * (k - j), self.size - j)
            for j in range(k + 1)
        )
        return math.sqrt(2.0 * L2 + apart)

    def l1(self, relation: Relation) -> float:
        """See the class."""
        k = self._kept
        longest = min(math.sqrt(k) * self._longest, k * self.most)
        if checked_relation(relation) is Relation.ZERO_OUT:
            return longest + self.weight * k
        return 2.0 * longest + self.weight * min(2 * k, self.size)

    def monitored(self, release: Any) -> dict[str, tuple[Floats, Floats]]:
        """First visits of each state, where they are asked for."""
        if self.weight == 0.0:
            return {}
        S = self.cells.shape[1]
        state = np.zeros(self.size, dtype=np.int64)
        _, states, _ = np.nonzero(self.cells >= 0)
        state[self.cells[self.cells >= 0]] = states
        noise = float(np.max(release.std["visits"]))
        found: Floats = np.bincount(state, release["visits"], minlength=S).astype(np.float64)
        return {
            "partial": (np.ones(()), np.zeros(())),
            "visits": (found, noise * np.sqrt(np.bincount(state, minlength=S))),
        }

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.finite.sum_loops import sum_returns

        steps = read_steps(block, self.horizon, np.zeros(self.cells.shape[1:], dtype=np.int64))
        rows, limits = block.users if separate else 1, (self._kept, self.most, self._longest)
        sums, visits = np.zeros((2, rows, self.size))
        sum_returns(*steps, self.cells, self.centre, self.trace, *limits, separate, sums, visits)
        return self.layout.pack({"returns": sums, "visits": visits}, users=rows)
