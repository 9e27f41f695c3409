"""Receipts: where everybody went whom an agent was given. Public, as who took part is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """What became of the episodes of one call of ``learn``: each is in exactly one class.

    It says who took part and by which version, and nothing of what anybody did.

    >>> receipt = Receipt(users=10, counted=6, waiting=2, retired=1, refused=1, version=3)
    >>> receipt.taken
    8
    """

    users: int  # how many episodes were given
    counted: int = 0  # in blocks that went through the gate
    waiting: int = 0  # for the rest of their block
    retired: int = 0  # of versions that teach nothing: not taken, and nothing was paid for them
    refused: int = 0  # by the budget: beyond the episodes that a user declared, or could pay for
    version: int = 0  # of the policy that serves from now on
    published: tuple[int, ...] = ()  # versions that this call published
    known: int = 0  # events that came before: not taken again

    @property
    def taken(self) -> int:
        """How many have a place in a block."""
        return self.counted + self.waiting

    def with_part(self, part: Receipt) -> Receipt:
        """This one, after some of its users were taken."""
        names = ("counted", "waiting", "refused", "known", "published")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(part, name) for name in names}
        return replace(self, version=part.version, **sums)

    def __str__(self) -> str:
        words = [
            f"{count:,} {what}"
            for count, what in (
                (self.counted, "counted"),
                (self.waiting, "waiting"),
                (self.retired, "of retired versions"),
                (self.refused, "refused by the budget"),
                (self.known, "known before"),
            )
            if count
        ]
        new = f"; published {', '.join(map(str, self.published))}" if self.published else ""
        return f"{self.users:,} episodes: {', '.join(words) or 'none'}; version {self.version}{new}"
