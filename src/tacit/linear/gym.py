"""Linear MDPs as environments of Gymnasium.

Importing this module registers the built-in worlds: ``tacit/TwoState-v0`` and ``tacit/Simplex-v0``.
"""

from __future__ import annotations

from typing import Any

from tacit.finite.env import FiniteEnv, Registered, register_worlds
from tacit.linear import worlds


def register_envs() -> None:
    """Registers the built-in worlds with Gymnasium; once is enough, twice does no harm."""
    worlds_of: tuple[Registered, ...] = ("TwoState", "two_state", {}), ("Simplex", "simplex", {})
    register_worlds("tacit.linear.gym:make_env", worlds_of)


def make_env(world: str, **parameters: Any) -> FiniteEnv:
    """The environment of a built-in world; what ``gymnasium.make`` calls."""
    return FiniteEnv(getattr(worlds, world)(**parameters))


register_envs()
