"""Tables on pages are those that were stored when they were measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from research import command_lines, mixture_held_out, policy_optimisation, results

ROOT = Path(__file__).parents[2]


def rows(text: str) -> list[str]:
    """The lines of a table."""
    return [line for line in text.splitlines() if line.startswith("|")]


def measured_rows(text: str) -> Iterator[str]:
    """Rows of tables with numbers: those that have a column on the right."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        _, rule, *body = *rows(table), ""
        if "---:" in rule:
            yield from filter(None, body)


@pytest.mark.parametrize("path", results.PAGES, ids=lambda path: path.stem)
def test_a_page_shows_what_is_stored(path: Path) -> None:
    page = path.read_text()
    assert page == results.written(page), "run python -m research.results"


def test_every_stored_table_is_shown_once() -> None:
    shown = [name for path in results.PAGES for name in results.shown(path.read_text())]
    assert sorted(shown) == sorted(results.TABLES)


def test_every_table_of_numbers_is_stored() -> None:
    stored = {row for make in results.TABLES.values() for row in rows(make())}
    missing = [
        f"{page.name}: {row}"
        for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "research").rglob("*.md")]
        for row in measured_rows(page.read_text())
        if row not in stored
    ]
    assert missing == []


def test_policy_optimisation_converges_and_keeps_up_with_value_iteration() -> None:
    """By the shipped defaults: what the pages claim."""
    stored = policy_optimisation.load()
    for name, agent, beside in policy_optimisation.PAIRS:
        assert policy_optimisation.slope(stored[f"{name}; {agent}; not private"]) < 0.6
        assert policy_optimisation.ratio(stored, name, agent, beside) <= 2.0
        assert len(stored[f"{name}; {agent}; epsilon 1"]["users_to_90"]) >= 10


def test_a_table_is_stored_as_it_is_printed(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(command_lines, "stored_file", lambda module: tmp_path / "t.json")
    (tmp_path / "t.json").write_text('{"agents": 1}')
    small = {"--quick": None, "--runs": 1, "--workers": 1, "--only": "statistics", "--store": None}
    given = [str(x) for pair in small.items() for x in pair if x is not None]
    assert mixture_held_out.main(given) == 0
    stored = json.loads((tmp_path / "t.json").read_text())
    assert stored["agents"] == 1
    assert stored["statistics"]["text"] in capsys.readouterr().out
    assert len(rows(stored["statistics"]["text"])) == 2 + len(stored["statistics"]["rows"])
