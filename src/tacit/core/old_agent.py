"""Agents: who serves people and holds what is theirs.

When the users of a block are through, an agent takes its algorithm's questions to the curator,
hands the answers back, and publishes the next policy. It is the only object that ever has an
episode, an id, a ledger or a secret save, and it is final: what learns is an
:class:`~tacit.core.algorithm.Algorithm`, which is given releases and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any, Self, final

import numpy as np

from tacit.core.algorithm import Algorithm
from tacit.core.cautions import warn, warn_of_budget
from tacit.core.desk import DATA
from tacit.core.devices import Devices
from tacit.core.episodes import Episodes
from tacit.core.monitor import Record
from tacit.core.receipt import Receipt
from tacit.core.rounds import NotRecorded, RecordedGate, Round
from tacit.core.session import Ids, Moment, Session
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.arguments import file_name, instance_of, row_ids
from tacit.privacy.curators.gate import Curator
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import LocalCurator, flip_probability
from tacit.privacy.curators.saves import check_autosave, read_curator
from tacit.privacy.deviates import prepare
from tacit.privacy.errors import (
    CorruptFile,
    HorizonExceeded,
    InvalidArgument,
    TacitError,
)
from tacit.privacy.files import MALFORMED
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.html import card
from tacit.privacy.models import Privacy
from tacit.privacy.noise import Noise, saved_source
from tacit.privacy.owner import alone
from tacit.privacy.statistic import Block, Statistic
from tacit.privacy.storage import read_state, write_state


@final
class Agent(Devices):
    """Serves users, keeps their data, and publishes.

    What its algorithm makes public of itself can be read here too: ``agent.why``,
    ``agent.schedule``, ``agent.served``, ``agent.q_values``. For the arguments see
    :class:`tacit.core.kinds.Serving`.
    """

    why_single = "an agent cannot be copied: two copies would spend one budget twice"

    def __init__(
        self,
        algorithm: Algorithm[Any],
        *,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
        predecessor: Agent | None = None,
    ) -> None:
        if noise_seed is None:
            # Before a file is touched: where warnings are errors, nothing has happened.
            warn_of_budget(algorithm.privacy, algorithm.users)
        super().__init__(algorithm)
        self._options: dict[str, Any] = {
            "users": algorithm.users,
            "noise_seed": noise_seed,
            "protects": algorithm.protects,
        }
        options = self._options
        if algorithm.privacy.keeps_secrets:
            _check_files(ledger, autosave)
            if autosave is not None:
                check_autosave(autosave, simulation=noise_seed is not None)
            options = options | {"ledger": ledger}
        elif ledger is not None or autosave is not None:
            raise InvalidArgument("ledger and autosave belong to JointDP: only it has secrets")
        self._curator = algorithm.privacy.curator(**options)
        if predecessor is not None:
            self._curator.participants.inherit(predecessor._curator.participants)
        prepare()
        if isinstance(self._curator, LocalCurator) and algorithm.privacy.reports_bits:
            # Refused here and not at the first release.
            flip_probability(self.statistic, self._curator.privacy)
        if isinstance(self._curator, JointCurator):
            if algorithm.counter != "blocks":
                self._stream = self._curator.stream(
                    self.statistic, releases=algorithm.schedule.releases, kind=algorithm.counter
                )
            self._curator.attach(self._dump)
        if predecessor is not None:
            predecessor._hand_over(self._curator)
        if isinstance(self._curator, JointCurator) and autosave is not None:
            self._curator.autosave_to(autosave)

    def __init_subclass__(cls) -> None:
        raise TypeError("an Agent holds people's data and is final: write an Algorithm")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"an agent has no attribute {name!r}")
        self._between()
        found = getattr(self._algorithm, name, self)
        return getattr(self._algorithm.options, name) if found is self else found

    def __dir__(self) -> list[str]:
        public = [name for name in dir(self._algorithm) if not name.startswith("_")]
        return sorted({*super().__dir__(), *public})

    def __repr__(self) -> str:
        return f"<{type(self._algorithm).__name__} agent, {self.served} of {self.users} users>"

    def _repr_html_(self) -> str:
        return _card(self)

    # The billboard.

    @property
    def algorithm(self) -> Algorithm[Any]:
        """Who learns; everything it has is public."""
        return self._algorithm

    @property
    def policy(self) -> Any:
        """The policy that serves users now."""
        self._between()
        return self._algorithm.policy

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for every user; ``None`` without privacy."""
        proven, premise = self._curator.guarantee, self._algorithm.premise
        if proven is None or not premise:
            return proven
        return replace(proven, mechanism=f"{proven.mechanism}; {premise}")

    @property
    def record(self) -> Record:
        """What releases told of each version; :func:`tacit.monitor` reads it."""
        return self._session.record

    @property
    def block_users(self) -> int:
        """How many more users the current policy serves until the next release."""
        self._between(finish=True)
        with self._lock:
            return self._room()

    @property
    def taken(self) -> int:
        """How many users came: those who were served, and those who wait for their block.

        The receipt of last resort: whatever was raised wherever, the users of a call of ``learn``
        were taken by as many as this grew.
        """
        self._between()
        with self._lock:
            return self._taken()

    @property
    def statistic(self) -> Statistic:
        """What is asked first of the users of the current block; devices report it."""
        self._between(finish=True)
        with self._lock:
            return self._session.round.statistic

    # Learning.

    def learn(self, data: Episodes | VectorEpisodes | Block, user_ids: Ids = None) -> Receipt:
        """Takes users that ``policy`` served; publishes the next policy when a block is full.

        They are episodes of any number of users, or the sums of exactly one block (simulations).
        For ``user_ids`` see :meth:`tacit.Curator.add`. The :class:`~tacit.core.receipt.Receipt`
        says where everybody went.

        Where only those teach anything who followed the policy that serves (``agent.masked``), all
        of them go into one block, however many they are; users of other versions are not taken, and
        a :class:`~tacit.privacy.errors.TacitWarning` says how many they are.

        If anything is raised after some of these users were taken, the error says how many, in a
        note and as ``users_taken`` = n. They count, wait for the rest of their block, or are lost
        with a release that failed. Never give them again: they would be in the sums twice. Go on
        with the others: ``data.take(slice(n, None))`` and ``user_ids[n:]``.

        Calls come one at a time: other threads wait, and a call within a call, as from a signal
        handler, is a :class:`~tacit.privacy.errors.Busy`.
        """
        return self._take_all("learn", data, lambda only: self._learn(data, user_ids, only))

    def _learn(
        self, data: Episodes | VectorEpisodes | Block, user_ids: Ids, masked: bool
    ) -> Receipt:
        if not isinstance(data, Block):
            instance_of("data", data, DATA)
            if user_ids is not None and data.user_ids not in (None, tuple(user_ids)):
                raise InvalidArgument("user_ids are given twice, and are not those of the episodes")
            user_ids = data.user_ids if user_ids is None else user_ids
            data = data.block()
        user_ids = _plain_ids(user_ids, data.users)
        algorithm = self._algorithm
        given, room, masked = data.users, self._room(), masked and not data.aggregate
        if masked and room:
            newest = max(algorithm.policy.version, algorithm.newest)
            data, user_ids = _of_version(data, user_ids, algorithm.policy.version, newest)
        users, session = algorithm.users, self._session
        left = users - self._taken()
        self._curator.check_ready()
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {users} users; {left} are left, {data.users} came: "
                "a successor goes on with what it learnt (agent.successor, tacit learn --after)"
            )
        placed = session.placed(data)
        if not session.waiting.alike(placed):
            session.round.statistic.check(placed)
        self._check(data, user_ids)
        if given > data.users:
            # Before anybody is taken: where warnings are errors, nothing has happened.
            _warn_of_retired(given - data.users, algorithm.policy.version)
        if data.aggregate:
            if session.waiting.users or data.users != self._room():
                raise InvalidArgument(
                    f"sums must be of one whole block: {self._room()} users, got {data.users}"
                )
            return self._take(data, None, data.users)
        if 0 < data.users == given and (given <= room or (masked and room)):
            return self._take(placed, user_ids, room)
        found = Receipt(given, retired=given - data.users, version=algorithm.policy.version)
        start = 0
        while start < data.users:
            room = self._room()
            if room == 0:
                raise HorizonExceeded(
                    f"no block is left for {data.users - start} more users: the schedule has ended"
                )
            stop = data.users if masked else min(data.users, start + room)
            part, ids = data, user_ids
            if stop - start < data.users:
                part = data.take(slice(start, stop))
                ids = None if user_ids is None else user_ids[start:stop]
            found = found.with_part(self._take(session.placed(part), ids, room))
            start = stop
        return found

    def _check(self, data: Block, user_ids: Ids) -> None:
        session = self._session
        if (user_ids is not None) != session.with_ids and self._taken():
            raise InvalidArgument("user_ids must be given for all users or for none")
        _check_ids(data, user_ids, self._algorithm.privacy, self._curator)
        if data.users:
            session.with_ids = user_ids is not None

    # Save and resume.

    @alone
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, secrets included (mode 0600), for going on later.

        It may be called after any exception, and not within another call, as from a signal handler.
        """
        self._settle(finish=False)
        if isinstance(self._curator, JointCurator):
            self._curator.save(path)
            return
        meta, arrays = self._dump()
        state: dict[str, Any] = {"agent": meta, "noise": saved_source(self._curator.source)}
        arrays |= self._curator.participants.dump(state)
        write_state(path, "agent", state, arrays)

    @alone
    def load(
        self,
        path: str | os.PathLike[str],
        *,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Resumes a save into this freshly made agent, which must have the same arguments.

        What is refused changes nothing: not this agent, no file, and not the ledger. All of the
        save is read and tried before the ledger records, at the end, that it was resumed.
        """
        self._settle()
        algorithm, stream = self._algorithm, self._stream
        session = Session(algorithm)
        self._undo = Moment(algorithm)
        try:
            if isinstance(self._curator, JointCurator):
                curator, mark = read_curator(path, None, JointCurator)
                session.check_same(curator.extra[0])
                if stream is not None:
                    stream = curator.resume_stream("stream", stream.statistic, asked=False)
                session.restore(*curator.extra)
                session.waiting.block = curator.entered
                _rehearse(session, curator, stream)
                curator.attach(lambda: session.dump(curator.participants))
                # With autosave the next save is on disk before the ledger voids this one.
                curator._reopen(ledger, mark, autosave)
                self._curator, self._stream = curator, stream
                self._session, self._undo = session, None
            else:
                state = read_state(path, "agent")
                session.check_same(state.meta["agent"])
                other = algorithm.privacy.curator(**self._options)
                source = Noise.from_state(state.meta["noise"])
                session.restore(state.meta["agent"], state.arrays)
                other.restart(algorithm.served, source)
                other.participants.restore(state.meta, state.arrays)
                self._curator, self._session, self._undo = other, session, None
        except BaseException as error:
            self._settle()
            if isinstance(error, MALFORMED) and not isinstance(error, TacitError):
                raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from None
            raise
        self._catch_up()
        self._tidy()
        return self


