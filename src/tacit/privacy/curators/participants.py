"""Who took part how often, where user ids are given."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

    Whom :meth:`admit` admits is counted by :meth:`settle`, when their block is in: until then an
    exception leaves everybody as she was. Counting may be cut off too, and is then done again: it
    sets numbers and adds nothing.

    ``kept`` says who of the last block was admitted. ``turned_away`` counts the episodes of users
    who had spent their budget in other runs, which count as zero. Public, as who took part is.

    Attributes:
        news: how often those were counted whom the autosave does not hold yet, a text per block;
            ``None`` without one.
    """

    def __init__(self, limit: int | None, once_per_block: bool) -> None:
        self.turned_away = 0
        self.news: list[bytes] | None = None
        # Which rows of the last block were admitted; ``None`` where all of them were.
        self.kept: NDArray[np.bool_] | None = None
        self._limit = limit
        self._once_per_block = once_per_block
        self._key = secrets.token_bytes(16)
        self._join: Callable[[Sequence[bytes]], Sequence[bool]] | None = None
        self._seen: dict[bytes, int] = {}
        self._with_ids: bool | None = None
        self._admitted: Admitted | None = None

    def names(self, user_ids: Sequence[int | str]) -> list[Name]:
        """Names that :meth:`admit` takes for ids, in this run and in what is resumed from it."""
        return [Name(name_of(user, self._key).hex()) for user in user_ids]

    def admit(self, block: Block, user_ids: Sequence[int | str] | None) -> Block:
        """The block without the episodes of users beyond their limit."""
        if self._with_ids is not None and self._with_ids != (user_ids is not None):
            raise InvalidArgument("user_ids must be given for every block or for none")
        self.kept = None
        if user_ids is None:
            self._admitted = Admitted({}, False, self.turned_away)
            return block
        if block.aggregate:
            raise InvalidArgument("an aggregate block has no user_ids")
        row_ids(user_ids, block.users)
        names = [name_of(user, self._key) for user in user_ids]
        turned_away = self.turned_away
        if self._limit is None:
            self._admitted = Admitted({}, True, turned_away)
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
                turned_away += not keep[row]
            counts = {name: count for name, count in counts.items() if paid[name]}
        self._admitted = Admitted(counts, True, turned_away)
        self.kept = None if keep.all() else keep
        return block if self.kept is None else block.take(keep)

    def settle(self, entered: int) -> None:
        """Counts who was admitted, if their block is among the first ``entered``."""
        admitted = self._admitted
        if admitted is not None and admitted.block is not None and admitted.block < entered:
            if self.news is not None and admitted.counts:
                if admitted.place is None:
                    admitted.place = len(self.news)
                self.news[admitted.place :] = [text_of(admitted.counts)]
            self._seen.update(admitted.counts)
            self.turned_away, self._with_ids = admitted.turned_away, admitted.with_ids
        self._admitted = None

    def due(self, block: int) -> None:
        """Who was admitted is in this block, once it is in."""
        if self._admitted is not None:
            self._admitted.block = block

    def join_by(self, join: Callable[[Sequence[bytes]], Sequence[bool]], key: bytes) -> None:
        """From now on only those count whom ``join`` admits, under their names by ``key``."""
        self._join, self._key = join, key

    def inherit(self, other: Participants) -> None:
        """Knows whom another one counted."""
        if self._join is None:
            self._key, self._seen = other._key, dict(other._seen)
        elif other._seen and other._key != self._key:
            raise InvalidArgument(
                "this ledger of people does not know whom the predecessor counted: it must be the "
                "one that the predecessor was on, or none"
            )

    def dump(self, meta: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Into a save, all of it."""
        meta["ids"] = self.facts()
        names = np.frombuffer(b"".join(self._seen), dtype=np.uint8).reshape(-1, NAME_BYTES)
        return {"ids/names": names, "ids/counts": np.array([*self._seen.values()], dtype=np.int64)}

    def facts(self) -> dict[str, Any]:
        """All but who took part."""
        return {
            "key": self._key.hex(),
            "given": self._with_ids,
            "turned_away": self.turned_away,
        }

    @property
    def people(self) -> int:
        """How many different ones were counted."""
        return len(self._seen)

    def everybody(self) -> bytes:
        """How often each was counted, as :attr:`news` have it."""
        return text_of(self._seen)

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Out of a save."""
        self._key = bytes.fromhex(meta["ids"]["key"])
        self._with_ids = meta["ids"]["given"]
        self.turned_away = meta["ids"].get("turned_away", 0)
        names, counts = arrays["ids/names"], arrays["ids/counts"].tolist()
        self._seen = dict(zip((row.tobytes() for row in names), counts, strict=True))


@dataclass
class Admitted:
    """Whom the next block counts, how often she was counted then, and whether ids were given."""

    counts: dict[bytes, int]
    with_ids: bool
    turned_away: int
    block: int | None = None  # which block that is, when it is about to be in
    place: int | None = None  # among the news


# Names and counts as bytes, for a file that is only ever appended to.

_ENTRY = np.dtype([("name", np.uint8, NAME_BYTES), ("count", "<i8")])


def text_of(counts: Mapping[bytes, int]) -> bytes:
    """How often each was counted, one entry after the other."""
    entries = np.empty(len(counts), dtype=_ENTRY)
    names = np.frombuffer(b"".join(counts), dtype=np.uint8).reshape(-1, NAME_BYTES)
    entries["name"], entries["count"] = names, [*counts.values()]
    return entries.tobytes()


def arrays_of(text: bytes) -> dict[str, NDArray[Any]]:
    """The inverse of :func:`text_of`, as :meth:`Participants.restore` wants it.

    Of somebody with several entries the last one counts, as it does there.
    """
    entries = np.frombuffer(text, dtype=_ENTRY)
    return {"ids/names": entries["name"], "ids/counts": entries["count"]}
