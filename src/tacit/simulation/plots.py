"""Learning curves: regret and the values of released policies against users served.

Regret is exact: it grows linearly within a block, whose policy is fixed, so curves of different
schedules can be compared at any number of users. Comparisons show the median over seeds and the
band between the first and the last decile: how far runs differ.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tacit.core.sizes import Floats
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.figures import PALE, EndLabel, Pen, drawing, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.simulation.result import Result

T = TypeVar("T")

PALETTE = (
    Pen("#0072B2", "o"),
    Pen("#D55E00", "s"),
    Pen("#009E73", "D"),
    Pen("#CC79A7", "^"),
    Pen("#E69F00", "v"),
    Pen("#56B4E9", "P"),
    Pen("#222222", "X"),
)
SERVING, GREEDY = PALETTE[0], Pen("#D55E00", "D", "--")
# Points of a curve whose seeds do not share their releases, or have more than a picture can show.
_GRID = 1000


@dataclass(frozen=True)
class _Curves:
    """Several runs on one axis of users, a row per run, in common units."""

    users: Floats
    regret: Floats
    serving: Floats
    greedy: Floats


def plot_result(
    result: Result, path: str | os.PathLike[str] | None = None, style: str | None = None
) -> Figure:
    """Draws one run: regret on the left, values of its policies on the right.

    It is written to ``path``, as PNG, PDF or SVG by the name's end, and returned, so that a
    notebook shows it. A ``style`` of Matplotlib's takes the place of ours.
    """
    curves = _curves([result], relative=False)
    title = f"{result.agent} on {_world_words(result.world)}: {_short(result.users)} users"
    with drawing(_file(path), title, _promise([result]), sharey=False, style=style) as axes_pair:
        left, right = axes_pair
        left.set(title="Regret", ylabel="regret of all users so far")
        right.set(title="Value of the released policies", ylabel="expected return of a user")
        for axes in (left, right):
            _user_axis(axes, [result])
        ends = _draw_regret(left, curves, _short(curves.regret[0, -1]), SERVING)
        ends += _draw_ignorance(left, [result])
        labels = _draw_values(right, curves.users, curves.greedy, "greedy", GREEDY)
        labels += _draw_values(right, curves.users, curves.serving, "serves users", SERVING)
        labels += _draw_levels(right, [result])
        _mark_90(right, result)
        if not ends:
            _say_why(left, result)
        label_ends(left, ends)
        label_ends(right, labels)
    return _figure(left)


def plot_results(
    results: Mapping[str, Sequence[Result]],
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
    *,
    ax: Axes | None = None,
    style: str | None = None,
    by_world: bool = False,
) -> Figure:
    """Compares agents, worlds or budgets: one curve with its band per label.

    Lines are medians over the runs of a label, bands reach from their first to their last decile.
    If the runs are not all in worlds of the same optimum, regret and values are relative to it.
    The title is made from the results if not given. More than seven labels go to several rows, and
    ``by_world`` every world to a row of its own.

    On an ``ax`` of yours the values of the policies that serve users are drawn, and nothing else;
    without it see :func:`plot_result` for ``path`` and ``style``.
    """
    runs = [run for several in results.values() for run in several]
    if not runs or not all(results.values()):
        raise InvalidArgument("results must have at least one run for each label")
    if ax is not None and (path is not None or style is not None):
        raise InvalidArgument("path and style mean nothing on an ax of yours: its figure has them")
    if ax is not None:
        if len(results) > len(PALETTE):
            raise InvalidArgument(f"an ax shows at most {len(PALETTE)} labels, got {len(results)}")
        _compare_values(ax, results, runs)
        return _figure(ax)
    worlds = sorted({run.world for run in runs})
    shown = _world_words(worlds[0]) if len(worlds) == 1 else f"{len(worlds)} worlds"
    groups = _by_world(results) if by_world else {"": results}
    lines = [several for group in groups.values() for several in group.values()]
    title, caption = title or shown, _caption(lines)
    pages = [
        (world, dict(page))
        for world, group in groups.items()
        for page in batched(group.items(), len(PALETTE))
    ]
    with drawing(_file(path), title, caption, sharey=False, rows=len(pages), style=style) as panels:
        for (world, page), (left, right) in zip(pages, batched(panels, 2), strict=True):
            runs = [run for several in groups[world].values() for run in several]
            relative = _relative(runs)
            words = "Regret, in optimal returns" if relative else "Regret"
            where = f"{_world_words(world)}: " if len(groups) > 1 else ""
            left.set(title=where + words, ylabel="regret of all users so far")
            right.set(title="Value of the policy that serves users")
            _user_axis(left, runs)
            ends = []
            for (label, several), pen in zip(page.items(), PALETTE, strict=False):
                ends += _draw_regret(left, _curves(several, relative), label, pen)
            if not relative:
                ends += _draw_ignorance(left, runs)
            if not ends:
                _say_why(left, runs[0])
            label_ends(left, ends)
            _compare_values(right, page, runs)
    return _figure(panels[0])


def _by_world(results: Mapping[str, Sequence[Result]]) -> dict[str, dict[str, list[Result]]]:
    """Runs by world, and then by label."""
    found: dict[str, dict[str, list[Result]]] = {}
    for label, several in results.items():
        for run in several:
            found.setdefault(run.world, {}).setdefault(label, []).append(run)
    return found


def _compare_values(
    axes: Axes, results: Mapping[str, Sequence[Result]], runs: Sequence[Result]
) -> None:
    """Values of the policies that serve users; ``runs`` are all that share the axes' limits."""
    relative = _relative(runs)
    axes.set(ylabel="share of the optimum" if relative else "expected return of a user")
    _user_axis(axes, runs)
    labels = []
    for (label, several), pen in zip(results.items(), PALETTE, strict=False):
        curves = _curves(several, relative)
        labels += _draw_values(axes, curves.users, curves.serving, label, pen)
    label_ends(axes, labels + ([] if relative else _draw_levels(axes, runs)))


