"""Tabular worlds: finite numbers of states and actions."""

from typing import TYPE_CHECKING, Any

from tacit.tabular.sparse_world import SparseWorld
from tacit.tabular.world import TabularWorld, load_world, world_schema
from tacit.tabular.worlds import deep_sea, grid, health_coach, random_mdp, riverswim

if TYPE_CHECKING:
    from tacit.tabular.gym import from_gymnasium

__all__ = [
    "SparseWorld",
    "TabularWorld",
    "deep_sea",
    "from_gymnasium",
    "grid",
    "health_coach",
    "load_world",
    "random_mdp",
    "riverswim",
    "world_schema",
]


def __getattr__(name: str) -> Any:
    # Gymnasium is loaded by those who ask for it.
    if name == "from_gymnasium":
        from tacit.tabular.gym import from_gymnasium

        return from_gymnasium
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
