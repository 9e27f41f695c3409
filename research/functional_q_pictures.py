"""What is released: Q on the line with its band, and the values and actions on the plane.

Left are the values of both actions after one run with privacy, and what they would be with the same
number of sweeps in the true world. Right are the values of another run as colours, and arrows for
the action that is best by them. All of it is post-processing of what was published.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from research.figures import EndLabel, Pen, budget_words, drawing, figure_main, label_ends
from research.studies import PAPER
from research.study import markdown
from research.worlds import plane
from tacit import FittedFunctionalQ
from tacit.continuous.estimate import Posterior
from tacit.continuous.policy import QPolicy
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

LINE_USERS, PLANE_USERS, SEED = 100, 256, 0
ACTIONS = ("lower", "raise")
PENS = (Pen("#0072B2", "o"), Pen("#D55E00", "s", "--"))
# The longest move of a dose.
REACH = 0.25
# Points at which the line, the plane's colours and its arrows are shown, and moves of a step.
LINE_POINTS, COLOURS, ARROWS, MOVES = 201, 81, 13, 100
WIDE = 2.0
"""Standard deviations on each side of a band."""


@dataclass(frozen=True)
class Shown:
    """A run: its world, the agent after the last user, and the score of its greedy policy."""

    world: BoxWorld
    agent: Agent
    score: float


@dataclass(frozen=True)
class Measured:
    """Both pictures: Q of both actions on the line, and values and best actions on the plane.

    Attributes:
        line: the run on the line,
        states: where Q is shown there, (n,),
        q: (2, n), from the mean over states of the best of them,
        std: (2, n), of a sweep,
        truth: (2, n), after as many sweeps in the true world.
        plane: the run on the plane,
        axis: the coordinates at which values are shown, (m,),
        values: (m, m), by first and second level,
        arrows: coordinates of the arrows, (k,),
        best: (k, k), the best actions there.
    """

    line: Shown
    states: Floats
    q: Floats
    std: Floats
    truth: Floats
    plane: Shown
    axis: Floats
    values: Floats
    arrows: Floats
    best: Ints


def learnt(world: BoxWorld, users: int, seed: int = SEED) -> Shown:
    """A run in which actions keep their names."""
    agent = FittedFunctionalQ(world.spec, users, PAPER, seed=seed, noise_seed=noise_seed(seed))
    rng = np.random.default_rng(seed)
    form: Any = agent.data_format
    agent.learn(world.simulate(agent.policy, agent.block_users, rng, form))
    gain = world.value(agent.greedy_policy) - world.baseline_value
    return Shown(world, agent, gain / (world.optimal_value - world.baseline_value))


def centred(q: Floats) -> Floats:
    """Values from the mean over states of the best of them: a constant means nothing.

    >>> centred(np.array([[1.0, 2.0], [0.0, 4.0]]))
    array([[-1.5, -0.5],
           [-2.5,  1.5]])
    """
    from_mean: Floats = q - q.max(axis=0).mean()
    return from_mean


def q_std(agent: Any) -> Floats:
    """The posterior standard deviation of the last sweep of Q, in rewards, at the grid: (m,).

    It is that given the values before it, not of all sweeps together: no confidence set.
    """
    algorithm, state = agent.algorithm, agent.state
    basis, constants, ahead = algorithm.basis, algorithm.constants, state.ahead
    known: Any = Posterior(basis, constants, ahead.discount, state.evidence, ahead.sweeps)
    value = basis.value(state.last)[0]
    covariance = known._with(value)
    alone = known._reward_and_moves(value[np.newaxis], value[np.newaxis])[0, 0]
    alone += constants.prior_drift**2 * len(covariance)
    told = np.einsum("i,qij,j->q", covariance, known._inverse, covariance) * known._gains**2
    whole = (basis.prior**2).sum(axis=1) * alone
    left = whole - (basis.prior @ known._modes.T) ** 2 @ told
    spread: Floats = np.sqrt(np.maximum(left, 0.0)) * ahead.units.unit
    return spread


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


def values_at(policy: QPolicy, weights: Floats, axis: Floats) -> Floats:
    """Of all actions at the points of a square: (actions, n, n)."""
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    return np.moveaxis(policy.features(points) @ weights.T, -1, 0)


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """One run in each world; ``quick`` is with few users."""
    users = (20, 10) if quick else (LINE_USERS, PLANE_USERS)
    one, two = learnt(line(), users[0]), learnt(plane(), users[1])
    states = np.linspace(0.0, 1.0, LINE_POINTS)
    of_line: Any = one.agent.algorithm
    of_plane: Any = two.agent.algorithm
    features = of_line.features(states[:, np.newaxis]).T
    ahead = one.agent.state.ahead
    truth = true_q(one.world, ahead.discount, ahead.sweeps, states)
    axis, arrows = np.linspace(0.0, 1.0, COLOURS), (np.arange(ARROWS) + 0.5) / ARROWS
    policy, weights = two.agent.greedy_policy, of_plane.q_mean(two.agent.state)
    points = np.stack(np.meshgrid(arrows, arrows, indexing="ij"), axis=-1)
    values = centred(values_at(policy, weights, axis).reshape(len(weights), -1)).max(axis=0)
    return Measured(
        one,
        states,
        centred(of_line.q_mean(one.agent.state) @ features),
        np.broadcast_to(q_std(one.agent) @ features, (2, LINE_POINTS)),
        centred(truth),
        two,
        axis,
        values.reshape(COLOURS, COLOURS),
        arrows,
        policy.greedy(points),
    )


# The picture.


def paint(path: Path, measured: Measured) -> None:
    """The line on the left, the plane on the right."""
    with drawing(
        path,
        "Published value functions",
        f"FittedFunctionalQ at {budget_words(PAPER.budget)} for whole episodes, one run each. "
        "Anybody may look at these functions anywhere, as often as they like.",
        sharey=False,
        footnote=f"Bands: {WIDE:g} posterior standard deviations of the last sweep, given the "
        "values before it; they are no confidence sets for Q. Dotted: the true world after as many "
        "sweeps.\nValues are from the mean over states of the best action's: a constant means "
        "nothing. Dotted diagonals: where the best action of the plane changes.",
    ) as (left, right):
        labels = _draw_line(left, measured)
        _draw_plane(right, measured)
        label_ends(left, labels)


def _draw_line(axes: Axes, measured: Measured) -> list[EndLabel]:
    shown = measured.line
    axes.set(
        title=f"line, {shown.agent.users} users: score {shown.score:.3f}",
        xlabel="level of the dose",
        ylabel="value, in rewards",
        xlim=(0.0, 1.0),
    )
    labels = []
    rows = zip(ACTIONS, PENS, measured.q, measured.std, measured.truth, strict=True)
    for action, pen, q, std, truth in rows:
        low, high = q - WIDE * std, q + WIDE * std
        axes.fill_between(measured.states, low, high, color=pen.colour, alpha=0.15, lw=0)
        axes.plot(measured.states, q, color=pen.colour, ls=pen.dash)
        axes.plot(measured.states, truth, color=pen.colour, ls=":", lw=1.3)
        labels.append(EndLabel(1.0, float(q[-1]), f"{action} it", pen.colour))
    return labels


def _draw_plane(axes: Axes, measured: Measured) -> None:
    shown = measured.plane
    axes.set(
        title=f"plane, {shown.agent.users} users: score {shown.score:.3f}",
        xlabel="first level",
        ylabel="second level",
        aspect="equal",
    )
    axes.grid(False)
    colours = axes.pcolormesh(
        measured.axis, measured.axis, measured.values.T, cmap="cividis", shading="gouraud"
    )
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.colorbar(colours, ax=axes, label="value of the best action, in rewards")
    for ends in ([0.0, 1.0], [1.0, 0.0]):
        axes.plot([0.0, 1.0], ends, ":", color="white", lw=1.3)
    coordinate, up = measured.best // 2, 2 * (measured.best % 2) - 1
    axes.quiver(
        measured.arrows,
        measured.arrows,
        np.where(coordinate == 0, up, 0).T,
        np.where(coordinate == 1, up, 0).T,
        color="white",
        pivot="mid",
        scale=24.0,
        width=0.005,
    )
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))


def table(measured: Measured) -> str:
    """What was published, in Markdown."""
    right = {
        "line": float((measured.q.argmax(axis=0) == measured.truth.argmax(axis=0)).mean()),
        "plane": float((measured.best == best_on_plane(measured.arrows)).mean()),
    }
    rows = []
    for name, shown in (("line", measured.line), ("plane", measured.plane)):
        ahead, users = shown.agent.state.ahead, f"{shown.agent.users}"
        cells = [f"{shown.score:.3f}", f"{ahead.sweeps}", f"{ahead.discount:.3f}"]
        rows.append([name, users, *cells, f"{100 * right[name]:.0f} %"])
    return markdown(["world", "users", "score", "sweeps", "discount", "best action right"], rows)


def best_on_plane(axis: Floats) -> Ints:
    """Towards the middle, along the coordinate that is farther from it; (n, n).

    >>> best_on_plane(np.array([0.2, 0.6])).tolist()
    [[1, 1], [3, 0]]
    """
    first, second = np.meshgrid(axis - 0.5, axis - 0.5, indexing="ij")
    along_second = np.abs(second) > np.abs(first)
    up = np.where(along_second, second, first) < 0
    best: Ints = 2 * along_second.astype(np.int64) + up
    return best


main = figure_main("research.functional_q_pictures", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
