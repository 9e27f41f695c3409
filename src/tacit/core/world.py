"""Worlds: environments of simulated users with a known optimum. An agent never sees one."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.statistic import Block

Form: TypeAlias = Literal["episodes", "streamed", "counts", "pooled"]
"""Forms of simulated users: episodes one by one, the same made part by part, exact sums per step,
sums over all steps, or sums per step of a deterministic policy's own actions."""

Data: TypeAlias = Episodes | VectorEpisodes | Block
"""Episodes of users: one by one, or as the sums of a simulation."""


class World(Protocol):
    """Simulated users with a known optimum."""

    @property
    def name(self) -> str:
        """A text that rebuilds the world, such as "riverswim:states=6,horizon=20"."""

    @property
    def spec(self) -> Any:
        """Public facts: sizes, horizon, bounds."""

    @property
    def optimal_value(self) -> float:
        """The best that any policy reaches."""

    @property
    def baseline_value(self) -> float:
        """The value of not having learnt anything."""

    @property
    def reference_value(self) -> float:
        """The zero point of losses."""

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """Episodes of new users who follow a policy.

        Args:
            policy: Published by an agent.
            users: How many.
            rng: Of the users.
            form: ``"episodes"`` are an :class:`~tacit.data.episodes.Episodes` (where states are
                vectors, a :class:`~tacit.data.episodes.VectorEpisodes`), and ``"streamed"`` a
                :class:`~tacit.privacy.statistic.StreamedBlock` of the same. The others are
                aggregate blocks, whose ``transitions`` count users and whose ``rewards`` add up:
                ``"counts"``, (H, S, A, S) and (H, S, A); ``"pooled"``, the same summed over steps,
                with a first axis of 1. A world may refuse forms that it has no use for.
        """

    def value(self, policy: Any) -> float:
        """The exact expected return of a user who follows the policy."""


class SamePeople(Protocol):
    """The same people at every look, which the ``cohort(rng)`` of some worlds makes."""

    @property
    def served(self) -> int:
        """Whole histories that were served so far."""

    @property
    def served_value(self) -> float:
        """Value of what they were given since the look before, for their own histories too."""

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """Moves all of them on to their next look, and tells of their histories so far.

        Args:
            policy: Published by an agent.
            users: How many, at every look the same.
            rng: Of the people.
            form: See :meth:`World.simulate`.
        """
