"""``tacit show``: the worlds and agents that have names, and all about one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli import options
from tacit.cli.options import command, given
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.registry import NamedMaker

_KINDS = ("world", "agent")
_SIZES = ("states", "dimension", "actions", "controls", "horizon")
_VALUES = ("optimal_value", "baseline_value", "reference_value")


@command()
def _show(
    kind: Annotated[str, given("|".join(_KINDS), "What it is; without it, all names.")] = "",
    name: Annotated[str, given("NAME", "Its name; a world's can have options.")] = "",
    as_json: options.Json = False,
) -> None:
    if kind:
        options.check_choice("what to show", kind, _KINDS)
    found = _names(kind) if not name else _world(name) if kind == "world" else _agent(name)
    if as_json:
        print_json(found)
        return
    if name:
        _print(found)
        return
    for title, entries in found.items():
        rows = [
            (
                entry["name"],
                entry["summary"],
                ", ".join(
                    o["name"] if o["required"] else f"{o['name']}={o['default']}"
                    for o in entry["options"]
                ),
            )
            for entry in entries
        ]
        print_table((title, "", "options and defaults"), rows)
    say(
        "Besides: files mine.toml or mine.json with a world's tables, Gymnasium's environments as "
        "gym:CartPole-v1, and your own as my_file.py:MyAgent or my_module.MyAgent.\n"
        "More about one: tacit show agent ucbvi"
    )


def _names(kind: str) -> dict[str, Any]:
    """Worlds and agents, or one of the two kinds."""
    from tacit import registry

    found = {
        "worlds": [_described(registry.world_entry(name)) for name in registry.world_names()],
        "agents": [_described(registry.agent_entry(name)) for name in registry.agent_names()],
    }
    return {title: entries for title, entries in found.items() if title.startswith(kind)}


def _described(entry: NamedMaker) -> dict[str, Any]:
    """Name, summary and options of a world or agent, as JSON values."""
    try:
        found = [
            {"name": one.name, "kind": one.kind, "required": one.required}
            | {"default": None if one.required else one.shown}
            for one in entry.options.values()
        ]
        return {"name": entry.name, "summary": entry.summary, "options": found}
    except InvalidArgument as error:
        # One that is broken must not hide the others.
        return {"name": entry.name, "summary": str(error), "options": []}


def _world(name: str) -> dict[str, Any]:
    from tacit import registry
    from tacit.imports import split
    from tacit.simulation.result import or_none

    kind = split(name)[0]
    file = Path(name).suffix.lower() in registry.WORLD_FILES
    found: dict[str, Any] = {"name": name, "summary": "", "options": [], "document": ""}
    entry = None if file else registry.world_entry(kind)
    if entry is not None:
        found = _described(entry) | {"document": entry.document}
        needs = kind in registry.GYM or any(option.required for option in entry.options.values())
        if name == kind and needs:
            return found
    world = registry.build_world(name)
    sizes = {size: getattr(world.spec, size) for size in _SIZES if hasattr(world.spec, size)}
    values = {key: or_none(float(getattr(world, key))) for key in _VALUES}
    assumed = {"assumed": list(getattr(world, "assumed", ()))}
    return found | {"world": world.name} | sizes | values | assumed


def _agent(name: str) -> dict[str, Any]:
    from tacit import registry
    from tacit.imports import split

    entry = registry.agent_entry(split(registry.choose_agent(name).text)[0])
    return _described(entry) | {"document": entry.document}


def _print(found: Mapping[str, Any]) -> None:
    """Documentation, options and, for a world, values."""
    if found["document"]:
        say(plain(found["document"]), as_it_is=True)
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


def plain(document: str) -> str:
    """A docstring without its markup.

    >>> plain("see ``run`` and :class:`~tacit.Policy`")
    'see run and tacit.Policy'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", document).replace("``", "")
