"""Learning curves of Wang and Hegde's comparison, each labelled with what is proven of it.

After Figure 2 of the paper: what users got, one after another, on line, for the paper's hundred
users and its two budgets. Algorithm 1 runs as the authors' public code does, with the sigma for
which the paper claims the budget: nothing is proven of it. Input perturbation has noise on every
reward for T rewards of the reward function, which is proven. ``functional state`` is the function
itself as the state (:mod:`tacit.papers`, corrected), for one user's rewards, and ``DP-SGD`` a
network's parameters. Policy evaluation is a reconstruction, and the last line the agent of this
library, all of whose users are served, for whole episodes.

Besides: Proposition 10, which bounds the error of values with J = 1 and n states by a number that
falls with n, beside what the error is.

``python -m research.functional_curves`` stores its runs in ``research/functional_curves.json`` and
uses what is there.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import figure_main
from research.continuous_held_out import EVALUATION, NETWORK, ONLINE, BoxJob, baseline
from research.figures import PALE, EndLabel, Pen, drawing, label_ends
from research.wang_public_code import public_code
from tacit.continuous import line
from tacit.papers.wang_functional_2019 import Setting, functional_q
from tacit.privacy.budget import Budget
from tacit.simulation.permuted import PermutedWorld
from tacit.simulation.run import noise_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

STORED = Path(__file__).with_suffix(".json")
CLAIMS = {0.9: 0.32, 0.45: 0.74}
"""The noise for which the paper claims an epsilon."""
DELTA, USERS, RUNS = 1e-4, 100, 10
# A point of a curve is the mean of so many users.
SMOOTHED = 10
# Whole episodes in a batch, and steps that are worth it.
STATE = Setting(T=USERS * 50, B=500, alpha=1.0)

LINES: Mapping[str, tuple[str, Pen]] = {
    "no noise": ("none", Pen("#222222", "X")),
    "Algorithm 1": ("nothing", Pen("#CC79A7", "^", ":")),
    "input perturbation": ("the reward function", Pen("#E69F00", "v")),
    "functional state": ("one user's rewards", Pen("#56B4E9", "P")),
    "policy evaluation": ("whole episodes", Pen("#D55E00", "s")),
    "DP-SGD": ("one user's rewards", Pen("#009E73", "D", "--")),
    "FittedFunctionalQ": ("whole episodes", Pen("#0072B2", "o")),
}
"""What each line proves, and how it is drawn."""
BASELINES = {"policy evaluation": EVALUATION, "DP-SGD": NETWORK}


def reward_noise(epsilon: float) -> float:
    """Of one of T rewards, for reward functions at most 1 apart: sqrt(T) / mu."""
    return math.sqrt(USERS * line().spec.horizon) / Budget(epsilon, DELTA).mu


def returns(name: str, epsilon: float, seed: int) -> list[float]:
    """What each user got, or what the policy that served her is worth."""
    world = line()
    if name == "functional state":
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "printed": False}
        found = functional_q(world, setting=STATE, protect="episode", seed=seed, **budget)
        return [float(value) for value in found.values]
    privacy = tacit.JointDP(epsilon, DELTA)
    if name in BASELINES:
        found = baseline(BASELINES[name], privacy, USERS, seed)
        return [float(value) for value in found.values]
    if name == "FittedFunctionalQ":
        result = BoxJob("line", ONLINE, privacy, USERS).run(seed).result
        places = np.searchsorted(result.served, np.arange(USERS), side="right") - 1
        return [float(value) for value in result.values[places]]
    rng = np.random.default_rng(np.random.SeedSequence([1, seed]))
    labels = tuple(PermutedWorld.draw(world, rng).permutation)
    sigma = CLAIMS[epsilon] if name == "Algorithm 1" else 0.0
    rewards = reward_noise(epsilon) if name == "input perturbation" else 0.0
    seeds: dict[str, Any] = {"seed": seed, "noise_seed": noise_seed(seed)}
    found = public_code(world, sigma=sigma, reward_noise=rewards, labels=labels, **seeds)
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


def load() -> dict[str, Any]:
    """What was stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def measure(runs: int = RUNS, again: int = 0) -> dict[str, Any]:
    """Runs what is not stored yet, or all of it, and stores it."""
    found = {} if again else load()
    curves = found.setdefault("curves", {})
    for name in LINES:
        for epsilon in CLAIMS:
            rows = curves.setdefault(f"{name}, {epsilon:g}", [])
            for seed in range(len(rows), runs):
                rows.append([round(value, 4) for value in returns(name, epsilon, seed)])
                STORED.write_text(json.dumps(found) + "\n")
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
    STORED.write_text(json.dumps(found) + "\n")
    return found


