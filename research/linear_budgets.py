"""What a budget buys DP-LSVI-UCB++: regret and users to 90 % against epsilon.

Beside it are its non-private twin, which it should come close to as epsilon grows, and non-private
LSVI-UCB, which its paper says it beats. Every run has a world of its own; see
:mod:`~research.linear_comparison` for its rivals at one budget. Behind a name stands what is asked
of users.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import figure_main
from research.figures import EndLabel, Pen, draw_regret, label_ends
from research.jobs import DELTA, NUMBERS, RUNS, WORKERS, ByWorld, Job, sized, spread
from research.linear_comparison import CLOSE, Verdict, close_words, cost_words, times, user_axis
from research.sheets import Look, sheet
from tacit.simulation.plots import short, short_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.privacy.models import Privacy

Floats = NDArray[np.float64]

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TWIN, PLAIN = "LSVI-UCB++, not private", "LSVI-UCB, not private"
WORLDS: Mapping[str, int] = {"two_state": 100_000, "simplex": 1_000_000}
"""How many users, by world: above ten times what the smallest budget needs."""

Key = float | str
"""An epsilon, or which agent without privacy."""

# From light to dark with epsilon; the agents without privacy as in the comparison.
PENS: Mapping[Key, Pen] = {
    0.1: Pen("#F0C05A", "v"),
    0.3: Pen("#E69F00", "s"),
    1.0: Pen("#D55E00", "^"),
    3.0: Pen("#CC79A7", "P"),
    10.0: Pen("#56B4E9", "o"),
    30.0: Pen("#0072B2", "h"),
    TWIN: Pen("#222222", "X"),
    PLAIN: Pen("#009E73", "D"),
}


def job(world: str, users: int, key: Key) -> Job:
    """What is run for a key."""
    privacy: Privacy = tacit.NonPrivate()
    if isinstance(key, float):
        privacy = tacit.JointDP(key, DELTA)
    return Job(world, "LSVIUCB" if key == PLAIN else "LSVIUCBPlusPlus", privacy, users)


def name(key: Key) -> str:
    """What a key is called."""
    return key if isinstance(key, str) else f"ε = {key:g}"


def asks(world: str, key: Key) -> str:
    """What is asked of users."""
    return str(job(world, WORLDS[world], key).agent(0).algorithm.statistic_kind)


class Measured(ByWorld[Key]):
    """All runs."""

    @property
    def epsilons(self) -> list[float]:
        """Increasing."""
        return [key for key in next(iter(self.results.values())) if isinstance(key, float)]

    def ratio(self, world: str, epsilon: float) -> float:
        """The median regret, in units of that of the twin."""
        return Verdict.of(self.regrets(world, epsilon), self.regrets(world, TWIN)).ratio


def measure(
    runs: int = RUNS, users: int | None = None, workers: int = WORKERS, quick: bool = False
) -> Measured:
    """Runs everything; ``quick`` is a small part of it."""
    jobs = {key: partial(job, key=key) for key in PENS}
    return Measured.of(WORLDS, jobs, *sized(runs, users, quick, 2_000), workers)


def what_holds(measured: Measured) -> str:
    """The paper's claims about its Figure 1b, and one about 1a, as these runs have them."""
    lines = []
    for world, users in measured.users.items():
        ratios = {epsilon: measured.ratio(world, epsilon) for epsilon in measured.epsilons}
        medians = [float(np.median(measured.regrets(world, e))) for e in measured.epsilons]
        falls = all(a > b for a, b in pairwise(medians))
        close = [epsilon for epsilon, ratio in ratios.items() if ratio <= CLOSE]
        best = measured.epsilons[-1]
        plain = {e: _against_plain(measured, world, e) for e in measured.epsilons}
        beats = [epsilon for epsilon, verdict in plain.items() if verdict.answer == "holds"]
        lines += [
            f"{world}, {users:,} users. DP-LSVI-UCB++",
            f"- gets closer to its non-private twin as epsilon grows: "
            f"{'holds' if falls else 'does not hold'} (regret "
            f"{', '.join(times(ratio) for ratio in ratios.values())} times, for epsilon "
            f"{', '.join(f'{epsilon:g}' for epsilon in ratios)});",
            f"- is close to it: {_from(close)}; at epsilon {best:g}: {close_words(ratios[best])};",
            f"- is better than non-private LSVI-UCB: {_from(beats)}; at epsilon {best:g}: "
            f"{plain[best]}.",
            *(f"  {words}" for words in _costs(measured, world)),
            "",
        ]
    lines.append(f"Close is a regret of at most {CLOSE:g} times.")
    return "\n".join(lines)


