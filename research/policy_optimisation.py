"""How policy optimisation learns, beside value iteration on the same releases.

``python -m research.policy_optimisation`` runs UCBPO and LinOptPO as they are shipped: without
privacy, how regret grows with the number of users that are declared, from 10^4 to 10^8; at epsilon
1, how many users it takes until served users have 90 % of what there is to gain. It stores what it
finds in ``research/policy_optimisation.json``, which the pages of both agents show; what is stored
already is not run again unless ``--again`` is given.

The step size and the share of the width were fixed after a look at riverswim, two ``random_mdp``
worlds, keyboard, ``hard_mixture`` and one ``mixture_of_models``, with seeds 0 to 2, and how steps
grow after a look at how long riverswim and grid take. These runs have seeds 10 to 19; the other
``mixture_of_models`` was never looked at before.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser, whole
from research.epsilon_cost import DELTA
from research.worlds import build
from research.worlds.mixture import mixture_from_tabular
from tacit.core.world import World
from tacit.simulation.result import Result, median, users_words
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")
USERS = (10**4, 10**5, 10**6, 10**7, 10**8)
PRIVATE_USERS, FEW_USERS = 10**6, 10**5
PAIRS = (
    ("riverswim", "UCBPO", "UCBVI"),
    ("keyboard", "UCBPO", "UCBVI"),
    ("keyboard", "LinOptPO", "LinOptVI"),
    ("riverswim, as a mixture", "LinOptPO", "LinOptVI"),
    ("mixture_of_models:seed=700", "LinOptPO", "LinOptVI"),
)
"""Worlds, agents that optimise policies, and those that iterate values beside them."""


def world_of(name: str) -> World:
    """A world by its name in the tables."""
    kind, _, mixture = name.partition(",")
    made = build(kind)
    return mixture_from_tabular(made) if mixture else made


def results(
    name: str, agent: str, users: int, epsilon: float | None, seeds: Sequence[int]
) -> list[Result]:
    """A run of every seed, by the shipped defaults."""
    found, world = [], world_of(name)
    for seed in seeds:
        privacy = tacit.NonPrivate() if epsilon is None else tacit.JointDP(epsilon, DELTA)
        noise = {} if epsilon is None else {"noise_seed": noise_seed(seed)}
        made = getattr(tacit, agent)(world.spec, users, privacy, seed=seed, **noise)
        found.append(tacit.run(made, world, seed=seed, progress=False))
    return found


def measured(key: str, seeds: Sequence[int]) -> dict[str, Any]:
    """One entry: regrets by users, or users to 90 %, of every seed."""
    name, agent, what = key.split("; ")
    if what == "not private":
        regrets = {
            f"{users:.0e}": [float(r.regret[-1]) for r in results(name, agent, users, None, seeds)]
            for users in USERS
        }
        return {"regret": regrets}
    few = results(name, agent, FEW_USERS, 1.0, seeds)
    many = results(name, agent, PRIVATE_USERS, 1.0, seeds)
    return {
        "users_to_90": [r.users_to_90 for r in many],
        "score": [r.score for r in few],
        "greedy_score": [r.greedy_score for r in few],
    }


def keys() -> list[str]:
    """All entries."""
    grown = [f"{name}; {agent}; not private" for name, agent, _ in PAIRS]
    return grown + [f"{name}; {one}; epsilon 1" for name, *agents in PAIRS for one in agents]


def load() -> dict[str, Any]:
    """What is stored."""
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return stored


# What follows from it.


def regrets(entry: Mapping[str, Any]) -> list[float]:
    """Median regrets, by users."""
    return [float(np.median(values)) for values in entry["regret"].values()]


def slope(entry: Mapping[str, Any]) -> float:
    """By which power of the users the median regret grows, fitted in logarithms."""
    users = np.log([float(users) for users in entry["regret"]])
    return float(np.polyfit(users, np.log(np.maximum(regrets(entry), 1e-9)), 1)[0])


def band(values: Sequence[int | None]) -> str:
    """The median of users to 90 %, and the least and most."""
    ordered = sorted(math.inf if value is None else value for value in values)
    low, high = (users_words(None if math.isinf(x) else x) for x in (ordered[0], ordered[-1]))
    return f"{users_words(median(values))} [{low}, {high}]"


def ratio(stored: Mapping[str, Any], name: str, agent: str, beside: str) -> float:
    """Median users to 90 % of the one, in those of the other."""
    mine, other = (
        median(stored[f"{name}; {one}; epsilon 1"]["users_to_90"]) for one in (agent, beside)
    )
    return float(mine) / float(other) if mine is not None and other else float("inf")


def slopes_table(stored: Mapping[str, Any]) -> str:
    """Median regrets without privacy."""
    titles = "".join(f" {users:.0e} |".replace("e+0", "e") for users in USERS)
    lines = [f"| world | agent |{titles} slope |", "|---|---|" + "---:|" * (len(USERS) + 1)]
    for name, agent, _ in PAIRS:
        entry = stored[f"{name}; {agent}; not private"]
        cells = "".join(f" {value:,.0f} |" for value in regrets(entry))
        lines.append(f"| {name} | {agent} |{cells} {slope(entry):.2f} |")
    return "\n".join(lines)


def users_table(stored: Mapping[str, Any]) -> str:
    """Users to 90 % and scores at epsilon 1."""
    lines = [
        "| world | agent | users to 90 % | times value iteration's | score at 1e5 | greedy score |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, agent, beside in PAIRS:
        for one in (agent, beside):
            entry = stored[f"{name}; {one}; epsilon 1"]
            times = f"{ratio(stored, name, agent, beside):.2f}" if one == agent else ""
            scores = " | ".join(
                f"{float(np.median(entry[what])):.3f}" for what in ("score", "greedy_score")
            )
            lines.append(f"| {name} | {one} | {band(entry['users_to_90'])} | {times} | {scores} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing and prints both tables."""
    parser = Parser("policy_optimisation", "policy optimisation beside value iteration")
    parser.add_argument("--runs", type=whole(1), default=10, help="seeds of every entry, from 10")
    parser.add_argument("--again", action="store_true", help="run what is stored already")
    given = parser.parse_args(arguments)
    stored = {} if given.again else load()
    for key in keys():
        if key not in stored:
            print(key, file=sys.stderr)
            stored[key] = measured(key, range(10, 10 + given.runs))
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
    print(slopes_table(stored), "\n")
    print(users_table(stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
