"""Matrices and numbers that linear-quadratic worlds, models and policies are made of, checked."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import numbers
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

# What a symmetric or semidefinite matrix may lack by rounding, relative to its size.
_ROUNDING = 1e-9


def check_array(name: str, values: ArrayLike, *shape: int | None) -> Floats:
    """A read-only copy of finite numbers of a shape, in which ``None`` stands for any size."""
    array = np.array(numbers(name, values), dtype=np.float64, order="C")
    fits = array.ndim == len(shape) and all(
        size >= 1 and wanted in (None, size)
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted_shape = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgument(f"{name} must have shape ({wanted_shape}), got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = bad[0].tolist()
        raise InvalidArgument(f"{name}{at} must be finite, got {array[tuple(at)]}")
    array.setflags(write=False)
    return array


def check_semidefinite(
    name: str, values: ArrayLike, size: int, *, definite: bool = False
) -> Floats:
    """A read-only copy of a symmetric, positive semidefinite matrix."""
    array = check_array(name, values, size, size)
    rounding = _ROUNDING * np.abs(array).max()
    if (np.abs(array - array.T) > rounding).any():
        i, j = np.argwhere(array != array.T)[0].tolist()
        raise InvalidArgument(
            f"{name} must be symmetric, got {array[i, j]} at [{i}, {j}] and {array[j, i]} "
            f"at [{j}, {i}]"
        )
    least, kind = float(np.linalg.eigvalsh(array)[0]), "definite" if definite else "semidefinite"
    if least < -rounding or (definite and least <= rounding):
        raise InvalidArgument(f"{name} must be positive {kind}, got the eigenvalue {least:.6g}")
    return array


def check_number(name: str, value: float) -> float:
    """A finite number of at least zero."""
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not good or not 0.0 <= value < math.inf:
        raise InvalidArgument(f"{name} must be a finite number >= 0, got {value!r}")
    return float(value)
