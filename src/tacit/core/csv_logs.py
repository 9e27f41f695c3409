"""Logs in CSV files: texts, of which numbers are made where a column has to be one."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tacit.core.columns import as_numbers
from tacit.core.logs import Entries, LogFormat, missing_column
from tacit.core.parquet import joined, neighbours, whole_users
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.files import open_regular

# Everything in a CSV file is text, so what has no vocabulary must be numbers.
_NUMBERED = {"state": "states", "next_state": "states", "action": "actions"}


def csv_batches(
    files: Sequence[str], log: LogFormat, batch: int, grouped: bool
) -> Iterator[Entries]:
    """Entries of whole users; all of them at once, unless they are grouped by user."""
    parts = itertools.chain.from_iterable(_entries(name, log, batch) for name in files)
    if grouped:
        yield from whole_users(neighbours(parts))
    elif whole := list(parts):
        yield joined(whole)


def _entries(name: str, log: LogFormat, batch: int) -> Iterator[Entries]:
    """The rows of one file; an empty field is a missing value."""
    opened = open_regular(name)
    with open(opened, encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        places = {}
        for column in set(log.columns.values()):
            if column not in header:
                kind = next(k for k, named in log.columns.items() if named == column)
                raise InvalidArgument(missing_column(repr(name), kind, column, header))
            places[column] = header.index(column)
        while rows := list(itertools.islice(reader, batch)):
            width = len(header)
            full = [row + [""] * (width - len(row)) for row in rows if row]
            table: dict[str, Any] = {
                column: [row[place] or None for row in full] for column, place in places.items()
            }
            # Somebody without an id is nobody: her rows are all of one person.
            table[log.user] = [user or "" for user in table[log.user]]
            for kind, named in _NUMBERED.items():
                if kind in log.columns and getattr(log, named) is None:
                    column = log.columns[kind]
                    table[column] = as_numbers(column, table[column])
            yield log.read(table)
