"""Simulators as they were published: draws of a released model, in which anything can be trained.

An archive of the kind ``"simulator"`` has ``horizon``, ``n_actions`` and K draws of a model of how
episodes move and pay; its ``model`` says of which:

* ``"finite"``: ``transitions`` (K, L, S, A, S), ``rewards`` (K, L, S, A), which are means,
  ``start`` (S,), and ``known`` (L, S, A), how far a cell was visited, from 0 to 1. Of L rows of
  steps the first is that of all steps before the last L - 1.

    simulator = published.load("sim.npz")
    episodes = simulator.begin(100, numpy.random.default_rng(0))  # each in one draw of the model
    rewards, ended, known = episodes.step(actions)  # and episodes.states are the next ones
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .policies import Arrays

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Moves = tuple[NDArray[Any], Floats, Bools, Bools]


@dataclass(frozen=True, eq=False)
class PublishedSimulator:
    """A released model, with what its file says of itself; a subclass moves the episodes."""

    stored: Arrays
    horizon: int  # steps of an episode
    n_actions: int  # 0 where actions are vectors
    version: int  # which model of its agent it is

    arrays: ClassVar[tuple[str, ...]] = ()
    """Names of what a file has, beside its metadata: anything else is refused."""

    @property
    def draws(self) -> int:
        """How many models of the posterior there are."""
        raise NotImplementedError

    def begin(self, episodes: int, rng: np.random.Generator) -> SimulatedEpisodes:
        """Episodes side by side, each in a draw of the model of its own."""
        return SimulatedEpisodes(self, episodes, rng)

    def first(self, drawn: Ints, rng: np.random.Generator) -> NDArray[Any]:
        """First states of episodes in some draws."""
        raise NotImplementedError

    def move(self, at: SimulatedEpisodes, actions: NDArray[Any]) -> Moves:
        """Next states, rewards, whether episodes end there, and whether users were ever here."""
        raise NotImplementedError


class SimulatedEpisodes:
    """Episodes side by side in a simulator.

    Attributes:
        drawn: In which draw of the model each of them is, (n,).
        steps: Steps that they have had, (n,).
        states: Where they are.
    """

    def __init__(
        self, simulator: PublishedSimulator, episodes: int, rng: np.random.Generator
    ) -> None:
        self.simulator, self.rng = simulator, rng
        self.drawn: Ints = rng.integers(simulator.draws, size=episodes)
        self.steps: Ints = np.zeros(episodes, dtype=np.int64)
        self.states = simulator.first(self.drawn, rng)

    @property
    def truncated(self) -> Bools:
        """Which episodes have had all their steps."""
        return self.steps >= self.simulator.horizon

    def renew(self, which: Bools) -> None:
        """Begins some of them again, in other draws."""
        fresh = self.simulator.begin(int(which.sum()), self.rng)
        self.drawn[which], self.steps[which] = fresh.drawn, 0
        self.states[which] = fresh.states

    def step(self, actions: NDArray[Any]) -> tuple[Floats, Bools, Bools]:
        """Rewards, which episodes end there, and whether users were ever where they were."""
        self.states, rewards, ended, known = self.simulator.move(self, np.asarray(actions))
        self.steps = self.steps + 1
        return rewards, ended, known


class FiniteSimulator(PublishedSimulator):
    """Draws of a world with finitely many states and actions; pays the mean rewards of its draw."""

    arrays = ("transitions", "rewards", "start", "known")

    @property
    def draws(self) -> int:
        """How many worlds there are."""
        return len(self.stored["rewards"])

    @cached_property
    def _cumulative(self) -> Floats:
        return _cumulative(self.stored["transitions"])

    @cached_property
    def _start(self) -> Floats:
        return _cumulative(self.stored["start"])

    def first(self, drawn: Ints, rng: np.random.Generator) -> NDArray[Any]:
        """States by the distribution of the first."""
        return (rng.random((len(drawn), 1)) >= self._start).sum(axis=1)

    def move(self, at: SimulatedEpisodes, actions: NDArray[Any]) -> Moves:
        """Next states by the rows of draws, and mean rewards; only the horizon ends episodes."""
        steps = np.minimum(at.steps, self.horizon - 1)
        rows = np.maximum(0, steps - self.horizon + self._cumulative.shape[1])
        cells = rows, at.states, actions.astype(np.int64)
        chances = self._cumulative[at.drawn, *cells]
        nexts = (at.rng.random((len(chances), 1)) >= chances).sum(axis=1)
        paid: Floats = self.stored["rewards"][at.drawn, *cells].astype(np.float64)
        known: Bools = self.stored["known"][cells] >= 0.5
        return nexts, paid, np.zeros(len(paid), dtype=np.bool_), known

    def check(self) -> None:
        """Raises a ValueError that names what is wrong with the arrays."""
        moves, paid, start, known = (self.stored[name] for name in self.arrays)
        shape = moves.shape
        fits = len(shape) == 5 and shape[2] == shape[4] and 0 not in shape
        fits = fits and shape[3] == self.n_actions and 1 <= shape[1] <= self.horizon
        found = paid.shape, known.shape, start.shape
        if not fits or found != (shape[:4], shape[1:4], shape[2:3]):
            raise ValueError("arrays of a finite simulator must fit each other")
        for name, rows in (("transitions", moves), ("start", start)):
            if not ((rows >= 0).all() and (np.abs(rows.sum(axis=-1) - 1.0) <= 1e-5).all()):
                raise ValueError(f"{name} must be non-negative and sum to 1")
        if not (np.isfinite(paid).all() and ((known >= 0) & (known <= 1)).all()):
            raise ValueError("rewards must be finite, and known from 0 to 1")


def _cumulative(rows: NDArray[Any]) -> Floats:
    """Chances of this or an earlier outcome; above all uniforms from the last possible one on."""
    sums: Floats = np.cumsum(rows, axis=-1, dtype=np.float64)
    last = rows.shape[-1] - 1 - np.argmax(rows[..., ::-1] > 0, axis=-1)
    sums[np.arange(rows.shape[-1]) >= last[..., np.newaxis]] = 2.0
    return sums


MODELS = {"finite": FiniteSimulator}
_METADATA = {"format", "version", "kind", "model", "horizon", "n_actions", "about", "hash"}
_METADATA |= {"ledger_line", "ledger_head", "signatures"}


def simulator_of(stored: Arrays, *sizes: int) -> PublishedSimulator:
    """The simulator of a file's arrays, checked; sizes are its numbers, in their order."""
    made = MODELS.get(str(stored["model"]))
    if made is None:
        raise ValueError(f"its model is {str(stored['model'])!r}; this loader does not know it")
    if others := set(stored) - {*made.arrays} - _METADATA:
        raise ValueError(f"it has arrays that no simulator has: {', '.join(sorted(others))}")
    simulator = made(stored, *sizes)
    simulator.check()
    return simulator
