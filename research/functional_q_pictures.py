"""What is released: Q on the line, after a run with few users and one with many.

Shown are the values of both actions, and what they would be with the same number of sweeps in the
true world. All of it is post-processing of what was published.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from research.figures import EndLabel, Pen, budget_words, drawing, figure_main, label_ends
from research.studies import PAPER
from research.study import markdown
from tacit import FittedFunctionalQ
from tacit.continuous.worlds import (
    BoxWorld,
    line,
)
from tacit.core.agent import Agent
from tacit.simulation.run import noise_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

USERS = (30, 100)
ACTIONS = ("lower", "raise")
PENS = (Pen("#0072B2", "o"), Pen("#D55E00", "s", "--"))
# The longest move of a dose.
REACH = 0.25
# Points at which the line is shown, and moves of a step.
LINE_POINTS, MOVES = 201, 100


@dataclass(frozen=True)
class Shown:
    """A run: the agent after the last user, and Q of both actions at states (n,).

    Values are from the mean over states of the best of them, beside the truth after as many sweeps:
    (2, n) each.
    """

    agent: Agent
    score: float
    states: Floats
    q: Floats
    truth: Floats


def learnt(users: int, seed: int = 0) -> Shown:
    """A run on the line in which actions keep their names."""
    world = line()
    agent = FittedFunctionalQ(world.spec, users, PAPER, seed=seed, noise_seed=noise_seed(seed))
    form: Any = agent.data_format
    rng = np.random.default_rng(seed)
    agent.learn(world.simulate(agent.policy, agent.block_users, rng, form))
    gain = world.value(agent.greedy_policy) - world.baseline_value
    states = np.linspace(0.0, 1.0, LINE_POINTS)
    algorithm, ahead = cast("Any", agent.algorithm), agent.state.ahead
    features = algorithm.features(states[:, np.newaxis]).T
    return Shown(
        agent,
        gain / (world.optimal_value - world.baseline_value),
        states,
        centred(algorithm.q_mean(agent.state) @ features),
        centred(true_q(world, ahead.discount, ahead.sweeps, states)),
    )


def centred(q: Floats) -> Floats:
    """Values from the mean over states of the best of them: a constant means nothing.

    >>> centred(np.array([[1.0, 2.0], [0.0, 4.0]]))
    array([[-1.5, -0.5],
           [-2.5,  1.5]])
    """
    from_mean: Floats = q - q.max(axis=0).mean()
    return from_mean


def true_q(world: BoxWorld, discount: float, sweeps: int, states: Floats) -> Floats:
    """Q on the line after so many sweeps from zero, for both actions: (2, n).

    Moves are averaged over midpoints, and values are linear between states.
    """
    moves = REACH * (np.arange(MOVES) + 0.5) / MOVES
    steps = np.stack([-moves, moves])
    there = np.clip(states[:, np.newaxis] + steps[:, np.newaxis], 0.0, 1.0)
    rewards = world.rewards(there[..., np.newaxis])
    q: Floats = np.zeros((2, len(states)))
    for _ in range(sweeps):
        q = (rewards + discount * np.interp(there, states, q.max(axis=0))).mean(axis=-1)
    return q


def measure(runs: int, workers: int, quick: bool) -> tuple[Shown, Shown]:
    """One run with few users and one with many; ``quick`` is with fewer."""
    few, many = (20, 40) if quick else USERS
    return learnt(few), learnt(many)


def paint(path: Path, measured: tuple[Shown, Shown]) -> None:
    """Few users on the left, many on the right."""
    with drawing(
        path,
        "Published value functions",
        f"FittedFunctionalQ at {budget_words(PAPER.budget)} for whole episodes, one run each. "
        "Anybody may look at these functions anywhere, as often as they like.",
        footnote="Dotted: the true world after as many sweeps. Values are from the mean over "
        "states of the best action's: a constant means nothing.",
    ) as panels:
        labels = [_draw(axes, shown) for axes, shown in zip(panels, measured, strict=True)]
        panels[0].set(ylabel="value, in rewards")
        for axes, ends in zip(panels, labels, strict=True):
            label_ends(axes, ends)


def _draw(axes: Axes, shown: Shown) -> list[EndLabel]:
    title = f"line, {shown.agent.users} users: score {shown.score:.3f}"
    axes.set(title=title, xlabel="level of the dose", xlim=(0.0, 1.0))
    labels = []
    for action, pen, q, truth in zip(ACTIONS, PENS, shown.q, shown.truth, strict=True):
        axes.plot(shown.states, q, color=pen.colour, ls=pen.dash)
        axes.plot(shown.states, truth, color=pen.colour, ls=":", lw=1.3)
        labels.append(EndLabel(1.0, float(q[-1]), f"{action} it", pen.colour))
    return labels


def table(measured: tuple[Shown, Shown]) -> str:
    """What was published, in Markdown."""
    rows = []
    for shown in measured:
        ahead = shown.agent.state.ahead
        right = float((shown.q.argmax(axis=0) == shown.truth.argmax(axis=0)).mean())
        cells = [f"{shown.score:.3f}", f"{ahead.sweeps}", f"{ahead.discount:.3f}"]
        rows.append(["line", f"{shown.agent.users}", *cells, f"{100 * right:.0f} %"])
    return markdown(["world", "users", "score", "sweeps", "discount", "best action right"], rows)


main = figure_main("research.functional_q_pictures", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
