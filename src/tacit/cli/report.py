"""``tacit report``: a ledger and the policies made of it, as a page that an officer can sign."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.document import Commands, Document, Piece, Signatures, Table, Warned
from tacit.cli.ledger_account import account, at_least, at_most, counted
from tacit.cli.options import asked
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.files import open_regular

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

HELP = (
    "Report on a ledger and its policies, to be read, signed and checked.\n\n"
    "What is guaranteed to whom, what was spent and what is left, which policies were published "
    "from which lines, and how to verify all of it. Every line of the ledger is checked first. "
    "The output's name says the form: .html (prints well, and to PDF), .md or .json; without it "
    "Markdown is printed. The exit code is 1 if the ledger lacks lines after which a policy was "
    "published.\n\n\b\nExamples:\n"
    "  tacit report budget.ledger --policy policy.npz --output report.html\n"
    "  tacit report budget.ledger > report.md"
)
_FORMS = (".html", ".md", ".json")


def report_command(
    ledger: Annotated[str, typer.Argument(metavar="LEDGER", help="A ledger file.")],
    policy: Annotated[
        list[str] | None, asked("FILE", "A published policy; may be given several times.")
    ] = None,
    output: Annotated[str, asked("FILE", "Where to write it: .html, .md or .json.")] = "",
    delta: Annotated[
        str | None, asked("NUMBER", "At which delta. \\[default: what was declared]")
    ] = None,
    expect: Annotated[
        str, asked("HASH", "A hash that the ledger must have in a line, or 8 digits of it or more.")
    ] = "",
) -> None:
    """Writes or prints a report."""
    from tacit.core.texts import number
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.storage import write_atomic

    form = os.path.splitext(output)[1].lower() if output else ".md"
    if form not in _FORMS:
        raise InvalidArgument(f"--output must end in {', '.join(_FORMS)}, got {output!r}")
    opened = Ledger.open(ledger, expect=expect, every_line=True)
    found = report(ledger, opened, policy or [], None if delta is None else number("delta", delta))
    if form == ".json":
        text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    else:
        page = document(found)
        text = page.html() if form == ".html" else page.markdown()
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
    unit = terms["protects"] if g == 1 else f"one user with at most {g} episodes"
    kind = "Laplace" if pure else "Gaussian"
    made = Guarantee(
        model="joint",
        epsilon=terms["epsilon"],
        delta=terms["delta"],
        mu=None if pure else Budget(terms["epsilon"], terms["delta"]).mu,
        relation=checked_relation(terms["relation"]),
        unit=unit,
        releases=None,
        mechanism=f"releases under a budget filter, {kind} noise",
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
        version = int(said["version"])
        first = int(said.get("first_version", 0))
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
    from tacit.privacy.errors import TacitError
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


def document(found: Mapping[str, Any]) -> Document:
    """The page."""
    sections: list[tuple[str, list[Piece]]] = [
        ("", list(_opening(found))),
        ("What is guaranteed, and to whom", list(_guaranteed(found))),
        ("What was spent, and what is left", list(_spent(found))),
        ("Runs", list(_runs(found))),
        ("Published policies", list(_policies(found))),
        ("How to verify this", list(_verifying(found))),
        ("", [Signatures(("Name and office", "Signature", "Date"))]),
    ]
    return Document(f"Privacy report on {os.path.basename(found['file'])}", sections)


def _opening(found: Mapping[str, Any]) -> Iterator[Piece]:
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
        yield Warned(
            f"This ledger lacks lines after which {names} was published. Lines were cut off its "
            "end, an older copy was put in its place, or the policy is of another ledger. Unless "
            "it is, more was spent than is said below: find the newest copy, or see tacit ledger "
            "repair."
        )
    if found["simulation"]:
        yield Warned(
            "Simulated: the noise of a run has a known seed. It protects nobody, and nothing below "
            "is a promise to real people."
        )
    elif found["unaccounted"]:
        yield "Real: the noise has no seed that is known."
    else:
        yield f"Real: the noise has no seed that is known. In one line: {found['verdict']}."
    if found["repairs"]:
        often = counted(found["repairs"], "time")
        yield f"The ledger was repaired, {often}; lines of it say what everybody was charged."


def _guaranteed(found: Mapping[str, Any]) -> Iterator[Piece]:
    told: set[str] = set()
    for number, promise in enumerate(found["guarantees"], 1):
        if promise is None:
            yield f"Run {number} does not say what it promised."
        elif promise["words"] not in told:
            told.add(promise["words"])
            yield promise["words"]
    for number, run in enumerate(found["runs"], 1):
        terms = run["promised"]
        if terms is not None:
            yield _episodes(number, terms)


def _episodes(number: int, terms: Mapping[str, Any]) -> str:
    g, unit = terms["episodes_per_user"], terms["unit"]
    episode = at_most(terms["episode_limit"], 6)
    words = f"In run {number} a user takes part with at most {counted(g, 'episode')}"
    if g == 1:
        words += f", which may cost {episode} {unit}"
    else:
        apart = "in different releases" if terms["disjoint"] else "which may be in one release"
        words += (
            f", {apart}: each may cost {episode} {unit}, so that all of them together cost at most "
            f"{at_most(terms['user_limit'], 6)} {unit}. More episodes per user make every one of "
            "them teach less at the same budget"
        )
    return f"{words}."


def _spent(found: Mapping[str, Any]) -> Iterator[Piece]:
    user, unit = found["user"], found["unit"]
    at = "epsilon" if unit == "epsilon" else f"epsilon at delta = {found['delta']:g}"
    rows = [
        ("may spend", at_most(user["limit"], 6), at_most(user["limit_epsilon"])),
        ("has spent at most", at_most(user["spent"], 6), at_most(user["spent_epsilon"])),
        ("has left at least", at_least(user["left"], 6), at_least(user["left_epsilon"])),
    ]
    columns = 2 if unit == "epsilon" else 3
    titles = ("one user", unit, at)[:columns]
    yield Table(titles, [row[:columns] for row in rows])
    yield (
        "Of the user who spent most. What may be spent and what was spent is rounded up, what is "
        "left is rounded down, all to the same number of digits."
        + (" Costs add up in mu^2; epsilons do not." if unit == "mu^2" else "")
    )


def _runs(found: Mapping[str, Any]) -> Iterator[Piece]:
    rows = []
    for number, run in enumerate(found["runs"], 1):
        people = "not counted" if run["people"] is None else f"{run['people']:,}"
        kind = "simulated" if run["simulation"] else "real"
        when = f"{run['first'] or 'not known'} to {run['last'] or 'not known'}"
        cost = at_most(run["user_epsilon"])
        cells = (
            str(number),
            kind,
            when,
            people,
            f"{run['blocks']:,}",
            f"{run['releases']:,}",
            cost,
        )
        rows.append(cells)
    yield Table(
        ("run", "noise", "dates", "people", "blocks", "releases", "epsilon of a user"), rows
    )
    labels = [
        (str(number), label, f"{times:,}")
        for number, run in enumerate(found["runs"], 1)
        for label, times in run["labels"].items()
    ]
    if labels:
        yield Table(("run", "what was released, with noise", "times"), labels)


def _policies(found: Mapping[str, Any]) -> Iterator[Piece]:
    if not found["policies"]:
        yield "None was given to this report (`--policy FILE`)."
        return
    rows = []
    for policy in found["policies"]:
        lines = _ranges(policy["lines"])
        first = policy["first_version"]
        if policy["version"] == first:
            lines = "none: it is from before anything was learnt"
            if first:
                lines = "none: it is from what predecessors released"
        elif not policy["accounted"]:
            people = found["kind"] == "people"
            lines = "not known: the ledger has several runs" if people else "NOT in this ledger"
        elif first:
            lines += ", and what predecessors released"
        when = policy["published"] or "not known"
        digest = f"`{policy['sha256']}`"
        cells = (str(policy["version"]), lines, _published_after(policy), when, digest)
        rows.append((policy["file"], *cells))
    titles = ("version", "made from lines", "published after line", "on", "SHA-256")
    yield Table(("file", *titles), rows)
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


def _verifying(found: Mapping[str, Any]) -> Iterator[Piece]:
    name = os.path.basename(found["file"])
    yield (
        "Keep this page, or the head above, away from the ledger. A ledger that was cut off, "
        "changed or replaced since lacks that line, and is refused:"
    )
    commands = [f"tacit ledger verify {name} --expect {found['head']}"]
    commands += [f"sha256sum {policy['file']}" for policy in found["policies"]]
    yield Commands("\n".join(commands))
    yield (
        "The ledger is written before anything is published. It proves what was paid for; that the "
        "software draws the noise it pays for is checked by `tacit audit`."
    )
