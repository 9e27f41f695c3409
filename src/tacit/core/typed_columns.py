"""Columns of tables with their types: pandas, Polars, Arrow, NumPy, or plain lists.

A column's *type* is schema and public, so a wrong one raises. What its entries hold never does.
Nothing is imported for it: a column is asked for its type and its values.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.columns import as_codes, as_numbers, one_column
from tacit.core.labels import Labels, checked_labels
from tacit.privacy.arguments import fitting
from tacit.privacy.errors import InvalidArgument

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

UNKNOWN = -2
"""The state or action of an entry whose label is not in the vocabulary."""
UNREADABLE = -3
"""That of an entry which is missing, no such number, or contradicts another one."""

_TYPES = (
    ("number", r"u?int|float|double|half|bool|decimal|null"),
    ("text", r"str|utf8|large_string|object|categor|enum|dictionary"),
    ("time", r"timestamp|datetime|date|time|duration"),
)


def kind_of(column: Any) -> str:
    """One of "number", "text", "time", or "untyped" where a column has no type of its own.

    >>> kind_of(np.zeros(2)), kind_of(["a"]), kind_of(np.array(["a"]))
    ('number', 'untyped', 'text')
    """
    declared = getattr(column, "type", getattr(column, "dtype", None))
    if declared is None:
        return "untyped"
    kind = declared.kind if isinstance(declared, np.dtype) else None
    if kind is not None:
        return {"O": "text", "U": "text", "S": "text", "T": "text", "M": "time", "m": "time"}.get(
            kind, "number"
        )
    text = str(declared).lower()
    return next((kind for kind, words in _TYPES if re.match(words, text)), "number")


def _type_words(column: Any) -> str:
    return str(getattr(column, "type", getattr(column, "dtype", "a list of texts")))


def values_of(column: Any) -> Any:
    """A list, or an array, of what a column holds; missing numbers are NaN."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return column
    extension = not isinstance(getattr(column, "dtype", np.dtype(float)), np.dtype)
    if kind_of(column) == "number" and extension:
        with contextlib.suppress(TypeError, ValueError):  # numbers that pandas calls nullable
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if hasattr(column, "to_numpy"):
        try:
            return column.to_numpy(zero_copy_only=False)
        except TypeError:  # only Arrow has such an option
            return column.to_numpy()
    return column


def number_values(name: str, column: Any) -> Any:
    """The values of a column that has to be numbers; one that is text by its type is refused.

    Where a type says nothing, as pandas' ``object``, an entry that is no number is a missing one.
    """
    says_nothing = getattr(column, "dtype", None) == np.dtype(object)
    if kind_of(column) == "text" and not says_nothing:
        raise InvalidArgument(
            f"the column {name!r} is text by its type ({_type_words(column)}), but must be "
            "numbers: make numbers of it"
        )
    return values_of(column)


def code_column(name: str, column: Any, labels: Labels, option: str) -> Ints:
    """States or actions as numbers, by their labels if there are any."""
    kind = kind_of(column)
    if labels is None:
        if isinstance(column, (list, tuple)):
            # One odd entry is somebody's; a list that holds nothing but texts is one of texts.
            held = [entry for entry in column if entry is not None]
            kind = "text" if held and all(isinstance(x, str) for x in held) else kind
        if kind not in ("number", "untyped"):
            raise InvalidArgument(
                f"the column {name!r} is no number by its type ({_type_words(column)}): say which "
                f"{option} there are, {option}=[...], or give {option}='schema' if the type "
                "declares them and they are public"
            )
        codes = one_column(name, as_codes(name, values_of(column)))
        return (
            codes if not codes.size or codes.min() >= 0 else np.where(codes < 0, UNREADABLE, codes)
        )
    if kind not in ("text", "untyped"):
        raise InvalidArgument(
            f"the column {name!r} is no text by its type ({_type_words(column)}), but {option} "
            "are named: leave the names out, or make a text of the column"
        )
    return _by_label(column, labels)


