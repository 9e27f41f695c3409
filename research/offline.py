"""Learning from logs: whether intervals cover, what privacy costs in width, and ICU-Sepsis.

``python -m research.offline`` runs every case and stores it in ``research/offline.json``;
``--only NAME`` is for cases whose name has this in it, and leaves the others as they are. Constants
were chosen on sparse_mdp with other seeds, and nothing on ICU-Sepsis.

- *logs*: twelve logs of worlds with 8 to 60 states, 200,000 users each, five seeds: how much of
  what could be gained the policy has that is worth a trial, and the one that is certified.
  Constants were chosen on other seeds and behaviours of the same kinds.
- *coverage*: 350 runs of each case, 2,100 by counts in all, with users and noise of their own, in
  worlds whose values are known.
- *trial*: 2,000 trials of 20,000 users in eight blocks, by sums over users of each arm: of a policy
  that is better than uniform actions; of one that gets better from block to block; and of none that
  is better, where whatever goes live, or is said to be surely better, is an error.
- *icu*: 10^6 episodes of the clinicians' policy mixed half and half with uniform. 100 runs share 10
  simulated logs; each run splits its log anew and draws its own noise.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

import tacit
from research.study import Parser, load, store
from research.worlds import build
from tacit.core.arms import ARMS, ArmLook, Arms, ArmState, Evidence
from tacit.tabular.holdout import answer
from tacit.tabular.policy import Policy, uniform_policy
from tacit.tabular.world import TabularWorld
from tacit.trial.plan import power

PRIVATE = tacit.JointDP(1.0, 1e-6)
RUNS, USERS = 350, 20_000
SEEDS, LOGGED = 5, 200_000
MANY, TRIALS = 10**6, 2000
LOGS, RUNS_OF_LOG = 10, 10


def bandit(contexts: int = 10, actions: int = 3, seed: int = 40) -> TabularWorld:
    """One decision: random rewards for each context and action."""
    means = np.random.default_rng(seed).random((contexts, actions))
    moves = np.full((contexts, actions, contexts), 1.0 / contexts)
    start = np.full(contexts, 1.0 / contexts)
    return TabularWorld(moves, means, 1, start=start, name=f"bandit of {contexts} contexts")


def people_of(world: Any, seed: int = 40) -> Policy:
    """What people do: random, each allowed action with a probability of 5 % and more."""
    spec = world.spec
    allowed = np.ones((spec.states, spec.actions), bool) if spec.allowed is None else spec.allowed
    drawn = np.where(allowed, np.random.default_rng(seed).gamma(1.0, size=allowed.shape), 0.0)
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    table = 0.7 * drawn / drawn.sum(axis=1, keepdims=True) + 0.3 * uniform
    return Policy.stochastic(np.broadcast_to(table, (spec.horizon, *table.shape)))


def world_of(name: str) -> Any:
    """By name, or the bandit."""
    return bandit() if name == "bandit" else build(name)


def agents_of(method: str) -> Any:
    """By what is asked of a log: counts or returns."""
    return tacit.PessimisticVI if method == "counts" else tacit.PessimisticImprovement


def coverage(world_name: str, behaviour: str, method: str) -> dict[str, Any]:
    """How often intervals cover, and how often a recommendation is right."""
    world = world_of(world_name)
    people = people_of(world)
    truth = world.value(people)
    tally = dict.fromkeys(("all", "gain", "low", "today", "better", "wrong"), 0)
    widths = np.zeros(2)
    for seed in range(RUNS):
        log = world.simulate(people, USERS, np.random.default_rng([71, seed]))
        agent = agents_of(method)(
            world.spec,
            users=USERS,
            privacy=PRIVATE,
            behaviour="unknown" if behaviour == "unknown" else people,
            seed=seed,
            noise_seed=10_000 + seed,
        )
        agent.learn(log)
        algorithm: Any = agent.algorithm
        found = algorithm.recommendation(agent.state)
        tables = agent.state.judged.tables
        phase = np.arange(world.spec.horizon) * tables.shape[1] // world.spec.horizon
        gains = [world.value(Policy.stochastic(table[phase])) - truth for table in tables]
        of_found = world.value(found.found) - truth
        held = all(gain in one for one, gain in zip(found.gains, gains, strict=True))
        tally["all"] += held and truth in found.today
        tally["gain"] += of_found in found.gain
        tally["low"] += found.gain.low <= of_found
        tally["today"] += truth in found.today
        tally["better"] += found.better
        tally["wrong"] += found.better and of_found <= 0.0
        widths += found.gain.width / RUNS, found.today.width / RUNS
    shown = {"gain width": round(float(widths[0]), 4), "today width": round(float(widths[1]), 4)}
    return {"runs": RUNS, "users": USERS, **tally, **shown}


def log(world_name: str, behaviour: str) -> dict[str, Any]:
    """Shares of what could be gained: of what is worth a trial, and of what is certified."""
    world = world_of(world_name)
    people = uniform_policy(world.spec) if behaviour == "uniform" else people_of(world, 41)
    now, best = world.value(people), world.optimal_value
    trial, certified, valid = list[float](), list[float](), 0
    for seed in range(SEEDS):
        episodes = world.simulate(people, LOGGED, np.random.default_rng([76, seed]))
        given: Any = "unknown" if behaviour == "unknown" else people
        if behaviour == "logged":
            table, H = people.table(), world.spec.horizon
            given = table[np.arange(H), episodes.states[:, :-1], episodes.actions]
        found = tacit.learn_offline(
            episodes, world.spec, PRIVATE, given, seed=seed, noise_seed=30_000 + seed
        )
        trial.append((world.value(found.trial) - now) / (best - now))
        certified.append((world.value(found.policy) - now) / (best - now) if found.better else 0.0)
        valid += found.gain.low <= world.value(found.found) - now
    row = {"states": world.spec.states, "steps": world.spec.horizon, "runs": SEEDS, "valid": valid}
    shares = {"trial": trial, "certified": certified}
    return row | {name: [round(share, 4) for share in found] for name, found in shares.items()}


def icu(world_name: str = "icu_sepsis") -> dict[str, Any]:
    """Policies learnt from clinicians' episodes, and what is proven of them."""
    world: Any = build(world_name)
    H = world.spec.horizon
    allowed = world.spec.allowed
    mixed = 0.5 * world.people + 0.5 * allowed / allowed.sum(axis=1, keepdims=True)
    behaviour = Policy.stochastic(np.broadcast_to(mixed, (H, *mixed.shape)))
    rows, start = [], time.perf_counter()
    for number in range(LOGS):
        log = world.simulate(behaviour, MANY, np.random.default_rng([73, number]))
        for again in range(RUNS_OF_LOG):
            seed = RUNS_OF_LOG * number + again
            found = tacit.learn_offline(
                log, world.spec, PRIVATE, behaviour, seed=seed, noise_seed=20_000 + seed
            )
            value = world.value(found.found)
            rows.append((value, found.value.low, found.value.high, found.today.high, found.better))
            print(f"  {seed}: {found.verdict} true {value:.4f}", flush=True)
    values, lows, highs, todays, better = (list(column) for column in zip(*rows, strict=True))
    return {
        "runs": len(rows),
        "users": MANY,
        "clinicians": round(world.people_value, 4),
        "behaviour": round(world.value(behaviour), 4),
        "values": [round(v, 4) for v in values],
        "lows": [round(v, 4) for v in lows],
        "highs": [round(v, 4) for v in highs],
        "todays": [round(v, 4) for v in todays],
        "better": sum(better),
        "valid": sum(low <= value for low, value in zip(lows, values, strict=True)),
        "above clinicians": sum(low > world.people_value for low in lows),
        "seconds": round((time.perf_counter() - start) / len(rows), 1),
    }


