"""Logs as tables: names, texts, time stamps and gaps, as episodes.

A :class:`LogFormat` says which columns and vocabularies a log has and how long an episode is; that
is public. Its values are people's, and never raise.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.reading import (
    INVALID,
    UNKNOWN,
    UNREADABLE,
    Floats,
    Ints,
    Labels,
    as_codes,
    as_numbers,
    check_ids,
    checked_labels,
    code_of,
    one_column,
)
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.validation import checked_number, fitting, whole_number

if TYPE_CHECKING:
    from tacit.data.episodes import Episodes

Entries: TypeAlias = dict[str, NDArray[Any]]
"""Columns of a log, one entry per step of a user, by their meaning."""


# What a column may mean; some are numbered by a vocabulary.
_READ = (
    *("user", "step", "state", "action", "reward", "next_state", "version", "episode"),
    *("component", "time", "terminal"),
)
NUMBERED = {"state": "states", "next_state": "states", "action": "actions"}

# Steps of all users together, of which so many for each entry of a log may be empty: a horizon far
# beyond the data is a slip, and must not fill the memory of the machine.
_MOST_CELLS, _MOST_EMPTY = 1 << 24, 64


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
        raw = {kind: _plain(column_of(frame, kind, name)) for kind, name in named.items()}
        labels = {option: self._vocabulary(option, raw) for option in ("states", "actions")}
        log: Entries = {}
        for kind, column in raw.items():
            name = named[kind]
            if kind in ("user", "episode"):
                log[kind] = _people_column(name, column)
            elif kind in NUMBERED:
                log[kind] = _code_column(name, column, labels[NUMBERED[kind]], NUMBERED[kind])
            elif kind == "time":
                log[kind] = _time_column(name, column)
            elif kind == "terminal":
                log[kind] = _flag_column(name, column)
            else:
                made: Any = as_numbers if kind == "reward" else as_codes
                log[kind] = one_column(name, made(name, _number_values(name, column)))
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
        return _declared_labels(self.columns[kind], raw[kind], option) if kind in raw else None

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


def format_of(spec: Any, given: Mapping[str, Any]) -> LogFormat:
    """Format with these options; horizon and vocabularies may be those of a spec."""
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
    return LogFormat(**made)


def column_of(frame: Any, kind: str, name: str) -> Any:
    """Column of a table, or an error that says which ones it has."""
    try:
        return frame[name]
    except Exception as error:  # Polars has errors of its own
        raise InvalidArgument(_missing(frame, kind, name)) from error


def _missing(frame: Any, kind: str, name: str) -> str:
    """Error text for a column that is not there; the names of columns are schema."""
    if isinstance(frame, (str, os.PathLike)):
        return "a frame is a table: read files by Episodes.from_parquet"
    if hasattr(frame, "collect"):
        return "a lazy frame has no entries yet: collect() it first"
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is None:
        of = getattr(getattr(frame, "dtype", None), "names", None)
        names = frame.keys() if hasattr(frame, "keys") else of
    if names is None:
        return f"a {type(frame).__name__} has no columns by name, as {name!r}: make a frame of it"
    return missing_column("the table", (kind, name), names)


def missing_column(what: str, wanted: tuple[str, str], names: Iterable[Any]) -> str:
    """Error text: a table has no such column, which ones it has, and how to say which is meant."""
    kind, name = wanted
    shown = [str(found) for found in names][:20]
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
        new = is_new(user)
        if episode is not None:
            new |= is_new(episode)
        return np.cumsum(new) - 1, checked_people("user", user[new])
    keys: Iterable[Any] = checked_people("user", user).tolist()
    if episode is not None:
        keys = zip(keys, checked_people("episode", episode).tolist(), strict=True)
    places: dict[Any, int] = {}
    rows = np.fromiter((places.setdefault(key, len(places)) for key in keys), np.int64)
    return rows, user[np.unique(rows, return_index=True)[1]]


def is_new(user: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries differ from the one before."""
    return np.append(np.ones(len(user[:1]), dtype=bool), user[1:] != user[:-1])


