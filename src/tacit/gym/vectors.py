"""Environments of Gymnasium whose observations are vectors, as worlds."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec, SmoothSpec
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.gym.rules import (
    Env,
    NumberedActions,
    check_space,
    horizon_of,
    limit_of,
    numbered,
    rewards_of,
    transparent,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import whole_number

END = 3.0  # where a coordinate ends that has no end
_INFINITE = 1e9  # some spaces have the largest float for it
# Coordinates that are the cosine and the sine of an angle, by name without version.
_CIRCLES = {"Acrobot": ((0, 1), (2, 3)), "Pendulum": ((0, 1),)}
_EVALUATED = 100  # episodes that a value is the mean of
_SIDE_BY_SIDE = 64  # environments that are stepped together: a policy is asked once for all


class AsAngles(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose states have angles for cosines and sines; the others as they are."""

    def __init__(self, env: Env, circles: tuple[tuple[int, int], ...]) -> None:
        super().__init__(env)
        self._cosines, self._sines = np.array(circles).T
        space: Any = env.observation_space
        low, high = (np.array(end, dtype=np.float64) for end in (space.low, space.high))
        low[self._cosines], high[self._cosines] = -math.pi, math.pi
        self.observation_space = spaces.Box(
            np.delete(low, self._sines), np.delete(high, self._sines), dtype=np.float64
        )

    def observation(self, observation: Any) -> Floats:
        """With angles."""
        state = np.array(observation, dtype=np.float64)
        state[self._cosines] = np.arctan2(state[self._sines], state[self._cosines])
        found: Floats = np.delete(state, self._sines)
        return found


class GymnasiumWorld(VectorWorld):
    """An environment with vectors for states and numbered actions: users are its episodes.

    States are flattened and clipped to the box of the spec, rewards that agents see to its range.
    An episode ends when the environment says so, and has no value from there on; but for one that
    is truncated, by a time limit, which goes on unseen: its steps until then count.
    Every user has a seed of her own, so what she does depends on nothing but it and the policy.

    Values are estimates in the environment's own units: mean returns, neither discounted nor
    clipped, of ``evaluation_users`` episodes, whose seeds are the same for all policies.
    """

    exact = False  # values are estimates

    def __init__(
        self,
        env: Env,
        spec: BoxSpec,
        name: str,
        evaluation_users: int | None = None,
        optimal_value: float | None = None,
        assumed: Sequence[str] = (),
    ) -> None:
        super().__init__(spec, name)
        self.assumed = tuple(assumed)  # what was taken by rule, in words
        users = _EVALUATED if evaluation_users is None else evaluation_users
        self.evaluation_users = whole_number("evaluation_users", users)
        self.evaluation_budgeted = evaluation_users is None
        self._optimal_value = math.nan if optimal_value is None else float(optimal_value)
        self.exchangeable_actions = getattr(spec, "pushes", None) is None
        self._first_action = int(env.action_space.start)  # type: ignore[attr-defined]
        self._envs = [env]

    @property
    def optimal_value(self) -> float:
        """As given by the caller, or NaN."""
        return self._optimal_value

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        states, actions, paid, lengths = self._played(policy, users, rng)
        rewards = np.clip(paid, *self.spec.reward_range)
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy: QPolicy) -> float:
        return self.estimate(policy, self.evaluation_users)[0]

    def estimate(self, policy: QPolicy, users: int) -> tuple[float, float]:
        """The mean return of some users, the same for all policies, and its standard error."""
        self.check_policy(policy)
        returns = np.nansum(self._played(policy, users, np.random.default_rng(0))[2], axis=1)
        return float(returns.mean()), float(returns.std() / math.sqrt(users))

    @cached_property
    def random_steps(self) -> float:
        """An estimate of how many steps an episode has at random."""
        uniform = QPolicy.uniform(self.spec.dimension, self.spec.actions)
        lengths = self._played(uniform, self.evaluation_users, np.random.default_rng(0))[3]
        return float(np.minimum(lengths, self.spec.horizon).mean())

    def _played(self, policy: QPolicy, users: int, rng: np.random.Generator) -> list[Any]:
        """States, actions, rewards and lengths of users."""
        seeds, coins = rng.integers(2**31, size=users), rng.random((self.spec.horizon, users))
        places = range(0, max(1, users), _SIDE_BY_SIDE)
        some = [slice(first, first + _SIDE_BY_SIDE) for first in places]
        parts = [self._side_by_side(policy, seeds[i].tolist(), coins[:, i]) for i in some]
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _side_by_side(
        self, policy: QPolicy, seeds: Sequence[int], coins: Floats
    ) -> tuple[Floats, Ints, Floats, Ints]:
        many = self._vector
        if many is None:
            while len(self._envs) < len(seeds):
                self._envs.append(copy.deepcopy(self._envs[0]))
            starts = [env.reset(seed=s)[0] for env, s in zip(self._envs, seeds, strict=False)]
        else:
            starts = many.reset(seed=seeds[0] if seeds else None)[0][: len(seeds)]
        first = self._states(starts)
        rewards = np.full((len(seeds), len(coins)), np.nan)
        cut = np.zeros(len(seeds), dtype=np.bool_)
        still = np.zeros(_SIDE_BY_SIDE, dtype=np.int64)

        def _advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            told: Any
            if many is None:
                moves = zip(who.tolist(), taken.tolist(), strict=True)
                first = self._first_action
                played = [self._envs[user].step(number + first) for user, number in moves]
                told = zip(*(one[:4] for one in played), strict=True)
            else:
                still[who] = taken + self._first_action
                told = [column[who] for column in many.step(still)[:4]]
            observations, reward, terminated, truncated = told
            here[:] = self._states(observations)
            rewards[who, step] = reward
            # A time limit is where users are left, not where anything ends.
            cut[who] = np.logical_and(truncated, np.logical_not(terminated))
            return here, np.logical_or(terminated, truncated)

        states, actions, lengths = roll_out(policy, first, coins, _advance)
        lengths[cut] = len(coins) + 1
        return states, actions, rewards, lengths

    @cached_property
    def _vector(self) -> Any:
        """The environment's own vectorised form, of an id that has one; else ``None``."""
        env = self._envs[0]
        made = env.spec
        if made is None or not made.vector_entry_point or not transparent(env):
            return None
        with contextlib.suppress(Exception):  # its form takes other arguments
            kind = "vector_entry_point"
            return gymnasium.make_vec(made.id, _SIDE_BY_SIDE, kind, **made.kwargs)
        return None

    def _states(self, observations: Any) -> Floats:
        flat = np.array([*observations], dtype=np.float64).reshape(-1, self.spec.dimension)
        return np.clip(flat, self.spec.lows, self.spec.highs)


