"""Linear-quadratic control: states that move linearly, costs that are quadratic."""

from tacit.lq.policy import GainPolicy
from tacit.lq.spec import LQSpec
from tacit.lq.statistics import TrajectorySums
from tacit.lq.world import Ball, LQWorld, Sphere
from tacit.lq.worlds import dosing, double_integrator

__all__ = [
    "Ball",
    "GainPolicy",
    "LQSpec",
    "LQWorld",
    "Sphere",
    "TrajectorySums",
    "dosing",
    "double_integrator",
]
