"""Logs in files, Parquet or CSV, read batch by batch.

The entries of one user are cut nowhere: those of the last user of a batch wait for the next.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tacit.data.logs import (
    NUMBERED,
    Entries,
    LogFormat,
    arrow,
    checked_people,
    column_of,
    is_new,
    missing_column,
)
from tacit.data.reading import as_numbers, checked_labels
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.files import open_regular
from tacit.privacy.statistic import Block, FiledBlock
from tacit.privacy.validation import whole_number

Batches: TypeAlias = Generator[Entries, None, None]
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@contextmanager
def opened(name: str) -> Iterator[Any]:
    """A Parquet file; whatever Arrow finds damaged, here or while it is read, is a CorruptFile."""
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(name) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        # Errors of a disk have a number; Arrow's own have none.
        if isinstance(error, TacitError) or getattr(error, "errno", None) is not None:
            raise
        raise CorruptFile(f"{name!r} is no Parquet file, or a damaged one") from None


def files_of(path: Paths) -> list[str]:
    """The Parquet files that are meant, in the order of their names within a folder."""
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    found: list[str] = []
    for one in map(Path, given):
        inside = sorted(p for p in one.rglob("*.parquet") if p.is_file()) if one.is_dir() else [one]
        if not inside:
            raise InvalidArgument(f"there is no .parquet file in {os.fspath(one)!r}")
        if inside == [one]:
            os.close(open_regular(one))  # a FIFO would be waited for
        found += map(os.fspath, inside)
    if not found:
        raise InvalidArgument("path must name at least one file")
    return found


def csv_batches(
    files: Sequence[str], log: LogFormat, batch: int, grouped: bool
) -> Iterator[Entries]:
    """Entries of whole users from CSV files.

    Args:
        files: Their names.
        log: Columns and vocabularies.
        batch: Rows at a time.
        grouped: Whether the rows of a user come one after the other; if not, all are read at once.
    """
    parts = itertools.chain.from_iterable(_csv_entries(name, log, batch) for name in files)
    if grouped:
        yield from whole_users(neighbours(parts))
    elif whole := list(parts):
        yield joined(whole)


def _csv_entries(name: str, log: LogFormat, batch: int) -> Iterator[Entries]:
    """The rows of one file, texts of which numbers are made; an empty field is a missing value."""
    names = set(log.columns.values())
    with open(open_regular(name), encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        _check_columns(header, name, log, names)
        while rows := list(itertools.islice(reader, batch)):
            table: dict[str, Any] = {}
            for column, *texts in itertools.zip_longest(header, *filter(None, rows), fillvalue=""):
                if column in names and column not in table:
                    table[column] = [text or None for text in texts]
            # Rows without an id are all of one person.
            table[log.user] = [user or "" for user in table[log.user]]
            for kind, option in NUMBERED.items():
                if kind in log.columns and getattr(log, option) is None:
                    column = log.columns[kind]
                    table[column] = as_numbers(column, table[column])
            yield log.read(table)


class LogFiles:
    """Parquet files of a log, or folders of them, read about ``batch`` entries at a time."""

    def __init__(self, path: Paths, log: LogFormat, batch: int) -> None:
        self.batch = whole_number("batch", batch)
        self.files = files_of(path)
        self.log = with_labels(log, self.files)

    def batches(self, grouped: bool) -> Batches:
        """Entries of whole users; unless those of a user come together, they are partitioned."""
        if grouped:
            return whole_users(neighbours(_entries(self.files, self.log, self.batch)))
        return _partitioned(self.files, self.log, self.batch)

    def block(self, most: int, executor: Executor | None) -> FiledBlock:
        """All episodes of sorted files as one block, ``most`` of a user, never held as a whole."""
        pieces = [Piece(name, self.log, self.batch, most) for name in self.files]
        # Ids and their order are public: mistakes in them are told before users pay.
        found = list((map if executor is None else executor.map)(Piece.count, pieces))
        last: list[Any] = []
        for piece, (_, ends) in zip(pieces, found, strict=True):
            if ends and last and not last[-1] < ends[0]:
                raise InvalidArgument(f"{piece.file!r} does not begin after the last user{_SORTED}")
            last = ends or last
        return FiledBlock(sum(users for users, _ in found), pieces, most, executor)


def with_labels(log: LogFormat, files: list[str]) -> LogFormat:
    """The vocabulary ``"schema"`` as files declare it: a JSON list, ``labels``, of a column.

    The dictionaries of row groups hold what occurred, and are no declaration.
    """
    found: dict[str, Any] = {}
    for option, kind in (("states", "state"), ("actions", "action")):
        if getattr(log, option) != "schema":
            continue
        for name in files:
            with opened(name) as file:
                schema = file.schema_arrow
            column = log.columns[kind]
            field = schema.field(column) if column in schema.names else None
            text = ((field.metadata or {}) if field is not None else {}).get(b"labels")
            try:
                labels = checked_labels(option, json.loads(text or "0"))
            except ValueError:
                labels = None
            if labels is None or found.setdefault(option, labels) != labels:
                raise InvalidArgument(
                    f"{name!r} declares no {option}, or others, in the metadata of its column "
                    f"{column!r} (labels, a JSON list): give {option}=[...]"
                )
    return replace(log, **found)


def _entries(
    files: Iterable[str], log: LogFormat, batch: int, only: set[str] | None = None
) -> Iterator[Entries]:
    names = sorted(only or set(log.columns.values()))
    for name in files:
        with opened(name) as file:
            _check_columns(file.schema_arrow.names, name, log, names)
            for groups in _row_groups(file.metadata, batch):
                read = {"row_groups": groups, "columns": names}
                for table in file.iter_batches(batch_size=batch, **read):
                    yield log.read(table, only)


def _check_columns(there: list[str], name: str, log: LogFormat, names: Iterable[str]) -> None:
    for kind, column in log.columns.items():
        if column in names and column not in there:
            raise InvalidArgument(missing_column(repr(name), (kind, column), there))


def _row_groups(metadata: Any, batch: int) -> Iterator[list[int]]:
    """Row groups of about a batch: one iterator over all of them keeps more and more memory."""
    found, rows = list[int](), 0
    for group in range(metadata.num_row_groups):
        found.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= batch:
            yield found
            found, rows = [], 0
    if found:
        yield found


def whole_users(parts: Iterable[Entries]) -> Batches:
    """The same entries, of which those of a user are in one part; hardly any are copied."""
    held: list[Entries] = []
    for part in parts:
        user = part["user"]
        if not len(user):
            continue
        starts = np.flatnonzero(is_new(user))
        first, last = 0, int(starts[-1])
        if held:
            # Those of the user who waits come first, if there are more of hers.
            if user[0] == held[0]["user"][0]:
                first = int(starts[1]) if len(starts) > 1 else len(user)
            held.append(_some(part, 0, first))
            if first == len(user):
                continue
            yield joined(held)
        if last > first:
            yield _some(part, first, last)
        # The last one may go on in the next part. Copies: a view would keep the whole part.
        held = [{n: c.copy() for n, c in _some(part, last, len(user)).items()}]
    if held:
        yield joined(held)


def neighbours(parts: Iterable[Entries]) -> Iterator[Entries]:
    """The same entries; refused where those of a user in one part are not one after the other.

    The order of ids is public. Otherwise she would have many short episodes in place of hers.
    """
    for part in parts:
        user = part["user"]
        heads = user[is_new(user)]
        in_order = heads.dtype.kind in "iu" and bool((heads[1:] > heads[:-1]).all())
        if not in_order and len(set(heads.tolist())) < len(heads):
            raise InvalidArgument(
                "the entries of some user do not come one after the other: give grouped=False, "
                "and they are partitioned first"
            )
        yield part


def _some(part: Entries, start: int, stop: int) -> Entries:
    return {name: column[start:stop] for name, column in part.items()}


def joined(parts: list[Entries]) -> Entries:
    """Entries one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_SORTED = ": files must be sorted by user, one after the other; see partition_by_user"


