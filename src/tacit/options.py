"""Options as text: what a command line or a file writes for a value, by the option's type."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, Union

from tacit.privacy.errors import InvalidArgument

T = TypeVar("T")

_LARGEST_DIGITS = 18


@dataclass(frozen=True)
class Option:
    """One option of a world or an agent; ``inspect.Parameter.empty`` where it has no default."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def kind(self) -> str:
        """Its type in words; empty if no text can stand for a value."""
        return _words(self.annotation)

    @property
    def shown(self) -> str:
        """The default as text; empty if there is none."""
        return "" if self.required else _text(self.default)

    def read(self, text: str, owner: str) -> Any:
        """The value that a text stands for."""
        try:
            return _convert(self.annotation, text)
        except ValueError:
            raise InvalidArgument(
                f"{self.name} of {owner} is {text!r}, but must be {self.kind}"
            ) from None

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.shown}"


def option_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Option:
    """A parameter as an option; a type that cannot be resolved is judged by the default."""

    def holder() -> None: ...

    # One at a time: a type that is imported for type checkers only must not hide the others.
    holder.__annotations__ = {"value": parameter.annotation}
    found: Any = parameter.empty
    default = parameter.default
    with contextlib.suppress(NameError, TypeError, AttributeError, SyntaxError):
        found = typing.get_type_hints(holder, getattr(function, "__globals__", {}))["value"]
    if found is parameter.empty:
        found = type(default) if isinstance(default, (bool, int, float, str)) else Any
    return Option(parameter.name, found, default)


def whole_number(name: str, text: str, least: int = 1) -> int:
    """A whole number, also as ``1e6`` or ``1_000_000``.

    >>> whole_number("users", "1e6"), whole_number("users", "2.5e3")
    (1000000, 2500)
    """
    with contextlib.suppress(ValueError):
        if (value := _whole(text)) >= least:
            return value
    raise InvalidArgument(
        f"{name} is {text!r}, but must be a whole number from {least} to below "
        f"1e{_LARGEST_DIGITS}, as 1000 or 1e6"
    )


def number(name: str, text: str) -> float:
    """A finite number.

    >>> number("epsilon", "1e-6")
    1e-06
    """
    try:
        return _number(text)
    except ValueError:
        raise InvalidArgument(f"{name} is {text!r}, but must be a number, as 0.1 or 1e-6") from None


class _Reader(NamedTuple):
    """Reads one type of a union."""

    rank: int  # the strictest are tried first
    words: str
    read: Callable[[str], Any]


def _readers(annotation: Any) -> list[_Reader]:
    """Readers of the parts of a type that a text can stand for, the strictest first."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        found = sorted((r for part in inner for r in _readers(part)), key=lambda r: r.rank)
        return found if any(reader.words != "none" for reader in found) else []
    if origin is Literal:
        allowed = {_text(value): value for value in inner}
        return [_Reader(0, " or ".join(allowed), partial(_one_of, allowed))]
    if origin is tuple and inner[-1] is not Ellipsis:
        words = f"{len(inner)} values as {':'.join(map(str, range(len(inner))))}"
        return [_Reader(6, words, partial(_tuple, inner))]
    if origin in (tuple, list, collections.abc.Sequence):
        words = f"a list as 1:2:3, each {_words(inner[0])}"
        return [_Reader(6, words, lambda text: _tuple(inner[:1] * (text.count(":") + 1), text))]
    return [_SIMPLE[annotation]] if annotation in _SIMPLE else []


def _words(annotation: Any) -> str:
    return " or ".join(dict.fromkeys(reader.words for reader in _readers(annotation)))


def _convert(annotation: Any, text: str) -> Any:
    for reader in _readers(annotation):
        with contextlib.suppress(ValueError):
            return reader.read(text)
    raise ValueError(text)


def _tuple(kinds: Sequence[Any], text: str) -> tuple[Any, ...]:
    # Another number of values is a ValueError, too.
    return tuple(_convert(kind, item) for kind, item in zip(kinds, text.split(":"), strict=True))


def _one_of(allowed: Mapping[str, T], text: str) -> T:
    if text not in allowed:
        raise ValueError(text)
    return allowed[text]


def _whole(text: str) -> int:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    # The size first: 1e999999999 is a valid decimal, but as an integer it fills the memory.
    if not value.is_finite() or value.adjusted() >= _LARGEST_DIGITS or value != int(value):
        raise ValueError(text)
    return int(value)


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _none(text: str) -> None:
    _one_of({"none": None}, text.lower())


def _boolean(text: str) -> bool:
    return _one_of({"true": True, "false": False}, text.lower())


def _guess(text: str) -> Any:
    for read in (_none, _boolean, int, _number):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


_SIMPLE: dict[Any, _Reader] = {
    type(None): _Reader(1, "none", _none),
    bool: _Reader(2, "true or false", _boolean),
    int: _Reader(3, "a whole number", _whole),
    float: _Reader(4, "a number", _number),
    str: _Reader(7, "a text", str),
    Any: _Reader(8, "a value", _guess),
}


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ":".join(map(_text, value))
    return value if isinstance(value, str) else repr(value)
