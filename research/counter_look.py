"""What the figures of counters share: a pen per kind, logarithmic axes, budgets in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy.budget import Budget
from tacit.simulation.figures import Pen

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
    "endless": Pen("#7F4F24", "<"),
}


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
