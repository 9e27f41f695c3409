"""The public names as text: what they are, how they are called, what they can do.

``python -m tests.public_api`` (``make public-api``) writes ``public_api.txt`` again. A changed line
there is a change that users will notice: it belongs into the changelog.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tacit

RECORD = Path(__file__).with_suffix(".txt")
_WIDTH = 100


def described() -> str:
    """All public names, and those of the modules among them."""
    lines: list[str] = []
    for name in sorted(tacit.__all__):
        value = getattr(tacit, name)
        lines += [*_named(f"tacit.{name}", value), ""]
        if isinstance(value, types.ModuleType):
            for inner in sorted(getattr(value, "__all__", ())):
                lines += [*_named(f"tacit.{name}.{inner}", getattr(value, inner)), ""]
    return "\n".join(lines)


def _named(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        yield f"module {name}"
    elif isinstance(value, type):
        yield from _called(f"class {name}", value)
        yield from (f"    {line}" for line in _members(value))
    elif callable(value):
        yield from _called(f"function {name}", value)
    else:
        yield f"value {name}"


def _members(kind: type) -> Iterator[str]:
    """What is ours and public of a class; what it has from others is not ours to promise."""
    for name in sorted(dir(kind)):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("tacit"):
            continue
        raw = vars(owner)[name]
        if isinstance(raw, (classmethod, staticmethod)):
            yield from _called(f"{type(raw).__name__} {name}", getattr(kind, name))
        elif isinstance(raw, types.FunctionType):
            yield from _called(f"method {name}", raw)
        elif hasattr(type(raw), "__get__"):
            yield f"property {name}"
        else:
            yield f"value {name}"


class _Bare(str):
    """An annotation as it is written, without the quotes of a text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _called(title: str, value: Any) -> list[str]:
    """A title with its parameters, on a line each where one line is too long."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [f"{title}(...)"]
    parameters = [p.replace(annotation=_bare(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(
        parameters=parameters, return_annotation=_bare(signature.return_annotation)
    )
    line = _without_addresses(f"{title}{signature}")
    if len(line) <= _WIDTH:
        return [line]
    result = str(signature.replace(parameters=())).removeprefix("()")
    pieces = [_without_addresses(str(parameter)) for parameter in _with_marks(parameters)]
    return [f"{title}(", *(f"    {piece}," for piece in pieces), f"){result}"]


def _with_marks(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter | str]:
    """Parameters with the slash and the star that say how they may be given."""
    kinds = [parameter.kind for parameter in parameters]
    star = inspect.Parameter.VAR_POSITIONAL in kinds
    for place, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            yield "*"
            star = True
        yield parameter
        last = kinds[place + 1 : place + 2] != [inspect.Parameter.POSITIONAL_ONLY]
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and last:
            yield "/"


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


if __name__ == "__main__":
    RECORD.write_text(described())
