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
from typing import TYPE_CHECKING, Any

import numpy as np

import tacit
from research.figures import (
    PALE,
    EndLabel,
    Pen,
    band,
    drawing,
    figure_main,
    label_ends,
    logarithmic,
    slope,
)
from research.study import DELTA, PLAIN, joint, markdown, run_all
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.validation import Floats
from tacit.simulation.plots import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def rows(measured: Regrets, line: Line) -> dict[int, Sequence[float]]:
    """The regrets of a line by K."""
    return {k: found for (one, k), found in measured.items() if one == line}


def middle(by_users: Mapping[int, Sequence[float]]) -> Floats:
    """Medians."""
    return np.array([np.median(found) for found in by_users.values()])


def paint(path: Path, measured: Regrets) -> None:
    """Four panels."""
    runs = len(next(iter(measured.values())))
    with drawing(
        path,
        "The orders of the bounds, on worlds whose gap shrinks like 1/√K",
        f"Lines: medians of {runs} runs; bands: 10th to 90th percentile. δ = 1e-6. "
        "Numbers: slopes on logarithmic axes.",
        size=(11, 4.5),
        rows=2,
        sharey=False,
    ) as (shipped, bold, budget, optimisers):
        for axes, lines, title in (
            (shipped, PRACTICAL, "Value iteration, as shipped"),
            (bold, BOLD, "Value iteration with four times the bonus"),
            (optimisers, OPTIMISERS, "Policy optimisation, as shipped"),
        ):
            _lines(axes, measured, lines)
            axes.set(title=title, ylabel="regret of all K users")
        _budgets(budget, measured)


def _lines(axes: Axes, measured: Regrets, lines: Sequence[Line]) -> None:
    logarithmic(axes, "users K")
    labels = []
    for line in lines:
        found = rows(measured, line)
        text = f"{line.label}  {slope(list(found), middle(found)):.2f}"
        labels.append(band(axes, list(found), np.array(list(found.values())), line.pen, text, 1.0))
    random = [0.5 * gap(users) * users for users in found]
    axes.plot(list(found), random, ":", color=PALE, lw=1.3)
    labels.append(EndLabel(list(found)[-1], random[-1], "random", PALE))
    label_ends(axes, labels)


def _budgets(axes: Axes, measured: Regrets) -> None:
    logarithmic(axes, "epsilon")
    labels = []
    for name, lines in BUDGETS.items():
        ((fixed, _),) = rows(measured, lines[0]).items()
        found = np.array([measured[line, fixed] for line in lines])
        x = [float(line.label) for line in lines]
        labels.append(band(axes, x, found, lines[0].pen, name, 1.0))
    plain, ink = float(np.median(measured[PRACTICAL[0], fixed])), PRACTICAL[0].pen.colour
    axes.axhline(plain, color=ink, ls=":", lw=1.3)
    labels.append(EndLabel(30.0, plain, "not private", ink))
    label_ends(axes, labels)
    axes.set(title=f"Value iteration by ε, K = {short(fixed)}", ylabel="regret of all K users")


def table(measured: Regrets) -> str:
    """Medians at the smallest and the largest K, and the slopes between, in Markdown."""
    users = list(rows(measured, PRACTICAL[0]))
    shown = {"random actions": np.array([0.5 * gap(k) * k for k in users])}
    shown |= {f"VI, {line.label}": middle(rows(measured, line)) for line in PRACTICAL}
    shown |= {line.label: middle(rows(measured, line)) for line in (*OPTIMISERS, *BOLD)}
    cells = [
        [f"regret, {name}", f"{y[0]:,.0f}", f"{y[-1]:,.0f}", f"{slope(users, y):.2f}"]
        for name, y in shown.items()
    ]
    return markdown(["", f"K = {short(users[0])}", f"K = {short(users[-1])}", "slope"], cells)


main = figure_main("research.tabular_orders", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
