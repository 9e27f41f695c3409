"""The orders of the regret bounds, on worlds whose gap shrinks with the number of users K.

The bounds are about the worst world for each K, in which the better action is better by about
sqrt(S A / K): any larger gap is found out sooner, any smaller one costs less. So each K has a world
of its own. A user arrives in one of two contexts and acts; with probability (1 +- gap)/2 she gets
to a place that pays 1. Even random actions have a regret like sqrt(K) here. What counts is how far
below it an agent stays.

All agents are as they are shipped. The practical bonus was chosen for worlds with clear gaps, and
in some runs here value iteration stops exploring too early. Beside it is the same agent with four
times the bonus, labelled so. What the theorems promise is printed by ``tacit.papers.bounds``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tacit
from research.figures import Curve, Panel, Pen, draw_panels, figure_main, slope
from research.study import DELTA, PLAIN, joint, markdown, run_all
from tacit.privacy.models import LocalDP, Privacy
from tacit.simulation.plots import short

CONTEXTS, ACTIONS, HORIZON = 2, 2, 2
# The gap, in units of sqrt(S A / K).
GAP = 40.0
USERS, FIXED = (10**6, 10**7, 10**8, 10**9), 10**8


def gap(users: int) -> float:
    """By how much the better action is better.

    >>> round(gap(10**8), 6)
    0.008
    """
    return min(0.5, GAP * math.sqrt(CONTEXTS * ACTIONS / users))


def hard_world(users: int) -> tacit.tabular.TabularWorld:
    """Two contexts, a place that pays and one that does not; the gap is for ``users`` users."""
    S = CONTEXTS + 2
    P, R, start = np.zeros((S, ACTIONS, S)), np.zeros((S, ACTIONS)), np.zeros(S)
    for context in range(CONTEXTS):
        for action in range(ACTIONS):
            better = action == context % ACTIONS
            paid = 0.5 * (1.0 + gap(users) * (1.0 if better else -1.0))
            P[context, action, -2:] = paid, 1.0 - paid
    for place in (S - 2, S - 1):
        P[place, :, place] = 1.0
    R[S - 2], start[:CONTEXTS] = 1.0, 1.0 / CONTEXTS
    return tacit.tabular.TabularWorld(P, R, HORIZON, start, name=f"contexts:gap={gap(users):.3g}")


BLUE = Pen("#0072B2", "o")


@dataclass(frozen=True)
class Line:
    """One agent under one budget."""

    label: str
    privacy: Privacy
    pen: Pen = BLUE
    agent: str = "ucbvi"


PRACTICAL = (
    Line("not private", PLAIN, Pen("#222222", "X")),
    Line("joint, ε = 1", joint(1.0)),
    Line("joint, ε = 0.1", joint(0.1), Pen("#56B4E9", "P")),
    Line("local, ε = 10", LocalDP(10.0, DELTA), Pen("#009E73", "D")),
)
OPTIMISERS = (
    Line("PO", PLAIN, Pen("#E69F00", "v"), "ucbpo"),
    Line("PO, joint, ε = 1", joint(1.0), Pen("#D55E00", "s"), "ucbpo"),
)
BOLD = (
    Line("VI, bonus x 4", PLAIN, Pen("#CC79A7", "^"), "ucbvi:scale=4"),
    Line("VI, bonus x 4, joint, ε = 1", joint(1.0), Pen("#009E73", "D"), "ucbvi:scale=4"),
)
BUDGETS = {
    "joint": [Line(f"{e}", joint(e)) for e in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)],
    "local": [Line(f"{e}", LocalDP(e, DELTA), PRACTICAL[3].pen) for e in (1.0, 3.0, 10.0, 30.0)],
}


def regret(job: tuple[Line, int], seed: int) -> float:
    """Of all users of a run."""
    line, users = job
    given: dict[str, Any] = {"users": users, "privacy": line.privacy}
    result = tacit.run(line.agent, hard_world(users), seed, progress=False, **given)
    return float(result.regret[-1])


Regrets = Mapping[tuple[Line, int], Sequence[float]]


def measure(runs: int, workers: int, quick: bool) -> Regrets:
    """Every line for every K, and all budgets for one; ``quick`` is a small part of it."""
    users, fixed = (USERS[:2], USERS[0]) if quick else (USERS, FIXED)
    jobs = [(line, k) for line in (*PRACTICAL, *OPTIMISERS, *BOLD) for k in users]
    jobs += [(line, fixed) for lines in BUDGETS.values() for line in lines]
    return run_all(jobs, regret, runs, workers)


def curve(measured: Regrets, line: Line) -> Curve:
    """The regrets of a line by K."""
    found = {k: some for (one, k), some in measured.items() if one == line}
    return Curve(line.label, line.pen, [*found], [*found.values()])


def random(users: Sequence[float]) -> list[float]:
    """The regret of random actions."""
    return [0.5 * gap(int(k)) * k for k in users]


def paint(path: Path, measured: Regrets) -> None:
    """Four panels."""
    users, regret_of = curve(measured, PRACTICAL[0]).x, "regret of all K users"

    def by_users(lines: Sequence[Line], title: str) -> Panel:
        curves = [curve(measured, line) for line in lines]
        return Panel(title, "users K", curves, random(users), regret_of)

    panels = [
        by_users(PRACTICAL, "Value iteration, as shipped"),
        by_users(BOLD, "Value iteration with four times the bonus"),
        _budgets(measured),
        by_users(OPTIMISERS, "Policy optimisation, as shipped"),
    ]
    title = "The orders of the bounds, on worlds whose gap shrinks like 1/√K"
    draw_panels(path, panels, title, "δ = 1e-6.", size=(11, 4.5), rows=2)


def _budgets(measured: Regrets) -> Panel:
    fixed = next(k for line, k in measured if line == BUDGETS["joint"][0])
    curves = [
        Curve(
            name,
            lines[0].pen,
            [float(line.label) for line in lines],
            [measured[line, fixed] for line in lines],
            words=name,
        )
        for name, lines in BUDGETS.items()
    ]
    plain = [measured[PRACTICAL[0], fixed]] * len(curves[0].x)
    label = PRACTICAL[0].label
    curves.append(Curve(label, PRACTICAL[0].pen, curves[0].x, plain, words=label))
    return Panel(f"Value iteration by ε, K = {short(fixed)}", "epsilon", curves)


def table(measured: Regrets) -> str:
    """Medians at the smallest and the largest K, and the slopes between, in Markdown."""
    users = curve(measured, PRACTICAL[0]).x
    shown = {"random actions": np.array(random(users))}
    shown |= {f"VI, {line.label}": curve(measured, line).middle for line in PRACTICAL}
    shown |= {line.label: curve(measured, line).middle for line in (*OPTIMISERS, *BOLD)}
    cells = [
        [f"regret, {name}", f"{y[0]:,.0f}", f"{y[-1]:,.0f}", f"{slope(users, y):.2f}"]
        for name, y in shown.items()
    ]
    return markdown(["", f"K = {short(users[0])}", f"K = {short(users[-1])}", "slope"], cells)


main = figure_main("research.tabular_orders", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
