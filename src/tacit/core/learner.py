"""What all agents share: the gate, the schedule, real episodes, save and resume.

An agent serves users with ``policy``. When the users of a block are through, it asks its curator
for a release about them, adds it to what is known, and publishes the next policy. Everything after
the release is post-processing. A family of agents says what it asks, what it makes of the answer
and how it plans; it never sees who was asked.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.columns import as_numbers
from tacit.core.episodes import Episodes
from tacit.core.schedule import Schedule
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.arguments import (
    MOST_USERS,
    file_name,
    instance_of,
    one_of,
    positive,
    row_ids,
    whole_number,
)
from tacit.privacy.curators.gate import Curator, Release, Stream
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.local import LocalCurator, flip_probability
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument, TacitError
from tacit.privacy.exact import ExactNoise
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
from tacit.privacy.noise import Noise, saved_source
from tacit.privacy.pseudonyms import Name
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Statistic
from tacit.privacy.storage import read_state, write_state

Floats = NDArray[np.float64]
Arrays: TypeAlias = dict[str, NDArray[Any]]
Bonus = Literal["practical", "theory"]
Calibration = Literal["tight", "as_printed"]


class PublicPolicy(Protocol):
    """What an agent posts on the billboard."""

    @property
    def version(self) -> int:
        """Which policy of its agent it is."""
        ...

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file."""
        ...


# What a save can raise whose checksum is right, but which no agent of this release wrote.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)

Asked = TypeVar("Asked", bound=Statistic)
Plan = TypeVar("Plan", bound=PublicPolicy)


