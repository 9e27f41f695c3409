"""The compiled search for the model of least cost among those that are believed possible.

Models are given in the basis of V's eigenvectors, in which an ellipsoid
{|Theta - centre|_V <= beta} has axes and Frobenius norms are what they are anyway.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.lq.riccati_loops import cost_gradient, times
from tacit.numerics.compiled import Floats, compiled

# Projections: how close counts as equal, and how many steps there are at most.
_CLOSE, _NEWTON, _SECANTS = 1e-13, 200, 200
# Descent: Armijo's constant, the relative gain that is none, how often a step is shortened, and how
# many radii a step before the projection may be long.
_ARMIJO, _STATIONARY, _HALVINGS, _FARTHEST = 1e-4, 1e-9, 40, 20.0


@compiled
def project_ellipsoid(
    point: Floats, scale: float, centre: Floats, eigenvalues: Floats, beta: float, out: Floats
) -> None:
    """The nearest model in the ellipsoid to ``scale * point``.

    It is centre + (I + m V)^{-1} (point - centre). The multiplier m comes from Newton's method on
    1 / |.|_V, which is concave in m, so that it climbs to the root without overshooting.
    """
    out[:] = scale * point - centre
    squares = (out * out).sum(axis=1)
    m, length = 0.0, 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(len(squares)):
            f = 1.0 / (1.0 + m * eigenvalues[i])
            e = eigenvalues[i] * squares[i] * f * f
            q += e
            slope += e * eigenvalues[i] * f
        length = math.sqrt(q)
        if length <= beta * (1.0 + _CLOSE):
            break
        m += (length - beta) / beta * q / slope
    rest = beta / length if length > beta else 1.0
    for i in range(len(squares)):
        out[i] = centre[i] + rest / (1.0 + m * eigenvalues[i]) * out[i]


@compiled
def _norm(point: Floats) -> float:
    return math.sqrt((point * point).sum())


@compiled
def project_both(
    point: Floats, centre: Floats, eigenvalues: Floats, beta: float, radius: float, out: Floats
) -> bool:
    """The nearest model in the ellipsoid and in the Frobenius ball; False if there is none.

    With a multiplier for the ball, the nearest model is the projection of a shrunken point on the
    ellipsoid alone. Its norm grows with the factor t in [0, 1], and the right t is its root.
    """
    project_ellipsoid(point, 1.0, centre, eigenvalues, beta, out)
    above = _norm(out) - radius
    if above <= _CLOSE * radius:
        return True
    project_ellipsoid(point, 0.0, centre, eigenvalues, beta, out)
    below = _norm(out) - radius
    if below > _CLOSE * radius:
        return False
    low, high, side = 0.0, 1.0, 0
    if below >= -_CLOSE * radius:
        return True
    for _ in range(_SECANTS):
        # Regula falsi; the end that stays has its value halved (Illinois).
        t = (low * above - high * below) / (above - below)
        project_ellipsoid(point, t, centre, eigenvalues, beta, out)
        excess = _norm(out) - radius
        if abs(excess) <= _CLOSE * radius:
            return True
        if excess < 0.0:
            low, below = t, excess
            if side < 0:
                above *= 0.5
            side = -1
        else:
            high, above = t, excess
            if side > 0:
                below *= 0.5
            side = 1
    # The feasible end, exact or not.
    project_ellipsoid(point, low, centre, eigenvalues, beta, out)
    return True


@compiled
def nearest_in_ball(centre: Floats, eigenvalues: Floats, radius: float, out: Floats) -> None:
    """The model of a Frobenius ball that is nearest to the centre in the V-norm."""
    m = 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(len(centre)):
            # What V does not see costs nothing, so it is zero.
            f = eigenvalues[i] / (eigenvalues[i] + m) if eigenvalues[i] > 0.0 else 0.0
            out[i] = f * centre[i]
            for x in out[i]:
                q += x * x
                slope += x * x / (eigenvalues[i] + m) if f > 0.0 else 0.0
        length = math.sqrt(q)
        if length <= radius * (1.0 + _CLOSE):
            break
        m += (length - radius) / radius * q / slope
    length = _norm(out)
    if length > radius:
        out *= radius / length


@compiled
def descend(
    point: Floats,
    centre: Floats,
    eigenvalues: Floats,
    basis: Floats,
    beta: float,
    radius: float,
    start: Floats,
    noise: Floats,
    Q: Floats,
    R: Floats,
    P: Floats,
    K: Floats,
    iterations: int,
) -> float:
    """Moves ``point`` to a feasible model of locally least optimal cost, which is returned.

    Projected gradients with Barzilai and Borwein's step and Armijo's rule along the segment to the
    projection, on which every model is feasible.
    """
    turned = np.ascontiguousarray(basis.T)
    theta, raw, way = np.empty_like(point), np.empty_like(point), np.empty_like(point)
    gradient, new_gradient = np.empty_like(point), np.empty_like(point)
    project_both(point.copy(), centre, eigenvalues, beta, radius, point)
    times(basis, point, theta)
    cost = cost_gradient(theta, start, noise, Q, R, P, K, raw)
    times(turned, raw, gradient)
    longest = _FARTHEST * radius
    step = math.inf
    for _ in range(iterations):
        size = _norm(gradient)
        if size == 0.0 or not math.isfinite(size):
            break
        step = min(step, longest / size)
        project_both(point - step * gradient, centre, eigenvalues, beta, radius, way)
        way -= point
        slope = (gradient * way).sum()
        if slope >= -_STATIONARY * cost:
            break
        part, new_cost, found, new = 1.0, cost, False, point
        for _ in range(_HALVINGS):
            new = point + part * way
            times(basis, new, theta)
            new_cost = cost_gradient(theta, start, noise, Q, R, P, K, raw)
            if new_cost <= cost + _ARMIJO * part * slope:
                found = True
                break
            # The minimum of the parabola through both costs and the slope.
            bend = new_cost - cost - part * slope
            best = -0.5 * slope * part * part / bend
            part = min(max(best, 0.1 * part), 0.5 * part) if bend > 0.0 else 0.5 * part
        if not found:
            break
        times(turned, raw, new_gradient)
        moved = new - point
        length, curvature = (moved * moved).sum(), (moved * (new_gradient - gradient)).sum()
        point[:], gradient[:] = new, new_gradient
        step = length / curvature if curvature > 0.0 else math.inf
        gained, cost = cost - new_cost, new_cost
        if gained <= _STATIONARY * cost:
            break
    return cost
