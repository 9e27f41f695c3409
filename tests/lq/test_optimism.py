import numpy as np
import pytest
from scipy.optimize import minimize

from tacit import InvalidArgument
from tacit.lq import riccati
from tacit.lq.optimism import optimistic_model
from tests.lq.models import cost_gradient, project_ball, project_ellipsoid, project_intersection


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


@pytest.mark.parametrize("seed", range(20))
def test_projection_on_an_ellipsoid_fulfils_the_variational_inequality(seed):
    rng, centre, V = instance(seed, n=3, d=2, spread=3.0)
    beta = 10.0 ** rng.uniform(-2, 0)
    point = centre + 10.0 ** rng.uniform(0, 4) * rng.normal(size=centre.shape)
    found = project_ellipsoid(point, centre, V, beta)
    assert length(point - centre, V) > beta
    assert length(found - centre, V) <= beta * (1.0 + 1e-9)
    # <point - found, y - found> <= 0 for all y in the ellipsoid: the largest y is known.
    normal = point - found
    dual = np.linalg.solve(V, normal)
    largest = (normal * (centre - found)).sum() + beta * np.sqrt((normal * dual).sum())
    assert largest <= 1e-8 * np.linalg.norm(normal) * (1.0 + np.linalg.norm(found))


def test_what_is_inside_stays():
    _, centre, V = instance(0)
    inside = centre + 1e-3 / np.sqrt(np.linalg.eigvalsh(V)[-1])
    np.testing.assert_allclose(project_ellipsoid(inside, centre, V, 1.0), inside, atol=1e-12)
    np.testing.assert_allclose(project_intersection(inside, centre, V, 1.0, 100.0), inside)
    np.testing.assert_array_equal(project_ball(inside, 100.0), inside)


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


COSTS = {
    "Q": np.eye(3),
    "R": 0.05 * np.eye(2),
    "H": 6,
    "start_moment": np.eye(3) / 3.0,
    "noise_covariance": 0.15**2 / 5.0 * np.eye(3),
}


def cost(theta):
    c = COSTS
    rest = c["Q"], c["R"], c["H"], c["start_moment"], c["noise_covariance"]
    return cost_gradient(theta, *rest)[0]


def lq_instance(seed):
    rng = np.random.default_rng(seed)
    theta = 0.45 * rng.normal(size=(5, 3))
    rows = rng.normal(size=(40, 5)) * 10.0 ** rng.uniform(-0.7, 0.3, size=5)
    return rng, theta, rows.T @ rows + 0.1 * np.eye(5)


@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_feasible_and_below_a_random_search(seed):
    rng, centre, V = lq_instance(seed)
    beta, radius = (0.6, 1.5, 3.0, 6.0)[seed], 1.05 * np.linalg.norm(centre)
    found = optimistic_model(centre, V, beta, radius, **COSTS)
    assert found.consistent
    assert length(found.theta - centre, V) <= beta + 1e-8
    assert np.linalg.norm(found.theta) <= radius + 1e-8
    assert found.cost == pytest.approx(cost(found.theta), rel=1e-12)
    assert found.cost < cost(centre)
    root = np.linalg.inv(np.linalg.cholesky(V)).T
    least = np.inf
    for _ in range(20_000 // 4):
        way = rng.normal(size=(5, 3))
        # On the boundary mostly, where the optimum is.
        way *= beta * rng.uniform(0.8, 1.0) / np.linalg.norm(way)
        theta = centre + root @ way
        if np.linalg.norm(theta) <= radius:
            least = min(least, cost(theta))
    assert found.cost <= least


@pytest.mark.slow
def test_optimum_is_below_a_random_search_of_twenty_thousand_models():
    rng, centre, V = lq_instance(9)
    beta, radius = 1.0, 1.1 * np.linalg.norm(centre)
    found = optimistic_model(centre, V, beta, radius, **COSTS)
    root = np.linalg.inv(np.linalg.cholesky(V)).T
    for _ in range(20_000):
        way = rng.normal(size=(5, 3))
        theta = centre + root @ way * beta * rng.random() ** (1 / 15) / np.linalg.norm(way)
        if np.linalg.norm(theta) <= radius:
            assert found.cost <= cost(theta)


@pytest.mark.parametrize("seed", range(3))
def test_optimum_is_that_of_a_general_solver_and_of_many_restarts(seed):
    _, centre, V = lq_instance(20 + seed)
    beta, radius = 1.0, 1.02 * np.linalg.norm(centre)
    found = optimistic_model(centre, V, beta, radius, **COSTS)
    many = optimistic_model(centre, V, beta, radius, restarts=30, iterations=1000, seed=5, **COSTS)
    assert found.cost <= many.cost * (1.0 + 1e-6)
    limits = in_ellipsoid(centre, V, beta), in_ball(radius)
    solved = minimize(
        lambda t: cost(t.reshape(5, 3)),
        project_intersection(centre, centre, V, beta, radius).ravel(),
        constraints=[{"type": "ineq", "fun": lambda t, f=f: f(t.reshape(5, 3))[0]} for f in limits],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.cost <= solved.fun * (1.0 + 1e-6)


def test_same_arguments_give_the_same_model():
    _, centre, V = lq_instance(30)
    first, second = (optimistic_model(centre, V, 2.0, 3.0, **COSTS) for _ in range(2))
    np.testing.assert_array_equal(first.theta, second.theta)
    np.testing.assert_array_equal(first.gains, second.gains)
    _, K = riccati.optimal_gains(
        first.theta[:3].T, first.theta[3:].T, COSTS["Q"], COSTS["R"], COSTS["H"]
    )
    np.testing.assert_array_equal(first.gains, K)


def test_without_a_common_model_the_centre_is_projected_in_the_norm_of_v():
    _, centre, V = lq_instance(31)
    radius = 0.5 * np.linalg.norm(centre)
    found = optimistic_model(centre, V, 1e-3, radius, **COSTS)
    assert not found.consistent
    assert np.linalg.norm(found.theta) == pytest.approx(radius, rel=1e-10)
    assert found.cost == pytest.approx(cost(found.theta), rel=1e-12)
    # Stationary: V (theta - centre) is a multiple of theta, towards the inside.
    pull = V @ (centre - found.theta)
    multiplier = (pull * found.theta).sum() / radius**2
    assert multiplier > 0
    np.testing.assert_allclose(pull, multiplier * found.theta, rtol=1e-8, atol=1e-8)


def test_a_direction_that_v_does_not_see_is_bounded_by_the_ball_alone():
    V = np.diag([4.0, 0.0])
    found = project_intersection([[5.0], [7.0]], [[0.0], [0.0]], V, 1.0, radius=3.0)
    # 2 |theta_0| <= 1, and the rest is what the ball leaves.
    np.testing.assert_allclose(found.ravel(), [0.5, np.sqrt(9.0 - 0.25)], rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beta": 0.0}, "beta must be a finite number > 0"),
        ({"radius": np.inf}, "radius must be a finite number > 0"),
        ({"centre": np.zeros((3, 3))}, "centre must be of shape"),
        ({"V": np.eye(4)}, "V must have shape"),
        ({"V": -np.eye(5)}, "V must be positive semidefinite"),
        ({"restarts": 0}, "restarts must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_wrong_arguments_are_named(change, words):
    arguments = {"centre": np.zeros((5, 3)), "V": np.eye(5), "beta": 1.0, "radius": 2.0, **COSTS}
    with pytest.raises(InvalidArgument, match=words):
        optimistic_model(**(arguments | change))
