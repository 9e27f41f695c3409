"""What all curators share: blocks of raw data in, releases out, and who took part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tacit.privacy.arguments import MOST_USERS, instance_of, whole_number
from tacit.privacy.curators.entries import Entries
from tacit.privacy.curators.participants import Participants, UserIds
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.owner import Owner, alone, refuse_within
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Floats, Statistic


@dataclass(frozen=True, eq=False)
class Release:
    """One publication of private statistics. Public.

    Attributes:
        index: how many releases of this curator came before.
        statistic: the statistic's name.
        parts: the noisy sums by part name; also ``release[name]``.
        std: noise standard deviation by part name (of the diagonal, for symmetric parts; an array
            where it differs between entries).
        users: how many users are in the sum (public).
        cost: what it cost a user: mu, or epsilon under pure DP; ``None`` without privacy.
    """

    index: int
    statistic: str
    parts: Mapping[str, Floats]
    std: Mapping[str, float | Floats]
    users: int
    cost: float | None

    def __getitem__(self, part: str) -> Floats:
        return self.parts[part]


class WantedStream(NamedTuple):
    """What is asked for in a stream; see :meth:`Curator.stream`."""

    releases: int
    name: str
    kind: str
    mu: float | None


class Curator(Entries, ABC):
    """What all three models share: blocks, users, and the bookkeeping of who was where.

    Calls come one at a time: other threads wait, and a call within a call, as from a signal
    handler, is a :class:`~tacit.privacy.errors.Busy`. An exception at any line of a call leaves a
    block in or out, whole: it is in by one assignment, before which nothing of it is visible and
    after which whatever is missing is done by the next call.

    Args:
        users: how many users are declared; adding more is refused. ``None`` for no limit.
        noise_seed: a reproducible simulation that protects nobody.
        source: another source of noise (for audits); excludes ``noise_seed``.
        protects: what is protected; see :attr:`tacit.Statistic.protects`.
    """

    why_single = "a curator cannot be copied: two copies would spend one budget twice"

    def __init__(
        self,
        *,
        users: int | None = None,
        noise_seed: int | None = None,
        source: NoiseSource | None = None,
        episodes_per_user: int | None = None,
        once_per_block: bool = False,
        protects: str = WHOLE_EPISODE,
    ) -> None:
        if users is not None:
            users = whole_number("users", users, most=MOST_USERS)
        if source is not None and noise_seed is not None:
            raise InvalidArgument("give noise_seed or source, not both")
        super().__init__(users, Participants(episodes_per_user, once_per_block))
        self.protects = protects
        self._source: NoiseSource = Noise(noise_seed) if source is None else source
        instance_of("source", self._source, NoiseSource)
        self._owner = Owner(self._source.simulation)

    @property
    def source(self) -> NoiseSource:
        """Where the noise comes from."""
        return self._source

    def restart(self, users: int, source: NoiseSource) -> None:
        """Goes on after ``users`` users with another source; for models that hold no secrets."""
        self._extent = (self._extent[0], users)
        self._source = source
        self._owner = Owner(source.simulation)

    # Raw data in.

    @alone
    def add(self, block: Block, user_ids: Sequence[int | str] | None = None) -> int:
        """Takes a block of raw data; returns its number.

        With ``user_ids``, one per row, nobody contributes more episodes than declared: those beyond
        count as zero (that somebody took part is public). Given once, they must be given always.
        """
        return self._add(block, user_ids)

    def _add(self, block: Block, user_ids: UserIds) -> int:
        instance_of("block", block, Block)
        return self._join(block, user_ids, self._blocks.__setitem__)

    def enter(
        self, statistic: Statistic, block: Block | int, user_ids: Sequence[int | str] | None = None
    ) -> int:
        """The number of a block that enters a stream: of one that is here, or given as raw data."""
        if isinstance(block, Block):
            statistic.check(block)
            return self._add(block, user_ids)
        return whole_number("block", block, least=0)

    @alone
    def forget(self, block: int) -> None:
        """Drops a block's raw data. What was released of it stays; it cannot be queried again."""
        self._forget(block)

    # Public out.

    def check_ready(self) -> None:
        """Refuses in a forked process: parent and child would both go on from one state."""
        self._owner.check("curator")

    @alone
    def release(
        self, statistic: Statistic, *, block: int | None = None, mu: float | None = None
    ) -> Release:
        """Publishes the sum of a statistic over one block, with noise, and charges its users.

        A local report carries a user's whole budget, so the local model refuses ``mu``, and so does
        pure DP, where a release takes all that is left. Without privacy it means nothing.

        Args:
            statistic: what to sum.
            block: which block; the newest by default.
            mu: what the release costs users. By default all that is left.

        Raises:
            BudgetExceeded: the block cannot afford it, or reported another statistic. Nothing is
                published or changed.
        """
        self._settle()
        instance_of("statistic", statistic, Statistic)
        number = self.entered - 1 if block is None else whole_number("block", block, least=0)
        return self._release(statistic, number, mu)

    @alone
    def stream(
        self,
        statistic: Statistic,
        *,
        releases: int,
        name: str = "stream",
        kind: str = "auto",
        mu: float | None = None,
    ) -> Stream:
        """A running sum over blocks, published after each; a block pays once, when it enters.

        Args:
            statistic: what to sum.
            releases: how many blocks will enter, at most.
            name: under which it is saved and resumed.
            kind: a counter's kind, or ``"auto"``; see :func:`tacit.counter`.
            mu: what a block pays; all of an episode's budget by default.
        """
        return self._stream(statistic, WantedStream(releases, name, kind, mu))

    @abstractmethod
    def _release(self, statistic: Statistic, block: int, mu: float | None) -> Release: ...

    @abstractmethod
    def _stream(self, statistic: Statistic, wanted: WantedStream) -> Stream: ...

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee | None:
        """What is proven of everything this curator ever publishes."""

    # Shared work.

    def _check_unit(self, statistic: Statistic) -> None:
        """Refuses a statistic whose sensitivity is about something else than the guarantee."""
        instance_of("statistic", statistic, Statistic)
        whole = statistic.private_columns is None and statistic.group_size == 1
        if whole != (statistic.protects == WHOLE_EPISODE):
            columns = statistic.private_columns
            changing = "everything" if columns is None else sorted(columns)
            raise InvalidArgument(
                f"{statistic.name} says that it protects {statistic.protects!r}, but its "
                f"sensitivity is for {statistic.group_size} users of whom {changing} may change: "
                f"{WHOLE_EPISODE!r} is all of one user, and only that is"
            )
        if statistic.protects != self.protects:
            raise InvalidArgument(
                f"this curator protects {self.protects!r}, but {statistic.name} is calibrated for "
                f"{statistic.protects!r}: give protects= to the curator"
            )

    def _unit(self, episodes: int) -> str:
        """What the guarantee is about, in words."""
        if episodes == 1:
            return self.protects
        which = "" if self.protects == WHOLE_EPISODE else f" ({self.protects})"
        return f"one user with at most {episodes} episodes{which}"

    def _publish_sum(
        self,
        statistic: Statistic,
        vector: Floats,
        std: Mapping[str, float | Floats],
        users: int,
        cost: float | None,
    ) -> Release:
        """Publishes a packed vector as the parts of its statistic."""
        parts = statistic.layout.unpack(vector)
        return self._publish(Release(self._told[0], statistic.name, parts, std, users, cost))

    def _publish(self, release: Release) -> Release:
        """What every release passes."""
        self._told = (self._told[0] + 1, release)
        return release


