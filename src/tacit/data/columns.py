"""Columns of logs and episodes: lists, NumPy, pandas, Polars or Arrow, as arrays of one type.

What is no number becomes something that is visibly invalid; nothing here raises because of a user's
values. Shapes, names and types are public, and wrong ones raise. So are labels, the names of states
and actions in the order of their numbers: given, or declared by a schema, and never learnt from
data, since a state that nobody visited is a state all the same.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import fitting
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.statistic import Block

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

Labels: TypeAlias = tuple[str, ...] | None
"""Different texts, as many as there are states or actions; or none."""

INVALID = -1
"""The state or action of what is missing or is no such number."""
UNKNOWN = -2
"""That of an entry of a log whose label is not in the vocabulary."""
UNREADABLE = -3
"""That of an entry of a log which is missing, no such number, or contradicts another one."""

_KINDS = {"O": "text", "U": "text", "S": "text", "T": "text", "M": "time", "m": "time"}
_ARROW = {"text": r"(large_)?string|dictionary", "time": r"timestamp|date|time|duration"}


class UserRows:
    """One row per user. Its text has no values, since texts end up in logs."""

    _COLUMNS: ClassVar[tuple[str, ...]]
    actions: NDArray[Any]
    user_ids: tuple[int | str, ...] | None

    def _hold(self, columns: Mapping[str, Any], user_ids: Sequence[int | str] | None) -> None:
        """Keeps columns, not copied, so that nobody changes them by way of these; or ``None``."""
        for name in self._COLUMNS:
            view = columns[name].view() if name in columns else None
            if view is not None:
                view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "user_ids", checked_ids(user_ids, self.users))

    def block(self) -> Block:
        """The same for a curator: arrays by the names of the attributes that there are, raw."""
        held = {name: getattr(self, name) for name in self._COLUMNS}
        return Block(self.users, {name: c for name, c in held.items() if c is not None})

    def take(self, rows: slice | NDArray[np.bool_] | Ints) -> Self:
        """Some of the rows.

        >>> from tacit import Episodes
        >>> episodes = Episodes(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros((3, 1)))
        >>> episodes.take(slice(0, 2))
        <Episodes of 2 users, horizon 1>
        """
        ids = self.user_ids
        kept = ids and [ids[i] for i in np.arange(self.users)[rows].tolist()]
        columns = {name: array[rows] for name, array in self.block().arrays.items()}
        return self._made(columns, kept)

    @classmethod
    def of_block(cls, block: Block, user_ids: Sequence[int | str] | None = None) -> Self:
        """The inverse of :meth:`block`."""
        held = block.arrays
        return cls._made({name: held[name] for name in cls._COLUMNS if name in held}, user_ids)

    @classmethod
    def _made(cls, columns: Mapping[str, Any], user_ids: Sequence[int | str] | None) -> Self:
        make: Any = cls
        made: Self = make(**columns, user_ids=user_ids)
        return made

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


def checked_labels(name: str, values: Any, size: int | None = None) -> Labels:
    """Different texts, as many as there are; ``None`` stays ``None``.

    >>> checked_labels("state_labels", ["idle", "busy"], 2)
    ('idle', 'busy')
    """
    if values is None:
        return None
    listed = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
    labels = tuple(str(v) if isinstance(v, str) else v for v in values) if listed else ()
    if not labels or not all(isinstance(label, str) for label in labels):
        raise InvalidArgument(f"{name} must be a list of texts, got {_short(values)}")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InvalidArgument(f"{name} must be different, but {twice!r} is there twice")
    if size is not None and len(labels) != size:
        raise InvalidArgument(f"{name} must be {size} texts, got {len(labels)}")
    return labels


def code_of(kind: str, label: str, labels: Labels) -> int:
    """The number of a label; ``kind`` is "state" or "action"."""
    if labels is None:
        raise InvalidArgument(f"{kind} is {label!r}, but this policy has no labels: give a number")
    if label not in labels:
        known = ", ".join(map(repr, labels[:20])) + (", ..." if len(labels) > 20 else "")
        raise InvalidArgument(f"{kind} is {label!r}, but must be one of {known}")
    return labels.index(label)


def _short(values: Any) -> str:
    text = repr(list(values) if isinstance(values, Sequence) else values)
    return text if len(text) <= 80 else f"{text[:77]}..."


def arrow() -> Any:
    """Arrow, with what reads Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("this needs Arrow: pip install 'tacit[logs]'") from error
    return pa


def plain(column: Any) -> Any:
    """A column as an array, of NumPy or of Arrow; what has no type of its own stays what it is."""
    declared = getattr(column, "dtype", None)
    if isinstance(declared, np.dtype) or str(declared) == "Object":
        return np.asarray(column)
    if declared is None or isinstance(column, (list, tuple)):
        return column  # lists, and Arrow's own
    pa = arrow()
    try:
        made = column.to_arrow() if hasattr(column, "to_arrow") else pa.array(column)
    except Exception:  # objects of which Arrow makes nothing
        return np.asarray(column)
    # What Polars calls so are the texts that occurred, and declares nothing.
    return made.cast(made.type.value_type) if str(declared) == "Categorical" else made


def kind_of(column: Any) -> str:
    """One of "number", "text", "time", or "untyped" where a plain column has no type.

    >>> kind_of(np.zeros(2)), kind_of(["a"]), kind_of(np.array(["a"]))
    ('number', 'untyped', 'text')
    """
    if isinstance(column, np.ndarray):
        return _KINDS.get(column.dtype.kind, "number")
    declared = getattr(column, "type", None)
    if declared is None:
        return "untyped"
    return next((k for k, words in _ARROW.items() if re.match(words, str(declared))), "number")


