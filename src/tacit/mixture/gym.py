"""Linear mixture MDPs as environments of Gymnasium.

Importing this module registers the built-in worlds: ``tacit/HardMixture-v0``,
``tacit/Keyboard-v0`` and ``tacit/MixtureOfModels-v0``.
"""

from __future__ import annotations

from typing import Any

from tacit.finite.env import FiniteEnv, Registered, register_worlds
from tacit.mixture import worlds


def register_envs() -> None:
    """Registers the built-in worlds with Gymnasium; once is enough, twice does no harm."""
    register_worlds("tacit.mixture.gym:make_env", _REGISTERED)


def make_env(world: str, **parameters: Any) -> FiniteEnv:
    """The environment of a built-in world; what ``gymnasium.make`` calls."""
    return FiniteEnv(getattr(worlds, world)(**parameters))


_REGISTERED: tuple[Registered, ...] = (
    ("HardMixture", "hard_mixture", {}),
    ("Keyboard", "keyboard", {}),
    ("MixtureOfModels", "mixture_of_models", {}),
)

register_envs()
