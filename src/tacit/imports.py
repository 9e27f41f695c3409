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

# A file, what it has, and options: my_file.py:MyAgent:size=3.
_OF_FILE = re.compile(r"(?P<name>.+\.py:\w+)(?P<colon>:)?(?P<options>.*)", re.DOTALL)
_OTHER = re.compile(r"(?P<name>[^:]*)(?P<colon>:)?(?P<options>.*)", re.DOTALL)
# The file whose texts are read, if it may not have code imported.
_READ: ContextVar[str] = ContextVar("_READ", default="")


def split(text: str) -> tuple[str, str]:
    """A name and its options, from ``name:options``; the name may be that of a file's own.

    >>> split("ucbvi:scale=2"), split("mine.py:MyAgent:size=3"), split("riverswim")
    (('ucbvi', 'scale=2'), ('mine.py:MyAgent', 'size=3'), ('riverswim', ''))
    """
    found = _OF_FILE.fullmatch(text.strip()) or _OTHER.fullmatch(text.strip())
    assert found is not None  # noqa: S101  # the second takes any text
    if found["colon"] and not found["options"]:
        raise InvalidArgument(f"{text.strip()!r} has a colon, but no options behind it")
    return found["name"].strip(), found["options"].strip()


@contextlib.contextmanager
def names_of(file: str, allow_code: bool = False) -> Iterator[None]:
    """Within it texts are those of a file, which may name code only if that is allowed.

    Whoever gets a file from somebody else wants it read, and not run.
    """
    token = _READ.set("" if allow_code else file)
    try:
        yield
    finally:
        _READ.reset(token)


def check_code(name: str, module: str) -> None:
    """Refuses code that a file names, and names that can only be a mistake or worse."""
    if _READ.get():
        raise InvalidArgument(
            f"{_READ.get()!r} names {name!r}, which would import {module!r}: files name what "
            "tacit show has, and gym: ids; with --allow-code it is imported, and run"
        )
    if not module.endswith(".py") and module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgument(
            f"{name!r} is of Python's own library, which makes no worlds and no agents; it was "
            "not called"
        )


def check_environment(name: str, options: str) -> None:
    """Refuses an environment's id or options, of a file, by which Gymnasium would import code."""
    for word in (name, *re.split("[,=]", options)) if _READ.get() else ():
        # It imports what stands before a colon; in options of ours there are numbers around it.
        if ":" in word and (word is name or re.search(r"[^-+.\de:]", word)):
            check_code(word, word.partition(":")[0])


def target_of(name: str) -> str | None:
    """``my_module.attribute`` or ``my_file.py:attribute`` as a target; ``None`` for other names."""
    module, dot, attribute = name.rpartition(".")
    if _OF_FILE.fullmatch(name):
        target = name
    elif dot and all(part.isidentifier() for part in [*module.split("."), attribute]):
        target = f"{module}:{attribute}"
    else:
        return None
    check_code(name, target.rpartition(":")[0])
    return target


def load(target: str, name: str) -> Any:
    """The object that a target names, imported; complaints have the ``name`` that stands for it.

    Raises:
        InvalidArgument: There is no such thing, or its module cannot be imported.
    """
    module, _, attribute = target.rpartition(":")
    try:
        found = _file(module) if module.endswith(".py") else importlib.import_module(module)
        return getattr(found, attribute)
    except Exception as error:
        # Whatever code of others raises while it is imported.
        plain = isinstance(error, (ImportError, AttributeError, FileNotFoundError))
        why = str(error) if plain else f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"{name!r} cannot be imported: {why}") from error


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
