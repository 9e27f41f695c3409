"""What is known of a mixture: public features, regressions on noisy sums, and models made of them.

P V = p0 V + phi' w with phi = x V: of the features psi of a mixture, p0 is the part that is known
(at the public centre of the weights), x the rest (along the directions in which they are unknown),
and w are the unknown coordinates, in units of the features' scale.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.sizes import Floats, check_bytes

if TYPE_CHECKING:
    from tacit.mixture.spec import MixtureSpec
    from tacit.numerics.regression import BlockSums

Fit = tuple[Floats, Floats]
"""Mean rewards (S, A) and their widths."""
REWARD_VARIANCE = 0.25
"""Rewards in [0, 1] have at most this variance."""
# <v, e - p> has at most |v|^2 times this variance, twice that of a reward.
_MODEL_VARIANCE = 0.5
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

    @classmethod
    def of(cls, sums: BlockSums, gram: str, cross: str) -> Rows:
        """All blocks together."""
        rows = np.ones(len(sums.parts[cross]))
        noise = (sums.noise(name) * rows for name in (gram, cross))
        return cls(sums.scaled(gram), sums.scaled(cross), *noise)

    def first(self, rows: int) -> Rows:
        """The first rows only."""
        return Rows(*(array[:rows] for array in self))

    def pooled(self) -> Rows:
        """Summed over rows."""
        sums = (part.sum(axis=0, keepdims=True) for part in self[:2])
        return Rows(*sums, *(np.sqrt((noise**2).sum(keepdims=True)) for noise in self[2:]))


class Regression:
    """One regularised regression: weights, and widths of linear predictions.

    Lambda = G + Z (``matrix``) and u = g + z (``cross``), true sums with noise and a ridge, give
    w_hat = Lambda^-1 u (the paper's equations 1 and 2). Their noise has the standard deviations
    ``noise``; true weights are at most ``bound`` long, or sqrt(k) times that.
    """

    def __init__(
        self, matrix: Floats, cross: Floats, noise: tuple[float, float], scale: float, bound: float
    ) -> None:
        self._inverse, self._scale = np.linalg.inv(matrix), scale
        self.weights: Floats = self._inverse @ cross
        length = min(float(self.weights @ self.weights), len(cross) * bound**2)
        self._noise = noise[1] ** 2 + noise[0] ** 2 * length

    def width(self, inputs: Floats, variance: float) -> Floats:
        """Widths of <inputs, w> for inputs (..., k) whose targets have this variance.

        A multiple of the standard deviation that sampling and the noise of both sums have.
        """
        flat = inputs.reshape(-1, inputs.shape[-1])
        turned = flat @ self._inverse
        leverage = np.maximum(np.einsum("nk,nk->n", turned, flat), 0.0)
        squares = variance * leverage + self._noise * np.einsum("nk,nk->n", turned, turned)
        widths = self._scale * np.sqrt(squares)
        return np.asarray(widths.reshape(inputs.shape[:-1]), dtype=np.float64)


class MixtureModel(ABC):
    """Estimated transitions and rewards, of every step or one for all, with widths."""

    def __init__(
        self, public: PublicFeatures, weights: Sequence[Floats], rewards: Sequence[Fit]
    ) -> None:
        self._public, self._weights, self._rewards = public, weights, rewards
        self._estimated: dict[int, Floats] = {}

    def rewards(self, step: int) -> Fit:
        """Means and widths at a step, both (S, A)."""
        return self._rewards[min(step, len(self._rewards) - 1)]

    @abstractmethod
    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (j, S, A) of (j, S); widths, perhaps of the first ``wide`` alone."""

    def probabilities(self, step: int) -> Floats:
        """Estimated transitions (S, A, S); rows need not be distributions."""
        at = min(step, len(self._weights) - 1)
        if at not in self._estimated:
            along = np.matmul(self._weights[at], self._public.features)
            self._estimated[at] = self._public.mean + along
        return self._estimated[at]


class RegressionModel(MixtureModel):
    """P V = p0 V + phi' w: next states regressed on features (the paper's equation 1)."""

    def __init__(
        self, public: PublicFeatures, fits: Sequence[Regression], rewards: Sequence[Fit]
    ) -> None:
        self.fits = fits
        super().__init__(public, [fit.weights for fit in fits], rewards)

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """P V and its widths, (j, S, A), for value functions V (j, S); phi = x V is line 7.

        Values are centred, as P of a constant is known. Only the first ``wide`` have widths: the
        others do not cost another reading of the features.
        """
        fit = self.fits[min(step, len(self.fits) - 1)]
        wide = len(values) if wide is None else wide
        middles = (values.max(axis=1) + values.min(axis=1)) / 2.0
        centred = values - middles[:, np.newaxis]
        base, inputs = self._public.apply(centred[:wide])
        means, widths = [], []
        for j, value in enumerate(values):
            if j >= wide:
                mean = self.probabilities(step) @ centred[j]
                width = np.zeros(mean.shape)
            else:
                half = max(float(np.abs(centred[j]).max()), 1e-9)
                mean = base[j] + inputs[j] @ fit.weights
                width = fit.width(inputs[j], _MODEL_VARIANCE * half**2)
            means.append(np.clip(mean + middles[j], value.min(), value.max()))
            widths.append(width)
        return np.array(means), np.array(widths)
