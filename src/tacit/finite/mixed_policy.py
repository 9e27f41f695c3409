"""Mixed policies: public policies with public weights, of which each user follows one.

Most users may follow what is best by all that is known, and a few try something else, many
different things at once. Whom a user follows is drawn by her own device (:meth:`MixedPolicy.draw`)
and is part of her episode: it is protected like the rest of it. Or it belongs to her *slot*, her
place in the block, by public coins: then it is the same for whoever takes that place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.public_file import published, write_published
from tacit.finite.policy import Floats, Ints, Policy
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.reading import read_codes

if TYPE_CHECKING:
    from tacit.privacy.statistic import Block, Bools


class MixedPolicy:
    """Policies of one world, of which a user draws one and follows it for a whole episode.

    Immutable and public. It has no table of its own: what a user does at one step tells which
    policy she drew, and so what she does at the next.

    Args:
        components: the policies, all of the same sizes; all deterministic, or taken as stochastic.
        weights: with which chance each is drawn; with ``slots`` they follow from them.
        version: which policy of its agent it is; components have the same.
        slots: the component of every place in a block, over and over again where there are more
            users: slot i has ``slots[i % len(slots)]``.

    >>> left, right = (Policy.deterministic([[a], [a]], n_actions=2) for a in (0, 1))
    >>> mixed = MixedPolicy([left, right], [0.9, 0.1], version=3)
    >>> component = mixed.draw(np.random.default_rng(0))
    >>> mixed.act(0, 0, np.random.default_rng(), component)
    0
    >>> MixedPolicy([left, right], slots=[0, 0, 1]).component_of(5)
    1
    """

    components: tuple[Policy, ...]
    tables: NDArray[Any]  # actions of all components, (M, H, S), or probabilities, (M, H, S, A)
    weights: Floats
    version: int
    slots: Ints | None

    def __init__(
        self,
        components: Sequence[Policy],
        weights: ArrayLike | None = None,
        version: int = 0,
        slots: ArrayLike | None = None,
    ) -> None:
        given = tuple(components)
        if not given or not all(isinstance(policy, Policy) for policy in given):
            raise InvalidArgument("components must be tacit Policies, at least one")
        if (weights is None) == (slots is None):
            raise InvalidArgument("give weights or slots, and not both")
        sizes = {(policy.horizon, policy.states, policy.n_actions) for policy in given}
        if len(sizes) > 1:
            raise InvalidArgument(f"components must be of one world, got sizes {sorted(sizes)}")
        if not all(policy.is_deterministic for policy in given):
            given = tuple(Policy(policy.table(), None, version) for policy in given)
        drawn = None if weights is None else np.array(weights)
        places = None if slots is None else np.array(slots)
        try:
            chances, places = published().check_mixed(len(given), drawn, places)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self.__dict__.update(
            components=tuple(policy.as_version(version) for policy in given),
            tables=_stacked(given),
            weights=chances,
            slots=places,
            version=version,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("what was published cannot change")

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

    @property
    def played(self) -> NDArray[np.bool_]:
        """Which actions anybody may take, (H, S, A)."""
        possible = [self.components[m].table() > 0 for m in np.flatnonzero(self.weights)]
        found: NDArray[np.bool_] = np.any(possible, axis=0)
        return found

    def table(self) -> Floats:
        """The chance of each action, (H, S, A), if nothing is known of the user's earlier steps."""
        mean: Floats = np.tensordot(
            self.weights, np.stack([policy.table() for policy in self.components]), axes=1
        )
        return mean

    def relabelled(self, permutation: Sequence[int]) -> MixedPolicy:
        """The same where action ``a`` is called ``permutation[a]``."""
        changed = [policy.relabelled(permutation) for policy in self.components]
        weights = self.weights if self.slots is None else None
        return MixedPolicy(changed, weights, self.version, self.slots)

    def draw(self, rng: np.random.Generator) -> int:
        """The component that a user follows, drawn once, before her first step."""
        return int(published().draw(self.weights, rng))

    def component_of(self, slot: int) -> int:
        """The component that belongs to a place in the block, from 0."""
        if self.slots is None:
            raise InvalidArgument("users draw their components: this policy has no slots")
        return int(self.slots[slot % len(self.slots)])

    def placed(self, first: int, users: int) -> Ints:
        """The components of so many users, of whom the first has place ``first`` in the block.

        -1, which is none, where users draw them, unless there is one for all.
        """
        if self.slots is None:
            return np.full(users, 0 if len(self.components) == 1 else -1, dtype=np.int64)
        return np.asarray(self.slots[(first + np.arange(users)) % len(self.slots)], dtype=np.int64)

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
        """The components of the users of a block, as their devices draw them or slots have them."""
        if self.slots is not None:
            return self.placed(0, users)
        possible = np.flatnonzero(self.weights)
        found = np.searchsorted(np.cumsum(self.weights[possible]), rng.random(users), side="right")
        return np.asarray(possible[np.minimum(found, len(possible) - 1)], dtype=np.int64)

    def split(self, users: int, rng: np.random.Generator) -> Ints:
        """How many users of a block follow each component: what :meth:`drawn` adds up to."""
        if self.slots is None:
            return np.asarray(rng.multinomial(users, self.weights), dtype=np.int64)
        size, rounds = len(self.components), users // len(self.slots)
        rest = self.slots[: users % len(self.slots)]
        return rounds * np.bincount(self.slots, minlength=size) + np.bincount(rest, minlength=size)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically, mode 0644; :mod:`tacit.published` reads it too."""
        labels = self.components[0].label_arrays()
        arrays = {"n_actions": np.array(self.n_actions)} | self.arrays() | labels
        write_published(path, self.version, arrays, kind="mixed")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MixedPolicy:
        """Reads what :meth:`publish` wrote, executing nothing; a CorruptFile if it is damaged."""
        reader = published()
        try:
            stored = reader.load(path)
            if not isinstance(stored, reader.PublishedMixed):
                raise ValueError(f"{os.fspath(path)!r} holds a policy of another kind")
            parts = [Policy(p.probabilities, p.actions, 0, p.n_actions) for p in stored.components]
            drawn = stored.weights if stored.slots is None else None
            first = stored.components[0]
            made = cls(parts, drawn, stored.version, stored.slots)
            return made.labelled(first.state_labels, first.action_labels)
        except ValueError as error:
            raise CorruptFile(str(error)) from error

    # Save and resume.

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All but the version: actions or probabilities, and weights or slots."""
        kind = "actions" if self.is_deterministic else "probabilities"
        drawn = {"weights": self.weights} if self.slots is None else {"slots": self.slots}
        return {kind: self.tables} | drawn

    @classmethod
    def of_arrays(
        cls, arrays: dict[str, NDArray[Any]], n_actions: int, version: int
    ) -> MixedPolicy:
        """The inverse of :meth:`arrays`, to the bit."""
        if "actions" in arrays:
            parts = [Policy.deterministic(a, n_actions, version) for a in arrays["actions"]]
        else:
            parts = [Policy(table, None, version) for table in arrays["probabilities"]]
        return cls(parts, arrays.get("weights"), version, arrays.get("slots"))

    def __repr__(self) -> str:
        how = "drawn" if self.slots is None else "by slot"
        return (
            f"<MixedPolicy version {self.version}: {len(self.components)} components, {how}, "
            f"{self.horizon} steps, {self.states} states, {self.n_actions} actions>"
        )


AnyPolicy = Policy | MixedPolicy


def _stacked(components: Sequence[Policy]) -> NDArray[Any]:
    stacked = np.stack([p.table() if p.actions is None else p.actions for p in components])
    stacked.setflags(write=False)
    return stacked


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
