"""Logs as tables and files, an entry per step that a user took, made episodes of.

Columns, their types, vocabularies and the horizon are schema (:class:`LogFormat`): public, and
refused where they are wrong. Values are people's, and never raise.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import CorruptFile, InvalidArgument, MissingExtra, TacitError
from tacit.privacy.files import open_regular
from tacit.privacy.reading import (
    INVALID,
    UNKNOWN,
    UNREADABLE,
    Floats,
    Ints,
    Labels,
    as_codes,
    as_numbers,
    checked_labels,
    code_of,
    require_shape,
)
from tacit.privacy.statistic import Block, FiledBlock
from tacit.privacy.validation import check_bytes, fitting, whole_number

if TYPE_CHECKING:
    from tacit.data.episodes import Episodes

Entries: TypeAlias = dict[str, NDArray[Any]]
"""Columns of a log by their meaning, an entry per step of a user."""
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# What a column may mean; some are numbered by a vocabulary.
_READ = (
    *("user", "step", "state", "action", "reward", "next_state", "version", "episode"),
    *("component", "propensity", "time", "terminal"),
)
_LABELS = {"state": "states", "next_state": "states", "action": "actions"}


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """Names of a log's columns, its vocabularies, and what makes an episode.

    Attributes:
        horizon: steps of an episode; not found in the data, because shapes are public.
        user: name of the column of ids; as ``state``, ``action``, ``reward`` and ``step``, from 0.
        next_state: the state after the action; ``None`` to take that of the next step.
        version: which policy version was followed; -1 for an episode with different ones.
        episode: for users with several episodes, each of which gets a row of its own.
        component: which policy of a mixed one was drawn.
        propensity: with which probability the action was chosen.
        time: time stamps or numbers, in place of ``step``: steps are counted in their order.
        terminal: flags that an episode is over after this step.
        states: all names of states, in the order of their numbers.
        actions: the same of actions.
        end: with ``terminal``, the state in which an episode is over.
    """

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
    propensity: str | None = None
    time: str | None = None
    terminal: str | None = None
    states: Sequence[str] | None = None
    actions: Sequence[str] | None = None
    end: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", whole_number("horizon", self.horizon))
        for name in ("states", "actions"):
            object.__setattr__(self, name, checked_labels(name, getattr(self, name)))
        if (self.step is None) == (self.time is None):
            raise InvalidArgument("give step or time, and not both: steps are counted by time")
        if self.end is not None and self.terminal is None:
            raise InvalidArgument("end needs terminal: the state in which an episode is over")
        if isinstance(self.end, str):
            object.__setattr__(
                self, "end", code_of("end", self.end, checked_labels("states", self.states))
            )

    @property
    def columns(self) -> dict[str, str]:
        """The names of the columns that it has, by what they mean."""
        return {kind: name for kind in _READ if (name := getattr(self, kind)) is not None}

    def read(self, table: Any, only: Container[str] | None = None) -> Entries:
        """The entries of a table, of all columns or of those with some meanings."""
        table = table.collect() if hasattr(table, "collect") else table  # a lazy frame
        if not hasattr(table, "__getitem__") and hasattr(table, "__arrow_c_stream__"):
            table = arrow().table(table)
        log: Entries = {}
        for kind, name in self.columns.items():
            if only is None or kind in only:
                labels = getattr(self, _LABELS.get(kind, ""), None)
                log[kind] = _read_column(kind, name, _column_of(table, kind, name), labels)
                require_shape(name, log[kind], log["user"].shape[:1])
        return log

    def episodes(self, log: Entries, starts: Ints | None = None) -> Episodes:
        """The episodes of entries, a row each; see :meth:`columns_of`."""
        from tacit.data.episodes import Episodes

        columns, who = self.columns_of(log, starts)
        made = Episodes(**columns, user_ids=who.tolist())
        if "time" in log:  # of two entries for a step validate tells anyway
            rows = _rows(log["user"], log.get("episode"), starts)[0]
            order = np.lexsort((log["time"], rows))
            shown = (rows, log["time"], log["state"], log["action"])
            equal = [column[order][1:] == column[order][:-1] for column in shown]
            object.__setattr__(made, "repeated", int(np.logical_and.reduce(equal).sum()))
        return made

    def columns_of(self, log: Entries, starts: Ints | None) -> tuple[Entries, NDArray[Any]]:
        """The columns of episodes, a row for each, and whose they are.

        Where the entries of a user come one after the other, ``starts`` are the first of each.
        """
        rows, steps, who = self.placed(log, starts)
        n = len(who)
        check_bytes("episodes", (n, self.horizon + 1, 3))
        ends = np.full(n, self.horizon, dtype=np.int64)
        if "terminal" in log:
            told = log["terminal"] & (steps >= 0)
            np.minimum.at(ends, rows[told], steps[told])
        columns = _tables(log, rows, steps, ends, self.horizon)
        if self.end is not None:
            over = np.arange(self.horizon + 1) > ends[:, np.newaxis]
            columns["states"] = np.where(over, int(self.end), columns["states"])
        columns["versions"] = _agreed(log.get("version"), rows, n)
        if "component" in log:
            columns["components"] = _agreed(log["component"], rows, n)
        return columns, who

    def placed(self, log: Entries, starts: Ints | None) -> tuple[Ints, Ints, NDArray[Any]]:
        """The row and the step of each entry, and whose the rows are.

        By time steps are counted in its order, of equal ones in the table's; without one it is -1.
        """
        rows, who = _rows(log["user"], log.get("episode"), starts)
        if "time" not in log:
            return rows, log.get("step", rows), who
        order = np.lexsort((log["time"], rows))
        first, steps = _starts(rows[order]), np.empty_like(rows)
        steps[order] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
        return rows, np.where(np.isfinite(log["time"]), steps, INVALID), who

    def file_episodes(self, path: Paths, batch: int, grouped: bool) -> Iterator[Episodes]:
        """The episodes of files, about ``batch`` entries at a time if they are grouped by user."""
        entries = _entries(files_of(path), self, whole_number("batch", batch))
        if grouped:
            return itertools.starmap(self.episodes, whole_users(entries))
        return (self.episodes(joined(whole)) for whole in map(list, [entries]) if whole)

    def block(self, path: Paths, batch: int, executor: Executor | None) -> FiledBlock:
        """The users of sorted files as one block, an episode of each, never held as a whole."""
        if self.episode is not None:
            raise InvalidArgument("a block of files has one episode of a user: leave out episode")
        files, size = files_of(path), whole_number("batch", batch)
        # Ids and their order are public: mistakes in them are told before users pay.
        made = (map if executor is None else executor.map)(partial(_count, self, size), files)
        users, last = 0, list[Any]()
        for name, (count, ends) in zip(files, made, strict=True):
            if ends and last and not last[-1] < ends[0]:
                raise InvalidArgument(f"{name!r} does not begin after the last user before it")
            users, last = users + count, ends or last
        return FiledBlock(
            users, [partial(_blocks, self, size, name) for name in files], 1, executor
        )


def format_of(spec: Any, given: Mapping[str, Any]) -> LogFormat:
    """Format with these options; horizon and vocabularies are those of a spec, if there is one."""
    made = {k: value for k, value in given.items() if value is not None or k == "next_state"}
    if unknown := sorted(set(made) - {item.name for item in fields(LogFormat)}):
        raise InvalidArgument(f"a log has no {', '.join(unknown)}")
    if "time" in made:
        made.setdefault("step", None)
    if spec is not None:
        known = {f"{k}s": getattr(spec, f"{k}_labels", None) for k in ("state", "action")}
        for name, value in ({"horizon": spec.horizon} | known).items():
            if name in made and value is not None:
                raise InvalidArgument(f"{name} is given twice: the spec says it already")
            made.setdefault(name, value)
    if "horizon" not in made:
        raise InvalidArgument("horizon is missing: give it, or a spec that has one")
    return LogFormat(**made)


def _tables(log: Entries, rows: Ints, steps: Ints, ends: Ints, horizon: int) -> Entries:
    """States (n, H + 1), actions, rewards, propensities (n, H); what is not known is invalid."""
    shape, size = (len(ends), horizon), len(ends) * horizon
    cells, once, twice = rows * horizon + steps, steps >= 0, np.zeros(0, dtype=np.int64)
    # Where every step is there, once and in order, columns are tables already.
    whole = len(steps) == size > 0 and "terminal" not in log and bool(once.all())
    whole = whole and steps.max() < horizon and np.array_equal(cells, np.arange(size))
    known = np.ones(shape, dtype=bool)
    if not whole:
        once &= (steps < horizon) & (steps <= ends[rows])
        given = np.bincount(cells[once], minlength=size)
        once[once] = given[cells[once]] == 1
        cells, known, twice = cells[once], (given == 1).reshape(shape), np.flatnonzero(given > 1)

    def laid_out(kind: str, default: float) -> NDArray[Any]:
        if whole:
            return log[kind].reshape(shape)
        table = np.full(shape, default, dtype=log[kind].dtype)
        table.ravel()[cells] = log[kind][once]
        return table

    before, actions = laid_out("state", INVALID), laid_out("action", INVALID)
    columns: Entries = {"actions": actions, "rewards": laid_out("reward", np.nan)}
    if "propensity" in log:
        columns["propensities"] = laid_out("propensity", np.nan)
    if len(twice):
        actions.ravel()[twice] = UNREADABLE
    states = np.full((len(ends), horizon + 1), INVALID, dtype=np.int64)
    if "next_state" not in log:
        states[:, :-1] = before
        # The entry after the last step says what followed it.
        beyond = (steps == horizon) & (ends[rows] >= horizon)
        alone = np.bincount(rows[beyond], minlength=len(ends)) == 1
        beyond[beyond] = alone[rows[beyond]]
        states[rows[beyond], horizon] = log["state"][beyond]
        return columns | {"states": states}
    # A state is seen by the entry before it and by the one after it; -1 says nothing.
    states[:, 1:] = after = laid_out("next_state", INVALID)
    np.copyto(states[:, :-1], before, where=known)
    clash = known[:, 1:] & known[:, :-1] & (before[:, 1:] != after[:, :-1])
    states[:, 1:-1][clash] = UNREADABLE
    return columns | {"states": states}


def _rows(
    user: NDArray[Any], episode: NDArray[Any] | None, starts: Ints | None
) -> tuple[Ints, NDArray[Any]]:
    """Which row each entry belongs to, and whose the rows are, in order of first occurrence."""
    if starts is not None:
        if episode is not None:
            starts = np.union1d(starts, _starts(episode))
        rows = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(user)))
        return rows, user[starts]
    keys: Iterable[Any] = user.tolist()
    if episode is not None:
        keys = zip(keys, episode.tolist(), strict=True)
    places: dict[Any, int] = {}
    rows = np.fromiter((places.setdefault(key, len(places)) for key in keys), np.int64)
    return rows, user[np.unique(rows, return_index=True)[1]]


def _starts(column: NDArray[Any]) -> Ints:
    """Places of the entries that differ from the one before."""
    new = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=new[1:], casting="unsafe")
    return np.flatnonzero(new)


def _agreed(codes: Ints | None, rows: Ints, n: int) -> Ints:
    """The version or component that all entries of a row agree on, else -1."""
    if codes is None:
        return np.full(n, INVALID, dtype=np.int64)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(low, rows, codes)
    np.maximum.at(high, rows, codes)
    return np.where(low == high, low, INVALID)


# Columns: lists, NumPy, pandas, Polars or Arrow.


def arrow() -> Any:
    """Arrow, with what reads Parquet."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("this needs Arrow: pip install 'tacit[logs]'") from error
    return pyarrow


