"""Built-in linear-quadratic worlds, and those of control engineers' systems."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import check_bytes, check_size
from tacit.lq.arguments import check_array, check_number
from tacit.lq.world import Ball, LQWorld, Start, UniformBall
from tacit.privacy.arguments import positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats


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
        noise=UniformBall(0.08),
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
    H, dt = check_size("horizon", horizon), positive("step", step)
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
        noise=UniformBall(radius),
        start=Ball(0.3, (1.0, 0.0)),
        norm_bound=2.5,
        gain_bound=3.0,
        name=f"double_integrator:horizon={H},step={dt},noise={radius}",
    )


# Systems of control engineers.


def from_control(
    system_or_A: Any,
    B: ArrayLike | None = None,
    *,
    horizon: int,
    noise: UniformBall,
    start: Start,
    Q: ArrayLike | None = None,
    R: ArrayLike | None = None,
    step: float | None = None,
    norm_bound: float | None = None,
    gain_bound: float | None = None,
    name: str | None = None,
) -> LQWorld:
    """The world of a state-space system, as python-control and SciPy have them.

    Args:
        system_or_A: the matrix A, (n, n), or anything with ``A``, ``B`` and ``dt``. A system whose
            ``dt`` is 0 or ``None`` has continuous time. Agents see the state, so that outputs do
            not matter.
        B: (n, d), beside a matrix A.
        horizon: steps of an episode.
        noise: of every step.
        start: where users start.
        Q: cost of states; the identity if not given.
        R: cost of controls; the identity if not given.
        step: the length of a step, needed where time is continuous: controls are held during it
            (zero-order hold). Matrices without a step are those of discrete time.
        norm_bound: see :class:`~tacit.lq.world.LQWorld`.
        gain_bound: the same.
        name: what it is called.

    >>> world = from_control([[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], step=0.5, horizon=10,
    ...                      noise=UniformBall(0.1), start=Ball(0.2, (1.0, 0.0)))
    >>> world.A.tolist(), world.B.tolist()
    ([[1.0, 0.5], [0.0, 1.0]], [[0.125], [0.5]])
    """
    if B is None:
        missing = [part for part in ("A", "B", "dt") if not hasattr(system_or_A, part)]
        if missing:
            raise InvalidArgument(
                f"system_or_A must have A, B and dt where B is not given, but has no "
                f"{' and no '.join(missing)}"
            )
        A, B, dt = system_or_A.A, system_or_A.B, system_or_A.dt
        continuous = dt is None or (dt == 0 and not isinstance(dt, bool))
        if continuous and step is None:
            raise InvalidArgument("step must be given for a system in continuous time")
        # True is a step of unknown length.
        if not continuous and step is not None and (dt is True or step != dt):
            raise InvalidArgument(f"step must be that of the system, {dt!r}, got {step!r}")
    else:
        A, continuous = system_or_A, step is not None
    a = check_array("A", A, None, None)
    a = check_array("A", a, len(a), len(a))
    b = check_array("B", B, len(a), None)
    if continuous and step is not None:
        a, b = _held(a, b, positive("step", step))
    Q = np.eye(len(b)) if Q is None else Q
    R = np.eye(b.shape[1]) if R is None else R
    return LQWorld(a, b, Q, R, horizon, noise, start, norm_bound, gain_bound, name)


def _held(A: Floats, B: Floats, step: float) -> tuple[Floats, Floats]:
    """A and B of a step in which the control is constant: blocks of one matrix exponential."""
    from scipy.linalg import expm

    n, d = B.shape
    both = np.zeros((n + d, n + d))
    both[:n, :n], both[:n, n:] = A, B
    moved = np.asarray(expm(step * both), dtype=np.float64)
    return moved[:n, :n], moved[:n, n:]


WORLDS = ("dosing", "double_integrator")
"""The names of worlds that a command line knows."""