class Stream(ABC):
    """A private running sum over blocks, published after each block."""

    def __init__(self, curator: Curator, name: str, statistic: Statistic) -> None:
        self.name = name
        self.statistic = statistic
        self.users = 0
        self.entered: set[int] = set()
        self._curator = curator

    def release(
        self, block: Block | int, *, user_ids: Sequence[int | str] | None = None
    ) -> Release:
        """Adds a block and publishes the running sum.

        Args:
            block: raw data, or the number of a block that the curator has; it enters once.
            user_ids: who the users of a block given as raw data are; see :meth:`Curator.add`.
        """
        curator = self._curator
        refuse_within(curator._lock, "release")
        with curator._lock:
            curator._settle()
            return self._release(block, user_ids)

    @abstractmethod
    def _release(self, block: Block | int, user_ids: UserIds) -> Release: ...

    def _enter(self, block: Block | int, user_ids: UserIds) -> int:
        """The number of a block that enters, for the first time."""
        number = self._curator.enter(self.statistic, block, user_ids)
        if number in self.entered:
            raise InvalidArgument(f"block {number} entered stream {self.name!r} before")
        return number

    @property
    @abstractmethod
    def std(self) -> Floats | None:
        """Noise standard deviation of unit-weight entries at each release, if known ahead."""
