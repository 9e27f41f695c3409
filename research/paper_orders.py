"""How the regret of the papers' corrected algorithms grows with K, S, A, H and d, and the theorems.

``python -m research.paper_orders`` runs PRIVATE-UCB-VI and PRIVATE-UCB-PO in worlds of S contexts,
one of which is drawn at every step and in each of which one action pays more, and LinOpt-VI-Reg
and LinOpt-PO-Reg in ``hard_mixture``. Everything is :mod:`tacit.papers` with ``printed=False``: a
release after every episode, proven constants. Of several gaps the one with the largest regret
counts, as the theorems are about the worst world. It prints a table and stores the regrets of all
runs as ``research/paper_orders.json``, each as it is done; what is stored is not run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from research.command_lines import Parser, whole
from research.mixture_orders import slope
from tacit.mixture.worlds import hard_mixture
from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.bounds import TheoremSizes, promises
from tacit.privacy.files import write_atomic
from tacit.simulation.plots import short
from tacit.tabular.world import TabularWorld

STORED = Path(__file__).with_suffix(".json")
RUNS = 1
Along = Literal["episodes", "states", "actions", "horizon", "dimension"]
DELTA = 1e-6
GAPS = (1.0, 0.3, 0.1, 0.03)
"""In units of the largest gap that there can be."""


def contexts(states: int, actions: int, horizon: int, gap: float) -> TabularWorld:
    """A context is drawn at every step; action s mod A pays ``gap`` more than all others.

    >>> world = contexts(2, 4, 3, 0.8)
    >>> round(world.optimal_value, 6), round(world.baseline_value, 6)
    (2.7, 0.9)
    """
    P = np.full((states, actions, states), 1.0 / states)
    R = np.full((states, actions), 0.5 * (1.0 - gap))
    R[np.arange(states), np.arange(states) % actions] += gap
    return TabularWorld(P, R, horizon, np.full(states, 1.0 / states), name="contexts")


@dataclass(frozen=True)
class Point:
    """An algorithm at a size.

    Attributes:
        algorithm: its name in the paper.
        epsilon: the budget, or ``None`` without privacy.
        episodes: K.
        states: S.
        actions: A.
        horizon: H.
        dimension: d.
    """

    algorithm: Literal["UCB-VI", "UCB-PO", "LinOpt-VI", "LinOpt-PO"]
    epsilon: float | None
    episodes: int
    states: int = 2
    actions: int = 2
    horizon: int = 2
    dimension: int = 2

    @property
    def tabular(self) -> bool:
        """Whether it is of the tabular paper."""
        return self.algorithm.startswith("UCB")

    @property
    def key(self) -> str:
        """What it is stored under."""
        sizes = f"S {self.states}, A {self.actions}, H {self.horizon}, d {self.dimension}"
        return f"{self.algorithm}, {self.budget}, K {self.episodes}, {sizes}"

    @property
    def budget(self) -> str:
        """In words."""
        return "not private" if self.epsilon is None else f"epsilon {self.epsilon:g}"

    def run(self, gap: float, seed: int) -> tuple[float, float]:
        """The regret of all users, and what it is if each has that of random actions."""
        K, H, d = self.episodes, self.horizon, self.dimension
        levels: dict[str, Any] = {"epsilon": self.epsilon or 1.0, "delta": DELTA}
        levels |= {"printed": False, "seed": seed}
        world: Any
        if self.tabular:
            world = contexts(self.states, self.actions, H, gap)
            learn = tabular.ucb_vi if self.algorithm == "UCB-VI" else tabular.ucb_po
            levels["privatizer"] = "none" if self.epsilon is None else "central"
            result = learn(world, episodes=K, **levels)
        else:
            world = hard_mixture(d, H, gap=gap / (H * (d - 1)))
            plan = mixture.lin_opt_vi if self.algorithm == "LinOpt-VI" else mixture.lin_opt_po
            levels["regularizer"] = "ridge" if self.epsilon is None else "private"
            result = plan(world, episodes=K, **levels)
        return float(result.regret[-1]), K * (world.optimal_value - world.baseline_value)

    @property
    def promise(self) -> float:
        """What its theorem says, for what ``tacit.papers.bounds`` prints or without noise."""
        # Without privacy the terms of the noise are left out: a budget so large has none.
        epsilon = self.epsilon or 1e6
        sizes = (self.horizon, self.states, self.actions, self.dimension)
        asked = TheoremSizes(self.episodes, *sizes, epsilon=epsilon, delta=DELTA)
        name: str = self.algorithm
        if self.tabular:
            name = f"PRIVATE-{name}, joint, Gaussian noise"
        found = next(p for p in promises(asked) if p.theorem.endswith(f", {name}"))
        if found.corrected is None:
            raise AssertionError(found)
        return found.corrected


@dataclass(frozen=True)
class Row:
    """An algorithm along one of its sizes."""

    start: Point
    along: Along
    sizes: tuple[int, ...]

    @cached_property
    def points(self) -> list[Point]:
        """One for every size."""
        return [replace(self.start, **{self.along: size}) for size in self.sizes]  # type: ignore[arg-type]


SYMBOLS = {"episodes": "K", "states": "S", "actions": "A", "horizon": "H", "dimension": "d"}
NOT_PRIVATE, PRIVATE = 3 * 10**4, 2 * 10**5
TABULAR = (
    Point("UCB-VI", None, NOT_PRIVATE),
    Point("UCB-PO", None, NOT_PRIVATE),
    Point("UCB-VI", 10.0, PRIVATE),
    Point("UCB-PO", 10.0, PRIVATE),
)
MIXTURE = (
    Point("LinOpt-VI", None, NOT_PRIVATE, dimension=3),
    Point("LinOpt-PO", None, NOT_PRIVATE, dimension=3),
    Point("LinOpt-VI", 100.0, PRIVATE, dimension=3),
    Point("LinOpt-PO", 100.0, PRIVATE, dimension=3),
)


def rows() -> Iterator[Row]:
    """All of the table."""
    for start in (*TABULAR[:2], *MIXTURE[:2]):
        yield Row(start, "episodes", (10**4, 3 * 10**4, 10**5))
    sizes: tuple[Along, ...] = ("states", "actions", "horizon")
    for along in sizes:
        for start in TABULAR:
            yield Row(start, along, (2, 4, 8))
    sizes = ("dimension", "horizon")
    for along in sizes:
        for start in MIXTURE:
            yield Row(start, along, (2, 3, 4))


def worst(runs: Mapping[str, Any]) -> tuple[float, float]:
    """The median regret at the worst gap, and its share of that of random actions."""
    medians = [float(np.median([regret for regret, _ in of_gap])) for of_gap in runs["regrets"]]
    at = int(np.argmax(medians))
    return medians[at], medians[at] / float(runs["regrets"][at][0][1])


def markdown(found: Mapping[str, Any]) -> str:
    """As the page shows it: rows all of whose points were run."""
    lines = [
        "| along | algorithm | K | regret | of random actions | order | its theorem |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows():
        if not all(point.key in found for point in row.points):
            continue
        regrets, shares = zip(*(worst(found[point.key]) for point in row.points), strict=True)
        sizes = [float(size - 1 if row.along == "dimension" else size) for size in row.sizes]
        name = "d - 1" if row.along == "dimension" else SYMBOLS[row.along]
        promised = np.array([point.promise for point in row.points])
        cells = (
            f"{name} = {', '.join(short(size) for size in sizes)}",
            f"{row.start.algorithm}, {row.start.budget}",
            "" if row.along == "episodes" else short(row.start.episodes),
            ", ".join(f"{regret:,.0f}" for regret in regrets),
            ", ".join(f"{share:.2f}" for share in shares),
            f"{slope(sizes, np.array(regrets)):.1f}",
            f"{slope([float(size) for size in row.sizes], promised):.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def stored() -> dict[str, Any]:
    """Everything that was run."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing, prints and stores."""
    parser = Parser(prog="python -m research.paper_orders", description=__doc__)
    parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every point")
    given = parser.parse_args(arguments)
    for point in dict.fromkeys(point for row in rows() for point in row.points):
        found = stored()
        if len(found.get(point.key, {"regrets": [[]]})["regrets"][0]) >= given.runs:
            continue
        regrets = [[point.run(gap, seed) for seed in range(given.runs)] for gap in GAPS]
        kept = {
            point.key: {"regrets": [[[round(x, 2) for x in one] for one in g] for g in regrets]}
        }
        write_atomic(STORED, (json.dumps(found | kept, indent=1) + "\n").encode(), 0o644)
        print(point.key, flush=True)
    print(markdown(stored()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
