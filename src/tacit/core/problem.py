"""Problems: all that is declared before the first user comes, and when policies are republished.

A schedule depends on no data, so it is public and costs no privacy. The fewer releases, the less
noise each of them needs; at geometric times their number grows with the logarithm of the users, and
no policy that serves is older than a fixed share of what is known by then.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel
from tacit.privacy.validation import MOST_USERS, checked_number, instance_of, seed_of, whole_number

if TYPE_CHECKING:
    from tacit.core.algorithm import BlockSizes

_MOST_BLOCKS = 10**7  # of a schedule that is written down block by block


@dataclass(frozen=True)
class Even(Sequence[int]):
    """Blocks of one size, the last of them perhaps smaller; takes no memory per block.

    >>> blocks = Even(users=10, size=4)
    >>> list(blocks), blocks[-1], len(Even(users=10**12, size=1))
    ([4, 4, 2], 2, 1000000000000)
    """

    users: int
    size: int

    def __len__(self) -> int:
        return -(-self.users // self.size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        # Refuses what is out of range, and counts negative ones from the end.
        block = range(len(self))[index]
        return min(self.size, self.users - block * self.size)


def geometric(users: int, growth: float = 1.5, first: int = 1) -> tuple[int, ...]:
    """Blocks after which the number of users served has grown by a constant factor, above 1.

    The ends of the blocks are ``first``, then each ``growth`` times the one before, rounded up,
    so every block has at least one user. What is left at the end is a block of its own if it is
    at least half as large as the one before, and is added to that one otherwise.

    >>> geometric(99, growth=2.0, first=10)
    (10, 10, 20, 59)
    >>> geometric(100, growth=2.0, first=10)
    (10, 10, 20, 40, 20)
    """
    users = whole_number("users", users, most=MOST_USERS)
    first = whole_number("first", first)
    growth = checked_number("growth", growth, "a number above 1", lambda g: g > 1)
    # While rounding makes the ends, they are at most 1 / (growth - 1) apart from one another.
    slow = min(float(users), max(1.0, 1.0 / (growth - 1.0)))
    if slow + math.log(max(1.0, users / slow)) / math.log(growth) > _MOST_BLOCKS:
        raise InvalidArgument(
            f"growth is {growth!r}, but must be larger for {users} users: there would be more than "
            f"{_MOST_BLOCKS:,} blocks"
        )
    blocks = [min(first, users)]
    end = blocks[0]
    while end < users:
        # min first: a large growth must not overflow.
        reach = min(float(users), end * growth)
        block = min(max(end + 1, math.ceil(reach)), users) - end
        blocks.append(block)
        end += block
    if len(blocks) > 1 and 2 * blocks[-1] < blocks[-2]:
        blocks[-2:] = [blocks[-2] + blocks[-1]]
    return tuple(blocks)


def growing(users: int, first: int, growth: float) -> tuple[int, ...]:
    """Blocks of ``first`` users, and larger ones once ``growth`` allows for them.

    From block to block the users served grow by the factor ``growth``, or by ``first`` users where
    that is more. A block takes what is left where that would be less than half of its size.

    >>> growing(100, first=10, growth=1.5)
    (10, 10, 10, 15, 22, 33)
    """
    blocks, end = [], 0
    while end < users:
        size = max(first, math.floor((growth - 1.0) * end))
        if users - end - size < size / 2:
            size = users - end
        blocks.append(size)
        end += size
    return tuple(blocks)


@dataclass(frozen=True)
class Schedule:
    """Named blocks, of at least one user each; the name rebuilds them, see :meth:`parse`.

    >>> schedule = Schedule.parse("geometric:growth=2,first=10", users=100)
    >>> schedule.blocks, schedule.users, schedule.releases
    ((10, 10, 20, 40, 20), 100, 5)
    >>> Schedule.parse("fixed:size=40", users=100).name
    'fixed:size=40'
    >>> Schedule("by hand", (5, 10, 85)).users
    100
    """

    name: str
    blocks: Sequence[int]

    def __post_init__(self) -> None:
        if isinstance(self.blocks, Even):
            return
        blocks = tuple(whole_number("every block", block) for block in self.blocks)
        if not blocks:
            raise InvalidArgument("blocks is empty, but must hold at least one block")
        object.__setattr__(self, "blocks", blocks)

    @cached_property
    def users(self) -> int:
        """The users of all blocks."""
        return self.blocks.users if isinstance(self.blocks, Even) else sum(self.blocks)

    @cached_property
    def releases(self) -> int:
        """How many blocks there are; each ends with a release."""
        return len(self.blocks)

    @classmethod
    def parse(cls, text: str, users: int) -> Schedule:
        """A schedule from its name; see :func:`tacit.make_agent` for names."""
        users = whole_number("users", users)
        kind, options = _read(text)
        if kind == "every":
            return cls("every", Even(users, 1))
        if kind == "fixed":
            size = whole_number("size", int(options["size"]))
            return cls(f"fixed:size={size}", Even(users, size))
        growth, first = options.get("growth", 1.5), int(options.get("first", 1))
        return cls(f"geometric:growth={growth!r},first={first}", geometric(users, growth, first))


_OPTIONS: dict[str, dict[str, type[float]]] = {
    "every": {},
    "fixed": {"size": int},
    "geometric": {"growth": float, "first": int},
}


def _read(text: str) -> tuple[str, dict[str, float]]:
    """A name's kind and options, with their types right; the values are checked where used."""
    with contextlib.suppress(ValueError, KeyError, AttributeError, TypeError):
        kind, colon, rest = text.partition(":")
        given = [item.partition("=") for item in rest.split(",")] if colon else []
        kinds = _OPTIONS[kind]
        options = {name: kinds[name](value) for name, _, value in given}
        if len(options) == len(given) and ("size" in options or kind != "fixed"):
            return kind, options
    allowed = "'geometric:growth=1.5,first=1', 'every' or 'fixed:size=100'"
    raise InvalidArgument(f"schedule is {text!r}, but must be like {allowed}")


