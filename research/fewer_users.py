"""How few users a tabular agent needs, beside what no agent could do and what an oracle would need.

``python -m research.fewer_users`` runs ConcurrentPSRL on worlds on which none of its constants was
chosen, with seeds that decided nothing, and the labels of actions in random order in every state.
It stores what it finds in ``research/fewer_users.json``, which the page on the cost of epsilon
shows; runs that are stored already are not run again unless ``--again`` is given.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.stats import norm

import tacit
from research.command_lines import Parser, whole
from research.epsilon_cost import DELTA
from tacit.simulation.run import noise_seed
from tacit.tabular.model import FiniteModel, optimal, policy_values
from tacit.tabular.policy import Policy
from tacit.tabular.world import FiniteWorld

STORED = Path(__file__).with_suffix(".json")

WORLDS: dict[str, tuple[str, int, int]] = {
    "riverswim, 6 states": ("riverswim:states=6,horizon=20", 20_000, 2_200),
    "riverswim, 8 states": ("riverswim:states=8,horizon=20", 40_000, 4_300),
    "riverswim, 12 states, 40 steps": ("riverswim:states=12,horizon=40", 100_000, 8_500),
    "grid, 5 by 5": ("grid:side=5,horizon=20", 130_000, 12_000),
    "grid, 6 by 6": ("grid:side=6,horizon=24", 200_000, 23_000),
    "deep_sea, 10 deep": ("deep_sea:depth=10", 40_000, 5_000),
    "FrozenLake": ("gymnasium:id=FrozenLake-v1,horizon=100", 300_000, 40_000),
    "health_coach": ("health_coach", 500_000, 95_000),
    **{
        f"random_mdp, seed {seed}": (
            f"random_mdp:states={size},actions=3,horizon={size},seed={seed}",
            *(40_000, 4_000),
        )
        for seed, size in ((0, 10), (1, 10), (2, 10), (3, 12), (4, 12))
    },
    "riverswim, 6 states, per step": ("riverswim:states=6,horizon=20", 150_000, 25_000),
}
"""By name: what rebuilds it, users of a run at epsilon 1, and how many may be needed there."""

EPSILONS: tuple[float | None, ...] = (1.0, 10.0, 0.1, None)
AGENT = "what may improve the greedy policy is covered first"
"""What was last changed in the agent; rows that were measured before have a star."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "who serves is replaced at once": {"exploration.CERTAIN": 0.0},
    "covering by what the unknown promises": {"concurrent_psrl.COVERING": 0.0},
    "nobody is served what is known": {"concurrent_psrl.LEAST_EXPLORED": 1.0},
    "one explorer of each kind": {"concurrent_psrl.EXPLORERS": 2},
    "blocks instead of running sums": {"running": 10**9},
    "running sums instead of blocks": {"running": 0},
    "steps lend each other nothing": {"posterior.LENT": 0.0},
    "two cells of a user": {"exploration.VISITS_PER_USER": (2,)},
    "all cells are asked": {"exploration.THRESHOLDS": (math.inf,)},
}
"""By words: options, and constants of modules in ``tacit.tabular``."""
DROPPED = (
    "explorers are asked what others are",
    "what matters is not covered first",
    "no more is spent than is urgent",
    "no way is tried again",
)
"""Ablations that are stored, and whose branches are gone from the code."""
ABLATED: dict[str, tuple[str, int, int]] = {
    "grid, 4 by 4": ("grid:side=4,horizon=16", 40_000, 0),
    "deep_sea, 8 deep": ("deep_sea:depth=8", 30_000, 0),
    "riverswim, 5 states, per step": ("riverswim:states=5,horizon=16", 60_000, 0),
    "random_mdp, seed 52": ("random_mdp:states=10,actions=3,horizon=10,seed=52", 30_000, 0),
}
"""Worlds on which constants were chosen: what parts are worth is no claim about others."""


def mixed_up(world: Any, seed: int) -> FiniteWorld:
    """The same world with the labels of actions in random order, in every state its own."""
    model: FiniteModel = world.model
    rng = np.random.default_rng([seed, 77])
    order = np.array([rng.permutation(model.actions) for _ in range(model.states)])
    rows = np.arange(model.states)[:, np.newaxis]
    paid = model.transition_rewards
    turned = FiniteModel(
        model.transitions[:, rows, order],
        model.reward_probabilities[:, rows, order],
        model.reward_values,
        model.start,
        model.horizon,
        None if paid is None else paid[rows, order],
    )
    found = FiniteWorld(turned, world.name)
    found._reference = world.reference_value
    return found


