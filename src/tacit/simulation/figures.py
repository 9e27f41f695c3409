"""One look for all figures: style, colours and markers, labels at the lines' ends.

The palette is Okabe and Ito's, which stays apart for colour-blind readers; markers
tell lines apart without any colour. Matplotlib is imported where it is used, because it is
slow to import, and figures are drawn without its global state or a display.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.sizes import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


INK = "#222222"
PALE = "#8a8a8a"

# Matplotlib types the keys as a union of literals that grows with every version.
_STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": PALE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    **dict.fromkeys(("axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    **{f"{axis}tick.{kind}.size": 0.0 for axis in "xy" for kind in ("major", "minor")},
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Pen:
    """How one line is drawn."""

    colour: str
    marker: str
    dash: str = "-"


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
    sharey: bool = True,
) -> Iterator[Sequence[Axes]]:
    """Panels side by side under a title, to draw on; saved as a PNG at the end."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, dpi=130, layout="constrained")
        axes = figure.subplots(1, panels, sharey=sharey, squeeze=False)[0]
        # An empty line keeps the subtitle's place in the layout.
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=14, weight="bold")
        figure.text(0.012, 0.918, subtitle, ha="left", va="center", fontsize=10.5, color=INK)
        yield axes
        # Without the name and version of the software, equal pictures are equal files.
        figure.savefig(path, format="png", metadata={"Software": None})


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
