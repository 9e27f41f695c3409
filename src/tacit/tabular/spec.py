"""Public facts of finite worlds, also of those with known features, and their checks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import ArraySpec, flag, numbers, positive, read_only, whole_number
from tacit.tabular.policy import check_labels, settle

if TYPE_CHECKING:
    from tacit.privacy.reading import Labels

TOLERANCE = 1e-8
"""How far sums of probabilities may be from 1."""


@dataclass(frozen=True)
class FiniteSpec:
    """Public facts of a finite world: all that an agent may know of it.

    Attributes:
        states: how many.
        actions: how many.
        horizon: steps of an episode.
        stationary: whether transitions and rewards are the same at every step.
        reward_values: the values that a reward can have, in [0, 1].
        start: the distribution of the first state, or ``None`` if it is not known.
        admissible: the actions that each state allows, or ``None`` if all do. Public, so no policy
            chooses others.
        largest_return: what the rewards of an episode add up to at most, where it is known to be
            less than the horizon times the largest reward. No user counts for more.
        state_labels: the public names of states, in the order of their numbers, if they have any.
        action_labels: the same of actions.
        last_state: whether users' data has the state after their last step. Without, a stationary
            world is learnt from all steps but the last, which is counted on its own.

    >>> FiniteSpec(2, 3, 5, stationary=True, admissible=((0, 2), (1,))).allowed.tolist()
    [[True, False, True], [False, True, False]]
    """

    states: int
    actions: int
    horizon: int
    stationary: bool
    reward_values: tuple[float, ...] = (0.0, 1.0)
    start: tuple[float, ...] | None = None
    admissible: tuple[tuple[int, ...], ...] | None = None
    largest_return: float | None = None
    state_labels: Labels = field(default=None, repr=False)
    action_labels: Labels = field(default=None, repr=False)
    last_state: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        for name in ("states", "actions", "horizon"):
            settle(self, **{name: whole_number(name, getattr(self, name), most=10**12)})
        for name in ("stationary", "last_state"):
            settle(self, **{name: flag(name, getattr(self, name))})
        settle(self, reward_values=tuple(check_reward_values(self.reward_values).tolist()))
        if self.start is not None:
            start = check_distributions("start", self.start, (self.states,))
            settle(self, start=tuple(start.tolist()))
        if self.admissible is not None:
            settle(self, admissible=_admissible(self.admissible, self.states, self.actions))
        if self.largest_return is not None:
            settle(self, largest_return=positive("largest_return", self.largest_return))
        check_labels(self, self.states, self.actions)

    @classmethod
    def named(cls, states: Sequence[str], actions: Sequence[str], **rest: Any) -> Self:
        """A spec whose states and actions have names; logs and policies then have them too."""
        labels: dict[str, Any] = {"state_labels": states, "action_labels": actions}
        return cls(states=len(states), actions=len(actions), **labels, **rest)

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether a state allows an action, (S, A)."""
        table = np.full((self.states, self.actions), self.admissible is None)
        for state, actions in enumerate(self.admissible or ()):
            table[state, list(actions)] = True
        table.setflags(write=False)
        return table

    @property
    def first_states(self) -> Floats:
        """The distribution of the first state, (S,); uniform if it is not known."""
        S = self.states
        return np.full(S, 1.0 / S) if self.start is None else np.array(self.start)

    def rows(self, stationary: bool) -> int:
        """L: steps that are told apart, of which the first stands for all before the others."""
        return min(2 - self.last_state, self.horizon) if stationary else self.horizon

    @property
    def most_return(self) -> float:
        """Largest sum of an episode's rewards."""
        most = self.horizon * (max(self.reward_values) or 1.0)
        return most if self.largest_return is None else min(most, self.largest_return)


def _admissible(values: Any, states: int, actions: int) -> tuple[tuple[int, ...], ...]:
    """The actions that each state allows, at least one, in order."""
    try:
        rows = tuple(tuple(sorted(int(action) for action in row)) for row in values)
    except (TypeError, ValueError, OverflowError):
        rows = ()
    for row in rows or [()]:
        if (
            len(rows) != states
            or not {*row} <= {*range(actions)}
            or not 0 < len({*row}) == len(row)
        ):
            raise InvalidArgument(
                f"admissible must have, for each of {states} states, different actions "
                f"0..{actions - 1}, at least one"
            )
    return rows


