"""Who took part how often, where user ids are given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import row_ids
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.pseudonyms import NAME_BYTES, Name, name_of
from tacit.privacy.statistic import Block

UserIds: TypeAlias = Sequence[int | str] | None
"""One per row of a block, or none at all."""


class Participants:
    """Who took part how often, where ids are given. Ids are kept as keyed hashes.

    ``turned_away`` counts the episodes of users who had spent their budget in other runs, which
    count as zero. Public, as who took part is.
    """

    def __init__(self, limit: int | None, once_per_block: bool) -> None:
        self.turned_away = 0
        self._limit = limit
        self._once_per_block = once_per_block
        self._key = secrets.token_bytes(16)
        self._join: Callable[[Sequence[bytes]], Sequence[bool]] | None = None
        self._seen: dict[bytes, int] = {}
        self._with_ids: bool | None = None

    def names(self, user_ids: Sequence[int | str]) -> list[Name]:
        """Names that :meth:`admit` takes for ids, in this run and in what is resumed from it."""
        return [Name(name_of(user, self._key).hex()) for user in user_ids]

    def admit(self, block: Block, user_ids: Sequence[int | str] | None) -> Block:
        """The block without the episodes of users beyond their limit."""
        if self._with_ids is not None and self._with_ids != (user_ids is not None):
            raise InvalidArgument("user_ids must be given for every block or for none")
        if user_ids is None:
            self._with_ids = False
            return block
        if block.aggregate:
            raise InvalidArgument("an aggregate block has no user_ids")
        row_ids(user_ids, block.users)
        names = [name_of(user, self._key) for user in user_ids]
        self._with_ids = True
        if self._limit is None:
            return block
        keep = np.zeros(block.users, dtype=bool)
        counts: dict[bytes, int] = {}
        for row, name in enumerate(names):
            count = counts.get(name, self._seen.get(name, 0))
            if count < self._limit and not (self._once_per_block and name in counts):
                counts[name] = count + 1
                keep[row] = True
        if self._join is not None:
            # Nothing is counted before those who can pay are on the ledger.
            paid = dict(zip(counts, self._join([*counts]), strict=True))
            for row in np.flatnonzero(keep).tolist():
                keep[row] = paid[names[row]]
                self.turned_away += not keep[row]
            counts = {name: count for name, count in counts.items() if paid[name]}
        self._seen |= counts
        return block if keep.all() else block.take(keep)

    def join_by(self, join: Callable[[Sequence[bytes]], Sequence[bool]], key: bytes) -> None:
        """From now on only those count whom ``join`` admits, under their names by ``key``."""
        self._join, self._key = join, key

    def dump(self, meta: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Into a save."""
        meta["ids"] = {
            "key": self._key.hex(),
            "given": self._with_ids,
            "turned_away": self.turned_away,
        }
        names = np.frombuffer(b"".join(self._seen), dtype=np.uint8).reshape(-1, NAME_BYTES)
        return {"ids/names": names, "ids/counts": np.array([*self._seen.values()], dtype=np.int64)}

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Out of a save."""
        self._key = bytes.fromhex(meta["ids"]["key"])
        self._with_ids = meta["ids"]["given"]
        self.turned_away = meta["ids"].get("turned_away", 0)
        names, counts = arrays["ids/names"], arrays["ids/counts"].tolist()
        self._seen = dict(zip((row.tobytes() for row in names), counts, strict=True))
