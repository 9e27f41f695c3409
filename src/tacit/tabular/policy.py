"""Policies of finite worlds: immutable, versioned and public.

Of a :class:`MixedPolicy` each user follows one component, which her own device draws by public
weights; it is part of her episode, and protected like the rest of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import check_bytes, fitting, numbers, whole_number

if TYPE_CHECKING:
    from tacit.privacy.reading import Labels
    from tacit.tabular.spec import FiniteSpec


def settle(made: Any, **values: Any) -> None:
    """Sets fields of a frozen dataclass that is being made; arrays become read-only."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(made, name, value)


def row_of(step: Any, horizon: int, rows: int) -> Any:
    """The row of a step, where the first of ``rows`` stands for all steps before the others."""
    return np.maximum(step - (horizon - rows), 0)


def by_row(of_steps: NDArray[Any], rows: int) -> NDArray[Any]:
    """Sums over the steps (first axis) that each row stands for; see :func:`row_of`."""
    if len(of_steps) <= rows:
        return of_steps
    head = len(of_steps) - rows + 1
    return np.concatenate([of_steps[:head].sum(axis=0, keepdims=True), of_steps[head:]])


def check_labels(made: Any, states: int, actions: int) -> None:
    """Checks the labels of a spec or a policy, where it has any: different texts, as many."""
    for name, size in (("state_labels", states), ("action_labels", actions)):
        labels = getattr(made, name)
        if labels is not None:
            from tacit.privacy.reading import checked_labels

            settle(made, **{name: checked_labels(name, labels, size)})


