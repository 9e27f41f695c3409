"""Who comes in: a row of the database for each, on disk before her device is answered.

Devices that come at the same time share one transaction, so a flush of the disk serves all of them.
What an episode holds decides nothing here: it is packed into as many bytes as any other, and what
is no state, action or reward is packed as something that is visibly none.
"""

from __future__ import annotations

import math
import queue
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.columns import INVALID
from tacit.data.episodes import Episodes
from tacit.service.store import Change, Store, hashed, read_ticket

_MOST = 512
"""Devices that share a transaction, at most: a statement may have a thousand values."""


class Form:
    """How the users of an app are packed: all of them into equally many bytes.

    Args:
        horizon: steps of an episode.
        states: how many there are, and the names of them.
        actions: the same of actions.
        size: of a local report, in numbers; 0 where episodes come.
        drawn: whether an episode must say which component of a mixed policy it followed.
    """

    def __init__(
        self,
        horizon: int,
        states: tuple[int, Sequence[str] | None],
        actions: tuple[int, Sequence[str] | None],
        size: int = 0,
        drawn: bool = False,
    ) -> None:
        self.horizon, self.size, self._drawn = horizon, size, drawn
        self._codes = [_codes(*states), _codes(*actions)]
        self._struct = struct.Struct(f"<{2 * horizon + 2}i{horizon}d")

    def fits(self, body: Mapping[str, Any], size: int) -> str:
        """What is wrong with the shape of an episode, or of a report that has so many numbers.

        Lengths and types are public.
        """
        lengths = {"states": self.horizon + 1, "actions": self.horizon, "rewards": self.horizon}
        for name, length in ({"report": size} if self.size else lengths).items():
            found = body.get(name)
            if not isinstance(found, list) or len(found) != length:
                return f"{name} must be a list of {length}"
        if self._drawn and type(body.get("component")) is not int:
            return "component must be a whole number: policies are mixed, and one was drawn"
        return ""

    def pack(self, body: Mapping[str, Any]) -> bytes:
        """One user's data. Values never raise."""
        if self.size:
            return struct.pack(f"<{len(body['report'])}d", *map(_number, body["report"]))
        states, actions = self._codes
        component = body.get("component")
        drawn = component if type(component) is int and 0 <= component < 2**31 else INVALID
        return self._struct.pack(
            *(_code(states, value) for value in body["states"]),
            *(_code(actions, value) for value in body["actions"]),
            drawn,
            *map(_number, body["rewards"]),
        )

    def episodes(
        self, rows: Sequence[bytes], versions: Sequence[int], names: list[str]
    ) -> Episodes:
        """The episodes of a block."""
        h = self.horizon
        kind = np.dtype([("codes", "<i4", 2 * h + 2), ("rewards", "<f8", h)])
        table = np.frombuffer(b"".join(rows), dtype=kind)
        codes = table["codes"].astype(np.int64)
        return Episodes(
            states=codes[:, : h + 1],
            actions=codes[:, h + 1 : -1],
            rewards=table["rewards"].copy(),
            versions=list(versions),
            user_ids=names,
            components=codes[:, -1] if self._drawn else None,
        )

    def reports(self, rows: Sequence[bytes]) -> np.ndarray[Any, Any]:
        """The reports of a block."""
        return np.frombuffer(b"".join(rows), dtype="<f8").reshape(len(rows), self.size)


def _codes(count: int, names: Sequence[str] | None) -> dict[Any, int]:
    numbered: dict[Any, int] = {number: number for number in range(count)}
    return numbered | {name: number for number, name in enumerate(names or ())}


def _code(codes: Mapping[Any, int], value: Any) -> int:
    # 1.0 and True are equal to 1, and are no states.
    return codes.get(value, INVALID) if type(value) in (int, str) else INVALID


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


