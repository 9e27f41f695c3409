"""Intake: which users are taken into which block, what they pay, and what they are told.

There are two doors to one store. ``learn`` takes episodes that are there, and those take their
places as they come; ``receive`` takes what devices send that took a place when they read a policy.
Neither looks at a value of an episode: shapes, types, versions, names and events decide.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.stored_run import Checkpoint, RunView, StoredRun
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning
from tacit.privacy.statistic import Block, frozen
from tacit.privacy.validation import row_ids
from tacit.store import runs
from tacit.store.runs import Answer
from tacit.store.values import dump

Ids: TypeAlias = Sequence[int | str] | None
Places: TypeAlias = Counter[tuple[int, int]]
"""Places that were taken, by block and version."""
_FEWEST = 16  # rows of a buffer


@dataclass(frozen=True)
class Receipt:
    """Numbers of episodes of one call of ``learn`` by their fate: each has exactly one.

    Public, as taking part is; it says nothing of what happened in an episode.

    >>> receipt = Receipt(users=10, counted=6, waiting=2, retired=1, refused=1, version=3)
    >>> receipt.taken
    8
    """

    users: int  # how many episodes were given
    counted: int = 0  # in blocks that were released
    waiting: int = 0  # for the rest of their block
    retired: int = 0  # of versions that teach nothing: not taken, and nothing was paid for them
    refused: int = 0  # by the budget: beyond the episodes that a user declared, or could pay for
    version: int = 0  # of the policy that serves from now on
    published: tuple[int, ...] = ()  # versions that this call published
    known: int = 0  # events that came before: not taken again

    @property
    def taken(self) -> int:
        """How many have a place in a block."""
        return self.counted + self.waiting

    def __str__(self) -> str:
        fates = {"counted": self.counted, "waiting": self.waiting}
        fates |= {"of retired versions": self.retired, "refused by the budget": self.refused}
        fates |= {"known before": self.known}
        words = [f"{count:,} {fate}" for fate, count in fates.items() if count]
        new = f"; published {', '.join(map(str, self.published))}" if self.published else ""
        return f"{self.users:,} episodes: {', '.join(words) or 'none'}; version {self.version}{new}"


class EpisodeBuffer:
    """Episodes in memory that wait for the rest of their block. Raw and sensitive.

    Columns are doubled when they are full, so one more user costs the same. Rows are written behind
    those that count, and count by one assignment: an exception leaves the same users waiting. They
    are of one block; users of an older one are in the store.
    """

    def __init__(self) -> None:
        # The block, how many wait for it, their columns, or their sums.
        self._kept: tuple[int, int, dict[str, NDArray[np.generic]], Block | None]
        self._kept = (-1, 0, {}, None)
        self._names: list[str] = []

    def users(self, block: int) -> int:
        """How many wait for this block."""
        return self._kept[1] if self._kept[0] == block else 0

    def add(self, part: Block, block: int, names: Sequence[str]) -> None:
        """Adds a copy of users' rows, or of their sums, to those of a block."""
        users = self.users(block)
        # No list as long as a simulated block: users without names are filled in where one has one.
        self._names[users:] = [*[""] * (users - len(self._names)), *names] if names else ()
        if part.aggregate:
            self._kept = (block, part.users, {}, part.sealed())
            return
        stop, rows = users + part.users, part.arrays
        columns = self._kept[2] if users else {}
        if users and columns.keys() != rows.keys():
            raise InvalidArgument(f"every user needs {sorted(columns)}, got {sorted(rows)}")
        new = {name: _room(columns.get(name), rows[name], users, stop) for name in rows}
        for name, column in new.items():
            column[users:stop] = rows[name]
        self._kept = (block, stop, new, None)

    @property
    def names(self) -> list[str]:
        """Names of the users, empty where one has none; no list where none has one."""
        users, names = self._kept[1], self._names
        return [*names, *[""] * (users - len(names))][:users] if any(names) else []

    def rows(self) -> Block:
        """All waiting users, as one block, read-only."""
        _, users, columns, sums = self._kept
        if sums is not None:
            return sums
        return frozen(Block(users, {name: column[:users] for name, column in columns.items()}))


