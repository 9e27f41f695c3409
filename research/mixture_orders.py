"""The orders of the regret bounds of linear mixtures, on worlds whose gap shrinks with the users.

The bounds are about the worst world for each number of users K and each budget: any larger gap is
found out sooner, any smaller one costs less. So each K and each epsilon has worlds of its own,
``hard_mixture`` with a gap like 1 / sqrt(K epsilon), and under local DP like K^(-1/4). Even random
actions have a regret of the bound's order there. What counts is how far below it an agent stays,
and whether that share stays the same. Against dimension and horizon each agent is shown at the
worst of several gaps.

All agents are as they are shipped: statistic, schedule, bonus and mirror steps are the defaults.
What the theorems promise is printed by ``tacit.papers.bounds``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from research.figures import Curve, Panel, Pen, draw_panels, figure_main, slope
from research.study import DELTA, PLAIN, Case, joint, run_all
from tacit.mixture.worlds import hard_mixture
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.validation import Floats
from tacit.simulation.plots import short

DIMENSION, HORIZON, FIXED = 4, 4, 10**8
# The gap is GAP / sqrt(K epsilon), and LOCAL_GAP / K^(1/4) under local DP.
GAP, LOCAL_GAP, LOCAL_EPSILON = 25.0, 2.5, 10.0
# The worst of these is looked for, in the same units.
GAPS = (1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True)
class Point:
    """Where agents are compared; ``size`` is of the gap, in units of 1 / sqrt(K epsilon)."""

    users: int = FIXED
    epsilon: float = 1.0
    dimension: int = DIMENSION
    horizon: int = HORIZON
    size: float = GAP
    local: bool = False

    @property
    def gap(self) -> float:
        """By how much each right bit of the action is better; no more than is possible.

        >>> Point(10**8).gap, Point(10**8, epsilon=0.25).gap
        (0.0025, 0.005)
        """
        wanted = self.size / math.sqrt(self.users * self.epsilon)
        if self.local:
            wanted = LOCAL_GAP / self.users**0.25
        return min(wanted, 1.0 / (self.horizon * (self.dimension - 1)))

    @property
    def random(self) -> float:
        """The regret of random actions, which no seed changes."""
        world = hard_mixture(self.dimension, self.horizon, gap=self.gap)
        return self.users * (world.optimal_value - world.baseline_value)


@dataclass(frozen=True)
class Line:
    """One agent under one model."""

    label: str
    model: Literal["none", "joint", "local"]
    pen: Pen
    agent: str = "linopt_vi"

    def case(self, point: Point) -> Case:
        """It at a point."""
        models: dict[str, Privacy] = {"none": PLAIN, "joint": joint(point.epsilon)}
        privacy = models.get(self.model, LocalDP(LOCAL_EPSILON, DELTA))
        sizes = f"dimension={point.dimension},horizon={point.horizon},gap={point.gap!r}"
        return Case((), f"hard_mixture:{sizes},seed=SEED", self.agent, privacy, point.users)


LINES = (
    Line("VI, not private", "none", Pen("#222222", "X")),
    Line("VI, joint", "joint", Pen("#0072B2", "o")),
    Line("PO, not private", "none", Pen("#E69F00", "v"), "linopt_po"),
    Line("PO, joint", "joint", Pen("#D55E00", "s"), "linopt_po"),
)
LOCAL = (Line("VI", "local", Pen("#009E73", "D")),)


@dataclass(frozen=True)
class Along:
    """What is varied; of several points at a place the worst for an agent counts."""

    title: str
    axis: str
    points: Mapping[float, tuple[Point, ...]]
    lines: tuple[Line, ...]
    bound: str

    @property
    def random(self) -> Floats | None:
        """Regrets of random actions, where there is one gap for each place."""
        if any(len(some) > 1 for some in self.points.values()):
            return None
        return np.array([some[0].random for some in self.points.values()])


def panels(quick: bool = False) -> tuple[Along, ...]:
    """All of them; ``quick`` is two points of each."""
    few = 2 if quick else None
    users = [10**power for power in (6, 7, 8, 9, 10)][:few]
    epsilons = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)[:few]
    fixed = 10**6 if quick else FIXED
    at = f"K = {short(fixed)}"
    worst = f"The worst gap, ε = 1, {at}"
    by_dimension = {
        float(d - 1): tuple(Point(fixed, dimension=d, size=size) for size in GAPS)
        for d in (3, 4, 5, 7)[:few]
    }
    by_horizon = {
        float(H): tuple(Point(fixed, horizon=H, size=size) for size in GAPS)
        for H in (3, 4, 6, 9)[:few]
    }
    return (
        Along("ε = 1", "users K", {k: (Point(k),) for k in users}, LINES, "bounds: 1/2"),
        Along(
            f"Local DP, ε = {LOCAL_EPSILON:g}",
            "users K",
            {k: (Point(k, local=True),) for k in users},
            LOCAL,
            "bound: 3/4",
        ),
        Along(
            f"Joint DP, {at}",
            "epsilon",
            {epsilon: (Point(fixed, epsilon=epsilon),) for epsilon in epsilons},
            (LINES[1], LINES[3]),
            "bounds: -1/2",
        ),
        Along(worst, "unknown weights, d - 1", by_dimension, LINES, "bounds: 1, joint 7/4"),
        Along(worst, "horizon H", by_horizon, LINES, "bounds: 2, joint 5/2"),
    )


Measured = Sequence[tuple[Along, Sequence[Curve]]]
"""With the regrets of every line."""


def regret(case: Case, seed: int) -> float:
    """Of all users of a run."""
    return float(case.run(seed).regret[-1])


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything."""
    shown = panels(quick)
    cases = [
        line.case(point)
        for panel in shown
        for line in panel.lines
        for points in panel.points.values()
        for point in points
    ]
    found = run_all(cases, regret, runs, workers)

    def worst(line: Line, points: Sequence[Point]) -> list[float]:
        """Regrets of each run where their median is largest."""
        return max((found[line.case(point)] for point in points), key=np.median)

    def curve(panel: Along, line: Line) -> Curve:
        rows = [worst(line, points) for points in panel.points.values()]
        return Curve(line.label, line.pen, [*panel.points], rows)

    return [(panel, [curve(panel, line) for line in panel.lines]) for panel in shown]


def paint(path: Path, measured: Measured) -> None:
    """A panel for each."""
    panels = [
        Panel(f"{along.title}; {along.bound}", along.axis, curves, along.random, "regret")
        for along, curves in measured
    ]
    title = "Linear mixtures: the orders of the bounds, on worlds whose gap shrinks"
    words = f"Regret of all K users. δ = 1e-6, d = {DIMENSION}, H = {HORIZON} unless varied."
    draw_panels(path, panels, title, words, panels=3, rows=2, size=(16.5, 4.5))


def table(measured: Measured) -> str:
    """Medians at both ends and the slopes between, in Markdown."""
    lines = ["| along | agent | first | last | slope | order |", "|---|---|---:|---:|---:|---|"]
    for panel, curves in measured:
        x = list(panel.points)
        along = f"{panel.axis}, {short(x[0])} to {short(x[-1])}"
        shown = {one.label: one.middle for one in curves}
        if panel.random is not None:
            shown["random"] = panel.random
        lines += [
            f"| {along} | {label} | {y[0]:,.0f} | {y[-1]:,.0f} | {slope(x, y):.2f} | "
            f"{panel.bound} |"
            for label, y in shown.items()
        ]
    return "\n".join(lines)


main = figure_main("research.mixture_orders", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
