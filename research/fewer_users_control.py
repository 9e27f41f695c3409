"""Whether few large blocks and less exploring save users in control.

``python -m research.fewer_users_control`` tries CertaintyEquivalence with larger first blocks,
faster growth and less noise in controls, on seeds 500 to 509; and what is best of it on seeds 0 to
9. Results are in
``research/fewer_users_control.json``; what is stored is not run again.
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
from research.worlds import build
from tacit.lq.certainty_equivalence import LQConstants
from tacit.simulation.run import noise_seed

STORED = Path(__file__).with_suffix(".json")
SEEDS, HELD_OUT = range(500, 510), range(10)


@dataclass(frozen=True)
class Case:
    """An agent in a world, and what is different from its defaults."""

    agent: str
    world: str
    users: int
    privacy: tacit.JointDP
    variant: str
    options: tuple[tuple[str, Any], ...] = ()
    held_out: bool = False

    @property
    def name(self) -> str:
        """As stored."""
        return f"{self.world}, {self.variant}{', held out' * self.held_out}"

    def measured(self) -> dict[str, Any]:
        """Users to 90 %, serving and greedy, and the mean loss of all who were served."""
        found: dict[str, list[Any]] = {"serving": [], "greedy": [], "loss": [], "last": []}
        for seed in HELD_OUT if self.held_out else SEEDS:
            own = self.world.startswith("random_system")
            world = build(f"{self.world},seed={seed}" if own else self.world)
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
            found["last"].append((result.optimal_value - result.final_value) / gain)
        return found


CONTROL: dict[str, dict[str, Any]] = {
    "as it is": {},
    "first block twice as large": {"first": 14.0},
    "first block half as large": {"first": 3.5},
    "blocks double": {"growth": 2.0},
    "noise may cost half": {"explore": 0.5},
    "noise may cost a fifth": {"explore": 0.2},
}
_ONE = tacit.JointDP(1.0, 1e-6)
_SYSTEMS = tuple(
    f"random_system:n={n},d={d},horizon={H}"
    for n, d, H in ((2, 1, 10), (3, 2, 15), (4, 2, 20), (6, 3, 30))
)
CASES = (
    *(
        Case("CertaintyEquivalence", world, 5_000, _ONE, variant, constants)
        for world in _SYSTEMS[:2]
        for variant, given in CONTROL.items()
        for constants in [(("constants", LQConstants(**given)),)]
    ),
    *(
        Case("CertaintyEquivalence", world, 20_000, _ONE, variant, constants, held_out=True)
        for world in (*_SYSTEMS, "dosing")
        for variant in ("as it is", "noise may cost a fifth")
        for constants in [(("constants", LQConstants(**CONTROL[variant])),)]
    ),
)


def table(stored: dict[str, Any], agent: str, held_out: bool = False) -> str:
    """The cases of an agent, in Markdown."""
    lines = [
        "| world | what is different | users to 90 % | greedy | mean loss | last loss |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for case in CASES:
        row = stored.get(case.name)
        if (case.agent, case.held_out) != (agent, held_out) or row is None:
            continue
        cells = [words(row[key]) for key in ("serving", "greedy")]
        cells += [f"{np.median(row[key]):.2g}" for key in ("loss", "last")]
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
    for agent, held_out in dict.fromkeys((case.agent, case.held_out) for case in CASES):
        print(f"{table(stored, agent, held_out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
