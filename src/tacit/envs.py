"""Our worlds as environments of Gymnasium: importing this module registers them.

``import tacit`` does it by itself where Gymnasium is there already; and
``gymnasium.make("tacit.envs:tacit/RiverSwim-v0")`` needs no import at all. Nothing else is loaded
before an environment is made. (Entry points of plug-ins are read by Gymnasium below 1.0 only.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

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
"""Worlds by family and by name of their environment, ``tacit/<name>-v0``."""

GIVEN: Mapping[str, Mapping[str, Any]] = {
    "random_mdp": {"states": 10, "actions": 3, "horizon": 10, "seed": 0}
}
"""Parameters of worlds that have no defaults."""


KINDS = {"lq": "tacit.lq.gym:LQEnv", "continuous": "tacit.continuous.gym:BoxEnv"}
"""Classes of environments by family, of those that are not finite."""


def register_envs() -> None:
    """Registers all that are not there."""
    for family, names in NAMES.items():
        for name, world in names.items():
            if (full := f"tacit/{name}-v0") not in gymnasium.registry:
                kind = KINDS.get(family, "tacit.finite.env:FiniteEnv")
                given = {"kind": kind, "world": f"tacit.{family}.worlds:{world}"}
                given |= GIVEN.get(world, {})
                gymnasium.register(full, "tacit.finite.env:make_env", kwargs=given)


register_envs()
