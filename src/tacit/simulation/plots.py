"""Learning curves: regret and the values of released policies against users served.

Regret is exact: it grows linearly within a block, whose policy is fixed. Comparisons show medians
over seeds and the band between the first and the last decile. The palette is Okabe and Ito's;
markers tell lines apart without any colour. Figures need no display, and no global state.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats
from tacit.simulation.tables import check_line

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


@dataclass(frozen=True)
class Pen:
    """How one line is drawn."""

    colour: str
    marker: str
    dash: str = "-"


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
PALETTE = tuple(map(Pen, _COLOURS, "osD^vPX"))
# Points of a curve whose seeds do not share their releases, or have more than a picture can show.
_GRID = 1000


def plot_result(result: Result, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draws one run: regret on the left, values of its policies on the right.

    It is written to ``path``, as PNG, PDF or SVG by the name's end, and returned, so that a
    notebook shows it.
    """
    title = f"{result.agent} on {result.world}: {short(result.users)} users"
    return plot_results({"serves users": [result]}, path, title)


def plot_results(
    results: Mapping[str, Sequence[Result]],
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
    by_world: bool = False,
) -> Figure:
    """Compares agents, worlds or budgets: one curve with its band per label.

    Lines are medians over the runs of a label, bands reach from their first to their last decile;
    of a single run there is the greedy policy beside it. If the runs are not all in worlds of the
    same optimum, regret and values are relative to it.

    Args:
        results: Runs by label.
        path: Where to write it; see :func:`plot_result`.
        title: Made from the results by default.
        by_world: Whether every world has a row of its own.
    """
    runs = [run for several in results.values() for run in several]
    if not runs or not all(results.values()):
        raise InvalidArgument("results must have at least one run for each label")
    ending = ".png" if path is None else os.path.splitext(path)[1].lower()
    if ending not in FORMATS:
        raise InvalidArgument(f"{os.fspath(path or '')!r} must end in {', '.join(FORMATS)}")
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for label, several in results.items():
        for run in several:
            place = (run.world, run.identity.get("world", "")) if by_world else ("", "")
            group = groups.setdefault(place, {})
            group.setdefault(label, []).append(run)
    worlds = sorted({run.world for run in runs})
    shown = title or (worlds[0] if len(worlds) == 1 else f"{len(worlds)} worlds")
    lines = [several for group in groups.values() for several in group.values()]
    for label, several in (line for group in groups.values() for line in group.items()):
        check_line(several, label)
    from matplotlib import style

    with style.context([STYLE, {"svg.hashsalt": "tacit"}]):
        figure = _picture()(figsize=(11, 5.2 * len(groups)), dpi=130, layout="constrained")
        figure.suptitle(shown, x=0.012, ha="left", fontsize=14, weight="bold")
        figure.supxlabel(_caption(lines), x=0.012, ha="left", fontsize=10)
        panels = figure.subplots(len(groups), 2, squeeze=False)
        names = [world for world, _ in groups]
        for ((world, digest), group), (left, right) in zip(groups.items(), panels, strict=True):
            world += f" [{digest[:6]}]" if names.count(world) > 1 else ""
            where = f"{world}: " if len(groups) > 1 else ""
            _draw_regrets(left, group, where)
            right.set(title="Value of the policy that serves users")
            _draw_values(right, group)
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


