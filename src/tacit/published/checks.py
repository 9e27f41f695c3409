"""What is wrong with the arrays of a published file, in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .policies import Arrays, corner

_TOLERANCE = 1e-8
# More coordinates than a state of any published policy has.
_MOST_COORDINATES = 4096


def check(
    probabilities: NDArray[np.float64] | None, actions: NDArray[np.int64] | None, n_actions: int
) -> None:
    """Raises a ValueError that names what is wrong with a policy's tables."""
    if (probabilities is None) == (actions is None):
        raise ValueError("give actions or probabilities, and not both")
    if actions is not None:
        if actions.ndim != 2 or actions.dtype.kind not in "iu" or 0 in actions.shape:
            raise ValueError(
                f"actions must be integers of shape (horizon, states), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        bad = (actions < 0) | (actions >= n_actions)
        if bad.any():
            step, state = map(int, np.unravel_index(int(bad.argmax()), bad.shape))
            raise ValueError(
                f"actions[{step}, {state}] must be in 0..{n_actions - 1}, "
                f"got {int(actions[step, state])}"
            )
    if probabilities is not None:
        _check_probabilities(probabilities, n_actions)


def _check_probabilities(table: NDArray[np.float64], n_actions: int) -> None:
    if table.ndim != 3 or table.dtype.kind != "f" or 0 in table.shape:
        raise ValueError(
            f"probabilities must be floats of shape (horizon, states, actions), "
            f"got {table.dtype} of shape {table.shape}"
        )
    if table.shape[2] != n_actions:
        raise ValueError(f"n_actions must be {table.shape[2]} as in the table, got {n_actions}")
    # A row with a NaN fails the comparison of its sum.
    good = (table >= 0).all(axis=2) & (np.abs(table.sum(axis=2) - 1.0) <= _TOLERANCE)
    if not good.all():
        step, state = map(int, np.unravel_index(int(good.argmin()), good.shape))
        raise ValueError(
            f"probabilities[{step}, {state}] must be non-negative and sum to 1, "
            f"got {table[step, state].tolist()}"
        )


def check_mixed(size: int, weights: NDArray[Any]) -> NDArray[np.float64]:
    """Weights of so many components, read-only; a ValueError says what is wrong."""
    good = weights.shape == (size,) and weights.dtype.kind in "iuf" and bool((weights >= 0).all())
    if not good or not abs(weights.sum() - 1.0) <= _TOLERANCE:
        raise ValueError(f"weights must be {size} non-negative numbers that sum to 1")
    weights = weights.astype(np.float64)
    weights.setflags(write=False)
    return weights


def check_features(stored: Arrays, actions: int, most_bytes: int) -> None:
    """Whether the map has as many features as there are weights, and can be evaluated."""
    kind, count = str(stored["features"]), stored["weights"].shape[1]
    names = ("scales",) if kind == "polynomial" else ("lows", "highs")
    for name in names:
        check_numbers(name, stored[name], 1)
    dimension, degree = len(corner(stored)), 0
    if {len(stored[name]) for name in names} != {dimension} or dimension > _MOST_COORDINATES:
        raise ValueError(
            f"{' and '.join(names)} must have as many numbers as a state, at most "
            f"{_MOST_COORDINATES}"
        )
    if kind == "grid":
        points = stored["shape"]
        if points.shape != (dimension,) or points.dtype.kind not in "iu" or (points < 1).any():
            raise ValueError("shape must be a number of points along each coordinate")
        size = math.prod(points.tolist())
    elif kind == "polynomial":
        # There are more features than the degree, so a number beyond them need not be counted.
        degree = min(whole(stored, "degree"), count)
        size = _monomials(dimension, degree, count)
    elif kind == "quadrature":
        if not number(stored, "lengthscale") > 0.0:
            raise ValueError("lengthscale must be positive")
        nodes = whole(stored, "nodes")
        if not 1 <= nodes <= min(count, 100):
            raise ValueError("nodes must be in 1..100, and no more than there are weights")
        size = int(nodes**dimension)
    else:
        raise ValueError(f"its features are {kind!r}; this loader does not know them")
    if kind == "polynomial":
        if not (stored["scales"] > 0).all():
            raise ValueError("scales must be positive")
        number(stored, "clip")
    elif not (stored["lows"] < stored["highs"]).all():
        raise ValueError("lows must be less than highs")
    if (actions, size) != stored["weights"].shape:
        raise ValueError(f"weights of shape {stored['weights'].shape} do not fit the features")
    # Products along each coordinate, and one for each weight; a monomial lists its factors.
    needed = 8 * size * (actions + 4) + (size * (8 * degree + 200) if kind == "polynomial" else 0)
    if needed > most_bytes:
        raise ValueError(
            f"acting would take {needed} bytes, more than {most_bytes} (see most_bytes)"
        )


def _monomials(dimension: int, degree: int, most: int) -> int:
    """How many there are up to a degree, or some number above ``most``."""
    small, large, found = *sorted((dimension, degree)), 1
    for i in range(1, small + 1):
        found = found * (large + i) // i
        if found > most:
            break
    return found


def whole(stored: Arrays, name: str) -> int:
    """A whole number of a file."""
    array = stored[name]
    if array.shape != () or array.dtype.kind not in "iu" or array < 0:
        raise ValueError(f"{name} must be a whole number of at least 0")
    return int(array)


def number(stored: Arrays, name: str, most: float = math.inf) -> float:
    """A number of a file."""
    array = stored[name]
    if array.shape != () or array.dtype.kind not in "iuf" or not 0 <= array <= most:
        raise ValueError(f"{name} must be a number from 0 to {most}")
    return float(array)


def check_numbers(name: str, array: NDArray[Any], axes: int) -> None:
    """Whether an array is of finite floats."""
    right = array.ndim == axes and array.dtype.kind == "f" and 0 not in array.shape
    if not right or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite floats with {axes} axes, got {array.dtype} of shape "
            f"{array.shape}"
        )
