"""Every example of the README and the guides runs, and prints what the page says.

Links and names lead somewhere, and every agent has a page.
"""

import contextlib
import importlib
import io
import itertools
import re
import sys
import types
from functools import cache
from pathlib import Path

import pytest

from tacit import registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, *sorted((ROOT / "examples").glob("*.py"))]
ALGORITHMS = ROOT / "docs" / "algorithms"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOTTED = re.compile(r"(?<![\w./'\"-])(?:tacit|research|benchmarks)(?:\.\w+)+")
HEADINGS = ("Idea", "Private statistics and guarantee", "Deviations from the paper", "Cost")
MOST_WORDS, LONGEST = 55_000, 1_800
"""Of all pages, as ``wc -w`` counts them, and of one; results and errata are longer."""
LONG = ("docs/results.md", "docs/errata.md")
DIALECT = re.compile(
    r"(?:^|[.:;!] )(?:What|Who|Whoever|Nobody|Everybody|Whatever)\b[^?\n]*[.:]", re.MULTILINE
)
"""Sentences whose subject is no noun; a heading may be a question."""
MADE_UP = ("tacit.Mine",)
"""What a reader is told to write."""


def identify(page):
    return str(page.relative_to(ROOT))


def examples(page):
    """Python blocks in order, each with the text block that follows it directly, if any."""
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
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


def headings(page):
    return re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)


@cache
def anchors(page):
    """What can stand behind ``#`` in a link to the page, as GitHub makes it of its headings."""
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(page)]
    return {word.replace(" ", "-") for word in words}


def imported(path):
    """What a dotted path stands for: its longest module, and then attributes.

    Raises:
        AttributeError: There is no such thing.
    """
    names = path.split(".")
    for end in range(len(names), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(".".join(names[:end]))
            break
    else:
        raise AttributeError(path)
    for name in names[end:]:
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    # A module of its own, because dataclasses look their module up by name.
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for code, shown in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), module.__dict__)  # noqa: S102
        if shown is not None:
            assert printed.getvalue().strip() == shown.strip(), f"after:\n{code}"


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_links_lead_somewhere(page):
    prose = BLOCK.sub("", page.read_text())
    for link in LINK.findall(prose):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name} links to {link}"


@pytest.mark.parametrize("text", TEXTS, ids=identify)
def test_dotted_names_can_be_imported(text):
    for path in sorted(set(DOTTED.findall(text.read_text())) - {*MADE_UP}):
        try:
            imported(path)
        except AttributeError as error:
            pytest.fail(f"{text.name} has {path}: {error}")


def test_a_name_that_was_moved_is_noticed():
    for path in ("tacit.loop.run", "tacit.experiments", "tacit.UCBVII", "no_such.module"):
        with pytest.raises(AttributeError):
            imported(path)
    assert DOTTED.findall("see `tacit.a.B`, tacit.c. And tacit/d.py, my.tacit.e") == [
        "tacit.a.B",
        "tacit.c",
    ]


def test_every_agent_has_a_page_and_every_page_an_agent():
    pages = {page.stem for page in ALGORITHMS.glob("*.md")} - {"README"}
    assert pages == set(registry.BUILT_IN)


def test_pages_have_what_a_reader_looks_for():
    """The agent's name at once, and the same headings in one order."""
    for name, target in registry.BUILT_IN.items():
        page = ALGORITHMS / f"{name}.md"
        agent = target.partition(":")[2]
        assert f"`tacit.{agent}`" in page.read_text().partition("\n## ")[0], name
        assert [heading for heading in headings(page) if heading in HEADINGS] == [*HEADINGS], name


def tables(page):
    """Rows with a result in them: a median with its quartiles, or its range."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if re.search(r"\d \[|\d \(\d", row)]


def test_results_stand_in_one_place():
    """On one page that stored results fill, so that they are not corrected there and kept here."""
    assert [identify(page) for page in PAGES if len(tables(page)) > 1] == ["docs/results.md"]
    assert len(tables(ROOT / "docs" / "results.md")) > 60


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent != ROOT], ids=identify)
def test_every_page_says_what_its_reader_can_do(page):
    title, line = page.read_text().split("\n\n", 2)[:2]
    assert title.startswith("# ")
    assert re.fullmatch(r"\*After this page you can [^*]+\.\*", line), line


def test_pages_are_short():
    """As ``find docs README.md -name '*.md' | xargs cat | wc -w`` counts."""
    words = {identify(page): len(page.read_text().split()) for page in PAGES}
    del words["CONTRIBUTING.md"]
    assert sum(words.values()) <= MOST_WORDS
    assert {page: n for page, n in words.items() if n > LONGEST and page not in LONG} == {}


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_sentences_have_nouns_for_subjects(page):
    prose = re.sub(r"^[#|].*$", "", BLOCK.sub("", page.read_text()), flags=re.MULTILINE)
    assert DIALECT.findall(prose) == []


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_formulas_are_no_tags(page):
    """A scalar product in plain text is taken for HTML and vanishes."""
    prose = re.sub(
        r"^    .*$|`[^`\n]*`|<!--.*?-->", "", BLOCK.sub("", page.read_text()), flags=re.M
    )
    assert re.findall(r"<[A-Za-z][^>\n]*>", prose) == []


def test_the_lock_file_has_the_versions_of_the_constraints():
    """Every package of the service by hash, at the version that was tested."""
    lines = (ROOT / "deploy" / "requirements.txt").read_text().splitlines()
    locked = [line for line in lines if not line.startswith("#")]
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in locked)
    constraints = (ROOT / "constraints.txt").read_text().lower().splitlines()
    tested = {line.replace("_", "-").replace(".", "-") for line in constraints}
    named = [line.partition(" ")[0].replace("_", "-").replace(".", "-") for line in locked]
    assert [name for name in named if name not in tested] == []
    assert len(named) > 30


def test_actions_and_images_are_pinned_by_digest():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
    images = re.findall(r"^FROM (\S+)", (ROOT / "deploy" / "Containerfile").read_text(), re.M)
    assert all(re.fullmatch(r"[\w.:-]+@sha256:[0-9a-f]{64}", image) for image in images)