def _column_of(table: Any, kind: str, name: str) -> Any:
    """Column of a table, or an error that says which ones it has."""
    try:
        return table[name]
    except Exception as error:  # Polars has errors of its own
        names = table if isinstance(table, Mapping) else getattr(table, "columns", ())
        names = getattr(getattr(table, "schema", None), "names", names)
        shown = ", ".join(str(found) for found in itertools.islice(names, 20)) or "none"
        none = ", or next_state=None to take the state of the next step" * (kind == "next_state")
        raise InvalidArgument(
            f"the frame has no column {name!r}; it has {shown}: give {kind}=...{none}"
        ) from error


def _typed(name: str, column: Any) -> tuple[str, Any]:
    """Kind of a column by its type, "number", "text", "time" or "other", and its values.

    Lists, and arrays of objects, have no type, "": there the type of an entry is its user's.
    """
    if isinstance(column, (list, tuple)):
        return "", fitting(name, column)
    if not isinstance(getattr(column, "dtype", np.dtype(int)), np.dtype):  # pandas' own, Polars
        column = column.to_arrow() if hasattr(column, "to_arrow") else arrow().array(column)
    if hasattr(column, "type"):
        types = arrow().types
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if "string" in str(column.type):
            return "text", column
        array = np.asarray(column)
        if types.is_nested(column.type) or types.is_time(column.type):
            return "other", array
    else:
        array = np.atleast_1d(np.asarray(column))
        if array.dtype.kind == "O":
            return "", array.tolist()
    forms = dict.fromkeys("biufO", "number") | dict.fromkeys("UST", "text") | {"M": "time"}
    return forms.get(array.dtype.kind, "other"), array


