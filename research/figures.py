"""Panels in the look of all figures, with labels at the lines' ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tacit.data.sizes import Floats
from tacit.privacy.errors import InvalidArgument
from tacit.simulation import plots
from tacit.simulation.plots import FORMATS, INK, PALE, STYLE, Pen, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.simulation.result import Result


__all__ = ["INK", "PALE", "EndLabel", "Pen", "draw_regret", "drawing", "label_ends"]


@dataclass(frozen=True)
class EndLabel:
    """What is written at the right end of a line."""

    x: float
    y: float
    text: str
    colour: str


@contextmanager
def drawing(
    path: Path | None,
    title: str,
    subtitle: str,
    *,
    panels: int = 2,
    size: tuple[float, float] = (11, 5.2),
    sharey: bool = True,
    rows: int = 1,
) -> Iterator[Sequence[Axes]]:
    """Panels side by side under a title, to draw on; saved at the end, unless there is no path.

    The name's end says the format: PNG, PDF or SVG. Panels of several rows come row by row.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    ending = ".png" if path is None else path.suffix.lower()
    if ending not in FORMATS:
        raise InvalidArgument(f"{str(path)!r} must end in {', '.join(FORMATS)}")
    with style.context([STYLE, {"svg.hashsalt": "tacit"}]):
        height = rows * size[1]
        figure = Figure(figsize=(size[0], height), dpi=130, layout="constrained")
        axes = figure.subplots(rows, panels, sharey=sharey, squeeze=False)
        # An empty line keeps the subtitle's place in the layout.
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=14, weight="bold")
        below = 1.0 - 0.082 * 5.2 / height if rows > 1 else 0.918
        figure.text(0.012, below, subtitle, ha="left", va="center", fontsize=10.5)
        yield list(axes.flat)
        if path is not None:
            figure.savefig(path, format=ending[1:], metadata=FORMATS[ending])


def draw_regret(axes: Axes, results: Sequence[Result], label: str, pen: Pen) -> list[EndLabel]:
    """The regret of runs in optimal returns, and what is written at the line's end."""
    before = len(axes.lines)
    plots.draw_regret(axes, curves(results, relative=True), label, pen)
    ends = [
        (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines[before:]
    ]
    return [EndLabel(float(x[-1]), float(y[-1]), label, pen.colour) for x, y in ends]


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
