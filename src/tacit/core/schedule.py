"""When a policy is republished: how many users each released policy serves.

A schedule is decided before the first user comes. It depends on nobody's data, so it is public and
costs no privacy. The fewer releases, the less noise each of them needs; at geometric times the
number of releases grows with the logarithm of the users, and nobody follows a policy that is older
than a fixed share of what is known by then.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import overload

from tacit.privacy.arguments import MOST_USERS, checked_number
from tacit.privacy.errors import InvalidArgument


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

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        # Refuses what is out of range, and counts negative ones from the end.
        return self._at(range(len(self))[index])

    def _at(self, block: int) -> int:
        return min(self.size, self.users - block * self.size)


class _EvenEnds(Even):
    """How many users were served after each block of :class:`Even`."""

    def _at(self, block: int) -> int:
        return min(self.users, (block + 1) * self.size)


# A schedule that is written down block by block has at most so many.
_MOST_BLOCKS = 10**7


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
    users = _count("users", users)
    if users > MOST_USERS:
        raise InvalidArgument(f"users is {users!r}, but must be at most {MOST_USERS:,}")
    first = _count("first", first)
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


def every_episode(users: int) -> Even:
    """A release after every single user, as in the papers.

    >>> len(every_episode(10**9))
    1000000000
    """
    return Even(_count("users", users), 1)


def fixed(users: int, size: int) -> Even:
    """Blocks of ``size`` users; the last one has what is left.

    >>> list(fixed(250, size=100))
    [100, 100, 50]
    """
    return Even(_count("users", users), _count("size", size))


@dataclass(frozen=True)
class Schedule:
    """Named blocks, of at least one user each; the name rebuilds them, see :meth:`parse`.

    >>> schedule = Schedule.parse("geometric:growth=2,first=10", users=100)
    >>> schedule.ends, schedule.users, schedule.releases
    ((10, 20, 40, 80, 100), 100, 5)
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
        blocks = tuple(_count("every block", block) for block in self.blocks)
        if not blocks:
            raise InvalidArgument("blocks is empty, but must hold at least one block")
        object.__setattr__(self, "blocks", blocks)

    @cached_property
    def ends(self) -> Sequence[int]:
        """How many users are served when each block ends."""
        if isinstance(self.blocks, Even):
            return _EvenEnds(self.blocks.users, self.blocks.size)
        return tuple(accumulate(self.blocks))

    @property
    def users(self) -> int:
        """The users of all blocks."""
        return self.ends[-1]

    @cached_property
    def releases(self) -> int:
        """How many blocks there are; each ends with a release."""
        return len(self.blocks)

    @classmethod
    def parse(cls, text: str, users: int) -> Schedule:
        """A schedule from its name; see :func:`tacit.make_agent` for names."""
        users = _count("users", users)
        kind, options = _read(text)
        if kind == "every":
            return cls("every", every_episode(users))
        if kind == "fixed":
            size = int(options["size"])
            return cls(f"fixed:size={size}", fixed(users, size))
        growth, first = options.get("growth", 1.5), int(options.get("first", 1))
        return cls(f"geometric:growth={growth!r},first={first}", geometric(users, growth, first))

    @classmethod
    def of(cls, schedule: str | Schedule, users: int) -> Schedule:
        """A schedule from its name, or one that exists, which must be for so many users."""
        if isinstance(schedule, str):
            return cls.parse(schedule, users)
        if not isinstance(schedule, Schedule):
            raise InvalidArgument(f"schedule is {schedule!r}, but must be a text or a Schedule")
        if schedule.users != users:
            raise InvalidArgument(
                f"schedule is for {schedule.users} users, but must be for all {users} of them"
            )
        return schedule


_OPTIONS: dict[str, dict[str, type[float]]] = {
    "every": {},
    "fixed": {"size": int},
    "geometric": {"growth": float, "first": int},
}


def _read(text: str) -> tuple[str, dict[str, float]]:
    """A name's kind and options, with their types right; the values are checked where used."""
    with contextlib.suppress(ValueError, KeyError, AttributeError):
        kind, colon, rest = text.partition(":")
        given = [item.partition("=") for item in rest.split(",")] if colon else []
        kinds = _OPTIONS[kind]
        options = {name: kinds[name](value) for name, _, value in given}
        if len(options) == len(given) and ("size" in options or kind != "fixed"):
            return kind, options
    allowed = "'geometric:growth=1.5,first=1', 'every' or 'fixed:size=100'"
    raise InvalidArgument(f"schedule is {text!r}, but must be like {allowed}")


def _count(name: str, value: object) -> int:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise InvalidArgument(f"{name} is {value!r}, but must be a whole number of at least 1")
