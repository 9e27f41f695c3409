"""What epsilon costs in users: how many it takes until served users have 90 % of the optimum.

Everything is measured on riverswim with 6 states and 20 steps, the world on which the agents'
constants were chosen; :mod:`~research.studies` has others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from research.figures import EndLabel, Pen, band, drawing, figure_main, label_ends, logarithmic
from research.study import DELTA, PLAIN, Case, joint, markdown, run_all, spread
from tacit.privacy.models import LocalDP
from tacit.simulation.plots import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Where the points without privacy are drawn, on the axis of epsilon.
WITHOUT = 45.0


@dataclass(frozen=True)
class Line:
    """One agent with its options under one model, over all budgets."""

    label: str
    agent: str
    pen: Pen
    local: bool = False

    def case(self, epsilon: float | None) -> Case:
        """It at a budget, with well above ten times the users that were seen to be needed."""
        if epsilon is None:
            return Case((), "riverswim", self.agent, PLAIN, 1_000_000)
        if not self.local:
            return Case((), "riverswim", self.agent, joint(epsilon), round(1e7 / epsilon))
        # Reports need users like 1 / epsilon^2 where epsilon is small.
        users = round(1e10 * max(1.0 / epsilon, 1.0 / epsilon**2))
        return Case((), "riverswim", self.agent, LocalDP(epsilon, DELTA), users)

    @property
    def epsilons(self) -> tuple[float | None, ...]:
        """Without privacy the local agent is the joint one."""
        return EPSILONS if self.local else (*EPSILONS, None)


_STEPS = ":stationary=false"
LINES = (
    Line("UCBVI", "ucbvi", Pen("#0072B2", "o")),
    Line("UCBPO", "ucbpo", Pen("#56B4E9", "P")),
    Line("UCBVI, per step", f"ucbvi{_STEPS}", Pen("#D55E00", "s")),
    Line("UCBPO, per step", f"ucbpo{_STEPS}", Pen("#E69F00", "v")),
    Line("UCBVI, local", "ucbvi", Pen("#CC79A7", "^"), local=True),
    Line("UCBVI, per step, local", f"ucbvi{_STEPS}", Pen("#009E73", "D"), local=True),
)
Costs = Mapping[str, Mapping[float | None, Sequence[float | None]]]
"""Users to 90 % of all runs, by line and epsilon."""


def measure(runs: int, workers: int, quick: bool) -> Costs:
    """All lines at all budgets; ``quick`` is the first two at epsilon 10 and without privacy."""
    lines = LINES[:2] if quick else LINES
    shown = {line: line.epsilons[-2:] if quick else line.epsilons for line in lines}
    cases = [line.case(epsilon) for line, some in shown.items() for epsilon in some]
    found = run_all(cases, Case.run, runs, workers)
    return {
        line.label: {e: [run.users_to_90 for run in found[line.case(e)]] for e in some}
        for line, some in shown.items()
    }


def paint(path: Path, costs: Costs) -> None:
    """Users until 90 % against epsilon, a line with its band per agent."""
    runs = len(next(iter(next(iter(costs.values())).values())))
    with drawing(
        path,
        "What epsilon costs in users",
        "Users served on riverswim until 90 % of the optimum, for good. "
        f"Median and deciles of {runs} runs; δ = 1e-6.",
        panels=1,
        size=(9.5, 6.0),
    ) as (axes,):
        labels = [_draw(axes, line, costs[line.label]) for line in LINES if line.label in costs]
        _style(axes)
        label_ends(axes, labels)


def _draw(axes: Axes, line: Line, costs: Mapping[float | None, Sequence[float | None]]) -> EndLabel:
    x = [WITHOUT if e is None else e for e in costs]
    rows = [[1e12 if n is None else max(1.0, n) for n in found] for found in costs.values()]
    return band(axes, x, np.array(rows), line.pen, line.label)


def _style(axes: Axes) -> None:
    logarithmic(axes, "epsilon")
    axes.set_xticks([*EPSILONS, WITHOUT], [*(f"{e:g}" for e in EPSILONS), "no\nprivacy"])
    axes.set(ylabel="users to 90 %")


def people(users: float) -> str:
    """A number of users for a table.

    >>> people(12345.0), people(20283033436.0), people(math.inf)
    ('12,345', '20.3B', 'not reached')
    """
    if math.isinf(users):
        return "not reached"
    return short(users) if users >= 1e7 else f"{math.ceil(users):,}"


def table(costs: Costs) -> str:
    """Medians and deciles, in Markdown."""
    budgets = (*EPSILONS, None)
    names = ["no privacy" if e is None else f"epsilon {e:g}" for e in budgets]
    rows = [
        [label, *(spread(row[e], (0.1, 0.9), people) if e in row else "" for e in budgets)]
        for label, row in costs.items()
    ]
    return markdown(["", *names], rows)


main = figure_main("research.epsilon_cost", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
