"""The pages of the papers say where in the code each line of a paper is."""

from __future__ import annotations

import pytest

from tests.papers import pages

LINES = {
    "chowdhury_lq_2021": {"Alg. 1": 9},
    "chowdhury_tabular_2021": {"Alg. 1": 13, "Alg. 2": 12},
    "sahu_linear_2025": {"Alg. 1": 29},
    "wang_functional_2019": {"Alg. 1": 24},
    "zhou_mixture_2022": {"Alg. 1": 14, "Alg. 2": 15},
}
"""How many lines the algorithms of the papers have."""


@pytest.mark.parametrize("name", pages.NAMES)
def test_every_line_of_the_paper_is_in_the_code(name: str) -> None:
    expected = {(alg, k) for alg, lines in LINES[name].items() for k in range(1, lines + 1)}
    assert set(pages.anchors(name)) == expected


@pytest.mark.parametrize("name", pages.NAMES)
def test_page_names_the_lines_where_they_are(name: str) -> None:
    page = (pages.PAGES / f"{name}.md").read_text()
    assert page == pages.written(page, name), "run python -m tests.papers.pages"