class FinitePolicy:
    """Base of tables of actions and of mixtures of them."""

    version: int
    n_actions: Any
    weights: Any
    _first: Any  # a table
    _tables: Any  # of actions or probabilities
    _read: Any  # the policy as a device reads it

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Horizon, states and actions."""
        return self.horizon, self.states, self.n_actions

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return int(self._first._tables.shape[0])

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self._first._tables.shape[1])

    @property
    def is_deterministic(self) -> bool:
        """Whether it is given by actions rather than by probabilities."""
        return self._first.actions is not None

    def _with(self, **changed: Any) -> Self:
        """A copy with fields that were checked already; arrays become read-only."""
        policy = object.__new__(type(self))
        settle(policy, **(vars(self) | changed))
        return policy

    def act(
        self, step: int, state: int | str, rng: np.random.Generator | None = None, *component: int
    ) -> int | str:
        """Action at a step (from 0) in a state, by its label if that is; ``rng`` if stochastic.

        Of a mixed policy, that of the component which was drawn for the episode.
        """
        with _checked() as published:
            action: int | str = self._read(published, *component).act(step, state, rng)
            return action

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically, mode 0644; :mod:`tacit.published` reads it too."""
        from tacit.core.public_file import write_published

        kind = "actions" if self.is_deterministic else "probabilities"
        mixed = self._first is not self
        arrays = {"n_actions": np.array(self.n_actions), kind: self._tables}
        arrays |= {"weights": self.weights} if mixed else {}
        for name in ("state_labels", "action_labels"):
            if (labels := getattr(self._first, name)) is not None:
                arrays[name] = np.array(labels)
        write_published(path, self.version, arrays, kind="mixed" if mixed else None)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} version {self.version}: {self.horizon} steps, "
            f"{self.states} states, {self.n_actions} actions>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Policy(FinitePolicy):
    """Actions, or probabilities of actions, at each step in each state of a finite world.

    Made by :meth:`deterministic`, :meth:`stochastic` or :meth:`uniform`. The arrays are copies
    and read-only: what was published cannot change.

    Attributes:
        probabilities: (horizon, states, actions), for a stochastic policy, else ``None``.
        actions: (horizon, states), for a deterministic policy, else ``None``.
        version: which policy of its agent it is; episodes name the version they followed.
        n_actions: how many actions there are; needed where only ``actions`` are given.
        state_labels: the names of states, where they have any.
        action_labels: the same of actions.

    >>> policy = Policy.deterministic([[0, 1], [1, 1]], n_actions=2)
    >>> policy.horizon, policy.states, policy.n_actions
    (2, 2, 2)
    >>> policy.act(0, 1)
    1
    >>> policy.labelled(["idle", "busy"], ["wait", "ask"]).act(0, "busy")
    'ask'
    """

    probabilities: Floats | None
    actions: Ints | None
    version: int = 0
    n_actions: int = 0
    state_labels: Labels = None
    action_labels: Labels = None

    def __post_init__(self) -> None:
        version = whole_number("version", self.version, least=0)
        with _checked() as published:
            probabilities, actions = map(_copied, (self.probabilities, self.actions))
            n_actions = self.n_actions
            if probabilities is not None and probabilities.ndim and not n_actions:
                n_actions = probabilities.shape[-1]
            n_actions = whole_number("n_actions", n_actions)
            published.check(probabilities, actions, n_actions)
        arrays = {"probabilities": probabilities, "actions": actions}
        settle(self, **arrays, n_actions=n_actions, version=version)
        check_labels(self, self.states, n_actions)

    @classmethod
    def deterministic(cls, actions: ArrayLike, n_actions: int, version: int = 0) -> Policy:
        """One action per step and state, from an array of shape (horizon, states)."""
        return cls(None, actions, version, n_actions)  # type: ignore[arg-type]

    @classmethod
    def planned(cls, actions: Ints, spec: Any) -> Policy:
        """The actions (H, S) of a planner, which need no check, with the labels of its spec."""
        labels = [getattr(spec, name, None) for name in ("state_labels", "action_labels")]
        return cls._of(None, np.array(actions), 0, spec.actions, *labels)

    @classmethod
    def _of(cls, *values: Any) -> Policy:
        """A policy of values that need no check, in the order of its fields."""
        names = [item.name for item in fields(cls)]
        return cls._with(object.__new__(cls), **dict(zip_longest(names, values)))

    @classmethod
    def stochastic(cls, probabilities: ArrayLike, version: int = 0) -> Policy:
        """Probabilities of shape (horizon, states, actions); rounding of their sums is removed."""
        table = numbers("probabilities", probabilities)
        if table.ndim != 3:
            raise InvalidArgument(f"probabilities must have three axes, got {table.ndim}")
        sums = table.sum(axis=2, keepdims=True)
        # Anything farther from 1 is a mistake that the constructor reports.
        table = np.where(np.abs(sums - 1.0) <= 1e-8, table / np.where(sums > 0, sums, 1), table)
        return cls(table, None, version)

    @classmethod
    def uniform(cls, horizon: int, states: int, actions: int) -> Policy:
        """Every action with the same probability, everywhere."""
        sizes = {"horizon": horizon, "states": states, "actions": actions}
        shape = tuple(whole_number(name, size) for name, size in sizes.items())
        check_bytes("a table of probabilities", shape)
        return cls._of(np.full(shape, 1.0 / actions), None, 0, shape[-1])

    def table(self) -> Floats:
        """The probabilities, (horizon, states, actions), also of a deterministic policy."""
        if self.actions is None:
            return self._tables
        table = np.zeros((*self.actions.shape, self.n_actions))
        np.put_along_axis(table, self.actions[:, :, np.newaxis], 1.0, axis=2)
        return table

    def relabelled(self, permutation: Sequence[int]) -> Policy:
        """The same policy where action ``a`` is called ``permutation[a]``."""
        order = np.array(permutation)
        if self.actions is not None:
            return self._with(actions=order[self.actions], action_labels=None)
        table = self.table()[..., np.argsort(order)]
        return self._with(probabilities=np.ascontiguousarray(table), action_labels=None)

    def labelled(self, states: Sequence[str] | None, actions: Sequence[str] | None) -> Policy:
        """The same policy with names of states and actions."""
        named: Policy = self._with(state_labels=states, action_labels=actions)
        check_labels(named, self.states, self.n_actions)
        return named

    def as_version(self, version: int) -> Policy:
        """The same policy by another number."""
        return self if version == self.version else self._with(version=version)

    def _read(self, published: Any, *component: int) -> Any:
        labels = self.state_labels, self.action_labels
        tables = self.probabilities, self.actions
        return published.PublishedPolicy(*tables, self.n_actions, self.version, *labels)

    @property
    def _first(self) -> Policy:
        return self

    @property
    def _tables(self) -> NDArray[Any]:
        return np.asarray(self.probabilities if self.actions is None else self.actions)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MixedPolicy(FinitePolicy):
    """Policies of one world, of which a user draws one and follows it for a whole episode.

    Args:
        components: the policies, all of the same sizes; all deterministic, or taken as stochastic.
        weights: with which chance each is drawn.
        version: which policy of its agent it is; components have the same.

    >>> left, right = (Policy.deterministic([[a], [a]], n_actions=2) for a in (0, 1))
    >>> mixed = MixedPolicy([left, right], [0.9, 0.1], version=3)
    >>> component = mixed.draw(np.random.default_rng(0))
    >>> mixed.act(0, 0, None, component)
    0
    """

    components: tuple[Policy, ...]
    tables: NDArray[Any]  # actions of all components, (M, H, S), or probabilities, (M, H, S, A)
    weights: Floats
    version: int

    def __init__(self, components: Sequence[Policy], weights: ArrayLike, version: int = 0) -> None:
        given = tuple(components)
        if not given or not all(isinstance(policy, Policy) for policy in given):
            raise InvalidArgument("components must be tacit Policies, at least one")
        if len(sizes := {policy.sizes for policy in given}) > 1:
            raise InvalidArgument(f"components must be of one world, got sizes {sorted(sizes)}")
        if not all(policy.is_deterministic for policy in given):
            given = tuple(Policy(policy.table(), None, version) for policy in given)
        with _checked() as published:
            chances = published.check_mixed(len(given), np.array(weights))
        tables = np.stack([policy._tables for policy in given])
        settle(self, tables=tables, weights=chances, version=version)
        settle(self, components=tuple(policy.as_version(version) for policy in given))

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self._first.n_actions

    def table(self) -> Floats:
        """The chance of each action, (H, S, A), if nothing is known of the user's earlier steps."""
        tables = np.stack([policy.table() for policy in self.components])
        return np.asarray(np.tensordot(self.weights, tables, axes=1))

    def relabelled(self, permutation: Sequence[int]) -> MixedPolicy:
        """The same where action ``a`` is called ``permutation[a]``."""
        changed = [policy.relabelled(permutation) for policy in self.components]
        return MixedPolicy(changed, self.weights, self.version)

    def as_version(self, version: int) -> MixedPolicy:
        """The same policy by another number."""
        parts = tuple(part.as_version(version) for part in self.components)
        return self._with(components=parts, version=version)

    def labelled(self, states: Sequence[str] | None, actions: Sequence[str] | None) -> MixedPolicy:
        """The same policy with names of states and actions."""
        return self._with(components=tuple(p.labelled(states, actions) for p in self.components))

    def _read(self, published: Any, *component: int) -> Any:
        parts = tuple(part._read(published) for part in self.components)
        return published.PublishedMixed(parts, self.weights, self.version, *component)

    def draw(self, rng: np.random.Generator) -> int:
        """The component that a user follows, drawn once, before her first step."""
        with _checked() as published:
            return int(published.draw(self.weights, rng))

    def drawn(self, users: int, rng: np.random.Generator) -> Ints:
        """The components of the users of a block, as their devices draw them."""
        possible = np.flatnonzero(self.weights)
        found = np.searchsorted(np.cumsum(self.weights[possible]), rng.random(users), side="right")
        return np.asarray(possible[np.minimum(found, len(possible) - 1)], dtype=np.int64)

    @property
    def _first(self) -> Policy:
        return self.components[0]

    @property
    def _tables(self) -> NDArray[Any]:
        return self.tables


