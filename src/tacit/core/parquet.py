"""Parquet files and folders, batch by batch; with the extra ``logs``.

A user's entries are cut nowhere: those of the last user of a batch wait for the next one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tacit.core.columns import check_ids
from tacit.core.labels import checked_labels
from tacit.core.logs import Entries, LogFormat, missing_column
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import CorruptFile, InvalidArgument, MissingExtra, TacitError
from tacit.privacy.files import open_regular
from tacit.privacy.statistic import Block, FiledBlock

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def arrow() -> Any:
    """Arrow, with what reads Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("this needs Arrow: pip install 'tacit[logs]'") from error
    return pa


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


def batches_of(path: Paths, log: LogFormat, batch: int, grouped: bool) -> Iterator[Entries]:
    """Entries of whole users, about ``batch`` at a time."""
    whole_number("batch", batch)
    files = files_of(path)
    log = with_labels(log, files)
    if grouped:
        return whole_users(neighbours(_entries(files, log, batch)))
    return _partitioned(files, log, batch)


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
            _check_columns(file, name, log, names)
            for groups in _row_groups(file.metadata, batch):
                read = {"row_groups": groups, "columns": names}
                for table in file.iter_batches(batch_size=batch, **read):
                    yield log.read(table, only)


def _check_columns(file: Any, name: str, log: LogFormat, names: Sequence[str]) -> None:
    there = file.schema_arrow.names
    for column in names:
        if column not in there:
            kind = next(k for k, named in log.columns.items() if named == column)
            raise InvalidArgument(missing_column(repr(name), kind, column, there))


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


def whole_users(parts: Iterable[Entries]) -> Iterator[Entries]:
    """The same entries, of which those of a user are in one part; hardly any are copied."""
    held: list[Entries] = []
    for part in parts:
        user, start = part["user"], 0
        if not len(user):
            continue
        if held:
            # Those of the user who waits come first, if there are more of hers.
            other = user != held[0]["user"][0]
            start = int(other.argmax()) if other.any() else len(user)
            held.append(_some(part, 0, start))
            if start == len(user):
                continue
            yield joined(held)
        # The last one may go on in the next part.
        other = user[::-1] != user[-1]
        cut = len(user) - (int(other.argmax()) if other.any() else len(user))
        if cut > start:
            yield _some(part, start, cut)
        # Copies: a view would keep the whole part in memory.
        held = [{n: c.copy() for n, c in _some(part, max(cut, start), len(user)).items()}]
    if held:
        yield joined(held)


def neighbours(parts: Iterable[Entries]) -> Iterator[Entries]:
    """The same entries; refused where somebody's in one part do not come one after the other.

    Who comes where is public. Otherwise she would have many short episodes in place of hers.
    """
    for part in parts:
        user = part["user"]
        heads = user[np.flatnonzero(np.append(True, user[1:] != user[:-1]))] if len(user) else user
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


def filed_block(
    path: Paths,
    log: LogFormat,
    batch: int,
    most: int,
    executor: Executor | None,
    users: int | None = None,
) -> FiledBlock:
    """All episodes of sorted files as one block that nobody holds."""
    files = files_of(path)
    log = with_labels(log, files)
    pieces = [Piece(name, log, batch, most) for name in files]
    if users is not None and len(pieces) == 1:
        return FiledBlock(users, pieces, most, executor)
    # Ids and their order are public: what is wrong with them is said before anybody pays.
    found = list((map if executor is None else executor.map)(Piece.count, pieces))
    last: list[Any] = []
    for piece, (_, ends) in zip(pieces, found, strict=True):
        if ends and last and not last[-1] < ends[0]:
            raise InvalidArgument(f"{piece.file!r} does not begin after the last user{_SORTED}")
        last = ends or last
    return FiledBlock(sum(users for users, _ in found), pieces, most, executor)


_SORTED = ": files must be sorted by user, one after the other; see partition_by_user"


