"""Kernels as feature maps."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.continuous import Quadrature

MAPS = [
    Quadrature((0.0, -1.0), (1.0, 3.0), lengthscale=0.6, nodes=5),
    Quadrature((0.0,), (2.0,), lengthscale=0.5, nodes=8),
]


class TestMaps:
    def test_quadrature_is_the_squared_exponential(self):
        features = Quadrature((0.0, 0.0), (1.0, 2.0), lengthscale=0.5, nodes=12)
        rng = np.random.default_rng(0)
        points = rng.random((30, 2)) * [1.0, 2.0]
        z, unit = features(points), points / [1.0, 2.0]
        squares = ((unit[:, np.newaxis] - unit) ** 2).sum(axis=-1)
        assert np.abs(z @ z.T - np.exp(-squares / (2 * 0.25))).max() < 1e-4

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(MAPS), st.lists(st.floats(), min_size=2, max_size=2))
    def test_no_state_has_features_longer_than_one(self, features, x):
        z = features(np.array(x[: features.dimension]))
        assert np.isfinite(z).all()
        assert np.linalg.norm(z) <= 1 + 1e-9