def _read_column(kind: str, name: str, column: Any, labels: Labels) -> NDArray[Any]:
    """The entries of a column, by what it means; refused by its type alone."""
    form, values = _typed(name, column)
    if kind in ("user", "episode"):
        return _ids(name, values)
    allowed, must = {"", "number"}, "numbers"
    if kind == "time":
        allowed, must = {"", "number", "time"}, "time stamps or numbers"
    elif labels is not None:
        allowed, must = {"", "text"}, f"text, since {_LABELS[kind]} have names"
    elif kind in _LABELS:
        must = f"numbers, unless you say which {_LABELS[kind]} there are, {_LABELS[kind]}=[...]"
        # One odd entry is somebody's; a list that holds nothing but texts is one of texts.
        held = [] if form else [entry for entry in values if entry is not None]
        form = "text" if held and all(isinstance(entry, str) for entry in held) else form
    if form not in allowed:
        words = getattr(column, "type", getattr(column, "dtype", "a list of texts"))
        raise InvalidArgument(f"the column {name!r} is {words} by its type, but must be {must}")
    if labels is not None:
        return _labelled(values, labels)
    if kind == "terminal" and not form:
        values = [str(entry).strip().lower() in ("true", "yes", "1", "1.0") for entry in values]
    if kind == "time":
        return _seconds(name, values)
    if kind in ("reward", "propensity", "terminal"):
        numbers = as_numbers(name, values)
        return numbers > 0.0 if kind == "terminal" else numbers
    codes = as_codes(name, values)
    bad = kind in _LABELS and codes.min(initial=0) < 0
    return np.where(codes < 0, UNREADABLE, codes) if bad else codes


