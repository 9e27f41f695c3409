"""Learning curves: regret and the values of released policies against users served.

One panel per world and quantity: colours and markers are agents, dashes are budgets. Regret is
exact: it grows linearly within a block, whose policy is fixed. Lines are medians over seeds, bands
reach from the first to the last decile. The palette is Okabe and Ito's; fonts are embedded as Type
42. Figures need no display, and no global state.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats, checked_number, one_of
from tacit.simulation.tables import merged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.simulation.result import Result

INK, PALE = "#222222", "#8a8a8a"
STYLE = str(Path(__file__).with_name("tacit.mplstyle"))

FORMATS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")),
    ".svg": {"Date": None},
}
"""How names of pictures end, and what is left out of them: equal pictures are equal files."""

WIDTHS = {"screen": 11.0, "page": 7.0, "column": 3.4}  # inches; of a page with two columns
DRAWN = ("regret", "values")


@dataclass(frozen=True)
class Pen:
    """How one line is drawn."""

    colour: str
    marker: str
    dash: str = "-"


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
PALETTE = tuple(map(Pen, _COLOURS, "osD^vPX"))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
# Points of a curve whose seeds do not share their releases, or have more than a picture can show.
_GRID = 1000
DECILES = (0.1, 0.5, 0.9)
_ROW = 3  # panels beside each other, of one quantity


def plot_results(
    results: Mapping[str, Sequence[Result]],
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
    *,
    draw: Literal["regret", "values", "both"] = "both",
    width: str | float = "screen",
    height: float | None = None,
    legend: bool = True,
) -> Figure:
    """Compares agents and budgets: panels of every world, in them a line with its band per label.

    Of a single run there is the greedy policy beside it.

    Args:
        results: Runs by label.
        path: Where to write it, as PNG, PDF or SVG by the name's end.
        title: Above all; by default none where a panel's says enough.
        draw: Regret, values of the policies that serve, or both.
        width: ``"screen"``, ``"page"`` or ``"column"``, or inches. Words are of 10 or 8 points.
        height: Inches of one row of panels.
        legend: Whether there is one, below.
    """
    runs = [run for several in results.values() for run in several]
    if not runs or not all(results.values()):
        raise InvalidArgument("results must have at least one run for each label")
    ending = ".png" if path is None else os.path.splitext(path)[1].lower()
    if ending not in FORMATS:
        raise InvalidArgument(f"{os.fspath(path or '')!r} must end in {', '.join(FORMATS)}")
    drawn = DRAWN if one_of("draw", draw, (*DRAWN, "both")) == "both" else (draw,)
    if isinstance(width, str):
        width = WIDTHS[one_of("width", width, [*WIDTHS])]
    wide = checked_number("width", width, "inches, from 1 to 100", lambda x: 1 <= x <= 100)
    worlds: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for label, several in results.items():
        for run in several:
            group = worlds.setdefault((run.world, run.identity.get("world", "")), {})
            group.setdefault(label, []).append(run)
    for label, several in (line for group in worlds.values() for line in group.items()):
        if len(found := merged([{label: several}])) > 1:
            words = "tacit.simulation.tables.merged keeps them apart"
            raise InvalidArgument(f"runs of {label!r} differ: {', '.join(found)}; {words}")
    told, places = _told(worlds), len(worlds) * len(drawn)
    pens = _pens(told)
    columns = min(places, 2 if len(drawn) == 2 else _ROW if wide > WIDTHS["column"] else 1)
    rows, small = -(-places // columns), wide < 0.8 * WIDTHS["screen"]
    tall = 0.72 * wide / columns if height is None else height
    from matplotlib import style

    look: dict[str, Any] = {"svg.hashsalt": "tacit", "font.size": 8 if small else 10}
    look["lines.markersize"] = 3.5 if small else 5.0
    with style.context([STYLE, look | {"lines.linewidth": 1.1 if small else 1.6}]):
        size = wide, rows * tall + legend * 0.5
        figure = _picture()(figsize=size, dpi=200 if small else 130, layout="constrained")
        if title:
            figure.suptitle(title, x=0.012, ha="left", weight="bold")
        panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        names = [world for world, _ in worlds]
        free = iter(panels)
        for (world, digest), group in worlds.items():
            where = world + (f" [{digest[:6]}]" if names.count(world) > 1 else "")
            for what in drawn:
                axes = next(free)
                words = where.replace(":", ": ", 1).replace(",", ", ")
                axes.set_title(fill(words, int(wide / columns * (11 if small else 8.5))))
                lines = {label: (several, pens[label]) for label, several in group.items()}
                _draw(axes, lines, what)
        for axes in free:
            axes.remove()
        if legend:
            _draw_legend(figure, panels[:places], told, pens, wide)
        if path is not None:
            figure.savefig(path, format=ending[1:], metadata=FORMATS[ending])
    return figure


@cache
def _picture() -> type[Figure]:
    """A figure that notebooks show by itself: Matplotlib's own needs pyplot to be loaded."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure outside of pyplot."""

        def _repr_png_(self) -> bytes:
            data = io.BytesIO()
            self.savefig(data, format="png", metadata=FORMATS[".png"])
            return data.getvalue()

    return Picture


