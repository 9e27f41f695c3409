"""Late rewards: decisions and outcomes that come apart, and are joined where their episode waits.

The first decision of an event fills the place of its ticket with an empty episode, and pays; what
comes later is written into that. The place is in the block and of the version that the ticket says,
whenever outcomes come. An episode is complete with a decision and an outcome for each step, and is
closed by then, or with its block: what never came has the declared reward, or does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.logs import LogFormat
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import INVALID, as_codes, as_numbers
from tacit.privacy.statistic import Block
from tacit.store import runs
from tacit.store.runs import Answer
from tacit.store.schema import packets
from tacit.store.store import change_rows, rows_of
from tacit.store.values import dump, load

if TYPE_CHECKING:
    from tacit.core.intake import EpisodeIntake

_DECIDED, _ENDED = 1, 2  # bits of what came of a step
_OF_DECISIONS = ("state", "action", "component", "probability")
_OF_OUTCOMES = ("reward", "next_state")
_NUMBERS = ("reward", "probability")


@dataclass(frozen=True)
class LateStep:
    """A decision, or the outcome of one; values that are none count as nothing.

    Attributes:
        user: Her id.
        event: Name of the episode.
        values: The ``step`` from 0 on; of a decision ``state``, ``action``, perhaps ``component``
            and ``probability``; of an outcome ``reward``, perhaps ``next_state``.
        ticket: The place that a decision's policy was read with; ``None`` of an outcome.
    """

    user: str
    event: str
    values: Mapping[str, Any]
    ticket: str | None = None

    @property
    def step(self) -> int:
        """From 0 on; -1 of what is none."""
        said = self.values.get("step")
        return said if type(said) is int else -1


def take(intake: EpisodeIntake, messages: Sequence[LateStep]) -> list[Answer]:
    """Takes decisions and outcomes in, all of them in one transaction; the answer to each.

    One about a step that was told of before is answered alike, and changes nothing.
    """
    algorithm = intake.run.algorithm
    if not (hasattr(algorithm.spec, "states") and algorithm.privacy.joint):
        raise InvalidArgument("decisions and outcomes are for finite worlds and joint models")
    horizon = int(algorithm.spec.horizon)
    if not all(0 <= message.step < horizon for message in messages):
        raise InvalidArgument(f"step must be a whole number from 0 to {horizon - 1}")
    for message in messages:
        known = _OF_OUTCOMES if message.ticket is None else _OF_DECISIONS
        if unknown := sorted(message.values.keys() - {"step", *known}):
            raise InvalidArgument(f"{unknown[0]} is none of {', '.join(known)}")
    _, keys = intake.hashed([m.user for m in messages], [m.event for m in messages])
    first, groups = dict[str, LateStep](), dict[str, list[int]]()
    for i, (key, message) in enumerate(zip(keys, messages, strict=True)):
        groups.setdefault(key, []).append(i)
        if message.ticket is not None:
            first.setdefault(key, message)

    def fill(db: Any, row: Any, answers: list[Answer]) -> list[Answer]:
        told, found = dict(zip(first, answers, strict=True)), dict[int, Answer]()
        about = runs.known(db, row, event=[*groups])
        for key, places in groups.items():
            mine = {i: messages[i] for i in places}
            if key in about:
                found |= _filled(db, row, about[key], mine)
            else:
                found |= dict.fromkeys(mine, told.get(key, Answer("undecided")))
        return [found[i] for i in range(len(messages))]

    begun = first.values()
    given = [m.user for m in begun], [m.event for m in begun], [str(m.ticket) for m in begun]
    return intake.receive(_empty(len(first), horizon), *given, fill)


def _filled(db: Any, row: Any, event: Any, messages: Mapping[int, LateStep]) -> dict[int, Answer]:
    """Answers to messages of an event that is known, once they are in its episode."""
    status = "closed" if event.fate == "counted" else event.fate
    told = dict.fromkeys(messages, Answer(status, event.block, event.version))
    packet = rows_of(db, packets, id=event.packet).first()
    if event.fate != "waiting" or packet is None or not packet.missing:
        return told
    closed = runs.block_of(db, row.run, event.block).stage not in ("open", "closed")
    aggregate, arrays = load(packet.data)
    held, one = {name: array.copy() for name, array in arrays.items()}, np.empty(1, dtype=object)
    for i, message in messages.items():
        at, bit = (0, message.step), _ENDED if message.ticket is None else _DECIDED
        if closed and not held["came"][at] & bit:
            told[i] = Answer("late", event.block, row.version)
        if closed or held["came"][at] & bit:
            continue
        held["came"][at] |= bit
        for name in message.values.keys() - {"step"}:
            one[0] = message.values[name]
            held[name][at] = (as_numbers if name in _NUMBERS else as_codes)(name, one)[0]
    missing = int((held["came"] != _DECIDED | _ENDED).sum())
    change_rows(db, packets, {"id": packet.id}, data=dump((aggregate, held)), missing=missing)
    return told


def _empty(users: int, horizon: int) -> Block:
    """Episodes of which nothing came yet."""
    of = {name: np.nan if name in _NUMBERS else INVALID for name in _OF_DECISIONS + _OF_OUTCOMES}
    columns: dict[str, Any] = {name: np.full((users, horizon), x) for name, x in of.items()}
    return Block(users, columns | {"came": np.zeros((users, horizon), dtype=np.int8)})


def joined(block: Block, default_reward: float) -> Block:
    """Episodes as they are when their block is read; a step without outcome has the default."""
    log, (n, horizon) = dict(block.arrays), block["came"].shape
    came, after, drawn = log.pop("came").astype(np.int8), log["next_state"].copy(), log["component"]
    decided, logged = came & _DECIDED > 0, log.pop("probability")
    told = decided[:, 1:] & (after[:, :-1] == INVALID)
    after[:, :-1][told] = log["state"][:, 1:][told]  # the next decision says it, too
    log |= {"next_state": after, "reward": np.where(came & _ENDED, log["reward"], default_reward)}
    log["component"] = np.where(decided, drawn, drawn.max(axis=1, keepdims=True))
    log["version"] = np.repeat(log.pop("versions"), horizon)
    log["step"] = np.where(decided, np.arange(horizon), INVALID)
    log = {name: column.ravel() for name, column in log.items()}
    log["user"] = np.repeat(np.arange(n), horizon)
    form = LogFormat(horizon=horizon, version="version", component="component")
    columns, _ = form.columns_of(log, np.arange(0, n * horizon, horizon))
    return Block(n, columns | {"propensities": logged})
