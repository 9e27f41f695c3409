"""LSVI-UCB in batches of equal size, after Luyo et al."""

from __future__ import annotations

import math
from typing import Any

from tacit.core.schedule import Even, Schedule
from tacit.linear.agent import LinearAgent
from tacit.linear.spec import LinearSpec
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy


class BatchedLSVIUCB(LinearAgent):
    """Private LSVI-UCB with batches fixed in advance (Luyo et al. 2021).

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`; a policy serves a batch of users, all batches
    are of one size, and sums are released after each.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`.

    Deviations from the paper: a user's sums are released once with the whole budget, where the
    paper releases all sums again after every batch and splits the budget over the releases; noise
    is calibrated exactly.

    Args:
        batches: how many; about users^(2/5) by default, the order that balances delay and noise.
        **options: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`.
    """

    name = "batched_lsvi_ucb"
    # Weights that decay by a factor per batch would forget all but a few batches of one size.
    asks_again = False

    def __init__(
        self,
        spec: LinearSpec,
        users: int,
        privacy: Privacy,
        *,
        batches: int | None = None,
        **options: Any,
    ) -> None:
        users = whole_number("users", users)
        if batches is not None and not (type(batches) is int and 1 <= batches <= users):
            raise InvalidArgument(f"batches must be in 1..{users}, got {batches!r}")
        if options.get("growth") is not None and options.get("statistic") != "targets":
            raise InvalidArgument("batches are of one size: leave growth out")
        self.batches = batches
        super().__init__(spec, users, privacy, **options)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if not isinstance(schedule, str) or schedule != "auto":
            if self.batches is not None:
                raise InvalidArgument("give batches or schedule, not both")
            return super()._make_schedule(schedule)
        batches = self.batches or math.ceil(self.users**0.4)
        return Schedule("batches", Even(self.users, math.ceil(self.users / batches)))

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"batches": self.batches}
