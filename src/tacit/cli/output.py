"""What commands print: one JSON object, or plain sentences and small tables for people.

Rich is loaded by the first table or sentence, not before: its import would slow every command.
"""

from __future__ import annotations

import json
import math
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


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "entry"), counted(2, "entry")
    ('1 entry', '2 entries')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def at_most(number: float, digits: int = 4, sign: float = 1.0) -> str:
    """A few digits, rounded up: a shorter number must not be a stronger claim.

    >>> at_most(1.00049), at_most(1.0000000000001), at_most(0.0), at_most(0.1234561, 6)
    ('1.001', '1', '0', '0.123457')
    """
    shown = f"{number:.{digits}g}"
    # What conversions are off by is no reason for another digit.
    if sign * float(shown) < sign * number * (1.0 - sign * 1e-9):
        place = math.floor(math.log10(number)) - digits + 1
        shown = f"{number + sign * 0.5 * 10.0**place:.{digits}g}"
    return shown


def at_least(number: float, digits: int = 4) -> str:
    """A few digits, rounded down: what is left must not be shown as more.

    >>> at_least(0.99999), at_least(0.0), at_least(1.5)
    ('0.9999', '0', '1.5')
    """
    return at_most(number, digits, -1.0)


def _console() -> Console:
    from rich.console import Console

    # Made when needed: standard output may have been replaced since the last time.
    return Console(highlight=False, markup=False)


def _is_figure(text: str) -> bool:
    return text in _FIGURES or text.lstrip("-")[:1].isdigit()
