"""The fakes under names of their own, as of another package, for every test of the command line."""

import pytest

from tacit import registry
from tests.cli import fakes


@pytest.fixture(autouse=True)
def fake_names(monkeypatch):
    """By module and name, so that they can be imported in other processes too."""
    made, usual = fakes.__name__, registry.worlds
    names = {"two_coins": "two_coins", "unknown": "unknown_optimum"}
    worlds = {name: f"{made}:{function}" for name, function in names.items()}
    monkeypatch.setitem(registry.BUILT_IN, "scripted", f"{made}:Scripted")
    monkeypatch.setattr(registry, "worlds", lambda: usual() | worlds)
