"""Compiled loops of linear-quadratic control. Imported only where they run: numba is slow to load.

Matrices are small, so plain loops beat calls of linear algebra. Theta = [A, B]' is (n + d, n):
row j says what the coordinate j of z = (x, u) adds to the next state.

Roll-outs take 64 users at a time side by side, which the compiler turns into vector instructions,
and draw from a generator of their own (xoshiro256++ of Blackman and Vigna, 2021): the one that
numba offers is global and could not be repeated part by part.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import compiled

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

LANES = 64
"""Users side by side: as many as a random word has bits, which are the signs of their controls."""

POINT, SPHERE, BALL = 0, 1, 2
"""Where users start: at the centre, or on a sphere or in a ball around it."""

UNIFORM, GAUSSIAN, TILTED = 0, 1, 2
"""How noise is drawn: uniformly in the ball; normal, until it is in the ball; or uniformly in the
ball, until it is accepted with the density of a normal distribution, for balls that are small."""

# Above this dimension the ball is too small in its cube for rejection to be the fastest.
_REJECT = 5

_17, _23, _41, _45, _19 = (np.uint64(bits) for bits in (17, 23, 41, 45, 19))
_ONE, _HALF_WORD = np.uint64(1), np.uint64(32)
_TO_UNIT = 2.0**-31

# Projections: how close counts as equal, and how many steps there are at most.
_CLOSE, _NEWTON, _SECANTS = 1e-13, 200, 200
# Descent: Armijo's constant, the relative gain that is none, how often a step is shortened, and how
# many radii a step before the projection may be long.
_ARMIJO, _STATIONARY, _HALVINGS, _FARTHEST = 1e-4, 1e-9, 40, 20.0


# Control theory.


@compiled
def riccati(theta: Floats, Q: Floats, R: Floats, P: Floats, K: Floats) -> None:
    """Fills P, (H + 1, n, n), and the optimal gains K, (H, d, n), from the last step backwards."""
    H, d, n = K.shape
    p = n + d
    PT = np.empty((n, p))
    M = np.empty((p, p))
    P[H] = 0.0
    for h in range(H - 1, -1, -1):
        # M = [A, B]' P [A, B], with R added to its lower block.
        for i in range(n):
            for j in range(p):
                total = 0.0
                for k in range(n):
                    total += P[h + 1, i, k] * theta[j, k]
                PT[i, j] = total
        for j in range(p):
            for m in range(j + 1):
                total = 0.0
                for i in range(n):
                    total += theta[j, i] * PT[i, m]
                M[j, m] = total
        # Cholesky of R + B'PB in the place of that block.
        for a in range(d):
            for b in range(a + 1):
                total = M[n + a, n + b] + R[a, b]
                for c in range(b):
                    total -= M[n + a, n + c] * M[n + b, n + c]
                M[n + a, n + b] = math.sqrt(total) if a == b else total / M[n + b, n + b]
        for i in range(n):
            for a in range(d):
                total = -M[n + a, i]
                for c in range(a):
                    total -= M[n + a, n + c] * K[h, c, i]
                K[h, a, i] = total / M[n + a, n + a]
            for a in range(d - 1, -1, -1):
                total = K[h, a, i]
                for c in range(a + 1, d):
                    total -= M[n + c, n + a] * K[h, c, i]
                K[h, a, i] = total / M[n + a, n + a]
        for i in range(n):
            for j in range(i + 1):
                total = Q[i, j] + M[i, j]
                for a in range(d):
                    total += M[n + a, i] * K[h, a, j]
                P[h, i, j] = total
                P[h, j, i] = total


@compiled
def _close(theta: Floats, K: Floats, L: Floats) -> None:
    """L = A + B K."""
    d, n = K.shape
    for i in range(n):
        for j in range(n):
            total = theta[j, i]
            for a in range(d):
                total += theta[n + a, i] * K[a, j]
            L[i, j] = total


@compiled
def _times(X: Floats, Y: Floats, out: Floats) -> None:
    for i in range(X.shape[0]):
        for j in range(Y.shape[1]):
            total = 0.0
            for k in range(X.shape[1]):
                total += X[i, k] * Y[k, j]
            out[i, j] = total


@compiled
def _move(LS: Floats, L: Floats, W: Floats, S: Floats) -> None:
    """S = L S L' + W, from LS."""
    n = len(L)
    for i in range(n):
        for j in range(i + 1):
            total = W[i, j]
            for k in range(n):
                total += LS[i, k] * L[j, k]
            S[i, j] = total
            S[j, i] = total


