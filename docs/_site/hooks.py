"""Pages of the site that are made from the repository: start page, notebooks, examples, reference.

The pages in ``docs/`` link to the README, to examples and to modules, as they must on a code host.
Here those get pages of their own, and links lead to them.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tacit"
ROOMS = {
    "privacy": "The privacy core",
    "core": "Agents and people",
    "tabular": "Finite states and actions",
    "linear": "Linear MDPs",
    "mixture": "Linear mixtures",
    "lq": "LQ control",
    "continuous": "Continuous states",
    "papers": "The five papers",
    "simulation": "Simulation",
    "testing": "Checks and audits",
    "data": "Episodes and logs",
    "store": "The store",
}
TEXTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


NOTEBOOKS = ("first-agent", "your-own-data", "compare-algorithms", "audit-a-claim")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Entries such as ``algorithms/*`` become all pages of a folder: a new page is found.

    A version has a folder of its own on the site.
    """
    config.nav = _expanded(config.nav)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    config.site_dir = str(Path(config.site_dir) / version)
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """The list that the selector of versions reads, and a start page that leads to the newest."""
    site = Path(config.site_dir).parent
    found = sorted((p.name for p in site.iterdir() if (p / "search").is_dir()), key=_order)
    listed = [{"version": name, "title": name, "aliases": []} for name in reversed(found)]
    listed[0]["aliases"] = ["latest"]
    (site / "versions.json").write_text(json.dumps(listed))
    leads = f'<meta http-equiv="refresh" content="0; url={found[-1]}/">'
    (site / "index.html").write_text(f"<!doctype html><title>Tacit</title>{leads}\n")


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(inside) for title, inside in entry.items()}
    if isinstance(entry, list):
        return [page for part in entry for page in _pages(part)]
    return entry


def _pages(part: Any) -> list[Any]:
    if not (isinstance(part, str) and part.endswith("/*")):
        return [_expanded(part)]
    folder = part.removesuffix("/*")
    if folder == "notebooks":
        return [f"notebooks/{name}.md" for name in NOTEBOOKS]
    if folder == "reference":
        return [f"reference/{room}.md" for room in ROOMS]
    own = {"examples": (ROOT, "*.py"), "notes": (ROOT / "research", "*.md")}
    names = own.get(folder, (ROOT / "docs", "*.md"))
    found = sorted((names[0] / folder).glob(names[1]))
    return [f"{folder}/{page.stem}.md" for page in found if page.stem != "README"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that have no file in ``docs/``."""
    made = {target: (ROOT / source).read_text() for source, target in TEXTS.items()}
    for example in sorted((ROOT / "examples").glob("*.py")):
        title = example.stem.replace("_", " ").capitalize()
        code = f"# {title}\n\n```python\n{example.read_text()}```\n"
        made[f"examples/{example.stem}.md"] = code
    made |= {f"notebooks/{name}.md": _notebook(name) for name in NOTEBOOKS}
    made |= _reference()
    for note in sorted((ROOT / "research" / "notes").glob("*.md")):
        made[f"notes/{note.name}"] = note.read_text()
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def _notebook(name: str) -> str:
    """A notebook as a page: what it says, its code, and what that prints or shows."""
    cells = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join("".join(output["text"]) for output in cell.get("outputs", ()))
        parts += [f"```text\n{printed.rstrip()}\n```"] if printed else []
        parts += [f"![What it shows](../img/{name}.png)"] if source.endswith(".plot()") else []
    parts.insert(1, f"[The notebook]({name}.ipynb){{ download }} runs as it is.")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are on the site."""
    target = page.file.src_uri
    sources = {made: source for source, made in TEXTS.items()}
    here = sources.get(target, f"docs/{target}")
    if target.startswith("notes/"):
        here = f"research/{target}"
    if target.startswith("algorithms/") and page.file.name in _agents():
        markdown += _options(page.file.name)

    def led(match: re.Match[str]) -> str:
        if match[1] == f"{page.file.name}.ipynb":  # itself as a file, others as pages
            return match[0]
        found = normpath(f"{dirname(here)}/{match[1]}") if dirname(here) else normpath(match[1])
        return f"]({relpath(_place(found), dirname(target) or '.')}{match[2] or ''})"

    return LINK.sub(led, markdown)


def _place(path: str) -> str:
    """Where on the site a file of the repository is."""
    if path in TEXTS:
        return TEXTS[path]
    if path.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    if path.startswith("research/notes/"):
        return path.removeprefix("research/")
    if path.startswith("examples/"):
        return path.removesuffix(".py") + ".md"
    if path.startswith("src/tacit/"):
        return f"reference/{path.split('/')[2].removesuffix('.py')}.md"
    return "contributing.md"


def _reference() -> dict[str, str]:
    """A page per room, with what is public there."""
    by_room: dict[str, list[str]] = {}
    for module, name in sorted({*_public()}):
        room = module.split(".")[1]
        by_room.setdefault(room if room in ROOMS else "core", []).append(f"{module}.{name}")
    pages = {}
    for room, title in ROOMS.items():
        head = f"# {title}\n\n::: tacit.{room}\n    options:\n      members: []\n\n"
        body = "\n".join(f"::: {name}\n" for name in by_room.get(room, []))
        pages[f"reference/{room}.md"] = head + body
    return pages


def _public() -> list[tuple[str, str]]:
    """Module and name of all that ``tacit`` itself imports, also for type checkers alone."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [
        (node.module, alias.name)
        for node in imports
        if node.module and "." in node.module
        for alias in node.names
        if not (PACKAGE.parent / node.module.replace(".", "/") / f"{alias.name}.py").exists()
    ]


def _options(name: str) -> str:
    """The docstrings of an agent and of its options, for the end of its page."""
    module, agent = _agents()[name]
    shown = [(module, agent.name)]
    owner: ast.ClassDef | None = agent
    while owner is not None:
        declared = [
            line.value
            for line in owner.body
            if isinstance(line, ast.Assign | ast.AnnAssign)
            and ast.unparse(line.targets[0] if isinstance(line, ast.Assign) else line.target)
            == "Options"
        ]
        if declared:
            options = _classes().get(ast.unparse(declared[0]))
            shown += [(options[0], options[1].name)] if options else []
            break
        bases = [ast.unparse(base).partition("[")[0] for base in owner.bases]
        owner = next((_classes()[base][1] for base in bases if base in _classes()), None)
    blocks = [
        f"::: {where}.{what}\n    options:\n      members: []\n      heading_level: 3\n"
        for where, what in shown
    ]
    served = "Options of serving are those of [`tacit.make_agent`](../reference/core.md)."
    return "\n".join(["\n## Class and options\n", *blocks, served, ""])


@cache
def _classes() -> dict[str, tuple[str, ast.ClassDef]]:
    """Every class of the package with its module, by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = (module, node)
    return found


@cache
def _agents() -> dict[str, tuple[str, ast.ClassDef]]:
    """Module and class of every built-in agent, by its name."""
    for node in ast.parse((PACKAGE / "registry.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BUILT_IN":
            targets = ast.literal_eval(node.value)
            return {name: _classes()[target.partition(":")[2]] for name, target in targets.items()}
    raise LookupError("tacit.registry has no BUILT_IN")
