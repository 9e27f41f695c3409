"""Policies of finite worlds: immutable, versioned and public.

Of a :class:`MixedPolicy` each user follows one component, which her own device draws by public
weights; it is part of her episode, and protected like the rest of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.sizes import check_bytes, check_size
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import fitting, whole_number
from tacit.tabular.spec import check_labels, settle

if TYPE_CHECKING:
    from tacit.data.reading import Labels
    from tacit.privacy.statistic import Block, Bools
    from tacit.tabular.model import FiniteModel, SparseModel
    from tacit.tabular.spec import FiniteSpec


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
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
        probabilities = _copied(self.probabilities, "probabilities", np.float64, "iuf")
        actions = _copied(self.actions, "actions", np.int64, "iu")
        n_actions = whole_number("n_actions", self.n_actions, least=0)
        version = whole_number("version", self.version, least=0)
        if n_actions == 0:
            if probabilities is None:
                raise InvalidArgument("n_actions must be given, and >= 1, beside actions")
            n_actions = probabilities.shape[-1] if probabilities.ndim else 0
        try:
            _published().check(probabilities, actions, n_actions)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        arrays = {"probabilities": probabilities, "actions": actions}
        settle(self, **arrays, n_actions=n_actions, version=version)
        check_labels(self, self.states, n_actions)

    @classmethod
    def deterministic(cls, actions: ArrayLike, n_actions: int, version: int = 0) -> Policy:
        """One action per step and state, from an array of shape (horizon, states)."""
        return cls(None, actions, version, n_actions)  # type: ignore[arg-type]

    @classmethod
    def stochastic(cls, probabilities: ArrayLike, version: int = 0) -> Policy:
        """Probabilities of shape (horizon, states, actions); rounding of their sums is removed."""
        table = np.asarray(fitting("probabilities", probabilities))
        if table.ndim == 3 and table.dtype.kind in "iuf":
            sums = table.sum(axis=2, keepdims=True)
            # Anything farther from 1 is a mistake that the constructor reports.
            table = np.where(np.abs(sums - 1.0) <= 1e-8, table / np.where(sums > 0, sums, 1), table)
        return cls(table, None, version)

    @classmethod
    def uniform(cls, horizon: int, states: int, actions: int, version: int = 0) -> Policy:
        """Every action with the same probability, everywhere.

        Args:
            horizon: steps of an episode.
            states: how many.
            actions: how many.
            version: which policy of its agent it is.
        """
        sizes = {"horizon": horizon, "states": states, "actions": actions}
        shape = tuple(check_size(name, size) for name, size in sizes.items())
        check_bytes("a table of probabilities", shape)
        return cls(np.full(shape, 1.0 / actions), None, version)

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return int(self._tables.shape[0])

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self._tables.shape[1])

    @property
    def is_deterministic(self) -> bool:
        """Whether it is given by actions rather than by probabilities."""
        return self.actions is not None

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
        if self.actions is None:
            return Policy.stochastic(self.table()[..., np.argsort(order)], self.version)
        return Policy(None, order[self.actions], self.version, self.n_actions, self.state_labels)

    def labelled(self, states: Sequence[str] | None, actions: Sequence[str] | None) -> Policy:
        """The same policy with names of states and actions."""
        from tacit.data.reading import checked_labels

        return self._with(
            state_labels=checked_labels("states", states, self.states),
            action_labels=checked_labels("actions", actions, self.n_actions),
        )

    def as_version(self, version: int) -> Policy:
        """The same policy by another number."""
        number = whole_number("version", version, least=0)
        return self if number == self.version else self._with(version=number)

    @overload
    def act(self, step: int, state: int, rng: np.random.Generator | None = None) -> int: ...
    @overload
    def act(self, step: int, state: str, rng: np.random.Generator | None = None) -> int | str: ...
    def act(self, step: int, state: int | str, rng: np.random.Generator | None = None) -> int | str:
        """Action at a step (from 0) in a state, by its label if that is; ``rng`` if stochastic."""
        if isinstance(state, str):
            from tacit.data.reading import code_of

            action = self.act(step, code_of("state", state, self.state_labels), rng)
            return self.action_labels[action] if self.action_labels else action
        try:
            table = self.probabilities if self.actions is None else self.actions
            return int(_published().choose(table, (step, state), rng))
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically, mode 0644; :mod:`tacit.published` reads it too."""
        from tacit.core.public_file import write_published

        kind = "probabilities" if self.actions is None else "actions"
        arrays = {"n_actions": np.array(self.n_actions), kind: self._tables}
        write_published(path, self.version, arrays | self.label_arrays())

    def label_arrays(self) -> dict[str, NDArray[Any]]:
        """The names of states and actions, as a published file has them."""
        labels = {"state_labels": self.state_labels, "action_labels": self.action_labels}
        return {name: np.array(texts) for name, texts in labels.items() if texts is not None}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """Reads what :meth:`publish` wrote, executing nothing; a CorruptFile if it is damaged."""
        stored = _stored(path, "PublishedPolicy")
        labels = stored.state_labels, stored.action_labels
        try:
            tables = stored.probabilities, stored.actions
            return cls(*tables, stored.version, stored.n_actions, *labels)
        except ValueError as error:
            raise CorruptFile(str(error)) from error

    def __repr__(self) -> str:
        kind = "deterministic" if self.is_deterministic else "stochastic"
        return (
            f"<Policy version {self.version}: {kind}, {self.horizon} steps, "
            f"{self.states} states, {self.n_actions} actions>"
        )

    def _with(self, **changed: Any) -> Policy:
        """A copy with fields that were checked already."""
        policy = object.__new__(Policy)
        vars(policy).update(vars(self) | changed)
        return policy

    @property
    def _tables(self) -> NDArray[Any]:
        table = self.probabilities if self.actions is None else self.actions
        assert table is not None  # noqa: S101  (checked when it was made)
        return table


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MixedPolicy:
    """Policies of one world, of which a user draws one and follows it for a whole episode.

    Args:
        components: the policies, all of the same sizes; all deterministic, or taken as stochastic.
        weights: with which chance each is drawn.
        version: which policy of its agent it is; components have the same.

    >>> left, right = (Policy.deterministic([[a], [a]], n_actions=2) for a in (0, 1))
    >>> mixed = MixedPolicy([left, right], [0.9, 0.1], version=3)
    >>> component = mixed.draw(np.random.default_rng(0))
    >>> mixed.act(0, 0, np.random.default_rng(), component)
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
        sizes = {(policy.horizon, policy.states, policy.n_actions) for policy in given}
        if len(sizes) > 1:
            raise InvalidArgument(f"components must be of one world, got sizes {sorted(sizes)}")
        if not all(policy.is_deterministic for policy in given):
            given = tuple(Policy(policy.table(), None, version) for policy in given)
        try:
            chances = _published().check_mixed(len(given), np.array(weights))
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        tables = np.stack([p.table() if p.actions is None else p.actions for p in given])
        settle(self, tables=tables, weights=chances, version=version)
        settle(self, components=tuple(policy.as_version(version) for policy in given))

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return self.components[0].horizon

    @property
    def states(self) -> int:
        """Number of states."""
        return self.components[0].states

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self.components[0].n_actions

    @property
    def is_deterministic(self) -> bool:
        """Whether all components are."""
        return self.components[0].is_deterministic

    def table(self) -> Floats:
        """The chance of each action, (H, S, A), if nothing is known of the user's earlier steps."""
        mean: Floats = np.tensordot(
            self.weights, np.stack([policy.table() for policy in self.components]), axes=1
        )
        return mean

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

    def _with(self, **changed: Any) -> MixedPolicy:
        """A copy with fields that were checked already."""
        policy = object.__new__(MixedPolicy)
        vars(policy).update(vars(self) | changed)
        return policy

    def draw(self, rng: np.random.Generator) -> int:
        """The component that a user follows, drawn once, before her first step."""
        return int(_published().draw(self.weights, rng))

    def act(
        self,
        step: int,
        state: int | str,
        rng: np.random.Generator | None = None,
        component: int | None = None,
    ) -> int | str:
        """The action of a component; see :meth:`Policy.act`.

        Args:
            step: from 0.
            state: its number, or its label.
            rng: needed by stochastic components alone.
            component: the one that :meth:`draw` gave for this episode.
        """
        if component is None:
            raise InvalidArgument("component must be given: draw one for each episode")
        if not 0 <= component < len(self.components):
            raise InvalidArgument(
                f"component must be in 0..{len(self.components) - 1}, got {component!r}"
            )
        return self.components[component].act(step, state, rng)

    def drawn(self, users: int, rng: np.random.Generator) -> Ints:
        """The components of the users of a block, as their devices draw them."""
        possible = np.flatnonzero(self.weights)
        found = np.searchsorted(np.cumsum(self.weights[possible]), rng.random(users), side="right")
        return np.asarray(possible[np.minimum(found, len(possible) - 1)], dtype=np.int64)

    def split(self, users: int, rng: np.random.Generator) -> Ints:
        """How many users of a block follow each component: what :meth:`drawn` adds up to."""
        return np.asarray(rng.multinomial(users, self.weights), dtype=np.int64)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically, mode 0644; :mod:`tacit.published` reads it too."""
        from tacit.core.public_file import write_published

        kind = "actions" if self.is_deterministic else "probabilities"
        arrays = {"n_actions": np.array(self.n_actions), kind: self.tables, "weights": self.weights}
        labels = self.components[0].label_arrays()
        write_published(path, self.version, arrays | labels, kind="mixed")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MixedPolicy:
        """Reads what :meth:`publish` wrote, executing nothing; a CorruptFile if it is damaged."""
        stored = _stored(path, "PublishedMixed")
        first = stored.components[0]
        try:
            parts = [Policy(p.probabilities, p.actions, 0, p.n_actions) for p in stored.components]
            made = cls(parts, stored.weights, stored.version)
            return made.labelled(first.state_labels, first.action_labels)
        except ValueError as error:
            raise CorruptFile(str(error)) from error

    def __repr__(self) -> str:
        return (
            f"<MixedPolicy version {self.version}: {len(self.components)} components, "
            f"{self.horizon} steps, {self.states} states, {self.n_actions} actions>"
        )


AnyPolicy = Policy | MixedPolicy


def uniform_policy(spec: FiniteSpec, version: int = 0) -> Policy:
    """All actions that a state allows with the same probability."""
    if spec.allowed is None:
        return Policy.uniform(spec.horizon, spec.states, spec.actions, version)
    rows = spec.allowed / spec.allowed.sum(axis=1, keepdims=True)
    return Policy.stochastic(np.broadcast_to(rows, (spec.horizon, *rows.shape)), version)


def check_policy(model: FiniteModel | SparseModel | FiniteSpec, policy: AnyPolicy) -> None:
    """Raises unless a policy is one for this world, and chooses only what states allow."""
    if not isinstance(policy, (Policy, MixedPolicy)):
        raise InvalidArgument(f"policy must be a tacit Policy, got {type(policy).__name__}")
    has = (policy.horizon, policy.states, policy.n_actions)
    needs = (model.horizon, model.states, model.actions)
    if has != needs:
        raise InvalidArgument(
            f"policy is for another world: it has (horizon, states, actions) = {has}, "
            f"this world has {needs}"
        )
    allowed = model.allowed
    if allowed is None:
        return
    parts = policy.components if isinstance(policy, MixedPolicy) else (policy,)
    for part in parts:
        bad = np.argwhere((part.table() * ~allowed).any(axis=2))
        if len(bad):
            step, state = bad[0].tolist()
            raise InvalidArgument(
                f"policy must choose actions that states allow, but not at step {step} in state "
                f"{state}"
            )


def followed(statistic: Any, block: Block, steps: tuple[Ints, Ints]) -> tuple[Bools, Ints]:
    """Users who followed the policy and version of a statistic, and their actions.

    ``steps`` are states (users, H + 1) and actions (users, H); the result has -1 where an action is
    not the policy's, (H, S), or that of the component, (M, H, S), which the user says that she
    drew. A user whose component is none did not follow. What is counted of her, and of an action
    -1, is nothing: that is the rule for whatever an episode may claim.
    """
    from tacit.data.reading import read_codes

    (states, actions), tables = steps, statistic.policy
    users, horizon = actions.shape
    admitted: Bools = read_codes(block, "versions", (users,)) == statistic.version
    stacked = tables if tables.ndim == 3 else tables[np.newaxis]
    drawn = np.zeros(users, dtype=np.int64)
    if tables.ndim == 3:
        drawn = read_codes(block, "components", (users,))
        admitted &= (drawn >= 0) & (drawn < len(stacked))
        drawn = np.where(admitted, drawn, 0)
    inside = (states[:, :horizon] >= 0) & (states[:, :horizon] < stacked.shape[2])
    where = np.where(inside, states[:, :horizon], 0)
    prescribed = stacked[drawn[:, np.newaxis], np.arange(horizon), where]
    return admitted, np.where(inside & (actions == prescribed), actions, -1)


def _published() -> Any:
    """The readers of published policies, which need NumPy alone."""
    from tacit.core.public_file import published

    return published()


def _stored(path: str | os.PathLike[str], kind: str) -> Any:
    """The content of a published file, of one kind."""
    try:
        stored = _published().load(path)
    except ValueError as error:
        raise CorruptFile(str(error)) from error
    if type(stored).__name__ != kind:
        raise CorruptFile(f"{os.fspath(path)!r} holds a policy of another kind")
    return stored


def _copied(array: Any, name: str, dtype: type[np.generic], kinds: str) -> NDArray[Any] | None:
    """A copy of numbers, or ``None``."""
    if array is None:
        return None
    given = array if isinstance(array, np.ndarray) else np.asarray(fitting(name, array))
    if given.dtype.kind not in kinds:
        raise InvalidArgument(
            f"{name} must be numbers of dtype {dtype.__name__}, got {given.dtype}"
        )
    return np.array(given, dtype=dtype, order="C")
