"""Plans for actions that are vectors: LQ control around trajectories in a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.model_planner import Step
from tacit.continuous.policy import held
from tacit.continuous.statistics.move_moments import angles_of
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.action_box import ActionBox
    from tacit.continuous.spec import BoxSpec

Aim = Callable[[int, Floats], Floats]
"""What controls (n, k) aim at, by the step and states (n, D); in units of the box of actions."""

# Steps of a trajectory that are published, at most, and those behind them, whose values count.
_STEPS, _BEHIND = 150, 50
# Trajectories are at least so long at first, then twice as long, and so on: what is unstable has to
# be held before it can be followed.
_FIRST = 12
# Linearisations of each length, of the last one, and the parts of a proposed change that are tried,
# in this order.
_SWEEPS, _LAST_SWEEPS, _LINES = 3, 6, (1.0, 0.5, 0.2, 0.05)
# Derivatives are differences: so far away, in units of the box.
_NEAR, _NEAR_CONTROL = 0.01, 0.05
_MIXED = 5
# What is added to the curvature in controls: at first, by what factors it grows and falls, and its
# ends.
_DAMPING, _MORE, _LESS, _LEAST, _MOST = 1e-2, 6.0, 3.0, 1e-6, 1e4
# How often points are tried from other states.
_TRIALS = 2
# Steps before an end, in which nothing is to be lost any more: they are not published.
_BEFORE_ENDS = 5
# Points that are published, at most.
_POINTS = 2048


@dataclass
class Paths:
    """Trajectories in a model: n of them, of T steps.

    Attributes:
        states: (n, T + 1, D); the last ones again after an end.
        controls: (n, T, k), in units of the box of actions, on its mesh.
        rewards: (n, T), zero after an end.
        going: (n, T), whether the episode was not over yet.
        gains: (n, T, k, D), how controls follow states.
    """

    states: Floats
    controls: Floats
    rewards: Floats
    going: Bools
    gains: Floats

    def some(self, chosen: Ints) -> Paths:
        """Those of these indices."""
        return Paths(*(getattr(self, own.name)[chosen] for own in fields(self)))

    def replace(self, chosen: Ints, others: Paths) -> None:
        """Puts others in the place of those of these indices, but for gains."""
        for own in fields(self)[:-1]:
            getattr(self, own.name)[chosen] = getattr(others, own.name)


class PathPlanner:
    """Trajectories that a model would earn most on, and how controls should follow states there.

    From trajectories of another plan: moves are taken as linear and rewards as quadratic around
    each of them, without what is not concave; the LQ problem that results is solved backwards, with
    controls that stay in their box, and the trajectory is followed anew, with as much of the change
    as earns more in the model (Tassa, Mansard and Todorov, 2014: control-limited differential
    dynamic programming, of first order in moves). Where nothing does, the curvature in controls is
    raised. Derivatives are central differences of the model, so that it may be any.
    """

    def __init__(
        self, spec: BoxSpec, box: ActionBox, lows: Floats, highs: Floats, discount: float
    ) -> None:
        self.box, self.discount = box, discount
        self.scale: Floats = 0.5 * (highs - lows)
        self.turns = angles_of(spec)
        behind = min(_BEHIND, math.ceil(1.0 / (1.0 - discount)))
        self.kept = min(spec.horizon, _STEPS)
        self.steps = self.kept + behind
        mesh = 4.0 / (box.levels - 1)
        far = mesh * max(1, round(_NEAR_CONTROL / mesh))
        self._near = np.append(_NEAR * self.scale, np.full(box.dimension, far))

    def plan(
        self, step: Step, starts: Floats, others: Floats, aim: Aim
    ) -> tuple[Floats, Floats, Floats]:
        """Points (m, D), controls (m, k) and gains (m, k, D), from what another plan aims at.

        From ``others`` they are tried, a few at a time: where the other plan earns more, its
        trajectories are improved and added.
        """
        parts = max(0, math.floor(math.log2(self.steps / _FIRST)))
        lengths = [math.ceil(self.steps / 2**part) for part in range(parts, -1, -1)]
        paths = self.follow(step, starts, aim, lengths[0])
        for length in lengths[1:]:
            paths = self.improved(step, paths, _SWEEPS)
            around = self._nearest(*self._points(paths, length // 2))
            longer = self.follow(step, starts, self._around(paths, around), length)
            other = self.follow(step, starts, aim, length)
            better = np.flatnonzero(self._worth(other) > self._worth(longer))
            longer.replace(better, other.some(better))
            paths = longer
        found = self._points(self.improved(step, paths, _LAST_SWEEPS), self.kept)
        for some in np.array_split(others, _TRIALS):
            tried = self.follow(step, some, self._nearest(*found), self.steps)
            other = self.follow(step, some, aim, self.steps)
            lost = np.flatnonzero(self._worth(other) > self._worth(tried))
            if len(lost):
                added = self._points(self.improved(step, other.some(lost), _SWEEPS), self.kept)
                points, controls, gains = map(np.concatenate, zip(found, added, strict=True))
                chosen = _thinned(points / self.scale)
                found = points[chosen], controls[chosen], gains[chosen]
        return found

    def _points(self, paths: Paths, steps: int) -> tuple[Floats, Floats, Floats]:
        """Points, controls and gains of the first steps, but for the last ones before an end."""
        lasted = paths.going.sum(axis=1)
        ended = lasted < paths.going.shape[1]
        last = np.where(ended, np.maximum(lasted - _BEFORE_ENDS, 1), steps)
        kept = np.arange(paths.going.shape[1]) < np.minimum(last, steps)[:, np.newaxis]
        # Early steps first: where two are as good as one place, the earlier one is kept.
        parts = (paths.states[:, :-1], paths.controls, paths.gains)
        points, controls, gains = (part.swapaxes(0, 1)[kept.T] for part in parts)
        chosen = _thinned(points / self.scale)
        return points[chosen], controls[chosen], gains[chosen]

    def _nearest(self, points: Floats, controls: Floats, gains: Floats) -> Aim:
        """What the points aim at, each around itself."""
        from tacit.continuous.model_loops import nearest

        turns = self.turns.astype(np.int64)

        def aim(_: int, here: Floats) -> Floats:
            chosen = np.zeros(len(here), dtype=np.int64)
            nearest(points, self.scale, turns, np.ascontiguousarray(here), chosen)
            off = self._difference(here, points[chosen])
            wanted: Floats = controls[chosen] + np.einsum("nij,nj->ni", gains[chosen], off)
            return wanted

        return aim

    def scattered(self, step: Step, starts: Floats, rng: np.random.Generator) -> Floats:
        """One state, (n, D), of an episode of random actions from each of these states."""
        n = len(starts)
        tries = held(rng.random((self.kept, n)), self.box.size, 1.0, 0.0)
        paths = self.follow(step, starts, lambda t, _: self.box.aims(tries[t]), self.kept)
        lasted = paths.going.sum(axis=1)
        found: Floats = paths.states[np.arange(n), (rng.random(n) * lasted).astype(np.int64)]
        return found

    def follow(self, step: Step, starts: Floats, aim: Aim, steps: int) -> Paths:
        """Trajectories in the model from these states, (n, D)."""
        n, D, k, T = len(starts), len(self.scale), self.box.dimension, steps
        states, controls = np.empty((n, T + 1, D)), np.zeros((n, T, k))
        rewards, going = np.zeros((n, T)), np.zeros((n, T), dtype=np.bool_)
        states[:, 0], alive = starts, np.ones(n, dtype=np.bool_)
        for t in range(T):
            here = states[:, t]
            numbers = self.box.numbers(np.clip(aim(t, here), -1.0, 1.0))
            nexts, paid, over = step(here, numbers)
            controls[:, t], going[:, t] = self.box.aims(numbers), alive
            rewards[:, t] = np.where(alive, paid, 0.0)
            states[:, t + 1] = np.where(alive[:, np.newaxis], nexts, here)
            alive = alive & ~over
        return Paths(states, controls, rewards, going, np.zeros((n, T, k, D)))

    def improved(self, step: Step, paths: Paths, sweeps: int) -> Paths:
        """The trajectories that are left after some linearisations, and gains around them."""
        worth, damping = self._worth(paths), np.full(len(paths.states), _DAMPING)
        for _ in range(sweeps):
            found = self._expanded(step, paths)
            changes, paths.gains = self._backwards(*found, paths.controls, damping)
            waiting = np.ones(len(worth), dtype=np.bool_)
            for line in _LINES:
                who = np.flatnonzero(waiting)
                if not len(who):
                    break
                old, change = paths.some(who), line * changes[who]
                around = self._around(old, lambda _, here: np.zeros((len(here), 1)), change)
                new = self.follow(step, old.states[:, 0], around, paths.going.shape[1])
                earned = self._worth(new)
                better = earned > worth[who]
                paths.replace(who[better], new.some(np.flatnonzero(better)))
                worth[who[better]], waiting[who[better]] = earned[better], False
            damping = np.where(waiting, damping * _MORE, damping / _LESS).clip(_LEAST, _MOST)
        least = np.full(len(worth), _LEAST)
        paths.gains = self._backwards(*self._expanded(step, paths), paths.controls, least)[1]
        return paths

    def _worth(self, paths: Paths) -> Floats:
        worth: Floats = paths.rewards @ self.discount ** np.arange(paths.rewards.shape[1])
        return worth

    def _around(self, old: Paths, beyond: Aim, change: Floats | None = None) -> Aim:
        """Controls that follow trajectories, with a change, and by another plan after their end."""

        def aim(t: int, here: Floats) -> Floats:
            if t >= old.going.shape[1]:
                return beyond(t, here)
            off = self._difference(here, old.states[:, t])
            wanted: Floats = old.controls[:, t] + np.einsum("nij,nj->ni", old.gains[:, t], off)
            wanted = wanted if change is None else wanted + change[:, t]
            going = old.going[:, t, np.newaxis]
            return wanted if going.all() else np.where(going, wanted, beyond(t, here))

        return aim

    def _difference(self, there: Floats, here: Floats) -> Floats:
        found = there - here
        turned = found[..., self.turns]
        found[..., self.turns] = (turned + math.pi) % (2.0 * math.pi) - math.pi
        return found

    def _expanded(self, step: Step, paths: Paths) -> tuple[Floats, Floats, Floats]:
        """Jacobians of moves (n, T, D, D + k), and of costs gradients and convex Hessians."""
        n, T, k = paths.controls.shape
        D, m, near = len(self.scale), len(self.scale) + k, self._near
        alive = np.flatnonzero(paths.going)
        here = paths.states[:, :-1].reshape(-1, D)[alive]
        aims = paths.controls.reshape(-1, k)[alive]

        def at(*signs: tuple[int, float]) -> tuple[Floats, Floats]:
            moved = np.concatenate([here, aims], axis=1)
            for i, sign in signs:
                moved[:, i] += sign * near[i]
            nexts, paid, _ = step(moved[:, :D], self.box.numbers(moved[:, D:]))
            return nexts, -paid

        costs = at()[1]
        jacobian, gradient = np.empty((len(here), D, m)), np.empty((len(here), m))
        hessian, sums = np.zeros((len(here), m, m)), []
        for i in range(m):
            (up, above), (down, below) = at((i, 1.0)), at((i, -1.0))
            jacobian[:, :, i] = self._difference(up, down) / (2.0 * near[i])
            gradient[:, i] = (above - below) / (2.0 * near[i])
            hessian[:, i, i] = (above + below - 2.0 * costs) / near[i] ** 2
            sums.append(above + below)
            # Most of the work is in what is mixed: beyond five numbers costs are taken as a sum.
            for j in range(i if m <= _MIXED else 0):
                both = at((i, 1.0), (j, 1.0))[1] + at((i, -1.0), (j, -1.0))[1]
                mixed = (both - sums[i] - sums[j] + 2.0 * costs) / (2.0 * near[i] * near[j])
                hessian[:, i, j] = hessian[:, j, i] = mixed
        units = np.append(self.scale, np.ones(k))
        values, vectors = np.linalg.eigh(hessian * units[:, np.newaxis] * units)
        convex = (vectors * np.maximum(values, 0.0)[:, np.newaxis]) @ vectors.swapaxes(1, 2)
        found = jacobian, gradient, convex / units[:, np.newaxis] / units
        spread = [np.zeros((n * T, *part.shape[1:])) for part in found]
        for whole, part in zip(spread, found, strict=True):
            whole[alive] = part
        moves, slopes, curves = (part.reshape(n, T, *part.shape[1:]) for part in spread)
        return moves, slopes, curves

    def _backwards(
        self, moves: Floats, slopes: Floats, curves: Floats, controls: Floats, damping: Floats
    ) -> tuple[Floats, Floats]:
        """Changes of controls (n, T, k), within the box, and gains (n, T, k, D)."""
        n, T, k = controls.shape
        D = moves.shape[2]
        v, V = np.zeros((n, D)), np.zeros((n, D, D))
        changes, gains = np.zeros((n, T, k)), np.zeros((n, T, k, D))
        ridge = damping[:, np.newaxis, np.newaxis] * np.eye(k)
        for t in range(T - 1, -1, -1):
            turned = moves[:, t].swapaxes(1, 2)
            q = slopes[:, t] + self.discount * np.einsum("nij,nj->ni", turned, v)
            Q = curves[:, t] + self.discount * turned @ V @ moves[:, t]
            uu, ux, qu = Q[:, D:, D:] + ridge, Q[:, D:, :D], q[:, D:]
            d, free = _within(uu, qu, -1.0 - controls[:, t], 1.0 - controls[:, t])
            K = -np.linalg.solve(*_freed(uu, np.where(free[..., np.newaxis], ux, 0.0), free))
            xu, followed = ux.swapaxes(1, 2), K.swapaxes(1, 2)
            changes[:, t], gains[:, t] = d, K
            slope = np.einsum("nij,nj->ni", uu, d) + qu
            v = q[:, :D] + np.einsum("nij,nj->ni", followed, slope) + np.einsum("nij,nj->ni", xu, d)
            V = Q[:, :D, :D] + followed @ uu @ K + followed @ ux + xu @ K
            V = 0.5 * (V + V.swapaxes(1, 2))
        return changes, gains


def _freed(square: Floats, rest: Floats, free: Bools) -> tuple[Floats, Floats]:
    """A system of equations in what is free alone; of the others, x = rest."""
    both = free[:, :, np.newaxis] & free[:, np.newaxis]
    return np.where(both, square, np.eye(free.shape[1])), rest


def _within(square: Floats, slope: Floats, low: Floats, high: Floats) -> tuple[Floats, Bools]:
    """The least of d' square d / 2 + slope' d in boxes, about, and which of d are not at an end.

    What would be outside is put to its end, and the others are solved for again.
    """
    free, d = np.ones(slope.shape, dtype=np.bool_), np.zeros_like(slope)
    while True:
        bound = np.where(free, 0.0, d)
        rest = -slope - np.einsum("nij,nj->ni", square, bound)
        solved = np.linalg.solve(*_freed(square, np.where(free, rest, bound)[..., None], free))
        d = np.array(solved[..., 0], dtype=np.float64)
        outside = free & ((d < low) | (d > high))
        d = np.clip(d, low, high)
        if not outside.any():
            return d, free
        free &= ~outside


def _thinned(points: Floats) -> Ints:
    """The first point of every cell, of cells as small as leave few enough."""
    size = 1e-3
    while True:
        first: Ints = np.sort(np.unique(np.rint(points / size), axis=0, return_index=True)[1])
        if len(first) <= _POINTS:
            return first
        size *= 1.4
