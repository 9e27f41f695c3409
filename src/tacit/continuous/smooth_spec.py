"""What an agent may know of a world whose states move smoothly."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import numbers, sequence
from tacit.continuous.spec import BoxSpec
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints

MoveReward: TypeAlias = Callable[[Floats, Ints, Floats], ArrayLike]
"""Rewards, (n,), of states (n, D), actions (n,) and next states (n, D)."""

MoveEnds: TypeAlias = Callable[[Floats], ArrayLike]
"""Whether an episode ends, (n,), when it comes to states (n, D)."""

# A fingerprint asks functions at so many states.
_LOOKED_AT = 64


@dataclass(frozen=True, eq=False, repr=False)
class SmoothSpec(BoxSpec):
    """A :class:`BoxSpec`, and what else is public where states move smoothly.

    The box may be open: an agent with a model finds out privately how large coordinates get.

    Attributes:
        angles: which coordinates are angles, in [-pi, pi], where both ends are one place.
        pushes: a vector for each action, if it is known in which direction actions push and how
            much; the moves of states are then believed to be linear in it.
        reward: rewards of (states, actions, next states), if they are known; of rows, (n,).
        ends: at which states, (n, D), an episode is over, if that is known; of rows, (n,).

    Functions take finite states and must not raise. Specs are equal if they say the same, functions
    if they do the same at some states.

    >>> spec = SmoothSpec((-3.1415926535, -8.0), (3.1415926535, 8.0), actions=3, horizon=200,
    ...                   angles=(0,), pushes=((-1.0,), (0.0,), (1.0,)))
    >>> spec.knows_rewards
    False
    """

    closed: ClassVar[bool] = False
    angles: tuple[int, ...] = field(default=(), kw_only=True)
    pushes: tuple[tuple[float, ...], ...] | None = field(default=None, kw_only=True)
    reward: MoveReward | None = field(default=None, kw_only=True)
    ends: MoveEnds | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        angles = tuple(int(i) for i in self.angles)
        if len(set(angles)) < len(angles) or not all(0 <= i < self.dimension for i in angles):
            raise InvalidArgument(
                f"angles must be different coordinates of {self.dimension}, got {self.angles!r}"
            )
        for i in angles:
            if abs(self.lows[i] + math.pi) > 1e-6 or abs(self.highs[i] - math.pi) > 1e-6:
                raise InvalidArgument(
                    f"an angle must be in [-pi, pi], got {self.lows[i]} to {self.highs[i]}"
                )
        object.__setattr__(self, "angles", angles)
        if self.pushes is not None:
            rows = tuple(numbers("pushes", row) for row in sequence("pushes", self.pushes))
            if len(rows) != self.actions or len({len(row) for row in rows}) > 1:
                raise InvalidArgument(
                    f"pushes must be {self.actions} vectors of one length, got {self.pushes!r}"
                )
            object.__setattr__(self, "pushes", rows)
        if self.ends is not None:
            object.__setattr__(self, "may_end", True)
        for name in ("reward", "ends"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise InvalidArgument(f"{name} must be a function, got {getattr(self, name)!r}")

    @property
    def knows_rewards(self) -> bool:
        """Whether rewards are known, and need not be asked for."""
        return self.reward is not None

    def rewards(self, states: Floats, actions: Ints, nexts: Floats) -> Floats:
        """Known rewards (n,) of moves, cut to their range."""
        assert self.reward is not None  # noqa: S101
        return _rows("reward", self.reward(states, actions, nexts), len(states), *self.reward_range)

    def ended(self, states: Floats) -> Bools:
        """At which states, (n, D), an episode is over; nowhere, if nothing is known of it."""
        if self.ends is None:
            return np.zeros(len(states), dtype=np.bool_)
        return _rows("ends", self.ends(states), len(states), 0.0, 1.0) > 0.5

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the functions: what they say at some states."""
        rng = np.random.default_rng(0)
        lows, highs = np.maximum(self.lows, -10.0), np.minimum(self.highs, 10.0)
        here, there = rng.uniform(lows, highs, (2, _LOOKED_AT, self.dimension))
        taken = rng.integers(self.actions, size=_LOOKED_AT)
        digest = hashlib.blake2b(self.ended(there).tobytes(), digest_size=8)
        if self.reward is not None:
            digest.update(self.rewards(here, taken, there).tobytes())
        return digest.hexdigest()

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        names = ["lows", "highs", "actions", "horizon", "reward_range", "discount", "features"]
        names += ["names", "may_end", "action_box", "angles", "pushes", "knows_rewards", "digest"]
        return f"SmoothSpec({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"


def _rows(name: str, found: ArrayLike, users: int, low: float, high: float) -> Floats:
    array = np.asarray(found, dtype=np.float64)
    if array.shape != (users,):
        raise InvalidArgument(f"{name} must return an array of shape ({users},), got {array.shape}")
    return np.clip(np.nan_to_num(array, nan=low), low, high)
