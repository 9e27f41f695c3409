"""Policies as they were published, and what they compute."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rng = np.random.Generator | None
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PublishedPolicy:
    """A policy as it was published: one of the two arrays, the other is ``None``."""

    probabilities: NDArray[np.float64] | None  # (horizon, states, actions), for a stochastic policy
    actions: NDArray[np.int64] | None  # (horizon, states), for a deterministic one
    n_actions: int  # how many actions there are
    version: int  # which policy of its agent it is
    state_labels: tuple[str, ...] | None = None  # the names of states, where they have any
    action_labels: tuple[str, ...] | None = None

    def act(self, step: int, state: int | str, rng: Rng = None) -> int | str:
        """The action at a step (from 0) in a state, by its label where the state is given so."""
        table = np.asarray(self.probabilities if self.actions is None else self.actions)
        (horizon, states), labels = table.shape[:2], self.state_labels or ()
        at = labels.index(state) if isinstance(state, str) and state in labels else state
        # A negative index would silently mean another step or state.
        if isinstance(at, str) or not (0 <= step < horizon and 0 <= at < states):
            allowed = f"step must be below {horizon} and state below {states}, or one of {labels}"
            raise ValueError(f"{allowed}, got step {step!r} and state {state!r}")
        action = int(table[step, at]) if table.ndim == 2 else draw(table[step, at], rng)
        named = self.action_labels if isinstance(state, str) else None
        return action if named is None else named[action]


@dataclass(frozen=True, eq=False)
class PublishedMixed:
    """Policies as they were published, of which each user follows one."""

    components: tuple[PublishedPolicy, ...]
    weights: NDArray[np.float64]  # with which chance each is drawn
    version: int  # which policy of its agent it is
    component: int | None = None  # the one that an episode follows, once it was drawn

    def drawn(self, rng: Rng) -> PublishedMixed:
        """The same with the component that one episode follows; the episode must say which."""
        return replace(self, component=draw(self.weights, rng))

    def act(self, step: int, state: int | str, rng: Rng = None) -> int | str:
        """The action of the component that was drawn, at a step (from 0) in a state."""
        if self.component is None or not 0 <= self.component < len(self.components):
            raise ValueError("draw a component first: policy = policy.drawn(rng)")
        return self.components[self.component].act(step, state, rng)


@dataclass(frozen=True, eq=False)
class PublishedGains:
    """A published controller: u = gains[step] x, and random signs times ``noise`` for exploring."""

    gains: NDArray[np.float64]  # (horizon, controls, states)
    noise: float  # how far every coordinate of the control is moved up or down
    version: int  # which policy of its agent it is

    def act(self, step: int, state: ArrayLike, rng: Rng = None) -> NDArray[np.float64]:
        """The control at a step (from 0) in a state; ``rng`` is used where there is noise."""
        x = np.asarray(state, dtype=np.float64)
        horizon, controls, states = self.gains.shape
        if not 0 <= step < horizon or x.shape != (states,):
            got = f"got step {step!r} and shape {x.shape}"
            raise ValueError(f"step must be below {horizon} and state have {states} numbers, {got}")
        control: NDArray[np.float64] = self.gains[step] @ x
        if self.noise > 0.0:
            signs = 2.0 * drawing(rng).integers(2, size=controls) - 1.0
            control = control + self.noise * signs
        return control


@dataclass(frozen=True, eq=False)
class PublishedValues:
    """A published value function; its policy takes the best action, or now and then any."""

    weights: NDArray[np.float64]  # (actions, features)
    epsilon: float  # the probability of a uniform action
    preference: tuple[int, ...]  # all actions, the one that wins ties first
    stored: Arrays  # what the features are made of
    version: int  # which policy of its agent it is

    def values(self, state: ArrayLike) -> NDArray[np.float64]:
        """The values of all actions in a state."""
        x = np.asarray(state, dtype=np.float64)
        size = len(self.stored[corner_name(self.stored)])
        if x.shape != (size,):
            raise ValueError(f"state must be a vector of {size} numbers, got shape {x.shape}")
        # Not a matrix product, which may round equal sums differently.
        sums: NDArray[np.float64] = (self.weights * features(x, self.stored)).sum(axis=1)
        return sums

    def act(self, step: int, state: ArrayLike, rng: Rng = None) -> int:
        """The action in a state; ``rng`` is used if ``epsilon`` > 0. The step does not matter."""
        if self.epsilon > 0.0 and drawing(rng).random() < self.epsilon:
            return int(drawing(rng).integers(len(self.preference)))
        values = self.values(state)
        return max(self.preference, key=lambda action: float(values[action]))


Published = PublishedPolicy | PublishedMixed | PublishedGains | PublishedValues


def features(state: NDArray[np.float64], stored: Arrays) -> NDArray[np.float64]:
    """The features of a state by one of two maps; zeros where the state is not finite.

    ``"grid"``: weights of multilinear interpolation on a regular grid from ``lows`` to ``highs``
    with ``shape`` points. ``"polynomial"``: all monomials up to ``degree`` of coordinates over
    ``scales``, clipped at ``clip``.
    """
    if str(stored["features"]) == "polynomial":
        clip = float(stored["clip"])
        z = np.clip(state / stored["scales"], -clip, clip)
        monomials = [
            factors
            for k in range(int(stored["degree"]) + 1)
            for factors in itertools.combinations_with_replacement(range(len(state)), k)
        ]
        values = np.array([np.prod(z[list(factors)]) for factors in monomials])
    else:
        lows, highs = stored["lows"], stored["highs"]
        x = (np.clip(np.nan_to_num(state), lows, highs) - lows) / (highs - lows)
        values = np.ones(1)
        for i, position in enumerate(x.tolist()):
            points = int(stored["shape"][i])
            along = np.maximum(0.0, 1.0 - np.abs(position * (points - 1) - np.arange(points)))
            values = (values[:, np.newaxis] * along).ravel()
    return values if np.isfinite(state).all() else np.zeros_like(values)


def drawing(rng: Rng) -> np.random.Generator:
    """A generator where one is needed."""
    if rng is None:
        raise ValueError("this policy draws its actions: give rng, numpy.random.default_rng()")
    return rng


def draw(row: NDArray[np.float64], rng: Rng) -> int:
    """An index with the probabilities of a row."""
    rng = drawing(rng)
    possible = np.flatnonzero(row)
    # Rounding can leave the sum below 1; what has probability zero is never drawn.
    index = np.searchsorted(np.cumsum(row[possible]), rng.random(), side="right")
    return int(possible[min(int(index), len(possible) - 1)])


def corner_name(stored: Arrays) -> str:
    """Name of an array with a number for each coordinate of a state."""
    return "scales" if str(stored["features"]) == "polynomial" else "lows"
