"""Logs as people have them: tables with names, texts, time stamps and gaps, as episodes.

What a log *is* (which columns, which vocabulary, how long an episode is) is said by a
:class:`LogFormat` and public. What it holds is people's, and never raises.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.columns import INVALID, as_codes, as_numbers, check_ids, one_column
from tacit.core.labels import Labels, checked_labels, code_of
from tacit.core.texts import hint
from tacit.core.typed_columns import (
    UNREADABLE,
    Floats,
    Ints,
    code_column,
    declared_labels,
    flag_column,
    number_values,
    people_column,
    time_column,
)
from tacit.privacy.arguments import checked_number, whole_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.episodes import Episodes

Entries: TypeAlias = dict[str, NDArray[Any]]
"""Columns of a log, one entry per step that somebody took, by what they mean."""

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
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        return {kind: name for kind, name in named.items() if kind in _READ and name is not None}

    def read(self, frame: Any, only: Container[str] | None = None) -> Entries:
        """The entries of a table, as arrays; only types and lengths are refused."""
        if not hasattr(frame, "__getitem__") and hasattr(frame, "__arrow_c_stream__"):
            from tacit.core.parquet import arrow

            frame = arrow().table(frame)
        named = {k: name for k, name in self.columns.items() if only is None or name in only}
        raw = {kind: _column(frame, kind, name) for kind, name in named.items()}
        states, actions = self.vocabulary("states", raw), self.vocabulary("actions", raw)
        log: Entries = {}
        for kind, column in raw.items():
            name = self.columns[kind]
            if kind in ("user", "episode"):
                log[kind] = people_column(name, column)
            elif kind in ("state", "next_state", "action"):
                labels, option = (actions, "actions") if kind == "action" else (states, "states")
                log[kind] = code_column(name, column, labels, option)
            elif kind == "time":
                log[kind] = time_column(name, column)
            elif kind == "terminal":
                log[kind] = flag_column(name, column)
            elif kind == "reward":
                numbers = as_numbers(name, number_values(name, column))
                log[kind] = self._rewards(one_column(name, numbers))
            else:
                log[kind] = one_column(name, as_codes(name, number_values(name, column)))
        of = next(kind for kind in ("time", "step", "user") if kind in log)
        for kind, array in log.items():
            if len(array) != len(log[of]):
                raise InvalidArgument(
                    f"{kind} has {len(array)} entries, but must have as many as {of}, "
                    f"{len(log[of])}"
                )
        return log

    def vocabulary(self, option: str, raw: dict[str, Any]) -> Labels:
        """The labels of states or actions, given or declared by the type of their column."""
        given: Any = getattr(self, option)
        if given != "schema" or option.removesuffix("s") not in raw:
            labels: Labels = None if given == "schema" else given
            return labels
        kind = option.removesuffix("s")
        return declared_labels(self.columns[kind], raw[kind], option)

    def _rewards(self, numbers: Floats) -> Floats:
        if self.missing_reward is None:
            return numbers
        return np.where(np.isnan(numbers), float(self.missing_reward), numbers)

    def episodes(self, log: Entries, grouped: bool = False) -> Episodes:
        """The episodes of entries; ``grouped`` if those of a user come one after the other."""
        from tacit.core.episodes import Episodes

        columns, who = self.columns_of(log, grouped)
        return Episodes(**columns, user_ids=who.tolist())

    def columns_of(self, log: Entries, grouped: bool) -> tuple[Entries, NDArray[Any]]:
        """The columns of episodes, a row for each, and whose they are."""
        rows, who = (_grouped_rows if grouped else _rows)(log["user"], log.get("episode"))
        steps: Ints
        if "time" in log:
            gap = None if self.gap is None else float(self.gap)  # type: ignore[arg-type]
            rows, steps, who = _sessions(rows, who, log["time"], gap, self.sessions)
        else:
            steps = log["step"]
        n = len(who)
        most = max(_MOST_CELLS, _MOST_EMPTY * len(steps))
        if n * self.horizon > most:
            raise InvalidArgument(
                f"horizon is {self.horizon!r}, but must be at most {most // max(1, n):,} for so "
                f"many episodes of {len(steps):,} entries: all of their steps must fit in memory"
            )
        ends, after = self._ends(log, rows, steps, n)
        # The loop needs the entries of a row one after the other; sessions may be mixed up.
        make = _compiled_tables if grouped and "time" not in log else _tables
        states, actions, rewards = make(log, rows, steps, ends, self.horizon)
        if after is not None:
            over = np.arange(self.horizon + 1) > ends[:, np.newaxis]
            states = np.where(over, after, states)
        columns: Entries = {"states": states, "actions": actions, "rewards": rewards}
        columns["versions"] = _agreed(log.get("version"), rows, n)
        if "component" in log:
            columns["components"] = _agreed(log["component"], rows, n)
        return columns, who

    def whose(self, log: Entries) -> NDArray[Any]:
        """Whose the episodes of grouped entries are, by the columns that tell."""
        rows, who = _grouped_rows(log["user"], log.get("episode"))
        if "time" not in log:
            return who
        gap = None if self.gap is None else float(self.gap)  # type: ignore[arg-type]
        return _sessions(rows, who, log["time"], gap, self.sessions)[2]

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


_READ = frozenset(
    [
        "user",
        "step",
        "state",
        "action",
        "reward",
        "next_state",
        "version",
        "episode",
        "component",
        "time",
        "terminal",
    ]
)


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
    near = hint(str(name), shown, cutoff=0.6)
    none = ", or next_state=None to take the state of the next step" * (kind == "next_state")
    return (
        f"{what} has no column {name!r}{near}; it has {', '.join(shown) or 'none'}: say which one "
        f"is meant, {kind}=...{none}"
    )


def _tables(
    log: Entries, rows: Ints, steps: Ints, ends: Ints, horizon: int
) -> tuple[Ints, Ints, Floats]:
    """States (n, H + 1), actions and rewards (n, H) of entries; what is not known is invalid."""
    n = len(ends)
    within = (steps >= 0) & (steps < horizon)
    within &= steps <= ends[rows]
    cell = rows[within] * horizon + steps[within]
    given = np.bincount(cell, minlength=n * horizon)
    once = given == 1
    within[within] = once[cell]
    at = (rows[within], steps[within])

    before = np.full((n, horizon + 1), INVALID, dtype=np.int64)
    after = np.full((n, horizon + 1), INVALID, dtype=np.int64)
    actions = np.full((n, horizon), INVALID, dtype=np.int64)
    rewards = np.full((n, horizon), np.nan)
    actions[(given > 1).reshape(n, horizon)] = UNREADABLE
    before[at] = log["state"][within]
    actions[at] = log["action"][within]
    rewards[at] = log["reward"][within]
    known = once.reshape(n, horizon)
    seen_before = np.pad(known, ((0, 0), (0, 1)))
    if "next_state" not in log:
        # The entry after the last step says what followed it.
        beyond = (steps == horizon) & (ends[rows] >= horizon)
        alone = np.bincount(rows[beyond], minlength=n) == 1
        beyond[beyond] = alone[rows[beyond]]
        before[rows[beyond], horizon] = log["state"][beyond]
        return before, actions, rewards
    # A state is seen by the entry before it and by the one after it; -1 says nothing.
    after[at[0], at[1] + 1] = log["next_state"][within]
    seen_after = np.pad(known, ((0, 0), (1, 0)))
    states = np.where(seen_before, before, after)
    states[seen_before & seen_after & (before != after)] = UNREADABLE
    return states, actions, rewards


def _compiled_tables(
    log: Entries, rows: Ints, steps: Ints, ends: Ints, horizon: int
) -> tuple[Ints, Ints, Floats]:
    """The same where the entries of a row are neighbours: faster, once the loop is compiled."""
    from tacit.core.log_loops import lay_out

    n = len(ends)
    states = np.empty((n, horizon + 1), dtype=np.int64)
    actions, rewards = np.empty((n, horizon), dtype=np.int64), np.empty((n, horizon))
    after = log.get("next_state", np.zeros(0, dtype=np.int64))
    what = (log["state"], log["action"], log["reward"], after)
    flat = [np.ascontiguousarray(array) for array in (rows, steps, ends, *what)]
    everything: tuple[Any, ...] = (*flat, INVALID, UNREADABLE, states, actions, rewards)
    lay_out(*everything)
    return states, actions, rewards


def _rows(user: NDArray[Any], episode: NDArray[Any] | None) -> tuple[Ints, NDArray[Any]]:
    """Which row each entry belongs to, and whose the rows are, in order of first occurrence."""
    people = _checked("user", user)
    keys: list[Any] = people
    if episode is not None:
        keys = list(zip(people, _checked("episode", episode), strict=True))
    places: dict[Any, int] = {}
    rows = np.fromiter(
        (places.setdefault(key, len(places)) for key in keys), dtype=np.int64, count=len(keys)
    )
    first = np.full(len(places), len(rows))
    np.minimum.at(first, rows, np.arange(len(rows)))
    return rows, user[first]


def _grouped_rows(user: NDArray[Any], episode: NDArray[Any] | None) -> tuple[Ints, NDArray[Any]]:
    """The same where the entries of a user, or of an episode of hers, are neighbours."""
    new = np.ones(len(user), dtype=bool)
    new[1:] = user[1:] != user[:-1]
    if episode is not None:
        new[1:] |= episode[1:] != episode[:-1]
    who = user[new]
    if who.dtype.kind == "O":
        _checked("user", who)
    return np.cumsum(new) - 1, who


def _checked(name: str, column: NDArray[Any]) -> list[int | str]:
    ids: list[int | str] = column.tolist()
    if column.dtype.kind == "O":
        check_ids(ids, name, "must hold")
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
    new = np.ones(len(of), dtype=bool)
    new[1:] = of[1:] != of[:-1]
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