class Arrivals(NamedTuple):
    """Users who come together; names and keys of events are keyed hashes, or there are none."""

    rows: Block
    names: Sequence[str]
    keys: Sequence[str]
    places: Sequence[int]  # in the call

    def only(self, rows: Sequence[int]) -> Arrivals:
        """Some of them."""
        if len(rows) == self.rows.users:
            return self
        rest: Any = ([each[i] for i in rows] if each else each for each in self[1:])
        return Arrivals(_rows(self.rows, rows), *rest)


class EpisodeIntake:
    """Takes users into the blocks of a run."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.window = 86400.0  # seconds from reading a policy to sending its episode
        self.every = 0.0  # seconds after which a block with places closes; 0: by count alone
        self.default_reward = math.nan  # of a step whose outcome did not come
        self.buffer = EpisodeBuffer()
        self.packets: dict[int, Block] = {}  # by number, where the store has no bytes of it
        self.visits: dict[str, Any] | None = None  # how often users came, of a run in memory
        self._schema: Any = None  # version and columns that were checked last, of a block
        self._taken: Places = Counter()
        self._writing: Places = Counter()  # those that are being written
        self._counting, self._flushing = threading.Lock(), threading.Lock()
        self._tickets, self._ticket_of = itertools.count(), secrets.token_hex(8)

    def users_taken(self, row: Any) -> int:
        """How many users came: those who were served, and those who wait for their block."""
        return int(row.taken) + self.buffer.users(row.block)

    def room(self, view: RunView) -> int:
        """How many more users the block takes that fills."""
        block = view.blocks[-1]
        left = int(block.size - block.places) - self.buffer.users(block.block)
        return max(0, left) if block.stage == "open" else 0

    # Episodes that are there.

    def take(
        self, data: Block, ids: Ids, events: Sequence[str] | None, step: Callable[[], bool]
    ) -> Receipt:
        """Takes users part by part, each by one commit; a part ends where a block does.

        Args:
            data: Rows of the users, or the sums of exactly one block.
            ids: One for each of them, or None.
            events: A name of each episode, or None.
            step: Moves the oldest block on, if it is ready; returns whether it was.
        """
        while step():  # a block that another process left
            pass
        view, given = self.run.look(), data.users
        users, start, stop, before = given, 0, 0, self.users_taken(view.row)
        try:
            came = self._new(view.row, self._named(data, ids, events))
            if view.row.succeeded:
                raise HorizonExceeded("this agent has a successor: give users to that one")
            if view.row.stopped:
                raise InvalidArgument("this run is stopped: agent.start() lets users come again")
            on_policy = view.on_policy and not data.aggregate
            asked = on_policy and self.users_taken(view.row) < self.run.algorithm.users
            taught = came.only(self._teaching(view, came.rows)) if asked else came
            arrivals = self._with_places(view.row, taught)
            data = with_component(arrivals.rows, view.checkpoint.plan.policy, on_policy)
            arrivals = arrivals._replace(rows=data)
            users = data.users
            self.check_schema(view.checkpoint, data)
            known, retired = given - came.rows.users, came.rows.users - taught.rows.users
            version, published = view.row.version, list[int]()
            counted, waiting, refused = 0, 0, taught.rows.users - users
            while start < users:
                here = self.run.look()
                room, before = self.room(here), self.users_taken(here.row)
                if not room:
                    self._wait_for_room(users - start, step)
                    continue
                whole = int(data["devices"][0]) if "devices" in data.arrays else users
                if data.aggregate and whole != room:
                    said = f"sums must be of one whole block: {room} users, got {whole}"
                    raise InvalidArgument(said)
                # Users who followed a policy go into its block, however many they are.
                stop = users if on_policy else min(users, start + room)
                told = self.put(arrivals.only(range(start, stop)), here.blocks[-1])
                if told is None:
                    continue  # another process was faster
                part, start = stop - start, stop
                while step():
                    published.append(self.run.look().row.latest)
                after = self.run.look()
                if after.blocks[0].block > here.blocks[-1].block:
                    counted += told
                else:
                    waiting += told
                refused += part - told
                version = after.row.version
        except BaseException as error:
            with contextlib.suppress(Exception):
                # A part is taken by one commit: the store says whether it was.
                fresh = self.run.look(fresh=True)
                start = stop if self.users_taken(fresh.row) > before else start
            last = 0 < start < users and arrivals.places[start - 1] + 1
            _say_who(error, given if start == users > 0 else int(last), given)
            raise
        return Receipt(given, counted, waiting, retired, refused, version, (*published,), known)

    def _wait_for_room(self, users: int, step: Callable[[], bool]) -> None:
        """Goes on with a block that another process filled, or waits for it."""
        block = self.run.look().blocks[-1]
        if not block.size or block.stage == "closed":
            raise HorizonExceeded(
                f"no block is left for {users} more users: the schedule ended, or the block waits "
                "for devices that have a place in it"
            )
        if not step():
            time.sleep(0.01)

    def _named(self, data: Block, ids: Ids, events: Sequence[str] | None) -> Arrivals:
        """A call's users, by the hashes of their names and events, where they have any."""
        names, keys, hashed = list[str](), list[str](), self.run.store.pseudonyms
        real = ids is None and not self.run.curator.source.simulation
        if real and self.run.algorithm.privacy.separate_blocks:
            raise InvalidArgument("that nobody is in a block twice is seen by user_ids: give them")
        if ids is not None:
            row_ids(ids, data.users)
            names = hashed(ids)
        if events is not None:
            both = [f"{n} {e}" for n, e in zip(names or [""] * data.users, events, strict=False)]
            if len(events) != data.users or len({*both}) != data.users:
                raise InvalidArgument("events must be one for each user, and no two the same")
            keys = hashed(both)
        return Arrivals(data, names, keys, range(data.users))

    def _new(self, row: Any, arrivals: Arrivals) -> Arrivals:
        """Those whose events did not come before."""
        if not arrivals.keys:
            return arrivals
        with self.run.store.read() as db:
            old = runs.known(db, row, event=arrivals.keys)
        return arrivals.only([i for i, key in enumerate(arrivals.keys) if key not in old])

    def _with_places(self, row: Any, arrivals: Arrivals) -> Arrivals:
        """Those who come, if there are places for them; who would be refused needs none."""
        declared = self.run.algorithm.users
        left = declared - self.users_taken(row)
        if arrivals.rows.users > left and arrivals.names and not row.once:
            with self.run.store.read() as db:
                pays = runs.admit(db, row, row.block, arrivals.names)
            arrivals = arrivals.only([i for i, cost in enumerate(pays) if cost >= 0])
        if arrivals.rows.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {declared} users; {left} are left, "
                f"{arrivals.rows.users} came: a successor goes on with what it learnt "
                "(agent.successor)"
            )
        return arrivals

    def check_schema(self, now: Checkpoint, data: Block) -> None:
        """Refuses columns that the query of a plan cannot read; shapes and types are public."""
        columns = {name: (array.dtype, array.shape[1:]) for name, array in data.arrays.items()}
        plain = type(data) is Block and not data.aggregate
        version = now.plan.policy.version
        if plain and self._schema == (version, columns):
            return
        if getattr(self.run.curator, "made", "") not in data.arrays:
            self.run.statistic(now).check(data)
        self._schema = (version, columns)

    def _teaching(self, view: RunView, data: Block) -> Sequence[int]:
        """Rows of users whose version teaches something; others are retired."""
        if "versions" not in data.arrays:
            return range(data.users)
        serving, latest, age = view.row.version, view.row.latest, self.run.algorithm.max_age
        oldest, newest = max(0, serving - age), latest if age else serving
        versions = np.asarray(data.arrays["versions"])
        here = (versions >= oldest) & (versions <= newest)
        if here.all():
            return range(data.users)
        if not ((versions >= 0) & (versions <= latest)).any():
            raise InvalidArgument(
                f"versions must say which published policy each user followed, 0 to {latest}"
            )
        found: list[int] = np.flatnonzero(here).tolist()
        said = f"{data.users - len(found)} of these users followed none of the policies "
        said += f"{oldest} to {newest}, and teach this agent nothing: they were not taken"
        warnings.warn(said, TacitWarning, stacklevel=4)
        return found

    def put(self, arrivals: Arrivals, seen: Any) -> int | None:
        """How many users got a place in the block that fills; None if it is not as it was seen."""
        names, store = arrivals.names, self.run.store
        opened = "devices" in arrivals.rows.arrays
        if not (arrivals.keys or store.durable or opened):
            kept = self._admitted(arrivals)
            if kept.rows.users:
                self.buffer.add(kept.rows, self.run.look().row.block, kept.names)
        else:
            with store.write() as db:
                view = self.run.read(db)
                row, now = view.row, view.blocks[-1]
                pays, kept = runs.admit(db, row, row.block, names or [""]), arrivals
                if names:
                    kept = arrivals.only([i for i, cost in enumerate(pays) if cost >= 0])
                cost = [cost for cost in pays if cost >= 0]
                same = (now.block, now.stage, now.places) == (seen.block, seen.stage, seen.places)
                if same and kept.rows.users:
                    paid = [*zip(kept.names, cost, strict=True)] if names else ()
                    mine = kept.rows if store.durable else kept.rows.sealed()
                    self._write(db, row, now, mine, paid, [(k, "") for k in kept.keys])
                    if opened:  # of devices that dropped out nothing comes
                        runs.set_block(db, now, size=now.places)
            self.run.keep(view)
            if not same:
                return None
        return kept.rows.users

    def _admitted(self, arrivals: Arrivals) -> Arrivals:
        """Users of a run in memory, who are written to it together, with their block.

        They are refused now by the same rule as then.
        """
        if not arrivals.names:
            return arrivals
        row = self.run.look().row
        visits, block = self.visits, row.block
        if visits is None:
            with self.run.store.read() as db:
                visits = runs.came(db, row)
            for name in self.buffer.names if self.buffer.users(block) else ():
                runs.visit(row, block, visits, name)
        rows = [i for i, name in enumerate(arrivals.names) if runs.visit(row, block, visits, name)]
        self.visits = visits
        return arrivals.only(rows)

    def spill(self, db: Any, view: RunView) -> None:
        """Writes the users who wait in memory to the store."""
        if not self.buffer.users(view.row.block):
            return
        given, names, paid = self.buffer.rows(), self.buffer.names, []
        if names:
            cost = runs.admit(db, view.row, view.row.block, names)
            kept = [i for i, pays in enumerate(cost) if pays >= 0]
            given, paid = _rows(given, kept), [(names[i], cost[i]) for i in kept]
        self._write(db, view.row, view.blocks[-1], given, paid)

    def _write(
        self, db: Any, row: Any, block: Any, rows: Block, people: Any = (), events: Any = ()
    ) -> None:
        """One packet of users. Memory that is lost with this process holds what has no names."""
        in_memory = type(rows) is not Block or (not people and not self.run.store.durable)
        data = b"" if in_memory else dump((rows.aggregate, dict(rows.arrays)))
        shares = {row.version: rows.users}
        if "versions" in rows.arrays:
            found, counts = np.unique(rows.arrays["versions"], return_counts=True)
            shares = dict(zip(found.tolist(), counts.tolist(), strict=True))
        missing = rows["came"].shape[1] if "came" in rows.arrays else 0
        packet = runs.Packet(rows.users, data, shares, people, events, missing)
        number = runs.put(db, row, block, packet)
        if in_memory:
            self.packets[number] = rows

    # Devices, by tickets.

    def ticket(self) -> str:
        """Takes a place in the block that fills; empty where there is none."""
        view = self.run.view or self.run.look()
        block, row = view.blocks[-1], view.row
        with self._counting:
            both = (*self._taken.items(), *self._writing.items())
            places = block.places + sum(n for (of, _), n in both if of == block.block)
            if row.stopped or row.succeeded or block.stage != "open" or places >= block.size:
                return ""
            self._taken[(block.block, row.version)] += 1
        text = f"{row.version}.{block.block}.{self._ticket_of}{next(self._tickets):x}"
        return f"{text}.{self.run.store.keyed('ticket', self.run.name, text)}"

    @property
    def unwritten(self) -> bool:
        """Whether places were taken that :meth:`flush` would write."""
        return bool(self._taken or self._writing)

    def flush(self) -> None:
        """Writes places that were taken since; a block that has all of its own closes."""
        if self._taken:
            with self._written():
                return
        self.run.look()

    @contextlib.contextmanager
    def _written(self) -> Iterator[tuple[Any, RunView, dict[int, Any]]]:
        """A transaction that writes places which were taken, and the open blocks in it by number.

        If it fails, the places are there again.
        """
        with self._flushing:
            with self._counting:
                taken, self._taken = self._taken, Counter()
                self._writing = taken
            try:
                with self.run.store.write() as db:
                    view = self.run.read(db)
                    blocks = {b.block: b for b in view.blocks if b.stage in ("open", "closed")}
                    for number in sorted({number for number, _ in taken} & blocks.keys()):
                        mine = {v: n for (block, v), n in taken.items() if block == number}
                        runs.take_places(db, view.row, blocks[number], mine)
                        self._close_full(db, view, blocks[number])
                    yield db, view, blocks
                self.run.keep(view)
            except BaseException:
                with self._counting:
                    self._taken.update(taken)
                raise
            finally:
                with self._counting:
                    self._writing = Counter()

    def _close_full(self, db: Any, view: RunView, block: Any) -> None:
        """Closes a block that has all its places; the next one opens if it may."""
        if block.stage != "open" or block.places < block.size:
            return
        runs.set_block(db, block, stage="closed", at=time.time())
        if self.run.fills_ahead(view):
            self.run.open_next(db, view)

    def close_by_clock(self, seen: Any) -> bool:
        """Closes the block that fills if it has places and its time has come; whether it did."""
        due = bool(self.every and seen.stage == "open" and time.time() >= seen.at + self.every)
        if not due or not seen.places + self.buffer.users(seen.block):
            return False
        with self.run.store.write() as db:
            view = self.run.read(db)
            block = view.blocks[-1]
            if (block.block, block.stage) != (seen.block, "open"):
                return False
            self.spill(db, view)
            runs.set_block(db, block, size=block.places)
            # Those who come with an episode are all there; devices have their window.
            if block.users < block.places or runs.by_ticket(db, view.row, block.block):
                self._close_full(db, view, block)
        self.buffer, self.visits = EpisodeBuffer(), None
        return True

    def receive(
        self,
        rows: Block,
        people: Sequence[str],
        events: Sequence[str],
        tickets: Sequence[str],
        then: Callable[[Any, Any, list[Answer]], list[Answer]] | None = None,
    ) -> list[Answer]:
        """Takes devices in, all of them in one transaction; the answer to each.

        Args:
            rows: Their episodes or reports, in their order; empty ones, to fill, lie apart.
            people: Names of their users.
            events: Names of their episodes; one that came before is answered as it was then.
            tickets: Places that they took with their policies.
            then: Goes on in the transaction with these answers, and returns others.
        """
        # Places of these devices would count twice if they were not written first.
        with self._written() as (db, view, blocks):
            row, alike = view.row, self.run.algorithm.privacy.devices_add
            names, keys = self.hashed(people, events)
            before = runs.known(db, row, event=keys)
            used = {*runs.known(db, row, ticket=tickets)}
            told, groups = dict[int, Answer](), dict[tuple[int, int], list[int]]()
            first = dict[str, int]()  # of an event that is sent twice at once
            for i, key in enumerate(keys):
                place = self._place(tickets[i])
                if first.setdefault(key, i) < i:
                    continue
                if key in before:
                    told[i] = Answer(before[key].fate, before[key].block, before[key].version)
                elif row.stopped or place is None:
                    told[i] = Answer("stopped" if row.stopped else "unknown")
                # Reports in one sum are of one version; the run may have been rolled back.
                elif place[0] not in blocks or (alike and place[1] != row.version):
                    told[i] = Answer("late", version=row.version)
                elif tickets[i] in used:
                    told[i] = Answer("used", version=row.version)
                else:
                    used.add(tickets[i])
                    groups.setdefault(place, []).append(i)
            for (number, version), some in sorted(groups.items()):
                pays = runs.admit(db, row, number, [names[i] for i in some])
                cost = {i: cost for i, cost in zip(some, pays, strict=True) if cost >= 0}
                told |= dict.fromkeys(some, Answer("refused", version=row.version))
                told |= dict.fromkeys(cost, Answer("waiting", number, version))
                for kept in [[i] for i in cost] if "came" in rows.arrays else [[*cost]]:
                    part = _rows(rows, kept)
                    followed = np.full(part.users, version, dtype=np.int64)
                    part = Block(part.users, {**part.arrays, "versions": followed})
                    who = [(names[i], cost[i]) for i in kept]
                    came = [(keys[i], tickets[i]) for i in kept]
                    if kept:
                        self._write(db, row, blocks[number], part, who, came)
                self._close_full(db, view, blocks[number])
            answers = [told[first[key]] for key in keys]
            return answers if then is None else then(db, row, answers)

    def hashed(self, people: Sequence[str], events: Sequence[str]) -> tuple[list[str], list[str]]:
        """Keyed hashes of people, and of their events."""
        names = self.run.store.pseudonyms(people)
        keys = [f"{name} {event}" for name, event in zip(names, events, strict=True)]
        return names, self.run.store.pseudonyms(keys)

    def _place(self, ticket: str) -> tuple[int, int] | None:
        """Block and version of a ticket; None if it is not ours."""
        said, _, mark = ticket.rpartition(".")
        ours = self.run.store.keyed("ticket", self.run.name, said)
        if not secrets.compare_digest(mark.encode(), ours.encode()):
            return None
        version, block, _ = said.split(".")
        return int(block), int(version)

    def settle(self) -> None:
        """Writes users who wait in memory to the store, where they can be forgotten."""
        with self.run.store.write() as db:
            view = self.run.read(db)
            self.spill(db, view)
        self.buffer, self.visits = EpisodeBuffer(), None
        self.run.keep(view)


