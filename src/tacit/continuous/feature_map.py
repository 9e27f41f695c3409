"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value: two maps that are equal do the same. Its ``bound`` is the
largest Euclidean norm that any state's features have, which is what sensitivities need. It holds
for every state, also outside of the declared box, since states are clipped first. A state that is
not finite has the zero vector as its features: a user's values never raise.

Maps that are made of numbers (:func:`made_of_numbers`) can be published and saved as such.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.grid import Grid, LoopParameters

Map = TypeVar("Map", bound=type[Any])


@runtime_checkable
class FeatureMap(Protocol):
    """A public map from states to vectors."""

    @property
    def size(self) -> int:
        """How many features there are, m."""

    @property
    def dimension(self) -> int | None:
        """How many coordinates a state has, D; ``None`` if the map takes any number."""

    @property
    def bound(self) -> float:
        """The largest Euclidean norm of a state's features; infinite if nobody knows one."""

    def __call__(self, states: ArrayLike) -> Floats:
        """The features, (..., m), of states, (..., D)."""

    def publishable(self) -> bool:
        """Whether a file of plain numbers can hold the map; no map of your own is such a one."""

    def describe(self) -> str:
        """The map in a few words."""


# Arguments of maps and of their boxes.


def set_corners(box: Any, *, finite: bool) -> None:
    """Checks and sets ``lows`` and ``highs``, which are finite, or may be infinite."""
    given = ((name, getattr(box, name)) for name in ("lows", "highs"))
    lows, highs = (numbers(name, values, finite=finite) for name, values in given)
    if len(lows) != len(highs) or any(
        not (low < high and (math.isfinite(high - low) or not finite))
        for low, high in zip(lows, highs, strict=False)
    ):
        raise InvalidArgument(
            f"lows and highs must have the same length and lows be less than highs, "
            f"got {box.lows!r} and {box.highs!r}"
        )
    object.__setattr__(box, "lows", lows)
    object.__setattr__(box, "highs", highs)


def sequence(name: str, values: Any) -> Sequence[Any]:
    """A list that is not empty."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, (tuple, list)) or not values:
        raise InvalidArgument(f"{name} must be a sequence of numbers, got {values!r}")
    return values


def numbers(name: str, values: Any, *, finite: bool = True) -> tuple[float, ...]:
    """Numbers, finite ones unless others will do."""
    return tuple(number(name, value, finite=finite) for value in sequence(name, values))


def number(name: str, value: Any, *, finite: bool = True) -> float:
    """A number that is one."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    with contextlib.suppress(OverflowError):
        if good and (math.isfinite(value) or not (finite or math.isnan(value))):
            return float(value)
    raise InvalidArgument(f"{name} must be {'finite ' if finite else ''}numbers, got {value!r}")


# Maps as plain numbers.

_KINDS: dict[str, tuple[type[Any], tuple[str, ...]]] = {}


def made_of_numbers(kind: str, *names: str) -> Callable[[Map], Map]:
    """Files may hold maps of a class as numbers: a kind, and the constructor's attributes."""

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
    # Python's own numbers, so that maps made of arrays equal those made by hand.
    values = [arrays[name].tolist() for name in names]
    found: FeatureMap = made(*(tuple(v) if isinstance(v, list) else v for v in values))
    return found


def loop_parameters(features: FeatureMap) -> LoopParameters | None:
    """What compiled loops need of a map; ``None`` if they do not know it, as any subclass."""
    for_loops: Callable[[], LoopParameters] | None = getattr(features, "for_loops", None)
    return None if for_loops is None or feature_arrays(features) is None else for_loops()


def is_grid(features: FeatureMap) -> TypeGuard[Grid]:
    """Whether weights are values at points."""
    return getattr(features, "on_points", False)
