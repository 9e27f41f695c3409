"""What agents lose in worlds that are a stated distance from what their features say.

``python -m research.misspecification`` runs every dial on seeds 0 to 9, each in the world of its
seed, with an agent that believes its features and one that knows none. It prints tables and stores
the numbers of all runs as ``research/misspecification.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.command_lines import Parser, whole
from research.jobs import RUNS, Job
from research.tables import joint
from tacit.privacy.files import write_atomic

STORED = Path(__file__).with_suffix(".json")
DIALS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
USERS = 100_000
KINDS = {"simplex": "LSVIUCB", "mixture_of_models": "LinOptVI"}
COLUMNS = ("as it is", "no features")


def jobs(world: str, dial: float) -> dict[str, Job]:
    """What is run there, by name."""
    place = f"far:of={world},distance={dial}"
    plain = Job(place, KINDS[world], joint(1.0), USERS)
    tabular = Job(place, "UCBVI", joint(1.0), USERS)
    return dict(zip(COLUMNS, (plain, tabular), strict=True))


def measure(world: str, dial: float, runs: int) -> dict[str, Any]:
    """By name, the share of the optimum that the last policy that served users lacks."""
    losses: dict[str, list[float]] = {}
    for name, job in jobs(world, dial).items():
        results = [job.run(seed).result for seed in range(runs)]
        losses[name] = [round(float(1.0 - r.values[-2] / r.optimal_value), 6) for r in results]
    return {"world": world, "dial": dial, "losses": losses}


def words(losses: Sequence[float]) -> str:
    """The median and the 10 % and 90 % points, in per cent.

    >>> words([0.1, 0.2, 0.3])
    '20.0 [10.0, 30.0]'
    """
    low, high = np.quantile(losses, [0.1, 0.9], method="nearest")
    return f"{100 * np.median(losses):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def markdown(rows: Sequence[Mapping[str, Any]], world: str) -> str:
    """The rows of one world, as the documentation shows them."""
    lines = [f"| distance | {' | '.join(COLUMNS)} |", "|---:" * 3 + "|"]
    for row in rows:
        if row["world"] == world:
            cells = [words(row["losses"][name]) for name in COLUMNS]
            lines.append(f"| {row['dial']:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stored() -> dict[str, dict[str, Any]]:
    """All rows that were run, by world and dial."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    names = [f"{world}, {dial:g}" for world in KINDS for dial in DIALS]
    return {name: found[name] for name in names if name in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints and stores."""
    parser = Parser(prog="python -m research.misspecification", description=__doc__)
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every row")
    given = parser.parse_args(arguments)
    for world in KINDS:
        for dial in DIALS:
            rows = stored() | {f"{world}, {dial:g}": measure(world, dial, given.runs)}
            write_atomic(STORED, (json.dumps(rows, indent=1) + "\n").encode(), 0o644)
    for world in KINDS:
        print(f"\n{world}\n\n{markdown(list(stored().values()), world)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
