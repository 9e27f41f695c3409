"""What an agent may know of a world whose states are vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from tacit.continuous.action_box import ActionBox
from tacit.continuous.features import FeatureMap, number, numbers, set_corners
from tacit.core.sizes import check_bytes, check_size
from tacit.privacy.arguments import flag, instance_of
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True)
class BoxSpec:
    """What an agent may know of a world with states in a box and a few actions.

    All of it is public knowledge from before the first user. Specs are equal if all they say is.

    Attributes:
        lows: the lower corner of the box, D numbers; infinite only beside ``features``.
        highs: its upper corner.
        actions: how many actions there are.
        horizon: steps of a user's episode, H.
        reward_range: the smallest and the largest reward.
        discount: what the agent should weigh the future with, in [0, 1): the horizon of its plans,
            which is not the users'. Values of worlds are not discounted.
        features: a feature map that suits the world, or ``None`` to leave it to the agent.
        names: what the coordinates are called, or ``None``.
        may_end: whether episodes may end before their last step. A time limit is no end.
        action_box: the box that actions are vectors of, if they are numbers of its mesh.

    >>> BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5)).dimension
    1
    """

    closed: ClassVar[bool] = True  # whether a box without features must be finite
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    actions: int
    horizon: int
    reward_range: tuple[float, float] = (0.0, 1.0)
    discount: float = 0.95
    features: FeatureMap | None = None
    names: tuple[str, ...] | None = None
    may_end: bool = field(default=False, kw_only=True)
    action_box: ActionBox | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        set_corners(self, finite=False)
        object.__setattr__(self, "may_end", flag("may_end", self.may_end))
        for name in ("actions", "horizon"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        if self.action_box is not None:
            instance_of("action_box", self.action_box, ActionBox)
            if self.actions != self.action_box.size:
                raise InvalidArgument(
                    f"actions must be {self.action_box.size}, the points of the mesh of "
                    f"action_box, got {self.actions}"
                )
        ends = numbers("reward_range", self.reward_range, finite=False)
        if len(ends) != 2 or not (ends[0] < ends[1] and math.isfinite(ends[1] - ends[0])):
            raise InvalidArgument(
                f"reward_range must be two finite numbers that increase, got {self.reward_range!r}"
            )
        object.__setattr__(self, "reward_range", ends)
        discount = number("discount", self.discount, finite=False)
        if not 0.0 <= discount < 1.0:
            raise InvalidArgument(f"discount must be in [0, 1), got {self.discount!r}")
        object.__setattr__(self, "discount", discount)
        if self.features is not None:
            self.check_features(self.features)
        elif self.closed and not self.bounded:
            raise InvalidArgument(
                f"lows and highs must be finite unless there are features, got {self.lows} "
                f"and {self.highs}"
            )
        if self.names is not None:
            instance_of("names", self.names, (tuple, list))
            names = tuple(self.names)
            if len(names) != self.dimension or not all(isinstance(name, str) for name in names):
                raise InvalidArgument(f"names must be {self.dimension} texts, got {self.names!r}")
            object.__setattr__(self, "names", names)

    @cached_property
    def dimension(self) -> int:
        """How many coordinates a state has, D."""
        return len(self.lows)

    @property
    def bounded(self) -> bool:
        """Whether the box is finite along every coordinate."""
        return all(map(math.isfinite, self.lows + self.highs))

    def check_features(self, features: Any) -> None:
        """Refuses what is no feature map, or one of other states; a class is no map either."""
        if isinstance(features, type) or not isinstance(features, FeatureMap):
            raise InvalidArgument(f"features must be a feature map, got {features!r}")
        if features.dimension not in (None, self.dimension):
            raise InvalidArgument(
                f"features must take states with {self.dimension} coordinates, got {features!r}"
            )

    def check_weights(self, size: int) -> None:
        """Refuses more weights of features, or more entries of their Gram matrix, than fit."""
        check_bytes("weights", (self.actions, size))
        check_bytes("the Gram matrix of features", (size, size))