def _costs(measured: Measured, world: str) -> Iterator[str]:
    twin, users = measured.regrets(world, TWIN), measured.users[world]
    for epsilon in (measured.epsilons[0], 1.0, measured.epsilons[-1]):
        cost = cost_words(measured.regrets(world, epsilon), twin, users)
        yield f"At epsilon {epsilon:g} privacy costs {cost}."


def _against_plain(measured: Measured, world: str, epsilon: float) -> Verdict:
    return Verdict.of(measured.regrets(world, epsilon), measured.regrets(world, PLAIN))


def _from(epsilons: Sequence[float]) -> str:
    """From which epsilon something holds.

    >>> _from([]), _from([3.0, 10.0])
    ('at none of these budgets', 'from epsilon 3 on')
    """
    return f"from epsilon {min(epsilons):g} on" if epsilons else "at none of these budgets"


# The picture.


def paint(path: Path, measured: Measured) -> None:
    """Regret against users above, users to 90 % and regret against epsilon below."""
    look = Look((13, 9.5), 0.955, (2, 2), {"sharey": "row"})
    with sheet(
        path,
        "What a budget buys DP-LSVI-UCB++",
        f"Lines: medians of {measured.runs} runs in as many worlds; bands: 10th to 90th "
        "percentile. δ = 1e-6. Regret is in optimal returns.",
        look,
    ) as rows:
        labels: list[tuple[Axes, list[EndLabel]]] = []
        for (above, below), world in zip(zip(*rows, strict=True), measured.users, strict=True):
            results = measured.results[world]
            user_axis(above, [run for runs in results.values() for run in runs])
            above.set(title=world, ylabel="regret of all users so far")
            ends = []
            for key, runs in results.items():
                label = f"{name(key)}: {asks(world, key)}"
                ends += draw_regret(above, runs, label, PENS[key])
            labels += [(above, ends), (below, _draw_budgets(below, measured, world))]
            below.set(ylabel=f"regret of all {short(measured.users[world])} users")
        for axes, ends in labels:
            label_ends(axes, ends)


def _draw_budgets(axes: Axes, measured: Measured, world: str) -> list[EndLabel]:
    from matplotlib.ticker import FixedLocator, NullFormatter

    x = measured.epsilons
    axes.set(xscale="log", yscale="log", xlabel="epsilon")
    axes.xaxis.set_major_locator(FixedLocator(x))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(x, [f"{epsilon:g}" for epsilon in x])
    short_ticks(axes.yaxis)
    rows = {"DP-LSVI-UCB++": (PENS[30.0], [measured.regrets(world, e) for e in x])}
    for key in (TWIN, PLAIN):
        rows[str(key)] = PENS[key], [measured.regrets(world, key)] * len(x)
    labels = []
    for label, (pen, regret) in rows.items():
        low, middle, high = np.quantile(np.stack(regret), [0.1, 0.5, 0.9], axis=1)
        axes.fill_between(x, low, high, color=pen.colour, alpha=0.15, lw=0)
        marker = "" if label in (TWIN, PLAIN) else pen.marker
        axes.plot(x, middle, color=pen.colour, marker=marker, ms=6, mec="white", mew=0.6)
        labels.append(EndLabel(x[-1], float(middle[-1]), label, pen.colour))
    return labels


def table(measured: Measured) -> str:
    """Medians and quartiles of the regret, in optimal returns, and of users to 90 %."""

    def cells(world: str, key: Key) -> list[str]:
        results = measured.results[world][key]
        return [
            spread(measured.regrets(world, key).tolist()),
            times(measured.ratio(world, key)) if isinstance(key, float) else "",
            spread([run.users_to_90 for run in results]),
        ]

    heads = ("regret", "times its twin's", "users to 90 %")
    asked = {key: " / ".join(dict.fromkeys(asks(world, key) for world in WORLDS)) for key in PENS}
    return measured.table(heads, lambda key: f"{name(key)}: {asked[key]}", cells)


main = figure_main(__spec__, __doc__, measure, paint, [table, what_holds], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
