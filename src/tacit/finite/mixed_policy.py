"""Mixed policies: public policies with public weights, of which each user follows one.

Most users may follow what is best by all that is known, and a few try something else, many
different things at once. Whom a user follows is drawn by her own device (:meth:`MixedPolicy.draw`)
and is part of her episode: it is protected like the rest of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.public_file import published, write_published
from tacit.data.reading import read_codes
from tacit.finite.policy import Floats, Ints, Policy
from tacit.privacy.errors import CorruptFile, InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.statistic import Block, Bools


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MixedPolicy:
    """Policies of one world, of which a user draws one and follows it for a whole episode.

    Immutable and public. It has no table of its own: what a user does at one step tells which
    policy she drew, and so what she does at the next.

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
            chances = published().check_mixed(len(given), np.array(weights))
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        tables = np.stack([p.table() if p.actions is None else p.actions for p in given])
        tables.setflags(write=False)
        self.__dict__.update(
            components=tuple(policy.as_version(version) for policy in given),
            tables=tables,
            weights=chances,
            version=version,
        )

    @property
    def horizon(self) -> int:
        """How many steps it prescribes."""
        return self.components[0].horizon

    @property
    def states(self) -> int:
        """How many states it knows."""
        return self.components[0].states

    @property
    def n_actions(self) -> int:
        """How many actions there are."""
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

    def draw(self, rng: np.random.Generator) -> int:
        """The component that a user follows, drawn once, before her first step."""
        return int(published().draw(self.weights, rng))

    def as_version(self, version: int) -> MixedPolicy:
        """The same policy by another number."""
        policy = object.__new__(MixedPolicy)
        parts = tuple(part.as_version(version) for part in self.components)
        policy.__dict__.update(self.__dict__ | {"components": parts, "version": version})
        return policy

    def labelled(self, states: Sequence[str] | None, actions: Sequence[str] | None) -> MixedPolicy:
        """The same policy with names of states and actions."""
        policy = object.__new__(MixedPolicy)
        parts = tuple(part.labelled(states, actions) for part in self.components)
        policy.__dict__.update(self.__dict__ | {"components": parts})
        return policy

    def act(
        self,
        step: int,
        state: int | str,
        rng: np.random.Generator | None = None,
        component: int | None = None,
    ) -> int | str:
        """The action of a component at a step (from 0) in a state; see :meth:`Policy.act`."""
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
        kind = "actions" if self.is_deterministic else "probabilities"
        arrays = {"n_actions": np.array(self.n_actions), kind: self.tables, "weights": self.weights}
        labels = self.components[0].label_arrays()
        write_published(path, self.version, arrays | labels, kind="mixed")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MixedPolicy:
        """Reads what :meth:`publish` wrote, executing nothing; a CorruptFile if it is damaged."""
        reader = published()
        try:
            stored = reader.load(path)
            if not isinstance(stored, reader.PublishedMixed):
                raise ValueError(f"{os.fspath(path)!r} holds a policy of another kind")
            parts = [Policy(p.probabilities, p.actions, 0, p.n_actions) for p in stored.components]
            first = stored.components[0]
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


def followed(
    block: Block, states: Ints, actions: Ints, tables: Ints, version: int
) -> tuple[Bools, Ints]:
    """Who followed a version, and her actions; -1 where they are not those of her component.

    ``tables`` are the actions of a deterministic policy, (H, S), or of a mixed one's components,
    (M, H, S), of which the block's ``components`` say whom each user followed. A user whose
    component is none of them did not follow. What is counted of a user who is not admitted, and of
    an action -1, is nothing: that is the rule for whatever an episode may claim.
    """
    users, horizon = actions.shape
    admitted: Bools = read_codes(block, "versions", (users,)) == version
    stacked = tables if tables.ndim == 3 else tables[np.newaxis]
    drawn = np.zeros(users, dtype=np.int64)
    if tables.ndim == 3:
        drawn = read_codes(block, "components", (users,))
        admitted &= (drawn >= 0) & (drawn < len(stacked))
        drawn = np.where(admitted, drawn, 0)
    inside = (states[:, :horizon] >= 0) & (states[:, :horizon] < stacked.shape[2])
    where = np.where(inside, states[:, :horizon], 0)
    told = stacked[drawn[:, np.newaxis], np.arange(horizon), where]
    return admitted, np.where(inside & (actions == told), actions, -1)
