"""HTML of the pages: plain strings, one style sheet, no script.

Whatever is not ours is escaped by :func:`text`. Pages have a title, a heading, landmarks and
labels; tables have captions, and those that scroll can be reached by keyboard; nothing is said by
colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #c9ced6; --soft: #f3f5f8;
  --mark: #0b5cad; --bad: #a3140c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --paper: #16191d; --line: #444b55;
  --soft: #20252b; --mark: #7db8f5; --bad: #ff9d94; } }
* { box-sizing: border-box; }
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
header, main, footer { max-width: 60rem; margin: 0 auto; padding: 0.5rem 1rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0 0.5rem; list-style: none; margin: 0; padding: 0; }
nav a, nav button { display: inline-block; padding: 0.6rem 0.6rem; }
a { color: var(--mark); }
a[aria-current] { color: var(--ink); font-weight: 600; text-decoration: none; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 0.5rem; background: var(--paper); padding: 0.5rem; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 1.5rem 0 0.5rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 0.4rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: 0.5rem; font-weight: 600; }
th, td { text-align: left; padding: 0.45rem 0.6rem; border-top: 1px solid var(--line);
  vertical-align: middle; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.6rem;
  margin: 0.5rem 0; }
dl div { background: var(--soft); border-radius: 0.4rem; padding: 0.6rem; }
dt { font-size: 0.85rem; } dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
form.inline { display: inline; }
button, input, select { font: inherit; min-height: 2.75rem; padding: 0.3rem 0.8rem;
  border: 1px solid var(--line); border-radius: 0.4rem; background: var(--soft);
  color: var(--ink); }
button { cursor: pointer; white-space: nowrap; margin: 0.1rem 0.2rem 0.1rem 0; }
button.main { background: var(--mark); color: var(--paper); }
button.danger { border: 2px solid var(--bad); color: var(--bad); font-weight: 600; }
label { display: block; margin: 0.6rem 0 0.2rem; } input[type=text], input[type=password] {
  width: 100%; max-width: 30rem; }
.note { border-left: 4px solid var(--mark); background: var(--soft); padding: 0.6rem 0.8rem; }
.wrong { border-left-color: var(--bad); }
svg { width: 100%; height: auto; max-height: 20rem; }
svg line, svg path { stroke: var(--ink); fill: none; } svg .axis { stroke: var(--line); }
svg circle { fill: var(--mark); } svg .bar { stroke: var(--mark); stroke-width: 2; }
svg text { fill: var(--ink); font-size: 12px; }
code { overflow-wrap: anywhere; }
"""

_LINKS = (
    ("/", "Overview", ("curator", "officer")),
    ("/policies", "Policies", ("curator", "officer")),
    ("/people", "Forget a user", ("curator",)),
    ("/officer", "Officer", ("officer",)),
    ("/sandbox", "Sandbox", ("curator",)),
)


def text(value: Any) -> str:
    """A value as text that no browser takes for anything else."""
    return escape(str(value), quote=True)


