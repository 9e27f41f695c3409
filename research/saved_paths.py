"""Paths of Gaussian processes in files: the values drawn so far, never the generator.

A save that is continued twice gives two continuations; publishing both is a second release that
nobody paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from tacit.privacy.functions.ou_path import _BLOCK, GPPath, OUPath

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.kernels import Kernel
from tacit.privacy.noise import NoiseSource

Floats = NDArray[np.float64]


def path_arrays(path: OUPath | GPPath) -> dict[str, Floats]:
    """What a save holds: ``points`` and ``values``. The curator's secret."""
    if isinstance(path, GPPath):
        drawn = [path._drawn[row.tobytes()] for row in path._points]
        return {"points": path._points.copy(), "values": np.array(drawn, dtype=np.float64)}
    points = [x for block in path._blocks for x in block]
    return {
        "points": np.array(points, dtype=np.float64),
        "values": np.array([path._drawn[x] for x in points], dtype=np.float64),
    }


def ou_path_of(
    arrays: Mapping[str, NDArray[np.generic]], rate: float, sigma: float, source: NoiseSource
) -> OUPath:
    """The path of a save; what is drawn from now on comes from ``source``."""
    path = OUPath(rate, sigma, source)
    points = np.asarray(arrays["points"], dtype=np.float64).tolist()
    values = np.asarray(arrays["values"], dtype=np.float64).tolist()
    if len(points) != len(values) or any(x >= y for x, y in pairwise(points)):
        raise InvalidArgument("saved points must increase, with one value each")
    path._drawn = dict(zip(points, values, strict=True))
    path._blocks = [points[i : i + _BLOCK] for i in range(0, len(points), _BLOCK)] or [[]]
    path._lasts = [block[-1] if block else -np.inf for block in path._blocks]
    return path


def gp_path_of(
    arrays: Mapping[str, NDArray[np.generic]], kernel: Kernel, sigma: float, source: NoiseSource
) -> GPPath:
    """The path of a save; what is drawn from now on comes from ``source``."""
    from scipy.linalg import solve_triangular

    path = GPPath(kernel, sigma, source)
    points = kernel.checked(np.asarray(arrays["points"], dtype=np.float64)) + 0.0
    values = np.asarray(arrays["values"], dtype=np.float64)
    if values.shape != points.shape[:1] or len(points) > path.limit:
        raise InvalidArgument("saved points must be within the limit, with one value each")
    if len(points):
        path._grow(points)
        path._normals = solve_triangular(path._factor, values / path.sigma, lower=True)
        keys = [row.tobytes() for row in points]
        path._drawn = dict(zip(keys, values.tolist(), strict=True))
    return path