def _relative(runs: Sequence[Result]) -> bool:
    known = all(math.isfinite(run.optimal_value) for run in runs)
    return known and len({(run.optimal_value, run.reference_value) for run in runs}) > 1


def _say_why(axes: Axes, result: Result) -> None:
    """Why there is no regret to draw."""
    known = math.isfinite(result.optimal_value)
    words = "no regret at all" if known else "the optimum is not known"
    axes.text(0.5, 0.5, words, ha="center", transform=axes.transAxes)
    axes.set_yticks([])


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Items in groups of a size, the last may be smaller."""
    rest = iter(items)
    while group := tuple(islice(rest, size)):
        yield group


def _file(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


def _figure(axes: Axes) -> Figure:
    figure: Figure = axes.get_figure(root=True)  # type: ignore[assignment]  # never of none
    return figure


def _curves(results: Sequence[Result], relative: bool) -> _Curves:
    """All runs at the same numbers of users."""
    first = results[0].served
    if len(first) <= _GRID and all(np.array_equal(run.served, first) for run in results):
        # Up to a release the old policy is at work, and one user later the new one.
        releases = [first[1:].astype(np.float64), first[:-1] + 1.0]
    else:
        releases = []
    # Points within the blocks as well, because what is linear bends on logarithmic axes.
    grid = np.geomspace(1, min(run.users for run in results), _GRID).round()
    users = np.unique(np.concatenate([grid, *releases]))
    rows = [_sampled(run, users, relative) for run in results]
    regret, serving, greedy = (np.stack(column) for column in zip(*rows, strict=True))
    return _Curves(users, regret, serving, greedy)


def _sampled(result: Result, users: Floats, relative: bool) -> tuple[Floats, Floats, Floats]:
    regret = np.interp(users, result.served, result.regret)
    # The user of number u is served by the last release that came after fewer than u users.
    release = np.searchsorted(result.served, users, side="left") - 1
    serving, greedy = result.values[release], result.greedy_values[release]
    if relative:
        gap = result.optimal_value - result.reference_value
        serving = (serving - result.reference_value) / gap
        greedy = (greedy - result.reference_value) / gap
        regret = regret / gap
    return regret, serving, greedy


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
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _deciles(rows: Floats) -> Floats:
    """The first, the middle and the last of runs (a row each), point by point."""
    return np.quantile(rows, [0.1, 0.5, 0.9], axis=0)


def _draw_regret(axes: Axes, curves: _Curves, label: str, pen: Pen) -> list[EndLabel]:
    low, middle, high = _deciles(curves.regret)
    # A logarithm has no place for a regret of zero, and rounding makes it slightly negative.
    shown = (middle > 1e-9 * high.max()) & (middle > 0) & (curves.users >= axes.get_xlim()[0])
    if not shown.any():
        return []
    axes.set_yscale("log")
    _short_ticks(axes.yaxis)
    x, low, middle, high = curves.users[shown], low[shown], middle[shown], high[shown]
    if len(curves.regret) > 1:
        low = np.maximum(low, middle / 1e3)
        axes.fill_between(x, low, high, color=pen.colour, alpha=0.18, lw=0)
    axes.plot(x, middle, color=pen.colour, **_marks(pen, x, len(curves.regret)))
    return [EndLabel(float(x[-1]), float(middle[-1]), label, pen.colour)]


def _draw_values(axes: Axes, x: Floats, rows: Floats, label: str, pen: Pen) -> list[EndLabel]:
    low, middle, high = _deciles(rows)
    if len(rows) > 1:
        axes.fill_between(x, low, high, step="post", color=pen.colour, alpha=0.18, lw=0)
    axes.step(x, middle, where="post", color=pen.colour, ls=pen.dash, **_marks(pen, x, len(rows)))
    return [EndLabel(float(x[-1]), float(middle[-1]), label, pen.colour)]


def _marks(pen: Pen, x: Floats, runs: int) -> dict[str, Any]:
    """In comparisons a few markers, evenly spaced to the eye, tell lines apart without colour."""
    if runs == 1:
        return {}
    places = np.unique(np.searchsorted(x, np.geomspace(x[0], x[-1], 9)[1:-1]))
    marks = {"marker": pen.marker, "ms": 6, "mec": "white", "mew": 0.6}
    return marks | {"markevery": places.tolist()}


def _draw_ignorance(axes: Axes, results: Sequence[Result]) -> list[EndLabel]:
    """The regret of users who are all served without having learnt anything."""
    gap = results[0].optimal_value - results[0].baseline_value
    if gap <= 0 or axes.get_yscale() != "log":
        return []
    least, most = axes.get_xlim()[0], float(max(run.users for run in results))
    axes.plot([least, most], [gap * least, gap * most], ":", color=PALE, lw=1.3)
    return [EndLabel(most, gap * most, "no learning", PALE)]


def _draw_levels(axes: Axes, results: Sequence[Result]) -> list[EndLabel]:
    """The optimum and the baseline, which all results share."""
    levels = {"optimum": results[0].optimal_value, "no learning": results[0].baseline_value}
    levels = {name: level for name, level in levels.items() if math.isfinite(level)}
    most = float(max(run.users for run in results))
    for level in levels.values():
        axes.axhline(level, color=PALE, ls=":", lw=1.3)
    return [EndLabel(most, level, name, PALE) for name, level in levels.items()]


def _mark_90(axes: Axes, result: Result) -> None:
    """A mark from where on served users have 90 % of the optimum."""
    users = result.users_to_90
    if not users:  # never, or from the beginning
        return
    value = float(result.values[int(np.searchsorted(result.served, users))])
    # Below the curve there is room, on that side of the mark where the axis is longer.
    height = result.baseline_value + 0.3 * (value - result.baseline_value)
    least, most = axes.get_xlim()
    late = users + 1 > least**0.4 * most**0.6
    x = [users + 1, users + 1]
    axes.plot(x, [height, value], "-", color=SERVING.colour, lw=0.7)
    axes.plot(x[:1], [value], SERVING.marker, color=SERVING.colour, ms=8, mec="white")
    axes.annotate(
        f"90 %{' for good' if result.settled else ''}\nfrom user {users + 1:,} on",
        xy=(users + 1, height),
        xytext=(-6 if late else 6, 0),
        textcoords="offset points",
        color=SERVING.colour,
        ha="right" if late else "left",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
    )


def _promise(results: Sequence[Result]) -> str:
    """The guarantee of the runs, if it is the same for all of them."""
    shorts = {"" if run.guarantee is None else run.guarantee.short for run in results}
    if shorts == {""}:
        return "Not private: nothing is guaranteed to the users."
    return f"Guarantee: {shorts.pop()}." if len(shorts) == 1 else ""


def _caption(lines: Sequence[Sequence[Result]]) -> str:
    promise = _promise([run for several in lines for run in several])
    counts = sorted({len(several) for several in lines})
    if counts[-1] == 1:
        return f"One run each. {promise}"
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Lines: median of {runs} runs; bands: 10th to 90th percentile. {promise}"


def _world_words(name: str) -> str:
    """A world's name as a title has it.

    >>> _world_words("riverswim:states=6,horizon=20"), _world_words("mine")
    ('riverswim (states 6, horizon 20)', 'mine')
    """
    kind, _, options = name.partition(":")
    return f"{kind} ({options.replace('=', ' ').replace(',', ', ')})" if options else name


def _short(number: float) -> str:
    """A number that is read at a glance.

    >>> [_short(n) for n in (0.01, 2500, 12_345, 1e6, 3e9)]
    ['0.01', '2,500', '12.3k', '1M', '3B']
    """
    for unit, size in {"B": 1e9, "M": 1e6, "k": 1e3}.items():
        # Four digits need no unit.
        if number >= max(size, 1e4):
            return f"{number / size:,.3g}{unit}"
    return f"{number:,.4g}"
