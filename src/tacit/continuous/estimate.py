"""Prior of Q on functional noise, and the posterior of a sweep, from releases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.features import Grid
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.privacy.curator import Release

_SMALLEST = 1e-4  # eigenvalues of a kernel below this part of the largest are left out of a prior
_NO_NOISE = 1e-6  # variance that stands for no noise at all
# A histogram is believed to be off from even by this part, and nowhere below that part of even.
_UNEVEN, _RAREST = 0.5, 0.2
_UNSEEN = 0.02  # without noise, points that no user visited count this part of even
# Eigenvalues of a Gram matrix below this many standard deviations of its noise are zero.
_SEEN = 2.0


@dataclass(frozen=True)
class FunctionalConstants:
    """Tuned numbers; lengths are parts of the box, rewards in units of their range.

    ``signal`` is users x mu / (actions x modes), per number that has to be learnt.
    """

    kernel_length: float = 0.2  # of the kernel that users' functions and the noise are made of
    prior_length: float = 0.35  # of what Q is believed to look like
    prior_reward: float = 0.4  # standard deviation of expected rewards, a priori
    prior_moves: float = 0.03  # how far a step leads, a priori: what is believed of transitions
    prior_drift: float = 0.05  # by how much targets may change between releases beside that
    noise: float = 0.3  # standard deviation of a step's residual around its expectation
    modes: float = 3.0  # numbers to learn per coordinate and action; on a map, one in so many
    depth: float = 4.2  # releases where ``signal`` is 1
    depth_power: float = 0.6  # of ``signal`` that releases grow with
    fewest: int = 4  # the smallest number of releases
    clip: float = 0.13  # of users' functions, per root of ``signal`` and of the number of steps
    largest_clip: float = 0.6  # the largest it gets, per root of the number of steps
    clip_fall: float = 0.5  # the last clip over the first
    growth: float = 1.05  # of mu^2 from release to release
    visits: float = 0.05  # part of mu^2 that is spent on where users were
    visits_clip: float = 1.0  # of users' visits: per root of steps on a grid, per step on a map
    averaged: int = 1  # over how many last value functions the greedy policy's is averaged


GRID, GRID_ENDS = FunctionalConstants(), FunctionalConstants(prior_reward=0.3, noise=0.15)
"""For grids; and where episodes may end, of which values are measured in units of the largest."""

MAP = FunctionalConstants(
    prior_reward=0.25,
    prior_moves=0.2,
    prior_drift=0.0,
    noise=0.1,
    clip=0.018,
    largest_clip=0.065,
    visits=0.2,
    visits_clip=0.2,
    averaged=5,
)
"""For other feature maps, whose features are of order one; what ends is worth one unit."""


def bumps(points: Floats, length: float) -> Floats:
    """K(x, y) = exp(-|x - y|^2 / (2 length^2)) of points (n, D), as (n, n)."""
    squares = np.zeros((len(points), len(points)))
    for x in points.T:
        squares += ((x[:, np.newaxis] - x) / length) ** 2
    return np.asarray(np.exp(-0.5 * np.sqrt(squares) ** 2))


def root_of(gram: Floats) -> Floats:
    """L with K = L L' up to rounding: from weights of points to coordinates, by L' w.

    The squared length w' L L' w of the coordinates is that of the function sum_i w_i K(x_i, .), and
    independent normal noise on them is the path of a Gaussian process with covariance K, seen at
    the points. Where K is not safely invertible there are fewer columns. Sensitivity does not hang
    on that: users are clipped, and noise is added, in the coordinates themselves.
    """
    values, vectors = np.linalg.eigh(gram)
    if values[0] > 1e-10 * values[-1]:
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)
    kept = values > 4.0 * len(gram) * 2.0**-52 * values[-1]
    return np.ascontiguousarray((vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1])


class Basis:
    """Features, the coordinates that are released, and the prior.

    On a grid users' functions belong to a kernel, and Q to a smoother Gaussian process; on any
    other map both are the features themselves. ``root``, (m, k), leads from features to released
    coordinates. Weights of a function are a priori ``prior`` @ theta, (m, q), with standard normal
    theta. On a grid v' ``metric`` v is the mean squared slope of values v, elsewhere ``None``.
    """

    def __init__(
        self, features: FeatureMap, constants: FunctionalConstants, centred: bool = True
    ) -> None:
        self.features, self.centred = features, centred
        self.metric: Floats | None = None
        if not isinstance(features, Grid):
            self.root = self.prior = np.eye(features.size)
            return
        lows, highs = np.array(features.lows), np.array(features.highs)
        points = (features.points - lows) / (highs - lows)
        self.root = root_of(bumps(points, constants.kernel_length))
        values, vectors = np.linalg.eigh(bumps(points, constants.prior_length))
        kept = values > _SMALLEST * values[-1]
        self.prior = vectors[:, kept] * np.sqrt(values[kept])
        table = np.eye(features.size).reshape(*features.shape, features.size)
        self.metric = np.zeros((features.size, features.size))
        for axis, n in enumerate(features.shape):
            slopes = np.gradient(table, 1.0 / (n - 1), axis=axis).reshape(features.size, -1)
            self.metric += slopes.T @ slopes / features.size

    @property
    def on_grid(self) -> bool:
        """Whether the map is a grid."""
        return self.metric is not None

    def value(self, weights: Floats) -> tuple[Floats, float]:
        """Values max_a weights[a], as the prior has them, and their offset.

        On a grid values are centred where nothing ends: a constant means nothing there.
        """
        if self.metric is None:
            return weights.ravel() / math.sqrt(len(weights)), 0.0
        best = weights.max(axis=0)
        offset = float(best.mean()) if self.centred else 0.0
        return best - offset, offset

    def carried(self, value: Floats, discount: float) -> Floats:
        """The part of values that is carried over to all actions, as weights (m,)."""
        return discount * value if self.on_grid else np.zeros(self.features.size)

    def alike(self, one: Floats, other: Floats) -> Floats:
        """Likeness of rows of values: the a priori covariance of steps along them."""
        return np.asarray(one @ (other.T if self.metric is None else self.metric @ other.T))


@dataclass(frozen=True, eq=False)
class SweepAnswer:
    """One release of residuals, and what was public when it was asked for."""

    sums: Floats  # (actions, k), noisy
    std: float  # of the noise
    users: int  # how many were asked
    predictions: Floats  # (actions, m), of the part that was not carried over from the values
    value: Floats  # V, as the prior has it

    def scaled(self, units: float, values: float) -> SweepAnswer:
        """The same in other units of rewards, about values in others."""
        told = units * self.sums, units * self.std, self.users, units * self.predictions
        return SweepAnswer(*told, values * self.value)


@dataclass(frozen=True, eq=False)
class SweepEvidence:
    """All releases about values."""

    gram: Floats  # (m, m), of features where users were
    users: int = 0  # whose Gram matrix it is
    answers: tuple[SweepAnswer, ...] = ()


def visible_gram(release: Release, basis: Basis, steps: int) -> Floats:
    """The Gram matrix of features of so many steps, as far as their noise lets it be seen."""
    visits, noise = release.parts["visits"], float(np.max(release.std["visits"]))
    if not basis.on_grid:
        values, vectors = np.linalg.eigh(visits)
        kept = np.where(values < _SEEN * noise + 1e-6, 0.0, values)
        return np.asarray((vectors * kept) @ vectors.T)
    if noise == 0.0:
        return np.diag(np.maximum(visits, _UNSEEN * max(visits.mean(), 1e-9)))
    even = steps / len(visits)
    shrunk = (_UNEVEN * even) ** 2 / ((_UNEVEN * even) ** 2 + noise**2)
    centre = max(float(visits.mean()), 0.3 * even)
    return np.diag(np.maximum(even + (visits - centre) * shrunk, _RAREST * even))


class Posterior:
    """The posterior of targets f_a(V) = E[r + discount (V(s') - V(s)) | s, a], mode by mode.

    A priori targets of two values V and W are jointly Gaussian, with the covariance

        prior prior' (reward^2 + discount^2 moves^2 <V, W> + drift^2 min(i, j))

    where <V, W> is how alike the values are: linear in both, it is a Gaussian prior over reward
    *and* transition operator. So answers about earlier values count for the present ones, as far
    as these are alike. On maps that are no grid V(s) is not subtracted.

    Releases have the same Gram matrix up to the number of users, so one singular value
    decomposition makes of them independent problems with one number per release. Of them
    ``per_pass`` ask the same: without noise, an error is one.
    """

    def __init__(
        self,
        basis: Basis,
        constants: FunctionalConstants,
        discount: float,
        evidence: SweepEvidence,
        per_pass: int,
    ) -> None:
        self._basis, self._constants, answers = basis, constants, evidence.answers
        self._discount = discount
        gram = evidence.gram / len(answers[0].sums)
        shares = np.array([answer.users / evidence.users for answer in answers])
        stds = np.array([answer.std for answer in answers]) / shares
        exact = not stds.any()
        typical = math.sqrt(_NO_NOISE) if exact else float(np.sqrt(np.mean(stds**2)))
        ratios = np.ones(len(answers)) if exact else (stds / typical) ** 2
        root = basis.root
        residual = constants.noise**2 * (root.T @ gram @ root) * (per_pass if exact else 1)
        whiten = np.linalg.inv(np.linalg.cholesky(residual + typical**2 * np.eye(root.shape[1])))
        left, self._gains, self._modes = np.linalg.svd(
            whiten @ root.T @ gram @ basis.prior, full_matrices=False
        )
        self._values = np.array([answer.value for answer in answers])
        both = zip(answers, shares, strict=True)
        told = np.array([a.sums / share + a.predictions @ gram @ root for a, share in both])
        seen = np.einsum("jak,kq->aqj", told @ whiten.T, left)  # (actions, modes, answers)
        squares, index = (self._gains**2)[:, np.newaxis, np.newaxis], np.arange(len(answers))
        drift = constants.prior_drift**2 * np.minimum.outer(index, index)
        covariance = self._reward_and_moves(self._values, self._values) + drift
        self._inverse = np.linalg.inv(squares * covariance + np.diag(ratios))
        self._weights = np.einsum("qij,aqj->aqi", self._inverse, seen) * self._gains[:, np.newaxis]

    def targets(self, value: Floats) -> Floats:
        """The posterior mean of targets for values, as weights (actions, m)."""
        # The covariance of a target now with those that were asked about.
        drift = self._constants.prior_drift**2 * np.arange(len(self._values))
        covariance = self._reward_and_moves(value[np.newaxis], self._values)[0] + drift
        modes = self._weights @ covariance
        return np.asarray(modes @ self._modes @ self._basis.prior.T)

    def _reward_and_moves(self, one: Floats, other: Floats) -> Floats:
        moves = (self._discount * self._constants.prior_moves) ** 2
        return self._constants.prior_reward**2 + moves * self._basis.alike(one, other)


@dataclass(frozen=True, eq=False)
class Filter:
    """A Kalman filter of targets, which drift from batch to batch and are corrected by each once.

    Where users were is not asked: they are taken to be everywhere equally often.
    """

    mean: Floats  # (actions, q), in modes of the prior
    covariance: Floats  # (actions, q, q)

    @classmethod
    def prior(cls, basis: Basis, constants: FunctionalConstants, actions: int) -> Filter:
        """Before any release."""
        modes = basis.prior.shape[1]
        covariance = np.tile(constants.prior_reward**2 * np.eye(modes), (actions, 1, 1))
        return cls(np.zeros((actions, modes)), covariance)

    def targets(self, basis: Basis) -> Floats:
        """Their mean, as weights (actions, m)."""
        return self.mean @ basis.prior.T

    def drifted(self, constants: FunctionalConstants) -> Filter:
        """The targets of the next batch, which may have changed."""
        drift = constants.prior_drift**2 * np.eye(self.mean.shape[1])
        return replace(self, covariance=self.covariance + drift)

    def after(
        self, release: Release, visits: Floats, basis: Basis, constants: FunctionalConstants
    ) -> Filter:
        """A step of the filter for every action.

        Args:
            release: Residuals of a batch.
            visits: To points, (m, actions), as many as are expected.
            basis: Coordinates and prior.
            constants: The noise of a residual.
        """
        std = float(np.max(release.std["residuals"]))
        mean, covariance = self.mean.copy(), self.covariance.copy()
        for action in range(len(mean)):
            own = visits[:, action, np.newaxis]
            across = basis.root.T @ (own * basis.prior)
            noise = constants.noise**2 * basis.root.T @ (own * basis.root)
            noise += (std**2 + _NO_NOISE) * np.eye(len(noise))
            shared = across @ covariance[action]
            gain = np.linalg.solve(noise + shared @ across.T, shared).T
            mean[action] += gain @ release["residuals"][action]
            covariance[action] -= gain @ across @ covariance[action]
        return Filter(mean, covariance)
