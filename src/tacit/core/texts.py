"""Values as texts: what a command line or a file writes for an option, by the option's type."""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeVar, Union

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
        """What it may be, in words."""
        return _words(self.annotation)

    @property
    def shown(self) -> str:
        """The default as a text that stands for it; empty if there is none."""
        return "" if self.required else _text(self.default)

    def read(self, text: str, owner: str) -> Any:
        """The value that a text stands for."""
        try:
            return _convert(self.annotation, text)
        except _Unfit:
            raise InvalidArgument(
                f"{self.name} of {owner} is {text!r}, but must be {self.kind}"
            ) from None

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.shown}"


def whole_number(name: str, text: str, least: int = 1) -> int:
    """A whole number, also as ``1e6`` or ``1_000_000``.

    >>> whole_number("users", "1e6"), whole_number("users", "2.5e3")
    (1000000, 2500)
    """
    try:
        value = _whole(text)
    except _Unfit:
        value = least - 1
    if value < least:
        raise InvalidArgument(
            f"{name} is {text!r}, but must be a whole number from {least} to below "
            f"1e{_LARGEST_DIGITS}, as 1000 or 1e6"
        )
    return value


def number(name: str, text: str) -> float:
    """A finite number.

    >>> number("epsilon", "1e-6")
    1e-06
    """
    try:
        return _number(text)
    except _Unfit:
        raise InvalidArgument(f"{name} is {text!r}, but must be a number, as 0.1 or 1e-6") from None


def hint(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """What may have been meant, if any of the known names is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {near[0]!r}?)" if near else ""


class _Unfit(Exception):
    """A text that is not of the type."""


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's type; what cannot be resolved is judged by the default."""

    def holder() -> None: ...

    # One at a time: a type that is imported for type checkers only must not hide the others.
    holder.__annotations__ = {"value": parameter.annotation}
    try:
        resolved = typing.get_type_hints(holder, getattr(function, "__globals__", {}))["value"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        resolved = parameter.empty
    if resolved is not parameter.empty:
        return resolved
    default = parameter.default
    return type(default) if isinstance(default, (bool, int, float, str)) else Any


def _members(annotation: Any) -> list[Any]:
    """The parts of a union that a text can stand for, the strictest first."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        parts = [part for a in typing.get_args(annotation) for part in _members(a)]
    else:
        parts = [annotation]
    known = [part for part in parts if _rank(part) is not None]
    return sorted(known, key=lambda part: _rank(part) or 0)


def _rank(annotation: Any) -> int | None:
    order = (None, type(None), bool, int, float)
    if annotation in order:
        return order.index(annotation)
    if typing.get_origin(annotation) is Literal:
        return 0
    if typing.get_origin(annotation) in (tuple, collections.abc.Sequence, list):
        return 6
    return {str: 7, Any: 8}.get(annotation)


def settable(annotation: Any) -> bool:
    """Whether a text can stand for a value of that type."""
    return any(part not in (None, type(None)) for part in _members(annotation))


def _convert(annotation: Any, text: str) -> Any:
    for part in _members(annotation):
        try:
            return _convert_one(part, text)
        except _Unfit:
            continue
    raise _Unfit


def _convert_one(part: Any, text: str) -> Any:
    if part in _SIMPLE:
        return _SIMPLE[part][0](text)
    if typing.get_origin(part) is Literal:
        return _one_of({_text(value): value for value in typing.get_args(part)}, text)
    items = text.split(":")
    kinds = typing.get_args(part)
    if typing.get_origin(part) is not tuple or (len(kinds) == 2 and kinds[1] is Ellipsis):
        return tuple(_convert(kinds[0], item) for item in items)
    if len(kinds) != len(items):
        raise _Unfit
    return tuple(_convert(kind, item) for kind, item in zip(kinds, items, strict=True))


def _one_of(allowed: Mapping[str, T], text: str) -> T:
    if text not in allowed:
        raise _Unfit
    return allowed[text]


def _none(text: str) -> None:
    _one_of({"none": None}, text.lower())


def _boolean(text: str) -> bool:
    return _one_of({"true": True, "false": False}, text.lower())


def _whole(text: str) -> int:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _Unfit from None
    # The size first: 1e999999999 is a valid decimal, but as an integer it fills the memory.
    if not value.is_finite() or value.adjusted() >= _LARGEST_DIGITS or value != int(value):
        raise _Unfit
    return int(value)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _Unfit from None
    if not math.isfinite(value):
        raise _Unfit
    return value


def _guess(text: str) -> Any:
    for read in (_none, _boolean, int, _number):
        try:
            return read(text)
        except (_Unfit, ValueError):
            continue
    return text


_SIMPLE: dict[Any, tuple[Callable[[str], Any], str]] = {
    type(None): (_none, "none"),
    bool: (_boolean, "true or false"),
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    str: (str, "a text"),
    Any: (_guess, "a value"),
}


def _words(annotation: Any) -> str:
    """A type in words."""
    return " or ".join(dict.fromkeys(_words_one(part) for part in _members(annotation)))


def _words_one(part: Any) -> str:
    if part in _SIMPLE:
        return _SIMPLE[part][1]
    kinds = typing.get_args(part)
    if typing.get_origin(part) is Literal:
        return " or ".join(_text(value) for value in kinds)
    if len(kinds) == 1 or kinds[1] is Ellipsis:
        return f"a list as 1:2:3, each {_words(kinds[0])}"
    return f"{len(kinds)} values as {':'.join(str(i) for i in range(len(kinds)))}"


def _text(value: Any) -> str:
    """A value as a text that stands for it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ":".join(map(_text, value))
    return value if isinstance(value, str) else repr(value)
