"""Worlds that tables are about, and nobody who uses the library needs.

A command line has them by their module, as ``research.worlds.plane:horizon=20``, from a clone;
:func:`build` takes their names alone.
"""

from __future__ import annotations

from typing import Any

from research.worlds.boxes import plane, trap
from research.worlds.classic import acrobot, mountain_car, pendulum, poles
from research.worlds.glucose import glucose
from research.worlds.gusts import gusts
from tacit.registry import build_world

__all__ = [
    "acrobot",
    "build",
    "glucose",
    "gusts",
    "mountain_car",
    "pendulum",
    "plane",
    "poles",
    "trap",
]


def build(text: str) -> Any:
    """The world of a text, of the library or of here.

    >>> build("plane:horizon=20").name
    'research.worlds.plane:horizon=20,discount=0.95'
    """
    own = text.partition(":")[0] in __all__
    return build_world(f"research.worlds.{text}" if own else text)
