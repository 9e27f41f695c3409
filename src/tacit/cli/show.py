"""``tacit show``: all about one world or agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.names import described
from tacit.cli.output import known, print_json, print_table, say

HELP = (
    "All about one world or agent: what it is, its options, its values.\n\n"
    "A schema, of files that describe a world, is for editors.\n\n"
    "\b\nExamples:\n  tacit show world riverswim:states=8\n  tacit show agent ucbvi\n"
    "  tacit show schema world > world.schema.json"
)

_KINDS = ("world", "agent", "schema")
_SIZES = ("states", "dimension", "actions", "controls", "horizon")
_VALUES = ("optimal_value", "baseline_value", "reference_value")


def show_command(
    kind: Annotated[str, typer.Argument(metavar="|".join(_KINDS), help="What it is.")],
    name: Annotated[str, typer.Argument(help="Its name; a world's can have options.")],
    as_json: options.Json = False,
) -> None:
    """Shows one world or agent."""
    options.check_choice("what to show", kind, _KINDS)
    if kind == "schema":
        _show_schema(name)
        return
    found = _world(name) if kind == "world" else _agent(name)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show_schema(name: str) -> None:
    from tacit.tabular.world import world_schema

    options.check_choice("the schema to show", name, ("world",))
    print_json(world_schema())


def _world(name: str) -> dict[str, Any]:
    from tacit import registry
    from tacit.core.targets import split

    kind = split(name)[0]
    file = Path(name).suffix.lower() in registry.WORLD_FILES
    found = {"name": name, "summary": "", "options": [], "document": ""}
    entry = None if file else registry.world_entry(kind)
    if entry is not None:
        found = described(entry) | {"document": entry.document}
        needs = kind in registry.GYM or any(option.required for option in entry.options.values())
        if name == kind and needs:
            return found
    world = registry.build_world(name)
    if kind in registry.GYM:
        entry = registry.imported_entry(world)
        found = described(entry) | {"document": entry.document}
    sizes = {size: getattr(world.spec, size) for size in _SIZES if hasattr(world.spec, size)}
    values = {key: known(float(getattr(world, key))) for key in _VALUES}
    assumed = {"assumed": list(getattr(world, "assumed", ()))}
    return found | {"world": world.name} | sizes | values | assumed


def _agent(name: str) -> dict[str, Any]:
    from tacit import registry
    from tacit.core.targets import split

    entry = registry.agent_entry(split(registry.choose_agent(name).text)[0])
    return described(entry) | {"document": entry.document}


def _show(found: Mapping[str, Any]) -> None:
    """Documentation, options and, for a world, values."""
    if found["document"]:
        say(_plain(found["document"]), as_it_is=True)
    if found["options"]:
        table = [
            (o["name"], o["kind"], "must be given" if o["required"] else o["default"])
            for o in found["options"]
        ]
        print_table(("option", "what it may be", "default"), table)
    if "optimal_value" in found:
        figures = [
            (key.replace("_", " "), "not known" if found[key] is None else f"{found[key]:,.5g}")
            for key in (*_SIZES, *_VALUES)
            if key in found
        ]
        print_table((found["world"], ""), figures)
    if found.get("assumed"):
        say(f"By rule: {'; '.join(found['assumed'])}.")


def _plain(document: str) -> str:
    """A docstring without its markup.

    >>> _plain("see ``run`` and :class:`~tacit.Policy`")
    'see run and tacit.Policy'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", document).replace("``", "")
