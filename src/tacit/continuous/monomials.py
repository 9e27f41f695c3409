"""Features that moves of smooth states are linear in: monomials, and pushes times a few of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.privacy.statistic import Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

# The largest degree, and how many features there may be for it to be so.
_DEGREE, _MOST = 3, 128


@dataclass(frozen=True, eq=False)
class Monomials:
    """Features of a state and an action, p of them, made of public numbers.

    A coordinate is scaled to [-1, 1], from ``lows`` to ``highs``, and clipped to twice that; an
    angle counts as its sine and its cosine. The features are all products of up to three of these
    (of two or one where there would be more than 128), in which a cosine occurs at most once; and
    the action's push times those of degree at most 1.
    """

    lows: Floats
    highs: Floats
    angles: tuple[int, ...]
    pushes: Floats  # (A, k)

    @classmethod
    def of(cls, spec: BoxSpec, lows: Floats, highs: Floats) -> Monomials:
        """For what is known of a world; pushes are contrasts of actions where nothing is."""
        known = getattr(spec, "pushes", None)
        pushes = _contrasts(spec.actions) if known is None else np.array(known, dtype=np.float64)
        return cls(lows, highs, getattr(spec, "angles", ()), pushes)

    @cached_property
    def _simple(self) -> list[tuple[int, int]]:
        """What is multiplied: 0 for a scaled coordinate, 1 for its sine, 2 for its cosine."""
        found: list[tuple[int, int]] = []
        for i in range(len(self.lows)):
            found += [(1, i), (2, i)] if i in self.angles else [(0, i)]
        return found

    @cached_property
    def products(self) -> list[tuple[int, ...]]:
        """Which are multiplied in each feature without a push."""
        simple = self._simple
        for degree in range(_DEGREE, 0, -1):
            found = [
                chosen
                for k in range(degree + 1)
                for chosen in itertools.combinations_with_replacement(range(len(simple)), k)
                if all(simple[v][0] != 2 or chosen.count(v) == 1 for v in chosen)
            ]
            if len(found) + self.pushes.shape[1] * (len(simple) + 1) <= _MOST or degree == 1:
                return found
        raise AssertionError

    @cached_property
    def degrees(self) -> Ints:
        """Of every feature, (p,), that of the state alone."""
        own = [len(chosen) for chosen in self.products]
        return np.array(own + self.pushes.shape[1] * [own[i] for i in self._pushed], dtype=np.int64)

    @property
    def size(self) -> int:
        """How many features there are, p."""
        return len(self.degrees)

    @cached_property
    def _pushed(self) -> list[int]:
        return [i for i, chosen in enumerate(self.products) if len(chosen) <= 1]

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Ints, Ints, Ints, Ints, Ints]:
        index = {chosen: i for i, chosen in enumerate(self.products)}
        chain = [(index[c[:-1]], c[-1]) if c else (0, 0) for c in self.products]
        kinds, coordinates = np.array(self._simple, dtype=np.int64).T
        parents, factors = np.array(chain, dtype=np.int64).T
        middle, half = 0.5 * (self.lows + self.highs), 0.5 * (self.highs - self.lows)
        order = (kinds, coordinates, parents, factors, np.array(self._pushed, dtype=np.int64))
        contiguous = [np.ascontiguousarray(array) for array in order]
        return middle, half, *contiguous  # type: ignore[return-value]

    def __call__(self, states: Floats, actions: Ints) -> Floats:
        """Features (n, p) of finite states (n, D) and actions (n,)."""
        from tacit.continuous.model_loops import monomials

        out = np.empty((len(states), self.size))
        monomials(np.ascontiguousarray(states), self.pushes[actions], *self._tables, out)
        return out


def _contrasts(actions: int) -> Floats:
    """Orthogonal rows with mean zero that tell actions apart, of length sqrt(A - 1)."""
    values, vectors = np.linalg.eigh(np.eye(actions) - 1.0 / actions)
    return np.ascontiguousarray(vectors[:, values > 0.5] * np.sqrt(actions))
