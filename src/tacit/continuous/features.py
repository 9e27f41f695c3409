"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value: two maps that are equal do the same. Its ``bound`` is the
largest Euclidean norm that any state's features have, which is what sensitivities need. It holds
for every state, also outside of the declared box, since states are clipped first. A state that is
not finite has the zero vector as its features: a user's values never raise.

Maps that are made of numbers (:func:`made_of_numbers`) can be published and saved as such.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20
# A cell of a grid has 2^D corners.
_MOST_GRID_COORDINATES = 12

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


class LoopParameters(NamedTuple):
    """A map as the compiled loops take it."""

    kind: str  # "grid" or "polynomial"
    # (3, D), lows, highs and points per unit of a grid; (2, D), a polynomial's scales and clip.
    numbers: Floats
    # (D, 2), points along each coordinate and their stride; (m, 2), a polynomial's chain.
    table: Ints


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

    >>> from tacit.continuous.features import Grid
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


# The maps.


class SafeMap(ABC):
    """A map that takes all states: those that are not finite have zeros for features."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """How many coordinates a state has; ``None`` if the map takes any number."""

    @abstractmethod
    def _evaluate(self, states: Floats) -> Floats:
        """The features, (n, m), of finite states, (n, D)."""

    def __call__(self, states: ArrayLike) -> Floats:
        """The features, (..., m), of states, (..., D)."""
        points, dimension = np.asarray(states, dtype=np.float64), self.dimension
        if points.ndim == 0 or (dimension is not None and points.shape[-1] != dimension):
            wanted = "the coordinates" if dimension is None else f"{dimension} coordinates"
            raise InvalidArgument(
                f"states must have {wanted} of a state along the last axis, got shape "
                f"{points.shape}"
            )
        rows, size = points.reshape(-1, points.shape[-1]), cast(FeatureMap, self).size
        good = np.isfinite(rows).all(axis=1)
        # Nobody may be left: a function need not take an empty array.
        if len(rows) and good.all():
            features = self._evaluate(rows)
        else:
            features = np.zeros((len(rows), size))
            if good.any():
                features[good] = self._evaluate(rows[good])
        return features.reshape(*points.shape[:-1], size)


@dataclass(frozen=True)
class BoxMap(SafeMap):
    """A map on a box; states outside are clipped to it."""

    lows: tuple[float, ...]  # the lower corner of the box
    highs: tuple[float, ...]  # its upper corner

    def __post_init__(self) -> None:
        set_corners(self, finite=True)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)


@made_of_numbers("grid", "lows", "highs", "shape")
@dataclass(frozen=True)
class Grid(BoxMap):
    """Multilinear interpolation on a regular grid of points that includes the corners of a box.

    The features of a state are the weights of the 2^D points around it: non-negative, with sum 1.
    Weights of a value function are its values at the points. At a point of the grid one weight is
    1, so the bound is 1.

    >>> Grid((0.0,), (1.0,), (3,))([[0.5], [0.75], [9.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """

    on_points: ClassVar[bool] = True
    shape: tuple[int, ...]  # how many points there are along each coordinate, at least 2

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = tuple(whole("shape", n, 2) for n in sequence("shape", self.shape))
        if len(shape) != len(self.lows):
            raise InvalidArgument(
                f"shape must have {len(self.lows)} numbers as lows has, got {self.shape!r}"
            )
        if len(shape) > _MOST_GRID_COORDINATES:
            raise InvalidArgument(
                f"a grid must have at most {_MOST_GRID_COORDINATES} coordinates, got {len(shape)}"
            )
        check_count("shape", math.prod(shape))
        object.__setattr__(self, "shape", shape)

    @cached_property
    def size(self) -> int:
        """How many points the grid has."""
        return math.prod(self.shape)

    @property
    def bound(self) -> float:
        """1, the norm at every point of the grid."""
        return 1.0

    @property
    def points(self) -> Floats:
        """The points, (m, D), in the order of the features: the last coordinate runs fastest."""
        axes = [
            np.linspace(low, high, n)
            for low, high, n in zip(self.lows, self.highs, self.shape, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))

    def describe(self) -> str:
        """The map in a few words."""
        return f"interpolation on a grid of {' x '.join(map(str, self.shape))} points"

    def for_loops(self) -> LoopParameters:
        """The box and the strides; see :func:`loop_parameters`."""
        box = list(zip(self.lows, self.highs, self.shape, strict=True))
        scales = [_grid_scale(low, high, n) for low, high, n in box]
        strides = [math.prod(self.shape[i + 1 :]) for i in range(len(box))]
        table = np.array([self.shape, strides], dtype=np.int64).T.copy()
        return LoopParameters("grid", np.array([self.lows, self.highs, scales]), table)

    @cached_property
    def corners(self) -> Ints:
        """How far the 2^D points around a state are from its lower corner, in points."""
        strides = [math.prod(self.shape[i + 1 :]) for i in range(self.dimension)]
        found = [0]
        for stride in strides:
            found += [c + stride for c in found]
        return np.array(found, dtype=np.int64)

    def _evaluate(self, states: Floats) -> Floats:
        weights = np.ones((len(states), 1))
        for i, (low, high, n) in enumerate(zip(self.lows, self.highs, self.shape, strict=True)):
            position = (np.clip(states[:, i], low, high) - low) * _grid_scale(low, high, n)
            # Rounding must not lead past the last point.
            cell = np.minimum(position.astype(np.int64), n - 2)
            part = np.minimum(position - cell, 1.0)
            along = np.zeros((len(states), n))
            rows = np.arange(len(states))
            along[rows, cell] = 1.0 - part
            along[rows, cell + 1] = part
            weights = (weights[:, :, np.newaxis] * along[:, np.newaxis, :]).reshape(len(states), -1)
        return weights


def _grid_scale(low: float, high: float, points: int) -> float:
    """Points per unit of a coordinate."""
    return (points - 1) / (high - low)


@made_of_numbers("polynomial", "scales", "clip", "degree")
@dataclass(frozen=True)
class Polynomial(SafeMap):
    """All monomials up to a degree, of coordinates that are scaled and then clipped.

    With z_i = s_i / scales_i, clipped to [-clip, clip], the features are the products of up to
    ``degree`` of them: first 1, then z_1 to z_D, then z_1 z_1, z_1 z_2 and so on. Every monomial
    is largest where all |z_i| = clip, so the bound is the norm there.

    >>> features = Polynomial(scales=(1.0, 10.0), clip=1.5, degree=2)
    >>> features([0.5, 20.0]).tolist()
    [1.0, 0.5, 1.5, 0.25, 0.75, 2.25]
    >>> features.monomials
    ((), (0,), (1,), (0, 0), (0, 1), (1, 1))
    """

    scales: tuple[float, ...]  # what each coordinate is divided by, > 0
    clip: float  # the largest |z_i|, > 0
    degree: int  # the largest number of factors, at least 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", numbers("scales", self.scales))
        if any(scale <= 0.0 for scale in self.scales):
            raise InvalidArgument(f"scales must be > 0, got {self.scales!r}")
        object.__setattr__(self, "clip", number("clip", self.clip))
        if self.clip <= 0.0:
            raise InvalidArgument(f"clip must be > 0, got {self.clip!r}")
        object.__setattr__(self, "degree", whole("degree", self.degree, 0))
        check_count("degree", self.size)
        try:
            finite = math.isfinite(self.bound)
        except OverflowError:
            finite = False
        if not finite:
            raise InvalidArgument(
                f"clip is {self.clip!r}, whose powers up to {2 * self.degree} are not finite"
            )

    @cached_property
    def size(self) -> int:
        """How many monomials there are."""
        return math.comb(len(self.scales) + self.degree, self.degree)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.scales)

    @property
    def bound(self) -> float:
        """The norm where all scaled coordinates are at the clip."""
        D = self.dimension
        degrees = range(self.degree + 1)
        return math.sqrt(math.fsum(math.comb(D + k - 1, k) * self.clip ** (2 * k) for k in degrees))

    @property
    def monomials(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates that each feature is the product of, in the order of the features."""
        D = range(self.dimension)
        return tuple(
            factors
            for k in range(self.degree + 1)
            for factors in itertools.combinations_with_replacement(D, k)
        )

    @cached_property
    def chain(self) -> Ints:
        """(m, 2): a feature is the feature in the first column times the coordinate in the second.

        The first feature is 1 and needs neither.
        """
        monomials = self.monomials
        index = {factors: k for k, factors in enumerate(monomials)}
        return np.array(
            [(index[factors[:-1]], factors[-1]) if factors else (0, 0) for factors in monomials],
            dtype=np.int64,
        )

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} monomials up to degree {self.degree} of {self.dimension} coordinates"

    def for_loops(self) -> LoopParameters:
        """Scales, clip and chain; see :func:`loop_parameters`."""
        numbers = np.array([self.scales, (self.clip,) * self.dimension])
        return LoopParameters("polynomial", numbers, self.chain)

    def _evaluate(self, states: Floats) -> Floats:
        with np.errstate(over="ignore"):
            z = np.clip(states / np.array(self.scales), -self.clip, self.clip)
        features = np.ones((len(states), self.size))
        for k, (before, coordinate) in enumerate(self.chain.tolist()[1:], start=1):
            features[:, k] = features[:, before] * z[:, coordinate]
        return features


# A default map is of degree two up to so many features.
_MOST_BY_DEFAULT = 400


def default_polynomial(lows: tuple[float, ...], highs: tuple[float, ...]) -> Polynomial:
    """The map of states of many coordinates in a box, where nobody has given one.

    Coordinates are divided by the largest that they can be. Monomials are of degree two up to 26
    coordinates, and of degree one beyond.

    >>> default_polynomial((-1.0,) * 8, (2.0,) * 8).describe()
    '45 monomials up to degree 2 of 8 coordinates'
    """
    scales = tuple(max(abs(a), abs(b)) for a, b in zip(lows, highs, strict=True))
    degree = 2 if math.comb(len(lows) + 2, 2) <= _MOST_BY_DEFAULT else 1
    return Polynomial(scales, 1.0, degree)


@dataclass(frozen=True, repr=False)
class Custom(SafeMap):
    """A function of your own. It cannot be published as numbers, only as code.

    Non-finite states never reach the function, and non-finite features become the zero vector.
    Features that are longer than ``bound`` are scaled down to it, so that the bound holds whatever
    the function does.

    Attributes:
        function: maps finite states, (n, D), to features, (n, size). It must treat every state on
            its own and must not raise: else one user could change what is done to others.
        size: how many features there are.
        bound: the largest norm; infinite by default, which leaves clipping to the statistics.

    >>> features = Custom(lambda states: states**2, size=1, bound=1.0)
    >>> features([[0.5], [3.0], [np.nan]]).tolist()
    [[0.25], [1.0], [0.0]]
    """

    function: Callable[[Floats], ArrayLike]
    size: int
    bound: float = math.inf

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(f"function must be callable, got {self.function!r}")
        object.__setattr__(self, "size", whole("size", self.size, 1))
        check_count("size", self.size)
        good = isinstance(self.bound, (int, float, np.integer, np.floating))
        if not good or isinstance(self.bound, bool) or not self.bound > 0.0:
            raise InvalidArgument(f"bound must be a number > 0, got {self.bound!r}")
        object.__setattr__(self, "bound", float(self.bound))

    @property
    def dimension(self) -> None:
        """Unknown: the function decides."""
        return

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} features by {_named(self.function)}"

    def __repr__(self) -> str:
        # An address in memory would differ from one run to the next.
        return f"Custom({_named(self.function)}, size={self.size}, bound={self.bound!r})"

    def _evaluate(self, states: Floats) -> Floats:
        # A user's values must not warn either.
        with np.errstate(all="ignore"):
            features = np.array(self.function(states), dtype=np.float64)
        if features.shape != (len(states), self.size):
            raise InvalidArgument(
                f"{_named(self.function)} must return an array of shape "
                f"({len(states)}, {self.size}), got {features.shape}"
            )
        features[~np.isfinite(features).all(axis=1)] = 0.0
        if math.isfinite(self.bound):
            # The largest entry first: squares of large numbers overflow.
            largest = np.abs(features).max(axis=1, keepdims=True)
            unit = features / np.where(largest > 0.0, largest, 1.0)
            norms = np.linalg.norm(unit, axis=1, keepdims=True)
            with np.errstate(over="ignore"):
                long = norms * largest > self.bound
            shortened = unit / np.where(norms > 0.0, norms, 1.0) * self.bound
            features = np.where(long, shortened, features)
        return features


def _named(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}" if module else str(name)
