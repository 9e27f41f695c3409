"""No public name changes by accident."""

import ast

import tacit
from tests.public_api import RECORD, STUB, described, stub


def _entries(text):
    return [entry for entry in text.split("\n\n") if entry.strip()]


def _statements(text):
    """Statements in any order; imports one by one."""
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            found += [f"from {node.module} import {ast.unparse(name)}" for name in node.names]
        elif isinstance(node, ast.Assign):
            found += ast.literal_eval(node.value)
        else:
            found.append(ast.unparse(node))
    return sorted(found)


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
    assert [name for name in names if not hasattr(getattr(tacit, name), "algorithm")] == []


def test_type_checkers_see_the_signatures_that_there_are():
    """The stub has every public name, and every option of every agent with its type."""
    assert _statements(STUB.read_text()) == _statements(stub())
