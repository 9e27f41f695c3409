"""The fakes under names of their own, for every test of the command line."""

from __future__ import annotations

import pytest

from tacit import registry
from tests.cli import fakes


@pytest.fixture(autouse=True)
def fake_names(monkeypatch):
    """By module and name, so that they can be imported in other processes too."""
    tables = {group: dict(names) for group, names in registry._REGISTERED.items()}
    monkeypatch.setattr(registry, "_REGISTERED", tables)
    registry.register_agent("scripted", f"{fakes.__name__}:Scripted")
    registry.register_world("two_coins", f"{fakes.__name__}:two_coins")
    registry.register_world("unknown", f"{fakes.__name__}:unknown_optimum")
    registry.register_world("wrong", f"{fakes.__name__}:wrong_optimum")
