"""Every example of the README and the guides runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: Path) -> list[tuple[str, str | None]]:
    """Python blocks in order, each with the text block that follows it directly, if any."""
    text = page.read_text()
    blocks: list[re.Match[str] | None] = list(BLOCK.finditer(text))
    found = []
    for block, following in itertools.pairwise([*blocks, None]):
        assert block is not None
        if block[1] != "python":
            continue
        shown = None
        if following is not None and following[1] == "text":
            between = text[block.end() : following.start()]
            shown = following[2] if not between.strip() else None
        found.append((block[2], shown))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_print_what_the_page_says(page: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A module of its own, because dataclasses look their module up by name.
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for code, shown in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), module.__dict__)  # noqa: S102
        if shown is not None:
            assert printed.getvalue().strip() == shown.strip(), f"after:\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
