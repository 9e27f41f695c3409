"""Finite worlds: simulated users whose probabilities, and so whose optimum, are known exactly.

What the families with finitely many states and actions have in common. Their worlds differ in how
they are described and in what an agent may know of them.

Episodes follow users one by one. Counts are how many of a block's users go where, which is all that
statistics linear in the counts need: while a policy is fixed, users are independent, so the users
in a state split over actions, rewards and next states by multinomials, at a cost that does not grow
with their number.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.world import Form
from tacit.data.episodes import Episodes
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import MALFORMED, only_numbers, parse_json, parse_toml, read_file
from tacit.privacy.statistic import Block, Ints, StreamedBlock
from tacit.privacy.validation import (
    Floats,
    check_bytes,
    check_users,
    fitting,
    numbers,
    whole_number,
)
from tacit.tabular.model import (
    FiniteModel,
    SparseModel,
    check_policy,
    conditional_chances,
    cumulative_chances,
    evaluate,
    optimal,
)
from tacit.tabular.policy import AnyPolicy, MixedPolicy, Policy, uniform_policy
from tacit.tabular.spec import FiniteSpec, check_distributions

ROUNDING = 1e-9
"""What an exact product of features and weights may lack by rounding."""
BERNOULLI: Floats = np.array([0.0, 1.0])
BERNOULLI.setflags(write=False)
# In place of the table that a policy does not have. Read-only as policies are, so that loops are
# compiled once.
_NO_ACTIONS = np.zeros((1, 1), dtype=np.int64)
_NO_ACTIONS.setflags(write=False)
_NO_CHOICES = np.zeros((1, 1, 1))
# Users of a part of a streamed block.
_PART = 1 << 15
FORMS: tuple[Form, ...] = get_args(Form)
"""Forms in which users come."""
SPARSE_FORMS: tuple[Form, ...] = ("episodes", "streamed")
"""The same where only possible transitions are stored: sums would have S A S entries."""


class FiniteWorld:
    """A world with finitely many states and actions; built-in ones have names that rebuild them."""

    _reference = 0.0
    _valued: FiniteModel | None = None
    units = (0.0, 1.0)
    """What a value of the model is in the world's own units: the first, plus the second times it;
    they differ where rewards were rescaled."""

    def __init__(self, model: FiniteModel, name: str) -> None:
        self.model = model
        self.name = name

    def _become(self, world: Any) -> None:
        """Has the users of another world, however its rewards are drawn."""
        self.model, self._valued = model_of(world), getattr(world, "_valued", None)
        self._reference = float(getattr(world, "reference_value", 0.0))
        self.units = getattr(world, "units", self.units)

    def _sizes(self) -> dict[str, Any]:
        """Fields of the spec that all finite worlds have."""
        names = ("states", "actions", "horizon", "reward_values", "start")
        return {name: getattr(self.model.spec, name) for name in names}

    @property
    def spec(self) -> FiniteSpec:
        """Public facts, for agents."""
        return self.model.spec

    @property
    def valued(self) -> FiniteModel:
        """The model that values are of: the one that users live in, unless agents see another."""
        return self._valued or self.model

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """A block of users. Args: see World.simulate."""
        return simulate(self.model, policy, users, rng, form)

    def value(self, policy: AnyPolicy) -> float:
        """The expected sum of rewards of an episode under a policy, exactly."""
        return float(self.returns(evaluate(self.valued, policy)))

    def returns(self, values: Any) -> Any:
        """Values of the model in the world's own units."""
        return self.units[0] + self.units[1] * values

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
        return self._reference

    @cached_property
    def baseline_value(self) -> float:
        """The value of acting uniformly at random, as far as states allow."""
        return self.value(uniform_policy(self.spec))

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"<{type(self).__name__} {self.name!r}: {spec.states} states, {spec.actions} actions, "
            f"{spec.horizon} steps>"
        )

    @cached_property
    def _optimal(self) -> tuple[float, Policy]:
        V, policy = optimal(self.valued)
        return float(self.returns(self.valued.start @ V[0])), policy


# What descriptions of worlds consist of.
def model_of(world: Any) -> FiniteModel:
    """The probabilities of a world, or a world's probabilities themselves."""
    model = world if isinstance(world, FiniteModel) else getattr(world, "model", None)
    if not isinstance(model, FiniteModel):
        raise InvalidArgument(
            f"world must be a FiniteModel or have one, got {type(world).__name__}"
        )
    return model


