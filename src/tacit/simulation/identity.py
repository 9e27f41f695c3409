"""Digests of what a result is of: worlds, agents and code are known by content, not by name.

A world is its tables and numbers, an environment its chain of wrappers, an agent its algorithm and
options; code of your own counts with every module that it imports outside of installed packages.
Names of things, seeds, caches and random generators are not content.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import enum
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tacit.privacy.errors import InvalidArgument

_PACKAGE = Path(__file__).parents[1]
_LIBRARY = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
_PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, np.generic, Path)
# Kept by worlds to be fast, or where an environment happens to be.
_CACHES = {"_values", "_made", "name", "assumed"}
_SEEDS = {"seed", "noise_seed", "rng", "_seed", "_rng"}


def short_digest(content: Iterable[Any]) -> str:
    """Sixteen hexadecimal digits of some content, in its order."""
    found = hashlib.sha256()
    for part in content:
        found.update(part if isinstance(part, bytes) else f"{part!r};".encode())
    return found.hexdigest()[:16]


def world_digest(world: Any) -> str:
    """Digest of a simulated world: of what its users do, and of what an agent may know."""
    return short_digest(_content(world, {}))


def agent_digest(agent: Any, make: Any = None) -> str:
    """Digest of an agent: of its algorithm with its options, and of what it was told of a world.

    Of an own one, which has no ``algorithm``, it is its class with plain attributes; users, budget
    and seed are not in it, because results have them. A function of yours that made it counts.
    """
    algorithm = getattr(agent, "algorithm", None)
    parts: list[Any] = [type(agent if algorithm is None else algorithm)]
    if algorithm is not None:
        parts += algorithm.problem.spec, algorithm.problem.schedule, vars(algorithm.options)
    else:
        kept = {k: v for k, v in getattr(agent, "__dict__", {}).items() if isinstance(v, _PLAIN)}
        kept = {k: v for k, v in kept.items() if k not in _SEEDS | {"name", "users"}}
        parts += [kept, getattr(agent, "options", None)]
    if make is not None and not isinstance(make, type) and not is_tacits(make):
        parts += [] if hasattr(make, "algorithm") else [make]
    return short_digest(_content(parts, {}))


def is_tacits(what: Any) -> bool:
    """Whether a function or class is this package's own."""
    return str(getattr(what, "__module__", "")).startswith("tacit.")


def sources_digest(*made_by: Any) -> str:
    """Digest of the files of functions and classes of yours, with all of yours that they import."""
    modules = sorted({str(getattr(one, "__module__", "")) for one in made_by})
    return short_digest(filter(None, map(_closure, modules)))


