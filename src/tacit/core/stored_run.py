"""A run as its store has it: rows, the newest checkpoint, and the curator that draws its noise.

Nothing here outlives a call but as a cache. After any exception the view is dropped and the store
is read again, and counters and simulated noise are brought back as the last commit left them.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Algorithm, BlockInfo, Plan, Progress, Queries, Query
from tacit.privacy.budget import Guarantee, Relation
from tacit.privacy.curator import Curator, JointCurator, Release, Stream
from tacit.privacy.errors import InvalidArgument, TacitWarning
from tacit.privacy.models import Privacy
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Statistic
from tacit.store import ledger, runs
from tacit.store.store import Store
from tacit.store.values import dump, load

_MOST_EPSILON = 10.0  # above it a factor of e^epsilon, more than 22,000, hides little
_DELTA_TIMES_USERS = 0.1  # a delta of 1 / users allows to publish a user drawn at random
# More versions than these are not kept: the oldest go.
_MOST = 1000
# Of a user: what one visit adds to sums (unit), least and most return, and the most visits (reach).
_FLOATS = ("horizon", "rewards", "rewards_noise", "unit", "least", "most", "reach")
_BY_STATE = ("visits", "visits_noise")
_KINDS: dict[str, type[Any]] = {"version": np.int64, "users": np.int64, "partial": np.bool_}
_KINDS |= {"running": np.bool_} | dict.fromkeys((*_FLOATS, *_BY_STATE), np.float64)
NO_ROWS = {n: np.zeros((0, 0) if n in _BY_STATE else 0, kind) for n, kind in _KINDS.items()}

Told: TypeAlias = dict[str, tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Record:
    """Public sums of each version's users; of the last thousand versions.

    Attributes:
        rows: Columns by name, with a row per version, oldest first; none before the first release.
    """

    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def extended(
        self,
        version: int,
        users: int,
        asked: Sequence[Statistic],
        answers: Sequence[Release],
        running: bool,
        read: Callable[[Statistic, Release], Told],
    ) -> Record:
        """The record with a version's releases.

        Args:
            version: Of the policy.
            users: How many followed it.
            asked: Queries of their block.
            answers: The releases.
            running: Whether releases are running sums, over all users before, too.
            read: Reads public numbers off a release.
        """
        told: Told = {}
        horizon = math.nan
        for statistic, answer in zip(asked, answers, strict=False):
            horizon = getattr(statistic, "horizon", horizon)
            try:
                told |= read(statistic, answer)
            except MemoryError:
                raise  # it is not the statistic's: the block goes through later, and is heard then
            except Exception:  # noqa: S112 - a statistic of somebody else's costs no block
                continue
        if not told:
            return self
        none = (math.nan, math.nan)
        rewards, visits = told.get("rewards", none), told.get("visits", (np.zeros(0), np.zeros(0)))
        unit, reach = told.get("unit", (1.0,))[0], told.get("reach", (horizon,))[0]
        ends = told.get("range", (0.0, horizon))
        flags = "partial" in told, running
        row = (version, users, *flags, horizon, *rewards, unit, *ends, reach, *visits)
        typed = zip(_KINDS.items(), row, strict=True)
        new: dict[str, NDArray[Any]]
        try:
            new = {name: np.asarray(value, kind)[np.newaxis] for (name, kind), value in typed}
        except (TypeError, ValueError):
            return self
        if len({new[name].shape for name in _BY_STATE}) > 1:
            return self
        # Where other things are told than before, a record begins anew.
        kept = self.rows
        if all(n in kept and kept[n].shape[1:] == row.shape[1:] for n, row in new.items()):
            new = {n: np.concatenate([kept[n][1 - _MOST :], row]) for n, row in new.items()}
        return Record(new)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of a run at one version, from which any process goes on."""

    state: Any
    plan: Plan
    at: Progress
    rng: Mapping[str, Any]  # of ties and of first policies; not of the noise
    record: Record


class RunView(NamedTuple):
    """Rows of a run at one epoch, and its newest checkpoint."""

    row: Any  # the run's
    blocks: list[Any]  # rows of those that are not done; the last one has free places
    checkpoint: Checkpoint
    on_policy: bool  # whether only episodes of users who followed a published plan count


