"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value: two maps that are equal do the same. Its ``bound`` is the
largest Euclidean norm that any state's features have, which is what sensitivities need. It holds
for every state, also outside of the declared box, since states are clipped first. A state that is
not finite has the zero vector as its features: a user's values never raise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20
# A cell of a grid has 2^D corners.
_MOST_GRID_COORDINATES = 12


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


@dataclass(frozen=True)
class Grid:
    """Multilinear interpolation on a regular grid of points that includes the corners of a box.

    The features of a state are the weights of the 2^D points around it: non-negative, with sum 1.
    Weights of a value function are its values at the points. States outside of the box are
    clipped to it. At a point of the grid one weight is 1, so the bound is 1.

    Attributes:
        lows: the lower corner of the box.
        highs: its upper corner.
        shape: how many points there are along each coordinate, at least 2.

    >>> Grid((0.0,), (1.0,), (3,))([[0.5], [0.75], [9.0]]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _set_box(self)
        shape = tuple(_whole("shape", n, 2) for n in _sequence("shape", self.shape))
        if len(shape) != len(self.lows):
            raise InvalidArgument(
                f"shape must have {len(self.lows)} numbers as lows has, got {self.shape!r}"
            )
        if len(shape) > _MOST_GRID_COORDINATES:
            raise InvalidArgument(
                f"a grid must have at most {_MOST_GRID_COORDINATES} coordinates, got {len(shape)}"
            )
        _check_count("shape", math.prod(shape))
        object.__setattr__(self, "shape", shape)

    @property
    def size(self) -> int:
        """How many points the grid has."""
        return math.prod(self.shape)

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)

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

    def __call__(self, states: ArrayLike) -> Floats:
        """The weights of the points, (..., m)."""
        return _evaluated(states, self.dimension, self.size, self._weights)

    def publishable(self) -> bool:
        """It is."""
        return True

    def describe(self) -> str:
        """The map in a few words."""
        return f"interpolation on a grid of {' x '.join(map(str, self.shape))} points"

    def _weights(self, states: Floats) -> Floats:
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


@dataclass(frozen=True)
class Polynomial:
    """All monomials up to a degree, of coordinates that are scaled and then clipped.

    With z_i = s_i / scales_i, clipped to [-clip, clip], the features are the products of up to
    ``degree`` of them: first 1, then z_1 to z_D, then z_1 z_1, z_1 z_2 and so on. Every monomial
    is largest where all |z_i| = clip, so the bound is the norm there.

    Attributes:
        scales: what each coordinate is divided by, > 0.
        clip: the largest |z_i|, > 0.
        degree: the largest number of factors, at least 0.

    >>> features = Polynomial(scales=(1.0, 10.0), clip=1.5, degree=2)
    >>> features([0.5, 20.0]).tolist()
    [1.0, 0.5, 1.5, 0.25, 0.75, 2.25]
    >>> features.monomials
    ((), (0,), (1,), (0, 0), (0, 1), (1, 1))
    """

    scales: tuple[float, ...]
    clip: float
    degree: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", _numbers("scales", self.scales))
        if any(scale <= 0.0 for scale in self.scales):
            raise InvalidArgument(f"scales must be > 0, got {self.scales!r}")
        object.__setattr__(self, "clip", _number("clip", self.clip))
        if self.clip <= 0.0:
            raise InvalidArgument(f"clip must be > 0, got {self.clip!r}")
        object.__setattr__(self, "degree", _whole("degree", self.degree, 0))
        _check_count("degree", self.size)
        try:
            finite = math.isfinite(self.bound)
        except OverflowError:
            finite = False
        if not finite:
            raise InvalidArgument(
                f"clip is {self.clip!r}, whose powers up to {2 * self.degree} are not finite"
            )

    @property
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

    def __call__(self, states: ArrayLike) -> Floats:
        """The monomials, (..., m)."""
        return _evaluated(states, self.dimension, self.size, self._products)

    def publishable(self) -> bool:
        """It is."""
        return True

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} monomials up to degree {self.degree} of {self.dimension} coordinates"

    def _products(self, states: Floats) -> Floats:
        with np.errstate(over="ignore"):
            z = np.clip(states / np.array(self.scales), -self.clip, self.clip)
        features = np.ones((len(states), self.size))
        for k, (before, coordinate) in enumerate(self.chain.tolist()[1:], start=1):
            features[:, k] = features[:, before] * z[:, coordinate]
        return features


@dataclass(frozen=True)
class Fourier:
    """Products of cosines on a box: prod_i cos(pi c_i x_i), for all c in {0, .., degree}^D.

    x_i is the coordinate as a part of the way from the box's lower end to its upper one, clipped
    to [0, 1]. At the lower corner all features are 1, so the bound is sqrt(m).

    Attributes:
        lows: the lower corner of the box.
        highs: its upper corner.
        degree: the largest frequency along a coordinate, at least 0.

    >>> Fourier((0.0,), (2.0,), degree=2)([2.0]).tolist()
    [1.0, -1.0, 1.0]
    """

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    degree: int

    def __post_init__(self) -> None:
        _set_box(self)
        object.__setattr__(self, "degree", _whole("degree", self.degree, 0))
        _check_count("degree", self.size)

    @property
    def size(self) -> int:
        """How many products there are."""
        return int((self.degree + 1) ** len(self.lows))

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return len(self.lows)

    @property
    def bound(self) -> float:
        """The norm at the lower corner, where every feature is 1."""
        return math.sqrt(self.size)

    def __call__(self, states: ArrayLike) -> Floats:
        """The products, (..., m); the last coordinate's frequency runs fastest."""
        return _evaluated(states, self.dimension, self.size, self._cosines)

    def publishable(self) -> bool:
        """It is."""
        return True

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} products of cosines up to frequency {self.degree}"

    def _cosines(self, states: Floats) -> Floats:
        lows, highs = np.array(self.lows), np.array(self.highs)
        x = (np.clip(states, lows, highs) - lows) / (highs - lows)
        along = np.cos(np.pi * np.arange(self.degree + 1) * x[:, :, np.newaxis])
        features = np.ones((len(states), 1))
        for i in range(self.dimension):
            products = features[:, :, np.newaxis] * along[:, i, np.newaxis, :]
            features = products.reshape(len(states), -1)
        return features


