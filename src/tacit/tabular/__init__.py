"""Tabular worlds: finite numbers of states and actions."""

from tacit.tabular.world import SparseWorld, TabularWorld, load_world
from tacit.tabular.worlds import deep_sea, grid, health_coach, random_mdp, riverswim

__all__ = [
    "SparseWorld",
    "TabularWorld",
    "deep_sea",
    "grid",
    "health_coach",
    "load_world",
    "random_mdp",
    "riverswim",
]
