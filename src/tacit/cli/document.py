"""A page of headings, paragraphs, tables and commands: as Markdown, or as HTML that prints well."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_STYLE = """
:root { color-scheme: light; }
body { font: 11pt/1.5 Georgia, 'Times New Roman', serif; color: #1a1a1a; background: #fff;
  max-width: 46rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .5rem; padding-bottom: .2rem;
  border-bottom: 1px solid #bbb; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: 9.5pt; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd;
  vertical-align: top; overflow-wrap: anywhere; }
th { border-bottom: 2px solid #555; }
code, pre { font: 8.5pt/1.5 Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  overflow-wrap: anywhere; }
pre { background: #f4f4f2; padding: .7rem .9rem; white-space: pre-wrap; }
.warning { border: 2px solid #a40000; color: #a40000; padding: .6rem .9rem; font-weight: bold; }
.sign td { border: none; border-top: 1px solid #333; padding-top: .3rem; width: 33%; }
.sign { margin-top: 4.5rem; border-collapse: separate; border-spacing: 1.5rem 0; }
@page { size: A4; margin: 20mm 18mm; }
@media print { body { margin: 0; padding: 0; max-width: none; font-size: 10pt; }
  h2 { break-after: avoid; } tr, pre, .warning, .sign { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Table:
    """Titles and rows, all of them text."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Commands:
    """What is to be typed, as it is."""

    text: str


@dataclass(frozen=True)
class Warned:
    """A paragraph that nobody may overlook."""

    text: str


@dataclass(frozen=True)
class Signatures:
    """Lines to sign on, each with what stands below it."""

    below: Sequence[str]


Piece = str | Table | Commands | Warned | Signatures


@dataclass(frozen=True)
class Document:
    """A title, and sections of pieces; text may hold ``code`` between backquotes."""

    title: str
    sections: Sequence[tuple[str, Sequence[Piece]]] = field(default_factory=list)

    def markdown(self) -> str:
        """For repositories and mail."""
        lines = [f"# {self.title}"]
        for heading, pieces in self.sections:
            lines += ["", f"## {heading}"] if heading else []
            for piece in pieces:
                lines += ["", *_markdown(piece)]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """One file, without scripts and without anything from elsewhere."""
        body = [f"<h1>{html.escape(self.title)}</h1>"]
        for heading, pieces in self.sections:
            body += [f"<h2>{html.escape(heading)}</h2>"] if heading else []
            body += [_html(piece) for piece in pieces]
        head = (
            f'<meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        )
        return "\n".join(
            [
                "<!DOCTYPE html>",
                f'<html lang="en"><head>{head}</head><body>',
                *body,
                "</body></html>\n",
            ]
        )


def _markdown(piece: Piece) -> Iterator[str]:
    if isinstance(piece, Table):
        for row in (piece.titles, ["---"] * len(piece.titles), *piece.rows):
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    elif isinstance(piece, Commands):
        yield from ("```sh", *piece.text.splitlines(), "```")
    elif isinstance(piece, Warned):
        yield f"**{piece.text}**"
    elif isinstance(piece, Signatures):
        yield "   ".join(f"{below}: ____________________" for below in piece.below)
    else:
        yield piece


def _html(piece: Piece) -> str:
    if isinstance(piece, Table):
        head = "".join(f"<th>{_inline(cell)}</th>" for cell in piece.titles)
        rows = ["".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in piece.rows]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if isinstance(piece, Commands):
        return f"<pre>{html.escape(piece.text)}</pre>"
    if isinstance(piece, Warned):
        return f'<p class="warning">{_inline(piece.text)}</p>'
    if isinstance(piece, Signatures):
        cells = "".join(f"<td>{html.escape(below)}</td>" for below in piece.below)
        return f'<table class="sign"><tr>{cells}</tr></table>'
    return f"<p>{_inline(piece)}</p>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
