"""Which features fit where nobody has given any: two public rules, on three environments.

``python -m research.default_features`` runs FittedFunctionalQ on environments of four, six and
eight coordinates, with and without privacy, on monomials of degree two whose coordinates are
divided by what the box says, which is the default; and on kernel features with 40 random centres in
the box, by a public seed.
Returns of the greedy policy are in the environment's own units. Results are in
``research/default_features.json``, written after every run, and what is stored is not run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from research.command_lines import Parser
from tacit import FittedFunctionalQ, JointDP, NonPrivate
from tacit.continuous import BoxSpec, Nystroem, cartpole, from_gymnasium

STORED = Path(__file__).with_suffix(".json")
DELTA = 1e-6
RULES = ("box", "random")
CENTRES, LENGTHSCALE = 40, 0.7


@dataclass(frozen=True)
class Row:
    """What is run: an environment, users of so many steps, and a budget."""

    world: str
    users: int
    horizon: int
    epsilon: float | None
    runs: int

    @property
    def name(self) -> str:
        """In the file."""
        return f"{self.world}, {'none' if self.epsilon is None else f'epsilon {self.epsilon:g}'}"


ROWS = (
    *(Row("CartPole", 1_000, 50, epsilon, 10) for epsilon in (None, 10.0, 1.0)),
    *(Row("LunarLander", 300, 200, epsilon, 3) for epsilon in (None, 10.0)),
    *(Row("Acrobot", 200, 200, epsilon, 3) for epsilon in (None, 10.0)),
)


@cache
def world_of(name: str, horizon: int) -> tuple[Any, BoxSpec]:
    """The world, and what is public of it: the box is Gymnasium's, up to 3 where it has no end."""
    if name == "CartPole":
        box = (4.8, 3.0, 0.419, 3.0)
        lows = tuple(-x for x in box)
        return cartpole(steps=500, horizon=horizon), BoxSpec(lows, box, 2, horizon, may_end=True)
    version = {"Acrobot": "v1", "LunarLander": "v3"}[name]
    world = from_gymnasium(f"{name}-{version}", evaluation_users=30, evaluation_steps=500)
    return _shorter(world, horizon), replace(world.spec, horizon=horizon)


def _shorter(world: Any, horizon: int) -> Any:
    """The world, whose users have so many steps; episodes that are evaluated have theirs."""
    world.spec = replace(world.spec, horizon=horizon)
    return world


def measured(row: Row, rule: str, seed: int) -> float:
    """The return of what is learnt, with its defaults."""
    world, spec = world_of(row.world, row.horizon)
    if rule == "random":
        centres = np.random.default_rng(0).uniform(spec.lows, spec.highs, (CENTRES, spec.dimension))
        places = tuple(tuple(centre) for centre in centres.tolist())
        spec = replace(spec, features=Nystroem(spec.lows, spec.highs, places, LENGTHSCALE))
    privacy = NonPrivate() if row.epsilon is None else JointDP(row.epsilon, DELTA)
    noise = {} if row.epsilon is None else {"noise_seed": 10**6 + seed}
    agent = FittedFunctionalQ(spec, row.users, privacy, seed=seed, **noise)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    agent.learn(world.simulate(agent.policy, row.users, rng))
    return round(float(world.value(agent.greedy_policy)), 2)


def table(stored: dict[str, Any]) -> str:
    """What is known, in Markdown."""
    heads = ("world", "privacy", "users", "runs", "uniform actions", "box", "random")
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * 5]
    for row in ROWS:
        found = stored.get(row.name, {})
        if not all(found.get(rule) for rule in RULES):
            continue
        cells = [row.world, "none" if row.epsilon is None else f"ε = {row.epsilon:g}"]
        runs = min(len(found[rule]) for rule in RULES)
        cells += [f"{row.users:,}", str(runs), f"{stored['uniform'][row.world]:.0f}"]
        for rule in RULES:
            low, middle, high = np.quantile(list(found[rule].values()), [0.25, 0.5, 0.75])
            cells.append(f"{middle:.0f} [{low:.0f}, {high:.0f}]")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not stored yet, and prints the table."""
    parser = Parser("python -m research.default_features", str(__doc__))
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    given = parser.parse_args(arguments)
    for row in ROWS:
        for rule in RULES if given.rows in row.name else ():
            for seed in range(row.runs):
                stored = load()
                if str(seed) in stored.get(row.name, {}).get(rule, {}):
                    continue
                found = measured(row, rule, seed)
                uniform = float(world_of(row.world, row.horizon)[0].baseline_value)
                stored.setdefault("uniform", {})[row.world] = round(uniform, 2)
                stored.setdefault(row.name, {}).setdefault(rule, {})[str(seed)] = found
                STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(table(load()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
