"""The most favourable model that the data allow: optimism for linear-quadratic control.

Models Theta = [A, B]' lie in an ellipsoid {|Theta - centre|_V <= beta}, where |X|_V^2 = tr(X'VX),
and in a public Frobenius ball. Among those :func:`optimistic_model` finds one of least optimal
cost, averaged over first states. Any solver is as private as any other; a poor one costs optimism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import check_seed, check_size
from tacit.lq.arguments import check_array, check_definite, check_positive, check_semidefinite
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Models Theta with tr((Theta - centre)' V (Theta - centre)) <= beta^2, equation (8)."""

    centre: Floats  # (n + d, n)
    V: Floats  # (n + d, n + d)
    beta: float  # the radius

    def holds(self, theta: Floats) -> bool:
        """Whether a model is in it."""
        error = theta - self.centre
        return float((error * (self.V @ error)).sum()) <= self.beta**2


@dataclass(frozen=True, eq=False)
class OptimisticModel:
    """A model and what is optimal in it."""

    theta: Floats  # [A, B]', (n + d, n)
    cost: float  # its optimal cost
    gains: Floats  # its optimal gains, (H, d, n)
    # Whether ellipsoid and ball have a model in common; where they have not, ``theta`` is the model
    # of the ball that is nearest to the centre in the V-norm.
    consistent: bool


def optimistic_model(
    centre: ArrayLike,  # of the ellipsoid, (n + d, n)
    V: ArrayLike,  # (n + d, n + d)
    beta: float,  # its size
    radius: float,  # of the Frobenius ball around zero
    *,
    Q: ArrayLike,  # cost of states, (n, n); see LQSpec, as for the next four
    R: ArrayLike,
    H: int,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
    restarts: int = 3,  # in how many places it begins
    iterations: int = 100,  # steps from each of them, at most
    seed: int = 0,  # of the random places; the same one gives the same model
) -> OptimisticModel:
    """A model of least optimal cost in the ellipsoid and the ball.

    The cost is not convex in the model, so that the descent begins in several places: at the
    centre, where a linear cost would be least, and at random models on the ellipsoid.
    """
    from tacit.lq import optimism_loops, riccati_loops

    middle = check_array("centre", centre, None, None)
    p, n = middle.shape
    if p <= n:
        raise InvalidArgument(f"centre must be of shape (n + d, n), got {middle.shape}")
    eigenvalues, basis = np.linalg.eigh(check_semidefinite("V", V, p))
    eigenvalues, basis = np.maximum(eigenvalues, 0.0), np.ascontiguousarray(basis)
    d, horizon = p - n, check_size("H", H)
    size, bound = check_positive("beta", beta), check_positive("radius", radius)
    places, steps = check_size("restarts", restarts), check_size("iterations", iterations)
    rng = np.random.default_rng(check_seed("seed", seed))
    costs = (
        check_semidefinite("start_moment", start_moment, n),
        check_semidefinite("noise_covariance", noise_covariance, n),
        check_semidefinite("Q", Q, n),
        check_definite("R", R, d),
    )
    P, K = np.empty((horizon + 1, n, n)), np.empty((horizon, d, n))
    turned = np.ascontiguousarray(basis.T @ middle)
    gradient, first = np.empty((p, n)), np.empty((p, n))
    consistent = optimism_loops.project_both(turned, turned, eigenvalues, size, bound, first)
    if not consistent:
        optimism_loops.nearest_in_ball(turned, eigenvalues, bound, first)
        theta = np.ascontiguousarray(basis @ first)
        cost = riccati_loops.cost_gradient(theta, *costs, P, K, gradient)
        return OptimisticModel(theta, float(cost), K, consistent=False)
    riccati_loops.cost_gradient(np.ascontiguousarray(basis @ first), *costs, P, K, gradient)
    # Half axes of the ellipsoid; what is far outside of the ball is as good as just outside.
    axes = np.minimum(size / np.sqrt(np.maximum(eigenvalues, 1e-300)), 4.0 * bound)[:, np.newaxis]
    best, least = first, np.inf
    for place in range(places):
        point = first.copy()
        if place > 0:
            random = rng.standard_normal((p, n))
            # Against the gradient of the cost at first: where a linear cost would be least.
            towards = -axes * (basis.T @ gradient) if place == 1 else random
            point = turned + axes * towards / max(float(np.linalg.norm(towards)), 1e-300)
        reached = optimism_loops.descend(
            point, turned, eigenvalues, basis, size, bound, *costs, P, K, steps
        )
        if reached < least:
            best, least = point, reached
    theta = np.ascontiguousarray(basis @ best)
    cost = riccati_loops.cost_gradient(theta, *costs, P, K, gradient)
    return OptimisticModel(theta, float(cost), K, consistent=True)
