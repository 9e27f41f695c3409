"""Micro-randomised trials of a hundred people: what is learnt, who is served how, and intervals.

Rows are stored in ``research/trials.json`` as they are measured, with the means of their runs and
their standard errors. Seeds are others than those that constants were chosen on.

    python -m research.trials --only end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tacit
from research.figures import EndLabel, drawing, label_ends
from research.study import Parser, joint, load, markdown, store, world_of
from tacit.core.algorithm import BlockInfo
from tacit.privacy.models import NonPrivate
from tacit.privacy.statistic import Block
from tacit.registry import choose_agent
from tacit.trial import plan_trial

EPSILONS = (0.5, 1.0, 2.0, 5.0)
SEEDS, FIRST_SEED = 40, 5000
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "trial-power.png"
_FIXED = "micro_randomised:looks=1,probabilities=.5:.5"  # a coin until the end, one release
_COINS = "action_centred:own=false"
_SHAPES = {  # decisions, people and effects of published trials
    "MiWaves-like": (60, 122, 0.2),
    "Oralytics-like": (140, 79, 0.2),
    "HeartSteps-like": (450, 96, 0.1),
    "small effect": (140, 120, 0.1),
    "small effect, more people": (140, 300, 0.1),
}
_CHANGES = {
    "people differ more": "deviation=1.5",
    "habituation": "habituation=1.0",
    "delayed burden": "burden=0.05",
    "burden above the effect": "burden=0.3",
    "8 linear features": "linear=True",
}


@dataclass(frozen=True)
class Trial:
    """A row: a world with so many people, and an agent."""

    cells: tuple[str, ...]  # the table's first columns
    world: str
    people: int
    agent: str = "action_centred"
    seeds: int = SEEDS
    epsilons: tuple[float | None, ...] = EPSILONS

    def agent_of(self, epsilon: float | None, seed: int = 0) -> Any:
        """At a budget."""
        privacy = NonPrivate() if epsilon is None else joint(epsilon)
        return choose_agent(self.agent).build(world_of(self.world).spec, self.people, privacy, seed)

    def run(self, epsilon: float | None, seed: int) -> tuple[float, float]:
        """Scores of the last greedy policy, and of what people got."""
        world = world_of(self.world)
        result = tacit.run(self.agent_of(epsilon, seed), world, seed, progress=False)
        gap = world.optimal_value - world.baseline_value
        return result.greedy_score, (result.served_value - world.baseline_value) / gap

    def measure(self, epsilon: float | None) -> dict[str, Any]:
        """Means over seeds with their standard errors."""
        seeds = self.seeds if epsilon == 1.0 else min(self.seeds, SEEDS)
        runs = np.array([self.run(epsilon, FIRST_SEED + seed) for seed in range(seeds)])
        return {"runs": seeds, "final": _mean(runs[:, 0]), "served": _mean(runs[:, 1])}


def _mean(values: Any) -> list[float]:
    """A mean with its standard error."""
    return [round(float(x), 4) for x in (np.mean(values), np.std(values) / np.sqrt(len(values)))]


def _world(decisions: int, effect: float, **more: Any) -> str:
    given = {"decisions": decisions, "effect": effect, **more}
    return "micro_randomised:" + ",".join(f"{name}={value}" for name, value in given.items())


def _end() -> Iterator[Trial]:
    for name, (decisions, people, effect) in _SHAPES.items():
        world = _FIXED + f",decisions={decisions},effect={effect}"
        cells = (name, str(people), str(decisions), str(effect))
        yield Trial(cells, world, people, _COINS, SEEDS if people == 300 else 200)


def _serving() -> Iterator[Trial]:
    for name, (decisions, people, effect) in list(_SHAPES.items())[:3]:
        cells = (name, str(people), str(decisions), str(effect))
        epsilons = EPSILONS if decisions == 140 else (1.0,)
        yield Trial(cells, _world(decisions, effect), people, epsilons=epsilons)
    for name, more in _CHANGES.items():
        world = _world(140, 0.2) + "," + more
        yield Trial((name, "79", "140", "0.2"), world, 79, epsilons=(1.0,))


def _harm() -> Iterator[Trial]:
    for people, decisions in product((50, 200, 1000), (20, 140, 450)):
        seeds = max(2, min(10, 300_000 // (people * decisions)))
        for effect in (0.02, 0.1, 0.3):
            cells = (str(people), str(decisions), str(effect))
            yield Trial(cells, _world(decisions, effect), people, seeds=seeds, epsilons=(1.0,))
        cells, world = (str(people), str(decisions), "habit"), f"habit:horizon={decisions}"
        yield Trial(cells, world, people, "centred_improvement", seeds=20, epsilons=(1.0,))


def _habit() -> Iterator[Trial]:
    for decisions, people in product((140, 450), (100, 300, 1000)):
        cells, world = (str(decisions), str(people)), f"habit:horizon={decisions}"
        yield Trial(cells, world, people, "centred_improvement:rounds=1")


@dataclass(frozen=True)
class Drawn(Trial):
    """Trials whose people are drawn together, and whose one release is played without a store."""

    def measure(self, epsilon: float | None) -> dict[str, Any]:
        """Means over all runs."""
        world, states = world_of(self.world), _drawn(self)[epsilon]
        agent, c = self.agent_of(epsilon), world.conditions
        if "report" not in self.agent:
            plans = [agent.algorithm.plan(state, None, None, None).greedy for state in states]
            gap = world.optimal_value - world.baseline_value
            scores = [(world.value(greedy) - world.baseline_value) / gap for greedy in plans]
            size, stayed = float(np.abs(c.effects).max()), 1.0 - c.dropout / 2.0
            plan = plan_trial(world.spec, self.people, size, agent.privacy, stayed=stayed)
            return {"runs": len(scores), "final": _mean(scores), "plan": round(plan.score, 4)}
        ends = [[(effect.low, effect.high) for effect in state.effects] for state in states]
        low, high = np.moveaxis(np.array(ends), 2, 0)
        truth = c.effects if "by_feature" in self.agent else c.effects.mean()
        covers = (low <= truth) & (truth <= high)
        width, finds = (high - low)[np.isfinite(high)] / 2.0, (low > 0.0) | (high < 0.0)
        found = {"covers": covers, "width": width, "finds": finds}
        return {"runs": len(low)} | {k: round(float(np.mean(v)), 4) for k, v in found.items()}


@lru_cache(maxsize=1)
def _drawn(trial: Drawn) -> dict[float | None, list[Any]]:
    """States after the release, at every budget from the same people."""
    world, rng, n = world_of(trial.world), np.random.default_rng(FIRST_SEED), trial.people
    agents = {epsilon: trial.agent_of(epsilon) for epsilon in trial.epsilons}
    found: dict[float | None, list[Any]] = {epsilon: [] for epsilon in agents}
    batch = max(1, 20_000_000 // (n * world.spec.horizon * (world.spec.dimension + 4)))
    for first in range(0, trial.seeds, batch):
        runs = min(batch, trial.seeds - first)
        coin = "own=false" in trial.agent
        policy = _COIN if coin else next(iter(agents.values())).policy
        people = world.simulate(policy, runs * n, rng).block().arrays
        for run, (epsilon, agent) in product(range(runs), agents.items()):
            arrays = {name: array[run * n : (run + 1) * n] for name, array in people.items()}
            found[epsilon].append(_last_look(agent, Block(n, arrays), rng))
    return found


def _last_look(agent: Any, block: Block, rng: np.random.Generator) -> Any:
    """The state after a release."""
    asked = agent.algorithm.learn(agent.state, agent.plan, BlockInfo(users=block.users), rng)
    query, left = next(asked), 1.0
    while True:
        share = left if query.share is None else query.share
        left -= share
        mu = agent.privacy.budget.mu * np.sqrt(share)
        scale = query.statistic.l2(agent.privacy.relation) / mu
        noise = scale * rng.standard_normal(query.statistic.layout.size)
        total = query.statistic.vectors(block).sum(axis=0) + noise
        try:
            query = asked.send(_Played(query.statistic.layout.unpack(total), scale, block.users))
        except StopIteration as end:
            return end.value


_COIN = SimpleNamespace(
    version=0,
    chances=lambda features, history=None: np.full(len(features), 0.5),
    history=lambda people: SimpleNamespace(add=lambda *decision: None),
)
"""Fair draws, as of agents before their first release; nothing is kept."""


class _Played(dict[str, Any]):
    """A release that was played."""

    def __init__(self, arrays: Mapping[str, Any], scale: float, users: int) -> None:
        super().__init__(arrays)
        self.std, self.users = dict.fromkeys(arrays, scale), users


def _intervals() -> Iterator[Trial]:
    for people, decisions, rate, average, runs in (
        (80, 60, 0.5, 0.1, 2000),
        (80, 140, 0.5, 0.1, 2000),
        (100, 140, 0.05, 0.0, 1000),
        (1000, 140, 0.05, 0.0, 500),
    ):
        world = _world(decisions, average, average=average, rate=rate, looks=1, contexts=2)
        cells = tuple(map(str, (people, decisions, rate, average or "none")))
        yield Drawn(cells, world, people, "action_centred:report=1.0", runs, (1.0, 5.0))
    for people, more in ((300, ""), (1000, ""), (300, ",linear=True")):
        world, kind = _world(140, 0.1, looks=1) + more, "linear" if more else "0.5"
        cells = (str(people), "140", kind, "0.1 by feature")
        agent = "action_centred:report=1.0,by_feature=True"
        yield Drawn(cells, world, people, agent, 150 if people > 300 else 400, (1.0, 5.0))


def _plan() -> Iterator[Trial]:
    rng = np.random.default_rng(FIRST_SEED)
    for _ in range(100):
        people, decisions = np.exp(rng.uniform(np.log(30), np.log([250, 250]))).astype(int).tolist()
        effect, epsilon = np.exp(rng.uniform(np.log([0.04, 0.5]), np.log([0.2, 3.0]))).tolist()
        size, contexts = round(effect, 3), 2 ** int(rng.integers(2, 5))
        given = (decisions, size, contexts, round(rng.uniform(0, 0.4), 2))
        world = "{},decisions={},effect={},contexts={},dropout={}".format(_FIXED, *given)
        cells = (str(people), *map(str, given))
        yield Drawn(cells, world, people, _COINS, 100, (round(epsilon, 2),))


def _power() -> Iterator[Trial]:
    for people in (25, 50, 100, 200, 400):
        yield Trial((str(people),), _FIXED + ",effect=.1", people, _COINS)


_MAKERS = (_end, _serving, _habit, _intervals, _harm, _power, _plan)
SECTIONS = {make.__name__.strip("_"): make for make in _MAKERS}


def key_of(section: str, trial: Trial, epsilon: float | None) -> str:
    """Of a stored row."""
    return ", ".join((section, *trial.cells, "none" if epsilon is None else f"{epsilon:g}"))


def rows(section: str) -> Iterator[tuple[Trial, dict[float | None, dict[str, Any]]]]:
    """Trials of a section with what is stored of them, by epsilon."""
    stored = load("trials")
    for trial in SECTIONS[section]():
        keys = {epsilon: key_of(section, trial, epsilon) for epsilon in trial.epsilons}
        if found := {epsilon: stored[key] for epsilon, key in keys.items() if key in stored}:
            yield trial, found


def _cells(row: Mapping[float | None, Mapping[str, Any]], *names: str) -> list[str]:
    """What was measured at each budget; a dash where nothing was."""
    found = [row.get(epsilon) for epsilon in EPSILONS]
    return [" / ".join(f"{r[name][0]:.2f}" for name in names) if r else "-" for r in found]


def _table(section: str, heads: Sequence[str], *names: str) -> str:
    head = [*heads, *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    lines = [[*trial.cells, *_cells(row, *names)] for trial, row in rows(section)]
    return markdown(head, lines, len(heads))


def interval_table() -> str:
    """Coverage, half-width and power of intervals."""
    lines = [
        [*trial.cells, f"{epsilon:g}", *(f"{found[name]:.3f}" for name in _MEASURED)]
        for trial, row in rows("intervals")
        for epsilon, found in row.items()
    ]
    heads = "people", "decisions", "mean outcome", "effect", "ε", "covered", "half-width", "not 0"
    return markdown(heads, lines, 5)


def harm_words() -> str:
    """The cell in which people were served worst."""
    found = {trial.cells: row[1.0]["served"] for trial, row in rows("harm")}
    cells, (mean, error) = min(found.items(), key=lambda pair: pair[1][0])
    return (
        f"In {len(found)} trials (50 to 1,000 people, 20 to 450 decisions, effects of 0.02 to 0.3, "
        f"or the habits of below, ε = 1) people got at least {mean:.3f} of what is possible over a "
        f"coin (standard error {error:.3f}; {cells[0]} people, {cells[1]} decisions, {cells[2]})."
    )


def plan_words() -> str:
    """Distances of plans from simulated scores."""
    found = [(r["plan"], *r["final"]) for _, row in rows("plan") for r in row.values()]
    planned, simulated, error = np.array(found).T
    away = np.abs(planned - simulated)
    return (
        f"Over {len(found)} random designs (30 to 250 people, 20 to 250 decisions, 4 to 16 "
        "contexts, effects of 0.04 to 0.2, ε of 0.5 to 3, drop-out up to 40 %; 100 trials each) "
        f"plans were within 0.05 of the simulated score in {np.mean(away <= 0.05):.0%}, and "
        f"{away.max():.2f} away at most; a simulation's standard error is {error.mean():.3f}."
    )


_MEASURED = "covers", "width", "finds"
_SHAPE = ("trial", "people", "decisions", "effect")
TABLES: Mapping[str, Callable[[], str]] = {
    "trial finals": lambda: _table("end", _SHAPE, "final"),
    "trial serving": lambda: _table("serving", _SHAPE, "final", "served"),
    "trial habit": lambda: _table("habit", ("decisions", "people"), "final"),
    "trial intervals": interval_table,
    "trial harm": harm_words,
    "trial plans": plan_words,
}
"""Tables and sentences of docs/trials.md, by name."""

_COLOURS = {  # of budgets, and of people
    1: ("#D55E00", "#E69F00", "#009E73", "#0072B2"),
    0: ("#b39ddb", "#9a80cc", "#8064b4", "#5c3f96", "#371a70"),
}


def paint(path: Path) -> None:
    """Scores against people, a line per epsilon, and against epsilon, a line per people."""
    found = [(trial.people, e, row[e]["final"]) for trial, row in rows("power") for e in EPSILONS]
    with drawing(
        path,
        "How many people a private trial needs",
        "Score of the policy found, 0 for a coin, in 40 trials each, with two standard errors.",
        footnote="140 decisions; effects of 0.1, signs by 8 contexts; one release, δ = 1e-6",
    ) as panels:
        for axes, across, along in ((panels[0], 1, 0), (panels[1], 0, 1)):
            ends, values = [], sorted({point[across] for point in found})
            for value, colour in zip(values, _COLOURS[across], strict=True):
                line = [point for point in found if point[across] == value]
                x = [float(point[along]) for point in line]
                y, error = np.array([point[2] for point in line]).T
                axes.fill_between(x, y - 2 * error, y + 2 * error, color=colour, alpha=0.12, lw=0)
                axes.plot(x, y, color=colour, marker="o", ms=6, mec="white", mew=0.6)
                text = f"ε = {value:g}" if across else f"{value} people"
                ends.append(EndLabel(x[-1], float(y[-1]), text, colour))
            axes.set(xscale="log", ylim=(-0.05, 1.08), xlabel="epsilon" if along else "people")
            axes.set_xticks(x, [f"{each:g}" for each in x])
            axes.minorticks_off()
            label_ends(axes, ends)
        panels[0].set(ylabel="score")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is not stored yet, draws the picture and prints the tables."""
    parser = Parser("research.trials", __doc__)
    parser.add_argument("--only", default="", help="sections or rows whose name has this text")
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given = parser.parse_args(arguments)
    for section, trials in SECTIONS.items():
        for trial in () if given.show else trials():
            for epsilon in trial.epsilons:
                key = key_of(section, trial, epsilon)
                if given.only in key and key not in load("trials"):
                    row = trial.measure(epsilon)
                    store("trials", load("trials") | {key: row})
                    print(key, row, flush=True)
    if not given.only and not given.show:
        paint(PICTURE)
    print(*(make() for make in TABLES.values()), sep="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