def _told(worlds: Mapping[Any, Mapping[str, Sequence[Result]]]) -> dict[str, tuple[str, str]]:
    """Agent and budget of each label; where those do not tell lines apart, the label alone."""
    pairs = dict[str, set[tuple[str, str]]]()
    for group in worlds.values():
        for label, (run, *_) in group.items():
            promise, options = run.guarantee, run.identity.get("options", "")
            budget = "no privacy"
            if promise is not None:
                model = "" if promise.model == "joint" else f"{promise.model}, "
                budget = f"{model}ε = {promise.epsilon:g}"
            agent = f"{run.agent} ({options})" if options else run.agent
            pairs.setdefault(label, set()).add((agent, budget))
    clear = all(len(several) == 1 for several in pairs.values())
    told = {label: min(several) if clear else (label, "") for label, several in pairs.items()}
    clear = all(len({told[label] for label in group}) == len(group) for group in worlds.values())
    return told if clear else {label: (label, "") for label in pairs}


def _pens(told: Mapping[str, tuple[str, str]]) -> dict[str, Pen]:
    """A pen for each label: a colour for its agent, dashes for its budget."""
    agents, budgets = (list(dict.fromkeys(pair[k] for pair in told.values())) for k in (0, 1))
    found = {}
    for label, (agent, budget) in told.items():
        often, place = divmod(agents.index(agent), len(PALETTE))
        dash = _DASHES[(budgets.index(budget) + often) % len(_DASHES)]
        found[label] = replace(PALETTE[place], dash=dash)
    return found


def _draw_legend(figure: Figure, panels: Sequence[Axes], told: Any, pens: Any, wide: float) -> None:
    """One legend below all panels: agents by colour, budgets by dash, then other lines."""
    from matplotlib.lines import Line2D

    shown = dict[str, Any]()
    several = len({budget for _, budget in told.values()}) > 1
    for (agent, _), pen in zip(told.values(), pens.values(), strict=True):
        dash = "-" if several else pen.dash
        marker = pen.marker if len(pens) > 1 else ""
        shown.setdefault(agent, Line2D([], [], color=pen.colour, ls=dash, marker=marker))
    for (_, budget), pen in zip(told.values(), pens.values(), strict=True):
        if several:
            shown.setdefault(budget, Line2D([], [], color=INK, ls=pen.dash))
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    columns = max(1, int(wide / (0.6 + 0.065 * max(map(len, shown)))))
    given: dict[str, Any] = {"loc": "outside lower center", "ncols": min(columns, len(shown))}
    figure.legend(shown.values(), shown.keys(), **given)


Lines: TypeAlias = Mapping[str, tuple[Sequence["Result"], Pen]]