def trial(kind: str, holdout: float) -> dict[str, Any]:
    """How often the answers of trials hold, and find what is there."""
    world, blocks, rng = build(SMALL), 8, np.random.default_rng(78)
    n, today, best = USERS // blocks, uniform_policy(world.spec), world.optimal_policy
    part = 0.0 if kind == "nothing better" else 0.3 if holdout < 0.2 else 0.1
    parts = np.full(blocks, part) if kind != "learning" else np.linspace(0.0, 0.5, blocks)
    tables = [(1.0 - x) * today.table() + x * best.table() for x in (0.0, *parts)]
    logs = [world.simulate(Policy.stochastic(x), LOGGED, rng, "episodes") for x in tables]
    returns = [np.asarray(log.rewards).sum(axis=1).astype(int) for log in logs]
    drawn = [np.bincount(found, minlength=5) / LOGGED for found in returns]
    if kind == "nothing better":
        drawn = drawn[:1] * len(drawn)
    arms = Arms(holdout=holdout, share=0.2, returns=(0.0, 4.0))
    chances = np.array([holdout, 0.0, 1.0 - holdout, 0.0])
    noise = 2.0 / (np.sqrt(arms.share) * PRIVATE.budget.mu)
    tally = dict.fromkeys(("last", "all", "found", "live"), 0)
    for _ in range(TRIALS):
        looks, exact, held, found, live = list[Any](), list[Any](), True, False, False
        for block in range(blocks):
            means = [look.moments(ARMS)[0] for look in looks]
            centre = float(np.clip(np.mean(means), 0.0, 4.0)) if means else 2.0
            radius = max(centre, 4.0 - centre)
            g, users = (np.arange(5) - centre) / radius, rng.multinomial(n, chances)
            counts, likely = np.zeros((4, 5)), np.zeros((4, 5))
            for arm, who in ((0, 0), (2, block + 1)):
                counts[arm] = rng.multinomial(users[arm], drawn[who])
                likely[arm] = n * chances[arm] * drawn[who]
            s1, s2 = (counts @ x + noise * rng.standard_normal(4) for x in (g, g**2))
            looks.append(ArmLook(n, chances, s1, s2, noise, centre, radius))
            exact.append(replace(looks[-1], sums=likely @ g))  # without noise and chance
            state = ArmState(None, tuple(looks))
            live |= state.evidence().lower(arms.level(len(looks))) > 0.0
            now = SimpleNamespace(state=state, users=USERS, served=n * len(looks))
            now.algorithm = SimpleNamespace(problem=SimpleNamespace(arms=arms))
            now.plan = SimpleNamespace(memory=SimpleNamespace(since=-1))
            answered, gain = answer(now), Evidence.of_returns(exact, (2,)).gain
            if answered.users == now.served:
                held &= (right := answered.low <= gain <= answered.high)
                found |= answered.low > 0.0
        for name, it in {"last": right, "all": held, "found": found, "live": live}.items():
            tally[name] += it
    mean, sd = returns[0].mean(), returns[0].std()
    scaled = replace(arms, returns=(-mean / sd, (4.0 - mean) / sd))
    planned = power(scaled, (returns[1].mean() - mean) / sd, USERS, PRIVATE, blocks)
    shown = {"gain": round(float(gain), 4), "planned": planned if kind == "candidate" else None}
    return {"runs": TRIALS, "users": USERS, **shown, **tally}


