"""What private sums say about next values and rewards of a mixture, and how far off it may be.

P V = p0 V + (x V)' w, with w the unknown coordinates in units of the features' scale. Planning
asks for expected next values of every state and action for some value functions, with widths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.mixture.regularisers import Regulariser

Floats = NDArray[np.float64]

# Rewards in [0, 1] have at most this variance, and <v, e - p> at most |v|^2 times it doubled.
_REWARD_VARIANCE = 0.25
_MODEL_VARIANCE = 0.5
# So many numbers are multiplied at a time, half a megabyte.
_CACHED = 1 << 16
# How often a regression on counts is repeated with the variances that it implies.
_ROUNDS = 2


@dataclass(frozen=True)
class World:
    """What is public of a mixture, in the form that models need.

    Attributes:
        features: x, (S, A, k, S), of Frobenius norm at most 1.
        mean: p0, (S, A, S).
        scale: true features along the directions are ``scale`` times x.
        radius: |eta| is at most this; w = scale eta.
        horizon: steps of an episode.
    """

    features: Floats
    mean: Floats
    scale: float
    radius: float
    horizon: int

    @property
    def free(self) -> int:
        """How many numbers are unknown, k."""
        return int(self.features.shape[2])

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


@dataclass(frozen=True)
class Widths:
    """How widths are made.

    Attributes:
        scale: multiplies practical widths.
        theory: whether widths are those of the theory; then
        failure: the probability that any of them is too small,
        samples: at most so many steps are in a row of sums,
        releases: there are so many releases.
    """

    scale: float
    theory: bool = False
    failure: float = 0.1
    samples: int = 1
    releases: int = 1


class Rewards(Protocol):
    """What is known of rewards."""

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Means (S, A) and widths at a step."""
        ...


