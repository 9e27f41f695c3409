"""The compiled roll-out of linear-quadratic worlds. Imported only where it runs.

It takes 64 users at a time side by side, which the compiler turns into vector instructions, and
draws from a generator of its own (xoshiro256++ of Blackman and Vigna, 2021): the one that numba
offers is global and could not be repeated part by part.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.numerics.compiled import Floats, compiled, inner

Words = NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

LANES = 64
"""Users side by side: as many as a random word has bits, which are the signs of their controls."""

# Above this dimension the ball is too small in its cube for rejection to be the fastest.
_REJECT = 5

_17, _23, _41, _45, _19 = (np.uint64(bits) for bits in (17, 23, 41, 45, 19))
_ONE, _HALF_WORD = np.uint64(1), np.uint64(32)
_TO_UNIT = 2.0**-31


@inner
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


@inner
def _pair(s: State) -> tuple[float, float, State]:
    """Two independent numbers, uniform in (-1, 1) on a symmetric lattice that leaves out 0."""
    value, s = _next(s)
    first = (np.float64(np.int32(value)) + 0.5) * _TO_UNIT
    second = (np.float64(np.int32(value >> _HALF_WORD)) + 0.5) * _TO_UNIT
    return first, second, s


@inner
def _normal_pair(s: State) -> tuple[float, float, State]:
    """Two independent standard normals, by the polar method."""
    while True:
        x, y, s = _pair(s)
        q = x * x + y * y
        if q < 1.0:
            scale = math.sqrt(-2.0 * math.log(q) / q)
            return x * scale, y * scale, s


@inner
def _fill_normal(s: State, out: Floats) -> State:
    """Standard normals, (n, LANES)."""
    flat = out.reshape(-1)
    for k in range(0, len(flat), 2):
        flat[k], flat[k + 1], s = _normal_pair(s)
    return s


@inner
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


@inner
def _fill_start(s: State, sphere: bool, radius: float, centre: Floats, out: Floats) -> State:
    """First states, (n, LANES), in a ball or on its sphere."""
    n = len(out)
    s = _fill_unit_ball(s, out)
    for lane in range(LANES):
        scale = radius
        if sphere:
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
    noise_radius: float,
    on_sphere: bool,
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
        s = _fill_start(s, on_sphere, start_radius, start_centre, x)
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
            s = _fill_unit_ball(s, y)
            for i in range(n):
                for lane in range(LANES):
                    y[i, lane] *= noise_radius
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
