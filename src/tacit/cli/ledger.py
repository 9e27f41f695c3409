"""``tacit ledger``: read a ledger file, check it, and account for it to an auditor.

Nothing here changes a ledger but ``create``, which makes a new one. What a ledger says of people is
what the curator knows: these commands are for whoever keeps the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options
from tacit.cli.ledger_account import (
    account,
    counted,
    markdown,
    simulated_runs,
    summary,
    summary_lines,
)
from tacit.cli.options import asked
from tacit.cli.output import print_help_if_alone, print_json
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import open_regular, parse_json, read_file

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

app = typer.Typer(
    help="Read, check and account for a ledger: what was spent, on disk, before it was published.",
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A ledger file.")]

_MARK = b'"format": "tacit-ledger"'


@app.callback(invoke_without_command=True)
def ledger(context: typer.Context) -> None:
    """Says which commands there are."""
    print_help_if_alone(context)


@app.command(
    name="create",
    help="Make a ledger of people, from which several agents spend.\n\n"
    "EPSILON and DELTA are what one person may spend over all agents. Each agent has a budget of "
    "its own, and who takes part pays all of that, once. An agent on its own makes its ledger "
    "itself.\n\n\b\nExample:\n  tacit ledger create people.ledger --epsilon 1 --delta 1e-6",
)
def create(
    file: FileArgument,
    epsilon: Annotated[str, asked("NUMBER", "Budget of one person.")],
    delta: Annotated[str, asked("NUMBER", "Budget of one person, 0 for pure.")],
    relation: Annotated[
        str, asked("replace-one|zero-out", "Between which data sets it holds.")
    ] = "replace-one",
    note: Annotated[str, asked("TEXT", "A line for whoever reads it.")] = "",
) -> None:
    """Makes a ledger of people."""
    from tacit.core.texts import number
    from tacit.privacy.budget import checked_relation
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.models import JointDP

    privacy = JointDP(
        number("epsilon", epsilon),
        number("delta", delta),
        relation=checked_relation(relation),
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
def show(file: FileArgument, as_json: options.Json = False) -> None:
    """Prints a summary."""
    found = summary(file, _opened(file))
    if as_json:
        print_json(found)
        return
    for line in summary_lines(found):
        typer.echo(line)


@app.command(
    name="verify",
    help="Check every line of a ledger: the chain of hashes, the sums, the limits.\n\n"
    "Exit code 0 if all is well, 1 if a line is not (the first is named), 2 if the file is no "
    "ledger or cannot be read.\n\n\b\nExample:\n  tacit ledger verify budget.ledger && echo well",
)
def verify(file: FileArgument, as_json: options.Json = False) -> None:
    """Checks a ledger."""
    _check_kind(file)
    problem, ledger = "", None
    try:
        ledger = _opened(file)
    except CorruptFile as error:
        problem = str(error)
    torn = 0
    if ledger is not None:
        # What comes after the last whole line.
        torn = len(read_file(file, "ledger").rpartition(b"\n")[2])
    simulated = [] if ledger is None else simulated_runs(ledger)
    if as_json:
        entries = None if ledger is None else ledger.sequence
        print_json(
            {"file": file, "well": not problem, "problem": problem or None}
            | {"entries": entries, "torn_bytes": torn, "simulations": simulated}
        )
    elif ledger is None:
        typer.echo(f"bad: {problem}")
    else:
        of = "people" if ledger.people else "blocks"
        typer.echo(
            f"well: {counted(ledger.sequence, 'entry')}, the chain is whole, "
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
        str | None, asked("NUMBER", "At which delta. \\[default: what was declared]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Prints an account."""
    from tacit.core.texts import number

    found = account(file, _opened(file), None if delta is None else number("delta", delta))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(markdown(found)))


# Files and numbers.


def _opened(file: str) -> Ledger:
    from tacit.privacy.ledger import Ledger

    return Ledger.open(file)


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
