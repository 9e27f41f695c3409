"""No public name changes by accident."""

from __future__ import annotations

import ast
from pathlib import Path

import tacit
from tests.public_api import RECORD, described


def _entries(text: str) -> list[str]:
    return [entry for entry in text.split("\n\n") if entry.strip()]


def test_public_names_are_as_recorded():
    """After a change that was meant: ``make public-api``, and a line in the changelog."""
    now = [entry.strip() for entry in _entries(described())]
    gone = [entry for entry in _entries(RECORD.read_text()) if entry.strip() not in now]
    assert gone == []


def test_new_names_are_recorded_but_for_agents():
    """An agent is its file, its test and its page: it is public by being there."""
    recorded = {entry.strip() for entry in _entries(RECORD.read_text())}
    new = [entry.strip() for entry in _entries(described()) if entry.strip() not in recorded]
    names = [entry.split("(")[0].split("tacit.")[-1] for entry in new]
    agents = {n for n in tacit.__all__ if isinstance(getattr(tacit, n), tacit.AgentKind)}
    assert [name for name in names if name not in agents] == []


def test_the_stub_has_the_public_names() -> None:
    stub = ast.parse((Path(tacit.__file__).parent / "__init__.pyi").read_text())
    (names,) = [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)]
    assert sorted(names) == tacit.__all__
