"""What commands print: one JSON object, or plain sentences and small tables for people.

Rich is loaded by the first table or sentence, not before: its import would slow every command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"ok": "green", "skipped": "dim", "slow": "yellow", "missing": "dim"}
_STYLES["failed"] = "bold red"
_FIGURES = ("not reached", "not known", "-", "...", "")


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one object; what is no number in JSON is a mistake of ours."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def say(text: str, *, as_it_is: bool = False) -> None:
    """Prints a paragraph, as wide as the terminal; or as it is, where it has its line breaks."""
    console = _console()
    console.print(text, soft_wrap=as_it_is)
    console.print()


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table: figures to the right, words to the left, states in their colours."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    drawn = Table(**style, show_header=any(titles))
    for place, title in enumerate(titles):
        figures = place > 0 and all(_is_figure(row[place]) for row in rows)
        side: Any = "right" if figures else "left"
        drawn.add_column(Text(title), justify=side, overflow="fold", no_wrap=figures)
    for row in rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    _console().print(drawn)


def print_help_if_alone(context: typer.Context) -> None:
    """Without a command, says which there are."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def _console() -> Console:
    from rich.console import Console

    # Made when needed: standard output may have been replaced since the last time.
    return Console(highlight=False, markup=False)


def _is_figure(text: str) -> bool:
    return text in _FIGURES or text.lstrip("-")[:1].isdigit()