def _ids(name: str, values: Any) -> NDArray[Any]:
    """Ids as integers, or as objects: an array of text and integers would be all text."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values
    listed = values if isinstance(values, (list, tuple)) else np.asarray(values).tolist()
    for kind in {*map(type, listed)}:
        if kind is bool or not issubclass(kind, (int, str, np.integer)):
            raise InvalidArgument(f"{name} holds a {kind.__name__}, but must hold integers or text")
    return np.array([*listed, None], dtype=object)[:-1]


def _labelled(values: Any, labels: Sequence[str]) -> Ints:
    """The numbers of labels."""
    if hasattr(values, "type"):
        pa, pc = arrow(), arrow().compute
        values = values.cast(pa.large_string())
        found = pc.index_in(values, value_set=pa.array(labels, type=values.type))
        found = pc.if_else(pc.is_null(values), UNREADABLE, pc.fill_null(found, UNKNOWN))
        return np.asarray(found).astype(np.int64)
    places = {label: code for code, label in enumerate(labels)}
    coded = (places.get(x, UNKNOWN) if isinstance(x, str) else UNREADABLE for x in values)
    return np.fromiter(coded, np.int64, count=len(values))


def _seconds(name: str, values: Any) -> Floats:
    """When entries were made: time stamps in seconds, numbers as they are; inf where unknown."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        stamps = values.astype("datetime64[us]")
        return np.where(np.isnat(stamps), np.inf, stamps.astype(np.int64) / 1e6)

    def one(entry: Any) -> Any:
        """A time stamp in UTC unless it names a zone; anything else as it is."""
        with contextlib.suppress(Exception):
            at = datetime.datetime.fromisoformat(entry) if isinstance(entry, str) else entry
            return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
        return entry

    numbers = as_numbers(name, [*map(one, values)] if isinstance(values, (list, tuple)) else values)
    return np.where(np.isfinite(numbers), numbers, np.inf)


def files_of(path: Paths) -> list[str]:
    """The files that are meant; of a folder those of Parquet, in the order of their names."""
    found: list[Path] = []
    for one in map(Path, [path] if isinstance(path, (str, os.PathLike)) else path):
        found += sorted(one.rglob("*.parquet")) if one.is_dir() else [one]
    for one in found:
        os.close(open_regular(one))  # a FIFO would be waited for
    if not found:
        raise InvalidArgument(f"there is no .parquet file in {path!r}")
    return [*map(os.fspath, found)]


