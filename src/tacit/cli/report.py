"""``tacit report``: a store's ledger and the policies made of it, as a page an officer can sign."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tacit.cli import options
from tacit.cli.ledger import checked, summary
from tacit.cli.options import asked, command
from tacit.cli.output import at_least, at_most, counted
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.files import open_regular, write_atomic

if TYPE_CHECKING:
    from tacit.store.store import Store


@command()
def _report(
    store: options.Store,
    policy: Annotated[
        list[str] | None, asked("FILE", "A published policy; may be given several times.")
    ] = None,
    output: Annotated[str, asked("FILE", "Where to write it: .html, .md or .json.")] = "",
    as_json: options.Json = False,
) -> None:
    with options.open_store(store) as opened:
        if output:
            found = write_report(opened, policy or [], output)
            typer.echo(f"{output}: {found['verdict']}")
        else:
            found = report(opened, policy or [])
            typer.echo(_FORMS[".json" if as_json else ".md"](found), nl=False)
    if not found["well"]:
        raise typer.Exit(1)


def write_report(store: Store, policies: Sequence[str], output: str) -> dict[str, Any]:
    """Writes a report in the form that the file's name says, and returns its facts."""
    form = os.path.splitext(output)[1].lower()
    if form not in _FORMS:
        raise InvalidArgument(f"a report's name must end in {', '.join(_FORMS)}, got {output!r}")
    found = report(store, policies)
    write_atomic(output, _FORMS[form](found).encode(), 0o644)
    return found


_FORMS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".html": lambda found: html(document(found)),
    ".md": lambda found: markdown(document(found)),
    ".json": lambda found: json.dumps(found, indent=2, allow_nan=False) + "\n",
}


# Facts.


