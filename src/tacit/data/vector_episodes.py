"""Episodes whose states are vectors, raw and sensitive; see :mod:`tacit.data.episodes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.columns import (
    UserRows,
    as_codes,
    as_numbers,
    optional_codes,
    require_shape,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

Ints: TypeAlias = NDArray[np.int64]


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
        user_ids: who the rows are, or ``None``; see :class:`tacit.data.episodes.Episodes`.

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
        columns["lengths"] = optional_codes("lengths", lengths, users, steps + 1)
        columns["versions"] = optional_codes("versions", versions, users)
        self._hold(columns, user_ids)
