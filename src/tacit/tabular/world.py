"""Tabular worlds: simulated users in a finite world whose optimum is known exactly."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_size, numbers
from tacit.finite.model import FiniteModel
from tacit.finite.sparse import SparseModel
from tacit.finite.world import BERNOULLI, FiniteWorld, bernoulli, start_distribution
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import MALFORMED, only_numbers, parse_json, parse_toml, read_file


class TabularWorld(FiniteWorld):
    """A finite world given by its tables.

    Args:
        transitions: (S, A, S), or (H, S, A, S) where they depend on the step.
        rewards: means of Bernoulli rewards, (S, A) or (H, S, A); or a pair of the values that a
            reward can have, (m,), in [0, 1], and their probabilities, (S, A, m) or (H, S, A, m).
        horizon: H, steps of an episode.
        start: the first state, or the distribution of it, (S,).
        name: what it is called; the built-in worlds have names that rebuild them.

    >>> stay, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> world = TabularWorld(np.stack([stay, swap], axis=1), [[0, 0], [1, 1]], horizon=3)
    >>> world.optimal_value, world.baseline_value
    (2.0, 1.0)
    >>> world.optimal_policy.actions.tolist()
    [[1, 0], [1, 0], [0, 0]]
    """

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike | tuple[ArrayLike, ArrayLike],
        horizon: int,
        start: int | ArrayLike = 0,
        name: str | None = None,
    ) -> None:
        horizon = check_size("horizon", horizon)
        table = numbers("transitions", transitions)
        if table.ndim == 3:
            table = table[np.newaxis]
        if table.ndim != 4 or table.shape[1] != table.shape[3] or len(table) not in (1, horizon):
            raise InvalidArgument(
                f"transitions must have shape (S, A, S) or ({horizon}, S, A, S), "
                f"got {np.shape(transitions)}"
            )
        values, probabilities = _rewards(rewards, table.shape[1:3], horizon)
        model = FiniteModel(
            transitions=table,
            reward_probabilities=probabilities,
            reward_values=values,
            start=start_distribution(start, table.shape[1]),
            horizon=horizon,
        )
        super().__init__(model, "tabular" if name is None else str(name))


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


def load_world(path: str | os.PathLike[str]) -> TabularWorld:
    """A world from a description in a ``.json`` or ``.toml`` file.

    The file has ``transitions``, ``rewards`` and ``horizon``, and may have ``start`` and ``name``,
    all as :class:`TabularWorld` takes them, with arrays as nested lists. Rewards that are not
    Bernoulli are a table with ``values`` and ``probabilities``. An InvalidArgument says why a file
    is no such description; :func:`world_schema` is for editors, which find a file's mistakes while
    it is written.
    """
    file = Path(path)
    try:
        if file.suffix not in (".json", ".toml"):
            raise InvalidArgument(f"the name must end in .json or .toml, got {file.name!r}")
        data = read_file(path, "world")
        described = parse_json(data) if file.suffix == ".json" else parse_toml(data)
        return _from_description(described, default_name=file.stem)
    except (CorruptFile, *MALFORMED) as error:
        reason = textwrap.shorten(str(error), 500)
        raise InvalidArgument(f"{os.fspath(path)!r} describes no world: {reason}") from error


def world_schema() -> dict[str, Any]:
    """The JSON schema of files that describe a world."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("world.schema.json").read_text())
    return schema


def _from_description(described: Any, default_name: str) -> TabularWorld:
    required, optional = {"transitions", "rewards", "horizon"}, {"start", "name", "$schema"}
    if not isinstance(described, dict):
        raise InvalidArgument(f"it must be a table, got {type(described).__name__}")
    missing, unknown = required - set(described), set(described) - required - optional
    if missing or unknown:
        raise InvalidArgument(
            f"it must have {sorted(required)} and may have {sorted(optional)}; "
            f"missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    arguments = {"name": default_name, **described}
    arguments.pop("$schema", None)
    if not isinstance(arguments["name"], str):
        raise InvalidArgument(f"name must be a text, got {arguments['name']!r}")
    rewards = arguments["rewards"]
    if isinstance(rewards, dict):
        if set(rewards) != {"values", "probabilities"}:
            raise InvalidArgument(
                f"rewards must have 'values' and 'probabilities', got {sorted(rewards)}"
            )
        rewards = [rewards["values"], rewards["probabilities"]]
        arguments["rewards"] = tuple(rewards)
    tables = {"transitions": arguments["transitions"], "rewards": rewards}
    for name, table in (tables | {"start": arguments.get("start", 0)}).items():
        if not only_numbers(table):
            raise InvalidArgument(f"{name} must be numbers alone")
    return TabularWorld(**arguments)


def _rewards(rewards: Any, sizes: tuple[int, ...], horizon: int) -> tuple[Floats, Floats]:
    """Values (m,) and probabilities (1 or H, S, A, m)."""
    if isinstance(rewards, tuple) and len(rewards) == 2 and np.ndim(rewards[0]) == 1:
        values = numbers("reward values", rewards[0]).astype(np.float64)
        table = numbers("reward probabilities", rewards[1])
        if table.ndim == 3:
            table = table[np.newaxis]
        if table.ndim != 4 or table.shape[1:] != (*sizes, len(values)):
            raise InvalidArgument(
                f"reward probabilities must have shape {(*sizes, len(values))}, or that with "
                f"{horizon} steps in front, got {np.shape(rewards[1])}"
            )
        return values, table
    means = numbers("rewards", rewards).astype(np.float64)
    if means.ndim == 2:
        means = means[np.newaxis]
    if means.ndim != 3 or means.shape[1:] != sizes or len(means) not in (1, horizon):
        raise InvalidArgument(
            f"rewards must be means of shape {sizes} or {(horizon, *sizes)}, or a pair of values "
            f"and probabilities, got shape {np.shape(rewards)}"
        )
    return BERNOULLI, bernoulli("rewards", means)
