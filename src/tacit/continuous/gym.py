"""Gymnasium, in both directions: its environments as worlds, and our worlds as environments.

Importing this module registers the built-in worlds: ``tacit/Line-v0``, ``tacit/Trap-v0`` and
``tacit/Plane-v0``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.continuous import worlds
from tacit.continuous.action_box import ActionBox
from tacit.continuous.features import FeatureMap
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.world import BoxWorld, VectorWorld, roll_out
from tacit.core.sizes import check_size
from tacit.core.vector_episodes import VectorEpisodes
from tacit.finite.env import EpisodeEnv, family_envs, numbered_actions, opened
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints

Env: TypeAlias = gymnasium.Env[Any, Any]

# Environments that are stepped side by side, so that a policy is asked once for all of them.
_SIDE_BY_SIDE = 64


class GymnasiumWorld(VectorWorld):
    """An environment with vectors for states and numbered actions: users are its episodes.

    States are flattened and clipped to the box of the spec, rewards to its range. An episode ends
    when the environment says so, and has no value from there on; but for one that is truncated at
    the last step of the horizon, by a time limit, which goes on where nobody looks. Every user has
    a seed of her own, so what she does depends on nothing but it and the policy.

    Values are estimates: mean returns, not discounted, of ``evaluation_users`` episodes of at most
    ``evaluation_steps`` steps. Their seeds are the same for all policies, so that equal policies
    have equal values.
    """

    exact = False  # values are estimates

    def __init__(
        self,
        env: Env,
        spec: BoxSpec,
        name: str,
        evaluation_steps: int,
        evaluation_users: int,
        optimal_value: float | None = None,
    ) -> None:
        super().__init__(spec, name)
        self.evaluation_steps = check_size("evaluation_steps", evaluation_steps)
        self.evaluation_users = check_size("evaluation_users", evaluation_users)
        self._optimal_value = math.nan if optimal_value is None else float(optimal_value)
        # Vectors have an order, which their numbers on a mesh keep.
        self.exchangeable_actions = discrete = spec.action_box is None
        self._first_action = int(numbered_actions(env.action_space).start) if discrete else 0
        self._envs = [env]

    @property
    def optimal_value(self) -> float:
        """As given by the caller; NaN if not, since nobody knows it."""
        return self._optimal_value

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        states, actions, rewards, lengths = self._played(policy, users, self.spec.horizon, rng)
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy: QPolicy) -> float:
        rng = np.random.default_rng(0)
        rewards = self._played(policy, self.evaluation_users, self.evaluation_steps, rng)[2]
        return float(np.nansum(rewards, axis=1).mean())

    def _played(
        self, policy: QPolicy, users: int, steps: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints, Floats, Ints]:
        seeds, coins = rng.integers(2**31, size=users), rng.random((steps, users))
        states = np.full((users, steps + 1, self.spec.dimension), np.nan)
        actions = np.full((users, steps), -1, dtype=np.int64)
        rewards = np.full((users, steps), np.nan)
        lengths = np.full(users, steps + 1, dtype=np.int64)
        for first in range(0, users, _SIDE_BY_SIDE):
            some = slice(first, min(first + _SIDE_BY_SIDE, users))
            states[some], actions[some], rewards[some], lengths[some] = self._side_by_side(
                policy, seeds[some].tolist(), coins[:, some]
            )
        return states, actions, rewards, lengths

    def _side_by_side(
        self, policy: QPolicy, seeds: Sequence[int], coins: Floats
    ) -> tuple[Floats, Ints, Floats, Ints]:
        while len(self._envs) < len(seeds):
            self._envs.append(copy.deepcopy(self._envs[0]))
        envs = self._envs[: len(seeds)]
        starts = [self._state(env.reset(seed=s)[0]) for env, s in zip(envs, seeds, strict=True)]
        low, high = self.spec.reward_range
        rewards = np.full((len(seeds), len(coins)), np.nan)

        def advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            over = np.zeros(len(who), dtype=np.bool_)
            for k, (user, action) in enumerate(zip(who.tolist(), taken.tolist(), strict=True)):
                observation, reward, terminated, truncated, _ = envs[user].step(
                    self._action(action)
                )
                here[k] = self._state(observation)
                rewards[user, step] = min(max(float(reward), low), high)
                # A time limit at the last step is where users are left, not where anything ends.
                over[k] = terminated or (truncated and step + 1 < len(coins))
            return here, over

        states, actions, lengths = roll_out(policy, np.array(starts), coins, advance)
        return states, actions, rewards, lengths

    def _action(self, number: int) -> Any:
        box = self.spec.action_box
        if box is None:
            return number + self._first_action
        space = self._envs[0].action_space
        return box.actions(number).astype(space.dtype).reshape(space.shape)

    def _state(self, observation: Any) -> Floats:
        flat = np.asarray(observation, dtype=np.float64).ravel()
        return np.clip(flat, self.spec.lows, self.spec.highs)


def from_gymnasium(
    env_or_id: str | Env,
    horizon: int,
    reward_range: tuple[float, float],
    *,
    lows: Sequence[float] | None = None,
    highs: Sequence[float] | None = None,
    features: FeatureMap | None = None,
    evaluation_steps: int | None = None,
    evaluation_users: int = 200,
    discount: float = 0.95,
    levels: int = 0,
    optimal_value: float | None = None,
    **kwargs: Any,
) -> GymnasiumWorld:
    """An environment with a Box of observations, and Discrete or Box actions, as a world.

    Args:
        env_or_id: an environment, which is the world's from now on, or the id of one.
        horizon: steps of a user's episode; at most the environment's time limit.
        reward_range: the smallest and the largest reward; others are clipped.
        lows: the lower corner of the box of states; the observation space's by default.
        highs: its upper corner. Where the space has no finite bounds, give them, or features.
        features: a feature map that suits the world.
        evaluation_steps: of an episode that a value is estimated from; the horizon by default.
        evaluation_users: how many such episodes there are.
        discount: what the agent should weigh the future with.
        levels: points of the mesh along each coordinate of actions that are vectors; see
            :class:`~tacit.continuous.action_box.ActionBox`. A few, for agents that count actions.
        optimal_value: the best value that is known. Without it nobody can say how good a policy
            is: losses and scores are NaN, and values are what is left.
        **kwargs: for ``gymnasium.make``.

    >>> world = from_gymnasium("MountainCar-v0", horizon=200, reward_range=(-1.0, 0.0))
    >>> world.spec.dimension, world.spec.actions
    (2, 3)
    """
    env = opened(env_or_id, kwargs)
    space = env.observation_space
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind not in "iuf":
        raise InvalidArgument(f"the environment's observations must be a Box, got {space}")
    low = space.low.ravel().tolist() if lows is None else lows
    high = space.high.ravel().tolist() if highs is None else highs
    if features is None and not np.isfinite([*low, *high]).all():
        raise InvalidArgument(
            f"lows and highs, or features, must be given: the observations of {env} are in {space}"
        )
    within = _action_box(env.action_space, levels)
    actions = int(numbered_actions(env.action_space).n) if within is None else within.size
    box = tuple(low), tuple(high), actions, horizon
    spec = BoxSpec(*box, reward_range, discount, features, action_box=within)
    if spec.dimension != math.prod(space.shape):
        raise InvalidArgument(
            f"lows and highs must have {math.prod(space.shape)} numbers, got {spec.dimension}"
        )
    steps = spec.horizon if evaluation_steps is None else evaluation_steps
    steps = check_size("evaluation_steps", steps)
    limit = None if env.spec is None else env.spec.max_episode_steps
    if limit is not None and max(spec.horizon, steps) > limit:
        raise InvalidArgument(
            f"horizon and evaluation_steps must be at most {limit}, the environment's time limit, "
            f"got {spec.horizon} and {steps}"
        )
    options = {
        "horizon": spec.horizon,
        "reward_range": spec.reward_range,
        "lows": lows,
        "highs": highs,
        "features": features,
        "evaluation_steps": evaluation_steps,
        "evaluation_users": evaluation_users,
        "discount": spec.discount,
        "levels": levels or None,
        "optimal_value": optimal_value,
    }
    return GymnasiumWorld(env, spec, _name(env, options), steps, evaluation_users, optimal_value)


def _action_box(space: Any, levels: int) -> ActionBox | None:
    """The box of actions that are vectors, ``None`` where they are numbered."""
    if not isinstance(space, spaces.Box):
        return None
    return ActionBox(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()), levels)


class BoxEnv(EpisodeEnv[Floats, np.int64]):
    """A world of moves in a box as an environment.

    >>> state, _ = BoxEnv(worlds.plane()).reset(seed=0)
    >>> state.shape
    (2,)
    """

    def __init__(self, world: BoxWorld) -> None:
        super().__init__(world, BoxWorld, "a BoxWorld")
        self.observation_space = spaces.Box(0.0, 1.0, (world.spec.dimension,), np.float64)
        self.action_space = spaces.Discrete(world.spec.actions)
        self._state = np.zeros(world.spec.dimension)

    def _first(self) -> Floats:
        self._state = self.np_random.random(self._state.shape)
        return self._state.copy()

    def _next(self, action: np.int64) -> tuple[Floats, float]:
        from tacit.continuous import world_loops

        world_loops.move(self._state[np.newaxis], np.array([int(action)]), self.np_random.random(1))
        return self._state.copy(), float(self.world.rewards(self._state))


_NAMES = {"Line": "line", "Trap": "trap", "Plane": "plane"}
make_env, register_envs = family_envs(__name__, BoxEnv, worlds, _NAMES)


def _name(env: Env, options: dict[str, Any]) -> str:
    """The call that makes the world, as the registry reads it; "..." for what is no plain value."""
    made = env.spec
    if made is not None:
        options = options | made.kwargs
    given = "".join(f",{key}={_text(value)}" for key, value in options.items() if value is not None)
    identity = type(env.unwrapped).__name__ if made is None else made.id
    return f"tacit.continuous.gym.from_gymnasium:env_or_id={identity}{given}"


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ":".join(map(_text, value))
    return str(value) if isinstance(value, (bool, int, float, str, np.number)) else "..."
