"""Agents: take users in, move blocks through the curator, and publish policies.

An agent keeps nothing that matters: all of it is in its store, and every call begins with what the
store says. A block is two commits. The first charges its users, records the release and erases
their episodes; the second is the state that has learnt from the record, and its policy. Before the
first nothing was spent and nothing seen; between the two, everything is computed from the record.
So there is one way to recover from anything: read the store, and go on.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.algorithm import Algorithm, BlockInfo, Plan, Progress, Query
from tacit.core.cautions import warn_of_budget
from tacit.core.monitor import Record
from tacit.core.problem import Problem
from tacit.core.public_file import facts_of, publish_with
from tacit.core.receipt import Receipt
from tacit.core.schedule import Schedule
from tacit.core.waiting import Waiting
from tacit.data.columns import as_numbers
from tacit.data.episodes import Episodes
from tacit.data.vector_episodes import VectorEpisodes
from tacit.privacy.arguments import instance_of
from tacit.privacy.curator import Curator, JointCurator, Release, Stream
from tacit.privacy.distributed import DistributedCurator
from tacit.privacy.errors import BudgetExceeded, HorizonExceeded, InvalidArgument
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import Privacy, check_alike
from tacit.privacy.noise import Noise
from tacit.privacy.owner import Uncopyable, new_lock, refuse_within
from tacit.privacy.statistic import Block, Statistic
from tacit.store import ledger, runs
from tacit.store.store import Conflict, Store
from tacit.store.values import dump, load

Data = Episodes | VectorEpisodes | Block
Ids = Sequence[int | str] | None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a run knows at a version."""

    state: Any
    plan: Plan
    at: Progress
    rng: Mapping[str, Any]  # of ties and of first policies; not of the noise
    record: Record


