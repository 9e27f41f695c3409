"""Episodes as arrays: what users did, raw and sensitive, on its way to the curator.

States and actions are numbers from 0. Anything else that a log may hold (a missing value, text, a
half, an infinity) is kept as something that is visibly invalid: state or action -1, reward NaN.
Nothing here raises or warns because of a user's *values*: what a statistic cannot use is dropped
at the gate, where it changes nothing but that user's own contribution. Shapes, lengths and names of
columns are public, and wrong ones raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.columns import (
    INVALID,
    UserRows,
    as_codes,
    as_numbers,
    checked_ids,
    id_column,
    one_column,
    optional_codes,
    read_only_views,
    require_shape,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats

Ints: TypeAlias = NDArray[np.int64]

# Steps of all users together, of which so many for each entry of a log may be empty: a horizon far
# beyond the data is a slip, and must not fill the memory of the machine.
_MOST_CELLS, _MOST_EMPTY = 1 << 24, 64
_COLUMNS = ("states", "actions", "rewards", "versions")


FiniteSpace: TypeAlias = Any
"""What :func:`validate_episodes` is told of a world: ``states``, ``actions``, ``horizon`` and
``reward_values``."""


@dataclass(frozen=True, eq=False, repr=False)
class Episodes(UserRows):
    """One episode per row. Sensitive: only a curator should hold them.

    The arrays are not copied where their types are right already, and are read-only.

    Attributes:
        states: shape (n, H + 1); the state at every step and the one after the last.
        actions: shape (n, H).
        rewards: shape (n, H).
        versions: shape (n,); which version of the policy the user followed, -1 where unknown.
        components: shape (n,); which policy of a mixed one the user drew, -1 where unknown, or
            ``None`` where nothing was drawn.
        user_ids: who the rows are, integers or text, or ``None``. With ids a curator makes sure
            that nobody contributes more episodes than declared.

    >>> episodes = Episodes(states=[[0, 1, 1]], actions=[[1, 0]], rewards=[[0.0, 1.0]])
    >>> episodes
    <Episodes of 1 user, horizon 2>
    >>> episodes.block()["versions"]
    array([-1])
    """

    states: Ints
    actions: Ints
    rewards: Floats
    versions: Ints
    user_ids: tuple[int | str, ...] | None
    components: Ints | None

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        versions: ArrayLike | None = None,
        user_ids: Sequence[int | str] | None = None,
        components: ArrayLike | None = None,
    ) -> None:
        columns = {
            "states": as_codes("states", states),
            "actions": as_codes("actions", actions),
            "rewards": as_numbers("rewards", rewards),
        }
        for name, array in columns.items():
            if array.ndim != 2:
                raise InvalidArgument(
                    f"{name} has shape {array.shape}, but must have a row per user and a column "
                    "per step"
                )
        users, steps = columns["actions"].shape
        if steps < 1:
            raise InvalidArgument("actions has no columns, but an episode has at least one step")
        require_shape("states", columns["states"], (users, steps + 1))
        require_shape("rewards", columns["rewards"], (users, steps))
        columns["versions"] = optional_codes("versions", versions, users)
        object.__setattr__(self, "components", None)
        if components is not None:
            columns["components"] = optional_codes("components", components, users)
        for name, view in read_only_views(columns):
            object.__setattr__(self, name, view)
        object.__setattr__(self, "user_ids", checked_ids(user_ids, users))

    def block(self) -> Block:
        """The same for a curator: arrays "states", "actions", "rewards" and "versions", raw.

        And "components" where there are any.
        """
        return Block(self.users, {name: getattr(self, name) for name in self._columns})

    @property
    def _columns(self) -> tuple[str, ...]:
        return _COLUMNS if self.components is None else (*_COLUMNS, "components")

    def take(self, rows: slice | NDArray[np.bool_] | Ints) -> Episodes:
        """Some of the rows.

        >>> episodes = Episodes(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros((3, 1)))
        >>> episodes.take(slice(0, 2))
        <Episodes of 2 users, horizon 1>
        """
        columns = {name: getattr(self, name)[rows] for name in self._columns}
        return Episodes(**columns, user_ids=self._ids_of(rows))

    @classmethod
    def of_block(cls, block: Block, user_ids: Sequence[int | str] | None = None) -> Episodes:
        """The inverse of :meth:`block`."""
        drawn = block.arrays.get("components")
        columns = {name: block[name] for name in _COLUMNS}
        return cls(**columns, user_ids=user_ids, components=drawn)

    @classmethod
    def from_records(
        cls,
        user: ArrayLike,
        step: ArrayLike,
        state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_state: ArrayLike,
        *,
        horizon: int,
        version: ArrayLike | None = None,
        episode: ArrayLike | None = None,
        component: ArrayLike | None = None,
    ) -> Episodes:
        """Episodes from a log: columns with an entry per step that somebody took, in any order.

        Everybody who occurs gets a row, in the order of first occurrence, whatever her entries
        hold. Steps that are missing, given twice, or negative are invalid (state -1); so is a
        state that two entries disagree on. Steps from ``horizon`` on are left out.

        Args:
            user: who, as integers or text.
            step: when, from 0.
            state: before the action.
            action: that was taken.
            reward: received.
            next_state: after it.
            horizon: steps of an episode; not found in the data, because shapes are public.
            version: which policy version was followed; -1 for an episode with different ones.
            episode: for users with several episodes, each of which gets a row of its own.
            component: which policy of a mixed one was drawn; -1 for an episode with different ones.

        >>> log = Episodes.from_records(
        ...     user=["ann", "bob", "ann"], step=[0, 0, 1], state=[0, 0, 2], action=[1, 0, 1],
        ...     reward=[0.0, 0.5, 1.0], next_state=[2, 1, 3], horizon=2)
        >>> log.user_ids
        ('ann', 'bob')
        >>> log.states.tolist()
        [[0, 2, 3], [0, 1, -1]]
        """
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise InvalidArgument(f"horizon is {horizon!r}, but must be an integer of at least 1")
        steps = one_column("step", as_codes("step", step))
        columns = {
            "state": as_codes("state", state),
            "action": as_codes("action", action),
            "reward": as_numbers("reward", reward),
            "next_state": as_codes("next_state", next_state),
        }
        rows, ids = _rows(user, episode)
        for name, array in (*columns.items(), ("user", rows)):
            if one_column(name, array).shape != steps.shape:
                raise InvalidArgument(
                    f"{name} has {len(array)} entries, but must have as many as step, {len(steps)}"
                )
        n = len(ids)
        most = max(_MOST_CELLS, _MOST_EMPTY * len(steps))
        if n * horizon > most:
            raise InvalidArgument(
                f"horizon is {horizon!r}, but must be at most {most // max(1, n):,} for so many "
                f"episodes of {len(steps):,} entries: all of their steps must fit in memory"
            )
        states, actions, rewards = _tables(steps, rows, columns, (n, horizon))
        drawn = None if component is None else _agreed("component", component, rows, n)
        return cls(states, actions, rewards, _agreed("version", version, rows, n), ids, drawn)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        horizon: int,
        user: str = "user",
        step: str = "step",
        state: str = "state",
        action: str = "action",
        reward: str = "reward",
        next_state: str = "next_state",
        version: str | None = None,
        episode: str | None = None,
        component: str | None = None,
    ) -> Episodes:
        """Episodes from a table: :meth:`from_records` with the names of its columns.

        A table is anything whose ``frame[name]`` is a column: a pandas or Polars frame, a
        structured array, a dictionary.

        >>> table = {"user": [7, 7], "step": [0, 1], "s": [0, 1], "a": [1, 1], "reward": [0, 1],
        ...          "next": [1, 0]}
        >>> Episodes.from_frame(table, horizon=2, state="s", action="a", next_state="next")
        <Episodes of 1 user, horizon 2>
        """

        def column(name: str) -> Any:
            try:
                return frame[name]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise InvalidArgument(f"the table has no column {name!r}") from error
            except Exception as error:
                # Polars has an error of its own.
                raise InvalidArgument(f"the column {name!r} cannot be read") from error

        return cls.from_records(
            *(column(name) for name in (user, step, state, action, reward, next_state)),
            horizon=horizon,
            version=None if version is None else column(version),
            episode=None if episode is None else column(episode),
            component=None if component is None else column(component),
        )


@dataclass(frozen=True)
class EpisodesReport:
    """What :func:`validate_episodes` counted. Raw facts about users: not for publication.

    Invalid states are entries that are no state of the space, the last of an episode included;
    invalid rewards are not finite or outside their range; affected users have any of these.
    """

    users: int
    steps: int
    invalid_states: int
    invalid_actions: int
    invalid_rewards: int
    affected_users: int

    @property
    def valid(self) -> bool:
        """Whether nothing invalid was found."""
        return self.affected_users == 0

    def __str__(self) -> str:
        head = f"{self.users:,} episodes, {self.steps:,} steps: "
        if self.valid:
            found = "all valid."
        else:
            found = (
                f"{self.affected_users:,} episodes hold {self.invalid_states:,} invalid states, "
                f"{self.invalid_actions:,} invalid actions and {self.invalid_rewards:,} invalid "
                "rewards. A statistic leaves them out."
            )
        return f"{head}{found} These are raw counts, outside the guarantee: do not publish them."


def validate_episodes(episodes: Episodes, spec: FiniteSpace) -> EpisodesReport:
    """Counts what of the episodes does not fit the space.

    A curator's tool for finding mistakes in a log. **The counts are raw data, outside any
    guarantee: do not publish them, and do not let anything that is published depend on them.** An
    agent never calls this; it takes episodes as they are. A wrong horizon is public, and raises.
    """
    if episodes.horizon != spec.horizon:
        raise InvalidArgument(
            f"episodes have horizon {episodes.horizon}, but must have the space's, {spec.horizon}"
        )
    low, high = min(spec.reward_values), max(spec.reward_values)
    states = (episodes.states < 0) | (episodes.states >= spec.states)
    actions = (episodes.actions < 0) | (episodes.actions >= spec.actions)
    # Written so that NaN is invalid.
    rewards = ~((episodes.rewards >= low) & (episodes.rewards <= high))
    affected = states.any(axis=1) | actions.any(axis=1) | rewards.any(axis=1)
    return EpisodesReport(
        users=episodes.users,
        steps=episodes.actions.size,
        invalid_states=int(states.sum()),
        invalid_actions=int(actions.sum()),
        invalid_rewards=int(rewards.sum()),
        affected_users=int(affected.sum()),
    )


def _tables(
    steps: Ints, rows: Ints, columns: dict[str, NDArray[Any]], shape: tuple[int, int]
) -> tuple[Ints, Ints, Floats]:
    """States (n, H + 1), actions and rewards (n, H) of entries; what is not known is invalid."""
    n, horizon = shape
    within = (steps >= 0) & (steps < horizon)
    cell = rows[within] * horizon + steps[within]
    once = np.bincount(cell, minlength=n * horizon) == 1
    within[within] = once[cell]
    at = (rows[within], steps[within])

    before = np.full((n, horizon + 1), INVALID, dtype=np.int64)
    after = np.full((n, horizon + 1), INVALID, dtype=np.int64)
    actions = np.full((n, horizon), INVALID, dtype=np.int64)
    rewards = np.full((n, horizon), np.nan)
    before[at] = columns["state"][within]
    after[at[0], at[1] + 1] = columns["next_state"][within]
    actions[at] = columns["action"][within]
    rewards[at] = columns["reward"][within]
    # A state is seen by the entry before it and by the one after it; -1 says nothing.
    known = once.reshape(n, horizon)
    seen_before = np.pad(known, ((0, 0), (0, 1)))
    seen_after = np.pad(known, ((0, 0), (1, 0)))
    states = np.where(seen_before, before, after)
    states[seen_before & seen_after & (before != after)] = INVALID
    return states, actions, rewards


def _rows(user: ArrayLike, episode: ArrayLike | None) -> tuple[Ints, list[int | str]]:
    """Which row each entry belongs to, and the ids of the rows, in order of first occurrence."""
    people = id_column("user", user)
    if episode is None:
        keys: list[Any] = people
    else:
        episodes = id_column("episode", episode)
        if len(episodes) != len(people):
            raise InvalidArgument(
                f"episode has {len(episodes)} entries, but must have as many as user, {len(people)}"
            )
        keys = list(zip(people, episodes, strict=True))
    places: dict[Any, int] = {}
    rows = np.fromiter(
        (places.setdefault(key, len(places)) for key in keys), dtype=np.int64, count=len(keys)
    )
    ids = list(places) if episode is None else [key[0] for key in places]
    return rows, ids


def _agreed(name: str, values: ArrayLike | None, rows: Ints, n: int) -> Ints:
    """The version or component that all entries of a row agree on, else -1."""
    if values is None:
        return np.full(n, INVALID, dtype=np.int64)
    codes = one_column(name, as_codes(name, values))
    if codes.shape != rows.shape:
        raise InvalidArgument(
            f"{name} has {len(codes)} entries, but must have as many as user, {len(rows)}"
        )
    low = np.full(n, np.iinfo(np.int64).max)
    high = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(low, rows, codes)
    np.maximum.at(high, rows, codes)
    return np.where(low == high, low, INVALID)
