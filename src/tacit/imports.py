"""Code that a text names: ``my_module.attribute``, or ``my_file.py:attribute`` of a file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.privacy.errors import InvalidArgument

# A name, perhaps of what a file has, and options: my_file.py:MyAgent:size=3.
_OF_FILE = r".+\.py:\w+"
_NAMED = re.compile(rf"({_OF_FILE}|[^:]*)(?::(.*))?", re.DOTALL)
# The file whose texts are read, if it may not have code imported.
_READ: ContextVar[str] = ContextVar("_READ", default="")


def split(text: str) -> tuple[str, str]:
    """A name and its options, from ``name:options``.

    >>> split("ucbvi:scale=2"), split("mine.py:MyAgent:size=3"), split("riverswim")
    (('ucbvi', 'scale=2'), ('mine.py:MyAgent', 'size=3'), ('riverswim', ''))
    """
    found = _NAMED.fullmatch(text.strip())
    assert found is not None  # noqa: S101  # any text is one
    if found[2] == "":
        raise InvalidArgument(f"{text.strip()!r} has a colon, but no options behind it")
    return found[1].strip(), (found[2] or "").strip()


@contextlib.contextmanager
def names_of(file: str, allow_code: bool = False) -> Iterator[None]:
    """Within it texts are those of a file, which may name code only if that is allowed."""
    token = _READ.set("" if allow_code else file)
    try:
        yield
    finally:
        _READ.reset(token)


def _check_code(name: str, module: str) -> None:
    """Refuses code that a file names, and names that can only be a mistake or worse."""
    if _READ.get():
        raise InvalidArgument(
            f"{_READ.get()!r} names {name!r}, which would import {module!r}: with --allow-code it "
            "is imported, and run"
        )
    if not module.endswith(".py") and module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgument(f"{name!r} is of Python's own library; it was not called")


def check_environment(name: str, options: str) -> None:
    """Refuses an environment's id or options, of a file, by which Gymnasium would import code."""
    for word in (name, *re.split("[,=]", options)) if _READ.get() else ():
        # It imports what stands before a colon; in options of ours there are numbers around it.
        if ":" in word and (word is name or re.search(r"[^-+.\de:]", word)):
            _check_code(word, word.partition(":")[0])


def target_of(name: str) -> str | None:
    """``my_module.attribute`` or ``my_file.py:attribute`` as a target; ``None`` for other names."""
    module, dot, attribute = name.rpartition(".")
    file = re.fullmatch(_OF_FILE, name, re.DOTALL)
    if not file and not (dot and all(part.isidentifier() for part in name.split("."))):
        return None
    target = name if file else f"{module}:{attribute}"
    _check_code(name, target.rpartition(":")[0])
    return target


def load(target: str, name: str) -> Any:
    """The object that a target names, imported; complaints have the name that stands for it."""
    module, _, attribute = target.rpartition(":")
    try:
        found = _file(module) if module.endswith(".py") else importlib.import_module(module)
        return getattr(found, attribute)
    except Exception as error:  # whatever code of others raises while it is imported
        raise InvalidArgument(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


@cache
def _file(path: str) -> ModuleType:
    place = Path(path).resolve()
    # A name that nothing else has: a file may be called random.py.
    name = f"tacit_file_{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if (folder := str(place.parent)) not in sys.path:
        sys.path.append(folder)  # for what stands beside it; last, so that it hides nothing
    spec.loader.exec_module(module)
    return module
