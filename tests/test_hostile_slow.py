"""Hostile input, many inputs per entry point; see ``test_hostile_input.py``."""

from __future__ import annotations

import pytest

from research.hostile.fuzzing import HEADING, EntryPoint, fuzz
from research.hostile_campaign import entry_points, main

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("entry", entry_points(), ids=lambda entry: entry.name)
def test_nothing_breaks(entry: EntryPoint) -> None:
    assert fuzz(entry, 300, seed=1).broken == []


def test_the_command_counts_nothing_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--examples", "20", "--only", "Budget"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == HEADING
    assert lines[1].split()[-1] == "0"