@cache
def code_version() -> str:
    """Version of this package; where it is no installed one, with the digest of its files."""
    from importlib.metadata import version

    if _is_installed(_PACKAGE):
        return version("tacit")
    texts = (path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py")))
    return f"{version('tacit')}+{short_digest(texts)[:8]}"


def facts(digests: Sequence[str], agent: Any) -> dict[str, str]:
    """Digests of a world and an agent with the code's, and the options that were set, in words."""
    options: Any = getattr(getattr(agent, "algorithm", agent), "options", None)
    given = {one.name: (getattr(options, one.name), one.default) for one in _fields(options)}
    words = ",".join(f"{k}={v}" for k, (v, usual) in given.items() if repr(v) != repr(usual))
    return {"world": digests[0], "agent": digests[1], "code": code_version(), "options": words}


def identity(world: Any, agent: Any, make: Any = None) -> dict[str, str]:
    """Digests that a result carries, with the options that were set."""
    return facts((world_digest(world), agent_digest(agent, make)), agent)


def _content(what: Any, seen: dict[int, Any]) -> Iterator[Any]:
    if isinstance(what, _PLAIN):
        yield what
        return
    if isinstance(what, np.ndarray):
        yield what.dtype.str, what.shape
        yield np.ascontiguousarray(what).tobytes() if what.dtype != object else repr(what)
        return
    if id(what) in seen:
        yield "again"
        return
    seen = {**seen, id(what): what}  # what it is within
    parts: Iterable[Any]
    if isinstance(what, Mapping):
        parts = (pair for pair in sorted(what.items(), key=lambda pair: repr(pair[0])))
    elif isinstance(what, (set, frozenset)):
        parts = sorted(what, key=repr)
    elif isinstance(what, (tuple, list, range)):
        parts = what
    elif isinstance(what, ModuleType):
        parts = _anywhere(what.__name__), _closure(what.__name__)
    elif isinstance(what, type):
        parts = _of_code(what)
    elif isinstance(what, CodeType):
        parts = what.co_code, what.co_names, what.co_consts
    elif isinstance(what := getattr(what, "py_func", what), FunctionType):
        parts = _of_function(what)
    elif callable(getattr(what, "reset", None)) and hasattr(what, "unwrapped"):
        parts = _of_environment(what)
    else:
        parts = type(what), _state(what)
    yield type(what).__name__
    for part in parts:
        yield from _content(part, seen)
    yield "end"


def _state(what: Any) -> Mapping[str, Any]:
    """Attributes of an object that are content: no caches, and nothing that is drawn from."""
    kinds = type(what).__mro__
    names = {*getattr(what, "__dict__", ())} | {f.name for f in _fields(what)}
    for kind in kinds:
        slots = vars(kind).get("__slots__", ())
        names |= {slots} if isinstance(slots, str) else {*slots}
    own = (item for kind in kinds for item in vars(kind).items())
    lazy = {name for name, value in own if isinstance(value, cached_property)} | {"name"}
    lazy |= _CACHES if any(map(is_tacits, kinds)) else set()
    drawn = (np.random.Generator, np.random.RandomState, BuiltinFunctionType)
    found = {k: getattr(what, k, None) for k in sorted(names - lazy)}
    if "_envs" in found:  # copies of one
        found["_envs"] = what._envs[:1]
    if not names and not isinstance(what, drawn):  # of C, as dates and decimals
        with contextlib.suppress(Exception):
            return {"reduced": what.__reduce_ex__(4)[1:]}
    return {k: v for k, v in found.items() if not isinstance(v, drawn)}


def _fields(what: Any) -> Sequence[Any]:
    return fields(what) if is_dataclass(what) else ()


def _of_environment(env: Any) -> Iterator[Any]:
    """The chain of an environment: of each wrapper its code and arguments, then the innermost."""
    wrapper = __import__("gymnasium").Wrapper
    with contextlib.suppress(Exception):  # where it happens to be is no content
        fresh = copy.deepcopy(env)
        fresh.reset(seed=0)
        env = fresh
    while isinstance(env, wrapper):
        if type(env).__name__ != "PassiveEnvChecker":
            yield type(env)
            given = getattr(env, "_saved_kwargs", None)  # as Gymnasium's own wrappers keep them
            yield _kept(env) if given is None else given
        env = env.env
    yield type(env)
    made = env.spec
    yield _kept(env) if made is None else (made.id, made.kwargs)


def _kept(env: Any) -> Mapping[str, Any]:
    """Attributes of an environment that are values or functions; others are what it plays with."""
    kinds = (*_PLAIN, np.ndarray, FunctionType, partial, tuple, list, dict)
    return {k: v for k, v in _state(env).items() if isinstance(v, kinds) and "cached" not in k}


def _of_code(what: Any) -> Iterator[Any]:
    """A class or function of a module by its file, or by its value where there is none."""
    module = getattr(what, "__module__", "") or ""
    yield what.__qualname__, "" if module == "__main__" else _anywhere(module)
    yield _closure(module)
    if isinstance(what, type) and module == "__main__":
        yield {k: v for k, v in vars(what).items() if isinstance(v, (*_PLAIN, FunctionType))}
        yield what.__bases__


def _of_function(what: FunctionType) -> Iterator[Any]:
    """A function with what it closes over; one without a file by its value, and what it calls."""
    yield from _of_code(what)
    yield what.__defaults__, what.__kwdefaults__
    for cell in what.__closure__ or ():
        yield cell.cell_contents
    yield what.__code__  # in a file, too: several lambdas have one name
    if what.__module__ == "__main__":
        for name in _names(what.__code__):
            yield name, what.__globals__.get(name)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        yield from _names(inner) if isinstance(inner, CodeType) else ()


# Modules that are yours.

_LOADED: dict[int, tuple[Any, str]] = {}  # spec of a module, and the digest when it was first seen


def _is_installed(path: Path) -> bool:
    packages = {"site-packages", "dist-packages"}.intersection(path.parts)
    return bool(packages) or any(map(path.is_relative_to, _LIBRARY))


def _anywhere(module: str) -> str:
    """Name of a module, wherever its file is; see :func:`tacit.registry.load`."""
    return re.sub(r"^(tacit_file_.*)_[0-9a-f]{8}$", r"\1", module)


def own_sources(module: str) -> dict[str, bytes]:
    """Sources by name of a module of yours, and of all those of yours that it imports."""
    found: dict[str, bytes] = {}
    waiting: list[tuple[str, tuple[Path, ...]]] = [(module, ())]
    while waiting:
        name, beside = waiting.pop()
        if name in found or not (path := _source(name, beside)):
            continue
        data = found[name] = path.read_bytes()
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += [(one, (path.parent,)) for one in _imported(data, package)]
    return dict(sorted(found.items()))


@cache
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    names = list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            names += [module, *(f"{module}.{name.name}" for name in node.names)]
    return tuple(names)


def _source(name: str, beside: Sequence[Path]) -> Path | None:
    """File of a module of yours; ``None`` for others. Imports nothing."""
    if (file := getattr(sys.modules.get(name), "__file__", None)) is None:
        found = [*beside, *(Path(place or ".") for place in sys.path)]
        for part in name.split("."):
            files = (f for at in found for f in (at / part / "__init__.py", at / f"{part}.py"))
            file = next((f for f in files if f.is_file()), None)
            found = [at / part for at in found if (at / part).is_dir()]
    if file is None or not str(file).endswith(".py"):
        return None
    path = Path(file).resolve()
    own = not path.is_relative_to(_PACKAGE) and not _is_installed(path)
    return path if own and path.is_file() else None


def _closure(module: str) -> dict[str, str]:
    """Digest of a module of yours, and of those that it imports; empty for installed ones.

    Code that was edited after it was imported is not what runs: it is refused.
    """
    if not module or module == "__main__":
        return {}
    found = {name: short_digest([data]) for name, data in own_sources(module).items()}
    for name, digest in found.items():
        spec = getattr(sys.modules.get(name), "__spec__", None)
        known = _LOADED.setdefault(id(spec), (spec, digest))[1] if spec is not None else digest
        if known != digest:
            raise InvalidArgument(
                f"{name} was edited after it was imported: start again, or importlib.reload it"
            )
    return {_anywhere(name): digest for name, digest in found.items()}
