"""One look and one command line for all figures, with labels at the lines' ends."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from research.study import RUNS, Parser, load, store, whole
from tacit.privacy.budget import Budget
from tacit.privacy.validation import Floats
from tacit.simulation.plots import FORMATS, INK, PALE, STYLE, Pen, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INK", "PALE", "EndLabel", "Pen", "band", "drawing", "label_ends"]

T = TypeVar("T")

FIGURES: Mapping[str, str] = {
    name.replace("_", "-"): f"research.{name}"
    for name in (
        *("epsilon_cost", "first_agent", "functional_curves"),
        *("linear_paper_regret", "lq_orders", "paper_regret"),
    )
}
"""By name. Each is a module whose ``main(["--output=FILE"])`` draws it into a PNG."""


def picture(text: str) -> Path:
    """A type for a PNG file in a folder that exists, found out before anything is run."""
    path = Path(text)
    if path.suffix.lower() != ".png" or not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"is {text!r}, but must be a .png in a folder that exists")
    return path


def figure_main(
    module: str,
    about: str | None,
    measure: Callable[[int, int, bool], T],
    paint: Callable[[Path, T], None],
    *words: Callable[[T], str],
) -> Callable[..., int]:
    """The command line of a figure that is measured, painted and put into words.

    Args:
        module: its name.
        about: what that module says about itself.
        measure: is given the number of runs and of processes, and whether a small part is enough.
        paint: draws what was measured into a file.
        words: what is printed of it; the first is the table that pages show, kept by ``--store``.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        parser = Parser(module, about)
        parser.add_argument("--output", type=picture, required=True, help="the PNG file to write")
        parser.add_argument("--runs", type=whole(1), default=RUNS, help="seeds of every line")
        parser.add_argument("--workers", type=whole(1), default=2, help="processes")
        parser.add_argument("--quick", action="store_true", help="a small part of it, as a test")
        parser.add_argument("--store", action="store_true", help="keep the table for the pages")
        given = parser.parse_args(arguments)
        runs = min(given.runs, 2) if given.quick else given.runs
        measured = measure(runs, given.workers, given.quick)
        try:
            paint(given.output, measured)
        except OSError as error:
            parser.error(f"argument --output: cannot be written: {error}")
        texts = [say(measured) for say in words]
        if given.store:
            name = module.rpartition(".")[2]
            store(name, load(name) | {"table": {"runs": given.runs, "text": texts[0]}})
        print(*texts, f"The picture is {given.output}.", sep="\n\n")
        return 0

    return main


@dataclass(frozen=True)
class EndLabel:
    """What is written at the right end of a line."""

    x: float
    y: float
    text: str
    colour: str


@contextmanager
def drawing(
    path: Path,
    title: str,
    subtitle: str,
    *,
    panels: int = 2,
    size: tuple[float, float] = (11, 5.2),
    sharey: bool | Any = True,
    rows: int = 1,
    footnote: str = "",
) -> Iterator[Sequence[Axes]]:
    """Panels under a title, to draw on, saved at the end; those of several rows come row by row.

    Args:
        path: of the PNG.
        title: of the figure.
        subtitle: in a line below.
        panels: in a row.
        size: of a row, in inches.
        sharey: whether panels share the vertical axis; or ``"row"``.
        rows: how many.
        footnote: small print below all panels.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context([STYLE, {"svg.hashsalt": "tacit"}]):
        height = rows * size[1]
        figure = Figure(figsize=(size[0], height), dpi=130, layout="constrained")
        axes = figure.subplots(rows, panels, sharey=sharey, squeeze=False)
        # An empty line keeps the subtitle's place in the layout.
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=14, weight="bold")
        below = 1.0 - 0.082 * 5.2 / height if rows > 1 else 0.918
        figure.text(0.012, below, subtitle, ha="left", va="center", fontsize=10.5)
        if footnote:
            figure.supxlabel(footnote, x=0.012, ha="left", fontsize=8.5, color=INK)
        yield list(axes.flat)
        figure.savefig(path, format="png", metadata=FORMATS[".png"])


def band(
    axes: Axes,
    x: Sequence[float] | Floats,
    rows: Floats,
    pen: Pen,
    label: str,
    least: float | None = None,
) -> EndLabel:
    """A line through medians with the deciles around it; what is written at its end.

    Args:
        axes: to draw on.
        x: where points are.
        rows: a row per point, a column per run.
        pen: how it is drawn.
        label: at its end.
        least: what is drawn at least, for logarithmic axes.
    """
    low, middle, high = np.quantile(rows, [0.1, 0.5, 0.9], axis=1)
    if least is not None:
        low, middle, high = (np.maximum(y, least) for y in (low, middle, high))
    axes.fill_between(x, low, high, color=pen.colour, alpha=0.12, lw=0)
    marks: dict[str, Any] = {"marker": pen.marker, "ms": 6, "mec": "white", "mew": 0.6}
    marks["markevery"] = max(1, len(x) // 10)
    axes.plot(x, middle, color=pen.colour, ls=pen.dash, **marks)
    return EndLabel(float(x[-1]), float(middle[-1]), label, pen.colour)


def logarithmic(axes: Axes, label: str) -> None:
    """Both axes logarithmic, with short numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set(xscale="log", yscale="log", xlabel=label)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_formatter(NullFormatter())


