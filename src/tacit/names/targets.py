"""What a text names in code: ``module:attribute``, or ``my_file.py:attribute`` of a file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.privacy.errors import InvalidArgument

# A file, what it has, and options: my_file.py:MyAgent:size=3.
_OF_FILE = re.compile(r"(?P<target>.+\.py:\w+)(?::(?P<options>.*))?", re.DOTALL)


def split(text: str) -> tuple[str, str]:
    """A name and its options, from ``name:options``; the name may be that of a file's own.

    >>> split("ucbvi:scale=2"), split("mine.py:MyAgent:size=3"), split("riverswim")
    (('ucbvi', 'scale=2'), ('mine.py:MyAgent', 'size=3'), ('riverswim', ''))
    """
    text = text.strip()
    if (found := _OF_FILE.fullmatch(text)) is not None:
        name, rest = found["target"], found["options"]
        colon = rest is not None
    else:
        name, sign, rest = text.partition(":")
        colon = bool(sign)
    if colon and not rest:
        raise InvalidArgument(f"{text!r} has a colon, but no options behind it")
    return name.strip(), (rest or "").strip()


def target_of(name: str) -> str | None:
    """``my_module.attribute`` or ``my_file.py:attribute`` as a target; ``None`` for other names."""
    if _OF_FILE.fullmatch(name):
        return name
    module, dot, attribute = name.rpartition(".")
    parts = [*module.split("."), attribute]
    return f"{module}:{attribute}" if dot and all(p.isidentifier() for p in parts) else None


def load(target: str, name: str | None = None) -> Any:
    """What makes agents or worlds, or an algorithm's class, imported.

    Complaints have the ``name`` that stands for the target, if it has one.

    Raises:
        InvalidArgument: There is no such thing, or its module cannot be imported.
    """
    module, colon, attribute = target.rpartition(":")
    if not colon:
        raise InvalidArgument(f"make is {target!r}, but must be 'module:name', as in 'tacit:UCBVI'")
    try:
        found = _file(module) if module.endswith(".py") else importlib.import_module(module)
        return getattr(found, attribute)
    except Exception as error:
        # Whatever code of others raises while it is imported.
        plain = isinstance(error, (ImportError, AttributeError, FileNotFoundError))
        why = str(error) if plain else f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"{name or repr(target)} cannot be imported: {why}") from error


def fingerprint(text: str) -> str:
    """The text itself, and the hash of the file that it names, if it names one."""
    path = Path(split(text)[0].partition(".py:")[0] + ".py") if ".py:" in text else Path(text)
    try:
        return f"{text} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    except OSError:
        return text


@cache
def _file(path: str) -> ModuleType:
    place = Path(path).resolve()
    # A name that nothing else has: a file may be called random.py.
    name = f"tacit_file_{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path!r} is no file of Python")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if (folder := str(place.parent)) not in sys.path:
        sys.path.append(folder)  # for what stands beside it; last, so that it hides nothing
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
