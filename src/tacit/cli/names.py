"""``tacit list``: the worlds and agents that have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.cli import options
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.registry import NamedMaker

HELP = (
    "The worlds and agents that have names, with their options.\n\n"
    "\b\nExample:\n  tacit list --json"
)


def list_command(as_json: options.Json = False) -> None:
    """Lists names."""
    from tacit import registry

    kinds = {
        "worlds": [registry.world_entry(name) for name in registry.world_names()],
        "agents": [registry.agent_entry(name) for name in registry.agent_names()],
    }
    found = {kind: [described(entry) for entry in entries] for kind, entries in kinds.items()}
    if as_json:
        print_json(found)
    else:
        _show(found)


def described(entry: NamedMaker) -> dict[str, Any]:
    """Name, summary and options of a world or agent, as JSON values."""
    try:
        return {
            "name": entry.name,
            "summary": entry.summary,
            "options": [
                {
                    "name": option.name,
                    "kind": option.kind,
                    "required": option.required,
                    "default": None if option.required else option.shown,
                }
                for option in entry.options.values()
            ],
        }
    except InvalidArgument as error:
        # One that is broken must not hide the others.
        return {"name": entry.name, "summary": str(error), "options": []}


def _show(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """A table of worlds and one of agents."""
    for kind, entries in found.items():
        table = [(e["name"], e["summary"], _options(e["options"])) for e in entries]
        print_table((kind, "", "options and defaults"), table)
    say(
        "Besides: files mine.toml or mine.json with a world's tables, Gymnasium's environments as "
        "gym:CartPole-v1, and your own as my_file.py:MyAgent or my_module.MyAgent.\n"
        "More about one: tacit show agent ucbvi",
    )


def _options(options: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(o["name"] if o["required"] else f"{o['name']}={o['default']}" for o in options)
