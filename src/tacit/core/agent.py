"""Agents: take users in, move blocks through the curator, and publish policies.

An agent keeps nothing that matters: all of it is in its store, and every call begins with what the
store says. A block is two commits. The first charges its users, records the release and erases
their episodes; the second is the state that has learnt from the record, and its policy. Before the
first nothing was spent and nothing seen; between the two, everything is computed from the record.
So there is one way to recover from anything: read the store, and go on.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.algorithm import Algorithm, BlockInfo, Plan, Progress, Query
from tacit.core.cautions import warn, warn_of_budget
from tacit.core.monitor import Record
from tacit.core.problem import Problem
from tacit.core.public_file import facts_of, publish_with, published_bytes
from tacit.core.receipt import Receipt
from tacit.core.schedule import Schedule
from tacit.core.waiting import Waiting
from tacit.data.columns import as_numbers
from tacit.data.episodes import Episodes
from tacit.data.vector_episodes import VectorEpisodes
from tacit.privacy.arguments import instance_of, row_ids
from tacit.privacy.budget import Relation
from tacit.privacy.curator import Curator, JointCurator, Release, Stream
from tacit.privacy.distributed import DistributedCurator
from tacit.privacy.errors import BudgetExceeded, CorruptFile, HorizonExceeded, InvalidArgument
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import Privacy, check_alike
from tacit.privacy.noise import Noise
from tacit.privacy.owner import Uncopyable, new_lock, refuse_within
from tacit.privacy.statistic import Block, Statistic
from tacit.store import ledger, runs
from tacit.store.runs import Answer
from tacit.store.store import Conflict, Store, StoreGone
from tacit.store.values import dump, load

Data = Episodes | VectorEpisodes | Block
Ids = Sequence[int | str] | None

# Seconds after which a closed block has all places that were taken in it, by whatever process.
_GRACE = 1.0
# After so many sums in vain of one block, forgetting waits for it; for so many seconds at most.
_IN_VAIN, _HOLD = 3, 30.0
_CLOCKS = 60.0  # seconds by which clocks of processes may differ
_CHECKPOINTS = 32  # versions that can be rolled back to


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a run knows at a version."""

    state: Any
    plan: Plan
    at: Progress
    rng: Mapping[str, Any]  # of ties and of first policies; not of the noise
    record: Record


class View(NamedTuple):
    """A run as its store has it."""

    run: Any  # its row
    first: Any  # that of its oldest block that is not done
    open: Any  # that of its newest, which fills
    now: Checkpoint


class Coming(NamedTuple):
    """Users who come together; names and keys of events are keyed hashes, or there are none."""

    rows: Block
    names: Sequence[str]
    keys: Sequence[str]
    places: Sequence[int]  # in the call

    def only(self, rows: Sequence[int]) -> Coming:
        """Some of them."""
        if len(rows) == self.rows.users:
            return self
        rest: Any = ([each[i] for i in rows] if each else each for each in self[1:])
        return Coming(_rows(self.rows, rows), *rest)


