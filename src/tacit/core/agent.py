"""Agents: take users in, move blocks through the curator, and publish policies.

An agent keeps nothing that matters: all of it is in its store, and every call begins with what the
store says (:mod:`tacit.core.stored_run`). Users come by :mod:`tacit.core.intake`, whose tickets
devices take (``agent.intake``), and blocks become policies by :mod:`tacit.core.release_loop`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from tacit.core import late
from tacit.core.algorithm import Algorithm, Plan, Progress
from tacit.core.arms import ArmState, armed
from tacit.core.intake import EpisodeIntake, Ids, Receipt
from tacit.core.problem import Problem, Schedule
from tacit.core.public_file import facts_of, publish_with, published_bytes
from tacit.core.release_loop import ReleaseLoop
from tacit.core.stored_run import Checkpoint, Record, StoredRun, warn_of_budget
from tacit.core.world import Data
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.budget import Guarantee
from tacit.privacy.distributed import DistributedCurator
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import Privacy, check_alike
from tacit.privacy.noise import Uncopyable, new_lock, refuse_within
from tacit.privacy.reading import as_numbers
from tacit.privacy.statistic import Block, Statistic
from tacit.privacy.validation import instance_of, seed_of, whole_number
from tacit.store import ledger, runs, schema
from tacit.store.runs import Answer
from tacit.store.store import Store, change_rows, delete_rows, rows_of
from tacit.store.values import load


@final
class Agent(Uncopyable):
    """Serves users, keeps their data, and publishes.

    Args:
        algorithm: Learns from releases.
        store: Where all of it is kept: a :class:`~tacit.store.store.Store`, a file, a URL, or
            memory.
        name: Of the run in its store.
        noise_seed: Reproducible noise, for simulations only: it protects no one.
        start: Checkpoint to begin with; a successor's.
        predecessor: Row of the run whose successor it is, which ends.
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
        predecessor: Any = None,
    ) -> None:
        if noise_seed is None:
            # Before a store is touched: where warnings are errors, nothing has happened.
            warn_of_budget(algorithm.privacy, algorithm.users)
        instance_of("name", name, str)
        instance_of("store", store, (str, os.PathLike, Store))
        self.algorithm, self.run_name = algorithm, name
        self.store = store if isinstance(store, Store) else Store(store)
        self._lock = new_lock()
        self._run = StoredRun(algorithm, self.store, name, noise_seed)
        self.intake = EpisodeIntake(self._run)
        self._loop = ReleaseLoop(self._run, self.intake)
        self.store.agents.add(self)
        self._run.open(start, predecessor)

    @contextlib.contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """One call at a time; after any exception the store is read again."""
        refuse_within(self._lock, what)
        with self._lock:
            try:
                yield
            except BaseException:
                self._run.view = self.intake.visits = None
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
            The fate of each. If anything is raised after some of them were taken, the error says
            how many, in a note and as ``users_taken``: they must not be given again.
        """
        with self._alone("learn"):
            if not isinstance(data, Block):
                instance_of("data", data, (Episodes, VectorEpisodes, Block))
                if user_ids is not None and data.user_ids not in (None, tuple(user_ids)):
                    raise InvalidArgument("user_ids are given twice, and not those of the episodes")
                user_ids = data.user_ids if user_ids is None else user_ids
                data = data.block()
            self._run.curator.check_block(data)
            if user_ids is not None and data.aggregate:
                raise InvalidArgument("an aggregate block has no user_ids")
            return self.intake.take(data, user_ids, events, self._loop.step)

    def decide(self, user: str, event: str, ticket: str, **values: Any) -> Answer:
        """Takes an action that was taken, whose reward comes later by :meth:`outcome`.

        The ticket of ``agent.intake.ticket()`` was taken when the policy was read; values are
        ``step``, ``state`` and ``action``, perhaps ``component`` and ``probability``.
        """
        with self._alone("decide"):
            return late.take(self.intake, [late.LateStep(user, event, values, ticket)])[0]

    def outcome(self, user: str, event: str, **values: Any) -> Answer:
        """Takes the ``reward`` of a ``step``, and perhaps its ``next_state``, whenever it is known.

        What never comes within the block's window has ``agent.intake.default_reward``.
        """
        with self._alone("outcome"):
            return late.take(self.intake, [late.LateStep(user, event, values)])[0]

    def learn_reports(
        self, reports: ArrayLike, user_ids: Ids = None, *, events: Sequence[str] | None = None
    ) -> Receipt:
        """Takes local reports, one row per user, with ids and events as :meth:`learn`.

        Devices make them by ``tacit.local.report`` from ``statistic`` and ``privacy``.
        """
        with self._alone("learn_reports"):
            block = self.report_block(reports)
            return self.intake.take(block, user_ids, events, self._loop.step)

    def report_block(self, reports: ArrayLike) -> Block:
        """Local reports of the block that fills, checked; one that is no number counts as zero."""
        curator = self._run.curator
        if not isinstance(curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        return curator.checked_reports(self.statistic, as_numbers("reports", reports))

    def learn_sum(self, total: ArrayLike, stayed: int | None = None) -> Receipt:
        """Takes the opened secure sum over the users of the current block, or those who stayed.

        ``tacit.distributed.share`` makes shares, for ``block_users`` devices.
        """
        with self._alone("learn_sum"):
            curator = self._run.curator
            if not isinstance(curator, DistributedCurator):
                raise InvalidArgument("opened sums are for DistributedDP")
            devices = self.intake.room(self._run.look())
            sizes = {"devices": devices, "stayed": devices if stayed is None else stayed}
            block = curator.checked_sum(self.statistic, total, **sizes)
            return self.intake.take(block, None, None, self._loop.step)

    def forget(self, person: int | str) -> dict[str, int]:
        """Erases the waiting episodes of a person, in every run of the store.

        Returns:
            How many of her episodes were ``removed``, and how many were ``released`` before, which
            cannot be taken back.
        """
        while True:
            for agent in [*self.store.agents] if not self.store.durable else ():
                with agent._alone("forget"):
                    agent.intake.settle()
            with self.store.write() as db:
                found = runs.forget(db, *self.store.pseudonyms([person]))
            if found is not None:
                break
            time.sleep(0.05)  # a block is held: its release comes first
        self.store.erase_traces()
        self._run.look(fresh=True)
        return found

    def effects(self) -> Any:
        """Average effects with intervals, of algorithms that report them."""
        if not hasattr(self.algorithm, "effects"):
            raise InvalidArgument(f"{self.name} reports no effects: action_centred does")
        return self.algorithm.effects(self.state)

    def trial(self, confidence: float = 0.95) -> Any:
        """How much better than by the baseline people were served: a ``TrialAnswer``; public."""
        return importlib.import_module("tacit.tabular.holdout").answer(self, confidence)

    def step(self) -> bool:
        """Moves the oldest block on by its two commits, if it is ready; whether it was."""
        with self._alone("step"):
            return self._loop.step()

    # Public facts.

    def __repr__(self) -> str:
        at = self.progress
        return f"<{type(self.algorithm).__name__} agent, {at.served} of {self.users} users>"

    @property
    def spec(self) -> Any:
        """Sizes, horizon and bounds of the world, as declared."""
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
    def data_format(self) -> str:
        """In which form simulated users of the next block come."""
        return self.algorithm.data_format(self.progress)

    @property
    def policy(self) -> Any:
        """The policy that serves users now."""
        return self._serving().plan.policy

    @property
    def greedy_policy(self) -> Any:
        """The best policy by the newest estimates, without exploration."""
        return self.plan.greedy

    @property
    def state(self) -> Any:
        """State of the algorithm; public."""
        return self._run.look().checkpoint.state

    @property
    def plan(self) -> Plan:
        """The newest plan; public."""
        return self._run.look().checkpoint.plan

    @property
    def progress(self) -> Progress:
        """Users served and blocks released so far."""
        return self._run.look().checkpoint.at

    @property
    def record(self) -> Record:
        """Public sums of each version's users; :func:`tacit.monitor` reads it."""
        return self._run.look().checkpoint.record

    @property
    def guarantee(self) -> Guarantee | None:
        """Proven for every user; ``None`` without privacy."""
        return self._run.guarantee

    @property
    def block_users(self) -> int:
        """How many more users the block takes that fills."""
        return self.intake.room(self._run.look())

    @property
    def taken(self) -> int:
        """How many users came: those who were served, and those who wait for their block."""
        return self.intake.users_taken(self._run.look().row)

    @property
    def statistic(self) -> Statistic:
        """First query of the current block; devices report it."""
        return self._run.statistic(self._serving())

    def _serving(self) -> Checkpoint:
        view = self._run.look()
        if view.row.version == view.row.latest:
            return view.checkpoint
        with self.store.read() as db:  # a version that is pinned
            pinned = self._run.load_checkpoint(db, view.row.version)
        return replace(view.checkpoint, plan=pinned.plan)

    def publish(
        self, path: str | os.PathLike[str], *, greedy: bool = False, force: bool = False
    ) -> None:
        """Writes the public policy; any device with NumPy can load it, or a JSON reader.

        The file says what is guaranteed to whom, which agent, spec and release of Tacit made it and
        when, has a hash of all that it holds (:func:`tacit.published.about`), and the head of the
        ledger: it is a witness that an older copy of the store lacks entries. A ``greedy`` policy
        does not explore; ``force`` also publishes what simulated noise protects from nobody.
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

    def simulator(self, draws: int = 64, seed: int = 0) -> Any:
        """The released model as an environment of Gymnasium: anything may be trained in it.

        A :class:`~tacit.gym.simulators.SimulatorEnv` of so many models of the posterior, of which
        an episode is in one; the ledger has the hash of its file.

        Formal guarantees:
            Plain differential privacy, with the run's epsilon and delta. The model is a function of
            releases and of public facts, so whatever is trained in it, or read from it, costs users
            nothing. A test of the result on their own episodes is another query, and does.
        """
        draws, rng = whole_number("draws", draws), np.random.default_rng(seed_of(seed))
        with self._alone("simulator"):
            now, state = self._run.look().checkpoint, self.state
            if isinstance(state, ArmState):
                state = state.inner
            model = self.algorithm.simulator(state, draws, rng)
            model = replace(model, version=now.plan.policy.version)
            facts = facts_of(self, self.guarantee, now.at)
            with self.store.write() as db:
                facts["ledger_line"], facts["ledger_head"] = ledger.head(db)
                data = published_bytes(model, facts, "simulator.npz")
                made = importlib.import_module("tacit.gym.simulators").SimulatorEnv(data)
                said = {"version": model.version, "draws": draws, "seed": seed}
                ledger.append(db, self.run_name, "simulator", hash=made.facts["hash"], **said)
            return made

    # The run's life.

    def successor(self, users: int, privacy: Privacy | None = None, **serving: Any) -> Agent:
        """The agent for the next users, in the same store, which begins with all that was learnt.

        Releases are public, with how noisy they are, so starting from them costs no privacy.
        People who took part here pay there too, from one account. Users who wait are released
        first, and this agent takes no more. Of the privacy model epsilon and delta may change;
        ``serving`` is ``schedule``, ``seed``, ``noise_seed`` and ``name``.
        """
        with self._alone("successor"):
            given: dict[str, Any] = {"schedule": "auto", "seed": 0, "noise_seed": None}
            given["name"] = f"{self.run_name}+"
            for option in serving.keys() - given.keys():
                raise InvalidArgument(f"a successor has no option {option}; it has {[*given]}")
            given |= serving
            check_alike(self.privacy, privacy or self.privacy)
            if self._run.look().row.succeeded:
                raise HorizonExceeded("this agent has a successor: give users to that one")
            before, options = self.algorithm.problem, self.algorithm.options
            asked = (privacy or self.privacy, given["schedule"], given["seed"], before.arms)
            problem = self.algorithm.declared(Problem(self.spec, users, *asked), options)
            algorithm = type(self.algorithm)(problem, options)
            self._loop.close()
            view = self._run.look()
            row, now = view.row, view.checkpoint
            at = Progress(0, 0, now.at.all_served, row.latest + int(algorithm.ends_greedy))
            start = replace(now, state=algorithm.successor_state(now.state), at=at)
            self._run.view = None
            where = {"name": given["name"], "noise_seed": given["noise_seed"]}
            return Agent(algorithm, store=self.store, start=start, predecessor=row, **where)

    def roll_back(self, version: int, *, pin: bool = False) -> None:
        """Serves and learns on from an older version that is kept, under a new number.

        Pinned, its policy serves whatever is learnt until :meth:`unpin`. A block that is released
        and not yet learnt from teaches nothing then: so a run goes on whose update fails on it.
        """
        with self._alone("roll_back"):
            self._loop.roll_back(version, pin)

    def adopt(self, policy: Any) -> None:
        """Tries a policy from elsewhere, on a share of users: a new version's challenger."""
        if not isinstance(self.state, ArmState):
            raise InvalidArgument("a policy is tried by arms: give baseline= or holdout=")
        self._rearm("adopt", policy)

    def go_live(self) -> None:
        """Serves the newest policy that was tried to all but the holdout, as a new version."""
        if getattr(self.state, "challenger", None) is None:
            raise InvalidArgument("no policy was tried yet")
        self._rearm("go live")

    def _rearm(self, what: str, policy: Any = None) -> None:
        with self._alone(what):
            while self._loop.step():  # or a release that was not learnt from would be left out
                pass
            self._loop.roll_back(self._run.look().row.latest, arms=(what, policy))

    def unpin(self) -> None:
        """After the next release a new policy serves again."""
        self._set("unpin", pinned=0)

    def stop(self) -> None:
        """Takes no users and gives no places until :meth:`start`; the policy goes on serving."""
        self._set("stop", stopped=1)

    def start(self) -> None:
        """Takes users in again."""
        self._set("start", stopped=0)

    def _set(self, what: str, **values: int) -> None:
        with self.store.write() as db:
            ledger.append(db, self.run_name, what)
            runs.set_run(db, self.run_name, **values)
        self._run.look(fresh=True)

    # For a service.

    def run_row(self) -> Any:
        """The row of the run, as the store has it."""
        return self._run.look().row

    def lead(self, who: str, seconds: float = 3.0) -> bool:
        """Takes or renews the lease by which one of several processes computes.

        An economy: commits are fenced, whoever computes.
        """
        now, run = time.time(), self.run_row()
        most, mine = now + 2.0 * seconds, run.leader == who
        # One that ends too late was given by a clock that was ahead.
        if now < run.lease <= most and (not mine or run.lease >= now + seconds / 2):
            return bool(mine)
        with self.store.write() as db:
            run = runs.find(db, self.run_name)
            if free := run.leader == who or not now < run.lease <= most:
                runs.set_run(db, self.run_name, leader=who, lease=now + seconds)
        return bool(free)

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
            checkpoint = self._run.load_checkpoint(db, version)
        facts = facts_of(self, self.guarantee, checkpoint.at)
        facts |= {"ledger_line": row.seq, "ledger_head": row.head}
        body = published_bytes(checkpoint.plan.policy, facts)
        with self.store.write() as db:
            of = {"run": self.run_name, "version": version, "etag": ""}
            change_rows(db, schema.versions, of, policy=body, etag=ledger.digest(body.hex()))
        return self.policy_body(version)

    def report_problem(self, problem: str) -> None:
        """Notes a problem, in public words, for every process to tell."""
        with self.store.write() as db:
            runs.report_problem(db, self.run_name, problem)

    def resolve_problem(self) -> None:
        """Ends all problems that were noted."""
        with self.store.write() as db:
            delete_rows(db, schema.problems, run=self.run_name)

    def problems(self) -> list[str]:
        """Problems of the run, whichever process found them."""
        with self.store.read() as db:
            found = rows_of(db, schema.problems, "since", run=self.run_name)
            return [row.problem for row in found]


def open_run(store: Store | str | os.PathLike[str], name: str = "run") -> Agent:
    """The agent of a run in a store (a file, a URL, or an opened one), as it was made."""
    opened = store if isinstance(store, Store) else Store(store, create=False)
    with opened.read() as db:
        run, names = runs.find(db, name), [row.run for row in rows_of(db, schema.runs, "run")]
        simulation = bool(rows_of(db, schema.stores).one().simulation)
    if run is None:
        raise InvalidArgument(f"the store has no run {name!r}; it has {', '.join(names) or 'none'}")
    if not run.made:  # a store names no code but ours
        raise InvalidArgument(
            f"the run {name!r} has code among its arguments: make it as before, with store and name"
        )
    (module, kind), problem, options = load(run.made, built=True)
    algorithm = armed(getattr(importlib.import_module(module), kind), problem)(problem, options)
    return Agent(algorithm, store=opened, name=name, noise_seed=0 if simulation else None)
