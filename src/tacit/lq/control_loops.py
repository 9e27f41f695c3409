"""Compiled loops: costs of gains, and sums over users. Imported only where they run.

Matrices are small, so plain loops beat calls of linear algebra. Theta = [A, B]' is (n + d, n).
"""

from __future__ import annotations

import math

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner


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


@inner
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
def times(X: Floats, Y: Floats, out: Floats) -> None:
    """The product X Y."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[1]):
            total = 0.0
            for k in range(X.shape[1]):
                total += X[i, k] * Y[k, j]
            out[i, j] = total


@inner
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
                times(K, S, KS)
                for a in range(d):
                    for b in range(d):
                        total = 0.0
                        for j in range(n):
                            total += KS[a, j] * K[b, j]
                        cost += R[a, b] * total
                if h + 1 < H:
                    _close(theta, K, L)
                    times(L, S, LS)
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
        times(L, S, LS)
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


@compiled
def add_predictable(
    states: Floats,
    actions: Floats,
    lengths: Ints,
    centre: Floats,
    inputs: Floats,
    spread: Floats,
    floor: float,
    half_weight: float,
    tau: float,
    separate: bool,
    grams: Floats,
    crosses: Floats,
) -> None:
    """Adds weighted outer products of users' steps to ``grams`` and ``crosses``.

    To row ``user`` if ``separate``, else all to row 0. A user's sums are made on their own first,
    so that no rounding depends on who came before, and are of length tau at most when they
    are added; nothing is added of one whose are not finite. Upper triangles only, of the Gram.
    """
    users, steps, d = actions.shape
    p, n = centre.shape
    z, moved, r = np.empty(p), np.empty(p), np.empty(n)
    gram, cross = np.empty((p, p)), np.empty((p, n))
    for user in range(users):
        gram[:] = 0.0
        cross[:] = 0.0
        left = tau
        for h in range(min(steps, max(lengths[user], 0))):
            if left <= 0.0:
                break
            for i in range(n):
                z[i] = states[user, h, i]
            for i in range(d):
                z[n + i] = actions[user, h, i]
            energy, reach = 0.0, 0.0
            for i in range(p):
                a, b = 0.0, 0.0
                for j in range(p):
                    a += inputs[i, j] * z[j]
                    b += spread[j, i] * z[j]
                moved[i] = a
                energy += a * a
                reach += b * b
            cap = floor + math.sqrt(reach)
            energy += half_weight * cap * cap
            # How far the next state is from what the centre says, free of overflow.
            largest = 0.0
            for i in range(n):
                a = states[user, h + 1, i]
                for j in range(p):
                    a -= centre[j, i] * z[j]
                r[i] = a
                if not math.isfinite(a):
                    largest = math.inf
                largest = max(largest, abs(a))
            if not (math.isfinite(energy) and math.isfinite(largest)) or energy <= 0.0:
                continue
            if largest > 0.0:
                length = 0.0
                for i in range(n):
                    r[i] /= largest
                    length += r[i] * r[i]
                length = math.sqrt(length)
                scale = largest if largest * length <= cap else cap / length
                for i in range(n):
                    r[i] *= scale
            s = min(1.0, left / energy)
            left -= s * energy
            for i in range(p):
                a = s * moved[i]
                for j in range(i, p):
                    gram[i, j] += a * moved[j]
                for j in range(n):
                    cross[i, j] += a * r[j]
        square = 0.0
        for i in range(p):
            for j in range(i, p):
                square += (1.0 if i == j else 2.0) * gram[i, j] * gram[i, j]
            for j in range(n):
                square += 2.0 * half_weight * cross[i, j] * cross[i, j]
        if not math.isfinite(square):
            continue
        scale = tau / math.sqrt(square) if square > tau * tau else 1.0
        row = user if separate else 0
        for i in range(p):
            for j in range(i, p):
                grams[row, i, j] += scale * gram[i, j]
            for j in range(n):
                crosses[row, i, j] += scale * cross[i, j]
