"""Plans with a model of moves where a grid is too large: values fitted at states of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.kernel_maps import Nystroem
from tacit.continuous.model_planner import Step
from tacit.continuous.policy import held
from tacit.continuous.statistics.move_moments import PLACES, placed
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec

# Rounds of fitting, each at states that the plan before visits; episodes of a round, and their
# steps at most.
_ROUNDS, _EPISODES, _STEPS = 3, 64, 200
# States at which values are fitted, centres of the kernel among them, its lengthscale in widths of
# the box that they fill, and the ridge.
_STATES, _CENTRES, _LENGTH, _SMOOTH, _RIDGE = 4000, 400, 0.5, 2.5, 1e-3
# Sweeps of value iteration, and when they end, in parts of a step's largest reward.
_SWEEPS, _PRECISION = 200, 0.2
# How often a plan's episodes hold another action, so that values know what is beside it.
_EXPLORERS, _BURSTS = 0.1, 0.15
# Bins of first states with less than this part of the largest one's users are taken as empty.
_FEW = 0.25


class FittedPlanner:
    """Values of actions by fitted value iteration on kernel features, in a model.

    States are those of episodes in the model, from first states that look like users', at first of
    random actions, then of the plan so far. Their centres and the box that they fill make the
    features of a Matern kernel; values are regressed on them, cut to what is possible. The best
    plan of all rounds is kept, by its returns in the model.

    A plan begins anew, with nothing of the one before: there is nothing to save.
    """

    def __init__(self, spec: BoxSpec, places: Floats, discount: float) -> None:
        self.spec, self.discount = spec, discount
        self._places = places

    def _starts(self, rng: np.random.Generator) -> Floats:
        return draw_starts(self.spec, self._places, rng, _EPISODES)

    def plan(self, step: Step, rng: np.random.Generator) -> tuple[FeatureMap, Floats]:
        """New features, and the values of actions on them, (A, m)."""
        A, steps = self.spec.actions, min(self.spec.horizon, _STEPS)
        tries = held(rng.random((steps, _EPISODES)), A, 1.0, 0.0)
        visited = self._visited(step, self._starts(rng), tries, None)[0]
        tested, best = self._starts(rng), -math.inf
        kept: tuple[Nystroem, Floats] | None = None
        for last in range(_ROUNDS - 1, -1, -1):
            some = visited[rng.permutation(len(visited))[:_STATES]]
            plan = self._fitted(step, some, rng)
            greedy = np.full((steps, _EPISODES), -1)
            worth = float(self._visited(step, tested, greedy, plan)[1].mean())
            if kept is None or worth > best:
                kept, best = plan, worth
            if last:
                tries = held(rng.random((steps, _EPISODES)), A, _EXPLORERS, _BURSTS)
                new = self._visited(step, self._starts(rng), tries, plan)[0]
                old = visited[rng.permutation(len(visited))[: max(len(new), _STATES // 2)]]
                visited = np.concatenate([old, new])
        assert kept is not None  # noqa: S101
        return kept

    def _visited(
        self, step: Step, starts: Floats, tries: Ints, plan: tuple[Nystroem, Floats] | None
    ) -> tuple[Floats, Floats]:
        """States of episodes in the model, (., D), and what each episode earned, discounted."""
        here, earned = starts, np.zeros(len(starts))
        alive, found = np.ones(len(starts), dtype=np.bool_), []
        for t, taken in enumerate(tries):
            found.append(here[alive])
            if plan is not None and (taken < 0).any():
                greedy = (plan[0](here) @ plan[1].T).argmax(axis=1)
                taken = np.where(taken < 0, greedy, taken)
            nexts, paid, over = step(here, taken)
            earned += np.where(alive, self.discount**t * paid, 0.0)
            here = np.where(alive[:, np.newaxis], nexts, here)
            alive = alive & ~over
            if not alive.any():
                break
        return np.concatenate(found), earned

    def _fitted(
        self, step: Step, states: Floats, rng: np.random.Generator
    ) -> tuple[Nystroem, Floats]:
        """Features for these states, and the values of actions on them."""
        lows, highs = np.quantile(states, (0.005, 0.995), axis=0)
        margin = 0.05 * (highs - lows) + 1e-6
        centres = states[rng.permutation(len(states))[:_CENTRES]]
        box = tuple((lows - margin).tolist()), tuple((highs + margin).tolist())
        features = Nystroem(*box, tuple(map(tuple, centres.tolist())), _LENGTH, _SMOOTH)
        here, m = features(states), features.size
        gram = here.T @ here + _RIDGE * len(states) / m * np.eye(m)
        fit = np.linalg.solve(gram, here.T)
        paid, kept, ahead = self._looked_ahead(step, states, features)
        low, high = (end / (1.0 - self.discount) for end in self.spec.reward_range)
        middle, precision = 0.5 * (low + high), _PRECISION * max(map(abs, self.spec.reward_range))
        values = np.zeros(m)
        for _ in range(_SWEEPS):
            after = np.clip(ahead @ values + middle, low, high)
            targets = paid + self.discount * np.where(kept, after, 0.0) - middle
            new = fit @ targets.max(axis=0)
            change = float(np.abs(here @ (new - values)).max())
            values = new
            if change < precision:
                break
        return features, np.ascontiguousarray((fit @ targets.T).T)

    def _looked_ahead(
        self, step: Step, states: Floats, features: Nystroem
    ) -> tuple[Floats, Bools, Floats]:
        """Of every action at states: what it pays, whether it goes on, and where to (A, n, m)."""
        A, n = self.spec.actions, len(states)
        paid, kept = np.empty((A, n)), np.empty((A, n), dtype=np.bool_)
        ahead = np.empty((A, n, features.size))
        for action in range(A):
            nexts, paid[action], over = step(states, np.full(n, action))
            kept[action], ahead[action] = ~over, features(nexts)
        return paid, kept, ahead


def draw_starts(spec: BoxSpec, places: Floats, rng: np.random.Generator, count: int) -> Floats:
    """States, (count, D), by noisy counts of bins, (D, bins), each coordinate on its own."""
    parts = np.empty((count, len(places)))
    for i, counts in enumerate(places):
        seen = np.where(counts >= _FEW * counts.max(), np.maximum(counts, 0.0), 0.0)
        chances = seen / seen.sum() if seen.sum() > 0.0 else np.full(PLACES, 1.0 / PLACES)
        parts[:, i] = (rng.choice(PLACES, count, p=chances) + rng.random(count)) / PLACES
    return placed(spec, parts)
