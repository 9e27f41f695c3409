"""Estimates from counts along the block's own policy: regression on single cells."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Floats
from tacit.finite.evidence import Counts
from tacit.linear.estimate import (
    REWARD_VARIANCE,
    LinearWidths,
    distributions,
    middle_of,
    spread_of,
)

# The ridge of a reward regression, in units of the variance of rewards.
_REWARD_RIDGE = 4.0


class CellModel:
    """Regression on the counts of single cells (s, a), each with its own noise.

    A cell with n visits and noise s per entry says about V: N (V - c) = n phi'w + error, whose
    variance is n var(V) + s^2 |V - c|^2. Cells are weighted by its inverse; those whose visits do
    not stand out of their noise are left out. ``variances`` (L, S, A) of next values are used where
    they are given, else one guess serves all cells.
    """

    def __init__(
        self,
        features: Floats,
        counts: Counts,
        widths: LinearWidths,
        pooled: tuple[bool, bool],
        variances: Floats | None = None,
    ) -> None:
        self._table = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._dimension = int(features.shape[2])
        self._widths = widths
        self._pooled = pooled[0]
        S = self._shape[0]
        totals = counts.transitions.sum(axis=-1)
        used = counts.reached & (totals > counts.noise * math.sqrt(S)) & (totals > 0)
        self._row, state, action = np.nonzero(used)
        self._cells = features[state, action]
        self._visits = totals[used]
        self._moves = counts.transitions[used]
        self._noise = counts.noise[used]
        self._variances = None
        if variances is not None:
            self._variances = variances[np.minimum(self._row, len(variances) - 1), state, action]
        self._rows = len(totals)
        self._precisions: list[Floats] = []
        self._rewards = self._fit_rewards(counts, used, pooled[1])

    def _fit_rewards(
        self, counts: Counts, used: NDArray[np.bool_], pooled: bool
    ) -> list[tuple[Floats, Floats]]:
        S, d = self._shape[0], self._dimension
        paid, noise = counts.rewards[used], counts.reward_noise[used]
        of_visits = REWARD_VARIANCE * S * self._noise**2
        weights = 1.0 / (self._visits * REWARD_VARIANCE + noise**2 + of_visits)
        fits = []
        for row in range(1 if pooled else self._rows):
            here = np.ones(len(weights), dtype=bool) if pooled else self._row == row
            phi, w, n = self._cells[here], weights[here], self._visits[here]
            precision = (phi * (w * n * n)[:, np.newaxis]).T @ phi
            precision = precision + np.eye(d) * _REWARD_RIDGE / d
            inverse = np.linalg.inv(precision)
            theta = inverse @ (phi.T @ (w * n * paid[here]))
            width = self._width(inverse, _REWARD_RIDGE / d)
            fits.append(((self._table @ theta).reshape(self._shape), width.reshape(self._shape)))
            self._precisions.append(precision)
        return fits

    def _width(self, inverse: Floats, ridge: float) -> Floats:
        """The posterior variance, split into what data leaves open and what the prior does."""
        x = self._table @ inverse
        leverage = np.maximum(np.einsum("nd,nd->n", x, self._table), 0.0)
        of_ridge = ridge * np.einsum("nd,nd->n", x, x)
        return self._widths.practical(np.maximum(leverage - of_ridge, 0.0), of_ridge)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        return self._rewards[min(step, len(self._rewards) - 1)]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values and widths; the first value function decides how cells weigh."""
        S, d = self._shape[0], self._dimension
        here = np.ones(len(self._row), dtype=bool)
        if not self._pooled and self._rows > 1:
            here = self._row == step
        phi, n, noise = self._cells[here], self._visits[here], self._noise[here]
        middle, half = middle_of(values[0])
        centred = values[0] - middle
        variance: float | Floats = spread_of(centred, half)
        if self._variances is not None:
            variance = np.maximum(self._variances[here], 0.1 * variance)
        w = 1.0 / (n * variance + noise**2 * (centred @ centred) + 1e-300)
        precision = (phi * (w * n * n)[:, np.newaxis]).T @ phi + np.eye(d) / (d * half**2)
        inverse = np.linalg.inv(precision)
        weights = inverse @ (
            (phi * (w * n)[:, np.newaxis]).T @ (self._moves[here] - n[:, np.newaxis] / S)
        )
        probabilities = distributions(self._table @ weights + 1.0 / S)
        width = self._width(inverse, 1.0 / (d * half**2))
        ratios = np.array([middle_of(value)[1] for value in values]) / half
        shape = (len(values), *self._shape)
        means = (values @ probabilities.T).reshape(shape)
        return means, (ratios[:, np.newaxis] * width).reshape(shape)

    def precision(self) -> Floats:
        """Those of the reward regressions."""
        return np.array(self._precisions)
