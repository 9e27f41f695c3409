"""Raw arrays made safe: states, actions, rewards, ids and labels, of one type each.

Values that are no numbers become visibly invalid ones; nothing here raises because of a user's
values. Shapes, names and types are public, and wrong ones raise. So are labels, the names of states
and actions in the order of their numbers: given, and never learnt from data.
"""

from __future__ import annotations

import contextlib
import reprlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools
from tacit.privacy.validation import fitting

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

Labels: TypeAlias = tuple[str, ...] | None  # different texts, a name for each state or action

INVALID = -1  # the state or action of what is missing or is no such number
UNKNOWN = -2  # that of an entry of a log whose label is not in the vocabulary
UNREADABLE = -3  # of an entry which is missing, no such number, or contradicts another one


class UserSteps(NamedTuple):
    """Steps of users, whatever they hold."""

    states: Ints  # (users, H + 1)
    actions: Ints  # (users, H); -1 where one is not the policy's
    rewards: Floats  # (users, H)
    admitted: Bools  # (users,): who followed the policy, if there is one
    drawn: Ints  # (users,): the component of a mixed policy that each of them drew


@dataclass(frozen=True, eq=False)
class StepColumns:
    """Columns that a statistic reads, and of whom: public, and read by the gate.

    Attributes:
        horizon: H.
        follows: (S, A), where what follows the last step makes no difference: a state for whoever's
            log has none there, so that her last reward counts.
        version: of the policy that users must have followed; ``None`` if any will do.
        policy: actions (H, S), or (M, H, S) of components of which each user says her own.
        propensities: whether users say how probable their actions were.
    """

    horizon: int
    follows: Ints | None = None
    version: int | None = None
    policy: Ints | None = None
    propensities: bool = False

    def read(self, block: Block) -> UserSteps:
        """Steps of a block's users; nothing counts of one whose component is none."""
        users, H, tables = block.users, self.horizon, self.policy
        states = read_codes(block, "states", (users, H + 1))
        actions = read_codes(block, "actions", (users, H))
        rewards = read_rewards(block, "rewards", (users, H))
        admitted, drawn = np.ones(users, dtype=bool), np.zeros(users, dtype=np.int64)
        if self.propensities:  # looked at for their shape alone: later questions need it
            read_rewards(block, "propensities", (users, H))
        if self.follows is not None:
            now, taken, after = states[:, -2], actions[:, -1], states[:, -1]
            (S, A), missing = self.follows.shape, (after < 0) | (after >= len(self.follows))
            missing &= (now >= 0) & (now < S) & (taken >= 0) & (taken < A)
            if missing.any():
                states = states.copy()
                states[missing, -1] = self.follows[now[missing], taken[missing]]
        if self.version is not None:
            admitted = read_codes(block, "versions", (users,)) == self.version
        if tables is not None:
            if tables.ndim == 3:
                drawn = read_codes(block, "components", (users,))
                admitted &= (drawn >= 0) & (drawn < len(tables))
                drawn = np.where(admitted, drawn, 0)
            tables, now = tables.reshape(-1, *tables.shape[-2:]), states[:, :H]
            inside = (now >= 0) & (now < tables.shape[2])
            prescribed = tables[drawn[:, np.newaxis], np.arange(H), np.where(inside, now, 0)]
            actions = np.where(inside & (actions == prescribed), actions, INVALID)
        return UserSteps(states, actions, rewards, admitted, drawn)


def read_rewards(block: Block, name: str, shape: tuple[int, ...]) -> Floats:
    """Numbers cut to [0, 1]; what is not finite is NaN."""
    values = np.ascontiguousarray(as_numbers(name, _column(block, name, shape)))
    if values.min(initial=0.0) >= 0.0 and values.max(initial=1.0) <= 1.0:
        return values  # as most are; NaN is neither
    return np.clip(np.where(np.isfinite(values), values, np.nan), 0.0, 1.0)


def read_codes(block: Block, name: str, shape: tuple[int, ...]) -> Ints:
    """Integers as they are; numbers that are none as -1."""
    return np.ascontiguousarray(as_codes(name, _column(block, name, shape)))


def _column(block: Block, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    array = block.arrays[name] if name in block.arrays else block[name]  # which says what is there
    require_shape(name, array, shape)
    return array


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    fitting(name, values)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array
    # One odd entry gives all entries its type: True next to "x" would become a text. So entries
    # that are no numbers all stay what they are.
    with contextlib.suppress(ValueError):
        array = np.asarray(values, dtype=object)
        if not {*map(type, array.ravel().tolist())} & {list, tuple, np.ndarray}:
            return array
    raise InvalidArgument(f"{name} has rows of different lengths")


def as_numbers(name: str, values: ArrayLike) -> Floats:
    """Any column as floats; what is no number is NaN."""
    array = _array(name, values)
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(np.float64, copy=False)
    if array.dtype.kind in "OUS":
        # One odd entry turns a whole column into objects or text, so this depends on values.
        flat = np.full(array.size, np.nan)
        for place, value in enumerate(array.ravel().tolist()):
            with contextlib.suppress(Exception):
                flat[place] = float(value)
        return flat.reshape(array.shape)
    raise InvalidArgument(f"{name} has dtype {array.dtype}, but must be numeric")


def as_codes(name: str, values: ArrayLike) -> Ints:
    """Any column as integers; what is no integer of 64 bits is -1."""
    array = _array(name, values)
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "u":
        fits = array <= np.uint64(np.iinfo(np.int64).max)
        return np.where(fits, array.astype(np.int64), INVALID)
    numbers = as_numbers(name, array)
    with np.errstate(all="ignore"):
        # 2^53: beyond it, floats are not all integers one by one.
        whole = (np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers))
        return np.where(whole, numbers, INVALID).astype(np.int64)


def require_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuses an array of another shape."""
    if array.shape != shape:
        raise InvalidArgument(f"{name} has shape {array.shape}, but must have {shape}")


def optional_codes(name: str, values: ArrayLike | None, default: Ints) -> Ints:
    """An integer per user: the default where nothing is given."""
    column = default if values is None else as_codes(name, values)
    require_shape(name, column, default.shape)
    return column


def checked_labels(name: str, values: Any, size: int | None = None) -> Labels:
    """Different texts, as many as there are; ``None`` stays ``None``.

    >>> checked_labels("state_labels", ["idle", "busy"], 2)
    ('idle', 'busy')
    """
    if values is None:
        return None
    listed = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
    labels = tuple(values) if listed else ()
    if not labels or not all(isinstance(label, str) for label in labels):
        raise InvalidArgument(f"{name} must be a list of texts, got {reprlib.repr(values)}")
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise InvalidArgument(f"{name} must be different, but {twice[0]!r} is there twice")
    if size is not None and len(labels) != size:
        raise InvalidArgument(f"{name} must be {size} texts, got {len(labels)}")
    return tuple(map(str, labels))


def code_of(kind: str, label: str, labels: Labels) -> int:
    """The number of a label; ``kind`` is "state" or "action"."""
    if labels is None:
        raise InvalidArgument(f"{kind} is {label!r}, but this policy has no labels: give a number")
    if label not in labels:
        raise InvalidArgument(f"{kind} is {label!r}, but must be one of {reprlib.repr(labels)}")
    return labels.index(label)