@compiled
def expected_costs(
    gains: Floats,
    thetas: Floats,
    variances: Floats,
    start: Floats,
    noise: Floats,
    Q: Floats,
    R: Floats,
    out: Floats,
) -> None:
    """Costs, (M, L), of gains (M, H, d, n) with control noise of variances (M,) in all models."""
    H, d, n = gains.shape[1:]
    L, LS, S, W = np.empty((n, n)), np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    KS = np.empty((d, n))
    trace = 0.0
    for a in range(d):
        trace += R[a, a]
    for model in range(len(thetas)):
        theta = thetas[model]
        for m in range(len(gains)):
            for i in range(n):
                for j in range(n):
                    spread = 0.0
                    for a in range(d):
                        spread += theta[n + a, i] * theta[n + a, j]
                    W[i, j] = noise[i, j] + variances[m] * spread
                    S[i, j] = start[i, j]
            cost = H * variances[m] * trace
            for h in range(H):
                K = gains[m, h]
                for i in range(n):
                    for j in range(n):
                        cost += Q[i, j] * S[i, j]
                _times(K, S, KS)
                for a in range(d):
                    for b in range(d):
                        total = 0.0
                        for j in range(n):
                            total += KS[a, j] * K[b, j]
                        cost += R[a, b] * total
                if h + 1 < H:
                    _close(theta, K, L)
                    _times(L, S, LS)
                    _move(LS, L, W, S)
            out[m, model] = cost


@compiled
def cost_gradient(
    theta: Floats,
    start: Floats,
    noise: Floats,
    Q: Floats,
    R: Floats,
    P: Floats,
    K: Floats,
    gradient: Floats,
) -> float:
    """The optimal cost; fills P, K and its gradient by theta, (n + d, n).

    By the envelope theorem the gains count as constants: with second moments S_h of the state and
    L_h = A + B K_h it is the sum over steps of 2 [I; K_h] S_h L_h' P_{h+1}.
    """
    H, d, n = K.shape
    riccati(theta, Q, R, P, K)
    L, LS, S, M = np.empty((n, n)), np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    cost = 0.0
    for i in range(n):
        for j in range(n):
            S[i, j] = start[i, j]
            cost += start[i, j] * P[0, i, j]
    gradient[:] = 0.0
    for h in range(H - 1):
        _close(theta, K[h], L)
        _times(L, S, LS)
        for i in range(n):
            for j in range(n):
                cost += noise[i, j] * P[h + 1, i, j]
                total = 0.0
                for k in range(n):
                    total += LS[k, i] * P[h + 1, k, j]
                M[i, j] = 2.0 * total
                gradient[i, j] += M[i, j]
        for a in range(d):
            for i in range(n):
                for j in range(n):
                    gradient[n + a, j] += K[h, a, i] * M[i, j]
        _move(LS, L, noise, S)
    return cost


# Optimism. Models are given in the basis of V's eigenvectors, in which an ellipsoid
# {|Theta - centre|_V <= beta} has axes and Frobenius norms are what they are anyway.


@compiled
def project_ellipsoid(
    point: Floats, scale: float, centre: Floats, eigenvalues: Floats, beta: float, out: Floats
) -> None:
    """The nearest model in the ellipsoid to ``scale * point``.

    It is centre + (I + m V)^{-1} (point - centre). The multiplier m comes from Newton's method on
    1 / |.|_V, which is concave in m, so that it climbs to the root without overshooting.
    """
    p, n = point.shape
    squares = np.zeros(p)
    for i in range(p):
        for j in range(n):
            out[i, j] = scale * point[i, j] - centre[i, j]
            squares[i] += out[i, j] * out[i, j]
    m, length = 0.0, 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(p):
            f = 1.0 / (1.0 + m * eigenvalues[i])
            e = eigenvalues[i] * squares[i] * f * f
            q += e
            slope += e * eigenvalues[i] * f
        length = math.sqrt(q)
        if length <= beta * (1.0 + _CLOSE):
            break
        m += (length - beta) / beta * q / slope
    rest = beta / length if length > beta else 1.0
    for i in range(p):
        f = rest / (1.0 + m * eigenvalues[i])
        for j in range(n):
            out[i, j] = centre[i, j] + f * out[i, j]


