"""Learns how states move, as a posterior from private moments, and plans with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tacit.continuous.features import Grid
from tacit.continuous.policy import BoxAlgorithm, QPolicy, box_spec
from tacit.continuous.transition_model import (
    PolynomialFeatures,
    TerminationBox,
    TerminationModel,
    TerminationRegression,
    TransitionPosterior,
)
from tacit.continuous.transition_moments import (
    FIRST_POWER,
    ScaleHistogram,
    StartMoments,
    TerminationHistogram,
    TransitionMoments,
    angles_of,
)
from tacit.core.algorithm import BlockInfo, BlockSizes, NoOptions, Plan, Progress, Queries, Query
from tacit.core.public_file import ReleasedModel
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import check_question
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem

SCALES, ENDS, STARTS = 0.2, 0.3, 0.04
"""Parts of mu^2 spent on scales, in the first block, on ends, where they are learnt, and starts."""

_IN_MEMORY = 4096  # blocks above this size are simulated part by part
_SEARCHED = 1 << 16  # states at which it is looked how far the box of states before an end reaches
_MARGIN = 0.02  # a grid reaches so much of the box beyond where episodes go on
Step = Callable[[Floats, Ints], tuple[Floats, Floats, Bools]]
"""Next states, rewards and which are at an end, of states (n, D) and actions (n,)."""

# Points of a grid along each coordinate, by their number; angles of four take fewer.
_POINTS, _ANGLE = {1: 201, 2: 121, 3: 41, 4: 21}, 15
MOST_COORDINATES = 4
"""Of a grid that is planned on."""
# An action is held for at most so many steps, until most moves are half a cell long.
_HELD, _MOVED = 2, 0.5
_LOOKED_AT = 300
# Iterations end when a sweep changes values by less than this part of a step's largest reward.
_SWEEPS, _PRECISION = 300, 5e-3
_ROWS = 4096  # points that are moved at a time: their features stay in the cache


@dataclass(frozen=True, eq=False)
class MoveState:
    """Posterior of transitions, after the first block, and of ends where they are learnt."""

    moves: TransitionPosterior | None = None
    ends: TerminationModel | None = None
    starts: tuple[Floats, float] | None = None  # moments of first states, summed, and their noise


class ModelPosterior(BoxAlgorithm[MoveState]):
    """Learns how states move, as a posterior from private moments, and plans with it.

    Idea: moves of smooth worlds are almost linear in a few dozen features of state and action, and
    one model of them serves every plan. So users are asked about moves, not about values, and what
    is known of rewards and ends is not asked. At first half of the users try actions, held for a
    while; the others follow the plan, but for bursts.

    Private statistics: of the first block :class:`~.transition_moments.ScaleHistogram`, how far
    states move, with a fifth of its budget; of every block, once, the
    :class:`~.transition_moments.TransitionMoments` of steps, in a metric in which a step is as long
    as what it could tell. Where ends have to be learnt, a part of every block's budget asks for
    them: ``TerminationHistogram``, as long as a box explains where episodes end, or else
    ``TerminationMoments``, for a regression.

    Plans: value iteration on a grid, of at most four coordinates.

    Guarantee: that of the curator for a user's whole episode, under joint DP.

    Cost: a sum of outer products per block, and value iteration on at most 194,481 points.

    >>> from tacit import JointDP, ModelPosterior
    >>> from tacit.continuous import line
    >>> agent = ModelPosterior(line().spec, 1100, JointDP(10.0, 1e-6), noise_seed=0)
    >>> agent.algorithm.why
    'learnt rewards, known ends; 5 blocks (auto)'
    """

    name: ClassVar[str] = "model_posterior"

    def __init__(self, problem: Problem, options: NoOptions) -> None:
        self.spec = box_spec(problem)
        self.learns_rewards = getattr(self.spec, "reward", None) is None
        self.learns_ends = self.spec.may_end and getattr(self.spec, "ends", None) is None
        super().__init__(problem, options)

    def init(self) -> MoveState:
        """No posterior yet, and no scales of moves."""
        return MoveState()

    def learn(
        self, state: MoveState, plan: Plan, block: BlockInfo, rng: Generator
    ) -> Queries[MoveState]:
        """Moments of steps; first, once, of how far states move. Args: see Algorithm.learn."""
        moves, ends, left = state.moves, state.ends, 1.0
        if moves is None:
            release = yield Query(self._how_far(), share=SCALES)
            moves, ends = self._prior(release.parts)
            left = 1.0 - SCALES
        first = yield Query(self._starts(moves), share=STARTS * left)
        seen, noise = state.starts or (0.0, 0.0)
        std = math.hypot(noise, block.users * float(np.max(first.std["moments"])))
        starts = seen + block.users * first["moments"], std
        asked = None if ends is None else (yield Query(ends.query(self.spec), share=ENDS * left))
        metric, scales, _ = moves.metric()
        known = self.spec, moves.features, metric, moves.model, scales
        moments = yield Query(TransitionMoments(*known, self.learns_rewards))
        if ends is not None and asked is not None:
            ends = ends.after(asked)
        std = float(np.max(moments.std["moments"]))
        return MoveState(moves.after(moments["moments"], std, block.users), ends, starts)

    def _starts(self, moves: TransitionPosterior) -> StartMoments:
        return StartMoments(self.spec, moves.features.lows, moves.features.highs)

    def simulator(self, state: MoveState, draws: int, rng: Generator) -> ReleasedModel:
        """Draws of how states move, what they pay, and where episodes end."""
        moves, ends, spec = state.moves, state.ends, self.spec
        if moves is None or state.starts is None:
            raise InvalidArgument("nothing was released yet: there is no model to simulate")
        if not self.learns_rewards or (spec.may_end and ends is None):
            raise InvalidArgument("rewards and ends that are functions are code: leave them out")
        start, spread = self._starts(moves).distribution(*state.starts)
        lows, highs = np.array(spec.lows), np.array(spec.highs)
        far = np.full(spec.dimension, np.inf)
        arrays = (
            moves.drawn(draws, rng)
            | moves.features.tables
            | {
                "reward_range": np.array(spec.reward_range),
                "angles": np.flatnonzero(angles_of(spec)),
                "lows": np.maximum(lows, moves.features.lows),
                "highs": np.minimum(highs, moves.features.highs),
                "start": start,
                "spread": spread,
                "going_lows": -far,
                "going_highs": far,
                "signs": np.zeros(len(moves.features.products)),
            }
        )
        if ends is not None and ends.boxed:
            arrays["going_lows"], arrays["going_highs"] = ends.box.bounds
        elif ends is not None:
            arrays["signs"] = ends.signs.weights
        return ReleasedModel("moves", arrays, spec.horizon, spec.actions)

    def _how_far(self) -> ScaleHistogram:
        return ScaleHistogram(self.spec, self.learns_rewards)

    def _prior(
        self, scales: Mapping[str, Floats]
    ) -> tuple[TransitionPosterior, TerminationModel | None]:
        """Priors of transitions and ends, given released scales."""
        lows, highs = _open_box(self.spec, scales.get("sizes"))
        features = PolynomialFeatures.of(self.spec, lows, highs)
        half = 0.5 * (highs - lows)
        if self.learns_rewards:
            low, high = self.spec.reward_range
            half = np.append(half, 0.5 * (high - low))
        # Weights are believed to lead as far as four root mean squares of a move.
        far = 4.0 * 2.0 ** (scales["moves"].argmax(axis=1) + FIRST_POWER)
        ends = None
        if self.learns_ends:
            alone = replace(features, pushes=np.zeros((self.spec.actions, 0)))
            ends = TerminationModel(
                TerminationBox.of(TerminationHistogram(self.spec, lows, highs)),
                TerminationRegression.of(alone),
            )
        # Without noise, what features miss of rewards is the largest error.
        misfit = self.learns_rewards and not self.privacy.private
        return TransitionPosterior.prior(features, np.minimum(far, half), misfit), ends

    def step(self, state: MoveState, states: Floats, actions: Ints) -> tuple[Floats, Floats, Bools]:
        """Next states, rewards, and which episodes are over then, by the posterior means."""
        moves, ends = state.moves, state.ends
        assert moves is not None  # noqa: S101
        spec: Any = self.spec
        said = moves.features(states, actions) @ moves.model
        D, half = spec.dimension, 0.5 * (moves.features.highs - moves.features.lows)
        nexts = states + np.clip(said[:, :D], -half, half)
        turns = angles_of(spec)
        nexts[:, turns] = (nexts[:, turns] + math.pi) % (2.0 * math.pi) - math.pi
        nexts = np.clip(nexts, spec.lows, spec.highs)
        if self.learns_rewards:
            rewards = np.clip(said[:, D] + 0.5 * sum(spec.reward_range), *spec.reward_range)
        else:
            rewards = spec.rewards(states, actions, nexts)
        if ends is not None:
            return nexts, rewards, ends(nexts)
        over = spec.ended(nexts) if hasattr(spec, "ended") else np.zeros(len(nexts), np.bool_)
        return nexts, rewards, over

    def plan(self, state: MoveState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The best actions in the model, and a policy that explores. Args: see Algorithm.plan."""
        if state.moves is None:
            first = self.behaviour()
            return Plan(first, first)
        # The grid and the values of states that the plan before ended with.
        grid, values = (None, None) if last is None or last.memory is None else last.memory
        planner = self._planner(state, grid)
        hoping = self._hoping(state, rng)
        values = values if grid == planner.grid else None
        weights, values = planner.plan(partial(self.step, state), rng, values)
        greedy = QPolicy.draw(planner.grid, weights, rng)
        known = hoping or (greedy.features, greedy.weights)
        served = QPolicy(*known, 0.0, 0, greedy.preference, *state.moves.exploration())
        return Plan(served, greedy, (planner.grid, values))

    def _planner(self, state: MoveState, before: Grid | None) -> GridPlanner:
        """A grid where episodes go on, as far as is known; of a box given up it stays."""
        assert state.moves is not None  # noqa: S101
        if state.ends is not None and state.ends.boxed:
            box = state.ends.box
            lows, highs = _with_margin(box.edges, box.lows, box.highs)
        elif before is not None:
            lows, highs = np.array(before.lows), np.array(before.highs)
        else:
            features = state.moves.features
            lows, highs = _before_ends(self.spec, features.lows, features.highs)
        return GridPlanner(self.spec, lows, highs)

    def _hoping(self, state: MoveState, rng: Generator) -> tuple[Grid, Floats] | None:
        """Grid and values of users who hope for ends that were not seen yet, if there is hope."""
        ends = state.ends
        if ends is None or not ends.boxed or (hope := ends.box.hope) is None:
            return None
        lows, highs = hope

        def step(states: Floats, actions: Ints) -> tuple[Floats, Floats, Bools]:
            nexts, rewards, over = self.step(state, states, actions)
            return nexts, rewards, over | ((nexts < lows) | (nexts > highs)).any(axis=1)

        planner = GridPlanner(self.spec, *_with_margin(ends.box.edges, lows, highs))
        return planner.grid, planner.plan(step, rng)[0]

    def behaviour(self) -> QPolicy:
        """Random actions that are held for a while."""
        return replace(self.uniform(), explorers=1.0)

    def data_format(self, at: Progress) -> str:
        """One by one, unless memory is short."""
        return "streamed" if self.block_users(at) > _IN_MEMORY else "episodes"

    @property
    def why(self) -> str:
        """Which of rewards and ends are learnt and which are known, in words."""
        rewards, ends = (
            "learnt" if x else "known" for x in (self.learns_rewards, self.learns_ends)
        )
        blocks = f"{self.schedule.releases} blocks ({self.schedule.name})"
        return f"{rewards} rewards, {ends} ends; {blocks}"

    def _check(self) -> None:
        if self.spec.dimension > MOST_COORDINATES:
            raise InvalidArgument(
                f"plans are for at most {MOST_COORDINATES} coordinates: take fitted_functional_q"
            )
        if self.privacy.local:
            raise InvalidArgument(
                "a device's own noise would drown a thousand moments: take "
                "fitted_functional_q:serve=all, or JointDP"
            )
        check_question(self._how_far(), self.privacy, "scales")

    def _block_sizes(self) -> BlockSizes:
        first = max(16, math.ceil(120.0 / self.privacy.episode_mu))
        return BlockSizes(first=first, growth=2.0)


