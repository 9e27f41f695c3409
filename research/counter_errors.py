"""The worst noise of each counter against the number of releases, at equal budget.

Nothing is drawn at random: the standard deviations are the library's own, and formulas for the
ways that it does without: fresh noise, the binary tree, the square root.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tacit
from research.command_lines import parser_of
from research.counter_look import OLDER, PENS, budget_words, logarithmic, older_std
from research.figures import EndLabel, drawing, label_ends

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


def draw(path: Path, longest: int = LONGEST) -> None:
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
    logarithmic(axes)
    axes.set(xlabel="number of releases", ylim=(1.0, HIGHEST))
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__spec__, __doc__)
    parser.add_output()
    given = parser.parse_args(arguments)
    parser.written(lambda: draw(given.output))
    print(f"The picture is {given.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
