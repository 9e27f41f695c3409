"""Gymnasium, in both directions: its environments as worlds, and our worlds as environments.

:mod:`tacit.envs` registers ours. What theirs do not say is by :mod:`tacit.finite.imported`'s rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tacit.core.episodes import Episodes
from tacit.core.sizes import check_bytes, check_size, check_users
from tacit.core.world import Form
from tacit.finite.env import FiniteEnv, env_maker
from tacit.finite.imported import (
    TRANSPARENT,
    horizon_of,
    name_of,
    numbered,
    opened,
    rewards_of,
    transparent,
)
from tacit.finite.mixed_policy import AnyPolicy, MixedPolicy
from tacit.finite.model import FiniteModel, check_policy
from tacit.finite.policy import Policy
from tacit.finite.simulate import check_deterministic, occupancy_block
from tacit.finite.spec import FiniteSpec
from tacit.finite.world import UNSTREAMED, FiniteWorld
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.tabular import worlds
from tacit.tabular.sparse_world import SparseWorld
from tacit.tabular.world import TabularWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Simulated users that a value is the mean of.
_EVALUATED = 1000


class ImportedWorld(TabularWorld):
    """An environment whose table is known, as a world: all values are exact.

    States and actions keep the environment's numbers. An episode that ends early stays where it
    ended, with reward 0, until the horizon. For agents rewards are rescaled to [0, 1]:

        environment's reward = reward_offset + reward_scale * agent's reward

    Values are in the environment's own units: expected sums of its rewards. Since they may be
    negative, losses are relative to the baseline: ``reference_value`` is ``baseline_value``.

    Attributes:
        reward_offset: see above.
        reward_scale: see above.
        assumed: what was taken by rule, in words.
    """

    def __init__(
        self,
        model: FiniteModel,
        name: str,
        reward_offset: float,
        reward_scale: float,
        assumed: Sequence[str] = (),
    ) -> None:
        FiniteWorld.__init__(self, model, name)
        self.reward_offset = reward_offset
        self.reward_scale = reward_scale
        self.units = model.horizon * reward_offset, reward_scale
        self.assumed = tuple(assumed)

    @property
    def reference_value(self) -> float:
        """The value of acting uniformly at random."""
        return self.baseline_value


class SampledWorld:
    """An environment without a table: users are simulated one by one, values are estimated.

    Observations are numbered in row-major order where there are several. The last state is added:
    an episode that ends early stays there, with the environment's reward 0, until the horizon.
    For agents rewards are clipped to ``reward_range``, rescaled to [0, 1] as in
    :class:`ImportedWorld`, and rounded at random to 0 or 1, which keeps their means. Values are in
    the environment's own units: means of what it paid, without any clip.

    Attributes:
        spec: what an agent may know.
        name: what it is called.
        reward_offset: the lower end of the range.
        reward_scale: its length.
        evaluation_users: how many simulated users a value is the mean of. They are the same in
            every call, so equal policies have equal values.
        assumed: what was taken by rule, in words.
        exact: ``False``: values are estimates.
        optimal_value: as given by the caller; NaN if not, since nobody knows it.
    """

    exact = False

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        horizon: int,
        name: str,
        reward_range: tuple[float, float],
        optimal_value: float | None = None,
        evaluation_users: int = _EVALUATED,
        assumed: Sequence[str] = (),
    ) -> None:
        # Padded steps have the reward 0.
        low, high = min(reward_range[0], 0.0), max(reward_range[1], 0.0)
        self._env, self.assumed = env, tuple(assumed)
        self._sizes, self._starts = _sizes(env.observation_space)
        self._first_action = int(env.action_space.start)  # type: ignore[attr-defined]  # numbered
        self.name = name
        self.reward_offset, self.reward_scale = low, high - low
        self.evaluation_users = check_size("evaluation_users", evaluation_users)
        self.optimal_value = math.nan if optimal_value is None else float(optimal_value)
        self.spec = FiniteSpec(
            states=math.prod(self._sizes) + 1,
            actions=int(env.action_space.n),  # type: ignore[attr-defined]  # as above
            horizon=horizon,
            stationary=True,
        )

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """A block of users who follow a policy, each an episode of the environment."""
        if form not in UNSTREAMED:
            raise InvalidArgument(f"form must be one of {UNSTREAMED}, got {form!r}")
        check_policy(self.spec, policy)
        taken = check_deterministic(policy).actions if form == "occupancy" else None
        users = check_users(users)
        states, actions, paid, components = self._roll_out(policy, users, rng)
        scaled = np.clip((paid - self.reward_offset) / self.reward_scale, 0.0, 1.0)
        rewards = (rng.random(scaled.shape) < scaled).astype(np.float64)
        if form == "episodes":
            versions = np.full(users, policy.version, dtype=np.int64)
            return Episodes(states, actions, rewards, versions, components=components)
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        steps = 1 if form == "pooled" else H
        kept = A if taken is None else 1
        check_bytes("transitions of a block", (steps, S, kept, S))
        transitions = np.zeros((steps, S, kept, S), dtype=np.int64)
        sums = np.zeros((steps, S, kept))
        at = np.broadcast_to(np.minimum(np.arange(H), steps - 1), actions.shape)
        actions = np.minimum(actions, kept - 1)
        np.add.at(transitions, (at, states[:, :-1], actions, states[:, 1:]), 1)
        np.add.at(sums, (at, states[:, :-1], actions), rewards)
        if taken is not None:
            return occupancy_block(users, taken, transitions, sums)
        return Block(users, {"transitions": transitions, "rewards": sums}, aggregate=True)

    def value(self, policy: AnyPolicy) -> float:
        """An estimate: the mean return of ``evaluation_users`` simulated users."""
        check_policy(self.spec, policy)
        rng = np.random.default_rng(0)
        return float(self._roll_out(policy, self.evaluation_users, rng)[2].sum(axis=1).mean())

    @cached_property
    def baseline_value(self) -> float:
        """An estimate of the value of acting uniformly at random."""
        spec = self.spec
        return self.value(Policy.uniform(spec.horizon, spec.states, spec.actions))

    @property
    def reference_value(self) -> float:
        """The baseline."""
        return self.baseline_value

    def __repr__(self) -> str:
        return f"<SampledWorld {self.name!r}: values are estimates>"

    def _roll_out(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator
    ) -> tuple[Ints, Ints, Floats, Ints | None]:
        H, end = self.spec.horizon, self.spec.states - 1
        check_bytes("episodes of a block", (users, 3 * H + 2))
        states = np.full((users, H + 1), end, dtype=np.int64)
        actions = np.zeros((users, H), dtype=np.int64)
        rewards = np.zeros((users, H))
        seed: int | None = int(rng.integers(2**31))
        components = policy.drawn(users, rng) if isinstance(policy, MixedPolicy) else None
        several = policy.components if isinstance(policy, MixedPolicy) else (policy,)
        choosers = [_chooser(one, rng) for one in several]
        for user in range(users):
            choose, rest = choosers[0 if components is None else components[user]]
            # Seeded once: later episodes continue the environment's own stream.
            observation, _ = self._env.reset(seed=seed)
            seed = None
            state = self._encode(observation)
            for step in range(H + 1):
                states[user, step] = state
                if step == H or state == end:
                    actions[user, step:] = rest(step)
                    break
                actions[user, step] = action = choose(step, state)
                observation, paid, terminated, truncated, _ = self._env.step(
                    action + self._first_action
                )
                rewards[user, step] = float(paid)
                state = end if terminated or truncated else self._encode(observation)
        return states, actions, rewards, components

    def _encode(self, observation: Any) -> int:
        if len(self._sizes) == 1:
            return int(observation) - self._starts[0]
        indices = [int(part) for part in np.ravel(np.asarray(observation))]
        shifted = [index - start for index, start in zip(indices, self._starts, strict=True)]
        return int(np.ravel_multi_index(shifted, self._sizes))


def from_gymnasium(
    env_or_id: str | gymnasium.Env[Any, Any],
    horizon: int | None = None,
    *,
    reward_range: tuple[float, float] | None = None,
    optimal_value: float | None = None,
    evaluation_users: int = _EVALUATED,
    action_levels: int | None = None,
    **kwargs: Any,
) -> ImportedWorld | SampledWorld | SparseWorld:
    """An environment with finitely many observations and actions, as a world.

    Environments that expose their table of transitions (``env.unwrapped.P``, as FrozenLake, Taxi
    and CliffWalking do) become an :class:`ImportedWorld` with exact values. Those that expose it as
    arrays (``env.unwrapped.dynamics`` with ``tx_mat`` and ``r_mat`` (S, A, S), ``d_0`` (S,) and
    perhaps ``admissible_actions``, as ICU-Sepsis does) become a
    :class:`~tacit.tabular.SparseWorld`, if rewards are in [0, 1]. The others become a
    :class:`SampledWorld`, whose values are estimates.

    Where a table gives one transition several rewards, the reward is drawn independently of the
    next state given state and action. Values are exact in every case.

    Args:
        env_or_id: an environment or the id of one.
        horizon: steps of an episode; by rule (:mod:`tacit.finite.imported`) if not given, as the
            following.
        reward_range: bounds of the rewards, where there is no table.
        optimal_value: what is known of the optimum, where there is no table.
        evaluation_users: how many users a value is estimated from where there is no table.
        action_levels: values along each coordinate of a continuous action.
        **kwargs: for ``gymnasium.make``.

    >>> world = from_gymnasium("FrozenLake-v1", horizon=20, is_slippery=False)
    >>> world.spec.states, world.spec.horizon, world.optimal_value
    (16, 20, 1.0)
    """
    env, assumed = opened(env_or_id, kwargs), list[str]()
    _sizes(env.observation_space)
    horizon = horizon_of(env, horizon, assumed)
    options = {
        "horizon": horizon,
        "reward_range": reward_range,
        "optimal_value": optimal_value,
        "evaluation_users": None if evaluation_users == _EVALUATED else evaluation_users,
        "action_levels": action_levels,
    }
    name, env = name_of(env, options), numbered(env, action_levels, assumed)
    if _has_table(env):
        model, offset, scale = _import_table(env.unwrapped, horizon)
        return ImportedWorld(model, name, offset, scale, assumed)
    if (arrays := _dynamics(env)) is not None:
        return _from_dynamics(arrays, horizon, name)
    rewards = rewards_of(env, reward_range, assumed)
    return SampledWorld(env, horizon, name, rewards, optimal_value, evaluation_users, assumed)


make_env = env_maker(FiniteEnv, worlds)


# Tables.


def _has_table(env: gymnasium.Env[Any, Any]) -> bool:
    inner: Any = env.unwrapped
    # A fickle passenger of Taxi changes her mind outside the table.
    return (
        transparent(env)
        and isinstance(env.observation_space, spaces.Discrete)
        and env.observation_space.start == 0
        and env.action_space.start == 0  # type: ignore[attr-defined]  # Discrete, checked
        and isinstance(getattr(inner, "P", None), Mapping)
        and hasattr(inner, "initial_state_distrib")
        and not getattr(inner, "fickle_passenger", False)
    )


def _dynamics(env: gymnasium.Env[Any, Any]) -> Mapping[str, Any] | None:
    """The arrays of an environment that has them, if its wrappers are its own or transparent."""
    inner: Any = env
    package = type(env.unwrapped).__module__.partition(".")[0]
    while isinstance(inner, gymnasium.Wrapper):
        own = type(inner).__module__.partition(".")[0] == package
        if not own and not isinstance(inner, TRANSPARENT):
            return None
        inner = inner.env
    arrays = getattr(inner, "dynamics", None)
    if not isinstance(arrays, Mapping) or not {"tx_mat", "r_mat", "d_0"} <= set(arrays):
        return None
    S, A = env.observation_space.n, env.action_space.n  # type: ignore[attr-defined]
    return arrays if np.shape(arrays["tx_mat"]) == (S, A, S) else None


def _from_dynamics(arrays: Mapping[str, Any], horizon: int, name: str) -> SparseWorld:
    P, rewards = np.asarray(arrays["tx_mat"]), np.asarray(arrays["r_mat"], dtype=np.float64)
    S, A = P.shape[:2]
    allowed = np.ones((S, A), dtype=bool)
    if "admissible_actions" in arrays:
        allowed[:] = False
        for state, actions in enumerate(arrays["admissible_actions"]):
            allowed[state, list(actions)] = True
    source, action = np.nonzero(allowed)
    rows, target = np.nonzero(P[source, action])
    source, action = source[rows], action[rows]
    paid = np.broadcast_to(rewards, P.shape)[source, action, target]
    probability = P[source, action, target].astype(np.float64)
    return SparseWorld(
        S, A, horizon, source, action, target, probability, paid, arrays["d_0"], name=name
    )


def _import_table(env: Any, horizon: int) -> tuple[FiniteModel, float, float]:
    S, A = int(env.observation_space.n), int(env.action_space.n)
    start = np.asarray(env.initial_state_distrib, dtype=np.float64)
    rows = [
        (s, a, float(p), int(to), float(r), bool(done))
        for s in range(S)
        for a in range(A)
        for p, to, r, done in env.P[s][a]
        if p > 0
    ]
    ends, copies = _ends(rows, start)
    total = S + len(copies)
    check_bytes("transitions", (1, total, A, total))
    P = np.zeros((total, A, total))
    kept = [row for row in rows if row[0] not in ends]
    levels = np.unique([0.0, *(row[4] for row in kept)])
    offset = float(levels[0])
    scale = float(levels[-1] - levels[0]) or 1.0
    probabilities = np.zeros((total, A, len(levels)))
    zero = int(np.searchsorted(levels, 0.0))
    index = np.full((total, A, total), zero, dtype=np.int64)
    decided = True
    for s, a, p, to, r, done in kept:
        to = copies.get(to, to) if done else to
        level = int(np.searchsorted(levels, r))
        decided = decided and (P[s, a, to] == 0 or bool(index[s, a, to] == level))
        P[s, a, to] += p
        index[s, a, to] = level
        probabilities[s, a, level] += p
    for s in [*ends, *copies.values()]:
        P[s, :, s] = 1.0
        probabilities[s, :, zero] = 1.0
    values = np.clip((levels - offset) / scale, 0.0, 1.0)
    model = FiniteModel(
        transitions=P[np.newaxis],
        reward_probabilities=probabilities[np.newaxis],
        reward_values=values,
        start=np.append(start, np.zeros(len(copies))),
        horizon=horizon,
        transition_rewards=values[index] if decided else None,
    )
    return model, offset, scale


def _ends(
    rows: list[tuple[int, int, float, int, float, bool]], start: Floats
) -> tuple[set[int], dict[int, int]]:
    """Where episodes end: states that become absorbing, and copies of those that cannot.

    A state that users also pass through on their way gets a copy, in which nothing happens.
    """
    onward: dict[int, set[int]] = {}
    for s, _, _, to, _, done in rows:
        if not done:
            onward.setdefault(s, set()).add(to)
    passed = set(np.flatnonzero(start).tolist())
    frontier = list(passed)
    while frontier:
        new = onward.get(frontier.pop(), set()) - passed
        passed |= new
        frontier.extend(new)
    entered = {to for s, _, _, to, _, done in rows if done and s in passed}
    copies = {s: len(start) + i for i, s in enumerate(sorted(entered & passed))}
    return entered - passed, copies


def _chooser(
    policy: Policy, rng: np.random.Generator
) -> tuple[Callable[[int, int], int], Callable[[int], Ints]]:
    """A policy's action at a step and state; and all at the end, the last state, from a step on."""
    if (table := policy.actions) is not None:
        return lambda step, state: int(table[step, state]), lambda step: table[step:, -1]
    sums = np.cumsum(np.asarray(policy.probabilities), axis=-1)[..., :-1]

    def rest(step: int) -> Ints:
        drawn: Ints = (rng.random((len(sums) - step, 1)) >= sums[step:, -1]).sum(axis=1)
        return drawn

    return lambda step, state: int(sums[step, state].searchsorted(rng.random(), "right")), rest


# Spaces.


def _sizes(space: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many values each part of an observation has, and the smallest of them."""
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
    parts = space if isinstance(space, spaces.Tuple) else (space,)
    if all(isinstance(part, spaces.Discrete) for part in parts):
        return tuple(int(part.n) for part in parts), tuple(int(part.start) for part in parts)
    raise InvalidArgument(
        f"the environment's observations must be Discrete, MultiDiscrete or a Tuple of Discrete, "
        f"got {space}"
    )
