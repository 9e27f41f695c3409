"""Many states: policy improvement on ICU-Sepsis, and what its parts are worth elsewhere.

``python -m research.icu_sepsis`` runs every row and stores it in ``research/icu_sepsis.json``;
``--only NAME`` is for rows whose name has this in it, and leaves the others as they are. No
constant was chosen on ICU-Sepsis, nor on the seeds of ``sparse_mdp`` that are used here. A score is
0 for acting at random among what states allow and 1 for the optimum.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser
from research.worlds import build
from tacit.simulation.run import noise_seed
from tacit.tabular.policy_improvement import ImprovementConstants

TABLE = Path(__file__).with_suffix(".json")
ICU = "icu_sepsis"
PRIVATE = tacit.JointDP(1.0, 1e-6)
OTHERS = tuple(f"sparse_mdp:states=400,seed={seed}" for seed in range(900, 904))
"""Worlds for ablations, on which nothing was chosen."""


@dataclass(frozen=True)
class Case:
    """Runs that make one row."""

    name: str
    users: int
    epsilon: float | None  # without privacy if ``None``
    runs: int  # seeds 0, 1, ...; in one world, or run i in world i
    worlds: tuple[str, ...] = (ICU,)
    growth: float = 4.0
    constants: Mapping[str, Any] = field(default_factory=dict)

    def run(self, seed: int) -> tuple[float, float]:
        """The scores of the policy at the end, and of what users were served, on average."""
        world = build(self.worlds[seed % len(self.worlds)])
        privacy = tacit.NonPrivate() if self.epsilon is None else tacit.JointDP(self.epsilon, 1e-6)
        agent = tacit.PolicyImprovement(
            world.spec,
            users=self.users,
            privacy=privacy,
            seed=seed,
            noise_seed=noise_seed(seed),
            growth=self.growth,
            constants=ImprovementConstants(**self.constants),
        )
        result = tacit.run(agent, world, seed, progress=False)
        low, high = world.baseline_value, world.optimal_value
        scores = (np.asarray(result.values) - low) / (high - low)
        served = float(np.average(scores[:-1], weights=np.diff(result.served)))
        return float(scores[-1]), served


CASES = (
    Case("users 1e5", 10**5, 1.0, 10),
    Case("users 1e6", 10**6, 1.0, 10),
    Case("users 1e7", 10**7, 1.0, 3),
    Case("epsilon 10, users 1e5", 10**5, 10.0, 10),
    Case("not private, users 1e5", 10**5, None, 5),
    *(
        Case(f"ablation: {name}", 10**5, 1.0, 8, OTHERS, growth, constants)
        for name, growth, constants in (
            ("as it is", 4.0, {}),
            ("whole returns instead of residuals", 4.0, {"trace": 1.0, "length": 1.4}),
            ("one step of residuals", 4.0, {"trace": 0.0}),
            ("users cut three times as short", 4.0, {"length": 0.12}),
            ("users hardly cut", 4.0, {"length": 1.0}),
            ("actions given up early", 4.0, {"sharpness": 5.0}),
            ("one block, served at random", 1e9, {}),
            ("blocks that grow by half", 1.5, {}),
            ("a tenth for values", 4.0, {"share": 0.1}),
        )
    ),
)


@dataclass(frozen=True)
class Row:
    """What came of a case."""

    name: str
    users: int
    runs: int
    scores: tuple[float, ...]
    served: tuple[float, ...]
    seconds: float  # of a run, on average, loading and compiling not included
    megabytes: float  # of the process, at most so far

    @property
    def line(self) -> str:
        """In a table: medians with the smallest and the largest."""
        low, high = min(self.scores), max(self.scores)
        words = f"| {self.name} | {self.runs} | {median(self.scores):.2f} [{low:.2f}, {high:.2f}] |"
        return f"{words} {median(self.served):.2f} |"


def measured(case: Case) -> Row:
    """All runs of a case."""
    Case("warm-up", 2000, case.epsilon, 1, case.worlds).run(0)
    start = time.perf_counter()
    found = [case.run(seed) for seed in range(case.runs)]
    seconds = (time.perf_counter() - start) / case.runs
    scores, served = zip(*found, strict=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Row(case.name, case.users, case.runs, scores, served, round(seconds, 1), round(peak))


def stored() -> dict[str, Row]:
    """Rows by name, as they were measured last."""
    rows = json.loads(TABLE.read_text()) if TABLE.exists() else []
    return {row["name"]: Row(**row | _tuples(row)) for row in rows}


def _tuples(row: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(row[name]) for name in ("scores", "served")}


def store(rows: Mapping[str, Row]) -> None:
    """In the order of the cases; rows that are no case any more are dropped."""
    kept = [asdict(rows[case.name]) for case in CASES if case.name in rows]
    for row in kept:
        for name, values in _tuples(row).items():
            row[name] = [round(value, 4) for value in values]
    TABLE.write_text(json.dumps(kept, indent=1) + "\n")


def chosen(only: str | None) -> Iterator[Case]:
    """Cases to be run."""
    return (case for case in CASES if only is None or only in case.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = Parser(
        prog="python -m research.icu_sepsis", description="policy improvement on many states"
    )
    parser.add_argument("--only", default=None, help="cases whose name has this in it")
    given = parser.parse_args(arguments)
    for case in chosen(given.only):
        row = measured(case)
        store(stored() | {row.name: row})
        print(row.line, f"{row.seconds} s, {row.megabytes} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
