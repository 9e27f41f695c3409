"""The rules for an agent that was not named, against the agents that could have been taken.

``python -m research.which_agent`` runs the agents of every row with seeds 0 to 9 (worlds that are
drawn have those seeds, other finite ones have their labels in random order in every state), and
stores what it finds in ``research/which_agent.json``. What is stored is not run again unless
``--again`` is given.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser, whole
from research.fewer_users import mixed_up
from research.jobs import amount
from tacit.auto import choose
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.registry import agent_entry, build_world, world_entry
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")
FEATURES = "features of "
"""Of a finite world as a linear one, with a feature for every state and action."""


@dataclass(frozen=True)
class Row:
    """Agents that are compared in one world, at one budget."""

    world: str
    epsilon: float | None
    delta: float
    users: int
    agents: tuple[str, ...]

    @property
    def privacy(self) -> Privacy:
        """Joint DP, or none."""
        return NonPrivate() if self.epsilon is None else JointDP(self.epsilon, self.delta)

    @property
    def budget(self) -> str:
        """In a table."""
        if self.epsilon is None:
            return "none"
        return f"{self.epsilon:g}, {'pure' if self.delta == 0.0 else f'{self.delta:g}'}"

    @property
    def name(self) -> str:
        """As stored."""
        return f"{self.world} | {self.budget}"

    def world_of(self, seed: int) -> Any:
        """The world of a run."""
        text = self.world.removeprefix(FEATURES)
        if "seed" in world_entry(text.partition(":")[0]).options:
            return build_world(f"{text}{',' if ':' in text else ':'}seed={seed}")
        turned = mixed_up(build_world(text), seed)
        return turned if text == self.world else tacit.linear.linear_from_tabular(turned)


_BOTH, _THREE = ("concurrent_psrl", "ucbvi"), ("concurrent_psrl", "policy_improvement", "ucbvi")
_RANDOM = "random_mdp:actions=3,horizon=20,states="
ROWS = (
    Row("riverswim", 1.0, 0.0, 60_000, _BOTH),
    Row("grid", 1.0, 0.0, 100_000, _BOTH),
    Row("riverswim", None, 0.0, 2_000, _BOTH),
    Row("grid", None, 0.0, 20_000, _BOTH),
    Row("riverswim", 30.0, 1e-6, 5_000, _BOTH),
    Row(f"{FEATURES}riverswim", 1.0, 1e-6, 60_000, ("concurrent_psrl", "lsvi_ucb")),
    Row(f"{_RANDOM}30", 1.0, 1e-6, 100_000, _THREE),
    Row(f"{_RANDOM}80", 1.0, 1e-6, 100_000, _THREE),
    Row("grid:side=8,horizon=32", 1.0, 1e-6, 100_000, ("concurrent_psrl", "policy_improvement")),
    Row("two_state", 1.0, 1e-6, 5_000, ("lsvi_ucb", "concurrent_psrl")),
    Row("simplex", 10.0, 1e-6, 400, ("linear_posterior", "lsvi_ucb")),
    Row("simplex", None, 0.0, 200, ("linear_posterior", "lsvi_ucb")),
    Row(f"{_RANDOM}200", 1.0, 1e-6, 100_000, ("policy_improvement", "concurrent_psrl")),
)


def measured(row: Row, agent: str, runs: int) -> dict[str, Any]:
    """Users to 90 % of every run, and the score at its end."""
    found: dict[str, Any] = {"users_to_90": [], "score": []}
    for seed in range(runs):
        world = row.world_of(seed)
        given = {"noise_seed": noise_seed(seed)} if row.privacy.private else {}
        made = agent_entry(agent).make(
            world.spec, users=row.users, privacy=row.privacy, seed=seed, **given
        )
        result = tacit.run(made, world, seed=seed, progress=False)
        found["users_to_90"].append(result.users_to_90)
        found["score"].append(round(float(result.score), 4))
    return found


def rule(row: Row) -> str:
    """Which agent the rules take in a row."""
    return choose(row.world_of(0).spec, row.privacy).agent


def cell(found: dict[str, Any]) -> str:
    """The median of users to 90 %, and of the scores.

    >>> cell({"users_to_90": [5, None, 3], "score": [1.0, 0.2, 0.9]})
    '5, ends at 0.90, 3 runs'
    """
    users = [math.inf if n is None else float(n) for n in found["users_to_90"]]
    runs = "" if len(users) == 10 else f", {len(users)} runs"
    return f"{amount(float(np.median(users)))}, ends at {np.median(found['score']):.2f}{runs}"


def table(stored: dict[str, Any]) -> str:
    """All rows, in Markdown; the agent that the rules take is the first."""
    lines = ["| world | ε, δ | users | taken | others |", "|---|---|---:|---|---|"]
    for row in ROWS:
        cells = stored.get(row.name, {})
        if set(cells) != set(row.agents):
            continue
        first = rule(row)
        words = {agent: f"{agent}: {cell(cells[agent])}" for agent in row.agents}
        others = "; ".join(words[agent] for agent in row.agents if agent != first)
        lines.append(f"| {row.world} | {row.budget} | {row.users:,} | {words[first]} | {others} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing, stores and prints."""
    parser = Parser(prog="python -m research.which_agent", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=whole(1), default=10, help="seeds of every row")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--again", action="store_true", help="run what is stored as well")
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given = parser.parse_args(arguments)
    stored = load()
    for row in [row for row in ROWS if given.only in row.name and not given.show]:
        for agent in row.agents:
            cells = stored.setdefault(row.name, {})
            if given.again or agent not in cells:
                cells[agent] = measured(row, agent, given.runs)
                print(row.name, agent, cell(cells[agent]), file=sys.stderr, flush=True)
                STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(table(stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
