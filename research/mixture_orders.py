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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import figure_main
from research.figures import PALE, EndLabel, Pen, label_ends
from research.jobs import DELTA, PROCESSES, RUNS, WORKERS, Job, run_jobs
from research.tabular_orders import _band, _logarithmic, _sheet
from tacit.mixture.worlds import hard_mixture
from tacit.simulation.plots import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.privacy.models import Privacy

Floats = NDArray[np.float64]

DIMENSION, HORIZON = 4, 4
# The gap is GAP / sqrt(K epsilon), and LOCAL_GAP / K^(1/4) under local DP.
GAP, LOCAL_GAP = 25.0, 2.5
# The worst of these is looked for, in the same units.
GAPS = (1.0, 3.0, 10.0, 30.0)
LOCAL_EPSILON = 10.0
FIXED_USERS = 10**8


@dataclass(frozen=True)
class Point:
    """Where agents are compared.

    Attributes:
        users: K.
        epsilon: of joint agents.
        dimension: of the features.
        horizon: steps of an episode.
        size: of the gap, in units of 1 / sqrt(K epsilon).
        local: whether the gap is that of local DP.
    """

    users: int = FIXED_USERS
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
    def world(self) -> str:
        """The world, all but its seed."""
        d, H = self.dimension, self.horizon
        return f"hard_mixture:dimension={d},horizon={H},gap={self.gap!r}"

    @property
    def random(self) -> float:
        """The regret of random actions, which no seed changes."""
        world = hard_mixture(self.dimension, self.horizon, gap=self.gap)
        return self.users * (world.optimal_value - world.baseline_value)


@dataclass(frozen=True)
class Line:
    """One agent.

    Attributes:
        label: what it is called.
        model: of privacy.
        pen: how it is drawn.
        agent: the class.
    """

    label: str
    model: Literal["none", "joint", "local"]
    pen: Pen
    agent: Literal["LinOptVI", "LinOptPO"] = "LinOptVI"

    def job(self, point: Point) -> Job:
        """It at a point."""
        privacy: Privacy = tacit.NonPrivate()
        if self.model == "joint":
            privacy = tacit.JointDP(point.epsilon, DELTA)
        elif self.model == "local":
            privacy = tacit.LocalDP(LOCAL_EPSILON, DELTA)
        return Job(point.world, self.agent, privacy, point.users)


BLACK, BLUE, ORANGE, RED = "#222222", "#0072B2", "#E69F00", "#D55E00"
LINES = (
    Line("VI, not private", "none", Pen(BLACK, "X")),
    Line("VI, joint", "joint", Pen(BLUE, "o")),
    Line("PO, not private", "none", Pen(ORANGE, "v"), "LinOptPO"),
    Line("PO, joint", "joint", Pen(RED, "s"), "LinOptPO"),
)
BUDGETS = (LINES[1], LINES[3])
LOCAL = (Line("VI", "local", Pen("#009E73", "D")),)


@dataclass(frozen=True)
class Panel:
    """What one panel shows.

    Attributes:
        title: in words.
        axis: what is along it.
        x: its values,
        points: where agents run at each; of several, the worst for an agent counts.
        lines: which.
        bound: the bounds' orders, in words.
    """

    title: str
    axis: str
    x: tuple[float, ...]
    points: tuple[tuple[Point, ...], ...]
    lines: tuple[Line, ...]
    bound: str


def panels(quick: bool = False) -> dict[str, Panel]:
    """All of them; ``quick`` is two points of each."""
    few = 2 if quick else None
    users = tuple(10**power for power in (6, 7, 8, 9, 10))[:few]
    epsilons = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)[:few]
    dimensions, horizons = (3, 4, 5, 7)[:few], (3, 4, 6, 9)[:few]
    fixed = 10**6 if quick else FIXED_USERS
    of_users = tuple((Point(number),) for number in users)
    at = f"K = {short(fixed)}"
    return {
        "users": Panel("ε = 1", "users K", users, of_users, LINES, "bounds: 1/2"),
        "local": Panel(
            f"Local DP, ε = {LOCAL_EPSILON:g}",
            "users K",
            users,
            tuple((Point(number, local=True),) for number in users),
            LOCAL,
            "bound: 3/4",
        ),
        "epsilon": Panel(
            f"Joint DP, {at}",
            "epsilon",
            epsilons,
            tuple((Point(fixed, epsilon=epsilon),) for epsilon in epsilons),
            BUDGETS,
            "bounds: -1/2",
        ),
        "dimension": Panel(
            f"The worst gap, ε = 1, {at}",
            "unknown weights, d - 1",
            tuple(d - 1 for d in dimensions),
            tuple(tuple(Point(fixed, dimension=d, size=size) for size in GAPS) for d in dimensions),
            LINES,
            "bounds: 1, joint 7/4",
        ),
        "horizon": Panel(
            f"The worst gap, ε = 1, {at}",
            "horizon H",
            horizons,
            tuple(tuple(Point(fixed, horizon=H, size=size) for size in GAPS) for H in horizons),
            LINES,
            "bounds: 2, joint 5/2",
        ),
    }