class Learner(ABC, Generic[Asked, Plan]):
    """An agent without its algorithm.

    ``Asked`` is the kind of statistic it asks of a block, ``Plan`` the kind of policy it publishes.

    The constructor calls the hooks ``_check_options``, ``_choose_counter``, ``_make_schedule`` and,
    for a running sum, ``_statistic``: a subclass first sets what its hooks read, then calls it.

    Args:
        spec: what is known of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        bonus: ``"practical"`` or ``"theory"``.
        scale: multiplies the bonus.
        failure: with which probability the theory's confidence bounds may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for a paper's own noise.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        counter: ``"blocks"`` or a kind of :func:`tacit.counter` over all releases.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`; a file that is
            missing is made, as a ledger of this run alone.
        autosave: file that is written before each publication.
    """

    name: ClassVar[str]
    spec: Any

    def __init__(
        self,
        spec: Any,
        users: int,
        privacy: Privacy,
        *,
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        counter: str = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(privacy, (JointDP, LocalDP, NonPrivate)):
            raise InvalidArgument(
                f"privacy must be JointDP, LocalDP or NonPrivate, got {privacy!r}"
            )
        for name, path in (("ledger", ledger), ("autosave", autosave)):
            if path is not None:
                file_name(name, path)
        seed = whole_number("seed", seed, least=0)
        self.spec = spec
        self.users = whole_number("users", users, most=MOST_USERS)
        self.privacy = privacy
        self.scale = positive("scale", scale)
        self.failure = positive("failure", failure)
        self.bonus, self.calibration = bonus, calibration
        self._check_options(schedule)
        self.served = 0
        self.releases = 0
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 4]))
        self._pending: list[tuple[Block, Sequence[int | str] | None]] = []
        self._waiting = 0
        self._with_ids = False
        # Releases that were taken in; one that a crash came before is not.
        self._absorbed = 0
        self._policy = self._first_policy()
        self._greedy = self._first_greedy()
        self.counter = self._choose_counter(counter)
        self.schedule = self._make_schedule(schedule)
        if calibration != "tight" and getattr(privacy, "sampler", "") == "exact":
            raise InvalidArgument("as printed, noise is continuous: take sampler='floating-point'")
        gate = privacy if calibration == "tight" else self._as_printed()
        options: dict[str, Any] = {
            "users": self.users,
            "noise_seed": noise_seed,
            "protects": self._protects,
        }
        if isinstance(privacy, JointDP):
            files = [os.path.realpath(path) for path in (ledger, autosave) if path is not None]
            if len(set(files)) < len(files):
                raise InvalidArgument(f"ledger and autosave must be two files, got {files[0]!r}")
            options |= {"ledger": ledger}
        elif ledger is not None or autosave is not None:
            raise InvalidArgument("ledger and autosave belong to JointDP: only it has secrets")
        self._curator: Curator = gate.curator(**options)
        if isinstance(privacy, LocalDP) and privacy.mechanism == "randomised response":
            # Refused here and not at the first release.
            flip_probability(self._statistic(), privacy)
        self._stream: Stream | None = None
        if self.counter != "blocks" and isinstance(privacy, JointDP):
            self._stream = self._curator.stream(
                self._statistic(), releases=self.schedule.releases, kind=self.counter
            )
        if isinstance(self._curator, JointCurator):
            self._curator.attach(self._dump)
            if autosave is not None:
                self._curator.autosave_to(autosave)

    # What a family must define.

    @abstractmethod
    def _statistic(self) -> Asked:
        """What is asked of the current block; it may depend on anything that is public by now."""

    @abstractmethod
    def _absorb(self, release: Release, statistic: Asked, users: int) -> None:
        """Takes a release into what is known, before anything counts its block as served.

        Args:
            release: the noisy sums.
            statistic: what was asked.
            users: of the block.
        """

    @abstractmethod
    def _plan(self) -> tuple[Plan, Plan]:
        """The next policy to serve users with, and the greedy one beside it.

        ``served`` and ``releases`` already count the last block; the policies' version is
        ``releases``.
        """

    @abstractmethod
    def _first_policy(self) -> Plan:
        """What serves the first users, before anything is known."""

    @abstractmethod
    def _policy_arrays(self, policy: Plan) -> Arrays:
        """A policy for a save, all but its version."""

    @abstractmethod
    def _policy_of(self, arrays: Arrays, version: int) -> Plan:
        """The inverse of :meth:`_policy_arrays`, to the bit."""

    @abstractmethod
    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        """The schedule for the argument of the constructor; ``"auto"`` is the family's own."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """What is known, for a save: JSON values and arrays, by names that :meth:`_dump` lacks."""

    @abstractmethod
    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """Puts back what :meth:`_state` returned; it is among what the save holds."""

    # What a family may define.

    @property
    def _masked(self) -> bool:
        """Whether the statistic counts only those who followed the block's own policy.

        Then episodes must say which version their users followed.
        """
        return False

    @property
    def _protects(self) -> str:
        """What its statistics protect, in words."""
        return WHOLE_EPISODE

    def _first_greedy(self) -> Plan:
        """The greedy policy before anything is known; the first one, unless that explores.

        It is a hook, as the first autosave is written before a subclass's constructor ends.
        """
        return self._policy

    def _check_options(self, schedule: str | Schedule) -> None:
        """Refuses arguments that do not go together; nothing is made yet."""
        one_of("bonus", self.bonus, ("practical", "theory"))
        one_of("calibration", self.calibration, ("tight", "as_printed"))
        if not 0.0 < self.failure < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")

    def _choose_counter(self, counter: str) -> str:
        """``"blocks"`` for single releases, or the kind of counter that all blocks go through.

        Reports and exact sums add up as they are: without JointDP nothing is gained by a counter.
        """
        if counter == "auto" or not isinstance(self.privacy, JointDP):
            return "blocks"
        return counter

    def _as_printed(self) -> Privacy:
        """The model that adds exactly the paper's noise, with what is really proven for it."""
        raise InvalidArgument(
            f"calibration of {type(self).__name__} must be tight: it has no noise of a paper's own"
        )

    def _forget_blocks(self) -> None:
        """Drops raw data that is not asked again, after the releases of a block: all of it."""
        for number in self._curator.blocks:
            self._curator.forget(number)

    # The billboard.

    @property
    def policy(self) -> Plan:
        """The policy that serves users now."""
        return self._policy

    @property
    def greedy_policy(self) -> Plan:
        """The best policy for what is known now, without exploring; from the same release."""
        return self._greedy

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for every user; ``None`` without privacy."""
        return self._curator.guarantee

    @property
    def block_users(self) -> int:
        """How many more users the current policy serves until the next release."""
        if self.releases >= self.schedule.releases:
            return 0
        size = min(self.schedule.blocks[self.releases], self.users - self.served)
        return size - self._waiting

    @property
    def statistic(self) -> Asked:
        """What is asked of the users of the current block; devices need it for their reports."""
        return self._statistic()

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public policy; any device with NumPy can load it."""
        self._policy.publish(path)

    # Learning.

    def learn(
        self,
        data: Episodes | VectorEpisodes | Block,
        user_ids: Sequence[int | str] | None = None,
    ) -> None:
        """Takes users that ``policy`` served; publishes the next policy when a block is full.

        Args:
            data: episodes of any number of users, or the sums of exactly one block (simulations).
            user_ids: who they are; see :meth:`tacit.Curator.add`.

        If anything is raised after some of these users were taken, the error says how many, in a
        note and as ``users_taken`` = n. They count, wait for the rest of their block, or are lost
        with a release that failed. Never give them again: they would be in the sums twice. Go on
        with the others: ``data.take(slice(n, None))`` and ``user_ids[n:]``.
        """
        instance_of("data", data, (Episodes, VectorEpisodes, Block))
        if not isinstance(data, Block):
            user_ids = data.user_ids if user_ids is None else user_ids
            data = data.block()
        self._curator.check_ready()
        left = self.users - self.served - self._waiting
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {self.users} users; {left} are left, "
                f"{data.users} came"
            )
        self._statistic().check(data)
        self._check_ids(data, user_ids)
        if self._masked and not data.aggregate:
            self._check_versions(data)
        if data.aggregate:
            if self._pending or data.users != self.block_users:
                raise InvalidArgument(
                    f"sums must be of one whole block: {self.block_users} users, got {data.users}"
                )
            self._release(data, None)
            return
        before, start = self.served + self._waiting, 0
        try:
            while start < data.users:
                if self.block_users == 0:
                    raise HorizonExceeded(
                        f"no block is left for {data.users - start} more users: the schedule has "
                        "ended"
                    )
                stop = min(data.users, start + self.block_users)
                part = data.take(slice(start, stop))
                self._take(part, None if user_ids is None else user_ids[start:stop])
                start = stop
        except BaseException as error:
            _say_taken(error, self.served + self._waiting - before, data.users)
            raise

    def _take(self, part: Block, user_ids: Sequence[int | str] | None) -> None:
        """Users of the current block; when it is full it goes through the gate."""
        if part.users < self.block_users:
            # They wait, and a buffer that is used again must not change who they are: the next
            # users would be in the sums twice.
            part, user_ids = part.sealed(), None if user_ids is None else [*user_ids]
        waiting = (self._pending, self._waiting)
        self._pending = [*self._pending, (part, user_ids)]
        self._waiting += part.users
        if self.block_users > 0:
            return
        block, ids = _joined(self._pending)
        self._pending, self._waiting = [], 0
        came, served = self._curator.users, self.served
        try:
            self._release(block, ids)
        except BaseException:
            if self._curator.users == came:
                # The block never got in: those who waited for it wait again.
                self._pending, self._waiting = waiting
            else:
                self.served = max(self.served, served + block.users)
            raise

    def _check_ids(self, data: Block, user_ids: Sequence[int | str] | None) -> None:
        """Refuses what the curator would refuse when the block is full, before anything changes."""
        privacy, given = self.privacy, user_ids is not None
        if isinstance(privacy, LocalDP) and not self._curator.source.simulation:
            raise InvalidArgument("raw data is for simulations (give noise_seed): devices report")
        if given != self._with_ids and (self.served or self._pending):
            raise InvalidArgument("user_ids must be given for all users or for none")
        if isinstance(self._curator, JointCurator) and self._curator.needs_ids and not given:
            raise InvalidArgument("the ledger counts people: give user_ids")
        many = isinstance(privacy, JointDP) and privacy.disjoint and privacy.episodes_per_user > 1
        if many and not given:
            raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
        if user_ids is not None:
            if data.aggregate:
                raise InvalidArgument("an aggregate block has no user_ids")
            row_ids(user_ids, data.users)
            kinds = {type(user) for user in user_ids}
            if not all(issubclass(k, (int, str, np.integer)) and k is not bool for k in kinds):
                words = ", ".join(sorted(kind.__name__ for kind in kinds))
                raise InvalidArgument(f"user_ids must be integers or strings, got {words}")
        if data.users:
            self._with_ids = given

    def _check_versions(self, data: Block) -> None:
        """Which policy a user followed is public: one that was never published is a mistake."""
        versions = np.asarray(data["versions"])
        if versions.size and not (
            versions.dtype.kind in "iu"
            and (versions >= 0).all()
            and (versions <= self._policy.version).all()
        ):
            raise InvalidArgument(
                f"versions must say which published policy each user followed, 0 to "
                f"{self._policy.version}; others were never published"
            )

    def learn_reports(
        self, reports: ArrayLike, user_ids: Sequence[int | str] | None = None
    ) -> None:
        """Takes the local reports of all users of the current block; see :mod:`tacit.local`.

        Args:
            reports: one row per user, made on her device by ``tacit.local.report`` from
                ``statistic`` and ``privacy``.
            user_ids: who sent them.
        """
        if not isinstance(self._curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        if self.calibration == "as_printed":
            # Devices that report by ``privacy`` would add another noise than is accounted for.
            raise InvalidArgument("as printed is for simulations: devices report by privacy itself")
        # What a device sent instead of a number must not cost the others their reports.
        rows = as_numbers("reports", reports)
        statistic = self._statistic()
        shape = (self.block_users, statistic.layout.size)
        if rows.shape != shape:
            raise InvalidArgument(
                f"reports must have shape {shape}, a row per user of the current block, got "
                f"{rows.shape}"
            )
        number, before = self._curator.collect(statistic, rows, user_ids), self.served
        try:
            with self._at_the_gate(len(rows)):
                release = self._curator.release(statistic, blocks=[number])
            self._take_in(release, statistic, len(rows))
        except BaseException as error:
            _say_taken(error, self.served - before, len(rows))
            raise

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        """One block through the gate, and the next policy."""
        statistic = self._statistic()
        number = self._curator.add(block, user_ids)
        with self._at_the_gate(block.users):
            if self._stream is None:
                release = self._curator.release(statistic, blocks=[number])
            else:
                release = self._stream.release(number)
        self._take_in(release, statistic, block.users)

    def _take_in(self, release: Release, statistic: Asked, users: int) -> None:
        """Absorbs a release, once: whatever interrupts it, no resumed run does it again."""
        self._absorbed = release.index + 1
        served = self.served
        try:
            self._absorb(release, statistic, users)
            self._advance(users)
        except BaseException:
            self.served = served + users
            raise

    @contextlib.contextmanager
    def _at_the_gate(self, users: int) -> Iterator[None]:
        """While a block's releases are made: whatever happens, its raw data is not kept by chance.

        If anything is raised its users may have paid for a release that nobody will see: they are
        lost, not asked again.
        """
        try:
            yield
        except BaseException:
            self.served += users
            raise
        finally:
            self._forget_blocks()

    def _advance(self, users: int) -> None:
        """A block is served and absorbed: it counts, and the next policy is planned."""
        self.served += users
        self.releases += 1
        self._policy, self._greedy = self._plan()

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, secrets included (mode 0600), for going on later."""
        if isinstance(self._curator, JointCurator):
            self._curator.save(path)
            return
        meta, arrays = self._dump()
        state: dict[str, Any] = {"agent": meta, "noise": saved_source(self._curator.source)}
        arrays |= self._curator._participants.dump(state)
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
            if isinstance(self.privacy, JointDP):
                # First of all: a ledger lets a save be loaded once.
                self._check_same(read_state(path, "curator").meta["extra"])
                # With autosave the next save is on disk before the ledger voids this one.
                curator = JointCurator.load(path, ledger=ledger, autosave=autosave)
                meta, arrays = curator.extra
                if self._stream is not None:
                    self._stream = curator.resume_stream("stream", self._statistic())
                self._curator = curator
                curator.attach(self._dump)
                self._restore(meta, arrays)
            else:
                state = read_state(path, "agent")
                meta, arrays = state.meta["agent"], state.arrays
                self._check_same(meta)
                kind = ExactNoise if isinstance(self._curator.source, ExactNoise) else Noise
                source = kind.from_state(state.meta["noise"])
                self._restore(meta, arrays)
                self._curator.restart(self.served, source)
                self._curator._participants.restore(state.meta, arrays)
        except BaseException as error:
            self._go_back(*before)
            if isinstance(error, _MALFORMED) and not isinstance(error, TacitError):
                raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from None
            raise
        if isinstance(self._curator, JointCurator):
            try:
                self._catch_up()
            except _MALFORMED as error:
                if isinstance(error, TacitError):
                    raise
                raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from error
        return self

    def _go_back(
        self, curator: Curator, stream: Stream | None, meta: dict[str, Any], arrays: Arrays
    ) -> None:
        """To what was before a save that turned out to be none."""
        self._restore(meta, arrays)
        self._curator, self._stream = curator, stream
        if isinstance(curator, JointCurator):
            curator.attach(self._dump)

    def _catch_up(self) -> None:
        """Publishes what was saved before it was published: a release on disk, without policy."""
        last = self._curator.last_release
        if last and last.index >= self._absorbed:
            self._take_in(last, self._statistic(), self.block_users)
            self._forget_blocks()

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a save to be resumed, as JSON values; subclasses add to it."""
        return {
            "class": type(self).__name__,
            "spec": repr(self.spec),
            "users": self.users,
            "privacy": repr(self.privacy),
            "bonus": self.bonus,
            "calibration": self.calibration,
            "scale": self.scale,
            "failure": self.failure,
            "counter": self.counter,
            "schedule": repr(self.schedule),
        }

    def _check_same(self, meta: dict[str, Any]) -> None:
        mine, saved = self._identity(), meta["identity"]
        differing = [key for key in mine if mine[key] != saved.get(key)]
        if differing:
            raise InvalidArgument(
                f"the save is of another agent: {', '.join(differing)} differ "
                f"(saved {saved.get(differing[0])}, this one {mine[differing[0]]})"
            )

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        pending = _joined(self._pending) if self._pending else None
        meta, arrays = self._state()
        meta |= {
            "identity": self._identity(),
            "served": self.served,
            "releases": self.releases,
            "version": self._policy.version,
            "rng": self._rng.bit_generator.state,
            "with_ids": self._with_ids,
            "absorbed": self._absorbed,
            "pending": 0 if pending is None else pending[0].users,
            "pending_names": None,
        }
        if pending is not None and pending[1] is not None:
            meta["pending_names"] = self._curator._participants.names(pending[1])
        for kind, policy in (("policy/", self._policy), ("greedy/", self._greedy)):
            arrays |= {kind + name: a for name, a in self._policy_arrays(policy).items()}
        if pending is not None:
            arrays |= {f"pending/{name}": array for name, array in pending[0].arrays.items()}
        return meta, arrays

    def _restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        served, waiting = (_count(meta[name], self.users) for name in ("served", "pending"))
        releases = _count(meta["releases"], self.schedule.releases)
        self._set_state(meta, arrays)
        self.served, self.releases = served, releases
        self._absorbed = _count(meta["absorbed"], MOST_USERS)
        self._rng.bit_generator.state = meta["rng"]
        self._with_ids = bool(meta["with_ids"])
        self._policy = self._policy_of(below(arrays, "policy/"), meta["version"])
        self._greedy = self._policy_of(below(arrays, "greedy/"), meta["version"])
        self._pending, self._waiting = [], waiting
        if waiting:
            raw, names = below(arrays, "pending/"), meta["pending_names"]
            ids = None if names is None else [Name(name) for name in names]
            self._pending = [(Block(waiting, raw), ids)]


def below(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _count(value: object, most: int) -> int:
    """A number of a save; a forged file may hold anything."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return value


def _say_taken(error: BaseException, taken: int, users: int) -> None:
    """Tells whoever catches an error of ``learn`` whom not to give again."""
    error.users_taken = taken  # type: ignore[attr-defined]
    if taken:
        error.add_note(
            f"{taken} of these {users} users were taken and must not be given again"
            + (f"; go on with the rest: data.take(slice({taken}, None))" if taken < users else "")
        )


def _joined(
    pending: list[tuple[Block, Sequence[int | str] | None]],
) -> tuple[Block, Sequence[int | str] | None]:
    """Parts of a block as one; ids were given for all parts or for none."""
    blocks = [block for block, _ in pending]
    names = blocks[0].arrays
    arrays = {name: np.concatenate([block[name] for block in blocks]) for name in names}
    ids = [user_ids for _, user_ids in pending]
    if any(user_ids is None for user_ids in ids):
        return Block(sum(b.users for b in blocks), arrays), None
    joined = [user for user_ids in ids if user_ids is not None for user in user_ids]
    return Block(sum(b.users for b in blocks), arrays), joined
