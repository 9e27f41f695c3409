"""Environments that others wrote: what a world needs to know and they do not say, by public rules.

A rule reads spaces, time limits and documentation, never an episode; docs/environments.md has all
of them. An option of the same name takes the place of each. Rewards outside their range are clipped
before an agent sees them; values are of what was paid. Where it is known what a whole episode adds
up to, agents see the return alone, when it ends.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import whole_number

Env: TypeAlias = gymnasium.Env[Any, Any]
Ends: TypeAlias = tuple[float, float]

STEPS = 100  # of an episode where an environment has no time limit
REWARDS = (-1.0, 1.0)  # the range of rewards of which nothing is said
LEVELS = 5  # values of a continuous action along each coordinate
TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit)  # change neither states nor rewards

DOCUMENTED = {
    "Acrobot": (-1.0, 0.0),
    "Blackjack": (-1.0, 1.0),
    "CartPole": (0.0, 1.0),
    "LunarLander": (-100.0, 100.0),
    "LunarLanderContinuous": (-100.0, 100.0),
    "MountainCar": (-1.0, 0.0),
    "MountainCarContinuous": (-0.1, 100.0),
    "Pendulum": (-(math.pi**2 + 0.1 * 8**2 + 0.001 * 2**2), 0.0),
    "Taxi": (-10.0, 20.0),
}
"""Ranges of one reward, as Gymnasium's pages have them, by name without version."""

RETURNS = {"Blackjack": (-1.0, 1.0)}  # those of a return: of games that pay once, when they end
# The same where a parameter of the environment changes it.
_BY_PARAMETER = {"sutton_barto_reward": (-1.0, 0.0), "natural": (-1.0, 1.5)}
_MOST_ACTIONS = 1000
MOST_COORDINATES = 64  # of an observation, flattened
MOST_STATES = 50_000  # of observations that are numbered


def opened(env_or_id: str | Env, kwargs: dict[str, Any]) -> Env:
    """An environment, or that of an id and its parameters."""
    if isinstance(env_or_id, str):
        try:
            with warnings.catch_warnings():
                # What Gymnasium says of old versions; those that are gone it refuses.
                warnings.simplefilter("ignore")
                return gymnasium.make(env_or_id, **{"disable_env_checker": True} | kwargs)
        except (gymnasium.error.Error, TypeError) as error:
            raise InvalidArgument(f"no environment {env_or_id!r}, {kwargs}: {error}") from error
    if not isinstance(env_or_id, gymnasium.Env):
        raise InvalidArgument(f"env_or_id must be a gymnasium.Env or its id, got {env_or_id!r}")
    if kwargs:
        raise InvalidArgument(f"{sorted(kwargs)} are for making an env from its id")
    return env_or_id


def transparent(env: Env) -> bool:
    """Whether no wrapper changes states or rewards, so that what is known of the inside holds."""
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, TRANSPARENT):
            return False
        env = env.env
    return True


def own_world(env: Env) -> Any:
    """The world whose users an environment of ours plays, or ``None``."""
    from tacit.gym.finite import FiniteEnv

    inner = env.unwrapped
    return inner.world if isinstance(inner, FiniteEnv) and transparent(env) else None


def limit_of(env: Env) -> int | None:
    """The time limit: that of the id, or of a wrapper; the shortest where there are several."""
    limits = [] if env.spec is None else [env.spec.max_episode_steps]
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min((limit for limit in limits if limit is not None), default=None)


def horizon_of(env: Env, given: int | None, assumed: list[str]) -> int:
    """Steps of an episode, by the rule; ``assumed`` gets a sentence where it was not given."""
    if given is not None:
        return whole_number("horizon", given)
    limit = limit_of(env)
    if limit is None and (own := own_world(env)) is not None:
        limit = int(own.spec.horizon)
    why = "no time limit" if limit is None else "the time limit"
    assumed.append(f"horizon {limit or STEPS} ({why})")
    return limit or STEPS


def rewards_of(env: Env, given: Ends | None, assumed: list[str]) -> Ends:
    """The range of rewards, by the rule; two finite numbers that increase."""
    if given is not None:
        return _increasing(given)
    inner: Any = env.unwrapped
    own = getattr(inner, "reward_range", None) or inner.metadata.get("reward_range")
    if own is not None and np.shape(own) == (2,) and np.isfinite(own).all():
        found, why = _increasing(own), "declared"
    elif (documented := _documented(env, DOCUMENTED)) is not None:
        found, why = documented, "documented"
    else:
        found, why = REWARDS, "not declared"
    assumed.append(f"rewards in {found[0]:g}:{found[1]:g} ({why})")
    return found


def returns_of(env: Env, assumed: list[str]) -> Ends | None:
    """The range of returns, by the rule; ``None`` if nothing is known of it."""
    if (found := _documented(env, RETURNS)) is not None:
        ends = f"{found[0]:g}:{found[1]:g}"
        assumed.append(f"returns in {ends} (documented), told when an episode ends")
    return found


