"""DP-LSVI-UCB++ beside its rivals at one budget: regret against users, on corrected worlds.

The paper of DP-LSVI-UCB++ compares it with the agents of Luyo et al. and Ngo et al. and with what
is not private. The texts of those two were not at hand: what stands for them is reconstructed
(:mod:`research.linear_baselines`), so that no verdict on either claim is given.
Here labels and the best action are random, rewards are unknown, every run has a world of its own,
and all private agents have the same budget under the same accountant. So what is compared is when
they publish and what they weigh, and not how their noise was once calibrated.

Every line is labelled with what it asks of users. On ``two_state`` that is counts, which win there.
Two lines are the paper's Algorithm 1 itself (:mod:`tacit.papers`), a release after every user: with
its printed noise at its printed size, labelled with what is proven for it, and corrected, with the
budget of all others. These and the reconstructed ones know the rewards, and their radii are proven.
Read literally the paper draws its noise once for all
users: then differences of releases are free of noise, nothing is private, and there is nothing to
draw.

Regrets and users to 90 % of all runs are stored as ``research/linear_comparison.json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import figure_main
from research.epsilon_cost import DELTA, AgentLine
from research.figures import EndLabel, Pen, draw_regret, drawing, label_ends
from research.jobs import (
    NUMBERS,
    RUNS,
    WORKERS,
    ByWorld,
    Job,
    Run,
    _with,
    _world,
    footnote,
    sized,
    spread,
)
from research.linear_baselines import adaptive_lsvi_ucb, batched_lsvi_ucb
from tacit.papers.result import PaperResult
from tacit.papers.sahu_linear_2025 import dp_lsvi_ucb_plus_plus
from tacit.privacy.files import write_atomic
from tacit.simulation.plots import short, short_ticks
from tacit.simulation.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

EPSILON = 1.0
# What counts as close, as a factor of the regret.
CLOSE = 2.0
# A count of runs as uneven as seen that is more probable than this may be chance.
SIGNIFICANT = 0.05
# What the paper's algorithm asks of users.
PAPERS = "Gram (GOE), values"
# Points of a curve that has a value per user.
_POINTS = 200
STORED = Path(__file__).with_suffix(".json")
LITERAL = (
    "Read literally the paper draws its noise once for all users: differences of releases are then "
    "free of noise, so that nothing is private. That is not drawn."
)

REBUILT = (
    "Lines after Luyo et al. and Ngo et al. are reconstructed: no verdict on the paper's claims "
    "about them rests on these."
)


# What is compared.

ALGORITHMS: Mapping[str, Callable[..., PaperResult]] = {
    "paper": dp_lsvi_ucb_plus_plus,
    "batched_lsvi_ucb": batched_lsvi_ucb,
    "adaptive_lsvi_ucb": adaptive_lsvi_ucb,
}
"""What is run of :mod:`tacit.papers`, by name."""


@dataclass(frozen=True)
class PaperJob(Job):
    """An algorithm of :data:`ALGORITHMS`: rewards are known."""

    def paper_result(self, seed: int) -> PaperResult:
        """One run, in the world of that seed."""
        world = _world(_with(self.world, {"seed": seed}))
        budget = {"epsilon": EPSILON, "delta": DELTA}
        given = budget | dict(self.options)
        return ALGORITHMS[self.kind](world, episodes=self.users, seed=seed, **given)

    def run(self, seed: int) -> Run:
        """The same, at some of the users."""
        found, name = self.paper_result(seed), _with(self.world, {"seed": seed})
        world, switches = _world(name), found.more["switches"]
        ends = np.unique(np.geomspace(1, self.users, _POINTS).astype(np.int64))
        served = np.concatenate([[0], ends])
        # The mean over the users between two points: what they lose adds up to the whole.
        sums = np.concatenate([[0.0], np.cumsum(found.values)])[served]
        values = np.append(np.diff(sums) / np.diff(served), found.values[-1])
        result = Result(
            agent=found.algorithm,
            world=name,
            privacy=found.proof.claim,
            seed=seed,
            served=served,
            values=values,
            greedy_values=values,
            optimal_value=world.optimal_value,
            baseline_value=world.baseline_value,
            reference_value=world.reference_value,
            guarantee=found.guarantee,
        )
        return Run(result, int(switches[-1]), self.users, PAPERS)


@dataclass(frozen=True)
class Line(AgentLine):
    """One agent.

    Attributes:
        private: whether it has the budget.
        paper: whether it is of :mod:`tacit.papers`, which knows the rewards,
        printed: and whether with the paper's noise.
    """

    private: bool = True
    paper: bool = False
    printed: bool = False

    def job(self, world: str, users: int) -> Job:
        """It in a world."""
        privacy = tacit.JointDP(EPSILON, DELTA) if self.private else tacit.NonPrivate()
        if self.paper:
            own = (("printed", self.printed),) if self.agent == "paper" else ()
            return PaperJob(world, self.agent, privacy, users, own).with_world(known_rewards=True)
        return Job(world, self.agent, privacy, users)

    def asks(self, world: str, users: int) -> str:
        """What is asked of users there."""
        if self.paper:
            return PAPERS
        return str(self.job(world, users).agent(0).algorithm.statistic_kind)


OURS = Line("DP-LSVI-UCB++", "LSVIUCBPlusPlus", Pen("#0072B2", "o"))
PRIVATE = Line("LSVI-UCB, private", "LSVIUCB", Pen("#56B4E9", "P"))
LUYO = Line("Luyo et al., reconstructed", "batched_lsvi_ucb", Pen("#D55E00", "s"), paper=True)
NGO = Line("Ngo et al., reconstructed", "adaptive_lsvi_ucb", Pen("#E69F00", "v"), paper=True)
TWIN = Line("LSVI-UCB++, not private", "LSVIUCBPlusPlus", Pen("#222222", "X"), private=False)
PLAIN = Line("LSVI-UCB, not private", "LSVIUCB", Pen("#009E73", "D"), private=False)
PRINTED = Line("paper, printed", "paper", Pen("#CC79A7", "^"), paper=True, printed=True)
CORRECTED = Line("paper, corrected", "paper", Pen("#999999", "<"), paper=True)
LINES = (OURS, PRIVATE, LUYO, NGO, TWIN, PLAIN, PRINTED, CORRECTED)
WORLDS: Mapping[str, int] = {"two_state": 20_000, "simplex": 100_000}
"""How many users, by world: above ten times what the private agents need."""


class Measured(ByWorld[Line]):
    """All runs."""


def measure(
    runs: int = RUNS, users: int | None = None, workers: int = WORKERS, quick: bool = False
) -> Measured:
    """Runs everything; ``quick`` is a small part of it."""
    jobs = {line: line.job for line in LINES}
    found = Measured.of(WORLDS, jobs, *sized(runs, users, quick, 2_000), workers)
    if users is None and not quick and runs == RUNS:
        write_atomic(STORED, (json.dumps(numbers(found), indent=1) + "\n").encode(), 0o644)
    return found


def numbers(measured: Measured) -> dict[str, Any]:
    """Of all runs, by world and line."""
    return {
        world: {
            "users": users,
            "lines": [
                {
                    "label": line.label,
                    "asks": line.asks(world, users),
                    "regret": [round(regret, 6) for regret in measured.regrets(world, line)],
                    "users_to_90": [run.users_to_90 for run in measured.results[world][line]],
                }
                for line in LINES
            ],
        }
        for world, users in measured.users.items()
    }


# What holds.


@dataclass(frozen=True)
class Verdict:
    """Whether the regret of one agent is below that of another, by runs in the same worlds.

    Attributes:
        ratio: of the medians.
        wins: runs in which it is below,
        losses: in which it is above,
        ties: and in which both are equal.
    """

    ratio: float
    wins: int
    losses: int
    ties: int = 0

    @classmethod
    def of(cls, mine: Floats, other: Floats) -> Verdict:
        """From the regrets of both, one per seed."""
        middle = float(np.median(other))
        ratio = float(np.median(mine)) / middle if middle > 0 else math.inf
        same = np.isclose(mine, other)
        below = int((~same & (mine < other)).sum())
        return cls(ratio, below, int((~same).sum()) - below, int(same.sum()))

    @property
    def chance(self) -> float:
        """How probable such an uneven count is if both are equally good (sign test)."""
        n = self.wins + self.losses
        most = max(self.wins, self.losses)
        tail: float = sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n
        return min(1.0, 2.0 * tail)

    @property
    def answer(
        self,
    ) -> Literal["holds", "does not hold", "they are equal", "these runs do not tell"]:
        """In words.

        >>> Verdict(0.5, 10, 0).answer, Verdict(0.9, 6, 4).answer, Verdict(3.0, 0, 10).answer
        ('holds', 'these runs do not tell', 'does not hold')
        >>> Verdict(1.0, 1, 0, 9).answer
        'they are equal'
        """
        if self.chance <= SIGNIFICANT:
            return "holds" if self.wins > self.losses else "does not hold"
        most = self.ties > self.wins + self.losses
        return "they are equal" if most else "these runs do not tell"

    def __str__(self) -> str:
        """The answer and the numbers.

        >>> str(Verdict(0.5, 9, 1))
        'holds (regret 0.50 times, lower in 9 of 10 runs)'
        >>> str(Verdict(1.0, 1, 0, 9))
        'they are equal (regret 1.00 times, lower in 1 and equal in 9 of 10 runs)'
        """
        equal = f" and equal in {self.ties}" if self.ties else ""
        runs = self.wins + self.losses + self.ties
        count = f"lower in {self.wins}{equal} of {runs} runs"
        return f"{self.answer} (regret {times(self.ratio)} times, {count})"


def times(ratio: float) -> str:
    """A ratio for people.

    >>> times(0.512), times(6.83), times(113.2)
    ('0.51', '6.8', '113')
    """
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def close_words(ratio: float) -> str:
    """Whether a ratio of regrets is close, in words.

    >>> close_words(1.2), close_words(80.0)
    ('holds (regret 1.20 times)', 'does not hold (regret 80 times)')
    """
    return f"{'holds' if ratio <= CLOSE else 'does not hold'} (regret {times(ratio)} times)"


def what_holds(measured: Measured) -> str:
    """The paper's claims about its Figure 1a, one by one, as these runs have them."""
    lines = []
    for world, users in measured.users.items():
        ours = measured.regrets(world, OURS)

        def against(line: Line, world: str = world, ours: Floats = ours) -> Verdict:
            return Verdict.of(ours, measured.regrets(world, line))

        lines += [
            f"{world}, {users:,} users, epsilon {EPSILON:g}. DP-LSVI-UCB++ is",
            f"- better than private LSVI-UCB at an equal budget: {against(PRIVATE)};",
            f"- close to its non-private twin: {close_words(against(TWIN).ratio)};",
            f"- better than non-private LSVI-UCB: {against(PLAIN)}.",
            "Besides:",
            f"- privacy costs {cost_words(ours, measured.regrets(world, TWIN), users)};",
            "- without privacy LSVI-UCB++ is better than LSVI-UCB: "
            f"{Verdict.of(measured.regrets(world, TWIN), measured.regrets(world, PLAIN))};",
            *_printed_words(measured, world),
            "",
        ]
    lines.append(f"Close is a regret of at most {CLOSE:g} times. {LITERAL} {REBUILT}")
    return "\n".join(lines)


