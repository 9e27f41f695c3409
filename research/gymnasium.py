"""Ten environments of Gymnasium, each by its one-line command: returns, private and not.

``python -m research.gymnasium`` runs what is missing and stores every cell as it is there, in
``research/gymnasium.json``; so does ``--runs 1``, quickly, and then the same without it. With
``--again`` it runs all, and with names only those. ``--show``
prints the table of docs/environments.md. A cell is the median return of the greedy policy of some
runs, in the environment's own units, with the least and the most. Users are as many as a cell of
about a minute allows, and are written beside it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tacit
from research.command_lines import Parser, whole
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.privacy.storage import write_atomic

STORED = Path(__file__).with_suffix(".json")
RUNS, DELTA = 3, 1e-6
EPSILONS = (None, 10.0, 1.0)
"""Budgets of the columns; ``None`` is without privacy."""

ZOO = "Stable-Baselines3's RL Zoo, as published"
OPTIMUM = "the optimum, computed"


@dataclass(frozen=True)
class Row:
    """An environment.

    Attributes:
        name: its id.
        users: without privacy, at epsilon 10 and at epsilon 1.
        zoo: what Stable-Baselines3's zoo publishes for its best agent of those we know, if any.
    """

    name: str
    users: tuple[int, int, int]
    zoo: str = ""

    def command(self, epsilon: float | None) -> str:
        """What a cell is run by; ``--seeds 3`` gives all of its runs."""
        users = self.users[EPSILONS.index(epsilon)]
        budget = "--privacy none"
        if epsilon is not None:
            budget = f"--epsilon {epsilon:g} --delta {DELTA:g}"
        return f"tacit run --world gym:{self.name} {budget} --users {users}"


ROWS = (
    Row("FrozenLake-v1", (10_000, 300_000, 1_000_000)),
    Row("FrozenLake8x8-v1", (10_000, 100_000, 300_000)),
    Row("Taxi-v4", (10_000, 300_000, 300_000)),
    Row("CliffWalking-v1", (10_000, 300_000, 1_000_000)),
    Row("Blackjack-v1", (20_000, 50_000, 50_000)),
    Row("CartPole-v1", (1_000, 2_000, 4_000), "500"),
    Row("Acrobot-v1", (100, 200, 200), "-77"),
    Row("MountainCar-v0", (500, 1_000, 2_000), "-101"),
    Row("Pendulum-v1", (200, 1_000, 2_000), "-172"),
    Row("LunarLander-v3", (200, 500, 500)),
)


def budget(epsilon: float | None) -> Privacy:
    """The budget of a column."""
    return NonPrivate() if epsilon is None else JointDP(epsilon, DELTA)


def key(row: Row, epsilon: float | None) -> str:
    """A cell, as stored."""
    return f"{row.name}; {'not private' if epsilon is None else f'epsilon {epsilon:g}'}"


def measured(row: Row, epsilon: float | None, runs: int = RUNS) -> dict[str, Any]:
    """The runs of a cell; run k is what the command prints with ``--seed k``."""
    users = row.users[EPSILONS.index(epsilon)]
    world, privacy, began = tacit.world(f"gym:{row.name}"), budget(epsilon), time.process_time()
    results = [
        tacit.run("auto", world, seed, progress=False, users=users, privacy=privacy)
        for seed in range(runs)
    ]
    best = results[0].optimal_value
    return {
        "command": row.command(epsilon),
        "agent": results[0].agent,
        "users": users,
        "greedy": [round(result.greedy_value, 4) for result in results],
        "last": [round(result.final_value, 4) for result in results],
        "random": round(results[0].baseline_value, 4),
        "optimum": None if best != best else round(best, 4),
        "seconds": round(time.process_time() - began, 1),
    }


def load() -> dict[str, Any]:
    """What was measured, by cell."""
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


def number(value: float) -> str:
    """A return in a cell.

    >>> number(-13.0), number(0.7417), number(471.333)
    ('-13.0', '0.742', '471')
    """
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.{1 if abs(value) < 100 else 0}f}"


def cell(found: dict[str, Any] | None) -> str:
    """Median, spread and users.

    >>> cell({"greedy": [1.0, 3.0, 2.0], "users": 5000}), cell({"greedy": [1.0], "users": 10})
    ('2 (1 to 3), 5,000', '1, 10, one run')
    """
    if found is None:
        return ""
    several, users = found["greedy"], f"{found['users']:,}"
    if len(several) == 1:
        return f"{number(several[0])}, {users}, one run"
    ends = f"{number(min(several))} to {number(max(several))}"
    return f"{number(statistics.median(several))} ({ends}), {users}"


def table(stored: dict[str, Any]) -> str:
    """As the documentation shows it."""
    lines = [
        "| environment | random | not private | epsilon 10 | epsilon 1 | beside it |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        cells = [stored.get(key(row, epsilon)) for epsilon in EPSILONS]
        known = next((found for found in cells if found), None)
        if known is None:
            continue
        beside = f"{row.zoo} (zoo)" if row.zoo else ""
        if known["optimum"] is not None:
            beside = f"{number(known['optimum'])} (optimum)"
        shown = [number(known["random"]), *map(cell, cells), beside]
        lines.append(f"| {row.name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the table."""
    first = (__doc__ or "").partition("\n")[0]
    parser = Parser(prog="python -m research.gymnasium", description=first)
    parser.add_argument("names", nargs="*", help="environments; all by default")
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of a cell")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--show", action="store_true", help="print what is stored, and run nothing")
    chosen = parser.parse_args(arguments)
    wanted = [row for row in ROWS if not chosen.names or row.name in chosen.names]
    for row in () if chosen.show else wanted:
        for epsilon in EPSILONS:
            name = key(row, epsilon)
            there = load().get(name, {"greedy": []})["greedy"]
            if len(there) >= chosen.runs and not chosen.again:
                continue
            found = measured(row, epsilon, chosen.runs)
            # Read again: several may run side by side, with names of their own.
            content = json.dumps(load() | {name: found}, indent=1, sort_keys=True)
            write_atomic(STORED, f"{content}\n".encode(), 0o644)
            print(f"{name}: {found['agent']}, {cell(found)}, {found['seconds']} s", flush=True)
    print(table(load()))


if __name__ == "__main__":
    main()
