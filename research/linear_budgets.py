"""What a budget buys DP-LSVI-UCB++: regret and users to 90 % against epsilon.

Beside it are its non-private twin, which it should come close to as epsilon grows, and non-private
LSVI-UCB, which its paper says it beats. Every run has a world of its own; see
:mod:`~research.linear_comparison` for its rivals at one budget. Behind a name stands what is asked
of users.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from research.figures import (
    EndLabel,
    Pen,
    band,
    draw_regret,
    drawing,
    figure_main,
    label_ends,
    logarithmic,
)
from research.linear_comparison import asked, regrets, user_axis
from research.study import PLAIN, Case, joint, markdown, run_all, spread
from tacit.simulation.plots import short
from tacit.simulation.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TWIN, OTHER = "LSVI-UCB++, not private", "LSVI-UCB, not private"
WORLDS: Mapping[str, int] = {"two_state": 100_000, "simplex": 1_000_000}
"""How many users, by world: above ten times what the smallest budget needs."""
# From light to dark with epsilon; the agents without privacy as in the comparison.
PENS: Mapping[float | str, Pen] = {
    0.1: Pen("#F0C05A", "v"),
    0.3: Pen("#E69F00", "s"),
    1.0: Pen("#D55E00", "^"),
    3.0: Pen("#CC79A7", "P"),
    10.0: Pen("#56B4E9", "o"),
    30.0: Pen("#0072B2", "h"),
    TWIN: Pen("#222222", "X"),
    OTHER: Pen("#009E73", "D"),
}
"""By epsilon, or which agent without privacy."""
EPSILONS = [key for key in PENS if isinstance(key, float)]
Measured = Mapping[tuple[str, float | str], tuple[Case, Sequence[Result]]]
"""By world and key."""


def case(world: str, users: int, key: float | str) -> Case:
    """What is run for a key."""
    privacy = joint(key) if isinstance(key, float) else PLAIN
    agent = "lsvi_ucb" if key == OTHER else "lsvi_ucb_plus_plus"
    return Case((world, f"{key}"), f"{world}:seed=SEED", agent, privacy, users)


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything; ``quick`` is with few users."""
    cases = {(w, k): case(w, 2_000 if quick else n, k) for w, n in WORLDS.items() for k in PENS}
    found = run_all(cases.values(), Case.run, runs, workers)
    return {key: (one, found[one]) for key, one in cases.items()}


def name(measured: Measured, key: float | str, worlds: Sequence[str]) -> str:
    """What a key is called, and what is asked of users in some worlds."""
    words = key if isinstance(key, str) else f"ε = {key:g}"
    return f"{words}: {' / '.join(dict.fromkeys(asked(measured[w, key][0]) for w in worlds))}"


def paint(path: Path, measured: Measured) -> None:
    """Regret against users above, users to 90 % and regret against epsilon below."""
    runs = len(next(iter(measured.values()))[1])
    with drawing(
        path,
        "What a budget buys DP-LSVI-UCB++",
        f"Lines: medians of {runs} runs in as many worlds; bands: 10th to 90th percentile. "
        "δ = 1e-6. Regret is in optimal returns.",
        size=(13, 4.75),
        rows=2,
        sharey="row",
    ) as panels:
        labels: list[tuple[Axes, list[EndLabel]]] = []
        for above, below, world in zip(panels[:2], panels[2:], WORLDS, strict=True):
            users = measured[world, TWIN][0].users
            user_axis(above, users)
            above.set(title=world, ylabel="regret of all users so far")
            ends = []
            for key, pen in PENS.items():
                text = name(measured, key, [world])
                ends += draw_regret(above, measured[world, key][1], text, pen)
            labels += [(above, ends), (below, _budgets(below, measured, world))]
            below.set(ylabel=f"regret of all {short(users)} users")
        for axes, ends in labels:
            label_ends(axes, ends)


def _budgets(axes: Axes, measured: Measured, world: str) -> list[EndLabel]:
    logarithmic(axes, "epsilon")
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    of = {key: regrets(measured[world, key][1]) for key in PENS}
    lines = {"DP-LSVI-UCB++": (PENS[30.0], [of[e] for e in EPSILONS])}
    for key in (TWIN, OTHER):
        lines[key] = Pen(PENS[key].colour, ""), [of[key]] * len(EPSILONS)
    return [band(axes, EPSILONS, np.array(y), pen, text) for text, (pen, y) in lines.items()]


def table(measured: Measured) -> str:
    """Medians and quartiles of the regret, in optimal returns, and of users to 90 %."""
    heads, rows = [""], [[name(measured, key, list(WORLDS))] for key in PENS]
    for world in WORLDS:
        users = short(measured[world, TWIN][0].users)
        kinds = ("regret", "times its twin's", "users to 90 %")
        heads += [f"{world}, {users} users: {kind}" for kind in kinds]
        twin = float(np.median(regrets(measured[world, TWIN][1])))
        for row, key in zip(rows, PENS, strict=True):
            found = measured[world, key][1]
            ratio = float(np.median(regrets(found))) / twin
            times = f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
            reached = spread([result.users_to_90 for result in found])
            row += [spread(regrets(found)), times if key in EPSILONS else "", reached]
    return markdown(heads, rows)


main = figure_main("research.linear_budgets", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
