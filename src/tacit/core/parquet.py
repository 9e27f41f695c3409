"""Parquet files and folders, batch by batch; with the extra ``logs``.

A user's entries are cut nowhere: those of the last user of a batch wait for the next one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tacit.core.logs import Entries, LogFormat
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument, MissingExtra

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def arrow() -> Any:
    """Arrow, with what reads Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("this needs Arrow: pip install 'tacit[logs]'") from error
    return pa


def files_of(path: Paths) -> list[str]:
    """The Parquet files that are meant, in the order of their names within a folder."""
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    found: list[str] = []
    for one in map(Path, given):
        inside = sorted(p for p in one.rglob("*.parquet") if p.is_file()) if one.is_dir() else [one]
        if not inside:
            raise InvalidArgument(f"there is no .parquet file in {os.fspath(one)!r}")
        found += map(os.fspath, inside)
    if not found:
        raise InvalidArgument("path must name at least one file")
    return found


def batches_of(path: Paths, log: LogFormat, batch: int, grouped: bool) -> Iterator[Entries]:
    """Entries of whole users, about ``batch`` at a time."""
    whole_number("batch", batch)
    files = files_of(path)
    if grouped:
        return whole_users(_entries(files, log, batch))
    return _partitioned(files, log, batch)


def _entries(files: Iterable[str], log: LogFormat, batch: int) -> Iterator[Entries]:
    pa = arrow()
    names = sorted(set(log.columns.values()))
    for name in files:
        with pa.parquet.ParquetFile(name) as file:
            missing = [column for column in names if column not in file.schema_arrow.names]
            if missing:
                raise InvalidArgument(f"{name!r} has no column {missing[0]!r}")
            for table in file.iter_batches(batch_size=batch, columns=names):
                yield log.read(table)


def whole_users(parts: Iterable[Entries]) -> Iterator[Entries]:
    """The same entries, of which those of a user are in one part."""
    held: list[Entries] = []
    for part in parts:
        user = part["user"]
        if not len(user):
            continue
        other = np.flatnonzero(user != user[-1])
        cut = int(other[-1]) + 1 if len(other) else 0
        if cut or (held and held[-1]["user"][-1] != user[0]):
            head = {name: column[:cut] for name, column in part.items()}
            yield joined([*held, head])
            held = []
        held.append({name: column[cut:] for name, column in part.items()} if cut else part)
    if held:
        yield joined(held)


def joined(parts: list[Entries]) -> Entries:
    """Entries one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _partitioned(files: list[str], log: LogFormat, batch: int) -> Iterator[Entries]:
    """Entries of whole users where those of a user are anywhere: by way of files, one per share.

    The files are raw data. They are in a folder of mode 0700, which is removed at the end.
    """
    pa = arrow()
    entries = sum(pa.parquet.read_metadata(name).num_rows for name in files)
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
            with pa.parquet.ParquetFile(name) as file:
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
    with arrow().parquet.ParquetFile(name) as file:
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
