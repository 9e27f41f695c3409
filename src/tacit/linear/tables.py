"""Tables of features (S, A, d), checked and cut."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import Floats, check_bytes, numbers, read_only
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
