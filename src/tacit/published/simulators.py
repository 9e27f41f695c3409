"""Simulators as they were published: draws of a released model, in which anything can be trained.

An archive of the kind ``"simulator"`` has ``horizon``, ``n_actions`` and K draws of a model of how
episodes move and pay; its ``model`` says of which:

* ``"finite"``: ``transitions`` (K, L, S, A, S), ``rewards`` (K, L, S, A), which are means,
  ``start`` (S,), and ``known`` (L, S, A), how far a cell was visited, from 0 to 1. Of L rows of
  steps the first is that of all steps before the last L - 1.
* ``"moves"``, of vectors: ``weights`` (K, p, D + 1) of features, for what a step changes and for
  the reward, from the middle of ``reward_range``; ``noise`` (D,); the box ``lows`` and ``highs``,
  ``angles``, and the features: ``middles`` and ``halves`` of coordinates, ``pushes`` (A, k), and
  tables (:func:`polynomial`). Episodes go on between ``going_lows`` and ``going_highs``, and where
  ``signs`` of features of the state are at most one half. First states are normal around ``start``
  with ``spread`` (D, D).

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
        """How many models of the posterior there are: the length of its first array."""
        return len(self.stored[self.arrays[0]])

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

    @cached_property
    def _cumulative(self) -> Floats:
        return _cumulative(self.stored["transitions"])

    @cached_property
    def _start(self) -> Floats:
        return _cumulative(self.stored["start"])

    def first(self, drawn: Ints, rng: np.random.Generator) -> NDArray[Any]:
        """States by the distribution of the first."""
        return np.asarray((rng.random((len(drawn), 1)) >= self._start).sum(axis=1))

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


class MoveSimulator(PublishedSimulator):
    """Draws of a model of smooth moves, rewards and ends, on vectors."""

    arrays: ClassVar[tuple[str, ...]] = (
        *("weights", "noise", "reward_range", "lows", "highs", "angles", "pushes", "start"),
        *("spread", "going_lows", "going_highs", "signs", "middles", "halves", "kinds"),
        *("coordinates", "parents", "factors", "pushed"),
    )

    def first(self, drawn: Ints, rng: np.random.Generator) -> NDArray[Any]:
        """Normal states, cut to where episodes go on."""
        s = self.stored
        away = rng.standard_normal((len(drawn), len(s["start"]))) @ s["spread"].T
        lows, highs = (
            np.maximum(s["lows"], s["going_lows"]),
            np.minimum(s["highs"], s["going_highs"]),
        )
        return np.clip(s["start"] + away, lows, highs)

    def move(self, at: SimulatedEpisodes, actions: NDArray[Any]) -> Moves:
        """Moves and rewards by the draws' weights, and the same noise in all."""
        s, states = self.stored, at.states
        (low, high), D = s["reward_range"], states.shape[1]
        f = polynomial(states, s["pushes"][actions.astype(np.int64)], s)
        said = np.einsum("np,npo->no", f, s["weights"][at.drawn])
        half = 0.5 * (s["highs"] - s["lows"])
        moved = said[:, :D] + s["noise"] * at.rng.standard_normal(states.shape)
        nexts = states + np.clip(moved, -half, half)
        turns = s["angles"].astype(np.int64)
        nexts[:, turns] = (nexts[:, turns] + np.pi) % (2.0 * np.pi) - np.pi
        nexts = np.clip(nexts, s["lows"], s["highs"])
        ended = ((nexts < s["going_lows"]) | (nexts > s["going_highs"])).any(axis=1)
        if s["signs"].any():
            ended |= polynomial(nexts, np.zeros((len(nexts), 0)), s) @ s["signs"] > 0.5
        paid = np.clip(said[:, D] + 0.5 * (low + high), low, high)
        return nexts, paid, ended, np.ones(len(paid), dtype=np.bool_)

    def check(self) -> None:
        """Raises a ValueError that names what is wrong with the arrays."""
        s = self.stored
        K, p, outputs = s["weights"].shape
        D, fits = outputs - 1, K > 0
        for name in ("start", "noise", "lows", "highs", "going_lows", "going_highs", "middles"):
            fits = fits and s[name].shape == (D,) and not np.isnan(s[name]).any()
        k, m = s["pushes"].shape[1], len(s["parents"])
        fits = fits and len(s["pushes"]) == self.n_actions and p == m + k * len(s["pushed"])
        fits = fits and s["spread"].shape == (D, D) and s["signs"].shape == (m,)
        finite = (name for name in self.arrays if not name.startswith("going"))
        if not fits or not all(np.isfinite(s[name]).all() for name in finite):
            raise ValueError("arrays of a simulator of moves must be finite, and fit each other")
        for name, most in (("parents", m), ("factors", len(s["kinds"])), ("coordinates", D)):
            table = s[name]
            if table.dtype.kind not in "iu" or table.min() < 0 or table.max() >= most:
                raise ValueError(f"{name} must be whole numbers from 0 to {most - 1}")


def polynomial(states: Floats, pushes: Floats, tables: Arrays) -> Floats:
    """Features (n, p) of states (n, D) under pushes (n, k).

    Factor j is coordinate ``coordinates[j]``, scaled and cut at 2 (``kinds`` 0), its sine (1) or
    its cosine (2). The first feature is 1, feature i that of ``parents[i]`` times ``factors[i]``;
    those of the numbers ``pushed`` come again, times each push.
    """
    kinds, x = tables["kinds"], states[:, tables["coordinates"]]
    at = tables["coordinates"]
    z = np.clip((x - tables["middles"][at]) / tables["halves"][at], -2.0, 2.0)
    z = np.where(kinds == 0, z, np.where(kinds == 1, np.sin(x), np.cos(x)))
    own = np.ones((len(states), len(tables["parents"])))
    for i in range(1, own.shape[1]):
        own[:, i] = own[:, tables["parents"][i]] * z[:, tables["factors"][i]]
    times = pushes[:, :, np.newaxis] * own[:, np.newaxis, tables["pushed"]]
    return np.concatenate([own, times.reshape(len(states), -1)], axis=1)


def _cumulative(rows: NDArray[Any]) -> Floats:
    """Chances of this or an earlier outcome; above all uniforms from the last possible one on."""
    sums: Floats = np.cumsum(rows, axis=-1, dtype=np.float64)
    last = rows.shape[-1] - 1 - np.argmax(rows[..., ::-1] > 0, axis=-1)
    sums[np.arange(rows.shape[-1]) >= last[..., np.newaxis]] = 2.0
    return sums


MODELS: dict[str, type[FiniteSimulator | MoveSimulator]] = {
    "finite": FiniteSimulator,
    "moves": MoveSimulator,
}
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