@compiled
def _norm(point: Floats) -> float:
    total = 0.0
    for i in range(point.shape[0]):
        for j in range(point.shape[1]):
            total += point[i, j] * point[i, j]
    return math.sqrt(total)


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
    p, n = centre.shape
    m = 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(p):
            # What V does not see costs nothing, so it is zero.
            f = eigenvalues[i] / (eigenvalues[i] + m) if eigenvalues[i] > 0.0 else 0.0
            for j in range(n):
                out[i, j] = f * centre[i, j]
                q += out[i, j] * out[i, j]
                if f > 0.0:
                    slope += out[i, j] * out[i, j] / (eigenvalues[i] + m)
        length = math.sqrt(q)
        if length <= radius * (1.0 + _CLOSE):
            break
        m += (length - radius) / radius * q / slope
    length = _norm(out)
    if length > radius:
        for i in range(p):
            for j in range(n):
                out[i, j] *= radius / length


@compiled
def _dot(X: Floats, Y: Floats) -> float:
    total = 0.0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            total += X[i, j] * Y[i, j]
    return total


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
    p, n = point.shape
    turned = np.ascontiguousarray(basis.T)
    target, theta, raw = np.empty((p, n)), np.empty((p, n)), np.empty((p, n))
    gradient, new_gradient, new = np.empty((p, n)), np.empty((p, n)), np.empty((p, n))
    way = np.empty((p, n))
    project_both(point.copy(), centre, eigenvalues, beta, radius, point)
    _times(basis, point, theta)
    cost = cost_gradient(theta, start, noise, Q, R, P, K, raw)
    _times(turned, raw, gradient)
    longest = _FARTHEST * radius
    step = math.inf
    for _ in range(iterations):
        size = _norm(gradient)
        if size == 0.0 or not math.isfinite(size):
            break
        step = min(step, longest / size)
        for i in range(p):
            for j in range(n):
                target[i, j] = point[i, j] - step * gradient[i, j]
        project_both(target, centre, eigenvalues, beta, radius, way)
        for i in range(p):
            for j in range(n):
                way[i, j] -= point[i, j]
        slope = _dot(gradient, way)
        if slope >= -_STATIONARY * cost:
            break
        part, new_cost, found = 1.0, cost, False
        for _ in range(_HALVINGS):
            for i in range(p):
                for j in range(n):
                    new[i, j] = point[i, j] + part * way[i, j]
            _times(basis, new, theta)
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
        _times(turned, raw, new_gradient)
        length, curvature = 0.0, 0.0
        for i in range(p):
            for j in range(n):
                moved = new[i, j] - point[i, j]
                length += moved * moved
                curvature += moved * (new_gradient[i, j] - gradient[i, j])
                point[i, j] = new[i, j]
                gradient[i, j] = new_gradient[i, j]
        step = length / curvature if curvature > 0.0 else math.inf
        gained, cost = cost - new_cost, new_cost
        if gained <= _STATIONARY * cost:
            break
    return cost


# Random numbers.


@compiled
def _next(s: State) -> tuple[np.uint64, State]:
    """64 random bits, and the generator after them."""
    a, b, c, d = s
    x = a + d
    value = ((x << _23) | (x >> _41)) + a
    t = b << _17
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    return value, (a, b, c, (d << _45) | (d >> _19))


@compiled
def _pair(s: State) -> tuple[float, float, State]:
    """Two independent numbers, uniform in (-1, 1) on a symmetric lattice that leaves out 0."""
    value, s = _next(s)
    first = (np.float64(np.int32(value)) + 0.5) * _TO_UNIT
    second = (np.float64(np.int32(value >> _HALF_WORD)) + 0.5) * _TO_UNIT
    return first, second, s


@compiled
def _normal_pair(s: State) -> tuple[float, float, State]:
    """Two independent standard normals, by the polar method."""
    while True:
        x, y, s = _pair(s)
        q = x * x + y * y
        if q < 1.0:
            scale = math.sqrt(-2.0 * math.log(q) / q)
            return x * scale, y * scale, s


@compiled
def _fill_normal(s: State, out: Floats) -> State:
    """Standard normals, (n, LANES)."""
    flat = out.reshape(-1)
    for k in range(0, len(flat), 2):
        flat[k], flat[k + 1], s = _normal_pair(s)
    return s


