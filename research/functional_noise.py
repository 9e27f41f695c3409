"""Q-learning with functional noise as printed: returns of its users by noise and by resets.

After Figure 1 of Wang and Hegde (2019). Nothing here is private: the algorithm carries its network
without noise and returns it without noise, at every sigma. Noise only disturbs how it looks at its
network, which is what these curves show. The settings are those of the authors' public code; with
what the paper states nothing is learnt, which is the last panel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from research.command_lines import figure_main
from research.continuous_held_out import PAPER_USERS, BoxJob, printed_job
from research.figures import PALE, EndLabel, Pen, drawing
from research.jobs import NUMBERS, RUNS, WORKERS, ByJob, footnote, label_panels, run_jobs, sized
from research.wang_public_code import STATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Floats = NDArray[np.float64]

STEPS = 50
"""Of an episode."""
BATCH = 64
"""Steps between two gradient steps, B, as the paper states it."""
SIGMAS = (0.0, 0.1, 0.2, 0.4, 0.8)
PENS = (
    Pen("#222222", "X"),
    Pen("#56B4E9", "P"),
    Pen("#0072B2", "o"),
    Pen("#E69F00", "v"),
    Pen("#D55E00", "s"),
)
# A point of a curve is the mean of so many users, or fewer at the end.
SMOOTHED = 5


@dataclass(frozen=True)
class Panel:
    """Curves of all noise levels.

    Attributes:
        title: what is different here.
        jobs: by noise level.
    """

    title: str
    jobs: Mapping[float, BoxJob]


def panels(users: int = PAPER_USERS) -> tuple[Panel, ...]:
    """New paths never, with each episode, at each round as printed; and the paper's settings."""
    rounds = math.ceil(users * STEPS / BATCH)
    resets: dict[str, dict[str, Any]] = {
        "One path for the whole run (J = 1)": {"resets": 1},
        f"New paths with each episode (J = {users})": {"resets": None},
        f"New paths every {BATCH} steps (J = T/B = {rounds})": {"resets": rounds},
        "As the paper states it: J = T/B, other settings": {
            "resets": rounds,
            "code": STATED,
        },
    }
    return tuple(
        Panel(title, {sigma: _job(users, sigma, options) for sigma in SIGMAS})
        for title, options in resets.items()
    )


def _job(users: int, sigma: float, options: Mapping[str, Any]) -> BoxJob:
    # Without noise resets change nothing, so that one run serves for all panels.
    given = options if sigma else {**options, "resets": None}
    return printed_job(users, sigma=sigma, **given)


class Measured(ByJob[Sequence[Panel], BoxJob]):
    """All runs."""

    def returns(self, job: BoxJob) -> Floats:
        """Of users one after another, a row per run: what each of them got."""
        # The last value is of the policy that nobody followed any more.
        return np.stack([run.values[:-1] for run in self.results[job]])


def smoothed(returns: Floats, size: int = SMOOTHED) -> tuple[Floats, Floats]:
    """Means of neighbouring users: how many users there were by then, and a row per run.

    >>> smoothed(np.array([[1.0, 3.0, 5.0]]), 2)
    (array([2., 3.]), array([[2., 5.]]))
    """
    starts = np.arange(0, returns.shape[1], size)
    ends = np.minimum(starts + size, returns.shape[1])
    means = np.add.reduceat(returns, starts, axis=1) / (ends - starts)
    return ends.astype(np.float64), means


def measure(
    runs: int = RUNS, users: int | None = None, workers: int = WORKERS, quick: bool = False
) -> Measured:
    """Runs everything; ``quick`` is a small part of it."""
    runs, most = sized(runs, users, quick, 10)
    shown = panels(most or PAPER_USERS)
    jobs = list(dict.fromkeys(job for panel in shown for job in panel.jobs.values()))
    return Measured.of(shown, run_jobs(jobs, range(runs), workers))


# The picture.


def paint(path: Path, measured: Measured) -> None:
    """A panel for each way to draw new paths."""
    any_result = measured.any_result
    with drawing(
        path,
        "Q-learning with functional noise, as printed: no guarantee at any σ",
        f"What users got, on line. Lines: means of {measured.runs} runs and {SMOOTHED} users; "
        "bands: one standard deviation of the runs.",
        panels=len(measured.panels),
        size=(17, 5.6),
    ) as sheet:
        labels = []
        for axes, panel in zip(sheet, measured.panels, strict=True):
            axes.set(title=panel.title, xlabel="users served")
            axes.set_xlim(0, any_result.users)
            axes.set_ylim(0.0, any_result.optimal_value * 1.08)
            axes.title.set_fontsize(9.5)
            for level in (any_result.optimal_value, any_result.baseline_value):
                axes.axhline(level, color=PALE, ls=":", lw=1.3)
            axes.text(
                0.97,
                0.75 if panel is measured.panels[-1] else 0.03,  # where no lines are
                "no guarantee",
                transform=axes.transAxes,
                ha="right",
                fontsize=16,
                weight="bold",
                color=PALE,
                alpha=0.6,
            )
            labels.append([_draw(axes, measured, panel, sigma) for sigma in SIGMAS])
        sheet[0].set(ylabel="return of a user")
        marks = {
            "optimum": any_result.optimal_value,
            "uniform actions": any_result.baseline_value,
        }
        for name, level in marks.items():
            sheet[0].annotate(
                name, (0, level), xytext=(4, 3), textcoords="offset points", color=PALE
            )
        footnote(
            sheet[0],
            "The algorithm returns its network without noise and carries it without noise from "
            "step to step, so that no σ makes it private; the paper claims ε = 0.9 for σ = 0.32. "
            "Settings are those of the authors' code: two layers of 16, RMSprop, replay,\n"
            "a target network, exploration and a gradient step at every step of a user. Last "
            f"panel: what the paper states, {users_words(measured)}.",
        )
        label_panels(sheet, labels)


def users_words(measured: Measured) -> str:
    """What the paper's own settings amount to."""
    steps = measured.any_result.users * STEPS // BATCH
    return f"{steps} gradient steps of size 3e-4 without exploration, in which nothing is learnt"


def _draw(axes: Axes, measured: Measured, panel: Panel, sigma: float) -> EndLabel:
    x, rows = smoothed(measured.returns(panel.jobs[sigma]))
    pen = PENS[SIGMAS.index(sigma)]
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    axes.fill_between(x, mean - deviation, mean + deviation, color=pen.colour, alpha=0.1, lw=0)
    marks: dict[str, Any] = {"marker": pen.marker, "ms": 6, "mec": "white", "mew": 0.6}
    axes.plot(x, mean, color=pen.colour, markevery=4, **marks)
    return EndLabel(float(x[-1]), float(mean[-1]), f"σ = {sigma:g}", pen.colour)


def table(measured: Measured) -> str:
    """Returns of the last fifth of the users, means with standard deviations, in Markdown."""
    heads = ["returns of the last fifth of users", *(f"σ = {sigma:g}" for sigma in SIGMAS)]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * len(SIGMAS) + "|"]
    last = max(1, measured.any_result.users // 5)
    for panel in measured.panels:
        cells = [panel.title]
        for job in panel.jobs.values():
            late = measured.returns(job)[:, -last:].mean(axis=1)
            cells.append(f"{late.mean():.1f} ± {late.std():.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def promise(_: Measured) -> str:
    """What is guaranteed."""
    return "This algorithm has no guarantee."


main = figure_main(__spec__, __doc__, measure, paint, [table, promise], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
