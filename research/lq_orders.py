"""Private-OFU-RL in a world of its own assumptions: the orders of its regret, and when it helps.

The algorithm is that of Chowdhury, Zhou and Shroff (2021), corrected, from :mod:`tacit.papers`: its
counters, radius, confidence set and search. In ``thermostat`` all of its Assumption 1 is true, and
first states are as long as each other, so that one policy is optimistic for everybody. It plans
when the users have grown by a twentieth, where the paper plans for every user; regret is exact.

While the set holds a system that needs no control, the most favourable system is that one, and
nobody is controlled: regret is linear. Only then the orders of the bound begin.

``python -m research.lq_orders`` stores its runs in ``research/lq_orders.json`` and uses what is
there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from research import figures
from research.figures import Panel, Pen, draw_panels, figure_main, slope
from research.study import DELTA, RUNS, load, markdown, store
from research.worlds import thermostat
from tacit.lq import dosing
from tacit.numerics.compiled import Floats, compiled
from tacit.papers import chowdhury_lq_2021 as paper
from tacit.papers.counters import Regularizer, Ridge
from tacit.papers.result import Sizes
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise
from tacit.simulation.plots import short

if TYPE_CHECKING:
    from tacit.lq.world import LQWorld

FAILURE, GROWTH = 0.1, 1.05
EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SHOWN = (1.0, 10.0, 100.0)
# By name: the world, gamma, and how many users come.
PLACES: Mapping[str, tuple[LQWorld, float, int]] = {
    "thermostat": (thermostat(), 0.5, 3 * 10**6),
    "dosing": (dosing(), 1.0, 10**6),
}
_PART = 50_000  # users who are drawn at once


@dataclass(frozen=True)
class Curve:
    """One run: users served after each plan, and what it lost."""

    served: Floats
    regret: Floats
    losses: Floats  # of the policy that served the last of them, in units of no control
    inside: bool  # whether the truth was in every set

    def at(self, users: Sequence[int]) -> list[float]:
        """The regret of the first so many users; a straight line between two plans."""
        found: list[float] = np.interp(users, [0, *self.served], [0, *self.regret]).tolist()
        return found

    @property
    def helped(self) -> int | None:
        """How many came before somebody lost less than half of what no control loses."""
        place = np.flatnonzero(self.losses < 0.5)
        return int(self.served[place[0] - 1]) if place.size else None


@compiled
def _serve(
    true: Floats,
    starts: Floats,
    noise: Floats,
    gains: Floats,
    gamma: float,
    gram: Floats,
    cross: Floats,
) -> None:
    """Users one after another, all by the same gains."""
    x = np.empty((2, starts.shape[1]))
    for k in range(len(starts)):
        x[:] = starts[k]
        paper._roll_out(true, noise[k], gains, gamma, x, gram, cross)


def cost_of(world: LQWorld, gains: Floats) -> float:
    """What gains cost on average, exactly."""
    spec = world.spec
    P, later = np.zeros_like(world.A), 0.0
    for K in gains[::-1]:
        later += float((P * spec.noise_covariance).sum())
        closed = world.A + world.B @ K
        P = world.Q + K.T @ world.R @ K + closed.T @ P @ closed
    return float((P * spec.start_moment).sum()) + later


def run(
    world: LQWorld,
    users: int,
    epsilon: float | None,
    gamma: float,
    seed: int,
    growth: float = GROWTH,
) -> Curve:
    """Private-OFU-RL, corrected, or OFU-RL with a ridge where ``epsilon`` is ``None``."""
    spec = world.spec
    levels = (epsilon or 1.0, DELTA, FAILURE, False, Noise(seed))
    n, d = spec.states, spec.controls
    sizes = Sizes(users, spec.horizon, (n, d), *levels)
    made: Regularizer = Ridge([(n + d, n)])
    if epsilon is not None:
        made = paper.private(sizes, gamma)
    (level,) = made.levels
    beta = paper.radius(sizes, level, (gamma, spec.noise_bound, spec.norm_bound))
    learner, rng = paper.Learner(world, level, beta, gamma, seed), np.random.default_rng([seed, 1])
    none, served, regret, inside = world.optimal_value - world.baseline_value, 0, 0.0, True
    rows: list[tuple[float, float, float]] = []
    while served < users:
        count = min(max(1, int(served * (growth - 1.0))), users - served)
        Hk, Lk = made.regularize(served, min(_PART, count))
        inside &= learner.plan(np.array(spec.start_moment), Hk[0, 0], Lk[0].reshape(n + d, n))[1]
        loss = world.optimal_value + cost_of(world, learner.gains)
        for first in range(0, count, _PART):
            part = min(_PART, count - first)
            if first:
                made.regularize(served + first, part)
            sums = learner.gram, learner.cross
            _serve(learner.true, *paper._users(world, part, rng), learner.gains, gamma, *sums)
        served, regret = served + count, regret + loss * count
        rows.append((served, regret, loss / none))
    found: Floats = np.array(rows).T
    return Curve(found[0], found[1], found[2], inside)


# What is stored.


def points(place: str) -> list[int]:
    """Numbers of users at which regrets are noted."""
    most = PLACES[place][2]
    return [*(round(10**power) for power in np.arange(2.0, math.log10(most), 0.25)), most]


def label(epsilon: float | None) -> str:
    """Of a budget.

    >>> label(None), label(0.3)
    ('not private', 'epsilon 0.3')
    """
    return "not private" if epsilon is None else f"epsilon {epsilon:g}"


def measure(runs: int = RUNS, workers: int = 1, quick: bool = False) -> dict[str, Any]:
    """Runs what is not stored yet, and stores it; ``quick`` is what is stored."""
    found = load("lq_orders")
    if quick:
        return found
    wanted = [("thermostat", None), *(("thermostat", e) for e in EPSILONS), ("dosing", 1.0)]
    for place, epsilon in wanted:
        world, gamma, users = PLACES[place]
        rows = found.setdefault(place, {}).setdefault(label(epsilon), [])
        for seed in range(len(rows), runs):
            curve = run(world, users, epsilon, gamma, seed)
            rows.append(
                {
                    "regret": [float(f"{value:.6g}") for value in curve.at(points(place))],
                    "last loss": float(f"{curve.losses[-1]:.4g}"),
                    "worst loss": float(f"{curve.losses.max():.4g}"),
                    "helped": curve.helped,
                    "inside": curve.inside,
                }
            )
            store("lq_orders", found)
    return found


def regrets(found: Mapping[str, Any], place: str, epsilon: float | None) -> Floats:
    """A row per run, a column per number of users."""
    rows: Floats = np.array([row["regret"] for row in found[place][label(epsilon)]])
    return rows


def helped(found: Mapping[str, Any], place: str, epsilon: float | None) -> float:
    """The median of how many users came before it helped; infinite where it did not."""
    rows = found[place][label(epsilon)]
    return float(np.median([math.inf if r["helped"] is None else r["helped"] for r in rows]))


def order_of_users(found: Mapping[str, Any], epsilon: float | None) -> float:
    """The order of the regret in K, from four times the users on before whom nothing was learnt."""
    x, y = points("thermostat"), np.median(regrets(found, "thermostat", epsilon), axis=0)
    some = [i for i, users in enumerate(x) if users >= 4.0 * helped(found, "thermostat", epsilon)]
    return slope([x[i] for i in some], [y[i] for i in some])


def order_of_epsilon(found: Mapping[str, Any], of: Callable[[float], float] = float) -> float:
    """The order of the last regret in epsilon, or in what ``of`` makes of it."""
    last = [float(np.median(regrets(found, "thermostat", e)[:, -1])) for e in EPSILONS]
    return slope([of(e) for e in EPSILONS], last)


def mu_of(epsilon: float) -> float:
    """What a budget is as Gaussian DP."""
    return Budget(epsilon, DELTA).mu


# In words.


def table(found: Mapping[str, Any]) -> str:
    """Regrets in ``thermostat``, in Markdown."""
    at = [*(10**power for power in range(3, 7)), PLACES["thermostat"][2]]
    heads = ["thermostat", *(f"K = {short(k)}" for k in at), "helps from", "order in K", "covered"]
    rows_of = []
    for epsilon in (None, *reversed(EPSILONS)):
        middle = np.median(regrets(found, "thermostat", epsilon), axis=0)
        rows = found["thermostat"][label(epsilon)]
        some = [f"{middle[points('thermostat').index(k)]:,.0f}" for k in at]
        held = f"{sum(row['inside'] for row in rows)} of {len(rows)}"
        order = f"{order_of_users(found, epsilon):.2f}"
        first = f"{helped(found, 'thermostat', epsilon):,.0f}"
        rows_of.append([label(epsilon), *some, first, order, held])
    return markdown(heads, rows_of)


def words(found: Mapping[str, Any]) -> str:
    """What was seen, in sentences."""
    rows = found["dosing"]["epsilon 1"]
    last, worst = (float(np.median([row[name] for row in rows])) for name in _LOSSES)
    first, users = helped(found, "dosing", 1.0), PLACES["dosing"][2]
    came = "it does not help anybody" if math.isinf(first) else f"it helps from {first:,.0f} users"
    return (
        f"Order in epsilon: {order_of_epsilon(found):.2f}; in mu, which grows more slowly: "
        f"{order_of_epsilon(found, mu_of):.2f}.\n\n"
        f"Dosing, epsilon 1, {len(rows)} runs of {users:,} users: {came}; the last policy loses "
        f"{last:.2g} times what no control does, the worst {worst:.2g} times; the truth was in "
        f"every set of {sum(row['inside'] for row in rows)} runs."
    )


_LOSSES = "last loss", "worst loss"


# The picture.

PENS = {None: Pen("#222222", "X"), 1.0: Pen("#0072B2", "o"), 10.0: Pen("#E69F00", "v")}
PENS |= {100.0: Pen("#009E73", "D")}


def paint(path: Path, found: Mapping[str, Any]) -> None:
    """Regret by users and by epsilon."""
    x, world = points("thermostat"), PLACES["thermostat"][0]
    none = [k * (world.optimal_value - world.baseline_value) for k in x]
    by_users = [_curve(found, epsilon) for epsilon in (None, *SHOWN)]
    last = [regrets(found, "thermostat", e)[:, -1] for e in EPSILONS]
    by_budget = figures.Curve("", Pen("#0072B2", "o"), EPSILONS, last, words="")
    order = f"Regret of {short(x[-1])} users: {order_of_epsilon(found):.2f}; the bound: -1/2"
    regret = "regret, in costs"
    panels = [
        Panel("Regret; the bound: 1/2", "users K", by_users, none, regret, "no control"),
        Panel(order, "epsilon", [by_budget]),
    ]
    title = "Private-OFU-RL where its assumptions are true"
    draw_panels(path, panels, title, "Corrected, thermostat. δ = 1e-6.", size=(13, 5.6))


def _curve(found: Mapping[str, Any], epsilon: float | None) -> figures.Curve:
    rows = regrets(found, "thermostat", epsilon).T
    name = "not private" if epsilon is None else f"ε = {epsilon:g}"
    name = f"{name}  {order_of_users(found, epsilon):.2f}"
    return figures.Curve(name, PENS[epsilon], points("thermostat"), rows, words=name)


main = figure_main("research.lq_orders", __doc__, measure, paint, table, words)


if __name__ == "__main__":
    sys.exit(main())
