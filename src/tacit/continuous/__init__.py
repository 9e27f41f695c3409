"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.continuous.action_box import ActionBox
from tacit.continuous.features import Custom, FeatureMap, Grid, Polynomial
from tacit.continuous.kernel_maps import Quadrature
from tacit.continuous.policy import GaussianPolicy, QPolicy, SoftmaxPolicy
from tacit.continuous.simulated_spec import SimulatedSpec
from tacit.continuous.smooth_spec import SmoothSpec
from tacit.continuous.spec import BoxSpec
from tacit.continuous.world import BoxWorld, CartPoleWorld, VectorWorld
from tacit.continuous.worlds import cartpole, line

if TYPE_CHECKING:
    from tacit.continuous.gym import from_gymnasium

__all__ = [
    "ActionBox",
    "BoxSpec",
    "BoxWorld",
    "CartPoleWorld",
    "Custom",
    "FeatureMap",
    "GaussianPolicy",
    "Grid",
    "Polynomial",
    "QPolicy",
    "Quadrature",
    "SimulatedSpec",
    "SmoothSpec",
    "SoftmaxPolicy",
    "VectorWorld",
    "cartpole",
    "from_gymnasium",
    "line",
]

# Loaded by those who ask for them; the other agents of this family are names of ``tacit`` itself.
_LAZY = {
    "from_gymnasium": "gym",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tacit.core.kinds import maker

    return maker(getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name))
