"""What a block of finite steps holds, made safe: shapes may be refused, values never are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats

Ints = NDArray[np.int64]


def read_steps(block: Block, horizon: int) -> tuple[Ints, Ints, Floats]:
    """States (users, H + 1), actions and rewards (users, H) of a block, whatever they hold."""
    users = block.users
    return (
        read_codes(block, "states", (users, horizon + 1)),
        read_codes(block, "actions", (users, horizon)),
        read_rewards(block, "rewards", (users, horizon)),
    )


def read_rewards(block: Block, name: str, shape: tuple[int, ...]) -> Floats:
    """Numbers cut to [0, 1]; what is not finite is NaN."""
    array = block[name]
    if array.shape != shape:
        raise InvalidArgument(f"{name!r} must have shape {shape}, got {array.shape}")
    with np.errstate(all="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float64)
        return np.clip(np.where(np.isfinite(values), values, np.nan), 0.0, 1.0)


def read_codes(block: Block, name: str, shape: tuple[int, ...]) -> Ints:
    """Integers as they are; numbers that are none as -1."""
    array = block[name]
    if array.shape != shape:
        raise InvalidArgument(f"{name!r} must have shape {shape}, got {array.shape}")
    if array.dtype.kind in "bi":
        return np.ascontiguousarray(array, dtype=np.int64)
    with np.errstate(all="ignore"):
        values = np.asarray(array, dtype=np.float64)
        whole = (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        return np.where(whole, values, -1.0).astype(np.int64)
