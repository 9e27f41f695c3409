"""Episodes as arrays: states, actions and rewards of users, raw, on their way to the curator.

States and actions are numbers from 0. Anything else that a log may hold (a missing value, text, a
half, an infinity) is kept as something that is visibly invalid: state or action -1, reward NaN.
Nothing here raises or warns because of a user's *values*: what a statistic cannot use is dropped
at the gate, where it changes nothing but that user's own contribution. Shapes, lengths and names of
columns are public, and wrong ones raise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.reading import (
    INVALID,
    UNKNOWN,
    Floats,
    Ints,
    as_codes,
    as_numbers,
    checked_ids,
    optional_codes,
    require_shape,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, FiledBlock
from tacit.privacy.validation import whole_number


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
        object.__setattr__(self, "user_ids", checked_ids(user_ids, self.users))

    def block(self) -> Block:
        """The same for a curator: arrays by the names of the attributes that there are, raw."""
        held = {name: getattr(self, name) for name in self._COLUMNS}
        return Block(self.users, {name: c for name, c in held.items() if c is not None})

    def take(self, rows: slice | NDArray[np.bool_] | Ints) -> Self:
        """Some of the rows.

        >>> from tacit import Episodes
        >>> episodes = Episodes(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros((3, 1)))
        >>> episodes.take(slice(0, 2))
        <Episodes of 2 users, horizon 1>
        """
        ids = self.user_ids
        kept = ids and [ids[i] for i in np.arange(self.users)[rows].tolist()]
        columns = {name: array[rows] for name, array in self.block().arrays.items()}
        return type(self)(**columns, user_ids=kept)  # type: ignore[call-arg]

    @classmethod
    def of_block(cls, block: Block, user_ids: Sequence[int | str] | None = None) -> Self:
        """The inverse of :meth:`block`."""
        held = block.arrays
        columns = {name: held[name] for name in cls._COLUMNS if name in held}
        return cls(**columns, user_ids=user_ids)  # type: ignore[call-arg]

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
        noun = "user" if self.users == 1 else "users"
        return f"<{type(self).__name__} of {self.users:,} {noun}, horizon {self.horizon}>"


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
    user_ids: tuple[int | str, ...] | None
    components: Ints | None

    _COLUMNS = ("states", "actions", "rewards", "versions", "components")

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
        unknown = np.full(users, INVALID)
        columns["versions"] = optional_codes("versions", versions, unknown)
        if components is not None:
            columns["components"] = optional_codes("components", components, unknown)
        self._hold(columns, user_ids)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        horizon: int | None = None,
        spec: Any = None,
        user: str = "user",
        step: str | None = None,
        state: str = "state",
        action: str = "action",
        reward: str = "reward",
        next_state: str | None = "next_state",
        version: str | None = None,
        episode: str | None = None,
        component: str | None = None,
        time: str | None = None,
        terminal: str | None = None,
        states: Sequence[str] | str | None = None,
        actions: Sequence[str] | str | None = None,
        end: str | int | None = None,
        gap: float | timedelta | None = None,
        sessions: int | None = None,
        missing_reward: float | None = None,
    ) -> Episodes:
        """Episodes from a table with an entry per step that a user took, in any order.

        Each user who occurs gets a row, in the order of first occurrence, whatever her entries
        hold. A step that is missing has state and action -1; what is given twice, contradicts
        itself or is no number is -3. Steps from ``horizon`` on are left out.

        A table is anything whose ``frame[name]`` is a column: a pandas or Polars frame, an Arrow
        table, a structured array, a dictionary. A column's type is schema: one of text or
        categories needs a vocabulary, and is refused without. Rules for gaps, ends and missing
        values are on the page "Learning from existing logs".

        Args:
            frame: the table.
            horizon: steps of an episode; not found in the data, because shapes are public.
            spec: a spec to take horizon and vocabularies from.
            user: name of the column of ids.
            state: that of states.
            action: that of actions.
            reward: that of rewards.
            step: name of the column of steps, from 0 ("step" unless there is ``time``).
            next_state: the state after the action; ``None`` to take that of the next step.
            version: which policy version was followed; -1 for an episode with different ones.
            episode: for users with several episodes, each of which gets a row of its own.
            component: which policy of a mixed one was drawn.
            time: time stamps or numbers, in place of ``step``: steps are counted in their order.
            terminal: flags that an episode is over after this step.
            states: all names of states, in the order of their numbers; ``"schema"`` where the
                column's type declares them and they are public.
            actions: the same of actions.
            end: with ``terminal``, the state in which an episode is over.
            gap: with ``time``, a session ends where nothing comes for longer; in seconds, or in
                the unit of a column of numbers.
            sessions: with ``gap``, each user gets so many rows, some of them empty: otherwise how
                many she has depends on when she was active, and is public like all participation.
            missing_reward: what a missing reward counts as; by default its step does not count.

        >>> table = {"user": [7, 7], "step": [0, 1], "s": ["idle", "busy"], "a": [1, 1],
        ...          "reward": [0, 1], "next": ["busy", "away"]}
        >>> log = Episodes.from_frame(table, horizon=2, state="s", action="a", next_state="next",
        ...                           states=["idle", "busy"])
        >>> log.states.tolist()
        [[0, 1, -2]]
        """
        given = {k: v for k, v in locals().items() if k not in ("cls", "frame", "spec")}
        from tacit.data.logs import format_of

        log = format_of(spec, given)
        return log.episodes(log.read(frame))

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

        No more than about ``batch`` entries are in memory, and the longest log of one user; and all
        ids, where they are not grouped. Takes what :meth:`from_frame` takes, and needs the extra
        ``logs``.

        Args:
            path: a file, a folder, or several.
            spec: a spec to take horizon and vocabularies from.
            grouped: whether all entries of a user come one after the other. If not, they are first
                partitioned by user, in files of a temporary folder that only you can read.
            batch: entries at a time.
            **log: see :meth:`from_frame`.
        """
        from tacit.data.log_files import LogFiles
        from tacit.data.logs import format_of

        made = format_of(spec, log)
        parts = LogFiles(path, made, batch).batches(grouped)

        def read() -> Iterator[Episodes]:
            with closing(parts):  # whatever happens, files of raw data go at once
                for part in parts:
                    yield made.episodes(part, grouped=True)

        return read()

    @classmethod
    def parquet_block(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        spec: Any = None,
        episodes_per_user: int = 1,
        executor: Executor | None = None,
        batch: int = 1 << 18,
        **log: Any,
    ) -> FiledBlock:
        """All episodes of Parquet files as one block, summed batch by batch and never held.

        A curator takes it (:meth:`tacit.Curator.add`), and an agent as the users of one block. Sums
        of files may be computed anywhere, and pass the gate once. Entries must be sorted by user,
        over all files: so no user counts for more than ``episodes_per_user``.
        :func:`tacit.data.log_files.partition_by_user` sorts files that are not.

        Args:
            path: a file, a folder, or several.
            spec: a spec to take horizon and vocabularies from.
            episodes_per_user: further ones of a user do not count.
            executor: any of :mod:`concurrent.futures`, Dask's included: a job for each file.
            batch: entries in memory at a time, and the longest log of one user.
            **log: see :meth:`from_frame`.
        """
        from tacit.data.log_files import LogFiles
        from tacit.data.logs import format_of

        most = whole_number("episodes_per_user", episodes_per_user)
        return LogFiles(path, format_of(spec, log), batch).block(most, executor)


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
    user_ids: tuple[int | str, ...] | None

    _COLUMNS = ("states", "actions", "rewards", "lengths", "versions")

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        versions: ArrayLike | None = None,
        user_ids: Sequence[int | str] | None = None,
    ) -> None:
        points = as_numbers("states", states)
        if points.ndim != 3 or points.shape[1] < 2:
            raise InvalidArgument(
                f"states has shape {points.shape}, but must have a row per user, a column per step "
                "and one more, and the coordinates of a state"
            )
        users, steps = points.shape[0], points.shape[1] - 1
        taken: Floats | Ints = as_numbers("actions", actions)
        if taken.ndim == 2:
            taken = as_codes("actions", actions)
        if taken.ndim not in (2, 3) or taken.shape[:2] != (users, steps):
            raise InvalidArgument(
                f"actions has shape {taken.shape}, but must have {(users, steps)}, or the "
                "coordinates of an action besides"
            )
        columns: dict[str, NDArray[Any]] = {"states": points, "actions": taken}
        if rewards is not None:
            columns["rewards"] = as_numbers("rewards", rewards)
            require_shape("rewards", columns["rewards"], (users, steps))
        whole, unknown = np.full(users, steps + 1), np.full(users, INVALID)
        columns["lengths"] = optional_codes("lengths", lengths, whole)
        columns["versions"] = optional_codes("versions", versions, unknown)
        self._hold(columns, user_ids)


