"""Figures with two rows of panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.figures import INK
from tacit.simulation.plots import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Look:
    """How a sheet is laid out.

    Attributes:
        size: its width and height, in inches.
        height: where the subtitle is.
        panels: how many rows and columns.
        shared: which axes are common.
    """

    size: tuple[float, float]
    height: float
    panels: tuple[int, int]
    shared: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def sheet(
    path: Path, title: str, subtitle: str, look: Look, footnote: str = ""
) -> Iterator[Sequence[Sequence[Axes]]]:
    """Rows of panels, in the style of all figures; saved at the end."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure(figsize=look.size, dpi=130, layout="constrained")
        panels = figure.subplots(*look.panels, **look.shared)
        # An empty line keeps the subtitle's place in the layout.
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=14, weight="bold")
        figure.text(0.012, look.height, subtitle, ha="left", va="center", fontsize=10.5, color=INK)
        if footnote:
            figure.supxlabel(footnote, x=0.012, ha="left", fontsize=8.5, color=INK)
        yield [list(row) for row in panels]
        # Without the name and version of the software, equal pictures are equal files.
        figure.savefig(path, format="png", metadata={"Software": None})
