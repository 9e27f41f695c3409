"""Control with a model of smooth moves, privately: what ModelPosterior reaches, and with how many.

``python -m research.smooth_control`` runs it with its defaults on Gymnasium's classic control, with
and without privacy, with rewards and ends that are known to it and with those that it has to learn.
Users come from one stream of random numbers, noise from another. Constants were chosen on seeds 500
to 511; seeds here are 1000 to 1039, as many of them as the row says. Results are in
``research/smooth_control.json``, written after every run, and what is stored is not run again.
``--rows`` names the rows to run, all by default, and ``--runs`` how many seeds of each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from research.command_lines import Parser
from research.worlds import acrobot, mountain_car, pendulum
from research.worlds.cartpole import cartpole
from tacit import JointDP, ModelPosterior, NonPrivate
from tacit.continuous import (
    SmoothSpec,
)

STORED = Path(__file__).with_suffix(".json")
DELTA, FIRST_SEED, RUNS = 1e-6, 1000, 40
WORLDS: dict[str, Any] = {
    "CartPole": lambda: cartpole(steps=500, horizon=500, discount=0.99),
    "Acrobot": acrobot,
    "MountainCar": mountain_car,
    "Pendulum": pendulum,
}


@dataclass(frozen=True)
class Row:
    """What is run.

    Attributes:
        world: a name of :data:`WORLDS`.
        epsilon: of joint DP, or ``None`` for no privacy.
        users: how many.
        target: what the median return is to reach.
        learnt: whether rewards and ends are unknown to the agent.
        runs: seeds, at most; those of four coordinates take long.
    """

    world: str
    epsilon: float | None
    users: int
    target: float
    learnt: bool = False
    runs: int = RUNS

    @property
    def name(self) -> str:
        """In the file."""
        privacy = "none" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        return f"{self.world}, {privacy}, {self.users}{', learnt' if self.learnt else ''}"


ROWS = (
    Row("Pendulum", None, 128, -200.0, runs=5),
    Row("MountainCar", None, 256, -120.0, runs=5),
    Row("CartPole", None, 128, 475.0, runs=5),
    Row("Acrobot", None, 256, -90.0, runs=5),
    Row("Pendulum", 10.0, 1_100, -150.0),
    Row("Pendulum", 1.0, 10_000, -160.0),
    Row("MountainCar", 10.0, 10_000, -120.0),
    Row("CartPole", 10.0, 1_100, 475.0),
    Row("CartPole", 1.0, 10_000, 450.0),
    Row("Acrobot", 10.0, 10_000, -110.0),
    Row("MountainCar", 1.0, 100_000, -150.0),
    Row("Acrobot", 1.0, 100_000, -150.0),
    Row("Pendulum", None, 128, -200.0, learnt=True, runs=5),
    Row("MountainCar", None, 256, -120.0, learnt=True, runs=5),
    Row("CartPole", None, 128, 475.0, learnt=True, runs=5),
    Row("Acrobot", None, 256, -90.0, learnt=True, runs=5),
    Row("Pendulum", 10.0, 1_100, -150.0, learnt=True),
    Row("Pendulum", 1.0, 10_000, -160.0, learnt=True),
    Row("MountainCar", 10.0, 10_000, -120.0, learnt=True),
    Row("CartPole", 10.0, 1_100, 475.0, learnt=True),
    Row("CartPole", 1.0, 10_000, 450.0, learnt=True),
    Row("Acrobot", 10.0, 10_000, -110.0, learnt=True),
    Row("MountainCar", 1.0, 100_000, -150.0, learnt=True),
    Row("Acrobot", 1.0, 100_000, -150.0, learnt=True),
)


def measured(row: Row, seed: int) -> dict[str, Any]:
    """Returns of the greedy policies after the last two blocks, and of what served the last one."""
    world = WORLDS[row.world]()
    spec: SmoothSpec = world.spec
    if row.learnt:
        spec = replace(spec, reward=None, ends=None)
    private = row.epsilon is not None
    privacy = JointDP(row.epsilon, DELTA) if row.epsilon is not None else NonPrivate()
    noise = 10**6 + seed if private else None
    agent = ModelPosterior(spec, row.users, privacy, seed=seed, noise_seed=noise)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    before = agent.greedy_policy
    while agent.block_users:
        before = agent.greedy_policy
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    found = {"before": before, "greedy": agent.greedy_policy, "served": agent.policy}
    return {name: round(float(world.value(policy)), 2) for name, policy in found.items()}


def table(stored: dict[str, Any], learnt: bool) -> str:
    """Rows that are known, in Markdown."""
    heads = ("world", "privacy", "users", "runs", "median", "10 %", "a block before", "served")
    lines = [f"| {' | '.join((*heads, 'at least'))} |", "|---|---|" + "---:|" * 7]
    for row in ROWS:
        runs = stored.get(row.name, {})
        if row.learnt is not learnt or not runs:
            continue
        values = {k: [run[k] for run in runs.values()] for k in ("greedy", "before", "served")}
        middle, worst = np.median(values["greedy"]), np.quantile(values["greedy"], 0.1)
        kept = "yes" if middle >= row.target else "no"
        cells = [
            row.world,
            "none" if row.epsilon is None else f"ε = {row.epsilon:g}",
            f"{row.users:,}",
            str(len(runs)),
            f"{middle:.0f}",
            f"{worst:.0f}",
            f"{np.median(values['before']):.0f}",
            f"{np.median(values['served']):.0f}",
            f"{row.target:g}: {kept}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not stored yet, a seed of all rows after the other, and prints the tables."""
    parser = Parser("python -m research.smooth_control", str(__doc__))
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    parser.add_argument("--runs", type=int, default=RUNS, help="seeds of every row, at most")
    given = parser.parse_args(arguments)
    for seed in range(FIRST_SEED, FIRST_SEED + given.runs):
        for row in ROWS:
            if given.rows not in row.name or seed >= FIRST_SEED + row.runs:
                continue
            if str(seed) in load().get(row.name, {}):
                continue
            found = measured(row, seed)
            stored = load()  # another process may have stored something meanwhile
            stored.setdefault(row.name, {})[str(seed)] = found
            STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    for learnt in (False, True):
        print(table(load(), learnt), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
