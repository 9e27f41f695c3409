"""Feature maps: a state of R^D as a vector of m numbers, on which values are linear.

A map is public, and a frozen value: two maps that are equal do the same. Its ``bound`` is the
largest Euclidean norm that any state's features have, which is what sensitivities need. It holds
for every state, also outside of the declared box, since states are clipped first. A state that is
not finite has the zero vector as its features: a user's values never raise.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    TypeGuard,
    cast,
    runtime_checkable,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.sizes import check_seed, check_size, numbers
from tacit.privacy.arguments import instance_of, positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

# Features of a state; more are a mistake in a degree or a shape.
_MOST_FEATURES = 1 << 20
# A cell of a grid has 2^D corners.
_MOST_GRID_COORDINATES = 12
# A default polynomial is of degree two up to so many features.
_MOST_BY_DEFAULT = 400
# Frequencies along each coordinate of a default quadrature, up to three; more have three.
_NODES = {1: 7, 2: 5, 3: 4}


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
    lows, highs = (vector(name, values, finite=finite) for name, values in given)
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


def vector(name: str, values: Any, *, finite: bool = True) -> tuple[float, ...]:
    """Numbers, finite ones unless others will do."""
    array = numbers(name, values)
    good = np.isfinite(array) if finite else ~np.isnan(array)
    if array.ndim != 1 or not array.size or not good.all():
        kind = "finite numbers" if finite else "numbers"
        raise InvalidArgument(f"{name} must be a sequence of {kind}, got {values!r}")
    return tuple(array.astype(np.float64).tolist())


def check_count(name: str, count: int) -> None:
    """Refuses more features than anybody means."""
    if count > _MOST_FEATURES:
        raise InvalidArgument(
            f"{name} makes {count:,} features, but at most {_MOST_FEATURES:,} are allowed"
        )


def feature_arrays(features: FeatureMap) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """The kind of a map and its parameters as arrays; ``None`` for a map that is code.

    >>> kind, arrays = feature_arrays(Grid((0.0,), (1.0,), (3,)))
    >>> kind, {name: array.tolist() for name, array in arrays.items()}
    ('grid', {'lows': [0.0], 'highs': [1.0], 'shape': [3]})
    """
    made: Any = features
    kinds: dict[type, str] = {Grid: "grid", Polynomial: "polynomial", Quadrature: "quadrature"}
    if type(made) not in kinds:
        return None
    parameters = {item.name: np.array(getattr(made, item.name)) for item in fields(made)}
    return kinds[type(made)], parameters


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
        instance_of("shape", self.shape, (tuple, list, np.ndarray))
        shape = tuple(check_size("shape", n) for n in self.shape)
        if len(shape) != len(self.lows) or min(shape) < 2:
            raise InvalidArgument(
                f"shape must have {len(self.lows)} numbers >= 2, as lows has, got {self.shape!r}"
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

    def for_loops(self) -> tuple[Floats, Ints]:
        """For compiled loops: (3, D), the box and points per unit; (D, 2), shape and strides."""
        box = zip(self.lows, self.highs, self.shape, strict=True)
        scales = [_grid_scale(low, high, n) for low, high, n in box]
        strides = [math.prod(self.shape[i + 1 :]) for i in range(self.dimension)]
        table = np.array([self.shape, strides], dtype=np.int64).T.copy()
        return np.array([self.lows, self.highs, scales]), table

    @cached_property
    def corners(self) -> Ints:
        """How far the 2^D points around a state are from its lower corner, in points."""
        found = [0]
        for stride in self.for_loops()[1][:, 1].tolist():
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
        object.__setattr__(self, "scales", vector("scales", self.scales))
        if any(scale <= 0.0 for scale in self.scales):
            raise InvalidArgument(f"scales must be > 0, got {self.scales!r}")
        object.__setattr__(self, "clip", positive("clip", self.clip))
        object.__setattr__(self, "degree", check_seed("degree", self.degree))
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

    def _evaluate(self, states: Floats) -> Floats:
        with np.errstate(over="ignore"):
            z = np.clip(states / np.array(self.scales), -self.clip, self.clip)
        features = np.ones((len(states), self.size))
        for k, (before, coordinate) in enumerate(self.chain.tolist()[1:], start=1):
            features[:, k] = features[:, before] * z[:, coordinate]
        return features


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


@dataclass(frozen=True)
class Quadrature(BoxMap):
    """Quadrature Fourier features of the squared exponential kernel (Mutny and Krause, 2018).

    <z(s), z(s')> is about k(s, s'), so that functions of a kernel's space are about linear in z.

    On the unit cube, k(x, x') = exp(-|x - x'|^2 / (2 l^2)) is the mean of cos(w' (x - x')) over
    normal w of standard deviation 1 / l. With ``nodes`` points of a Gauss-Hermite rule along each
    coordinate, of weights q, the mean is a sum; each pair w, -w gives the features
    sqrt(2 q) cos(w' x) and sqrt(2 q) sin(w' x), and w = 0 gives sqrt(q). So there are nodes^D, and
    their squares add up to the sum of all weights: every state's features have length 1.

    >>> features = Quadrature((0.0,), (2.0,), lengthscale=0.5, nodes=9)
    >>> z = features([[0.0], [1.0], [9.0]])
    >>> (z @ z.T).round(6)[0, 1], round(math.exp(-0.5), 6), (z**2).sum(axis=1).round(12).tolist()
    (np.float64(0.606531), 0.606531, [1.0, 1.0, 1.0])
    """

    lengthscale: float = 0.5  # l, in widths of the box
    nodes: int = 7  # along each coordinate; odd ones have a constant among their features

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lengthscale", positive("lengthscale", self.lengthscale))
        object.__setattr__(self, "nodes", check_size("nodes", self.nodes))
        if self.nodes > 100:
            raise InvalidArgument(f"nodes must be at most 100, got {self.nodes!r}")
        check_count("nodes", self.size)

    @cached_property
    def size(self) -> int:
        """nodes^D."""
        return int(self.nodes ** len(self.lows))

    @property
    def bound(self) -> float:
        """1, the length of every state's features."""
        return 1.0

    @cached_property
    def waves(self) -> tuple[Floats, Floats]:
        """Frequencies (n, D), one of each pair, and their amplitudes (n,)."""
        roots, weights = np.polynomial.hermite.hermgauss(self.nodes)
        along = list(zip(roots * math.sqrt(2.0) / self.lengthscale, weights, strict=True))
        kept, amplitudes = [], []
        for nodes in itertools.product(along, repeat=len(self.lows)):
            w = tuple(0.0 if abs(node) < 1e-12 else float(node) for node, _ in nodes)
            q = math.prod(float(weight) / math.sqrt(math.pi) for _, weight in nodes)
            first = next((x for x in w if x), 0.0)
            if first >= 0.0:
                kept.append(w)
                amplitudes.append(math.sqrt(q if first == 0.0 else 2.0 * q))
        return np.array(kept), np.array(amplitudes)

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} quadrature Fourier features of lengthscale {self.lengthscale:g}"

    def _evaluate(self, states: Floats) -> Floats:
        frequencies, amplitudes = self.waves
        lows, highs = np.array(self.lows), np.array(self.highs)
        phase = (np.clip(states, lows, highs) - lows) / (highs - lows) @ frequencies.T
        moving = np.abs(frequencies).sum(axis=1) > 0.0
        waves = (amplitudes * np.cos(phase), amplitudes[moving] * np.sin(phase[:, moving]))
        return np.concatenate(waves, axis=1)


def kernel_features(spec: BoxSpec) -> FeatureMap:
    """The spec's own features, or Fourier features of a kernel of half the width of the box."""
    if spec.features is not None:
        return spec.features
    nodes, D = _NODES.get(spec.dimension, 3), spec.dimension
    if nodes**D > 1000:
        raise InvalidArgument(f"{nodes**D:,} features of {D} coordinates: give the spec features")
    return Quadrature(spec.lows, spec.highs, 0.5, nodes)


def public_states(spec: BoxSpec, most: int = 4096) -> Floats:
    """States of the box, (n, D), to plan on: a grid, at most 101 along a coordinate."""
    along = max(2, min(101, int(most ** (1.0 / spec.dimension))))
    return Grid(spec.lows, spec.highs, (along,) * spec.dimension).points


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
        object.__setattr__(self, "size", check_size("size", self.size))
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