def _rehearse(session: Session, curator: JointCurator, stream: JointStream | None) -> None:
    """Takes in the answers on record, and asks nobody: what a save holds must be of use."""
    if not session.saw(curator.last_release):
        return
    algorithm, before = session.algorithm, Moment(session.algorithm)
    users = algorithm.block_users
    if not users:
        raise ValueError("a round after the last one")
    newest = max(curator.blocks, default=-1)
    gate = RecordedGate(curator, stream, newest, algorithm.privacy)
    with contextlib.suppress(NotRecorded):
        Round(algorithm).run(gate, [*session.answers], resumed=True)
        algorithm.advance(users)
    before.put_back()


def _check_files(*paths: str | os.PathLike[str] | None) -> None:
    """Refuses names that are none, or twice the same."""
    for name, path in zip(("ledger", "autosave"), paths, strict=True):
        if path is not None:
            file_name(name, path)
    files = [os.path.realpath(path) for path in paths if path is not None]
    if len(set(files)) < len(files):
        raise InvalidArgument(f"ledger and autosave must be two files, got {files[0]!r}")


# What is checked of people's data before anything changes. Shapes, ids and versions are public.


def _check_ids(data: Block, user_ids: Ids, privacy: Privacy, curator: Curator) -> None:
    """Refuses what the curator would refuse when the block is full."""
    given = user_ids is not None
    if privacy.devices_add and not curator.source.simulation:
        raise InvalidArgument("raw data is for simulations (give noise_seed): devices report")
    ledger = curator.accounts.ledger if isinstance(curator, JointCurator) else None
    if ledger is not None and ledger.people and not given:
        raise InvalidArgument("the ledger counts people: give user_ids")
    if privacy.disjoint and privacy.episodes_per_user > 1 and not given:
        raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
    if user_ids is None:
        return
    if data.aggregate:
        raise InvalidArgument("an aggregate block has no user_ids")


