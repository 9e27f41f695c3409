"""Blocks on their way in, and who came with them: in or out, whatever is raised in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tacit.privacy.arguments import whole_number
from tacit.privacy.curators.participants import Participants, UserIds
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.owner import Uncopyable, new_lock
from tacit.privacy.statistic import Block

if TYPE_CHECKING:
    from tacit.privacy.curator import Release


class Entries(Uncopyable):
    """The blocks of a curator, and the last of what was made of them.

    A block is in by one assignment, before which nothing of it is visible and after which whatever
    is missing is done by the next call.
    """

    def __init__(self, users: int | None, participants: Participants) -> None:
        self.declared_users = users
        # How many blocks are in, and how many users came; how many releases, and the last one.
        self._extent = (0, 0)
        self._told: tuple[int, Release | None] = (0, None)
        self._lock = new_lock()
        self._blocks: dict[int, Block] = {}
        self._block_users: dict[int, int] = {}
        self._participants = participants

    @property
    def users(self) -> int:
        """How many users came."""
        return self._extent[1]

    @property
    def entered(self) -> int:
        """How many blocks are in, those included whose raw data is here no more."""
        return self._extent[0]

    @property
    def releases(self) -> int:
        """How many releases were made."""
        return self._told[0]

    @property
    def last_release(self) -> Release | None:
        """The last one."""
        return self._told[1]

    @last_release.setter
    def last_release(self, release: Release | None) -> None:
        self._told = (self._told[0], release)

    @property
    def participants(self) -> Participants:
        """Who took part how often, where ids are given; what agents save of it."""
        return self._participants

    @property
    def turned_away(self) -> int:
        """How many episodes counted as zero, as their users' budget was spent in other runs."""
        return self._participants.turned_away

    def _join(self, block: Block, user_ids: UserIds, keep: Callable[[int, Block], None]) -> int:
        """Takes a block; ``keep`` stores what is admitted of it under its number."""
        self._settle()
        number, users = self._extent
        if self.declared_users is not None and users + block.users > self.declared_users:
            raise HorizonExceeded(
                f"{self.declared_users} users were declared; {users} came and "
                f"{block.users} more would be too many"
            )
        sealed = self._participants.admit(block, user_ids).sealed()
        keep(number, sealed)
        self._prepare(number, block.users, sealed.users)
        self._participants.due(number)
        self._extent = (number + 1, users + block.users)
        # It is in. What follows is done again by the next call if it is cut off.
        self._participants.settle(number + 1)
        return number

    def _prepare(self, number: int, users: int, admitted: int) -> None:
        """Makes room for a block which is not in yet."""
        self._block_users[number] = users

    def _settle(self) -> None:
        """Does what a call that was cut off left to do, and drops a block that did not get in."""
        self._participants.settle(self._extent[0])
        self._blocks.pop(self._extent[0], None)

    def _forget(self, block: int) -> None:
        self._raw(block)
        del self._blocks[block]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The numbers of the blocks whose raw data is still here."""
        if not self._blocks:
            return ()
        return tuple(b for b in [*self._blocks] if b < self._extent[0])

    def _raw(self, block: int) -> Block:
        block = whole_number("block", block, least=0)
        if block not in self._blocks or block >= self._extent[0]:
            known = 0 <= block < self._extent[0]
            raise InvalidArgument(
                f"block {block!r} was {'forgotten' if known else 'never added'}; "
                f"blocks here: {list(self.blocks)}"
            )
        return self._blocks[block]
