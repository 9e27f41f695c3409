"""Public description of a linear MDP: sizes and features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from tacit.linear.statistics import check_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats
from tacit.tabular.spec import FeatureSpec, fingerprint


@dataclass(frozen=True, eq=False, repr=False)
class LinearSpec(FeatureSpec):
    """Public description of a finite linear MDP.

    Next states and mean rewards are linear in d known features phi(s, a):
    P_h(s' | s, a) = <phi(s, a), mu_h(s')> and r_h(s, a) = <phi(s, a), theta_h>, with unknown
    mu and theta. Agents which make no use of features run on the same worlds. Specs are equal if
    all they say is equal; their arrays are read-only copies. They have what a
    :class:`~tacit.tabular.spec.FiniteSpec` has, and:

    Attributes:
        features: phi, (S, A, d).
        stationary_transitions: whether mu is the same at every step.
        stationary_rewards: whether theta is the same at every step.
        known_rewards: mean rewards, (1 or H, S, A), where they are known, else ``None``.
        weight_bound: |sum_s' mu_h(s') v(s')| <= weight_bound for all |v| <= 1, and |theta_h| <= it;
            for bounds that are proven, which take sqrt(d) where it is ``None``.

    >>> spec = LinearSpec(states=1, actions=2, horizon=3, features=[[[1.0, 0.0], [0.5, 0.5]]],
    ...                   stationary_transitions=True, stationary_rewards=False)
    >>> spec.dimension, spec.nonnegative, spec.stationary
    (2, True, False)
    """

    stationary: bool = field(init=False)
    features: Floats = field(kw_only=True)
    stationary_transitions: bool = field(kw_only=True)
    stationary_rewards: bool = field(kw_only=True)
    known_rewards: Floats | None = field(default=None, kw_only=True)
    weight_bound: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        features = check_features(self.features)
        if features.shape[:2] != (self.states, self.actions):
            raise InvalidArgument(
                f"features must have shape ({self.states}, {self.actions}, d), got {features.shape}"
            )
        object.__setattr__(self, "features", features)
        self._check_known_rewards()
        bound = self.weight_bound
        if bound is not None and not 0.0 < bound < math.inf:
            raise InvalidArgument(f"weight_bound must be > 0 and finite, got {bound!r}")

    @property
    def dimension(self) -> int:
        """Number of features, d."""
        return int(self.features.shape[2])

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no feature is negative."""
        return bool((self.features >= 0).all())

    @cached_property
    def digest(self) -> str:
        """A fingerprint of features, start, reward values and known rewards."""
        return fingerprint(self.features, self.start, self.reward_values, self.known_rewards)

    def __repr__(self) -> str:
        return self._text(self.digest, dimension=self.dimension)
