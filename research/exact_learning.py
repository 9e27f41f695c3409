"""What exact noise costs in learning: the same agents with real noise and with simulated floats.

Users of both kinds of runs are simulated one by one from the same seeds; only the noise differs.
What is compared is the value of the last policy above that of one that learnt nothing, as a share
of what there is to gain: means over the seeds with the standard error of their difference.

In a clone of the repository ``python -m research.exact_learning`` prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import Parser, whole
from tacit.core.world import World
from tacit.privacy.models import JointDP
from tacit.registry import build_world

# Agents, worlds, and as many users as make the last policy's value steep in the noise.
ROWS: tuple[tuple[Callable[..., tacit.Agent], str, int], ...] = (
    (tacit.UCBVI, "riverswim:states=4,horizon=8", 2_000),
    (tacit.PSRL, "riverswim:states=4,horizon=8", 2_000),
    (tacit.LSVIUCB, "simplex:dimension=3,states=8,actions=3,horizon=4", 1_500),
    (tacit.LinOptVI, "mixture_of_models:dimension=3,states=4,actions=4,horizon=4,seed=700", 400),
    (tacit.CertaintyEquivalence, "double_integrator", 1_000),
    (tacit.FittedFunctionalQ, "line", 60),
)
MODEL = JointDP(1.0, 1e-5)


def gained(
    make: Callable[..., tacit.Agent], world: World, users: int, seed: int, noise_seed: int | None
) -> float:
    """The last policy's share of what there is to gain."""
    agent = make(world.spec, users, MODEL, seed=seed, noise_seed=noise_seed)
    rng = np.random.default_rng([seed, 17])
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    idle = world.baseline_value
    return float((world.value(agent.greedy_policy) - idle) / (world.optimal_value - idle))


def row(
    make: Callable[..., tacit.Agent], world: World, users: int, seeds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares with real, exact noise, and with simulated floats."""
    exact = [gained(make, world, users, seed, None) for seed in range(seeds)]
    floats = [gained(make, world, users, seed, 1000 + seed) for seed in range(seeds)]
    return np.array(exact), np.array(floats)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = Parser("python -m research.exact_learning", (__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=whole(2), default=100, help="runs of each kind")
    seeds = parser.parse_args(arguments).seeds
    say = sys.stdout.write
    say("| agent | world | users | exact | floats | difference | standard error |\n")
    say("|---|---|---:|---:|---:|---:|---:|\n")
    for make, name, users in ROWS:
        world = build_world(name)
        exact, floats = row(make, world, users, seeds)
        error = float(np.hypot(exact.std(), floats.std()) / np.sqrt(seeds))
        gap = exact.mean() - floats.mean()
        say(
            f"| {getattr(make, 'name', make)} | {name.partition(':')[0]} | {users:,} | "
            f"{exact.mean():.3f} | {floats.mean():.3f} | {gap:+.3f} | {error:.3f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