def _entries(
    files: Iterable[str], log: LogFormat, batch: int, only: Container[str] | None = None
) -> Iterator[Entries]:
    """Entries of files, at most a batch at a time; what Arrow finds damaged is a CorruptFile."""
    wanted = {name for kind, name in log.columns.items() if only is None or kind in only}
    for name in files:
        if name.lower().endswith(".csv"):
            yield from _csv_entries(name, log, batch)
            continue
        pa = arrow()
        try:
            with pa.parquet.ParquetFile(name) as file:
                # One that is missing is refused by whoever reads all of them.
                columns = sorted(wanted) if wanted <= set(file.schema_arrow.names) else None
                # One iterator over all groups would keep more and more memory.
                for group in range(file.num_row_groups):
                    read = {"row_groups": [group], "columns": columns}
                    for table in file.iter_batches(batch_size=batch, **read):
                        yield log.read(table, only)
        except (pa.ArrowException, OSError) as error:
            # Errors of a disk have a number; Arrow's own have none.
            if isinstance(error, TacitError) or getattr(error, "errno", None) is not None:
                raise
            raise CorruptFile(f"{name!r} is no Parquet file, or a damaged one") from None


def _csv_entries(name: str, log: LogFormat, batch: int) -> Iterator[Entries]:
    """The rows of one file, texts of which numbers are made; an empty field is a missing value."""
    with open(open_regular(name), encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        while rows := list(itertools.islice(reader, batch)):
            table: dict[str, Any] = {}
            for column, *texts in itertools.zip_longest(header, *filter(None, rows), fillvalue=""):
                table.setdefault(column, [text or None for text in texts])
            # Rows without an id are all of one person.
            table[log.user] = [user or "" for user in _column_of(table, "user", log.user)]
            for kind, column in log.columns.items():
                if kind in _LABELS and getattr(log, _LABELS[kind]) is None and column in table:
                    table[column] = as_numbers(column, table[column])
            yield log.read(table)


def whole_users(parts: Iterable[Entries]) -> Iterator[tuple[Entries, Ints]]:
    """Entries of whole users, who come in order, with the first entry of each.

    Sorted means that no user is in two places, and so none counts twice.
    """
    held, before = list[Entries](), None
    for part in parts:
        user = part["user"]
        if not len(user):
            continue
        starts = _starts(user)
        people = user[starts]
        goes_on = bool(held) and people[0] == before
        if not (np.all(people[1:] > people[:-1]) and (not held or goes_on or before < people[0])):
            raise InvalidArgument(
                "entries are not sorted by user, over all files: sort them, or let from_parquet "
                "read all at once (grouped=False)"
            )
        first, last, before = int(goes_on), len(starts) - 1, people[-1]
        if held:
            # Those of the user who waits come first, if there are more of hers.
            held.append(_some(part, 0, int(np.append(starts, len(user))[first])))
            if first > last:
                continue
            yield joined(held), np.zeros(1, dtype=np.int64)
        begin, end = int(starts[first]), int(starts[last])
        if end > begin:
            yield _some(part, begin, end), starts[first:last] - begin
        # The last one may go on in the next part. Copies: a view would keep the whole part.
        held = [{n: c.copy() for n, c in _some(part, end, len(user)).items()}]
    if held:
        yield joined(held), np.zeros(1, dtype=np.int64)


def _some(part: Entries, start: int, stop: int) -> Entries:
    return {name: column[start:stop] for name, column in part.items()}


def joined(parts: list[Entries]) -> Entries:
    """Entries one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _blocks(log: LogFormat, batch: int, name: str) -> Iterator[Block]:
    """The users of a sorted file, some at a time."""
    for part, starts in whole_users(_entries([name], log, batch)):
        yield Block(len(starts), log.columns_of(part, starts)[0])


def _count(log: LogFormat, batch: int, name: str) -> tuple[int, list[Any]]:
    """How many users a sorted file has, and the first and the last of them."""
    users, ends = 0, list[Any]()
    for part, starts in whole_users(_entries([name], log, batch, ("user",))):
        users, ends = users + len(starts), [(ends or part["user"])[0], part["user"][-1]]
    return users, ends
