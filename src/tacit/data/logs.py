"""Logs as people have them: tables with names, texts, time stamps and gaps, as episodes.

What a log *is* (which columns, which vocabulary, how long an episode is) is said by a
:class:`LogFormat` and public. What it holds is people's, and never raises. Files are read batch by
batch, and a user's entries are cut nowhere: those of the last one of a batch wait for the next.
"""

from __future__ import annotations

import csv
import datetime
import difflib
import itertools
import json
import os
import tempfile
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.columns import (
    INVALID,
    UNREADABLE,
    Floats,
    Ints,
    Labels,
    arrow,
    as_codes,
    as_numbers,
    check_ids,
    checked_labels,
    code_column,
    code_of,
    declared_labels,
    flag_column,
    number_values,
    one_column,
    people_column,
    plain,
    time_column,
)
from tacit.privacy.arguments import checked_number, whole_number
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.files import open_regular
from tacit.privacy.statistic import Block, FiledBlock

if TYPE_CHECKING:
    from tacit.data.episodes import Episodes

Entries: TypeAlias = dict[str, NDArray[Any]]
"""Columns of a log, one entry per step that somebody took, by what they mean."""

Batches: TypeAlias = Generator[Entries, None, None]
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# What a column may mean; some are numbered by a vocabulary.
_READ = (
    *("user", "step", "state", "action", "reward", "next_state", "version", "episode"),
    *("component", "time", "terminal"),
)
_NAMED = {"state": "states", "next_state": "states", "action": "actions"}

