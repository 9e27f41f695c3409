"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value: two maps that are equal do the same. Its ``bound`` is the
largest Euclidean norm that any state's features have, which is what sensitivities need. It holds
for every state, also outside of the declared box, since states are clipped first. A state that is
not finite has the zero vector as its features: a user's values never raise.

Maps that are made of numbers (:func:`made_of_numbers`) can be published and saved as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Map = TypeVar("Map", bound=type[Any])

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20


@runtime_checkable
class FeatureMap(Protocol):
    """A public map from states to vectors."""

    @property
    def size(self) -> int:
        """How many features there are, m."""
        ...

    @property
    def dimension(self) -> int | None:
        """How many coordinates a state has, D; ``None`` if the map takes any number."""
        ...

    @property
    def bound(self) -> float:
        """The largest Euclidean norm of a state's features; infinite if nobody knows one."""
        ...

    def __call__(self, states: ArrayLike) -> Floats:
        """The features, (..., m), of states, (..., D)."""
        ...

    def publishable(self) -> bool:
        """Whether a file of plain numbers can hold the map; no map of your own is such a one."""
        ...

    def describe(self) -> str:
        """The map in a few words."""
        ...


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


# Maps as plain numbers.

_KINDS: dict[str, tuple[type[Any], tuple[str, ...]]] = {}


def made_of_numbers(kind: str, *names: str) -> Callable[[Map], Map]:
    """Says of a class that files may hold its maps as numbers.

    Args:
        kind: what files call it.
        names: of the attributes that a map is made of, in the order of its constructor.
    """

    def add(made: Map) -> Map:
        _KINDS[kind] = made, names
        return made

    return add


def feature_arrays(features: FeatureMap) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """The kind of a map and its parameters as arrays; ``None`` for a map that is code.

    >>> from tacit.continuous.grid import Grid
    >>> kind, arrays = feature_arrays(Grid((0.0,), (1.0,), (3,)))
    >>> kind, {name: array.tolist() for name, array in arrays.items()}
    ('grid', {'lows': [0.0], 'highs': [1.0], 'shape': [3]})
    """
    for kind, (made, names) in _KINDS.items():
        if type(features) is made:
            return kind, {name: np.array(getattr(features, name)) for name in names}
    return None


def features_of(kind: str, arrays: Mapping[str, NDArray[Any]]) -> FeatureMap:
    """The inverse of :func:`feature_arrays`, to the bit; other arrays are ignored."""
    if kind not in _KINDS:
        raise InvalidArgument(f"kind is {kind!r}, but must be one of {list(_KINDS)}")
    made, names = _KINDS[kind]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidArgument(f"arrays of a {kind} must have {', '.join(missing)}")
    return cast(FeatureMap, made(*(_plain(arrays[name]) for name in names)))


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


def loop_parameters(features: FeatureMap) -> LoopParameters | None:
    """What compiled loops need of a map, or ``None`` if they do not know it."""
    # A subclass may do anything else.
    known = any(type(features) is made for made, _ in _KINDS.values())
    for_loops: Callable[[], LoopParameters] | None = getattr(features, "for_loops", None)
    return for_loops() if known and for_loops is not None else None


def _plain(array: NDArray[Any]) -> Any:
    """Python's own numbers, so that maps made of arrays equal those made by hand."""
    values = array.tolist()
    return tuple(values) if isinstance(values, list) else values


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
