"""What ActorCritic reaches, private and not.

``python -m research.policy_gradients`` runs what is missing and stores every seed as it is there,
in ``research/policy_gradients.json``; with names only those rows, and ``--again`` also what is
stored. ``--show`` prints the table of docs/continuous.md. A cell is the median of the greedy
policy's value, with the least and the most, over seeds that no constant was chosen on, with all
options as shipped. Steps are those of all users, as environments count them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser
from research.worlds import build
from tacit.privacy.files import write_atomic
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Row:
    """A world, its users, and a budget.

    Attributes:
        world: a text that makes it.
        users: how many.
        epsilon: ``None`` without privacy; delta is 1e-6.
        seeds: how many.
    """

    world: str
    users: int
    epsilon: float | None = None
    seeds: int = 10

    @property
    def key(self) -> str:
        """As stored."""
        return f"{self.world}; {self.users}; {self.budget}"

    @property
    def budget(self) -> str:
        """In words."""
        return "not private" if self.epsilon is None else f"epsilon {self.epsilon:g}"

    @property
    def privacy(self) -> Privacy:
        """The model."""
        return NonPrivate() if self.epsilon is None else JointDP(self.epsilon, 1e-6)


ROWS = (
    Row("trap", 3000, 10.0),
    Row("gym:Pendulum-v1,horizon=200,reward_range=-16.3:0", 10_000, 10.0, seeds=3),
    Row("gym:Pendulum-v1,horizon=200,reward_range=-16.3:0", 10_000, 1.0, seeds=3),
    Row("glucose:continuous=true", 4000, 10.0, seeds=3),
    Row("pendulum:continuous=true", 10_000, seeds=5),
    Row("pendulum:continuous=true", 10_000, 10.0, seeds=5),
    Row("pendulum:continuous=true", 10_000, 1.0, seeds=5),
)


def measured(row: Row, seed: int) -> dict[str, Any]:
    """One run."""
    began = time.process_time()
    world: Any = build(row.world)
    noise = None if row.epsilon is None else noise_seed(seed)
    agent = tacit.ActorCritic(world.spec, row.users, row.privacy, seed=seed, noise_seed=noise)
    rng, steps = np.random.default_rng(np.random.SeedSequence([21, seed])), 0
    while agent.block_users:
        episodes = world.simulate(agent.policy, agent.block_users, rng)
        steps += int(np.isfinite(np.asarray(episodes.rewards)).sum())
        agent.learn(episodes)
    return {
        "value": round(world.value(agent.greedy_policy), 3),
        "random": round(world.baseline_value, 3),
        "optimum": None if np.isnan(world.optimal_value) else round(world.optimal_value, 3),
        "steps": steps,
        "releases": agent.releases,
        "seconds": round(time.process_time() - began, 1),
    }


def load() -> dict[str, dict[str, Any]]:
    """What was measured, by row and seed."""
    stored: dict[str, dict[str, Any]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def number(value: float) -> str:
    """A value in a cell.

    >>> number(19.234), number(246.5)
    ('19.2', '246')
    """
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def table(stored: dict[str, dict[str, Any]]) -> str:
    """As the documentation shows it."""
    lines = [
        "| world | budget | users | steps | at random | greedy policy | seeds |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        found = list(stored.get(row.key, {}).values())
        if not found:
            continue
        values = [one["value"] for one in found]
        ends = f"{number(min(values))} to {number(max(values))}"
        steps = statistics.median(one["steps"] for one in found)
        name = row.world.removeprefix("gym:").partition(",")[0]
        name = name.replace(":continuous=true", ", any action")
        cells = [name, row.budget, f"{row.users:,}", f"{steps:,.0f}", number(found[0]["random"])]
        cells += [f"{number(statistics.median(values))} ({ends})", str(len(found))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    first = (__doc__ or "").partition("\n")[0]
    parser = Parser(prog="python -m research.policy_gradients", description=first)
    parser.add_argument("names", nargs="*", help="parts of rows' names; all by default")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--show", action="store_true", help="print what is stored, and run nothing")
    chosen = parser.parse_args(arguments)
    for row in () if chosen.show else ROWS:
        if chosen.names and not any(name in row.key for name in chosen.names):
            continue
        for seed in range(row.seeds) if chosen.seed is None else [chosen.seed]:
            if str(seed) in load().get(row.key, {}) and not chosen.again:
                continue
            found = measured(row, seed)
            # Read again: several may run side by side.
            now = load()
            now.setdefault(row.key, {})[str(seed)] = found
            write_atomic(STORED, f"{json.dumps(now, indent=1, sort_keys=True)}\n".encode(), 0o644)
            print(f"{row.key}, seed {seed}: {found}", flush=True)
    print(table(load()))


if __name__ == "__main__":
    main()
