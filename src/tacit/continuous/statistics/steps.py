"""Users' steps, made safe: what all statistics on vectors begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec


# Numbers of features that are in memory at a time.
_CHUNK = 1 << 22


class Steps(NamedTuple):
    """Users' steps, made safe: whatever the values are, nothing raises."""

    states: Floats  # (users, H + 1, D); zero where they are not finite
    actions: Ints  # (users, H); zero where there is none
    rewards: Floats  # (users, H), cut to their range
    valid: Bools  # which steps count
    ended: Bools  # which of them are the last of an episode that ended


def steps_of(block: Block, spec: BoxSpec) -> Steps:
    """The steps of a block's users.

    A step counts if its state, action, reward and next state are valid and the episode was not
    over.
    """
    H = spec.horizon
    arrays = {name: np.asarray(a, dtype=np.float64) for name, a in shaped(block, spec).items()}
    states, labels, paid = arrays["states"], arrays["actions"], arrays["rewards"]
    lengths = arrays["lengths"][:, np.newaxis]
    finite = np.asarray(np.isfinite(states).all(axis=-1))
    valid = finite[:, :-1] & finite[:, 1:] & np.isfinite(paid)
    valid &= (labels >= 0) & (labels < spec.actions) & (labels == np.floor(labels))
    valid &= np.arange(H) < lengths
    return Steps(
        states=np.where(finite[..., np.newaxis], states, 0.0),
        actions=np.where(valid, labels, 0.0).astype(np.int64),
        rewards=np.where(valid, np.clip(paid, *spec.reward_range), 0.0),
        valid=valid,
        ended=valid & (np.arange(H) + 1 == lengths),
    )


def shaped(block: Block, spec: BoxSpec) -> dict[str, NDArray[Any]]:
    """What steps are made of. Shapes are public, and wrong ones are refused."""
    H, D = spec.horizon, len(spec.lows)
    wanted = {"states": (H + 1, D), "actions": (H,), "rewards": (H,), "lengths": ()}
    missing = [name for name in wanted if name not in block.arrays]
    if missing:
        raise InvalidArgument(f"this block has no array {missing[0]!r}: {list(block.arrays)}")
    arrays = {name: block.arrays[name] for name in wanted}
    for name, shape in wanted.items():
        if arrays[name].shape != (block.users, *shape):
            raise InvalidArgument(
                f"{name!r} must have shape {(block.users, *shape)}, got {arrays[name].shape}"
            )
    return arrays


def parts_of(block: Block, numbers: int) -> Iterator[tuple[slice, Block]]:
    """The block in pieces of so many users that ``numbers`` of each fit in memory; at least one."""
    size = max(1, _CHUNK // max(1, numbers))
    for start in range(0, max(1, block.users), size):
        rows = slice(start, min(block.users, start + size))
        yield rows, block.take(rows)


def vectors_by_part(block: Block, size: int, numbers: int, of: Callable[[Block], Floats]) -> Floats:
    """Vectors (users, size), made of some users after the other; see :func:`parts_of`."""
    vectors = np.zeros((block.users, size))
    for rows, part in parts_of(block, numbers):
        vectors[rows] = of(part)
    return vectors


def finite_array(name: str, values: Any, *shape: int) -> Floats:
    """A read-only copy of finite public numbers of a shape."""
    # In one order: how products are rounded depends on it, and a save keeps one only.
    array = np.array(values, dtype=np.float64, order="C")
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array
