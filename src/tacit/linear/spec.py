"""What an agent may know of a linear MDP: the features, above all."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.finite.spec import FiniteSpec, check_bytes, numbers
from tacit.privacy.arguments import flag
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class LinearSpec(FiniteSpec):
    """What an agent may know of a finite linear MDP.

    Next states and mean rewards are linear in d features phi(s, a) that everybody knows:
    P_h(s' | s, a) = <phi(s, a), mu_h(s')> and r_h(s, a) = <phi(s, a), theta_h>, where nobody knows
    mu and theta. It is a :class:`~tacit.finite.spec.FiniteSpec` too, so that agents which
    make no use of features run on the same worlds.

    Specs are equal if all they say is equal. Their arrays are read-only copies.

    Attributes:
        states: how many.
        actions: how many.
        horizon: steps of an episode, H.
        stationary: whether transitions and rewards are the same at every step.
        reward_values: the values that a reward can have, in [0, 1].
        start: the distribution of the first state, or ``None`` if it is not known.
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
        for name in ("stationary_transitions", "stationary_rewards"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        both = self.stationary_transitions and self.stationary_rewards
        object.__setattr__(self, "stationary", both)
        super().__post_init__()
        features = check_features(self.features)
        if features.shape[:2] != (self.states, self.actions):
            raise InvalidArgument(
                f"features must have shape ({self.states}, {self.actions}, d), got {features.shape}"
            )
        object.__setattr__(self, "features", features)
        if self.known_rewards is not None:
            object.__setattr__(self, "known_rewards", self._known(self.known_rewards))
        bound = self.weight_bound
        if bound is not None and not 0.0 < bound < math.inf:
            raise InvalidArgument(f"weight_bound must be > 0 and finite, got {bound!r}")

    @property
    def dimension(self) -> int:
        """How many features, d."""
        return int(self.features.shape[2])

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no feature is negative."""
        return bool((self.features >= 0).all())

    @cached_property
    def digest(self) -> str:
        """A fingerprint of features, start, reward values and known rewards."""
        digest = hashlib.blake2b(digest_size=8)
        for values in (self.features, self.start, self.reward_values, self.known_rewards):
            array = np.zeros(0) if values is None else np.ascontiguousarray(values)
            # Minus zero equals zero.
            digest.update(repr(array.shape).encode() + (array + 0.0).tobytes())
        return digest.hexdigest()

    def _known(self, values: ArrayLike) -> Floats:
        table = read_only(numbers("known_rewards", values))
        sizes = (self.states, self.actions)
        if table.ndim != 3 or len(table) not in (1, self.horizon) or table.shape[1:] != sizes:
            raise InvalidArgument(
                f"known_rewards must have shape (1 or {self.horizon}, {sizes[0]}, {sizes[1]}), "
                f"got {table.shape}"
            )
        if not ((table >= 0) & (table <= 1)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        return table

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return (
            f"LinearSpec(states={self.states}, actions={self.actions}, horizon={self.horizon}, "
            f"dimension={self.dimension}, stationary_transitions={self.stationary_transitions}, "
            f"stationary_rewards={self.stationary_rewards}, "
            f"rewards={'unknown' if self.known_rewards is None else 'known'}, "
            f"digest={self.digest!r})"
        )


def check_features(values: ArrayLike) -> Floats:
    """A read-only copy of features, (S, A, d)."""
    array = numbers("features", values)
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidArgument(f"features must have shape (S, A, d), got {array.shape}")
    check_bytes("features", array.shape)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        state, action, entry = bad[0].tolist()
        raise InvalidArgument(
            f"features at state {state}, action {action} must be finite, but entry {entry} is "
            f"{array[state, action, entry]}"
        )
    return read_only(array)


def read_only(values: ArrayLike) -> Floats:
    """A copy that cannot be changed."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
