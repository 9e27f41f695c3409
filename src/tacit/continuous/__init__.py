"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from typing import TYPE_CHECKING, Any

from tacit.continuous.features import Custom, FeatureMap, Fourier, Grid, Polynomial
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.world import BoxWorld, CartPoleWorld, VectorWorld
from tacit.continuous.worlds import cartpole, line, plane, trap

if TYPE_CHECKING:
    from tacit.continuous.gym import from_gymnasium

__all__ = [
    "BoxSpec",
    "BoxWorld",
    "CartPoleWorld",
    "Custom",
    "FeatureMap",
    "Fourier",
    "Grid",
    "Polynomial",
    "QPolicy",
    "VectorWorld",
    "cartpole",
    "from_gymnasium",
    "line",
    "plane",
    "trap",
]


def __getattr__(name: str) -> Any:
    # Gymnasium is loaded by those who ask for it.
    if name == "from_gymnasium":
        from tacit.continuous.gym import from_gymnasium

        return from_gymnasium
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
