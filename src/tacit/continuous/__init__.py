"""Continuous states: worlds whose states are vectors, and values that are linear in features."""

from tacit.continuous.custom_features import Custom
from tacit.continuous.features import FeatureMap, Grid, Polynomial
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
    "SmoothSpec",
    "VectorWorld",
    "line",
]
