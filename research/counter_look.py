"""What the figures of counters share: older ways, a pen per kind, axes, budgets in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from research.figures import Pen
from tacit.privacy.budget import Budget
from tacit.privacy.counters.dense import sqrt_coefficients

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PENS = {
    # Dashed where a line lies on top of another one, which has to show through: the square root's
    # almost everywhere, the blocks' at the end of a stream.
    "fresh": Pen("#666666", "P", "--"),
    "blocks": Pen("#E69F00", "s"),
    "binary tree": Pen("#CC79A7", "^"),
    "smooth tree": Pen("#009E73", "D"),
    "square root": Pen("#D55E00", "o"),
    "blt": Pen("#0072B2", "v", "--"),
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
    """The largest standard deviation of the square root's releases, in units of one sum's.

    For many releases by Landau's asymptotic formula, whose error is below 1 / n^2.

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


def logarithmic(axes: Axes) -> None:
    """Both axes logarithmic, with a labelled tick per factor of ten and no others."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
        axis.set_minor_formatter(NullFormatter())


def short_number(value: float) -> str:
    """A tick label that is read at a glance.

    >>> short_number(0.5), short_number(100_000), short_number(1e6)
    ('0.5', '100,000', '1M')
    """
    return f"{value / 1e6:,.6g}M" if value >= 1e6 else f"{value:,.6g}"


def budget_words(budget: Budget) -> str:
    """A budget as a panel's title has it.

    >>> budget_words(Budget(1.0, 1e-6)), budget_words(Budget(0.5, 0.0))
    ('ε = 1, δ = 1e-6', 'ε = 0.5, δ = 0 (pure)')
    """
    delta = "0 (pure)" if budget.pure else f"{budget.delta:g}".replace("e-0", "e-")
    return f"ε = {budget.epsilon:g}, δ = {delta}"