@dataclass(frozen=True)
class Problem:
    """A spec, declared users, a budget, and a schedule."""

    spec: Any  # what is known of the world
    users: int  # how many users are declared
    privacy: Privacy
    # when a policy is republished; ``"auto"`` is the algorithm's own
    schedule: str | Schedule = "auto"
    seed: int | None = 0  # of ties and of the first, random policy; not of the noise
    arms: Any = None  # baseline and holdout, an :class:`~tacit.core.arms.Arms`, if there are any

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PrivacyModel):
            raise InvalidArgument(
                "privacy must be JointDP, LocalDP, DistributedDP or NonPrivate, got "
                f"{self.privacy!r}"
            )
        instance_of("schedule", self.schedule, (str, Schedule))
        object.__setattr__(self, "seed", seed_of(self.seed))
        object.__setattr__(self, "users", whole_number("users", self.users, most=MOST_USERS))

    @property
    def own_schedule(self) -> bool:
        """Whether the algorithm may choose when policies are republished."""
        return isinstance(self.schedule, str) and self.schedule == "auto"

    def rng(self) -> np.random.Generator:
        """Generator of ties and of first policies; not of the noise."""
        return np.random.default_rng(np.random.SeedSequence([seed_of(self.seed), 4]))

    def scheduled(self, sizes: Callable[[], BlockSizes]) -> Schedule:
        """The caller's schedule, or the algorithm's own."""
        given, users = self.schedule, self.users
        if isinstance(given, Schedule) and given.users != users:
            raise InvalidArgument(
                f"schedule is for {given.users} users, but must be for all {users} of them"
            )
        if not self.own_schedule:
            return given if isinstance(given, Schedule) else Schedule.parse(given, users)
        own = sizes()
        if own.blocks is not None:
            return Schedule(own.name, own.blocks)
        if own.size is not None:
            return Schedule(own.name, Even(users, own.size))
        return Schedule(own.name, growing(users, own.first, own.growth))
