"""The table of users to 90 % of the posterior agents: what the documentation shows is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.fewer_users_linear import CASES, band, markdown, stored

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("table", "page"), [("linear", "linear"), ("mixture", "mixture"), ("ablations", "linear")]
)
def test_the_documentation_shows_what_is_stored(table: str, page: str) -> None:
    assert markdown(list(stored().values()), table) in (DOCS / f"{page}.md").read_text()


def test_names_are_different() -> None:
    names = [case.name(epsilon) for case in CASES for epsilon in case.users]
    assert len(set(names)) == len(names)


def test_a_run_that_never_got_there_counts_as_infinite() -> None:
    assert band([100, None, 120])[2] == float("inf")