@final
class Agent(Uncopyable):
    """Serves users, keeps their data, and publishes.

    Args:
        algorithm: What learns.
        store: Where all of it is kept: a :class:`~tacit.store.store.Store`, a file, a URL, or
            memory.
        name: Of the run in its store.
        noise_seed: Reproducible noise, for simulations only: it protects nobody.
        start: Checkpoint to begin with; a successor's.
        after: Row of the run whose successor it is, which ends.
    """

    why_single = "an agent cannot be copied: two copies would spend one budget twice"
    chosen: str = ""
    window: float = 86400.0
    """Seconds from reading a policy to sending its episode, where places are taken by tickets."""

    def __init_subclass__(cls) -> None:
        raise TypeError("an Agent holds people's data and is final: write an Algorithm")

    def __init__(
        self,
        algorithm: Algorithm[Any],
        *,
        store: Store | str | os.PathLike[str] = "",
        name: str = "run",
        noise_seed: int | None = None,
        start: Checkpoint | None = None,
        after: Any = None,
    ) -> None:
        if noise_seed is None:
            # Before a store is touched: where warnings are errors, nothing has happened.
            warn_of_budget(algorithm.privacy, algorithm.users)
        instance_of("name", name, str)
        self.algorithm, self.run_name = algorithm, name
        self.store = store if isinstance(store, Store) else Store(store)
        self._lock = new_lock()
        options = {"users": algorithm.users, "noise_seed": noise_seed, "protects": algorithm.unit}
        self._curator: Curator[Any] = algorithm.privacy.curator(**options)
        self._seen: View | None = None
        self._stream: Stream | None = None
        self._held: dict[int, Block] = {}  # by packet, where the store has no bytes of it
        self._waiting = Waiting()
        self._came: dict[str, Any] | None = None  # how often, of a run in memory
        self._fits: Any = None  # version and columns that were checked last
        self.store.agents.add(self)
        self._places: Counter[tuple[int, int]] = Counter()  # taken, by block and version
        self._writing: Counter[tuple[int, int]] = Counter()  # those that are being written
        self._counting, self._flushing = threading.Lock(), threading.Lock()
        self._in_vain, self._drawn = 0, 0  # releases after which counter and noise are as here
        with self.store.read() as db:
            run = runs.find(db, name)
        # A first plan may take long: the store's lock is not held meanwhile.
        first = self._first(start) if run is None else None
        with self.store.write() as db:
            run = runs.find(db, name)
            if run is None:
                self._begin(db, first or self._first(start), after)
            elif run.fingerprint != ledger.digest(algorithm.fingerprint):
                raise InvalidArgument(f"the run {name!r} in this store has other arguments")
            else:
                self._revive(db, run, self._checkpoint(db, run.latest))

    def _first(self, start: Checkpoint | None) -> Checkpoint:
        """The first checkpoint; makes the counter, where there is one."""
        algorithm, rng = self.algorithm, self.algorithm.problem.rng()
        if start is None:
            state, at, plan = algorithm.init(), Progress(), None
        else:
            state, at, plan = start.state, start.at, start.plan
        # A first plan is made where there is none, or where the last one explores no more.
        if plan is None or algorithm.ends_greedy:
            plan = algorithm.plan(state, plan, at, rng)
        first = Checkpoint(state, _numbered(plan, at.offset), at, rng.bit_generator.state, Record())
        if isinstance(self._curator, JointCurator) and algorithm.counter != "blocks":
            self._stream = self._curator.stream(
                self._statistic(first), releases=algorithm.schedule.releases, kind=algorithm.counter
            )
        return first

    def _begin(self, db: Any, first: Checkpoint, after: Any) -> None:
        algorithm, at = self.algorithm, first.at
        digest = ledger.digest(algorithm.fingerprint)
        values = {"made": _made(algorithm), "latest": at.offset - 1}
        if after is not None:
            runs.fence(db, after, succeeded=1)
            ledger.append(db, after.run, "successor", to=self.run_name)
            values["after"] = after.run
        run = runs.create(db, self.run_name, digest, self._terms(), **values)
        for name, value in self._secrets().items():
            self.store.put_secret(db, self.run_name, name, value)
        runs.publish(db, self.store, run, dump(first, algorithm.code), 0, at.offset)
        runs.open_block(db, run, 0, algorithm.block_users(at))

    def _terms(self) -> runs.Terms:
        privacy, unit, limit, cost = self.privacy, "", 0.0, 0.0
        if isinstance(self._curator, JointCurator):
            unit, limit = "epsilon" if privacy.pure else "mu^2", self._curator.limit
            unit += " (zero-out)" if privacy.relation is Relation.ZERO_OUT else ""
            cost = privacy.epsilon if privacy.pure else privacy.budget.mu**2
        return runs.Terms(
            unit=unit,
            limit=limit,
            cost=cost,
            episodes=privacy.episodes_per_user if privacy.private else 0,
            once=privacy.separate_blocks,
            users=self.algorithm.users,
            simulation=self._curator.source.simulation,
            promise=None if self.guarantee is None else self.guarantee.to_dict(),
        )

    def _ahead(self, now: Checkpoint) -> bool:
        """Whether a block may fill before those before it are released.

        Devices are asked before they send, and not every algorithm knows two policies apart.
        """
        algorithm = self.algorithm
        return algorithm.privacy.joint and (
            algorithm.max_age > 0 or not algorithm.on_policy(now.plan)
        )

    # Reading the store.

    def _look(self, fresh: bool = False) -> View:
        """The run as the store has it; one in memory is looked at if it changed."""
        seen = self._seen
        if seen is not None and not fresh and not self.store.durable:
            return seen
        with self.store.read() as db:
            run = runs.find(db, self.run_name)
            blocks = runs.undone(db, run)
            unchanged = seen is not None and run.latest == seen.run.latest
            now = seen.now if seen and unchanged else self._checkpoint(db, run.latest)
        found, last = View(run, blocks[0], blocks[-1], now), self._seen
        # A thread that was slow must not bring back what it saw before others.
        if last is None or (run.epoch, run.taken) >= (last.run.epoch, last.run.taken):
            self._seen = found
        return found

    def _checkpoint(self, db: Any, version: int) -> Checkpoint:
        row = runs.version_of(db, self.run_name, version)
        if row is None or row.state is None:
            raise InvalidArgument(f"version {version} of {self.run_name!r} is not kept any more")
        found: Checkpoint = load(self.store.opened(row.state), self.algorithm.code)
        return found

    def _revive(self, db: Any, run: Any, now: Checkpoint) -> None:
        """Brings back counter and simulated noise as the last release left them."""
        state = self.store.secret(db, self.run_name, "noise")
        if state is not None and self._curator.source.simulation:
            self._curator.source = Noise.from_state(load(state))
        dumped = self.store.secret(db, self.run_name, "stream")
        if dumped is not None and isinstance(self._curator, JointCurator):
            self._stream = Stream.revived(self._curator, self._statistic(now), load(dumped))
        self._drawn = run.releases

    def _secrets(self) -> dict[str, bytes]:
        """What a commit keeps beside its release: the counter, and a simulation's noise."""
        source, found = self._curator.source, dict[str, bytes]()
        if source.simulation and hasattr(source, "state"):
            found["noise"] = dump(source.state())
        if self._stream is not None:
            found["stream"] = dump(self._stream.dump())
        return found

    @contextlib.contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """One call at a time; after whatever is raised the store is read again."""
        refuse_within(self._lock, what)
        with self._lock:
            try:
                yield
            except BaseException:
                self._seen = self._came = None
                raise

    # Users, in the library.

    def learn(
        self, data: Data, user_ids: Ids = None, *, events: Sequence[str] | None = None
    ) -> Receipt:
        """Takes users that a policy served; publishes the next policy when a block is full.

        Args:
            data: Episodes of any number of users, or the sums of exactly one block (simulations).
            user_ids: One for each of them, all or none.
            events: A name of each episode, all or none: one that came before is not taken again.

        Returns:
            Where everybody went. If anything is raised after some of them were taken, the error
            says how many, in a note and as ``users_taken``: they must not be given again.
        """
        with self._alone("learn"):
            if not isinstance(data, Block):
                instance_of("data", data, (Episodes, VectorEpisodes, Block))
                if user_ids is not None and data.user_ids not in (None, tuple(user_ids)):
                    raise InvalidArgument(
                        "user_ids are given twice, and are not those of the episodes"
                    )
                user_ids = data.user_ids if user_ids is None else user_ids
                data = data.block()
            self._curator.check_block(data)
            if user_ids is not None and data.aggregate:
                raise InvalidArgument("an aggregate block has no user_ids")
            return self._take(data, user_ids, events)

    def learn_reports(
        self, reports: ArrayLike, user_ids: Ids = None, *, events: Sequence[str] | None = None
    ) -> Receipt:
        """Takes local reports, one row per user; see :mod:`tacit.privacy.local`.

        Args:
            reports: Made on devices by ``tacit.local.report`` from ``statistic`` and ``privacy``.
            user_ids: Who sent them, all or none.
            events: A name of each report, all or none: one that came before is not taken again.
        """
        with self._alone("learn_reports"):
            return self._take(self.report_block(reports), user_ids, events)

    def report_block(self, reports: ArrayLike) -> Block:
        """Local reports of the block that fills, checked; what is no number counts as nothing."""
        if not isinstance(self._curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        return self._curator.checked_reports(self.statistic, as_numbers("reports", reports))

    def learn_sum(self, total: ArrayLike, stayed: int | None = None) -> Receipt:
        """Takes what a secure sum over all users of the current block opened.

        Args:
            total: Of the shares that ``tacit.distributed.share`` made on devices, from
                ``statistic`` and ``privacy``, for ``block_users`` devices.
            stayed: How many of them are in it; all by default.
        """
        with self._alone("learn_sum"):
            if not isinstance(self._curator, DistributedCurator):
                raise InvalidArgument("opened sums are for DistributedDP")
            devices = self._room(self._look())
            sizes = {"devices": devices, "stayed": devices if stayed is None else stayed}
            return self._take(self._curator.checked_sum(self.statistic, total, **sizes), None, None)

    def _take(self, data: Block, ids: Ids, events: Sequence[str] | None) -> Receipt:
        """Takes users part by part; a part ends where a block does."""
        while self._step():  # a block that another process left
            pass
        view, given = self._look(), data.users
        users, start, stop, before = given, 0, 0, self._taken(view.run)
        try:
            came = self._known(view.run, self._named(data, ids, events))
            self._check_room(view.run, came.rows)
            coming = came.only(self._taught(view, came.rows))
            data = self._with_component(coming.rows, view.now.plan)
            coming, users = coming._replace(rows=data), data.users
            self._check_schema(view, data)
            known, version = given - came.rows.users, view.run.version
            found = Receipt(given, retired=came.rows.users - users, known=known, version=version)
            on_policy = self.algorithm.on_policy(view.now.plan) and not data.aggregate
            while start < users:
                here = self._look()
                room, before = self._room(here), self._taken(here.run)
                if not room:
                    self._wait_for_room(users - start)
                    continue
                if data.aggregate and users != room:
                    raise InvalidArgument(
                        f"sums must be of one whole block: {room} users, got {users}"
                    )
                # Who followed a policy goes into its block, however many they are.
                stop = users if on_policy else min(users, start + room)
                told = self._put(coming.only(range(start, stop)), here.open)
                published = list[int]()
                if told is None:
                    continue  # another process was faster
                start = stop
                while self._step():
                    published.append(self._look().run.latest)
                after = self._look()
                if after.first.block > here.open.block:
                    told = replace(told, counted=told.waiting, waiting=0)
                version = after.run.version
                found = found.with_part(replace(told, version=version, published=tuple(published)))
        except BaseException as error:
            with contextlib.suppress(Exception):
                # A part is taken by one commit: the store says whether it was.
                start = stop if self._taken(self._look(fresh=True).run) > before else start
            last = 0 < start < users and coming.places[start - 1] + 1
            _say_who(error, given if start == users > 0 else int(last), given)
            raise
        return found

    def _wait_for_room(self, users: int) -> None:
        """Goes on with a block that another process filled, or waits for it."""
        block = self._look().open
        if block.size and block.stage != "closed":
            if not self._step():
                time.sleep(0.01)
            return
        raise HorizonExceeded(
            f"no block is left for {users} more users: the schedule ended, or the block waits for "
            "devices that have a place in it"
        )

    def _named(self, data: Block, ids: Ids, events: Sequence[str] | None) -> Coming:
        """A call's users, by the hashes of their names and events, where they have any."""
        names, keys = list[str](), list[str]()
        if ids is not None:
            row_ids(ids, data.users)
            names = [self.store.keyed("person", str(name)) for name in ids]
        if events is not None:
            both = [*zip(names or [""] * data.users, events, strict=False)]
            if len(events) != data.users or len({*both}) != data.users:
                raise InvalidArgument("events must be one for each user, and no two the same")
            keys = [self.store.keyed("person", f"{name} {event}") for name, event in both]
        return Coming(data, names, keys, range(data.users))

    def _known(self, run: Any, coming: Coming) -> Coming:
        """Those whose events did not come before."""
        if not coming.keys:
            return coming
        with self.store.read() as db:
            old = {row.event for row in runs.known(db, run, coming.keys)}
        return coming.only([i for i, key in enumerate(coming.keys) if key not in old])

    def _check_room(self, run: Any, data: Block) -> None:
        if run.succeeded:
            raise HorizonExceeded("this agent has a successor: give users to that one")
        if run.stopped:
            raise InvalidArgument("this run is stopped: agent.start() lets users come again")
        left = self.algorithm.users - self._taken(run)
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {self.algorithm.users} users; {left} are left, "
                f"{data.users} came: a successor goes on with what it learnt (agent.successor)"
            )

    def _check_schema(self, view: View, data: Block) -> None:
        """Refuses columns that the next query cannot read; shapes and types are public."""
        columns = {name: (array.dtype, array.shape[1:]) for name, array in data.arrays.items()}
        plain = type(data) is Block and not data.aggregate
        if plain and self._fits == (view.run.latest, columns):
            return
        if getattr(self._curator, "made", "") not in data.arrays:
            self._statistic(view.now).check(data)
        self._fits = (view.run.latest, columns)

    def _taught(self, view: View, data: Block) -> Sequence[int]:
        """Rows of users whose version teaches something; others are retired."""
        everybody = range(data.users)
        alone = data.aggregate or not self.algorithm.on_policy(view.now.plan)
        if alone or "versions" not in data.arrays:
            return everybody
        serving, age = view.run.version, self.algorithm.max_age
        oldest, newest = max(serving - age, view.now.at.offset), view.run.latest if age else serving
        versions, latest = np.asarray(data["versions"]), view.run.latest
        here = (versions >= oldest) & (versions <= newest)
        if here.all():
            return everybody
        if not ((versions >= 0) & (versions <= latest)).any():
            raise InvalidArgument(
                f"versions must say which published policy each user followed, 0 to {latest}"
            )
        found: list[int] = np.flatnonzero(here).tolist()
        warn(
            f"{data.users - len(found)} of these users followed none of the policies {oldest} to "
            f"{newest}, and teach this agent nothing: they were not taken",
            stacklevel=5,
        )
        return found

    def _put(self, coming: Coming, seen: Any) -> Receipt | None:
        """Puts users into the block that fills; None if it is not as it was seen."""
        users, names = coming.rows.users, coming.names
        if not coming.keys and not self.store.durable:
            kept = self._admitted(coming)
            if kept.rows.users:
                block = self._look().run.block
                self._waiting.add(kept.rows, block, kept.names or [""] * kept.rows.users)
        else:
            with self.store.write() as db:
                run = runs.find(db, self.run_name)
                now = runs.block_of(db, self.run_name, run.block)
                if (now.block, now.stage, now.places) != (seen.block, seen.stage, seen.places):
                    return None
                pays = runs.admit(db, run, run.block, names or [""] * users)
                kept = coming.only([i for i, cost in enumerate(pays) if cost >= 0])
                cost = [cost for cost in pays if cost >= 0]
                if kept.rows.users:
                    paid = [*zip(kept.names, cost, strict=True)] if names else ()
                    self._write(db, run, run.block, kept.rows, paid, [(k, "") for k in kept.keys])
            self._look(fresh=True)
        return Receipt(users, waiting=kept.rows.users, refused=users - kept.rows.users)

    def _admitted(self, coming: Coming) -> Coming:
        """Users of a run in memory, who are written to it together, with their block.

        They are refused now by the same rule as then.
        """
        run, block = self._look().run, self._look().run.block
        if self._came is None and coming.names:
            with self.store.read() as db:
                self._came = runs.came(db, run)
            for name in self._waiting.names if self._waiting.of(block) else ():
                self._came[name] = (self._came.get(name, (0, -1))[0] + 1, block)
        rows, came = list[int](), self._came or {}
        for i, name in enumerate(coming.names):
            count, last = came.get(name, (0, -1))
            if not runs.spent_up(run, block, count, last):
                came[name] = (count + 1, block)
                rows.append(i)
        self._came = came if coming.names else self._came
        return coming.only(rows) if coming.names else coming

    def _spill(self, db: Any, run: Any) -> None:
        """Writes who waits in memory."""
        if not self._waiting.of(run.block):
            return
        given, names, paid = self._waiting.everybody(), self._waiting.names, []
        if names:
            cost = runs.admit(db, run, run.block, names)
            kept = [i for i, pays in enumerate(cost) if pays >= 0]
            given, paid = _rows(given, kept), [(names[i], cost[i]) for i in kept]
        self._write(db, run, run.block, given, paid)

    def _write(
        self, db: Any, run: Any, block: int, rows: Block, people: Any = (), events: Any = ()
    ) -> None:
        """One packet of users. Memory that is lost with this process holds what has no names."""
        held = type(rows) is not Block or (not people and not self.store.durable)
        data = b"" if held else dump((rows.aggregate, dict(rows.arrays)))
        shares = {run.version: rows.users}
        if "versions" in rows.arrays:
            found, counts = np.unique(rows["versions"], return_counts=True)
            shares = dict(zip(found.tolist(), counts.tolist(), strict=True))
        packet = runs.Packet(block, rows.users, data, shares, people, events)
        number = runs.put(db, self.store, run, packet)
        if held:
            self._held[number] = rows

    # Users, by tickets.

    def ticket(self) -> str:
        """Takes a place in the block that fills, for a device that reads the policy now.

        It is what its episode must come with, within the window. Counted in memory until
        :meth:`flush_places`. Empty where there is no place: she follows the policy, and is not
        asked.
        """
        view = self._seen or self._look()
        block, run = view.open, view.run
        with self._counting:
            both = (*self._places.items(), *self._writing.items())
            places = block.places + sum(n for (of, _), n in both if of == block.block)
            if run.stopped or run.succeeded or block.stage != "open" or places >= block.size:
                return ""
            self._places[(block.block, run.version)] += 1
        text = f"{run.version}.{block.block}.{secrets.token_hex(8)}"
        return f"{text}.{self.store.keyed('ticket', self.run_name, text)}"

    @property
    def unwritten(self) -> bool:
        """Whether places were taken that :meth:`flush_places` would write."""
        return bool(self._places or self._writing)

    def flush_places(self) -> None:
        """Writes places that were taken since; a block that has all of its own closes."""
        now = self._look().now
        if self._places:
            with self._written() as taken, self.store.write() as db:
                self._count(db, runs.find(db, self.run_name), now, taken)

    @contextlib.contextmanager
    def _written(self) -> Iterator[Counter[tuple[int, int]]]:
        """Places that are written within, and are there again if that fails."""
        with self._flushing:
            with self._counting:
                taken, self._places = self._places, Counter()
                self._writing = taken
            try:
                yield taken
            except BaseException:
                with self._counting:
                    self._places.update(taken)
                raise
            else:
                with contextlib.suppress(StoreGone):
                    self._look(fresh=True)
            finally:
                with self._counting:
                    self._writing = Counter()

    def _count(
        self, db: Any, run: Any, now: Checkpoint, taken: Mapping[tuple[int, int], int]
    ) -> None:
        for block in sorted({block for block, _ in taken}):
            shares = {v: n for (b, v), n in taken.items() if b == block}
            self._close_full(db, run, now, runs.take_places(db, run, block, shares))

    def _close_full(self, db: Any, run: Any, now: Checkpoint, block: Any) -> None:
        """Closes a block that has all its places; the next one opens if it may."""
        if block is None or block.stage != "open" or block.places < block.size:
            return
        runs.set_block(db, run, block.block, stage="closed", at=time.time())
        if self._ahead(now):
            self._open_next(db, run, now, block.block)

    def receive(
        self, rows: Block, people: Sequence[str], events: Sequence[str], tickets: Sequence[str]
    ) -> list[Answer]:
        """Takes devices in, all of them in one transaction; what each is told.

        Args:
            rows: Their episodes or reports, in their order.
            people: Who they are.
            events: Names of their episodes; one that came before is answered as it was then.
            tickets: What they got with their policies.
        """
        now = self._look().now
        with self._written() as taken, self.store.write() as db:
            run = runs.find(db, self.run_name)
            self._count(db, run, now, taken)  # or places of these devices would count twice
            names = self.store.pseudonyms(db, people)
            keys = self.store.pseudonyms(
                db, [f"{n} {e}" for n, e in zip(names, events, strict=True)]
            )
            told, groups = runs.decide(db, run, keys, tickets, [*map(self._place, tickets)])
            for (number, version), some in sorted(groups.items()):
                if self.privacy.devices_add and version != run.version:
                    # Reports in one sum are of one version; somebody rolled back just now.
                    told |= dict.fromkeys(some, Answer("late", version=run.version))
                    continue
                pays = runs.admit(db, run, number, [names[i] for i in some])
                kept = [(i, cost) for i, cost in zip(some, pays, strict=True) if cost >= 0]
                told |= dict.fromkeys(some, Answer("refused", version=run.version))
                told |= dict.fromkeys([i for i, _ in kept], Answer("waiting", number, version))
                if not kept:
                    continue
                part = _rows(rows, [i for i, _ in kept])
                followed = np.full(part.users, version, dtype=np.int64)
                part = Block(part.users, {**part.arrays, "versions": followed})
                who = [(names[i], cost) for i, cost in kept]
                self._write(db, run, number, part, who, [(keys[i], tickets[i]) for i, _ in kept])
                self._close_full(db, run, now, runs.block_of(db, self.run_name, number))
        first = {key: i for i, key in reversed([*enumerate(keys)])}
        return [told[i] if i in told else told[first[key]] for i, key in enumerate(keys)]

    def _place(self, ticket: str) -> tuple[int, int] | None:
        """Version and block of a ticket; None if it is not ours."""
        said, _, mark = ticket.rpartition(".")
        ours = self.store.keyed("ticket", self.run_name, said)
        if not secrets.compare_digest(mark.encode(), ours.encode()):
            return None
        version, block, _ = said.split(".")
        return int(version), int(block)

    def forget(self, person: int | str) -> dict[str, int]:
        """Erases what waits of a person, in every run of the store.

        Returns:
            How many of her episodes were ``removed``, and how many were ``released`` before, which
            cannot be taken back.
        """
        while True:
            for agent in [*self.store.agents] if not self.store.durable else ():
                agent._settle()
            with self.store.write() as db:
                found = runs.forget(db, self.store, *self.store.pseudonyms(db, [person]))
            if found is not None:
                break
            time.sleep(0.05)  # a block is held: its release comes first
        self.store.erase_traces()
        self._look(fresh=True)
        return found

    def _settle(self) -> None:
        """Nobody waits in memory: all are in the store, where they can be forgotten."""
        with self._alone("forget"):
            run = self._look().run
            with self.store.write() as db:
                self._spill(db, run)
            self._waiting, self._came = Waiting(), None
            self._look(fresh=True)

    # Blocks.

    def step(self) -> bool:
        """Moves the oldest block on by its two commits, if it is ready; whether it was."""
        with self._alone("step"):
            return self._step()

    def _step(self) -> bool:
        view = self._look()
        if view.first.stage == "closed" and view.first.at > time.time() + _CLOCKS:
            # The clock was set back: its window begins anew, or it would wait for that long.
            with self.store.write() as db:
                runs.set_block(db, view.run, view.first.block, at=time.time())
            view = self._look(fresh=True)
        if not self._ready(view.first):
            return False
        try:
            if view.first.stage in ("open", "closed"):
                view = self._sealed(view)
            self._move(view)
            self._in_vain = 0
        except Conflict:  # another process was faster, or somebody was forgotten: look again
            self._seen, self._in_vain = None, self._in_vain + 1
            if self._in_vain >= _IN_VAIN:
                with self.store.write() as db:
                    runs.set_run(db, self.run_name, hold=time.time() + _HOLD)
        return True

    def _ready(self, block: Any) -> bool:
        """Whether a block can be moved on: everybody has come, or had time to."""
        if block.stage == "open":
            return bool(0 < block.size <= block.places + self._waiting.of(block.block))
        since = time.time() - block.at
        full = block.users >= block.places and since >= _GRACE
        return bool(block.stage != "closed" or full or since >= self.window)

    def _sealed(self, view: View) -> View:
        """The run once it is known who is in its oldest block; the next one opens if it may."""
        block, run, now = view.first, view.run, view.now
        waiting = self._waiting.of(block.block)
        with self.store.write() as db:
            runs.fence(db, run)
            if waiting:
                self._spill(db, run)
            if not block.users + waiting and self.privacy.devices_add:
                # Without reports there is no noise either: others may come in their place.
                more = {"stage": "open", "size": block.size + block.places}
                runs.set_block(db, run, block.block, **more)
            else:
                runs.set_block(db, run, block.block, stage="sealed")
                if view.open.block == block.block and self._ahead(now):
                    self._open_next(db, run, now, block.block)
            found = runs.find(db, self.run_name), runs.block_of(db, self.run_name, block.block)
        if found[1].stage == "open":
            raise Conflict("nobody came")
        return View(*found, view.open, now)

    def _open_next(self, db: Any, run: Any, now: Checkpoint, block: int) -> None:
        taken = int(runs.find(db, self.run_name).taken)
        after = replace(now.at, releases=block + 1, served=taken)
        runs.open_block(db, run, block + 1, self.algorithm.block_users(after))

    def _move(self, view: View) -> None:
        """Takes a sealed block through both commits."""
        run, block, now = view.run, view.first, view.now
        shares = {int(version): n for version, n in json.loads(block.versions).items()}
        with self.store.read() as db:
            done, packets = runs.recorded(db, run, block.block), []
            if block.stage == "sealed":
                packets = runs.data_of(db, self.store, run, block.block)
            plans = self._plans(db, now, shares)
            if self._drawn != run.releases:  # another process was here, or something was raised
                self._revive(db, run, now)
        plan = now.plan if len(plans) != 1 else next(iter(plans.values()))
        raw = None
        if block.stage != "released":
            raw = self._raw(run, replace(now, plan=plan), packets)
        if plans:
            plan, raw = self._followed(plans, shares, raw)
        users = block.users if self.privacy.devices_add else block.places
        info = BlockInfo(**vars(now.at), users=users, versions=shares)
        rng = np.random.default_rng(0)
        rng.bit_generator.state = now.rng
        queries = self.algorithm.learn(now.state, plan, info, rng)
        try:
            asked, answers, state = self._ask(run, block, raw, queries, done)
        finally:
            queries.close()
        self._commit(view, state, (asked, answers), info, rng)

    def _raw(self, run: Any, now: Checkpoint, packets: Sequence[tuple[int, int, bytes]]) -> Block:
        """The episodes of a sealed block.

        Raises:
            Conflict: Some of them are none of the run's schema; they are set aside by now.
        """
        found, bad, asked = list[Block](), list[int](), self._statistic(now)
        made = getattr(self._curator, "made", "")
        for number, users, data in packets:
            try:
                held = self._held.get(number)
                if held is None:
                    aggregate, arrays = load(data)
                    held = Block(users, arrays, aggregate)
                if isinstance(self._curator, LocalCurator) and made in held.arrays:
                    # One that no device makes counts as zero: sums with it would be lost.
                    checked = self._curator.checked_reports(asked, held[made])
                    held = Block(users, {**held.arrays, **checked.arrays})
                elif made not in held.arrays:
                    asked.check(held)
                found.append(held)
            except (CorruptFile, InvalidArgument, ValueError, TypeError):
                bad.append(number)
        if bad:
            with self.store.write() as db:
                for number in bad:
                    runs.set_aside(db, run, number, "rows that are no episodes of this run")
            raise Conflict("rows were set aside")
        if len(found) == 1:
            return found[0].sealed()
        names = found[0].arrays if found else ()
        return Block(
            sum(block.users for block in found),
            {name: np.concatenate([block[name] for block in found]) for name in names},
        ).sealed()

    def _plans(self, db: Any, now: Checkpoint, shares: Mapping[int, int]) -> dict[int, Plan]:
        """Plans that the users of a block followed, where they are asked by them."""
        found = dict[int, Plan]()
        for version in sorted(shares) if self.algorithm.on_policy(now.plan) else ():
            if version == now.plan.policy.version:
                found[version] = now.plan
            else:  # nothing counts of who followed a version that is not kept
                with contextlib.suppress(InvalidArgument):
                    found[version] = self._checkpoint(db, version).plan
        return found

    def _followed(
        self, plans: dict[int, Plan], shares: Mapping[int, int], raw: Block | None
    ) -> tuple[Plan, Block | None]:
        """The plan of a block, and its users as it needs them: versions are components of one."""
        if len(plans) == 1:
            return next(iter(plans.values())), raw
        plan = self.algorithm.mixed(plans, {version: shares[version] for version in plans})
        if raw is None or raw.aggregate or not raw.users:
            return plan, raw
        versions, first = np.asarray(raw["versions"]), 0
        drawn = np.asarray(raw.arrays.get("components", np.zeros(raw.users, dtype=np.int64)))
        components = np.full(raw.users, -1, dtype=np.int64)
        for version, one in plans.items():
            count = len(getattr(one.policy, "components", (one.policy,)))
            mine = (versions == version) & (drawn >= 0) & (drawn < count)
            components[mine] = first + drawn[mine]
            first += count
        known = np.full(raw.users, plan.policy.version, dtype=np.int64)
        arrays = {**raw.arrays, "components": components, "versions": known}
        return plan, Block(raw.users, arrays).sealed()

    def _ask(
        self, run: Any, block: Any, raw: Block | None, queries: Any, done: list[Any]
    ) -> tuple[list[Statistic], list[Release], Any]:
        """Takes queries to the curator; what is on record is answered from there.

        Nothing that could fail on a value stands between drawing and the commit.
        """
        answers = [load(row.value) for row in done]
        spent = sum((Fraction(row.cost) for row in done), Fraction(0))
        asked, query = list[Statistic](), next(queries)
        limit = Fraction(getattr(self._curator, "limit", 1))  # of devices, one report
        only = type(self.algorithm).learn is Algorithm.learn
        while True:
            if len(asked) == len(answers):
                if raw is None:
                    raise BudgetExceeded("a block is asked more than is on record of it")
                self._drawn = -1
                if self._stream is not None:
                    self._stream.ask(query.statistic)
                    release = self._stream.answer(raw)
                else:
                    mu = self._price(query)
                    release = self._curator.answer(query.statistic, raw, mu=mu, spent=spent)
                if not raw.aggregate and not self.privacy.devices_add:
                    # Who has a place is public; whether she sent is not told.
                    before = run.served if self._stream is not None else 0
                    release = replace(release, users=before + block.places)
                cost, value = self._curator.price(release), dump(release)
                drawn = (len(asked), value, cost, spent, limit, self._secrets(), only)
                with self.store.write() as db:
                    runs.release(db, self.store, run, block, runs.Draw(*drawn))
                    run = runs.find(db, self.run_name)
                self._drawn = run.releases
                answers.append(release)
                spent += cost
            asked.append(query.statistic)
            try:
                query = queries.send(answers[len(asked) - 1])
            except StopIteration as end:
                return asked, answers, end.value

    def _price(self, query: Query) -> float | None:
        """What a query costs, in mu; None for all that is left."""
        mu = query.mu
        if query.share is not None:
            mu = math.sqrt(query.share) * self.algorithm.privacy.episode_mu
        # Without privacy nothing costs anything.
        return mu if mu is not None and math.isfinite(mu) else None

    def _commit(
        self,
        view: View,
        state: Any,
        heard: tuple[Sequence[Statistic], Sequence[Release]],
        info: BlockInfo,
        rng: np.random.Generator,
    ) -> None:
        """The second commit: the state that the record taught, and its policy."""
        algorithm, now, block = self.algorithm, view.now, view.first
        at = replace(now.at, releases=now.at.releases + 1, served=now.at.served + info.users)
        plan = algorithm.plan(state, now.plan, at, rng)
        with self.store.read() as db:
            run, rest = runs.find(db, self.run_name), runs.undone(db, view.run)
        if run.latest != view.run.latest:
            raise Conflict("the run has moved on")
        plan = _numbered(plan, run.latest + 1)
        told = (run.version, info.users, *heard, self._stream is not None)
        record = now.record.heard(*told, algorithm.monitored)
        after = Checkpoint(state, plan, at, rng.bit_generator.state, record)
        packed = dump(after, algorithm.code)
        needed = [int(v) for row in rest for v in json.loads(row.versions) if int(v) >= 0]
        keep = min([run.latest + 2 - max(_CHECKPOINTS, algorithm.max_age), *needed])
        with self.store.write() as db:
            runs.publish(db, self.store, run, packed, at.served, keep)
            self._finish(db, run, after, block.block)
            rows = runs.find(db, self.run_name), runs.undone(db, run)
        self._held.clear()
        self._seen = View(rows[0], rows[1][0], rows[1][-1], after)
        self.store.erase_traces()

    def _finish(self, db: Any, run: Any, after: Checkpoint, block: int) -> None:
        """A block is done; where users did not come ahead, the next one opens."""
        runs.erase(db, run, block)
        runs.set_block(db, run, block, stage="done")
        if run.block == block:
            self._open_next(db, run, after, block)

    # What is public.

    def __repr__(self) -> str:
        at = self.progress
        return f"<{type(self.algorithm).__name__} agent, {at.served} of {self.users} users>"

    @property
    def spec(self) -> Any:
        """What is known of the world."""
        return self.algorithm.spec

    @property
    def name(self) -> str:
        """Of the algorithm; ``run_name`` is that of the run in its store."""
        return self.algorithm.name

    @property
    def why(self) -> str:
        """Why this agent, with these options, in words."""
        return "; ".join(filter(None, (self.chosen, self.algorithm.why)))

    @property
    def users(self) -> int:
        """How many users are declared."""
        return self.algorithm.users

    @property
    def privacy(self) -> Any:
        """The privacy model."""
        return self.algorithm.privacy

    @property
    def schedule(self) -> Schedule:
        """When policies are republished."""
        return self.algorithm.schedule

    @property
    def served(self) -> int:
        """How many users were served, in blocks that were learnt from."""
        return self.progress.served

    @property
    def releases(self) -> int:
        """How many blocks were learnt from."""
        return self.progress.releases

    @property
    def form(self) -> str:
        """In which form simulated users of the next block come."""
        return self.algorithm.data_format(self.progress)

    @property
    def policy(self) -> Any:
        """The policy that serves users now."""
        view = self._look()
        if view.run.version == view.run.latest:
            return view.now.plan.policy
        with self.store.read() as db:
            return self._checkpoint(db, view.run.version).plan.policy

    @property
    def greedy_policy(self) -> Any:
        """The best policy for what is known now, without exploring."""
        return self._look().now.plan.greedy

    @property
    def state(self) -> Any:
        """What the algorithm knows; public."""
        return self._look().now.state

    @property
    def plan(self) -> Plan:
        """The newest plan; public."""
        return self._look().now.plan

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return self._look().now.at

    @property
    def record(self) -> Record:
        """What releases told of each version; :func:`tacit.monitor` reads it."""
        return self._look().now.record

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for every user; ``None`` without privacy."""
        proven, assumed = self._curator.guarantee, self.algorithm.assumption
        if proven is None or not assumed:
            return proven
        return replace(proven, mechanism=f"{proven.mechanism}; {assumed}")

    @property
    def block_users(self) -> int:
        """How many more users the block takes that fills."""
        with self._alone("block_users"):
            return self._room(self._look())

    @property
    def taken(self) -> int:
        """How many users came: those who were served, and those who wait for their block."""
        return self._taken(self._look().run)

    @property
    def statistic(self) -> Statistic:
        """What is asked first of the users of the current block; devices report it."""
        view = self._look()
        now, served = view.now, view.run.version
        if served != view.run.latest:  # a version that is pinned
            with self.store.read() as db:
                now = replace(now, plan=self._checkpoint(db, served).plan)
        return self._statistic(now)

    def publish(
        self, path: str | os.PathLike[str], *, greedy: bool = False, force: bool = False
    ) -> None:
        """Writes the public policy; any device with NumPy can load it, or a JSON reader.

        The file says what is guaranteed to whom, which agent, spec and release of Tacit made it and
        when, has a hash of all that it holds (:func:`tacit.published.about`), and the head of the
        ledger: it is a witness that an older copy of the store lacks entries.

        Args:
            path: Of the file; the JSON form if it ends in .json.
            greedy: The best policy for what is known, in place of the one that serves and explores.
            force: Also if noise is simulated (``noise_seed``) and protects nobody. The file says
                so.
        """
        with self._alone("publish"):
            proven = self.guarantee
            if proven is not None and proven.simulation_only and not force:
                raise InvalidArgument(
                    "this agent is a simulation (noise_seed) and its policy protects nobody who "
                    "was real: leave noise_seed out, or give force=True"
                )
            facts = facts_of(self, proven, self.progress)
            with self.store.read() as db:
                facts["ledger_line"], facts["ledger_head"] = ledger.head(db)
            publish_with(self.greedy_policy if greedy else self.policy, path, facts)

    def successor(self, users: int, privacy: Privacy | None = None, **serving: Any) -> Agent:
        """The agent for the next users, in the same store, which begins with all that was learnt.

        What was released is public, with how noisy it is, so starting from it costs nobody
        anything. Whoever took part here pays there too, from one account. Who waits is released
        first, and this agent takes nobody any more.

        Args:
            users: How many it is declared for.
            privacy: Its model; the same by default, of which epsilon and delta may change.
            **serving: ``schedule``, ``seed``, ``noise_seed``, ``name``.
        """
        with self._alone("successor"):
            given: dict[str, Any] = {"schedule": "auto", "seed": 0, "noise_seed": None}
            given["name"] = f"{self.run_name}+"
            for option in serving.keys() - given.keys():
                raise InvalidArgument(f"a successor has no option {option}; it has {[*given]}")
            given |= serving
            check_alike(self.privacy, privacy or self.privacy)
            if self._look().run.succeeded:
                raise HorizonExceeded("this agent has a successor: give users to that one")
            problem = Problem(
                self.spec, users, privacy or self.privacy, given["schedule"], given["seed"]
            )
            algorithm = type(self.algorithm)(problem, self.algorithm.options)
            self._close()
            run, now = self._look().run, self._look().now
            at = Progress(0, 0, now.at.all_served, run.latest + int(algorithm.ends_greedy))
            start = replace(now, state=algorithm.successor_state(now.state), at=at)
            self._seen = None
            where = {"name": given["name"], "noise_seed": given["noise_seed"]}
            return Agent(algorithm, store=self.store, start=start, after=run, **where)

    def _close(self) -> None:
        """Ends the block that fills early: whoever has come is released."""
        with self.store.write() as db:
            run = runs.find(db, self.run_name)
            for block in runs.undone(db, run):
                waiting = self._waiting.of(block.block)
                if block.stage == "closed":
                    runs.set_block(db, run, block.block, at=0.0)
                elif block.stage == "open" and block.places + waiting:
                    runs.set_block(db, run, block.block, size=block.places + waiting)
        self._seen = None
        while self._step():
            pass

    def roll_back(self, version: int, *, pin: bool = False) -> None:
        """Serves and learns on from an older version, under a new number.

        Args:
            version: Which one; its checkpoint must be kept.
            pin: Whether its policy goes on serving whatever is learnt, until :meth:`unpin`.

        A block that is released and not yet learnt from teaches nothing then: so a run goes on
        whose update or plan fails on it.
        """
        with self._alone("roll_back"):
            view = self._look()
            run, block, at = view.run, view.first, view.now.at
            if self.privacy.devices_add and view.open.places:
                raise InvalidArgument("devices report for the version that serves: no way back now")
            with self.store.read() as db:
                old, done = self._checkpoint(db, version), runs.recorded(db, run, block.block)
            # What is served and counted only goes forward, and so do counters.
            if done:
                users = block.users if self.privacy.devices_add else block.places
                at = replace(at, releases=at.releases + 1, served=at.served + users)
            new = replace(old, plan=_numbered(old.plan, run.latest + 1), at=at)
            packed, number = dump(new, self.algorithm.code), run.latest + 1
            with self.store.write() as db:
                ledger.append(db, self.run_name, "roll back", to=version, version=number)
                runs.publish(db, self.store, run, packed, at.served, 0, pinned=0)
                if done:
                    self._finish(db, run, new, block.block)
                if pin:
                    runs.set_run(db, self.run_name, pinned=1)
            self._seen = None

    def unpin(self) -> None:
        """After the next release a new policy serves again."""
        self._set("unpin", pinned=0)

    def stop(self) -> None:
        """Takes nobody in and gives no places until :meth:`start`; what serves goes on serving."""
        self._set("stop", stopped=1)

    def start(self) -> None:
        """Takes users in again."""
        self._set("start", stopped=0)

    def _set(self, what: str, **values: int) -> None:
        with self.store.write() as db:
            ledger.append(db, self.run_name, what)
            runs.set_run(db, self.run_name, **values)
        self._look(fresh=True)

    # What a service needs.

    def run_row(self) -> Any:
        """The row of the run, as the store has it."""
        return self._look().run

    def lead(self, who: str, seconds: float = 3.0) -> bool:
        """Takes or renews the lease by which one of several processes computes.

        An economy: commits are fenced, whoever computes.
        """
        now = time.time()

        def held(run: Any) -> bool:
            # One that ends too late was given by a clock that was ahead.
            return bool(run.leader != who and now < run.lease <= now + 2.0 * seconds)

        run = self._look().run
        if held(run):
            return False
        if run.leader != who or not now + seconds / 2 <= run.lease <= now + 2.0 * seconds:
            with self.store.write() as db:
                if held(runs.find(db, self.run_name)):
                    return False
                runs.set_run(db, self.run_name, leader=who, lease=now + seconds)
        return True

    def policy_body(self, version: int) -> tuple[bytes, str] | None:
        """The public JSON file of a version and its hash; None of one that never was.

        It is made when it is first asked for, and never changes.
        """
        with self.store.read() as db:
            row = runs.version_of(db, self.run_name, version)
            if row is None or row.etag:
                return None if row is None else (bytes(row.policy), row.etag)
            if row.state is None:
                return None
            checkpoint = self._checkpoint(db, version)
        facts = facts_of(self, self.guarantee, checkpoint.at)
        facts |= {"ledger_line": row.seq, "ledger_head": row.head}
        body = published_bytes(checkpoint.plan.policy, facts)
        with self.store.write() as db:
            runs.keep_policy(db, self.run_name, version, body)
        return self.policy_body(version)

    def trouble(self, problem: str) -> None:
        """Notes a problem, in public words, for every process to tell."""
        with self.store.write() as db:
            runs.trouble(db, self.run_name, problem)

    def well(self, problem: str = "") -> None:
        """Ends a problem, or all of them."""
        with self.store.write() as db:
            runs.well(db, self.run_name, problem)

    def problems(self) -> list[str]:
        """Problems of the run, whichever process found them."""
        with self.store.read() as db:
            return runs.problems_of(db, self.run_name)

    # Shared work.

    def _with_component(self, data: Block, plan: Plan) -> Block:
        """Users with the components that they drew, as a mixed policy needs them.

        Each user says what she drew. Where nobody does, nothing of them would count: that is
        refused, if only those count who followed the policy.
        """
        policy = plan.policy
        mixed, given = hasattr(policy, "components"), "components" in data.arrays
        if mixed == given or data.aggregate:
            return data
        if (
            data.users
            and not given
            and len(policy.components) > 1
            and self.algorithm.on_policy(plan)
        ):
            raise InvalidArgument(
                f"policy {policy.version} is mixed, and these episodes do not say which of its "
                "components each user drew: give components=..., of a log component=..."
            )
        arrays = {name: array for name, array in data.arrays.items() if name != "components"}
        if mixed:
            only = 0 if len(policy.components) == 1 else -1
            arrays["components"] = np.full(data.users, only, dtype=np.int64)
        return Block(data.users, arrays)

    def _statistic(self, now: Checkpoint) -> Statistic:
        info = BlockInfo(**vars(now.at), users=self.algorithm.block_users(now.at))
        rng = np.random.default_rng(0)
        queries = self.algorithm.learn(now.state, now.plan, info, rng)
        try:
            return next(queries).statistic
        finally:
            queries.close()

    def _taken(self, run: Any) -> int:
        return int(run.taken) + self._waiting.of(run.block)

    def _room(self, view: View) -> int:
        block = view.open
        if block.stage != "open":
            return 0
        return max(0, int(block.size - block.places) - self._waiting.of(block.block))


def open_run(store: Store | str | os.PathLike[str], name: str = "run") -> Agent:
    """The agent of a run that a store has, as it was made.

    Args:
        store: A file, a URL, or an opened :class:`~tacit.store.store.Store`.
        name: Of the run.
    """
    opened = store if isinstance(store, Store) else Store(store, create=False)
    with opened.read() as db:
        run, names = runs.find(db, name), runs.names(db)
        simulation = opened.simulation(db)
    if run is None:
        raise InvalidArgument(f"the store has no run {name!r}; it has {', '.join(names) or 'none'}")
    if not run.made:  # a store names no code but ours
        raise InvalidArgument(
            f"the run {name!r} has code among its arguments: make it as before, with store and name"
        )
    (module, kind), problem, options = load(run.made, built=True)
    algorithm = getattr(importlib.import_module(module), kind)(problem, options)
    return Agent(algorithm, store=opened, name=name, noise_seed=0 if simulation else None)


def _made(algorithm: Algorithm[Any]) -> bytes:
    """Arguments of one of our algorithms, from which it is made again; nothing if they are code."""
    kind = type(algorithm)
    with contextlib.suppress(TypeError):
        if kind.__module__.startswith("tacit."):
            named = (kind.__module__, kind.__qualname__)
            return dump((named, algorithm.problem, algorithm.options))
    return b""


def _numbered(plan: Plan, version: int) -> Plan:
    """A plan whose policies have their number."""
    policy, greedy = plan.policy.as_version(version), plan.greedy.as_version(version)
    return Plan(policy, greedy, plan.memory)


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
