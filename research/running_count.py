"""A private running count of a million users, published a thousand times, by every counter.

Each user contributes a 0 or a 1, so replacing her changes one item by at most 1. All counters
spend the same budget on the same stream, item by item through the library's own code, several
times over with independent noise. The picture shows the standard deviation that each counter
promises as a line and the error it made as dots.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import SEED, parser_of
from research.counter_look import PENS, budget_words, logarithmic, older_std
from research.epsilon_cost import with_progress
from research.figures import EndLabel, drawing, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

GAUSSIAN = ("blocks", "smooth tree", "blt", "normalised square root")
LAPLACE = ("blocks", "smooth tree")
# A user counts as 0 or 1.
SENSITIVITY = 1.0
# So many dots per line: each is the error over the releases around it.
DOTS = 16


@dataclass(frozen=True)
class Stream:
    """The users: how many were served at each release, and how many new ones counted as 1."""

    served: NDArray[np.int64]
    items: NDArray[np.int64]

    @property
    def total(self) -> int:
        """The true count at the end."""
        return int(self.items.sum())


@dataclass(frozen=True)
class Curve:
    """What one counter promised and what it did.

    Attributes:
        kind: the counter.
        budget: what it spent.
        std: the promised noise standard deviation at each release.
        errors: published minus true count, a row per run and a column per release.
        memory: how many numbers the counter holds at most.
    """

    kind: str
    budget: tacit.Budget
    std: Floats
    errors: Floats
    memory: int


def make_stream(users: int, releases: int, seed: int) -> Stream:
    """Users in blocks of (nearly) equal size; their chance of a 1 drifts slowly.

    A block's count of ones is one binomial draw, the same in distribution as one draw per user.
    """
    rng = np.random.default_rng([seed, 0])
    served = (users * np.arange(1, releases + 1)) // releases
    blocks = np.diff(served, prepend=0)
    chance = 0.5 + 0.2 * np.sin(2 * np.pi * served / users)
    return Stream(served, rng.binomial(blocks, chance))


def make_curves(
    stream: Stream, gaussian: tacit.Budget, pure: tacit.Budget, runs: int, seed: int
) -> Iterator[Curve]:
    """Streams every counter ``runs`` times, with noise of its own each time."""
    pairs = [(kind, gaussian) for kind in GAUSSIAN] + [(kind, pure) for kind in LAPLACE]
    for place, (kind, budget) in enumerate(pairs):
        errors = np.empty((runs, len(stream.items)))
        for run in range(runs):
            # Seeds hashed together: no two runs and no two counters share any noise.
            mixed = np.random.SeedSequence([seed, 1, place, run])
            counter = tacit.counter(
                budget,
                SENSITIVITY,
                len(stream.items),
                kind=kind,
                noise_seed=int(mixed.generate_state(1, np.uint64)[0]),
            )
            published = [counter.release(item) for item in stream.items]
            errors[run] = np.array(published) - np.cumsum(stream.items)
        yield Curve(kind, budget, counter.std, errors, counter.memory * counter.size)


def draw(path: Path, stream: Stream, curves: Sequence[Curve]) -> None:
    """Error against users served, a panel per kind of noise."""
    users, releases = int(stream.served[-1]), len(stream.items)
    labels = {}
    with drawing(
        path,
        f"A private running count of {_words(users)} users, published {releases:,} times",
        "Lines: the noise each counter promises (faint: a tree's jumps), at the end as a number. "
        f"Dots: the error it made, root mean square of {_counted(len(curves[0].errors), 'run')}.",
    ) as panels:
        for axes, noise in zip(panels, ("Gaussian", "Laplace"), strict=True):
            shown = [c for c in curves if c.budget.pure == (noise == "Laplace")]
            labels[axes] = _panel(axes, stream, shown)
            axes.set_title(f"{noise} noise: {budget_words(shown[0].budget)}")
        panels[0].set_ylabel("error of the published count, in people")
        # Down to a power of ten, so that the lowest lines have a labelled tick below them.
        panels[0].set_ylim(bottom=10.0 ** math.floor(math.log10(panels[0].get_ylim()[0] * 1.2)))
        for axes in panels:
            label_ends(axes, labels[axes])


def _panel(axes: Axes, stream: Stream, curves: Sequence[Curve]) -> list[EndLabel]:
    """Draws lines and dots; returns the labels, which need the final limits."""
    logarithmic(axes)
    axes.set_xlabel("users served")
    windows = _windows(len(stream.items))
    middles = [math.sqrt(stream.served[a] * stream.served[b - 1]) for a, b in windows]
    labels = []
    for curve in curves:
        pen = PENS[curve.kind]
        x, y = stream.served.tolist(), curve.std.tolist()
        if np.any(np.diff(curve.std) < 0):
            # A tree's noise jumps at every release: its mean is the line, the jumps a shadow.
            axes.plot(x, y, "-", color=pen.colour, alpha=0.22, lw=0.7)
            x, y = [*middles, x[-1]], [rms(curve.std[a:b]) for a, b in windows]
            y.append(y[-1])
        axes.plot(x, y, pen.dash, color=pen.colour, alpha=0.75)
        dots = [rms(curve.errors[:, a:b]) for a, b in windows]
        axes.plot(middles, dots, pen.marker, color=pen.colour, ms=6, mec="white", mew=0.6)
        labels.append(EndLabel(x[-1], y[-1], f"{curve.kind}  {curve.std[-1]:.3g}", pen.colour))
    return labels


def report(stream: Stream, curves: Sequence[Curve], seed: int) -> None:
    """Prints the figures, what the library would pick and why, and the guarantee in words."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table("noise", "counter")
    for title in ("std at the end", "rms promised", "rms observed", "numbers held"):
        table.add_column(title, justify="right")
    for curve in curves:
        table.add_row(
            "Laplace" if curve.budget.pure else "Gaussian",
            curve.kind,
            f"{curve.std[-1]:.4g}",
            f"{rms(curve.std):.4g}",
            f"{rms(curve.errors):.4g}",
            f"{curve.memory:,}",
        )
    console.print(table)
    budgets = dict.fromkeys(curve.budget for curve in curves)
    chosen = [
        tacit.counter(budget, SENSITIVITY, len(stream.items), noise_seed=seed) for budget in budgets
    ]
    for counter in chosen:
        console.print(f"\ntacit.counter picks, for {counter.budget}: {counter.kind}.")
    console.print(f"\nGuarantee of the first: {chosen[0].guarantee}")
    near, exact = (float(counter.std[-1]) for counter in chosen)
    naive = older_std(chosen[0].budget or curves[0].budget, "fresh", len(stream.items))
    console.print(
        f"\nIn plain words: {_words(int(stream.served[-1]))} users counted, "
        f"{stream.total:,} of them as ones; the count published at the end is off by about "
        f"{_rounded(near)} people ({100 * near / max(1, stream.total):.2g} %), by about "
        f"{_rounded(exact)} with pure privacy, and would be by about {_rounded(naive)} with fresh "
        f"noise at every release."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__spec__, __doc__)
    parser.add_output()
    parser.add_budget("of all releases together", "for the Gaussian counters")
    parser.add_numbers(
        {
            "users": (1, 1_000_000, "each counts as 0 or 1"),
            "releases": (1, 1_000, "at most one per user"),
            "seed": SEED,
            "runs": (1, 40, "runs with independent noise"),
        }
    )
    given = parser.parse_args(arguments)
    if given.users < given.releases:
        parser.error(
            f"argument --users: is {given.users}, but must be at least --releases, "
            f"{given.releases}: a release needs a user"
        )
    try:
        gaussian = tacit.Budget(given.epsilon, given.delta)
        pure = tacit.Budget(given.epsilon, 0.0)
        _ = gaussian.mu  # refuses delta = 0
    except tacit.InvalidArgument as error:
        parser.error(str(error))
    stream = make_stream(given.users, given.releases, given.seed)
    making = make_curves(stream, gaussian, pure, given.runs, given.seed)
    curves = list(with_progress(making, len(GAUSSIAN) + len(LAPLACE), "streaming every counter"))
    parser.written(lambda: draw(given.output, stream, curves))
    report(stream, curves, given.seed)
    print(f"\nThe picture is {given.output}.")
    return 0


def _windows(releases: int) -> list[tuple[int, int]]:
    """Ranges of releases that cover them all and look equally wide on a logarithmic axis."""
    edges = np.geomspace(1, releases + 1, DOTS + 1).round().astype(int) - 1
    cuts = np.unique(edges).tolist()
    return list(pairwise(cuts))


def rms(values: Floats) -> float:
    """Root of the mean square: of promised standard deviations, or of observed errors."""
    return float(np.sqrt(np.mean(np.square(values))))


def _rounded(people: float) -> str:
    return f"{people:,.0f}" if people >= 10 else f"{people:.1g}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _words(number: int) -> str:
    return "a million" if number == 1_000_000 else f"{number:,}"


if __name__ == "__main__":
    sys.exit(main())
