"""Estimates from sums of features: regression for every value function at once."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from tacit.core.algorithm import Floats
from tacit.linear.estimate import (
    REWARD_VARIANCE,
    LinearWidths,
    Sums,
    distributions,
    middle_of,
    spread_of,
)
from tacit.numerics.ridge import positive_part, ridge_inverse

# Rows of probabilities are projected where there are at most this many in all.
_MOST_PROBABILITIES = 1 << 22


def step_weights(variances: Floats) -> Floats:
    """Public weights in (0, 1] of steps: less where the next value varies more than usually."""
    flat = variances.reshape(len(variances), -1)
    typical = np.median(flat, axis=1)[:, np.newaxis, np.newaxis]
    safe = np.where(variances > 0.0, variances, 1.0)
    return np.where(variances > typical, typical / safe, 1.0).clip(0.05, 1.0)


class SumModel:
    """Regression on feature sums.

    With e_G, e_U, e_r the noise of Gram, next states and rewards, the ridge is
    1 + e_G sqrt(d), and the squared width of a prediction for V, with x = Lambda^-1 phi,
    w the regression weights and R half the range of V, is

        var(V) phi'x + (e_U^2 |V - c|^2 + e_G^2 min(|w|^2, d R^2)) |x|^2,

    its three terms being sampling, noise in the targets and noise in the Gram matrix (of which w
    is the derivative). Predicted rows of probabilities are projected to distributions where they
    are not too many.
    """

    def __init__(self, features: Floats, sums: Sums, rewards: Sums, widths: LinearWidths) -> None:
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths
        self._sums, self._reward_sums = sums, rewards
        self._dimension = int(features.shape[2])
        self.ridge = self._ridge_of(sums)
        self._probabilities: dict[int, Floats] = {}
        self._lengths: dict[int, tuple[Floats, Floats]] = {}

    def _ridge_of(self, sums: Sums) -> float:
        return 1.0 + sums.gram_noise * math.sqrt(self._dimension)

    @cached_property
    def inverse(self) -> Floats:
        """The inverses of the regularised Grams (L, d, d)."""
        return ridge_inverse(self._sums.gram, self.ridge)

    @cached_property
    def _rewards(self) -> tuple[Floats, Floats]:
        """Mean rewards and widths, (L, S, A)."""
        sums = self._reward_sums
        ridge = self._ridge_of(sums)
        inverse = ridge_inverse(sums.gram, ridge)
        weights = (inverse @ sums.rewards[..., np.newaxis])[..., 0]
        x = self._features @ inverse
        leverage = np.maximum((x * self._features).sum(axis=-1), 0.0)
        spread = np.minimum((weights**2).sum(axis=-1), self._dimension)
        noise = sums.reward_noise**2 + sums.gram_noise**2 * spread
        length = (x**2).sum(axis=-1)
        squares = REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
        widths = self._widths.practical(squares, REWARD_VARIANCE * ridge**2 * length)
        shape = (len(weights), *self._shape)
        return (weights @ self._features.T).reshape(shape), widths.reshape(shape)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        means, widths = self._rewards
        at = min(step, len(means) - 1)
        return means[at], widths[at]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values (k, S, A) of (k, S), and widths."""
        at = min(step, len(self.inverse) - 1)
        inverse, sums = self.inverse[at], self._sums
        leverage, length = self.lengths(at)
        probabilities = self._projected(at)
        means, widths = [], []
        for value in values:
            middle, half = middle_of(value)
            centred = value - middle
            weights = inverse @ (sums.following[at] @ centred)
            if probabilities is not None:
                mean = probabilities @ centred
            else:
                mean = np.clip(self._features @ weights, -half, half)
            means.append(mean + middle)
            variance = spread_of(centred, half)
            from_gram = sums.gram_noise**2 * min(weights @ weights, self._dimension * half**2)
            noise = sums.noise**2 * (centred @ centred) + from_gram
            squares = variance * leverage + noise * length
            widths.append(self._widths.practical(squares, variance * self.ridge**2 * length))
        shape = (len(values), *self._shape)
        return np.array(means).reshape(shape), np.array(widths).reshape(shape)

    def lengths(self, at: int) -> tuple[Floats, Floats]:
        """Of all states and actions, phi' Lambda^-1 phi and |Lambda^-1 phi|^2."""
        if at not in self._lengths:
            x = self._features @ self.inverse[at]
            leverage = np.maximum(np.einsum("nd,nd->n", x, self._features), 0.0)
            self._lengths[at] = leverage, np.einsum("nd,nd->n", x, x)
        return self._lengths[at]

    def _projected(self, at: int) -> Floats | None:
        """Predicted probabilities (S A, S) as distributions; ``None`` where they are too many."""
        if len(self._features) * self._shape[0] > _MOST_PROBABILITIES:
            return None
        if at not in self._probabilities:
            raw = self._features @ (self.inverse[at] @ self._sums.following[at])
            self._probabilities[at] = distributions(raw)
        return self._probabilities[at]

    def precision(self) -> Floats:
        """Regularised Grams in units of their ridge."""
        return positive_part(self._sums.gram) / self.ridge + np.eye(self._dimension)