def levels(axes: Axes, x: float, **named: float) -> None:
    """Dotted lines at values, with their names."""
    for name, level in named.items():
        axes.axhline(level, color=PALE, ls=":", lw=1.3)
        axes.annotate(name, (x, level), xytext=(3, 3), textcoords="offset points", color=PALE)


def slope(x: Sequence[float], y: Floats | Sequence[float]) -> float:
    """Of a line through points on logarithmic axes; not a number if one is not positive.

    >>> round(slope([1.0, 10.0, 100.0], [3.0, 30.0, 300.0]), 3)
    1.0
    """
    if np.any(np.asarray(y) <= 0):
        return float("nan")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@dataclass(frozen=True)
class Curve:
    """What was measured at some places: a row per place, a column per run; shown by ``words``."""

    label: str
    pen: Pen
    x: Sequence[float]
    rows: Any
    words: str | None = None

    @property
    def middle(self) -> Floats:
        """Medians."""
        found: Floats = np.median(self.rows, axis=1)
        return found

    @property
    def slope(self) -> float:
        """Of the medians."""
        return slope(self.x, self.middle)

    @property
    def named(self) -> str:
        """What is written at its end: its slope, unless there are other words."""
        return f"{self.label}  {self.slope:.2f}" if self.words is None else self.words


@dataclass(frozen=True)
class Panel:
    """Curves on logarithmic axes, and what random actions have at the places of the first one."""

    title: str
    axis: str
    curves: Sequence[Curve]
    random: Sequence[float] | Floats | None = None
    ylabel: str = ""
    random_words: str = "random"
    least: float = 1.0  # what is drawn at least

    def draw(self, axes: Axes) -> None:
        """With labels at the ends."""
        from matplotlib.ticker import LogLocator

        x = self.curves[0].x
        logarithmic(axes, self.axis)
        if len(x) < 5:
            axes.set_xticks(x)
        ends = [band(axes, one.x, one.rows, one.pen, one.named, self.least) for one in self.curves]
        low, high = axes.get_ylim()
        if high < 100.0 * low:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        if self.random is not None:
            axes.plot(x, self.random, ":", color=PALE, lw=1.3)
            ends.append(EndLabel(x[-1], float(self.random[-1]), self.random_words, PALE))
        axes.set(title=self.title, ylabel=self.ylabel)
        label_ends(axes, ends)


def draw_panels(path: Path, shown: Sequence[Panel], title: str, subtitle: str, **look: Any) -> None:
    """Panels row by row, under a title; ``look`` is of :func:`drawing`."""
    runs = np.shape(shown[0].curves[0].rows)[1]
    words = f"Lines: medians of {runs} runs; bands: 10th to 90th percentile. Numbers: slopes."
    with drawing(path, title, f"{subtitle} {words}", sharey=False, **look) as sheet:
        for axes, panel in zip(sheet, shown, strict=False):
            panel.draw(axes)
        for axes in sheet[len(shown) :]:
            axes.set_axis_off()


def budget_words(budget: Budget) -> str:
    """A budget as a panel's title has it.

    >>> budget_words(Budget(1.0, 1e-6)), budget_words(Budget(0.5, 0.0))
    ('ε = 1, δ = 1e-6', 'ε = 0.5, δ = 0 (pure)')
    """
    delta = "0 (pure)" if budget.pure else f"{budget.delta:g}".replace("e-0", "e-")
    return f"ε = {budget.epsilon:g}, δ = {delta}"


def label_ends(axes: Axes, labels: Sequence[EndLabel], *, gap: float = 13.0) -> None:
    """Writes labels right of lines' ends, ``gap`` points apart, on a panel with its limits."""
    figure = axes.get_figure(root=True)
    if figure is None or not labels:
        return
    figure.draw_without_rendering()  # the layout decides how far apart the ends are
    points = 72.0 / figure.dpi
    ordered = sorted(labels, key=lambda label: label.y)
    ends = np.array([axes.transData.transform((x.x, x.y))[1] * points for x in ordered])
    for label, end, place in zip(ordered, ends, _apart(ends, gap), strict=True):
        axes.annotate(
            label.text,
            xy=(label.x, label.y),
            xytext=(14.0, float(place - end)),
            textcoords="offset points",
            va="center",
            color=label.colour,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.colour,
                "lw": 0.7,
                "shrinkA": 1.0,
                "relpos": (0.0, 0.5),
            },
        )


def _apart(ends: Floats, gap: float) -> Floats:
    """The nearest increasing places that are at least ``gap`` apart, in least squares.

    Without the gaps it is isotonic regression, solved by pooling neighbours that are too close.

    >>> _apart(np.array([0.0, 1.0, 50.0]), 10.0).tolist()
    [-4.5, 5.5, 50.0]
    """
    steps = gap * np.arange(len(ends), dtype=np.float64)
    pools: list[list[float]] = []
    for value in ends - steps:
        pool = [float(value)]
        while pools and fmean(pools[-1]) > fmean(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    places: Floats = steps + np.array([fmean(pool) for pool in pools for _ in pool])
    return places
