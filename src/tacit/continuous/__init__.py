"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from tacit.continuous.features import FeatureMap, Grid, Polynomial
from tacit.continuous.kernel_features import Custom, Quadrature
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec, SimulatedSpec, SmoothSpec
from tacit.continuous.stochastic_policy import ActionBox, GaussianPolicy, SoftmaxPolicy
from tacit.continuous.worlds import BoxWorld, VectorWorld, line

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
