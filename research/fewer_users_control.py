"""Whether few large blocks and less exploring save users in control and with continuous states.

``python -m research.fewer_users_control`` tries CertaintyEquivalence with larger first blocks,
faster growth and less noise in controls, and FunctionalQ with fewer random actions and growing
blocks, on seeds 500 to 509. It stores what it finds in ``research/fewer_users_control.json``; what
is stored is not run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.command_lines import Parser
from research.fewer_users_linear import words
from tacit.lq.base import LQConstants
from tacit.registry import build_world, world_entry
from tacit.simulation.seeds import noise_seed

STORED = Path(__file__).with_suffix(".json")
SEEDS = range(500, 510)


@dataclass(frozen=True)
class Case:
    """An agent in a world, and what is different from its defaults."""

    agent: str
    world: str
    users: int
    privacy: tacit.JointDP
    variant: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """As stored."""
        return f"{self.world}, {self.variant}"

    def measured(self) -> dict[str, Any]:
        """Users to 90 %, serving and greedy, and the mean loss of all who were served."""
        found: dict[str, list[Any]] = {"serving": [], "greedy": [], "loss": []}
        for seed in SEEDS:
            own = "seed" in world_entry(self.world.partition(":")[0]).options
            world = build_world(f"{self.world},seed={seed}" if own else self.world)
            agent = getattr(tacit, self.agent)(
                world.spec,
                self.users,
                self.privacy,
                seed=seed,
                noise_seed=noise_seed(seed),
                **dict(self.options),
            )
            result = tacit.run(agent, world, seed=seed, progress=False)
            gain = abs(result.optimal_value - result.reference_value)
            found["serving"].append(result.users_to_90)
            found["greedy"].append(result.greedy_users_to_90)
            found["loss"].append(float(result.regret[-1]) / result.users / gain)
        return found


CONTROL: dict[str, dict[str, Any]] = {
    "as it is": {},
    "first block twice as large": {"first": 14.0},
    "first block half as large": {"first": 3.5},
    "blocks double": {"growth": 2.0},
    "noise may cost half": {"explore": 0.5},
    "noise may cost a fifth": {"explore": 0.2},
}
ONLINE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one random action in ten": {"epsilon": 0.1},
    "one random action in thirty": {"epsilon": 0.03},
    "blocks grow by half": {"schedule": "geometric:growth=1.5,first=20"},
}
_ONE, _PAPER = tacit.JointDP(1.0, 1e-6), tacit.JointDP(0.9, 1e-4)
CASES = (
    *(
        Case("CertaintyEquivalence", world, 5_000, _ONE, variant, constants)
        for world in ("random_system:n=2,d=1,horizon=10", "random_system:n=3,d=2,horizon=15")
        for variant, given in CONTROL.items()
        for constants in [(("constants", LQConstants(**given)),)]
    ),
    *(
        Case("FunctionalQ", "line:horizon=50", 1_000, _PAPER, variant, tuple(given.items()))
        for variant, given in ONLINE.items()
    ),
)


def table(stored: dict[str, Any], agent: str) -> str:
    """The cases of an agent, in Markdown."""
    lines = [
        "| world | what is different | users to 90 % | greedy | mean loss of all users |",
        "|---|---|---:|---:|---:|",
    ]
    for case in CASES:
        if case.agent == agent and (row := stored.get(case.name)):
            cells = words(row["serving"]), words(row["greedy"]), f"{np.median(row['loss']):.3f}"
            lines.append(f"| {case.world} | {case.variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing, stores and prints."""
    parser = Parser(prog="python -m research.fewer_users_control", description=__doc__)
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given, stored = parser.parse_args(arguments), load()
    for case in () if given.show else CASES:
        if case.name not in stored:
            stored[case.name] = case.measured()
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    for agent in dict.fromkeys(case.agent for case in CASES):
        print(f"{table(stored, agent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
