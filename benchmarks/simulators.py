"""Values of five policies inside private simulators against true ones.

``python -m benchmarks.simulators --output calibration.png`` runs what is not stored yet in
``research/simulator_calibration.json`` and draws it. Intervals have 95 % of the mean returns of 200
simulated users (50 on vectors), each time in another draw of the posterior. The first policy is
uniform and the second the agent's own greedy one; others do not depend on anything that was learnt.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.figures import drawing
from research.study import joint, load, store
from tacit.continuous import Polynomial, QPolicy

FILE, DRAWS, SEEDS = "simulator_calibration", 64, 5
WORLDS = {"riverswim": 20_000, "health_coach": 100_000, "gym:CartPole-v1": 10_000}
NAMES = ("uniform", "greedy", "fixed 1", "fixed 2", "fixed 3")


def policies(world: Any, agent: Any) -> list[Any]:
    """Five of them; on vectors always left, with the lean, and with lean and speed."""
    spec, rng = world.spec, np.random.default_rng(5)
    if hasattr(spec, "lows"):
        map_of, way = Polynomial((1.0,) * 4, 10.0, 1), np.array([[-1.0], [1.0]])
        weights = ([-1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0.5])
        fixed = [QPolicy(map_of, way * row) for row in weights]
        return [QPolicy.uniform(4, 2), agent.greedy_policy, *fixed]
    H, S, A = spec.horizon, spec.states, spec.actions
    own = [np.tile(rng.integers(A, size=S), (H, 1)) for _ in range(3)]
    fixed = [tacit.Policy.deterministic(actions, A) for actions in own]
    return [tacit.Policy.uniform(H, S, A), agent.greedy_policy, *fixed]


def acting(policy: Any) -> Callable[[int, Any, Any], Any]:
    """Actions of many users at a step."""
    if isinstance(policy, QPolicy):
        return policy.act_many
    sums = np.cumsum(policy.table(), axis=-1)[..., :-1]
    return lambda step, at, rng: (rng.random((len(at), 1)) >= sums[step, at]).sum(axis=1)


def inside(env: Any, policy: Any, users: int) -> list[float]:
    """Mean return, and the ends of its interval."""
    model, drawn, act = env.simulator, np.repeat(np.arange(DRAWS), users), acting(policy)
    at, rng = model.begin(len(drawn), np.random.default_rng(0)), np.random.default_rng(1)
    at.drawn, returns, going = drawn, np.zeros(len(drawn)), np.ones(len(drawn), dtype=bool)
    for step in range(model.horizon):
        paid, ended, _ = at.step(act(step, at.states, rng))
        returns, going = returns + going * paid, going & ~ended
        if not going.any():
            break
    means = returns.reshape(DRAWS, users).mean(axis=1)
    return [float(x) for x in (means.mean(), *np.quantile(means, [0.025, 0.975]))]


def learnt(name: str, seed: int) -> tuple[Any, Any]:
    """A world, and an agent that has learnt from all of its users."""
    world = tacit.world(name)
    kind = tacit.ModelPosterior if name.startswith("gym") else tacit.ConcurrentPSRL
    agent = kind(world.spec, WORLDS[name], joint(1.0), noise_seed=seed, seed=seed)
    rng = np.random.default_rng(seed)
    while agent.block_users:  # a run would give actions other labels
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    return world, agent


def measured(name: str, seed: int) -> list[list[float]]:
    """Of each policy its true value, and what it is inside."""
    world, agent = learnt(name, seed)
    env, users = agent.simulator(DRAWS), 50 if name.startswith("gym") else 200
    return [
        [round(x, 4) for x in (world.value(one), *inside(env, one, users))]
        for one in policies(world, agent)
    ]


def paint(path: Path, found: dict[str, list[list[list[float]]]]) -> None:
    """A panel for each world: true values below, those inside with their intervals above."""
    title = "What a private simulator says of a policy, against what it is worth"
    below = "epsilon 1; intervals: mean returns of 200 users in 95 % of the posterior's draws"
    with drawing(path, title, below, panels=len(found), sharey=False) as axes:
        for panel, (name, runs) in zip(axes, found.items(), strict=True):
            rows = np.array(runs).reshape(-1, 4)
            true, mean, low, high = rows.T
            hit = (low <= true) & (true <= high)
            panel.plot([0, rows.max()], [0, rows.max()], color="0.7", lw=1)
            for seen, colour in ((hit, "C0"), (~hit, "C1")):
                bars = [(mean - low)[seen].clip(0), (high - mean)[seen].clip(0)]
                panel.errorbar(true[seen], mean[seen], bars, fmt="o", ms=4, lw=1, color=colour)
            panel.set_title(f"{name.removeprefix('gym:')}: {hit.sum()} of {len(hit)} cover")
            panel.set_xlabel("true value")
        axes[0].set_ylabel("value inside")


def table(stored: dict[str, Any]) -> str:
    """As docs/simulators.md shows it: means of true values and of those inside, and coverage."""
    lines = [f"| world | {' | '.join(NAMES)} | covered |", f"|---|{'---:|' * (len(NAMES) + 1)}"]
    for name, runs in stored.items():
        true, mean, low, high = np.array(runs).transpose(2, 1, 0)
        cells = [f"{a:.3g}, {b:.3g}" for a, b in zip(true.mean(1), mean.mean(1), strict=True)]
        covered = f"{int(((low <= true) & (true <= high)).sum())} of {true.size}"
        lines.append(f"| {name.removeprefix('gym:')} | {' | '.join(cells)} | {covered} |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is missing, keeps the table, prints and draws."""
    parser = argparse.ArgumentParser("benchmarks.simulators")
    parser.add_argument("--output", type=Path, required=True, help="the PNG; or --save's file")
    parser.add_argument("--save", type=int, help="writes CartPole's simulator of a seed instead")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="worlds whose name has this text")
    given = parser.parse_args()
    if given.save is not None:
        world, agent = learnt("gym:CartPole-v1", given.save)
        agent.simulator(DRAWS).save(given.output, force=True)
        print(f"the agent's own policy: {world.value(agent.greedy_policy):.1f}")
        return
    for name in (name for name in WORLDS if given.only in name):
        while len(runs := load(FILE).get(name, [])) < given.seeds:
            store(FILE, load(FILE) | {name: [*runs, measured(name, len(runs))]})
    stored = {name: load(FILE)[name] for name in WORLDS if name in load(FILE)}
    store(FILE, stored | {"table": {"text": table(stored)}})
    print(table(stored))
    paint(given.output, stored)


if __name__ == "__main__":
    main()
