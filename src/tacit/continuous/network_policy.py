"""Small networks as flat vectors, and the policies of their best actions.

A vector has, for each layer, its weights, row by row, then its biases.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.grid import SafeMap
from tacit.continuous.policy import QPolicy
from tacit.core.public_file import write_published
from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats


def hidden_layers(hidden: Any) -> tuple[int, ...]:
    """Units of hidden layers, at least one of them.

    >>> hidden_layers([16, 16])
    (16, 16)
    """
    if not isinstance(hidden, (tuple, list)) or not hidden:
        raise InvalidArgument(
            f"hidden must be the units of at least one layer, a tuple of integers, got {hidden!r}"
        )
    return tuple(whole_number("units of hidden", units) for units in hidden)


def parameters(sizes: Sequence[int]) -> int:
    """How many parameters a network with these layers has.

    >>> parameters((1, 16, 16, 2))
    338
    """
    return sum((a + 1) * b for a, b in pairwise(sizes))


def first_network(rng: np.random.Generator, sizes: Sequence[int]) -> NDArray[np.float64]:
    """PyTorch's default start: all parameters uniform, within one by the root of the inputs."""
    layers = [rng.uniform(-1.0, 1.0, (a + 1) * b) / math.sqrt(a) for a, b in pairwise(sizes)]
    return np.concatenate(layers)


_ROWS = 2048


@dataclass(frozen=True, eq=False)
class HiddenUnits(SafeMap):
    """The last hidden layer of a network and a constant 1: its outputs are linear on them."""

    sizes: tuple[int, ...]  # units by layer: inputs, then hidden layers, at least one
    theta: Floats  # the hidden layers' parameters

    def __post_init__(self) -> None:
        sizes = tuple(int(size) for size in self.sizes)
        theta = np.array(self.theta, dtype=np.float64)
        if len(sizes) < 2 or min(sizes) < 1 or theta.shape != (parameters(sizes),):
            raise InvalidArgument(
                f"theta must have the parameters of layers {sizes}, got shape {theta.shape}"
            )
        theta.setflags(write=False)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "theta", theta)

    @property
    def size(self) -> int:
        """How many units there are, and one more for the constant."""
        return self.sizes[-1] + 1

    @property
    def dimension(self) -> int:
        """How many coordinates a state has."""
        return self.sizes[0]

    @property
    def bound(self) -> float:
        """Infinite: nobody bounds these units."""
        return math.inf

    def _evaluate(self, states: Floats) -> Floats:
        features = np.ones((len(states), self.size))
        # In parts that stay in the cache.
        for start in range(0, len(states), _ROWS):
            part = states[start : start + _ROWS]
            features[start : start + _ROWS, :-1] = self._units(part)
        return features

    def _units(self, units: Floats) -> Floats:
        start = 0
        for fan_in, fan_out in pairwise(self.sizes):
            biases = start + fan_in * fan_out
            matrix = self.theta[start:biases].reshape(fan_out, fan_in)
            start = biases + fan_out
            with np.errstate(all="ignore"):
                units = units @ matrix.T
                units += self.theta[biases:start]
            np.maximum(units, 0.0, out=units)
        return units

    def publishable(self) -> bool:
        """Not as features; :class:`NetworkPolicy` publishes whole networks."""
        return False

    def describe(self) -> str:
        """The map in a few words."""
        return f"hidden layers of {' and '.join(map(str, self.sizes[1:]))} units"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HiddenUnits):
            return NotImplemented
        return self.sizes == other.sizes and self.theta.tobytes() == other.theta.tobytes()

    def __hash__(self) -> int:
        return hash((self.sizes, self.theta.tobytes()))


class NetworkPolicy(QPolicy):
    """The action with the largest output of a network, or with probability ``epsilon`` any.

    >>> policy = NetworkPolicy.of(np.zeros(parameters((1, 4, 2))), (1, 4, 2))
    >>> policy.values([[0.3]]).tolist()
    [[0.0, 0.0]]
    """

    @classmethod
    def of(
        cls,
        theta: Floats,
        sizes: Sequence[int],
        epsilon: float = 0.0,
        version: int = 0,
        preference: tuple[int, ...] | None = None,
    ) -> Self:
        """The policy of a network as a flat vector; see QPolicy."""
        theta = np.asarray(theta, dtype=np.float64)
        if len(sizes) < 3 or theta.shape != (parameters(sizes),):
            raise InvalidArgument(
                f"theta must have the {parameters(sizes)} parameters of layers {tuple(sizes)}, at "
                f"least one of them hidden, got shape {theta.shape}"
            )
        split = parameters(sizes[:-1])
        units, actions = sizes[-2], sizes[-1]
        last = theta[split:]
        matrix = last[: units * actions].reshape(actions, units)
        weights = np.concatenate([matrix, last[units * actions :, np.newaxis]], axis=1)
        features = cast(FeatureMap, HiddenUnits(tuple(sizes[:-1]), theta[:split]))
        return cls(features, weights, epsilon, version, cast(tuple[int, ...], preference))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units by layer."""
        return (*self._hidden.sizes, self.n_actions)

    @property
    def theta(self) -> Floats:
        """All parameters, flat."""
        last = [self.weights[:, :-1].ravel(), self.weights[:, -1]]
        return np.concatenate([self._hidden.theta, *last])

    @property
    def _hidden(self) -> HiddenUnits:
        return cast(HiddenUnits, self.features)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All but the version, as arrays of numbers for a save."""
        return {
            "theta": self.theta,
            "sizes": np.array(self.sizes, dtype=np.int64),
            "epsilon": np.array(self.epsilon),
            "preference": np.array(self.preference, dtype=np.int64),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], version: int, features: FeatureMap | None = None
    ) -> Self:
        """The inverse of :meth:`arrays`, to the bit; the features are among them."""
        sizes, order = arrays["sizes"].tolist(), tuple(arrays["preference"].tolist())
        return cls.of(arrays["theta"], sizes, float(arrays["epsilon"]), version, order)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, of kind "network", atomically (mode 0644)."""
        write_published(path, self.version, self.arrays(), kind="network")
