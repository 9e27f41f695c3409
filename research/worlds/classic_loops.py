"""Compiled steps of Gymnasium's classic control. Imported where they run: numba is slow to load.

Each loop moves users one step, in place. Angles are in [-pi, pi].
"""

from __future__ import annotations

import math

from tacit.numerics.compiled import Floats, Ints, compiled, inner

# Gymnasium's CartPole.
_GRAVITY, _FORCE, _STEP = 9.8, 10.0, 0.02
_CART, _POLE, _HALF_LENGTH = 1.0, 0.1, 0.5


@inner
def wrapped(angle: float) -> float:
    """The same angle in [-pi, pi)."""
    return (angle + math.pi) % (2.0 * math.pi) - math.pi


@inner
def _swing(state: Floats, torque: float) -> None:
    """One step of a pendulum: angle and spin."""
    spin = state[1] + (15.0 * math.sin(state[0]) + 3.0 * torque) * 0.05
    spin = min(max(spin, -8.0), 8.0)
    state[0], state[1] = wrapped(state[0] + spin * 0.05), spin


@compiled
def swing(states: Floats, actions: Ints) -> None:
    """One step of pendulums under a torque of -2, -1, 0, 1 or 2."""
    for n in range(len(states)):
        _swing(states[n], actions[n] - 2.0)


@compiled
def climb(states: Floats, actions: Ints) -> None:
    """One step of cars in a valley: position and speed, and a push of -1, 0 or 1."""
    for n in range(len(states)):
        speed = states[n, 1] + (actions[n] - 1) * 0.001 - 0.0025 * math.cos(3.0 * states[n, 0])
        speed = min(max(speed, -0.07), 0.07)
        place = min(max(states[n, 0] + speed, -1.2), 0.6)
        if place == -1.2 and speed < 0.0:
            speed = 0.0
        states[n, 0], states[n, 1] = place, speed


@compiled
def push(states: Floats, actions: Ints) -> None:
    """One step of carts, pushed to the left or to the right."""
    mass, moment = _CART + _POLE, _POLE * _HALF_LENGTH
    for n in range(len(states)):
        position, speed, angle, spin = states[n, 0], states[n, 1], states[n, 2], states[n, 3]
        force = _FORCE if actions[n] == 1 else -_FORCE
        cosine, sine = math.cos(angle), math.sin(angle)
        pulled = (force + moment * (spin * spin) * sine) / mass
        turned = (_GRAVITY * sine - cosine * pulled) / (
            _HALF_LENGTH * (4.0 / 3.0 - _POLE * (cosine * cosine) / mass)
        )
        pushed = pulled - moment * turned * cosine / mass
        states[n, 0] = position + _STEP * speed
        states[n, 1] = speed + _STEP * pushed
        states[n, 2] = angle + _STEP * spin
        states[n, 3] = spin + _STEP * turned
