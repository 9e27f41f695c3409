"""What a block of finite steps holds, made safe: shapes may be refused, values never are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats

Ints = NDArray[np.int64]


def read_steps(
    block: Block, horizon: int, follows: Ints | None = None
) -> tuple[Ints, Ints, Floats]:
    """States (users, H + 1), actions and rewards (users, H) of a block, whatever they hold.

    Nothing is earned after the last step. Where what follows it makes no difference, ``follows``
    (S, A) has a state for whoever's log has none there, so that her last reward counts.
    """
    users = block.users
    states = read_codes(block, "states", (users, horizon + 1))
    actions = read_codes(block, "actions", (users, horizon))
    if follows is not None:
        now, taken, after = states[:, -2], actions[:, -1], states[:, -1]
        (S, A), missing = follows.shape, (after < 0) | (after >= len(follows))
        missing &= (now >= 0) & (now < S) & (taken >= 0) & (taken < A)
        if missing.any():
            states = states.copy()
            states[missing, -1] = follows[now[missing], taken[missing]]
    return states, actions, read_rewards(block, "rewards", (users, horizon))


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