@compiled
def _fill_unit_ball(s: State, out: Floats) -> State:
    """Points uniform in the unit ball, (n, LANES).

    In few dimensions points of the cube are drawn until they are in the ball. A rejected point is
    overwritten by the next one, without a branch that the processor could not foresee.
    """
    n = len(out)
    if n > _REJECT:
        s = _fill_normal(s, out)
        for lane in range(LANES):
            q = 0.0
            for i in range(n):
                q += out[i, lane] * out[i, lane]
            x, _, s = _pair(s)
            scale = (0.5 + 0.5 * x) ** (1.0 / n) / math.sqrt(q)
            for i in range(n):
                out[i, lane] *= scale
        return s
    if n == 3:  # the same, with the loop written out
        lane = 0
        while lane < LANES:
            x, y, s = _pair(s)
            z, _, s = _pair(s)
            out[0, lane] = x
            out[1, lane] = y
            out[2, lane] = z
            lane += int(x * x + y * y + z * z <= 1.0)
        return s
    lane = 0
    while lane < LANES:
        q = 0.0
        for i in range(0, n, 2):
            x, y, s = _pair(s)
            out[i, lane] = x
            q += x * x
            if i + 1 < n:
                out[i + 1, lane] = y
                q += y * y
        lane += int(q <= 1.0)
    return s


@compiled
def _fill_noise(s: State, kind: int, std: float, radius: float, out: Floats) -> State:
    """Noise in a ball, (n, LANES)."""
    n = len(out)
    if kind == UNIFORM:
        s = _fill_unit_ball(s, out)
        for i in range(n):
            for lane in range(LANES):
                out[i, lane] *= radius
        return s
    drawn = np.empty((n, LANES))
    scale = std if kind == GAUSSIAN else radius
    kept = 0
    while kept < LANES:
        s = _fill_normal(s, drawn) if kind == GAUSSIAN else _fill_unit_ball(s, drawn)
        for lane in range(LANES):
            q = 0.0
            for i in range(n):
                q += drawn[i, lane] * drawn[i, lane]
            q *= scale * scale
            if kind == GAUSSIAN:
                accepted = q <= radius * radius
            else:
                u, _, s = _pair(s)
                accepted = 0.5 + 0.5 * u <= math.exp(-0.5 * q / (std * std))
            if accepted and kept < LANES:
                for i in range(n):
                    out[i, kept] = scale * drawn[i, lane]
                kept += 1
    return s


@compiled
def _fill_start(s: State, kind: int, radius: float, centre: Floats, out: Floats) -> State:
    """First states, (n, LANES)."""
    n = len(out)
    if kind == POINT:
        out[:] = 0.0
    else:
        s = _fill_unit_ball(s, out)
    for lane in range(LANES):
        scale = radius
        if kind == SPHERE:
            q = 0.0
            for i in range(n):
                q += out[i, lane] * out[i, lane]
            scale = radius / math.sqrt(q)
        for i in range(n):
            out[i, lane] = centre[i] + scale * out[i, lane]
    return s


@compiled
def roll_out(
    seed: Words,
    A: Floats,
    B: Floats,
    gains: Floats,
    control_noise: float,
    noise_kind: int,
    noise_std: float,
    noise_radius: float,
    start_kind: int,
    start_radius: float,
    start_centre: Floats,
    states: Floats,
    actions: Floats,
) -> None:
    """Simulates users into ``states``, (users, H + 1, n), and ``actions``, (users, H, d)."""
    users, H, d = actions.shape
    n = len(A)
    s = (seed[0], seed[1], seed[2], seed[3])
    x, y, u = np.empty((n, LANES)), np.empty((n, LANES)), np.empty((d, LANES))
    for first in range(0, users, LANES):
        here = min(LANES, users - first)
        s = _fill_start(s, start_kind, start_radius, start_centre, x)
        for lane in range(here):
            for i in range(n):
                states[first + lane, 0, i] = x[i, lane]
        for h in range(H):
            for a in range(d):
                if control_noise > 0.0:
                    signs, s = _next(s)
                    for lane in range(LANES):
                        sign = np.float64(np.int64((signs >> np.uint64(lane)) & _ONE))
                        u[a, lane] = control_noise * (2.0 * sign - 1.0)
                else:
                    u[a] = 0.0
                for i in range(n):
                    k = gains[h, a, i]
                    for lane in range(LANES):
                        u[a, lane] += k * x[i, lane]
            s = _fill_noise(s, noise_kind, noise_std, noise_radius, y)
            for i in range(n):
                for j in range(n):
                    k = A[i, j]
                    for lane in range(LANES):
                        y[i, lane] += k * x[j, lane]
                for a in range(d):
                    k = B[i, a]
                    for lane in range(LANES):
                        y[i, lane] += k * u[a, lane]
            for lane in range(here):
                for a in range(d):
                    actions[first + lane, h, a] = u[a, lane]
                for i in range(n):
                    states[first + lane, h + 1, i] = y[i, lane]
            x, y = y, x
