"""The fakes under names of their own, as of another package, for every test of the command line."""

from __future__ import annotations

import pytest

from tacit import registry
from tests.cli import fakes


@pytest.fixture(autouse=True)
def fake_names(monkeypatch):
    """By module and name, so that they can be imported in other processes too."""
    made = fakes.__name__
    names = {"unknown": f"{made}:unknown_optimum", "wrong": f"{made}:wrong_optimum"}
    plugged = {
        registry.AGENTS: {"scripted": f"{made}:Scripted", "lost": "no.such.module:Agent"},
        registry.WORLDS: {"two_coins": f"{made}:two_coins", **names},
    }
    usual = registry._plugged
    monkeypatch.setattr(registry, "_plugged", lambda group: usual(group) | plugged[group])
