"""Exit codes of commands: a mistake is one line and 2, an interruption 130, the unforeseen 1."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from tacit.privacy.errors import InvalidArgument, TacitError

# Typer's own complaints about arguments, whichever copy of click it brings.
_Complaint: Any = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """Commands that complain in one line, also when they are called from a test."""

    renamed: ClassVar[dict[str, str]] = {}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; an old name is answered with the new one."""
        if (new := self.renamed.get(cmd_name)) is not None:
            raise InvalidArgument(f"tacit {cmd_name} is tacit {new} now")
        return super().get_command(ctx, cmd_name)

    def main(
        self,
        args: Sequence[str] | None = None,
        *_: Any,
        standalone_mode: bool = True,
        **named: Any,
    ) -> Any:
        """Runs a command and turns what goes wrong into a line and an exit code."""
        given = list(sys.argv[1:] if args is None else args)
        # Modules of yours are found where you are; last, so that they hide nothing.
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)

        def command() -> Any:
            named["prog_name"] = named.get("prog_name") or "tacit"
            return super(Commands, self).main(given, **named, standalone_mode=False)

        code = _guarded(command, show_traceback="--traceback" in given[:1])
        if standalone_mode:
            sys.exit(code)
        return code


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
            traceback.print_exc()
        if isinstance(error, OSError):
            # An error on an open file has its number, not its name.
            named = isinstance(error.filename, (str, bytes, os.PathLike))
            where = f"{os.fspath(error.filename)!r}: " if named else ""
            return _complain(f"{where}{error.strerror or error}", 2)
        if _is_mistake(error):
            return _complain(str(error), 2)
        if type(error).__module__.startswith("sqlalchemy"):  # its words may hold values
            return _complain(f"the database is damaged, or not a store ({type(error).__name__})", 2)
        hint = "" if show_traceback else " (tacit --traceback ... says where)"
        name = "" if isinstance(error, TacitError) else f"{type(error).__name__}: "
        return _complain(f"{name}{error}{hint}", 1)


def _is_mistake(error: Exception) -> bool:
    """Whether the caller can mend it, also where the refusal came out of one of several runs."""
    from tacit.privacy import errors

    if (reason := getattr(error, "reason", None)) is not None:  # of one of several runs
        kind = getattr(errors, reason.partition(":")[0], None)
        return isinstance(kind, type) and issubclass(kind, TacitError)
    return isinstance(error, TacitError)


def _complain(message: str, code: int) -> int:
    typer.echo(f"tacit: {' '.join(message.split())}", err=True)
    return code
