"""Mixture agents on worlds on which none of their constants was chosen: users to 90 %, in tables.

Every run has a world of its own: seed 0 is a run in the world of seed 0, and so on. Constants were
chosen on other seeds. Numbers are medians with quartiles over the runs; a star marks runs shorter
than ten times the median.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from research.jobs import DELTA, Job
from research.tables import Case, Table, joint, tables_main
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
from tacit.simulation.plots import short

AGENT = "LinOptVI"
"""Policy optimisation is measured beside it by :mod:`research.policy_optimisation`."""
PLAIN_USERS = 20_000
JOINT_USERS = 1_000_000
LOCAL_USERS = 10**10


@dataclass(frozen=True)
class Place:
    """A world.

    Attributes:
        label: what it is called.
        world: its name and options, all but the seed.
        limits: how many users LinOptVI may need, by epsilon.
    """

    label: str
    world: str
    limits: Mapping[float, int] = field(default_factory=dict)

    def job(self, agent: str, privacy: Privacy, **options: Any) -> Job:
        """An agent there."""
        users = PLAIN_USERS
        if isinstance(privacy, LocalDP):
            users = LOCAL_USERS
        elif isinstance(privacy, JointDP):
            users = JOINT_USERS
        return Job(self.world, agent, privacy, users, tuple(options.items()))


MODELS = Place("mixture_of_models", "mixture_of_models", {1.0: 240, 10.0: 30})
SHARED = Place("hard_mixture", "hard_mixture", {1.0: 2_500, 10.0: 750})
PER_STEP = Place("hard_mixture, per step", "hard_mixture:per_step=True", {1.0: 2_500, 10.0: 1_100})
KEYBOARD = Place("keyboard", "keyboard")
PLACES = (MODELS, SHARED, PER_STEP, KEYBOARD)


def agents() -> Table:
    """Value iteration, with rewards known and not."""
    rows = []
    for known in (True, False):
        for place in PLACES:
            for epsilon in (1.0, 10.0):
                job, plain = place.job(AGENT, joint(epsilon)), place.job(AGENT, NonPrivate())
                if not known:
                    job, plain = (x.with_world(known_rewards=False) for x in (job, plain))
                cells = (place.label, AGENT, "known" if known else "learnt", f"{epsilon:g}")
                limit = place.limits.get(epsilon) if known else None
                rows.append(Case(cells, job, plain, limit))
    return Table(
        "Users to 90 % under joint DP",
        ("world", "agent", "rewards", "ε"),
        tuple(rows),
        f"Declared users: {short(JOINT_USERS)}, without privacy {short(PLAIN_USERS)}.",
    )


def local() -> Table:
    """Local DP."""
    rows = []
    for place in PLACES:
        ours = place.job("LinOptVI", LocalDP(1.0, DELTA), statistic="model")
        rows.append(Case((place.label, "LinOptVI"), ours, place.job("LinOptVI", NonPrivate())))
    return Table(
        "Users to 90 % under local DP",
        ("world", "agent"),
        tuple(rows),
        f"At ε = 1; LinOptVI asks for 'model'. Declared users: {short(LOCAL_USERS)}.",
    )


def statistics() -> Table:
    """What is asked of users."""
    return Table(
        "What is asked of users",
        ("world", "statistic"),
        tuple(
            Case((place.label, kind), place.job("LinOptVI", joint(1.0), statistic=kind))
            for place in PLACES
            for kind in ("model", "counts")
        ),
        f"LinOptVI at ε = 1. Declared users: {short(JOINT_USERS)}.",
        extra="auto",
    )


TABLES = {make.__name__: make for make in (agents, local, statistics)}


main = tables_main(__spec__, __doc__, TABLES)


if __name__ == "__main__":
    sys.exit(main())
