"""Questions and answers: all that passes between an algorithm and the people it learns from.

An algorithm asks (:class:`Ask`) and is sent a :class:`tacit.Release`; nothing else crosses.
:mod:`tacit.core.rounds` takes the questions to the gate, records the answers and replays them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Statistic

Arrays: TypeAlias = dict[str, NDArray[Any]]
State: TypeAlias = tuple[dict[str, Any], Arrays]
"""JSON values and arrays, as a save holds them."""


@dataclass(frozen=True, eq=False)
class Ask:
    """One question to the users of a block."""

    statistic: Statistic  # what is asked
    # what it costs the users of this block; by default all that they have left
    mu: float | None = None
    share: float | None = None  # the same as a share of an episode's whole budget (of mu^2)

    def __post_init__(self) -> None:
        if self.mu is not None and self.share is not None:
            raise InvalidArgument("give mu or share, not both")


Asks: TypeAlias = Generator[Ask, Release, None]
"""What an algorithm's ``asks`` returns: it yields questions and is sent their answers."""


def below(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
