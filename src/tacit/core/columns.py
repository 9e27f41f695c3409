"""Columns of episodes: whatever a log may hold, as arrays of one type.

What is no number becomes something that is visibly invalid; nothing here raises because of a user's
values. Shapes and names are public, and wrong ones raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import fitting
from tacit.privacy.errors import InvalidArgument

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

INVALID = -1
"""The state or action of what is missing or is no such number."""


class UserRows:
    """One row per user. Its text has no values, since texts end up in logs."""

    actions: NDArray[Any]
    user_ids: tuple[int | str, ...] | None

    @property
    def users(self) -> int:
        """How many rows there are."""
        return int(self.actions.shape[0])

    @property
    def horizon(self) -> int:
        """Steps of an episode, H."""
        return int(self.actions.shape[1])

    def __len__(self) -> int:
        return self.users

    def __repr__(self) -> str:
        noun = "user" if self.users == 1 else "users"
        return f"<{type(self).__name__} of {self.users:,} {noun}, horizon {self.horizon}>"

    def _ids_of(self, rows: slice | NDArray[np.bool_] | Ints) -> list[int | str] | None:
        if self.user_ids is None:
            return None
        return [self.user_ids[i] for i in np.arange(self.users)[rows].tolist()]


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    fitting(name, values)
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array
    except (ValueError, TypeError, OverflowError):
        pass
    # One odd entry gives everybody's entries its type: True next to "x" would become a text. So
    # entries that are no numbers all stay what they are.
    try:
        array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise InvalidArgument(f"{name} has rows of different lengths") from error
    if any(isinstance(entry, (list, tuple, np.ndarray)) for entry in array.ravel().tolist()):
        raise InvalidArgument(f"{name} has rows of different lengths")
    return array


def as_numbers(name: str, values: ArrayLike) -> Floats:
    """Any column as floats; what is no number is NaN."""
    array = _array(name, values)
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(np.float64, copy=False)
    if array.dtype.kind in "OUS":
        # One odd entry turns a whole column into objects or text, so this depends on values.
        flat = np.full(array.size, np.nan)
        for place, value in enumerate(array.ravel().tolist()):
            with contextlib.suppress(Exception):
                flat[place] = float(value)
        return flat.reshape(array.shape)
    raise InvalidArgument(f"{name} has dtype {array.dtype}, but must be numeric")


def as_codes(name: str, values: ArrayLike) -> Ints:
    """Any column as integers; what is no integer of 64 bits is -1."""
    array = _array(name, values)
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "u":
        fits = array <= np.uint64(np.iinfo(np.int64).max)
        return np.where(fits, array.astype(np.int64), INVALID)
    numbers = as_numbers(name, array)
    with np.errstate(all="ignore"):
        # 2^53: beyond it, floats are not all integers one by one.
        whole = (np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers))
        return np.where(whole, numbers, INVALID).astype(np.int64)


def one_column(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Refuses what has several axes, or none."""
    if array.ndim != 1:
        raise InvalidArgument(f"{name} has shape {array.shape}, but must be a column")
    return array


def require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuses an array of another shape."""
    if array.shape != shape:
        raise InvalidArgument(f"{name} has shape {array.shape}, but must have {shape}")


def optional_codes(name: str, values: ArrayLike | None, users: int, default: int = INVALID) -> Ints:
    """An integer per user: the default where nothing is given."""
    column = np.full(users, default, np.int64) if values is None else as_codes(name, values)
    require_shape(name, column, (users,))
    return column


def read_only_views(columns: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The same arrays, not copied, so that nobody changes them by way of these."""
    for name, array in columns.items():
        view = array.view()
        view.flags.writeable = False
        yield name, view


def checked_ids(user_ids: Sequence[int | str] | None, users: int) -> tuple[int | str, ...] | None:
    """The ids of so many users, or ``None``; an id is an integer or a text."""
    if user_ids is None:
        return None
    if isinstance(user_ids, (str, bytes)) or not isinstance(user_ids, Iterable):
        raise InvalidArgument(
            f"user_ids must be a list of ids, one per user, got {type(user_ids).__name__}"
        )
    ids = tuple(user_ids.tolist() if isinstance(user_ids, np.ndarray) else user_ids)
    if len(ids) != users:
        raise InvalidArgument(f"user_ids has {len(ids)} entries, but there are {users} users")
    check_ids(ids, "user_ids", "ids must be")
    return ids


def check_ids(ids: Iterable[object], name: str, must: str) -> None:
    """Refuses ids that are neither integers nor text; the message does not name them."""
    for user in ids:
        if isinstance(user, bool) or not isinstance(user, (int, str, np.integer)):
            # The id itself stays out of the message.
            raise InvalidArgument(
                f"{name} holds a {type(user).__name__}, but {must} integers or text"
            )
