"""Do plans for continuous worlds hold? Forecasts of ``tacit plan`` against fresh runs.

``python -m research.plan_check`` plans with the simulated worlds as ``tacit plan --world`` does, on
seeds 0 to 4, then runs the agent that was planned for with as many users as it named, on seeds 1000
and on. A plan promises 90 % of what there is to gain, in half of the runs. Everything is stored in
``research/plan_check.json`` as it is there, and what is stored is not run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from research.command_lines import Parser
from research.worlds import build
from tacit import JointDP
from tacit.privacy.files import write_atomic
from tacit.registry import choose_agent
from tacit.simulation.plan import plan
from tacit.simulation.run import run

STORED = Path(__file__).with_suffix(".json")
DELTA, FIRST_SEED = 1e-6, 1000


@dataclass(frozen=True)
class Row:
    """A plan."""

    world: str
    agent: str
    epsilon: float
    runs: int = 20

    @property
    def key(self) -> str:
        """As stored."""
        return f"{self.agent} on {self.world}, epsilon {self.epsilon:g}"


ROWS = (
    Row("line", "fitted_functional_q", 1.0),
    Row("line", "fitted_functional_q", 10.0),
    Row("plane", "fitted_functional_q", 1.0),
    Row("plane", "fitted_functional_q", 10.0),
    Row("cartpole", "fitted_functional_q", 1.0),
    Row("cartpole", "fitted_functional_q", 10.0),
)


def measured(row: Row) -> dict[str, Any]:
    """The plan, and scores of fresh runs by the number of users."""
    world, choice = build(row.world), choose_agent(row.agent)
    privacy = JointDP(row.epsilon, DELTA)
    made = plan(world, choice, privacy, progress=False)
    scores: list[float] = []
    for seed in range(FIRST_SEED, FIRST_SEED + row.runs):
        agent = choice.build(world.spec, made.users, privacy, seed)
        scores.append(round(run(agent, world, seed, False).greedy_score, 3))
    return {"planned": made.users, "scores": scores}


def load() -> dict[str, dict[str, Any]]:
    """What was measured, by row."""
    stored: dict[str, dict[str, Any]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def table(stored: dict[str, dict[str, Any]]) -> str:
    """As the documentation shows it."""
    lines = [
        "| world | ε | users | runs | score, median [least] | runs with 0.9 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in ROWS:
        found = stored.get(row.key)
        if found is None:
            continue
        scores = found["scores"]
        reached = f"{sum(score >= 0.9 for score in scores)} of {len(scores)}"
        shown = f"{median(scores):.2f} [{min(scores):.2f}]"
        cells = row.world, f"{row.epsilon:g}", f"{found['planned']:,}", str(len(scores))
        lines.append(f"| {' | '.join((*cells, shown, reached))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing, and prints the table."""
    parser = Parser(prog="python -m research.plan_check", description="plans against fresh runs")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    only = parser.parse_args(arguments).only
    for row in ROWS:
        stored = load()
        if only in row.key and row.key not in stored:
            stored[row.key] = measured(row)
            text = f"{json.dumps(stored, indent=1, sort_keys=True)}\n"
            write_atomic(STORED, text.encode(), 0o644)
            print(row.key, flush=True)
    print(table(load()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
