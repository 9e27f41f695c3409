"""Linear agents on worlds on which none of their constants was chosen: users to 90 %, in tables.

Every run has a world of its own: seed 0 is a run in the world of seed 0, and so on. Constants were
chosen on other seeds. Numbers are medians with quartiles over the runs; a star marks runs shorter
than ten times the median.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from research.jobs import DELTA, Job
from research.tables import Case, Row, Table, joint, tables_main
from tacit.privacy.models import LocalDP, NonPrivate, Privacy
from tacit.simulation.plots import short

__all__ = ["TABLES", "Case", "Row", "Table", "main"]

AGENTS = ("LSVIUCB", "LSVIUCBPlusPlus")
PLAIN_USERS = 2_000
LOCAL_USERS = {8.0: 10**8, 1.0: 10**10}


@dataclass(frozen=True)
class Place:
    """A world, and whether the agent keeps one model for all of its steps.

    Attributes:
        label: what it is called.
        world: its name and options, all but the seed.
        users: how many are declared, by epsilon: above ten times what is needed.
        limits: how many LSVIUCB may need, by epsilon.
        per_step: whether the agent is told to keep a model per step.
    """

    label: str
    world: str
    users: Mapping[float, int]
    limits: Mapping[float, int]
    per_step: bool = False

    def job(self, agent: str, privacy: Privacy, **options: Any) -> Job:
        """An agent there."""
        if isinstance(privacy, NonPrivate):
            users = PLAIN_USERS
        else:
            known = LOCAL_USERS if isinstance(privacy, LocalDP) else self.users
            users = known[privacy.epsilon]
        job = Job(self.world, agent, privacy, users)
        if self.per_step:
            options = {"stationary": False, **options}
        return job.with_options(**options)


TWO_STATE = Place("two_state", "two_state", {1.0: 20_000, 10.0: 3_000}, {1.0: 750, 10.0: 100})
POOLED = Place("simplex, pooled", "simplex", {1.0: 100_000, 10.0: 12_000}, {1.0: 3_200, 10.0: 400})
PER_STEP = Place(
    "simplex, per step",
    "simplex",
    {1.0: 300_000, 10.0: 30_000},
    {1.0: 8_500, 10.0: 750},
    per_step=True,
)
CHANGING = replace(
    PER_STEP, label="simplex, not stationary", world="simplex:stationary=False", per_step=False
)
LARGE = Place(
    "simplex, 100 states, per step",
    "simplex:states=100",
    {1.0: 300_000},
    {1.0: 8_500},
    per_step=True,
)
PLACES = (TWO_STATE, POOLED, PER_STEP, CHANGING, LARGE)


def agents() -> Table:
    """All agents, with privacy and without; LSVIUCB in more worlds and at more budgets."""
    rows = []
    for agent in AGENTS:
        first = agent == AGENTS[0]
        for place in PLACES if first else PLACES[:-1]:
            for epsilon in place.users if first else (1.0,):
                jobs = place.job(agent, joint(epsilon)), place.job(agent, NonPrivate())
                limit = place.limits[epsilon] if first else None
                rows.append(Case((place.label, agent, f"{epsilon:g}"), *jobs, limit))
    return Table(
        "Users to 90 % under joint DP",
        ("world", "agent", "ε"),
        tuple(rows),
    )


def local() -> Table:
    """Local DP."""
    rows = [
        Case(
            (place.label, "LSVIUCB", kind, f"{epsilon:g}"),
            place.job("LSVIUCB", LocalDP(epsilon, DELTA), statistic=kind),
            place.job("LSVIUCB", NonPrivate()),
        )
        for place in (TWO_STATE, POOLED)
        for kind in ("features", "counts")
        for epsilon in LOCAL_USERS
    ]
    declared = [f"{short(users)} at ε = {epsilon:g}" for epsilon, users in LOCAL_USERS.items()]
    return Table(
        "Users to 90 % under local DP",
        ("world", "agent", "statistic", "ε"),
        tuple(rows),
        f"Declared users: {' and '.join(declared)}.",
        extra="auto",
    )


def statistics() -> Table:
    """What is asked of users; counts of 100 states take too long to be worth it."""
    longer = [replace(place, users={1.0: 300_000}) for place in (TWO_STATE, POOLED, PER_STEP)]
    places = [(place, ("features", "counts")) for place in longer]
    return Table(
        "What is asked of users",
        ("world", "statistic"),
        tuple(
            Case((place.label, kind), place.job("LSVIUCB", joint(1.0), statistic=kind))
            for place, kinds in [*places, (LARGE, ("features",))]
            for kind in kinds
        ),
        "LSVIUCB at ε = 1. Declared users: 300k.",
        extra="auto",
    )


TABLES = {make.__name__: make for make in (agents, local, statistics)}


main = tables_main(__spec__, __doc__, TABLES)


if __name__ == "__main__":
    sys.exit(main())