def _room(
    column: NDArray[np.generic] | None, rows: NDArray[np.generic], users: int, needed: int
) -> NDArray[np.generic]:
    """A column for ``needed`` users, of whom the first ``users`` are there; doubled if full."""
    column = rows[:0] if column is None else column
    if column.shape[1:] != rows.shape[1:]:
        raise InvalidArgument(f"rows of shape {rows.shape[1:]} after ones of {column.shape[1:]}")
    dtype = column.dtype if column.dtype == rows.dtype else np.result_type(column, rows)
    if dtype == column.dtype and needed <= len(column):
        return column
    longer = np.empty((max(needed, 2 * len(column), _FEWEST), *column.shape[1:]), dtype)
    longer[:users] = column[:users]
    return longer


def with_component(data: Block, policy: Any, on_policy: bool) -> Block:
    """Users with the components that they drew, as a mixed policy needs them.

    Each user says which one she drew. Where none does, none of them would count: that is refused,
    if only those count who followed the policy.
    """
    mixed, given = hasattr(policy, "components"), "components" in data.arrays
    if mixed == given or data.aggregate:
        return data
    if data.users and not given and len(policy.components) > 1 and on_policy:
        raise InvalidArgument(
            f"policy {policy.version} is mixed, and these episodes do not say which of its "
            "components each user drew: give components=..., of a log component=..."
        )
    arrays = {name: array for name, array in data.arrays.items() if name != "components"}
    if mixed:
        only = 0 if len(policy.components) == 1 else -1
        arrays["components"] = np.full(data.users, only, dtype=np.int64)
    return Block(data.users, arrays)


def _rows(block: Block, rows: Sequence[int]) -> Block:
    """A block of some of its users."""
    if len(rows) == block.users:
        return block
    if isinstance(rows, range):
        return block.take(slice(rows.start, rows.stop))
    kept = np.zeros(block.users, dtype=bool)
    kept[list(rows)] = True
    return block.take(kept)


def _say_who(error: BaseException, taken: int, users: int) -> None:
    """Tells the caller of ``learn``, with its error, which users not to give again."""
    with contextlib.suppress(Exception):
        error.users_taken = taken  # type: ignore[attr-defined]
        if taken:
            error.add_note(
                f"{taken} of these {users} users were taken and must not be given again; go on "
                f"with the rest: data.take(slice({taken}, None))"
            )