def _pens(labels: Mapping[str, Any]) -> list[Pen]:
    """A pen for each label; more than there are colours have other dashes."""
    dashes = ("-", "--", ":", "-.")
    found = [(PALETTE[k % len(PALETTE)], k // len(PALETTE)) for k in range(len(labels))]
    return [Pen(pen.colour, pen.marker, dashes[often % 4]) for pen, often in found]


def _draw_regrets(axes: Axes, results: Mapping[str, Sequence[Result]], where: str) -> None:
    """Regret by label, below that of users who are all served without anything learnt."""
    runs = [run for several in results.values() for run in several]
    relative = _relative(runs)
    words = "Regret, in optimal returns" if relative else "Regret"
    axes.set(title=where + words, ylabel="regret of all users so far")
    _user_axis(axes, runs)
    for (label, several), pen in zip(results.items(), _pens(results), strict=True):
        users, regret, *_ = curves(several, relative)
        deciles = _deciles(regret)
        middle = deciles[1]
        # A logarithm has no place for a regret of zero, and rounding makes it slightly negative.
        shown = (middle > 1e-9 * deciles[2].max()) & (middle > 0) & (users >= axes.get_xlim()[0])
        if shown.any():
            axes.set_yscale("log")
            _short_ticks(axes.yaxis)
            deciles[0] = np.maximum(deciles[0], middle / 1e3)
            _draw_line(axes, users[shown], deciles[:, shown], pen, len(several), label)
    if not axes.lines:
        axes.text(0.5, 0.5, "none, or not known", ha="center", transform=axes.transAxes)
        return
    gap = runs[0].optimal_value - runs[0].baseline_value
    if not relative and gap > 0:
        ends = np.array([axes.get_xlim()[0], max(run.users for run in runs)])
        axes.plot(ends, gap * ends, ":", color=PALE, lw=1.3, label="no learning")
    axes.legend()


def _draw_values(axes: Axes, results: Mapping[str, Sequence[Result]]) -> None:
    """Values of the policies that serve users; of a single run the greedy ones as well."""
    runs = [run for several in results.values() for run in several]
    relative = _relative(runs)
    axes.set(ylabel="share of the optimum" if relative else "expected return of a user")
    _user_axis(axes, runs)
    for (label, several), pen in zip(results.items(), _pens(results), strict=True):
        users, _, serving, greedy = curves(several, relative)
        _draw_line(axes, users, _deciles(serving), pen, len(several), label, "steps-post")
    if len(runs) == 1:
        dashed = Pen(PALETTE[1].colour, "", "--")
        _draw_line(axes, users, _deciles(greedy), dashed, 1, "greedy", "steps-post")
        if first := runs[0].users_to_90:
            words = f"90 %{' for good' if runs[0].settled else ''} from user {first + 1:,} on"
            axes.axvline(first + 1, color=PALETTE[0].colour, lw=0.7, label=words)
    if not relative:
        levels = {"optimum": runs[0].optimal_value, "no learning": runs[0].baseline_value}
        for (name, level), dash in zip(levels.items(), ("-.", ":"), strict=True):
            if math.isfinite(level):
                axes.axhline(level, color=PALE, ls=dash, lw=1.3, label=name)
    axes.legend()


def _draw_line(
    axes: Axes, x: Floats, deciles: Floats, pen: Pen, runs: int, label: str, style: Any = "default"
) -> None:
    """A median with its band; a few markers, evenly spaced to the eye, tell several lines apart."""
    look: dict[str, Any] = {"color": pen.colour, "ls": pen.dash, "label": label}
    if runs > 1:
        step: Any = "post" if style == "steps-post" else None
        axes.fill_between(x, deciles[0], deciles[2], step=step, color=pen.colour, alpha=0.18, lw=0)
        places = np.unique(np.searchsorted(x, np.geomspace(x[0], x[-1], 9)[1:-1]))
        look |= {"marker": pen.marker, "ms": 6, "mec": "white", "mew": 0.6}
        look["markevery"] = places.tolist()
    axes.plot(x, deciles[1], drawstyle=style, **look)


def _relative(runs: Sequence[Result]) -> bool:
    known = all(math.isfinite(run.optimal_value) for run in runs)
    return known and len({(run.optimal_value, run.reference_value) for run in runs}) > 1


def curves(results: Sequence[Result], relative: bool) -> tuple[Floats, Floats, Floats, Floats]:
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
        zero = run.reference_value if relative else 0.0
        gap = run.optimal_value - zero if relative else 1.0
        # The user of number u is served by the last release that came after fewer than u users.
        release = np.searchsorted(run.served, users, side="left") - 1
        values = (one[release] - zero for one in (run.values, run.greedy_values))
        rows.append([part / gap for part in (np.interp(users, run.served, run.regret), *values)])
    regret, serving, greedy = np.array(rows).swapaxes(0, 1)
    return users, regret, serving, greedy


def _user_axis(axes: Axes, results: Sequence[Result]) -> None:
    """Users served, logarithmic, from the first release on: before it nothing changes."""
    from matplotlib.ticker import LogLocator

    first = min(int(run.served[1]) for run in results)
    most = max(run.users for run in results)
    axes.set(xscale="log", xlabel="users served")
    axes.set_xlim(first if 10 * first < most else 1, most * 1.1)
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    _short_ticks(axes.xaxis)


def _short_ticks(axis: Any) -> None:
    """Numbers at an axis that are read at a glance."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_formatter(NullFormatter())


def _deciles(rows: Floats) -> Floats:
    """The first, the middle and the last of runs (a row each), point by point."""
    return np.quantile(rows, [0.1, 0.5, 0.9], axis=0)


def _caption(lines: Sequence[Sequence[Result]]) -> str:
    """Words on lines and bands, and the guarantee, if it is the same for all runs."""
    promises = {run.guarantee.short if run.guarantee else "none" for runs in lines for run in runs}
    promise = f" Guarantee: {min(promises)}." if len(promises) == 1 else ""
    counts = sorted({len(several) for several in lines})
    if counts[-1] == 1:
        return f"{'One run' if len(lines) == 1 else 'One run each'}.{promise}"
    return f"Lines: median of {counts[-1]} runs; bands: 10th to 90th percentile.{promise}"


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
