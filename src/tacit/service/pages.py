"""Pages for people: to be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tools:
    """What a page says of a ledger and of policies; the command line has the words."""

    report: Callable[..., dict[str, Any]]
    html: Callable[[dict[str, Any]], str]
    differences: Callable[[Any, Any], dict[str, Any]]


def add(app: Any, service: Any, tools: Tools | None) -> None:
    """Adds the pages."""
