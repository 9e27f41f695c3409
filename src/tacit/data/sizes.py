"""Sizes and numbers that worlds, specs and statistics are made of, checked before they are used."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import fitting, whole_number

Floats = NDArray[np.float64]

# Arrays above this are refused before they are allocated.
MOST_BYTES = 4 * 2**30
MOST_SIZE = 10**12
# Within this, samplers of binomials and sums in float64 are exact to the last user.
MOST_USERS = 10**12


def check_size(name: str, value: int) -> int:
    """An integer of at least 1."""
    if (size := whole_number(name, value)) > MOST_SIZE:
        raise InvalidArgument(f"{name} must be at most {MOST_SIZE:,}, got {value!r}")
    return size


def check_seed(name: str, value: int) -> int:
    """An integer of at least 0."""
    return whole_number(name, value, least=0)


def check_bytes(name: str, shape: tuple[int, ...], itemsize: int = 8) -> None:
    """Refuses an array that would not fit, before it is allocated."""
    needed = math.prod(shape) * itemsize
    if needed > MOST_BYTES:
        words = f"{needed:,} bytes; at most {MOST_BYTES:,} are allowed"
        raise InvalidArgument(f"{name} of shape {tuple(shape)} would need {words}")


def check_users(users: int) -> int:
    """A number of users, at most 10^12."""
    return whole_number("users", users, least=0, most=MOST_USERS)


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