def cost_words(private: Floats, plain: Floats, users: int) -> str:
    """What privacy adds to the median regret, in all and as a share of what there is to get."""
    cost = float(np.median(private)) - float(np.median(plain))
    return f"{cost:,.0f} optimal returns, which is {100 * cost / users:.2g} % of {users:,}"


def _printed_words(measured: Measured, world: str) -> list[str]:
    """What the paper's noise is worth, and does."""
    users, results = measured.users[world], measured.results[world][PRINTED]
    loss = float(np.median(measured.regrets(world, PRINTED))) / users
    corrected = float(np.median(measured.regrets(world, CORRECTED))) / users
    myopic = float(np.median([myopic_loss(run.world) for run in results]))
    return [
        f"- the paper's algorithm knows the rewards. With its noise for epsilon {EPSILON:g} at its "
        f"printed size, a release per user, {_epsilon(results[0].guarantee)} is proven;",
        f"  its users lose {loss:.2g} of the optimum, {corrected:.2g} with corrected noise and "
        f"radii; those of the myopic policy, which learns from nobody, lose {myopic:.2g}.",
    ]


def _epsilon(guarantee: tacit.Guarantee | None) -> str:
    return "nothing" if guarantee is None else f"epsilon {guarantee.epsilon:.2g}"


def myopic_loss(world: str) -> float:
    """What users lose who always take what pays most at once.

    >>> myopic_loss("two_state:seed=0"), myopic_loss("simplex:seed=0") > 0.12
    (0.0, True)
    """
    built = _world(world)
    best = built.model.mean_rewards.argmax(axis=-1)
    actions = np.broadcast_to(best, (built.spec.horizon, built.spec.states))
    value = built.value(tacit.Policy.deterministic(actions, built.spec.actions, version=0))
    loss = (built.optimal_value - value) / (built.optimal_value - built.reference_value)
    return float(round(loss, 12)) + 0.0


