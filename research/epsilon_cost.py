"""What epsilon costs in users: how many it takes until served users have 90 % of the optimum.

Everything is measured on riverswim with 6 states and 20 steps, the world on which the agents'
constants were chosen; :mod:`~research.held_out` has the others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import tacit
from research.command_lines import Parser, png, store, whole
from research.figures import EndLabel, Pen, drawing, label_ends
from tacit.simulation.plots import short
from tacit.simulation.result import median
from tacit.simulation.run import noise_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.privacy.models import Privacy
    from tacit.simulation.result import Result

T = TypeVar("T")

DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Where the points without privacy are drawn, on the axis of epsilon.
WITHOUT = 45.0


@dataclass(frozen=True)
class AgentLine:
    """An agent as a line of a figure.

    Attributes:
        label: what it is called.
        agent: the class.
        pen: how it is drawn.
    """

    label: str
    agent: str
    pen: Pen


@dataclass(frozen=True)
class Line(AgentLine):
    """One agent with its options under one model, over all budgets.

    Attributes:
        local: whether it is under local DP, else joint.
        options: of the agent.
    """

    local: bool
    options: Mapping[str, Any]

    def privacy(self, epsilon: float | None) -> Privacy:
        """Its model at a budget; ``None`` is no privacy."""
        if epsilon is None:
            return tacit.NonPrivate()
        model = tacit.LocalDP if self.local else tacit.JointDP
        return model(epsilon, DELTA)

    def users(self, epsilon: float | None) -> int:
        """How many are declared: well above ten times what was seen to be needed."""
        if epsilon is None:
            return 1_000_000
        if self.local:
            # Reports need users like 1 / epsilon^2 where epsilon is small.
            return round(1e10 * max(1.0 / epsilon, 1.0 / epsilon**2))
        return round(1e7 / epsilon)


PER_STEP: Mapping[str, Any] = {"stationary": False}
LINES = (
    Line("UCBVI", "UCBVI", Pen("#0072B2", "o"), False, {}),
    Line("UCBPO", "UCBPO", Pen("#56B4E9", "P"), False, {}),
    Line("UCBVI, per step", "UCBVI", Pen("#D55E00", "s"), False, PER_STEP),
    Line("UCBPO, per step", "UCBPO", Pen("#E69F00", "v"), False, PER_STEP),
    Line("UCBVI, local", "UCBVI", Pen("#CC79A7", "^"), True, {}),
    Line("UCBVI, per step, local", "UCBVI", Pen("#009E73", "D"), True, PER_STEP),
)


@dataclass(frozen=True)
class Cost:
    """Users until 90 %, over several runs; ``math.inf`` where it was not reached.

    Attributes:
        users: one per run.
        settled: whether the median run went on for ten times as many.
    """

    users: tuple[float, ...]
    settled: bool

    @classmethod
    def of(cls, results: Sequence[Result], greedy: bool = False) -> Cost:
        """From runs of the same length, of the policy that serves users or of the greedy one."""
        reached = [r.greedy_users_to_90 if greedy else r.users_to_90 for r in results]
        middle = median(reached)
        return cls(
            tuple(math.inf if users is None else float(users) for users in reached),
            middle is not None and results[0].users >= 10 * middle,
        )

    @property
    def median(self) -> float | None:
        """The median, ``None`` where it was not reached."""
        middle = float(np.median(self.users))
        return middle if math.isfinite(middle) else None

    @property
    def band(self) -> tuple[float, float]:
        """Without the lowest and the highest tenth of the runs."""
        ordered = sorted(self.users)
        cut = len(ordered) // 10
        return ordered[cut], ordered[-1 - cut]

    def __str__(self) -> str:
        """The median with the band; a star where the runs were shorter than ten times that.

        >>> str(Cost((100.0, 200.0, 3000.0), True))
        '200 (100 to 3,000)'
        """
        low, high = (people(end) for end in self.band)
        if low == high == "not reached":
            return low
        middle = people(float(np.median(self.users)))
        return f"{middle}{'' if self.settled else '*'} ({low} to {high})"


def people(users: float) -> str:
    """A number of users for a table.

    >>> people(12345.0), people(20283033436.0), people(math.inf)
    ('12,345', '20.3B', 'not reached')
    """
    if math.isinf(users):
        return "not reached"
    return short(users) if users >= 1e7 else f"{math.ceil(users):,}"


def measure(
    agent: str,
    options: Mapping[str, Any],
    privacy: Privacy,
    world: Any,
    users: int,
    seeds: Sequence[int],
) -> Cost:
    """Runs an agent with every seed."""
    given = {"users": users, "privacy": privacy, **options}

    def make(spec: Any, seed: int) -> Any:
        return getattr(tacit, agent)(spec, seed=seed, noise_seed=noise_seed(seed), **given)

    return Cost.of(tacit.run_seeds(make, world, list(seeds), workers=1, progress=False))


def measure_lines(seeds: Sequence[int]) -> Iterator[tuple[str, float | None, Cost]]:
    """All lines at all budgets, one after the other."""
    world = tacit.tabular.riverswim()
    for line in LINES:
        # Without privacy the local agent is the joint one.
        for epsilon in EPSILONS if line.local else (*EPSILONS, None):
            privacy, users = line.privacy(epsilon), line.users(epsilon)
            yield (
                line.label,
                epsilon,
                measure(line.agent, line.options, privacy, world, users, seeds),
            )


Costs = Mapping[str, Mapping[float | None, Cost]]


def draw(path: Path, costs: Costs, runs: int) -> None:
    """Users until 90 % against epsilon, a line with its band per agent."""
    with drawing(
        path,
        "What epsilon costs in users",
        "Users served on riverswim until 90 % of the optimum, for good. "
        f"Median and bands of {runs} runs; δ = 1e-6.",
        panels=1,
        size=(9.5, 6.0),
    ) as (axes,):
        labels = [_draw_line(axes, line, costs[line.label]) for line in LINES]
        _style(axes)
        label_ends(axes, labels)


def _draw_line(axes: Axes, line: Line, costs: Mapping[float | None, Cost]) -> EndLabel:
    colour = line.pen.colour
    reached = {e: c for e, c in costs.items() if e is not None and c.median is not None}
    x = list(reached)
    y = [max(1.0, c.median or 1.0) for c in reached.values()]
    low, high = zip(*(c.band for c in reached.values()), strict=True) if x else ((), ())
    axes.fill_between(x, low, np.minimum(high, 1e12), color=colour, alpha=0.15, lw=0)
    marks: dict[str, Any] = {"marker": line.pen.marker, "ms": 7, "mec": "white", "mew": 0.6}
    axes.plot(x, y, color=colour, **marks)
    if None not in costs or not x:
        return EndLabel(x[-1] if x else EPSILONS[-1], y[-1] if y else 1.0, line.label, colour)
    without = max(1.0, costs[None].median or 1.0)
    axes.plot([x[-1], WITHOUT], [y[-1], without], ":", color=colour, lw=1.2)
    axes.plot([WITHOUT], [without], color=colour, **marks)
    return EndLabel(WITHOUT, without, line.label, colour)


def _style(axes: Axes) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="users to 90 %")
    ticks = {**{e: f"{e:g}" for e in EPSILONS}, WITHOUT: "no\nprivacy"}
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.yaxis.set_major_locator(LogLocator(numticks=15))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def table(costs: Costs) -> str:
    """Medians and bands, in Markdown."""
    budgets: list[float | None] = [*EPSILONS, None]
    names = ["no privacy" if e is None else f"epsilon {e:g}" for e in budgets]
    lines = [f"| | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
    lines += [
        f"| {label} | {' | '.join(str(row.get(e, '')) for e in budgets)} |"
        for label, row in costs.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser(
        prog="python -m research.epsilon_cost",
        description="Users that a private agent needs on riverswim, against epsilon.",
    )
    parser.add_argument("--output", type=png, default=None, help="the PNG file to write, if any")
    parser.add_argument("--runs", type=whole(1), default=10, help="seeds of every point")
    parser.add_store()
    given = parser.parse_args(arguments)
    costs: dict[str, dict[float | None, Cost]] = {line.label: {} for line in LINES}
    total = sum(len(EPSILONS) + (not line.local) for line in LINES)
    for label, epsilon, cost in with_progress(measure_lines(range(given.runs)), total):
        costs[label][epsilon] = cost
    print(table(costs))
    if given.store:
        store(__spec__.name, {"table": {"runs": given.runs, "text": table(costs)}})
    if given.output is not None:
        parser.written(lambda: draw(given.output, costs, given.runs))
        print(f"\nThe picture is {given.output}.")
    return 0


def with_progress(items: Iterator[T], total: int, doing: str = "running") -> Iterator[T]:
    """The same, under a progress bar where somebody is watching."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(
        items,
        doing,
        total=total,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


if __name__ == "__main__":
    sys.exit(main())
