"""The orders of the regret bounds, on worlds whose gap shrinks with the number of users K.

The bounds are about the worst world for each K, in which the better action is better by about
sqrt(S A / K): any larger gap is found out sooner, any smaller one costs less. So each K has a world
of its own. A user arrives in one of two contexts and acts; with probability (1 +- gap)/2 she gets
to a place that pays 1. Even random actions have a regret like sqrt(K) here. What counts is how far
below it an agent stays.

All agents are as they are shipped. The practical bonus was chosen for worlds with clear gaps, and
in some runs here value iteration stops exploring too early: it settles for the wrong action, and
its regret is up to twice that of random actions. Beside it is the same agent with four times the
bonus, labelled so. What the theorems promise is printed by ``tacit.papers.bounds``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import figure_main
from research.epsilon_cost import with_progress
from research.figures import PALE, EndLabel, Pen, label_ends
from research.sheets import Look, sheet
from tacit.simulation.plots import short
from tacit.simulation.run import noise_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.privacy.models import Privacy

Floats = NDArray[np.float64]

CONTEXTS, ACTIONS, HORIZON = 2, 2, 2
# The gap, in units of sqrt(S A / K).
GAP = 40.0
DELTA = 1e-6
USERS = (10**6, 10**7, 10**8, 10**9)
FIXED_USERS = 10**8
RUNS = 10


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


@dataclass(frozen=True)
class Line:
    """One agent under one budget.

    Attributes:
        label: what it is called.
        privacy: its model and budget.
        pen: how it is drawn.
        agent: the class.
        scale: of the bonus; 1 is as it is shipped.
    """

    label: str
    privacy: Privacy
    pen: Pen
    agent: Literal["UCBVI", "UCBPO"] = "UCBVI"
    scale: float = 1.0

    def regrets(self, users: int, runs: int) -> Floats:
        """The regret of all users, one per run."""
        given: dict[str, Any] = {"users": users, "privacy": self.privacy, "scale": self.scale}

        def make(spec: Any, seed: int) -> Any:
            return getattr(tacit, self.agent)(spec, seed=seed, noise_seed=noise_seed(seed), **given)

        results = tacit.run_seeds(
            make, hard_world(users), list(range(runs)), workers=1, progress=False
        )
        return np.array([result.regret[-1] for result in results])


def _joint(epsilon: float) -> tacit.JointDP:
    return tacit.JointDP(epsilon, DELTA)


PLAIN = Line("not private", tacit.NonPrivate(), Pen("#222222", "X"))
JOINT = Line("joint, ε = 1", _joint(1.0), Pen("#0072B2", "o"))
STRICT = Line("joint, ε = 0.1", _joint(0.1), Pen("#56B4E9", "P"))
LOCAL = Line("local, ε = 10", tacit.LocalDP(10.0, DELTA), Pen("#009E73", "D"))
PRACTICAL = (PLAIN, JOINT, STRICT, LOCAL)
OPTIMISERS = (
    Line("PO", tacit.NonPrivate(), Pen("#E69F00", "v"), "UCBPO"),
    Line("PO, joint, ε = 1", _joint(1.0), Pen("#D55E00", "s"), "UCBPO"),
)
BOLD = (
    Line("VI, bonus x 4", tacit.NonPrivate(), Pen("#CC79A7", "^"), scale=4.0),
    Line("VI, bonus x 4, joint, ε = 1", _joint(1.0), Pen("#009E73", "D"), scale=4.0),
)
JOINT_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
LOCAL_EPSILONS = (1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True)
class Measured:
    """Everything that is drawn.

    Attributes:
        users: the numbers of users K.
        regrets: for each line a row per K and a column per run.
        budgets: at ``fixed_users``: the regrets of each run by model and epsilon.
        fixed_users: how many users the budgets were compared with.
    """

    users: tuple[int, ...]
    regrets: dict[Line, Floats]
    budgets: dict[str, dict[float, Floats]]
    fixed_users: int

    def slope(self, rows: Floats) -> float:
        """Of the medians against K, both as logarithms; not a number if one is not positive."""
        middle = np.median(rows, axis=1)
        if np.any(middle <= 0):
            return math.nan
        return float(np.polyfit(np.log(self.users), np.log(middle), 1)[0])


def measure(quick: bool = False, runs: int = RUNS) -> Measured:
    """Runs everything, under a progress bar; ``quick`` is a small part of it."""
    users = (10**6, 10**7) if quick else USERS
    fixed = 10**6 if quick else FIXED_USERS
    runs = 2 if quick else runs
    lines = (*PRACTICAL, *OPTIMISERS, *BOLD)
    models = {"joint": (tacit.JointDP, JOINT_EPSILONS), "local": (tacit.LocalDP, LOCAL_EPSILONS)}
    regrets = {line: np.empty((len(users), runs)) for line in lines}
    budgets: dict[str, dict[float, Floats]] = {name: {} for name in models}

    def work() -> Iterator[None]:
        for line in lines:
            for place, number in enumerate(users):
                regrets[line][place] = line.regrets(number, runs)
                yield
        for name, (model, epsilons) in models.items():
            for epsilon in epsilons:
                line = Line(name, model(epsilon, DELTA), JOINT.pen)
                budgets[name][epsilon] = line.regrets(fixed, runs)
                yield

    total = len(lines) * len(users) + sum(len(epsilons) for _, epsilons in models.values())
    for _ in with_progress(work(), total):
        pass
    return Measured(users, regrets, budgets, fixed)


def draw(path: Path, quick: bool = False) -> Measured:
    """Runs everything and draws it; returns what was measured."""
    measured = measure(quick)
    paint(path, measured)
    return measured


def paint(path: Path, measured: Measured) -> None:
    """Four panels."""
    runs = measured.regrets[PLAIN].shape[1]
    with _sheet(
        path,
        "The orders of the bounds, on worlds whose gap shrinks like 1/√K",
        f"Lines: medians of {runs} runs; bands: 10th to 90th percentile. δ = 1e-6. "
        "Numbers: slopes on logarithmic axes.",
    ) as (regret, bold, budget, optimisers):
        _lines(regret, measured, PRACTICAL)
        regret.set(title="Value iteration, as shipped", ylabel="regret of all K users")
        _lines(bold, measured, BOLD)
        bold.set(title="Value iteration with four times the bonus", ylabel="regret of all K users")
        _budgets(budget, measured)
        _lines(optimisers, measured, OPTIMISERS)
        optimisers.set(title="Policy optimisation, as shipped", ylabel="regret of all K users")


def _lines(axes: Axes, measured: Measured, lines: Sequence[Line]) -> None:
    _logarithmic(axes, "users K")
    labels = [
        _band(axes, measured.users, measured.regrets[line], line.pen, _named(measured, line))
        for line in lines
    ]
    random = [0.5 * gap(users) * users for users in measured.users]
    axes.plot(measured.users, random, ":", color=PALE, lw=1.3)
    labels.append(EndLabel(measured.users[-1], random[-1], "random", PALE))
    label_ends(axes, labels)


def _named(measured: Measured, line: Line) -> str:
    return f"{line.label}  {measured.slope(measured.regrets[line]):.2f}"


def _budgets(axes: Axes, measured: Measured) -> None:
    _logarithmic(axes, "epsilon")
    axes.set(
        title=f"Value iteration by ε, K = {short(measured.fixed_users)}",
        ylabel="regret of all K users",
    )
    labels = []
    for name, line in (("local", LOCAL), ("joint", JOINT)):
        rows = np.stack(list(measured.budgets[name].values()))
        labels.append(_band(axes, list(measured.budgets[name]), rows, line.pen, name))
    plain = measured.regrets[PLAIN][measured.users.index(measured.fixed_users)]
    last = max(JOINT_EPSILONS)
    axes.axhline(float(np.median(plain)), color=PLAIN.pen.colour, ls=":", lw=1.3)
    labels.append(EndLabel(last, float(np.median(plain)), PLAIN.label, PLAIN.pen.colour))
    label_ends(axes, labels)


def _band(axes: Axes, x: Sequence[float], rows: Floats, pen: Pen, label: str) -> EndLabel:
    low, middle, high = np.quantile(rows, [0.1, 0.5, 0.9], axis=1)
    low, middle = np.maximum(low, 1.0), np.maximum(middle, 1.0)
    axes.fill_between(list(x), low, np.maximum(high, low), color=pen.colour, alpha=0.15, lw=0)
    axes.plot(list(x), middle, color=pen.colour, marker=pen.marker, ms=6, mec="white", mew=0.6)
    return EndLabel(float(x[-1]), float(middle[-1]), label, pen.colour)


def _logarithmic(axes: Axes, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set(xscale="log", yscale="log", xlabel=label)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_formatter(NullFormatter())


@contextmanager
def _sheet(path: Path, title: str, subtitle: str, columns: int = 2) -> Iterator[Sequence[Axes]]:
    """Two rows of panels, one after the other."""
    look = Look((5.5 * columns, 9), 0.952, (2, columns))
    with sheet(path, title, subtitle, look) as rows:
        yield [axes for row in rows for axes in row]


def table(measured: Measured) -> str:
    """Medians at the smallest and the largest K, and the slopes between, in Markdown."""
    ends = (0, len(measured.users) - 1)
    heads = [f"K = {short(measured.users[end])}" for end in ends]
    lines = [f"| | {heads[0]} | {heads[1]} | slope |", "|---|---:|---:|---:|"]

    def row(name: str, rows: Floats) -> str:
        middle = np.median(rows, axis=1)
        slope = measured.slope(rows)
        shown = "-" if math.isnan(slope) else f"{slope:.2f}"
        return f"| {name} | {middle[ends[0]]:,.0f} | {middle[ends[1]]:,.0f} | {shown} |"

    random = np.array([[0.5 * gap(users) * users] for users in measured.users])
    lines.append(row("regret, random actions", random))
    lines += [row(f"regret, VI, {line.label}", measured.regrets[line]) for line in PRACTICAL]
    lines += [row(f"regret, {line.label}", measured.regrets[line]) for line in (*OPTIMISERS, *BOLD)]
    return "\n".join(lines)


NUMBERS = {"runs": (1, RUNS, "seeds of every point")}
main = figure_main(__spec__, __doc__, measure, paint, [table], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
