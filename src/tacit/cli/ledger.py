"""``tacit ledger``: read a ledger file, check it, repair it.

Nothing here changes a ledger but ``create``, which makes a new one, and ``repair``. What a ledger
says of people is what the curator knows: these commands are for whoever keeps the file. For others
there is ``tacit report``.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, given
from tacit.cli.output import at_most, counted, print_help_if_alone, print_json
from tacit.names.texts import number
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import open_regular, parse_json, read_file

if TYPE_CHECKING:
    from tacit.privacy.ledger import Entry, Ledger

app = typer.Typer(
    callback=print_help_if_alone,
    invoke_without_command=True,
    help="Read, check and repair a ledger: what was spent, on disk, before it was published.",
)

_File = Annotated[str, given("FILE", "A ledger file.")]
_Expect = Annotated[
    str,
    asked(
        "HASH|POLICY",
        "A hash that the ledger must have in a line, or 8 digits of it or more, or a published "
        "policy that has it.",
    ),
]
_MARK = b'"format": "tacit-ledger"'


@command(app, "ledger")
def create(
    file: _File,
    epsilon: Annotated[str, asked("NUMBER", "Budget of one person.")],
    delta: Annotated[str, asked("NUMBER", "Budget of one person, 0 for pure.")],
    relation: Annotated[
        str, asked("replace-one|zero-out", "Between which data sets it holds.")
    ] = "replace-one",
    note: Annotated[str, asked("TEXT", "A line for whoever reads it.")] = "",
) -> None:
    """Makes a ledger of people."""
    from tacit.privacy.budget import checked_relation
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.models import JointDP

    budget = number("epsilon", epsilon), number("delta", delta)
    privacy = JointDP(*budget, relation=checked_relation(relation))
    try:
        ledger = Ledger.create_for_people(file, privacy, note=note)
    except FileExistsError:
        raise InvalidArgument(
            f"{file!r} exists, and no ledger is ever overwritten: choose another name"
        ) from None
    typer.echo(f"{file}: one person may spend {ledger.limit:.6g} {ledger.unit} over all runs")


@command(app, "ledger")
def show(file: _File, expect: _Expect = "", as_json: options.Json = False) -> None:
    """Prints a summary."""
    from tacit.privacy.ledger import Ledger

    found = summary(file, Ledger.open(file, expect=_witness(expect)))
    if as_json:
        print_json(found)
        return
    spent, limit = found["spent"], found["limit"]
    whose = "person, over all runs" if found["kind"] == "people" else "block of users"
    share = min(100.0 * spent["max"] / limit, 100.0)
    lines = [
        f"{found['file']}: a ledger of {found['kind']}, {found['entries']:,} entries",
        *([f"note: {found['note']}"] if found["note"] else []),
        f"head: {found['head']}",
        *(
            [f"repaired {counted(found['repairs'], 'time')}: see its lines"]
            * bool(found["repairs"])
        ),
        f"limit: {at_most(limit, 6)} {found['unit']} for each {whose}",
        f"spent: {spent['count']:,} {spent['of']}, most {at_most(spent['max'], 6)}, "
        f"median {at_most(spent['median'], 6)} ({share:.4g} % of the limit)",
    ]
    for n, run in enumerate(found["runs"], 1):
        words = [f"{counted(run['releases'], 'release')} about {counted(run['blocks'], 'block')}"]
        words += [f"{run['people']:,} people"] if run["people"] is not None else []
        words += [counted(run["saves"], "save"), counted(run["resumes"], "resume")]
        words += [f"{run['unsettled']} not settled"] if run["unsettled"] else []
        words += ["has a successor"] * run["succeeded"] + ["simulation only"] * run["simulation"]
        lines.append(f"run {n}: {', '.join(words)}")
    typer.echo("\n".join(lines))


@command(app, "ledger")
def verify(file: _File, expect: _Expect = "", as_json: options.Json = False) -> None:
    """Checks a ledger."""
    from tacit.privacy.ledger import Ledger

    _check_kind(file)
    expect = _witness(expect)  # here: a damaged witness is not the ledger's fault
    problem, ledger, torn, simulated = "", None, 0, list[int]()
    try:
        Ledger.open(file)  # by its index
        ledger = Ledger.open(file, expect=expect, every_line=True)
    except CorruptFile as error:
        problem = str(error)
    if ledger is not None:
        # What comes after the last whole line.
        torn = len(read_file(file, "ledger").rpartition(b"\n")[2])
        runs = summary(file, ledger)["runs"]
        simulated = [n for n, run in enumerate(runs, 1) if run["simulation"]]
    if as_json:
        known = {"entries": ledger and ledger.sequence, "head": ledger and ledger.head}
        print_json(
            {"file": file, "well": not problem, "problem": problem or None}
            | {"torn_bytes": torn, "simulations": simulated}
            | known
        )
    elif ledger is None:
        typer.echo(f"bad: {problem}")
    else:
        typer.echo(
            f"well: {counted(ledger.sequence, 'entry')}, the chain is whole, "
            f"{sum(ledger.accounts.values()):,} {'people' if ledger.people else 'blocks'} within "
            f"{ledger.limit:.6g} {ledger.unit}\nhead: {ledger.head}"
        )
        if torn:
            typer.echo(
                f"The last {torn} bytes are a line that a crash cut off. Nothing was published on "
                "its strength; the next entry takes its place."
            )
        for n in simulated:
            typer.echo(
                f"Run {n} is a simulation: its noise has a known seed. What it paid for protects "
                "nobody."
            )
    raise typer.Exit(1 if problem else 0)


@command(app, "ledger")
def repair(file: _File, expect: _Expect = "", as_json: options.Json = False) -> None:
    """Repairs a ledger."""
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.ledger.repair import repair

    _check_kind(file)
    done = repair(file, expect=_witness(expect))
    if as_json:
        print_json({"file": file} | asdict(done))
        return
    if not done.problem:
        typer.echo(f"{file} is well: nothing was changed")
        return
    typer.echo(f"was: {done.problem}")
    typer.echo(f"kept: {counted(done.kept, 'entry')}; the damaged file is {done.original}")
    if done.people:
        who = f"payments of {done.people:,} people whose lines are not kept"
        typer.echo(f"known from elsewhere: {who}")
    if done.lost_lines:
        typer.echo(f"lost: {'one line' if done.lost_lines == 1 else 'more than one line'}")
    if done.everybody:
        cost = f"{at_most(done.everybody, 6)} {Ledger.open(file).unit}"
        typer.echo(f"charged: {cost} to everybody, known or not")
    ended = "ended: all runs from before; none of their saves can be resumed"
    typer.echo(ended if done.ended else "Nothing was lost: all runs go on.")


# What a ledger says.

CHARGES = ("charge", "pending")
"""Events that cost: one is pending until its result is on disk, and is paid for all the same."""


def summary(file: str, ledger: Ledger) -> dict[str, Any]:
    """What a ledger says of its runs and its people, as JSON values."""
    accounts = ledger.accounts
    return {
        "file": file,
        "id": ledger.id,
        "kind": "people" if ledger.people else "one run",
        "unit": ledger.unit,
        "limit": ledger.limit,
        "note": ledger.note,
        "entries": ledger.sequence,
        "head": ledger.head,
        "repairs": sum(entry.event == "repair" for entry in ledger.entries),
        "spent": {
            "of": "people" if ledger.people else "blocks",
            "count": sum(accounts.values()),
            "max": max(accounts, default=0.0),
            "median": _median(accounts),
        },
        "runs": [_run(ledger, name, entries) for name, entries in by_run(ledger).items()],
    }


def by_run(ledger: Ledger) -> dict[str, list[Entry]]:
    """The entries of each run, in the order of their starts."""
    runs: dict[str, list[Entry]] = {name: [] for name in ledger.runs}
    for entry in ledger.entries:
        if entry.event != "repair":
            runs.setdefault(entry.run, []).append(entry)
    return runs


def _run(ledger: Ledger, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    terms = ledger.runs.get(name) or next((e.terms for e in entries if e.terms), None)
    events = Counter(entry.event for entry in entries)
    charges = [entry for entry in entries if entry.event in CHARGES]
    blocks: defaultdict[str, float] = defaultdict(float)
    for key, paid in (item for entry in charges for item in entry.costs.items()):
        blocks[key] += paid
    settled = max((e.sequence for e in entries if e.event in ("save", "charge")), default=0)
    most = max(blocks.values(), default=0.0)
    times = [entry.time for entry in entries if entry.time]
    people = sum(entry.people for entry in entries) if ledger.people else None
    cost = most if terms is None else most * (terms.user_limit / terms.episode_limit)
    if ledger.people and terms is not None:
        cost = terms.user_limit if people else 0.0
    return {
        "name": name or next((e.label for e in entries if e.event == "start"), ""),
        "unit": ledger.unit if terms is None else terms.unit,
        "promised": None if terms is None else asdict(terms),
        "simulation": terms is not None and terms.simulation,
        "first": min(times, default=None),
        "last": max(times, default=None),
        "people": people,
        "blocks": len(blocks),
        "block_max": most,
        "user_cost": cost,
        "releases": len(charges),
        "labels": dict(Counter(entry.label for entry in charges)),
        "unsettled": sum(e.event == "pending" and e.sequence > settled for e in entries),
        "saves": events["save"],
        "resumes": events["resume"],
        "succeeded": bool(events["succession"]),
    }


def _median(accounts: Mapping[float, int]) -> float:
    """The lower median of values with their frequencies."""
    left = (sum(accounts.values()) + 1) // 2
    for value in sorted(accounts):
        left -= accounts[value]
        if left <= 0:
            return value
    return 0.0


# Files.


def _witness(expect: str) -> str:
    """The hash that is expected: as it is, or from a published policy."""
    if not expect or re.fullmatch("[0-9a-f]{8,64}", expect):
        return expect
    if not os.path.lexists(expect):
        raise InvalidArgument(
            f"expect={expect!r} must be 8 to 64 hexadecimal digits, or the file of a policy"
        )
    from tacit.published import about

    try:
        found = about(expect)
    except ValueError as error:
        raise CorruptFile(str(error)) from None
    if "ledger_head" not in found:
        raise InvalidArgument(f"expect={expect!r}: its agent had no ledger, so it is no witness")
    return str(found["ledger_head"])


def _check_kind(file: str) -> None:
    """Refuses a file that is no ledger, or one of a later release: it is not for us to judge."""
    from tacit.privacy.ledger import FORMAT_VERSION, PEOPLE_VERSION

    with open(open_regular(file), "rb") as opened:
        first = opened.readline(1 << 16)
    if _MARK not in first:
        raise CorruptFile(f"{file!r} is not a Tacit ledger")
    try:
        version = parse_json(first)["version"]
    except (ValueError, KeyError, TypeError):
        return  # a damaged first line, which has a name
    readable = (FORMAT_VERSION, PEOPLE_VERSION)
    if isinstance(version, int) and version > max(readable):
        raise CorruptFile(f"{file!r} has version {version}; this release reads {readable}")
