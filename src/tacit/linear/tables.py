"""Tables of features (S, A, d), checked and cut."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import Floats, check_bytes, numbers, read_only
from tacit.numerics.ridge import always_one
from tacit.privacy.bounds.features import SHORTEST
from tacit.privacy.errors import InvalidArgument

# Tables that were cut here: an agent makes many statistics of one.
_CUT: weakref.WeakValueDictionary[int, Floats] = weakref.WeakValueDictionary()


def unit_features(features: ArrayLike) -> Floats:
    """Features (S, A, d), read-only, each cut to length 1."""
    if isinstance(features, np.ndarray) and _CUT.get(id(features)) is features:
        return features
    table = check_features(features)
    largest = np.abs(table).max(axis=-1, keepdims=True)
    # Squares of the longest features would be infinite.
    scaled = table / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    long = length > 1.0 / np.maximum(largest, SHORTEST)
    table = np.where(long, scaled / np.maximum(length, 1.0), table)
    table.setflags(write=False)
    _CUT[id(table)] = table
    return table


def check_features(values: ArrayLike) -> Floats:
    """A read-only copy of features, (S, A, d)."""
    array = numbers("features", values)
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidArgument(f"features must have shape (S, A, d), got {array.shape}")
    check_bytes("features", array.shape)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        state, action, entry = bad[0].tolist()
        raise InvalidArgument(
            f"features at state {state}, action {action} must be finite, but entry {entry} is "
            f"{array[state, action, entry]}"
        )
    return read_only(array)


def told_of_features(features: Floats, release: Any, weights: Floats) -> dict[str, tuple[Any, Any]]:
    """What sums of w phi e_{s'}' (L, d, S) and of r phi (M, d) tell of users as a whole.

    The weights w > 0 of rows are public; a row without one tells nothing.
    """
    one, found = always_one(features), dict[str, tuple[Any, Any]]()
    if one is None:
        return found
    length = float(np.linalg.norm(one))
    noise = {name: float(np.max(std)) for name, std in release.std.items()}
    if "next" in release.parts:
        heard = weights > 0.0
        rows = np.einsum("d,lds->ls", one, release["next"])[heard] / weights[heard, np.newaxis]
        spread = noise["next"] * length * math.sqrt(float((1.0 / weights[heard] ** 2).sum()))
        found["visits"] = rows.sum(axis=0), np.full(rows.shape[1], spread)
    if "rewards" in release.parts:
        paid = release["rewards"]
        found["rewards"] = (
            float((paid @ one).sum()),
            noise["rewards"] * length * math.sqrt(len(paid)),
        )
    return found
