"""Polynomials, cosines and functions of your own as feature maps; see also :class:`Grid`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.feature_map import FeatureMap as FeatureMap
from tacit.continuous.feature_map import made_of_numbers, number, numbers
from tacit.continuous.grid import BoxMap, LoopParameters, SafeMap, check_count, whole
from tacit.continuous.grid import Grid as Grid
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints


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
        """Scales, clip and chain; see :func:`~tacit.continuous.feature_map.loop_parameters`."""
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


@made_of_numbers("fourier", "lows", "highs", "degree")
@dataclass(frozen=True)
class Fourier(BoxMap):
    """Products of cosines on a box: prod_i cos(pi c_i x_i), for all c in {0, .., degree}^D.

    x_i is the coordinate as a part of the way from the box's lower end to its upper one; the last
    one's frequency runs fastest. At the lower corner all features are 1, so the bound is sqrt(m).

    >>> Fourier((0.0,), (2.0,), degree=2)([2.0]).tolist()
    [1.0, -1.0, 1.0]
    """

    degree: int  # the largest frequency along a coordinate, at least 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", whole("degree", self.degree, 0))
        check_count("degree", self.size)

    @cached_property
    def size(self) -> int:
        """How many products there are."""
        return int((self.degree + 1) ** len(self.lows))

    @property
    def bound(self) -> float:
        """The norm at the lower corner, where every feature is 1."""
        return math.sqrt(self.size)

    def describe(self) -> str:
        """The map in a few words."""
        return f"{self.size} products of cosines up to frequency {self.degree}"

    def _evaluate(self, states: Floats) -> Floats:
        lows, highs = np.array(self.lows), np.array(self.highs)
        x = (np.clip(states, lows, highs) - lows) / (highs - lows)
        along = np.cos(np.pi * np.arange(self.degree + 1) * x[:, :, np.newaxis])
        features = np.ones((len(states), 1))
        for i in range(self.dimension):
            products = features[:, :, np.newaxis] * along[:, i, np.newaxis, :]
            features = products.reshape(len(states), -1)
        return features


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

    def publishable(self) -> bool:
        """It is not."""
        return False

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
