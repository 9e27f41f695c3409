"""LSVI-UCB in batches of equal size, after Luyo et al., from memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.core.algorithm import Pace
from tacit.linear.lsvi_ucb import LSVIUCB
from tacit.linear.options import LinearOptions
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class BatchedOptions(LinearOptions):
    """Options of :class:`BatchedLSVIUCB`, besides those of all linear algorithms.

    Attributes:
        batches: how many; about users^(2/5) by default, the order that balances delay and noise.
    """

    batches: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.growth is not None and self.statistic != "targets":
            raise InvalidArgument("batches are of one size: leave growth out")


class BatchedLSVIUCB(LSVIUCB):
    """After Luyo et al. 2021, from memory: private LSVI-UCB with batches fixed in advance.

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`; a policy serves a batch of users, all batches
    are of one size, and sums are released after each.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`.

    Deviations from the paper: it is rebuilt from memory, not from the text. A user's sums are
    released once with the whole budget, where the paper releases all sums
    again after every batch and splits the budget over the releases; noise is calibrated exactly.
    """

    name = "batched_lsvi_ucb"
    after = "Luyo et al."
    # Weights that decay by a factor per batch would forget all but a few batches of one size.
    asks_again = False
    Options = BatchedOptions
    options: BatchedOptions

    def _check(self) -> None:
        super()._check()
        batches = self.options.batches
        if batches is not None and not (type(batches) is int and 1 <= batches <= self.users):
            raise InvalidArgument(f"batches must be in 1..{self.users}, got {batches!r}")
        if batches is not None and not self.setting.own_schedule:
            raise InvalidArgument("give batches or schedule, not both")

    def _pace(self) -> Pace:
        batches = self.options.batches or math.ceil(self.users**0.4)
        return Pace("batches", size=math.ceil(self.users / batches))
