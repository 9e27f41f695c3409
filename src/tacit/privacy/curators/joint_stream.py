"""Counters over blocks; see :mod:`tacit.privacy.curator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tacit.privacy.arguments import instance_of
from tacit.privacy.counters import Counter, make_counter
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.curator import Release, Stream, WantedStream
from tacit.privacy.curators.participants import UserIds
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.privacy.exact import check_reach, grid_step, grid_total, reach
from tacit.privacy.statistic import Block, Floats, Statistic

if TYPE_CHECKING:
    from tacit.privacy.curator import JointCurator


Kept: TypeAlias = tuple[dict[str, Any], dict[str, Floats], int, float]
"""A counter's state, and how many users and steps were in its sum."""


class JointStreams:
    """The streams of one curator, by name; those of a save wait until they are resumed."""

    def __init__(self) -> None:
        self.running: dict[str, JointStream] = {}
        self.waiting: dict[str, tuple[dict[str, Any], dict[str, Floats]]] = {}

    @property
    def kinds(self) -> set[str]:
        """Of their counters."""
        kinds = {stream.counter.kind for stream in self.running.values()}
        return kinds | {meta["counter"] for meta, _ in self.waiting.values()}

    def start(
        self, curator: JointCurator, statistic: Statistic, wanted: WantedStream
    ) -> JointStream:
        """See :meth:`tacit.JointCurator.stream`."""
        privacy, name, kind = curator.privacy, wanted.name, wanted.kind
        instance_of("name", name, str)
        instance_of("kind", kind, str)
        if name in self.running or name in self.waiting:
            raise InvalidArgument(
                f"there is a stream {name!r}; resume_stream continues a saved one"
            )
        if privacy.separate_blocks and kind != "blocks":
            raise InvalidArgument("disjoint=True was declared: only kind='blocks' keeps to it")
        curator._check_unit(statistic)
        cost = curator.accounts.cost(wanted.mu)
        curator.accounts.check_stream(cost)
        step = grid_step(statistic, privacy.norm)
        made = make_counter(
            kind,
            sensitivity=curator._sensitivity(statistic, step),
            releases=wanted.releases,
            shape=(statistic.layout.size,),
            mu=None if privacy.pure else cost,
            epsilon=cost if privacy.pure else None,
            source=curator.source,
            whole=True,
        )
        stream = JointStream(curator, name, statistic, made, cost, step)
        self.running[name] = stream
        return stream

    def resume(
        self, curator: JointCurator, name: str, statistic: Statistic, asked: bool = True
    ) -> JointStream:
        """Continues a stream of a save, with the statistic it had or, not ``asked``, may have."""
        if name not in self.waiting:
            raise InvalidArgument(f"no saved stream {name!r}; there are {[*self.waiting]}")
        meta, arrays = self.waiting[name]
        if asked and meta["statistic"] != statistic.fingerprint:
            raise InvalidArgument(f"stream {name!r} was of another statistic")
        made = revive_counter(meta, arrays, curator.source)
        if made.shape != (statistic.layout.size,):
            raise InvalidArgument(f"stream {name!r} was of other sizes: {made.shape}")
        stream = JointStream(curator, name, statistic, made, meta["cost"], meta["step"])
        # One that needs more noise than was drawn is refused.
        stream.ask(statistic)
        stream.entered = set(meta["entered"])
        stream.users, stream.reach = meta["users"], meta.get("reach", 0.0)
        del self.waiting[name]
        self.running[name] = stream
        return stream

    def settle(self) -> None:
        """Drops releases that were cut off half-way."""
        for stream in self.running.values():
            stream.settle()

    def dump(self) -> dict[str, tuple[dict[str, Any], dict[str, Floats]]]:
        """The secret state of all, for the curator's save."""
        saved = dict(self.waiting)
        return saved | {name: stream.dump() for name, stream in self.running.items()}


class JointStream(Stream):
    """A counter over blocks, under the joint curator's accounts."""

    _curator: JointCurator

    def __init__(
        self,
        curator: JointCurator,
        name: str,
        statistic: Statistic,
        made: Counter,
        cost: float,
        step: float,
    ) -> None:
        # Where the number of users is known, sums that will not fit are refused now.
        check_reach(reach(statistic, step, curator.declared_users or 0), made.largest_sum)
        super().__init__(curator, name, statistic)
        self.counter = made
        self.cost = cost
        self.step = step
        self.reach = 0.0
        self._before: Kept | None = None

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
        needed = self._curator._sensitivity(statistic, self.step)
        covered = self.counter.sensitivity
        if needed > covered * (1.0 + 1e-12):
            raise InvalidArgument(
                f"the stream's noise is for a sensitivity of {self.step * covered:.6g}, not "
                f"{self.step * needed:.6g}"
            )
        self.statistic = statistic

    def _release(self, block: Block | int, user_ids: UserIds) -> Release:
        curator = self._curator
        curator.check_ready()
        if self.counter.releases is not None and self.counter.released >= self.counter.releases:
            raise HorizonExceeded(
                f"stream {self.name!r} was declared for {self.counter.releases} releases"
            )
        number = self._enter(block, user_ids)
        try:
            steps = reach(self.statistic, self.step, curator._block_users[number])
            check_reach(self.reach + steps, self.counter.largest_sum)
            total = grid_total(self.statistic, curator._raw(number), self.step)
            costs = {number: self.cost if curator.privacy.pure else self.cost**2}
            curator._charge(costs, f"stream {self.name}")
        except BaseException:
            # A block that did not get in must not stay: a retry would bring its users twice.
            if isinstance(block, Block):
                curator._forget(number)
            raise
        # It has paid: whatever happens, it does not enter again.
        self.entered.add(number)
        self._before = self._kept()
        self.reach += steps
        vector = self.step * self.counter.release(total)
        self.users += curator._block_users[number]
        self._before = None
        if isinstance(block, Block):
            curator._forget(number)
        std = self.statistic.layout.stds(self.step * self.counter.std_at(self.counter.released))
        return curator._publish_sum(self.statistic, vector, std, self.users, self.cost)

    def _kept(self) -> Kept:
        """All that a release changes, from before it."""
        meta, arrays = self.counter.dump()
        return meta, {name: array.copy() for name, array in arrays.items()}, self.users, self.reach

    def settle(self) -> None:
        """Drops a release that was cut off half-way: nobody saw it, its noise is not drawn on."""
        if self._before is not None:
            meta, arrays, users, reached = self._before
            made = revive_counter(meta, arrays, self.counter.source)
            self.counter, self.users, self.reach, self._before = made, users, reached, None

    def dump(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """The secret state, for the curator's save."""
        meta, arrays = self.counter.dump()
        meta |= {
            "statistic": self.statistic.fingerprint,
            "cost": self.cost,
            "step": self.step,
            # Those that are forgotten cannot enter again in any case.
            "entered": sorted(self.entered.intersection(self._curator.blocks)),
            "users": self.users,
            "reach": self.reach,
        }
        return meta, arrays
