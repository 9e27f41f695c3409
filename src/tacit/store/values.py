"""States as bytes: one way to save any value that is made of records, arrays and plain values."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.privacy.errors import CorruptFile

_KINDS = "biufSU"
_known: dict[str, type] = {}


def record(cls: type) -> type:
    """Registers a frozen dataclass of another package, so that :func:`load` may make it."""
    _known[_name(cls)] = cls
    return cls


def dump(value: Any, code: Sequence[Any] = ()) -> bytes:
    """Bytes of a value made of dataclasses, enums, arrays, plain values, lists and dicts.

    Of an object among ``code`` they have the place there: who loads them has the same ones.

    Raises:
        TypeError: Something in it is none of these; nothing was written.
    """
    arrays: list[bytes] = []

    def tree(item: Any) -> Any:
        for place, known in enumerate(code):
            if item is known:
                return {"c": place}
        if isinstance(item, enum.Enum):
            return {"e": [_name(type(item)), item.name]}
        if item is None or isinstance(item, (bool, str)):
            return item
        if isinstance(item, np.generic):
            return tree(np.asarray(item))
        if isinstance(item, int):
            return item
        if isinstance(item, float):
            return item if math.isfinite(item) else {"f": repr(item)}
        if isinstance(item, np.ndarray):
            if item.dtype.kind not in _KINDS:
                raise TypeError(f"an array of {item.dtype} cannot be saved")
            arrays.append(np.ascontiguousarray(item).tobytes())
            return {"a": [item.dtype.str, *item.shape]}
        if isinstance(item, bytes):
            arrays.append(item)
            return {"b": len(item)}
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            values = {f.name: tree(getattr(item, f.name)) for f in dataclasses.fields(item)}
            return {"r": [_name(type(item)), values]}
        if isinstance(item, Mapping):
            return {"d": [[tree(key), tree(part)] for key, part in item.items()]}
        if isinstance(item, (list, tuple)):
            parts = [tree(part) for part in item]
            return parts if isinstance(item, tuple) else {"l": parts}
        raise TypeError(f"a {type(item).__name__} cannot be saved")

    head = json.dumps(tree(value)).encode()
    return b"".join([len(head).to_bytes(8, "big"), head, *arrays])


def load(data: bytes, code: Sequence[Any] = (), built: bool = False) -> Any:
    """Value of which :func:`dump` made these bytes; its arrays cannot be written to.

    Dataclasses are set as they were; ``built``, they are made by their constructors.

    Raises:
        CorruptFile: The bytes are no dump, or name a class that is none of ours.
    """
    end = 8 + int.from_bytes(data[:8], "big")

    def cut(size: int) -> bytes:
        nonlocal end
        part = data[end : end + size]
        if len(part) != size:
            raise ValueError("it is cut off")
        end += size
        return part

    def value(item: Any) -> Any:
        if isinstance(item, list):
            return tuple(value(part) for part in item)
        if not isinstance(item, dict):
            return item
        ((kind, body),) = item.items()
        if kind == "a":
            dtype, shape = np.dtype(body[0]), tuple(body[1:])
            return np.frombuffer(cut(dtype.itemsize * math.prod(shape)), dtype).reshape(shape)
        if kind == "r":
            parts = {name: value(part) for name, part in body[1].items()}
            return _made(_class(body[0]), parts, built)
        if kind == "d":
            return {value(key): value(part) for key, part in body}
        if kind == "l":
            return [value(part) for part in body]
        if kind == "c":
            return code[body]
        made: dict[str, Callable[[Any], Any]] = {"b": cut, "f": float}
        return made[kind](body) if kind != "e" else _class(body[0])[body[1]]

    try:
        if end > len(data):
            raise ValueError("it is cut off")
        return value(json.loads(data[8:end]))
    except (ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
        raise CorruptFile(f"this is no saved value ({error})") from None


def _made(cls: Any, values: dict[str, Any], built: bool) -> Any:
    """A dataclass as it was, its fields set without its checks: they are of what is new."""
    if built:
        return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls) if f.init})
    made = object.__new__(cls)
    for name, part in values.items():
        object.__setattr__(made, name, part)
    return made


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(name: str) -> Any:
    """A class of this package, or one that was registered; nothing else is imported."""
    if name in _known:
        return _known[name]
    module, _, path = name.partition(":")
    if not module.startswith("tacit."):
        raise ValueError(f"{name} is not registered: tacit.record(cls) does that")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not (dataclasses.is_dataclass(found) or issubclass(found, enum.Enum)):
        raise ValueError(f"{name} is no record")
    return found
