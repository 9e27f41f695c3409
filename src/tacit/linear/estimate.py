"""What releases say about the world: sums over blocks, and the regression on counts.

Planning asks a :class:`LinearModel` two things of a step: the mean reward of every state and
action, and the expected next value of every one for some value functions, each with a width. The
regression on sums of features is on the page of :mod:`tacit.linear.lsvi_ucb`; here is the one on
counts along the policies that were played (:class:`CellModel`). A noise whose size is known enters
the ridge and the widths.

A next value is predicted around the middle c of the values' range: P V = c + P (V - c), because
probabilities add up to 1. That halves what must be learnt, and what noise it meets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.finite.evidence import Counts
from tacit.numerics.block_sums import BlockSums

if TYPE_CHECKING:
    from tacit.linear.statistics import FeatureSums
    from tacit.privacy.curators.gate import Release

Floats = NDArray[np.float64]

REWARD_VARIANCE = 0.25
"""Rewards in [0, 1] have at most this variance."""
# The ridge of a reward regression, in units of that variance.
_REWARD_RIDGE = 4.0

Answer: TypeAlias = tuple[Floats, float]
"""What users answered to targets (k, S): their sums (k, d), and the noise of an entry."""


class LinearModel(Protocol):
    """What is known of a world."""

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        ...

    def targets(self, values: Floats) -> Floats | None:
        """What users must be asked about value functions (k, S); ``None`` if sums know it."""
        ...

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (k, S, A) for value functions (k, S), and their widths.

        Args:
            step: of the episode.
            values: the value functions.
            answer: what users answered, where :meth:`targets` had a question.
        """
        ...

    def precision(self) -> Floats:
        """Precision matrices (L, d, d): how well each direction of features is known."""
        ...


@dataclass(frozen=True)
class KnownRewardModel:
    """A model whose rewards are known."""

    model: LinearModel
    table: Floats

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """The known ones."""
        known = self.table[min(step, len(self.table) - 1)]
        return known, np.zeros(known.shape)

    def targets(self, values: Floats) -> Floats | None:
        """Those of the model."""
        return self.model.targets(values)

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """Those of the model."""
        return self.model.next_values(step, values, answer)

    def precision(self) -> Floats:
        """That of the model."""
        return self.model.precision()


@dataclass(frozen=True)
class Sums:
    """Noisy feature sums and the standard deviations of their noise.

    Attributes:
        gram: (L, d, d).
        following: (L, d, S).
        rewards: (L, d).
        noise: of an entry of ``following``; of ``gram`` and ``rewards`` in the next two.
        gram_noise: on the diagonal of ``gram``.
        reward_noise: of an entry of ``rewards``.
    """

    gram: Floats
    following: Floats
    rewards: Floats
    noise: float
    gram_noise: float
    reward_noise: float

    def pooled(self) -> Sums:
        """Summed over steps."""
        if len(self.gram) == 1:
            return self
        more = math.sqrt(len(self.gram))
        return Sums(
            self.gram.sum(axis=0, keepdims=True),
            self.following.sum(axis=0, keepdims=True),
            self.rewards.sum(axis=0, keepdims=True),
            self.noise * more,
            self.gram_noise * more,
            self.reward_noise * more,
        )


def add_features(sums: BlockSums, release: Release, statistic: FeatureSums, users: int) -> None:
    """Adds the release of a block of ``users`` users; what was not asked for is zero."""
    unit = float(np.max(release.std["gram"])) * math.sqrt(statistic.gram)
    d, L = statistic.dimension, statistic.rows
    parts = {
        "gram": statistic.gram_of(release["gram"]),
        "next": release["next"] if statistic.following else np.zeros((L, d, 1)),
        "rewards": release["rewards"] if statistic.reward > 0.0 else np.zeros((L, d)),
    }
    noise = {
        "gram": unit / math.sqrt(statistic.gram),
        "next": unit if statistic.following else 0.0,
        "rewards": unit / math.sqrt(statistic.reward) if statistic.reward > 0.0 else 0.0,
    }
    sums.add(parts, noise, unit, users)


def feature_sums(sums: BlockSums) -> Sums:
    """All blocks together."""
    return Sums(
        sums.scaled("gram"),
        sums.scaled("next"),
        sums.scaled("rewards"),
        float(sums.noise("next")),
        float(sums.noise("gram")),
        float(sums.noise("rewards")),
    )


@dataclass(frozen=True)
class LinearWidths:
    """How widths are made.

    Attributes:
        scale: multiplies what practical widths owe to sampling and noise,
        bias: and what they owe to the ridge, which draws what is unknown to the middle.
        ridge: practical ridge, in standard deviations of the Gram's noise times sqrt(d).
        theory: whether widths are those of the theory; then
        failure: the probability that any of them is too small,
        samples: at most so many steps were summed in a row,
        releases: there are so many releases,
        weight_bound: |sum_s' mu(s') v(s')| <= weight_bound sup |v|, and |theta| <= weight_bound.
    """

    scale: float
    bias: float
    ridge: float
    theory: bool = False
    failure: float = 0.1
    samples: int = 1
    releases: int = 1
    weight_bound: float = 1.0

    def practical(self, squares: Floats, of_ridge: Floats) -> Floats:
        """Widths from variances by sampling and noise, and by what the ridge hides."""
        widths: Floats = np.sqrt(self.scale**2 * squares + self.bias**2 * of_ridge)
        return widths


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
        known: float,
        widths: LinearWidths,
        pooled: tuple[bool, bool],
        variances: Floats | None = None,
    ) -> None:
        self._table = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths
        self._pooled = pooled[0]
        S = self._shape[0]
        totals = counts.transitions.sum(axis=-1)
        used = counts.reached & (totals > known * counts.noise * math.sqrt(S)) & (totals > 0)
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

    @property
    def _dimension(self) -> int:
        return int(self._table.shape[1])

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
        """See :class:`LinearModel`."""
        return self._rewards[min(step, len(self._rewards) - 1)]

    def targets(self, values: Floats) -> None:
        """Counts answer every question."""

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """See :class:`LinearModel`; the first value function decides how cells are weighted."""
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


def middle_of(value: Floats) -> tuple[float, float]:
    """The middle of a value function's range, and half of that range (never zero)."""
    low, high = float(value.min()), float(value.max())
    return (low + high) / 2.0, max((high - low) / 2.0, 1e-9)


def spread_of(centred: Floats, half: float) -> float:
    """A guess at the variance of a next value: over all states, or the largest possible of two."""
    return half**2 if len(centred) <= 2 else float((centred**2).mean()) + 1e-18


def distributions(rows: Floats) -> Floats:
    """The nearest distributions to rows that should be some."""
    from tacit.numerics.projection import project

    S = rows.shape[1]
    level = rows + (1.0 - rows.sum(axis=1, keepdims=True)) / S
    out: Floats = np.empty(level.shape)
    project(np.ascontiguousarray(level), np.ones(len(level), dtype=bool), out)
    return out
