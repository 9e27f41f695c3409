"""Regressions on noisy sums of features, or on counts of cells, and how they are asked.

A model predicts mean rewards and expected next values of all states and actions, with widths. Noise
of known size enters the ridge and the widths. A next value is predicted around the middle c of the
values' range, P V = c + P (V - c): that halves what must be learnt, and the noise on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.linear.statistics import FeatureSums
from tacit.numerics.regression import BlockSums, positive_part, ridge_inverse
from tacit.privacy.validation import Floats
from tacit.tabular.count_estimate import CountEstimate, conserved

if TYPE_CHECKING:
    from tacit.linear.worlds import LinearSpec
    from tacit.privacy.curator import Release
    from tacit.tabular.count_estimate import Counts
    from tacit.tabular.policy import Policy
    from tacit.tabular.visits import VisitCounts

# Rewards in [0, 1] have at most this variance.
_REWARD_VARIANCE = 0.25
# The ridge of a reward regression on counts, in units of the variance of rewards.
_REWARD_RIDGE = 4.0
# The longest vector of a user, in typical lengths of one with steps apart; and for pooled sums.
_CLIP, _POOLED_CLIP = 1.1, 2.0
# How many of a user's steps in a cell count, when counts are pooled over steps.
_CAP = 2


@dataclass(frozen=True)
class Sums:
    """Noisy feature sums and the standard deviations of their noise."""

    gram: Floats  # (L, d, d)
    following: Floats  # (L, d, S)
    rewards: Floats  # (L, d)
    noise: float  # of an entry of ``following``
    gram_noise: float  # on the diagonal of ``gram``
    reward_noise: float  # and of an entry of ``rewards``

    def pooled(self) -> Sums:
        """Summed over steps."""
        arrays, more = (self.gram, self.following, self.rewards), math.sqrt(len(self.gram))
        sums = (array.sum(axis=0, keepdims=True) for array in arrays)
        return Sums(*sums, *(more * n for n in (self.noise, self.gram_noise, self.reward_noise)))


Scales: TypeAlias = tuple[float, float]  # of widths by sampling and noise, and by the ridge


def width_of(scales: Scales, squares: Floats, of_ridge: Floats) -> Floats:
    """Widths from variances by sampling and noise, and by the bias of the ridge."""
    return np.asarray(np.sqrt(scales[0] ** 2 * squares + scales[1] ** 2 * of_ridge))


def middle_of(value: Floats) -> tuple[float, float]:
    """Middle of a value function's range, and half of that range (never zero)."""
    low, high = float(value.min()), float(value.max())
    return (low + high) / 2.0, max((high - low) / 2.0, 1e-9)


def spread_of(centred: Floats, half: float) -> float:
    """Guessed variance of a next value: over all states, or the largest possible of two."""
    return half**2 if len(centred) <= 2 else float((centred**2).mean()) + 1e-18


def distributions(rows: Floats) -> Floats:
    """Distributions nearest to estimated rows of probabilities."""
    from tacit.tabular.count_loops import project

    level = rows + (1.0 - rows.sum(axis=1, keepdims=True)) / rows.shape[1]
    out: Floats = np.empty(level.shape)
    project(np.ascontiguousarray(level), np.ones(len(level), dtype=bool), out)
    return out