@dataclass(frozen=True)
class Measured:
    """Everything that is drawn.

    Attributes:
        panels: what was run.
        regrets: of every panel and line, a row per point and a column per run.
    """

    panels: Mapping[str, Panel]
    regrets: Mapping[str, Mapping[Line, Floats]]

    def slope(self, name: str, line: Line) -> float:
        """Of the medians, both as logarithms."""
        return slope(self.panels[name].x, np.median(self.regrets[name][line], axis=1))

    def random(self, name: str) -> Floats | None:
        """Regrets of random actions, where there is one gap for each place."""
        points = self.panels[name].points
        if any(len(some) > 1 for some in points):
            return None
        return np.array([some[0].random for some in points])


def slope(x: Sequence[float], y: Floats) -> float:
    """Of a line through points on logarithmic axes; not a number if one is not positive.

    >>> round(slope([1.0, 10.0, 100.0], np.array([3.0, 30.0, 300.0])), 3)
    1.0
    """
    if np.any(y <= 0):
        return math.nan
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure(quick: bool = False, runs: int = RUNS, workers: int = WORKERS) -> Measured:
    """Runs everything, under a progress bar."""
    shown = panels(quick)
    runs = min(runs, 2) if quick else runs
    jobs = [
        line.job(point)
        for panel in shown.values()
        for line in panel.lines
        for points in panel.points
        for point in points
    ]
    found = run_jobs(jobs, range(runs), workers)

    def worst(line: Line, points: Sequence[Point]) -> Floats:
        """Regrets of each run where their median is largest."""
        rows = [
            np.array([run.result.regret[-1] for run in found[line.job(point)]]) for point in points
        ]
        return max(rows, key=lambda row: float(np.median(row)))

    regrets = {
        name: {
            line: np.stack([worst(line, points) for points in panel.points]) for line in panel.lines
        }
        for name, panel in shown.items()
    }
    return Measured(shown, regrets)


def paint(path: Path, measured: Measured) -> None:
    """A panel for each."""
    runs = next(iter(measured.regrets["users"].values())).shape[1]
    with _sheet(
        path,
        "Linear mixtures: the orders of the bounds, on worlds whose gap shrinks",
        f"Regret of all K users. Lines: medians of {runs} worlds; bands: 10th to 90th percentile. "
        f"δ = 1e-6, d = {DIMENSION}, H = {HORIZON} unless varied. Numbers: slopes on logarithmic "
        "axes.",
        columns=3,
    ) as sheet:
        for axes, name in zip(sheet, measured.panels, strict=False):
            _draw(axes, measured, name)
        for axes in sheet[len(measured.panels) :]:
            axes.set_axis_off()


def _draw(axes: Axes, measured: Measured, name: str) -> None:
    panel, random = measured.panels[name], measured.random(name)
    _logarithmic(axes, panel.axis)
    if name in ("dimension", "horizon"):
        axes.set_xticks(panel.x, [f"{value:g}" for value in panel.x])
    labels = [
        _band(axes, panel.x, rows, line.pen, f"{line.label}  {measured.slope(name, line):.2f}")
        for line, rows in measured.regrets[name].items()
    ]
    if random is not None:
        axes.plot(panel.x, random, ":", color=PALE, lw=1.3)
        words = f"random  {slope(panel.x, random):.2f}"
        labels.append(EndLabel(float(panel.x[-1]), float(random[-1]), words, PALE))
    label_ends(axes, labels)
    axes.set(title=f"{panel.title}; {panel.bound}", ylabel="regret")


def table(measured: Measured) -> str:
    """Medians at both ends and the slopes between, in Markdown."""
    lines = ["| along | agent | first | last | slope | order |", "|---|---|---:|---:|---:|---|"]
    for name, panel in measured.panels.items():
        along = f"{panel.axis}, {short(panel.x[0])} to {short(panel.x[-1])}"
        lines += [
            f"| {along} | {' | '.join(cells)} | {panel.bound} |" for cells in _cells(measured, name)
        ]
    return "\n".join(lines)


def _cells(measured: Measured, name: str) -> Iterator[tuple[str, ...]]:
    panel = measured.panels[name]
    rows = {
        line.label: np.median(regrets, axis=1) for line, regrets in measured.regrets[name].items()
    }
    if (random := measured.random(name)) is not None:
        rows["random"] = random
    for label, middle in rows.items():
        yield (label, f"{middle[0]:,.0f}", f"{middle[-1]:,.0f}", f"{slope(panel.x, middle):.2f}")


NUMBERS = {"runs": (1, RUNS, "seeds of every point"), "workers": PROCESSES}
main = figure_main(__spec__, __doc__, measure, paint, [table], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
