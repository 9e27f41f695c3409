"""Costs and projections of models, by the compiled loops, for tests to compare with."""

import numpy as np

from tacit.lq import LQSpec, control_loops, riccati
from tacit.lq.riccati import expected_costs
from tacit.papers import chowdhury_lq_2021 as search_loops


def costs_in(gains, thetas, control_noise, start_moment, noise_covariance, Q, R):
    """What gains (M, H, d, n) cost in models (L, n + d, n), as (M, L)."""
    gains = np.asarray(gains, dtype=float)
    _, H, d, n = gains.shape
    spec = LQSpec(n, d, H, Q, R, 1.0, noise_covariance, start_moment, 1.0, 1.0)
    return expected_costs(spec, gains, np.asarray(thetas, dtype=float), control_noise)


def cost_in(A, B, gains, *rest):
    """What gains (H, d, n) cost in a system."""
    return float(costs_in([gains], [riccati.model(A, B)], *rest)[0, 0])


def cost_gradient(theta, Q, R, H, start_moment, noise_covariance):
    """The optimal cost of a model, and its gradient by the model."""
    p, n = theta.shape
    gradient, room = np.empty((p, n)), (np.empty((H + 1, n, n)), np.empty((H, p - n, n)))
    costs = start_moment, noise_covariance, np.asarray(Q), np.asarray(R)
    return control_loops.cost_gradient(theta.copy(), *costs, *room, gradient), gradient


def project_ellipsoid(theta, centre, V, beta):
    """The nearest model, in the Frobenius norm, with |. - centre|_V <= beta."""
    eigenvalues, basis, middle, point = _turned(theta, centre, V)
    out = np.empty(middle.shape)
    search_loops.project_ellipsoid(point, _search(middle, eigenvalues, beta), out)
    return basis @ out


def project_intersection(theta, centre, V, beta, radius):
    """The nearest model in both, the ellipsoid and the ball; ``None`` if they do not meet."""
    eigenvalues, basis, middle, point = _turned(theta, centre, V)
    out = np.empty(middle.shape)
    meets = search_loops.project_both(point, _search(middle, eigenvalues, beta, radius), out)
    return basis @ out if meets else None


def _search(middle, eigenvalues, beta, radius=1.0):
    """A set of models; costs are not looked at."""
    none = np.zeros((1, 1))
    among = np.ascontiguousarray(middle), eigenvalues, none, float(beta), float(radius)
    return search_loops.Search(*among, *(none,) * 4, np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))


def _turned(theta, centre, V):
    eigenvalues, basis = np.linalg.eigh(np.asarray(V, dtype=float))
    eigenvalues, basis = np.maximum(eigenvalues, 0.0), np.ascontiguousarray(basis)
    centre, theta = np.asarray(centre, dtype=float), np.asarray(theta, dtype=float)
    return eigenvalues, basis, basis.T @ centre, np.ascontiguousarray(basis.T @ theta)
