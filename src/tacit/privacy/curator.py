"""Curators: the one gate between raw data and everything that is published.

A curator sums a bounded statistic over one block of users, adds noise in whole numbers and returns
a :class:`Release`, which is public; everything computed from it is post-processing.

Formal guarantee (joint model). A user is in one block. A release of T_b + N(0, s^2 I), T_b the
sum of a statistic of sensitivity D over block b, moves, given all earlier releases, by at most D
when a user of block b changes, which costs her (D / s)^2 in mu^2. Statistics, blocks and mu may all
be chosen from earlier releases. A release that would bring any block above its limit L = mu^2 is
refused. Then everything ever published is mu-Gaussian-DP in each user: pad the transcript with
independent dummy releases up to exactly L; the log-likelihood ratio is then a sum of conditionally
Gaussian increments whose variances are known one step ahead and add up to L, that is, Brownian
motion observed at L, so it is N(+-L/2, L) exactly. Under pure DP the noise is Laplace, costs are
epsilons, D / s, and they add.

A *stream* feeds blocks into a counter; a block pays the counter's whole mu^2 when it enters, once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Guarantee
from tacit.privacy.counters import Counter, make_counter
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.errors import BudgetExceeded, HorizonExceeded, InvalidArgument
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.privacy.noise import (
    Noise,
    NoiseSource,
    Owner,
    Uncopyable,
    check_reach,
    check_scale,
    exact_words,
    grid_sensitivity,
    grid_step,
    grid_total,
    new_lock,
    reach,
    refuse_within,
    safe_scale,
)
from tacit.privacy.statistic import Block, FiledBlock, Floats, Statistic, gate_total
from tacit.privacy.validation import MOST_USERS, instance_of, positive, row_ids, whole_number

# Rounding of sums of squares, not a loophole: a budget split into ten parts must be spendable.
_SLACK = Fraction(1 + 1e-12)


@dataclass(frozen=True, eq=False)
class Release:
    """One publication of private statistics. Public.

    Attributes:
        index: how many releases came before.
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

    @classmethod
    def of(cls, statistic: Statistic, vector: Floats, *rest: Any) -> Release:
        """Of a noisy vector; ``rest`` are std, users and cost."""
        return cls(0, statistic.name, statistic.layout.unpack(vector), *rest)


Model = TypeVar("Model", bound=Privacy)


