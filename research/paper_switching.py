"""How often DP-LSVI-UCB++ replaces its policy, beside the d H log K of its paper.

``python -m research.paper_switching`` counts switches of the paper's Algorithm 1, printed and
corrected. It prints a table and stores the numbers of all runs as
``research/paper_switching.json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tacit
from research.command_lines import Parser, whole
from research.jobs import DELTA, RUNS, Job, spread
from research.linear_comparison import EPSILON, PaperJob
from tacit.privacy.files import write_atomic
from tacit.registry import build_world

STORED = Path(__file__).with_suffix(".json")
WORLDS = ("two_state", "simplex")
NAMES = ("printed", "corrected")
EPISODES = (100, 1_000, 10_000, 100_000)


def jobs(world: str, users: int) -> dict[str, Job]:
    """What is counted there, by name."""
    joint, known = tacit.JointDP(EPSILON, DELTA), f"{world}:known_rewards=True"
    return {
        name: PaperJob(known, "paper", joint, users, (("printed", name == "printed"),))
        for name in NAMES
    }


def bound(world: str, users: int) -> float:
    """D H log2 K."""
    spec: Any = build_world(world).spec
    return float(spec.dimension * spec.horizon * math.log2(users))


def measure(world: str, users: int, runs: int) -> dict[str, Any]:
    """All runs of a row."""
    counted = {
        name: [job.run(seed).switches for seed in range(runs)]
        for name, job in jobs(world, users).items()
    }
    return {"world": world, "users": users, "bound": bound(world, users), "switches": counted}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """As the documentation shows them.

    >>> counted = {"printed": [0, 0], "corrected": [1, 1]}
    >>> row = {"world": "w", "users": 100, "bound": 66.4, "switches": counted}
    >>> print(markdown([row]).splitlines()[-1])
    | w | 100 | 66 | 0 [0, 0] | 1 [1, 1] |
    """
    lines = [f"| world | K | d H log2 K | {' | '.join(NAMES)} |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        cells = [spread(row["switches"][name]) for name in NAMES]
        sizes = f"{row['users']:,} | {row['bound']:,.0f}"
        lines.append(f"| {row['world']} | {sizes} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stored() -> dict[str, dict[str, Any]]:
    """All rows that were run, by world and K."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    names = [f"{world}, {users}" for world in WORLDS for users in EPISODES]
    return {name: found[name] for name in names if name in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints and stores."""
    parser = Parser(prog="python -m research.paper_switching", description=__doc__)
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every row")
    given = parser.parse_args(arguments)
    for world in WORLDS:
        for users in EPISODES:
            name = f"{world}, {users}"
            rows = stored() | {name: measure(world, users, given.runs)}
            write_atomic(STORED, (json.dumps(rows, indent=1) + "\n").encode(), 0o644)
            print(name, flush=True)
    print(markdown(list(stored().values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
