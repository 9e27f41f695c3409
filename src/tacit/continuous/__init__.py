"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from tacit.continuous.features import FeatureMap, Grid, Polynomial
from tacit.continuous.kernel_features import Custom, Quadrature
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec, SmoothSpec
from tacit.continuous.worlds import BoxWorld, VectorWorld, line

__all__ = [
    "BoxSpec",
    "BoxWorld",
    "Custom",
    "FeatureMap",
    "Grid",
    "Polynomial",
    "QPolicy",
    "Quadrature",
    "SmoothSpec",
    "VectorWorld",
    "line",
]