def _by_label(column: Any, labels: tuple[str, ...]) -> Ints:
    places = {label: code for code, label in enumerate(labels)}
    if hasattr(column, "cat") and hasattr(column.cat, "codes"):  # pandas: numbers of categories
        table = [_place(label, places) for label in column.cat.categories.tolist()]
        found: Ints = np.array([*table, UNREADABLE], dtype=np.int64)[np.asarray(column.cat.codes)]
        return found
    if type(column).__module__.partition(".")[0] == "pyarrow":
        places_found = _arrow_places(column, labels)
        if places_found is not None:
            return places_found
    values = values_of(column)
    entries = values.tolist() if isinstance(values, np.ndarray) else values
    return np.fromiter((_place(entry, places) for entry in entries), np.int64, count=len(entries))


def _place(entry: Any, places: dict[str, int]) -> int:
    return places.get(entry, UNKNOWN) if isinstance(entry, str) else UNREADABLE


def _arrow_places(column: Any, labels: tuple[str, ...]) -> Ints | None:
    """The same, compiled, where the column is Arrow's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.type
    text = text.value_type if pa.types.is_dictionary(text) else text
    if not (pa.types.is_string(text) or pa.types.is_large_string(text)):
        return None
    if pa.types.is_dictionary(column.type):
        column = column.cast(text)
    found = pc.index_in(column, value_set=pa.array(labels, type=text))
    found = pc.if_else(pc.is_null(column), UNREADABLE, pc.fill_null(found, UNKNOWN))
    return np.asarray(found.to_numpy(), dtype=np.int64)


def declared_labels(name: str, column: Any, option: str) -> tuple[str, ...]:
    """The vocabulary that a column's type declares: categories, an enum, an Arrow dictionary."""
    declared = getattr(column, "dtype", None)
    found = getattr(declared, "categories", None)
    if found is None and hasattr(column, "type") and "dictionary" in str(column.type):
        chunks = getattr(column, "chunks", [column])
        found = chunks[0].dictionary if chunks else None
        if any(not chunk.dictionary.equals(found) for chunk in chunks):
            found = None
    if found is None:
        raise InvalidArgument(
            f"the type of the column {name!r} ({_type_words(column)}) declares no {option}: "
            f"give {option}=[...]"
        )
    entries = found.to_pylist() if hasattr(found, "to_pylist") else list(found)
    labels = checked_labels(option, entries)
    assert labels is not None  # noqa: S101
    return labels


def people_column(name: str, column: Any) -> NDArray[Any]:
    """Ids, integers or texts, each as it is: an array of integers, or of objects."""
    values = fitting(name, values_of(column))
    if isinstance(values, (list, tuple)):
        # An array of text and integers would be all text, and "7" the same as 7.
        objects = np.empty(len(values), dtype=object)
        objects[:] = values
        return objects
    array = one_column(name, np.asarray(values))
    whole = array.dtype.kind in "iu"
    return array if whole else np.array([*array.tolist(), None], dtype=object)[:-1]


def time_column(name: str, column: Any) -> Floats:
    """When entries were made: time stamps in seconds, numbers as they are; inf where unknown."""
    kind = kind_of(column)
    if kind == "text":
        raise InvalidArgument(
            f"the column {name!r} is text by its type ({_type_words(column)}): make time stamps "
            "or numbers of it"
        )
    values: Any = column
    if kind == "time":
        try:
            values = column.to_numpy(dtype="datetime64[us]")  # pandas: time zones as well
        except (AttributeError, TypeError):
            values = values_of(column)
        stamps = one_column(name, np.asarray(values)).astype("datetime64[us]")
        return np.where(np.isnat(stamps), np.inf, stamps.astype(np.int64) / 1e6)
    values = values_of(column)
    if isinstance(values, (list, tuple)):
        values = [_seconds(entry) for entry in values]
    numbers = one_column(name, as_numbers(name, values))
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
    values = values_of(column)
    if isinstance(values, (list, tuple)) or np.asarray(values).dtype.kind in "OUS":
        entries = values if isinstance(values, (list, tuple)) else np.asarray(values).tolist()
        said = ("true", "yes", "1", "1.0")
        return np.array([str(entry).strip().lower() in said for entry in entries], dtype=bool)
    numbers = one_column(name, as_numbers(name, values))
    said_so: NDArray[np.bool_] = np.isfinite(numbers) & (numbers != 0.0)
    return said_so
