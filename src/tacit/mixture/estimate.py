"""What models of a mixture are made of: public features, and sums with their noise.

P V = p0 V + (x V)' w, with w the unknown coordinates in units of the features' scale. Planning
asks a model for expected next values of every state and action for some value functions, and for
rewards, both with widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.core.sizes import Floats, check_bytes

if TYPE_CHECKING:
    from tacit.mixture.spec import MixtureSpec


Sums = tuple[Mapping[str, Floats], Mapping[str, Floats], float]
"""Sums of a block by name, the standard deviations of their noise, and that of weight 1."""
REWARD_VARIANCE = 0.25
"""Rewards in [0, 1] have at most this variance."""
# So many numbers are multiplied at a time, half a megabyte.
_CACHED = 1 << 16


@dataclass(frozen=True)
class PublicFeatures:
    """What is public of a mixture, in the form that models need."""

    features: Floats  # x, (S, A, k, S), of Frobenius norm at most 1
    mean: Floats  # p0, (S, A, S)
    scale: float  # true features along the directions are ``scale`` times x
    radius: float  # |eta| is at most this; w = scale eta
    horizon: int  # steps of an episode
    support: NDArray[np.bool_]  # which transitions are possible under some weights, (S, A, S)
    # (S, A, m), in units of their largest norm, where rewards are unknown
    reward_features: Floats | None

    @classmethod
    def of(cls, spec: MixtureSpec) -> PublicFeatures:
        """Features along the directions, in units of their largest norm, and p0 at the centre."""
        S, A = spec.states, spec.actions
        check_bytes("features along the directions", (S, A, spec.free, S))
        along = np.ascontiguousarray(
            np.einsum("sadt,dk->sakt", spec.transition_features, spec.directions, optimize=True)
        )
        mean = np.einsum("sadt,d->sat", spec.transition_features, spec.center, optimize=True)
        scale = max(float(np.sqrt((along**2).sum(axis=(2, 3)).max())), 1e-12)
        along /= scale
        support = np.abs(spec.transition_features).sum(axis=2) > 0
        paying = spec.reward_features if spec.known_rewards is None else None
        if paying is not None:
            paying = paying / max(float(np.sqrt((paying**2).sum(axis=2).max())), 1e-12)
        return cls(along, mean, scale, spec.radius, spec.horizon, support, paying)

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.features.shape[2])

    @cached_property
    def informs(self) -> NDArray[np.bool_]:
        """Which transitions depend on the weights, (S, A, S)."""
        return np.asarray(np.abs(self.features).sum(axis=2) > 0)

    def apply(self, values: Floats) -> tuple[Floats, Floats]:
        """For value functions (j, S): p0 V as (j, S, A) and x V as (j, S, A, k).

        The features are read once for all of them, in blocks that stay in the cache: as one
        product of a tall and a narrow matrix it is several times slower.
        """
        S, A, k, _ = self.features.shape
        flat, inputs = self.features.reshape(-1, S), np.empty((len(values), S * A * k))
        rows = max(1, _CACHED // S)
        if len(values) == 1:
            np.matmul(flat, values[0], out=inputs[0])
        else:
            for first in range(0, len(flat), rows):
                block = slice(first, first + rows)
                np.matmul(values, flat[block].T, out=inputs[:, block])
        base = values @ self.mean.reshape(-1, S).T
        return base.reshape(-1, S, A), inputs.reshape(-1, S, A, k)


class Rows(NamedTuple):
    """Noisy sums of a regression, row by row, and the standard deviations of their noise."""

    gram: Floats  # (L, k, k)
    cross: Floats  # (L, k)
    gram_noise: Floats  # (L,), on the diagonal
    cross_noise: Floats  # (L,)

    def first(self, rows: int) -> Rows:
        """The first rows only."""
        return Rows(*(array[:rows] for array in self))

    def pooled(self) -> Rows:
        """Summed over rows."""
        sums = (part.sum(axis=0, keepdims=True) for part in self[:2])
        return Rows(*sums, *(np.sqrt((noise**2).sum(keepdims=True)) for noise in self[2:]))


class RewardEstimate(Protocol):
    """What is known of rewards."""

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Means (S, A) and widths at a step."""


@dataclass(frozen=True)
class KnownMeanRewards:
    """Rewards that are known."""

    table: Floats

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Means (S, A) at a step, and widths of zero."""
        means = self.table[min(step, len(self.table) - 1)]
        return means, np.zeros(means.shape)


class MixtureModel(Protocol):
    """What planning asks of what is known."""

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Means and widths at a step, both (S, A)."""

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (j, S, A) of (j, S); widths, perhaps of the first ``wide`` alone."""

    def probabilities(self, step: int) -> Floats:
        """The estimated transitions (S, A, S); rows need not be distributions."""
