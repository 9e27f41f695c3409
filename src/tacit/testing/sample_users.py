"""Blocks of users who are strange, hostile or follow another policy; for ``check_agent``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.statistic import Block

Sample: TypeAlias = Callable[[np.random.Generator, int], Block]

HOSTILE_FLOATS = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 1e160, 1e9),
    *(5e-324, -5e-324, 2.3e-308, 1e-160, 0.0, -0.0, 0.5, -1.0, 2.0),
)
"""Hostile floats: sums, squares, products or ratios of them go wrong."""


def raw_block(data: Episodes | VectorEpisodes | Block) -> Block:
    """Episodes as a block."""
    return data if isinstance(data, Block) else data.block()


def joined(blocks: Sequence[Block]) -> Block:
    """All users of several blocks."""
    arrays = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0].arrays}
    return Block(sum(b.users for b in blocks), arrays)


def with_ids(block: Block, ids: Sequence[int]) -> Episodes | VectorEpisodes:
    """The users of a block as episodes, with ids."""
    kind: Any = VectorEpisodes if "lengths" in block.arrays else Episodes
    found: Episodes | VectorEpisodes = kind(**block.arrays, user_ids=ids)
    return found


def some_rows(block: Block, rows: NDArray[np.int64]) -> Block:
    """Some users of a block, in any order."""
    return Block(len(rows), {name: array[rows] for name, array in block.arrays.items()})


def with_row(block: Block, row: int, other: Block) -> Block:
    """The block with one user taken from another."""
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    for name, array in arrays.items():
        array[row] = other[name][row]
    return Block(block.users, arrays)


def block_of_strangers(block: Block, rng: np.random.Generator, pool: Block | None = None) -> Block:
    """Other users, with values of the ranges of a pool, or of the block; versions stay."""
    arrays = {}
    for name, array in block.arrays.items():
        known = array if pool is None else pool[name]
        if name == "versions":
            arrays[name] = array
        elif array.dtype.kind == "f":
            values = np.unique(known)
            if values.size == 1:
                # Where all rewards are equal, strangers have others.
                values = np.append(values, values + 1.0)
            arrays[name] = rng.choice(values, array.shape).astype(array.dtype)
        else:
            numbers = rng.integers(int(known.min()), int(known.max()) + 1, array.shape)
            arrays[name] = numbers.astype(array.dtype)
    return Block(block.users, arrays)


def hostile_values(array: NDArray[Any]) -> NDArray[Any]:
    """Hostile values of an array's type, and values just outside of its range."""
    ends = [array.min(), array.max()] if array.size else [0, 0]
    values: list[Any]
    if array.dtype.kind == "f":
        near = [float(ends[0]) - 1.0, float(ends[1]) + 1.0, float(ends[1]) + 2.0]
        values = [*HOSTILE_FLOATS, *(value for value in near if math.isfinite(value))]
    elif array.dtype.kind == "b":
        values = [True, False]
    else:
        limits = np.iinfo(array.dtype)
        values = [limits.min, limits.max, 0, 1, limits.max - 1, -1]
        # One too many, and one too few, are the mistakes that are made.
        values += [int(ends[0]) - 1, int(ends[1]) + 1, int(ends[1]) + 2]
        values = [value for value in values if limits.min <= value <= limits.max]
    with np.errstate(all="ignore"):
        return np.array(values, dtype=array.dtype)


def of_version(block: Block, version: int) -> Block:
    """The same users, who followed another policy."""
    versions = np.full_like(block["versions"], version)
    return Block(block.users, dict(block.arrays) | {"versions": versions})


def hostile_blocks(block: Block, rng: np.random.Generator) -> dict[str, Block]:
    """The block with all users hostile, by kind; versions stay."""

    def filled(rows: Callable[[NDArray[Any], tuple[int, ...]], NDArray[Any]]) -> Block:
        arrays = dict(block.arrays)
        for name in [name for name in arrays if name != "versions"]:
            array = arrays[name]
            arrays[name] = rows(hostile_values(array), array.T.shape).T.astype(array.dtype)
        return Block(block.users, arrays)

    return {
        "not a number": filled(lambda values, shape: np.full(shape, values[0])),
        "of all kinds": filled(lambda values, shape: np.resize(values, shape)),
        "each of a kind": filled(
            lambda values, shape: np.broadcast_to(np.resize(values, shape[-1]), shape)
        ),
        "somebody else's": block_of_strangers(block, rng),
    }


def sampler_of(block: Block, policy: Any) -> Sample:
    """Users like the block's, strangers, lazy users, and strangers who follow the policy."""
    table = getattr(policy, "actions", None)

    def sample(rng: np.random.Generator, users: int) -> Block:
        chosen = some_rows(block, rng.integers(0, block.users, users))
        other = block_of_strangers(chosen, rng)
        arrays = {}
        kind = rng.integers(0, 4, users)
        for name, array in chosen.arrays.items():
            shape = (users,) + (1,) * (array.ndim - 1)
            mixed = np.where((kind > 0).reshape(shape), other[name], array)
            if array.ndim > 1:
                # Lazy users do the same all the time.
                mixed = np.where((kind == 1).reshape(shape), mixed[:, :1], mixed)
            if array.dtype.kind == "f":
                extreme = rng.integers(0, 2, shape).astype(array.dtype)
                mixed = np.where((kind % 2 == 1).reshape(shape), extreme, mixed)
            arrays[name] = mixed
        if isinstance(table, np.ndarray) and {"states", "actions"} <= set(arrays):
            states, actions = arrays["states"].astype(np.int64), arrays["actions"]
            steps = np.arange(actions.shape[1])
            inside = (states >= 0) & (states < table.shape[1])
            follow = table[steps, np.where(inside, states, 0)[:, : len(steps)]]
            obedient = ((kind == 1) | (kind == 2))[:, np.newaxis]
            arrays["actions"] = np.where(obedient, follow, actions)
        return Block(users, arrays)

    return sample
