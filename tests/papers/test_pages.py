"""The pages of the papers say where in the code each line of a paper is."""

import re

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
def test_every_line_of_the_paper_is_in_the_code(name):
    expected = {(alg, k) for alg, lines in LINES[name].items() for k in range(1, lines + 1)}
    assert set(pages.anchors(name)) == expected


@pytest.mark.parametrize("name", pages.NAMES)
def test_page_names_the_lines_where_they_are(name):
    page = (pages.PAGES / f"{name}.md").read_text()
    assert page == pages.written(page, name), "run python -m tests.papers.pages"


PLUMBING = {
    *("finite_loops", "result", "counters", "compiled", "control_loops", "world_loops"),
    *("budget", "errors", "noise", "sensitivity", "statistic", "validation"),
    *("features", "custom_features", "policy", "spec", "world", "worlds"),
}
"""What files of papers import: users, noise, arithmetic and results; nothing of an algorithm."""


@pytest.mark.parametrize("name", pages.NAMES)
def test_one_file_has_all_of_a_papers_algorithms(name):
    """Besides plumbing it imports nothing, and no plumbing has a line of a paper."""
    source = (pages.SOURCES / f"{name}.py").read_text()
    imported = re.findall(r"^\s*(?:from|import) (tacit[\w.]*)", source, re.MULTILINE)
    assert {module.rpartition(".")[2] for module in imported} <= PLUMBING
    for module in imported:
        assert not module.startswith(tuple(f"tacit.papers.{other}" for other in pages.NAMES))
    for part in pages.SOURCES.glob("*.py"):
        if part.stem not in pages.NAMES:
            assert not pages.anchors(part.stem)
    # What is printed is within it, step by step: comments name every line of the algorithms.
    assert len(pages.anchors(name)) == sum(LINES[name].values())


def index(name):
    """Where a page says that statements are."""
    page = (pages.PAGES / f"{name}.md").read_text()
    section = page.partition("## Where each statement is\n")[2].partition("\n## ")[0]
    found = {}
    for names, where in re.findall(r"^\| (.*?) \| (.*) \|$", section, re.MULTILINE)[1:]:
        for one in names.split(", "):
            assert one not in found, one
            found[one] = where
    return found


@pytest.mark.parametrize("name", pages.NAMES)
def test_what_an_index_names_in_the_code_is_there(name):
    """Of what stands in backticks, functions and classes of the paper's file or its tools."""
    parts = [f"src/tacit/papers/{part}.py" for part in (name, "counters", "result")]
    source = "\n".join((pages.ROOT / part).read_text() for part in parts)
    for where in index(name).values():
        for word in re.findall(r"`(\w+)(?:\.\w+)?`", where):
            assert re.search(rf"\b{word}\b", source), word
