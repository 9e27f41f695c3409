"""Episodes as arrays: states, actions and rewards of users, raw, on their way to the curator.

States and actions are numbers from 0. Anything else that a log may hold is kept as something that
is visibly invalid: state or action -1, reward NaN. Nothing raises because of a user's *values*.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.reading import (
    INVALID,
    UNKNOWN,
    Floats,
    Ints,
    as_codes,
    as_numbers,
    optional_codes,
    require_shape,
)
from tacit.privacy.statistic import Block, FiledBlock
from tacit.privacy.validation import row_ids, whole_number


class UserRows:
    """One row per user. Its text has no values, since texts end up in logs."""

    _COLUMNS: ClassVar[tuple[str, ...]]
    actions: NDArray[Any]
    user_ids: tuple[int | str, ...] | None

    def _hold(self, columns: Mapping[str, Any], user_ids: Sequence[int | str] | None) -> None:
        """Keeps read-only views of columns, or ``None``."""
        for name in self._COLUMNS:
            view = columns[name].view() if name in columns else None
            if view is not None:
                view.flags.writeable = False
            object.__setattr__(self, name, view)
        if user_ids is not None:
            row_ids(user_ids, self.users)
            user_ids = tuple(user_ids.tolist() if isinstance(user_ids, np.ndarray) else user_ids)
        object.__setattr__(self, "user_ids", user_ids)

    def block(self) -> Block:
        """The same for a curator: arrays by the names of the attributes that there are, raw."""
        held = {name: getattr(self, name) for name in self._COLUMNS}
        return Block(self.users, {name: c for name, c in held.items() if c is not None})

    def take(self, rows: slice | NDArray[np.bool_] | Ints) -> Self:
        """Some of the rows."""
        ids = self.user_ids
        kept = ids and [ids[i] for i in np.arange(self.users)[rows].tolist()]
        columns = {name: array[rows] for name, array in self.block().arrays.items()}
        return type(self)(**columns, user_ids=kept)  # type: ignore[call-arg]

    def with_actions(self, actions: NDArray[Any]) -> Self:
        """The same rows with other actions of the same shape and type."""
        found = copy.copy(self)
        object.__setattr__(found, "actions", actions)
        actions.flags.writeable = False
        return found

    @property
    def users(self) -> int:
        """How many rows there are."""
        return int(self.actions.shape[0])

    @property
    def horizon(self) -> int:
        """Steps of an episode, H."""
        return int(self.actions.shape[1])

    def __len__(self) -> int:
        return self.users

    def __repr__(self) -> str:
        plural = "s" * (self.users != 1)
        return f"<{type(self).__name__} of {self.users:,} user{plural}, horizon {self.horizon}>"


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
        propensities: logged chances, (n, H) of the action that was taken, or (n, H, A) of all, or
            ``None``.
        user_ids: ids of the rows, integers or text, or ``None``. With ids a curator makes sure
            that no user contributes more episodes than declared.

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
    components: Ints | None
    propensities: Floats | None

    repeated: ClassVar[int] = 0  # entries of its log by time that are there twice
    _COLUMNS = ("states", "actions", "rewards", "versions", "components", "propensities")

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        versions: ArrayLike | None = None,
        user_ids: Sequence[int | str] | None = None,
        components: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> None:
        columns = {
            "states": as_codes("states", states),
            "actions": as_codes("actions", actions),
            "rewards": as_numbers("rewards", rewards),
        }
        users, steps = (*columns["actions"].shape, 1, 1)[:2]
        require_shape("actions", columns["actions"], (users, max(1, steps)))
        require_shape("states", columns["states"], (users, steps + 1))
        require_shape("rewards", columns["rewards"], (users, steps))
        unknown = np.full(users, INVALID)
        columns["versions"] = optional_codes("versions", versions, unknown)
        if components is not None:
            columns["components"] = optional_codes("components", components, unknown)
        self._hold(columns | _logged(propensities, users, steps), user_ids)

    @classmethod
    def from_frame(cls, frame: Any, *, spec: Any = None, **log: Any) -> Episodes:
        """Episodes from a table with an entry per step that a user took, in any order.

        Each user who occurs gets a row, in the order of first occurrence, whatever her entries
        hold. A step that is missing has state and action -1; what is given twice, contradicts
        itself or is no number is -3. Steps from the horizon on are left out.

        A table is anything whose ``frame[name]`` is a column: a pandas or Polars frame, an Arrow
        table, a dictionary. A column's type is schema: one of text is refused without a vocabulary.
        ``spec`` gives horizon and vocabularies, and ``log`` is all else that a
        :class:`~tacit.data.logs.LogFormat` has, names of columns above all.

        >>> table = {"user": [7, 7], "step": [0, 1], "s": ["idle", "busy"], "a": [1, 1],
        ...          "reward": [0, 1], "next": ["busy", "away"]}
        >>> log = Episodes.from_frame(table, horizon=2, state="s", action="a", next_state="next",
        ...                           states=["idle", "busy"])
        >>> log.states.tolist()
        [[0, 1, -2]]
        """
        from tacit.data.logs import format_of

        made = format_of(spec, log)
        return made.episodes(made.read(frame))

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        spec: Any = None,
        grouped: bool = True,
        batch: int = 1 << 18,
        **log: Any,
    ) -> Iterator[Episodes]:
        """Episodes from Parquet files, or folders of them, batch by batch.

        Args:
            path: a file, a folder, or several.
            spec: a spec to take horizon and vocabularies from.
            grouped: whether entries are sorted by user: then no more than about ``batch`` of them
                are in memory, and the longest log of one user. Otherwise all are.
            batch: entries at a time.
            **log: see :meth:`from_frame`.
        """
        from tacit.data.logs import format_of

        return format_of(spec, log).file_episodes(path, batch, grouped)

    @classmethod
    def from_minari(cls, dataset: Any, horizon: int) -> Episodes:
        """Episodes of a Minari dataset, or of one's name, with discrete observations and actions.

        Each is a row, and a user's. From where it ended on states and actions are -1.
        """
        if isinstance(dataset, str):
            try:
                dataset = importlib.import_module("minari").load_dataset(dataset)
            except ImportError as error:
                raise MissingExtra("this needs Minari: pip install minari") from error
        spaces = dataset.observation_space, dataset.action_space
        if not all(hasattr(space, "n") for space in spaces):
            raise InvalidArgument(f"spaces of the dataset must be Discrete, got {spaces}")
        n, H = int(dataset.total_episodes), whole_number("horizon", horizon)
        made = cls(np.full((n, H + 1), INVALID), np.full((n, H), INVALID), np.full((n, H), np.nan))
        columns: dict[str, Any] = {n: c.copy() for n, c in made.block().arrays.items()}
        firsts = (int(getattr(space, "start", 0)) for space in spaces)
        first = dict(zip(("observations", "actions"), firsts, strict=True))
        kinds = {"states": "observations", "actions": "actions", "rewards": "rewards"}
        for row, episode in enumerate(dataset.iterate_episodes()):
            for name, kind in kinds.items():
                read = np.ravel(getattr(episode, kind))[: columns[name].shape[1]]
                columns[name][row, : len(read)] = read - first.get(kind, 0)
        return cls(**columns)

    @classmethod
    def parquet_block(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        spec: Any = None,
        executor: Executor | None = None,
        batch: int = 1 << 18,
        **log: Any,
    ) -> FiledBlock:
        """The users of Parquet files as one block, summed batch by batch and never held.

        A curator takes it (:meth:`tacit.Curator.add`), and an agent as the users of one block. Sums
        of files may be computed anywhere, and pass the gate once. Entries must be sorted by user,
        over all files, which is checked: so no user counts twice.

        Args:
            path: a file, a folder, or several.
            spec: a spec to take horizon and vocabularies from.
            executor: any of :mod:`concurrent.futures`, Dask's included: a job for each file.
            batch: entries in memory at a time, and the longest log of one user.
            **log: see :meth:`from_frame`.
        """
        from tacit.data.logs import format_of

        return format_of(spec, log).block(path, batch, executor)


@dataclass(frozen=True, eq=False, repr=False)
class VectorEpisodes(UserRows):
    """One episode per row. Sensitive: only a curator should hold them.

    An episode can end: after ``lengths`` steps it is over, nothing is earned any more, and what
    its row holds from there on is ignored. One that goes on beyond the horizon has the length
    H + 1, so that an end at the last step is told from none; and so has one that was cut short by a
    time limit, whose states are NaN from there on.

    Attributes:
        states: shape (n, H + 1, D); the state at every step and the one after the last.
        actions: shape (n, H), labels from 0 on, or (n, H, d), vectors.
        rewards: shape (n, H), or ``None`` where they are known functions of states and actions.
        lengths: shape (n,); after how many steps the episode was over, H + 1 if it was not.
        versions: shape (n,); which version of the policy the user followed, -1 where unknown.
        propensities: logged chances of actions, or ``None``; see :class:`Episodes`.
        user_ids: ids of the rows, or ``None``; see :class:`Episodes`.

    >>> episodes = VectorEpisodes(states=[[[0.1], [0.3]]], actions=[[1]], rewards=[[0.5]])
    >>> episodes
    <VectorEpisodes of 1 user, horizon 1>
    >>> episodes.lengths
    array([2])
    """

    states: Floats
    actions: Floats | Ints
    rewards: Floats | None
    lengths: Ints
    versions: Ints
    propensities: Floats | None

    _COLUMNS = ("states", "actions", "rewards", "lengths", "versions", "propensities")

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        versions: ArrayLike | None = None,
        user_ids: Sequence[int | str] | None = None,
        propensities: ArrayLike | None = None,
    ) -> None:
        points = as_numbers("states", states)
        if points.ndim != 3 or points.shape[1] < 2:
            raise InvalidArgument(f"states has shape {points.shape}, but must have (n, H + 1, D)")
        users, steps = points.shape[0], points.shape[1] - 1
        taken: Floats | Ints = as_numbers("actions", actions)
        if taken.ndim < 3:
            taken = as_codes("actions", actions)
        require_shape("actions", taken, (users, steps, *taken.shape[2:3]))
        columns: dict[str, NDArray[Any]] = {"states": points, "actions": taken}
        if rewards is not None:
            columns["rewards"] = as_numbers("rewards", rewards)
            require_shape("rewards", columns["rewards"], (users, steps))
        whole, unknown = np.full(users, steps + 1), np.full(users, INVALID)
        columns["lengths"] = optional_codes("lengths", lengths, whole)
        columns["versions"] = optional_codes("versions", versions, unknown)
        self._hold(columns | _logged(propensities, users, steps), user_ids)


def _logged(propensities: ArrayLike | None, users: int, steps: int) -> dict[str, Floats]:
    """Chances of the actions that were taken, or of all, where they were logged."""
    if propensities is None:
        return {}
    found = as_numbers("propensities", propensities)
    require_shape("propensities", found, (users, steps, *found.shape[2:3]))
    return {"propensities": found}


def validate_episodes(episodes: Episodes, spec: Any) -> dict[str, int]:
    """Counts of what in the episodes does not fit the space.

    A curator's tool for finding mistakes in a log. **The counts are raw data, outside any
    guarantee: do not publish them, and do not let anything that is published depend on them.** An
    agent never calls this; it takes episodes as they are. A wrong horizon is public, and raises.

    Returns:
        Numbers of users and steps; of entries of a log by time that are there twice (repeated),
        which make false steps; of steps after the last entry of an episode (ended) and without one
        before (gaps), which are no mistakes; of states and actions whose labels are not in the
        vocabulary (unknown); of those that are outside the space or contradictory, and rewards that
        are missing or out of range (invalid); and of users with anything unknown or invalid.
    """
    require_shape("actions", episodes.actions, (episodes.users, spec.horizon))
    low, high = min(spec.reward_values), max(spec.reward_values)
    states, actions, rewards = episodes.states, episodes.actions, episodes.rewards
    # A step without an entry has action -1, no reward, and at most a state that others told of.
    absent = (actions == INVALID) & np.isnan(rewards)
    ended = np.logical_and.accumulate(absent[:, ::-1], axis=1)[:, ::-1]
    unseen = np.pad(absent, ((0, 0), (0, 1)), constant_values=True) & (states == INVALID)
    found = {"unknown_states": states == UNKNOWN, "unknown_actions": actions == UNKNOWN}
    found["invalid_states"] = ((states < 0) | (states >= spec.states)) & ~unseen
    found["invalid_actions"] = ((actions < 0) | (actions >= spec.actions)) & ~absent
    for name in ("states", "actions"):
        found[f"invalid_{name}"] &= ~found[f"unknown_{name}"]
    # Written so that NaN is invalid.
    found["invalid_rewards"] = ~((rewards >= low) & (rewards <= high)) & ~absent
    affected = np.logical_or.reduce([table.any(axis=1) for table in found.values()])
    tables = {"ended": ended, "gaps": absent & ~ended} | found | {"affected_users": affected}
    counts = {name: int(table.sum()) for name, table in tables.items()}
    sizes = {"users": episodes.users, "steps": actions.size, "repeated": episodes.repeated}
    return sizes | counts
