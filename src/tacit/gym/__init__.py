"""Gymnasium, in both directions: its environments as worlds, and our worlds as environments.

Importing this module registers ours, ``tacit/<name>-v0``. ``import tacit`` does it by itself where
Gymnasium is there already; ``gymnasium.make("tacit.gym:tacit/RiverSwim-v0")`` needs no import at
all. Nothing else is loaded before an environment is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from tacit.gym.worlds import from_gymnasium

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
    "lq": {"Dosing": "dosing", "DoubleIntegrator": "double_integrator"},
    "continuous": {"Line": "line"},
}
"""Worlds by family and by name of their environment."""

GIVEN: Mapping[str, Mapping[str, Any]] = {
    "random_mdp": {"states": 10, "actions": 3, "horizon": 10, "seed": 0}
}
"""Parameters of worlds that have no defaults."""


def register_envs() -> None:
    """Registers all that are not there."""
    for family, names in NAMES.items():
        for name, world in names.items():
            if (full := f"tacit/{name}-v0") not in gymnasium.registry:
                given = {"world": f"tacit.{family}.worlds:{world}"} | dict(GIVEN.get(world, {}))
                gymnasium.register(full, "tacit.gym.envs:make_env", kwargs=given)


def __getattr__(name: str) -> Any:
    # Families are loaded by those who ask for it.
    if name == "from_gymnasium":
        from tacit.gym.worlds import from_gymnasium

        return from_gymnasium
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register_envs()
