"""The way to ask for sums of features: regression for every value function at once."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.core.algorithm import Floats
from tacit.linear.base import LinearAlgorithm, LinearWay
from tacit.linear.estimate import (
    REWARD_VARIANCE,
    add_features,
    distributions,
    feature_sums,
    middle_of,
    spread_of,
)
from tacit.linear.statistics import FeatureSums
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import operator_bound, positive_part, rectangle_bound, ridge_inverse

if TYPE_CHECKING:
    from tacit.linear.estimate import Answer, LinearWidths, Sums
    from tacit.privacy.curators.gate import Release

# Rows of probabilities are projected where there are at most this many in all.
_MOST_PROBABILITIES = 1 << 22


class FeatureWay(LinearWay):
    """Each user is asked once, with the whole budget, and blocks add up."""

    known: BlockSums
    following: ClassVar[bool] = True

    def __init__(self, algorithm: LinearAlgorithm) -> None:
        self._algorithm = algorithm
        self.known = BlockSums(plain=algorithm.options.bonus == "theory")

    def statistic(self, one_by_one: bool) -> FeatureSums:
        """Grams of features, and what followed them."""
        of = self._algorithm
        return FeatureSums(
            of.features,
            of.spec.horizon,
            pooled=of.pooled,
            clip=of._clip if one_by_one and self.following else None,
            reward=0.0 if of.spec.known_rewards is not None else 1.0,
            weights=of.step_weights,
            following=self.following,
            triangle=of.options.gram_noise == "triangle",
        )

    def take_in(self, release: Release, statistic: FeatureSums) -> None:
        """Adds the sums of a block to those of all before it."""
        add_features(self.known, release, statistic, self._algorithm.block_users)

    def model(self) -> SumModel:
        """What all blocks so far say."""
        of, sums = self._algorithm, feature_sums(self.known)
        return SumModel(
            of.features,
            sums.pooled() if of.stationary else sums,
            sums.pooled() if of.spec.stationary_rewards else sums,
            of.widths,
            of.spec.horizon,
        )


class SumModel:
    """Regression on feature sums.

    Practical. With e_G, e_U, e_r the noise of Gram, next states and rewards, the ridge is
    1 + k e_G sqrt(d), and the squared width of a prediction for V, with x = Lambda^-1 phi,
    w the regression weights and R half the range of V, is

        var(V) phi'x + (e_U^2 |V - c|^2 + e_G^2 min(|w|^2, d R^2)) |x|^2,

    its three terms being sampling, noise in the targets and noise in the Gram matrix (of which w
    is the derivative). Predicted rows of probabilities are projected to distributions where they
    are not too many.

    Theory. Let the noise of every Gram be at most l in operator norm and Lambda = G + N + 2 l I,
    so that Lambda >= G + l I. For |V - c| <= B and true weights w* = sum mu (V - c),

        Lambda^-1 b - w* = Lambda^-1 (sum phi eta + N_U (V - c) - (N + 2 l I) w*),

    and |phi' (it)| <= |phi|_{Lambda^-1} beta with
    beta = B (sqrt(2 ln(1/p) + 2 S ln(1 + sqrt n) + d ln(1 + n / (d l))) + 2)
    + |N_U| B sqrt(S / l) + 3 sqrt(l) W B. The first term is the self-normalised bound for
    B-sub-Gaussian noise, for all V at once by a net of (1 + sqrt n)^S functions at distance
    B / sqrt n; W is ``weight_bound``; weights in [0, 1] of steps and blocks only help. The same
    for rewards with B = 1/2, no net, and |theta| <= W. Each of the six events (of next states and
    of rewards: Gram, noise, concentration) in each row and release gets failure / (6 L m). Cutting
    negative eigenvalues of G + N adds at most l I to Lambda, and leaves Lambda >= 2 l I, so that
    the last term becomes 4 l W B / sqrt(2 l), which is less.
    """

    def __init__(
        self, features: Floats, sums: Sums, rewards: Sums, widths: LinearWidths, horizon: int
    ) -> None:
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths, self._horizon = widths, horizon
        self._sums, self._reward_sums = sums, rewards
        self._dimension = int(features.shape[2])
        self.ridge = self._ridge_of(sums)
        self._probabilities: dict[int, Floats] = {}
        self._lengths: dict[int, tuple[Floats, Floats]] = {}

    def _event(self, rows: int) -> float:
        return self._widths.failure / (6.0 * rows * self._widths.releases)

    def _ridge_of(self, sums: Sums) -> float:
        d = self._dimension
        if not self._widths.theory:
            return 1.0 + self._widths.ridge * sums.gram_noise * math.sqrt(d)
        noise = operator_bound(sums.gram_noise, d, self._event(len(sums.gram)))
        return 2.0 * max(noise, 1.0)

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
        if self._widths.theory:
            widths = self._reward_beta(sums, ridge) * np.sqrt(leverage)
        else:
            spread = np.minimum((weights**2).sum(axis=-1), self._dimension)
            noise = sums.reward_noise**2 + sums.gram_noise**2 * spread
            length = (x**2).sum(axis=-1)
            squares = REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
            of_ridge = REWARD_VARIANCE * ridge**2 * length
            widths = self._widths.practical(squares, of_ridge)
        shape = (len(weights), *self._shape)
        return (weights @ self._features.T).reshape(shape), widths.reshape(shape)

    def _reward_beta(self, sums: Sums, ridge: float) -> float:
        p, level, d = self._event(len(sums.gram)), ridge / 2.0, self._dimension
        n = self._widths.samples * self._horizon / len(sums.gram)
        sampling = 0.5 * math.sqrt(2.0 * math.log(1.0 / p) + d * math.log1p(n / (d * level)))
        noise = rectangle_bound(sums.reward_noise, d, 1, p) / math.sqrt(level)
        return sampling + noise + 3.0 * math.sqrt(level) * self._widths.weight_bound

    def _next_beta(self, half: float) -> float:
        """Beta for values of half range ``half``."""
        p, level, d = self._event(len(self._sums.gram)), self.ridge / 2.0, self._dimension
        S = self._shape[0]
        n = self._widths.samples * self._horizon / len(self._sums.gram)
        logs = 2.0 * math.log(1.0 / p) + 2.0 * S * math.log1p(math.sqrt(n))
        sampling = math.sqrt(logs + d * math.log1p(n / (d * level))) + 2.0
        noise = rectangle_bound(self._sums.noise, d, S, p) * math.sqrt(S / level)
        return half * (sampling + noise + 3.0 * math.sqrt(level) * self._widths.weight_bound)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        means, widths = self._rewards
        at = min(step, len(means) - 1)
        return means[at], widths[at]

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        at = min(step, len(self.inverse) - 1)
        inverse, sums = self.inverse[at], self._sums
        leverage, length = self.lengths(at)
        probabilities = None if self._widths.theory else self._projected(at)
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
            if self._widths.theory:
                widths.append(self._next_beta(half) * np.sqrt(leverage))
                continue
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

    def misfit(self, step: int) -> Floats:
        """sqrt(n phi' Lambda^-1 phi); n is the trace of the Gram in mean squares of features."""
        at = min(step, len(self.inverse) - 1)
        squares = max(float((self._features**2).sum(axis=1).mean()), 1e-12)
        n = max(float(np.trace(self._sums.gram[at])), 0.0) / squares
        return np.asarray(np.sqrt(n * self.lengths(at)[0])).reshape(self._shape)

    def precision(self) -> Floats:
        """Regularised Grams in units of their ridge."""
        return positive_part(self._sums.gram) / self.ridge + np.eye(self._dimension)
