"""The command line: ``tacit learn``, ``run``, ``plan``, ``audit``, ``ledger`` and others.

Results go to standard output: tables for people, or with ``--json`` one JSON object. Progress and
mistakes go to standard error: a mistake is one line and exit code 2, an interruption 130, anything
unforeseen 1; see :mod:`tacit.cli.errors`. Everything that can be checked is checked before the
first simulated user.

Each command is a module. They load what is slow inside their functions, so that ``tacit --help``
answers at once.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from tacit.cli import ledger, policy
from tacit.cli.errors import Commands
from tacit.cli.options import app, flag
from tacit.cli.output import print_help_if_alone

__all__ = ["app", "main"]

# In the order of --help.
_COMMANDS = "learn", "serve", "run", "sweep", "plan", "paper", "audit", "report", "show", "doctor"
for _command in _COMMANDS:
    importlib.import_module(f"tacit.cli.{_command}")
app.add_typer(policy.app, name="policy")
app.add_typer(ledger.app, name="ledger")
# Old names, answered with the new ones.
Commands.renamed |= {"bounds": "paper", "compare": "run", "list": "show", "version": "--version"}


@app.callback(invoke_without_command=True)
def tacit(
    context: typer.Context,
    print_version: Annotated[bool, flag("Print the version.", "--version")] = False,
    traceback: Annotated[
        bool, flag("Before a command: show where a mistake came from.", "--traceback")
    ] = False,
) -> None:
    """Reinforcement learning that learns from people without revealing them.

    Try: tacit run --world riverswim --epsilon 1 --delta 1e-6
    """
    if print_version:
        typer.echo(f"tacit {__import__('tacit').__version__}")
        raise typer.Exit
    print_help_if_alone(context)


def main() -> None:
    """The entry point."""
    app(prog_name="tacit")


if __name__ == "__main__":
    main()
