"""What functional noise does to Q-learning as printed: returns of users by sigma.

After Figure 1 of Wang and Hegde (2019). Algorithm 1 runs as the authors' public code does
(:mod:`research.wang_public_code`): new noise paths never, with each episode, or with each batch, as
the paper states; and as it is printed (:mod:`tacit.papers`). None has a guarantee.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from research.figures import PALE, EndLabel, Pen, drawing, figure_main, label_ends, levels
from research.study import markdown, run_all
from research.wang_public_code import public_code
from tacit.continuous import line
from tacit.papers.result import PaperResult
from tacit.papers.wang_functional_2019 import Setting, functional_q
from tacit.privacy.validation import Floats
from tacit.simulation.run import PermutedWorld, noise_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS, BATCH, USERS = 50, 64, 100
"""Of an episode; between two gradient steps, as the paper states it; and its users."""
PENS = {
    0.0: Pen("#222222", "X"),
    0.1: Pen("#56B4E9", "P"),
    0.2: Pen("#0072B2", "o"),
    0.4: Pen("#E69F00", "v"),
    0.8: Pen("#D55E00", "s"),
}
"""By sigma."""
# A point of a curve is the mean of so many users.
SMOOTHED = 5


def panels(users: int) -> dict[str, tuple[int | None, bool]]:
    """By title: how often new paths begin, and whether with the paper's own settings."""
    rounds = math.ceil(users * STEPS / BATCH)
    return {
        "One path for the whole run (J = 1)": (1, False),
        f"New paths with each episode (J = {users})": (None, False),
        f"New paths every {BATCH} steps (J = T/B = {rounds})": (rounds, False),
        "As the paper states it: J = T/B, other settings": (rounds, True),
    }


def printed_run(users: int, seed: int, **options: Any) -> PaperResult:
    """The public code on line, with the users and labels that agents have."""
    rng = np.random.default_rng(np.random.SeedSequence([1, seed]))
    labels = tuple(PermutedWorld.draw(line(), rng).permutation)
    seeds: dict[str, Any] = {"seed": seed, "noise_seed": noise_seed(seed)}
    return public_code(line(), users=users, labels=labels, **seeds, **options)


def returns(job: tuple[int, float, int | None, bool], seed: int) -> list[float]:
    """What each user got."""
    users, sigma, resets, stated = job
    if stated:
        given: dict[str, Any] = {"setting": Setting(T=users * STEPS), "sigma": sigma, "seed": seed}
        found = functional_q(line(), epsilon=0.9, delta=1e-4, **given)
    else:
        found = printed_run(users, seed, sigma=sigma, resets=resets)
    return [float(value) for value in found.values]


Measured = Mapping[str, Mapping[float, Floats]]
"""Returns by title and sigma: a row per run, a column per user."""


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything; without noise resets change nothing, so that one run serves several."""
    users = 10 if quick else USERS
    jobs = {
        title: {sigma: (users, sigma, resets if sigma else None, stated) for sigma in PENS}
        for title, (resets, stated) in panels(users).items()
    }
    found = run_all(
        [job for some in jobs.values() for job in some.values()], returns, runs, workers
    )
    return {
        title: {sigma: np.array(found[job]) for sigma, job in some.items()}
        for title, some in jobs.items()
    }


def smoothed(rows: Floats, size: int = SMOOTHED) -> tuple[Floats, Floats]:
    """Means of neighbouring users: how many users there were by then, and a row per run.

    >>> smoothed(np.array([[1.0, 3.0, 5.0]]), 2)
    (array([2., 3.]), array([[2., 5.]]))
    """
    starts = np.arange(0, rows.shape[1], size)
    ends = np.minimum(starts + size, rows.shape[1])
    means = np.add.reduceat(rows, starts, axis=1) / (ends - starts)
    return ends.astype(np.float64), means


def paint(path: Path, measured: Measured) -> None:
    """A panel for each way to draw new paths."""
    world, (runs, users) = line(), next(iter(measured.values()))[0.0].shape
    with drawing(
        path,
        "Q-learning with functional noise, as printed: no guarantee at any σ",
        f"What users got, on line. Lines: means of {runs} runs and {SMOOTHED} users; "
        "bands: one standard deviation of the runs.",
        panels=len(measured),
        size=(17, 5.6),
        footnote="The algorithm returns its network without noise and carries it without noise "
        "from step to step, so that no σ makes it private; the paper claims ε = 0.9 for σ = 0.32. "
        "Settings are those of the authors' code: two layers of 16, RMSprop, replay,\na target "
        "network, exploration and a gradient step at every step of a user. Last panel: what the "
        f"paper states, {users * STEPS // BATCH} gradient steps of size 3e-4 without exploration, "
        "in which nothing is learnt.",
    ) as sheet:
        labels = []
        for axes, (title, lines) in zip(sheet, measured.items(), strict=True):
            axes.set(xlabel="users served", xlim=(0, users), ylim=(0.0, world.optimal_value * 1.08))
            axes.set_title(title, fontsize=9.5)
            levels(axes, 0.0, optimum=world.optimal_value, uniform=world.baseline_value)
            axes.text(0.97, 0.03, "no guarantee", transform=axes.transAxes, ha="right", color=PALE)
            labels.append([_draw(axes, sigma, rows) for sigma, rows in lines.items()])
        sheet[0].set(ylabel="return of a user")
        for axes, ends in zip(sheet, labels, strict=True):
            label_ends(axes, ends)


def _draw(axes: Axes, sigma: float, rows: Floats) -> EndLabel:
    x, some = smoothed(rows)
    pen, mean, deviation = PENS[sigma], some.mean(axis=0), some.std(axis=0)
    axes.fill_between(x, mean - deviation, mean + deviation, color=pen.colour, alpha=0.1, lw=0)
    axes.plot(x, mean, color=pen.colour, markevery=4, marker=pen.marker, ms=6, mec="white", mew=0.6)
    return EndLabel(float(x[-1]), float(mean[-1]), f"σ = {sigma:g}", pen.colour)


def table(measured: Measured) -> str:
    """Returns of the last fifth of the users, means with standard deviations, in Markdown."""

    def late(rows: Floats) -> Sequence[float]:
        some: Sequence[float] = rows[:, -max(1, rows.shape[1] // 5) :].mean(axis=1)
        return some

    rows = [
        [title, *(f"{np.mean(late(r)):.1f} ± {np.std(late(r)):.1f}" for r in lines.values())]
        for title, lines in measured.items()
    ]
    heads = ["returns of the last fifth of users", *(f"σ = {sigma:g}" for sigma in PENS)]
    return f"{markdown(heads, rows)}\n\nThis algorithm has no guarantee."


main = figure_main("research.functional_noise", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