@dataclass(frozen=True)
class EpisodesReport:
    """Counts of :func:`validate_episodes`. Raw facts about users: not for publication.

    Affected users have anything unknown or invalid. That an episode ends before the horizon, or has
    a gap, is no mistake by itself: there is nothing to count there.
    """

    users: int
    steps: int
    ended: int  # steps after the last entry of an episode
    gaps: int  # steps without an entry before that
    unknown_states: int  # labels that are not in the vocabulary
    unknown_actions: int
    invalid_states: int  # no state of the space, or contradictory; the last one included
    invalid_actions: int
    invalid_rewards: int  # missing, not finite, or outside their range
    affected_users: int

    @property
    def valid(self) -> bool:
        """Whether nothing unknown or invalid was found."""
        return self.affected_users == 0

    def __str__(self) -> str:
        found = "all valid" if self.valid else f"{self.affected_users:,} episodes hold mistakes"
        words = {"ended": "steps after an end", "gaps": "steps in gaps"}
        counts = {words.get(k, k.replace("_", " ")): n for k, n in vars(self).items()}
        listed = list(counts.items())[2:-1]
        parts = ", ".join(f"{count:,} {what}" for what, count in listed if count)
        left_out = f" ({parts}; a statistic leaves them out)" if parts else ""
        return (
            f"{self.users:,} episodes, {self.steps:,} steps: {found}{left_out}. These are raw "
            "counts, outside the guarantee: do not publish them."
        )


