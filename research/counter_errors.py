"""The worst noise of each counter against the number of releases, at equal budget.

Nothing is drawn at random: the standard deviations are the library's own, and formulas for the
ways that it does without: fresh noise, the binary tree, the square root.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tacit
from research.figures import (
    EndLabel,
    Pen,
    budget_words,
    drawing,
    figure_main,
    label_ends,
    logarithmic,
)
from tacit.privacy.budget import Budget
from tacit.privacy.counters.dense import sqrt_coefficients

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAUSSIAN = (
    tacit.Budget(1.0, 1e-6),
    ("fresh", "blocks", "binary tree", "smooth tree", "square root", "blt"),
)
LAPLACE = (tacit.Budget(1.0, 0.0), ("blocks", "binary tree", "smooth tree"))
# Kinds of Gaussian noise that are drawn as well, up to how many releases they have.
SHORTER = {"optimal": 64, "normalised square root": 1024}
LONGEST = 2**20
# The simple ways are off the chart for long streams; where the others are is what matters.
HIGHEST = 250.0
BAND = "#d9d9d9"
PENS = {
    # Dashed where a line lies on top of another one, which has to show through: the square root's
    # almost everywhere, the blocks' at the end of a stream.
    "fresh": Pen("#666666", "P", "--"),
    "blocks": Pen("#E69F00", "s"),
    "binary tree": Pen("#CC79A7", "^"),
    "smooth tree": Pen("#009E73", "D"),
    "square root": Pen("#D55E00", "o"),
    "blt": Pen("#0072B2", "v", "--"),
    "optimal": Pen("#000000", "*"),
    "normalised square root": Pen("#56B4E9", "X"),
}


def _fresh(releases: int, pure: bool) -> float:
    """New noise on the whole sum each time: all releases are paid for by everybody."""
    return float(releases) if pure else math.sqrt(releases)


def _binary_tree(releases: int, pure: bool) -> float:
    """A user is in a node of each level; a sum is over the ones of its number, in binary."""
    levels = releases.bit_length()
    # The number below with most ones: 2^(levels - 1) - 1, or what comes after it.
    ones = max(levels - 1, releases.bit_count(), 1)
    ones = max(ones, *(((releases >> k << k) - 1).bit_count() for k in range(levels)))
    return math.sqrt(ones) * (levels if pure else math.sqrt(levels))


def _square_root(releases: int, pure: bool = False) -> float:
    """The square root, for many releases by Landau's formula, whose error is below 1 / n^2.

    >>> round(_square_root(1023), 3), round(_square_root(10**12), 3)
    (3.272, 9.862)
    """
    if releases <= 1024:
        return float((sqrt_coefficients(releases) ** 2).sum())
    return (math.log(releases - 0.25) + np.euler_gamma + 4.0 * math.log(2.0)) / math.pi


OLDER: Mapping[str, Callable[[int, bool], float]] = {
    "fresh": _fresh,
    "binary tree": _binary_tree,
    "square root": _square_root,
}
"""The largest noise of the ways that counters are compared with, in units of one sum's."""


def older_std(budget: Budget, kind: str, releases: int) -> float:
    """The same for a budget, as a standard deviation, for sensitivity 1.

    >>> round(older_std(Budget(1.0, 1e-6), "square root", 1), 4)
    4.2247
    >>> round(older_std(Budget(1.0, 0.0), "binary tree", 1024), 1)
    49.2
    """
    one = math.sqrt(2.0) / budget.epsilon if budget.pure else 1.0 / budget.mu
    return one * OLDER[kind](releases, budget.pure)


def lengths(longest: int) -> list[int]:
    """Numbers of releases from 1 to ``longest``, two per octave.

    >>> lengths(8)
    [1, 2, 3, 4, 6, 8]
    """
    halves = 2.0 ** np.arange(0.0, np.log2(longest) + 0.25, 0.5)
    return sorted({*halves.round().astype(int).tolist(), longest})


def worst_std(budget: tacit.Budget, kind: str, releases: int) -> float:
    """The largest noise standard deviation of any release, for sensitivity 1.

    >>> round(worst_std(tacit.Budget(1.0, 1e-6), "optimal", 1), 3)
    4.225
    """
    if kind in OLDER:
        return older_std(budget, kind, releases)
    return float(tacit.counter(budget, 1.0, releases, kind=kind).std.max())


def paint(path: Path, longest: int) -> None:
    """Draws both panels."""
    with drawing(
        path,
        "How much noise a running sum needs",
        "Largest noise standard deviation over all releases, for sensitivity 1. "
        "The grey band is what tacit.counter picks.",
    ) as panels:
        for axes, (budget, kinds), noise in zip(
            panels, (GAUSSIAN, LAPLACE), ("Gaussian", "Laplace"), strict=True
        ):
            _panel(axes, budget, kinds, longest)
            axes.set_title(f"{noise} noise: {budget_words(budget)}")
        panels[0].set_ylabel("largest noise standard deviation")


def _panel(axes: Axes, budget: tacit.Budget, kinds: Sequence[str], longest: int) -> None:
    x = lengths(longest)
    ends = dict.fromkeys(kinds, longest) | ({} if budget.pure else SHORTER)
    lines = {
        kind: [worst_std(budget, kind, n) for n in x if n <= end] for kind, end in ends.items()
    }
    picked = [lines[tacit.counter(budget, 1.0, n).kind][i] for i, n in enumerate(x)]
    logarithmic(axes, "number of releases")
    axes.set(ylim=(1.0, HIGHEST))
    axes.plot(x, picked, color=BAND, lw=9)
    labels = []
    for kind, y in lines.items():
        pen = PENS[kind]
        on_top = 2.0 if pen.dash == "-" else 2.1
        end = x[len(y) - 1]
        axes.plot(
            x[: len(y)],
            y,
            pen.dash,
            color=pen.colour,
            marker=pen.marker,
            ms=4,
            markevery=4,
            zorder=on_top,
        )
        if end < x[-1]:
            axes.annotate(
                kind,
                xy=(end, y[-1]),
                xytext=(4.0, -10.0),
                textcoords="offset points",
                ha="left",
                va="top",
                color=pen.colour,
            )
        elif y[-1] <= HIGHEST:
            labels.append(EndLabel(end, y[-1], f"{kind}  {y[-1]:.3g}", pen.colour))
    _label_exits(axes, x, {kind: y for kind, y in lines.items() if y[-1] > HIGHEST})
    label_ends(axes, labels)


def _label_exits(axes: Axes, x: Sequence[int], lines: dict[str, list[float]]) -> None:
    """Names the lines that leave at the top, one below the other where they leave together."""
    for place, (kind, y) in enumerate(lines.items()):
        axes.annotate(
            kind,
            xy=(float(np.interp(np.log(HIGHEST), np.log(y), x)), HIGHEST),
            xytext=(6.0, -8.0 - 14.0 * place),
            textcoords="offset points",
            va="center",
            color=PENS[kind].colour,
        )


def measure(runs: int, workers: int, quick: bool) -> int:
    """The longest stream that is drawn."""
    return 64 if quick else LONGEST


main = figure_main("research.counter_errors", __doc__, measure, paint)


if __name__ == "__main__":
    sys.exit(main())
