"""``tacit ledger``: read a ledger file, check it, and account for it to an auditor.

Nothing here changes a ledger but ``create``, which makes a new one. What a ledger says of people is
what the curator knows: these commands are for whoever keeps the file.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.privacy.errors import CorruptFile, InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.ledger import Entry, Ledger, Terms

app = typer.Typer(
    help="Read, check and account for a ledger: what was spent, on disk, before it was published.",
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A ledger file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_MARK = b'"format": "tacit-ledger"'
_READABLE = (1, 2)


@app.callback(invoke_without_command=True)
def ledger(context: typer.Context) -> None:
    """Says which commands there are."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command(
    name="create",
    help="Make a ledger of people, from which several agents spend.\n\n"
    "EPSILON and DELTA are what one person may spend over all agents. Each agent has a budget of "
    "its own, and who takes part pays all of that, once. An agent on its own makes its ledger "
    "itself.\n\n\b\nExample:\n  tacit ledger create people.ledger --epsilon 1 --delta 1e-6",
)
def create(
    file: FileArgument,
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="Budget of one person.")],
    delta: Annotated[str, typer.Option(metavar="NUMBER", help="Budget of one person, 0 for pure.")],
    relation: Annotated[
        str, typer.Option(metavar="replace-one|zero-out", help="Between which data sets it holds.")
    ] = "replace-one",
    exact: Annotated[
        bool, typer.Option("--exact", help="Account by zCDP, as agents with exact noise need it.")
    ] = False,
    note: Annotated[str, typer.Option(metavar="TEXT", help="A line for whoever reads it.")] = "",
) -> None:
    """Makes a ledger of people."""
    from tacit.privacy.budget import checked_relation
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.models import JointDP

    privacy = JointDP(
        _number("--epsilon", epsilon),
        _number("--delta", delta),
        relation=checked_relation(relation),
        sampler="exact" if exact else "floating-point",
    )
    try:
        ledger = Ledger.create_for_people(file, privacy, note=note)
    except FileExistsError:
        raise InvalidArgument(
            f"{file!r} exists, and no ledger is ever overwritten: choose another name"
        ) from None
    typer.echo(f"{file}: one person may spend {ledger.limit:.6g} {ledger.unit} over all runs")


