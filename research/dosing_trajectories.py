"""Treatment courses before and after private learning: what users get, and what it does.

The same simulated users, with the same luck, take no change of dose, the doses that were learnt
under joint DP, and the optimal ones. What is learnt and what is optimal look alike; how close they
are is in the titles, as exact expected costs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from research.figures import PALE, drawing, figure_main
from research.study import joint, markdown
from tacit.data.episodes import VectorEpisodes
from tacit.lq.spec import GainPolicy
from tacit.lq.world import LQWorld
from tacit.lq.worlds import dosing
from tacit.registry import choose_agent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tacit.simulation.result import Result

Floats = NDArray[np.float64]

EFFECT, DOSE = 2, 0
USERS, SHOWN, EPSILON = 2_000, 30, 1.0
COLOURS = ("#8a8a8a", "#0072B2", "#009E73")


@dataclass(frozen=True)
class Course:
    """What one policy does to the users shown: effects (users, H + 1), doses (users, H)."""

    title: str
    cost: float
    effects: Floats
    doses: Floats


Measured = tuple[list[Course], "Result"]
"""Courses before learning, after it, and optimal; and the run that learnt."""


def course(title: str, world: LQWorld, policy: GainPolicy, users: int, seed: int) -> Course:
    """Users who follow a policy without noise; the same users for every policy."""
    data = world.simulate(policy, users, np.random.default_rng(seed), "episodes")
    assert isinstance(data, VectorEpisodes)  # noqa: S101
    doses = data.actions[:, :, DOSE].astype(np.float64)
    return Course(title, -world.value(policy), data.states[:, :, EFFECT], doses)


def measure(runs: int, workers: int, quick: bool, seed: int = 0) -> Measured:
    """One run, and the courses of users who had no part in it."""
    import tacit

    world = dosing()
    agent: Any = choose_agent("certainty_equivalence").build(
        world.spec, USERS, joint(EPSILON), seed
    )
    result = tacit.run(agent, world, seed, progress=False)
    policies = {
        "Before: the usual dose": GainPolicy.zero(world.horizon, 1, 3),
        f"Learnt from {USERS:,} users, ε = {EPSILON:g}": agent.greedy_policy,
        "Optimal": world.optimal_policy,
    }
    courses = [course(title, world, one, SHOWN, seed) for title, one in policies.items()]
    return courses, result


def paint(path: Path, measured: Measured) -> None:
    """Effects above, doses below, a column for each policy."""
    courses, result = measured
    promise = "nothing" if result.guarantee is None else result.guarantee.short
    with drawing(
        path,
        "Dosing: courses before and after private learning",
        f"The same {SHOWN} simulated users in every column, with the same luck; thick: their mean. "
        "Both as distances from the target: 0 is the right effect and the usual dose.",
        panels=3,
        rows=2,
        size=(12, 3.7),
        sharey="row",
        footnote="Costs are exact expectations over all users. One run of certainty equivalence, "
        f"seed {result.seed}: its gains lose {100 * result.greedy_losses[-1]:.2g} % of what "
        f"control can gain.\nGuaranteed to those it learnt from: {promise}. They were served with "
        "noise in their doses besides, which is not in these pictures.\nThe users shown had no "
        "part in learning. The world is linear and invented, and no model of a real drug.",
    ) as panels:
        for effect, dose, one, colour in zip(panels[:3], panels[3:], courses, COLOURS, strict=True):
            effect.set(title=f"{one.title}\ncost {one.cost:.3f}")
            _draw(effect, one.effects, colour)
            _draw(dose, one.doses, colour)
            dose.set(xlabel="step")
        panels[0].set(ylabel="effect")
        panels[3].set(ylabel="dose")


def _draw(axes: Axes, rows: Floats, colour: str) -> None:
    x = np.arange(1, rows.shape[1] + 1)
    axes.axhline(0.0, color=PALE, ls=":", lw=1.3)
    axes.plot(x, rows.T, color=colour, lw=0.8, alpha=0.35)
    axes.plot(x, rows.mean(axis=0), color=colour, lw=2.6)
    axes.set_xlim(1, rows.shape[1])


def table(measured: Measured) -> str:
    """Costs, and where users end up, in Markdown."""
    rows = []
    for one in measured[0]:
        effect = one.effects.mean(axis=0)
        means = [f"{effect[step]:.3f}" for step in (0, 11, -1)]
        doses = f"{np.sqrt(np.mean(one.doses**2)):.3f}"
        rows.append([one.title, f"{one.cost:.4f}", *means, doses])
    heads = ["expected cost", "effect at step 1, mean", "at step 12", "after the last"]
    return markdown(["", *heads, "doses, rms"], rows)


main = figure_main("research.dosing_trajectories", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
