"""Users' values: nothing that a user's device or log holds is ever refused.

One user's values are anything at all. Nothing may be raised or warned of, nobody else's
contribution may change, and the user still counts as one.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from research.hostile.fuzzing import Broken, EntryPoint, Stranger, Strategy
from research.hostile.small import Small, local_agents, small_agents, small_log
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.statistic import Block
from tacit.testing.recording import difference, snapshot

# What arrays of numbers may hold, and what lists may hold.
_FLOATS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 2.0, -1.0, 1e-300, 0.3)
_INTEGERS = (-1, -(2**63), 2**63 - 1, 10**9, 0, 1, 2, 3, 255)
_ENTRIES: tuple[Any, ...] = (
    *(None, "x", "", "1", True, 1j, 10**400, -(10**400), b"\xff", {}, Ellipsis, Stranger()),
    *(np.datetime64("2020-01-01"), np.float16(1), np.int8(-1), np.uint64(2**64 - 1), 2**63),
    *_FLOATS,
)
# No noise of the small agents' reports is that large.
_MOST_HONEST = 1e9


def value_entries() -> list[EntryPoint]:
    """What users' devices and logs may hold."""
    episodes = {
        "states": [[0, 1, 2], [1, 0, 2], [2, 2, 1]],
        "actions": [[1, 0], [0, 0], [1, 1]],
        "rewards": [[0.0, 1.0], [True, 0.5], [1, 1]],
    }
    vectors = episodes | {"states": [[[0.1], [0.2], [0.3]]] * 3, "lengths": [2, 1, 2]}
    log = small_log() | {"version": [0, 0, 0]}

    def read(**table: Any) -> Episodes:
        return Episodes.from_frame(table, horizon=2, version="version")

    return [
        _table_entry("Episodes: users' values", Episodes, episodes),
        _table_entry("VectorEpisodes: users' values", VectorEpisodes, vectors),
        _table_entry("from_frame: users' values", read, log),
        *(_episodes_entry(small) for small in small_agents()),
        *(_reports_entry(small) for small in local_agents()),
    ]


# Tables of lists.


def _table_entry(name: str, make: Callable[..., Any], good: dict[str, Any]) -> EntryPoint:
    """Tables of lists in which the first user's entries are anything at all."""
    clean = make(**copy.deepcopy(good)).block()
    users = good.get("user", ["a"])  # without such a column there is one row per user

    def attempt(value: dict[str, int], folder: Path) -> None:
        table = copy.deepcopy(good)
        for key, pick in value.items():
            entry = _ENTRIES[pick % len(_ENTRIES)]
            column = table[key]
            for place, user in enumerate(users):
                if user == "a":
                    column[place] = _replaced(column[place], entry)
        made = make(**table).block()
        for array in clean.arrays:
            if not np.array_equal(made[array][1:], clean[array][1:], equal_nan=True):
                raise Broken(f"changes the {array} of other users")

    picks = {key: st.integers(0, 10**4) for key in good if key != "user"}
    return EntryPoint(name, lambda: st.fixed_dictionaries({}, optional=picks), attempt, ())


def _replaced(nested: Any, entry: Any) -> Any:
    """Lists of the same shape, with this entry everywhere."""
    return [_replaced(one, entry) for one in nested] if isinstance(nested, list) else entry


# Arrays that agents learn from.


def _episodes_entry(small: Small) -> EntryPoint:
    """Blocks of episodes in which one user's numbers are any numbers."""
    users = small().block_users
    clean = small.episodes(small(), users)

    def attempt(value: tuple[int, Mapping[str, Sequence[int]]], folder: Path) -> None:
        agent = small()
        hostile = _with_hostile(clean, *value)
        statistic = getattr(agent, "statistic", None)
        if statistic is not None:
            before, after = statistic.contributions(clean), statistic.contributions(hostile)
            changed = set(np.flatnonzero((before != after).any(axis=1)).tolist())
            if changed - {value[0]}:
                raise Broken(f"changes what {len(changed)} users contribute")
        agent.learn(hostile)
        if agent.served != users:
            raise Broken("the hostile user's slot does not count")

    return EntryPoint(f"{small.name}: users' values", partial(_hostile_row, clean), attempt, ())


def _hostile_row(block: Block) -> Strategy:
    """Which user is hostile, and what each of her arrays holds, as places in a pool."""
    arrays = [name for name in block.arrays if name != "versions"]
    picks = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)
    return st.tuples(
        st.integers(0, block.users - 1), st.fixed_dictionaries(dict.fromkeys(arrays, picks))
    )


def _with_hostile(block: Block, row: int, held: Mapping[str, Sequence[int]]) -> Block:
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    for name, picks in held.items():
        array = arrays[name]
        pool = _FLOATS if array.dtype.kind == "f" else _INTEGERS
        chosen = [pool[pick % len(pool)] for pick in picks]
        array[row] = np.resize(np.array(chosen, dtype=array.dtype), array[row].shape)
    return Block(block.users, arrays)


# Reports of devices.


def _reports_entry(small: Small) -> EntryPoint:
    """Reports of which the first is anything at all: one that no honest device sends is zero."""

    def attempt(value: list[int], folder: Path) -> None:
        agents = small(), small()
        rows, size = agents[0].block_users, agents[0].statistic.layout.size
        reports = np.random.default_rng(0).normal(size=(rows, size)).tolist()
        chosen = [_ENTRIES[pick % len(_ENTRIES)] for pick in value]
        reports[0] = [chosen[place % len(chosen)] for place in range(size)]
        agents[0].learn_reports(reports)
        numbers = [_number(entry) for entry in reports[0]]
        honest = all(abs(number) < _MOST_HONEST for number in numbers)  # not NaN either
        reports[0] = numbers if honest else [0.0] * size
        agents[1].learn_reports(reports)
        if differing := difference(*map(snapshot, agents)):
            raise Broken(f"a report that is none does not count as zero: {differing} differ")

    lists = st.lists(st.integers(0, 10**4), min_size=1, max_size=5)
    return EntryPoint(f"{small.name}: reports' values", lambda: lists, attempt, ())


def _number(entry: Any) -> float:
    with contextlib.suppress(Exception):
        return float(entry)
    return math.nan