@dataclass(frozen=True, repr=False)
class Custom:
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
        object.__setattr__(self, "size", _whole("size", self.size, 1))
        _check_count("size", self.size)
        good = isinstance(self.bound, (int, float, np.integer, np.floating))
        if not good or isinstance(self.bound, bool) or not self.bound > 0.0:
            raise InvalidArgument(f"bound must be a number > 0, got {self.bound!r}")
        object.__setattr__(self, "bound", float(self.bound))

    @property
    def dimension(self) -> None:
        """Unknown: the function decides."""
        return

    def __call__(self, states: ArrayLike) -> Floats:
        """The function's values, (..., m)."""
        return _evaluated(states, None, self.size, self._called)

    def publishable(self) -> bool:
        """It is not."""
        return False

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} features by {_named(self.function)}"

    def __repr__(self) -> str:
        # An address in memory would differ from one run to the next.
        return f"Custom({_named(self.function)}, size={self.size}, bound={self.bound!r})"

    def _called(self, states: Floats) -> Floats:
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


# Maps as plain numbers.

_KINDS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "grid": (Grid, ("lows", "highs", "shape")),
    "polynomial": (Polynomial, ("scales", "clip", "degree")),
    "fourier": (Fourier, ("lows", "highs", "degree")),
}


def feature_arrays(features: FeatureMap) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """The kind of a map and its parameters as arrays; ``None`` for a map that is code.

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


class KernelParameters(NamedTuple):
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


def kernel_parameters(features: FeatureMap) -> KernelParameters | None:
    """What compiled loops need of a map, or ``None`` if they do not know it."""
    if type(features) is Grid:
        box = list(zip(features.lows, features.highs, features.shape, strict=True))
        scales = [_grid_scale(low, high, n) for low, high, n in box]
        strides = [math.prod(features.shape[i + 1 :]) for i in range(len(box))]
        table = np.array([features.shape, strides], dtype=np.int64).T.copy()
        return KernelParameters("grid", np.array([features.lows, features.highs, scales]), table)
    if type(features) is Polynomial:
        numbers = np.array([features.scales, (features.clip,) * features.dimension])
        return KernelParameters("polynomial", numbers, features.chain)
    return None


def _grid_scale(low: float, high: float, points: int) -> float:
    """Points per unit of a coordinate."""
    return (points - 1) / (high - low)


def _evaluated(
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


def _plain(array: NDArray[Any]) -> Any:
    """Python's own numbers, so that maps made of arrays equal those made by hand."""
    values = array.tolist()
    return tuple(values) if isinstance(values, list) else values


def _named(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}" if module else str(name)


# Arguments.


def _set_box(features: Grid | Fourier) -> None:
    lows, highs = _numbers("lows", features.lows), _numbers("highs", features.highs)
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


def _sequence(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, (tuple, list)) or not values:
        raise InvalidArgument(f"{name} must be a sequence of numbers, got {values!r}")
    return values


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    return tuple(_number(name, value) for value in _sequence(name, values))


def _number(name: str, value: Any) -> float:
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite numbers, got {value!r}")
    return float(value)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidArgument(f"{name} must be integers >= {least}, got {value!r}")
    return int(value)


def _check_count(name: str, count: int) -> None:
    if count > _MOST_FEATURES:
        raise InvalidArgument(
            f"{name} makes {count:,} features, but at most {_MOST_FEATURES:,} are allowed"
        )
