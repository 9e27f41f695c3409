"""How a privacy bug gets into an agent; see :mod:`research.planted_bugs`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tacit.privacy.statistic import Block, Floats


class Tampered:
    """Tampers with an agent's gate when it is made, and again when it is loaded."""

    _curator: Any
    _stream: Any
    privacy: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tamper()

    def load(self, *args: Any, **options: Any) -> Any:
        """As the agent does."""
        super().load(*args, **options)  # type: ignore[misc]
        self._tamper()
        return self

    def _tamper(self) -> None:
        raise NotImplementedError


class Curated(Tampered):
    """Has another curator."""

    curator: type[Any]

    def _tamper(self) -> None:
        self._curator.__class__ = self.curator


class Asks:
    """Asks a statistic of its own kind, with the fields of the right one."""

    asks: type[Any]

    def _statistic(self, *args: Any) -> Any:
        true = super()._statistic(*args)  # type: ignore[misc]
        options = {f.name: getattr(true, f.name) for f in dataclasses.fields(true) if f.init}
        return self.asks(**options)


def plant(bug: type[Any], agent: type[Any]) -> type[Any]:
    """The agent with the bug."""
    return type(bug.__name__, (bug, agent), {"__doc__": bug.__doc__})


def careless_rewards(block: Block) -> Floats:
    """What a careless programmer reads: whatever is there, cut to [0, 1]."""
    name = "rewards" if "rewards" in block.arrays else "states"
    values: Floats = np.clip(np.nan_to_num(np.asarray(block[name], dtype=float)), 0.0, 1.0)
    return values