class SumModel:
    """Regression on feature sums.

    With e_G, e_U, e_r the noise of Gram, next states and rewards, the ridge is
    1 + e_G sqrt(d), and the squared width of a prediction for V, with x = Lambda^-1 phi,
    w the regression weights and R half the range of V, is

        var(V) phi'x + (e_U^2 |V - c|^2 + e_G^2 min(|w|^2, d R^2)) |x|^2,

    its three terms being sampling, noise in the targets and noise in the Gram matrix (of which w
    is the derivative). Predicted rows of probabilities are projected to distributions.
    """

    def __init__(self, features: Floats, sums: Sums, rewards: Sums, widths: Scales) -> None:
        self._features = features.reshape(-1, features.shape[2])
        self._shape, self._dimension = features.shape[:2], int(features.shape[2])
        self._sums, self._reward_sums, self._widths = sums, rewards, widths
        self.ridge = self._ridge_of(sums)
        self.inverse = ridge_inverse(sums.gram, self.ridge)  # Lambda^-1, (L, d, d)
        self._known: dict[int, tuple[Floats, Floats, Floats]] = {}

    def _ridge_of(self, sums: Sums) -> float:
        return 1.0 + sums.gram_noise * math.sqrt(self._dimension)

    def _lengths(self, inverse: Floats) -> tuple[Floats, Floats]:
        """Of all states and actions, phi' Lambda^-1 phi and |Lambda^-1 phi|^2, (..., S A)."""
        x = self._features @ inverse
        leverage = np.maximum(np.einsum("...d,...d->...", x, self._features), 0.0)
        return leverage, np.einsum("...d,...d->...", x, x)

    @cached_property
    def _rewards(self) -> tuple[Floats, Floats]:
        """Mean rewards and widths, (L, S, A)."""
        sums, ridge = self._reward_sums, self._ridge_of(self._reward_sums)
        inverse = ridge_inverse(sums.gram, ridge)
        weights = (inverse @ sums.rewards[..., np.newaxis])[..., 0]
        leverage, length = self._lengths(inverse)
        spread = np.minimum((weights**2).sum(axis=-1), self._dimension)
        noise = sums.reward_noise**2 + sums.gram_noise**2 * spread
        squares = _REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
        widths = width_of(self._widths, squares, _REWARD_VARIANCE * ridge**2 * length)
        shape = (len(weights), *self._shape)
        return (weights @ self._features.T).reshape(shape), widths.reshape(shape)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        means, widths = self._rewards
        at = min(step, len(means) - 1)
        return means[at], widths[at]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values (k, S, A) of (k, S), and widths."""
        at, sums = min(step, len(self.inverse) - 1), self._sums
        leverage, length, probabilities = self._row(at)
        means, widths = [], []
        for value in values:
            middle, half = middle_of(value)
            centred = value - middle
            weights = self.inverse[at] @ (sums.following[at] @ centred)
            means.append(probabilities @ centred + middle)
            variance = spread_of(centred, half)
            from_gram = sums.gram_noise**2 * min(weights @ weights, self._dimension * half**2)
            noise = sums.noise**2 * (centred @ centred) + from_gram
            squares = variance * leverage + noise * length
            widths.append(width_of(self._widths, squares, variance * self.ridge**2 * length))
        shape = (len(values), *self._shape)
        return np.array(means).reshape(shape), np.array(widths).reshape(shape)

    def _row(self, at: int) -> tuple[Floats, Floats, Floats]:
        """Lengths, and predicted distributions (S A, S)."""
        if at not in self._known:
            raw = self._features @ (self.inverse[at] @ self._sums.following[at])
            self._known[at] = *self._lengths(self.inverse[at]), distributions(raw)
        return self._known[at]

    def precision(self) -> Floats:
        """Regularised Grams in units of their ridge."""
        return positive_part(self._sums.gram) / self.ridge + np.eye(self._dimension)


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
        widths: Scales,
        pooled: tuple[bool, bool],
        variances: Floats | None = None,
    ) -> None:
        S, _, d = features.shape
        self._table, self._shape, self._dimension = features.reshape(-1, d), features.shape[:2], d
        self._widths, totals = widths, counts.transitions.sum(axis=-1)
        used = counts.reached & (totals > counts.noise * math.sqrt(S)) & (totals > 0)
        self._row, state, action = np.nonzero(used)
        self._rows = [None if of_all or len(totals) == 1 else len(totals) for of_all in pooled]
        self._cells, self._visits = features[state, action], totals[used]
        self._moves, self._noise = counts.transitions[used], counts.noise[used]
        self._variances = None
        if variances is not None:
            self._variances = variances[np.minimum(self._row, len(variances) - 1), state, action]
        noise = counts.reward_noise[used] ** 2 + _REWARD_VARIANCE * S * self._noise**2
        error, paid = self._visits * _REWARD_VARIANCE + noise, counts.rewards[used]
        self._rewards, self._precisions = [], []
        for row in range(self._rows[1] or 1):
            here = self._here(self._rows[1], row)
            theta, width, precision = self._fit(here, error[here], paid[here], _REWARD_RIDGE / d)
            self._rewards.append(((self._table @ theta).reshape(self._shape), width))
            self._precisions.append(precision)

    def _here(self, rows: int | None, step: int) -> NDArray[np.bool_]:
        """Cells of a step, or all of them."""
        return np.ones(len(self._row), dtype=bool) if rows is None else self._row == step

    def _fit(
        self, here: NDArray[np.bool_], error: Floats, targets: Floats, ridge: float
    ) -> tuple[Floats, Floats, Floats]:
        """Weights, widths (S, A) and precision of a regression of n y on n phi.

        Widths split the posterior variance into what data leaves open and what the prior does.
        """
        phi, n, w = self._cells[here], self._visits[here], 1.0 / error
        precision = (phi * (w * n * n)[:, np.newaxis]).T @ phi + ridge * np.eye(self._dimension)
        inverse = np.linalg.inv(precision)
        weights = inverse @ ((phi * (w * n)[:, np.newaxis]).T @ targets)
        x = self._table @ inverse
        leverage = np.maximum(np.einsum("nd,nd->n", x, self._table), 0.0)
        of_ridge = ridge * np.einsum("nd,nd->n", x, x)
        width = width_of(self._widths, np.maximum(leverage - of_ridge, 0.0), of_ridge)
        return weights, width.reshape(self._shape), precision

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        return self._rewards[min(step, len(self._rewards) - 1)]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values and widths; the first value function decides how cells weigh."""
        S, here = self._shape[0], self._here(self._rows[0], step)
        n, noise = self._visits[here], self._noise[here]
        middle, half = middle_of(values[0])
        centred = values[0] - middle
        variance: float | Floats = spread_of(centred, half)
        if self._variances is not None:
            variance = np.maximum(self._variances[here], 0.1 * variance)
        error = n * variance + noise**2 * (centred @ centred) + 1e-300
        moves = self._moves[here] - n[:, np.newaxis] / S
        weights, width, _ = self._fit(here, error, moves, 1.0 / (self._dimension * half**2))
        probabilities = distributions(self._table @ weights + 1.0 / S)
        ratios = np.array([middle_of(value)[1] for value in values]) / half
        means = (values @ probabilities.T).reshape(len(values), *self._shape)
        return means, ratios[:, np.newaxis, np.newaxis] * width

    def precision(self) -> Floats:
        """Those of the reward regressions."""
        return np.array(self._precisions)