def page(title: str, body: str, *, role: str = "", here: str = "", csrf: str = "") -> str:
    """A whole page."""
    links = "".join(
        f'<li><a href="{path}"{" aria-current=page" if path == here else ""}>{name}</a></li>'
        for path, name, roles in _LINKS
        if role in roles
    )
    leave = form("/logout", csrf, button("Log out"), inline=True) if role else ""
    nav = f'<nav aria-label="Pages"><ul>{links}<li>{leave}</li></ul></nav>' if role else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)} - Tacit</title><link rel="stylesheet" href="/style.css"></head>'
        f'<body><a class="skip" href="#main">To the content</a><header>{nav}</header>'
        f'<main id="main" tabindex="-1"><h1>{text(title)}</h1>{body}</main>'
        f"<footer><p>{text(role and 'Logged in as ' + role)}</p></footer></body></html>"
    )


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML already; numbers stand to the right."""
    found = [*rows]
    right = [bool(found) and all(_is_number(row[i]) for row in found) for i in range(len(heads))]
    tag = ['class="number"' if r else "" for r in right]
    head = "".join(f'<th scope="col" {t}>{text(h)}</th>' for h, t in zip(heads, tag, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {t}>{cell}</td>" for cell, t in zip(row, tag, strict=True)) + "</tr>"
        for row in found
    )
    empty = f'<tr><td colspan="{len(heads)}">None yet.</td></tr>' if not found else ""
    return (
        f'<div class="scroll" role="region" aria-label="{text(caption)}" tabindex="0"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}{empty}</tbody></table></div>"
    )


def _is_number(cell: str) -> bool:
    return bool(cell) and not set(cell) - set("0123456789.,-+ ±e%")


def facts(pairs: Mapping[str, Any]) -> str:
    """Numbers with their names."""
    inside = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs.items()
    )
    return f"<dl>{inside}</dl>"


def note(words: str, *, wrong: bool = False) -> str:
    """A remark; mistakes are announced."""
    if wrong:
        return f'<p class="note wrong" role="alert"><strong>Attention.</strong> {text(words)}</p>'
    return f'<p class="note" role="status">{text(words)}</p>'


def form(action: str, csrf: str, inside: str, *, inline: bool = False) -> str:
    """A form that changes something."""
    kind = ' class="inline"' if inline else ""
    hidden = f'<input type="hidden" name="csrf" value="{text(csrf)}">'
    return f'<form method="post" action="{text(action)}"{kind}>{hidden}{inside}</form>'


def button(words: str, *, kind: str = "", name: str = "", value: str = "") -> str:
    """A button."""
    more = f' name="{text(name)}" value="{text(value)}"' if name else ""
    style = f' class="{kind}"' if kind else ""
    return f'<button type="submit"{style}{more}>{text(words)}</button>'


def field(name: str, label: str, *, kind: str = "text", value: str = "", more: str = "") -> str:
    """An input with its label."""
    return (
        f'<label for="{name}">{text(label)}</label>'
        f'<input id="{name}" name="{name}" type="{kind}" value="{text(value)}" required {more}>'
    )


def chart(title: str, versions: Sequence[int], values: Sequence[Any], errors: Sequence[Any]) -> str:
    """Values with two standard errors, as a picture that a screen reader is told in words."""
    points = [
        (v, x, 2.0 * e)
        for v, x, e in zip(versions, values, errors, strict=True)
        if x is not None and e is not None
    ]
    if not points:
        return note("Releases of this agent say nothing about values.")
    width, height, left, low = 420, 200, 52, 24
    down = min(x - e for _, x, e in points)
    up = max(x + e for _, x, e in points)
    span = (up - down) or 1.0

    def across(i: int) -> float:
        return left + (width - left - 16) * (i + 0.5) / len(points)

    def above(x: float) -> float:
        return float(10 + (height - low - 20) * (1 - (x - down) / span))

    shapes = [
        f'<line class="axis" x1="{left}" x2="{width}" y1="{above(x):.1f}" y2="{above(x):.1f}"/>'
        f'<text x="2" y="{above(x) + 4:.1f}">{x:.3g}</text>'
        for x in (down, (down + up) / 2, up)
    ]
    every = max(1, len(points) // 12)
    for i, (version, x, e) in enumerate(points):
        at = f"{across(i):.1f}"
        shapes.append(
            f'<line class="bar" x1="{at}" x2="{at}" y1="{above(x - e):.1f}" '
            f'y2="{above(x + e):.1f}"/><circle cx="{at}" cy="{above(x):.1f}" r="4"/>'
        )
        if i % every == 0:
            shapes.append(f'<text x="{at}" y="{height - 4}" text-anchor="middle">{version}</text>')
    last = points[-1]
    words = f"{title}. Version {last[0]}: {last[1]:.3g}, plus or minus {last[2]:.2g}."
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(words)}">'
        f"<title>{text(words)}</title>{''.join(shapes)}</svg>"
    )