def weighed(name: str, steps: Iterable[Floats], shape: tuple[int, ...]) -> Floats:
    """Transitions that features and weights make, step by step, but for what rounding adds."""
    check_bytes("transitions", shape)
    P = np.empty(shape)
    for h, step in enumerate(steps):
        P[h] = step
    P[(P < 0) & (P >= -ROUNDING)] = 0.0
    return check_distributions(name, P, shape)


def bernoulli(name: str, means: Floats) -> Floats:
    """The probabilities of the rewards 0 and 1, (L, S, A, 2), from their means, (L, S, A)."""
    bad = np.argwhere(~((means >= 0) & (means <= 1)))
    if len(bad):
        step, state, action = bad[0].tolist()
        raise InvalidArgument(
            f"{name} at step {step}, state {state}, action {action} must be in [0, 1], "
            f"got {means[step, state, action]}"
        )
    return np.stack([1.0 - means, means], axis=-1)


def start_distribution(start: Any, states: int) -> NDArray[Any]:
    """The distribution of the first state, from itself or from a single state."""
    if np.ndim(fitting("start", start)) > 0:
        return numbers("start", start)
    if isinstance(start, bool) or not isinstance(start, (int, np.integer)):
        raise InvalidArgument(f"start must be a state or a distribution of states, got {start!r}")
    if not 0 <= start < states:
        raise InvalidArgument(f"start must be a state in 0..{states - 1}, got {start!r}")
    distribution = np.zeros(states)
    distribution[start] = 1.0
    return distribution


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
        horizon = whole_number("horizon", horizon)
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

    A state allows the actions that have transitions, and no policy may choose others: these sets
    are part of its spec, public. Rewards are decided by the transition. Labels of actions are the
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
    is no such description.
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


def _from_description(described: Any, default_name: str) -> TabularWorld:
    required, optional = {"transitions", "rewards", "horizon"}, {"start", "name"}
    if not isinstance(described, dict) or not required <= {*described} <= required | optional:
        raise InvalidArgument(f"it must have {sorted(required)} and may have {sorted(optional)}")
    arguments = {"name": default_name, **described}
    if not isinstance(arguments["name"], str):
        raise InvalidArgument(f"name must be a text, got {arguments['name']!r}")
    rewards = arguments["rewards"]
    if isinstance(rewards, dict):
        if set(rewards) != {"values", "probabilities"}:
            raise InvalidArgument("rewards must have 'values' and 'probabilities'")
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


# Simulation of blocks.


def simulate(
    model: FiniteModel | SparseModel,
    policy: AnyPolicy,
    users: int,
    rng: np.random.Generator,
    form: Form = "episodes",
) -> Episodes | Block:
    """A block of users; see :class:`~tacit.core.world.World` for its forms.

    Args:
        model: the world.
        policy: that they follow.
        users: how many, at most 10^12.
        rng: of what they do.
        form: episodes, all in memory or streamed; or sums, pooled over steps or not.
    """
    forms = SPARSE_FORMS if isinstance(model, SparseModel) else FORMS
    if form not in forms:
        raise InvalidArgument(f"form must be one of {forms} in this world, got {form!r}")
    check_policy(model, policy)
    if form == "streamed":
        return _streamed(model, policy, check_users(users), rng)
    if form == "episodes" or isinstance(model, SparseModel):
        return simulate_episodes(model, policy, users, rng)
    return _counts(model, policy, users, rng, pooled=form == "pooled")


