"""``tacit report``: a ledger and the policies made of it, as a page that an officer can sign."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tacit.cli import options
from tacit.cli.ledger import CHARGES, by_run, summary
from tacit.cli.options import asked, given
from tacit.cli.output import at_least, at_most, counted
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.files import open_regular

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

_FORMS = (".html", ".md", ".json")


def report_command(
    ledger: Annotated[str, given("LEDGER", "A ledger file.")],
    policy: Annotated[
        list[str] | None, asked("FILE", "A published policy; may be given several times.")
    ] = None,
    output: Annotated[str, asked("FILE", "Where to write it: .html, .md or .json.")] = "",
    delta: options.AtDelta = None,
    expect: Annotated[
        str, asked("HASH", "A hash that the ledger must have in a line, or 8 digits of it or more.")
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Writes or prints a report."""
    from tacit.privacy.files import write_atomic
    from tacit.privacy.ledger import Ledger

    form = os.path.splitext(output)[1].lower() if output else ".json" if as_json else ".md"
    if form not in _FORMS:
        raise InvalidArgument(f"--output must end in {', '.join(_FORMS)}, got {output!r}")
    opened = Ledger.open(ledger, expect=expect, every_line=True)
    found = report(ledger, opened, policy or [], options.optional_number("delta", delta))
    if form == ".json":
        text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    else:
        text = (html if form == ".html" else markdown)(document(found))
    if output:
        write_atomic(output, text.encode(), 0o644)
        text = f"{output}: {found['verdict']}\n"
    typer.echo(text, nl=False)
    if found["unaccounted"]:
        raise typer.Exit(1)


# Facts.


def report(
    file: str, ledger: Ledger, policies: Sequence[str], delta: float | None = None
) -> dict[str, Any]:
    """Everything that the page says, as JSON values: a summary in epsilons at a delta."""
    import tacit

    found, promised = summary(file, ledger), ledger.terms
    if promised is None:  # of one run: what that run promised, if its start says so
        promised = next((e.terms for e in ledger.entries if e.terms is not None), None)
    if ledger.unit == "epsilon":
        delta = 0.0
    elif delta is None and promised is not None:
        delta = promised.delta
    if delta is None:
        raise InvalidArgument("--delta is missing: this ledger does not say which was declared")
    # A block's cost is one episode's; a user with several may pay more.
    factor = 1.0
    if not ledger.people and promised is not None:
        factor = promised.user_limit / promised.episode_limit
    user = {"limit": ledger.limit * factor, "spent": found["spent"]["max"] * factor}
    user |= {f"{name}_epsilon": _epsilon(ledger.unit, user[name], delta) for name in list(user)}
    user["left"] = max(user["limit"] - user["spent"], 0.0)
    user["left_epsilon"] = max(user["limit_epsilon"] - user["spent_epsilon"], 0.0)
    for run, lines in zip(found["runs"], by_run(ledger).values(), strict=True):
        run["user_epsilon"] = _epsilon(run["unit"], run["user_cost"], delta)
        dated = [({"entry": e.sequence, "time": e.time or None}, e) for e in lines]
        run["charges"] = [
            when
            | {"label": e.label, "blocks": len(e.costs)}
            | {"cost": max(e.costs.values(), default=0.0)}
            for when, e in dated
            if e.event in CHARGES
        ]
        run["joins"] = [when | {"people": e.people} for when, e in dated if e.event == "join"]
    found |= {
        "delta": delta,
        "promised": None if promised is None else asdict(promised),
        "user": user,
        "policies": [_policy(path, ledger, file) for path in policies],
        "guarantees": [_promise(run["promised"]) for run in found["runs"]],
        "simulation": any(run["simulation"] for run in found["runs"]),
        "tacit": tacit.__version__,
    }
    found["unaccounted"] = [
        policy["file"]
        for policy in found["policies"]
        if not policy["line_is_here"]
        # One that names no line is judged by its blocks, where they are of one run.
        and (policy["line_is_here"] is False or not (policy["accounted"] or ledger.people))
    ]
    spent, limit = at_most(user["spent_epsilon"]), at_most(user["limit_epsilon"])
    found["verdict"] = f"within budget: one user has spent at most epsilon {spent} of {limit}"
    if found["simulation"]:
        found["verdict"] = "a simulation: its noise has a known seed and protects nobody"
    if names := ", ".join(found["unaccounted"]):
        lacking = f"the ledger lacks lines after which {names} was published"
        found["verdict"] = f"NOT accounted for: {lacking}"
    return found


