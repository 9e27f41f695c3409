"""``tacit show``: worlds and agents by name; ``tacit paper``: the five papers, line by line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import amount, command, count, flag, given, print_json, print_table, say
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import one_of

if TYPE_CHECKING:
    from tacit.registry import NamedMaker

SIZES = ("states", "dimension", "actions", "controls", "horizon")
_VALUES = ("optimal_value", "baseline_value", "reference_value")
_GIVEN = ("world", "epsilon", "delta", "printed", "seed")


@command()
def _show(
    names: Annotated[list[str] | None, given("[world|agent [NAME]|FILE...]", "Or runs.")] = None,
    plot: terminal.Plot = None,
    draw: Annotated[str, terminal.asked("regret|values|both", "Panels of --plot.")] = "both",
    width: Annotated[str, terminal.asked("screen|page|column", "Of the picture.")] = "screen",
    as_json: terminal.Json = False,
) -> None:
    from tacit import registry
    from tacit.registry import split

    asked = names or []
    kind, name = [*asked, "", ""][:2]
    if plot or (kind and Path(kind).is_file()):
        _runs(asked, plot, draw, width)
        return
    if len(asked) > 2:
        raise InvalidArgument("one at a time: tacit show agent ucbvi")
    one_of("what to show", kind or "world", ("world", "agent"))
    if kind == "agent" and name:
        entry = registry.agent_entry(split(name)[0])
        found = _described(entry) | {"document": entry.document}
    elif name:
        found = _world(name)
    else:
        found = {
            "worlds": [_described(registry.world_entry(name)) for name in registry.worlds()],
            "agents": [_described(registry.agent_entry(name)) for name in registry.BUILT_IN],
        }
        found = {title: entries for title, entries in found.items() if title.startswith(kind)}
    if as_json:
        print_json(found)
    elif name:
        _print(found)
    else:
        for title, entries in found.items():
            print_table((title, ""), [(entry["name"], entry["summary"]) for entry in entries])
        say(
            "Besides: files mine.toml or mine.json with a world's tables, environments as "
            "gym:CartPole-v1, and your own as my_file.py:MyAgent. More: tacit show agent ucbvi"
        )


def _runs(files: Sequence[str], plot: str | None, draw: Any, width: str) -> None:
    """Saved runs, from one file or several together."""
    from tacit.simulation.plots import plot_results
    from tacit.simulation.tables import load_results, merged, rows

    terminal.check_outputs(plot, None)
    whole = merged([load_results(file) for file in files])
    titles, *lines = rows(whole)
    if plot is not None:
        plot_results(whole, plot, draw=draw, width=width)
    print_table(titles, lines)
    if plot is not None:
        typer.echo(f"Written: {plot}")


def _described(entry: NamedMaker) -> dict[str, Any]:
    """Name, summary and options of a world or agent, as JSON values."""
    options = list[dict[str, Any]]()
    for name, option in entry.options.items():
        kind = inspect.formatannotation(option.annotation).strip("'")
        default = None if option.default is option.empty else str(option.default)
        options.append({"name": name, "type": kind, "default": default})
    summary = entry.document.partition("\n")[0]
    return {"name": entry.name, "summary": summary, "options": options}


def _world(name: str) -> dict[str, Any]:
    from tacit import registry
    from tacit.registry import split
    from tacit.simulation.result import or_none

    found: dict[str, Any] = {"name": name, "summary": "", "options": [], "document": ""}
    if Path(name).suffix.lower() not in registry.WORLD_FILES:
        entry = registry.world_entry(split(name)[0])
        found = _described(entry) | {"document": entry.document}
        needs = None in [option["default"] for option in found["options"]]
        if name == "gym" or (name == entry.name and needs):
            return found
    world = registry.build_world(name)
    sizes = {size: getattr(world.spec, size) for size in SIZES if hasattr(world.spec, size)}
    values = {key: or_none(float(getattr(world, key))) for key in _VALUES}
    assumed = {"assumed": list(getattr(world, "assumed", ()))}
    return found | {"world": world.name} | sizes | values | assumed


def _print(found: Mapping[str, Any]) -> None:
    """Documentation, options and, for a world, values."""
    if found["document"]:
        say(_plain(found["document"]), as_it_is=True)
    if found["options"]:
        rows = [(o["name"], o["type"], o["default"] or "must be given") for o in found["options"]]
        print_table(("option", "type", "default"), rows)
    if "world" in found:
        known = [key for key in (*SIZES, *_VALUES) if found.get(key) is not None]
        figures = [(key.replace("_", " "), f"{found[key]:,.5g}") for key in known]
        print_table((found["world"], ""), figures)
        if found["assumed"]:
            say(f"By rule: {'; '.join(found['assumed'])}.")


def _plain(document: str) -> str:
    """A docstring without its markup.

    >>> _plain("see ``run`` and :class:`~tacit.Policy`")
    'see run and tacit.Policy'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", document).replace("``", "")


@command()
def _paper(
    name: Annotated[str, given("ALGORITHM[:key=value,...]", "Which one; list names all.")] = "list",
    world: terminal.OptionalWorld = None,
    users: Annotated[int | None, count("How many. \\[default: 1000; functional-q 100]")] = None,
    epsilon: Annotated[float, amount("Budget of one user.")] = 1.0,
    delta: Annotated[float | None, amount("As --epsilon. \\[default: 1e-6; ucb 0]")] = None,
    printed: Annotated[
        bool, flag("Constants and noise as printed, or as proven.", "--printed/--corrected")
    ] = True,
    seed: Annotated[int, count("Of users and noise.", least=0)] = 0,
) -> None:
    from tacit import papers
    from tacit.registry import NamedMaker, build_world

    text, _, rest = name.partition(":")
    known = papers.ALGORITHMS
    full = {target.replace(":", "."): short for short, (target, _) in known.items()}
    text = full.get(text, text)
    if text == "list":
        rows = [(short, target.partition(":")[0], at) for short, (target, at) in known.items()]
        print_table(("algorithm", "paper", "a world"), rows)
    elif text in papers.__all__:
        _say_doc(getattr(papers, text))
        for short, (target, at) in known.items():
            if target.startswith(text):
                say(f"To run: tacit paper {short} --world {at}")
    elif world is None:
        target, at = known[one_of("the algorithm", text, ["list", *known])]
        _say_doc(NamedMaker(text, f"tacit.papers.{target}").make)
        say(f"To run: tacit paper {text} --world {at}")
    else:
        target, at = known[one_of("the algorithm", text, list(known))]
        maker = NamedMaker(text, f"tacit.papers.{target}", (*_GIVEN, "episodes"))
        more: dict[str, Any] = maker.read(rest) | {"printed": printed, "seed": seed}
        built = build_world(world)
        if not isinstance(built, type(build_world(at))):
            raise InvalidArgument(f"{text} needs a world of another kind, as {at}")
        if "setting" in inspect.signature(maker.make).parameters:
            steps = (users or 100) * getattr(built.spec, "horizon")  # noqa: B009
            more["setting"] = papers.wang_functional_2019.Setting(T=steps)
        else:
            more["episodes"] = users or 1000
        if delta is None:
            delta = 0.0 if text.startswith("ucb") else 1e-6
        typer.echo(maker.make(built, epsilon=epsilon, delta=delta, **more))


def _say_doc(about: object) -> None:
    say(_plain(inspect.getdoc(about) or "").partition("\n>>>")[0].rstrip(), as_it_is=True)
