"""What all curators share: blocks of raw data in, releases out, and who took part."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tacit.privacy.arguments import MOST_USERS, fitting, instance_of, positive, whole_number
from tacit.privacy.curators.entries import Entries
from tacit.privacy.curators.participants import Participants, UserIds
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.exact import ExactNoise
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
            where it differs between entries). Masked entries are zero and have no noise.
        users: how many users are in the sum (public).
        cost: what it cost a user of the block with the largest weight: mu, or epsilon under pure
            DP; ``None`` without privacy.
    """

    index: int
    statistic: str
    parts: Mapping[str, Floats]
    std: Mapping[str, float | Floats]
    users: int
    cost: float | None

    def __getitem__(self, part: str) -> Floats:
        return self.parts[part]


class Wanted(NamedTuple):
    """What is asked for in a release; see :meth:`Curator.release`."""

    blocks: Iterable[int] | None
    weights: ArrayLike | None
    mask: Mapping[str, ArrayLike] | None
    mu: float | None
    epsilon: float | None
    decay: float | None


class WantedStream(NamedTuple):
    """What is asked for in a stream; see :meth:`Curator.stream`."""

    releases: int
    name: str
    kind: str
    mu: float | None
    epsilon: float | None


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
        self._owner = Owner(self._source.simulation)

    @property
    def source(self) -> NoiseSource:
        """Where the noise comes from."""
        return self._source

    @property
    def exact(self) -> bool:
        """Whether sums and noise are whole numbers; see :mod:`tacit.privacy.exact`."""
        return isinstance(self._source, ExactNoise)

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
        self,
        statistic: Statistic,
        *,
        blocks: Iterable[int] | None = None,
        weights: ArrayLike | None = None,
        mask: Mapping[str, ArrayLike] | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        decay: float | None = None,
    ) -> Release:
        """Publishes sum over blocks of weight * statistic, with noise, and charges the users.

        A local report carries a user's whole budget, so the local model refuses ``mu`` and
        ``epsilon``, and weights are post-processing there. Without privacy there is nothing to
        spend.

        Args:
            statistic: what to sum.
            blocks: which blocks; all that are here by default.
            weights: one number per block (1 by default). Users of a block with weight w pay
                (w / the largest)^2 of the cost.
            mask: per part, which entries to release. The others are dropped before the gate and
                get no noise: use it where they are zero for every user, as for counts of actions
                that a block's public policy never takes.
            mu: what the release costs users with the largest weight. By default all that is left.
            epsilon: the same under pure DP.
            decay: weights decay^-age, the newest block having age 0, and by default a cost such
                that releasing again after every block, for ever, stays within budget:
                mu^2 (1 - decay^-2), since the squares of the weights add up to 1 / (1 - decay^-2).

        Raises:
            BudgetExceeded: some block cannot afford it, or reported another statistic. Nothing is
                published or changed.
        """
        self._settle()
        return self._release(statistic, Wanted(blocks, weights, mask, mu, epsilon, decay))

    @alone
    def stream(
        self,
        statistic: Statistic,
        *,
        releases: int,
        name: str = "stream",
        kind: str = "auto",
        mu: float | None = None,
        epsilon: float | None = None,
    ) -> Stream:
        """A running sum over blocks, published after each; a block pays once, when it enters.

        Args:
            statistic: what to sum.
            releases: how many blocks will enter, at most.
            name: under which it is saved and resumed.
            kind: a counter's kind, or ``"auto"``; see :func:`tacit.counter`.
            mu: what a block pays; all of an episode's budget by default.
            epsilon: the same under pure DP.
        """
        return self._stream(statistic, WantedStream(releases, name, kind, mu, epsilon))

    @abstractmethod
    def _release(self, statistic: Statistic, wanted: Wanted) -> Release: ...

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
        self, block: Block | int, *, keep: bool = False, user_ids: Sequence[int | str] | None = None
    ) -> Release:
        """Adds a block and publishes the running sum.

        Args:
            block: raw data, or the number of a block that the curator has; it enters once.
            keep: whether a block given as raw data stays for later queries.
            user_ids: who the users of a block given as raw data are; see :meth:`Curator.add`.
        """
        curator = self._curator
        refuse_within(curator._lock, "release")
        with curator._lock:
            curator._settle()
            return self._release(block, keep, user_ids)

    @abstractmethod
    def _release(self, block: Block | int, keep: bool, user_ids: UserIds) -> Release: ...

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


def chosen_blocks(wanted: Wanted, known: Iterable[int], newest: int) -> dict[int, float]:
    """Weight by block: finite, not all zero, no block twice."""
    known, (blocks, weights, decay) = list(known), (wanted.blocks, wanted.weights, wanted.decay)
    if blocks is not None and not isinstance(blocks, Iterable):
        raise InvalidArgument(f"blocks must be a list of numbers of blocks, got {blocks!r}")
    # Not longer than it can be: what is asked for must not fill the memory.
    asked = known if blocks is None else itertools.islice(blocks, len(known) + 1)
    chosen = [whole_number("every one of blocks", b, least=0) for b in asked]
    if decay is not None:
        decay = positive("decay", decay)
        if weights is not None or decay <= 1:
            raise InvalidArgument(f"decay must be > 1 and replaces weights, got {decay!r}")
        weights = [decay ** float(b - newest) for b in chosen]
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidArgument(f"blocks must be different and at least one, got {chosen}")
    missing = [b for b in chosen if b not in known]
    if missing:
        raise InvalidArgument(f"no raw data of blocks {missing}; blocks here: {known}")
    try:
        given = [1.0] * len(chosen) if weights is None else weights
        factors = np.asarray(fitting("weights", given), dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgument(f"weights must be numbers, got {weights!r}") from None
    if factors.shape != (len(chosen),):
        raise InvalidArgument(f"{len(chosen)} blocks need as many weights, got {weights!r}")
    if not np.isfinite(factors).all() or not factors.any():
        raise InvalidArgument(f"weights must be finite and not all zero, got {weights!r}")
    return dict(zip(chosen, factors.tolist(), strict=True))