@dataclass(frozen=True)
class Piece:
    """A file whose entries are sorted by user, as blocks of whole users.

    Sorted means that no user is in two places: so none counts for more than ``most`` episodes. That
    is checked whenever it is read.
    """

    file: str
    log: LogFormat
    batch: int
    most: int

    def __call__(self) -> Iterator[Block]:
        """Some users at a time."""
        before: Any = None
        for part in whole_users(_entries([self.file], self.log, self.batch)):
            before = self._sorted(part["user"], before)[-1]
            columns, who = self.log.columns_of(part, grouped=True)
            block = Block(len(who), columns)
            kept = self._kept(who)
            yield block if kept is None else block.take(kept)

    def count(self) -> tuple[int, list[Any]]:
        """How many episodes it has, and the first and the last user."""
        users, ends = 0, list[Any]()
        # Steps are needed only where they tell sessions apart.
        names = {self.log.columns[k] for k in ("user", "episode", "time") if k in self.log.columns}
        for part in whole_users(_entries([self.file], self.log, self.batch, names)):
            people = self._sorted(part["user"], ends[-1] if ends else None)
            ends = [ends[0] if ends else people[0], people[-1]]
            who = self.log.placed(part, True)[2]
            kept = self._kept(who)
            users += len(who) if kept is None else int(kept.sum())
        return users, ends

    def _sorted(self, user: Any, before: Any) -> Any:
        """The different users of a part, which come after one another and after ``before``."""
        people = checked_people(self.log.user, user[is_new(user)])
        right = bool(np.all(people[1:] > people[:-1])) and (before is None or before < people[0])
        if not right:
            raise InvalidArgument(f"{self.file!r} is not sorted by user{_SORTED}")
        return people

    def _kept(self, who: Any) -> Any:
        """Which episodes are among the first of their users; ``None`` if all are."""
        if self.log.episode is None and self.log.time is None:
            return None  # a row for each user
        twice = who[self.most :] == who[: -self.most]
        if not np.any(twice):
            return None
        return np.append(np.ones(self.most, dtype=bool), ~twice)