def vector_world(env: Env, name: str, assumed: list[str], **given: Any) -> GymnasiumWorld:
    """The world of an environment and of options of :func:`~tacit.gym.from_gymnasium`."""
    env = _flat(env, assumed)
    circles = _circles_of(env, assumed) if given["angles"] else ()
    if circles:
        env = AsAngles(env, circles)
    env = numbered(env, given["action_levels"], assumed)
    space: Any = env.action_space
    # Features of your own may be of what has no ends.
    far = END if given["features"] is None else math.inf
    spec = SmoothSpec(
        *_corners(env.observation_space, assumed, far),
        int(space.n),
        horizon_of(env, given["horizon"], assumed),
        rewards_of(env, given["reward_range"], assumed),
        0.95 if given["discount"] is None else given["discount"],
        given["features"],
        may_end=True,
        pushes=_pushes(env),
        angles=tuple(cosine - number for number, (cosine, _) in enumerate(circles)),
    )
    if (limit := limit_of(env)) is not None and spec.horizon > limit:
        raise InvalidArgument(
            f"horizon must be at most {limit}, the environment's time limit, got {spec.horizon}"
        )
    users, best = given["evaluation_users"], given["optimal_value"]
    return GymnasiumWorld(env, spec, name, users, best, assumed)


def _flat(env: Env, assumed: list[str]) -> Env:
    """The environment with a Box of numbers for observations; itself if it has one."""
    space = env.observation_space
    check_space(space)
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iuf":
        return env
    flat: Env = gymnasium.wrappers.FlattenObservation(env)
    assumed.append(f"observations flattened to {spaces.flatdim(space)} numbers")
    return flat


def _corners(
    space: Any, assumed: list[str], end: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The box of states: the space's, with an end where it has none."""
    ends = np.stack([space.low, space.high]).astype(np.float64).reshape(2, -1)
    infinite = np.abs(ends) >= _INFINITE
    ends = np.where(infinite, [[-end], [end]], ends)
    if (unbounded := infinite.any(axis=0).sum()) and math.isfinite(end):
        of = f"{unbounded} coordinate{'s' if unbounded > 1 else ''} without ends"
        assumed.append(f"states in {-end:g}:{end:g} along {of}")
    return tuple(ends[0].tolist()), tuple(ends[1].tolist())


def _circles_of(env: Env, assumed: list[str]) -> tuple[tuple[int, int], ...]:
    """Which coordinates are a cosine and a sine, as Gymnasium's pages have it."""
    found = _CIRCLES.get("" if env.spec is None else env.spec.name)
    if found is None:
        known = ", ".join(sorted(_CIRCLES))
        raise InvalidArgument(f"angles are known of {known}, and not of {env.spec and env.spec.id}")
    assumed.append("angles for cosines and sines (documented)")
    return found


def _pushes(env: Env) -> tuple[tuple[float, ...], ...] | None:
    """Vectors of actions that are the points of a box, from -1 to 1 along each coordinate."""
    if not isinstance(env, NumberedActions) or not isinstance(env.env.action_space, spaces.Box):
        return None
    rows = np.array([np.ravel(choice) for choice in env.choices], dtype=np.float64)
    low, high = rows.min(axis=0), rows.max(axis=0)
    half = np.where(high > low, 0.5 * (high - low), 1.0)
    return tuple(map(tuple, ((rows - 0.5 * (low + high)) / half).tolist()))
