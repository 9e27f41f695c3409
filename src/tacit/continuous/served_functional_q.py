"""Fitted Q with functional noise that serves: a few users explore, most follow what was learnt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import discount_of
from tacit.continuous.estimate import Belief
from tacit.continuous.fitted_functional_q import FittedFunctionalQ, FittedFunctionalQOptions
from tacit.continuous.functional_base import Units
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.reports import MeanRewards
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.core.schedule import Schedule

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Explorers of the first block: how far they stand out of the noise, and at least so many.
_SIGNAL, _LEAST = 4.0, 16
# Later explorers are at most this part of all users before them.
_EXPLORE = 0.03


class ServedFunctionalQ(FittedFunctionalQ):
    """:class:`FittedFunctionalQ` that alternates: some users explore, then many are served.

    Idea: the batch agent needs few users, but all of them act at random. So the first block is such
    a batch, as large as public numbers say it takes. Those after it follow what was learnt, without
    any exploring, and are asked once what they earned: :attr:`earned` is how well users are served,
    in public. As soon as that is no more than 3 % of all so far, twice as many explore, as a batch
    of their own, whose plans look farther ahead.

    Private statistics: those of :class:`FittedFunctionalQ`, of the users who explore, and
    :class:`~.statistics.reports.MeanRewards` of those who are served.

    Guarantee: that of the curator for a user's whole episode, under joint DP.

    Deviations from the paper: those of :class:`FittedFunctionalQ`.

    Cost: that of :class:`FittedFunctionalQ`, for the users who explore.

    >>> from tacit import JointDP, ServedFunctionalQ
    >>> from tacit.continuous import line
    >>> agent = ServedFunctionalQ(line().spec, 5000, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.schedule.blocks, agent.exploring
    ((84, 4916), True)
    """

    name: ClassVar[str] = "served_functional_q"
    batch: ClassVar[bool] = False
    refuses: ClassVar = {"schedule": "who explores, and when, follows from public numbers"}

    def __init__(self, setting: Setting, options: FittedFunctionalQOptions) -> None:
        # What the users who were served last earned in a step, and the noise's deviation.
        self.earned: tuple[float, float] | None = None
        self._explorers: int | None = None  # of this turn; before there are any, the first
        super().__init__(setting, options)
        self.schedule = Schedule("explore and serve", _turns(self.users, self._first()))

    @property
    def exploring(self) -> bool:
        """Whether the users of the current block explore, and are asked."""
        return self.releases % 2 == 0

    def asks(self) -> Asks:
        """As the batch agent does of those who explore, and of others what they earned."""
        if self.exploring:
            self._begin(self.block_users)
            yield from super().asks()
            return
        release = yield Ask(MeanRewards(self.spec))
        low, high = self.spec.reward_range
        mean = float(release["earned"][0]) / self.block_users
        std = float(np.max(release.std["earned"])) / self.block_users
        self.earned = (mean * (high - low) + 0.5 * (low + high), std * (high - low))

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The best actions by Q, and in every other block all actions with the same chance."""
        greedy = self.greedy()
        last = self.releases >= self.schedule.releases
        return (self.behaviour() if self.exploring and not last else greedy), greedy

    def _begin(self, explorers: int) -> None:
        """A batch of its own: how deep plans look follows from how many explore now."""
        self._explorers = explorers
        most = max(1, round(1.0 / (1.0 - discount_of(self.options.discount, self.spec))))
        self.depth = self._choose_depth(self.options, most)
        self.discount = min(1.0 - 1.0 / most, 1.0 - 1.0 / self.depth)
        self.units = Units.of(self.paid, self.discount, self.ends)
        self.belief = Belief(self.basis, self.constants, len(self.weights), self.discount)
        self._last = np.zeros_like(self.weights)

    @property
    def signal(self) -> float:
        """How far those who explore stand out of the noise, per number that has to be learnt."""
        explorers = self._first() if self._explorers is None else self._explorers
        return super().signal * min(1.0, explorers / self.users)

    def _first(self) -> int:
        """Explorers of the first block."""
        if not math.isfinite(self.mu):
            return min(self.users, _LEAST)
        per_user = super().signal / self.users
        return min(self.users, max(_LEAST, math.ceil(_SIGNAL / per_user)))

    @property
    def why(self) -> str:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        blocks = self.schedule.blocks
        explore = sum(blocks[::2])
        return (
            f"{explore:,} of {self.users:,} users explore, {blocks[0]:,} of them first; "
            f"{self.sweeps} sweeps and a discount of {self.discount:.3g}{self._price_of_scales}"
        )

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """How deep plans look changes from turn to turn; what it is chosen from does not."""
        farthest = discount_of(self.options.discount, self.spec)
        return super().identity() | {"discount": farthest, "sweeps": self.options.releases}

    def state(self) -> State:
        """What the batch agent has, how many explored last, and what served users earned."""
        meta, arrays = super().state()
        earned = None if self.earned is None else list(self.earned)
        return meta | {"earned": earned, "explorers": self._explorers}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        if meta["explorers"] is not None:
            self._begin(int(meta["explorers"]))
        super().restore(meta, arrays)
        earned = meta["earned"]
        self.earned = None if earned is None else (earned[0], earned[1])


def _turns(users: int, first: int) -> tuple[int, ...]:
    """Explorers, those who are served then, twice as many explorers, and so on.

    >>> _turns(2000, 20)
    (20, 1314, 40, 626)
    """
    blocks, served, explore = [], 0, first
    while served < users:
        # Until the next explorers are no more than that part of all before them.
        following = 2 * explore
        until = min(users, math.ceil(following / _EXPLORE))
        size = min(explore, users - served)
        blocks.append(size)
        if until > served + size:
            blocks.append(until - served - size)
        served, explore = max(until, served + size), following
    return tuple(blocks)
