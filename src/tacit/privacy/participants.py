"""Who took part how often, where user ids are given."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block


class Participants:
    """Who took part how often, where ids are given. Ids are kept as keyed hashes."""

    def __init__(self, limit: int | None, once_per_block: bool) -> None:
        self._limit = limit
        self._once_per_block = once_per_block
        self._key = secrets.token_bytes(16)
        self._seen: dict[bytes, int] = {}
        self._with_ids: bool | None = None

    def admit(self, block: Block, user_ids: Sequence[int | str] | None) -> Block:
        """The block without the episodes of users beyond their limit."""
        if self._with_ids is not None and self._with_ids != (user_ids is not None):
            raise InvalidArgument("user_ids must be given for every block or for none")
        if user_ids is None:
            self._with_ids = False
            return block
        if block.aggregate:
            raise InvalidArgument("an aggregate block has no user_ids")
        if len(user_ids) != block.users:
            raise InvalidArgument(f"{block.users} users need as many ids, got {len(user_ids)}")
        names = [self._name(user) for user in user_ids]
        self._with_ids = True
        if self._limit is None:
            return block
        keep = np.zeros(block.users, dtype=bool)
        here: set[bytes] = set()
        for row, name in enumerate(names):
            count = self._seen.get(name, 0)
            if count < self._limit and not (self._once_per_block and name in here):
                self._seen[name] = count + 1
                here.add(name)
                keep[row] = True
        return block if keep.all() else block.take(keep)

    def _name(self, user: int | str) -> bytes:
        if isinstance(user, (bool, float)) or not isinstance(user, (int, str, np.integer)):
            raise InvalidArgument(f"user ids must be integers or strings, got {type(user)}")
        text = user if isinstance(user, str) else hex(int(user))
        kind = b"s" if isinstance(user, str) else b"i"
        name = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(kind + name, key=self._key, digest_size=16).digest()

    def dump(self, meta: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Into a save."""
        meta["ids"] = {"key": self._key.hex(), "given": self._with_ids}
        names = np.frombuffer(b"".join(self._seen), dtype=np.uint8).reshape(-1, 16)
        return {"ids/names": names, "ids/counts": np.array([*self._seen.values()], dtype=np.int64)}

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Out of a save."""
        self._key = bytes.fromhex(meta["ids"]["key"])
        self._with_ids = meta["ids"]["given"]
        names, counts = arrays["ids/names"], arrays["ids/counts"].tolist()
        self._seen = dict(zip((row.tobytes() for row in names), counts, strict=True))
