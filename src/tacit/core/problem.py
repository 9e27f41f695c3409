"""Problems: what every algorithm is told before the first user comes. Public."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.algorithm import BlockSizes
from tacit.core.schedule import Even, Schedule, growing
from tacit.privacy.arguments import MOST_USERS, instance_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel


@dataclass(frozen=True)
class Problem:
    """What is known, declared and asked for."""

    spec: Any  # what is known of the world
    users: int  # how many users are declared
    privacy: Privacy
    # when a policy is republished; ``"auto"`` is the algorithm's own
    schedule: str | Schedule = "auto"
    seed: int = 0  # of ties and of the first, random policy; not of the noise

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PrivacyModel):
            raise InvalidArgument(
                "privacy must be JointDP, LocalDP, DistributedDP or NonPrivate, got "
                f"{self.privacy!r}"
            )
        instance_of("schedule", self.schedule, (str, Schedule))
        object.__setattr__(self, "seed", whole_number("seed", self.seed, least=0))
        object.__setattr__(self, "users", whole_number("users", self.users, most=MOST_USERS))

    @property
    def own_schedule(self) -> bool:
        """Whether the algorithm may choose when policies are republished."""
        return isinstance(self.schedule, str) and self.schedule == "auto"

    def rng(self) -> np.random.Generator:
        """Generator of ties and of first policies; not of the noise."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, 4]))

    def scheduled(self, pace: Callable[[], BlockSizes]) -> Schedule:
        """The caller's schedule, or the algorithm's own."""
        if not self.own_schedule:
            return Schedule.of(self.schedule, self.users)
        own = pace()
        if own.blocks is not None:
            return Schedule(own.name, own.blocks)
        if own.size is not None:
            return Schedule(own.name, Even(self.users, own.size))
        return Schedule(own.name, growing(self.users, own.first, own.growth))
