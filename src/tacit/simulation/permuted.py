"""Worlds with other labels of actions, so that no label is better than another by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.world import Data, Form, World
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, StreamedBlock

# Arrays of aggregate blocks: (.., S, A, S) and (.., S, A).
_ACTION_AXES = {"transitions": -2, "rewards": -1}


class PermutedWorld:
    """A world whose actions have other labels: what this one calls ``a``, it ``permutation[a]``.

    Labels are part of nothing else that is known of it.
    """

    name: str
    spec: Any
    optimal_value: float
    baseline_value: float
    reference_value: float

    def __init__(self, world: World, permutation: tuple[int, ...]) -> None:
        actions = world.spec.actions
        if sorted(permutation) != list(range(actions)):
            raise InvalidArgument(
                f"permutation is {permutation!r}, but must hold each of the {actions} actions once"
            )
        self.world, self.permutation = world, permutation

    @classmethod
    def draw(cls, world: World, rng: np.random.Generator) -> PermutedWorld:
        """Labels in random order."""
        return cls(world, tuple(rng.permutation(world.spec.actions).tolist()))

    def __getattr__(self, name: str) -> Any:
        if name not in PermutedWorld.__annotations__:
            raise AttributeError(f"a world with other labels has no attribute {name!r}")
        return getattr(self.world, name)

    def translate(self, policy: Any) -> Any:
        """A policy in these labels as one in the world's own."""
        return policy.relabelled(self.permutation)

    def value(self, policy: Any) -> float:
        """The value of a policy in these labels."""
        return self.world.value(self.translate(policy))

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """Simulates users, in these labels.

        Args:
            policy: Serves them, in these labels.
            users: How many.
            rng: Source of randomness.
            form: Form of the data; see :class:`~tacit.core.world.World`.
        """
        data = self.world.simulate(self.translate(policy), users, rng, form)
        if isinstance(data, StreamedBlock):
            parts = data.parts
            return StreamedBlock(data.users, lambda: map(self._rows, parts()))
        if isinstance(data, (Episodes, VectorEpisodes)):
            return data.of_block(self._rows(data.block()), data.user_ids)
        if not data.aggregate:
            return self._rows(data)
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in data.arrays.items():
            if name in _ACTION_AXES:
                arrays[name] = np.take(array, self.permutation, axis=_ACTION_AXES[name])
            else:
                raise InvalidArgument(
                    f"the block has an array {name!r}, but only {list(_ACTION_AXES)} have a known "
                    "axis of actions"
                )
        return Block(data.users, arrays, data.aggregate)

    def _rows(self, block: Block) -> Block:
        """Users one by one, in these labels."""
        relabelled = {"actions": self._relabel(block["actions"])}
        return Block(block.users, dict(block.arrays) | relabelled)

    def _relabel(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The world's labels as these; what is no action stays as it is."""
        inverse = np.argsort(self.permutation)
        if actions.size and actions.min() >= 0 and actions.max() < len(inverse):
            return np.take(inverse, actions)
        valid = (actions >= 0) & (actions < len(inverse))
        return np.where(valid, inverse[np.where(valid, actions, 0)], actions)
