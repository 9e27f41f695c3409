"""What feature maps are made with: their arguments, states that are no numbers, compiled loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20


def evaluated(
    states: ArrayLike, dimension: int | None, size: int, evaluate: Callable[[Floats], Floats]
) -> Floats:
    """Features of the finite states, zeros for the others."""
    points = np.asarray(states, dtype=np.float64)
    if points.ndim == 0 or (dimension is not None and points.shape[-1] != dimension):
        wanted = "the coordinates" if dimension is None else f"{dimension} coordinates"
        raise InvalidArgument(
            f"states must have {wanted} of a state along the last axis, got shape {points.shape}"
        )
    rows = points.reshape(-1, points.shape[-1])
    good = np.isfinite(rows).all(axis=1)
    # Nobody may be left: a function need not take an empty array.
    if len(rows) and good.all():
        features = evaluate(rows)
    else:
        features = np.zeros((len(rows), size))
        if good.any():
            features[good] = evaluate(rows[good])
    return features.reshape(*points.shape[:-1], size)


class LoopParameters(NamedTuple):
    """A map as the compiled loops take it.

    Attributes:
        kind: "grid" or "polynomial".
        numbers: (3, D), lows, highs and points per unit of a grid; (2, D), a polynomial's scales
            and clip.
        table: (D, 2), points along each coordinate and their stride; (m, 2), a polynomial's chain.
    """

    kind: str
    numbers: Floats
    table: Ints


# Arguments.


def set_box(features: Any) -> None:
    """Checks and sets the corners of a map's box."""
    lows, highs = numbers("lows", features.lows), numbers("highs", features.highs)
    if len(lows) != len(highs) or any(
        not (low < high and math.isfinite(high - low))
        for low, high in zip(lows, highs, strict=False)
    ):
        raise InvalidArgument(
            f"lows and highs must have the same length and lows be less than highs, "
            f"got {features.lows!r} and {features.highs!r}"
        )
    object.__setattr__(features, "lows", lows)
    object.__setattr__(features, "highs", highs)


def sequence(name: str, values: Any) -> Sequence[Any]:
    """A list that is not empty."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, (tuple, list)) or not values:
        raise InvalidArgument(f"{name} must be a sequence of numbers, got {values!r}")
    return values


def numbers(name: str, values: Any) -> tuple[float, ...]:
    """Finite numbers."""
    return tuple(number(name, value) for value in sequence(name, values))


def number(name: str, value: Any) -> float:
    """A finite number."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite numbers, got {value!r}")
    return float(value)


def whole(name: str, value: Any, least: int) -> int:
    """An integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidArgument(f"{name} must be integers >= {least}, got {value!r}")
    return int(value)


def check_count(name: str, count: int) -> None:
    """Refuses more features than anybody means."""
    if count > _MOST_FEATURES:
        raise InvalidArgument(
            f"{name} makes {count:,} features, but at most {_MOST_FEATURES:,} are allowed"
        )
