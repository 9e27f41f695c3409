"""Compiled loops of linear-quadratic control. Imported only where they run: numba is slow to load.

Matrices are small, so plain loops beat calls of linear algebra. Theta = [A, B]' is (n + d, n):
row j says what the coordinate j of z = (x, u) adds to the next state.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.numerics.compiled import Floats, compiled, inner


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
