"""Worlds that tables are about, and nobody who uses the library needs.

A command line has them by their module, as ``research.worlds.plane:horizon=20``, from a clone;
:func:`build` takes their names alone.
"""

from __future__ import annotations

from typing import Any

from research.worlds.boxes import plane, trap
from research.worlds.classic import cartpole, mountain_car, pendulum
from research.worlds.lq import random_system, thermostat
from research.worlds.mixture import currents, keyboard
from research.worlds.tabular import habit, icu_sepsis, sparse_mdp
from tacit.registry import build_world

__all__ = [
    "build",
    "cartpole",
    "currents",
    "habit",
    "icu_sepsis",
    "keyboard",
    "mountain_car",
    "pendulum",
    "plane",
    "random_system",
    "sparse_mdp",
    "thermostat",
    "trap",
]


def build(text: str) -> Any:
    """The world of a text, of the library or of here.

    >>> build("plane:horizon=20").name
    'research.worlds.plane:horizon=20,discount=0.95'
    """
    own = text.partition(":")[0] in __all__
    return build_world(f"research.worlds.{text}" if own else text)
