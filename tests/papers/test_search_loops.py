"""Projections on the sets that optimistic models are looked for in."""

import numpy as np
import pytest
from scipy.optimize import nnls

from tests.lq.models import project_ellipsoid, project_intersection


def instance(seed, n=2, d=1, spread=2.0):
    """A centre and a V whose eigenvalues are far from each other."""
    rng = np.random.default_rng(seed)
    p = n + d
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    V = basis @ np.diag(10.0 ** rng.uniform(-spread, spread, size=p)) @ basis.T
    return rng, rng.normal(size=(p, n)), 0.5 * (V + V.T)


def length(x, V):
    return float(np.sqrt(np.trace(x.T @ V @ x)))


def left(found, point, centre, V, beta, radius=np.inf):
    """By Kuhn and Tucker none of the way to the point is left beside normals of active bounds."""
    assert length(found - centre, V) <= beta * (1.0 + 1e-10)
    assert np.linalg.norm(found) <= radius * (1.0 + 1e-10)
    way, normals = (point - found).ravel(), np.zeros((found.size, 2))
    if length(found - centre, V) >= beta * (1.0 - 1e-8):
        normals[:, 0] = (V @ (found - centre)).ravel()
    if np.linalg.norm(found) >= radius * (1.0 - 1e-8):
        normals[:, 1] = found.ravel()
    return nnls(normals / np.maximum(np.linalg.norm(normals, axis=0), 1e-300), way)[1]


@pytest.mark.parametrize("seed", range(12))
def test_projection_on_an_ellipsoid_is_the_nearest_point(seed):
    rng, centre, V = instance(seed, spread=1.0)
    beta = 10.0 ** rng.uniform(-1, 0.5)
    point = centre + 3.0 * rng.normal(size=centre.shape)
    assert left(project_ellipsoid(point, centre, V, beta), point, centre, V, beta) <= 1e-8


@pytest.mark.parametrize("seed", range(12))
def test_projection_on_both_is_the_nearest_point(seed):
    rng, centre, V = instance(100 + seed, spread=0.7)
    beta = 1.0
    nearest = np.linalg.norm(project_ellipsoid(np.zeros_like(centre), centre, V, beta))
    far = np.linalg.norm(centre) + beta / np.sqrt(np.linalg.eigvalsh(V)[0])
    radius = nearest + rng.uniform(0.05, 0.6) * (far - nearest)
    point = 4.0 * rng.normal(size=centre.shape)
    found = project_intersection(point, centre, V, beta, radius)
    assert left(found, point, centre, V, beta, radius) <= 1e-6


def test_sets_that_do_not_meet_have_no_projection():
    _, centre, V = instance(1)
    zero = np.zeros_like(centre)
    nearest = np.linalg.norm(project_ellipsoid(zero, centre, V, 0.1))
    assert project_intersection(zero, centre, V, 0.1, 0.99 * nearest) is None
    assert project_intersection(zero, centre, V, 0.1, 1.01 * nearest) is not None
