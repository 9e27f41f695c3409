"""Ways to ask: strategies of an algorithm that live in modules of their own.

An algorithm's page names its ways in a table and reads without any of them; only the one that a run
takes is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def way(target: str) -> type[Any]:
    """The class behind ``"module:name"``.

    >>> way("tacit.core.asks:Ask").__name__
    'Ask'
    """
    module, _, name = target.partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found
