"""Command lines that refuse a bad argument in one line, with exit code 2."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from tacit.privacy.errors import InvalidArgument

T = TypeVar("T")
Number: TypeAlias = tuple[int, int | None, str]
"""What an argument is at least, by default, and in words."""
SEED: Number = (0, 0, "of the users and of the noise")


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

    def add_numbers(self, numbers: Mapping[str, Number]) -> None:
        """Arguments that are whole numbers."""
        for name, (least, default, words) in numbers.items():
            option = f"--{name.replace('_', '-')}"
            self.add_argument(option, type=whole(least), default=default, help=words)

    def add_budget(self, epsilon: str, delta: str) -> None:
        """Epsilon and delta, with what they are of."""
        self.add_argument("--epsilon", type=float, default=1.0, help=epsilon)
        self.add_argument("--delta", type=float, default=1e-6, help=delta)

    def add_quick(self) -> None:
        """A flag for a small part of everything."""
        self.add_argument("--quick", action="store_true", help="a small part of it, as a test")

    def add_store(self) -> None:
        """A flag for those who write the pages."""
        words = "keep what pages show, in research/, for the test that compares them"
        self.add_argument("--store", action="store_true", help=words)

    def written(self, write: Callable[[], None]) -> None:
        """Writes what goes to ``--output``, or refuses it."""
        try:
            write()
        except OSError as error:
            self.error(f"argument --output: cannot be written: {error}")

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and exits with code 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def parser_of(module: ModuleSpec, about: str) -> Parser:
    """For a module, with the first line of what it says about itself."""
    return Parser(f"python -m {module.name}", about.partition("\n")[0])


def stored_file(module: str) -> Path:
    """Where a module of this folder keeps the tables that pages show."""
    return Path(__file__).with_name(f"{module.rpartition('.')[2]}.json")


def store(module: str, tables: Mapping[str, Any]) -> None:
    """Puts tables, as they are printed and with what they were made of, beside those stored."""
    path = stored_file(module)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | dict(tables), indent=1, allow_nan=False) + "\n")


def figure_main(
    module: ModuleSpec,
    about: str,
    measure: Callable[..., T],
    paint: Callable[[Path, T], None],
    words: Sequence[Callable[[T], str]],
    numbers: Mapping[str, Number],
    quick: bool = True,
) -> Callable[..., int]:
    """The command line of a figure that is measured, painted and put into words.

    Args:
        module: where it is.
        about: what that module says about itself.
        measure: is given the arguments by their names.
        paint: draws what was measured into a file.
        words: what is printed of it, one after the other.
        numbers: the arguments besides ``--output``, by name,
        quick: and whether ``--quick`` is one.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        parser = parser_of(module, about)
        parser.add_output()
        parser.add_numbers(numbers)
        if quick:
            parser.add_quick()
        parser.add_store()
        given: dict[str, Any] = vars(parser.parse_args(arguments))
        output, keep = given.pop("output"), given.pop("store")
        measured = measure(**given)
        parser.written(lambda: paint(output, measured))
        texts = {say.__name__: say(measured) for say in words}
        if keep:
            store(module.name, {name: {**given, "text": text} for name, text in texts.items()})
        print(*texts.values(), f"The picture is {output}.", sep="\n\n")
        return 0

    return main


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
