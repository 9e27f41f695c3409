"""``tacit figure``: the figures of the documentation, from a clone of the repository."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from tacit.cli import options
from tacit.privacy.errors import InvalidArgument

HELP = (
    "Draw a figure of the documentation again, with the numbers behind it.\n\n"
    "Some run for an hour: a bar says how long is left, and --quick draws a small part first.\n\n"
    "\b\nExamples:\n  tacit figure tabular-orders --output orders.png\n"
    "  tacit figure tabular-orders --quick\n  tacit figure --list"
)

_TABLE = "research.figure_names"


def figure_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which figure.")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="The PNG to write; NAME.png by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of it, to see what it will be.")
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="Print the names of all figures.")] = False,
) -> None:
    """Draws one figure."""
    table = _table()
    figures: Mapping[str, str] = table.FIGURES
    if names:
        typer.echo("\n".join(figures))
        return
    if name is None or name not in figures:
        raise InvalidArgument(f"figure is {name!r}, but must be one of {', '.join(figures)}")
    picture = output or f"{name}.png"
    options.check_writable("--output", picture, endings=options.PICTURES)
    less = table.QUICK.get(name, ("--quick",)) if quick else ()
    raise typer.Exit(import_module(figures[name]).main([f"--output={picture}", *less]))


def _table() -> ModuleType:
    """The figures by name, from the clone that this package is in."""
    clone = Path(__file__).parents[3]
    if (clone / "research" / "figure_names.py").is_file() and str(clone) not in sys.path:
        sys.path.insert(0, str(clone))
    try:
        return import_module(_TABLE)
    except ModuleNotFoundError as error:
        if error.name not in (_TABLE, _TABLE.partition(".")[0]):
            raise  # the table is there; what is missing is something that it needs
        raise InvalidArgument(
            "figures are drawn from a clone of the repository, where research/ is: the installed "
            "package has none; tacit compare and tacit run --plot draw your own"
        ) from None
