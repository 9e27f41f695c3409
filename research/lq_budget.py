"""What a budget buys in linear-quadratic control: the loss of published gains against users.

Losses are of gains alone, exact, between the optimum, 0, and zero control, 1. Left: certainty
equivalence at several budgets; as the privacy noise of a sum does not grow with the users, its
loss comes close to that without privacy. Right: joint and local DP at one budget.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from research.figures import PALE, EndLabel, Pen, drawing, figure_main, label_ends
from research.study import DELTA, PLAIN, Case, joint, markdown, run_all, spread
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.validation import Floats
from tacit.simulation.plots import short, short_ticks
from tacit.simulation.result import GOOD_LOSS, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

USERS, POINTS = 300_000, 240
# Where the axes of users and of losses begin.
FIRST, LEAST = 5, 1e-6
PLAIN_LINE = ("not private", PLAIN, Pen("#222222", "X"))
PANELS: Mapping[str, Sequence[tuple[str, Privacy, Pen]]] = {
    "Certainty equivalence, by budget": (
        ("ε = 0.1", joint(0.1), Pen("#E69F00", "v")),
        ("ε = 1", joint(1.0), Pen("#0072B2", "o")),
        ("ε = 10", joint(10.0), Pen("#56B4E9", "P")),
        PLAIN_LINE,
    ),
    "Models of privacy at ε = 1": (
        ("local DP", LocalDP(1.0, DELTA), Pen("#009E73", "D")),
        ("joint DP", joint(1.0), Pen("#0072B2", "o")),
        PLAIN_LINE,
    ),
}
Measured = Mapping[Privacy, Sequence[Result]]


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything; ``quick`` is with few users."""
    world, users = "random_system:n=3,d=2,horizon=15,seed=SEED", 2_000 if quick else USERS
    cases = [
        Case((), world, "certainty_equivalence", privacy, users)
        for lines in PANELS.values()
        for _, privacy, _ in lines
    ]
    found = run_all(cases, Case.run, runs, workers)
    return {case.privacy: results for case, results in found.items()}


def losses_at(result: Result, users: Floats) -> Floats:
    """The loss of the last gains that were published after at most so many users.

    Before the first release there are none, whatever noise the first users get.
    """
    release = np.searchsorted(result.served, users, side="right") - 1
    losses: Floats = np.where(release == 0, 1.0, result.greedy_losses[release])
    return losses


def paint(path: Path, measured: Measured) -> None:
    """Budgets on the left, models of privacy on the right."""
    from matplotlib.ticker import FuncFormatter

    with drawing(
        path,
        "Linear-quadratic control: what a budget buys",
        "Loss of the published gains: 0 is optimal, 100 % is no control. random_system: 3 states, "
        f"2 controls, 15 steps. Lines: medians of {len(measured[PLAIN])} worlds; bands: deciles.",
        size=(13, 5.8),
        footnote="Losses are exact and leave out the noise in served users' controls. Gains change "
        "at releases only, and are those of no control until a test holds better ones to be safe. "
        "δ = 1e-6.",
    ) as sheet:
        labels = []
        for axes, (title, lines) in zip(sheet, PANELS.items(), strict=True):
            axes.set(xscale="log", yscale="log", xlabel="users served", title=title)
            axes.set(xlim=(FIRST, measured[PLAIN][0].users), ylim=(LEAST, 3.0))
            short_ticks(axes.xaxis)
            axes.axhline(GOOD_LOSS, color=PALE, ls=":", lw=1.3)
            labels.append([_draw(axes, name, measured[key], pen) for name, key, pen in lines])
        sheet[0].set(ylabel="loss")
        sheet[0].yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{100 * loss:g} %"))
        for axes, ends in zip(sheet, labels, strict=True):
            label_ends(axes, ends)


def _draw(axes: Axes, name: str, results: Sequence[Result], pen: Pen) -> EndLabel:
    x = np.unique(np.geomspace(FIRST, results[0].users, POINTS).round())
    rows = np.stack([losses_at(result, x) for result in results])
    low, middle, high = np.maximum(np.quantile(rows, [0.1, 0.5, 0.9], axis=0), LEAST)
    axes.fill_between(x, low, high, step="post", color=pen.colour, alpha=0.15, lw=0)
    marked = np.unique(np.searchsorted(x, np.geomspace(x[0], x[-1], 9)[1:-1])).tolist()
    axes.step(x, middle, where="post", color=pen.colour)
    axes.plot(x[marked], middle[marked], pen.marker, color=pen.colour, ms=6, mec="white", mew=0.6)
    return EndLabel(float(x[-1]), float(middle[-1]), name, pen.colour)


def table(measured: Measured) -> str:
    """Losses after some numbers of users, medians, in Markdown."""
    most = int(np.log10(measured[PLAIN][0].users))
    at = np.array([10.0**power for power in range(2, most + 1)])
    rows = []
    for title, lines in PANELS.items():
        for name, key, _ in lines:
            found = measured[key]
            losses = np.median([losses_at(result, at) for result in found], axis=0)
            users = [[r.greedy_users_to_90 for r in found], [r.users_to_90 for r in found]]
            rows.append([f"{title}: {name}", *(f"{x:.2g}" for x in losses), *map(spread, users)])
    heads = [f"loss at {short(users)}" for users in at]
    return markdown(["", *heads, "users to 90 %, greedy", "serving"], rows)


main = figure_main("research.lq_budget", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
