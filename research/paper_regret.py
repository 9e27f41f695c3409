"""The promise of Chowdhury and Zhou with their own algorithms: what privacy adds to regret.

PRIVATE-UCB-VI and PRIVATE-UCB-PO with corrected constants (``tacit.papers``) in a world of two
states and two steps, beside the same algorithm without noise and random actions. The theorems
promise a cost of privacy that does not grow with K but for logarithms and falls like 1/epsilon
under joint DP, and one that grows like sqrt(K) under local DP. Budgets are generous.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from research import figures
from research.figures import Pen
from research.study import amount, markdown, run_all
from tacit.papers.chowdhury_tabular_2021 import ucb_po, ucb_vi
from tacit.privacy.validation import Floats
from tacit.simulation.plots import short
from tacit.tabular import TabularWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

USERS, FIXED = (10_000, 20_000, 40_000, 80_000), 40_000
EPSILON, EPSILONS = 200.0, (50.0, 100.0, 200.0, 400.0)
ALGORITHMS = {"UCB-VI": ucb_vi, "UCB-PO": ucb_po}
MODELS = {"none": "not private", "central": "joint", "local": "local"}
PENS = {"none": Pen("#222222", "X"), "central": Pen("#0072B2", "o"), "local": Pen("#009E73", "D")}
Job = tuple[str, str, int, float]
"""Algorithm, privatizer, K and epsilon."""
Regrets = Mapping[Job, Sequence[float]]


def world() -> TabularWorld:
    """Action a leads to state a nine times in ten; staying in state 1 pays 1."""
    moves = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 2)
    return TabularWorld(moves, [[0.0, 0.0], [0.0, 1.0]], 2, [0.5, 0.5], name="two places")


def regret(job: Job, seed: int) -> float:
    """Of all users of a run."""
    name, kind, users, epsilon = job
    given: dict[str, Any] = {"episodes": users, "epsilon": epsilon, "privatizer": kind}
    return float(ALGORITHMS[name](world(), printed=False, seed=seed, **given).regret[-1])


def measure(runs: int, workers: int, quick: bool) -> Regrets:
    """Every algorithm and model by K, and by epsilon at one K; ``quick`` is with few users."""
    users, fixed = ((500, 1_000), 1_000) if quick else (USERS, FIXED)
    jobs = [(name, kind, k, EPSILON) for name in ALGORITHMS for kind in MODELS for k in users]
    models = ("central", "local")
    jobs += [(n, kind, fixed, e) for n in ALGORITHMS for kind in models for e in EPSILONS]
    return run_all(jobs, regret, runs, workers)


def costs(measured: Regrets, name: str, kind: str, epsilon: float | None = EPSILON) -> Floats:
    """What privacy adds, by K, or by epsilon if that is None: a row per point, a column per run."""
    fixed = next(job[2] for job in measured if job[3] != EPSILON)
    jobs = [j for j in measured if j[:2] == (name, kind) and epsilon in (None, j[3])]
    jobs = [j for j in jobs if epsilon is not None or j[2] == fixed]
    jobs.sort(key=lambda job: job[2:])
    return np.array([np.array(measured[j]) - measured[j[0], "none", j[2], EPSILON] for j in jobs])


def paint(path: Path, measured: Regrets) -> None:
    """Regret by K, and the cost of privacy by K and by epsilon; one row per algorithm."""
    runs = len(next(iter(measured.values())))
    with figures.drawing(
        path,
        "What privacy costs with the paper's own algorithms, corrected",
        f"Lines: medians of {runs} runs; bands: 10th to 90th percentile. δ = 0. "
        f"Numbers: slopes, logarithmic axes. By K at ε = {EPSILON:g}, by ε at K = {short(FIXED)}.",
        panels=3,
        size=(13.5, 4.4),
        rows=2,
        sharey=False,
    ) as panels:
        for row, name in enumerate(ALGORITHMS):
            _row(panels[3 * row : 3 * row + 3], measured, name)


def _row(panels: Sequence[Axes], measured: Regrets, name: str) -> None:
    from matplotlib.ticker import LogLocator

    users: Sequence[float] = sorted({job[2] for job in measured})
    ends: list[list[figures.EndLabel]] = [[], [], []]
    titles = ("regret of all K users", "cost of privacy by K", "cost of privacy by ε")
    for axes, label, ticks, title in zip(
        panels,
        ("users K", "users K", "epsilon"),
        (users, users, EPSILONS),
        titles,
        strict=True,
    ):
        figures.logarithmic(axes, label)
        axes.set(title=f"{name}: {title}", xticks=ticks)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for kind, label in MODELS.items():
        found = np.array([measured[name, kind, int(k), EPSILON] for k in users])
        ends[0].append(figures.band(panels[0], users, found, PENS[kind], label))
        for i, x, by in ((1, users, EPSILON), (2, EPSILONS, None)):
            if kind != "none":
                added = costs(measured, name, kind, by)
                text = f"{label}  {figures.slope(x, np.median(added, axis=1)):.2f}"
                ends[i].append(figures.band(panels[i], x, added, PENS[kind], text, 1.0))
    random = (world().optimal_value - world().baseline_value) * np.array(users)
    panels[0].plot(users, random, ":", color=figures.PALE, lw=1.3)
    ends[0].append(figures.EndLabel(users[-1], float(random[-1]), "random actions", figures.PALE))
    for axes, labels in zip(panels, ends, strict=True):
        figures.label_ends(axes, labels)


def table(measured: Regrets) -> str:
    """Median regrets, and the slopes of what privacy adds, in Markdown."""
    users = sorted({job[2] for job in measured})
    heads = ["algorithm", "model", *(f"K = {short(k)}" for k in users)]
    rows = []
    lost = world().optimal_value - world().baseline_value
    for name in ALGORITHMS:
        for kind, label in MODELS.items():
            middle = [float(np.median(measured[name, kind, k, EPSILON])) for k in users]
            slopes = ["-", "-"]
            if kind != "none":
                by = ((users, EPSILON), (EPSILONS, None))
                added = [(x, np.median(costs(measured, name, kind, e), axis=1)) for x, e in by]
                slopes = [f"{figures.slope(x, y):.2f}" for x, y in added]
            rows.append([name, label, *map(amount, middle), *slopes])
    rows.append(["random actions", "", *(amount(lost * k) for k in users), "-", "-"])
    return markdown([*heads, "cost by K", "cost by epsilon"], rows, 2)


main = figures.figure_main("research.paper_regret", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
