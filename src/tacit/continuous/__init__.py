"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from tacit.continuous.action_box import ActionBox
from tacit.continuous.features import Custom, FeatureMap, Grid, Polynomial, Quadrature
from tacit.continuous.policy import GaussianPolicy, QPolicy, SoftmaxPolicy
from tacit.continuous.spec import BoxSpec, SimulatedSpec, SmoothSpec
from tacit.continuous.world import BoxWorld, VectorWorld
from tacit.continuous.worlds import line

__all__ = [
    "ActionBox",
    "BoxSpec",
    "BoxWorld",
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
    "line",
]
