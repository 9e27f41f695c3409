"""Tables on pages are those that were stored when they were measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from research import (
    command_lines,
    fewer_users,
    fewer_users_control,
    fewer_users_linear,
    functional_curves,
    glucose,
    gymnasium,
    icu_sepsis,
    large_worlds,
    linear_comparison,
    lq_orders,
    misspecification,
    mixture_held_out,
    offline,
    paper_orders,
    paper_switching,
    plan_check,
    policy_gradients,
    policy_optimisation,
    public_prior,
    smooth_control,
    which_agent,
)
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
    "epsilon_cost": "epsilon-cost.md",
    "held_out": "epsilon-cost.md",
}
"""Which page shows what a module of research/ stored as it was printed."""
AUDITS = "| agent | joint | joint, pure | local | local, pure | local, randomised response |"
"""The one table that is compared by its names and its count, in ``test_audit_table``."""


def rows(text: str) -> list[str]:
    """The lines of a table."""
    return [line for line in text.splitlines() if line.startswith("|")]


def stored_tables() -> Iterator[str]:
    """Everything that was measured and stored, as pages show it."""
    for name in PAGES:
        for table in json.loads(stored_file(name).read_text()).values():
            yield table["text"]
    measured = list(misspecification.stored().values())
    yield from (misspecification.markdown(measured, world) for world in misspecification.KINDS)
    large = list(large_worlds.stored().values())
    yield large_worlds.markdown(large, sorted({row["world"] for row in large}))
    yield linear_comparison.markdown(json.loads(linear_comparison.STORED.read_text()))
    yield paper_switching.markdown(list(paper_switching.stored().values()))
    yield paper_orders.markdown(paper_orders.stored())
    yield lq_orders.table(lq_orders.load())
    yield lq_orders.width_table()
    yield functional_curves.table(functional_curves.load())
    yield functional_curves.value_table(functional_curves.load())
    yield policy_optimisation.users_table(policy_optimisation.load())
    yield policy_optimisation.slopes_table(policy_optimisation.load())
    yield fewer_users.table(fewer_users.load())
    yield fewer_users.ablations(fewer_users.load())
    control = fewer_users_control.load()
    for agent in {case.agent for case in fewer_users_control.CASES}:
        yield from (fewer_users_control.table(control, agent, held) for held in (False, True))
    posterior = list(fewer_users_linear.stored().values())
    for table in ("linear", "mixture", "ablations"):
        yield fewer_users_linear.markdown(posterior, table)
    yield public_prior.table(public_prior.load())
    yield which_agent.table(which_agent.load())
    icu = icu_sepsis.stored().values()
    yield "\n".join(row.line.replace("ablation: ", "") for row in icu)
    yield gymnasium.table(gymnasium.load())
    yield policy_gradients.table(policy_gradients.load())
    yield plan_check.table(plan_check.load())
    yield from (smooth_control.table(smooth_control.load(), learnt) for learnt in (False, True))
    yield "\n".join(row.line for row in glucose.stored().values())
    yield "\n".join(offline.line(name, row) for name, row in offline.stored().items())


def measured_rows(text: str) -> Iterator[str]:
    """Rows of tables with numbers: those that have a column on the right."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, rule, *body = rows(table)
        if "---:" in rule and head != AUDITS:
            yield from body


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_stored_rows(name: str) -> None:
    page = (ROOT / "docs" / PAGES[name]).read_text()
    for table, stored in json.loads(stored_file(name).read_text()).items():
        missing = [row for row in rows(stored["text"]) if row not in page]
        assert missing == [], f"{name}, {table}"


def test_every_table_of_numbers_is_stored() -> None:
    stored = {row for table in stored_tables() for row in rows(table)}
    missing = [
        f"{page.name}: {row}"
        for page in (ROOT / "docs").rglob("*.md")
        for row in measured_rows(page.read_text())
        if row not in stored
    ]
    assert missing == []


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