class Curator(Uncopyable, ABC, Generic[Model]):
    """Sums over blocks of disjoint users, with noise.

    Agents call :meth:`release_block`, and their store keeps the accounts. By itself, a curator
    takes blocks (:meth:`add`), keeps the accounts in memory, and refuses what they cannot pay.

    Args:
        privacy: The model, with its budget.
        users: How many users are declared; ``None`` for no limit.
        noise_seed: A reproducible simulation, without protection.
        source: Another source of noise (for audits); excludes ``noise_seed``.
    """

    why_single = "a curator cannot be copied: two copies would spend one budget twice"

    def __init__(
        self,
        privacy: Model,
        *,
        users: int | None = None,
        noise_seed: int | None = None,
        source: NoiseSource | None = None,
    ) -> None:
        if source is not None and noise_seed is not None:
            raise InvalidArgument("give noise_seed or source, not both")
        self.privacy, self.norm = privacy, privacy.norm
        self.source: NoiseSource = Noise(noise_seed) if source is None else source
        instance_of("source", self.source, NoiseSource)
        self._most = MOST_USERS if users is None else whole_number("users", users, most=MOST_USERS)
        self._owner = Owner(self.source.simulation)
        self._lock = new_lock()
        self._blocks: list[Block | None] = []
        self._spent: list[Fraction] = []
        self._count = self._users = 0
        self._seen: dict[Hashable, int] = {}

    # What agents ask; their store has the accounts.

    def release_block(
        self, statistic: Statistic, block: Block, *, mu: float | None = None, spent: Fraction
    ) -> Release:
        """Releases the sum of a statistic over one block of users, with noise.

        Args:
            statistic: Bounded map from an episode to the vector that is summed.
            block: Raw data of its users.
            mu: Cost of the release for each of them. By default all that is left.
            spent: Cost of earlier releases for them: mu^2, or epsilon under pure DP.

        Returns:
            The release, which is public.

        Raises:
            BudgetExceeded: The users cannot afford it. Nothing was drawn.

        Formal guarantees:
            * Joint DP: mu-GDP for replacing (or zeroing) one user of the block, with
              mu = sensitivity / noise scale; under pure DP epsilon-DP with epsilon the same ratio
              in the 1-norm.
            * Local and distributed DP: those of the devices' noise; summing is post-processing.
        """
        self._owner.check("curator")
        return self._noisy_sum(statistic, block, mu, spent)

    @abstractmethod
    def _noisy_sum(
        self, statistic: Statistic, block: Block, mu: float | None, spent: Fraction
    ) -> Release:
        """The release of :meth:`release_block`."""

    def price(self, release: Release) -> Fraction:
        """Cost of a release for each user: mu^2, or epsilon under pure DP; 0 without accounts."""
        return Fraction(0)

    def secrets(self, stream: Stream | None) -> dict[str, Any]:
        """Values that are kept with each release: a counter, and a simulation's noise."""
        source, found = self.source, dict[str, Any]()
        if source.simulation and hasattr(source, "state"):
            found["noise"] = source.state()
        if stream is not None:
            found["stream"] = stream.dump()
        return found

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee | None:
        """Guarantee of everything this curator ever publishes."""

    def check_block(self, block: Block) -> None:
        """Refuses a block that this model does not take; its kind is public."""
        harmless = self.source.simulation or not self.privacy.private
        if block.aggregate and not isinstance(block, FiledBlock) and not harmless:
            raise InvalidArgument(
                "nothing clips an aggregate block: it is for simulations (give noise_seed), "
                "real users come one by one"
            )

    # By itself.

    def add(self, block: Block, user_ids: Sequence[int | str] | None = None) -> int:
        """Takes a block of raw data; returns its number.

        With ``user_ids``, one per row, no user contributes more episodes than declared: those
        beyond are left out (participation is public). Given once, they must be given always.
        """
        instance_of("block", block, Block)
        self.check_block(block)
        with refuse_within(self._lock, "add"):
            if self._users + block.users > self._most:
                raise HorizonExceeded(
                    f"{self._most} users were declared; {self._users} came and {block.users} more "
                    "would be too many"
                )
            if self._blocks and (user_ids is None) == bool(self._seen):
                raise InvalidArgument("user_ids must be given for every block or for none")
            if user_ids is None and self.privacy.separate_blocks:
                raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
            raw = block.sealed() if user_ids is None else self._admitted(block, user_ids)
            self._users += block.users
            self._spent.append(Fraction(0))
            self._blocks.append(raw)
            return len(self._blocks) - 1

    def _admitted(self, block: Block, user_ids: Sequence[int | str]) -> Block:
        """The block without episodes of users beyond their limit."""
        row_ids(user_ids, block.users)
        most = self.privacy.episodes_per_user if self.privacy.private else block.users
        seen, keep, here = dict(self._seen), np.zeros(block.users, dtype=bool), set[Hashable]()
        for row, user in enumerate(user_ids):
            count = seen.get(user, 0) if self.privacy.private else 0
            keep[row] = count < most and not (self.privacy.separate_blocks and user in here)
            seen[user] = count + int(keep[row])
            here.add(user)
        kept = block.take(keep).sealed()
        self._seen = seen
        return kept

    def release(
        self, statistic: Statistic, *, block: int | None = None, mu: float | None = None
    ) -> Release:
        """Publishes the sum of a statistic over one block, with noise, and charges its users.

        Args:
            statistic: What to sum.
            block: Which block; the newest by default.
            mu: What the release costs users. By default all that is left.

        Raises:
            BudgetExceeded: The block cannot afford it. Nothing is published or changed.
        """
        instance_of("statistic", statistic, Statistic)
        with refuse_within(self._lock, "release"):
            number, raw = self._found(len(self._blocks) - 1 if block is None else block)
            release = self.release_block(statistic, raw, mu=mu, spent=self._spent[number])
            # It cannot be seen before it is paid.
            self._spent[number] += self.price(release)
            return self._numbered(release)

    def _numbered(self, release: Release) -> Release:
        self._count += 1
        return replace(release, index=self._count - 1)

    def _found(self, number: int) -> tuple[int, Block]:
        """The number of a block as a plain one, and its raw data."""
        here = {i: block for i, block in enumerate(self._blocks) if block is not None}
        if not isinstance(number, (int, np.integer)) or number not in here:
            raise InvalidArgument(f"block {number!r} was never added, or forgotten: {[*here]} are")
        return int(number), here[number]

    def forget(self, block: int) -> None:
        """Drops a block's raw data. What was released of it stays; it cannot be queried again."""
        with refuse_within(self._lock, "forget"):
            self._blocks[self._found(block)[0]] = None

    def spent(self, block: int) -> float:
        """Spent budget of each user of a block: mu^2, or epsilon under pure DP."""
        if not 0 <= block < len(self._spent):
            raise InvalidArgument(f"block {block!r} was never added")
        return _above(self._spent[block])

    def _proven(self, **facts: Any) -> Guarantee:
        """The guarantee, as far as it is the same for all models."""
        privacy: Any = self.privacy
        g = privacy.episodes_per_user
        if g > 1:
            facts["unit"] = f"one user with at most {g} episodes"
        return Guarantee(
            epsilon=privacy.epsilon,
            relation=privacy.relation,
            simulation_only=self.source.simulation,
            episodes_per_user=g,
            **facts,
        )


