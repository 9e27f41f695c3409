"""Tabular worlds with many states, of which only the possible transitions are stored."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from tacit.finite.sparse import SparseModel
from tacit.finite.world import FiniteWorld, start_distribution


class SparseWorld(FiniteWorld):
    """A finite world given by its possible transitions, one entry each.

    A state allows the actions that have transitions, and nobody may choose others: these sets are
    part of its spec, public. Rewards are decided by the transition. Labels of actions are the
    world's own, since sets of them mean something.

    Args:
        states: S, how many.
        actions: A, how many.
        horizon: H, steps of an episode.
        source: the state before, (n,).
        action: what is done there.
        target: the state after it.
        probability: of the transition given state and action.
        reward: that it pays, in [0, 1].
        start: the first state, or the distribution of it, (S,).
        largest_return: what the rewards of an episode add up to at most, where that is known.
        name: what it is called.

    >>> world = SparseWorld(
    ...     states=2, actions=3, horizon=2, source=[0, 0, 1], action=[0, 2, 1], target=[0, 1, 1],
    ...     probability=[1.0, 1.0, 1.0], reward=[0.0, 0.0, 1.0])
    >>> world.spec.admissible, world.optimal_value, world.baseline_value
    (((0, 2), (1,)), 1.0, 0.5)
    """

    exchangeable_actions = False
    model: Any

    def __init__(
        self,
        states: int,
        actions: int,
        horizon: int,
        source: ArrayLike,
        action: ArrayLike,
        target: ArrayLike,
        probability: ArrayLike,
        reward: ArrayLike,
        start: int | ArrayLike = 0,
        largest_return: float | None = None,
        name: str = "sparse",
    ) -> None:
        columns: dict[str, Any] = {
            "source": source,
            "action": action,
            "target": target,
            "probability": probability,
            "reward": reward,
            "start": start_distribution(start, states),
        }
        model: Any = SparseModel(states, actions, horizon, largest_return=largest_return, **columns)
        super().__init__(model, name)
