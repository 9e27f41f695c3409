"""What a counter adds up: vectors, or symmetric matrices packed into vectors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import flag, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.symmetric import pack, packed_size, unpack

Floats = NDArray[np.float64]


class Items:
    """Items of one shape, and the vectors, of ``size`` coordinates, that noise is added to."""

    def __init__(self, shape: tuple[int, ...], symmetric: bool) -> None:
        self.symmetric = flag("symmetric", symmetric)
        if not isinstance(shape, (tuple, list)):
            raise InvalidArgument(f"shape must be a tuple of sizes, got {shape!r}")
        self.shape = tuple(whole_number("every entry of shape", n) for n in shape)
        square = len(self.shape) >= 2 and self.shape[-1] == self.shape[-2]
        if self.symmetric and not square:
            raise InvalidArgument(f"a symmetric item has shape (..., d, d), got {self.shape}")
        self.size = math.prod(self.shape)
        if self.symmetric:
            self.size = math.prod(self.shape[:-2]) * packed_size(self.shape[-1])

    def packed(self, item: ArrayLike) -> Floats:
        """The vector of an item; refused if it is of another shape or not finite."""
        array = np.asarray(item, dtype=np.float64)
        if array.shape != self.shape:
            raise InvalidArgument(f"item must have shape {self.shape}, got {array.shape}")
        vector = pack(array).reshape(-1) if self.symmetric else array.reshape(-1)
        # The squared norm is finite for all sane input and much cheaper than a scan.
        if not math.isfinite(vector.dot(vector)) and not np.isfinite(vector).all():
            raise InvalidArgument("item must be finite: clip users' values before they are summed")
        return vector

    def shaped(self, vector: Floats) -> Floats:
        """The item of a vector."""
        if self.symmetric:
            dimension = self.shape[-1]
            return unpack(vector.reshape(*self.shape[:-2], packed_size(dimension)), dimension)
        return vector.reshape(self.shape)
