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
from typing import Any

import numpy as np

from research.figures import Curve, Panel, Pen, draw_panels, figure_main
from research.study import amount, markdown, run_all
from tacit.papers.chowdhury_tabular_2021 import ucb_po, ucb_vi
from tacit.simulation.plots import short
from tacit.tabular import TabularWorld

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


def users_of(measured: Regrets) -> list[int]:
    """Numbers of users, in their order."""
    return sorted({job[2] for job in measured if job[3] == EPSILON})


def regrets(measured: Regrets, name: str, kind: str) -> Curve:
    """By K."""
    users = users_of(measured)
    rows = [measured[name, kind, k, EPSILON] for k in users]
    return Curve(MODELS[kind], PENS[kind], users, rows, words=MODELS[kind])


def costs(measured: Regrets, name: str, kind: str, by_users: bool) -> Curve:
    """What privacy adds, by K or by epsilon."""
    users, fixed = users_of(measured), next(job[2] for job in measured if job[3] != EPSILON)
    jobs = [(k, EPSILON) for k in users] if by_users else [(fixed, e) for e in EPSILONS]
    rows = [
        np.array(measured[name, kind, k, e]) - measured[name, "none", k, EPSILON] for k, e in jobs
    ]
    return Curve(MODELS[kind], PENS[kind], users if by_users else EPSILONS, rows)


def random(measured: Regrets) -> list[float]:
    """What random actions lose, by K."""
    lost = world().optimal_value - world().baseline_value
    return [lost * k for k in users_of(measured)]


def paint(path: Path, measured: Regrets) -> None:
    """Regret by K, and the cost of privacy by K and by epsilon; one row per algorithm."""
    panels = []
    for name in ALGORITHMS:
        title = f"{name}: regret of all K users"
        all_models = [regrets(measured, name, kind) for kind in MODELS]
        lost = random(measured)
        panels.append(Panel(title, "users K", all_models, lost, random_words="random actions"))
        for by_users, axis in ((True, "users K"), (False, "epsilon")):
            added = [costs(measured, name, kind, by_users) for kind in ("central", "local")]
            panels.append(Panel(f"{name}: cost of privacy by {axis}", axis, added))
    title = "What privacy costs with the paper's own algorithms, corrected"
    words = f"δ = 0. By K at ε = {EPSILON:g}, by ε at K = {short(FIXED)}."
    draw_panels(path, panels, title, words, panels=3, rows=2, size=(13.5, 4.4))


def table(measured: Regrets) -> str:
    """Median regrets, and the slopes of what privacy adds, in Markdown."""
    heads = ["algorithm", "model", *(f"K = {short(k)}" for k in users_of(measured))]
    rows = []
    for name in ALGORITHMS:
        for kind, label in MODELS.items():
            slopes = ["-", "-"]
            if kind != "none":
                added = [costs(measured, name, kind, by_users) for by_users in (True, False)]
                slopes = [f"{one.slope:.2f}" for one in added]
            middle = regrets(measured, name, kind).middle
            rows.append([name, label, *map(amount, middle), *slopes])
    rows.append(["random actions", "", *map(amount, random(measured)), "-", "-"])
    return markdown([*heads, "cost by K", "cost by epsilon"], rows, 2)


main = figure_main("research.paper_regret", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