def _draw(axes: Axes, lines: Lines, what: str) -> None:
    """Regret, below that of users served without anything learnt; or values that users get.

    Of a single run there are the values of the greedy policies as well.
    """
    runs, values = [run for several, _ in lines.values() for run in several], what == "values"
    axes.set(ylabel="value of the serving policy" if values else "cumulative regret")
    _user_axis(axes, runs)
    for several, pen in lines.values():
        users, *found = curves(several)
        low, middle, high = deciles = np.quantile(found[values], DECILES, axis=0)
        shown = users >= axes.get_xlim()[0]
        if not values:
            # A logarithm has no place for zero, and rounding makes regret slightly negative.
            shown &= (middle > 1e-9 * high.max()) & (middle > 0)
            low[:] = np.maximum(low, middle / 1e3)
        if shown.any():
            axes.set_yscale("linear" if values else "log")
            style = "steps-post" if values else "default"
            _draw_line(axes, users[shown], deciles[:, shown], pen, len(several), style)
    best, random = runs[0].optimal_value, runs[0].baseline_value
    ends = np.array([axes.get_xlim()[0], max(run.users for run in runs)])
    look: dict[str, Any] = {"color": PALE, "lw": 0.8, "zorder": 1}
    if not values and not axes.lines:
        axes.text(0.5, 0.5, "none, or not known", ha="center", transform=axes.transAxes)
    elif not values:
        _short_ticks(axes.yaxis)
        if best > random:
            axes.plot(ends, (best - random) * ends, label="no learning", **look)
    else:
        if len(runs) == 1:
            greedy: dict[str, Any] = {
                "color": PALETTE[1].colour,
                "ds": "steps-post",
                "label": "greedy",
            }
            axes.plot(users, found[2][0], "--", **greedy)
        for name, level, dash in (("no learning", random, "-"), ("optimum", best, "-.")):
            if math.isfinite(level):
                axes.axhline(level, ls=dash, label=name, **look)


def _draw_line(
    axes: Axes, x: Floats, deciles: Floats, pen: Pen, runs: int, style: Any = "default"
) -> None:
    """A median with its band; a few markers, evenly spaced to the eye, tell agents apart."""
    look: dict[str, Any] = {"color": pen.colour, "ls": pen.dash}
    if runs > 1:
        step: Any = "post" if style == "steps-post" else None
        axes.fill_between(x, deciles[0], deciles[2], step=step, color=pen.colour, alpha=0.12, lw=0)
        places = np.unique(np.searchsorted(x, np.geomspace(x[0], x[-1], 7)[1:-1]))
        look |= {"marker": pen.marker, "mec": "white", "mew": 0.5, "markevery": places.tolist()}
    axes.plot(x, deciles[1], drawstyle=style, **look)


def curves(results: Sequence[Result]) -> tuple[Floats, Floats, Floats, Floats]:
    """Numbers of users; there, a row per run: regret, values served and greedy ones."""
    first = results[0].served
    releases = []
    if len(first) <= _GRID and all(np.array_equal(run.served, first) for run in results):
        # Up to a release the old policy is at work, and one user later the new one.
        releases = [first[1:].astype(np.float64), first[:-1] + 1.0]
    # Points within the blocks as well, because what is linear bends on logarithmic axes.
    grid = np.geomspace(1, min(run.users for run in results), _GRID).round()
    users, rows = np.unique(np.concatenate([grid, *releases])), []
    for run in results:
        # The user of number u is served by the last release that came after fewer than u users.
        release = np.searchsorted(run.served, users, side="left") - 1
        values = run.values[release], run.greedy_values[release]
        rows.append([np.interp(users, run.served, run.regret), *values])
    regret, serving, greedy = np.array(rows).swapaxes(0, 1)
    return users, regret, serving, greedy


def _user_axis(axes: Axes, results: Sequence[Result]) -> None:
    """Users served, logarithmic, from the first release on: before it nothing changes."""
    from matplotlib.ticker import LogLocator

    first = min(int(run.served[1]) for run in results)
    most = max(run.users for run in results)
    axes.set(xscale="log", xlabel="users served")
    axes.set_xlim(first if 10 * first < most else 1, most * 1.1)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    _short_ticks(axes.xaxis)


def _short_ticks(axis: Any) -> None:
    """Numbers at an axis that are read at a glance."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def short(number: float) -> str:
    """A number that is read at a glance.

    >>> [short(n) for n in (0.01, 2500, 12_345, 1e6, 3e9)]
    ['0.01', '2,500', '12.3k', '1M', '3B']
    """
    for unit, size in {"B": 1e9, "M": 1e6, "k": 1e3}.items():
        # Four digits need no unit.
        if number >= max(size, 1e4):
            return f"{number / size:,.3g}{unit}"
    return f"{number:,.4g}"