# Steps of all users together, of which so many for each entry of a log may be empty: a horizon far
# beyond the data is a slip, and must not fill the memory of the machine.
_MOST_CELLS, _MOST_EMPTY = 1 << 24, 64
# Of a table with more columns some names are shown.
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """Which columns a log has, and what they mean; see :meth:`tacit.Episodes.from_frame`."""

    horizon: int
    user: str = "user"
    step: str | None = "step"
    state: str = "state"
    action: str = "action"
    reward: str = "reward"
    next_state: str | None = "next_state"
    version: str | None = None
    episode: str | None = None
    component: str | None = None
    time: str | None = None
    terminal: str | None = None
    states: Sequence[str] | str | None = None
    actions: Sequence[str] | str | None = None
    end: str | int | None = None
    gap: float | datetime.timedelta | None = None
    sessions: int | None = None
    missing_reward: float | None = None

    def __post_init__(self) -> None:
        horizon = self.horizon
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise InvalidArgument(f"horizon is {horizon!r}, but must be an integer of at least 1")
        for name in ("states", "actions"):
            if getattr(self, name) != "schema":
                object.__setattr__(self, name, checked_labels(name, getattr(self, name)))
        if (self.step is None) == (self.time is None):
            raise InvalidArgument("give step or time, and not both: steps are counted by time")
        if self.gap is not None:
            if self.time is None:
                raise InvalidArgument("gap needs time: sessions are told apart by it")
            span = self.gap
            seconds = span.total_seconds() if isinstance(span, datetime.timedelta) else span
            good = checked_number("gap", seconds, "a time above 0", lambda s: s > 0)
            object.__setattr__(self, "gap", good)
        if self.sessions is not None:
            if self.gap is None:
                raise InvalidArgument("sessions needs gap, by which they are told apart")
            whole_number("sessions", self.sessions)
        if self.missing_reward is not None:
            checked_number("missing_reward", self.missing_reward, "a number", lambda r: True)
        if self.end is not None and self.terminal is None:
            raise InvalidArgument("end needs terminal: the state in which an episode is over")

    @property
    def columns(self) -> dict[str, str]:
        """The names of the columns that it has, by what they mean."""
        return {kind: name for kind in _READ if (name := getattr(self, kind)) is not None}

    def read(self, frame: Any, only: Container[str] | None = None) -> Entries:
        """The entries of a table, as arrays; only types and lengths are refused."""
        if not hasattr(frame, "__getitem__") and hasattr(frame, "__arrow_c_stream__"):
            frame = arrow().table(frame)
        named = {k: name for k, name in self.columns.items() if only is None or name in only}
        raw = {kind: plain(_column(frame, kind, name)) for kind, name in named.items()}
        labels = {option: self._vocabulary(option, raw) for option in ("states", "actions")}
        log: Entries = {}
        for kind, column in raw.items():
            name = named[kind]
            if kind in ("user", "episode"):
                log[kind] = people_column(name, column)
            elif kind in _NAMED:
                log[kind] = code_column(name, column, labels[_NAMED[kind]], _NAMED[kind])
            elif kind == "time":
                log[kind] = time_column(name, column)
            elif kind == "terminal":
                log[kind] = flag_column(name, column)
            else:
                made: Any = as_numbers if kind == "reward" else as_codes
                log[kind] = one_column(name, made(name, number_values(name, column)))
        if "reward" in log and self.missing_reward is not None:
            log["reward"] = np.where(np.isnan(log["reward"]), self.missing_reward, log["reward"])
        of = next(kind for kind in ("time", "step", "user") if kind in log)
        for kind, array in log.items():
            if len(array) != len(log[of]):
                raise InvalidArgument(
                    f"{kind} has {len(array)} entries, but must have as many as {of}, "
                    f"{len(log[of])}"
                )
        return log

    def _vocabulary(self, option: str, raw: dict[str, Any]) -> Labels:
        """The labels of states or actions, given or declared by the type of their column."""
        given, kind = getattr(self, option), option.removesuffix("s")
        if given != "schema":
            return given  # type: ignore[no-any-return]
        return declared_labels(self.columns[kind], raw[kind], option) if kind in raw else None

    def episodes(self, log: Entries, grouped: bool = False) -> Episodes:
        """The episodes of entries; ``grouped`` if those of a user come one after the other."""
        from tacit.data.episodes import Episodes

        columns, who = self.columns_of(log, grouped)
        return Episodes(**columns, user_ids=who.tolist())

    def columns_of(self, log: Entries, grouped: bool) -> tuple[Entries, NDArray[Any]]:
        """The columns of episodes, a row for each, and whose they are."""
        rows, steps, who = self.placed(log, grouped)
        n = len(who)
        most = max(_MOST_CELLS, _MOST_EMPTY * len(steps))
        if n * self.horizon > most:
            raise InvalidArgument(
                f"horizon is {self.horizon!r}, but must be at most {most // max(1, n):,} for so "
                f"many episodes of {len(steps):,} entries: all of their steps must fit in memory"
            )
        ends, after = self._ends(log, rows, steps, n)
        states, actions, rewards = _tables(log, rows, steps, ends, self.horizon)
        if after is not None:
            over = np.arange(self.horizon + 1) > ends[:, np.newaxis]
            states = np.where(over, after, states)
        columns: Entries = {"states": states, "actions": actions, "rewards": rewards}
        columns["versions"] = _agreed(log.get("version"), rows, n)
        if "component" in log:
            columns["components"] = _agreed(log["component"], rows, n)
        return columns, who

    def placed(self, log: Entries, grouped: bool) -> tuple[Ints, Ints, NDArray[Any]]:
        """The row and the step of each entry, and whose the rows are."""
        rows, who = _rows(log["user"], log.get("episode"), grouped)
        if "time" not in log:
            return rows, log.get("step", rows), who
        gap: Any = self.gap
        return _sessions(rows, who, log["time"], gap, self.sessions)

    def _ends(self, log: Entries, rows: Ints, steps: Ints, n: int) -> tuple[Ints, int | None]:
        """The last step of each episode by its terminal flag, and the state that follows it."""
        ends = np.full(n, self.horizon, dtype=np.int64)
        if "terminal" not in log:
            return ends, None
        told = log["terminal"] & (steps >= 0)
        np.minimum.at(ends, rows[told], steps[told])
        labels = self.states
        if isinstance(self.end, str):
            if labels == "schema":
                raise InvalidArgument("end is a text: give states=[...] that it is one of")
            return ends, code_of("end", self.end, labels)  # type: ignore[arg-type]
        return ends, None if self.end is None else int(self.end)


