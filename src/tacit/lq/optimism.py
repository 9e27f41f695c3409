"""The most favourable model that the data allow: optimism for linear-quadratic control.

Models Theta = [A, B]' lie in an ellipsoid {|Theta - centre|_V <= beta}, where |X|_V^2 = tr(X'VX),
and in a public Frobenius ball. Among those :func:`optimistic_model` finds one of least optimal
cost, averaged over first states. That is post-processing of what was released: any solver is as
private as any other, and a poor one costs optimism only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.sizes import check_seed, check_size
from tacit.lq.spec import check_array, check_definite, check_positive, check_semidefinite
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OptimisticModel:
    """A model and what is optimal in it.

    Attributes:
        theta: [A, B]', (n + d, n).
        cost: its optimal cost.
        gains: its optimal gains, (H, d, n).
        consistent: whether ellipsoid and ball have a model in common; where they have not,
            ``theta`` is the model of the ball that is nearest to the centre in the V-norm.
    """

    theta: Floats
    cost: float
    gains: Floats
    consistent: bool


def project_ellipsoid(theta: ArrayLike, centre: ArrayLike, V: ArrayLike, beta: float) -> Floats:
    """The nearest model, in the Frobenius norm, with |. - centre|_V <= beta.

    >>> project_ellipsoid([[3.0], [0.0]], [[0.0], [0.0]], np.eye(2), beta=1.0).round(12).tolist()
    [[1.0], [0.0]]
    """
    from tacit.lq import optimism_loops

    middle, eigenvalues, basis = _ellipsoid(centre, V)
    point = check_array("theta", theta, *middle.shape)
    out = np.empty(middle.shape)
    turned = np.ascontiguousarray(basis.T @ point)
    size = check_positive("beta", beta)
    optimism_loops.project_ellipsoid(turned, 1.0, basis.T @ middle, eigenvalues, size, out)
    return basis @ out


def project_ball(theta: ArrayLike, radius: float) -> Floats:
    """The nearest model with a Frobenius norm of at most ``radius``.

    >>> project_ball([[3.0], [4.0]], radius=1.0).round(12).tolist()
    [[0.6], [0.8]]
    """
    point = check_array("theta", theta, None, None)
    length = float(np.linalg.norm(point))
    most = check_positive("radius", radius)
    return point * (most / length) if length > most else point.copy()


def project_intersection(
    theta: ArrayLike, centre: ArrayLike, V: ArrayLike, beta: float, radius: float
) -> Floats | None:
    """The nearest model in both, the ellipsoid and the ball; ``None`` if they do not meet.

    Alternating projections (Dykstra) only converge to it. Here it is found exactly: it is the
    projection of t theta on the ellipsoid for the t in [0, 1] at which the ball is reached.

    >>> corner = project_intersection([[9.0], [9.0]], [[2.0], [0.0]], np.eye(2), 1.0, radius=2.0)
    >>> corner.round(4).tolist()
    [[1.75], [0.9682]]
    """
    from tacit.lq import optimism_loops

    middle, eigenvalues, basis = _ellipsoid(centre, V)
    point = np.ascontiguousarray(basis.T @ check_array("theta", theta, *middle.shape))
    out = np.empty(middle.shape)
    sizes = check_positive("beta", beta), check_positive("radius", radius)
    meets = optimism_loops.project_both(point, basis.T @ middle, eigenvalues, *sizes, out)
    return basis @ out if meets else None


def optimistic_model(
    centre: ArrayLike,
    V: ArrayLike,
    beta: float,
    radius: float,
    *,
    Q: ArrayLike,
    R: ArrayLike,
    H: int,
    start_moment: ArrayLike,
    noise_covariance: ArrayLike,
    restarts: int = 3,
    iterations: int = 100,
    seed: int = 0,
) -> OptimisticModel:
    """A model of least optimal cost in the ellipsoid and the ball.

    The cost is not convex in the model, so that the descent begins in several places: at the
    centre, where a linear cost would be least, and at random models on the ellipsoid.

    Args:
        centre: the estimate, (n + d, n).
        V: (n + d, n + d), symmetric and positive semidefinite.
        beta: the size of the ellipsoid.
        radius: of the Frobenius ball around zero.
        Q: cost of states, (n, n).
        R: cost of controls, (d, d).
        H: steps of an episode.
        start_moment: the mean of x x' of first states x, (n, n).
        noise_covariance: (n, n).
        restarts: in how many places it begins.
        iterations: steps from each of them, at most.
        seed: of the random places; the same one gives the same model.
    """
    from tacit.lq import optimism_loops, riccati_loops

    middle, eigenvalues, basis = _ellipsoid(centre, V)
    p, n = middle.shape
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


def _ellipsoid(centre: ArrayLike, V: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """The centre, and V's eigenvalues and eigenvectors."""
    middle = check_array("centre", centre, None, None)
    p, n = middle.shape
    if p <= n:
        raise InvalidArgument(f"centre must be of shape (n + d, n), got {middle.shape}")
    eigenvalues, basis = np.linalg.eigh(check_semidefinite("V", V, p))
    return middle, np.maximum(eigenvalues, 0.0), np.ascontiguousarray(basis)
