"""Refusals of arguments that are of no use, in words, before anything is done with them.

Every one names the argument, its value and what is allowed. What Python itself would raise further
down (a ``TypeError`` in the middle of a calculation) says nothing about the argument, and comes
after something may have changed.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument

T = TypeVar("T")

Floats: TypeAlias = NDArray[np.float64]
FilePath: TypeAlias = str | os.PathLike[str]

MOST_USERS = 10**18
"""More users than this nobody has, and floats cannot count."""

MOST_ENTRIES = 1 << 28
"""Of a list that an array is made of: two gigabytes of numbers."""

# Arrays above this are refused before they are allocated.
MOST_BYTES = 4 * 2**30
# Within this, samplers of binomials and sums in float64 are exact to the last user.
MOST_SIMULATED = 10**12


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """An integer, or a float that is one.

    Args:
        name: Of the argument, for the error.
        value: To check.
        least: Smallest value that is allowed.
        most: Largest value that is allowed; none by default.

    >>> whole_number("users", 1e6)
    1000000
    >>> whole_number("users", "1e6")
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: users must be an integer >= 1, got '1e6'
    """
    if type(value) is int and value >= least and (most is None or value <= most):
        return value
    number: Any = value
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError, ValueError):  # infinities and NaN
            whole = int(number)
            if whole == number and whole >= least and (most is None or whole <= most):
                return whole
    allowed = f"an integer >= {least}" if most is None else f"an integer in {least}..{most}"
    raise InvalidArgument(f"{name} must be {allowed}, got {value!r}")


def seed_of(seed: Any) -> int:
    """A seed; a fresh one for ``None``, as in Gymnasium."""
    return int.from_bytes(os.urandom(4)) if seed is None else whole_number("seed", seed, least=0)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number) and number > 0:
                return number
    raise InvalidArgument(f"{name} must be > 0 and finite, got {value!r}")


def checked_number(
    name: str, value: object, allowed: str, is_allowed: Callable[[float], bool]
) -> float:
    """Returns ``value`` as a float, or refuses it in words.

    Args:
        name: Of the argument, for the error.
        value: To check.
        allowed: The allowed range in words.
        is_allowed: Whether a finite number is in it.

    Truth values are refused although Python counts them as numbers: ``Budget(True, 1e-6)`` is a
    slip, not an epsilon of one.

    >>> checked_number("epsilon", 2, "positive", lambda e: e > 0)
    2.0
    >>> checked_number("epsilon", -1, "positive", lambda e: e > 0)
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: epsilon is -1, but must be positive
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and is_allowed(number):
            return number
    raise InvalidArgument(f"{name} is {value!r}, but must be {allowed}")


def flag(name: str, value: object) -> bool:
    """True or False, and not what Python would take for one: ``bool("no")`` is true.

    >>> flag("stationary", "no")
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: stationary must be True or False, got 'no'
    """
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidArgument(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: T, allowed: Sequence[str]) -> T:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{name} must be {' or '.join(allowed)}, got {value!r}")
    return value


def instance_of(name: str, value: object, kinds: type | tuple[type, ...]) -> None:
    """Refuses what is of another class."""
    if not isinstance(value, kinds):
        several = kinds if isinstance(kinds, tuple) else (kinds,)
        words = " or ".join(kind.__name__ for kind in several)
        raise InvalidArgument(f"{name} must be {words}, got {value!r}")


def fitting(name: str, values: T) -> T:
    """The values, unless an array of them would not fit in memory, as of a huge range.

    >>> fitting("weights", range(10**12))
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: weights has 1e+12 entries; at most 268,435,456 are allowed
    """
    if isinstance(values, Sequence):
        try:
            entries: float = len(values)
        except OverflowError:
            entries = math.inf
        if entries > MOST_ENTRIES:
            raise InvalidArgument(
                f"{name} has {entries:g} entries; at most {MOST_ENTRIES:,} are allowed"
            )
    return values


_IDS = {int, str}


def row_ids(user_ids: Any, users: int) -> None:
    """Refuses ids that are not one integer or text per user; a text is no list of letters."""
    if type(user_ids) is list and len(user_ids) == users and {*map(type, user_ids)} <= _IDS:
        return  # by far the most frequent case
    listed = isinstance(user_ids, (Sequence, np.ndarray)) and not isinstance(user_ids, (str, bytes))
    if not listed or getattr(user_ids, "ndim", 1) != 1:
        raise InvalidArgument(
            f"user_ids must be a list of ids, one per user, got {type(user_ids).__name__}"
        )
    if len(user_ids) != users:
        raise InvalidArgument(f"{users} users need as many ids, got {len(user_ids)}")
    if not all(isinstance(user, (int, str, np.integer)) for user in user_ids):
        raise InvalidArgument("user_ids must be integers or strings")


def steady_repr(value: object) -> str:
    """``repr``, for what is saved and compared.

    That of a dataclass notes what it is at, so as to end for those that hold themselves. A signal
    can leave the note behind, and then it is "..." for ever after.

    >>> from tacit import Budget
    >>> steady_repr((Budget(1.0, 0.0), 2)) == repr((Budget(1.0, 0.0), 2))
    True
    """
    if type(value) is tuple:
        return f"({', '.join(map(steady_repr, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value) or not hasattr(type(value).__repr__, "__wrapped__"):
        return repr(value)
    shown = (f"{f.name}={steady_repr(getattr(value, f.name))}" for f in fields(value) if f.repr)
    return f"{type(value).__qualname__}({', '.join(shown)})"


# Sizes and arrays of numbers.


def check_bytes(name: str, shape: tuple[int, ...], itemsize: int = 8) -> None:
    """Refuses an array that would not fit, before it is allocated."""
    needed = math.prod(shape) * itemsize
    if needed > MOST_BYTES:
        words = f"{needed:,} bytes; at most {MOST_BYTES:,} are allowed"
        raise InvalidArgument(f"{name} of shape {tuple(shape)} would need {words}")


def check_users(users: int) -> int:
    """A number of users, at most 10^12."""
    return whole_number("users", users, least=0, most=MOST_SIMULATED)


def numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of integers or floats."""
    try:
        array = np.asarray(fitting(name, values))
    except ValueError as error:
        raise InvalidArgument(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "iufb":
        raise InvalidArgument(f"{name} must be an array of numbers, got dtype {array.dtype}")
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def read_only(values: ArrayLike) -> Floats:
    """An array that cannot be changed: a copy, unless it is one already."""
    if (
        isinstance(values, np.ndarray)
        and values.dtype == np.float64
        and values.flags.owndata
        and values.flags.c_contiguous
        and not values.flags.writeable
    ):
        return values
    array = np.array(values, dtype=np.float64, order="C")
    array.setflags(write=False)
    return array


class ArraySpec:
    """Equality of frozen dataclasses with arrays; their text, which is hashed, must say all."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(cast(Any, self))
        )

    def __hash__(self) -> int:
        return hash(repr(self))
