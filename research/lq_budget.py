"""What a budget buys in linear-quadratic control: the loss of published gains against users.

Losses are of gains alone, exact, between the optimum, 0, and zero control, 1. Left: certainty
equivalence at several budgets; as the privacy noise of a sum does not grow with the users, its
loss comes close to that without privacy. Right: joint and local DP at one budget.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from research.command_lines import figure_main
from research.figures import PALE, EndLabel, Pen, drawing
from research.jobs import (
    DELTA,
    NUMBERS,
    RUNS,
    WORKERS,
    ByJob,
    footnote,
    label_panels,
    sized,
    spread,
)
from research.lq_held_out import (
    MIDDLE,
    LQJob,
    run_all,
)
from research.tables import joint
from tacit.privacy.models import LocalDP, NonPrivate
from tacit.simulation.plots import short, short_ticks
from tacit.simulation.result import GOOD_LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.simulation.result import Result

Floats = NDArray[np.float64]

USERS = 300_000
EPSILONS = (0.1, 1.0, 10.0)
POINTS = 240
# Where the axes of users and of losses begin.
FIRST, LEAST = 5, 1e-6


@dataclass(frozen=True)
class Line:
    """One agent and budget.

    Attributes:
        label: what it is called.
        job: what is run.
        pen: how it is drawn.
    """

    label: str
    job: LQJob
    pen: Pen


def panels(users: int = USERS) -> dict[str, tuple[Line, ...]]:
    """The lines of both panels."""
    pens = (Pen("#E69F00", "v"), Pen("#0072B2", "o"), Pen("#56B4E9", "P"))
    plain = MIDDLE.job(NonPrivate(), users)
    not_private = Pen("#222222", "X")
    at_one = MIDDLE.job(joint(1.0), users)
    return {
        "Certainty equivalence, by budget": (
            *(
                Line(f"ε = {epsilon:g}", MIDDLE.job(joint(epsilon), users), pen)
                for epsilon, pen in zip(EPSILONS, pens, strict=True)
            ),
            Line("not private", plain, not_private),
        ),
        "Models of privacy at ε = 1": (
            Line("local DP", MIDDLE.job(LocalDP(1.0, DELTA), users), Pen("#009E73", "D")),
            Line("joint DP", at_one, pens[1]),
            Line("not private", plain, not_private),
        ),
    }


class Measured(ByJob[Mapping[str, Sequence[Line]], LQJob]):
    """All runs, of panels by their titles."""

    @property
    def users(self) -> int:
        """Of every run."""
        return self.any_result.users

    def losses(self, job: LQJob, users: Floats) -> Floats:
        """Of the gains that are published once so many users were served, a row per run."""
        return np.stack([losses_at(run, users) for run in self.results[job]])


def losses_at(result: Result, users: Floats) -> Floats:
    """The loss of the last gains that were published after at most so many users.

    Before the first release there are none, whatever noise the first users get.
    """
    release = np.searchsorted(result.served, users, side="right") - 1
    losses: Floats = np.where(release == 0, 1.0, result.greedy_losses[release])
    return losses


def measure(
    runs: int = RUNS, users: int | None = None, workers: int = WORKERS, quick: bool = False
) -> Measured:
    """Runs everything; ``quick`` is a small part of it."""
    runs, most = sized(runs, users, quick, 2_000)
    shown = panels(most or USERS)
    jobs = list(dict.fromkeys(line.job for lines in shown.values() for line in lines))
    return Measured.of(shown, run_all(jobs, range(runs), workers))


# The picture.


def paint(path: Path, measured: Measured) -> None:
    """Budgets on the left, models of privacy on the right."""
    from matplotlib.ticker import FuncFormatter

    with drawing(
        path,
        "Linear-quadratic control: what a budget buys",
        "Loss of the published gains: 0 is optimal, 100 % is no control. random_system: 3 states, "
        f"2 controls, 15 steps. Lines: medians of {measured.runs} worlds; bands: deciles.",
        size=(13, 5.8),
    ) as sheet:
        labels = []
        for axes, (title, lines) in zip(sheet, measured.panels.items(), strict=True):
            axes.set(xscale="log", yscale="log", xlabel="users served", title=title)
            axes.set_xlim(FIRST, measured.users)
            axes.set_ylim(LEAST, 3.0)
            short_ticks(axes.xaxis)
            axes.axhline(GOOD_LOSS, color=PALE, ls=":", lw=1.3)
            labels.append([_draw(axes, measured, line) for line in lines])
        sheet[0].set(ylabel="loss")
        sheet[0].yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{100 * loss:g} %"))
        footnote(
            sheet[0],
            "Losses are exact and leave out the noise in served users' controls. Gains change at "
            "releases only, and are those of no control until a test holds better ones to be "
            "safe. δ = 1e-6.",
        )
        label_panels(sheet, labels)


def _draw(axes: Axes, measured: Measured, line: Line) -> EndLabel:
    x = np.unique(np.geomspace(FIRST, measured.users, POINTS).round())
    low, middle, high = np.quantile(measured.losses(line.job, x), [0.1, 0.5, 0.9], axis=0)
    low, middle = np.maximum(low, LEAST), np.maximum(middle, LEAST)
    colour = line.pen.colour
    axes.fill_between(x, low, np.maximum(high, low), step="post", color=colour, alpha=0.15, lw=0)
    marked = np.unique(np.searchsorted(x, np.geomspace(x[0], x[-1], 9)[1:-1])).tolist()
    axes.step(
        x,
        middle,
        where="post",
        color=colour,
        ls=line.pen.dash,
        marker=line.pen.marker,
        markevery=marked,
        ms=6,
        mec="white",
        mew=0.6,
    )
    return EndLabel(float(x[-1]), float(middle[-1]), line.label, colour)


def table(measured: Measured) -> str:
    """Losses after some numbers of users, medians, in Markdown."""
    most = int(np.log10(measured.users))
    at = np.array([10.0**power for power in range(min(2, most), most + 1)])
    heads = ["", *(f"loss at {short(users)}" for users in at), "users to 90 %, greedy", "serving"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for title, several in measured.panels.items():
        for line in several:
            runs = measured.results[line.job]
            cells = [
                f"{title}: {line.label}",
                *(f"{loss:.2g}" for loss in np.median(measured.losses(line.job, at), axis=0)),
                spread([run.greedy_users_to_90 for run in runs]),
                spread([run.users_to_90 for run in runs]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


main = figure_main(__spec__, __doc__, measure, paint, [table], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