def check_reward_values(values: ArrayLike) -> Floats:
    """A copy of the values that a reward can have: different numbers in [0, 1]."""
    try:
        array = np.array(numbers("reward_values", values), dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(0)
    good = array.ndim == 1 and bool(((array >= 0) & (array <= 1)).all())
    if not good or not 0 < len(array) == len(set(array.tolist())):
        raise InvalidArgument(f"reward_values must be different numbers in [0, 1], got {values!r}")
    return array


def check_distributions(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """A copy whose last axis holds probabilities, with the rounding of their sums removed."""
    array = numbers(name, values)
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise InvalidArgument(
            f"{name} must be numbers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    sums = array.sum(axis=-1, dtype=np.float64)
    # A row with a NaN fails the comparison of its sum.
    good = (array.min(axis=-1) >= 0) & (np.abs(sums - 1.0) <= TOLERANCE)
    for index in np.argwhere(~good).tolist():
        axes = zip(("step", "state", "action"), index, strict=False)
        where = ", ".join(f"{axis} {i}" for axis, i in axes)
        row = array[tuple(index)]
        raise InvalidArgument(
            f"{name}{f' at {where}' if where else ''} must be probabilities with sum 1, but the "
            f"sum is {row.sum()} and the smallest entry {row.min()}"
        )
    # Samplers take rows for granted that lie one behind the other.
    result: Floats = np.divide(array, sums[..., np.newaxis], order="C")
    return result


class FeatureSpec(ArraySpec, FiniteSpec):
    """A finite spec whose transitions and rewards may depend on the step each on its own.

    The fields themselves belong to the families; what they mean is the same in all of them.
    """

    stationary_transitions: bool
    stationary_rewards: bool
    known_rewards: Floats | None

    def __post_init__(self) -> None:
        for name in ("stationary_transitions", "stationary_rewards"):
            settle(self, **{name: flag(name, getattr(self, name))})
        settle(self, stationary=self.stationary_transitions and self.stationary_rewards)
        super().__post_init__()

    def _check_known_rewards(self) -> None:
        if self.known_rewards is None:
            return
        sizes = (self.states, self.actions)
        table = check_mean_rewards("known_rewards", self.known_rewards, self.horizon, sizes)
        if not ((table >= 0) & (table <= 1)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        settle(self, known_rewards=table)

    def _text(self, digest: str, **sizes: int) -> str:
        """The short form: sizes, what is known, and a fingerprint of the rest."""
        shown = {name: getattr(self, name) for name in ("states", "actions", "horizon")} | sizes
        for name in ("stationary_transitions", "stationary_rewards"):
            shown[name] = getattr(self, name)
        given = ", ".join(f"{name}={value}" for name, value in shown.items())
        rewards = "unknown" if self.known_rewards is None else "known"
        return f"{type(self).__name__}({given}, rewards={rewards}, digest={digest!r})"


def fingerprint(*values: Any) -> str:
    """The same for values that are equal, and for no others."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        array = np.zeros(0) if value is None else np.ascontiguousarray(value)
        # Minus zero equals zero.
        digest.update(repr(array.shape).encode() + (array + 0.0).tobytes())
    return digest.hexdigest()


def check_mean_rewards(
    name: str, values: ArrayLike, horizon: int, sizes: tuple[int, int]
) -> Floats:
    """Read-only mean rewards, (1 or H, S, A); of any size.

    Args:
        name: of the argument, for errors.
        values: the rewards.
        horizon: H.
        sizes: S and A.
    """
    table = numbers(name, values)
    if table.ndim != 3 or len(table) not in (1, horizon) or table.shape[1:] != sizes:
        raise InvalidArgument(
            f"{name} must have shape (1 or {horizon}, {sizes[0]}, {sizes[1]}), got {table.shape}"
        )
    return read_only(table)


def finite(name: str, array: NDArray[np.generic], *axes: str) -> Floats:
    """Read-only finite numbers; where they are not, the first axes are named."""
    good = np.isfinite(array)
    if not good.all():
        bad = np.argwhere(~good)[0].tolist()
        where = ", ".join(f"{axis} {at}" for axis, at in zip(axes, bad, strict=False))
        entry = ", ".join(map(str, bad[len(axes) :]))
        raise InvalidArgument(
            f"{name} at {where} must be finite, but entry {entry} is {array[tuple(bad)]}"
        )
    return read_only(array)