@dataclass(frozen=True)
class Arrival:
    """A device with its episode."""

    person: str  # a hashed name
    event: str  # a hashed id
    version: int
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What a device is told: the class of a receipt, and the block where there is one."""

    status: str
    block: int = -1
    version: int = -1

    @property
    def accepted(self) -> bool:
        """Whether she has a place in a block."""
        return self.status in ("waiting", "counted")


@dataclass(frozen=True)
class Rules:
    """What decides who is taken, besides what the database says. All of it is public."""

    masked: bool  # whether only users of the version that serves teach anything
    exact: bool  # whether a block has exactly as many users as it was planned for
    episodes: int  # of one user, at most


def decide(change: Change, rules: Rules, arrivals: Sequence[Arrival]) -> list[Answer]:
    """Takes those who can be taken; all of them are answered, in their order."""
    serving = change.serving
    known, often = _known(change, arrivals), _often(change, arrivals)
    answers, taken, waiting = list[Answer](), list[Arrival](), int(serving["waiting"])
    version, block = serving["version"], serving["block"]
    for arrival in arrivals:
        times, last = often.get(arrival.person, (0, -1))
        if arrival.event in known:
            answer = known[arrival.event]
        elif serving["stopped"]:
            answer = Answer("stopped")
        elif not 0 <= arrival.version <= serving["newest"]:
            answer = Answer("unknown")
        elif rules.masked and (arrival.version != version or not serving["accepts"]):
            answer = Answer("retired", version=version)
        elif waiting >= serving["people_left"] or serving["room"] == 0:
            answer = Answer("ended", version=version)
        elif rules.exact and waiting >= serving["room"]:
            answer = Answer("retired", version=version)
        elif times >= rules.episodes or last >= block:
            answer = Answer("refused", version=version)
        else:
            answer = Answer("waiting", block, arrival.version)
            taken.append(arrival)
            waiting += 1
            known[arrival.event], often[arrival.person] = answer, (times + 1, block)
        answers.append(answer)
    if taken:
        change.many(
            "INSERT INTO episodes (event, person, block, version, state, body) "
            "VALUES (?, ?, ?, ?, 'waiting', ?)",
            [(a.event, a.person, block, a.version, a.body) for a in taken],
        )
        change.ask("UPDATE serving SET waiting = ?", (waiting,))
    return answers


def _known(change: Change, arrivals: Sequence[Arrival]) -> dict[str, Answer]:
    """Events that came before, and what was answered: it is answered again."""
    marks = ", ".join("?" * len(arrivals))
    rows = change.ask(
        f"SELECT event, state, block, version FROM episodes WHERE event IN ({marks})",  # noqa: S608
        [arrival.event for arrival in arrivals],
    )
    return {event: Answer(state, block, version) for event, state, block, version in rows}


def _often(change: Change, arrivals: Sequence[Arrival]) -> dict[str, tuple[int, int]]:
    """How often people came, and in which block last."""
    marks = ", ".join("?" * len(arrivals))
    rows = change.ask(
        "SELECT person, COUNT(*), MAX(block) FROM episodes "  # noqa: S608
        f"WHERE person IN ({marks}) GROUP BY person",
        [arrival.person for arrival in arrivals],
    )
    return {person: (int(count), int(last)) for person, count, last in rows}


Told = Callable[[Answer | None], None]


class Intake:
    """A thread that takes devices in, as many in a transaction as came by then."""

    def __init__(self, store: Store, rules: Rules, taken: Callable[[], None]) -> None:
        self._store, self._rules, self._taken = store, rules, taken
        self._queue: queue.Queue[tuple[Arrival, Told] | None] = queue.Queue(maxsize=8 * _MOST)
        self._thread = threading.Thread(target=self._run, name="tacit-intake", daemon=True)
        self._thread.start()

    def put(self, arrival: Arrival, told: Told) -> bool:
        """Queues a device; ``told`` is called with its answer, or ``None`` if that is not known.

        Whether there was room: a service that is behind says so at once.
        """
        try:
            self._queue.put_nowait((arrival, told))
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Answers those who are here, and ends."""
        self._queue.put(None)
        self._thread.join(timeout=30.0)

    def _run(self) -> None:
        going = True
        while going:
            batch = [self._queue.get()]
            while len(batch) < _MOST and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            going = None not in batch
            self._take([item for item in batch if item is not None])
        self._store.close()

    def _take(self, batch: list[tuple[Arrival, Told]]) -> None:
        if not batch:
            return
        answers: Sequence[Answer | None] = [None] * len(batch)
        try:
            with self._store.change() as change:
                answers = decide(change, self._rules, [arrival for arrival, _ in batch])
        except Exception:
            # Perhaps it is in, perhaps not: whoever sends it again is told. This thread goes on
            # whatever it was: nobody else takes users in.
            answers = [None] * len(batch)
        for (_, told), answer in zip(batch, answers, strict=True):
            told(answer)
        self._taken()


def arrival(
    serving: Mapping[str, Any], form: Form, body: Mapping[str, Any], window: int, now: float
) -> Arrival | str:
    """A device's request as a row, or what is wrong with it: public mistakes alone."""
    secret = serving["secret"]
    person = hashed(secret, "person", body["user"])
    event = hashed(secret, "event", body["user"], body["event"])
    version = body["version"]
    if window:
        said = read_ticket(secret, body.get("ticket") or "")
        if said is None or said[0] != version:
            return "unknown"
        # A clock that was set back makes nobody late.
        if now - said[1] > window:
            return "late"
    return Arrival(person, event, version, form.pack(body))


def forget(store: Store, user: str) -> dict[str, int]:
    """Erases what waits of a user; how much that was, and what cannot be taken back.

    Of each event a row stays, without her name and in no block: sent again, it is not taken.
    """
    with store.change() as change:
        person = hashed(change.serving["secret"], "person", user)
        block = change.serving["block"]
        gone = change.ask(
            "SELECT id FROM episodes WHERE person = ? AND block = ? AND state = 'waiting'",
            (person, block),
        )
        if gone:
            change.ask(
                "UPDATE episodes SET state = 'forgotten', person = event, block = -1, "
                "version = -1, body = NULL WHERE person = ? AND block = ? AND state = 'waiting'",
                (person, block),
            )
            change.put(waiting=change.serving["waiting"] - len(gone))
        rest = change.ask("SELECT state FROM episodes WHERE person = ?", (person,))
    counted = sum(state == "counted" for (state,) in rest)
    return {"removed": len(gone), "released": counted, "in_release": len(rest) - counted}


def clock() -> float:
    """The time, in seconds; by a function so that tests can set it back."""
    return time.time()