def _counts(
    model: FiniteModel, policy: AnyPolicy, users: int, rng: np.random.Generator, pooled: bool
) -> Block:
    """Transitions and rewards of users; those of a mixed policy are split over its components."""
    from tacit.tabular.simulate_loops import sum_rewards

    if isinstance(policy, MixedPolicy):
        split = rng.multinomial(check_users(users), policy.weights)
        # With no users at all the first component has the zeros.
        some = np.flatnonzero(split) if users else [0]
        parts = [_counts(model, policy.components[m], split[m], rng, pooled) for m in some]
        arrays = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0].arrays}
        return Block(int(users), arrays, aggregate=True)
    steps = 1 if pooled else model.horizon
    shape = (steps, model.states, model.actions, model.states)
    check_bytes("transitions of a block (pooled=True makes them smaller)", shape)
    transitions = np.zeros(shape, dtype=np.int64)
    visits = _count_moves(model, policy, users, rng, transitions)
    rewards = np.zeros(shape[:3])
    if model.transition_rewards is not None:
        for step in range(steps):
            rewards[step] = (transitions[step] * model.transition_rewards).sum(axis=2)
    else:
        if pooled and len(model.reward_probabilities) == 1:
            # The sum of binomials with one probability is a binomial.
            visits = visits.sum(axis=0, keepdims=True)
        sum_rewards(rng, visits, model.conditional_rewards, model.reward_values, rewards)
    return Block(int(users), {"transitions": transitions, "rewards": rewards}, aggregate=True)


def _streamed(
    model: FiniteModel | SparseModel, policy: AnyPolicy, users: int, rng: np.random.Generator
) -> StreamedBlock:
    """Users one by one, some thousand in memory at a time, the same whenever they are made."""
    entropy = rng.integers(2**63, size=2).tolist()

    def parts() -> Iterator[Block]:
        for part, first in enumerate(range(0, max(users, 1), _PART)):
            own = np.random.default_rng(np.random.SeedSequence([*entropy, part]))
            yield simulate_episodes(model, policy, min(_PART, users - first), own).block()

    return StreamedBlock(users, parts)


def simulate_episodes(
    model: FiniteModel | SparseModel, policy: AnyPolicy, users: int, rng: np.random.Generator
) -> Episodes:
    """Users one by one: states (n, H + 1), actions, rewards (n, H), and the policy's version.

    Those of a mixed policy have its ``components``.

    Args:
        model: the world.
        policy: that they follow.
        users: how many.
        rng: of what they do.
    """
    from tacit.tabular.simulate_loops import roll_out, roll_out_sparse

    check_policy(model, policy)
    users = check_users(users)
    H = model.horizon
    check_bytes("episodes of a block", (users, 3 * H + 2))
    states = np.empty((users, H + 1), dtype=np.int64)
    actions = np.empty((users, H), dtype=np.int64)
    rewards = np.empty((users, H))
    components, drawn = None, np.zeros(1, dtype=np.int64)
    deterministic, told, choices = _choices(policy, cumulative_chances)
    if isinstance(policy, MixedPolicy):
        components = drawn = policy.drawn(users, rng)
    else:
        told, choices = told[np.newaxis], choices[np.newaxis]
    following = (deterministic, told, choices, drawn)
    if isinstance(model, SparseModel):
        roll_out_sparse(rng, *model.chances, *following, states, actions, rewards)
    else:
        roll_out(rng, *model.chances, *following, states, actions, rewards)
    if isinstance(model, FiniteModel) and model.transition_rewards is not None:
        rewards = model.transition_rewards[states[:, :-1], actions, states[:, 1:]]
    versions = np.full(users, policy.version, dtype=np.int64)
    return Episodes(states, actions, rewards, versions, components=components)


def _choices(policy: AnyPolicy, chances: Callable[[Floats], Floats]) -> tuple[bool, Ints, Floats]:
    """Whether it is deterministic, its actions, and a sampler's choices, of components first."""
    if isinstance(policy, MixedPolicy):
        if policy.is_deterministic:
            return True, policy.tables, _NO_CHOICES[np.newaxis]
        return False, _NO_ACTIONS[np.newaxis], chances(policy.tables)
    if policy.actions is not None:
        return True, policy.actions, _NO_CHOICES
    return False, _NO_ACTIONS, chances(policy.table())


def _count_moves(
    model: FiniteModel, policy: Policy, users: int, rng: np.random.Generator, transitions: Ints
) -> Ints:
    """Fills transitions, (H or 1, S, A, S); returns visits, (H, S, A)."""
    from tacit.tabular.simulate_loops import count_moves

    visits = np.zeros((model.horizon, *transitions.shape[1:3]), dtype=np.int64)
    first, moves = model.first_states, model.moves
    drawn = first.successors[0], first.conditional[0], moves.successors, moves.conditional
    chosen = _choices(policy, conditional_chances)
    count_moves(rng, check_users(users), *drawn, *chosen, visits, transitions)
    return visits
