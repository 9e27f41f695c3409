"""Tables on pages are those that were stored when they were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from research import command_lines, mixture_held_out, policy_optimisation
from research.command_lines import stored_file

ROOT = Path(__file__).parents[2]
PAGES = {
    "mixture_held_out": "mixture.md",
    "mixture_orders": "mixture.md",
    "tabular_orders": "policy-optimisation.md",
    "lq_held_out": "lq.md",
    "continuous_held_out": "continuous.md",
    "linear_held_out": "linear.md",
    "linear_budgets": "linear.md",
}
"""Which page shows what a module of research/ stored."""
ELSEWHERE = {"environments.md", "many-states.md", "noise.md", "offline.md"}
"""Pages whose results have a test of their own."""
UNSTORED = {"continuous.md", "epsilon-cost.md", "linear.md", "lq.md", "mixture.md"}
"""Pages on which some results are older than this test: ``--store`` keeps those that are measured
again. No other page may have any."""
STORED = [name for name in PAGES if stored_file(name).exists()]


def rows(text: str) -> list[str]:
    """The lines of a table."""
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("name", STORED)
def test_a_page_has_the_stored_rows(name: str) -> None:
    page = (ROOT / "docs" / PAGES[name]).read_text()
    for table, stored in json.loads(stored_file(name).read_text()).items():
        missing = [row for row in rows(stored["text"]) if row not in page]
        assert missing == [], f"{name}, {table}"


def test_results_are_stored_but_for_those_that_are_older() -> None:
    stored = {
        row
        for name in STORED
        for table in json.loads(stored_file(name).read_text()).values()
        for row in rows(table["text"])
    }
    kept = policy_optimisation.load()
    stored |= {*rows(policy_optimisation.users_table(kept))}
    found = {
        page.name
        for page in (ROOT / "docs").glob("*.md")
        for row in rows(page.read_text())
        if re.search(r"\d \[|\d \(\d", row) and row not in stored
    }
    assert found <= UNSTORED | ELSEWHERE


def test_policy_optimisation_is_shown_as_it_was_measured() -> None:
    page, stored = (ROOT / "docs/policy-optimisation.md").read_text(), policy_optimisation.load()
    assert policy_optimisation.slopes_table(stored) in page
    assert policy_optimisation.users_table(stored) in page


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
