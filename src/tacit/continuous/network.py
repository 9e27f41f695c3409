"""Small networks as flat vectors: for each layer its weights, row by row, then its biases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument


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
