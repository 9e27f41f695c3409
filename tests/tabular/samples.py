"""Users whom the tests of finite statistics look at."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.statistic import Block

Arrays = dict[str, NDArray[Any]]


def users_of(rng: np.random.Generator, users: int, S: int, A: int, H: int) -> Arrays:
    """Random users, half of whom stay where they are."""
    states = rng.integers(0, S, (users, H + 1))
    actions = rng.integers(0, A, (users, H))
    rewards = rng.choice([0.0, 1.0, 0.5, np.nan], (users, H), p=[0.2, 0.6, 0.1, 0.1])
    lazy = rng.random(users) < 0.5
    states[lazy] = rng.integers(0, S, (lazy.sum(), 1))
    actions[lazy] = rng.integers(0, A, (lazy.sum(), 1))
    rewards[lazy] = rng.integers(0, 2, (lazy.sum(), 1))
    return {"states": states, "actions": actions, "rewards": rewards}


def all_episodes(S: int, A: int, H: int, rewards: tuple[float, ...]) -> Arrays:
    """Every episode there is, possible or not; a reward of NaN is a step that does not count."""
    rows = itertools.product(
        itertools.product(range(S), repeat=H + 1),
        itertools.product(range(A), repeat=H),
        itertools.product(rewards, repeat=H),
    )
    states, actions, paid = (np.array(column) for column in zip(*rows, strict=True))
    return {"states": states, "actions": actions, "rewards": paid}


def of_dtype(block: Block, kind: str) -> tuple[Block, Block]:
    """The same users with rewards of 0 and 1, and these again as arrays of another type."""
    arrays = dict(block.arrays)
    arrays["rewards"] = (np.nan_to_num(arrays["rewards"]) > 0.5).astype(np.float64)
    other = {name: array.astype(kind) for name, array in arrays.items()}
    return Block(block.users, arrays), Block(block.users, other)


def largest_gap(*pairs: tuple[Any, Any]) -> float:
    """Between the entries of arrays that should be equal."""
    return max(float(np.abs(one - other).max()) for one, other in pairs)
