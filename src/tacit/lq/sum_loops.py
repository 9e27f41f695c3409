"""The compiled sum over users' trajectories. Imported only where it runs: numba is slow to load."""

from __future__ import annotations

import math

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner


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


@compiled
def expected_gram(
    theta: Floats,
    gains: Floats,
    variance: float,
    start_moment: Floats,
    noise_covariance: Floats,
    most: float,
    inputs: Floats,
    spread: Floats,
    floor: float,
    half_weight: float,
    tau: float,
    energies: Floats,
) -> Floats:
    """The Gram of inputs that one user adds on average, if theta is the model.

    Second moments move by the model, no further than ``most`` in trace. Steps are weighted as if
    every user had average energies, which are written to ``energies``: (H, 2), of inputs and of
    squared caps.
    """
    H, d, n = gains.shape
    p = n + d
    total = np.zeros((p, p))
    of_inputs = np.ascontiguousarray(inputs.T)
    caps = spread @ np.ascontiguousarray(spread.T)
    transposed = np.ascontiguousarray(theta.T)
    moment, both = np.empty((n, n)), np.zeros((p, n))
    for i in range(n):
        both[i, i] = 1.0
        for j in range(n):
            moment[i, j] = start_moment[i, j]
    left = tau
    # Sums of arrays are written out: they take seconds to compile.
    for h in range(H):
        for i in range(d):
            for j in range(n):
                both[n + i, j] = gains[h, i, j]
        step = both @ moment @ np.ascontiguousarray(both.T)
        for i in range(d):
            step[n + i, n + i] += variance
        size = _trace(step)
        if not size <= most:
            for i in range(p):
                for j in range(p):
                    if math.isfinite(size):
                        step[i, j] *= most / size
                    else:
                        step[i, j] = most / p if i == j else 0.0
        moved = inputs @ step @ of_inputs
        reach = max(_trace(step @ caps), 0.0)
        energies[h, 0] = _trace(moved)
        energies[h, 1] = floor * floor + 2.0 * floor * math.sqrt(reach) + reach
        cost = energies[h, 0] + half_weight * energies[h, 1]
        weight = min(1.0, left / max(cost, 1e-300))
        left -= weight * cost
        moment = transposed @ step @ theta
        for i in range(p):
            for j in range(p):
                total[i, j] += weight * moved[i, j]
        for i in range(n):
            for j in range(n):
                moment[i, j] += noise_covariance[i, j]
    return total


@inner
def _trace(matrix: Floats) -> float:
    total = 0.0
    for i in range(len(matrix)):
        total += matrix[i, i]
    return total