def _epsilon(unit: str, spent: float, delta: float) -> float:
    """What was spent, as an epsilon at this delta."""
    from tacit.privacy.gaussian_dp import epsilon_from_mu

    return spent if unit == "epsilon" else epsilon_from_mu(spent**0.5, delta)


def _promise(terms: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The guarantee of a run by its terms, in numbers and in words."""
    from tacit.privacy.budget import Budget, checked_relation
    from tacit.privacy.guarantee import Guarantee

    if terms is None:
        return None
    pure, g = terms["unit"] == "epsilon", terms["episodes_per_user"]
    made = Guarantee(
        model="joint",
        epsilon=terms["epsilon"],
        delta=terms["delta"],
        mu=None if pure else Budget(terms["epsilon"], terms["delta"]).mu,
        relation=checked_relation(terms["relation"]),
        unit=terms["protects"] if g == 1 else f"one user with at most {g} episodes",
        releases=None,
        mechanism=f"releases under a budget filter, {'Laplace' if pure else 'Gaussian'} noise",
        simulation_only=terms["simulation"],
        episodes_per_user=g,
    )
    return {"short": made.short, "words": str(made)}


def _policy(path: str, ledger: Ledger, file: str) -> dict[str, Any]:
    """A published policy: what it is and says of itself, and the lines that paid for it.

    Version v is made of what was released about the blocks before it, 0 to v - 1, and a successor's
    first version of what its predecessors released. The file has the hash of the line after which
    it was published.
    """
    from tacit import published

    try:
        said = published.about(path)
        version, first = int(said["version"]), int(said.get("first_version", 0))
    except ValueError as error:
        raise InvalidArgument(f"--policy {path!r} is no published policy: {error}") from None
    with open(open_regular(path), "rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    charges = [entry for entry in ledger.entries if entry.event in CHARGES]
    return {
        "file": os.path.basename(path),
        "version": version,
        "first_version": first,
        "sha256": digest,
        # The first line of the file is its header, before entry 1.
        "lines": [
            entry.sequence + 1
            for entry in charges
            if any(_block(key) < version - first for key in entry.costs)
        ],
        "published": said.get("date"),
        "simulated": said.get("simulated"),
        "after_line": said.get("ledger_line"),
        "line_is_here": _has_line(file, said.get("ledger_head")),
        # Runs of a ledger of people number their blocks each for itself.
        "accounted": not ledger.people
        and {*range(version - first)} <= {_block(key) for entry in charges for key in entry.costs},
    }


def _has_line(file: str, head: str | None) -> bool | None:
    """Whether a line of the ledger has this hash; ``None`` if the policy names none."""
    from tacit.privacy.ledger import Ledger

    if head is None:
        return None
    try:
        Ledger.open(file, expect=head)
    except TacitError:
        return False
    return True


def _block(key: str) -> int:
    number = key.partition("-")[0]
    return int(number) if number.isdigit() else -1


# Words: paragraphs, and blocks of other kinds, of which Markdown or HTML is made.

Block: TypeAlias = str | tuple[str, Any]
_MARKDOWN = {"h1": "# {}", "h2": "## {}", "p": "{}", "warning": "**{}**", "pre": "```sh\n{}\n```"}
_SIGN = ("Name and office", "Signature", "Date")
_HTML = {"warning": '<p class="warning">{}</p>'} | {
    kind: f"<{kind}>{{}}</{kind}>" for kind in ("h1", "h2", "p", "pre")
}


def _said(name: str, found: Mapping[str, Any] | None = None, **more: Any) -> str:
    """A paragraph of ``report.md``."""
    return options.texts("report.md")[name].format(**(found or {}), **more)


def markdown(blocks: Sequence[Block]) -> str:
    """For repositories and mail."""
    shown = []
    for block in blocks:
        kind, content = ("p", block) if isinstance(block, str) else block
        if kind == "table":
            lines = [[" ".join(c.replace("|", r"\|").split()) for c in row] for row in content]
            lines.insert(1, ["---"] * len(lines[0]))
            shown.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        else:
            shown.append(_MARKDOWN[kind].format(content))
    return "\n\n".join(shown) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """One file, without scripts and without anything from elsewhere; the first block is its title.

    >>> print(html([("h1", "a < b"), ("warning", "no `x`")]).partition("<body>")[2].strip())
    <h1>a &lt; b</h1>
    <p class="warning">no <code>x</code></p>
    </body></html>
    """

    def inline(text: str) -> str:
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

    shown = []
    for block in blocks:
        kind, content = ("p", block) if isinstance(block, str) else block
        if kind == "table":
            cells = [[inline(" ".join(cell.split())) for cell in row] for row in content]
            first, *rows = ["".join(f"<td>{cell}</td>" for cell in row) for row in cells]
            head, body = first.replace("td>", "th>"), "".join(f"<tr>{row}</tr>" for row in rows)
            shown.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        else:
            shown.append(_HTML[kind].format(inline(content)))
    style = Path(__file__).with_suffix(".css").read_text()
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    top = f"{meta}<title>{escape(blocks[0][1])}</title><style>\n{style}</style>"
    page = "\n".join(shown)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{top}</head><body>\n{page}\n</body></html>\n'


def document(found: Mapping[str, Any]) -> list[Block]:
    """The page, as blocks."""
    return [
        ("h1", f"Privacy report on {os.path.basename(found['file'])}"),
        *_opening(found),
        ("h2", "What is guaranteed, and to whom"),
        *_guaranteed(found),
        ("h2", "What was spent, and what is left"),
        *_spent(found),
        ("h2", "Runs"),
        *_runs(found),
        ("h2", "Published policies"),
        *_policies(found),
        ("h2", "How to verify this"),
        *_verifying(found),
        "   ".join(f"{what}: {'_' * 20}" for what in _SIGN),
    ]


def _opening(found: Mapping[str, Any]) -> Iterator[Block]:
    times = [run[end] for run in found["runs"] for end in ("first", "last") if run[end]]
    when = f", from {min(times)} to {max(times)}" if times else ""
    if found["note"]:
        yield found["note"]
    what = "several runs on one population" if found["kind"] == "people" else "one run"
    yield _said("made", found, what=what, when=when, lines=counted(found["entries"], "entry"))
    if found["unaccounted"]:
        names = ", ".join(f"`{name}`" for name in found["unaccounted"])
        yield "warning", _said("lacking", names=names)
    if found["simulation"]:
        yield "warning", _said("simulated")
    else:
        line = "" if found["unaccounted"] else f" In one line: {found['verdict']}."
        yield f"Real: the noise has no seed that is known.{line}"
    if found["repairs"]:
        often = counted(found["repairs"], "time")
        yield f"The ledger was repaired, {often}; lines of it say what everybody was charged."


def _guaranteed(found: Mapping[str, Any]) -> Iterator[Block]:
    for words in dict.fromkeys(promise["words"] for promise in found["guarantees"] if promise):
        yield words
    for number, run in enumerate(found["runs"], 1):
        terms = run["promised"]
        if terms is None:
            yield f"Run {number} does not say what it promised."
            continue
        g, unit, each = terms["episodes_per_user"], terms["unit"], terms["episode_limit"]
        words = f"In run {number} a user takes part with at most {counted(g, 'episode')}, "
        if g == 1:
            yield f"{words}which may cost {at_most(each, 6)} {unit}."
            continue
        apart = "in different releases" if terms["disjoint"] else "which may be in one release"
        costs = at_most(each, 6), at_most(terms["user_limit"], 6)
        yield words + _said("several", apart=apart, each=costs[0], all=costs[1], unit=unit)


def _spent(found: Mapping[str, Any]) -> Iterator[Block]:
    user, unit, spent = found["user"], found["unit"], found["spent"]
    table = [("one user", unit, f"epsilon at delta = {found['delta']:g}")] + [
        (name, words(user[key], 6), words(user[f"{key}_epsilon"]))
        for name, key, words in (
            ("may spend", "limit", at_most),
            ("has spent at most", "spent", at_most),
            ("has left at least", "left", at_least),
        )
    ]
    yield "table", [row[:2] for row in table] if unit == "epsilon" else table
    median, limit = at_most(spent["median"], 6), at_most(found["limit"], 6)
    yield _said("rounded", spent, unit=unit, median_cost=median, limit=limit)


def _runs(found: Mapping[str, Any]) -> Iterator[Block]:
    titles = ("run", "noise", "dates", "people", "blocks", "releases", "epsilon of a user")
    rows, labels = [titles], [("run", "what was released", "times", "first", "last", "most")]
    for number, run in enumerate(found["runs"], 1):
        people = "not counted" if run["people"] is None else f"{run['people']:,}"
        kind = "simulated" if run["simulation"] else "real"
        when = f"{run['first'] or 'not known'} to {run['last'] or 'not known'}"
        counts = f"{run['blocks']:,}", f"{run['releases']:,}"
        rows.append((str(number), kind, when, people, *counts, at_most(run["user_epsilon"])))
        for label, times in run["labels"].items():
            lines = [charge for charge in run["charges"] if charge["label"] == label]
            first, last = (lines[at]["time"] or "not known" for at in (0, -1))
            most = f"{at_most(max(line['cost'] for line in lines), 6)} {run['unit']}"
            labels.append((str(number), label, f"{times:,}", first, last, most))
    yield "table", rows
    if len(labels) > 1:
        yield "table", labels
    for number, run in enumerate(found["runs"], 1):
        if run["unsettled"]:
            what = f"{counted(run['unsettled'], 'charge')} at the end of run {number}"
            yield f"{what} had no result on disk: paid for, not published."


def _policies(found: Mapping[str, Any]) -> Iterator[Block]:
    if not found["policies"]:
        yield "None was given to this report (`--policy FILE`)."
        return
    table = [("file", "version", "made from lines", "published after line", "on", "SHA-256")]
    for policy in found["policies"]:
        lines, first = _ranges(policy["lines"]), policy["first_version"]
        if policy["version"] == first:
            before = "what predecessors released" if first else "before anything was learnt"
            lines = f"none: it is from {before}"
        elif not policy["accounted"]:
            people = found["kind"] == "people"
            lines = "not known: the ledger has several runs" if people else "NOT in this ledger"
        elif first:
            lines += ", and what predecessors released"
        after = f"{policy['after_line']}"
        if policy["simulated"]:
            after = "a simulation, which protects nobody"
        elif not policy["line_is_here"]:
            known = policy["line_is_here"] is not None
            after = f"{after}, which is NOT in this ledger" if known else "not said"
        when, digest = policy["published"] or "not known", f"`{policy['sha256']}`"
        table.append((policy["file"], str(policy["version"]), lines, after, when, digest))
    yield "table", table
    yield _said("computed")


def _ranges(lines: Sequence[int]) -> str:
    """Numbers as ranges.

    >>> _ranges([2, 3, 4, 7])
    '2-4, 7'
    """
    starts = [line for line in lines if line - 1 not in lines]
    ends = [line for line in lines if line + 1 not in lines]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _verifying(found: Mapping[str, Any]) -> Iterator[Block]:
    yield _said("keep")
    ledger = f"tacit ledger verify {os.path.basename(found['file'])} --expect {found['head']}"
    yield "pre", "\n".join([ledger, *(f"sha256sum {p['file']}" for p in found["policies"])])
    yield _said("proves")
