"""A kernel as a finite feature map: quadrature Fourier features.

<z(s), z(s')> is about k(s, s'), so that functions of a kernel's space are about linear in z. The
map is made of public numbers alone, the frequencies of a quadrature rule.
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
        object.__setattr__(self, "lengthscale", number("lengthscale", self.lengthscale))
        if self.lengthscale <= 0.0:
            raise InvalidArgument(f"lengthscale must be > 0, got {self.lengthscale!r}")
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


def public_states(spec: BoxSpec, most: int = _POINTS) -> Floats:
    """A grid of the box, (n, D)."""
    D = spec.dimension
    along = max(2, min(_ALONG, int(most ** (1.0 / D))))
    axes = [np.linspace(low, high, along) for low, high in zip(spec.lows, spec.highs, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, D)