@final
class Agent(Uncopyable):
    """Serves users, keeps their data, and publishes.

    Args:
        algorithm: What learns.
        store: Where all of it is kept: a :class:`~tacit.store.Store`, a file, a URL, or memory.
        name: Of the run in its store.
        noise_seed: Reproducible noise, for simulations only: it protects nobody.
        start: State to begin with, and where its run stood; a successor's.
    """

    why_single = "an agent cannot be copied: two copies would spend one budget twice"
    chosen: str = ""

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
    ) -> None:
        if noise_seed is None:
            # Before a store is touched: where warnings are errors, nothing has happened.
            warn_of_budget(algorithm.privacy, algorithm.users)
        self.algorithm, self.run_name = algorithm, name
        self.store = store if isinstance(store, Store) else Store(store)
        self._lock = new_lock()
        options = {"users": algorithm.users, "noise_seed": noise_seed, "protects": algorithm.unit}
        self._curator: Curator[Any] = algorithm.privacy.curator(**options)
        self._seen: tuple[Any, Checkpoint] | None = None
        self._stream: Stream | None = None
        self._held: dict[int, Block] = {}  # by packet, where the store keeps no bytes of it
        self._waiting = Waiting()
        with self.store.write() as db:
            run = runs.find(db, name)
            if run is None:
                self._begin(db, start)
            elif run.fingerprint != ledger.digest(algorithm.fingerprint):
                raise InvalidArgument(f"the run {name!r} in this store has other arguments")

    def _begin(self, db: Any, start: Checkpoint | None) -> None:
        algorithm = self.algorithm
        run = runs.create(
            db, self.run_name, ledger.digest(algorithm.fingerprint), self._terms(), ""
        )
        rng = algorithm.problem.rng()
        if start is None:
            state, at, plan = algorithm.init(), Progress(), None
        else:
            state, at, plan = start.state, start.at, start.plan
        # A first plan is made where there is none, or where the last one explores no more.
        if plan is None or algorithm.ends_greedy:
            plan = algorithm.plan(state, plan, at, rng)
        first = Checkpoint(state, _numbered(plan, at.offset), at, rng.bit_generator.state, Record())
        if isinstance(self._curator, JointCurator) and algorithm.counter != "blocks":
            stream = self._curator.stream(
                self._statistic(first), releases=algorithm.schedule.releases, kind=algorithm.counter
            )
            self.store.put_secret(db, self.run_name, "stream", dump(stream.dump()))
        self._keep_noise(db)
        runs.publish(db, self.store, run, dump(first, algorithm.code), b"", 0, self._kept)
        runs.open_block(db, run, 0, algorithm.block_users(at))

    def _terms(self) -> runs.Terms:
        privacy = self.algorithm.privacy
        joint = isinstance(self._curator, JointCurator)
        limit = self._curator.limit if isinstance(self._curator, JointCurator) else 0.0
        cost = 0.0
        if joint:
            cost = privacy.epsilon if privacy.pure else privacy.budget.mu**2
        return runs.Terms(
            unit="" if not joint else "epsilon" if privacy.pure else "mu^2",
            limit=limit,
            cost=cost,
            episodes=getattr(privacy, "episodes_per_user", 0),
            once=privacy.separate_blocks,
            users=self.algorithm.users,
            simulation=self._curator.source.simulation,
        )

    @property
    def _kept(self) -> int:
        """Checkpoints of how many versions are kept: those whose users may still come."""
        return self.algorithm.max_age + 2

    # Reading the store.

    def _look(self) -> tuple[Any, Checkpoint]:
        """The run's row and its newest checkpoint, as the store has them."""
        seen = self._seen
        if seen is not None and not self.store.durable:
            return seen
        with self.store.read() as db:
            run = runs.find(db, self.run_name)
            if seen is not None and run.epoch == seen[0].epoch:
                return run, seen[1]
            found = run, self._checkpoint(db, run.latest)
            self._revive(db, found[1])
        self._seen = found
        return found

    def _checkpoint(self, db: Any, version: int) -> Checkpoint:
        row = runs.version_of(db, self.run_name, version)
        if row is None or row.state is None:
            raise InvalidArgument(f"version {version} of {self.run_name!r} is not kept any more")
        found: Checkpoint = load(self.store.opened(row.state), self.algorithm.code)
        return found

    def _revive(self, db: Any, checkpoint: Checkpoint) -> None:
        """Counter and simulated noise as the last commit left them."""
        if self._curator.source.simulation:
            state = self.store.secret(db, self.run_name, "noise")
            self._curator.source = Noise.from_state(None if state is None else load(state))
        dumped = self.store.secret(db, self.run_name, "stream")
        if dumped is not None:
            assert isinstance(self._curator, JointCurator)  # noqa: S101
            asked = self._statistic(checkpoint)
            self._stream = Stream.revived(self._curator, asked, load(dumped))

    def _secrets(self) -> dict[str, bytes]:
        """What a commit keeps beside its release: the counter, and a simulation's noise."""
        source, found = self._curator.source, dict[str, bytes]()
        if isinstance(source, Noise) and source.simulation:
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
                self._seen = None
                raise

    # Users.

    def learn(self, data: Data, user_ids: Ids = None) -> Receipt:
        """Takes users that a policy served; publishes the next policy when a block is full.

        Args:
            data: Episodes of any number of users, or the sums of exactly one block (simulations).
            user_ids: One for each of them, all or none.

        Returns:
            Where everybody went. If anything is raised after some of them were taken, the error
            says how many, in a note and as ``users_taken``: they must not be given again.
        """
        with self._alone("learn"):
            block, ids = self._given(data, user_ids)
            return self._take_all(block, ids)

    def learn_reports(self, reports: ArrayLike, user_ids: Ids = None) -> Receipt:
        """Takes local reports, one row per user; see :mod:`tacit.privacy.local`.

        Args:
            reports: Made on devices by ``tacit.local.report`` from ``statistic`` and ``privacy``.
            user_ids: Who sent them, all or none.
        """
        with self._alone("learn_reports"):
            if not isinstance(self._curator, LocalCurator):
                raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
            # What a device sent instead of a number must not cost the others their reports.
            rows = as_numbers("reports", reports)
            block = self._curator.checked_reports(self._statistic(self._look()[1]), rows)
            return self._take_all(block, _plain_ids(user_ids, block.users))

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
            devices = self._room()
            sizes = {"devices": devices, "stayed": devices if stayed is None else stayed}
            block = self._curator.checked_sum(self._statistic(self._look()[1]), total, **sizes)
            return self._take_all(block, None)

    def forget(self, person: int | str) -> dict[str, int]:
        """Erases what waits of a person, in every run of the store.

        Returns:
            How many of her episodes were ``removed``, and how many were ``released`` before, which
            cannot be taken back.
        """
        with self._alone("forget"):
            with self.store.write() as db:
                found = runs.forget(db, self.store, *self.store.pseudonyms(db, [person]))
            self.store.erase_traces()
            self._seen = None
            return found

    def _given(self, data: Data, user_ids: Ids) -> tuple[Block, Ids]:
        """A call's users as one block, and their names; refuses public mistakes."""
        if not isinstance(data, Block):
            instance_of("data", data, (Episodes, VectorEpisodes, Block))
            if user_ids is not None and data.user_ids not in (None, tuple(user_ids)):
                raise InvalidArgument("user_ids are given twice, and are not those of the episodes")
            user_ids = data.user_ids if user_ids is None else user_ids
            data = data.block()
        self._curator.check_block(data)
        ids = _plain_ids(user_ids, data.users)
        if ids is not None and data.aggregate:
            raise InvalidArgument("an aggregate block has no user_ids")
        return data, ids

    def _take_all(self, data: Block, ids: Ids) -> Receipt:
        """Takes users part by part; a part ends where a block does."""
        run, now = self._look()
        if run.succeeded:
            raise HorizonExceeded("this agent has a successor: give users to that one")
        left = self.algorithm.users - self._taken(run)
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {self.algorithm.users} users; {left} are left, "
                f"{data.users} came: a successor goes on with what it learnt (agent.successor)"
            )
        given, on_policy = data.users, self.algorithm.on_policy(now.plan) and not data.aggregate
        data = self._with_component(data, now.plan)
        if getattr(self._curator, "made", "") not in data.arrays:
            self._statistic(now).check(data)
        found, start, stop, before = Receipt(given, version=run.version), 0, 0, 0
        try:
            while start < data.users:
                room, before = self._room(), self._taken(self._look()[0])
                if not room:
                    raise HorizonExceeded(
                        f"no block is left for {data.users - start} more users: the schedule ended"
                    )
                if data.aggregate and data.users != room:
                    raise InvalidArgument(
                        f"sums must be of one whole block: {room} users, got {data.users}"
                    )
                # Who followed a policy goes into its block, however many they are.
                stop = data.users if on_policy else min(data.users, start + room)
                whole = stop - start == data.users
                part = data if whole else data.take(slice(start, stop))
                names = None if ids is None or whole else ids[start:stop]
                found = found.with_part(self._take(part, ids if whole else names))
                start = stop
        except BaseException as error:
            with contextlib.suppress(Exception):
                # A part is taken by one commit: the store says whether it was.
                self._seen = None
                start = stop if self._taken(self._look()[0]) > before else start
            _say_who(error, start, data.users)
            raise
        return found

    def _take(self, part: Block, ids: Ids) -> Receipt:
        """Takes users of the block that fills, and releases it if it is full."""
        run, _ = self._look()
        if ids is None and not self.store.durable:
            self._waiting.add(part, run.block)
            out = 0
        else:
            out = self._write(part, ids)
        before, published = run.served, list[int]()
        while self.step():
            published.append(self._look()[0].latest)
        run, _ = self._look()
        through = run.served > before
        counted = part.users - out if through else 0
        waiting = 0 if through else part.users - out
        return Receipt(part.users, counted, waiting, 0, out, run.version, tuple(published))

    def _write(self, part: Block, ids: Ids) -> int:
        """Puts users into the store in one transaction; how many were refused by their accounts."""
        with self.store.write() as db:
            run = runs.find(db, self.run_name)
            names = [] if ids is None else self.store.pseudonyms(db, ids)
            pays = runs.admit(db, run, run.block, names)
            keep = np.array([cost >= 0 for cost in pays], dtype=bool)
            kept = part if ids is None or keep.all() else part.take(keep)
            who = [(n, c) for n, c in zip(names, pays, strict=True) if c >= 0]
            held = part.aggregate or not self.store.durable
            data = b"" if held else dump(dict(kept.arrays))
            version = run.version
            number = runs.put(db, self.store, run, (run.block, version, kept.users, data), who)
            if held:
                self._held[number] = kept
        self._seen = None
        return part.users - kept.users

    # Blocks.

    def step(self) -> bool:
        """Moves one block on by its two commits; False if none is full."""
        run, now = self._look()
        block = self._sealed(run, now)
        if block is None:
            return False
        with self.store.read() as db:
            run, done = runs.find(db, self.run_name), runs.recorded(db, run, block.block)
            raw = None if block.stage == "released" else self._raw(db, run, block.block)
        info = BlockInfo(**vars(now.at), users=block.users, versions=_versions(raw, run.version))
        rng = np.random.default_rng(0)
        rng.bit_generator.state = now.rng
        queries = self.algorithm.learn(now.state, now.plan, info, rng)
        try:
            asked, answers, state = self._ask(run, block, raw, queries, done)
            self._commit(block, now, state, asked, answers, info, rng)
        except Conflict:
            pass  # another process was faster, or somebody was forgotten: look again
        finally:
            queries.close()
            self._seen = None
        return True

    def _sealed(self, run: Any, now: Checkpoint) -> Any:
        """The block that is to be released next, sealed; None if none is full."""
        with self.store.write() as db:
            block = runs.next_block(db, run)
            if block.stage != "open":
                return block
            waiting = self._waiting.of(block.block)
            if not 0 < block.size <= block.users + waiting:
                return None
            if waiting:
                given = self._waiting.everybody()
                number = runs.put(db, self.store, run, (block.block, run.version, given.users, b""))
                self._held[number] = given
            row = runs.block_of(db, self.run_name, block.block)
            after = replace(now.at, releases=now.at.releases + 1, served=run.served + row.users)
            runs.fence(db, run)
            runs.set_stage(db, run, block.block, "sealed")
            runs.open_block(db, run, block.block + 1, self.algorithm.block_users(after))
            return runs.block_of(db, self.run_name, block.block)

    def _raw(self, db: Any, run: Any, number: int) -> Block:
        """The episodes of a sealed block."""
        found = []
        for identity, users, data in runs.data_of(db, self.store, run, number):
            held = self._held.get(identity)
            found.append(Block(users, load(data)) if held is None else held)
        if len(found) == 1:
            return found[0].sealed()
        names = found[0].arrays
        return Block(
            sum(block.users for block in found),
            {name: np.concatenate([block[name] for block in found]) for name in names},
        ).sealed()

    def _ask(
        self, run: Any, block: Any, raw: Block | None, queries: Any, done: list[Any]
    ) -> tuple[list[Statistic], list[Release], Any]:
        """Takes queries to the curator; what is on record is answered from there.

        Nothing that could fail on a value stands between drawing and the commit.
        """
        answers = [load(row.value) for row in done]
        spent = sum((Fraction(row.cost) for row in done), Fraction(0))
        asked = list[Statistic]()
        query, only = next(queries), type(self.algorithm).learn is Algorithm.learn
        while True:
            if len(asked) == len(answers):
                if raw is None:
                    raise BudgetExceeded("a block is asked more than is on record of it")
                release = self._answer(query, raw, spent, run.served)
                cost, limit = self._curator.price(release), self._limit
                value, secrets = dump(release), self._secrets()
                with self.store.write() as db:
                    given = (run, block, value, cost, limit, secrets)
                    runs.release(db, self.store, *given, last=only)
                    run = runs.find(db, self.run_name)
                answers.append(release)
                spent += cost
            asked.append(query.statistic)
            try:
                query = queries.send(answers[len(asked) - 1])
            except StopIteration as end:
                return asked, answers, end.value

    def _answer(self, query: Query, raw: Block, spent: Fraction, index: int) -> Release:
        """One release: the only place where an agent's raw data meets noise."""
        if self._stream is not None:
            self._stream.ask(query.statistic)
            return self._stream.answer(raw)
        mu = query.mu
        if query.share is not None:
            mu = math.sqrt(query.share) * self.algorithm.privacy.episode_mu
        if mu is not None and not math.isfinite(mu):
            mu = None  # without privacy nothing costs anything
        return self._curator.answer(query.statistic, raw, mu=mu, spent=spent)

    @property
    def _limit(self) -> Fraction:
        # Of devices, one report.
        return Fraction(self._curator.limit if isinstance(self._curator, JointCurator) else 1)

    def _commit(
        self,
        block: Any,
        now: Checkpoint,
        state: Any,
        asked: Sequence[Statistic],
        answers: Sequence[Release],
        info: BlockInfo,
        rng: np.random.Generator,
    ) -> None:
        """The second commit: what the record taught, and the policy of it."""
        algorithm = self.algorithm
        at = replace(now.at, releases=now.at.releases + 1, served=now.at.served + block.users)
        plan = algorithm.plan(state, now.plan, at, rng)
        with self.store.read() as db:
            run = runs.find(db, self.run_name)
        plan = _numbered(plan, run.latest + 1)
        told = (run.version, info.users, asked, answers, self._stream is not None)
        record = now.record.heard(*told, algorithm.monitored)
        after = Checkpoint(state, plan, at, rng.bit_generator.state, record)
        packed, policy = dump(after, algorithm.code), b""
        with self.store.write() as db:
            runs.fence(db, run)
            if runs.block_of(db, self.run_name, block.block).stage == "sealed":
                runs.erase(db, run, block.block)
            runs.set_stage(db, run, block.block, "done")
            runs.publish(db, self.store, run, packed, policy, at.served, self._kept)
        self._held.clear()

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
        run, now = self._look()
        if run.version == run.latest:
            return now.plan.policy
        with self.store.read() as db:
            return self._checkpoint(db, run.version).plan.policy

    @property
    def greedy_policy(self) -> Any:
        """The best policy for what is known now, without exploring."""
        return self._look()[1].plan.greedy

    @property
    def state(self) -> Any:
        """What the algorithm knows; public."""
        return self._look()[1].state

    @property
    def plan(self) -> Plan:
        """The newest plan; public."""
        return self._look()[1].plan

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return self._look()[1].at

    @property
    def record(self) -> Record:
        """What releases told of each version; :func:`tacit.monitor` reads it."""
        return self._look()[1].record

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
            return self._room()

    @property
    def taken(self) -> int:
        """How many users came: those who were served, and those who wait for their block."""
        return self._taken(self._look()[0])

    @property
    def statistic(self) -> Statistic:
        """What is asked first of the users of the current block; devices report it."""
        return self._statistic(self._look()[1])

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
            facts = facts_of(self, proven)
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
            check_alike(self.privacy, privacy or self.privacy)
            self._close()
            run, now = self._look()
            given = {"schedule": "auto", "seed": 0, "noise_seed": None} | serving
            name = given.pop("name", f"{self.run_name}+{run.latest}")
            problem = Problem(
                self.spec, users, privacy or self.privacy, given["schedule"], given["seed"]
            )
            algorithm = type(self.algorithm)(problem, self.algorithm.options)
            at = Progress(0, 0, now.at.all_served, run.latest)
            start = replace(now, state=algorithm.successor_state(now.state), at=at)
            with self.store.write() as db:
                runs.fence(db, run, succeeded=1)
                ledger.append(db, self.run_name, "successor", to=name)
            self._seen = None
            return Agent(
                algorithm, store=self.store, name=name, noise_seed=given["noise_seed"], start=start
            )

    def _close(self) -> None:
        """Ends the block early: whoever waits is released."""
        with self.store.write() as db:
            run = runs.find(db, self.run_name)
            waiting = self._waiting.of(run.block)
            block = runs.block_of(db, self.run_name, run.block)
            if block.users + waiting:
                runs.resize(db, run, block.users + waiting)
        self._seen = None
        while self.step():
            pass

    def roll_back(self, version: int, *, pin: bool = False) -> None:
        """Serves and learns on from an older version, under a new number.

        Args:
            version: Which one; its checkpoint must be kept.
            pin: Whether its policy goes on serving whatever is learnt, until :meth:`unpin`.
        """
        with self._alone("roll_back"), self.store.write() as db:
            run = runs.find(db, self.run_name)
            old = self._checkpoint(db, version)
            plan = _numbered(old.plan, run.latest + 1)
            # What is served and counted only goes forward, and so do counters.
            at = replace(self._checkpoint(db, run.latest).at)
            new = dump(replace(old, plan=plan, at=at), self.algorithm.code)
            runs.fence(db, run, pinned=0)
            ledger.append(db, self.run_name, "roll back", to=version, version=run.latest + 1)
            runs.publish(db, self.store, run, new, b"", run.served, self._kept)
            if pin:
                runs.pin(db, run, True)
            self._seen = None

    def unpin(self) -> None:
        """After the next release a new policy serves again."""
        with self._alone("unpin"), self.store.write() as db:
            run = runs.find(db, self.run_name)
            runs.fence(db, run, pinned=0)
            self._seen = None

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

    def _room(self) -> int:
        run, _ = self._look()
        with self.store.read() as db:
            block = runs.block_of(db, self.run_name, run.block)
        return max(0, int(block.size - block.users) - self._waiting.of(run.block))

    def _keep_noise(self, db: Any) -> None:
        for name, value in self._secrets().items():
            self.store.put_secret(db, self.run_name, name, value)


def _numbered(plan: Plan, version: int) -> Plan:
    """A plan whose policies have their number."""
    numbered = (policy.as_version(version) for policy in (plan.policy, plan.greedy))
    return Plan(*numbered, plan.memory)


def _versions(raw: Block | None, serving: int) -> dict[int, int]:
    if raw is None or "versions" not in raw.arrays:
        return {serving: 0 if raw is None else raw.users}
    found, counts = np.unique(raw["versions"], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _plain_ids(user_ids: Ids, users: int) -> Ids:
    from tacit.privacy.arguments import row_ids

    if user_ids is None:
        return None
    ids = list(user_ids)
    row_ids(ids, users)
    return ids


def _say_who(error: BaseException, taken: int, users: int) -> None:
    """Tells whoever catches an error of ``learn`` whom not to give again."""
    with contextlib.suppress(Exception):
        error.users_taken = taken  # type: ignore[attr-defined]
        if taken:
            error.add_note(
                f"{taken} of these {users} users were taken and must not be given again; go on "
                f"with the rest: data.take(slice({taken}, None))"
            )
