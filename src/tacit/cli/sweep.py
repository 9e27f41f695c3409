"""``tacit sweep``: many runs that a file describes; ``tacit plot``: saved runs, drawn again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, flag, given
from tacit.cli.output import print_json, print_table, say
from tacit.cli.run import say_files
from tacit.options import whole_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy
    from tacit.simulation.sweep import Sweep

_KEYS = ("worlds", "agents", "epsilons", "delta", "privacy", "users", "seeds", "options")


@command()
def _sweep(
    file: Annotated[str, given("FILE.toml", "What to run.")],
    folder: Annotated[str, asked("FOLDER", "Where results are kept.")] = "runs",
    allow_code: options.AllowCode = False,
    workers: options.Workers = None,
    plot: options.Plot = None,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    from tacit.imports import names_of
    from tacit.simulation.sweep import SweepFailed, sweep

    asked_for, failed = read_sweep(file), None
    options.check_outputs(plot, save)
    with names_of(file, allow_code):
        try:
            made = sweep(**asked_for, folder=folder, workers=options.worker_count(workers))
        except SweepFailed as error:
            made, failed = error.sweep, error
    _show(made, as_json)
    if save is not None and made.results:
        made.save(save)
    if plot is not None and made.results:
        made.plot(plot)
    if not as_json:
        say_files(plot, save)
    if failed is not None:
        raise failed


def _show(made: Sweep, as_json: bool) -> None:
    """A table per world."""
    tables = {world: made.table(world) for world in made.worlds if made.labelled(world)}
    if as_json:
        found = {}
        for world, (heads, *lines) in tables.items():
            names = ["line", *(" ".join(title.split()) for title in heads[1:])]
            found[world] = [dict(zip(names, line, strict=True)) for line in lines]
        print_json(found)
        return
    say(f"{len(made.results)} of {len(made.jobs)} runs; medians over seeds")
    for world, (titles, *lines) in tables.items():
        say(world)
        print_table(titles, lines)


@command()
def _plot(
    files: Annotated[list[str], given("FILE...", "Saved runs.")],
    output: Annotated[
        str, asked("FILE", "The picture, as PNG, PDF or SVG by its end.")
    ] = "plot.png",
    by_world: Annotated[bool, flag("A row for every world.", "--by-world")] = False,
) -> None:
    from tacit.simulation.plots import plot_results
    from tacit.simulation.tables import load_results, merged, rows

    options.check_writable("--output", output, endings=options.PICTURES)
    whole = merged([load_results(file) for file in files])
    plot_results(whole, output, by_world=by_world)
    titles, *lines = rows(whole)
    print_table(titles, lines)
    typer.echo(f"The picture is {output}")


def read_sweep(file: str) -> dict[str, Any]:
    """Arguments of :func:`tacit.simulation.sweep.sweep` that a file has."""
    from tacit.privacy.files import parse_toml, read_file

    try:
        content = parse_toml(read_file(file, "world"))
    except ValueError as error:
        raise InvalidArgument(f"{file!r} is not TOML: {error}") from error
    if unknown := sorted(content.keys() - set(_KEYS)):
        raise InvalidArgument(f"{file!r} has {unknown[0]!r}; it may have {', '.join(_KEYS)}")
    for name in ("worlds", "agents"):
        found = content.get(name)
        if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
            raise InvalidArgument(f"{name} in {file!r} must be a list of texts, got {found!r}")
    seeds = content.get("seeds", 5)
    return {
        "worlds": content["worlds"],
        "agents": [text for agent in content["agents"] for text in _combined(agent, content)],
        "budgets": _budgets(file, content),
        "users": whole_number("users", str(content.get("users", "1e6"))),
        "seeds": seeds if isinstance(seeds, list) else range(whole_number("seeds", str(seeds))),
    }


def _combined(agent: str, content: Mapping[str, Any]) -> Iterator[str]:
    """An agent's text with every combination of the options."""
    axes = content.get("options", {})
    if not isinstance(axes, dict):
        raise InvalidArgument(f"options must be a table, got {axes!r}")
    several = [value if isinstance(value, list) else [value] for value in axes.values()]
    for chosen in itertools.product(*several):
        texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in chosen]
        words = [f"{key}={text}" for key, text in zip(axes, texts, strict=True)]
        yield agent + (("," if ":" in agent else ":") + ",".join(words) if words else "")


def _budgets(file: str, content: Mapping[str, Any]) -> list[Privacy]:
    kind = content.get("privacy", "joint")
    options.check_choice(f"privacy in {file!r}", kind, options.MODELS)
    epsilons = ["none"] if kind == "none" else content.get("epsilons")
    if not isinstance(epsilons, list) or not epsilons:
        raise InvalidArgument(f'epsilons in {file!r} must be a list, as [1, 10, "none"]')
    if "delta" not in content and any(epsilon != "none" for epsilon in epsilons):
        raise InvalidArgument(f"delta is missing in {file!r}: a budget needs it, as delta = 1e-6")
    kinds = ["none" if epsilon == "none" else kind for epsilon in epsilons]
    return [
        options.privacy_model(one, epsilon, content.get("delta"))
        for one, epsilon in zip(kinds, epsilons, strict=True)
    ]
