"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from tacit.continuous.action_box import ActionBox
from tacit.continuous.features import FeatureMap, Grid, Polynomial
from tacit.continuous.kernel_features import Custom, Quadrature
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec, SimulatedSpec, SmoothSpec
from tacit.continuous.stochastic_policy import GaussianPolicy, SoftmaxPolicy
from tacit.continuous.world import VectorWorld
from tacit.continuous.worlds import BoxWorld, line

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
