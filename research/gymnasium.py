"""Twenty environments of Gymnasium, each by its one-line command: returns, private and not.

``python -m research.gymnasium`` runs what is missing and stores every cell as it is there, in
``research/gymnasium.json``; with ``--again`` it runs all, with names only those, with ``--columns``
only some. ``--runs 1`` is quick. Stable-Baselines3 runs beside ours where ``make peers-sb3`` made
its environment; ``pip install minigrid mujoco imageio`` brings six of the environments. ``--show``
prints the tables: medians of some runs in the environment's own units, of what all users got who
were served, and of the greedy policy in the end; and what runs at epsilon 1 say of themselves.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

import tacit
from research.study import DELTA, PLAIN, Parser, joint, load, store, whole
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import usual_users
from tacit.simulation.verdict import verdict

HERE = Path(__file__).parents[1]
PEER = HERE / ".venv-sb3" / "bin" / "python"
SCRIPT = HERE / "benchmarks" / "peers" / "sb3_agents.py"
BUDGETS = {"not private": None, "epsilon 10": 10.0, "epsilon 1": 1.0}
"""Columns of ours, with what they spend."""

SB3 = "Stable-Baselines3"
COLUMNS = (*BUDGETS, SB3)


def _minigrid() -> Any:
    import minigrid  # type: ignore[import-not-found]  # noqa: F401  # registers it

    return gymnasium.make("MiniGrid-Empty-5x5-v0")


def minigrid_numbers() -> Any:
    """A room of MiniGrid, of which an agent sees its place and direction as whole numbers."""
    env = _minigrid()
    seen = spaces.MultiDiscrete([5, 5, 4])
    own = env.unwrapped
    return TransformObservation(env, lambda _: np.array([*own.agent_pos, own.agent_dir]), seen)


def minigrid_dict() -> Any:
    """The same room with a Dict of the place, in numbers, and the direction."""
    env = _minigrid()
    own = env.unwrapped
    seen = spaces.Dict({"place": spaces.Box(0.0, 4.0, (2,)), "direction": spaces.Discrete(4)})

    def see(_: Any) -> dict[str, Any]:
        return {"place": np.array(own.agent_pos, np.float32), "direction": own.agent_dir}

    return TransformObservation(env, see, seen)


@dataclass(frozen=True)
class Row:
    """An environment.

    Attributes:
        name: its id, or the name of a function of this module that makes it.
        seen: its observations, in words.
        runs: seeds of a cell, as many as some minutes allow.
        peer_runs: the same of Stable-Baselines3.
        zoo: what Stable-Baselines3's RL Zoo publishes of its best agent of those we know, if any.
        users: how many; as many as the command takes by itself if not given.
        options: of our world.
    """

    name: str
    seen: str
    runs: int = 1
    peer_runs: int = 0
    zoo: str = ""
    users: int | None = None
    options: str = ""

    @property
    def world(self) -> str:
        """What ours is run on."""
        if self.name in globals():
            return f"research.gymnasium.{self.name}"
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
    Row("FrozenLake-v1", "16 states", 3, 1),
    Row("FrozenLake8x8-v1", "64 states", 3, 1),
    Row("Taxi-v4", "500 states", 3, 1),
    Row("CliffWalking-v1", "48 states", 3, 1),
    Row("CliffWalkingSlippery-v1", "48 states", 3),
    Row("Blackjack-v1", "Tuple, 704 states", 1, 1),
    Row("minigrid_numbers", "MultiDiscrete, 100 states"),
    Row("minigrid_dict", "Dict, 6 numbers"),
    Row("minigrid:MiniGrid-Empty-5x5-v0", "Dict with text"),
    Row("MountainCar-v0", "Box of 2", 1, 1, zoo="-101", users=20_000),
    Row("MountainCarContinuous-v0", "Box of 2"),
    Row("Pendulum-v1", "Box of 3", 3, 1, zoo="-172"),
    Row("CartPole-v1", "Box of 4", 1, 1, zoo="500"),
    Row("InvertedPendulum-v5", "Box of 4"),
    Row("Acrobot-v1", "Box of 6", 1, 1, zoo="-77", users=10_000, options="angles=true"),
    Row("LunarLander-v3", "Box of 8", 1, 1, zoo="154"),
    Row("LunarLanderContinuous-v3", "Box of 8"),
    Row("Reacher-v5", "Box of 10"),
    Row("BipedalWalker-v3", "Box of 24"),
    Row("CarRacing-v3", "pixels"),
)


def key(row: Row, column: str) -> str:
    """A cell, as stored."""
    return f"{row.name}; {column}"


def measured(row: Row, column: str, seeds: range) -> dict[str, Any]:
    """The runs of a cell; run k is what the command prints with ``--seed k``."""
    if column == SB3:
        return beside(row, [played(row, seed) for seed in seeds])
    epsilon, began, first = BUDGETS[column], time.process_time(), list[Any]()
    privacy, told = PLAIN if epsilon is None else joint(epsilon), {"command": row.command(column)}
    try:
        world: Any = tacit.world(row.world)
        users = usual_users(world) if row.users is None else row.users
        given: dict[str, Any] = {"users": users, "privacy": privacy, "progress": False}
        results = [
            tacit.run("auto", world, seed, control=seed == seeds[0], callback=first.append, **given)
            for seed in seeds
        ]
    except InvalidArgument as error:
        return told | {"refused": str(error), "seconds": round(time.process_time() - began, 1)}
    best, spread = results[0].optimal_value, 0.0
    if not getattr(world, "exact", True):
        spread = world.estimate(first[0].policy, world.evaluation_users)[1]
    return told | {
        "agent": results[0].agent,
        "users": users,
        "served": [round(result.served_value, 4) for result in results],
        "greedy": [round(result.greedy_value, 4) for result in results],
        "random": round(results[0].baseline_value, 4),
        "error": round(spread, 4),
        "optimum": None if best != best else round(best, 4),
        "verdict": verdict(results),
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
    """What users got, and the greedy policy with its spread.

    >>> cell({"served": [0.5, 0.25, 1.0], "greedy": [1.0, 3.0, 2.0]})
    '0.5; greedy 2 (1 to 3)'
    >>> cell({"served": [1.0, 1.0], "greedy": [2.0, 2.0]}), cell(None), cell({"refused": "no"})
    ('1; greedy 2', 'not run', 'refused')
    """
    if found is None or "refused" in found:
        return "not run" if found is None else "refused"
    least, most = (number(end(found["greedy"])) for end in (min, max))
    ends = f" ({least} to {most})" if least != most else ""
    middle = [number(statistics.median(found[name])) for name in ("served", "greedy")]
    earlier = " †" if "optimum" in found and "verdict" not in found else ""
    return f"{middle[0]}; greedy {middle[1]}{ends}{earlier}"


def table(stored: dict[str, Any]) -> str:
    """Returns, as the documentation shows them."""
    head = "environment | users | random | not private | epsilon 10 | epsilon 1 | "
    lines = [f"| {head}Stable-Baselines3 | best known |", "|---" * 8 + "|"]
    for row in ROWS:
        cells = [stored.get(key(row, column)) for column in COLUMNS]
        known = next((found for found in cells[:-1] if found and "users" in found), None)
        if known is None:
            continue
        best = f"{row.zoo} (zoo)" if row.zoo else ""
        if known["optimum"] is not None:
            best = f"{number(known['optimum'])} (optimum)"
        peer = ""
        if (found := cells[-1]) is not None:
            peer = f"{found['agent']}, {found['users']:,} episodes: {cell(found)}"
        shown = [f"{known['users']:,}", number(known["random"]), *map(cell, cells[:-1]), peer, best]
        lines.append(f"| {row.world.rpartition('gym:')[2]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def verdicts(stored: dict[str, Any]) -> str:
    """What runs at epsilon 1 say of themselves, or why there are none, and their time."""
    lines = ["| environment | observations | seconds | at epsilon 1 |", "|---|---|---:|---|"]
    for row in ROWS:
        found = stored.get(key(row, "epsilon 1"), {})
        words, seconds = "not run by today's code", ""
        if "refused" in found or "verdict" in found:
            words = found.get("verdict") or f"refused: {found['refused'].partition(':')[0]}"
            words = "better than all" if words.startswith("better") else words
            seconds = number(found["seconds"] / len(found.get("served", "1")))
        lines.append(f"| {row.name} | {row.seen} | {seconds} | {words} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
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
            if column == SB3 and not (PEER.exists() and row.peer_runs):
                continue
            runs = chosen.runs or (row.peer_runs if column == SB3 else row.runs)
            there = load("gymnasium").get(key(row, column), {"served": ""})
            if len(there.get("served", " " * runs)) >= runs and not chosen.again:
                continue
            found = measured(row, column, range(runs))
            store("gymnasium", load("gymnasium") | {key(row, column): found})
            print(f"{key(row, column)}: {json.dumps(found)}", flush=True)
    print(table(load("gymnasium")), verdicts(load("gymnasium")), sep="\n\n")


if __name__ == "__main__":
    main()