AnyPolicy = Policy | MixedPolicy


def uniform_policy(spec: FiniteSpec) -> Policy:
    """All actions that a state allows with the same probability."""
    if spec.admissible is None:
        return Policy.uniform(spec.horizon, spec.states, spec.actions)
    rows = spec.allowed / spec.allowed.sum(axis=1, keepdims=True)
    return Policy.stochastic(np.broadcast_to(rows, (spec.horizon, *rows.shape)))


def occupancy(transitions: Floats, start: Floats, actions: Ints) -> Floats:
    """Expected visits (L, S, A) of actions (H, S) in a model (L, S, A, S) of the last L steps."""
    horizon, (rows, states) = len(actions), transitions.shape[:2]
    cells = row_of(np.arange(horizon), horizon, rows)[:, np.newaxis], np.arange(states), actions
    moves, came = transitions[cells], np.empty((horizon, states))
    came[0] = start
    for step in range(1, horizon):
        came[step] = came[step - 1] @ moves[step - 1]
    visits = np.zeros(transitions.shape[:3])
    np.add.at(visits, cells, came)
    return visits


@contextmanager
def _checked() -> Iterator[Any]:
    """The readers of published policies, which need NumPy alone; their errors become ours."""
    from tacit import published

    try:
        yield published
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _copied(array: Any) -> NDArray[Any] | None:
    """A copy of numbers, of 64 bits each, or ``None``."""
    if array is None:
        return None
    given = array if isinstance(array, np.ndarray) else np.asarray(fitting("a table", array))
    wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(given.dtype.kind)
    return np.array(given, dtype=wide, order="C")
