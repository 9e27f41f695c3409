"""The worst noise of each counter against the number of releases, at equal budget.

Nothing is drawn at random: the standard deviations are the library's own, and formulas for the
ways that it does without: fresh noise, the binary tree, the square root.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import tacit
from research.figures import Curve, Panel, Pen, budget_words, drawing, figure_main
from tacit.privacy.budget import Budget
from tacit.privacy.counters.dense import sqrt_coefficients

GAUSSIAN = (
    tacit.Budget(1.0, 1e-6),
    ("fresh", "blocks", "binary tree", "smooth tree", "square root"),
)
LAPLACE = (tacit.Budget(1.0, 0.0), ("blocks", "binary tree", "smooth tree"))
# Kinds of Gaussian noise that are drawn as well, up to how many releases they have.
SHORTER = {"optimal": 64, "normalised square root": 1024}
LONGEST = 2**20
BAND = "#d9d9d9"
PENS = {
    # Dashed where a line lies on top of another one, which has to show through: the square root's
    # almost everywhere, the blocks' at the end of a stream.
    "fresh": Pen("#666666", "P", "--"),
    "blocks": Pen("#E69F00", "s"),
    "binary tree": Pen("#CC79A7", "^"),
    "smooth tree": Pen("#009E73", "D"),
    "square root": Pen("#D55E00", "o"),
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
    panels = [
        _panel(f"{noise} noise: {budget_words(budget)}", budget, kinds, longest)
        for noise, (budget, kinds) in {"Gaussian": GAUSSIAN, "Laplace": LAPLACE}.items()
    ]
    with drawing(
        path,
        "How much noise a running sum needs",
        "Largest noise standard deviation over all releases, for sensitivity 1. "
        "The grey band is what tacit.counter picks.",
    ) as sheet:
        for axes, panel, (budget, _) in zip(sheet, panels, (GAUSSIAN, LAPLACE), strict=True):
            x = lengths(longest)
            picked = [worst_std(budget, tacit.counter(budget, 1.0, n).kind, n) for n in x]
            axes.plot(x, picked, color=BAND, lw=9)
            panel.draw(axes)


def _panel(title: str, budget: tacit.Budget, kinds: Sequence[str], longest: int) -> Panel:
    ends = dict.fromkeys(kinds, longest) | ({} if budget.pure else SHORTER)
    curves = []
    for kind, end in ends.items():
        x = [n for n in lengths(longest) if n <= end]
        y = [worst_std(budget, kind, n) for n in x]
        curves.append(Curve(kind, PENS[kind], x, [[std] for std in y], f"{kind}  {y[-1]:.3g}"))
    return Panel(title, "number of releases", curves, ylabel="largest standard deviation")


def measure(runs: int, workers: int, quick: bool) -> int:
    """The longest stream that is drawn."""
    return 64 if quick else LONGEST


main = figure_main("research.counter_errors", __doc__, measure, paint)


if __name__ == "__main__":
    sys.exit(main())
