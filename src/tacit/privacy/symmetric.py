"""Symmetric matrices as plain vectors, so that Frobenius geometry becomes Euclidean geometry.

``pack`` lists the lower triangle with the off-diagonal entries multiplied by sqrt 2. It is an
isometry from symmetric matrices with the Frobenius norm to vectors with the Euclidean norm:
||pack(M)||^2 = sum_i M_ii^2 + 2 sum_{i>j} M_ij^2 = ||M||_F^2. Isotropic Gaussian noise of
standard deviation s on the vector is therefore isotropic on the matrix: s on the diagonal,
s / sqrt 2 off it. For the same privacy it is smaller than s on every entry of the upper triangle.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def packed_size(dimension: int) -> int:
    """The number of free entries of a symmetric matrix.

    >>> packed_size(3)
    6
    """
    return dimension * (dimension + 1) // 2


def pack(matrices: Floats) -> Floats:
    """The vectors, (..., d (d + 1) / 2), of one or of a stack of matrices, (..., d, d).

    An asymmetric one counts as (M + M') / 2: an orthogonal projection, so no distance grows.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]])).round(4).tolist()
    [1.0, 2.8284, 3.0]
    """
    rows, columns, scale = _triangle(matrices.shape[-1])
    return np.asarray((matrices[..., rows, columns] + matrices[..., columns, rows]) * scale)


def unpack(vectors: Floats, dimension: int) -> Floats:
    """The inverse of :func:`pack`.

    >>> m = np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> bool(np.allclose(unpack(pack(m), 2), m))
    True
    """
    rows, columns, scale = _triangle(dimension)
    matrices = np.empty((*vectors.shape[:-1], dimension, dimension))
    entries = vectors / (2.0 * scale)
    matrices[..., rows, columns] = entries
    matrices[..., columns, rows] = entries
    return matrices


@lru_cache(maxsize=64)
def _triangle(dimension: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Row and column indices of the lower triangle, and what (M_ij + M_ji) is multiplied by."""
    rows, columns = np.tril_indices(dimension)
    scale = np.where(rows == columns, 0.5, math.sqrt(0.5))
    for array in (rows, columns, scale):
        array.setflags(write=False)
    return rows, columns, scale