def proven(measured: Measured, world: str) -> str:
    """What is proven for the paper's noise at its releases."""
    guarantee = measured.results[world][PRINTED][0].guarantee
    return "no guarantee" if guarantee is None else f"ε = {guarantee.epsilon:.2g}"


# The picture.


def paint(path: Path, measured: Measured) -> None:
    """A panel per world."""
    with drawing(
        path,
        f"Linear agents at one budget: ε = {EPSILON:g}, δ = 1e-6",
        f"Regret of all users so far, in optimal returns. Lines: medians of {measured.runs} runs "
        "in as many worlds; bands: 10th to 90th percentile.",
        panels=len(measured.users),
        size=(13.5, 5.7),
    ) as panels:
        for axes, world in zip(panels, measured.users, strict=True):
            user_axis(axes, [run for runs in measured.results[world].values() for run in runs])
            axes.set(title=world, yscale="log")
        panels[0].set(ylabel="regret, in optimal returns")
        ends = [_draw(axes, measured, world) for axes, world in zip(panels, WORLDS, strict=True)]
        footnote(
            panels[0],
            "Behind a name stands what is asked of users. Paper: its Algorithm 1 with known "
            "rewards and a release per user; printed: its noise at its size, drawn anew\n"
            "for every release, and what is proven for it; corrected: with the budget of all "
            f"others. {REBUILT}\n{LITERAL.partition(': ')[0]}:\n{LITERAL.partition(': ')[2]}",
        )
        for axes, labels in zip(panels, ends, strict=True):
            label_ends(axes, labels)