def _with_margin(
    edges: tuple[Floats, Floats], lows: Floats, highs: Floats
) -> tuple[Floats, Floats]:
    """Bounds with a little more, as far as a box reaches."""
    first, last = edges
    margin = _MARGIN * (last - first)
    return np.maximum(first, lows - margin), np.minimum(last, highs + margin)


def _open_box(spec: BoxSpec, sizes: Floats | None) -> tuple[Floats, Floats]:
    """The box of states, closed where the spec leaves it open by released sizes."""
    lows, highs = np.array(spec.lows), np.array(spec.highs)
    if sizes is None:
        return lows, highs
    opened = ~np.isfinite(np.array([lows, highs])).all(axis=0)
    size = 1.5 * 2.0 ** (sizes.argmax(axis=1) + FIRST_POWER)
    lows[opened] = np.maximum(lows[opened], -size)
    highs[opened] = np.minimum(highs[opened], size)
    return lows, highs


def _before_ends(spec: Any, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """The part of the box in which episodes are not over, and a little more; public."""
    if getattr(spec, "ends", None) is None:
        return lows, highs
    rng = np.random.default_rng(0)
    states = rng.uniform(lows, highs, (_SEARCHED, len(lows)))
    going = states[~spec.ended(states)]
    if not len(going):
        return lows, highs
    return _with_margin((lows, highs), going.min(axis=0), going.max(axis=0))


class GridPlanner:
    """Values of actions at the points of a grid, by a model."""

    def __init__(self, spec: BoxSpec, lows: Floats, highs: Floats) -> None:
        shape = _shape(spec.dimension, angles_of(spec))
        self.grid = Grid(tuple(lows.tolist()), tuple(highs.tolist()), shape)
        self.spec = spec
        self._box, self._table = self.grid.for_loops()
        self._points = self.grid.points

    def plan(
        self, step: Step, rng: Generator, values: NDArray[np.float32] | None = None
    ) -> tuple[Floats, NDArray[np.float32]]:
        """Values of actions, (A, m), and of states, (m,), which iterations may begin with."""
        from tacit.continuous.agent_loops import iterate, locate

        A, m, D = self.spec.actions, self.grid.size, self.spec.dimension
        held = self._choose_held(step, rng)
        paid, kept = np.empty((2, m, A), dtype=np.float32)
        cells, parts = np.empty((A, m), dtype=np.int32), np.empty((A, m, D), dtype=np.float32)
        for action in range(A):
            ends, paid[:, action], kept[:, action] = self._hold(step, action, held)
            locate(ends, self._box, self._table, cells[action], parts[action])
        cells, parts = np.ascontiguousarray(cells.T), np.ascontiguousarray(parts.swapaxes(0, 1))
        best = np.empty((m, A), dtype=np.float32)
        precision = _PRECISION * (self.spec.reward_range[1] - self.spec.reward_range[0]) * held
        strides = np.ascontiguousarray(self._table[:, 1])
        found = np.zeros(m, dtype=np.float32) if values is None else values.copy()
        iterate(paid, kept, cells, parts, strides, _SWEEPS, precision, found, best)
        return best.T.astype(np.float64), found

    def _hold(self, step: Step, action: int, held: int) -> tuple[Floats, Floats, Floats]:
        """An action held: where it leads, what it pays, and how much the values there count."""
        m = len(self._points)
        reached, paid, kept = np.empty_like(self._points), np.zeros(m), np.ones(m)
        for first in range(0, m, _ROWS):
            some = slice(first, first + _ROWS)
            here = self._points[some]
            for _ in range(held):
                here, rewards, over = step(here, np.full(len(here), action))
                paid[some] += kept[some] * rewards
                kept[some] = np.where(over, 0.0, self.spec.discount * kept[some])
            reached[some] = here
        return reached, paid, kept

    def _choose_held(self, step: Step, rng: Generator) -> int:
        """Steps until the median move is half a cell along every coordinate, if that is soon."""
        lows, highs = np.array(self.grid.lows), np.array(self.grid.highs)
        start = here = rng.uniform(lows, highs, (_LOOKED_AT, len(lows)))
        taken = rng.integers(self.spec.actions, size=_LOOKED_AT)
        cell, turns = (highs - lows) / (np.array(self.grid.shape) - 1), angles_of(self.spec)
        for held in range(1, _HELD + 1):
            here = step(here, taken)[0]
            moved = here - start
            moved[:, turns] = (moved[:, turns] + math.pi) % (2.0 * math.pi) - math.pi
            if np.median(np.abs(moved) / cell, axis=0).min() >= _MOVED:
                return held
        return _HELD


def _shape(dimension: int, angles: Bools) -> tuple[int, ...]:
    """Points along each coordinate.

    >>> _shape(4, np.array([True, True, False, False]))
    (15, 15, 29, 29)
    """
    points, turns = _POINTS[dimension], int(angles.sum())
    if dimension < MOST_COORDINATES or turns in (0, dimension):
        return (points,) * dimension
    others = (points**dimension / _ANGLE**turns) ** (1.0 / (dimension - turns))
    return tuple(_ANGLE if turn else int(others) for turn in angles.tolist())
