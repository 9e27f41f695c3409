"""Where a run stands: who waits, which questions were answered, what a save holds of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Algorithm
from tacit.core.asks import Arrays, State, below
from tacit.core.monitor import Record
from tacit.core.rounds import Round, dump_answers, restore, revive_answers, state_of
from tacit.privacy.arguments import MOST_USERS
from tacit.privacy.curator import Release
from tacit.privacy.curators.participants import Participants
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.pseudonyms import Name
from tacit.privacy.statistic import Block

Ids: TypeAlias = Sequence[int | str] | None


_FEWEST_ROWS = 16


class Waiting:
    """Users who wait for the rest of their block. Raw and sensitive.

    They lie in columns that are doubled when they are full, so one more user costs the same however
    many wait. Rows are written behind those that count, and count by one assignment: an exception
    leaves everybody waiting who waited, and nobody else.

    Attributes:
        users: how many wait.
        block: the number of the block that they wait for.
        through: how many users will have been served when that block is in, if it is about to be.
    """

    def __init__(self) -> None:
        self.through = 0
        self.clear(0)

    def clear(self, block: int) -> None:
        """They are in a block now; the next ones wait for that of this number."""
        columns: Arrays = {}
        ids: list[int | str] = []
        # One line: all of it or nothing.
        self._columns, self._ids, self.users, self.block = columns, ids, 0, block
        self._fit: Block | None = None

    def alike(self, part: Block) -> bool:
        """Whether somebody waits, with columns of the same types and shapes."""
        rows, users = part.arrays, self.users
        if not users or self._columns.keys() != rows.keys():
            return False
        # Looked at once: what can be written as it is, is.
        if self._fits(rows, users + part.users):
            self._fit = part
            return True
        return self._fits(rows, 0)

    def _fits(self, rows: Mapping[str, NDArray[Any]], needed: int) -> bool:
        """Whether rows can be written as they are, and so many in all."""
        for name, column in self._columns.items():
            array = rows[name]
            if column.dtype != array.dtype or column.shape[1:] != array.shape[1:]:
                return False
            if len(column) < needed:
                return False
        return True

    def add(self, part: Block, user_ids: Ids) -> None:
        """Takes some more users, as they are now.

        A copy: a buffer that is used again must not put the next users in the sums twice.
        """
        stop = self._write(part, user_ids)
        self.users = stop

    def joined(self, part: Block, user_ids: Ids) -> tuple[Block, Ids]:
        """All of them and the last ones, as one block; ids were given for all or for none."""
        if not self.users:
            return part, user_ids
        stop = self._write(part, user_ids)
        arrays = {name: column[:stop] for name, column in self._columns.items()}
        return Block(stop, arrays), self._ids[:stop] if self._ids else None

    def everybody(self) -> tuple[Block, Ids]:
        """All of them, as one block."""
        arrays = {name: column[: self.users] for name, column in self._columns.items()}
        return Block(self.users, arrays), self._ids[: self.users] if self._ids else None

    def _write(self, part: Block, user_ids: Ids) -> int:
        """Puts rows behind those who wait, who are no more than before; returns where they end."""
        start, stop = self.users, self.users + part.users
        rows, columns = part.arrays, self._columns
        if start and not columns.keys() <= rows.keys():
            raise InvalidArgument(f"every user needs {sorted(columns)}, got {sorted(rows)}")
        if self._fit is not part and not (start and self._fits(rows, stop)):
            names = columns if start else rows
            columns = {n: _with_room(columns.get(n), rows[n], start, stop) for n in names}
            self._columns = columns
        for name, column in columns.items():
            column[start:stop] = rows[name]
        self._ids[start:] = [] if user_ids is None else [*user_ids]
        self._fit = None
        return stop

    # Save and resume.

    def dump(self, participants: Participants) -> tuple[dict[str, Any], Arrays]:
        """For a save: raw data, and names that are no names any more."""
        users, ids = self.users, self._ids[: self.users]
        if not users:
            return {"pending": 0, "pending_names": None}, {}
        meta = {"pending": users, "pending_names": participants.names(ids) if ids else None}
        return meta, {f"pending/{name}": column[:users] for name, column in self._columns.items()}

    def restore(self, users: int, names: list[str] | None, arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        self.clear(self.block)
        if users:
            ids = None if names is None else [Name(name) for name in names]
            self.add(Block(users, below(arrays, "pending/")), ids)


def _with_room(
    column: NDArray[Any] | None, rows: NDArray[Any], users: int, needed: int
) -> NDArray[Any]:
    """A column for ``needed`` users, of whom the first ``users`` are there; doubled if full."""
    if column is None or not users:
        return np.empty((max(needed, _FEWEST_ROWS), *rows.shape[1:]), rows.dtype)
    dtype = column.dtype if column.dtype == rows.dtype else np.result_type(column, rows)
    if column.shape[1:] != rows.shape[1:]:
        raise InvalidArgument(f"rows of shape {rows.shape[1:]} after ones of {column.shape[1:]}")
    if dtype == column.dtype and needed <= len(column):
        return column
    longer = np.empty((max(needed, 2 * len(column)), *column.shape[1:]), dtype)
    longer[:users] = column[:users]
    return longer


class Moment:
    """What an algorithm is at one moment, and how it becomes that again, as often as it must."""

    def __init__(self, algorithm: Algorithm[Any], asked: int | None = None) -> None:
        self._algorithm = algorithm
        self.served, self.releases = algorithm.served, algorithm.releases
        self.rest = algorithm.asked, algorithm.pinned, algorithm.first_version, algorithm.before
        if asked is not None:
            self.rest = asked, *self.rest[1:]
        self._policies = algorithm.policy, algorithm.greedy_policy
        self.state = _copied(*state_of(algorithm))

    def put_back(self) -> None:
        """Puts the algorithm back; what is kept here stays as it is."""
        algorithm = self._algorithm
        restore(algorithm, *_copied(*self.state))
        algorithm.policy, algorithm.greedy_policy = self._policies
        algorithm.served, algorithm.releases = self.served, self.releases
        algorithm.asked, algorithm.pinned, *begun = self.rest
        algorithm.first_version, algorithm.before = begun


def _copied(meta: dict[str, Any], arrays: Arrays) -> State:
    return copy.deepcopy(meta), {name: np.array(array) for name, array in arrays.items()}


@dataclass
class Turn:
    """A block on its way through the gate: its users are taken, whatever happens.

    Attributes:
        before: the algorithm before the first answer. What a save holds is never from within.
        users: of the block.
        answered: whether the algorithm has all its answers, so that only a policy is to be planned.
    """

    before: Moment
    users: int
    answered: bool = False


class Session:
    """An agent's place in its run.

    Attributes:
        waiting: users whose block is not full yet.
        with_ids: whether users come with ids.
        answers: those of the round in progress.
        seen: how many releases were taken in, or lost, before this round.
        turn: the block that is in the gate, if one is.
        record: what releases told of each version; see :mod:`tacit.core.monitor`.
        succeeded: whether a successor takes users in its place.
    """

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self.algorithm = algorithm
        self.waiting = Waiting()
        self.with_ids = False
        self.answers: list[Release] = []
        self.seen = 0
        self.turn: Turn | None = None
        self.record = Record()
        self.succeeded = False
        self._round: Round | None = None

    @property
    def round(self) -> Round:
        """The questions about the current block."""
        if self._round is None:
            self._round = Round(self.algorithm)
        return self._round

    def end_round(self, releases: int) -> None:
        """No later round begins with the answers of this one."""
        # One line: this is the moment at which a block is through.
        self._round, self.answers, self.seen, self.turn = None, [], releases, None

    def reinstate(self, policy: Any, pin: bool) -> None:
        """An older policy serves from now on; the questions are about its users."""
        algorithm = self.algorithm
        algorithm.reinstate(policy)
        # One line: all of it or nothing.
        algorithm.policy, algorithm.pinned, self._round = policy, policy if pin else None, None

    def again(self, turn: Turn) -> None:
        """Puts the algorithm back, so that its questions are asked from the first one."""
        turn.before.put_back()
        self._round = None

    def saw(self, last: Release | None) -> bool:
        """Adds a release that was saved before it was published; whether there are answers."""
        if last is not None and last.index >= self.seen + len(self.answers):
            self.answers.append(last)
        return bool(self.answers)

    def taken(self, entered: int) -> int:
        """How many users came, if so many blocks are in."""
        waiting, turn = self.waiting, self.turn
        late = waiting.block < entered  # those who waited are in, and this was not noted yet
        if turn is not None:
            return turn.before.served + turn.users + (0 if late else waiting.users)
        # Of a load that was cut off: the round on record is of users who are in.
        found = self.algorithm.block_users if self.answers else 0
        return waiting.through if late else self.algorithm.served + found + waiting.users

    def lose(self, turn: Turn, releases: int) -> None:
        """Gives a block up: its users are served, and nobody learns from them."""
        turn.before.put_back()
        self.algorithm.served = turn.before.served + turn.users
        self.end_round(releases)

    def placed(self, part: Block) -> Block:
        """Users with the components that they followed, as a mixed policy needs them.

        Each user says what she drew. Where nobody does, nothing of them would count: that is
        refused, if only those count who followed the policy.
        """
        policy = self.algorithm.policy
        mixed, given = hasattr(policy, "components"), "components" in part.arrays
        right = mixed == given
        if right or part.aggregate:
            return part
        if part.users and not given and users_draw(self.algorithm):
            raise InvalidArgument(
                f"policy {policy.version} is mixed, and these episodes do not say which of its "
                "components each user drew: give components=..., of a log component=..."
            )
        arrays = {name: array for name, array in part.arrays.items() if name != "components"}
        if mixed:
            only = 0 if len(policy.components) == 1 else -1
            arrays["components"] = np.full(part.users, only, dtype=np.int64)
        return Block(part.users, arrays)

    # Save and resume.

    def check_same(self, meta: dict[str, Any]) -> None:
        """Refuses a save of another agent."""
        mine, saved = self.algorithm.identity(), meta["identity"]
        differing = [key for key in mine if mine[key] != saved.get(key)]
        if differing:
            raise InvalidArgument(
                f"the save is of another agent: {', '.join(differing)} differ "
                f"(saved {saved.get(differing[0])}, this one {mine[differing[0]]})"
            )

    def dump(self, participants: Participants) -> State:
        """For a save."""
        algorithm = self.algorithm
        within = None if self.turn is None else self.turn.before
        found = algorithm.asked if self.answers else 0
        state = None if within is None else within.state
        meta, arrays = state_of(algorithm) if state is None else state
        policies = {"policy/": algorithm.policy, "greedy/": algorithm.greedy_policy}
        for prefix, policy in policies.items():
            named = algorithm.policy_arrays(policy).items()
            arrays = arrays | {prefix + name: array for name, array in named}
        for more in (dump_answers(self.answers), self.waiting.dump(participants)):
            meta, arrays = meta | more[0], arrays | more[1]
        facts = {
            "identity": algorithm.identity(),
            "served": algorithm.served if within is None else within.served,
            "releases": algorithm.releases if within is None else within.releases,
            "version": algorithm.policy.version,
            "first_version": algorithm.first_version,
            "before": algorithm.before,
            "pinned": algorithm.pinned is not None,
            "asked": self.turn.users if self.turn is not None else found,
            "with_ids": self.with_ids,
            "succeeded": self.succeeded,
            "seen": self.seen,
        }
        return meta | facts, arrays | self.record.dump()

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        algorithm = self.algorithm
        served, waiting, asked = (
            _count(meta[name], algorithm.users) for name in ("served", "pending", "asked")
        )
        releases = _count(meta["releases"], algorithm.schedule.releases)
        answers = revive_answers(meta, arrays)
        restore(algorithm, meta, arrays)
        algorithm.served, algorithm.releases, algorithm.asked = served, releases, asked
        algorithm.first_version = _count(meta["first_version"], MOST_USERS)
        algorithm.before = _count(meta.get("before", 0), MOST_USERS)
        algorithm.policy = algorithm.policy_of(below(arrays, "policy/"), meta["version"])
        algorithm.greedy_policy = algorithm.policy_of(below(arrays, "greedy/"), algorithm.newest)
        algorithm.pinned = algorithm.policy if meta["pinned"] else None
        self.end_round(_count(meta["seen"], MOST_USERS))
        self.answers, self.with_ids = answers, bool(meta["with_ids"])
        self.succeeded = bool(meta.get("succeeded", False))
        self.record.restore(below(arrays, "monitor/"))
        self.waiting.restore(waiting, meta["pending_names"], arrays)


def users_draw(algorithm: Algorithm[Any]) -> bool:
    """Whether an episode counts only if it says which component of the policy it followed."""
    policy = algorithm.policy
    mixed = len(getattr(policy, "components", ())) > 1
    return mixed and algorithm.masked


def _count(value: object, most: int) -> int:
    """A number of a save; a forged file may hold anything."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return value
