"""Regret of Zhou's algorithms and of a tuned DP-LSVI-UCB++, beside random actions.

LinOpt-VI-Reg and LinOpt-PO-Reg with corrected constants in ``hard_mixture`` with two unknown
weights. Equations (4) and (5) have orders 1/2 in K and -1/2 in epsilon; local DP has 3/4 in K.
DP-LSVI-UCB++ in ``two_state`` has corrected noise, a bonus of a hundredth, and 0 for the
coefficient of line 25, with which it switches: a tuned reading of Figure 1, of which no radius is
proven, at horizon 3 and at the figure's 20, beside itself without noise (lambda and bonus 1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from research.figures import Curve, Panel, Pen, draw_panels, figure_main
from research.study import DELTA, amount, markdown, run_all, spread
from tacit.linear import two_state
from tacit.mixture import hard_mixture
from tacit.papers import sahu_linear_2025 as linear
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.result import Sizes
from tacit.privacy.noise import Noise

Job = tuple[str, int, float]
"""Line, K and epsilon."""
USERS, EPSILON, EPSILONS, FIXED = (5_000, 10_000, 20_000, 40_000), 1e4, (1e2, 1e3, 1e4, 1e5), 20_000
TUNED = (1.0, 10.0, 100.0, 1000.0)
PENS = {
    "VI, not private": Pen("#222222", "X"),
    "VI, joint": Pen("#0072B2", "o"),
    "PO, joint": Pen("#D55E00", "s"),
    "VI, local": Pen("#009E73", "D"),
    "LSVI, tuned": Pen("#CC79A7", "v"),
    "LSVI, tuned, H = 20": Pen("#E69F00", "P"),
    "LSVI, no noise, H = 20": Pen("#222222", "X"),
}
_REGULARIZERS = {"not private": "ridge", "joint": "private", "local": "local"}


def world(line: str) -> Any:
    """Where a line is run."""
    if line.startswith("LSVI"):
        return two_state(horizon=20 if line.endswith("20") else 3)
    return hard_mixture(2, 2, gap=0.2)


def regret(job: Job, seed: int) -> float:
    """Of all users of a run."""
    line, users, epsilon = job
    at = world(line)
    given: dict[str, Any] = {"episodes": users, "epsilon": epsilon, "delta": DELTA, "seed": seed}
    if line.startswith("LSVI"):
        shape = at.model.states, at.features.shape[2]
        sizes = Sizes(users, at.model.horizon, shape, epsilon, DELTA, 0.1, False, Noise(0))
        of = linear.corrected_constants(sizes, linear.weight_of(at))
        of = of._replace(coefficient=0.0, beta=of.beta / 100.0, beta_bar=of.beta_bar / 100.0)
        if "no noise" in line:
            of = of._replace(gram_noise=0.0, vector_noise=0.0, square_noise=0.0, most_switches=1000)
            of = of._replace(lambda_=1.0, beta=1.0, beta_bar=float(at.model.horizon))
        made = linear.dp_lsvi_ucb_plus_plus(at, printed=False, constants=of, **given)
    else:
        run = mixture.lin_opt_vi if line.startswith("VI") else mixture.lin_opt_po
        kind = _REGULARIZERS[line.partition(", ")[2]]
        made = run(at, printed=False, regularizer=kind, **given)
    return float(made.regret[-1])


def panels(quick: bool) -> dict[str, dict[str, list[Job]]]:
    """Jobs of every line of every panel."""
    users, fixed = ((200, 400), 400) if quick else (USERS, FIXED)
    by_users = {n: [(n, k, EPSILON) for k in users] for n in PENS if "LSVI" not in n}
    private = ("VI, joint", "PO, joint", "VI, local")
    return {
        "users K": by_users,
        "epsilon": {n: [(n, fixed, e) for e in EPSILONS] for n in private},
        "epsilon, linear": {n: [(n, fixed, e) for e in TUNED] for n in PENS if "LSVI" in n},
    }


Measured = Mapping[str, Sequence[tuple[Curve, list[float]]]]
"""By what is varied: regrets of every line, and what random actions lose at its ends."""


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything."""
    shown = panels(quick)
    jobs = [job for lines in shown.values() for some in lines.values() for job in some]
    found = run_all(jobs, regret, runs, workers)

    def curve(along: str, line: str, some: Sequence[Job]) -> tuple[Curve, list[float]]:
        x = [job[1] if along == "users K" else job[2] for job in some]
        return Curve(line, PENS[line], x, [found[job] for job in some]), [*map(random, some)]

    return {
        along: [curve(along, line, some) for line, some in lines.items()]
        for along, lines in shown.items()
    }


def random(job: Job) -> float:
    """What random actions lose."""
    at = world(job[0])
    return round(float(job[1] * (at.optimal_value - at.baseline_value)), 6)


def paint(path: Path, measured: Measured) -> None:
    """A panel for each."""
    titles = (
        f"hard_mixture, ε = {EPSILON:g}; (4), (5): 1/2, local 3/4",
        f"hard_mixture, K = {FIXED:,}; (4), (5): -1/2",
        f"two_state, K = {FIXED:,}: share of what random actions lose",
    )
    shown = []
    for title, (along, curves) in zip(titles, measured.items(), strict=True):
        lost, lines = curves[0][1], [one for one, _ in curves]
        if "linear" in along:  # worlds that lose differently
            lines = [replace(one, rows=np.array(one.rows) / some[0]) for one, some in curves]
            lost = [1.0] * len(lost)
        axis = along.partition(",")[0]
        shown.append(Panel(title, axis, lines, lost, random_words="random actions", least=0.0))
    title = "Zhou's algorithms, corrected, and DP-LSVI-UCB++, tuned"
    words = "Regret of all K users. δ = 1e-6."
    draw_panels(path, shown, title, words, panels=3, size=(16.5, 5.2))


def table(measured: Measured) -> str:
    """Median regrets, and what random actions lose, in Markdown."""
    rows = []
    for along, curves in measured.items():
        for one, lost in curves:
            ends = [amount(float(one.middle[0])), spread(one.rows[-1], (0.1, 0.9))]
            ends += [amount(lost[0]), amount(lost[-1]), f"{one.slope:.2f}"]
            place = f"{along.partition(',')[0]}, {one.x[0]:g} to {one.x[-1]:g}"
            rows.append([place, one.label, *ends])
    heads = [
        "along",
        "line",
        "first",
        "last [10 %, 90 %]",
        "random, first",
        "random, last",
        "slope",
    ]
    return markdown(heads, rows, 2)


main = figure_main("research.linear_paper_regret", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