def validate_episodes(episodes: Episodes, spec: Any) -> EpisodesReport:
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
    states, actions, rewards = episodes.states, episodes.actions, episodes.rewards
    # A step without an entry has action -1, no reward, and at most a state that others told of.
    absent = (actions == INVALID) & np.isnan(rewards)
    ended = np.logical_and.accumulate(absent[:, ::-1], axis=1)[:, ::-1]
    unseen = np.pad(absent, ((0, 0), (0, 1)), constant_values=True)
    unknown_states, unknown_actions = states == UNKNOWN, actions == UNKNOWN
    bad_states = ((states < 0) | (states >= spec.states)) & ~unknown_states
    bad_states &= ~(unseen & (states == INVALID))
    bad_actions = ((actions < 0) | (actions >= spec.actions)) & ~unknown_actions & ~absent
    # Written so that NaN is invalid.
    bad_rewards = ~((rewards >= low) & (rewards <= high)) & ~absent
    found = (unknown_states, unknown_actions, bad_states, bad_actions, bad_rewards)
    affected = np.logical_or.reduce([table.any(axis=1) for table in found])
    tables = (ended, absent & ~ended, *found, affected)
    counts: list[int] = [episodes.users, actions.size, *(int(table.sum()) for table in tables)]
    return EpisodesReport(*counts)