def _refused(name: str, column: Any, what: str, way: str) -> InvalidArgument:
    words = getattr(column, "type", getattr(column, "dtype", "a list of texts"))
    return InvalidArgument(f"the column {name!r} is {what} by its type ({words}){way}")


def number_values(name: str, column: Any) -> Any:
    """The values of a column that has to be numbers; one that is text by its type is refused.

    Where a type says nothing, as pandas' ``object``, an entry that is no number is a missing one.
    """
    if kind_of(column) == "text" and getattr(column, "dtype", None) != np.dtype(object):
        raise _refused(name, column, "text", ", but must be numbers: make numbers of it")
    return np.asarray(column) if hasattr(column, "type") else column


def code_column(name: str, column: Any, labels: Labels, option: str) -> Ints:
    """States or actions as numbers, by their labels if there are any."""
    kind = kind_of(column)
    if labels is None:
        if isinstance(column, (list, tuple)):
            # One odd entry is somebody's; a list that holds nothing but texts is one of texts.
            held = [entry for entry in column if entry is not None]
            kind = "text" if held and all(isinstance(x, str) for x in held) else kind
        if kind not in ("number", "untyped"):
            way = f"say which {option} there are, {option}=[...], or give {option}='schema' if the"
            raise _refused(
                name, column, "no number", f": {way} type declares them and they are public"
            )
        codes = one_column(name, as_codes(name, number_values(name, column)))
        return np.where(codes < 0, UNREADABLE, codes) if codes.min(initial=0) < 0 else codes
    if kind not in ("text", "untyped"):
        way = "leave the names out, or make a text of the column"
        raise _refused(name, column, "no text", f", but {option} are named: {way}")
    text = str(getattr(column, "type", ""))
    if "string" in text:
        pa, pc = arrow(), arrow().compute
        column = column.cast(column.type.value_type) if "dictionary" in text else column
        column = column.cast(pa.large_string())
        found = pc.index_in(column, value_set=pa.array(labels, type=column.type))
        found = pc.if_else(pc.is_null(column), UNREADABLE, pc.fill_null(found, UNKNOWN))
        return np.asarray(found).astype(np.int64)
    places = {label: code for code, label in enumerate(labels)}
    entries = column if isinstance(column, (list, tuple)) else np.asarray(column).tolist()
    coded = (places.get(e, UNKNOWN) if isinstance(e, str) else UNREADABLE for e in entries)
    return np.fromiter(coded, np.int64, count=len(entries))


def declared_labels(name: str, column: Any, option: str) -> Labels:
    """The vocabulary that a column's type declares: categories, an enum, an Arrow dictionary."""
    if "dictionary" in str(getattr(column, "type", "")):
        found = [chunk.dictionary for chunk in getattr(column, "chunks", [column])]
        if found and all(one.equals(found[0]) for one in found):
            return checked_labels(option, found[0].to_pylist())
    words = getattr(column, "type", getattr(column, "dtype", "a list"))
    raise InvalidArgument(
        f"the type of the column {name!r} ({words}) declares no {option}: give {option}=[...]"
    )


def people_column(name: str, column: Any) -> NDArray[Any]:
    """Ids, integers or texts, each as it is: an array of integers, or of objects."""
    if not isinstance(fitting(name, column), (list, tuple)):
        column = one_column(name, np.asarray(column))
        if column.dtype.kind in "iu":
            return column  # type: ignore[no-any-return]
        column = column.tolist()
    # An array of text and integers would be all text, and "7" the same as 7.
    return np.array([*column, None], dtype=object)[:-1]


def time_column(name: str, column: Any) -> Floats:
    """When entries were made: time stamps in seconds, numbers as they are; inf where unknown."""
    kind, way = kind_of(column), ": make time stamps or numbers of it"
    if kind == "text":
        raise _refused(name, column, "text", way)
    if kind == "time":
        stamps = one_column(name, np.asarray(column))
        if stamps.dtype.kind == "O":  # times of a day
            raise _refused(name, column, "no time stamp", way)
        stamps = stamps.astype("datetime64[us]")
        return np.where(np.isnat(stamps), np.inf, stamps.astype(np.int64) / 1e6)
    if isinstance(column, (list, tuple)):
        column = [_seconds(entry) for entry in column]
    numbers = one_column(name, as_numbers(name, number_values(name, column)))
    return np.where(np.isfinite(numbers), numbers, np.inf)


def _seconds(entry: Any) -> Any:
    """A time stamp in seconds, in UTC unless it names a zone; anything else as it is."""
    with contextlib.suppress(Exception):
        at = datetime.datetime.fromisoformat(entry) if isinstance(entry, str) else entry
        if isinstance(at, datetime.datetime):
            return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    return entry


def flag_column(name: str, column: Any) -> NDArray[np.bool_]:
    """Truth values: numbers other than 0, or the texts true and yes."""
    if not isinstance(column, (list, tuple)):
        column = np.asarray(column)
        if column.dtype.kind not in "OUS":
            numbers = one_column(name, as_numbers(name, column))
            said_so: NDArray[np.bool_] = np.isfinite(numbers) & (numbers != 0.0)
            return said_so
        column = column.tolist()
    said = ("true", "yes", "1", "1.0")
    return np.array([str(entry).strip().lower() in said for entry in column], dtype=bool)
