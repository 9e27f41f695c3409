"""DP-LSVI-UCB++ beside its rivals at one budget: regret against users, on corrected worlds.

The paper of DP-LSVI-UCB++ compares it with the agents of Luyo et al. and Ngo et al., whose texts
were not at hand, and with what is not private, which is done here. Labels and the best action are
random, rewards are unknown, every run has a world of its own, and all private agents have the same
budget under the same accountant.

Every line is labelled with what it asks of users. Two lines are the paper's Algorithm 1 itself, a
release after every user: with its printed noise at its printed size, and corrected, with the budget
of all others. These know the rewards, and their radii are proven. Read literally the paper draws
its noise once for all users: then differences of releases are free of noise, nothing is private,
and there is nothing to draw.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from research.figures import EndLabel, Pen, draw_regret, drawing, figure_main, label_ends
from research.study import DELTA, PLAIN, Case, joint, markdown, run_all, seeded, spread, world_of
from tacit.papers.result import PaperResult
from tacit.papers.sahu_linear_2025 import dp_lsvi_ucb_plus_plus
from tacit.registry import choose_agent
from tacit.simulation.plots import short, short_ticks
from tacit.simulation.result import WORLD_VALUES, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPSILON = 1.0
# What the paper's algorithm asks of users, and points of a curve that has a value per user.
PAPERS, _POINTS = "Gram (GOE), values", 200
WORLDS: Mapping[str, int] = {"two_state": 20_000, "simplex": 100_000}
"""How many users, by world: above ten times what the private agents need."""


@dataclass(frozen=True)
class Line:
    """One agent: its text, or ``paper`` for Algorithm 1, which knows the rewards."""

    label: str
    agent: str
    pen: Pen
    private: bool = True
    printed: bool = False

    @property
    def paper(self) -> bool:
        """Whether it is of :mod:`tacit.papers`."""
        return self.agent == "paper"

    def case(self, world: str, users: int) -> Case:
        """It in a world of its own for every seed."""
        known = "known_rewards=True," if self.paper else ""
        privacy = joint(EPSILON) if self.private else PLAIN
        return Case((world, self.label), f"{world}:{known}seed=SEED", self.agent, privacy, users)

    def asks(self, world: str, users: int) -> str:
        """What is asked of users there."""
        return PAPERS if self.paper else asked(self.case(world, users))


def asked(case: Case) -> str:
    """Which statistic the agent of a case asks for."""
    spec = world_of(seeded(case.world, 0)).spec
    agent: Any = choose_agent(case.agent).build(spec, case.users, case.privacy, 0)
    return str(agent.algorithm.statistic_kind)


LINES = (
    Line("DP-LSVI-UCB++", "lsvi_ucb_plus_plus", Pen("#0072B2", "o")),
    Line("LSVI-UCB, private", "lsvi_ucb", Pen("#56B4E9", "P")),
    Line("LSVI-UCB++, not private", "lsvi_ucb_plus_plus", Pen("#222222", "X"), private=False),
    Line("LSVI-UCB, not private", "lsvi_ucb", Pen("#009E73", "D"), private=False),
    Line("paper, printed", "paper", Pen("#CC79A7", "^"), printed=True),
    Line("paper, corrected", "paper", Pen("#999999", "<")),
)


def paper_result(line: Line, case: Case, seed: int) -> PaperResult:
    """A run of Algorithm 1, in the world of that seed."""
    given: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "printed": line.printed}
    world = world_of(seeded(case.world, seed))
    return dp_lsvi_ucb_plus_plus(world, episodes=case.users, seed=seed, **given)


def run(job: tuple[Line, str, int], seed: int) -> Result:
    """One run of a line in a world with so many users."""
    line, place, users = job
    case = line.case(place, users)
    if not line.paper:
        return case.run(seed)
    found, world = paper_result(line, case, seed), world_of(seeded(case.world, seed))
    served = np.concatenate([[0], np.unique(np.geomspace(1, users, _POINTS).astype(np.int64))])
    # The mean over the users between two points: what they lose adds up to the whole.
    sums = np.concatenate([[0.0], np.cumsum(found.values)])[served]
    values = np.append(np.diff(sums) / np.diff(served), found.values[-1])
    return Result(
        agent=found.algorithm,
        world=seeded(case.world, seed),
        privacy=found.proof.claim,
        seed=seed,
        served=served,
        values=values,
        greedy_values=values,
        **{name: getattr(world, name) for name in WORLD_VALUES},
        guarantee=found.guarantee,
    )


Measured = Mapping[tuple[Line, str, int], Sequence[Result]]


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything; ``quick`` is with few users."""
    jobs = [(line, w, 500 if quick else n) for w, n in WORLDS.items() for line in LINES]
    return run_all(jobs, run, runs, workers)


def regrets(results: Sequence[Result]) -> list[float]:
    """Of all users, one per run, in optimal returns."""
    return [float(r.regret[-1] / (r.optimal_value - r.reference_value)) for r in results]


def paint(path: Path, measured: Measured) -> None:
    """A panel per world."""
    with drawing(
        path,
        f"Linear agents at one budget: ε = {EPSILON:g}, δ = 1e-6",
        "Regret of all users so far, in optimal returns. Lines: medians of "
        f"{len(next(iter(measured.values())))} runs in as many worlds; bands: deciles.",
        size=(13.5, 5.7),
        footnote="Behind a name stands what is asked of users. Paper: its Algorithm 1 with known "
        "rewards and a release per user; printed: its noise at its size, drawn anew\nfor every "
        "release, and what is proven for it; corrected: with the budget of all others.",
    ) as panels:
        ends = []
        for axes, world in zip(panels, WORLDS, strict=True):
            some = {line: found for (line, place, _), found in measured.items() if place == world}
            user_axis(axes, some[LINES[0]][0].users)
            axes.set(title=world, yscale="log")
            # What the figure is about is drawn last, on top of the others.
            ends.append(
                [e for line in reversed(some) for e in _draw(axes, line, world, some[line])]
            )
        panels[0].set(ylabel="regret, in optimal returns")
        for axes, labels in zip(panels, ends, strict=True):
            label_ends(axes, labels)


def _draw(axes: Axes, line: Line, world: str, found: Sequence[Result]) -> list[EndLabel]:
    proven = found[0].guarantee
    name = f"{line.label}: {line.asks(world, found[0].users)}"
    if line.printed:
        name = f"{line.label}: ε = {proven.epsilon:.2g}" if proven else line.label
    return draw_regret(axes, found, name, line.pen)


def user_axis(axes: Axes, users: int) -> None:
    """Users served, logarithmic, from the first."""
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", xlabel="users served", xlim=(1, users))
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    short_ticks(axes.xaxis)


def table(measured: Measured) -> str:
    """Medians of the regret, in optimal returns, and of users to 90 %, in Markdown."""
    worlds = {world: users for _, world, users in measured}
    heads = [""]
    for world, users in worlds.items():
        heads += [f"{world}, {short(users)} users: asks", "regret", "users to 90 %"]
    rows = []
    for line in LINES:
        rows.append([line.label])
        for world, users in worlds.items():
            found = measured[line, world, users]
            reached = spread([result.users_to_90 for result in found])
            rows[-1] += [line.asks(world, users), spread(regrets(found)), reached]
    return markdown(heads, rows)


main = figure_main("research.linear_comparison", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
