"""Projections on the sets that optimistic models are looked for in."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.lq.models import project_ball, project_ellipsoid, project_intersection


def instance(seed, n=2, d=1, spread=2.0):
    """A centre and a V whose eigenvalues are far from each other."""
    rng = np.random.default_rng(seed)
    p = n + d
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    V = basis @ np.diag(10.0 ** rng.uniform(-spread, spread, size=p)) @ basis.T
    return rng, rng.normal(size=(p, n)), 0.5 * (V + V.T)


def length(x, V):
    return float(np.sqrt(np.trace(x.T @ V @ x)))


def slsqp(point, constraints, first):
    """The nearest feasible point by a solver that knows nothing of the problem."""
    shape = point.shape
    found = minimize(
        lambda t: ((t - point.ravel()) ** 2).sum(),
        first.ravel(),
        jac=lambda t: 2.0 * (t - point.ravel()),
        constraints=[
            {
                "type": "ineq",
                "fun": lambda t, f=f: f(t.reshape(shape))[0],
                "jac": lambda t, f=f: f(t.reshape(shape))[1].ravel(),
            }
            for f in constraints
        ],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return found.x.reshape(shape)


def in_ellipsoid(centre, V, beta):
    return lambda t: (
        1.0 - np.trace((t - centre).T @ V @ (t - centre)) / beta**2,
        -2.0 * V @ (t - centre) / beta**2,
    )


def in_ball(radius):
    return lambda t: (1.0 - (t**2).sum() / radius**2, -2.0 * t / radius**2)


@pytest.mark.parametrize("seed", range(12))
def test_projection_on_an_ellipsoid_is_the_one_of_a_general_solver(seed):
    rng, centre, V = instance(seed, spread=1.0)
    beta = 10.0 ** rng.uniform(-1, 0.5)
    point = centre + 3.0 * rng.normal(size=centre.shape)
    found = project_ellipsoid(point, centre, V, beta)
    assert length(found - centre, V) <= beta * (1.0 + 1e-12)
    other = slsqp(point, [in_ellipsoid(centre, V, beta)], centre)
    assert np.linalg.norm(found - point) <= np.linalg.norm(other - point) + 1e-8
    np.testing.assert_allclose(found, other, atol=1e-4)


def dykstra(point, centre, V, beta, radius, rounds=20_000):
    """The nearest point of both by alternating projections with corrections."""
    x, p, q = point, np.zeros_like(point), np.zeros_like(point)
    for _ in range(rounds):
        y = project_ellipsoid(x + p, centre, V, beta)
        p = x + p - y
        new = project_ball(y + q, radius)
        q = y + q - new
        if np.abs(new - x).max() < 1e-14:
            break
        x = new
    return x


@pytest.mark.parametrize("seed", range(12))
def test_projection_on_both_is_that_of_dykstra_and_of_a_general_solver(seed):
    rng, centre, V = instance(100 + seed, spread=0.7)
    beta = 1.0
    nearest = np.linalg.norm(project_ellipsoid(np.zeros_like(centre), centre, V, beta))
    far = np.linalg.norm(centre) + beta / np.sqrt(np.linalg.eigvalsh(V)[0])
    radius = nearest + rng.uniform(0.05, 0.6) * (far - nearest)
    point = 4.0 * rng.normal(size=centre.shape)
    found = project_intersection(point, centre, V, beta, radius)
    assert length(found - centre, V) <= beta + 1e-10
    assert np.linalg.norm(found) <= radius + 1e-10
    np.testing.assert_allclose(found, dykstra(point, centre, V, beta, radius), atol=1e-6)
    other = slsqp(point, [in_ellipsoid(centre, V, beta), in_ball(radius)], found)
    assert np.linalg.norm(found - point) <= np.linalg.norm(other - point) + 1e-7


def test_sets_that_do_not_meet_have_no_projection():
    _, centre, V = instance(1)
    zero = np.zeros_like(centre)
    nearest = np.linalg.norm(project_ellipsoid(zero, centre, V, 0.1))
    assert project_intersection(zero, centre, V, 0.1, 0.99 * nearest) is None
    assert project_intersection(zero, centre, V, 0.1, 1.01 * nearest) is not None
