"""A line with gusts: vectors whose moves mix known forecasts, with values by quadrature."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import SimulatedSpec
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import whole_number

# Cells in which values are computed, and points of the rule by which moves are averaged.
_CELLS, _NODES = 1000, 8
_PUSH, _BLUR = 0.15, 0.05
_ACTIONS = 3


class Gust:
    """A forecast: an action pushes by .15 cos(2 pi (a / 3 + phase + twist s)), give or take."""

    def __init__(self, phase: float, twist: float) -> None:
        self._phase, self._twist = phase, twist

    def __call__(self, states: Floats, actions: Ints, rng: np.random.Generator) -> Floats:
        """Next states, drawn."""
        return self.moved(states, actions, rng.uniform(-_BLUR, _BLUR, len(states)))

    def moved(self, states: Floats, actions: Ints, blur: Floats) -> Floats:
        """Next states (n, 1), for what chance adds."""
        place = states[:, 0]
        turn = 2.0 * math.pi * (actions / _ACTIONS + self._phase + self._twist * place)
        return np.clip(place + _PUSH * np.cos(turn) + blur, 0.0, 1.0)[:, np.newaxis]


class GustWorld(VectorWorld):
    """See :func:`gusts`; values are computed on 1,001 points and are linear between them."""

    exchangeable_actions = False
    spec: SimulatedSpec

    def __init__(self, spec: SimulatedSpec, weights: Floats, name: str) -> None:
        super().__init__(spec, name)
        self.weights = weights

    @cached_property
    def optimal_value(self) -> float:
        """The largest value that any policy has, also of those that look at the step."""
        return self._computed(None)

    def _value(self, policy: QPolicy) -> float:
        return self._computed(policy.probabilities(self._points[:, np.newaxis]))

    @cached_property
    def _points(self) -> Floats:
        return np.linspace(0.0, 1.0, _CELLS + 1)

    @cached_property
    def _moves(self) -> Any:
        """Probabilities (A (n + 1), n + 1) of moves between points, sparse."""
        from scipy.sparse import csr_matrix

        points, n = self._points, _CELLS + 1
        nodes, chances = np.polynomial.legendre.leggauss(_NODES)
        rows, columns, weights = [], [], []
        for action in range(_ACTIONS):
            for theta, model in zip(self.weights, self.spec.models, strict=True):
                for node, chance in zip(nodes * _BLUR, chances / 2.0, strict=True):
                    assert isinstance(model, Gust)  # noqa: S101
                    at = model.moved(points[:, np.newaxis], np.full(n, action), np.full(n, node))
                    cell = np.minimum((at[:, 0] * _CELLS).astype(np.int64), _CELLS - 1)
                    part = at[:, 0] * _CELLS - cell
                    for column, share in ((cell, 1.0 - part), (cell + 1, part)):
                        rows.append(action * n + np.arange(n))
                        columns.append(column)
                        weights.append(theta * chance * share)
        entries = tuple(np.concatenate(some) for some in (weights, rows, columns))
        return csr_matrix((entries[0], entries[1:]), shape=(_ACTIONS * n, n))

    def _computed(self, chances: Floats | None) -> float:
        V, paid = np.zeros(_CELLS + 1), self.spec.rewards(self._points[:, np.newaxis])
        for _ in range(self.spec.horizon):
            Q = (self._moves @ (paid + V)).reshape(_ACTIONS, -1).T
            V = Q.max(axis=1) if chances is None else (Q * chances).sum(axis=1)
        return float(np.trapezoid(V, self._points))

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        H = self.spec.horizon
        starts, coins = rng.random((users, 1)), rng.random((H, users))
        models, blur = rng.random((H, users)), rng.uniform(-_BLUR, _BLUR, (H, users))
        which = np.searchsorted(np.cumsum(self.weights)[:-1], models, side="right")
        nobody = np.zeros(users, dtype=np.bool_)

        def advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            there = np.empty_like(here)
            for i, model in enumerate(self.spec.models):
                own = which[step] == i
                assert isinstance(model, Gust)  # noqa: S101
                there[own] = model.moved(here[own], taken[own], blur[step][own])
            return there, nobody

        states, actions, lengths = roll_out(policy, starts, coins, advance)
        rewards = self.spec.rewards(states[:, 1:])
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))


def _near(states: Floats) -> Floats:
    """How near to .7."""
    near: Floats = np.maximum(0.0, 1.0 - 2.0 * np.abs(states[:, 0] - 0.7))
    return near


def gusts(dimension: int = 5, horizon: int = 20, seed: int = 0, samples: int = 64) -> GustWorld:
    """A kite on a line, forecasts of the gusts, and weather that mixes them.

    State:
        A place in [0, 1]; the start is uniform.
    Actions:
        Three. In each of ``dimension`` forecasts, action a moves the kite from s by
        .15 cos(2 pi (a / 3 + phase + twist s)), give or take .05, with phases and twists drawn by
        the seed, and places are clipped to [0, 1]. Every step the weather follows one of the
        forecasts, drawn with weights of which each is half of the next larger one, in an order
        drawn by the seed. Agents have the forecasts as simulators.
    Reward:
        1 - 2 |s' - .7| of the new place, at least 0; known.
    Optimum:
        Depends on the seed. Uniform has less than .7 of it.
    Source:
        Invented for this library.

    >>> world = gusts()
    >>> world.spec.mixed, world.baseline_value < 0.7 * world.optimal_value
    (5, True)
    """
    d, H = whole_number("dimension", dimension), whole_number("horizon", horizon)
    seed = whole_number("seed", seed, least=0)
    if d < 2:
        raise InvalidArgument(f"dimension must be >= 2, got {dimension!r}")
    rng = np.random.default_rng(seed)
    weights = halved(d, rng)
    models = tuple(Gust(*pair) for pair in rng.random((d, 2)).tolist())
    spec = SimulatedSpec(
        (0.0,), (1.0,), _ACTIONS, H, discount=0.9, models=models, reward=_near, samples=samples
    )
    name = f"research.worlds.gusts:dimension={d},horizon={H},seed={seed},samples={spec.samples}"
    return GustWorld(spec, weights, name)


def halved(d: int, rng: np.random.Generator) -> Floats:
    """D weights of which each is half of the next larger one, in random order."""
    weights: Floats = np.exp2(-np.arange(d, dtype=np.float64))
    drawn: Floats = rng.permutation(weights / weights.sum())
    return drawn
