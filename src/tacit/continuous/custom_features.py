"""Functions of your own as feature maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import FeatureMap, check_count
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import whole_number


@dataclass(frozen=True, repr=False)
class Custom(FeatureMap):
    """A function of your own. It cannot be published as numbers, only as code.

    Non-finite states never reach the function, and non-finite features become the zero vector.

    The function maps finite states, (n, D), to features, (n, size). It must treat every state on
    its own and must not raise: else one user could change what is done to others.

    >>> Custom(lambda states: states**2, size=1)([[0.5], [3.0], [np.nan]]).tolist()
    [[0.25], [9.0], [0.0]]
    """

    function: Callable[[Floats], ArrayLike]
    size: int

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(f"function must be callable, got {self.function!r}")
        object.__setattr__(self, "size", whole_number("size", self.size))
        check_count("size", self.size)

    @property
    def dimension(self) -> None:
        """Unknown: the function decides."""
        return

    def __repr__(self) -> str:
        # An address in memory would differ from one run to the next.
        return f"Custom({_named(self.function)}, size={self.size})"

    def _evaluate(self, states: Floats) -> Floats:
        # A user's values must not warn either.
        with np.errstate(all="ignore"):
            features = np.array(self.function(states), dtype=np.float64)
        if features.shape != (len(states), self.size):
            shape = len(states), self.size
            raise InvalidArgument(f"{_named(self.function)} must return an array of shape {shape}")
        features[~np.isfinite(features).all(axis=1)] = 0.0
        return features


def _named(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}" if module else str(name)
