"""Users to 90 % of the agents that plan by a posterior, in linear MDPs and mixtures.

``python -m research.fewer_users_linear`` runs every row on seeds 0 to 9, each in the world of its
seed; constants were chosen on seeds 500 to 519. It prints a table and stores the numbers of all
runs as ``research/fewer_users_linear.json``, row by row. ``--only TEXT`` runs the rows whose name
has that text. What is stored is not run again unless ``--again`` is given; ``--show`` runs nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from research.command_lines import Parser, whole
from research.jobs import RUNS, Job, amount
from research.tables import joint
from tacit.linear.linear_posterior import LinearPosteriorConstants
from tacit.linear.posterior import Prior
from tacit.privacy.files import write_atomic
from tacit.privacy.models import NonPrivate, Privacy
from tacit.simulation.plan import fewest_users

STORED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Case:
    """A row: which world, what was tried, and how many users are declared by budget.

    Attributes:
        table: ``linear``, ``mixture`` or ``ablations``.
        place: the world in words.
        job: what is run, at epsilon 1.
        users: how many, by epsilon; 0 is without privacy.
        variant: what is different from the agent as it is, in words.
    """

    table: str
    place: str
    job: Job
    users: Mapping[float, int]
    variant: str = ""

    def at(self, epsilon: float) -> Job:
        """The job at a budget."""
        return replace(self.job, privacy=_privacy(epsilon), users=self.users[epsilon])

    def name(self, epsilon: float) -> str:
        """Of the row, as stored."""
        variant = f", {self.variant}" if self.variant else ""
        return f"{self.place}{variant}, epsilon {epsilon:g}"


def _privacy(epsilon: float) -> Privacy:
    return joint(epsilon) if epsilon > 0 else NonPrivate()


def _job(world: str, kind: str, **options: Any) -> Job:
    return Job(world, kind, joint(1.0), 1, tuple(options.items()))


# Worlds for which other agents are taken.
_FEW = {1.0: 5_000, 10.0: 1_000, 0.1: 50_000, 0.0: 200}
LINEAR = (
    Case(
        "linear",
        "simplex, pooled",
        _job("simplex", "LinearPosterior"),
        {1.0: 2_000, 10.0: 400, 0.1: 15_000, 0.0: 200},
    ),
    Case(
        "linear",
        "simplex, per step",
        _job("simplex", "LinearPosterior", stationary=False),
        {1.0: 5_000, 10.0: 1_000, 0.1: 40_000, 0.0: 300},
    ),
    Case(
        "linear",
        "simplex, not stationary",
        _job("simplex:stationary=False", "LinearPosterior"),
        {1.0: 5_000, 10.0: 1_000, 0.1: 40_000, 0.0: 300},
    ),
    Case(
        "linear",
        "simplex, 100 states, per step",
        _job("simplex:states=100", "LinearPosterior", stationary=False),
        {1.0: 5_000, 10.0: 1_500, 0.1: 50_000},
    ),
    Case("linear", "two_state, by LSVIUCB", _job("two_state", "LSVIUCB"), _FEW),
)
MIXTURE = (
    Case("mixture", "mixture_of_models, by LinOptVI", _job("mixture_of_models", "LinOptVI"), _FEW),
)


def _ablations() -> tuple[Case, ...]:
    of_linear = {
        # With a first block as large as it is.
        "flat priors": LinearPosteriorConstants(prior=Prior(1.0, 1.0), first=2.014),
        "first block half as large": LinearPosteriorConstants(first=1.75),
        "first block twice as large": LinearPosteriorConstants(first=7.0),
        "blocks grow by 1.3": LinearPosteriorConstants(growth=1.3),
        "greedy only when it is nearly sure": LinearPosteriorConstants(ready=0.05),
        "more explorers": LinearPosteriorConstants(explore=1.0, fewest=0.05),
    }
    found, pooled = [], LINEAR[0]
    for words, constants in of_linear.items():
        job = pooled.job.with_options(constants=constants)
        found.append(Case("ablations", pooled.place, job, {1.0: pooled.users[1.0]}, words))
    return tuple(found)


CASES = (*LINEAR, *MIXTURE, *_ablations())


def measure(case: Case, epsilon: float, runs: int) -> dict[str, Any]:
    """All runs of a row; ``None`` where 90 % was not reached for good."""
    results = [case.at(epsilon).run(seed).result for seed in range(runs)]
    return {
        "table": case.table,
        "place": case.place,
        "variant": case.variant,
        "epsilon": epsilon,
        "declared": case.users[epsilon],
        "users_to_90": [result.users_to_90 for result in results],
        "greedy_users_to_90": [result.greedy_users_to_90 for result in results],
    }


def band(users: Sequence[int | None]) -> tuple[float, float, float]:
    """The median and the 10 % and 90 % points; ``None`` counts as infinite."""
    numbers = np.array([math.inf if n is None else float(n) for n in users])
    low, high = np.quantile(numbers, [0.1, 0.9], method="nearest")
    return float(np.median(numbers)), float(low), float(high)


def words(users: Sequence[int | None]) -> str:
    """For a cell.

    >>> words([100, 120, 110]), words([None, None, 5])
    ('110 [100, 120]', 'not reached [5, not reached]')
    """
    middle, low, high = map(amount, band(users))
    return f"{middle} [{low}, {high}]"


def markdown(rows: Sequence[Mapping[str, Any]], table: str) -> str:
    """The rows of one table, as the documentation shows them."""
    some = [row for row in rows if row["table"] == table]
    if table == "ablations":
        lines = ["| world | what is different | users to 90 % | greedy |", "|---|---|---:|---:|"]
    else:
        lines = ["| world | ε | limit | users to 90 % | greedy |", "|---|---|---:|---:|---:|"]
    for row in some:
        epsilon = f"{row['epsilon']:g}" if row["epsilon"] else "not private"
        least = fewest_users(_privacy(row["epsilon"]))
        second = row["variant"] if table == "ablations" else f"{epsilon} | {least}"
        cells = words(row["users_to_90"]), words(row["greedy_users_to_90"])
        lines.append(f"| {row['place']} | {second} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stored() -> dict[str, dict[str, Any]]:
    """All rows that were ever run, by name, in the order of :data:`CASES`."""
    found = json.loads(STORED.read_text()) if STORED.exists() else {}
    names = [case.name(epsilon) for case in CASES for epsilon in case.users]
    return {name: found[name] for name in names if name in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints and stores."""
    parser = Parser(prog="python -m research.fewer_users_linear", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every row")
    parser.add_argument("--again", action="store_true", help="run what is stored as well")
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given = parser.parse_args(arguments)
    for case in () if given.show else CASES:
        for epsilon in case.users:
            name = case.name(epsilon)
            if given.only not in name or (name in stored() and not given.again):
                continue
            row = measure(case, epsilon, given.runs)
            print(f"{name}: {words(row['users_to_90'])}", flush=True)
            rows = json.dumps(stored() | {name: row}, indent=1) + "\n"
            write_atomic(STORED, rows.encode(), 0o644)
    for table in ("linear", "mixture", "ablations"):
        print(f"\n{markdown(list(stored().values()), table)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