LinearModel: TypeAlias = SumModel | CellModel


@dataclass(frozen=True, eq=False)
class LinearEstimator:
    """Configuration of an estimator: a query, sums of its releases, and a model of them."""

    spec: LinearSpec
    features: Floats  # phi, (S, A, d), of length at most 1
    stationary: bool  # one transition model for all steps
    widths: Scales
    plain: bool = False  # whether all blocks weigh the same

    @property
    def pooled(self) -> bool:
        """Whether one row of sums serves all steps."""
        return self.stationary and self.spec.stationary_rewards


class FeatureEstimator(LinearEstimator):
    """Regressions on sums of features: one release serves every value function."""

    def empty(self) -> BlockSums:
        """No sums."""
        return BlockSums()

    def statistic(self, policy: Policy, variances: Floats | None, one_by_one: bool) -> FeatureSums:
        """Sums whose steps are weighted by variances of next values, if there are any."""
        if variances is None:
            return self._unweighted[one_by_one]
        return self._sums(one_by_one, step_weights(variances))

    @cached_property
    def _unweighted(self) -> tuple[FeatureSums, FeatureSums]:
        """Kept, as they do not depend on releases: bounds by all pairs take time."""
        return self._sums(False, None), self._sums(True, None)

    def _sums(self, one_by_one: bool, weights: Floats | None) -> FeatureSums:
        clip, reward = self._clip if one_by_one else None, float(self.spec.known_rewards is None)
        sizes = self.features, self.spec.horizon, self.pooled
        return FeatureSums(*sizes, clip=clip, reward=reward, weights=weights)

    @property
    def _clip(self) -> float | None:
        """Bound on typical users' vectors; features are public."""
        q, rewards = (self.features**2).sum(axis=-1), 0.25 * (self.spec.known_rewards is None)
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self.pooled:
            return _CLIP * typical
        # Of signed features they pay for the triangle inequality, which a clip hardly earns back.
        return _POOLED_CLIP * typical if self.spec.nonnegative else None

    def clips(self, one_by_one: bool) -> bool:
        """Whether users must be summed one by one."""
        return self._unweighted[one_by_one].clips

    def added(self, state: BlockSums, release: Release, statistic: FeatureSums) -> BlockSums:
        """Sums with those of one more block; rewards that were not asked for are zero."""
        unit = float(np.max(release.std["gram"]))
        parts = {"rewards": np.zeros(release["next"].shape[:2]), **release.parts}
        noise = {name: unit * (name in release.parts) for name in parts}
        return state.added(parts, noise, unit, release.users)

    def model(self, state: BlockSums, variances: Floats | None) -> SumModel:
        """Regressions on all blocks, whose steps were weighted when they were summed."""
        gram, following, rewards = (state.scaled(name) for name in ("gram", "next", "rewards"))
        noises = (float(state.noise(name)) for name in ("next", "gram", "rewards"))
        sums = Sums(gram, following, rewards, *noises)
        of_rewards = sums.pooled() if self.spec.stationary_rewards else sums
        of_next = sums.pooled() if self.stationary else sums
        return SumModel(self.features, of_next, of_rewards, self.widths)


