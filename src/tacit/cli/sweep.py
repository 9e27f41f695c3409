"""``tacit sweep``: many runs that a file describes, on one machine or many."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked
from tacit.cli.output import print_json, print_table, say
from tacit.cli.simulations import interruptible, say_files
from tacit.privacy.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tacit.privacy.models import Privacy
    from tacit.simulation.store import Store
    from tacit.simulation.sweep import Sweep

HELP = (
    "Run worlds times agents times budgets times seeds, as a TOML file says.\n\n"
    "Results are kept in a folder under what they depend on: an interrupted sweep goes on where "
    "it was, and nothing runs twice. With --cluster the runs go to a Dask scheduler.\n\n"
    "\b\nA file:\n"
    '  worlds = ["riverswim", "grid:side=4"]\n'
    '  agents = ["ucbvi", "ucbpo"]\n'
    '  epsilons = [1, 10, "none"]\n'
    "  delta = 1e-6\n"
    "  users = 1e5\n"
    "  seeds = 10              # or a list\n"
    "  \\[options]               # of every agent: all combinations\n"
    "  scale = [0.5, 1.0]\n\n"
    "\b\nInstead of \\[options], to look for the best ones on worlds that are not reported on:\n"
    "  \\[search]\n"
    '  worlds = ["riverswim:states=4"]\n'
    "  trials = 30\n"
    "  \\[search.options]\n"
    "  scale = { low = 0.1, high = 2.0, log = true }\n\n"
    "\b\nExamples:\n"
    "  tacit sweep mine.toml --save all.parquet --plot all.pdf\n"
    "  tacit sweep mine.toml --cluster tcp://127.0.0.1:8786"
)

_KEYS = ("worlds", "agents", "epsilons", "delta", "privacy", "users", "seeds", "options", "search")
_SEARCH_KEYS = ("worlds", "seeds", "trials", "options")


def sweep_command(
    file: Annotated[str, typer.Argument(metavar="FILE.toml", help="What to run.")],
    store: Annotated[str, asked("FOLDER", "Where results are kept.")] = "runs",
    again: Annotated[bool, typer.Option("--again", help="Do not use what is kept.")] = False,
    so_far: Annotated[
        bool, typer.Option("--so-far", help="Run nothing: the tables of what is kept.")
    ] = False,
    allow_code: options.AllowCode = False,
    workers: options.Workers = None,
    cluster: Annotated[str | None, asked("ADDRESS", "A Dask scheduler that runs them.")] = None,
    plot: options.Plot = None,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    """Runs what a file describes."""
    from tacit.registry import names_of
    from tacit.simulation.store import Store
    from tacit.simulation.sweep import SweepFailed, sweep

    asked_for = read_sweep(file)
    options.check_writable("--plot", plot, endings=options.PICTURES)
    options.check_writable("--save", save, endings=options.RESULTS)
    kept = Store(store, again=again)
    processes, failed = options.worker_count(workers), None
    searching = asked_for.pop("search")
    if searching and cluster:
        raise InvalidArgument("--cluster runs no search: its trials come one after another")
    if searching and so_far:
        raise InvalidArgument("--so-far shows no search: its options are known when it ends")
    with interruptible(), names_of(file, allow_code), _executor(cluster) as executor:
        try:
            if searching:
                made = _searched(asked_for, searching, kept, processes, as_json)
            else:
                asked_for |= {"store": kept, "only_stored": so_far}
                made = sweep(**asked_for, executor=executor, workers=processes)
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


def _searched(
    asked_for: Mapping[str, Any],
    searching: Mapping[str, Any],
    kept: Store,
    workers: int,
    as_json: bool,
) -> Sweep:
    """Looks for options, says which are best, and reports on the worlds of the file."""
    from tacit.simulation.search import search

    if len(asked_for["agents"]) != 1 or len(asked_for["budgets"]) != 1:
        raise InvalidArgument("a search is of one agent and one budget")
    found = search(
        asked_for["agents"][0],
        report_on=asked_for["worlds"],
        report_seeds=asked_for["seeds"],
        privacy=asked_for["budgets"][0],
        users=asked_for["users"],
        store=kept,
        workers=workers,
        **searching,
    )
    if not as_json:
        words = ", ".join(f"{name}={value}" for name, value in found.best.items())
        say(f"Best of {len(found.trials)} trials: {words}. What follows is on other runs.")
    return found.report


def _search_of(file: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """What a file wants searched, as arguments of :func:`tacit.simulation.search.search`."""
    asked_for = content.get("search", {})
    if not asked_for:
        return {}
    if unknown := sorted(asked_for.keys() - set(_SEARCH_KEYS)):
        raise InvalidArgument(
            f"[search] in {file!r} has {unknown[0]!r}; it may have {', '.join(_SEARCH_KEYS)}"
        )
    if not isinstance(asked_for.get("options"), dict):
        raise InvalidArgument(f"[search] in {file!r} needs options, with a range for each")
    names = {"worlds": "tune_on", "seeds": "tune_seeds"}
    return {names.get(key, key): value for key, value in asked_for.items()} | {
        "tune_on": _texts(file, asked_for, "worlds")
    }


def _show(made: Sweep, as_json: bool) -> None:
    """A table per world."""
    tables = {world: made.table(world) for world in made.worlds if made.labelled(world)}
    if as_json:
        print_json({world: _plain(*table) for world, table in tables.items()})
        return
    say(f"{len(made.results)} of {len(made.jobs)} runs; medians over seeds")
    for world, (titles, *lines) in tables.items():
        say(world)
        print_table(titles, lines)


def _plain(titles: Sequence[str], *lines: Sequence[str]) -> list[dict[str, str]]:
    names = ["line", *(" ".join(title.split()) for title in titles[1:])]
    return [dict(zip(names, line, strict=True)) for line in lines]


def read_sweep(file: str) -> dict[str, Any]:
    """What a file asks for, as arguments of :func:`tacit.simulation.sweep.sweep`."""
    from tacit.core.texts import whole_number
    from tacit.privacy.files import parse_toml, read_file

    try:
        content = parse_toml(read_file(file, "world"))
    except ValueError as error:
        raise InvalidArgument(f"{file!r} is not TOML: {error}") from error
    if unknown := sorted(content.keys() - set(_KEYS)):
        raise InvalidArgument(f"{file!r} has {unknown[0]!r}; it may have {', '.join(_KEYS)}")
    worlds, agents = (_texts(file, content, name) for name in ("worlds", "agents"))
    seeds = content.get("seeds", 5)
    return {
        "worlds": worlds,
        "agents": [with_options for agent in agents for with_options in _combined(agent, content)],
        "budgets": _budgets(file, content),
        "users": whole_number("users", str(content.get("users", "1e6"))),
        "seeds": seeds if isinstance(seeds, list) else range(whole_number("seeds", str(seeds))),
        "search": _search_of(file, content),
    }


def _texts(file: str, content: Mapping[str, Any], name: str) -> list[str]:
    found = content.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
        raise InvalidArgument(f"{name} in {file!r} must be a list of texts, got {found!r}")
    return found


def _combined(agent: str, content: Mapping[str, Any]) -> Iterator[str]:
    """An agent's text with every combination of the options."""
    import itertools

    axes = content.get("options", {})
    if not isinstance(axes, dict):
        raise InvalidArgument(f"options must be a table, got {axes!r}")
    several = [value if isinstance(value, list) else [value] for value in axes.values()]
    for chosen in itertools.product(*several):
        words = [f"{key}={_word(value)}" for key, value in zip(axes, chosen, strict=True)]
        yield agent + (("," if ":" in agent else ":") + ",".join(words) if words else "")


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _budgets(file: str, content: Mapping[str, Any]) -> list[Privacy]:
    from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate

    models = {"joint": JointDP, "local": LocalDP, "distributed": DistributedDP}
    kind = content.get("privacy", "joint")
    if kind not in (*models, "none"):
        raise InvalidArgument(
            f"privacy in {file!r} is {kind!r}, but must be joint, local, distributed or none"
        )
    if kind == "none":
        return [NonPrivate()]
    epsilons = content.get("epsilons")
    if not isinstance(epsilons, list) or not epsilons:
        raise InvalidArgument(f'epsilons in {file!r} must be a list, as [1, 10, "none"]')
    if "delta" not in content and any(epsilon != "none" for epsilon in epsilons):
        raise InvalidArgument(f"delta is missing in {file!r}: a budget needs it, as delta = 1e-6")
    return [
        NonPrivate() if epsilon == "none" else models[kind](epsilon, content["delta"])
        for epsilon in epsilons
    ]


@contextlib.contextmanager
def _executor(address: str | None) -> Iterator[Executor | None]:
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra("--cluster needs Dask: pip install 'tacit[cluster]'") from error
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--cluster is {address!r}, where nobody answers: {error}") from error
    with client:
        yield client.get_executor()
