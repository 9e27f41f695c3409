"""Linear-quadratic worlds: simulated users whose optimum is known exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.world import Form
from tacit.data.episodes import VectorEpisodes
from tacit.lq import riccati
from tacit.lq.spec import GainPolicy, LQSpec, check_array, check_number, check_semidefinite
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, StreamedBlock
from tacit.privacy.validation import check_bytes, instance_of, positive, whole_number

FORMS: tuple[Form, ...] = ("episodes", "streamed")
PART = 8192  # users of a part of a streamed block


@dataclass(frozen=True)
class Ball:
    """Starts that are uniform in a ball, or on its surface; of radius 0, all in one point.

    >>> Ball(2.0, (1.0, 0.0)).moment().tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    radius: float
    centre: tuple[float, ...]
    surface: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_number("radius", self.radius))
        centre = check_array("centre", self.centre, None)
        object.__setattr__(self, "centre", tuple(centre.tolist()))

    def moment(self) -> Floats:
        """Mean of x x': the centre's, and radius^2 / (n + 2), or / n, times the identity."""
        n = len(self.centre)
        spread = self.radius**2 / (n if self.surface else n + 2)
        return np.outer(self.centre, self.centre) + spread * np.eye(n)


class LQWorld:
    """Users whose state moves by x' = A x + B u + w and whose steps cost x'Qx + u'Ru.

    Rewards are minus the costs, which follow from states and controls; agents do not know A and B.

    Args:
        A: (n, n).
        B: (n, d).
        Q: (n, n), symmetric and positive semidefinite.
        R: (d, d), symmetric and positive definite.
        horizon: H, steps of an episode.
        noise: radius of the ball in which the noise w of every step is uniform.
        start: first states, a :class:`Ball`.
        norm_bound: agents are told that the Frobenius norm of (A, B) is at most this; 1.25 times
            what it is if not given.
        gain_bound: agents are told that no gain worth using has a larger spectral norm; 1.25
            times the largest of the optimal gains, but at least 1, if not given.
        name: what it is called; the built-in worlds have names that rebuild them.

    All of them but the bounds are attributes; arrays are read-only.

    >>> world = LQWorld([[1.0]], [[1.0]], [[1.0]], [[1.0]], horizon=2,
    ...                 noise=0.0, start=Ball(0.0, (1.0,)))
    >>> world.optimal_value, world.baseline_value
    (-1.5, -2.0)
    """

    def __init__(
        self,
        A: ArrayLike,
        B: ArrayLike,
        Q: ArrayLike,
        R: ArrayLike,
        horizon: int,
        noise: float,
        start: Ball,
        norm_bound: float | None = None,
        gain_bound: float | None = None,
        name: str | None = None,
    ) -> None:
        self.A = check_array("A", A, None, None)
        n = len(self.A)
        self.A = check_array("A", self.A, n, n)
        self.B = check_array("B", B, n, None)
        self.Q = check_semidefinite("Q", Q, n)
        self.R = check_semidefinite("R", R, self.B.shape[1], definite=True)
        self.horizon = whole_number("horizon", horizon)
        instance_of("start", start, Ball)
        if len(start.centre) != n:
            raise InvalidArgument(
                f"the centre of start must have {n} coordinates, got {len(start.centre)}"
            )
        self.noise, self.start = check_number("noise", noise), start
        self.name = "lq" if name is None else str(name)
        norm = float(np.hypot(np.linalg.norm(self.A), np.linalg.norm(self.B)))
        self._norm_bound = _bound("norm_bound", norm_bound, norm, 0.0)
        largest = float(np.linalg.norm(self._gains, 2, axis=(1, 2)).max())
        self._gain_bound = _bound("gain_bound", gain_bound, largest, 1.0)

    @cached_property
    def spec(self) -> LQSpec:
        """Public knowledge, which an agent is told."""
        n, d = self.B.shape
        return LQSpec(
            states=n,
            controls=d,
            horizon=self.horizon,
            state_cost=self.Q,
            control_cost=self.R,
            noise_bound=self.noise,
            noise_covariance=self.noise**2 / (n + 2) * np.eye(n),
            start_moment=self.start.moment(),
            norm_bound=self._norm_bound,
            gain_bound=self._gain_bound,
        )

    @property
    def theta(self) -> Floats:
        """The model [A, B]', (n + d, n)."""
        return riccati.model(self.A, self.B)

    def simulate(
        self, policy: GainPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> VectorEpisodes | Block:
        """A block of users who follow a policy, alike in both forms. Args: see World.simulate."""
        policy, count = self._checked(policy), whole_number("users", users, least=0)
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS}, got {form!r}")
        drawn = int(rng.integers(2**63))

        def parts() -> Iterator[Block]:
            for part in range(max(math.ceil(count / PART), 1)):
                yield self._users(policy, drawn, part, min(PART, count - part * PART))

        if form == "streamed":
            return StreamedBlock(count, parts)
        check_bytes("states", (count, self.horizon + 1, len(self.A)))
        made, arrays = list(parts()), dict[str, Any]()
        arrays |= {name: np.concatenate([part[name] for part in made]) for name in made[0].arrays}
        return VectorEpisodes(**arrays)

    def value(self, policy: GainPolicy) -> float:
        """Minus the expected cost of an episode under a policy, its noise included, exactly."""
        followed, model = self._checked(policy), self.theta[np.newaxis]
        costs = riccati.expected_costs(self.spec, followed.gains[np.newaxis], model, followed.noise)
        return -float(costs[0, 0])

    @cached_property
    def optimal_policy(self) -> GainPolicy:
        """The optimal gains, without noise."""
        return GainPolicy(self._gains)

    @cached_property
    def optimal_value(self) -> float:
        """The largest value that any policy has."""
        return self.value(self.optimal_policy)

    @cached_property
    def baseline_value(self) -> float:
        """The value of no control."""
        return self.value(GainPolicy.zero(self.horizon, self.B.shape[1], len(self.A)))

    @property
    def reference_value(self) -> float:
        """The value that losses are measured from: that of no control."""
        return self.baseline_value

    def __repr__(self) -> str:
        n, d = self.B.shape
        return (
            f"<{type(self).__name__} {self.name!r}: {n} states, {d} controls, {self.horizon} steps>"
        )

    @cached_property
    def _gains(self) -> Floats:
        return riccati.optimal_gains(self.A, self.B, self.Q, self.R, self.horizon)[1]

    def _checked(self, policy: GainPolicy) -> GainPolicy:
        instance_of("policy", policy, GainPolicy)
        n, d = self.B.shape
        if policy.gains.shape != (self.horizon, d, n):
            raise InvalidArgument(
                f"policy must have gains of shape {(self.horizon, d, n)}, got {policy.gains.shape}"
            )
        return policy

    def _users(self, policy: GainPolicy, drawn: int, part: int, users: int) -> Block:
        from tacit.lq import world_loops

        n, d = self.B.shape
        states, actions = np.empty((users, self.horizon + 1, n)), np.empty((users, self.horizon, d))
        seed = np.random.SeedSequence([drawn, part]).generate_state(4, np.uint64)
        centre = np.array(self.start.centre)
        system = self.A, self.B, policy.gains, policy.noise, self.noise
        start = self.start.surface, self.start.radius, centre
        world_loops.roll_out(seed.astype(np.uint64), *system, *start, states, actions)
        versions = np.full(users, policy.version, dtype=np.int64)
        return VectorEpisodes(states, actions, versions=versions).block()


def _bound(name: str, given: float | None, true: float, least: float) -> float:
    """A public bound, which must be true."""
    if given is None:
        return max(1.25 * true, least) or 1.0
    bound = positive(name, given)
    # It may be exceeded by rounding.
    if bound < true * (1.0 - 1e-9):
        raise InvalidArgument(f"{name} must be at least {true:.6g}, got {given!r}")
    return bound
