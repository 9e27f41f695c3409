"""Worlds without tables: mixtures of simulators with 20,000 states, and kernel MDPs on vectors.

``python -m research.large_worlds`` runs every row on seeds 0 to 9, each in the world of its seed
where worlds have one; constants were chosen on seeds 500 to 507. It prints a table and stores the
numbers of all runs as ``research/large_worlds.json``, row by row. ``--only TEXT`` runs the rows
whose name has that text and leaves the others as they are stored.

One run of the first row in a process of its own, with ``/usr/bin/time -v``, is
``python -m research.large_worlds --once``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser, whole
from research.fewer_users_linear import words
from research.jobs import RUNS
from research.tables import joint
from research.worlds import build
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Row:
    """An agent in a world, at epsilon 1.

    Attributes:
        world: its name.
        seeded: whether every seed has a world of its own.
        agent: the class.
        users: how many are declared.
        words: the map of features, in words.
    """

    world: str
    seeded: bool
    agent: str
    users: int
    words: str = ""

    @property
    def name(self) -> str:
        """As stored."""
        return f"{self.world}, {self.agent}{', ' if self.words else ''}{self.words}"

    def run(self, seed: int) -> Any:
        """One run."""
        world: Any = build(f"{self.world}:seed={seed}" if self.seeded else self.world)
        agent = getattr(tacit, self.agent)(
            world.spec,
            users=self.users,
            privacy=joint(1.0),
            seed=seed,
            noise_seed=noise_seed(seed),
        )
        return tacit.run(agent, world, seed, progress=False)


ROWS = (
    Row("currents", True, "LinOptSampled", 100_000),
    Row("line", False, "KernelLSVI", 10_000, "quadrature"),
    Row("trap", False, "KernelLSVI", 10_000, "quadrature"),
    Row("gusts", True, "LinOptSampled", 20_000, "quadrature"),
)


def served(result: Any, release: int = -2) -> float:
    """The score of a policy that served users, the last one: 0 is uniform, 1 the optimum."""
    base, best = result.baseline_value, result.optimal_value
    return round(float((result.values[release] - base) / (best - base)), 6)


def measure(row: Row, runs: int) -> dict[str, Any]:
    """All runs of a row."""
    results = [row.run(seed) for seed in range(runs)]
    return {
        "world": row.world,
        "agent": row.agent,
        "words": row.words,
        "users": row.users,
        "score": [served(result) for result in results],
        "users_to_90": [result.users_to_90 for result in results],
        "first": [served(result, 0) for result in results],
    }


def markdown(rows: Sequence[Mapping[str, Any]], worlds: Sequence[str]) -> str:
    """The rows of some worlds, as the documentation shows them."""
    lines = [
        "| world | map | users | score at first | in the end | users to 90 % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        if row["world"] in worlds:
            scores = []
            for name in ("first", "score"):
                low, high = np.quantile(row[name], [0.1, 0.9], method="nearest")
                scores.append(f"{np.median(row[name]):.2f} [{low:.2f}, {high:.2f}]")
            cells = f"{row['users']:,} | {' | '.join(scores)} | {words(row['users_to_90'])}"
            lines.append(f"| {row['world']} | {row['words'] or 'none'} | {cells} |")
    return "\n".join(lines)


def stored() -> dict[str, dict[str, Any]]:
    """All rows that were ever run, by name."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {row.name: found[row.name] for row in ROWS if row.name in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints and stores."""
    parser = Parser(prog="python -m research.large_worlds", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every row")
    parser.add_argument("--once", action="store_true", help="one run of the first row, unstored")
    given = parser.parse_args(arguments)
    if given.once:
        print(f"score {served(ROWS[0].run(0)):.3f} after {ROWS[0].users:,} users")
        return 0
    for row in ROWS:
        if given.only in row.name:
            rows = stored() | {row.name: measure(row, given.runs)}
            write(rows)
            print(row.name, words(rows[row.name]["users_to_90"]), flush=True)
    print(markdown(list(stored().values()), sorted({row.world for row in ROWS})))
    return 0


def write(rows: Mapping[str, Any]) -> None:
    """Stores them."""
    from tacit.privacy.files import write_atomic

    write_atomic(STORED, (json.dumps(rows, indent=1) + "\n").encode(), 0o644)


if __name__ == "__main__":
    sys.exit(main())
