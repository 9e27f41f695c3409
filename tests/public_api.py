"""Public names as text: signatures and members, and the typed stub of the package.

``python -m tests.public_api`` (``make public-api``) writes ``public_api.txt`` and the package's
``__init__.pyi`` again. A changed line there is a change that users will notice: it belongs into the
changelog.
"""

import inspect
import re
import subprocess
import types
import typing
from pathlib import Path
from typing import Any, Literal

import tacit
from tacit.privacy.models import Privacy

RECORD = Path(__file__).with_suffix(".txt")
STUB = Path(tacit.__file__).with_suffix(".pyi")
_WIDTH = 100


def described():
    """All public names, and those of the modules among them."""
    lines = []
    for name in sorted(tacit.__all__):
        value = getattr(tacit, name)
        lines += [*_named(f"tacit.{name}", value), ""]
        if isinstance(value, types.ModuleType):
            for inner in sorted(getattr(value, "__all__", ())):
                lines += [*_named(f"tacit.{name}.{inner}", getattr(value, inner)), ""]
    return "\n".join(lines)


def _named(name, value):
    if isinstance(value, types.ModuleType):
        yield f"module {name}"
    elif isinstance(value, type):
        yield from _called(f"class {name}", value)
        yield from (f"    {line}" for line in _members(value))
    elif callable(value):
        yield from _called(f"function {name}", value)
    else:
        yield f"value {name}"


def _members(kind):
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

    def __repr__(self):
        return str(self)


def _called(title, value):
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


def _with_marks(parameters):
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


def _bare(annotation):
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _without_addresses(text):
    return re.sub(r" at 0x[0-9a-f]+", "", text)


# The stub.


def stub():
    """Text of ``__init__.pyi``: imports of the public names, and a function per agent."""
    agents = {name: inspect.signature(getattr(tacit, name)) for name in sorted(tacit._agents())}
    imports = {("typing", "Any")}
    for name in {*tacit.__all__} - agents.keys():
        module, attribute = tacit._LAZY[name]
        imports.add((module, attribute + f" as {name}" * (attribute != name)))
    functions = []
    for name, signature in agents.items():
        parameters = [
            f"{p.name}: {_stub_type(p.annotation, imports)}{_stub_default(p.default)}"
            for p in signature.parameters.values()
        ]
        given = ", ".join([*parameters[:3], "*", *parameters[3:]])
        functions.append(f"def {name}({given}) -> Agent: ...")
    lines = ['"""Types of the public names. Written by ``python -m tests.public_api``."""', ""]
    lines += [f"from {module} import {name}" for module, name in sorted(imports)]
    lines += ["", "__version__: str", "", *functions, "", f"__all__ = {tacit.__all__}"]
    return "\n".join(lines) + "\n"


def _stub_type(annotation, imports):
    """A type as text, and the imports that it needs."""
    if annotation == Privacy:
        imports.add(("tacit.privacy.models", "Privacy"))
        return "Privacy"
    if annotation in (Any, None, type(None)):
        return "Any" if annotation is Any else "None"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_stub_type(part, imports) for part in inner)
    if origin is Literal:
        imports.add(("typing", "Literal"))
        return f"Literal[{', '.join(map(repr, inner))}]"
    kind = origin or annotation
    if kind.__module__ != "builtins":
        imports.add((kind.__module__, kind.__name__))
    if not inner:
        return str(kind.__name__)
    parts = ["..." if part is Ellipsis else _stub_type(part, imports) for part in inner]
    return f"{kind.__name__}[{', '.join(parts)}]"


def _stub_default(value):
    if value is inspect.Parameter.empty:
        return ""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return f" = {value!r}" if plain else " = ..."


if __name__ == "__main__":
    RECORD.write_text(described())
    STUB.write_text(stub())
    for command in (["format"], ["check", "--fix"], ["format"]):
        subprocess.run(["ruff", *command, "--quiet", str(STUB)], check=True)
