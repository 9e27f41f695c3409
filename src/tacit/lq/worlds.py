"""Built-in linear-quadratic worlds, and those of control engineers' systems."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import check_bytes, check_seed, check_size
from tacit.lq import riccati
from tacit.lq.arguments import check_array, check_number, check_positive
from tacit.lq.world import Ball, LQWorld, Noise, Sphere, Start, UniformBall
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

# Random systems: how many are drawn at most, what they cost and how noisy they are; and what an
# accepted one keeps to, so that the bounds that are public are true and not tight.
_ATTEMPTS = 2000
_CONTROL_COST, _NOISE = 0.05, 0.15
_LEAST_RATIO, _LARGEST_GAIN, _LARGEST_NORM = 1.3, 2.2, 2.3
_PUBLIC_BOUND = 2.5


def random_system(n: int = 3, d: int = 2, horizon: int = 15, seed: int = 0) -> LQWorld:
    """A stable system drawn at random, in which control is worth its cost.

    State:
        ``n`` coordinates without meaning. The first state is uniform on the unit sphere. A has
        independent normal entries, scaled so that its spectral radius is uniform in [.7, .95].
        The noise is uniform in the ball of radius .15.
    Actions:
        ``d`` coordinates. B has independent normal entries, scaled to a spectral norm of .5.
    Reward:
        Minus |x|^2 + .05 |u|^2.
    Optimum:
        Depends on the seed. No control costs at least 1.3 times as much, the optimal gains have
        spectral norms of at most 2.2, and (A, B) a Frobenius norm of at most 2.3: systems are
        drawn until one is accepted. Agents know that both norms are at most 2.5.
    Source:
        Invented for this library.

    >>> world = random_system()
    >>> world.spec.states, world.spec.controls, world.spec.horizon
    (3, 2, 15)
    >>> world.baseline_value <= 1.3 * world.optimal_value
    True
    """
    n, d, H = check_size("n", n), check_size("d", d), check_size("horizon", horizon)
    if H == 1:
        raise InvalidArgument("horizon must be >= 2, got 1: over one step control gains nothing")
    seed = check_seed("seed", seed)
    for name, shape in (("A", (n, n)), ("B", (n, d)), ("R", (d, d))):
        check_bytes(name, shape)
    check_bytes("gains over the horizon", (H, d, n))
    check_bytes("values over the horizon", (H + 1, n, n))
    name = f"random_system:n={n},d={d},horizon={H},seed={seed}"
    Q, R = np.eye(n), _CONTROL_COST * np.eye(d)
    noise, start = UniformBall(_NOISE), Sphere(1.0, (0.0,) * n)
    rng = np.random.default_rng(seed)
    for _ in range(_ATTEMPTS):
        A = rng.standard_normal((n, n))
        A *= rng.uniform(0.7, 0.95) / np.abs(np.linalg.eigvals(A)).max()
        B = rng.standard_normal((n, d))
        B *= 0.5 / np.linalg.norm(B, 2)
        if np.hypot(np.linalg.norm(A), np.linalg.norm(B)) > _LARGEST_NORM:
            continue
        _, K = riccati.optimal_gains(A, B, Q, R, H)
        if np.linalg.norm(K, 2, axis=(1, 2)).max() > _LARGEST_GAIN:
            continue
        world = LQWorld(A, B, Q, R, H, noise, start, _PUBLIC_BOUND, _PUBLIC_BOUND, name)
        if world.baseline_value <= _LEAST_RATIO * world.optimal_value:
            return world
    raise InvalidArgument(
        f"no system with n={n}, d={d}, horizon={H} was accepted of {_ATTEMPTS:,}: take a smaller "
        "n, a larger d or a longer horizon"
    )


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
    H, dt = check_size("horizon", horizon), check_positive("step", step)
    if dt > 1.0:
        raise InvalidArgument(f"step must be at most 1, got {step!r}")
    radius = check_number("noise", noise, 0.0)
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


def thermostat(horizon: int = 5) -> LQWorld:
    """A room is brought to the temperature that its users like; they are all cautious.

    It is as Assumption 1 of Chowdhury, Zhou and Shroff (2021) has it, with C_A = C_B = .6,
    C_w = .1 and gamma = .5: |(A, B)| <= 1, the pair is controllable, |x_1| <= 1,
    C_A + gamma C_B + C_w <= 1, so that no state is longer than 1; and, at horizons of at most 5,
    the optimal gains of all systems with |(A, B)| <= 1 are below gamma, which the paper needs and
    does not assume.

    State:
        The distance of the temperature from what is liked: 1 or -1 at first. A = .6, and the noise
        is uniform in [-.1, .1].
    Actions:
        How much is heated, or cooled. B = .6.
    Reward:
        Minus distance^2 + 1.5 control^2.
    Optimum:
        -1.3875 at the default, where no control has -1.571. Agents know that the norm of (A, B) is
        at most 1 and that of gains at most .5.
    Source:
        Invented for this library, for the orders of that paper's bounds.

    >>> world = thermostat()
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (-1.3875, -1.571)
    """
    H = check_size("horizon", horizon)
    check_bytes("values over the horizon", (H + 1, 1, 1))
    return LQWorld(
        A=[[0.6]],
        B=[[0.6]],
        Q=[[1.0]],
        R=[[1.5]],
        horizon=H,
        noise=UniformBall(0.1),
        start=Sphere(1.0, (0.0,)),
        norm_bound=1.0,
        gain_bound=0.5,
        name=f"thermostat:horizon={H}",
    )


# Systems of control engineers.


def from_control(
    system_or_A: Any,
    B: ArrayLike | None = None,
    *,
    horizon: int,
    noise: Noise,
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
        a, b = _held(a, b, check_positive("step", step))
    Q = np.eye(len(b)) if Q is None else Q
    R = np.eye(b.shape[1]) if R is None else R
    return LQWorld(a, b, Q, R, horizon, noise, start, norm_bound, gain_bound, name)


def to_control(world: LQWorld) -> tuple[Floats, Floats, Floats, Floats, bool]:
    """A, B, C, D and dt of a world, as ``control.ss`` takes them.

    The output is the state: C is the identity and D is zero. dt is True: discrete time, with steps
    of a length that nobody has said.

    >>> A, B, C, D, dt = to_control(dosing())
    >>> A.shape, B.shape, C.shape, D.shape, dt
    ((3, 3), (3, 1), (3, 3), (3, 1), True)
    """
    if not isinstance(world, LQWorld):
        raise InvalidArgument(f"world must be an LQWorld, got {type(world).__name__}")
    n, d = world.B.shape
    return world.A.copy(), world.B.copy(), np.eye(n), np.zeros((n, d)), True


def _held(A: Floats, B: Floats, step: float) -> tuple[Floats, Floats]:
    """A and B of a step in which the control is constant: blocks of one matrix exponential."""
    from scipy.linalg import expm

    n, d = B.shape
    both = np.zeros((n + d, n + d))
    both[:n, :n], both[:n, n:] = A, B
    moved = np.asarray(expm(step * both), dtype=np.float64)
    return moved[:n, :n], moved[:n, n:]


WORLDS = ("dosing", "double_integrator", "random_system", "thermostat")
"""The names of worlds that a command line knows."""