def _documented(env: Env, ranges: dict[str, Ends]) -> Ends | None:
    if env.spec is None or env.spec.name not in ranges:
        return None
    changed = [ends for key, ends in _BY_PARAMETER.items() if env.spec.kwargs.get(key)]
    return [*changed, ranges[env.spec.name]][0]


def _increasing(ends: Any) -> Ends:
    if np.shape(ends) == (2,):
        low, high = (float(end) for end in ends)
        if math.isfinite(high - low) and low < high:
            return low, high
    raise InvalidArgument(f"reward_range must be two finite numbers that increase, got {ends!r}")


def countable(space: Any) -> bool:
    """Whether observations are numbered: finitely many, and few enough."""
    parts: Sequence[Any] = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    if isinstance(space, spaces.MultiDiscrete):
        return bool(math.prod(space.nvec.ravel().tolist()) <= MOST_STATES)
    finite = all(isinstance(part, spaces.Discrete) for part in parts)
    return finite and math.prod(int(part.n) for part in parts) <= MOST_STATES


def check_space(space: Any, name: str = "") -> int:
    """How many numbers an observation is flattened to; refuses what has too many, or none.

    The parts of a Dict or a Tuple are named where they are the reason.
    """
    part = f" {name!r}" if name else ""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        named = space.spaces
        inner = named.items() if isinstance(named, Mapping) else enumerate(named)
        size = sum(check_space(one, f"{name}{'.' * bool(name)}{key}") for key, one in inner)
    elif isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iuf":
        size = math.prod(space.shape)
        if size > MOST_COORDINATES and space.dtype == np.uint8:
            raise InvalidArgument(
                f"observations{part} are pixels ({size:,} numbers): learn from a few features "
                f"(at most {MOST_COORDINATES}), by a wrapper of yours"
            )
    elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        size = int(spaces.flatdim(space))
    else:
        raise InvalidArgument(
            f"observations{part} are of a {type(space).__name__}, which has no fixed numbers: a "
            "wrapper of yours must turn them into a Box, Discrete or MultiDiscrete"
        )
    if size > MOST_COORDINATES:
        raise InvalidArgument(
            f"observations{part} are flattened to {size:,} numbers, at most {MOST_COORDINATES} "
            "are learnt from: choose some by a wrapper, as gymnasium.wrappers.FilterObservation"
        )
    return size


class NumberedActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose actions are the places in a list of actions."""

    def __init__(self, env: Env, choices: Sequence[Any]) -> None:
        super().__init__(env)
        self.choices = choices
        self.action_space = spaces.Discrete(len(choices))

    def action(self, action: Any) -> Any:
        """The one of that number."""
        return self.choices[int(action)]


def numbered(env: Env, levels: int | None, assumed: list[str]) -> Env:
    """The environment with numbered actions, by the rule; itself if it has them."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return env
    words = "all combinations"
    if isinstance(space, spaces.MultiDiscrete):
        parts = zip(space.nvec.ravel(), space.start.ravel(), strict=True)
        axes = [np.arange(size) + first for size, first in parts]
    elif isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iuf":
        levels = LEVELS if levels is None else whole_number("action_levels", levels)
        low = np.where(np.isfinite(space.low), space.low, -1.0).ravel()
        high = np.where(np.isfinite(space.high), space.high, 1.0).ravel()
        axes = [np.linspace(a, b, levels) for a, b in zip(low, high, strict=True)]
        words = f"{levels} levels each" if len(axes) > 1 else f"{levels} levels"
    else:
        raise InvalidArgument(
            f"the environment's actions must be Discrete, MultiDiscrete or a Box, got {space}"
        )
    count = math.prod(len(axis) for axis in axes)
    if count > _MOST_ACTIONS:
        raise InvalidArgument(
            f"{count:,} actions are more than {_MOST_ACTIONS:,}, from {space}: see action_levels"
        )
    rows = itertools.product(*axes)
    choices = [np.array(row, dtype=space.dtype).reshape(space.shape) for row in rows]
    assumed.append(f"{count} actions ({words})")
    return NumberedActions(env, choices)


def name_of(env: Env, options: dict[str, Any]) -> str:
    """A text that rebuilds the world: id, options that were given, parameters of the environment.

    What is no plain value cannot be rebuilt from a text, and is "...".
    """
    made, kept = env.spec, options
    if made is not None:
        usual = gymnasium.registry[made.id].kwargs if made.id in gymnasium.registry else {}
        usual = usual | {"disable_env_checker": True}
        kept = options | {k: v for k, v in made.kwargs.items() if usual.get(k, ...) is not v}
    given = "".join(f",{key}={_text(value)}" for key, value in kept.items() if value is not None)
    wrappers = list[str]()
    while isinstance(env, gymnasium.Wrapper):
        wrappers += [] if isinstance(env, TRANSPARENT) else [f"+{type(env).__name__}"]
        env = env.env
    inside = "".join(reversed(wrappers))
    return f"gym:{type(env).__name__ if made is None else made.id}{inside}{given}"


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ":".join(map(_text, value))
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, str, np.number)) else "..."
