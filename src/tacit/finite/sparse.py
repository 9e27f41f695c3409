"""Worlds with many states of which few follow on one another: what cannot happen is not stored.

Rows are those of the actions that states allow, one behind the other (compressed rows), so memory
and time go with the number of possible transitions and not with S A S.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from tacit.data.sizes import Floats, check_bytes, check_size, numbers
from tacit.finite.model import cumulative_chances
from tacit.finite.spec import (
    TOLERANCE,
    FiniteSpec,
    check_distributions,
    check_reward_values,
    settle,
)
from tacit.privacy.errors import InvalidArgument

Ints = NDArray[np.int64]


class SparseRows:
    """A table (S, A, S) of which only some entries are stored; what a dense one is asked for.

    >>> rows = SparseRows(csr_matrix([[0.0, 1.0], [0.5, 0.5]]), actions=1)
    >>> rows[1, 0].tolist(), (rows @ np.array([2.0, 4.0])).tolist()
    ([0.5, 0.5], [[4.0], [3.0]])
    """

    def __init__(self, table: Any, actions: int) -> None:
        self._table, self._actions = table, actions

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """One dense row or number, or the sparse rows of several states and actions."""
        state, action, *target = index
        row = self._table[np.asarray(state) * self._actions + action]
        if np.ndim(state) or np.ndim(action):
            return row
        dense = row.toarray()[0]
        return dense[target[0]] if target else dense

    def __matmul__(self, values: Floats) -> Floats:
        """(S, A)."""
        product: Floats = (self._table @ values).reshape(-1, self._actions)
        return product


@dataclass(frozen=True, eq=False, repr=False)
class SparseModel:
    """A stationary finite world's possible transitions, one entry each, in any order.

    A state allows the actions that have entries. The entries of a state and an action have
    different targets, and their probabilities add up to 1.
    """

    states: int
    actions: int
    horizon: int
    source: Ints  # state before, (n,)
    action: Ints
    target: Ints  # state after
    probability: Floats
    reward: Floats  # of the transition, in [0, 1]
    start: Floats  # (S,)
    largest_return: float | None = None  # see FiniteSpec

    def __post_init__(self) -> None:
        sizes = {
            name: check_size(name, getattr(self, name)) for name in ("states", "actions", "horizon")
        }
        S, A = sizes["states"], sizes["actions"]
        check_bytes("values of all steps (horizon)", (sizes["horizon"] + 1, S))
        check_bytes("cells", (S, A))
        codes = {name: _codes(name, getattr(self, name)) for name in ("source", "action", "target")}
        reals = {name: numbers(name, getattr(self, name)) for name in ("probability", "reward")}
        shapes = {array.shape for array in (codes | reals).values()}
        if len(shapes) != 1 or len(shapes.pop()) != 1:
            raise InvalidArgument(f"{', '.join(codes | reals)} must have one entry per transition")
        for name, most in (("source", S), ("action", A), ("target", S)):
            if len(codes[name]) and not 0 <= codes[name].min() <= codes[name].max() < most:
                raise InvalidArgument(f"{name} must be in 0..{most - 1}")
        cells = codes["source"] * A + codes["action"]
        order = np.lexsort((codes["target"], cells))
        same = (np.diff(cells[order]) == 0) & (np.diff(codes["target"][order]) == 0)
        if same.any():
            raise InvalidArgument("a source, an action and a target must occur together only once")
        columns = codes | reals
        for name, column in columns.items():
            kind = np.int64 if name in codes else np.float64
            columns[name] = np.ascontiguousarray(column[order], dtype=kind)
        columns["probability"] = _probabilities(cells[order], columns["probability"], S * A)
        if not ((columns["reward"] >= 0) & (columns["reward"] <= 1)).all():
            raise InvalidArgument("reward must be in [0, 1]")
        columns["start"] = check_distributions("start", self.start, (S,))
        settle(self, **columns, **sizes)
        missing = np.flatnonzero(~self.allowed.any(axis=1))
        if len(missing):
            raise InvalidArgument(f"state {missing[0]} must allow an action: it has no transitions")

    @property
    def stationary(self) -> bool:
        """Always."""
        return True

    @cached_property
    def pointers(self) -> Ints:
        """Where the entries of every state and action begin, and the last ones end, (S A + 1,)."""
        cells = self.source * self.actions + self.action
        return np.searchsorted(cells, np.arange(self.states * self.actions + 1))

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether a state allows an action, (S, A)."""
        table = np.zeros((self.states, self.actions), dtype=bool)
        table[self.source, self.action] = True
        return table

    @cached_property
    def spec(self) -> FiniteSpec:
        """What an agent may know of it."""
        values = check_reward_values(np.unique(np.append(self.reward, 0.0)))
        allowed = None
        if not self.allowed.all():
            allowed = tuple(tuple(np.flatnonzero(row).tolist()) for row in self.allowed)
        return FiniteSpec(
            self.states,
            self.actions,
            self.horizon,
            stationary=True,
            reward_values=tuple(values.tolist()),
            start=tuple(self.start.tolist()),
            admissible=allowed,
            largest_return=self.largest_return,
        )

    # What dense models are asked for as well.

    @cached_property
    def _rows(self) -> SparseRows:
        return SparseRows(self._matrix(self.probability), self.actions)

    @cached_property
    def transition_rewards(self) -> SparseRows:
        """The reward of every transition."""
        return SparseRows(self._matrix(self.reward), self.actions)

    @cached_property
    def _means(self) -> Floats:
        cells = self.source * self.actions + self.action
        paid = self.probability * self.reward
        sums = np.bincount(cells, paid, minlength=self.states * self.actions)
        means: Floats = sums.astype(np.float64).reshape(self.states, self.actions)
        return means

    def transitions_at(self, step: int) -> SparseRows:
        """(S, A, S), the same at every step."""
        return self._rows

    def mean_rewards_at(self, step: int) -> Floats:
        """(S, A), the same at every step."""
        return self._means

    @cached_property
    def cumulative(self) -> Floats:
        """P(this target or an earlier one of its row), (n,); exactly 1 at the last one."""
        sums = np.cumsum(self.probability)
        rows = np.flatnonzero(np.diff(self.pointers))
        first, last = self.pointers[rows], self.pointers[rows + 1] - 1
        before = np.repeat(sums[first] - self.probability[first], last - first + 1)
        chances: Floats = np.minimum(sums - before, 1.0)
        chances[last] = 1.0
        return chances

    @cached_property
    def chances(self) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
        """What samplers of single users draw from."""
        first = np.flatnonzero(self.start).astype(np.int32)
        start: Floats = cumulative_chances(self.start[first])
        begins, ends = (
            np.ascontiguousarray(at.reshape(self.states, self.actions))
            for at in (self.pointers[:-1], self.pointers[1:])
        )
        return first, start, begins, ends, self.target, self.cumulative, self.reward

    def _matrix(self, values: Floats) -> Any:
        shape = (self.states * self.actions, self.states)
        return csr_matrix((values, self.target, self.pointers), shape=shape)

    def __repr__(self) -> str:
        return (
            f"<SparseModel: {self.states} states, {self.actions} actions, {self.horizon} steps, "
            f"{len(self.source)} possible transitions>"
        )


def _codes(name: str, values: ArrayLike) -> NDArray[Any]:
    array = numbers(name, values)
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"{name} must be whole numbers, got dtype {array.dtype}")
    return array


def _probabilities(cells: Ints, values: Floats, rows: int) -> Floats:
    """With the rounding of their sums removed; entries of probability 0 are refused."""
    if not ((values > 0) & (values <= 1.0 + TOLERANCE)).all():
        raise InvalidArgument("probability must be above 0 and at most 1: leave others out")
    sums = np.bincount(cells, values, minlength=rows)[cells]
    if not (np.abs(sums - 1.0) <= TOLERANCE).all():
        raise InvalidArgument(
            "the probabilities of a state and an action must add up to 1, but for one they add up "
            f"to {float(sums[np.argmax(np.abs(sums - 1.0))])}"
        )
    scaled: Floats = values / sums
    return scaled