class StoredRun:
    """One run in a store, with its curator and counter."""

    def __init__(
        self, algorithm: Algorithm[Any], store: Store, name: str, noise_seed: int | None
    ) -> None:
        self.algorithm, self.store, self.name = algorithm, store, name
        options = {"users": algorithm.users, "noise_seed": noise_seed}
        self.curator: Curator[Any] = algorithm.privacy.curator(**options)
        self.stream: Stream | None = None
        self.view: RunView | None = None
        self.releases_drawn = 0  # releases after which counter and noise are as here
        self.code = algorithm.code
        self._begun: Any = ((None,), None)  # what queries are about, and these

    @property
    def guarantee(self) -> Guarantee | None:
        """Proven for every user; ``None`` without privacy."""
        proven, of = self.curator.guarantee, self.algorithm
        if proven is None:
            return None
        mechanism = "; ".join(filter(None, (proven.mechanism, of.assumption)))
        return replace(proven, mechanism=mechanism, unit=of.unit or proven.unit)

    def open(self, start: Checkpoint | None, predecessor: Any) -> None:
        """Goes on with the run of this name, or begins it, perhaps as a successor's."""
        with self.store.read() as db:
            row = runs.find(db, self.name)
        # A first plan may take long: the store's lock is not held meanwhile.
        first = self._first(start) if row is None else None
        with self.store.write() as db:
            row = runs.find(db, self.name)
            if row is None:
                self._begin(db, first or self._first(start), predecessor)
            elif row.fingerprint != ledger.digest(self.algorithm.fingerprint):
                raise InvalidArgument(f"the run {self.name!r} in this store has other arguments")
            else:
                self.revive(db, row, self.load_checkpoint(db, row.latest))

    def _first(self, start: Checkpoint | None) -> Checkpoint:
        """The first checkpoint of a new run; makes its counter, too, where it has one."""
        algorithm, rng = self.algorithm, self.algorithm.problem.rng()
        if start is None:
            state, at, plan = algorithm.begin(), Progress(), None
        else:
            state, at, plan = start.state, start.at, start.plan
        # A first plan is made where there is none, or where the last one explores no more.
        if plan is None or algorithm.ends_greedy:
            plan = algorithm.plan(state, plan, at, rng)
        plan = algorithm.numbered(plan, at.offset)
        first = Checkpoint(state, plan, at, rng.bit_generator.state, Record())
        if isinstance(self.curator, JointCurator) and algorithm.counter != "blocks":
            self.stream = self.curator.stream(
                self.statistic(first), releases=algorithm.schedule.releases, kind=algorithm.counter
            )
        return first

    def _begin(self, db: Any, first: Checkpoint, predecessor: Any) -> None:
        algorithm, at = self.algorithm, first.at
        values = {"made": _dumped_arguments(algorithm), "latest": at.offset - 1}
        values["fingerprint"] = ledger.digest(algorithm.fingerprint)
        if predecessor is not None:
            runs.fence(db, predecessor, succeeded=1)
            ledger.append(db, predecessor.run, "successor", to=self.name)
            values["predecessor"] = predecessor.run
        row = runs.create(db, self.name, self._terms(), **values)
        secrets = self.curator.secrets(self.stream)
        self.store.put_secrets(db, self.name, {name: dump(s) for name, s in secrets.items()})
        runs.publish(db, row, dump(first, self.code), 0, at.offset)
        runs.open_block(db, row, 0, algorithm.block_users(at))

    def _terms(self) -> runs.Terms:
        privacy: Any = self.algorithm.privacy
        unit, limit, cost = "", 0.0, 0.0
        if isinstance(self.curator, JointCurator):
            unit, limit = "epsilon" if privacy.pure else "mu^2", self.curator.limit
            unit += " (zero-out)" if privacy.relation is Relation.ZERO_OUT else ""
            cost = privacy.epsilon if privacy.pure else privacy.budget.mu**2
        episodes = privacy.episodes_per_user if privacy.private else 0
        people = (unit, limit, cost, episodes, privacy.separate_blocks, self.algorithm.users)
        promise = None if self.guarantee is None else self.guarantee.to_dict()
        return runs.Terms(*people, promise, self.curator.source.simulation)

    # Reading.

    def look(self, fresh: bool = False) -> RunView:
        """The run as the store has it; one in memory is read again if it changed."""
        seen = self.view
        if seen is not None and not fresh and not self.store.durable:
            return seen
        with self.store.read() as db:
            found = self.read(db)
        return self.keep(found)

    def read(self, db: Any) -> RunView:
        """The run as a transaction finds it, with rows of its own."""
        seen, row = self.view, runs.find(db, self.name)
        if seen is not None and row.latest == seen.row.latest:
            now, on_policy = seen.checkpoint, seen.on_policy
        else:
            now = self.load_checkpoint(db, row.latest)
            on_policy = self.algorithm.on_policy(now.plan)
        return RunView(row, runs.undone(db, row), now, on_policy)

    def keep(self, found: RunView) -> RunView:
        """Remembers a view, once what was changed in its rows is committed."""
        row, last = found.row, self.view
        # A thread that was slow must not bring back a view that is older than another's.
        if last is None or (row.epoch, row.taken) >= (last.row.epoch, last.row.taken):
            self.view = found
        return found

    def load_checkpoint(self, db: Any, version: int, before: bool = False) -> Checkpoint:
        """Checkpoint of a version that is kept; with ``before`` also by a run before this one."""
        row, name = runs.version_of(db, self.name, version), self.name
        while row is None and before and (name := runs.find(db, name).predecessor):
            row = runs.version_of(db, name, version)
        if row is None or row.state is None:
            raise InvalidArgument(f"version {version} of {self.name!r} is not kept any more")
        found: Checkpoint = load(row.state, self.code)
        return found

    def revive(self, db: Any, row: Any, now: Checkpoint) -> None:
        """Brings back counter and simulated noise as the last release left them."""
        state = self.store.secret(db, self.name, "noise")
        if state is not None and self.curator.source.simulation:
            self.curator.source = Noise.from_state(load(state))
        dumped = self.store.secret(db, self.name, "stream")
        if dumped is not None and isinstance(self.curator, JointCurator):
            self.stream = Stream.revived(self.curator, self.statistic(now), load(dumped))
        self.releases_drawn = row.releases

    # Blocks.

    def statistic(self, now: Checkpoint) -> Statistic:
        """First query of the next block."""
        about, begun = self._begun  # once: another thread may ask, too
        if about[0] is not now:
            users = self.algorithm.block_users(now.at)
            info = BlockInfo(**vars(now.at), users=users, versions={now.plan.policy.version: users})
            about = now, now.plan, info
            begun = self.queries(*about)
            self._begun = about, begun
        return begun[1].statistic  # type: ignore[no-any-return]

    def queries(self, *about: Any) -> tuple[Queries[Any], Query, np.random.Generator]:
        """Queries about a checkpoint, its plan and a block's facts, begun: the rest, and the first.

        Those that :meth:`statistic` began go on, if they are about the same.
        """
        (last, begun), self._begun = self._begun, ((None,), None)
        if last != about:
            now, plan, info = about
            rng = np.random.default_rng(0)
            rng.bit_generator.state = now.rng
            queries = self.algorithm.learn(now.state, plan, info, rng)
            begun = queries, next(queries), rng
        return begun  # type: ignore[no-any-return]

    def fills_ahead(self, view: RunView) -> bool:
        """Whether a block may fill before those before it are released.

        Devices are asked before they send, and not every algorithm tells two policies apart.
        """
        apart = self.algorithm.max_age > 0 or not view.on_policy
        return apart and self.algorithm.privacy.joint

    def open_next(self, db: Any, view: RunView) -> None:
        """Opens the block after the newest one."""
        row = view.row
        row.block += 1
        after = replace(view.checkpoint.at, releases=row.block, served=int(row.taken))
        runs.open_block(db, row, row.block, self.algorithm.block_users(after))
        view.blocks.append(runs.block_of(db, row.run, row.block))


def warn_of_budget(privacy: Privacy, users: int) -> None:
    """Warns of a budget for real people that protects them less than it seems to."""
    if privacy.private and privacy.epsilon > _MOST_EPSILON:
        said = f"epsilon is {privacy.epsilon:g}: above {_MOST_EPSILON:g} it promises little"
        warnings.warn(said, TacitWarning, stacklevel=4)
    if privacy.private and privacy.delta * users > _DELTA_TIMES_USERS:
        said = f"delta is {privacy.delta:g} for {users:,} users: it should be far below 1 / users, "
        said += f"at most {_DELTA_TIMES_USERS / users:.1g}, as it allows that one user in 1 / delta"
        warnings.warn(f"{said} is revealed", TacitWarning, stacklevel=4)


def _dumped_arguments(algorithm: Algorithm[Any]) -> bytes:
    """Arguments of one of our algorithms, from which it is made again; nothing if they are code."""
    kind = type(algorithm)
    with contextlib.suppress(TypeError):
        if kind.__module__.startswith("tacit."):
            named = (kind.__module__, kind.__qualname__)
            return dump((named, algorithm.problem, algorithm.options))
    return b""