@app.command(
    name="show",
    help="Say what a ledger declares and what was spent.\n\n"
    "\b\nExamples:\n  tacit ledger show budget.ledger\n  tacit ledger show budget.ledger --json",
)
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Prints a summary."""
    found = summary(file, _opened(file))
    if as_json:
        _print_json(found)
        return
    spent, who = found["spent"], found["spent"]["of"]
    typer.echo(f"{found['file']}: a ledger of {found['kind']}, {found['entries']:,} entries")
    if found["note"]:
        typer.echo(f"note: {found['note']}")
    whose = "person, over all runs" if found["kind"] == "people" else "block of users"
    typer.echo(f"limit: {found['limit']:.6g} {found['unit']} for each {whose}")
    typer.echo(
        f"spent: {spent['count']:,} {who}, most {_at_most(spent['max'], 6)}, "
        f"median {spent['median']:.6g} ({_share(spent['max'], found['limit'])} of the limit)"
    )
    for number, run in enumerate(found["runs"], 1):
        typer.echo(
            f"run {number}: {_counted(run['releases'], 'release')} about "
            f"{_counted(run['blocks'], 'block')}"
            + (f", {run['people']:,} people" if run["people"] is not None else "")
            + f", {_counted(run['saves'], 'save')}, {_counted(run['resumes'], 'resume')}"
            + (f", {run['unsettled']} not settled" if run["unsettled"] else "")
            + (", simulation only" if run["simulation"] else "")
        )


@app.command(
    name="verify",
    help="Check every line of a ledger: the chain of hashes, the sums, the limits.\n\n"
    "Exit code 0 if all is well, 1 if a line is not (the first is named), 2 if the file is no "
    "ledger or cannot be read.\n\n\b\nExample:\n  tacit ledger verify budget.ledger && echo well",
)
def verify(file: FileArgument, as_json: JsonOption = False) -> None:
    """Checks a ledger."""
    _check_kind(file)
    problem, ledger = "", None
    try:
        ledger = _opened(file)
    except CorruptFile as error:
        problem = str(error)
    torn = _torn(file) if ledger is not None else 0
    simulated = [] if ledger is None else _simulated(ledger)
    if as_json:
        entries = None if ledger is None else ledger.sequence
        _print_json(
            {"file": file, "well": not problem, "problem": problem or None}
            | {"entries": entries, "torn_bytes": torn, "simulations": simulated}
        )
    elif ledger is None:
        typer.echo(f"bad: {problem}")
    else:
        of = "people" if ledger.people else "blocks"
        typer.echo(
            f"well: {_counted(ledger.sequence, 'entry')}, the chain is whole, "
            f"{sum(ledger.accounts.values()):,} {of} within {ledger.limit:.6g} {ledger.unit}"
        )
        if torn:
            typer.echo(
                f"The last {torn} bytes are a line that a crash cut off. Nothing was published on "
                "its strength; the next entry takes its place."
            )
        for number in simulated:
            typer.echo(
                f"Run {number} is a simulation: its noise has a known seed. What it paid for "
                "protects nobody."
            )
    raise typer.Exit(1 if problem else 0)


@app.command(
    name="report",
    help="Account for a ledger to an auditor: what each run spent, when, and what it means.\n\n"
    "Costs are converted to epsilon at the given delta. The text is Markdown.\n\n"
    "\b\nExamples:\n  tacit ledger report budget.ledger --delta 1e-6 > report.md\n"
    "  tacit ledger report budget.ledger --json",
)
def report(
    file: FileArgument,
    delta: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="At which delta. \\[default: what was declared]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prints an account."""
    found = account(file, _opened(file), None if delta is None else _number("--delta", delta))
    if as_json:
        _print_json(found)
    else:
        typer.echo("\n".join(_markdown(found)))


# What a ledger says, as JSON values.


def summary(file: str, ledger: Ledger) -> dict[str, Any]:
    """What ``tacit ledger show`` prints."""
    accounts = ledger.accounts
    return {
        "file": file,
        "id": ledger.id,
        "kind": "people" if ledger.people else "one run",
        "unit": ledger.unit,
        "limit": ledger.limit,
        "note": ledger.note,
        "entries": ledger.sequence,
        "spent": {
            "of": "people" if ledger.people else "blocks",
            "count": sum(accounts.values()),
            "max": max(accounts, default=0.0),
            "median": _median(accounts),
        },
        "runs": [_run(ledger, name, entries) for name, entries in _by_run(ledger).items()],
    }


def account(file: str, ledger: Ledger, delta: float | None) -> dict[str, Any]:
    """What ``tacit ledger report`` prints."""
    found = summary(file, ledger)
    promised = ledger.terms
    entries = _by_run(ledger)
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
    found["delta"] = delta
    found["promised"] = None if promised is None else _terms(promised)
    found["user"] = {
        "limit": ledger.limit * factor,
        "limit_epsilon": _epsilon(ledger.unit, ledger.limit * factor, delta),
        "spent": found["spent"]["max"] * factor,
        "spent_epsilon": _epsilon(ledger.unit, found["spent"]["max"] * factor, delta),
    }
    for run, lines in zip(found["runs"], entries.values(), strict=True):
        run["user_epsilon"] = _epsilon(run["unit"], run["user_cost"], delta)
        run["charges"] = [
            {
                "entry": line.sequence,
                "time": line.time or None,
                "label": line.label,
                "blocks": len(line.costs),
                "cost": max(line.costs.values(), default=0.0),
            }
            for line in lines
            if line.event in ("charge", "pending")
        ]
        run["joins"] = [
            {"entry": line.sequence, "time": line.time or None, "people": line.people}
            for line in lines
            if line.event == "join"
        ]
    return found


