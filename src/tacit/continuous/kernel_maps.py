"""Kernels as finite feature maps: quadrature Fourier features, and Nystroem features.

<z(s), z(s')> is about k(s, s'), so that functions of a kernel's space are about linear in z. Both
maps are made of public numbers alone: frequencies of a quadrature rule, or centres that somebody
chose before the first user came.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.features import BoxMap, check_count, made_of_numbers, number, whole
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec

# Frequencies along each coordinate where nobody has given a map, up to three; more have three.
_NODES = {1: 7, 2: 5, 3: 4}
# Public states on which plans are made, at most, and along a single coordinate.
_POINTS, _ALONG = 4096, 101
# What is added to the diagonal of a kernel matrix before its root is taken, per centre.
_JITTER = 1e-9
# Smoothness of Nystroem's kernels: Matern 1/2, 3/2, 5/2, and the squared exponential.
_SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)


def _set_lengthscale(made: Quadrature | Nystroem) -> None:
    object.__setattr__(made, "lengthscale", number("lengthscale", made.lengthscale))
    if made.lengthscale <= 0.0:
        raise InvalidArgument(f"lengthscale must be > 0, got {made.lengthscale!r}")


@made_of_numbers("quadrature", "lows", "highs", "lengthscale", "nodes")
@dataclass(frozen=True)
class Quadrature(BoxMap):
    """Quadrature Fourier features of the squared exponential kernel (Mutny and Krause, 2018).

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
        _set_lengthscale(self)
        object.__setattr__(self, "nodes", whole("nodes", self.nodes, 1))
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
        phase = _unit(self, states) @ frequencies.T
        moving = np.abs(frequencies).sum(axis=1) > 0.0
        waves = (amplitudes * np.cos(phase), amplitudes[moving] * np.sin(phase[:, moving]))
        return np.concatenate(waves, axis=1)


@made_of_numbers("nystroem", "lows", "highs", "centres", "lengthscale", "smoothness")
@dataclass(frozen=True)
class Nystroem(BoxMap):
    """Nystroem features of a kernel: z(s) = K^(-1/2) k(s) with public centres.

    k(s) are the kernel's values at the centres and K those of the centres with one another, so
    that <z(s), z(s')> is the kernel's projection to the functions that the centres span. Its
    |z(s)|^2 = k(s)' K^-1 k(s) is at most k(s, s) = 1; what is added to the diagonal of K makes it
    smaller. Centres must be public: a grid, or states of somebody who agreed. ``smoothness`` is
    that of a Matern kernel, .5, 1.5 or 2.5, or infinite for the squared exponential.

    >>> features = Nystroem.on_grid((0.0,), (1.0,), points=5, smoothness=1.5)
    >>> features.size, bool((np.linalg.norm(features([[0.1], [0.7]]), axis=1) <= 1.0).all())
    (5, True)
    """

    centres: tuple[tuple[float, ...], ...]  # points of R^D, in the coordinates of states
    lengthscale: float = 0.5  # in widths of the box
    smoothness: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_lengthscale(self)
        try:
            centres = np.array(self.centres, dtype=np.float64)
        except (TypeError, ValueError):
            centres = np.zeros(0)
        D = len(self.lows)
        if centres.ndim != 2 or centres.shape[1:] != (D,) or not np.isfinite(centres).all():
            raise InvalidArgument(f"centres must be finite points with {D} coordinates each")
        if not 1 <= len(centres) <= 1024:
            raise InvalidArgument(f"centres must be 1 to 1024 points, got {len(centres)}")
        object.__setattr__(self, "centres", tuple(map(tuple, centres.tolist())))
        object.__setattr__(self, "smoothness", float(self.smoothness))
        if self.smoothness not in _SMOOTHNESS:
            raise InvalidArgument(f"smoothness must be one of {_SMOOTHNESS}, got {self.smoothness}")

    @classmethod
    def on_grid(
        cls,
        lows: tuple[float, ...],
        highs: tuple[float, ...],
        points: int,
        lengthscale: float = 0.5,
        smoothness: float = math.inf,
    ) -> Nystroem:
        """With as many centres along each coordinate, evenly, from one end of the box to the other.

        Nobody's states: the guarantee says nothing about centres because there is nothing to say.
        """
        axes = [
            np.linspace(low, high, whole("points", points, 2))
            for low, high in zip(lows, highs, strict=True)
        ]
        mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return cls(lows, highs, tuple(map(tuple, mesh.tolist())), lengthscale, smoothness)

    @property
    def size(self) -> int:
        """As many as there are centres."""
        return len(self.centres)

    @property
    def bound(self) -> float:
        """1, the root of k(s, s)."""
        return 1.0

    @cached_property
    def _root(self) -> Floats:
        """K^(-1/2)."""
        at = _unit(self, np.array(self.centres))
        values, vectors = np.linalg.eigh(self._kernel(at, at))
        values = np.maximum(values, 0.0) + _JITTER * len(at)
        root: Floats = (vectors / np.sqrt(values)) @ vectors.T
        return root

    def _kernel(self, here: Floats, there: Floats) -> Floats:
        squares = ((here[:, np.newaxis] - there[np.newaxis]) ** 2).sum(axis=-1)
        return matern(np.sqrt(squares) / self.lengthscale, self.smoothness)

    def describe(self) -> str:
        """The map in a few words."""
        return f"Nystroem features with {self.size} centres of lengthscale {self.lengthscale:g}"

    def _evaluate(self, states: Floats) -> Floats:
        at = _unit(self, np.array(self.centres))
        features: Floats = self._kernel(_unit(self, states), at) @ self._root
        return features


def matern(distance: Floats, smoothness: float) -> Floats:
    """A kernel of the distance in lengthscales."""
    if math.isinf(smoothness):
        return np.asarray(np.exp(-0.5 * distance**2))
    r = math.sqrt(2.0 * smoothness) * distance
    polynomial = {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[smoothness]
    return np.asarray(polynomial * np.exp(-r))


def _unit(made: BoxMap, states: Floats) -> Floats:
    """States in the unit cube; those outside of the box are clipped to it."""
    lows, highs = np.array(made.lows), np.array(made.highs)
    clipped: Floats = (np.clip(states, lows, highs) - lows) / (highs - lows)
    return clipped


def kernel_features(spec: BoxSpec) -> FeatureMap:
    """The spec's own features, or Fourier features of a kernel of half the width of the box."""
    if spec.features is not None:
        return spec.features
    nodes, D = _NODES.get(spec.dimension, 3), spec.dimension
    if nodes**D > 1000:
        raise InvalidArgument(f"{nodes**D:,} features of {D} coordinates: give the spec features")
    return Quadrature(spec.lows, spec.highs, 0.5, nodes)


def public_states(spec: BoxSpec, most: int = _POINTS) -> Floats:
    """A grid of the box, (n, D)."""
    D = spec.dimension
    along = max(2, min(_ALONG, int(most ** (1.0 / D))))
    axes = [np.linspace(low, high, along) for low, high in zip(spec.lows, spec.highs, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, D)
