"""Features, the coordinates that are released, and what is believed of Q a priori."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.feature_map import is_grid
from tacit.privacy.functions.functional import RBF, GridFunctions, Kernel
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.constants import FunctionalConstants
    from tacit.continuous.feature_map import FeatureMap


# Eigenvalues of a kernel below this part of the largest are left out of a prior.
_SMALLEST = 1e-4
NO_NOISE = 1e-6
"""Variance that stands for no noise at all."""


class Basis:
    """Features, the coordinates that are released, and what is believed a priori.

    On a grid users' functions belong to a kernel, and Q to a smoother Gaussian process; on any
    other map both are the features themselves.

    Attributes:
        features: the map.
        root: (m, k), from features to released coordinates.
        prior: (m, q): weights of a believed function are prior @ theta with standard normal theta.
        metric: (m, m) on a grid, such that v' metric v is the mean squared slope of a function
            with values v; ``None`` on other maps, where the weights' own length counts.
    """

    def __init__(
        self, features: FeatureMap, kernel: Kernel | None, constants: FunctionalConstants
    ) -> None:
        self.features = features
        self.metric: Floats | None = None
        if not is_grid(features):
            self.root = np.eye(features.size)
            self.prior = np.eye(features.size)
            return
        D = features.dimension
        points = (features.points - np.array(features.lows)) / (
            np.array(features.highs) - np.array(features.lows)
        )
        self.root = GridFunctions(kernel or RBF(constants.kernel_length, D), points).root
        values, vectors = np.linalg.eigh(RBF(constants.prior_length, D)(points, points))
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
        """What stands for max_a weights[a] in the prior, and the offset of these values.

        On a grid values are centred: where nothing ends a constant means nothing.
        """
        if self.metric is None:
            return weights.ravel() / math.sqrt(len(weights)), 0.0
        best = weights.max(axis=0)
        return best - best.mean(), float(best.mean())

    def alike(self, one: Floats, other: Floats) -> Floats:
        """How alike rows of values are: what steps along them have in common, a priori."""
        likeness: Floats = one @ (other.T if self.metric is None else self.metric @ other.T)
        return likeness
