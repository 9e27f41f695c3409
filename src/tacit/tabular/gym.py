"""Environments of Gymnasium as worlds; :mod:`tacit.envs` has ours as environments.

What theirs do not say is by :mod:`tacit.finite.imported`'s rules.
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
from tacit.finite.imported import (
    TRANSPARENT,
    horizon_of,
    name_of,
    numbered,
    opened,
    returns_of,
    rewards_of,
    transparent,
)
from tacit.finite.mixed_policy import AnyPolicy, MixedPolicy
from tacit.finite.model import FiniteModel, check_policy
from tacit.finite.policy import Policy
from tacit.finite.simulate import check_deterministic, occupancy_block
from tacit.finite.spec import FiniteSpec
from tacit.finite.world import FORMS, FiniteWorld
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, StreamedBlock
from tacit.tabular.gym_table import Rescaled, Table
from tacit.tabular.sparse_world import SparseWorld
from tacit.tabular.world import TabularWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Simulated users that a value is the mean of.
_EVALUATED = 1000
# And of which a streamed block has parts.
_PART = 1 << 14


class ImportedWorld(TabularWorld):
    """An environment whose table is known, as a world: all values are exact.

    States and actions keep the environment's numbers. An episode that ends early stays where it
    ended, with reward 0, until the horizon. For agents rewards are rescaled to [0, 1]:

        environment's reward = reward_offset + reward_scale * agent's reward

    unless it is a way to an end, or clipped: see :mod:`tacit.tabular.gym_table`. Values are in the
    environment's own units: expected sums of what it pays. Since they may be negative, losses are
    relative to the baseline: ``reference_value`` is ``baseline_value``.

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
        paid: Rescaled | None = None,
    ) -> None:
        FiniteWorld.__init__(self, model, name)
        self.reward_offset = reward_offset
        self.reward_scale = reward_scale
        self._valued, offset, scale = paid or (model, reward_offset, reward_scale)
        self.units = model.horizon * offset, scale
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
    :class:`ImportedWorld`, and rounded at random to 0 or 1, which keeps their means. With a
    ``return_range`` they are 0 but for the last step before the end, which pays the whole return,
    clipped and rescaled in the same way. Values are in the environment's own units: means of what
    it paid, without any clip.

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
        return_range: tuple[float, float] | None = None,
    ) -> None:
        # Padded steps have the reward 0.
        low, high = min(reward_range[0], 0.0), max(reward_range[1], 0.0)
        self.paid_once = return_range is not None
        if return_range is not None:
            low, high = return_range
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
            largest_return=1.0 if self.paid_once else None,
        )

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """A block of users who follow a policy, each an episode of the environment."""
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS}, got {form!r}")
        if form == "streamed":
            return self._streamed(policy, check_users(users), rng)
        check_policy(self.spec, policy)
        taken = check_deterministic(policy).actions if form == "occupancy" else None
        users = check_users(users)
        states, actions, paid, components = self._roll_out(policy, users, rng)
        scaled = np.clip((paid - self.reward_offset) / self.reward_scale, 0.0, 1.0)
        if self.paid_once:
            last = np.maximum((states[:, :-1] != self.spec.states - 1).sum(axis=1) - 1, 0)
            shown = (paid.sum(axis=1) - self.reward_offset) / self.reward_scale
            scaled = np.zeros(paid.shape)
            scaled[np.arange(users), last] = np.clip(shown, 0.0, 1.0)
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

    def _streamed(self, policy: AnyPolicy, users: int, rng: np.random.Generator) -> StreamedBlock:
        """The same users whenever they are asked for: stepped once, and kept in few bytes."""
        narrow, kept = np.min_scalar_type(self.spec.states), list[Block]()
        kinds = {"states": narrow, "actions": narrow, "rewards": np.dtype(np.uint8)}
        for first in range(0, users, _PART):
            made = self.simulate(policy, min(_PART, users - first), rng)
            block = made.block() if isinstance(made, Episodes) else made
            small = {key: array.astype(kinds.get(key, "i8")) for key, array in block.arrays.items()}
            kept.append(Block(block.users, small))
        return StreamedBlock(users, lambda: map(_widened, kept))

    def value(self, policy: AnyPolicy) -> float:
        """An estimate: the mean return of ``evaluation_users`` simulated users."""
        check_policy(self.spec, policy)
        return float(self._evaluated(policy)[1].sum(axis=1).mean())

    @property
    def baseline_value(self) -> float:
        """An estimate of the value of acting uniformly at random."""
        return self._at_random[0]

    @property
    def random_steps(self) -> float:
        """An estimate of how many steps an episode has at random."""
        return self._at_random[1]

    @cached_property
    def _at_random(self) -> tuple[float, float]:
        spec = self.spec
        uniform = Policy.uniform(spec.horizon, spec.states, spec.actions)
        states, paid = self._evaluated(uniform)
        taken = (states[:, :-1] != spec.states - 1).sum(axis=1)
        return float(paid.sum(axis=1).mean()), float(taken.mean())

    def _evaluated(self, policy: AnyPolicy) -> tuple[Ints, Floats]:
        """States and rewards of the users that values are means of: the same in every call."""
        rng = np.random.default_rng(0)
        states, _, paid, _ = self._roll_out(policy, self.evaluation_users, rng)
        return states, paid

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
    return_range: tuple[float, float] | None = None,
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
        reward_range: bounds of the rewards that agents see.
        return_range: bounds of their sum over an episode, where there is no table.
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
        "return_range": return_range,
        "optimal_value": optimal_value,
        "evaluation_users": None if evaluation_users == _EVALUATED else evaluation_users,
        "action_levels": action_levels,
    }
    name, env = name_of(env, options), numbered(env, action_levels, assumed)
    if _has_table(env):
        for option, value in (("optimal_value", optimal_value), ("return_range", return_range)):
            if value is not None:
                raise InvalidArgument(f"{option} is given, but {name} has a table: it is computed")
        ends = None if reward_range is None else rewards_of(env, reward_range, assumed)
        table = Table(env.unwrapped, horizon, ends, assumed)
        return ImportedWorld(table.seen[0], name, *table.seen[1:], assumed, paid=table.paid)
    if (arrays := _dynamics(env)) is not None:
        return _from_dynamics(arrays, horizon, name)
    returns = returns_of(env, return_range, assumed) if reward_range is None else return_range
    rewards = returns or rewards_of(env, reward_range, assumed)
    given = (rewards, optimal_value, evaluation_users, assumed, returns)
    return SampledWorld(env, horizon, name, *given)


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


def _widened(block: Block) -> Block:
    """With the types that episodes have."""
    wide = {name: array.astype(np.int64) for name, array in block.arrays.items()}
    return Block(block.users, wide | {"rewards": wide["rewards"].astype(np.float64)})


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
