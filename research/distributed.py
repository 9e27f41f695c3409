"""What it costs that nobody is trusted: users needed under joint, distributed and local DP.

``python -m research.distributed`` runs the agents that ``tacit.agent`` chooses on riverswim(6) and
riverswim(8) at epsilon 1, and stores users_to_90 of every seed in ``research/distributed.json``,
which docs/distributed.md shows. What is stored is not run again unless ``--again`` is given. No
constant was chosen for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tacit
from research.command_lines import Parser
from research.epsilon_cost import DELTA
from tacit.registry import build_world
from tacit.simulation.result import median, users_words
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")
SEEDS = range(10)
WORLDS = ("riverswim", "riverswim:states=8,horizon=20")
MODELS: dict[str, tuple[tacit.JointDP | tacit.LocalDP | tacit.DistributedDP, int]] = {
    "joint": (tacit.JointDP(1.0, DELTA), 60_000),
    "distributed, 95 % honest": (tacit.DistributedDP(1.0, DELTA), 60_000),
    "distributed, half honest": (tacit.DistributedDP(1.0, DELTA, honest=0.5), 60_000),
    "local": (tacit.LocalDP(1.0, DELTA), 10**9),
}


def measured(world: str, model: str) -> list[float | None]:
    """users_to_90 of every seed; ``None`` where it is not reached."""
    privacy, users = MODELS[model]
    made = build_world(world)
    found: list[float | None] = []
    for seed in SEEDS:
        agent = tacit.agent(
            made.spec, users=users, privacy=privacy, seed=seed, noise_seed=noise_seed(seed)
        )
        found.append(tacit.run(agent, made, seed=seed, progress=False).users_to_90)
    return found


def lines(stored: dict[str, Any]) -> list[str]:
    """The table of the page."""
    head = ["| world | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    return head + [
        f"| {world} | " + " | ".join(_words(stored[world][model]) for model in MODELS) + " |"
        for world in WORLDS
    ]


def _words(found: list[float | None]) -> str:
    reached = sum(users is not None for users in found)
    words = users_words(median(found))
    return words if reached == len(found) else f"{words} ({reached} of {len(found)} runs)"


def main(arguments: list[str]) -> None:
    """See the module."""
    parser = Parser(prog="python -m research.distributed", description=__doc__)
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--show", action="store_true", help="print what is stored, run nothing")
    given = parser.parse_args(arguments)
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    for world in [] if given.show else WORLDS:
        for model in MODELS:
            if given.again or model not in stored.get(world, {}):
                stored.setdefault(world, {})[model] = measured(world, model)
                STORED.write_text(json.dumps(stored, indent=1) + "\n")
                print(world, model, stored[world][model], flush=True)
    print("\n".join(lines(stored)))


if __name__ == "__main__":
    main(sys.argv[1:])
