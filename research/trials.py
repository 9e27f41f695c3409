"""Micro-randomised trials of a hundred people: what is learnt, who is served how, and intervals.

Rows are stored in ``research/trials.json`` as they are measured, with the means of their runs and
their standard errors. Seeds are others than those that constants were chosen on.

    python -m research.trials
    python -m research.trials --only end --show
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.figures import EndLabel, drawing, label_ends
from research.study import Parser, joint, load, markdown, store, whole, world_of
from tacit.privacy.models import NonPrivate
from tacit.registry import choose_agent

EPSILONS = (0.5, 1.0, 2.0, 5.0)
SEEDS, FIRST_SEED = 40, 5000
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "trial-power.png"
_FIXED = "micro_randomised:looks=1,probabilities=.5:.5"  # a coin until the end, one release
_SHAPES = {  # decisions, people and effects of published trials
    "MiWaves-like": (60, 122, 0.2),
    "Oralytics-like": (140, 79, 0.2),
    "HeartSteps-like": (450, 96, 0.1),
    "small effect": (140, 120, 0.1),
    "small effect, more people": (140, 300, 0.1),
}


@dataclass(frozen=True)
class Trial:
    """A row: a world with so many people, and an agent.

    Attributes:
        cells: its names, the table's first columns.
        world: a text.
        people: how many.
        agent: a text.
        seeds: how many runs.
        epsilons: budgets; ``None`` is no privacy.
    """

    cells: tuple[str, ...]
    world: str
    people: int
    agent: str = "action_centred"
    seeds: int = SEEDS
    epsilons: tuple[float | None, ...] = EPSILONS

    def run(self, epsilon: float | None, seed: int) -> dict[str, float]:
        """One run: scores of the last greedy policy and of what people got, and the interval."""
        world = world_of(self.world)
        privacy = NonPrivate() if epsilon is None else joint(epsilon)
        agent = choose_agent(self.agent).build(world.spec, self.people, privacy, seed)
        result = tacit.run(agent, world, seed, progress=False)
        gap = world.optimal_value - world.baseline_value
        served = (result.served_value - world.baseline_value) / gap if gap else 0.0
        found = {"final": result.greedy_score if gap else 0.0, "served": served}
        if "report" in self.agent:
            effect = agent.effects()
            truth = float(world.conditions.effects.mean())
            found |= {
                "covers": float(effect.low <= truth <= effect.high),
                "width": (effect.high - effect.low) / 2.0,
                "detects": float(not effect.low <= 0.0 <= effect.high),
            }
        return found

    def measure(self, epsilon: float | None) -> dict[str, Any]:
        """Means over seeds with their standard errors."""
        runs = [self.run(epsilon, FIRST_SEED + seed) for seed in range(self.seeds)]
        found: dict[str, Any] = {"runs": len(runs)}
        for name in runs[0]:
            values = np.array([run[name] for run in runs])
            error = values.std() / np.sqrt(len(runs))
            found[name] = [round(float(values.mean()), 4), round(float(error), 4)]
        return found


def _world(decisions: int, effect: float, **more: Any) -> str:
    given = {"decisions": decisions, "effect": effect, **more}
    return "micro_randomised:" + ",".join(f"{name}={value}" for name, value in given.items())


def _end() -> Iterator[Trial]:
    for name, (decisions, people, effect) in _SHAPES.items():
        world = _FIXED + f",decisions={decisions},effect={effect}"
        cells = (name, str(people), str(decisions), str(effect))
        yield Trial(cells, world, people, "action_centred:own=false")


def _serving() -> Iterator[Trial]:
    for name, (decisions, people, effect) in list(_SHAPES.items())[:3]:
        cells = (name, str(people), str(decisions), str(effect))
        epsilons = EPSILONS if decisions == 140 else (1.0,)
        yield Trial(cells, _world(decisions, effect), people, epsilons=epsilons)
    shapes: dict[str, dict[str, Any]] = {
        "people differ more": {"deviation": 1.5},
        "habituation": {"habituation": 1.0},
        "delayed burden": {"burden": 0.05},
        "8 linear features": {"linear": True},
    }
    for name, more in shapes.items():
        cells = (name, "79", "140", "0.2")
        yield Trial(cells, _world(140, 0.2, **more), 79, epsilons=(1.0,))


def _harm() -> Iterator[Trial]:
    for people in (50, 100, 300, 1000):
        for decisions in (20, 140, 450):
            for effect in (0.02, 0.1, 0.3, 0.9):
                cells = (str(people), str(decisions), str(effect))
                # Without person effects: what is below uniform then is the agent's doing.
                world = _world(decisions, effect, deviation=0.0 if effect > 0.5 else 0.5)
                yield Trial(cells, world, people, seeds=6, epsilons=(1.0,))


def _habit() -> Iterator[Trial]:
    for decisions in (140, 450):
        for people in (100, 300, 1000):
            world = f"habit:horizon={decisions}"
            yield Trial((str(decisions), str(people)), world, people, "centred_improvement")


def _intervals() -> Iterator[Trial]:
    for decisions in (60, 140):
        world = _world(decisions, 0.1, average=0.1)
        yield Trial(
            ("80", str(decisions)), world, 80, "action_centred:report=1.0", 2000, (1.0, 5.0)
        )


def _none() -> Iterator[Trial]:
    for rate in (0.05, 0.5):
        for people in (100, 1000):
            world = _world(140, 0.0, rate=rate)
            cells = (str(rate), str(people))
            yield Trial(cells, world, people, "action_centred:report=0.5", 400, (1.0, 5.0))


def _power() -> Iterator[Trial]:
    for people in (25, 50, 100, 200, 400):
        world = _FIXED + ",effect=.1"
        yield Trial((str(people),), world, people, "action_centred:own=false")


SECTIONS: Mapping[str, Callable[[], Iterator[Trial]]] = {
    "end": _end,
    "serving": _serving,
    "habit": _habit,
    "intervals": _intervals,
    "none": _none,
    "harm": _harm,
    "power": _power,
}


def key_of(section: str, trial: Trial, epsilon: float | None) -> str:
    """Of a stored row.

    >>> key_of("end", Trial(("a", "80"), "", 80), 0.5)
    'end, a, 80, 0.5'
    """
    return ", ".join((section, *trial.cells, "none" if epsilon is None else f"{epsilon:g}"))


def rows(section: str) -> Iterator[tuple[Trial, dict[float | None, dict[str, Any]]]]:
    """Trials of a section with what is stored of them, by epsilon."""
    stored = load("trials")
    for trial in SECTIONS[section]():
        keys = {epsilon: key_of(section, trial, epsilon) for epsilon in trial.epsilons}
        if found := {epsilon: stored[key] for epsilon, key in keys.items() if key in stored}:
            yield trial, found


# Pages.


def _cells(row: Mapping[float | None, Mapping[str, Any]], *names: str) -> list[str]:
    """What was measured at each budget; a dash where nothing was."""
    found = [row.get(epsilon) for epsilon in EPSILONS]
    return [" / ".join(f"{r[name][0]:.2f}" for name in names) if r else "-" for r in found]


def _table(section: str, heads: Sequence[str], *names: str) -> str:
    head = [*heads, *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    lines = [[*trial.cells, *_cells(row, *names)] for trial, row in rows(section)]
    return markdown(head, lines, len(heads))


def interval_table() -> str:
    """Coverage, half-width and power of intervals, and false effects."""
    lines = []
    for section, effect in (("intervals", "0.1"), ("none", "none")):
        for trial, row in rows(section):
            people, decisions = str(trial.people), str(world_of(trial.world).spec.horizon)
            rate = f"{world_of(trial.world).conditions.rate:g}"
            for epsilon, found in row.items():
                names = "covers", "width", "detects"
                numbers = [f"{found[name][0]:.3f}" for name in names]
                lines.append([people, decisions, rate, effect, f"{epsilon:g}", *numbers])
    head = ("people", "decisions", "mean outcome", "effect", "ε", "coverage", "half-width", "found")
    return markdown(head, lines, 5)


def harm_words() -> str:
    """The cell in which people were served worst, of all in a sentence."""
    found = [(row[1.0]["served"], trial) for trial, row in rows("harm")]
    if not found:
        return ""
    (mean, error), trial = min(found, key=lambda pair: pair[0][0])
    people, decisions, effect = trial.cells
    return (
        f"Over {len(found)} trials of 50 to 1,000 people, 20 to 450 decisions and effects of 0.02 "
        "to 0.9 at ε = 1, the least that people got over a coin, as a share of what is possible, "
        f"was {mean:.3f} (standard error {error:.3f}; {people} people, {decisions} decisions, "
        f"effect {effect})."
    )


_SHAPE = ("trial", "people", "decisions", "effect")
TABLES: Mapping[str, Callable[[], str]] = {
    "trial finals": lambda: _table("end", _SHAPE, "final"),
}
"""Tables and sentences of docs/trials.md, by name."""

_COLOURS = {  # of budgets, and of people
    1: ("#D55E00", "#E69F00", "#009E73", "#0072B2"),
    0: ("#b39ddb", "#9a80cc", "#8064b4", "#5c3f96", "#371a70"),
}


def paint(path: Path) -> None:
    """Scores against people, a line per epsilon, and against epsilon, a line per people."""
    found = [
        (trial.people, epsilon, row[epsilon]["final"])
        for trial, row in rows("power")
        for epsilon in EPSILONS
    ]
    with drawing(
        path,
        "How many people a private trial needs",
        "Score of the policy found: 0 is a coin, 1 has every sign right. Means of 40 trials, and "
        "two standard errors.",
        size=(11, 5.2),
        footnote="140 decisions; effects of 0.1 whose signs differ between 8 contexts; "
        "one release, δ = 1e-6",
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
            label = "epsilon" if along else "people"
            axes.set(xscale="log", ylim=(-0.05, 1.08), xlabel=label)
            axes.set_xticks(x, [f"{each:g}" for each in x])
            axes.minorticks_off()
            label_ends(axes, ends)
        panels[0].set(ylabel="score")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is not stored yet, draws the picture and prints the tables."""
    parser = Parser("research.trials", __doc__)
    parser.add_argument("--only", default="", help="sections or rows whose name has this text")
    parser.add_argument("--seeds", type=whole(1), default=None, help="runs of every row")
    parser.add_argument("--again", action="store_true", help="run what is stored as well")
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given = parser.parse_args(arguments)
    for section, trials in SECTIONS.items():
        for trial in () if given.show else trials():
            for epsilon in trial.epsilons:
                key = key_of(section, trial, epsilon)
                if given.only in key and (given.again or key not in load("trials")):
                    runs = trial if given.seeds is None else replace(trial, seeds=given.seeds)
                    row = runs.measure(epsilon)
                    store("trials", load("trials") | {key: row})
                    print(key, row, flush=True)
    if not given.only and not given.show:
        paint(PICTURE)
    print(*(make() for make in TABLES.values()), sep="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
