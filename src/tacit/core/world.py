"""Worlds: environments of simulated users with a known optimum. An agent never sees one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.public_file import published, published_bytes, write_published
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.statistic import Block, Floats, StreamedBlock

Form: TypeAlias = Literal["episodes", "streamed", "counts", "pooled"]
"""Forms of simulated users: episodes one by one, the same made part by part, exact sums per step,
sums over all steps, or sums per step of a deterministic policy's own actions."""

Data: TypeAlias = Episodes | VectorEpisodes | Block
"""Episodes of users: one by one, or as the sums of a simulation."""


class SimulatedUsers(Protocol):
    """Simulated users."""

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """Episodes of users who follow a policy.

        Args:
            policy: Published by an agent.
            users: How many.
            rng: Of the users.
            form: ``"episodes"`` are an :class:`~tacit.data.episodes.Episodes` (where states are
                vectors, a :class:`~tacit.data.episodes.VectorEpisodes`), and ``"streamed"`` a
                :class:`~tacit.privacy.statistic.StreamedBlock` of the same. The others are
                aggregate blocks, whose ``transitions`` count users and whose ``rewards`` add up:
                ``"counts"``, (H, S, A, S) and (H, S, A); ``"pooled"``, the same summed over steps,
                with a first axis of 1. A world may refuse forms that it has no use for.
        """


class World(SimulatedUsers, Protocol):
    """Simulated users with a known optimum, at every call new ones."""

    @property
    def name(self) -> str:
        """A text that rebuilds the world, such as "riverswim:states=6,horizon=20"."""

    @property
    def spec(self) -> Any:
        """Public facts: sizes, horizon, bounds."""

    @property
    def optimal_value(self) -> float:
        """The best that any policy reaches."""

    @property
    def baseline_value(self) -> float:
        """The value of not having learnt anything."""

    @property
    def reference_value(self) -> float:
        """The zero point of losses."""

    def value(self, policy: Any) -> float:
        """The exact expected return of a user who follows the policy."""


class SamePeople(SimulatedUsers, Protocol):
    """The same people, a look further at every call: the ``cohort(rng)`` of some worlds."""

    @property
    def served(self) -> int:
        """Whole histories that were served so far."""

    @property
    def served_value(self) -> float:
        """Value of what they were given since the look before, for their own histories too."""


@dataclass(frozen=True, eq=False)
class PolicyMixture:
    """Policies of any kind, of which a user draws one and follows it for a whole episode.

    Tables have a :class:`~tacit.tabular.policy.MixedPolicy`, which worlds simulate at once.
    """

    components: tuple[Any, ...]
    weights: Floats  # with which chance each is drawn
    version: int = 0  # which policy of its agent it is; components have the same

    def as_version(self, version: int) -> PolicyMixture:
        """The same policy by another number."""
        parts = tuple(part.as_version(version) for part in self.components)
        return replace(self, components=parts, version=version)

    def relabelled(self, permutation: Sequence[int]) -> PolicyMixture:
        """The same where action ``a`` is called ``permutation[a]``."""
        parts = tuple(part.relabelled(permutation) for part in self.components)
        return replace(self, components=parts)

    def drawn(self, users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The components of users, as their devices draw them."""
        return rng.choice(len(self.weights), size=users, p=self.weights)

    def act(self, step: int, state: Any, rng: Any, *component: int) -> Any:
        """The action of the component that was drawn for the episode."""
        return self.components[component[0]].act(step, state, rng)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, with a file of each component in it."""
        parts = [published_bytes(part, {}).decode() for part in self.components]
        write_published(
            path, self.version, {"parts": np.array(parts), "weights": self.weights}, kind="arms"
        )


def mixture(policies: Sequence[Any], chances: Floats) -> PolicyMixture:
    """The policy whose users follow one of several, by chances in proportion to these."""
    weights = published().check_mixed(len(policies), chances / chances.sum())
    version = policies[0].version
    return PolicyMixture(tuple(p.as_version(version) for p in policies), weights, version)


def simulate(
    world: SimulatedUsers, policy: Any, users: int, rng: np.random.Generator, form: Form
) -> Data:
    """Episodes of new users of a policy; those of a mixture are split over its components.

    Args:
        world: Of the users.
        policy: That serves them.
        users: How many.
        rng: Of the users, and of what they draw.
        form: Form of the data; see :meth:`SimulatedUsers.simulate`.
    """
    split, parts = rng.multinomial(users, policy.weights).tolist(), list[Block]()
    for component, count in enumerate(split):
        data = world.simulate(policy.components[component], count, rng, form) if count else None
        if data is not None:
            block = data if isinstance(data, Block) else data.block()
            parts.append(_drawn(block, component))
    if any(isinstance(part, StreamedBlock) for part in parts):
        return StreamedBlock(users, lambda: (piece for part in parts for piece in _pieces(part)))
    names = parts[0].arrays
    return Block(users, {name: np.concatenate([part[name] for part in parts]) for name in names})


def _pieces(block: Block) -> Iterator[Block]:
    return block.parts() if isinstance(block, StreamedBlock) else iter((block,))


def _drawn(block: Block, component: int) -> Block:
    """A block whose users all drew one component."""
    if isinstance(block, StreamedBlock):
        return StreamedBlock(block.users, lambda: (_drawn(p, component) for p in block.parts()))
    column = np.full(block.users, component, dtype=np.int64)
    return Block(block.users, {**block.arrays, "components": column}, block.aggregate)
