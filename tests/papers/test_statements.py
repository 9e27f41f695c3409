"""Every numbered statement of a paper is in the index of its page once, and no other is."""

import re

import pytest

from tests.papers import pages


def numbered(kind: str, *numbers: int | str) -> list[str]:
    """Names of statements."""
    return [f"{kind} {number}" for number in numbers]


def lemmas(part: str, most: int) -> list[str]:
    """Those of a section or an appendix."""
    return numbered("Lemma", *(f"{part}.{i}" for i in range(1, most + 1)))


STATEMENTS = {
    "chowdhury_tabular_2021": [
        *numbered("Algorithm", 1, 2),
        *numbered("Table", 1),
        *numbered("Definition", 1, 2, 3),
        *numbered("Assumption", 1),
        *numbered("Lemma", *range(1, 5)),
        *numbered("Theorem", 1, 2),
        *numbered("Corollary", 1, 2),
        *numbered("Remark", *range(1, 8)),
    ],
    "chowdhury_lq_2021": [
        *numbered("Algorithm", 1),
        *numbered("Definition", 1, 2, 3),
        *numbered("Assumption", 1, 2),
        *numbered("Lemma", *range(1, 14)),
        *numbered("Theorem", 1, 2, 3),
        *numbered("Claim", 1, 2),
    ],
    "wang_functional_2019": [
        *numbered("Algorithm", 1),
        *numbered("Figure", 1, 2),
        *numbered("Definition", 1, 2),
        *numbered("Proposition", 3, 4, 9, 10),
        *numbered("Theorem", 5),
        *numbered("Lemma", 6, 8, 11, 14, 16),
        *numbered("Corollary", 7),
        *numbered("Claim", 12, 13, 15, 17),
    ],
    "sahu_linear_2025": [
        *numbered("Algorithm", 1),
        *numbered("Figure", 1),
        *numbered("Definition", "2.1", "2.2", "2.3", "2.4"),
        *numbered("Theorem", "3.1", "3.2", "A.1"),
        *(one for part in ("24", "A1", "B6", "C5") for one in lemmas(part[0], int(part[1]))),
        *(one for part in ("D2", "E3", "F4", "G9") for one in lemmas(part[0], int(part[1]))),
    ],
    "zhou_mixture_2022": [
        *numbered("Algorithm", 1, 2),
        *numbered("Assumption", 1, 2),
        *numbered("Definition", "2.1", "2.2", "2.3", "6.2", "6.3", "7.1"),
        *numbered("Lemma", "3.1", "6.1", "7.2"),
        *lemmas("B", 5),
        *numbered("Theorem", "4.1", "5.1", "6.4", "6.5"),
        *numbered("Remark", "4.2", "5.2", "6.6", "6.7", "6.8", "6.9"),
    ],
}
"""From the papers' texts."""


def index(name: str) -> dict[str, str]:
    """Where a page says that statements are."""
    page = (pages.PAGES / f"{name}.md").read_text()
    section = page.partition("## Where each statement is\n")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for names, where in re.findall(r"^\| (.*?) \| (.*) \|$", section, re.MULTILINE)[1:]:
        for one in names.split(", "):
            assert one not in found, one
            found[one] = where
    return found


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_has_its_place(name: str) -> None:
    assert sorted(index(name)) == sorted(STATEMENTS[name])


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_an_index_names_in_the_code_is_there(name: str) -> None:
    """Of what stands in backticks, functions and classes of the paper's file or its tools."""
    parts = [f"src/tacit/papers/{part}.py" for part in (name, "counters", "result")]
    source = "\n".join((pages.ROOT / part).read_text() for part in parts)
    for where in index(name).values():
        for word in re.findall(r"`(\w+)(?:\.\w+)?`", where):
            assert re.search(rf"\b{word}\b", source), word
