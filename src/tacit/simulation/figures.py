"""One look for all figures: style, colours and markers, labels at the lines' ends.

The palette is Okabe and Ito's, which stays apart for colour-blind readers; markers
tell lines apart without any colour. Matplotlib is imported where it is used, because it is
slow to import, and figures are drawn without its global state or a display.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.sizes import Floats
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


# What is left out so that equal pictures are equal files: names of software, and dates.
_FORMATS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")),
    ".svg": {"Date": None},
}
PICTURES = tuple(_FORMATS)
"""How the names of pictures end."""


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
    path: Path | None,
    title: str,
    subtitle: str,
    *,
    panels: int = 2,
    size: tuple[float, float] = (11, 5.2),
    sharey: bool = True,
    rows: int = 1,
    style: str | None = None,
) -> Iterator[Sequence[Axes]]:
    """Panels side by side under a title, to draw on; saved at the end, unless there is no path.

    The name's end says the format: PNG, PDF or SVG. Panels of several rows come row by row. A
    style of Matplotlib's takes the place of ours.
    """
    import matplotlib as mpl

    ending = ".png" if path is None else path.suffix.lower()
    if ending not in _FORMATS:
        raise InvalidArgument(f"{str(path)!r} must end in {', '.join(_FORMATS)}")
    with _styled(style), mpl.rc_context({"svg.hashsalt": "tacit"}):
        height = rows * size[1]
        figure = _picture()(figsize=(size[0], height), dpi=130, layout="constrained")
        axes = figure.subplots(rows, panels, sharey=sharey, squeeze=False)
        # An empty line keeps the subtitle's place in the layout.
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=14, weight="bold")
        below = 1.0 - 0.082 * 5.2 / height if rows > 1 else 0.918
        figure.text(0.012, below, subtitle, ha="left", va="center", fontsize=10.5)
        yield list(axes.flat)
        if path is not None:
            figure.savefig(path, format=ending[1:], metadata=_FORMATS[ending])


@cache
def _picture() -> type[Figure]:
    """A figure that notebooks show by itself: Matplotlib's own needs pyplot to be loaded."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure outside of pyplot."""

        def _repr_png_(self) -> bytes:
            data = io.BytesIO()
            self.savefig(data, format="png", metadata=_FORMATS[".png"])
            return data.getvalue()

    return Picture


def _styled(style: str | None) -> AbstractContextManager[Any]:
    import matplotlib as mpl

    if style is None:
        return mpl.rc_context(_STYLE)
    from matplotlib import style as styles

    if style not in (known := ["default", *styles.available]):
        raise InvalidArgument(f"style is {style!r}, but must be one of {', '.join(known)}")
    return styles.context(style)


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
