"""Learning curves of Wang and Hegde's comparison, each labelled with what is proven of it.

After Figure 2 of the paper: what users got, one after another, on line, for the paper's hundred
users and its two budgets. Algorithm 1 runs as it is printed, with the sigma for which the paper
claims the budget: nothing is proven of it. ``functional state`` is the function itself as the state
(:mod:`tacit.papers`, corrected), for one user's rewards, and ``DP-SGD`` a network's parameters. The
last line is the agent of this library, all of whose users are served, for whole episodes.

Besides: Proposition 10, which bounds the error of values with J = 1 and n states by a number that
falls with n, beside what the error is.

``python -m research.functional_curves`` stores its runs in ``research/functional_curves.json`` and
uses what is there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import tacit
from research.figures import PALE, EndLabel, Pen, band, drawing, figure_main, label_ends, levels
from research.study import RUNS, joint, load, markdown, store
from tacit.continuous import line
from tacit.papers.wang_functional_2019 import Setting, functional_q, network_q

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

USERS, DELTA = 100, 1e-4
CLAIMS = {0.9: 0.32, 0.45: 0.74}
"""The noise for which the paper claims an epsilon."""
# A point of a curve is the mean of so many users.
SMOOTHED = 10
# As the paper has it; and whole episodes in a batch, with steps that are worth it.
PRINTED, STATE = Setting(T=USERS * 50), Setting(T=USERS * 50, B=500, alpha=1.0)

LINES: Mapping[str, tuple[str, Pen]] = {
    "Algorithm 1": ("nothing", Pen("#CC79A7", "^", ":")),
    "functional state": ("one user's rewards", Pen("#56B4E9", "P")),
    "DP-SGD": ("one user's rewards", Pen("#009E73", "D", "--")),
    "FittedFunctionalQ": ("whole episodes", Pen("#0072B2", "o")),
}
"""What each line proves, and how it is drawn."""


def returns(name: str, epsilon: float, seed: int) -> list[float]:
    """What each user got, or what the policy that served her is worth."""
    given: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "seed": seed}
    if name == "FittedFunctionalQ":
        served, privacy = "fitted_functional_q:serve=all", joint(epsilon, DELTA)
        result = tacit.run(served, line(), seed, progress=False, users=USERS, privacy=privacy)
        places = np.searchsorted(result.served, np.arange(USERS), side="right") - 1
        return [float(value) for value in result.values[places]]
    if name == "Algorithm 1":
        found = functional_q(line(), setting=PRINTED, sigma=CLAIMS[epsilon], **given)
    elif name == "DP-SGD":
        found = network_q(line(), setting=STATE, **given)
    else:
        found = functional_q(line(), setting=STATE, protect="episode", printed=False, **given)
    return [float(value) for value in found.values]


def smoothed(rows: Floats) -> Floats:
    """Means of so many users, a row per run; what is left over at the end is left out."""
    whole = rows[:, : rows.shape[1] // SMOOTHED * SMOOTHED]
    found: Floats = whole.reshape(len(rows), -1, SMOOTHED).mean(axis=2)
    return found


# Proposition 10.


def value_error(n: int, sigma: float, discount: float, moves: bool, rng: Any) -> float:
    """The mean distance of values with one noise path (J = 1) from the optimal ones.

    Either nobody moves and there is one action, or a ring of n states has two: to the left and to
    the right. The path at n states is n independent normals per action: a kernel that is narrow
    beside the distance of two states. Values solve v(s) = max_a (r(s) + g_a(s) + discount v(s')).
    """
    rewards = 0.5 - np.abs(np.linspace(0.0, 1.0, n) - 0.5)
    after = (-1, 1) if moves else (0,)
    noise = sigma * rng.standard_normal((len(after), n))

    def solved(g: Floats) -> Floats:
        v: Floats = np.zeros(n)
        for _ in range(math.ceil(math.log(1e-10) / math.log(discount))):
            options = [
                rewards + g[a] + discount * np.roll(v, -step) for a, step in enumerate(after)
            ]
            v = np.max(options, axis=0)
        return v

    return float(np.abs(solved(noise) - solved(np.zeros_like(noise))).mean())


def proposition_10(n: int, sigma: float, discount: float) -> float:
    """The paper's bound on it."""
    return 2.0 * math.sqrt(2.0) * sigma / (math.sqrt(n * math.pi) * (1.0 - discount))


SIZES, SIGMA, DISCOUNT = (10, 30, 100, 300, 1000), 1.0, 0.9


# What is stored.


def measure(runs: int = RUNS, workers: int = 1, quick: bool = False) -> dict[str, Any]:
    """Runs what is not stored yet, and stores it; ``quick`` is what is stored."""
    found = load("functional_curves")
    if quick:
        return found
    curves = found.setdefault("curves", {})
    for name in LINES:
        for epsilon in CLAIMS:
            rows = curves.setdefault(f"{name}, {epsilon:g}", [])
            for seed in range(len(rows), runs):
                rows.append([round(value, 4) for value in returns(name, epsilon, seed)])
                store("functional_curves", found)
    rng = np.random.default_rng(0)
    found["values"] = {
        kind: [
            round(
                float(np.mean([value_error(n, SIGMA, DISCOUNT, moves, rng) for _ in range(40)])), 4
            )
            for n in SIZES
        ]
        for kind, moves in (("nobody moves", False), ("ring", True))
    }
    store("functional_curves", found)
    return found


def rows_of(found: Mapping[str, Any], name: str, epsilon: float) -> Floats:
    """A row per run, a column per user; as many as all of them have."""
    rows = found["curves"][f"{name}, {epsilon:g}"]
    least = min(map(len, rows))
    return np.array([row[:least] for row in rows])


# In words.


def table(found: Mapping[str, Any]) -> str:
    """Returns of the first and the last twenty users, medians with deciles, in Markdown."""
    lines = []
    for name, (proven, _) in LINES.items():
        for epsilon in CLAIMS:
            rows = rows_of(found, name, epsilon)
            parts = (rows[:, :20], rows[:, -20:])
            cells = [f"{np.median(p.mean(axis=1)):.1f} {_ends(p.mean(axis=1))}" for p in parts]
            lines.append([name, proven, f"{epsilon:g}", *cells])
    return markdown(["line", "proven for", "ε", "first 20 users", "last 20 users"], lines, 3)


def _ends(values: Floats) -> str:
    low, high = np.quantile(values, [0.1, 0.9])
    return f"[{low:.1f}, {high:.1f}]"


def value_table(found: Mapping[str, Any]) -> str:
    """Errors of values beside Proposition 10, in Markdown."""
    lines = {f"error, {kind}": errors for kind, errors in found["values"].items()}
    lines["Proposition 10"] = [proposition_10(n, SIGMA, DISCOUNT) for n in SIZES]
    rows = [[name, *(f"{error:.2f}" for error in errors)] for name, errors in lines.items()]
    return markdown(["states n", *map(str, SIZES)], rows)


# The picture.


def paint(path: Path, found: Mapping[str, Any]) -> None:
    """Curves for each budget, and Proposition 10."""
    world = line()
    with drawing(
        path,
        "Learning curves of the comparison of Wang and Hegde",
        f"Returns of a hundred users on line, means of {SMOOTHED} of them. Lines: medians of "
        f"{RUNS} runs; bands: 10th to 90th percentile. δ = 1e-4. "
        "After a name: what it proves.",
        panels=3,
        size=(18, 5.8),
        sharey=False,
    ) as sheet:
        ends = []
        for axes, (epsilon, sigma) in zip(sheet, CLAIMS.items(), strict=False):
            ends.append([_draw(axes, found, name, epsilon) for name in LINES])
            levels(axes, 0.0, optimum=world.optimal_value, uniform=world.baseline_value)
            axes.set(
                title=f"ε = {epsilon:g}; Algorithm 1 with σ = {sigma:g}", xlabel="users served"
            )
            axes.set_ylim(0.0, world.optimal_value * 1.1)
        sheet[0].set(ylabel="return of a user")
        ends.append(_proposition(sheet[2], found))
        for axes, labels in zip(sheet, ends, strict=True):
            label_ends(axes, labels)


def _draw(axes: Axes, found: Mapping[str, Any], name: str, epsilon: float) -> EndLabel:
    proven, pen = LINES[name]
    rows = smoothed(rows_of(found, name, epsilon))
    x = np.arange(1, rows.shape[1] + 1) * float(SMOOTHED)
    return band(axes, x, rows.T, pen, f"{name}: {proven}")


def _proposition(axes: Axes, found: Mapping[str, Any]) -> list[EndLabel]:
    bounds = [proposition_10(n, SIGMA, DISCOUNT) for n in SIZES]
    lines = {**found["values"], "Proposition 10": bounds}
    labels = []
    for (name, y), colour in zip(lines.items(), ("#0072B2", "#D55E00", PALE), strict=True):
        axes.plot(SIZES, y, "--" if colour == PALE else "-", color=colour, marker="o", ms=5)
        labels.append(EndLabel(float(SIZES[-1]), float(y[-1]), name, colour))
    axes.set(xscale="log", yscale="log", xlabel="states n", ylabel="mean error of values")
    axes.set(title="J = 1: the error does not fall with n")
    return labels


main = figure_main("research.functional_curves", __doc__, measure, paint, table, value_table)


if __name__ == "__main__":
    sys.exit(main())