SMALL, SPARSE = (
    "random_mdp:states=5,actions=3,horizon=4,seed=40",
    ("sparse_mdp:states=30,actions=4,horizon=8,seed=40"),
)
LOG_CASES = (
    ("riverswim:states=8,horizon=20", "uniform"),
    ("random_mdp:states=8,actions=3,horizon=10,seed=60", "known"),
    ("random_mdp:states=20,actions=4,horizon=15,seed=61", "unknown"),
    ("random_mdp:states=40,actions=4,horizon=20,seed=62", "logged"),
    ("grid:side=4,horizon=15", "uniform"),
    ("grid:side=6,horizon=20", "known"),
    ("deep_sea:depth=8", "unknown"),
    ("health_coach", "known"),
    ("sparse_mdp:states=30,actions=4,horizon=8,seed=63", "logged"),
    ("sparse_mdp:states=60,actions=8,horizon=12,seed=64", "known"),
    ("gym:FrozenLake-v1", "uniform"),
    ("bandit", "unknown"),
)
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "icu": icu,
    **{
        f"log, {world}, {behaviour}": partial(log, world, behaviour)
        for world, behaviour in LOG_CASES
    },
    **{
        f"trial, {kind}, {holdout:g}": partial(trial, kind, holdout)
        for kind in ("candidate", "learning", "nothing better")
        for holdout in (0.1, 0.5)
    },
    **{
        f"coverage, {name}, {behaviour}, {method}": partial(coverage, world, behaviour, method)
        for name, world in (("random", SMALL), ("bandit", "bandit"), ("sparse", SPARSE))
        for behaviour in ("known", "unknown")
        for method in (("counts", "returns") if name == "random" else ("counts",))
    },
}


def line(name: str, row: Mapping[str, Any]) -> str:
    """A row of a table of the page."""
    words = name.partition(", ")[2].replace(", ", " | ")
    if name == "icu":
        beats = sum(value > row["clinicians"] for value in row["values"])
        shown = (
            f"{row['behaviour']:.4f} | {row['clinicians']:.4f} | {_band(row['values'])} | {beats}"
        )
        evidence = f"{_band(row['lows'])} | {row['valid']} | {row['above clinicians']}"
        return f"| {row['runs']} | {shown} | {evidence} |"
    if name.startswith("log"):
        world, _, how = words.partition(" | ")
        shown = " | ".join(f"{median(row[key]):.2f}" for key in ("trial", "certified"))
        return (
            f"| `{world}` | {how} | {row['states']} | {shown} | {row['valid']} of {row['runs']} |"
        )
    if name.startswith("trial"):
        planned = "" if row["planned"] is None else f"{row['planned']:.3f}"
        told = [f"{row[key] / row['runs']:.3f}" for key in ("last", "all", "found", "live")]
        return f"| {words} | {' | '.join(told)} | {planned} |"
    shares = [f"{row[key] / row['runs']:.3f}" for key in ("all", "gain", "low", "today")]
    verdicts = f"{row['better'] / row['runs']:.2f} | {row['wrong']}"
    widths = f"{row['gain width']:.3f} | {row['today width']:.3f}"
    return f"| {words} | {' | '.join(shares)} | {verdicts} | {widths} |"


def _band(values: Sequence[float]) -> str:
    return f"{median(values):.4f} [{min(values):.4f}, {max(values):.4f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = Parser("research.offline", __doc__)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    given = parser.parse_args(arguments)
    for name, case in CASES.items():
        if given.only in name:
            row = case()
            rows = load("offline") | {name: row}
            store("offline", {key: rows[key] for key in CASES if key in rows})
            print(name, {k: v for k, v in row.items() if not isinstance(v, list)}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
