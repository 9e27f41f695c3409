"""Actions that are vectors, and more than four coordinates: what ModelPosterior reaches.

``python -m research.continuous_actions`` runs it with its defaults where it plans by LQ control
around trajectories (a pendulum with any torque, glucose with any dose, two poles on a cart with any
force) and by fitted values (two poles with three forces, Gymnasium's Acrobot as six numbers,
LunarLander). Users come from one stream of random numbers, noise from another. Constants were
chosen on seeds 500 to 502; seeds here are 1000 and on. Results are in
``research/continuous_actions.json``, written after every run, and what is stored is not run again.
``--only`` names the rows to run, all by default, and ``--runs`` how many seeds of each at most.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from research.command_lines import Parser
from research.worlds import glucose, pendulum, poles
from tacit import JointDP, ModelPosterior, NonPrivate

STORED = Path(__file__).with_suffix(".json")
DELTA, FIRST_SEED, RUNS = 1e-6, 1000, 10


def _gymnasium(name: str, **known: Any) -> Any:
    from tacit.continuous.gym import from_gymnasium

    return from_gymnasium(name, **known)


WORLDS: dict[str, Callable[[], Any]] = {
    "pendulum, any torque": lambda: pendulum(continuous=True),
    "glucose, any dose": lambda: glucose(continuous=True),
    "two poles, any force": lambda: poles(continuous=True),
    "two poles, three forces": poles,
    "Acrobot-v1, six numbers": lambda: _gymnasium("Acrobot-v1", evaluation_users=50),
    "LunarLander-v3": lambda: _gymnasium("LunarLander-v3", horizon=400, evaluation_users=30),
}


@dataclass(frozen=True)
class Row:
    """What is run: a name of :data:`WORLDS`, epsilon or ``None``, users, and seeds at most."""

    world: str
    epsilon: float | None
    users: int
    runs: int = RUNS

    @property
    def name(self) -> str:
        """In the file."""
        privacy = "none" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return f"{self.world}, {privacy}, {self.users}"


ROWS = (
    Row("pendulum, any torque", None, 128),
    Row("pendulum, any torque", 10.0, 1_100),
    Row("pendulum, any torque", 1.0, 10_000),
    Row("glucose, any dose", None, 256),
    Row("glucose, any dose", 10.0, 4_000),
    Row("glucose, any dose", 1.0, 20_000, 3),
    Row("two poles, any force", None, 64),
    Row("two poles, any force", 10.0, 1_100, 3),
    Row("two poles, three forces", None, 128, 3),
    Row("Acrobot-v1, six numbers", None, 256, 3),
    Row("LunarLander-v3", None, 512, 1),
)


def measured(row: Row, seed: int) -> dict[str, float]:
    """Returns of the greedy policy at the end, of what served then, and the mean of users' own."""
    world = WORLDS[row.world]()
    private = row.epsilon is not None
    privacy = JointDP(row.epsilon, DELTA) if row.epsilon is not None else NonPrivate()
    noise = {"noise_seed": 10**6 + seed} if private else {}
    agent = ModelPosterior(world.spec, row.users, privacy, seed=seed, **noise)
    rng, earned = np.random.default_rng(np.random.SeedSequence([seed, 2])), 0.0
    while agent.block_users:
        episodes: Any = world.simulate(agent.policy, agent.block_users, rng)
        earned += float(np.nansum(episodes.rewards))
        agent.learn(episodes)
    greedy, served = world.value(agent.greedy_policy), world.value(agent.policy)
    found = {"greedy": greedy, "served": served, "users": earned / agent.served}
    return {name: round(float(value), 2) for name, value in found.items()}


def table(stored: dict[str, Any]) -> str:
    """Rows that are known, in Markdown."""
    lines = ["| world | privacy | users | runs | greedy, in the end | users on the way |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for row in ROWS:
        runs = list(stored.get(row.name, {}).values())
        if not runs:
            continue
        greedy = [run["greedy"] for run in runs]
        middle, low, high = np.median(greedy), min(greedy), max(greedy)
        cells = [
            row.world,
            "none" if row.epsilon is None else f"ε = {row.epsilon:g}",
            f"{row.users:,}",
            str(len(runs)),
            f"{middle:.1f} [{low:.1f}, {high:.1f}]",
            f"{np.median([run['users'] for run in runs]):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not stored yet, a seed of all rows after the other, and prints the table."""
    parser = Parser("python -m research.continuous_actions", str(__doc__))
    parser.add_argument("--only", default="", help="only rows whose name has this text")
    parser.add_argument("--runs", type=int, default=RUNS, help="seeds of every row, at most")
    given = parser.parse_args(arguments)
    for seed in range(FIRST_SEED, FIRST_SEED + given.runs):
        for row in ROWS:
            if given.only not in row.name or seed >= FIRST_SEED + row.runs:
                continue
            if str(seed) in load().get(row.name, {}):
                continue
            found = measured(row, seed)
            stored = load()  # another process may have stored something meanwhile
            stored.setdefault(row.name, {})[str(seed)] = found
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(table(load()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
