"""What a block of finite steps holds, made safe: shapes may be refused, values never are."""

from __future__ import annotations

import numpy as np

from tacit.data.columns import Floats, Ints, as_codes, as_numbers, require_shape
from tacit.privacy.statistic import Block


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
    require_shape(name, block[name], shape)
    with np.errstate(all="ignore"):
        values = np.ascontiguousarray(as_numbers(name, block[name]))
        return np.clip(np.where(np.isfinite(values), values, np.nan), 0.0, 1.0)


def read_codes(block: Block, name: str, shape: tuple[int, ...]) -> Ints:
    """Integers as they are; numbers that are none as -1."""
    require_shape(name, block[name], shape)
    return np.ascontiguousarray(as_codes(name, block[name]))
