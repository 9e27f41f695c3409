"""Linear-quadratic control: systems drawn at random, and a room whose users are all cautious."""

from __future__ import annotations

import numpy as np

from tacit.lq import Ball, LQWorld, riccati
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import check_bytes, whole_number

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
    n, d, H = whole_number("n", n), whole_number("d", d), whole_number("horizon", horizon)
    if H == 1:
        raise InvalidArgument("horizon must be >= 2, got 1: over one step control gains nothing")
    seed = whole_number("seed", seed, least=0)
    for name, shape in (("A", (n, n)), ("B", (n, d)), ("R", (d, d))):
        check_bytes(name, shape)
    check_bytes("gains over the horizon", (H, d, n))
    check_bytes("values over the horizon", (H + 1, n, n))
    name = f"research.worlds.random_system:n={n},d={d},horizon={H},seed={seed}"
    Q, R = np.eye(n), _CONTROL_COST * np.eye(d)
    noise, start = _NOISE, Ball(1.0, (0.0,) * n, surface=True)
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
    H = whole_number("horizon", horizon)
    check_bytes("values over the horizon", (H + 1, 1, 1))
    return LQWorld(
        A=[[0.6]],
        B=[[0.6]],
        Q=[[1.0]],
        R=[[1.5]],
        horizon=H,
        noise=0.1,
        start=Ball(1.0, (0.0,), surface=True),
        norm_bound=1.0,
        gain_bound=0.5,
        name=f"research.worlds.thermostat:horizon={H}",
    )