def format_of(spec: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a :class:`LogFormat` is made of; horizon and vocabularies may be those of a spec."""
    made = {name: value for name, value in given.items() if value is not None}
    if "next_state" in given:
        made["next_state"] = given["next_state"]
    if "time" in made and "step" not in made:
        made["step"] = None
    if spec is not None:
        known = {"horizon": spec.horizon}
        known |= {f"{k}s": getattr(spec, f"{k}_labels", None) for k in ("state", "action")}
        for name, value in known.items():
            if value is None:
                continue
            found = made.setdefault(name, value)
            if (tuple(found) if isinstance(found, list) else found) != value:
                raise InvalidArgument(f"{name} is given twice, and not as the spec has it")
    if "horizon" not in made:
        raise InvalidArgument("horizon is missing: give it, or a spec that has one")
    unknown = sorted(set(made) - {item.name for item in fields(LogFormat)})
    if unknown:
        raise InvalidArgument(f"a log has no {', '.join(unknown)}")
    return made


def _column(frame: Any, kind: str, name: str) -> Any:
    try:
        return frame[name]
    except Exception as error:  # Polars has errors of its own
        raise InvalidArgument(_missing(frame, kind, name)) from error


def _missing(frame: Any, kind: str, name: str) -> str:
    """What to do about a column that is not there; the names of columns are schema."""
    if isinstance(frame, (str, os.PathLike)):
        return "a frame is a table: read files by Episodes.from_parquet"
    if hasattr(frame, "collect"):
        return "a lazy frame has no entries yet: collect() it first"
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is None and hasattr(frame, "keys"):
        names = frame.keys()
    if names is None:
        names = getattr(getattr(frame, "dtype", None), "names", None)
    if names is None:
        return f"a {type(frame).__name__} has no columns by name, as {name!r}: make a frame of it"
    return missing_column("the table", kind, name, names)


def missing_column(what: str, kind: str, name: str, names: Iterable[Any]) -> str:
    """That a table has no such column, which ones it has, and how to say which is meant."""
    shown = [str(found) for found in names][:_SHOWN]
    near = [f" (did you mean {n!r}?)" for n in difflib.get_close_matches(str(name), shown, n=1)]
    none = ", or next_state=None to take the state of the next step" * (kind == "next_state")
    return (
        f"{what} has no column {name!r}{''.join(near)}; it has {', '.join(shown) or 'none'}: say "
        f"which one is meant, {kind}=...{none}"
    )


def _tables(
    log: Entries, rows: Ints, steps: Ints, ends: Ints, horizon: int
) -> tuple[Ints, Ints, Floats]:
    """States (n, H + 1), actions and rewards (n, H) of entries; what is not known is invalid."""
    shape = (len(ends), horizon)
    within = (steps >= 0) & (steps < horizon)
    if "terminal" in log:
        within &= steps <= ends[rows]
    cells, twice = rows[within] * horizon + steps[within], np.zeros(0, dtype=np.int64)
    in_order = bool(np.all(cells[1:] > cells[:-1]))
    if not in_order:
        given = np.bincount(cells)
        twice, once = np.flatnonzero(given > 1), given[cells] == 1
        within[within], cells = once, cells[once]
    chosen: Any = slice(None) if within.all() else within
    known = np.zeros(shape, dtype=bool)
    known.ravel()[cells] = True

    def laid_out(kind: str, default: float) -> NDArray[Any]:
        column: NDArray[Any] = log[kind][chosen]
        if in_order and len(cells) == known.size:
            return column.reshape(shape)  # nothing is missing
        table = np.full(shape, default, dtype=column.dtype)
        table.ravel()[cells] = column
        return table

    before, actions = laid_out("state", INVALID), laid_out("action", INVALID)
    rewards = laid_out("reward", np.nan)
    if len(twice):  # else they may be the log's own
        actions.ravel()[twice] = UNREADABLE
    states = np.full((len(ends), horizon + 1), INVALID, dtype=np.int64)
    if "next_state" not in log:
        states[:, :-1] = before
        # The entry after the last step says what followed it.
        beyond = (steps == horizon) & (ends[rows] >= horizon)
        alone = np.bincount(rows[beyond], minlength=len(ends)) == 1
        beyond[beyond] = alone[rows[beyond]]
        states[rows[beyond], horizon] = log["state"][beyond]
        return states, actions, rewards
    # A state is seen by the entry before it and by the one after it; -1 says nothing.
    states[:, 1:] = after = laid_out("next_state", INVALID)
    np.copyto(states[:, :-1], before, where=known)
    clash = known[:, 1:] & known[:, :-1] & (before[:, 1:] != after[:, :-1])
    states[:, 1:-1][clash] = UNREADABLE
    return states, actions, rewards


def _rows(
    user: NDArray[Any], episode: NDArray[Any] | None, grouped: bool
) -> tuple[Ints, NDArray[Any]]:
    """Which row each entry belongs to, and whose the rows are, in order of first occurrence."""
    if grouped:
        new = _new(user)
        if episode is not None:
            new |= _new(episode)
        return np.cumsum(new) - 1, _checked("user", user[new])
    keys: Iterable[Any] = _checked("user", user).tolist()
    if episode is not None:
        keys = zip(keys, _checked("episode", episode).tolist(), strict=True)
    places: dict[Any, int] = {}
    rows = np.fromiter((places.setdefault(key, len(places)) for key in keys), np.int64)
    return rows, user[np.unique(rows, return_index=True)[1]]


def _new(user: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries differ from the one before."""
    return np.append(np.ones(len(user[:1]), dtype=bool), user[1:] != user[:-1])


def _checked(name: str, ids: NDArray[Any]) -> NDArray[Any]:
    if ids.dtype.kind == "O":
        check_ids(ids.tolist(), name, "must hold")
    return ids


def _sessions(
    rows: Ints, who: NDArray[Any], time: Floats, gap: float | None, most: int | None
) -> tuple[Ints, Ints, NDArray[Any]]:
    """Rows, steps and whose they are, by time: a session ends with a pause longer than ``gap``.

    Entries with the same time keep their order. One without a time has no step, -1. With ``most``
    everybody gets so many rows: her first sessions, and empty ones where she has fewer.
    """
    order = np.lexsort((time, rows))
    of, at = rows[order], time[order]
    new = _new(of)
    if gap is not None:
        with np.errstate(invalid="ignore"):
            new[1:] |= (at[1:] - at[:-1] > gap) & np.isfinite(at[1:])
    session = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    position = np.arange(len(of)) - starts[session] if len(of) else np.zeros(0, dtype=np.int64)
    steps, found = np.empty_like(rows), np.empty_like(rows)
    if most is not None:
        first = np.zeros(len(who), dtype=np.int64)
        first[of[::-1]] = session[::-1]
        session = session - first[of]
        position = np.where(session < most, position, INVALID)
        session = of * most + np.minimum(session, most - 1)
    steps[order], found[order] = np.where(np.isfinite(at), position, INVALID), session
    if most is not None:
        return found, steps, np.repeat(who, most)
    return found, steps, who[of[new]]


def _agreed(codes: Ints | None, rows: Ints, n: int) -> Ints:
    """The version or component that all entries of a row agree on, else -1."""
    if codes is None:
        return np.full(n, INVALID, dtype=np.int64)
    low = np.full(n, np.iinfo(np.int64).max)
    high = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(low, rows, codes)
    np.maximum.at(high, rows, codes)
    return np.where(low == high, low, INVALID)


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
    """Entries of whole users; all of them at once, unless they are grouped by user."""
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
            # Somebody without an id is nobody: her rows are all of one person.
            table[log.user] = [user or "" for user in table[log.user]]
            for kind, option in _NAMED.items():
                if kind in log.columns and getattr(log, option) is None:
                    column = log.columns[kind]
                    table[column] = as_numbers(column, table[column])
            yield log.read(table)


def batches_of(path: Paths, log: LogFormat, batch: int, grouped: bool) -> Batches:
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
            _check_columns(file.schema_arrow.names, name, log, names)
            for groups in _row_groups(file.metadata, batch):
                read = {"row_groups": groups, "columns": names}
                for table in file.iter_batches(batch_size=batch, **read):
                    yield log.read(table, only)


def _check_columns(there: list[str], name: str, log: LogFormat, names: Iterable[str]) -> None:
    for kind, column in log.columns.items():
        if column in names and column not in there:
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


def whole_users(parts: Iterable[Entries]) -> Batches:
    """The same entries, of which those of a user are in one part; hardly any are copied."""
    held: list[Entries] = []
    for part in parts:
        user = part["user"]
        if not len(user):
            continue
        starts = np.flatnonzero(_new(user))
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
    """The same entries; refused where somebody's in one part do not come one after the other.

    Who comes where is public. Otherwise she would have many short episodes in place of hers.
    """
    for part in parts:
        user = part["user"]
        heads = user[_new(user)]
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
    path: Paths, log: LogFormat, batch: int, most: int, executor: Executor | None
) -> FiledBlock:
    """All episodes of sorted files as one block that nobody holds."""
    files = files_of(path)
    log = with_labels(log, files)
    pieces = [Piece(name, log, batch, most) for name in files]
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
        for part in whole_users(_entries([self.file], self.log, self.batch, names)):
            people = self._sorted(part["user"], ends[-1] if ends else None)
            ends = [ends[0] if ends else people[0], people[-1]]
            who = self.log.placed(part, True)[2]
            kept = self._kept(who)
            users += len(who) if kept is None else int(kept.sum())
        return users, ends

    def _sorted(self, user: Any, before: Any) -> Any:
        """The different users of a part, which come after one another and after ``before``."""
        people = _checked(self.log.user, user[_new(user)])
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
    reads. Raw data, mode 0700. A file must fit in memory, and all ids: ``files`` says how many
    there are.
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
        column = _column(table, "user", user)
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
