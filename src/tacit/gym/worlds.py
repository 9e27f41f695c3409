"""Environments of Gymnasium as worlds, of finitely many states or of vectors.

What an environment does not say is by :mod:`tacit.gym.rules`, and for vectors by these:

- **observations** that are neither numbered nor a Box are flattened as Gymnasium flattens them.
- **the box of states**: that of the observations; an end that is infinite is :data:`END`.
- **actions** that are points of a box push along its coordinates.
- **features**: the agents' own rule, a grid up to two coordinates and monomials beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from tacit.continuous.features import FeatureMap
from tacit.gym.finite import finite_world
from tacit.gym.rules import Env, horizon_of, name_of, opened, own_world
from tacit.gym.vectors import vector_world
from tacit.privacy.errors import InvalidArgument

_OF_VECTORS = ("evaluation_steps", "lows", "highs", "features", "discount", "levels", "angles")


def from_gymnasium(
    env_or_id: str | Env,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    *,
    return_range: tuple[float, float] | None = None,
    optimal_value: float | None = None,
    evaluation_users: int | None = None,
    evaluation_steps: int | None = None,
    action_levels: int | None = None,
    lows: Sequence[float] | None = None,
    highs: Sequence[float] | None = None,
    features: FeatureMap | None = None,
    discount: float | None = None,
    levels: int | None = None,
    angles: bool = False,
    **kwargs: Any,
) -> Any:
    """An environment as a world; what is not given is by rule: see this module.

    Environments of ours become their worlds, if nothing else is said. With finitely many
    observations, those that expose their table of transitions (``env.unwrapped.P``, as FrozenLake,
    Taxi and CliffWalking do) become an :class:`~.finite.ImportedWorld` with exact values, and the
    others a :class:`~.finite.SampledWorld`, whose values are estimates. Where a table gives one
    transition several rewards, the reward is drawn independently of the next state given state and
    action. All that have vectors for observations become a :class:`~.vectors.GymnasiumWorld`.

    Args:
        env_or_id: an environment, which is the world's from now on, or the id of one.
        horizon: steps of a user's episode; of vectors at most the environment's time limit.
        reward_range: the smallest and the largest reward that agents see; others are clipped.
        return_range: bounds of their sum over an episode, of finitely many states without a table.
        optimal_value: the best value that is known, where there is no table. Without it
            losses and scores are NaN, and values are what is left.
        evaluation_users: how many episodes a value is estimated from; 1000, or 100 of vectors.
        evaluation_steps: of an episode that a value is estimated from; the horizon by default.
            This and what follows but ``action_levels`` is for vectors.
        action_levels: values along each coordinate of a continuous action.
        lows: the lower corner of the box of states.
        highs: its upper corner.
        features: a feature map that suits the world.
        discount: what the agent should weigh the future with; .95 by default.
        levels: actions that are vectors stay vectors, of a mesh with so many points along each
            coordinate, 0 for a fine one; see :class:`tacit.continuous.ActionBox`.
        angles: states have an angle for every cosine and sine that Gymnasium documents, which
            :class:`~tacit.ModelPosterior` knows how to plan with; of Acrobot and Pendulum.
        **kwargs: for ``gymnasium.make``.

    >>> world = from_gymnasium("FrozenLake-v1", horizon=20, is_slippery=False)
    >>> world.spec.states, world.spec.horizon, world.optimal_value
    (16, 20, 1.0)
    >>> world = from_gymnasium("MountainCar-v0")
    >>> world.spec.horizon, world.spec.reward_range, world.spec.actions
    (200, (-1.0, 0.0), 3)
    >>> world.assumed
    ('horizon 200 (the time limit)', 'rewards in -1:0 (documented)')
    """
    given = {name: value for name, value in locals().items() if name not in ("env_or_id", "kwargs")}
    given["angles"] = angles or None
    env, assumed = opened(env_or_id, kwargs), list[str]()
    own, space = own_world(env), env.observation_space
    if own is not None and all(value is None for value in given.values()):
        return own
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    finite = all(isinstance(part, spaces.Discrete) for part in parts)
    finite |= isinstance(space, spaces.MultiDiscrete)
    for option in _OF_VECTORS if finite else ("return_range",):
        if given[option] is not None:
            raise InvalidArgument(f"{option} means nothing to {space}")
    if finite:
        given["horizon"] = horizon_of(env, horizon, assumed)
    make = finite_world if finite else vector_world
    return make(env, name_of(env, given), assumed, **given)
