"""Command lines that refuse a bad argument in one line, with exit code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tacit.privacy.errors import InvalidArgument


class Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line, without the usage, and tells its defaults."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def add_output(self) -> None:
        """The one argument that every figure has."""
        self.add_argument(
            "--output",
            type=picture,
            required=True,
            default=argparse.SUPPRESS,
            help="the PNG file to write",
        )

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and exits with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def whole(least: int) -> Callable[[str], int]:
    """A type for whole numbers of at least ``least``.

    >>> whole(1)("1000000")
    1000000
    """

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"is {text!r}, but must be a whole number of at least {least}"
            )
        return value

    return parse


def picture(text: str) -> Path:
    """A type for a PNG file in a folder that exists, found out before anything is run."""
    try:
        return png(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def png(text: str) -> Path:
    """The path of a PNG in a folder that exists, found out before anything is run."""
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise InvalidArgument(f"is {text!r}, but must end in .png")
    if not path.parent.is_dir():
        raise InvalidArgument(f"is {text!r}, but there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidArgument(f"is {text!r}, which is a folder")
    return path
