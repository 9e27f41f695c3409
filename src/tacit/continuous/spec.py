"""Specs of worlds whose states are vectors: plain ones, and smooth ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import FeatureMap, set_corners, vector
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import check_bytes, checked_number, flag, instance_of, whole_number


@dataclass(frozen=True)
class BoxSpec:
    """Public knowledge of a world with states in a box and a few actions, before the first user.

    >>> BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5)).dimension
    1
    """

    closed: ClassVar[bool] = True  # whether a box without features must be finite
    lows: tuple[float, ...]  # the lower corner of the box, D numbers
    highs: tuple[float, ...]  # its upper corner
    actions: int  # how many actions there are
    horizon: int  # steps of a user's episode, H
    reward_range: tuple[float, float] = (0.0, 1.0)  # the smallest and the largest reward
    # Weight of the future, in [0, 1): the horizon of plans. Values of worlds are not discounted.
    discount: float = 0.95
    features: FeatureMap | None = None  # a map that suits the world; ``None``: the agent's choice
    # Whether episodes may end before their last step. A time limit is no end.
    may_end: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        set_corners(self, finite=False)
        object.__setattr__(self, "may_end", flag("may_end", self.may_end))
        for name in ("actions", "horizon"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        ends = vector("reward_range", self.reward_range)
        if len(ends) != 2 or not 0.0 < ends[1] - ends[0] < math.inf:
            raise InvalidArgument(f"reward_range must increase, got {self.reward_range!r}")
        object.__setattr__(self, "reward_range", ends)
        discount = checked_number("discount", self.discount, "in [0, 1)", lambda d: 0.0 <= d < 1.0)
        object.__setattr__(self, "discount", discount)
        if self.features is not None:
            # A class is no map either.
            if isinstance(self.features, type) or not isinstance(self.features, FeatureMap):
                raise InvalidArgument(f"features must be a feature map, got {self.features!r}")
            if self.features.dimension not in (None, self.dimension):
                raise InvalidArgument(
                    f"features must take states with {self.dimension} coordinates"
                )
        elif self.closed and not self.bounded:
            raise InvalidArgument("lows and highs must be finite unless there are features")

    @cached_property
    def dimension(self) -> int:
        """How many coordinates a state has, D."""
        return len(self.lows)

    @property
    def bounded(self) -> bool:
        """Whether the box is finite along every coordinate."""
        return all(map(math.isfinite, self.lows + self.highs))

    def check_weights(self, size: int) -> None:
        """Refuses more weights of features, or more entries of their Gram matrix, than fit."""
        check_bytes("weights", (self.actions, size))
        check_bytes("the Gram matrix of features", (size, size))


MoveReward: TypeAlias = Callable[[Floats, Ints, Floats], ArrayLike]
"""Rewards, (n,), of states (n, D), actions (n,) and next states (n, D)."""

_LOOKED_AT = 64  # states, and actions there, at which functions are looked at for a fingerprint


@dataclass(frozen=True, eq=False, repr=False)
class SmoothSpec(BoxSpec):
    """A :class:`BoxSpec` of states that move smoothly, with public functions and directions.

    The box may be open: an agent with a model finds out privately how large coordinates get.
    ``ends`` says at which states, (n, D), an episode is over, if that is known. Specs are equal if
    their functions do the same at some states.
    """

    closed: ClassVar[bool] = False
    # Coordinates that are angles, in [-pi, pi], where both ends are one place.
    angles: tuple[int, ...] = field(default=(), kw_only=True)
    # A vector for each action, if it is known where it pushes: moves are believed linear in it.
    pushes: tuple[tuple[float, ...], ...] | None = field(default=None, kw_only=True)
    reward: MoveReward | None = field(default=None, kw_only=True)  # if rewards are known
    ends: Callable[[Floats], ArrayLike] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        angles = tuple(int(i) for i in self.angles)
        if len(set(angles)) < len(angles) or not all(0 <= i < self.dimension for i in angles):
            raise InvalidArgument(f"angles must be different coordinates, got {self.angles!r}")
        for i in angles:
            if abs(self.lows[i] + math.pi) > 1e-6 or abs(self.highs[i] - math.pi) > 1e-6:
                raise InvalidArgument("an angle must be in [-pi, pi]")
        object.__setattr__(self, "angles", angles)
        if self.pushes is not None:
            instance_of("pushes", self.pushes, (tuple, list, np.ndarray))
            rows = tuple(vector("pushes", row) for row in self.pushes)
            if len(rows) != self.actions or len({len(row) for row in rows}) > 1:
                raise InvalidArgument(f"pushes must be {self.actions} vectors of one length")
            object.__setattr__(self, "pushes", rows)
        for name in ("reward", "ends"):
            if (known := getattr(self, name)) is not None and not callable(known):
                raise InvalidArgument(f"{name} must be a function, got {known!r}")
        if self.ends is not None:
            object.__setattr__(self, "may_end", True)

    def ended(self, states: Floats) -> Bools:
        """At which states, (..., D), an episode is over; nowhere, if nothing is known of it."""
        if self.ends is None:
            return np.zeros(states.shape[:-1], dtype=np.bool_)
        rows = states.reshape(-1, self.dimension)
        return (_rows("ends", self.ends(rows), rows, 0.0, 1.0) > 0.5).reshape(states.shape[:-1])

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        names = ["lows", "highs", "actions", "horizon", "reward_range", "discount", "features"]
        values = (
            f"{name}={getattr(self, name)!r}"
            for name in [*names, "may_end", "angles", "pushes", "digest"]
        )
        return f"SmoothSpec({', '.join(values)})"

    def rewards(self, states: Floats, actions: Ints, nexts: Floats) -> Floats:
        """Known rewards (n,) of moves, cut to their range."""
        assert self.reward is not None  # noqa: S101
        return _rows("reward", self.reward(states, actions, nexts), states, *self.reward_range)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the functions: what they say at some states."""
        rng, box = (
            np.random.default_rng(0),
            (np.maximum(self.lows, -10), np.minimum(self.highs, 10)),
        )
        here, there = rng.uniform(*box, (2, _LOOKED_AT, self.dimension))
        taken = rng.integers(self.actions, size=_LOOKED_AT)
        digest = hashlib.blake2b(self.ended(there).tobytes(), digest_size=8)
        if self.reward is not None:
            digest.update(self.rewards(here, taken, there).tobytes())
        return digest.hexdigest()


def _rows(name: str, found: ArrayLike, states: Floats, low: float, high: float) -> Floats:
    """Values of a function of states, (n,), cut to a range."""
    array, users = np.asarray(found, dtype=np.float64), len(states)
    if array.shape != (users,):
        raise InvalidArgument(f"{name} must return an array of shape ({users},), got {array.shape}")
    return np.clip(np.nan_to_num(array, nan=low), low, high)
