"""Ten environments of Gymnasium, each by its one-line command: returns, private and not.

``python -m research.gymnasium`` runs what is missing and stores every cell as it is there, in
``research/gymnasium.json``; with ``--again`` it runs all, with names only those, with ``--columns``
only some. ``--runs 1`` is quick. Stable-Baselines3 runs beside ours where ``make peers-sb3`` made
its environment. ``--show`` prints the table of docs/environments.md: medians of some runs in the
environment's own units, of what all users got who were served, and of the greedy policy in the end.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tacit
from research.study import DELTA, PLAIN, Parser, joint, load, store, whole
from tacit.simulation.run import usual_users

HERE = Path(__file__).parents[1]
PEER = HERE / ".venv-sb3" / "bin" / "python"
SCRIPT = HERE / "benchmarks" / "peers" / "sb3_agents.py"
BUDGETS = {"not private": None, "epsilon 10": 10.0, "epsilon 1": 1.0}
"""Columns of ours, with what they spend."""

SB3 = "Stable-Baselines3"
COLUMNS = (*BUDGETS, SB3)


@dataclass(frozen=True)
class Row:
    """An environment.

    Attributes:
        name: its id.
        runs: seeds of a cell, as many as some minutes allow.
        peer_runs: the same of Stable-Baselines3.
        zoo: what Stable-Baselines3's RL Zoo publishes of its best agent of those we know, if any.
        users: how many; as many as the command takes by itself if not given.
        options: of our world.
    """

    name: str
    runs: int
    peer_runs: int = 1
    zoo: str = ""
    users: int | None = None
    options: str = ""

    @property
    def world(self) -> str:
        """What ours is run on."""
        return f"gym:{self.name}{self.options and f',{self.options}'}"

    def command(self, column: str) -> str:
        """What a cell is run by; ``--seeds 10`` gives ten of its runs."""
        if column == SB3:
            return f"python benchmarks/peers/sb3_agents.py {self.name}"
        epsilon = BUDGETS[column]
        budget = "--privacy none"
        if epsilon is not None:
            budget = f"--epsilon {epsilon:g} --delta {DELTA:g}"
        users = "" if self.users is None else f" --users {self.users}"
        return f"tacit run --world {self.world} {budget}{users}"


ROWS = (
    Row("FrozenLake-v1", 10),
    Row("FrozenLake8x8-v1", 3),
    Row("Taxi-v4", 3),
    Row("CliffWalking-v1", 10),
    Row("Blackjack-v1", 3),
    Row("CartPole-v1", 3, zoo="500"),
    Row("Acrobot-v1", 3, zoo="-77", users=10_000, options="angles=true"),
    Row("MountainCar-v0", 3, zoo="-101", users=20_000),
    Row("Pendulum-v1", 3, zoo="-172"),
    Row("LunarLander-v3", 3, zoo="154"),
)


def key(row: Row, column: str) -> str:
    """A cell, as stored."""
    return f"{row.name}; {column}"


def measured(row: Row, column: str, seeds: range) -> dict[str, Any]:
    """The runs of a cell; run k is what the command prints with ``--seed k``."""
    if column == SB3:
        return beside(row, [played(row, seed) for seed in seeds])
    world, epsilon, began = tacit.world(row.world), BUDGETS[column], time.process_time()
    privacy = PLAIN if epsilon is None else joint(epsilon)
    users = usual_users(world) if row.users is None else row.users
    results = [
        tacit.run("auto", world, seed, progress=False, users=users, privacy=privacy)
        for seed in seeds
    ]
    best = results[0].optimal_value
    return {
        "command": row.command(column),
        "agent": results[0].agent,
        "users": users,
        "served": [round(result.served_value, 4) for result in results],
        "greedy": [round(result.greedy_value, 4) for result in results],
        "random": round(results[0].baseline_value, 4),
        "optimum": None if best != best else round(best, 4),
        "seconds": round(time.process_time() - began, 1),
    }


def played(row: Row, seed: int) -> dict[str, Any]:
    """A run of Stable-Baselines3, in its own environment, with episodes as long as ours."""
    horizon = tacit.world(f"gym:{row.name}").spec.horizon
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "run.json")
        arguments = [str(PEER), str(SCRIPT), row.name, str(horizon), str(seed), str(target)]
        subprocess.run(arguments, check=True, cwd=folder)  # noqa: S603
        found: dict[str, Any] = json.loads(target.read_text())
        return found


def beside(row: Row, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Runs of Stable-Baselines3 as a cell."""
    return {
        "command": row.command(SB3),
        "agent": runs[0]["agent"],
        "steps": runs[0]["steps"],
        "users": round(statistics.median(run["episodes"] for run in runs)),
        "served": [round(run["served"], 4) for run in runs],
        "greedy": [round(run["greedy"], 4) for run in runs],
        "seconds": round(sum(run["seconds"] for run in runs), 1),
    }