@dataclass(frozen=True)
class Piece:
    """A file whose entries are sorted by user, as blocks of whole users.

    Sorted means that nobody is in two places: so nobody counts for more than ``most`` episodes, and
    that is checked whenever it is read.
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
        simple = self.log.time is None
        for part in whole_users(_entries([self.file], self.log, self.batch, names)):
            people = self._sorted(part["user"], ends[-1] if ends else None)
            ends = [ends[0] if ends else people[0], people[-1]]
            if simple and "episode" not in part:
                users += len(people)
                continue
            who = self.log.whose(part)
            kept = self._kept(who)
            users += len(who) if kept is None else int(kept.sum())
        return users, ends

    def _sorted(self, user: Any, before: Any) -> Any:
        """The different users of a part, which come after one another and after ``before``."""
        people = user[np.flatnonzero(np.append(True, user[1:] != user[:-1]))]
        if people.dtype.kind == "O":
            check_ids(people.tolist(), self.log.user, "must hold")
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
    reads. Raw data, mode 0700. A file must fit in memory: ``files`` says how many there are.
    """
    pa = arrow()
    import pyarrow.compute as pc

    whole_number("files", files)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = []
    for name in files_of(path):
        with opened(name) as file:
            found += file.read(columns=[user])[user].chunks
    people = pc.unique(pa.chunked_array(found)).sort()
    cuts = [people[i * len(people) // files] for i in range(files)] if len(people) else []
    made = []
    for number, low in enumerate(cuts):
        high = cuts[number + 1] if number + 1 < len(cuts) else None
        parts = []
        for name in files_of(path):
            with opened(name) as file:
                for table in file.iter_batches():
                    inside = pc.greater_equal(table[user], low)
                    if high is not None:
                        inside = pc.and_(inside, pc.less(table[user], high))
                    parts.append(table.filter(inside))
        # Stable: entries of a user keep their order.
        whole = pa.Table.from_batches(parts)
        order = pc.sort_indices(
            whole.append_column("#", pa.array(np.arange(len(whole)))),
            sort_keys=[(user, "ascending"), ("#", "ascending")],
        )
        if len(whole):
            made.append(os.path.join(folder, f"part-{number:05d}.parquet"))
            pa.parquet.write_table(whole.take(order), made[-1])
    return made


def _partitioned(files: list[str], log: LogFormat, batch: int) -> Iterator[Entries]:
    """Entries of whole users where those of a user are anywhere: by way of files, one per share.

    The files are raw data. They are in a folder of mode 0700, which is removed at the end.
    """
    entries = 0
    for name in files:
        with opened(name) as file:
            entries += file.metadata.num_rows
    shares = max(1, -(-entries // batch))
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        parts = [os.path.join(folder, f"{share}.parquet") for share in range(shares)]
        _partition(files, log, max(1, batch // 4), parts)
        for name in parts:
            if os.path.exists(name):
                whole = [log.read(table) for table in _tables(name)]
                order = _by_user(np.concatenate([part["user"] for part in whole]))
                yield {kind: column[order] for kind, column in joined(whole).items()}
                os.remove(name)


def _partition(files: list[str], log: LogFormat, batch: int, parts: list[str]) -> None:
    """Every entry into the file of its user, by a hash of her id."""
    pa = arrow()
    names = sorted(set(log.columns.values()))
    writers: dict[int, Any] = {}
    try:
        for name in files:
            with opened(name) as file:
                _check_columns(file, name, log, names)
                for table in file.iter_batches(batch_size=batch, columns=names):
                    share = _hashed(table[log.user], len(parts))
                    for number in np.unique(share).tolist():
                        some = table.filter(pa.array(share == number))
                        if number not in writers:
                            writers[number] = pa.parquet.ParquetWriter(parts[number], some.schema)
                        writers[number].write_batch(some)
    finally:
        for writer in writers.values():
            writer.close()


def _tables(name: str) -> Iterator[Any]:
    with opened(name) as file:
        yield from file.iter_batches()


def _hashed(column: Any, shares: int) -> Any:
    """A share for every id: the same for the same one."""
    ids = column.to_pylist()
    return np.fromiter((hash(user) % shares for user in ids), np.int64, count=len(ids))


def _by_user(user: Any) -> Any:
    """An order in which the entries of a user are neighbours, otherwise as they were."""
    places: dict[Any, int] = {}
    rows = [places.setdefault(one, len(places)) for one in user.tolist()]
    return np.argsort(np.array(rows, dtype=np.int64), kind="stable")
