"""The hazards that NIST SP 800-226 names: each has a place, and every place is there."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
# By the chapters of SP 800-226: the guarantee, algorithms, and what a deployment adds.
HAZARDS = {
    "epsilon": "Epsilon is too large",
    "delta": "Delta is too large",
    "unit of privacy": "The unit of privacy is weaker",
    "neighbours": "Neighbouring data sets",
    "several data sets of one person": "several runs",
    "composition": "Composition is counted wrongly",
    "invariants": "unprotected quantities",
    "bounding contributions": "sensitivity",
    "floating point": "Floating-point",
    "randomness": "randomness",
    "timing": "Timing channels",
    "preprocessing and tuning": "exploration, tuning",
    "trust model": "Trust: who sees raw data",
    "data security and exposure": "Raw data is exposed",
    "interactive queries": "untrusted analyst",
    "utility and bias": "bias and small groups",
    "implementation": "implementation has mistakes",
    "claims": "claimed is not what runs",
}


def rows():
    lines = (DOCS / "hazards.md").read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return cells[1:]


@pytest.mark.parametrize("hazard", [*HAZARDS])
def test_a_hazard_has_a_place(hazard):
    found = [row for row in rows() if HAZARDS[hazard] in row[0]]
    assert len(found) == 1
    assert len(found[0][1]) > 20


def test_no_row_is_of_no_hazard():
    assert len(rows()) == len(HAZARDS)


def test_every_place_is_there():
    links = re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", (DOCS / "hazards.md").read_text())
    assert len(links) > 15
    for page, anchor in links:
        text = (DOCS / page).read_text()
        heads = [
            re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-")
            for head in re.findall(r"^#+ (.*)$", text, re.M)
        ]
        assert not anchor or anchor in heads, f"{page}#{anchor}"