@dataclass(frozen=True)
class KnownRewards:
    """Rewards that are known."""

    table: Floats

    def at(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`Rewards`."""
        means = self.table[min(step, len(self.table) - 1)]
        return means, np.zeros(means.shape)


@dataclass(frozen=True)
class Rows:
    """Noisy sums of a regression, row by row, and the standard deviations of their noise.

    Attributes:
        gram: (L, k, k).
        cross: (L, k).
        gram_noise: (L,), on the diagonal.
        cross_noise: (L,).
    """

    gram: Floats
    cross: Floats
    gram_noise: Floats
    cross_noise: Floats

    def first(self, rows: int) -> Rows:
        """The first rows only."""
        arrays = (self.gram, self.cross, self.gram_noise, self.cross_noise)
        return Rows(*(array[:rows] for array in arrays))

    def pooled(self) -> Rows:
        """Summed over rows."""
        return Rows(
            self.gram.sum(axis=0, keepdims=True),
            self.cross.sum(axis=0, keepdims=True),
            np.sqrt((self.gram_noise**2).sum(keepdims=True)),
            np.sqrt((self.cross_noise**2).sum(keepdims=True)),
        )


class Fit:
    """One regression: weights, and widths of linear predictions.

    Theory. With noise of the targets that is sigma-sub-Gaussian in every direction of the inputs
    (E exp(l' x n) <= exp(sigma^2 l' x x' l / 2)), the true weights w with |w| <= W satisfy
    |w_hat - w|_Lambda <= beta = sigma sqrt(2 ln(1/p) + k ln(1 + n / (k smallest)))
    + W sqrt(largest) + shift: the self-normalised bound in the norm of (G + smallest I)^-1, which
    is at least that of Lambda^-1, and Lambda w_hat - Lambda w = sum x n + z - M w.
    """

    def __init__(
        self,
        gram: Floats,
        cross: Floats,
        noise: tuple[float, float],
        regulariser: Regulariser,
        widths: Widths,
        variance: float,
        bound: float,
        rows: int,
    ) -> None:
        p = widths.failure / (2.0 * rows * widths.releases)
        self.regularised = regulariser(gram, noise[0], noise[1], p / 2.0)
        self.matrix = self.regularised.matrix
        self.inverse = np.linalg.inv(self.matrix)
        self.weights: Floats = self.inverse @ cross
        self._widths, self._noise, self._bound = widths, noise, bound
        k = len(cross)
        spread = k * math.log1p(widths.samples / (k * self.regularised.smallest))
        sampling = math.sqrt(variance * (2.0 * math.log(2.0 / p) + spread))
        self.beta = sampling + bound * math.sqrt(self.regularised.largest) + self.regularised.shift

    def width(self, inputs: Floats, variance: float) -> Floats:
        """Widths of <inputs, w> for inputs (..., k) whose targets have this variance."""
        k = self.inverse.shape[0]
        flat = inputs.reshape(-1, k)
        turned = flat @ self.inverse
        leverage = np.maximum(np.einsum("nk,nk->n", turned, flat), 0.0)
        if self._widths.theory:
            widths = self.beta * np.sqrt(leverage)
        else:
            length = min(float(self.weights @ self.weights), k * self._bound**2)
            noise = self._noise[1] ** 2 + self._noise[0] ** 2 * length
            squares = variance * leverage + noise * np.einsum("nk,nk->n", turned, turned)
            widths = self._widths.scale * np.sqrt(squares)
        return np.asarray(widths.reshape(inputs.shape[:-1]), dtype=np.float64)


class LearntRewards:
    """Ridge regression of rewards on their features."""

    def __init__(
        self, features: Floats, rows: Rows, regulariser: Regulariser, widths: Widths
    ) -> None:
        self._features = features
        m = features.shape[2]
        self.fits = [
            Fit(
                rows.gram[i],
                rows.cross[i],
                (float(rows.gram_noise[i]), float(rows.cross_noise[i])),
                regulariser,
                widths,
                _REWARD_VARIANCE,
                math.sqrt(m),
                2 * len(rows.gram),
            )
            for i in range(len(rows.gram))
        ]

    def at(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`Rewards`."""
        fit = self.fits[min(step, len(self.fits) - 1)]
        return self._features @ fit.weights, fit.width(self._features, _REWARD_VARIANCE)


class CountRewards:
    """Regression of rewards on single cells (h, s, a), each with its own noise.

    A cell with n visits, known up to noise t, and reward noise s says R = n <v, omega> + error,
    of variance at most n / 4 + s^2 + t^2 / 4. Cells are weighted by its inverse; those whose visits
    do not stand out of their noise are left out. The prior is rewards of about 1/2 +- 1/2.
    """

    def __init__(
        self,
        features: Floats,
        visits: tuple[Floats, Floats],
        sums: tuple[Floats, Floats],
        known: float,
        scale: float,
        pooled: bool,
    ) -> None:
        (n, visit_noise), (paid, reward_noise) = visits, sums
        used = (n > known * visit_noise) & (n > 0)
        step, state, action = np.nonzero(used)
        m = features.shape[2]
        error = n * _REWARD_VARIANCE + reward_noise**2 + _REWARD_VARIANCE * visit_noise**2
        weights = 1.0 / error[used]
        groups = [np.ones(len(step), bool)] if pooled else [step == h for h in range(len(n))]
        self._fits: list[tuple[Floats, Floats]] = []
        for here in groups:
            v, w, count = features[state[here], action[here]], weights[here], n[used][here]
            precision = (v * (w * count * count)[:, np.newaxis]).T @ v
            inverse = np.linalg.inv(precision + np.eye(m) / (m * _REWARD_VARIANCE))
            omega = inverse @ (v.T @ (w * count * paid[used][here]))
            square = np.maximum(((features @ inverse) * features).sum(axis=-1), 0.0)
            self._fits.append((features @ omega, scale * np.sqrt(square)))

    def at(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`Rewards`."""
        return self._fits[min(step, len(self._fits) - 1)]


class RegressionModel:
    """The value-free and the value-targeted regression.

    ``units`` are what coordinates are multiplied by in the regression: the features' scale for
    the value-free one, 1 for the value-targeted one, whose inputs x V come divided by a scale of
    their own. ``variance`` is that of the targets in units of the inputs' squared length.
    """

    def __init__(
        self,
        world: World,
        rows: Rows,
        rewards: Rewards,
        regulariser: Regulariser,
        widths: Widths,
        targeted: bool,
        reach: float = 1.0,
    ) -> None:
        self._world, self._targeted, self._reach = world, targeted, reach
        self._rewards = rewards
        self._estimated: dict[int, Floats] = {}
        bound = world.radius if targeted else world.radius * world.scale
        variance = 1.0 / max(reach, 1e-9) ** 2 if targeted else _MODEL_VARIANCE
        self.fits = [
            Fit(
                rows.gram[i],
                rows.cross[i],
                (float(rows.gram_noise[i]), float(rows.cross_noise[i])),
                regulariser,
                widths,
                variance,
                bound,
                2 * len(rows.gram),
            )
            for i in range(len(rows.gram))
        ]

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Means and widths at a step."""
        return self._rewards.at(step)

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (j, S, A) for value functions (j, S), and their widths.

        With ``wide`` only the first so many have widths. The others need no inputs of their own,
        so they do not cost another reading of the features.
        """
        at, world = min(step, len(self.fits) - 1), self._world
        fit, wide = self.fits[at], len(values) if wide is None else wide
        middles = (values.max(axis=1) + values.min(axis=1)) / 2.0
        centred = values - middles[:, np.newaxis]
        base, inputs = world.apply(centred[:wide])
        means, widths = [], []
        for j, value in enumerate(values):
            if j >= wide:
                mean = self._probabilities(at) @ centred[j] + middles[j]
                means.append(np.clip(mean, value.min(), value.max()))
                widths.append(np.zeros(mean.shape))
                continue
            x = inputs[j]
            half = max(float(np.abs(centred[j]).max()), 1e-9)
            if self._targeted:
                # Inputs and targets were divided by the same scale, so weights are coordinates.
                x = x * world.scale
                size = self._scale_of(x, half)
                width = size * fit.width(x / size, (0.5 * half / size) ** 2)
            else:
                width = fit.width(x, _MODEL_VARIANCE * half**2)
            mean = base[j] + x @ fit.weights + middles[j]
            means.append(np.clip(mean, value.min(), value.max()))
            widths.append(width)
        return np.array(means), np.array(widths)

    def _probabilities(self, at: int) -> Floats:
        """The estimated model (S, A, S); rows need not be distributions."""
        if at not in self._estimated:
            units = self._world.scale if self._targeted else 1.0
            along = np.matmul(units * self.fits[at].weights, self._world.features)
            self._estimated[at] = self._world.mean + along
        return self._estimated[at]

    def _scale_of(self, x: Floats, half: float) -> float:
        return input_scale(x, half, self._reach)


def input_scale(x: Floats, half: float, reach: float) -> float:
    """What value-targeted inputs x V are divided by.

    In theory (``reach`` > 0) by the largest length there could be, so that the targets' noise has
    one scale at every step; else by the largest there is.
    """
    if reach > 0.0:
        return half * reach
    return max(float(np.sqrt((x**2).sum(axis=-1).max())), 1e-9)


class CountModel:
    """Regression on counts along the policies that were played.

    A cell (h, s, a) with n visits says N(s') = n (p0(s') + x(s')' w) + error, whose variance is
    n P(s') + s^2 with s its noise. Entries are weighted by the inverse, with P from the round
    before; cells whose visits do not stand out of their noise are left out. The prior is
    |eta_i| about radius / sqrt(k) each.
    """

    def __init__(
        self,
        world: World,
        counts: Floats,
        noise: Floats,
        known: float,
        scale: float,
        rewards: Rewards,
        pooled: bool,
    ) -> None:
        self._world, self._scale, self._rewards = world, scale, rewards
        informs = np.abs(world.features).sum(axis=2) > 0
        mass = np.where(informs, world.mean, 0.0).sum(axis=-1)
        visits = counts.sum(axis=-1) / np.where(mass > 0, mass, 1.0)
        spread = noise * np.sqrt(informs.sum(axis=-1))
        used = (visits > known * spread) & (visits > 0) & (mass > 0)
        k = world.free
        prior = np.eye(k) * k / (world.radius * world.scale) ** 2
        step, state, action = np.nonzero(used)
        data = (visits[used], counts[used], noise[used], state, action, informs)
        groups = [np.ones(len(step), bool)]
        if not pooled:
            groups = [step == h for h in range(max(1, world.horizon - 1))]
        self.fits = [self._fit(here, prior, *data) for here in groups]

    def _fit(
        self,
        here: NDArray[np.bool_],
        prior: Floats,
        visits: Floats,
        counts: Floats,
        noise: Floats,
        state: NDArray[np.int64],
        action: NDArray[np.int64],
        informs: NDArray[np.bool_],
    ) -> tuple[Floats, Floats]:
        n, s, a = visits[here, np.newaxis], state[here], action[here]
        x, p0 = self._world.features[s, a], self._world.mean[s, a]
        weights = np.zeros(self._world.free)
        precision = prior
        for _ in range(_ROUNDS):
            chances = np.clip(p0 + np.einsum("ckt,k->ct", x, weights), 1e-3, 1.0)
            error = np.maximum(n, 1.0) * chances + noise[here, np.newaxis] ** 2
            w = np.where(informs[s, a], 1.0 / error, 0.0)
            precision = np.einsum("ct,ckt,clt->kl", w * n * n, x, x, optimize=True) + prior
            target = np.einsum("ct,ckt->k", w * n * (counts[here] - n * p0), x, optimize=True)
            weights = np.linalg.solve(precision, target)
        return np.asarray(np.linalg.inv(precision), dtype=np.float64), weights

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Means and widths at a step."""
        return self._rewards.at(step)

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (j, S, A) for value functions (j, S), and their widths."""
        inverse, weights = self.fits[min(step, len(self.fits) - 1)]
        base, inputs = self._world.apply(values)
        means, widths = [], []
        for j, value in enumerate(values):
            x = inputs[j]
            means.append(np.clip(base[j] + x @ weights, value.min(), value.max()))
            square = np.maximum(((x @ inverse) * x).sum(axis=-1), 0.0)
            widths.append(self._scale * np.sqrt(square))
        return np.array(means), np.array(widths)
