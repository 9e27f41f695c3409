"""Gymnasium, in both directions: its environments as worlds, and our finite ones as environments.

Importing this module registers ours, ``tacit/<name>-v0``. ``import tacit`` does it by itself where
Gymnasium is there already; ``gymnasium.make("tacit.gym:tacit/RiverSwim-v0")`` needs no import at
all. Nothing else is loaded before an environment is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap

__all__ = ["from_gymnasium", "register_envs"]

NAMES: Mapping[str, Mapping[str, str]] = {
    "tabular": {
        "RiverSwim": "riverswim",
        "Grid": "grid",
        "DeepSea": "deep_sea",
        "RandomMDP": "random_mdp",
        "HealthCoach": "health_coach",
    },
    "linear": {"TwoState": "two_state", "Simplex": "simplex"},
    "mixture": {"HardMixture": "hard_mixture", "MixtureOfModels": "mixture_of_models"},
}
"""Finite worlds by family and by name of their environment."""

# Parameters of worlds that have no defaults.
_GIVEN = {"random_mdp": {"states": 10, "actions": 3, "horizon": 10, "seed": 0}}


def register_envs() -> None:
    """Registers all that are not there."""
    for family, names in NAMES.items():
        for name, world in names.items():
            if (full := f"tacit/{name}-v0") not in gymnasium.registry:
                given = {"world": f"tacit.{family}.worlds:{world}"} | _GIVEN.get(world, {})
                gymnasium.register(full, "tacit.gym.finite:make_env", kwargs=given)


def from_gymnasium(
    env_or_id: str | gymnasium.Env[Any, Any],
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    *,
    optimal_value: float | None = None,
    evaluation_users: int | None = None,
    action_levels: int | None = None,
    features: FeatureMap | None = None,
    discount: float | None = None,
    angles: bool = False,
    **kwargs: Any,
) -> Any:
    """An environment as a world; what is not given is by the rules of :mod:`tacit.gym.rules`.

    Environments of ours become their worlds, if nothing else is said. With finitely many
    observations, those that expose their table of transitions (``env.unwrapped.P``, as FrozenLake,
    Taxi and CliffWalking do) become an :class:`~.finite.ImportedWorld` with exact values, and the
    others a :class:`~.finite.SampledWorld`, whose values are estimates. All that have vectors for
    observations become a :class:`~.vectors.GymnasiumWorld`.

    Args:
        env_or_id: an environment, which is the world's from now on, or the id of one.
        horizon: steps of a user's episode; of vectors at most the environment's time limit.
        reward_range: the smallest and the largest reward that agents see; others are clipped.
        optimal_value: the best value that is known, where there is no table. Without it
            losses and scores are NaN, and values are what is left.
        evaluation_users: how many episodes a value is estimated from; 1000, or 100 of vectors.
        action_levels: values along each coordinate of a continuous action.
        features: a feature map that suits the world; this and what follows is for vectors.
        discount: what the agent should weigh the future with; .95 by default.
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
    from tacit.gym.finite import finite_world
    from tacit.gym.rules import countable, horizon_of, name_of, opened, own_world
    from tacit.gym.vectors import vector_world

    given["angles"] = angles or None
    env, assumed = opened(env_or_id, kwargs), list[str]()
    own, space = own_world(env), env.observation_space
    if own is not None and all(value is None for value in given.values()):
        return own
    finite = countable(space)
    for option in ("features", "discount", "angles"):
        if finite and given[option] is not None:
            raise InvalidArgument(f"{option} means nothing to {space}")
    if finite:
        given["horizon"] = horizon_of(env, horizon, assumed)
    make: Any = finite_world if finite else vector_world
    return make(env, name_of(env, given), assumed, **given)


register_envs()
