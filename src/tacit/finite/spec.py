"""What an agent may know of a finite world, and the checks of sizes and numbers it is made with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import fitting, flag
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]

# Arrays above this are refused before they are allocated.
MOST_BYTES = 4 * 2**30
MOST_SIZE = 10**12
# Within this, samplers of binomials and sums in float64 are exact to the last user.
MOST_USERS = 10**12

TOLERANCE = 1e-8
"""How far sums of probabilities may be from 1."""


@dataclass(frozen=True)
class FiniteSpec:
    """What an agent may know of a finite world.

    Attributes:
        states: how many.
        actions: how many.
        horizon: steps of an episode.
        stationary: whether transitions and rewards are the same at every step.
        reward_values: the values that a reward can have, in [0, 1].
        start: the distribution of the first state, or ``None`` if it is not known.

    >>> FiniteSpec(states=6, actions=2, horizon=20, stationary=True).reward_values
    (0.0, 1.0)
    """

    states: int
    actions: int
    horizon: int
    stationary: bool
    reward_values: tuple[float, ...] = (0.0, 1.0)
    start: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "horizon"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        values = tuple(check_reward_values(self.reward_values).tolist())
        object.__setattr__(self, "reward_values", values)
        if self.start is not None:
            start = check_distributions("start", self.start, (self.states,))
            object.__setattr__(self, "start", tuple(start.tolist()))


def check_size(name: str, value: int) -> int:
    """An integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidArgument(f"{name} must be an integer >= 1, got {value!r}")
    if value > MOST_SIZE:
        raise InvalidArgument(f"{name} must be at most {MOST_SIZE:,}, got {value!r}")
    return int(value)


def check_seed(name: str, value: int) -> int:
    """An integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidArgument(f"{name} must be an integer >= 0, got {value!r}")
    return int(value)


def check_bytes(name: str, shape: tuple[int, ...], itemsize: int = 8) -> None:
    """Refuses an array that would not fit, before it is allocated."""
    needed = math.prod(shape) * itemsize
    if needed > MOST_BYTES:
        raise InvalidArgument(
            f"{name} of shape {tuple(shape)} would need {needed:,} bytes "
            f"({(needed >> 20) / 1024 if needed < 2**90 else math.inf:.1f} GiB); at most "
            f"{MOST_BYTES:,} are allowed"
        )


def check_users(users: int) -> int:
    """A number of users, at most 10^12."""
    if isinstance(users, bool) or not isinstance(users, (int, np.integer)):
        raise InvalidArgument(f"users must be an integer, got {users!r}")
    if not 0 <= users <= MOST_USERS:
        raise InvalidArgument(f"users must be in 0..{MOST_USERS}, got {users!r}")
    return int(users)


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


def check_reward_values(values: ArrayLike) -> Floats:
    """A copy of the values that a reward can have: different numbers in [0, 1]."""
    try:
        array = np.array(fitting("reward_values", values), dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(0)
    good = array.ndim == 1 and bool(((array >= 0) & (array <= 1)).all())
    if not good or not 0 < len(array) == len(set(array.tolist())):
        raise InvalidArgument(f"reward_values must be different numbers in [0, 1], got {values!r}")
    return array


def check_distributions(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """A copy whose last axis holds probabilities, with the rounding of their sums removed."""
    array = np.asarray(fitting(name, values))
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise InvalidArgument(
            f"{name} must be numbers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    sums = array.sum(axis=-1, dtype=np.float64)
    # A row with a NaN fails the comparison of its sum.
    good = (array.min(axis=-1) >= 0) & (np.abs(sums - 1.0) <= TOLERANCE)
    if not good.all():
        index = tuple(np.argwhere(~good)[0].tolist()) if good.ndim else ()
        raise InvalidArgument(_bad_row(name, index, array[index], float(sums[index])))
    # Samplers take rows for granted that lie one behind the other.
    result: Floats = np.divide(array, sums[..., np.newaxis], order="C")
    return result


def _bad_row(name: str, index: tuple[int, ...], row: NDArray[Any], total: float) -> str:
    words = ("step", "state", "action") if index else ()
    where = ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=True))
    place = f"{name} at {where}" if where else name
    negative = np.flatnonzero(row < 0)
    if len(negative):
        first = int(negative[0])
        return f"{place} must be probabilities, but entry {first} is {float(row[first])}"
    return f"{place} must be probabilities with sum 1, but the sum is {total}"