def number(value: float) -> str:
    """A return in a cell.

    >>> number(-13.0), number(0.7417), number(471.333)
    ('-13.0', '0.742', '471')
    """
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.{1 if abs(value) < 100 else 0}f}"


def cell(found: dict[str, Any] | None) -> str:
    """What users got, the greedy policy with its spread, and how many runs there were.

    >>> cell({"served": [0.5, 0.25, 1.0], "greedy": [1.0, 3.0, 2.0]})
    '0.5; greedy 2 (1 to 3); 3 runs'
    >>> cell({"served": [1.0, 1.0], "greedy": [2.0, 2.0]}), cell(None)
    ('1; greedy 2; 2 runs', 'not run')
    """
    if found is None:
        return "not run"
    greedy, runs = found["greedy"], len(found["greedy"])
    least, most = number(min(greedy)), number(max(greedy))
    ends = f" ({least} to {most})" if least != most else ""
    middle = [number(statistics.median(found[name])) for name in ("served", "greedy")]
    return f"{middle[0]}; greedy {middle[1]}{ends}; {runs} run{'s' if runs > 1 else ''}"


def table(stored: dict[str, Any]) -> str:
    """As the documentation shows it."""
    lines = [
        "| environment | users | random | not private | epsilon 10 | epsilon 1 | "
        "Stable-Baselines3 | best known |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        cells = [stored.get(key(row, column)) for column in COLUMNS]
        known = next((found for found in cells[:-1] if found), None)
        best = f"{row.zoo} (zoo)" if row.zoo else ""
        if known and known["optimum"] is not None:
            best = f"{number(known['optimum'])} (optimum)"
        users, random = (f"{known['users']:,}", number(known["random"])) if known else ("", "")
        peer = cell(cells[-1])
        if (found := cells[-1]) is not None:
            peer = f"{found['agent']}, {found['users']:,} episodes: {peer}"
        shown = [users, random, *map(cell, cells[:-1]), peer, best]
        lines.append(f"| {row.world.removeprefix('gym:')} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the table."""
    first = (__doc__ or "").partition("\n")[0]
    parser = Parser("research.gymnasium", first)
    parser.add_argument("names", nargs="*", help="environments; all by default")
    parser.add_argument("--runs", type=whole(1), help="seeds of a cell; each row's own by default")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS, help="all")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--show", action="store_true", help="print what is stored, and run nothing")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - {row.name for row in ROWS}:
        parser.error(f"no environment of the table: {', '.join(sorted(unknown))}")
    wanted = [row for row in ROWS if not chosen.names or row.name in chosen.names]
    for row in () if chosen.show else wanted:
        for column in chosen.columns:
            if column == SB3 and not PEER.exists():
                print(f"{key(row, column)}: not run, make peers-sb3 is needed", file=sys.stderr)
                continue
            runs = chosen.runs or (row.peer_runs if column == SB3 else row.runs)
            there = load("gymnasium").get(key(row, column), {"greedy": []})["greedy"]
            if len(there) >= runs and not chosen.again:
                continue
            found = measured(row, column, range(runs))
            store("gymnasium", load("gymnasium") | {key(row, column): found})
            words = f"{found['agent']}, {cell(found)}, {found['seconds']} s"
            print(f"{key(row, column)}: {words}", flush=True)
    print(table(load("gymnasium")))


if __name__ == "__main__":
    main()
