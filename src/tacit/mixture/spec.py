"""Public description of a linear mixture MDP: sizes, features, and where the weights lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_bytes, numbers, read_only
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.feature_spec import FeatureSpec, fingerprint, finite


@dataclass(frozen=True, eq=False, repr=False)
class MixtureSpec(FeatureSpec):
    """Public description of a finite linear mixture MDP.

    Probabilities are linear in d known features psi(s' | s, a) of the next state too:
    P_h(s' | s, a) = <psi(s' | s, a), theta_h>. The d weights theta_h are unknown. Public is
    only that they are center + directions @ eta_h, with unknown eta_h in R^k, and that
    |eta_h| <= radius. Mean rewards are known, or <varphi(s, a), omega_h> with m known features
    varphi and unknown omega_h, or both. Agents which make no use of features run on the same
    worlds.

    Specs are equal if all they say is equal. Their arrays are read-only; those that the caller
    can still change are copied. They have what a :class:`~tacit.tabular.spec.FiniteSpec` has, and:

    Attributes:
        transition_features: psi, (S, A, d, S), indexed [s, a, i, s'].
        stationary_transitions: whether theta is the same at every step.
        stationary_rewards: whether mean rewards are the same at every step.
        reward_features: varphi, (S, A, m), or ``None`` where rewards are known.
        known_rewards: mean rewards, (1 or H, S, A), where they are known, else ``None``.
        center: (d,); zero if not given.
        directions: (d, k); the identity if not given.
        radius: > 0; sqrt(d) if not given.

    >>> spec = MixtureSpec(states=1, actions=2, horizon=3, known_rewards=[[[0.0, 1.0]]],
    ...                    transition_features=[[[[1.0], [1.0]]] * 2],
    ...                    stationary_transitions=True, stationary_rewards=True,
    ...                    center=[0.5, 0.5], directions=[[1.0], [-1.0]])
    >>> spec.dimension, spec.free, round(spec.radius, 4)
    (2, 1, 1.4142)
    """

    stationary: bool = field(init=False)
    transition_features: Floats = field(kw_only=True)
    stationary_transitions: bool = field(kw_only=True)
    stationary_rewards: bool = field(kw_only=True)
    reward_features: Floats | None = field(default=None, kw_only=True)
    known_rewards: Floats | None = field(default=None, kw_only=True)
    # Never None once made; None stands for the defaults, which depend on d.
    center: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    directions: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    radius: float = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        S, A = self.states, self.actions
        features = check_transition_features(self.transition_features)
        varphi = self.reward_features
        if features.shape[:2] != (S, A):
            raise InvalidArgument(
                f"transition_features must have shape ({S}, {A}, d, {S}), got {features.shape}"
            )
        if varphi is None and self.known_rewards is None:
            raise InvalidArgument("reward_features and known_rewards must not both be None")
        varphi = None if varphi is None else check_reward_features(varphi, S, A)
        self._check_known_rewards()
        d = features.shape[2]
        of_weights = check_weight_set(d, self.center, self.directions, self.radius)
        names = ("transition_features", "reward_features", "center", "directions", "radius")
        for name, value in zip(names, (features, varphi, *of_weights), strict=True):
            object.__setattr__(self, name, value)

    @property
    def dimension(self) -> int:
        """Number of features and weights of transitions, d."""
        return int(self.transition_features.shape[2])

    @property
    def free(self) -> int:
        """Number of unknown coordinates of theta_h, k."""
        return int(self.directions.shape[1])

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all that the short form does not show."""
        rewards = self.start, self.reward_values, self.known_rewards
        weights = self.center, self.directions, self.radius
        return fingerprint(self.transition_features, self.reward_features, *rewards, *weights)

    def __repr__(self) -> str:
        return self._text(self.digest, dimension=self.dimension, free=self.free)


def check_transition_features(values: ArrayLike) -> Floats:
    """Read-only features of next states, (S, A, d, S)."""
    array = numbers("transition_features", values)
    if array.ndim != 4 or 0 in array.shape or array.shape[0] != array.shape[3]:
        raise InvalidArgument(
            f"transition_features must have shape (S, A, d, S), got {array.shape}"
        )
    check_bytes("transition_features", array.shape)
    return finite("transition_features", array, "state", "action")


def check_reward_features(values: ArrayLike, states: int, actions: int) -> Floats:
    """Read-only features of rewards, (S, A, m)."""
    array = numbers("reward_features", values)
    if array.ndim != 3 or 0 in array.shape or array.shape[:2] != (states, actions):
        raise InvalidArgument(
            f"reward_features must have shape ({states}, {actions}, m), got {array.shape}"
        )
    return finite("reward_features", array, "state", "action")


def check_weight_set(
    d: int, center: ArrayLike | None, directions: ArrayLike | None, radius: float | None
) -> tuple[Floats, Floats, float]:
    """Checked public knowledge of the weights; the defaults say only that |theta| <= sqrt(d).

    Args:
        d: Number of weights.
        center: (d,); zero if not given.
        directions: (d, k); the identity if not given.
        radius: Bound on |eta|; sqrt(d) if not given.
    """
    middle = numbers("center", np.zeros(d) if center is None else center)
    if middle.shape != (d,) or not np.isfinite(middle).all():
        raise InvalidArgument(
            f"center must be {d} finite numbers, one for each feature, got shape {middle.shape}"
        )
    if directions is None:
        check_bytes("directions", (d, d))
    basis = numbers("directions", np.eye(d) if directions is None else directions)
    if basis.ndim != 2 or len(basis) != d or basis.shape[1] == 0 or not np.isfinite(basis).all():
        raise InvalidArgument(
            f"directions must be finite numbers of shape ({d}, k), got shape {basis.shape}"
        )
    radius = math.sqrt(d) if radius is None else radius
    kinds = (int, float, np.integer, np.floating)
    if isinstance(radius, bool) or not isinstance(radius, kinds) or not 0.0 < radius < math.inf:
        raise InvalidArgument(f"radius must be a number > 0 and finite, got {radius!r}")
    return read_only(middle), read_only(basis), float(radius)
