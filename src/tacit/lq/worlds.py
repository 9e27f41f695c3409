"""Built-in linear-quadratic worlds."""

from __future__ import annotations

import numpy as np

from tacit.lq.spec import check_number
from tacit.lq.world import Ball, LQWorld
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import check_bytes, positive, whole_number


def dosing() -> LQWorld:
    """A treatment course of 24 doses brings an effect from above its target down to it.

    Patients come with too strong an effect, say too high a blood pressure, and take a dose at
    every step. The drug is soon in the blood, from there in the tissue, and only then it acts. A
    dose is measured against the one that keeps a patient at the target, so that it can be
    negative: less than usual. How fast the drug moves and is broken down is what has to be learnt,
    from patients who would not like their courses to be known.

    State:
        Drug in the blood, drug in the tissue, and effect, each as the distance from its target.
        Patients start at (.3, .3, .6) plus a point that is uniform in the ball of radius .25.
        A = [[.70, .08, 0], [.20, .85, 0], [0, .18, .78]], and the noise is uniform in the ball of
        radius .08.
    Actions:
        The dose, as the distance from the usual one. B = (.5, 0, 0): it goes into the blood.
    Reward:
        Minus .05 blood^2 + .05 tissue^2 + effect^2 + .1 dose^2.
    Optimum:
        -1.5638, where no change of dose has -2.2301. Agents know that the Frobenius norm of (A, B)
        and the norms of gains are at most 2.
    Source:
        Invented for this library; a linear model with an effect compartment.

    >>> world = dosing()
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (-1.5638, -2.2301)
    """
    return LQWorld(
        A=[[0.70, 0.08, 0.0], [0.20, 0.85, 0.0], [0.0, 0.18, 0.78]],
        B=[[0.5], [0.0], [0.0]],
        Q=np.diag([0.05, 0.05, 1.0]),
        R=[[0.1]],
        horizon=24,
        noise=0.08,
        start=Ball(0.25, (0.3, 0.3, 0.6)),
        norm_bound=2.0,
        gain_bound=2.0,
        name="dosing",
    )


def double_integrator(horizon: int = 20, step: float = 0.3, noise: float = 0.1) -> LQWorld:
    """A cart without friction is pushed to a mark on its rail.

    State:
        Position and speed. Users start at (1, 0) plus a point that is uniform in the ball of
        radius .3. In a step of length ``step`` the position gains ``step`` times the speed. The
        noise is uniform in the ball of radius ``noise``.
    Actions:
        The push u: the position gains u ``step``^2 / 2, the speed u ``step``.
    Reward:
        Minus position^2 + .1 speed^2 + .5 push^2.
    Optimum:
        -5.1136 at the defaults, where no push has -28.456. Agents know that the Frobenius norm of
        (A, B) is at most 2.5 and the norms of gains at most 3.
    Source:
        The standard example of optimal control. A is not stable: left alone, noise in the speed
        adds up, and the position with it.

    >>> world = double_integrator()
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (-5.1136, -28.456)
    """
    H, dt = whole_number("horizon", horizon), positive("step", step)
    if dt > 1.0:
        raise InvalidArgument(f"step must be at most 1, got {step!r}")
    radius = check_number("noise", noise)
    check_bytes("values over the horizon", (H + 1, 2, 2))
    return LQWorld(
        A=[[1.0, dt], [0.0, 1.0]],
        B=[[0.5 * dt**2], [dt]],
        Q=np.diag([1.0, 0.1]),
        R=[[0.5]],
        horizon=H,
        noise=radius,
        start=Ball(0.3, (1.0, 0.0)),
        norm_bound=2.5,
        gain_bound=3.0,
        name=f"double_integrator:horizon={H},step={dt},noise={radius}",
    )


WORLDS = ("dosing", "double_integrator")
"""The names of worlds that a command line knows."""