def rows_of(found: Mapping[str, Any], name: str, epsilon: float) -> Floats:
    """A row per run, a column per user; as many as all of them have."""
    rows = found["curves"][f"{name}, {epsilon:g}"]
    least = min(map(len, rows))
    return np.array([row[:least] for row in rows])


# In words.


def table(found: Mapping[str, Any]) -> str:
    """Returns of the first and the last twenty users, medians with deciles, in Markdown."""
    heads = ["line", "proven for", "ε", "first 20 users", "last 20 users"]
    lines = [f"| {' | '.join(heads)} |", "|---" * 3 + "|---:" * 2 + "|"]
    for name, (proven, _) in LINES.items():
        for epsilon in CLAIMS:
            if f"{name}, {epsilon:g}" not in found["curves"] or (name, epsilon) == (
                "no noise",
                0.45,
            ):
                continue
            rows, cells = rows_of(found, name, epsilon), []
            for part in (rows[:, :20], rows[:, -20:]):
                low, middle, high = np.quantile(part.mean(axis=1), [0.1, 0.5, 0.9])
                cells.append(f"{middle:.1f} [{low:.1f}, {high:.1f}]")
            budget = "-" if name == "no noise" else f"{epsilon:g}"
            lines.append(f"| {name} | {proven} | {budget} | {' | '.join(cells)} |")
    return "\n".join(lines)


def value_table(found: Mapping[str, Any]) -> str:
    """Errors of values beside Proposition 10, in Markdown."""
    lines = [f"| states n | {' | '.join(map(str, SIZES))} |", "|---" + "|---:" * len(SIZES) + "|"]
    for kind, errors in found["values"].items():
        lines.append(f"| error, {kind} | {' | '.join(f'{e:.2f}' for e in errors)} |")
    bounds = (proposition_10(n, SIGMA, DISCOUNT) for n in SIZES)
    lines.append(f"| Proposition 10 | {' | '.join(f'{b:.2f}' for b in bounds)} |")
    return "\n".join(lines)


# The picture.


def paint(path: Path, found: Mapping[str, Any]) -> None:
    """Curves for each budget, and Proposition 10."""
    world = line()
    with drawing(
        path,
        "Learning curves of the comparison of Wang and Hegde",
        f"Returns of a hundred users on line, means of {SMOOTHED} of them. Lines: medians of "
        f"{RUNS} runs; bands: 10th to 90th percentile. δ = 1e-4. After a name: what it proves.",
        panels=3,
        size=(18, 5.8),
        sharey=False,
    ) as sheet:
        ends = []
        for axes, (epsilon, sigma) in zip(sheet, CLAIMS.items(), strict=False):
            some = [name for name in LINES if f"{name}, {epsilon:g}" in found["curves"]]
            ends.append([_draw(axes, found, name, epsilon) for name in some])
            for level, word in (
                (world.optimal_value, "optimum"),
                (world.baseline_value, "uniform"),
            ):
                axes.axhline(level, color=PALE, ls=":", lw=1.3)
                axes.annotate(
                    word, (0, level), xytext=(2, 3), textcoords="offset points", color=PALE
                )
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
    low, middle, high = np.quantile(rows, [0.1, 0.5, 0.9], axis=0)
    axes.fill_between(x, low, high, color=pen.colour, alpha=0.08, lw=0)
    marks: dict[str, Any] = {"marker": pen.marker, "ms": 5, "mec": "white", "mew": 0.6}
    axes.plot(x, middle, color=pen.colour, ls=pen.dash, **marks)
    text = name if name == "no noise" else f"{name}: {proven}"
    return EndLabel(float(x[-1]), float(middle[-1]), text, pen.colour)


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


NUMBERS = {"runs": (1, RUNS, "seeds of every line"), "again": (0, 0, "1 to run all anew")}
main = figure_main(__spec__, __doc__, measure, paint, [table, value_table], NUMBERS, quick=False)


if __name__ == "__main__":
    sys.exit(main())