def users_of(name: str, epsilon: float | None) -> int:
    """Users of a run: joint DP costs about 1 / epsilon."""
    users = (WORLDS | ABLATED)[name][1]
    return users if epsilon is None else max(10_000, int(users / max(epsilon, 0.1) ** 0.9))


def measured(
    name: str, epsilon: float | None, seeds: Sequence[int], constants: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Users to 90 % of every seed, of the policy that serves and of the greedy one."""
    world = tacit.world((WORLDS | ABLATED)[name][0])
    users, serving, greedy = users_of(name, epsilon), [], []
    options: dict[str, Any] = {"stationary": False} if "per step" in name else {}
    changed = dict(constants or {})
    options |= {"running": changed.pop("running")} if "running" in changed else {}
    with ExitStack() as patched:
        for place, value in changed.items():
            patched.enter_context(mock.patch(f"tacit.tabular.{place}", value))
        for seed in seeds:
            privacy = tacit.NonPrivate() if epsilon is None else tacit.JointDP(epsilon, DELTA)
            given = options | ({} if epsilon is None else {"noise_seed": noise_seed(seed)})
            agent = tacit.ConcurrentPSRL(world.spec, users, privacy, seed=seed, **given)
            result = tacit.run(agent, mixed_up(world, seed), seed=seed, progress=False)
            serving.append(result.users_to_90)
            greedy.append(result.greedy_users_to_90)
    return {"users": users, "serving": serving, "greedy": greedy, "agent": AGENT}


# What no agent could do, and what one that knows the world would need.


def limits(name: str) -> dict[str, int]:
    """The fewest users that any private agent needs at epsilon 1, and an oracle's design.

    Two worlds that differ by a swap of two actions in one state, to which no policy comes with a
    probability above t, need n t mu >= 2 z; A^k labellings of k such states need
    n mu >= z + z(0.1 / (A^k - 1)). The oracle mixes policies, with the world known, until every
    action in every such state is three deviations of its noise.
    """
    world: Any = tacit.world(WORLDS[name][0])
    model: FiniteModel = world.model
    mu, z = tacit.Budget(1.0, DELTA).mu, float(norm.isf(0.1))
    states = _critical(model, world)
    reach = [_reach(model, state) for state in states]
    labels = float(model.actions) ** len(states)
    two = 2.0 * z / mu / min(reach)
    packing = (z + float(norm.isf(0.1 / max(labels - 1.0, 1.0)))) / mu
    return {"limit": math.ceil(max(two, packing)), "oracle": math.ceil(_oracle(model, states, mu))}


def _critical(model: FiniteModel, world: Any) -> list[int]:
    """States where one wrong action at all steps loses a fifth of what there is to lose."""
    _, best = optimal(model)
    assert best.actions is not None  # noqa: S101
    whole_gap = world.optimal_value - world.reference_value
    found = []
    for state in range(model.states):
        for action in range(model.actions):
            changed = best.actions.copy()
            changed[:, state] = action
            policy = Policy.deterministic(changed, model.actions)
            value = float(model.start @ policy_values(model, policy)[0])
            if world.optimal_value - value >= 0.2 * whole_gap:
                found.append(state)
                break
    return [state for state in found if _reach(model, state) > 0]


def _reach(model: FiniteModel, state: int) -> float:
    """The largest probability with which any policy comes to a state in time to act there."""
    value = np.eye(model.states)[state]
    for step in range(model.horizon - 2, -1, -1):
        value = (model.transitions_at(step) @ value).max(axis=1)
        value[state] = 1.0
    return float(model.start @ value)


def _oracle(model: FiniteModel, states: list[int], mu: float) -> float:
    """Users of a mixture of policies, made by multiplicative weights, see :func:`limits`."""
    from tacit.tabular.exploration_loops import best_actions, count_paths, walk

    rng, rounds, users = np.random.default_rng(0), 150, 300
    shape = (model.states, model.actions)
    weights, seen = np.zeros(shape), np.zeros(shape)
    weights[states] = 1.0
    P = np.ascontiguousarray(model.transitions[:1])
    moves, start = np.cumsum(P, axis=-1), np.cumsum(model.start)
    actions = np.zeros((model.horizon, model.states), dtype=np.int64)
    path = np.zeros((users, model.horizon), dtype=np.int64)
    for _ in range(rounds):
        wanted = (weights / weights.sum())[np.newaxis]
        best_actions(P, wanted, rng.random(shape), False, actions)
        walk(rng, start, moves, actions[np.newaxis], np.zeros(users, dtype=np.int64), path)
        visits = np.zeros(model.states * model.actions)
        count_paths(path, np.ones(visits.size, dtype=bool), model.horizon, visits)
        came = visits.reshape(shape) / users
        seen += came / rounds
        weights *= np.exp(-0.7 * came)
        weights /= weights.max()
    visits = seen[states]
    few = max(float(np.quantile(visits, 0.1)), 1e-9)
    return 3.0 * math.sqrt(2.0 * max(1.0, float(visits.sum()))) / mu / few


# What is shown.


def median(values: Sequence[int | None]) -> float:
    """That of the users, where ``None`` is never."""
    return float(np.median([math.inf if value is None else value for value in values]))


def ninetieth(values: Sequence[int | None]) -> float:
    """What nine of ten runs do not exceed."""
    ordered = sorted(math.inf if value is None else value for value in values)
    return float(ordered[-1 - len(ordered) // 10])


def cell(found: dict[str, Any] | None) -> str:
    """The median, and in brackets what nine of ten runs do not exceed.

    With a star if the agent was changed since.
    """
    if found is None:
        return "-"
    words = [
        "never" if math.isinf(x) else f"{round(x):,}"
        for x in (median(found["serving"]), ninetieth(found["serving"]))
    ]
    return f"{words[0]} ({words[1]}){'*' * (found['agent'] != AGENT)}"


def table(stored: dict[str, Any]) -> str:
    """All worlds, in Markdown."""
    lines = [
        "| world | limit | oracle | at most | epsilon 1 | greedy policy | epsilon 10 | epsilon 0.1 "
        "| not private |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (_, _, most) in WORLDS.items():
        row = stored["worlds"].get(name, {})
        bound = stored["limits"].get(name, {"limit": "-", "oracle": "-"})
        greedy = None if row.get("1.0") is None else row["1.0"] | {"serving": row["1.0"]["greedy"]}
        cells = [cell(row.get(key)) for key in ("10.0", "0.1", "None")]
        lines.append(
            f"| {name} | {bound['limit']} | {bound['oracle']} | {most:,} | "
            f"{cell(row.get('1.0'))} | {cell(greedy)} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def ablations(stored: dict[str, Any]) -> str:
    """What its parts are worth, in Markdown."""
    lines = [f"| | {' | '.join(ABLATED)} |", "|---|" + "---:|" * len(ABLATED)]
    for words in (*ABLATIONS, *DROPPED):
        cells = [cell(stored["ablations"].get(words, {}).get(name)) for name in ABLATED]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    if not STORED.exists():
        return {"worlds": {}, "limits": {}, "ablations": {}}
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


def save(stored: dict[str, Any]) -> None:
    """Stores it."""
    STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser(prog="python -m research.fewer_users", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=whole(1), default=10, help="seeds of every world")
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--epsilons", nargs="*", choices=[str(e) for e in EPSILONS])
    parser.add_argument("--ablations", action="store_true", help="what its parts are worth, only")
    parser.add_argument("--again", action="store_true", help="run what is stored as well")
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given = parser.parse_args(arguments)
    stored, seeds = load(), range(given.runs)
    chosen = [e for e in EPSILONS if given.epsilons is None or str(e) in given.epsilons]
    if given.show:
        chosen, given.ablations = [], False
    if given.ablations:
        for words, constants in ABLATIONS.items():
            row = stored["ablations"].setdefault(words, {})
            for name in ABLATED:
                changes = words != "steps lend each other nothing" or "per step" in name
                if changes and (given.again or name not in row):
                    row[name] = measured(name, 1.0, seeds, constants)
                    save(stored)
        chosen = []
    for epsilon in chosen:
        for name in given.worlds:
            row = stored["worlds"].setdefault(name, {})
            if given.again or str(epsilon) not in row:
                row[str(epsilon)] = measured(name, epsilon, seeds)
                print(name, epsilon, cell(row[str(epsilon)]), file=sys.stderr, flush=True)
            if "per step" not in name and name not in stored["limits"]:
                stored["limits"][name] = limits(name)
            save(stored)
    print(table(stored))
    print()
    print(ablations(stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