class JointCurator(Curator[JointDP]):
    """The trusted curator of the joint model.

    >>> from tacit.privacy.standard import ClippedSum
    >>> curator = JointDP(epsilon=1.0, delta=1e-6).curator(noise_seed=0)
    >>> block = curator.add(Block(1000, {"values": np.ones((1000, 1))}))
    >>> release = curator.release(ClippedSum(1))
    >>> release.users, round(release.std["sum"], 2)
    (1000, 8.45)
    """

    def __init__(self, privacy: JointDP, **options: Any) -> None:
        super().__init__(privacy, **options)
        self.limit = privacy.episode_limit
        self.counters: set[str] = set()
        self._plain = False
        if self.limit < 1e-290:
            raise InvalidArgument(f"a budget of {privacy.budget} cannot be accounted for in floats")

    def check_block(self, block: Block) -> None:
        """Refuses aggregate blocks of real users, and files with too many episodes of a user."""
        super().check_block(block)
        most = self.privacy.episodes_per_user
        if isinstance(block, FiledBlock) and block.episodes_per_user > most:
            raise InvalidArgument(
                f"a block of files has up to {block.episodes_per_user} episodes of a user, but "
                f"{most} were declared"
            )

    def _noisy_sum(
        self, statistic: Statistic, block: Block, mu: float | None, spent: Fraction
    ) -> Release:
        step = grid_step(statistic, self.norm)
        cost = self._cost(mu, spent)
        scale = safe_scale(self.apart(statistic, step), cost)
        check_scale(scale)
        check_reach(reach(statistic, step, block.users))
        with np.errstate(all="ignore"):
            total = grid_total(statistic, block, step)
        self._plain = True
        noise = self.source.steps(self.privacy.pure, scale, total.size)
        vector = step * (total + noise).astype(np.float64)
        unit = scale * step * (math.sqrt(2.0) if self.privacy.pure else 1.0)
        return Release.of(statistic, vector, statistic.layout.stds(unit), block.users, cost)

    def _cost(self, mu: float | None, spent: Fraction) -> float:
        """The cost of a release in mu or epsilon: as asked for, or all that is left."""
        power = 1 if self.privacy.pure else 2
        left = max(0.0, self.limit - _above(spent))
        if mu is None:
            if left <= self.limit * 1e-12:
                raise BudgetExceeded("the users of this block have spent all their budget")
            return float(left ** (1.0 / power))
        if power == 1:
            raise InvalidArgument("this budget is spent in epsilon, all of it at once: no mu")
        # Exactly: a cost that a float would lose beside what was spent is not free.
        if spent + Fraction(positive("mu, the cost,", mu)) ** 2 > Fraction(self.limit) * _SLACK:
            raise BudgetExceeded(
                f"this block has spent {float(spent):.6g} of {self.limit:.6g} mu^2; "
                f"{mu:.6g}^2 more is too much"
            )
        return mu

    def price(self, release: Release) -> Fraction:
        """The release's mu^2, or its epsilon under pure DP."""
        assert release.cost is not None  # noqa: S101
        return self._fraction(release.cost)

    def _fraction(self, cost: float) -> Fraction:
        return Fraction(cost if self.privacy.pure else cost**2)

    def apart(self, statistic: Statistic, step: float) -> float:
        """How far two users are apart, in steps."""
        instance_of("statistic", statistic, Statistic)
        return grid_sensitivity(statistic, self.privacy.relation, self.norm, step)

    def stream(
        self, statistic: Statistic, *, releases: int, kind: str = "auto", mu: float | None = None
    ) -> Stream:
        """A counter over blocks: each block enters once and pays once.

        Args:
            statistic: Bounded map from an episode to the vector that is summed.
            releases: Number of blocks at most.
            kind: Factorisation of the counter, see :func:`tacit.counter`.
            mu: Cost of entering for each user. By default all of her budget.
        """
        instance_of("statistic", statistic, Statistic)
        privacy, cost = self.privacy, self._cost(mu, Fraction(0))
        if privacy.separate_blocks and kind != "blocks":
            raise InvalidArgument("disjoint=True was declared: only kind='blocks' keeps to it")
        step = grid_step(statistic, privacy.norm)
        counter = make_counter(
            kind,
            sensitivity=self.apart(statistic, step),
            releases=releases,
            shape=(statistic.layout.size,),
            mu=None if privacy.pure else cost,
            epsilon=cost if privacy.pure else None,
            source=self.source,
            whole=True,
        )
        return Stream(self, statistic, counter, cost, step)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything this curator ever publishes."""
        privacy = self.privacy
        kinds = [f"{kind} counter" for kind in sorted(self.counters)]
        if self._plain or not kinds:
            kinds.append("releases under a budget filter")
        return self._proven(
            model="joint",
            delta=privacy.delta,
            mu=None if privacy.pure else privacy.budget.mu,
            releases=None,
            mechanism=f"{' and '.join(kinds)}, {exact_words(privacy.pure)}",
        )


class NonPrivateCurator(Curator[NonPrivate]):
    """Adds nothing, promises nothing: the baseline."""

    def _noisy_sum(
        self, statistic: Statistic, block: Block, mu: float | None, spent: Fraction
    ) -> Release:
        total = gate_total(statistic, block)
        return Release.of(statistic, total, statistic.layout.stds(0.0), block.users, None)

    @property
    def guarantee(self) -> None:
        """None."""
        return None


class Stream:
    """A private running sum over blocks, published after each block; its counter is secret.

    Attributes:
        statistic: What is asked of the blocks that enter.
        counter: The running sum and its noise.
        cost: What a block pays, in mu or epsilon.
        step: Of the grid.
        users: How many are in the sum.
    """

    def __init__(
        self,
        curator: JointCurator,
        statistic: Statistic,
        counter: Counter,
        cost: float,
        step: float,
    ) -> None:
        self._curator, self.statistic, self.counter = curator, statistic, counter
        self.cost, self.step, self.users, self.reach = cost, step, 0, 0.0
        self._entered: set[int] = set()
        curator.counters.add(counter.kind)

    @property
    def std(self) -> Floats:
        """Noise standard deviation of unit-weight entries at each release."""
        return self.step * self.counter.std

    def ask(self, statistic: Statistic) -> None:
        """Asks something else of the blocks that enter from now on.

        Given the releases so far, the contribution of every block but her own is the same for a
        user and her neighbour, and hers moves by no more than the counter's sensitivity, whatever
        was asked of the others. So nothing changes in the guarantee.
        """
        if statistic.layout != self.statistic.layout:
            raise InvalidArgument("what a stream asks must keep its parts and their weights")
        needed, covered = self._curator.apart(statistic, self.step), self.counter.sensitivity
        if needed > covered * (1.0 + 1e-12):
            raise InvalidArgument(
                f"the stream's noise is for a sensitivity of {self.step * covered:.6g}, not "
                f"{self.step * needed:.6g}"
            )
        self.statistic = statistic

    def release(self, block: int) -> Release:
        """Adds a block that the curator has, which pays, and publishes the running sum."""
        curator = self._curator
        with refuse_within(curator._lock, "release"):
            number, raw = curator._found(block)
            if number in self._entered:
                raise InvalidArgument(f"block {number} entered this stream before")
            curator._cost(None if curator.privacy.pure else self.cost, curator._spent[number])
            total = self._total(raw)
            # From here on it has entered and paid, whatever is raised.
            self._entered.add(number)
            curator._spent[number] += curator._fraction(self.cost)
            return curator._numbered(self._published(raw, total))

    def release_block(self, block: Block) -> Release:
        """The running sum with a block's users; for who keeps the accounts."""
        return self._published(block, self._total(block))

    def _total(self, block: Block) -> NDArray[np.int64]:
        """The block's item in steps; refuses all that can be refused."""
        counter = self.counter
        self._curator._owner.check("curator")
        if counter.releases is not None and counter.released >= counter.releases:
            raise HorizonExceeded(f"this stream was declared for {counter.releases} releases")
        check_reach(self._reach_with(block), counter.largest_sum)
        with np.errstate(all="ignore"):
            return grid_total(self.statistic, block, self.step)

    def _reach_with(self, block: Block) -> float:
        return self.reach + reach(self.statistic, self.step, block.users)

    def _published(self, block: Block, total: NDArray[np.int64]) -> Release:
        counter, layout = self.counter, self.statistic.layout
        vector = self.step * counter.release(total)
        self.users, self.reach = self.users + block.users, self._reach_with(block)
        std = layout.stds(self.step * counter.std_at(counter.released))
        return Release.of(self.statistic, vector, std, self.users, self.cost)

    def dump(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The secret state, as plain values and arrays."""
        meta, arrays = self.counter.dump()
        facts = {"cost": self.cost, "step": self.step, "users": self.users, "reach": self.reach}
        return meta | facts, arrays

    @classmethod
    def revived(cls, curator: JointCurator, statistic: Statistic, dumped: Any) -> Stream:
        """The inverse of :meth:`dump`, with what is asked next."""
        meta, arrays = dumped
        counter = revive_counter(meta, arrays, curator.source)
        stream = cls(curator, statistic, counter, meta["cost"], meta["step"])
        stream.users, stream.reach = meta["users"], meta["reach"]
        stream.ask(statistic)
        return stream


def _above(value: Fraction) -> float:
    """A float that is not below a fraction."""
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)
