"""What a simulation asks of an agent: ours have it all, and somebody else's may."""

from __future__ import annotations

from typing import Any, Protocol

from tacit.core.world import Data, Form
from tacit.privacy.guarantee import Guarantee


class AnyAgent(Protocol):
    """What learns from users, private or not."""

    @property
    def spec(self) -> Any:
        """What it knows of the world."""

    @property
    def users(self) -> int:
        """How many users it is declared for."""

    @property
    def privacy(self) -> Any:
        """The privacy model it was given."""

    @property
    def policy(self) -> Any:
        """The policy that serves users now: the billboard."""

    @property
    def greedy_policy(self) -> Any:
        """The best policy for what is known now, without any bonus for exploring."""

    @property
    def block_users(self) -> int:
        """How many users the current policy serves until the next release; 0 at the end."""

    @property
    def form(self) -> Form:
        """Which form of data it wants of the current block."""

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for its users."""

    def learn(self, data: Data) -> None:
        """Takes the block of users that the current policy served, and publishes the next one."""