def partition_by_user(
    path: Paths, folder: str | os.PathLike[str], *, user: str = "user", files: int = 16
) -> list[str]:
    """Sorts Parquet files of any order into others, of which each has some of the users, sorted.

    They are ranges of ids, in the order of their names: what :meth:`tacit.Episodes.parquet_block`
    reads. Raw data, mode 0700. A file must fit in memory, and all ids.

    Args:
        path: A file, a folder, or several.
        folder: For the sorted files.
        user: Name of the column of ids.
        files: How many to write.
    """
    return _partition(files_of(path), folder, user, whole_number("files", files), None, 1 << 16)


def _partition(
    names: list[str],
    folder: str | os.PathLike[str],
    user: str,
    files: int,
    columns: list[str] | None,
    batch: int,
) -> list[str]:
    """The same of some columns, so many entries at a time."""
    pa = arrow()

    def ids(table: Any) -> Any:
        column = column_of(table, "user", user)
        if pa.types.is_nested(column.type):
            raise InvalidArgument(f"{user} holds a {column.type}, but must hold integers or text")
        coded = pa.types.is_dictionary(column.type)
        return column.cast(column.type.value_type) if coded else column

    os.makedirs(folder, mode=0o700, exist_ok=True)
    found: list[Any] = []
    for table in _batches(names, batch, [user]):
        found.append(pa.compute.unique(ids(table)))
        if sum(map(len, found)) > 2 * len(found[0]) + (1 << 20):
            found = [pa.concat_arrays(found).unique()]
    if not found:
        return []
    people = pa.concat_arrays(found).unique().sort()
    writers: dict[str, Any] = {}
    try:
        for table in _batches(names, batch, columns):
            place = np.asarray(pa.compute.index_in(ids(table), value_set=people))
            share = place.astype(np.int64) * files // len(people)
            for number in np.unique(share).tolist():
                name = os.path.join(folder, f"part-{number:05d}.parquet")
                some = table.filter(pa.array(share == number))
                if name not in writers:
                    writers[name] = pa.parquet.ParquetWriter(name, some.schema)
                writers[name].write_batch(some)
    finally:
        for writer in writers.values():
            writer.close()
    for name in writers:
        with opened(name) as file:
            whole = file.read()
        # Stable: entries of a user keep their order.
        keys = pa.table({"user": ids(whole), "#": np.arange(len(whole))})
        order = pa.compute.sort_indices(keys, [("user", "ascending"), ("#", "ascending")])
        pa.parquet.write_table(whole.take(order), name)
    return sorted(writers)


def _batches(names: list[str], batch: int, columns: list[str] | None) -> Iterator[Any]:
    for name in names:
        with opened(name) as file:
            yield from file.iter_batches(batch_size=batch, columns=columns)


def _partitioned(files: list[str], log: LogFormat, batch: int) -> Batches:
    """Entries of whole users where those of a user are anywhere: by way of files, one per share.

    The files are raw data. They are in a folder of mode 0700, which is removed at the end.
    """
    entries, names = 0, sorted(set(log.columns.values()))
    for name in files:
        with opened(name) as file:
            _check_columns(file.schema_arrow.names, name, log, names)
            entries += file.metadata.num_rows
    shares = max(1, -(-entries // batch))
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        parts = _partition(files, folder, log.user, shares, names, max(1, batch // 4))
        for name in parts:
            yield joined(list(_entries([name], log, batch)))
