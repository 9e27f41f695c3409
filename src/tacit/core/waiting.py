"""Users who wait for the rest of their block. Raw and sensitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tacit.core.asks import Arrays, below
from tacit.privacy.curators.participants import Participants
from tacit.privacy.pseudonyms import Name
from tacit.privacy.statistic import Block

Ids: TypeAlias = Sequence[int | str] | None


class Waiting:
    """Parts of a block, until it is full."""

    def __init__(self) -> None:
        self._parts: list[tuple[Block, Ids]] = []
        self.users = 0

    def add(self, part: Block, user_ids: Ids) -> None:
        """Takes some more users, as they are now.

        They are copied: a buffer that is used again must not change who they are, or the next
        users would be in the sums twice.
        """
        self._parts.append((part.sealed(), None if user_ids is None else [*user_ids]))
        self.users += part.users

    def joined(self, part: Block, user_ids: Ids) -> tuple[Block, Ids]:
        """All of them and the last ones, as one block; ids were given for all or for none."""
        if not self._parts:
            return part, user_ids
        parts = [*self._parts, (part, user_ids)]
        blocks, ids = [block for block, _ in parts], [some for _, some in parts]
        arrays = {
            name: np.concatenate([block[name] for block in blocks]) for name in blocks[0].arrays
        }
        block = Block(sum(b.users for b in blocks), arrays)
        if any(some is None for some in ids):
            return block, None
        return block, [user for some in ids if some is not None for user in some]

    def clear(self) -> None:
        """They are in a block now."""
        self._parts, self.users = [], 0

    # Save and resume.

    def dump(self, participants: Participants) -> tuple[dict[str, Any], Arrays]:
        """For a save: raw data, and names that are no names any more."""
        if not self._parts:
            return {"pending": 0, "pending_names": None}, {}
        (first, ids), rest = self._parts[-1], Waiting()
        rest._parts = self._parts[:-1]
        block, names = rest.joined(first, ids)
        meta = {
            "pending": block.users,
            "pending_names": None if names is None else participants.names(names),
        }
        return meta, {f"pending/{name}": array for name, array in block.arrays.items()}

    def restore(self, users: int, names: list[str] | None, arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        self.clear()
        if users:
            ids = None if names is None else [Name(name) for name in names]
            self._parts, self.users = [(Block(users, below(arrays, "pending/")), ids)], users