def checked_people(name: str, ids: NDArray[Any]) -> NDArray[Any]:
    """Ids that are integers or texts."""
    if ids.dtype.kind == "O":
        check_ids(ids.tolist(), name, "must hold")
    return ids


def _sessions(
    rows: Ints, who: NDArray[Any], time: Floats, gap: float | None, most: int | None
) -> tuple[Ints, Ints, NDArray[Any]]:
    """Rows, steps and whose they are, by time: a session ends with a pause longer than ``gap``.

    Entries with the same time keep their order. One without a time has no step, -1. With ``most``
    each user gets so many rows: her first sessions, and empty ones where she has fewer.
    """
    order = np.lexsort((time, rows))
    of, at = rows[order], time[order]
    new = is_new(of)
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


# Columns: lists, NumPy, pandas, Polars or Arrow.

_KINDS = {"O": "text", "U": "text", "S": "text", "T": "text", "M": "time", "m": "time"}
_ARROW = {"text": r"(large_)?string|dictionary", "time": r"timestamp|date|time|duration"}


def arrow() -> Any:
    """Arrow, with what reads Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("this needs Arrow: pip install 'tacit[logs]'") from error
    return pa


def _plain(column: Any) -> Any:
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


def _kind_of(column: Any) -> str:
    """One of "number", "text", "time", or "untyped" where a plain column has no type.

    >>> _kind_of(np.zeros(2)), _kind_of(["a"]), _kind_of(np.array(["a"]))
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


def _number_values(name: str, column: Any) -> Any:
    """The values of a column that has to be numbers; one that is text by its type is refused.

    Where a type says nothing, as pandas' ``object``, an entry that is no number is a missing one.
    """
    if _kind_of(column) == "text" and getattr(column, "dtype", None) != np.dtype(object):
        raise _refused(name, column, "text", ", but must be numbers: make numbers of it")
    return np.asarray(column) if hasattr(column, "type") else column


def _code_column(name: str, column: Any, labels: Labels, option: str) -> Ints:
    """States or actions as numbers, by their labels if there are any."""
    kind = _kind_of(column)
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
        codes = one_column(name, as_codes(name, _number_values(name, column)))
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


def _declared_labels(name: str, column: Any, option: str) -> Labels:
    """The vocabulary that a column's type declares: categories, an enum, an Arrow dictionary."""
    if "dictionary" in str(getattr(column, "type", "")):
        found = [chunk.dictionary for chunk in getattr(column, "chunks", [column])]
        if found and all(one.equals(found[0]) for one in found):
            return checked_labels(option, found[0].to_pylist())
    words = getattr(column, "type", getattr(column, "dtype", "a list"))
    raise InvalidArgument(
        f"the type of the column {name!r} ({words}) declares no {option}: give {option}=[...]"
    )


def _people_column(name: str, column: Any) -> NDArray[Any]:
    """Ids, integers or texts, each as it is: an array of integers, or of objects."""
    if not isinstance(fitting(name, column), (list, tuple)):
        column = one_column(name, np.asarray(column))
        if column.dtype.kind in "iu":
            return column  # type: ignore[no-any-return]
        column = column.tolist()
    # An array of text and integers would be all text, and "7" the same as 7.
    return np.array([*column, None], dtype=object)[:-1]


def _time_column(name: str, column: Any) -> Floats:
    """When entries were made: time stamps in seconds, numbers as they are; inf where unknown."""
    kind, way = _kind_of(column), ": make time stamps or numbers of it"
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
    numbers = one_column(name, as_numbers(name, _number_values(name, column)))
    return np.where(np.isfinite(numbers), numbers, np.inf)


def _seconds(entry: Any) -> Any:
    """A time stamp in seconds, in UTC unless it names a zone; anything else as it is."""
    with contextlib.suppress(Exception):
        at = datetime.datetime.fromisoformat(entry) if isinstance(entry, str) else entry
        if isinstance(at, datetime.datetime):
            return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    return entry


def _flag_column(name: str, column: Any) -> NDArray[np.bool_]:
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
