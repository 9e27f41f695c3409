"""Users who wait in memory for the rest of their block. Raw and sensitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block

_FEWEST = 16
# The block, how many wait for it, their columns, or their sums.
_Kept: TypeAlias = tuple[int, int, dict[str, NDArray[np.generic]], Block | None]


class Waiting:
    """Columns of users that are doubled when they are full, so one more costs the same.

    Rows are written behind those that count, and count by one assignment: an exception leaves
    everybody waiting who waited, and nobody else. They are of one block; who waited for an
    older one is in the store.
    """

    def __init__(self) -> None:
        self._kept: _Kept = (-1, 0, {}, None)
        self._names: list[str] = []

    def of(self, block: int) -> int:
        """How many wait for this block."""
        return self._kept[1] if self._kept[0] == block else 0

    def add(self, part: Block, block: int, names: Sequence[str]) -> None:
        """Takes some more users of a block, as they are now: a copy, unless they are sums."""
        users = self.of(block)
        self._names[users:] = names
        if part.aggregate:
            self._kept = (block, part.users, {}, part)
            return
        stop, rows = users + part.users, part.arrays
        columns = self._kept[2] if users else {}
        if users and columns.keys() != rows.keys():
            raise InvalidArgument(f"every user needs {sorted(columns)}, got {sorted(rows)}")
        new = {name: _room(columns.get(name), rows[name], users, stop) for name in rows}
        for name, column in new.items():
            column[users:stop] = rows[name]
        self._kept = (block, stop, new, None)

    @property
    def names(self) -> list[str]:
        """Of all of them, empty where they have none; none at all where nobody has one."""
        names = self._names[: self._kept[1]]
        return names if any(names) else []

    def everybody(self) -> Block:
        """All of them, as one block."""
        _, users, columns, sums = self._kept
        if sums is not None:
            return sums
        return Block(users, {name: column[:users] for name, column in columns.items()})


def _room(
    column: NDArray[np.generic] | None, rows: NDArray[np.generic], users: int, needed: int
) -> NDArray[np.generic]:
    """A column for ``needed`` users, of whom the first ``users`` are there; doubled if full."""
    if column is None:
        return np.empty((max(needed, _FEWEST), *rows.shape[1:]), rows.dtype)
    if column.shape[1:] != rows.shape[1:]:
        raise InvalidArgument(f"rows of shape {rows.shape[1:]} after ones of {column.shape[1:]}")
    dtype = column.dtype if column.dtype == rows.dtype else np.result_type(column, rows)
    if dtype == column.dtype and needed <= len(column):
        return column
    longer = np.empty((max(needed, 2 * len(column)), *column.shape[1:]), dtype)
    longer[:users] = column[:users]
    return longer
