"""Dosing insulin from private days: agents on the world ``glucose``, adults.

``python -m research.glucose`` runs every row that is not stored yet and stores it in
``research/glucose.json`` as it finishes; ``--only NAME`` is for rows whose name has this in it.
Hours in range of 24, of the greedy policy at the end and of the users on the way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser
from research.worlds import glucose
from tacit.simulation.run import noise_seed

TABLE = Path(__file__).with_suffix(".json")
AGENTS = {"actor_critic": "ActorCritic", "fitted_functional_q": "FittedFunctionalQ"}


@dataclass(frozen=True)
class Case:
    """Runs that make one row."""

    agent: str
    epsilon: float | None  # without privacy if ``None``
    users: int
    runs: int  # seeds 0, 1, ...

    @property
    def name(self) -> str:
        """What the row is called."""
        privacy = "no privacy" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return f"{self.agent}, {privacy}, {self.users:,} users"

    def run(self, world: Any, seed: int) -> tuple[float, float]:
        """Hours in range under the greedy policy, and of users on average."""
        privacy = tacit.NonPrivate() if self.epsilon is None else tacit.JointDP(self.epsilon, 1e-6)
        make = getattr(tacit, AGENTS[self.agent])
        agent = make(world.spec, self.users, privacy, seed=seed, noise_seed=noise_seed(seed))
        rng, hours = np.random.default_rng([seed, 1]), 0.0
        while agent.block_users:
            episodes = world.simulate(agent.policy, agent.block_users, rng)
            hours += float(episodes.rewards.sum())
            agent.learn(episodes)
        return float(world.value(agent.greedy_policy)), hours / agent.served


CASES = (
    Case("fitted_functional_q", None, 500, 3),
    Case("actor_critic", None, 2_000, 5),
    Case("fitted_functional_q", 10.0, 4_000, 3),
    Case("actor_critic", 10.0, 4_000, 5),
    Case("actor_critic", 1.0, 20_000, 3),
    Case("fitted_functional_q", 1.0, 20_000, 1),
)


@dataclass(frozen=True)
class Row:
    """What came of a case."""

    name: str
    runs: int
    greedy: tuple[float, ...]
    served: tuple[float, ...]

    @property
    def line(self) -> str:
        """In a table: medians with the smallest and the largest."""
        low, high = min(self.greedy), max(self.greedy)
        words = f"| {self.name} | {self.runs} | {median(self.greedy):.1f} [{low:.1f}, {high:.1f}] |"
        return f"{words} {median(self.served):.1f} |"


def stored() -> dict[str, Row]:
    """The rows that were measured, by name."""
    held = json.loads(TABLE.read_text()) if TABLE.exists() else []
    return {row["name"]: Row(**row) for row in held}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, stores and prints."""
    parser = Parser(prog="python -m research.glucose", description="dosing from private days")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    only, world = parser.parse_args(arguments).only, glucose()
    for case in CASES:
        rows = stored()
        if only in case.name and case.name not in rows:
            found = [tuple(round(x, 3) for x in case.run(world, s)) for s in range(case.runs)]
            greedy, served = zip(*found, strict=True)
            rows[case.name] = Row(case.name, case.runs, greedy, served)
            order = [c.name for c in CASES if c.name in rows]
            TABLE.write_text(json.dumps([asdict(rows[n]) for n in order], indent=1) + "\n")
        if case.name in stored():
            print(stored()[case.name].line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
