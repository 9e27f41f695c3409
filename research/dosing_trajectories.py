"""Treatment courses before and after private learning: what users get, and what it does.

The same simulated users, with the same luck, take no change of dose, the doses that were learnt
under joint DP, and the optimal ones. What is learnt and what is optimal look alike; how close they
are is in the titles, as exact expected costs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from research.command_lines import figure_main
from research.figures import PALE
from research.lq_held_out import DOSING
from research.sheets import Look, sheet
from research.tables import joint
from tacit.data.episodes import VectorEpisodes
from tacit.lq.policy import GainPolicy
from tacit.lq.world import LQWorld
from tacit.lq.worlds import dosing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.simulation.result import Result

Floats = NDArray[np.float64]

EFFECT, DOSE = 2, 0
USERS, SHOWN, EPSILON = 2_000, 30, 1.0
COLOURS = ("#8a8a8a", "#0072B2", "#009E73")


@dataclass(frozen=True)
class Course:
    """What one policy does to the users shown.

    Attributes:
        title: of the policy.
        cost: expected, exact.
        effects: (users, H + 1).
        doses: (users, H).
    """

    title: str
    cost: float
    effects: Floats
    doses: Floats


@dataclass(frozen=True)
class Measured:
    """Everything that is drawn.

    Attributes:
        courses: before learning, after it, and optimal.
        result: the run that learnt.
    """

    courses: tuple[Course, Course, Course]
    result: Result

    @property
    def loss(self) -> float:
        """Of what was learnt: 0 is optimal, 1 is no change of dose."""
        return float(self.result.greedy_losses[-1])


def course(title: str, world: LQWorld, policy: GainPolicy, users: int, seed: int) -> Course:
    """Users who follow a policy without noise; the same users for every policy."""
    data = world.simulate(policy, users, np.random.default_rng(seed), "episodes")
    assert isinstance(data, VectorEpisodes)  # noqa: S101
    doses = data.actions[:, :, DOSE].astype(np.float64)
    return Course(title, -world.value(policy), data.states[:, :, EFFECT], doses)


def measure(users: int = USERS, shown: int = SHOWN, seed: int = 0) -> Measured:
    """One run, and the courses of users who had no part in it."""
    import tacit

    world, job = dosing(), DOSING.job(joint(EPSILON), users)
    agent = job.agent(seed)
    result = tacit.run(agent, world, seed, progress=False)
    policies = {
        "Before: the usual dose": GainPolicy.zero(world.horizon, 1, 3),
        f"Learnt from {users:,} users, ε = {EPSILON:g}": agent.greedy_policy,
        "Optimal": world.optimal_policy,
    }
    before, learnt, optimal = (
        course(title, world, policy, shown, seed) for title, policy in policies.items()
    )
    return Measured((before, learnt, optimal), result)


def paint(path: Path, measured: Measured) -> None:
    """Effects above, doses below, a column for each policy."""
    guarantee = measured.result.guarantee
    promise = "nothing" if guarantee is None else guarantee.short
    shown = len(measured.courses[0].effects)
    with sheet(
        path,
        "Dosing: courses before and after private learning",
        f"The same {shown} simulated users in every column, with the same luck; thick: their mean. "
        "Both as distances from the target: 0 is the right effect and the usual dose.",
        Look((12, 7.4), 0.943, (2, 3), {"sharey": "row", "sharex": True}),
        "Costs are exact expectations over all users. One run of certainty equivalence, seed "
        f"{measured.result.seed}: its gains lose {100 * measured.loss:.2g} % of what control can "
        f"gain.\nGuaranteed to those it learnt from: {promise}. They were served with noise in "
        "their doses besides, which is not in these pictures.\nThe users shown had no part in "
        "learning. The world is linear and invented, and no model of a real drug.",
    ) as (above, below):
        for effect, dose, one, colour in zip(above, below, measured.courses, COLOURS, strict=True):
            effect.set(title=f"{one.title}\ncost {one.cost:.3f}")
            _draw(effect, one.effects, colour)
            _draw(dose, one.doses, colour)
            dose.set(xlabel="step")
        above[0].set(ylabel="effect")
        below[0].set(ylabel="dose")


def _draw(axes: Axes, rows: Floats, colour: str) -> None:
    x = np.arange(1, rows.shape[1] + 1)
    axes.axhline(0.0, color=PALE, ls=":", lw=1.3)
    axes.plot(x, rows.T, color=colour, lw=0.8, alpha=0.35)
    axes.plot(x, rows.mean(axis=0), color=colour, lw=2.6)
    axes.set_xlim(1, rows.shape[1])


def table(measured: Measured) -> str:
    """Costs, and where users end up, in Markdown."""
    lines = [
        "| | expected cost | effect at step 1, mean | at step 12 | after the last | doses, rms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in measured.courses:
        effect = one.effects.mean(axis=0)
        cells = [
            one.title,
            f"{one.cost:.4f}",
            *(f"{effect[step]:.3f}" for step in (0, 11, -1)),
            f"{np.sqrt(np.mean(one.doses**2)):.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


NUMBERS = {
    "users": (100, USERS, "to learn from"),
    "shown": (1, SHOWN, "users in the picture"),
    "seed": (0, 0, "of the run"),
}
main = figure_main(__spec__, __doc__, measure, paint, [table], NUMBERS, quick=False)


if __name__ == "__main__":
    sys.exit(main())
