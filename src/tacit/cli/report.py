"""``tacit report``: a ledger and the policies made of it, as a page that an officer can sign."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.document import commands, heading, html, markdown, signatures, table, warned
from tacit.cli.ledger_account import account, at_least, at_most, counted
from tacit.cli.options import asked, given
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.files import open_regular

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

HELP = (
    "Report on a ledger and its policies, to be read, signed and checked.\n\n"
    "What is guaranteed to whom, what was spent and what is left, which policies were published "
    "from which lines, and how to verify all of it. Every line of the ledger is checked first. "
    "The output's name says the form: .html (prints well, and to PDF), .md or .json; without it "
    "Markdown is printed, or JSON. The exit code is 1 if the ledger lacks lines after which a "
    "policy was published.\n\n\b\nExamples:\n"
    "  tacit report budget.ledger --policy policy.npz --output report.html\n"
    "  tacit report budget.ledger --delta 1e-6 > report.md"
)
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
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.storage import write_atomic

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
    """Everything that the page says, as JSON values."""
    import tacit

    found = account(file, ledger, delta)
    user = found["user"]
    user["left"] = max(user["limit"] - user["spent"], 0.0)
    user["left_epsilon"] = max(user["limit_epsilon"] - user["spent_epsilon"], 0.0)
    found["policies"] = [_policy(path, ledger, file) for path in policies]
    found["unaccounted"] = [
        policy["file"]
        for policy in found["policies"]
        if not policy["line_is_here"]
        # One that names no line is judged by its blocks, where they are of one run.
        and (policy["line_is_here"] is False or not (policy["accounted"] or ledger.people))
    ]
    found["guarantees"] = [_promise(run["promised"]) for run in found["runs"]]
    found["tacit"] = tacit.__version__
    found["simulation"] = any(run["simulation"] for run in found["runs"])
    found["verdict"] = _verdict(found)
    return found


def _verdict(found: Mapping[str, Any]) -> str:
    if found["unaccounted"]:
        names = ", ".join(found["unaccounted"])
        return f"NOT accounted for: the ledger lacks lines after which {names} was published"
    if found["simulation"]:
        return "a simulation: its noise has a known seed and protects nobody"
    user = found["user"]
    spent, limit = at_most(user["spent_epsilon"]), at_most(user["limit_epsilon"])
    return f"within budget: one user has spent at most epsilon {spent} of {limit}"


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
    # The first line of the file is its header, before entry 1.
    lines = [
        entry.sequence + 1
        for entry in ledger.entries
        if entry.event in ("charge", "pending")
        and any(_block(key) < version - first for key in entry.costs)
    ]
    blocks = {_block(key) for entry in ledger.entries for key in entry.costs}
    return {
        "file": os.path.basename(path),
        "version": version,
        "first_version": first,
        "sha256": digest,
        "lines": lines,
        "published": said.get("date"),
        "simulated": said.get("simulated"),
        "after_line": said.get("ledger_line"),
        "line_is_here": _has_line(file, said.get("ledger_head")),
        # Runs of a ledger of people number their blocks each for itself.
        "accounted": not ledger.people and set(range(version - first)) <= blocks,
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


# Words.


def document(found: Mapping[str, Any]) -> list[str]:
    """The page, as blocks of Markdown."""
    return [
        heading(f"Privacy report on {os.path.basename(found['file'])}", 1),
        *_opening(found),
        heading("What is guaranteed, and to whom"),
        *_guaranteed(found),
        heading("What was spent, and what is left"),
        *_spent(found),
        heading("Runs"),
        *_runs(found),
        heading("Published policies"),
        *_policies(found),
        heading("How to verify this"),
        *_verifying(found),
        signatures("Name and office", "Signature", "Date"),
    ]


def _opening(found: Mapping[str, Any]) -> Iterator[str]:
    times = [run[end] for run in found["runs"] for end in ("first", "last") if run[end]]
    when = f", from {min(times)} to {max(times)}" if times else ""
    if found["note"]:
        yield found["note"]
    what = "several runs on one population" if found["kind"] == "people" else "one run"
    yield (
        f"Made by Tacit {found['tacit']} from the ledger `{found['id']}` of {what}: "
        f"{counted(found['entries'], 'entry')}{when}. The hash of its last line, its head, is "
        f"`{found['head']}`."
    )
    if found["unaccounted"]:
        names = ", ".join(f"`{name}`" for name in found["unaccounted"])
        yield warned(
            f"This ledger lacks lines after which {names} was published. Lines were cut off its "
            "end, an older copy was put in its place, or the policy is of another ledger. Unless "
            "it is, more was spent than is said below: find the newest copy, or see tacit ledger "
            "repair."
        )
    if found["simulation"]:
        yield warned(
            "Simulated: the noise of a run has a known seed. It protects nobody, and nothing below "
            "is a promise to real people."
        )
    else:
        line = "" if found["unaccounted"] else f" In one line: {found['verdict']}."
        yield f"Real: the noise has no seed that is known.{line}"
    if found["repairs"]:
        often = counted(found["repairs"], "time")
        yield f"The ledger was repaired, {often}; lines of it say what everybody was charged."


def _guaranteed(found: Mapping[str, Any]) -> Iterator[str]:
    told: set[str] = set()
    for number, promise in enumerate(found["guarantees"], 1):
        if promise is None:
            yield f"Run {number} does not say what it promised."
        elif promise["words"] not in told:
            told.add(promise["words"])
            yield promise["words"]
    for number, run in enumerate(found["runs"], 1):
        if run["promised"] is not None:
            yield _episodes(number, run["promised"])


def _episodes(number: int, terms: Mapping[str, Any]) -> str:
    g, unit = terms["episodes_per_user"], terms["unit"]
    episode = at_most(terms["episode_limit"], 6)
    words = f"In run {number} a user takes part with at most {counted(g, 'episode')}"
    if g == 1:
        return f"{words}, which may cost {episode} {unit}."
    apart = "in different releases" if terms["disjoint"] else "which may be in one release"
    return (
        f"{words}, {apart}: each may cost {episode} {unit}, so that all of them together cost at "
        f"most {at_most(terms['user_limit'], 6)} {unit}. More episodes per user make every one of "
        "them teach less at the same budget."
    )


def _spent(found: Mapping[str, Any]) -> Iterator[str]:
    user, unit, spent = found["user"], found["unit"], found["spent"]
    at = "epsilon" if unit == "epsilon" else f"epsilon at delta = {found['delta']:g}"
    rows = [
        ("may spend", at_most(user["limit"], 6), at_most(user["limit_epsilon"])),
        ("has spent at most", at_most(user["spent"], 6), at_most(user["spent_epsilon"])),
        ("has left at least", at_least(user["left"], 6), at_least(user["left_epsilon"])),
    ]
    columns = 2 if unit == "epsilon" else 3
    yield table(("one user", unit, at)[:columns], [row[:columns] for row in rows])
    yield (
        "Of the user who spent most. What may be spent and what was spent is rounded up, what is "
        "left is rounded down, all to the same number of digits."
        + (" Costs add up in mu^2; epsilons do not." if unit == "mu^2" else "")
        + f" {spent['count']:,} {spent['of']} have an account; the median is "
        f"{at_most(spent['median'], 6)} of {at_most(found['limit'], 6)} {unit}."
    )


def _runs(found: Mapping[str, Any]) -> Iterator[str]:
    rows, labels = [], []
    for number, run in enumerate(found["runs"], 1):
        people = "not counted" if run["people"] is None else f"{run['people']:,}"
        kind = "simulated" if run["simulation"] else "real"
        when = f"{run['first'] or 'not known'} to {run['last'] or 'not known'}"
        counts = f"{run['blocks']:,}", f"{run['releases']:,}"
        rows.append((str(number), kind, when, people, *counts, at_most(run["user_epsilon"])))
        for label, times in run["labels"].items():
            lines = [charge for charge in run["charges"] if charge["label"] == label]
            dates = (lines[at]["time"] or "not known" for at in (0, -1))
            most = at_most(max(line["cost"] for line in lines), 6)
            labels.append((str(number), label, f"{times:,}", *dates, f"{most} {run['unit']}"))
    yield table(
        ("run", "noise", "dates", "people", "blocks", "releases", "epsilon of a user"), rows
    )
    if labels:
        ends = ("first", "last", "largest cost")
        yield table(("run", "what was released, with noise", "times", *ends), labels)
    for number, run in enumerate(found["runs"], 1):
        if run["unsettled"]:
            yield (
                f"{counted(run['unsettled'], 'charge')} at the end of run {number} had no result "
                "on disk: paid for, not published."
            )


def _policies(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["policies"]:
        yield "None was given to this report (`--policy FILE`)."
        return
    rows = []
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
        when, digest = policy["published"] or "not known", f"`{policy['sha256']}`"
        after = _published_after(policy)
        rows.append((policy["file"], str(policy["version"]), lines, after, when, digest))
    titles = ("version", "made from lines", "published after line", "on", "SHA-256")
    yield table(("file", *titles), rows)
    yield (
        "A policy is computed from releases alone, so publishing it costs nothing beyond the lines "
        "that it is made from."
    )


def _published_after(policy: Mapping[str, Any]) -> str:
    if policy["simulated"]:
        return "a simulation, which protects nobody"
    if policy["line_is_here"] is None:
        return "not said"
    words = f"{policy['after_line']}"
    return words if policy["line_is_here"] else f"{words}, which is NOT in this ledger"


def _ranges(lines: Sequence[int]) -> str:
    """Numbers as ranges.

    >>> _ranges([2, 3, 4, 7])
    '2-4, 7'
    """
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _verifying(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Keep this page, or the head above, away from the ledger. A ledger that was cut off, "
        "changed or replaced since lacks that line, and is refused:"
    )
    yield commands(
        f"tacit ledger verify {os.path.basename(found['file'])} --expect {found['head']}",
        *(f"sha256sum {policy['file']}" for policy in found["policies"]),
    )
    yield (
        "The ledger is written before anything is published. It proves what was paid for; that the "
        "software draws the noise it pays for is checked by `tacit audit`."
    )
