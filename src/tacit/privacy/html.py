"""How notebooks show things: a heading and a small table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def card(heading: str, rows: Iterable[Sequence[str]]) -> str:
    """A heading and rows of cells, as HTML; the first cell of a row names it.

    >>> card("a < b", [("users", "5")])
    '<table><caption>a &lt; b</caption><tr><th>users</th><td>5</td></tr></table>'
    """
    lines = "".join(
        f"<tr><th>{html.escape(first)}</th>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table><caption>{html.escape(heading)}</caption>{lines}</table>"
