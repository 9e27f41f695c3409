"""Commands that pages name are understood: their sub-commands and options exist."""

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache

import pytest
import typer

from tacit.cli.app import app
from tests.test_docs import BLOCK, PAGES, identify


def commands() -> Iterator[tuple[str, str]]:
    """Every line of a shell block, with the page that it is on."""
    for page in PAGES:
        for kind, text in BLOCK.findall(page.read_text()):
            for line in text.replace("\\\n", " ").splitlines() if kind == "sh" else ():
                yield identify(page), line.strip()


def unknown(command: str) -> list[str]:
    """Options of ``tacit ...`` that nobody takes.

    >>> unknown("tacit show a.json --runs 4"), unknown("tacit show a.json --draw both")
    (['--runs'], [])
    """
    at = typer.main.get_command(app)
    words = shlex.split(command, comments=True)[1:]
    while words and hasattr(at, "commands") and words[0] in at.commands:
        at = at.commands[words.pop(0)]
    known = {option for param in at.params for option in (*param.opts, *param.secondary_opts)}
    known |= set(at.get_help_option_names(typer.Context(at)))
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [option for option in given if option not in known]


@cache
def helped(module: str) -> str:
    """What a module of research/ or benchmarks/ says of its options."""
    out = io.StringIO()
    found = importlib.import_module(module)
    if hasattr(found, "__path__"):  # a package
        found = importlib.import_module(f"{module}.__main__")
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        found.main(["--help"])
    return out.getvalue()


def test_options_of_tacit_exist() -> None:
    wrong = {
        f"{page}: {line}": options
        for page, line in commands()
        if line.startswith("tacit ") and (options := unknown(line))
    }
    assert wrong == {}


def test_options_of_research_exist() -> None:
    wrong = []
    for page, line in commands():
        words = shlex.split(line, comments=True)
        if words[:2] != ["python", "-m"] or not words[2].startswith("research."):
            continue
        for option in (word for word in words[3:] if word.startswith("--")):
            if not re.search(rf"{re.escape(option)}\b", helped(words[2])):
                wrong.append(f"{page}: {line}")
    assert (wrong, unknown("tacit show a.json --runs 4")) == ([], ["--runs"])