def report(store: Store, policies: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page says, as JSON values.

    Args:
        store: Of which store.
        policies: Files of published policies, which its ledger should account for.
    """
    import tacit

    found, problems = summary(store), checked(store)
    for run in found["runs"]:
        _in_epsilons(run, run["promise"])
    if (people := found["limit"]) is not None:
        people["user_limit"], people["user_cost"] = found["most"] or 0.0, found["people"]["max"]
        _in_epsilons(people, people)
    found |= {
        "problems": counted(len(problems), "problem") if problems else "",
        "policies": [_policy(path, store) for path in policies],
        "tacit": tacit.__version__,
    }
    lacking = [policy["file"] for policy in found["policies"] if not policy["line_is_here"]]
    found |= {"unaccounted": lacking, "well": not lacking and not found["problems"]}
    return found | {"verdict": _verdict(found)}


def _in_epsilons(spent: dict[str, Any], promise: Mapping[str, Any] | None) -> None:
    """Adds what a user may spend, has spent and has left, as epsilons at the declared delta."""
    from tacit.privacy.budget import epsilon_from_mu

    delta = 1e-6 if promise is None else float(promise["delta"])
    if not str(spent["unit"]).startswith("mu^2"):  # pure, or of devices, which pay nothing here
        delta = 0.0

    def epsilon(cost: float) -> float:
        return epsilon_from_mu(cost**0.5, delta) if delta else cost

    limit, cost = spent["user_limit"], min(spent["user_cost"], spent["user_limit"])
    spent |= {"delta": delta, "user_cost": cost, "user_left": limit - cost}
    spent |= {"epsilon_limit": epsilon(limit), "epsilon_cost": epsilon(cost)}
    spent["epsilon_left"] = max(spent["epsilon_limit"] - spent["epsilon_cost"], 0.0)


def _policy(path: str, store: Store) -> dict[str, Any]:
    """A published policy: what it says of itself, and whether the ledger has its entry."""
    from tacit import published
    from tacit.store import ledger

    try:
        said = published.about(path)
    except ValueError as error:
        raise InvalidArgument(f"--policy {path!r} is no published policy: {error}") from None
    with open(open_regular(path), "rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    with store.read() as db:
        head, known = said.get("ledger_head"), {entry.hash for entry in ledger.read(db)}
    return {
        "file": os.path.basename(path),
        "version": int(said["version"]),
        "sha256": digest,
        "published": said.get("date"),
        "simulated": said.get("simulated"),
        "after_line": said.get("ledger_line"),
        "line_is_here": head in known,
    }


def _verdict(found: Mapping[str, Any]) -> str:
    if names := ", ".join(found["unaccounted"]):
        return f"NOT accounted for: the ledger lacks the entry after which {names} was published"
    if found["problems"]:
        return f"NOT well: tacit ledger verify names {found['problems']}"
    if found["kind"] == "simulations":
        return "a simulation: its noise has a known seed and protects nobody"
    paid = [run for run in found["runs"] if run["user_limit"]]
    if not paid:
        return "nothing to account for: no run, or devices add the noise, or there is no privacy"
    worst = max(paid, key=lambda run: run["epsilon_cost"])
    spent, over = found["limit"] or worst, f"of run {worst['name']}"
    over = "over all runs" if found["limit"] else over
    cost, limit = at_most(spent["epsilon_cost"]), at_most(spent["epsilon_limit"])
    return f"within budget: a user {over} has spent at most epsilon {cost} of {limit}"


# Blocks: paragraphs, and pairs of a kind and its content, of which Markdown or HTML is made.

Block: TypeAlias = str | tuple[str, Any]
_MARKDOWN = {"h1": "# {}", "h2": "## {}", "p": "{}", "warning": "**{}**", "pre": "```sh\n{}\n```"}
_HTML = {"warning": '<p class="warning">{}</p>'} | {
    kind: f"<{kind}>{{}}</{kind}>" for kind in ("h1", "h2", "p", "pre")
}


def markdown(blocks: Sequence[Block]) -> str:
    """A document in Markdown, for repositories and mail."""

    def table(rows: Any) -> str:
        lines = [[" ".join(cell.replace("|", r"\|").split()) for cell in row] for row in rows]
        lines.insert(1, ["---"] * len(lines[0]))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    return "\n\n".join(_drawn(blocks, _MARKDOWN, table, str)) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """A document as one file, without scripts; the first block is its title.

    >>> print(html([("h1", "a < b"), ("warning", "no `x`")]).partition("<body>")[2].strip())
    <h1>a &lt; b</h1>
    <p class="warning">no <code>x</code></p>
    </body></html>
    """

    def inline(text: str) -> str:
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

    def table(rows: Any) -> str:
        cells = [[inline(" ".join(cell.split())) for cell in row] for row in rows]
        first, *others = ["".join(f"<td>{cell}</td>" for cell in row) for row in cells]
        head, body = first.replace("td>", "th>"), "".join(f"<tr>{row}</tr>" for row in others)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    style, title = Path(__file__).with_suffix(".css").read_text(), escape(blocks[0][1])
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    top = f"{meta}<title>{title}</title><style>\n{style}</style>"
    page = "\n".join(_drawn(blocks, _HTML, table, inline))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{top}</head><body>\n{page}\n</body></html>\n'


def _drawn(
    blocks: Sequence[Block],
    forms: Mapping[str, str],
    table: Callable[[Any], str],
    inline: Callable[[str], str],
) -> Iterator[str]:
    for block in blocks:
        kind, content = ("p", block) if isinstance(block, str) else block
        yield table(content) if kind == "table" else forms[kind].format(inline(content))


# The page.


def document(found: Mapping[str, Any]) -> list[Block]:
    """The page, as blocks."""
    sections = {
        f"Privacy report on {os.path.basename(found['store'])}": _opening,
        "What is guaranteed, and to whom": _guaranteed,
        "What was spent, and what is left": _spent,
        "Published policies": _policies,
        "How to verify this": _verifying,
    }
    blocks = list[Block]()
    for title, section in sections.items():
        blocks += [("h2" if blocks else "h1", title), *section(found)]
    return blocks


def _said(name: str, found: Mapping[str, Any] | None = None, **more: Any) -> str:
    """A paragraph of ``report.md``."""
    return options.texts("report.md")[name].format(**(found or {}), **more)


def _opening(found: Mapping[str, Any]) -> Iterator[Block]:
    times = [run[end] for run in found["runs"] for end in ("first", "last") if run[end]]
    when = f", from {min(times)} to {max(times)}" if times else ""
    runs = counted(len(found["runs"]), "run")
    yield _said("made", found, what=runs, when=when, lines=counted(found["entries"], "entry"))
    if found["unaccounted"]:
        names = ", ".join(f"`{name}`" for name in found["unaccounted"])
        yield "warning", _said("lacking", names=names)
    if found["problems"]:
        yield "warning", f"The ledger is NOT well: tacit ledger verify names {found['problems']}."
    if found["kind"] == "simulations":
        yield "warning", _said("simulated")
    else:
        line = f" In one line: {found['verdict']}." if found["well"] else ""
        yield f"Real: the noise has no seed that is known.{line}"
    if found["repairs"]:
        yield f"The store was repaired, {counted(found['repairs'], 'time')}; entries say how."
    if found["closed"]:
        yield "warning", _said("closed")


def _guaranteed(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.privacy.budget import Guarantee

    for run in found["runs"]:
        if run["promise"] is None:
            yield f"{run['name']}: no privacy. It promises nothing to anybody."
            continue
        yield f"{run['name']}: {Guarantee.from_dict(run['promise'])}"
        if run["episodes"] > 1 and run["user_limit"]:
            each, total = at_most(run["episode_limit"], 6), at_most(run["user_limit"], 6)
            yield _said("several", run, each=each, all=total)


def _spent(found: Mapping[str, Any]) -> Iterator[Block]:
    table = [("a user of", "may spend", "has spent at most", "has left at least", "unit")]
    dated: list[tuple[str, ...]] = [
        ("run", "noise", "dates", "users", "blocks", "releases", "version")
    ]
    rows = [(run["name"], run) for run in found["runs"] if run["user_limit"]]
    for name, run in rows + [("all runs", found["limit"])] * (found["limit"] is not None):
        units = {f"epsilon at delta = {run['delta']:g}": "epsilon", run["unit"]: "user"}
        units.pop("epsilon", None)  # of pure DP there is one row
        for unit, key in units.items():
            shown = at_most(run[f"{key}_limit"], 6), at_most(run[f"{key}_cost"], 6)
            table.append((name, *shown, at_least(run[f"{key}_left"], 6), unit))
    for run in found["runs"]:
        kind = "simulated" if run["simulation"] else "real"
        counts = (f"{run[name]:,}" for name in ("served", "blocks", "releases", "version"))
        dated.append((run["name"], kind, f"{run['first']} to {run['last']}", *counts))
    yield "table", table
    people = {name: at_most(found["people"][name], 6) for name in ("max", "median")}
    yield _said("rounded", found, count=found["people"]["count"], **people)
    yield "table", dated


def _policies(found: Mapping[str, Any]) -> Iterator[Block]:
    if not found["policies"]:
        yield "None was given to this report (`--policy FILE`)."
        return
    table = [("file", "version", "published after entry", "on", "SHA-256")]
    for policy in found["policies"]:
        after = "not said" if policy["after_line"] is None else f"{policy['after_line']}"
        after += ", a simulation, which protects nobody" * bool(policy["simulated"])
        after += ", which is NOT in this ledger" * (not policy["line_is_here"])
        when, digest = policy["published"] or "not known", f"`{policy['sha256']}`"
        table.append((policy["file"], str(policy["version"]), after, when, digest))
    yield "table", table
    yield _said("computed")


def _verifying(found: Mapping[str, Any]) -> Iterator[Block]:
    yield _said("keep")
    ledger = f"tacit ledger verify {os.path.basename(found['store'])} --expect {found['head']}"
    yield "pre", "\n".join([ledger, *(f"sha256sum {p['file']}" for p in found["policies"])])
    yield _said("proves")
    yield "   ".join(f"{what}: {'_' * 20}" for what in ("Name and office", "Signature", "Date"))
