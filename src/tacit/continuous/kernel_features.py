"""Feature maps of kernels, and functions of your own as feature maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.features import BoxMap, FeatureMap, check_count
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import positive, whole_number


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

    published_as: ClassVar[str] = "quadrature"
    lengthscale: float = 0.5  # l, in widths of the box
    nodes: int = 7  # along each coordinate; odd ones have a constant among their features

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lengthscale", positive("lengthscale", self.lengthscale))
        object.__setattr__(self, "nodes", whole_number("nodes", self.nodes, most=100))
        check_count("nodes", self.size)

    @cached_property
    def size(self) -> int:
        """nodes^D."""
        return int(self.nodes ** len(self.lows))

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

    def _evaluate(self, states: Floats) -> Floats:
        frequencies, amplitudes = self.waves
        lows, highs = np.array(self.lows), np.array(self.highs)
        phase = (np.clip(states, lows, highs) - lows) / (highs - lows) @ frequencies.T
        moving = np.abs(frequencies).sum(axis=1) > 0.0
        waves = (amplitudes * np.cos(phase), amplitudes[moving] * np.sin(phase[:, moving]))
        return np.concatenate(waves, axis=1)


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
