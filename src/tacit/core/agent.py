"""Agents: who serves people and holds what is theirs.

When the users of a block are through, an agent takes its algorithm's questions to the curator,
hands the answers back, and publishes the next policy. It is the only object that ever has an
episode, an id, a ledger or a secret save, and it is final: what learns is an
:class:`~tacit.core.algorithm.Algorithm`, which is given releases and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.algorithm import Algorithm, PublicPolicy
from tacit.core.asks import Kept, State
from tacit.core.columns import as_numbers
from tacit.core.episodes import Episodes
from tacit.core.rounds import Gate
from tacit.core.session import Ids, Session
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.arguments import file_name, instance_of, row_ids
from tacit.privacy.curators.gate import Curator
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import LocalCurator, flip_probability
from tacit.privacy.errors import (
    BudgetExceeded,
    CorruptFile,
    HorizonExceeded,
    InvalidArgument,
    TacitError,
)
from tacit.privacy.exact import ExactNoise
from tacit.privacy.files import MALFORMED
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.models import Privacy
from tacit.privacy.noise import Noise, saved_source
from tacit.privacy.owner import Uncopyable
from tacit.privacy.statistic import Block, Statistic
from tacit.privacy.storage import read_state, write_state


@final
class Agent(Uncopyable):
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
    ) -> None:
        self._algorithm = algorithm
        self._session = Session(algorithm)
        self._stream: JointStream | None = None
        options: dict[str, Any] = {
            "users": algorithm.users,
            "noise_seed": noise_seed,
            "protects": algorithm.protects,
        }
        if algorithm.privacy.keeps_secrets:
            _check_files(ledger, autosave)
            options |= {"ledger": ledger}
        elif ledger is not None or autosave is not None:
            raise InvalidArgument("ledger and autosave belong to JointDP: only it has secrets")
        self._curator: Curator = algorithm.gate_privacy.curator(**options)
        if isinstance(self._curator, LocalCurator) and algorithm.privacy.reports_bits:
            # Refused here and not at the first release.
            flip_probability(self.statistic, self._curator.privacy)
        if isinstance(self._curator, JointCurator):
            if algorithm.counter != "blocks":
                self._stream = self._curator.stream(
                    self.statistic, releases=algorithm.schedule.releases, kind=algorithm.counter
                )
            self._curator.attach(self._dump)
            if autosave is not None:
                self._curator.autosave_to(autosave)

    def __init_subclass__(cls) -> None:
        raise TypeError("an Agent holds people's data and is final: write an Algorithm")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"an agent has no attribute {name!r}")
        found = getattr(self._algorithm, name, self)
        return getattr(self._algorithm.options, name) if found is self else found

    def __dir__(self) -> list[str]:
        public = [name for name in dir(self._algorithm) if not name.startswith("_")]
        return sorted({*super().__dir__(), *public})

    def __repr__(self) -> str:
        return f"<{type(self._algorithm).__name__} agent, {self.served} of {self.users} users>"

    # The billboard.

    @property
    def algorithm(self) -> Algorithm[Any]:
        """Who learns; everything it has is public."""
        return self._algorithm

    @property
    def policy(self) -> Any:
        """The policy that serves users now."""
        return self._algorithm.policy

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for every user; ``None`` without privacy."""
        return self._curator.guarantee

    @property
    def block_users(self) -> int:
        """How many more users the current policy serves until the next release."""
        return max(0, self._algorithm.block_users - self._session.waiting.users)

    @property
    def statistic(self) -> Statistic:
        """What is asked first of the users of the current block; devices report it."""
        return self._session.round.statistic

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public policy; any device with NumPy can load it."""
        policy: PublicPolicy = self._algorithm.policy
        policy.publish(path)

    # Learning.

    def learn(self, data: Episodes | VectorEpisodes | Block, user_ids: Ids = None) -> None:
        """Takes users that ``policy`` served; publishes the next policy when a block is full.

        They are episodes of any number of users, or the sums of exactly one block (simulations).
        For ``user_ids`` see :meth:`tacit.Curator.add`.

        If anything is raised after some of these users were taken, the error says how many, in a
        note and as ``users_taken`` = n. They count, wait for the rest of their block, or are lost
        with a release that failed. Never give them again: they would be in the sums twice. Go on
        with the others: ``data.take(slice(n, None))`` and ``user_ids[n:]``.
        """
        if not isinstance(data, Block):
            instance_of("data", data, (Episodes, VectorEpisodes, Block))
            user_ids = data.user_ids if user_ids is None else user_ids
            data = data.block()
        users, statistic = self._algorithm.users, self.statistic
        left = users - self._session.taken
        self._curator.check_ready()
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {users} users; {left} are left, {data.users} came"
            )
        statistic.check(self._session.placed(data))
        self._check(data, user_ids)
        if data.aggregate and (self._session.waiting.users or data.users != self.block_users):
            raise InvalidArgument(
                f"sums must be of one whole block: {self.block_users} users, got {data.users}"
            )
        with _saying_who(self, data.users):
            if data.aggregate:
                self._take(data, None)
                return
            start = 0
            while start < data.users:
                if self.block_users == 0:
                    raise HorizonExceeded(
                        f"no block is left for {data.users - start} more users: the schedule has "
                        "ended"
                    )
                stop = min(data.users, start + self.block_users)
                part = self._session.placed(data.take(slice(start, stop)))
                self._take(part, None if user_ids is None else user_ids[start:stop])
                start = stop

    def learn_reports(self, reports: ArrayLike, user_ids: Ids = None) -> None:
        """Takes the local reports of all users of the current block; see :mod:`tacit.local`.

        One row per user, made on her device by ``tacit.local.report`` from ``statistic`` and
        ``privacy``; ``user_ids`` say who sent them.
        """
        if not isinstance(self._curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        if self._algorithm.gate_privacy != self.privacy:
            # Devices that report by ``privacy`` would add another noise than is accounted for.
            raise InvalidArgument("as printed is for simulations: devices report by privacy itself")
        # What a device sent instead of a number must not cost the others their reports.
        rows, statistic = as_numbers("reports", reports), self.statistic
        shape = (self.block_users, statistic.layout.size)
        if rows.shape != shape:
            raise InvalidArgument(
                f"reports must have shape {shape}, a row per user of the current block, got "
                f"{rows.shape}"
            )
        number = self._curator.collect(statistic, rows, user_ids)
        with _saying_who(self, len(rows)):
            self._ask(number, len(rows))

    def _check(self, data: Block, user_ids: Ids) -> None:
        session = self._session
        if (user_ids is not None) != session.with_ids and session.taken:
            raise InvalidArgument("user_ids must be given for all users or for none")
        _check_ids(data, user_ids, self.privacy, self._curator)
        if data.users:
            session.with_ids = user_ids is not None
        if self._algorithm.masked and not data.aggregate:
            _check_versions(data, self.policy.version)

    def _take(self, part: Block, user_ids: Ids) -> None:
        """Users of the current block; when it is full it goes through the gate."""
        if part.users < self.block_users:
            self._session.waiting.add(part, user_ids)
            return
        block, ids = self._session.waiting.joined(part, user_ids)
        # Until the block is in, those who wait for it go on waiting.
        number = self._curator.add(block, ids)
        self._session.waiting.clear()
        self._ask(number, block.users)

    def _ask(self, number: int, users: int, *, resumed: bool = False) -> None:
        """All questions about a block, and the next policy.

        Whatever is raised, its raw data is not kept by chance, and its users are not asked again:
        they may have paid for a release that nobody will see.
        """
        algorithm, served = self._algorithm, self._algorithm.served
        kept = algorithm.kept
        try:
            if kept is not None and not resumed:
                # Within a round everybody has paid a part of it already.
                self._drop_poor_blocks(number, kept)
            gate = Gate(self._curator, self._stream, number, algorithm.privacy)
            early = self._session.round.run(gate, self._session.answers, resumed=resumed)
            algorithm.advance(users)
            if early is not None:
                raise early
        except BaseException:
            algorithm.served = served + users
            raise
        finally:
            self._session.end_round(self._curator.releases)
            last = None if kept is None else -kept.blocks or None
            for old in sorted(self._curator.blocks)[:last]:
                self._curator.forget(old)

    def _drop_poor_blocks(self, newest: int, kept: Kept) -> None:
        """Drops blocks that cannot pay for another round."""
        curator = self._curator
        if not isinstance(curator, JointCurator):
            return
        for number in curator.blocks:
            share = kept.decay ** (number - newest)
            if curator.remaining(number) < kept.cost * share**2 * (1.0 - 1e-9):
                curator.forget(number)

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, secrets included (mode 0600), for going on later."""
        if not self._algorithm.resumable:
            raise InvalidArgument("as printed is for comparisons: such a run is not saved")
        if isinstance(self._curator, JointCurator):
            self._curator.save(path)
            return
        meta, arrays = self._dump()
        state: dict[str, Any] = {"agent": meta, "noise": saved_source(self._curator.source)}
        arrays |= self._curator.participants.dump(state)
        write_state(path, "agent", state, arrays)

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Resumes a save into this freshly made agent, which must have the same arguments."""
        before = (self._curator, self._stream, *self._dump())
        try:
            if isinstance(self._curator, JointCurator):
                # First of all: a ledger lets a save be loaded once.
                self._session.check_same(read_state(path, "curator").meta["extra"])
                # With autosave the next save is on disk before the ledger voids this one.
                curator = JointCurator.load(path, ledger=ledger, autosave=autosave)
                if self._stream is not None:
                    first = self._stream.statistic
                    self._stream = curator.resume_stream("stream", first, asked=False)
                self._curator = curator
                curator.attach(self._dump)
                self._session.restore(*curator.extra)
            else:
                state = read_state(path, "agent")
                self._session.check_same(state.meta["agent"])
                kind = ExactNoise if isinstance(self._curator.source, ExactNoise) else Noise
                source = kind.from_state(state.meta["noise"])
                self._session.restore(state.meta["agent"], state.arrays)
                self._curator.restart(self.served, source)
                self._curator.participants.restore(state.meta, state.arrays)
        except BaseException as error:
            self._put_back(before)
            if isinstance(error, MALFORMED) and not isinstance(error, TacitError):
                raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from None
            raise
        try:
            self._catch_up()
        except MALFORMED as error:
            if isinstance(error, TacitError):
                raise
            self._put_back(before)
            raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from error
        return self

    def _put_back(self, before: tuple[Curator, JointStream | None, dict[str, Any], Any]) -> None:
        """As it was before a save was refused."""
        self._curator, self._stream = before[:2]
        self._session.restore(*before[2:])
        if isinstance(self._curator, JointCurator):
            self._curator.attach(self._dump)

    def _catch_up(self) -> None:
        """Finishes the round that a crash came into."""
        if isinstance(self._curator, JointCurator) and self._session.saw(
            self._curator.last_release
        ):
            if not self._algorithm.block_users:
                raise ValueError("a round after the last one")
            # A crash can make users pay for an answer that nobody saw. If they cannot pay for what
            # an algorithm needs, their block is lost and the run goes on.
            with contextlib.suppress(BudgetExceeded):
                newest = max(self._curator.blocks, default=-1)
                self._ask(newest, self._algorithm.block_users, resumed=True)

    def _dump(self) -> State:
        return self._session.dump(self._curator.participants)


def _check_files(*paths: str | os.PathLike[str] | None) -> None:
    """Refuses names that are none, or twice the same."""
    for name, path in zip(("ledger", "autosave"), paths, strict=True):
        if path is not None:
            file_name(name, path)
    files = [os.path.realpath(path) for path in paths if path is not None]
    if len(set(files)) < len(files):
        raise InvalidArgument(f"ledger and autosave must be two files, got {files[0]!r}")


@contextlib.contextmanager
def _saying_who(agent: Agent, users: int) -> Any:
    """Tells whoever catches an error of ``learn`` whom not to give again."""
    before = agent._session.taken
    try:
        yield
    except BaseException as error:
        taken = agent._session.taken - before
        error.users_taken = taken  # type: ignore[attr-defined]
        if taken:
            rest = f"; go on with the rest: data.take(slice({taken}, None))"
            error.add_note(
                f"{taken} of these {users} users were taken and must not be given again"
                + (rest if taken < users else "")
            )
        raise


# What is checked of people's data before anything changes. Shapes, ids and versions are public.


def _check_ids(data: Block, user_ids: Ids, privacy: Privacy, curator: Curator) -> None:
    """Refuses what the curator would refuse when the block is full."""
    given = user_ids is not None
    if privacy.local and not curator.source.simulation:
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
    row_ids(user_ids, data.users)
    kinds = {type(user) for user in user_ids}
    if not all(issubclass(k, (int, str, np.integer)) and k is not bool for k in kinds):
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidArgument(f"user_ids must be integers or strings, got {words}")


def _check_versions(data: Block, newest: int) -> None:
    """Which policy a user followed is public: one that was never published is a mistake."""
    versions = np.asarray(data["versions"])
    known = versions.dtype.kind in "iu" and (versions >= 0).all()
    if versions.size and not (known and (versions <= newest).all()):
        raise InvalidArgument(
            f"versions must say which published policy each user followed, 0 to {newest}; "
            "others were never published"
        )
