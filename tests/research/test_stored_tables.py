"""Tables on pages are those that were stored when they were measured."""

import re
from pathlib import Path

import pytest

from research import results
from research.study import load
from tacit.cli.run import SUITE, _read_sweep

ROOT = Path(__file__).parents[2]


def rows(text):
    """The lines of a table."""
    return [line for line in text.splitlines() if line.startswith("|")]


def measured_rows(text):
    """Rows of tables with numbers: those that have a column on the right."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        _, rule, *body = *rows(table), ""
        if "---:" in rule:
            yield from filter(None, body)


@pytest.mark.parametrize("path", results.PAGES, ids=lambda path: path.stem)
def test_a_page_shows_what_is_stored(path):
    page = path.read_text()
    assert page == results.written(page), "run python -m research.results"


def test_every_stored_table_is_shown_once():
    shown = [name for path in results.PAGES for name in results.shown(path.read_text())]
    assert sorted(shown) == sorted(results.TABLES)


def test_every_table_of_numbers_is_stored():
    stored = {row for make in results.TABLES.values() for row in rows(make())}
    missing = [
        f"{page.name}: {row}"
        for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "research").rglob("*.md")]
        for row in measured_rows(page.read_text())
        if row not in stored
    ]
    assert missing == []


def test_stored_runs_of_the_suite_are_those_that_its_command_makes():
    wanted = _read_sweep(str(SUITE))
    users = dict(zip(wanted["worlds"], wanted["users"], strict=True))
    stored = load("suite")
    assert stored.keys() <= users.keys()
    assert len(wanted["seeds"]) >= 10
    for world, lines in stored.items():
        assert lines.keys() <= {f"auto, {words}" for words in ("epsilon 1", "no privacy")}
        for line in lines.values():
            assert [run["seed"] for run in line["runs"]] == [*wanted["seeds"]]
            assert line["users"] == users[world]
