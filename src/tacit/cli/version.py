"""``tacit version``."""

from __future__ import annotations

import typer

HELP = "Print the version.\n\n\b\nExample:\n  tacit version"


def version_command() -> None:
    """Prints the version."""
    from tacit import __version__

    typer.echo(f"tacit {__version__}")
