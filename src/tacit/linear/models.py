"""What private sums say about next values and rewards, with how far off it may be.

Planning asks a :class:`Model` two things of a step: the mean reward of every state and action, and
the expected next value of every one for some value functions, each with a width. The three models
here read the three kinds of release: sums of features (:class:`SumModel`), counts along the
policies that were played (:class:`CellModel`), and answers to the very question
(:class:`AnswerModel`). A noise whose size is known enters the ridge and the widths.

A next value is predicted around the middle c of the values' range: P V = c + P (V - c), because
probabilities add up to 1. That halves what must be learnt, and what noise it meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.finite.evidence import Counts
from tacit.numerics.ridge import operator_bound, positive_part, rectangle_bound, ridge_inverse

Floats = NDArray[np.float64]

# Rewards in [0, 1] have at most this variance.
_REWARD_VARIANCE = 0.25
# The ridge of a reward regression, in units of that variance.
_REWARD_RIDGE = 4.0
# What later value functions are multiplied by when users are asked about several.
_LATER_QUESTIONS = 0.5
# Rows of probabilities are projected where there are at most this many in all.
_MOST_PROBABILITIES = 1 << 22


class Model(Protocol):
    """What is known of a world."""

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Mean rewards (S, A) at a step, and their widths."""
        ...

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Expected next values (k, S, A) for value functions (k, S), and their widths."""
        ...

    def precision(self) -> Floats:
        """Precision matrices (L, d, d): how well each direction of features is known."""
        ...


@dataclass(frozen=True)
class KnownRewards:
    """A model whose rewards are known."""

    model: Model
    table: Floats

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """The known ones."""
        known = self.table[min(step, len(self.table) - 1)]
        return known, np.zeros(known.shape)

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """Those of the model."""
        return self.model.next_values(step, values)

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


@dataclass(frozen=True)
class Widths:
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
        self, features: Floats, sums: Sums, rewards: Sums, widths: Widths, horizon: int
    ) -> None:
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths
        self._horizon = horizon
        self._sums = sums
        self._reward_sums = rewards
        self.ridge = self._ridge_of(sums)
        self._probabilities: dict[int, Floats | None] = {}
        self._lengths: dict[int, tuple[Floats, Floats]] = {}

    @property
    def _dimension(self) -> int:
        return int(self._features.shape[1])

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
            squares = _REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
            of_ridge = _REWARD_VARIANCE * ridge**2 * length
            widths = self._widths.practical(squares, of_ridge)
        rows = len(weights)
        return (
            (weights @ self._features.T).reshape(rows, *self._shape),
            widths.reshape(rows, *self._shape),
        )

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
        """See :class:`Model`."""
        means, widths = self._rewards
        at = min(step, len(means) - 1)
        return means[at], widths[at]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """See :class:`Model`."""
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
        if at not in self._probabilities:
            S = self._shape[0]
            rows = None
            if len(self._features) * S <= _MOST_PROBABILITIES:
                raw = self._features @ (self.inverse[at] @ self._sums.following[at])
                rows = distributions(raw)
            self._probabilities[at] = rows
        return self._probabilities[at]

    def precision(self) -> Floats:
        """Regularised Grams in units of their ridge."""
        units = np.eye(self._dimension)
        return positive_part(self._sums.gram) / self.ridge + units


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
        widths: Widths,
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
        """See :class:`Model`."""
        return self._rewards[min(step, len(self._rewards) - 1)]

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """See :class:`Model`; the first value function decides how cells are weighted."""
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


class AnswerModel:
    """Regression on sums for exactly the value functions that planning asks about.

    Args:
        features: (S, A, d).
        sums: Grams and rewards of all steps, without next states.
        ask: ``ask(step, targets)`` has the users answer targets (k, S) in [-1, 1]; it returns their
            sums (k, d) and the noise of an entry.
        widths: practical ones.
        pooled_rewards: whether one reward function serves all steps.
    """

    def __init__(
        self,
        features: Floats,
        sums: Sums,
        ask: Callable[[int, Floats], tuple[Floats, float]],
        widths: Widths,
        pooled_rewards: bool,
    ) -> None:
        self._ask = ask
        self._sums = sums
        rewards = sums.pooled() if pooled_rewards else sums
        self._base = SumModel(features, sums, rewards, widths, len(sums.gram))
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`Model`."""
        return self._base.rewards(step)

    def next_values(self, step: int, values: Floats) -> tuple[Floats, Floats]:
        """See :class:`Model`; this is where users are asked."""
        middles, halves = np.array([middle_of(value) for value in values]).T
        targets = (values - middles[:, np.newaxis]) / halves[:, np.newaxis]
        shape = (len(values), *self._shape)
        if not targets.any():
            # Values that are the same everywhere need not be asked about.
            known = np.broadcast_to(middles[:, np.newaxis, np.newaxis], shape)
            return known, np.zeros(shape)
        # All questions share one budget, of which the first gets most.
        shares = np.array([1.0] + [_LATER_QUESTIONS] * (len(values) - 1))
        answers, noise = self._ask(step, targets * shares[:, np.newaxis])
        answers = answers / shares[:, np.newaxis]
        inverse = self._base.inverse[step]
        weights = answers @ inverse  # in units of half the range
        leverage, length = self._base.lengths(step)
        means = np.clip(weights @ self._features.T, -1.0, 1.0)
        variance = np.array([spread_of(target, 1.0) for target in targets])
        long = np.minimum((weights**2).sum(axis=1), self._features.shape[1])
        noises = (noise / shares) ** 2 + self._sums.gram_noise**2 * long
        squares = variance[:, np.newaxis] * leverage + noises[:, np.newaxis] * length
        of_ridge = variance[:, np.newaxis] * self._base.ridge**2 * length
        back = halves[:, np.newaxis]
        return (
            (means * back + middles[:, np.newaxis]).reshape(shape),
            (self._widths.practical(squares, of_ridge) * back).reshape(shape),
        )

    def precision(self) -> Floats:
        """See :class:`Model`."""
        return self._base.precision()


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