class CellEstimator(LinearEstimator):
    """Regressions on counts of cells along each block's policy; these have a 1-norm, too."""

    @property
    def cells(self) -> tuple[int, int, int]:
        """Shape of a table of counts, (L, S, A)."""
        return 1 if self.pooled else self.spec.horizon, self.spec.states, self.spec.actions

    def empty(self) -> CountEstimate:
        """No counts."""
        return CountEstimate.empty(self.cells, self.plain)

    def statistic(self, policy: Policy, variances: Floats | None, one_by_one: bool) -> VisitCounts:
        """Counts along a policy; those that are pooled over steps have a cap."""
        from tacit.tabular.visits import VisitCounts

        cap = min(_CAP, self.spec.horizon) if self.clips(one_by_one) else None
        sizes = self.spec.states, self.spec.actions, self.spec.horizon, self.pooled, cap
        return VisitCounts(*sizes, policy=policy.actions, version=policy.version)

    def clips(self, one_by_one: bool) -> bool:
        """Whether users must be summed one by one."""
        return self.pooled and one_by_one

    def added(
        self, state: CountEstimate, release: Release, statistic: VisitCounts
    ) -> CountEstimate:
        """Counts with those of one more block, in which flow is conserved."""
        counts = release if self.pooled else conserved(release, self.spec)
        return state.added(counts, statistic, release.users)

    def model(self, state: CountEstimate, variances: Floats | None) -> CellModel:
        """Regressions on all blocks, weighted by variances of next values, if there are any."""
        pooled = self.stationary, self.spec.stationary_rewards
        return CellModel(self.features, state.counts(), self.widths, pooled, variances)


def step_weights(variances: Floats) -> Floats:
    """Public weights in (0, 1] of steps: less where the next value varies more than usually."""
    flat = variances.reshape(len(variances), -1)
    typical = np.median(flat, axis=1)[:, np.newaxis, np.newaxis]
    safe = np.where(variances > 0.0, variances, 1.0)
    return np.where(variances > typical, typical / safe, 1.0).clip(0.05, 1.0)
