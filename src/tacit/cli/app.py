"""The command line: ``tacit learn``, ``run``, ``plan``, ``audit``, ``ledger`` and others.

Results go to standard output: tables for people, or with ``--json`` one JSON object. Progress and
mistakes go to standard error: a mistake is one line and exit code 2, an interruption 130, anything
unforeseen 1. Everything that can be checked is checked before the first simulated user. Commands
load what is slow inside their functions, so that ``tacit --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback as tracebacks
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.cli import (  # noqa: F401
    audit,
    doctor,
    learn,
    ledger,
    offline,
    policy,
    report,
    run,
    serve,
    show,
)
from tacit.cli.terminal import COMMANDS, flag
from tacit.privacy import errors
from tacit.privacy.errors import TacitError

__all__ = ["app", "main"]

# Old names, answered with the new ones.
_RENAMED = {"bounds": "paper", "compare": "run", "list": "show", "version": "--version"}
_RENAMED |= {"plot": "show"}
# Typer's own complaints about arguments, whichever copy of click it brings.
_Complaint: Any = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """Commands that complain in one line, also when they are called from a test."""

    def main(self, args: Any = None, *_: Any, standalone_mode: bool = True, **named: Any) -> Any:
        """Runs a command and turns what goes wrong into a line and an exit code."""
        given = list(sys.argv[1:] if args is None else args)
        # Modules of yours are found where you are; last, so that they hide nothing.
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
        named["prog_name"] = named.get("prog_name") or "tacit"
        command = partial(super().main, given, **named, standalone_mode=False)
        code = _guarded(command, show_traceback="--traceback" in given[:1])
        if standalone_mode:
            sys.exit(code)
        return code

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; of an old name, the new one is said."""
        if new := _RENAMED.get(cmd_name):
            raise _Complaint(f"{cmd_name} is called {new}: tacit {new}")
        return super().get_command(ctx, cmd_name)


def _guarded(command: Callable[[], Any], show_traceback: bool) -> int:
    """The exit code of a command; what it raises is said in one line."""
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except _Complaint as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written at exit either.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if show_traceback:
            tracebacks.print_exc()
        if isinstance(error, OSError):
            # An error on an open file has its number, not its name.
            named = isinstance(error.filename, (str, bytes, os.PathLike))
            where = f"{os.fspath(error.filename)!r}: " if named else ""
            return _complain(f"{where}{error.strerror or error}", 2)
        if type(error).__module__.startswith("sqlalchemy"):  # its words may hold values
            return _complain(f"the database is damaged, or not a store ({type(error).__name__})", 2)
        # Of several runs the first failure is known by the name of its class.
        reason = getattr(error, "reason", "TacitError").partition(":")[0]
        if isinstance(error, TacitError) and hasattr(errors, reason):
            return _complain(str(error), 2)
        name = "" if isinstance(error, TacitError) else f"{type(error).__name__}: "
        return _complain(f"{name}{error} (tacit --traceback ... says where)", 1)


def _complain(message: str, code: int) -> int:
    typer.echo(f"tacit: {' '.join(message.split())}", err=True)
    return code


def _helps() -> dict[str, str]:
    """Sections of ``help.md``, by command, in its order; lines of examples are kept."""
    found = {}
    text = Path(__file__).with_name("help.md").read_text(encoding="utf-8").replace("[", "\\[")
    for section in text.split("\n## ")[1:]:
        name, *parts = section.strip().split("\n\n")
        lines = (f"\b\n{part}" if "\n  " in part else " ".join(part.split()) for part in parts)
        found[name] = "\n\n".join(lines)
    return found


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def tacit(
    context: typer.Context,
    print_version: Annotated[bool, flag("Print the version.", "--version")] = False,
    traceback: Annotated[
        bool, flag("Before a command: show where a mistake came from.", "--traceback")
    ] = False,
) -> None:
    """Reinforcement learning that learns from people without revealing them.

    Try: tacit run --world riverswim --epsilon 1 --delta 1e-7
    """
    if print_version:
        typer.echo(f"tacit {__import__('tacit').__version__}")
        raise typer.Exit
    _help_if_alone(context)


_groups = {
    name: typer.Typer(callback=_help_if_alone, invoke_without_command=True, help=words)
    for name, words in {
        "policy": "Show, verify and compare published policies.",
        "ledger": "Read, check and repair the ledger of a store: what was spent, and by whom.",
    }.items()
}
for _name, _help in _helps().items():
    _groups.get(_name.split()[0], app).command(_name.split()[-1], help=_help)(COMMANDS[_name])
for _name, _group in _groups.items():
    app.add_typer(_group, name=_name)


def main() -> None:
    """The entry point."""
    warnings.formatwarning = lambda message, *_: f"tacit: warning: {message}\n"
    app(prog_name="tacit")


if __name__ == "__main__":
    main()
