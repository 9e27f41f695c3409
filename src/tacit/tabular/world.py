"""Tabular worlds: simulated users in a finite world whose optimum is known exactly."""

from __future__ import annotations

import json
import os
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import finite
from tacit.policy import Policy
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.episodes import Episodes
    from tacit.privacy.statistic import Block

Floats = NDArray[np.float64]
Form = Literal["episodes", "counts", "pooled"]
FORMS = ("episodes", "counts", "pooled")


class TabularWorld:
    """A finite world given by its tables.

    Args:
        transitions: (S, A, S), or (H, S, A, S) where they depend on the step.
        rewards: means of Bernoulli rewards, (S, A) or (H, S, A); or a pair of the values that a
            reward can have, (m,), in [0, 1], and their probabilities, (S, A, m) or (H, S, A, m).
        horizon: H, steps of an episode.
        start: the first state, or the distribution of it, (S,).
        name: what it is called; the built-in worlds have names that rebuild them.

    Attributes:
        model: the probabilities, checked.
        name: as given.

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
        horizon = finite.check_size("horizon", horizon)
        table = _numbers("transitions", transitions)
        if table.ndim == 3:
            table = table[np.newaxis]
        if table.ndim != 4 or table.shape[1] != table.shape[3] or len(table) not in (1, horizon):
            raise InvalidArgument(
                f"transitions must have shape (S, A, S) or ({horizon}, S, A, S), "
                f"got {np.shape(transitions)}"
            )
        values, probabilities = _rewards(rewards, table.shape[1:3], horizon)
        self.model = finite.FiniteModel(
            transitions=table,
            reward_probabilities=probabilities,
            reward_values=values,
            start=_start(start, table.shape[1]),
            horizon=horizon,
        )
        self.name = "tabular" if name is None else str(name)

    @property
    def spec(self) -> finite.FiniteSpec:
        """What an agent may know."""
        return self.model.spec

    def simulate(
        self, policy: Policy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """A block of users who follow a policy.

        Args:
            policy: what they all follow.
            users: how many.
            rng: the randomness of users and world.
            form: ``"episodes"`` for an :class:`~tacit.episodes.Episodes` of single users;
                ``"counts"`` for a block of counts per step and ``"pooled"`` for one of counts
                summed over steps, both at a cost that does not grow with the users.
        """
        if form == "episodes":
            return finite.simulate_episodes(self.model, policy, users, rng)
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS}, got {form!r}")
        return finite.simulate_counts(self.model, policy, users, rng, pooled=form == "pooled")

    def value(self, policy: Policy) -> float:
        """The expected sum of rewards of an episode under a policy, exactly."""
        return finite.evaluate(self.model, policy)

    @property
    def optimal_value(self) -> float:
        """The largest value that any policy has."""
        return self._optimal[0]

    @property
    def optimal_policy(self) -> Policy:
        """A policy that has it."""
        return self._optimal[1]

    @property
    def reference_value(self) -> float:
        """The zero point of losses: no reward at all."""
        return 0.0

    @cached_property
    def baseline_value(self) -> float:
        """The value of acting uniformly at random."""
        spec = self.spec
        return self.value(Policy.uniform(spec.horizon, spec.states, spec.actions))

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"<{type(self).__name__} {self.name!r}: {spec.states} states, {spec.actions} actions, "
            f"{spec.horizon} steps>"
        )

    @cached_property
    def _optimal(self) -> tuple[float, Policy]:
        V, policy = finite.optimal(self.model)
        return float(self.model.start @ V[0]), policy


def load_world(path: str | os.PathLike[str]) -> TabularWorld:
    """A world from a description in a ``.json`` or ``.toml`` file.

    The file has ``transitions``, ``rewards`` and ``horizon``, and may have ``start`` and ``name``,
    all as :class:`TabularWorld` takes them, with arrays as nested lists. Rewards that are not
    Bernoulli are a table with ``values`` and ``probabilities``.

    Raises:
        InvalidArgument: the file is no such description; the message names it and the reason.
        OSError: it cannot be opened; a missing one is a FileNotFoundError.
    """
    file = Path(path)
    try:
        described = _parse(file)
        return _from_description(described, default_name=file.stem)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{os.fspath(path)!r} describes no world: {error}") from error


def _parse(file: Path) -> Any:
    if file.suffix not in (".json", ".toml"):
        raise InvalidArgument(f"the name must end in .json or .toml, got {file.name!r}")
    text = file.read_text(encoding="utf-8")
    return json.loads(text) if file.suffix == ".json" else tomllib.loads(text)


def _from_description(described: Any, default_name: str) -> TabularWorld:
    required, optional = {"transitions", "rewards", "horizon"}, {"start", "name"}
    if not isinstance(described, dict):
        raise InvalidArgument(f"it must be a table, got {type(described).__name__}")
    missing, unknown = required - set(described), set(described) - required - optional
    if missing or unknown:
        raise InvalidArgument(
            f"it must have {sorted(required)} and may have {sorted(optional)}; "
            f"missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    arguments = {"name": default_name, **described}
    rewards = arguments["rewards"]
    if isinstance(rewards, dict):
        if set(rewards) != {"values", "probabilities"}:
            raise InvalidArgument(
                f"rewards must have 'values' and 'probabilities', got {sorted(rewards)}"
            )
        arguments["rewards"] = (rewards["values"], rewards["probabilities"])
    return TabularWorld(**arguments)


def _numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidArgument(f"{name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "iufb":
        raise InvalidArgument(f"{name} must be an array of numbers, got dtype {array.dtype}")
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def _rewards(rewards: Any, sizes: tuple[int, ...], horizon: int) -> tuple[Floats, Floats]:
    """Values (m,) and probabilities (1 or H, S, A, m)."""
    if isinstance(rewards, tuple) and len(rewards) == 2 and np.ndim(rewards[0]) == 1:
        values = _numbers("reward values", rewards[0]).astype(np.float64)
        table = _numbers("reward probabilities", rewards[1])
        if table.ndim == 3:
            table = table[np.newaxis]
        if table.ndim != 4 or table.shape[1:] != (*sizes, len(values)):
            raise InvalidArgument(
                f"reward probabilities must have shape {(*sizes, len(values))}, or that with "
                f"{horizon} steps in front, got {np.shape(rewards[1])}"
            )
        return values, table
    means = _numbers("rewards", rewards).astype(np.float64)
    if means.ndim == 2:
        means = means[np.newaxis]
    if means.ndim != 3 or means.shape[1:] != sizes or len(means) not in (1, horizon):
        raise InvalidArgument(
            f"rewards must be means of shape {sizes} or {(horizon, *sizes)}, or a pair of values "
            f"and probabilities, got shape {np.shape(rewards)}"
        )
    bad = np.argwhere(~((means >= 0) & (means <= 1)))
    if len(bad):
        step, state, action = bad[0].tolist()
        raise InvalidArgument(
            f"rewards at step {step}, state {state}, action {action} must be in [0, 1], "
            f"got {means[step, state, action]}"
        )
    return np.array([0.0, 1.0]), np.stack([1.0 - means, means], axis=-1)


def _start(start: Any, states: int) -> Floats:
    if np.ndim(start) > 0:
        return _numbers("start", start)
    if isinstance(start, bool) or not isinstance(start, (int, np.integer)):
        raise InvalidArgument(f"start must be a state or a distribution of states, got {start!r}")
    if not 0 <= start < states:
        raise InvalidArgument(f"start must be a state in 0..{states - 1}, got {start!r}")
    distribution = np.zeros(states)
    distribution[start] = 1.0
    return distribution
