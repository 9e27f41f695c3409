"""Linear-quadratic control: states that move linearly, costs that are quadratic."""

from tacit.lq.spec import GainPolicy, LQSpec
from tacit.lq.statistics import TrajectorySums
from tacit.lq.world import Ball, LQWorld
from tacit.lq.worlds import dosing, double_integrator

__all__ = [
    "Ball",
    "GainPolicy",
    "LQSpec",
    "LQWorld",
    "TrajectorySums",
    "dosing",
    "double_integrator",
]
