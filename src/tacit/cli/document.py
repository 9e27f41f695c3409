"""A page as blocks of Markdown, each a paragraph, a heading or a table; and the same as HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

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
_LINE, _BAR = ": ____________________", r"\|"


class Made(str):
    """Markdown that was made here; any other text is a paragraph, whatever it looks like."""


def heading(text: str, level: int = 2) -> Made:
    """A heading."""
    return Made(f"{'#' * level} {text}")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Made:
    """A table."""
    lines = [[" ".join(cell.replace("|", _BAR).split()) for cell in row] for row in (titles, *rows)]
    lines.insert(1, ["---"] * len(titles))
    return Made("\n".join(f"| {' | '.join(line)} |" for line in lines))


def commands(*lines: str) -> Made:
    """What is to be typed, as it is."""
    return Made("\n".join(("```sh", *lines, "```")))


def warned(text: str) -> Made:
    """A paragraph that nobody may overlook."""
    return Made(f"**{text}**")


def signatures(*below: str) -> Made:
    """Lines to sign on, each with what stands below it."""
    return Made("   ".join(f"{words}{_LINE}" for words in below))


def markdown(blocks: Sequence[str]) -> str:
    """For repositories and mail."""
    return "\n\n".join(blocks) + "\n"


def html(blocks: Sequence[str]) -> str:
    """One file, without scripts and without anything from elsewhere; the first block is its title.

    >>> print(html([heading("a < b", 1), warned("no `x`")]).partition("<body>")[2].strip())
    <h1>a &lt; b</h1>
    <p class="warning">no <code>x</code></p>
    </body></html>
    """
    head = (
        f'<meta charset="utf-8"><title>{escape(blocks[0].lstrip("# "))}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    )
    body = "\n".join(map(_html, blocks))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html(block: str) -> str:
    if not isinstance(block, Made):
        return f"<p>{_inline(block)}</p>"
    if found := re.match("(#+) (.*)", block):
        return f"<h{len(found[1])}>{escape(found[2])}</h{len(found[1])}>"
    if block.startswith("```"):
        return f"<pre>{escape(block[6:-4])}</pre>"
    if block.startswith("**"):
        return f'<p class="warning">{_inline(block[2:-2])}</p>'
    if block.endswith(_LINE):
        cells = "".join(f"<td>{escape(below.strip())}</td>" for below in block.split(_LINE)[:-1])
        return f'<table class="sign"><tr>{cells}</tr></table>'
    titles, _, *lines = (line[2:-2].split(" | ") for line in block.splitlines())
    head, body = _row("th", titles), "".join(_row("td", line) for line in lines)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(kind: str, cells: Sequence[str]) -> str:
    shown = (f"<{kind}>{_inline(cell.replace(_BAR, '|'))}</{kind}>" for cell in cells)
    return f"<tr>{''.join(shown)}</tr>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