def _plain_ids(user_ids: Ids, users: int) -> Ids:
    """Ids as they are now, without code of their own: it could raise in a block that is full."""
    if user_ids is None:
        return None
    row_ids(user_ids, users)
    ids = [*user_ids]
    kinds = {*map(type, ids)}
    if kinds <= {int, str}:
        return ids
    if not all(issubclass(k, (int, str, np.integer)) and k is not bool for k in kinds):
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidArgument(f"user_ids must be integers or strings, got {words}")
    return [str.__str__(u) if isinstance(u, str) else int.__int__(_whole(u)) for u in ids]


def _whole(user: int | np.integer[Any]) -> int:
    return int(user) if isinstance(user, np.integer) else user


def _check_versions(data: Block, newest: int) -> None:
    """Which policy a user followed is public: one that was never published is a mistake.

    -1 is an episode under several versions, unless all are.
    """
    versions = np.asarray(data["versions"])
    known = versions.dtype.kind in "iu"
    if versions.size and not (known and versions.min() >= -1 and 0 <= versions.max() <= newest):
        raise InvalidArgument(
            f"versions must say which published policy each user followed, 0 to {newest}; "
            "others were never published"
        )


def _of_version(data: Block, user_ids: Ids, version: int, newest: int) -> tuple[Block, Ids]:
    """Those who followed the policy that serves, where only they teach anything."""
    mine = np.asarray(data["versions"]) == version
    if mine.all():
        return data, user_ids
    _check_versions(data, newest)
    if user_ids is not None:
        row_ids(user_ids, data.users)
    if user_ids is not None:
        user_ids = [user_ids[row] for row in np.flatnonzero(mine).tolist()]
    return data.take(mine), user_ids


def _warn_of_retired(users: int, version: int) -> None:
    warn(
        f"{users} of these users did not follow policy {version}, which serves now, and teach "
        "this agent nothing: they were not taken",
        stacklevel=6,
    )


def _card(agent: Agent) -> str:
    """As notebooks show it."""
    rows = {
        "users": f"{agent.served:,} of {agent.users:,}",
        "privacy": repr(agent.privacy),
        "guarantee": "none" if agent.guarantee is None else agent.guarantee.short,
        "knows": repr(agent.spec),
    }
    return card(f"{type(agent.algorithm).__name__} agent", rows.items())
