"""Regressions on noisy sums of features, or on counts of cells, and how they are asked.

Planning needs two things of a step: the mean reward of every state and action, and the expected
next value of every one for some value functions, each with a width. Noise of known size enters the
ridge and the widths.

A next value is predicted around the middle c of the values' range: P V = c + P (V - c), because
probabilities add up to 1. That halves what must be learnt, and the noise on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.sizes import Floats
from tacit.linear.statistics import FeatureSums
from tacit.numerics.regression import BlockSums, positive_part, ridge_inverse
from tacit.tabular.count_estimate import CountEstimate, Counts, conserved
from tacit.tabular.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.curator import Release
    from tacit.tabular.policy import Policy

# Rewards in [0, 1] have at most this variance.
_REWARD_VARIANCE = 0.25
# Rows of probabilities are projected where there are at most this many in all.
_MOST_PROBABILITIES = 1 << 22
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
        if len(self.gram) == 1:
            return self
        arrays = (self.gram, self.following, self.rewards)
        gram, following, rewards = (array.sum(axis=0, keepdims=True) for array in arrays)
        noises = (self.noise, self.gram_noise, self.reward_noise)
        return Sums(gram, following, rewards, *(math.sqrt(len(self.gram)) * n for n in noises))


@dataclass(frozen=True)
class LinearWidths:
    """Scales of the two sources of a width."""

    scale: float  # of sampling and noise
    bias: float  # of the ridge, which draws what is unknown to the middle

    def practical(self, squares: Floats, of_ridge: Floats) -> Floats:
        """Widths from variances by sampling and noise, and by the bias of the ridge."""
        widths: Floats = np.sqrt(self.scale**2 * squares + self.bias**2 * of_ridge)
        return widths


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

    S = rows.shape[1]
    level = rows + (1.0 - rows.sum(axis=1, keepdims=True)) / S
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
        squares = _REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
        widths = self._widths.practical(squares, _REWARD_VARIANCE * ridge**2 * length)
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
        of_visits = _REWARD_VARIANCE * S * self._noise**2
        weights = 1.0 / (self._visits * _REWARD_VARIANCE + noise**2 + of_visits)
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


LinearModel: TypeAlias = SumModel | CellModel
"""Estimated rewards and transitions, with widths."""


@dataclass(frozen=True, eq=False)
class LinearEstimator:
    """Configuration of an estimator; none of its methods changes it.

    Estimators have ``statistic``, the query to a block, ``empty`` and ``added``, the state, and
    ``model``, regressions on it.
    """

    spec: LinearSpec
    features: Floats  # phi, (S, A, d), of length at most 1
    stationary: bool  # one transition model for all steps
    widths: LinearWidths
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
        return FeatureSums(
            self.features,
            self.spec.horizon,
            pooled=self.pooled,
            clip=self._clip if one_by_one else None,
            reward=0.0 if self.spec.known_rewards is not None else 1.0,
            weights=weights,
        )

    @property
    def _clip(self) -> float | None:
        """Bound on typical users' vectors; features are public."""
        q = (self.features**2).sum(axis=-1)
        rewards = 0.0 if self.spec.known_rewards is not None else 0.25
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self.pooled:
            return _CLIP * typical
        # Pooled sums of signed features are protected by the triangle inequality, at a price that
        # a clip must first earn back.
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
        spec = self.spec
        return VisitCounts(
            spec.states,
            spec.actions,
            spec.horizon,
            pooled=self.pooled,
            cap=min(_CAP, spec.horizon) if self.clips(one_by_one) else None,
            policy=policy.actions,
            version=policy.version,
        )

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
