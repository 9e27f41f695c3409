"""The agent with functional noise beside baselines: what so many users teach at one budget.

After Figure 2 of Wang and Hegde (2019), at its budgets, with all that is private under the same
accountant. Every point is a run of its own with so many users; the return is that of the greedy
policy in the end. The algorithm as printed is beside them, with the noise that the paper claims the
budget for: it has no guarantee.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from research.command_lines import figure_main
from research.continuous_held_out import (
    BASELINES,
    EVALUATION,
    FITTED,
    INPUT,
    NAMES,
    NETWORK,
    ONLINE,
    OUTPUT,
    PRINTED,
    BoxJob,
    PaperJob,
    printed_job,
)
from research.figures import PALE, EndLabel, Pen, drawing
from research.jobs import NUMBERS, RUNS, WORKERS, footnote, label_panels, run_jobs, sized
from tacit.privacy.models import JointDP
from tacit.simulation.plots import short_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.simulation.result import Result

Floats = NDArray[np.float64]

SIZES = (10, 30, 100, 300, 1000)
# What is slow gets fewer.
MOST = {PRINTED: 300}
CLAIMS = {0.9: 0.32, 0.45: 0.74}
"""The noise for which the paper claims an epsilon."""
DELTA = 1e-4


@dataclass(frozen=True)
class Line:
    """One agent.

    Attributes:
        kind: its name.
        pen: how it is drawn.
        label: what it is called, if not as usual.
    """

    kind: str
    pen: Pen
    label: str = ""

    @property
    def words(self) -> str:
        """What it is called."""
        return self.label or NAMES[self.kind]

    def job(self, epsilon: float, users: int) -> BoxJob:
        """It with so many users. As printed, all numbers of users are one run."""
        if self.kind == PRINTED:
            return printed_job(users, sigma=CLAIMS[epsilon])
        make = PaperJob if self.kind in BASELINES else BoxJob
        return make("line", self.kind, JointDP(epsilon, DELTA), users)


LINES = (
    Line(FITTED, Pen("#0072B2", "o")),
    Line(ONLINE, Pen("#56B4E9", "P")),
    Line(OUTPUT, Pen("#009E73", "D")),
    Line(NETWORK, Pen("#E69F00", "v"), "network, rewards only"),
    Line(EVALUATION, Pen("#D55E00", "s")),
    Line(INPUT, Pen("#222222", "X", "--"), "input, rewards only"),
    Line(PRINTED, Pen("#CC79A7", "^", ":"), "printed, no guarantee"),
)


@dataclass(frozen=True)
class Measured:
    """Returns of greedy policies.

    Attributes:
        sizes: numbers of users.
        returns: by epsilon and line: sizes and, a row for each, the returns of all runs.
        optimal: the largest return,
        uniform: and that of uniform actions.
    """

    sizes: Sequence[int]
    returns: Mapping[float, Mapping[Line, tuple[Sequence[int], Floats]]]
    optimal: float
    uniform: float

    @property
    def runs(self) -> int:
        """How many seeds."""
        return int(self.returns[0.9][LINES[0]][1].shape[1])


def sizes_of(line: Line, sizes: Sequence[int]) -> list[int]:
    """Fewer for what is slow."""
    return [size for size in sizes if size <= MOST.get(line.kind, size)]


def measure(
    runs: int = RUNS, users: int | None = None, workers: int = WORKERS, quick: bool = False
) -> Measured:
    """Runs everything up to so many users; ``quick`` is a small part of it."""
    runs, given = sized(runs, users, quick, 30)
    most = given or max(SIZES)
    sizes = [size for size in SIZES if size < most] + [most]
    wanted: dict[tuple[float, Line], list[BoxJob]] = {}
    for epsilon in CLAIMS:
        for line in LINES:
            some = sizes_of(line, sizes)
            alone = [max(some)] if line.kind == PRINTED else some
            wanted[epsilon, line] = [line.job(epsilon, size) for size in alone]
    found = run_jobs([job for jobs in wanted.values() for job in jobs], range(runs), workers)
    results = {job: [run.result for run in several] for job, several in found.items()}
    any_result = next(iter(results.values()))[0]
    return Measured(
        sizes,
        {
            epsilon: {
                line: (
                    sizes_of(line, sizes),
                    returns([results[job] for job in wanted[epsilon, line]], line, sizes),
                )
                for line in LINES
            }
            for epsilon in CLAIMS
        },
        any_result.optimal_value,
        any_result.baseline_value,
    )


def returns(found: Sequence[Sequence[Result]], line: Line, sizes: Sequence[int]) -> Floats:
    """Of greedy policies: a row for each number of users, a column for each run."""
    if line.kind == PRINTED:
        some = sizes_of(line, sizes)
        return np.array([run.greedy_values[some] for run in found[0]]).T
    return np.array([[run.greedy_values[-1] for run in several] for several in found])


# The picture.


GROUPS: Mapping[str, tuple[str, ...]] = {
    "functional noise, averages": (FITTED, ONLINE, OUTPUT),
    "all others": (NETWORK, EVALUATION, INPUT, PRINTED),
}


def paint(path: Path, measured: Measured) -> None:
    """Two panels for each budget, so that bands stay apart."""
    panels = [
        (epsilon, title, [line for line in found if line.kind in kinds])
        for epsilon, found in measured.returns.items()
        for title, kinds in GROUPS.items()
    ]
    with drawing(
        path,
        "Continuous states: what so many users teach at one budget",
        "Return of the greedy policy in the end, on line. Lines: medians of "
        f"{measured.runs} runs; bands: 10th to 90th percentile. Budgets, with δ = 1e-4, are for "
        "whole episodes unless it is said otherwise.",
        panels=len(panels),
        size=(18, 5.8),
    ) as sheet:
        labels = []
        for axes, (epsilon, title, some) in zip(sheet, panels, strict=True):
            axes.set(xscale="log", xlabel="users", title=f"ε = {epsilon:g}: {title}")
            axes.set_xlim(0.9 * min(measured.sizes), 1.1 * max(measured.sizes))
            axes.set_ylim(0.0, measured.optimal * 1.08)
            short_ticks(axes.xaxis)
            for level, name in ((measured.optimal, "optimum"), (measured.uniform, "uniform")):
                axes.axhline(level, color=PALE, ls=":", lw=1.3)
                axes.annotate(
                    name,
                    (min(measured.sizes), level),
                    xytext=(0, 3),
                    textcoords="offset points",
                    color=PALE,
                )
            # What the figure is about is drawn last, on top of the others.
            found = measured.returns[epsilon]
            labels.append([_draw(axes, line, *found[line]) for line in reversed(some)])
        sheet[0].set(ylabel="return of the greedy policy")
        footnote(
            sheet[0],
            "Baselines are reconstructions. FittedFunctionalQ, output and input perturbation serve "
            "all of these users at random. Input perturbation and the network protect rewards "
            "alone: states and actions are public.\nAs printed: the algorithm of Wang and Hegde "
            f"with σ = {CLAIMS[0.9]:g} and {CLAIMS[0.45]:g}, for which these budgets are claimed. "
            "It returns its network without noise: no guarantee at all.",
        )
        label_panels(sheet, labels)


def _draw(axes: Axes, line: Line, sizes: Sequence[int], rows: Floats) -> EndLabel:
    low, middle, high = np.quantile(rows, [0.1, 0.5, 0.9], axis=1)
    pen = line.pen
    axes.fill_between(sizes, low, high, color=pen.colour, alpha=0.1, lw=0)
    marks: dict[str, Any] = {"marker": pen.marker, "ms": 6, "mec": "white", "mew": 0.6}
    axes.plot(sizes, middle, color=pen.colour, ls=pen.dash, **marks)
    return EndLabel(float(sizes[-1]), float(middle[-1]), line.words, pen.colour)


def table(measured: Measured) -> str:
    """Returns, medians with deciles, in Markdown."""
    heads = ["agent", "ε", *(f"{size:,} users" for size in measured.sizes)]
    found = [f"| {' | '.join(heads)} |", "|---" * 2 + "|---:" * len(measured.sizes) + "|"]
    for epsilon, by_line in measured.returns.items():
        for line, (sizes, rows) in by_line.items():
            cells = dict.fromkeys(measured.sizes, "-")
            for size, row in zip(sizes, rows, strict=True):
                low, middle, high = np.quantile(row, [0.1, 0.5, 0.9])
                cells[size] = f"{middle:.1f} [{low:.1f}, {high:.1f}]"
            found.append(f"| {line.words} | {epsilon:g} | {' | '.join(cells.values())} |")
    return "\n".join(found)


main = figure_main(__spec__, __doc__, measure, paint, [table], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