def _draw(axes: Axes, measured: Measured, world: str) -> list[EndLabel]:
    labels = []
    # What the figure is about is drawn last, on top of the others.
    for line, results in reversed(list(measured.results[world].items())):
        name = f"{line.label}: {line.asks(world, measured.users[world])}"
        if line.paper:
            name = f"{line.label}: {proven(measured, world)}" if line.printed else line.label
        labels += draw_regret(axes, results, name, line.pen)
    return labels


def user_axis(axes: Axes, results: Sequence[Result]) -> None:
    """Users served, logarithmic, from the first."""
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", xlabel="users served")
    axes.set_xlim(1, max(run.users for run in results))
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    short_ticks(axes.xaxis)


def table(measured: Measured) -> str:
    """Medians of the regret, in optimal returns, and of users to 90 %, in Markdown."""
    return markdown(numbers(measured))


def markdown(found: Mapping[str, Any]) -> str:
    """The table of stored numbers.

    >>> line = {"label": "a", "asks": "counts", "regret": [1.0, 2.0], "users_to_90": [None, None]}
    >>> print(markdown({"w": {"users": 2000, "lines": [line]}}))
    | | w, 2,000 users: asks | regret | users to 90 % |
    |---|---|---:|---:|
    | a | counts | 1.5 [1, 2] | not reached |
    """
    heads = [
        f"{world}, {short(of['users'])} users: asks | regret | users to 90 %"
        for world, of in found.items()
    ]
    lines = [f"| | {' | '.join(heads)} |", "|---" + "|---|---:|---:" * len(heads) + "|"]
    for rows in zip(*(of["lines"] for of in found.values()), strict=True):
        cells = [
            f"{row['asks']} | {spread(row['regret'])} | {spread(row['users_to_90'])}"
            for row in rows
        ]
        lines.append(f"| {rows[0]['label']} | {' | '.join(cells)} |")
    return "\n".join(lines)


main = figure_main(__spec__, __doc__, measure, paint, [table, what_holds], NUMBERS)


if __name__ == "__main__":
    sys.exit(main())