def _by_run(ledger: Ledger) -> dict[str, list[Entry]]:
    """The entries of each run, in the order of their starts."""
    runs: dict[str, list[Entry]] = {name: [] for name in ledger.runs}
    for entry in ledger.entries:
        runs.setdefault(entry.run, []).append(entry)
    return runs


def _run(ledger: Ledger, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    terms = ledger.runs.get(name) or next((e.terms for e in entries if e.terms), None)
    charges = [entry for entry in entries if entry.event in ("charge", "pending")]
    blocks: dict[str, float] = {}
    for entry in charges:
        for key, cost in entry.costs.items():
            blocks[key] = blocks.get(key, 0.0) + cost
    settled = max((e.sequence for e in entries if e.event in ("save", "charge")), default=0)
    unsettled = sum(e.event == "pending" and e.sequence > settled for e in entries)
    most = max(blocks.values(), default=0.0)
    times = [entry.time for entry in entries if entry.time]
    factor = 1.0 if terms is None else terms.user_limit / terms.episode_limit
    people = sum(entry.people for entry in entries) if ledger.people else None
    cost = most * factor
    if ledger.people and terms is not None:
        cost = terms.user_limit if people else 0.0
    return {
        "name": name or next((e.label for e in entries if e.event == "start"), ""),
        "unit": ledger.unit if terms is None else terms.unit,
        "promised": None if terms is None else _terms(terms),
        "simulation": terms is not None and terms.simulation,
        "first": min(times, default=None),
        "last": max(times, default=None),
        "people": people,
        "blocks": len(blocks),
        "block_max": most,
        "user_cost": cost,
        "releases": len(charges),
        "labels": dict(Counter(entry.label for entry in charges)),
        "unsettled": unsettled,
        "saves": sum(entry.event == "save" for entry in entries),
        "resumes": sum(entry.event == "resume" for entry in entries),
    }


def _simulated(ledger: Ledger) -> list[int]:
    """Which runs have noise of a known seed, counted from 1."""
    runs = enumerate(_by_run(ledger).items(), 1)
    return [n for n, (name, entries) in runs if _run(ledger, name, entries)["simulation"]]


def _terms(terms: Terms) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(terms)


def _median(accounts: Counter[float]) -> float:
    """The lower median of values with their frequencies."""
    left = (sum(accounts.values()) + 1) // 2
    for value in sorted(accounts):
        left -= accounts[value]
        if left <= 0:
            return value
    return 0.0


def _epsilon(unit: str, spent: float, delta: float) -> float:
    """What was spent, as an epsilon at this delta."""
    from tacit.privacy.budget import epsilon_from_mu, epsilon_from_rho

    if unit == "epsilon":
        return spent
    if unit == "2 rho":
        return epsilon_from_rho(spent / 2.0, delta)
    return epsilon_from_mu(spent**0.5, delta)


# For people.


def _markdown(found: dict[str, Any]) -> Iterable[str]:
    user, unit, promised = found["user"], found["unit"], found["promised"]
    at = "" if unit == "epsilon" else f" at delta = {found['delta']:g}"
    yield f"# Privacy account of {os.path.basename(found['file'])}"
    yield ""
    if found["note"]:
        yield from (found["note"], "")
    what = "several runs on one population" if found["kind"] == "people" else "one run"
    yield f"A ledger of {what}, `{found['id']}`, with {_counted(found['entries'], 'entry')}."
    if promised is not None:
        yield (
            f"Protected is {promised['protects']} ({promised['relation']}); declared was "
            f"epsilon = {promised['epsilon']:g}, delta = {promised['delta']:g}."
        )
    if any(run["simulation"] for run in found["runs"]):
        yield "**A run is a simulation: its noise has a known seed and protects nobody.**"
    yield ""
    yield f"| one user | {unit} | epsilon{at} |"
    yield "|---|---:|---:|"
    yield f"| may spend | {user['limit']:.6g} | {_at_most(user['limit_epsilon'])} |"
    most = _at_most(user["spent"], 6), _at_most(user["spent_epsilon"])
    yield f"| has spent at most | {' | '.join(most)} |"
    spent = found["spent"]
    yield ""
    yield (
        f"{spent['count']:,} {spent['of']} have an account; the median is {spent['median']:.6g} "
        f"of {found['limit']:.6g} {unit}."
    )
    yield ""
    yield f"| run | from | to | people | releases | cost of a user, {unit} | epsilon{at} |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for number, run in enumerate(found["runs"], 1):
        people = "not known" if run["people"] is None else f"{run['people']:,}"
        yield (
            f"| {number} | {run['first'] or 'not known'} | {run['last'] or 'not known'} | "
            f"{people} | {run['releases']:,} | {_at_most(run['user_cost'], 6)} | "
            f"{_at_most(run['user_epsilon'])} |"
        )
    for number, run in enumerate(found["runs"], 1):
        yield ""
        yield f"## Run {number}"
        yield ""
        yield (
            f"`{run['name']}`: {_counted(run['saves'], 'save')}, "
            f"{_counted(run['resumes'], 'resume')}; the block that paid most paid "
            f"{_at_most(run['block_max'], 6)} {run['unit']}."
        )
        if run["unsettled"]:
            yield (
                f"{_counted(run['unsettled'], 'charge')} at the end had no result on disk: paid "
                "for, not published."
            )
        if run["labels"]:
            yield ""
            yield "| what was released | times | first | last | largest cost |"
            yield "|---|---:|---|---|---:|"
        for label, times in run["labels"].items():
            lines = [charge for charge in run["charges"] if charge["label"] == label]
            first, last = lines[0]["time"] or "not known", lines[-1]["time"] or "not known"
            most = max(line["cost"] for line in lines)
            yield f"| {label} | {times:,} | {first} | {last} | {_at_most(most, 6)} |"


def _counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> _counted(1, "entry"), _counted(2, "entry")
    ('1 entry', '2 entries')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def _at_most(number: float, digits: int = 4) -> str:
    """A few digits, rounded up: a shorter number must not be a stronger claim.

    >>> _at_most(1.00049), _at_most(1.0000000000001), _at_most(0.0), _at_most(0.1234561, 6)
    ('1.001', '1', '0', '0.123457')
    """
    shown = f"{number:.{digits}g}"
    # What conversions are off by is no reason for another digit.
    if float(shown) < number * (1.0 - 1e-9):
        place = math.floor(math.log10(number)) - digits + 1
        shown = f"{number + 0.5 * 10.0**place:.{digits}g}"
    return shown


def _share(part: float, whole: float) -> str:
    return f"{100.0 * part / whole:.4g} %"


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


# Files and numbers.


def _opened(file: str) -> Ledger:
    from tacit.privacy.ledger import Ledger

    return Ledger.open(file)


def _check_kind(file: str) -> None:
    """Refuses a file that is no ledger, or one of a later release: it is not for us to judge."""
    with open(file, "rb") as opened:
        first = opened.readline(1 << 16)
    if _MARK not in first:
        raise CorruptFile(f"{file!r} is not a Tacit ledger")
    try:
        version = json.loads(first)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # a damaged first line, which has a name
    if isinstance(version, int) and version > max(_READABLE):
        raise CorruptFile(f"{file!r} has version {version}; this release reads {_READABLE}")


def _torn(file: str) -> int:
    """How many bytes come after the last whole line."""
    with open(file, "rb") as opened:
        data = opened.read()
    return len(data) - data.rfind(b"\n") - 1


def _number(name: str, text: str) -> float:
    from tacit.registry import number

    return number(name.lstrip("-"), text)
