"""The command line: ``tacit run``, ``compare``, ``plan``, ``audit``, ``ledger`` and others.

What is asked for goes to standard output: tables for people, or with ``--json`` one JSON object.
Progress and mistakes go to standard error. A mistake is one line and exit code 2, an interruption
130, anything unforeseen 1. Everything that can be checked is checked before the first simulated
user.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.cli.ledger import app as ledger_app
from tacit.privacy.errors import InvalidArgument, TacitError

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice, Entry
    from tacit.simulation.compare import Comparison
    from tacit.simulation.compare import Contender as Line

# Typer's own complaints about arguments, whichever copy of click it brings.
_Complaint: Any = typer.BadParameter.__mro__[2]

_MODELS = ("joint", "local", "none")
_SAMPLERS = ("floating-point", "exact")
_KINDS = ("world", "agent")


class _Commands(TyperGroup):
    """Commands that complain in one line, also when they are called from a test."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs a command and turns what goes wrong into a line and an exit code."""
        given = list(sys.argv[1:] if args is None else args)

        def command() -> Any:
            return super(_Commands, self).main(
                given, prog_name or "tacit", complete_var, False, windows_expand_args, **extra
            )

        code = _guarded(command, show_traceback="--traceback" in given[:1])
        if standalone_mode:
            sys.exit(code)
        return code


def _guarded(command: Callable[[], Any], show_traceback: bool) -> int:
    """The exit code of a command; what it raises is said in one line."""
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except _Complaint as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written at exit either.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        if isinstance(error, OSError):
            # An error on an open file has its number, not its name.
            named = isinstance(error.filename, (str, bytes, os.PathLike))
            where = f"{os.fspath(error.filename)!r}: " if named else ""
            return _complain(f"{where}{error.strerror or error}", 2)
        if _is_mistake(error):
            return _complain(str(error), 2)
        hint = "" if show_traceback else " (tacit --traceback ... says where)"
        name = "" if isinstance(error, TacitError) else f"{type(error).__name__}: "
        return _complain(f"{name}{error}{hint}", 1)


def _is_mistake(error: Exception) -> bool:
    """Whether the caller can mend it, also where the refusal came out of one of several runs."""
    from tacit.privacy import errors
    from tacit.simulation.seeds import SeedFailed

    if isinstance(error, SeedFailed):
        kind = getattr(errors, error.reason.partition(":")[0], None)
        return isinstance(kind, type) and issubclass(kind, TacitError)
    return isinstance(error, TacitError)


def _complain(message: str, code: int) -> int:
    typer.echo(f"tacit: {' '.join(message.split())}", err=True)
    return code


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


app.add_typer(ledger_app, name="ledger")


def main() -> None:
    """The entry point."""
    app(prog_name="tacit")


# Options that several commands share.

WorldOption = Annotated[
    str,
    typer.Option(
        "--world",
        metavar="NAME[:key=value,...]",
        help="A world of tacit list, a .toml or .json file, or gym:ID,horizon=...",
    ),
]
AgentOption = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="NAME[:key=value,...]",
        help="An agent of tacit list, with its options, as ucbvi:stationary=true",
    ),
]
PrivacyOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(_MODELS),
        help="Whom users trust: joint (a curator), local (their own device), none (no guarantee).",
    ),
]
EpsilonOption = Annotated[
    str | None,
    typer.Option(metavar="NUMBER", help="Budget of one user; must be given unless not private."),
]
DeltaOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Budget of one user, 0 for pure; must be given unless not private."
    ),
]
SamplerOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(_SAMPLERS),
        help="How noise is drawn: exact has no low-order bits to read, and is a little larger.",
    ),
]
UsersOption = Annotated[
    str, typer.Option(metavar="N", help="Users that are served, as 1000000 or 1e6.")
]
SeedsOption = Annotated[str, typer.Option(metavar="N", help="How many runs.")]
SeedOption = Annotated[str, typer.Option(metavar="N", help="The first run's seed; then it counts.")]
WorkersOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Processes at a time. \\[default: one per processor]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PlotOption = Annotated[
    str | None, typer.Option("--plot", metavar="FILE.png", help="Draw regret and values.")
]
SaveOption = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Write every release of every run, with the summary, as JSON.",
    ),
]


@app.callback(invoke_without_command=True)
def tacit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Before a command: show where a mistake came from.")
    ] = False,
) -> None:
    """Reinforcement learning that learns from people without revealing them.

    Try: tacit run --world riverswim --agent ucbvi --epsilon 1 --delta 1e-6
    """
    if version:
        print_version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


# tacit run.


@app.command(
    name="run",
    help="Let an agent serve and learn from simulated users.\n\n"
    "Reports how many users it took until newcomers get 90 % of what is possible, the regret of "
    "all users, and what was proven about their privacy. The noise of a simulation has a known "
    "seed, so it protects nobody, and the guarantee says so.\n\n"
    "\b\nExamples:\n"
    "  tacit run --world riverswim --agent ucbvi --epsilon 1 --delta 1e-6\n"
    "  tacit run --world grid:side=4 --agent ucbvi:stationary=false \\\n"
    "      --privacy none --users 1e5 --seeds 10 --json\n"
    "  tacit run --world gym:FrozenLake-v1,horizon=20 --agent ucbvi \\\n"
    "      --epsilon 1 --delta 1e-6 --plot regret.png",
)
def run_command(
    world: WorldOption,
    agent: AgentOption = "ucbvi",
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    privacy: PrivacyOption = "joint",
    sampler: SamplerOption = "floating-point",
    users: UsersOption = "1e6",
    seeds: SeedsOption = "1",
    seed: SeedOption = "0",
    workers: WorkersOption = None,
    plot: PlotOption = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs one agent."""
    from tacit.registry import choose_agent

    choice = choose_agent(agent)
    lines = [(choice.text, choice, _privacy(choice, privacy, epsilon, delta, sampler))]
    made = _compare(world, lines, users, (seed, seeds), workers, plot, save)
    if as_json:
        _print_json(made.run_dict())
    else:
        from tacit.cli.console import show_run

        show_run(made)
        _show_files(plot, save)


# tacit compare.


@app.command(
    name="compare",
    help="Run several agents or budgets on one world: one table, and one plot with bands.\n\n"
    "Each --agent is combined with each --epsilon. An agent can have a model and a budget of its "
    "own, as ucbvi:privacy=none, ucbvi:sampler=exact or ldpob:privacy=local,epsilon=4.\n\n"
    "\b\nExamples:\n"
    "  tacit compare --world riverswim --agent ucbvi --agent pucb \\\n"
    "      --agent ucbvi:privacy=none --epsilon 1 --delta 1e-6 --plot agents.png\n"
    "  tacit compare --world grid --agent ucbvi --delta 1e-6 \\\n"
    "      --epsilon 0.1 --epsilon 1 --epsilon 10",
)
def compare_command(
    world: WorldOption,
    agent: Annotated[
        list[str],
        typer.Option(
            "--agent", metavar="NAME[:key=value,...]", help="An agent; give it several times."
        ),
    ],
    epsilon: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER", help="Budget of one user; can be given several times."),
    ] = None,
    delta: DeltaOption = None,
    privacy: PrivacyOption = "joint",
    sampler: SamplerOption = "floating-point",
    users: UsersOption = "1e6",
    seeds: SeedsOption = "5",
    seed: SeedOption = "0",
    workers: WorkersOption = None,
    plot: PlotOption = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs several agents."""
    from tacit.registry import choose_agent

    lines = []
    for choice in map(choose_agent, agent):
        private = choice.budget.get("privacy", privacy) != "none"
        several: Sequence[str | None] = [None]
        if epsilon and private and "epsilon" not in choice.budget:
            several = epsilon
        for one in several:
            label = choice.text if len(several) == 1 else f"{choice.text}, epsilon {one}"
            lines.append((label, choice, _privacy(choice, privacy, one, delta, sampler)))
    made = _compare(world, lines, users, (seed, seeds), workers, plot, save)
    if as_json:
        _print_json(made.to_dict())
    else:
        from tacit.cli.console import show_comparison

        show_comparison(made)
        _show_files(plot, save)


# tacit plan.


@app.command(
    name="plan",
    help="How many users a budget needs, before any real user is touched.\n\n"
    "Runs the agent on simulated users of your world, or of random worlds of its sizes, and says "
    "how many users it took, how noisy each count is, and what privacy costs. Without --users it "
    "tries ten times as many until it is enough.\n\n"
    "\b\nExamples:\n"
    "  tacit plan --world riverswim --agent ucbvi --epsilon 1 --delta 1e-6\n"
    "  tacit plan --states 10 --actions 4 --horizon 14 \\\n"
    "      --agent ucbvi --epsilon 0.5 --delta 1e-7",
)
def plan_command(
    agent: AgentOption = "ucbvi",
    world: Annotated[
        str | None,
        typer.Option(
            "--world", metavar="NAME[:key=value,...]", help="The world; or else its sizes."
        ),
    ] = None,
    states: Annotated[
        str | None, typer.Option(metavar="S", help="Number of states, without --world.")
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="A", help="Number of actions, without --world.")
    ] = None,
    horizon: Annotated[
        str | None, typer.Option(metavar="H", help="Steps of a user's episode, without --world.")
    ] = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    privacy: PrivacyOption = "joint",
    sampler: SamplerOption = "floating-point",
    users: Annotated[
        str | None, typer.Option(metavar="N", help="Users that there will be, if that is known.")
    ] = None,
    most: Annotated[
        str, typer.Option(metavar="N", help="The largest number of users to try.")
    ] = "1e10",
    seeds: SeedsOption = "5",
    seed: SeedOption = "0",
    workers: Annotated[str, typer.Option(metavar="N", help="Processes at a time.")] = "1",
    as_json: JsonOption = False,
) -> None:
    """Simulates what an agent will need."""
    from tacit.registry import build_world, choose_agent, whole_number
    from tacit.simulation.plan import Sizes, plan

    choice = choose_agent(agent)
    model = _privacy(choice, privacy, epsilon, delta, sampler)
    sizes = {"states": states, "actions": actions, "horizon": horizon}
    missing = [name for name, text in sizes.items() if text is None]
    if (world is None) == (len(missing) == len(sizes)) or (world is None and missing):
        raise InvalidArgument("give either --world, or all of --states, --actions and --horizon")
    place = (
        Sizes(**{name: whole_number(name, str(text)) for name, text in sizes.items()})
        if world is None
        else build_world(world)
    )
    declared = None if users is None else whole_number("users", users)
    with _interruptible():
        made = plan(
            place,
            choice,
            model,
            declared,
            seeds=_seeds(seed, seeds),
            workers=whole_number("workers", workers),
            most=whole_number("most", most),
            text=world,
        )
    if as_json:
        _print_json(made.to_dict())
    else:
        from tacit.cli.console import show_plan

        show_plan(made)


# tacit audit.


@app.command(
    name="audit",
    help="Attack an agent: does one user change what is published by more than it claims?\n\n"
    "Finds the two users whose data differ most, runs the agent again and again with one or the "
    "other, and compares what it measures with the guarantee. Ends with a verdict; the exit code "
    "is 0 for pass and 1 for fail. Minutes on a laptop; --quick takes less and shows less.\n\n"
    "\b\nExamples:\n"
    "  tacit audit ucbvi --world riverswim:states=4,horizon=5 --epsilon 1 --delta 1e-6\n"
    "  tacit audit ucbvi --world riverswim --epsilon 1 --delta 1e-6 --quick --json\n"
    "  tacit audit my_module.MyAgent --world grid:side=3 --epsilon 1 --delta 1e-6 \\\n"
    "      --html audit.html",
)
def audit_command(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent of tacit list.")],
    world: WorldOption,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    privacy: PrivacyOption = "joint",
    sampler: SamplerOption = "floating-point",
    users: Annotated[
        str | None,
        typer.Option(metavar="N", help="Users of a run. \\[default: a few small blocks]"),
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(metavar="N", help="Runs with each of the two users. \\[default: 1000]"),
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="Of users and attack.")] = "0",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, and no checks of behaviour.")
    ] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the report as a page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Audits one agent."""
    from tacit.cli.audit import audit_choice
    from tacit.registry import build_world, choose_agent, whole_number

    choice = choose_agent(agent)
    model = _privacy(choice, privacy, epsilon, delta, sampler)
    _check_writable("--html", html)
    made = audit_choice(
        choice,
        build_world(world),
        model,
        users=None if users is None else whole_number("users", users),
        runs=None if runs is None else whole_number("runs", runs, least=20),
        quick=quick,
        seed=whole_number("seed", seed, least=0),
    )
    if html is not None:
        from tacit.audit.page import write_page

        write_page(made, html)
    if as_json:
        _print_json(made.to_dict())
    else:
        from tacit.cli.console import show_audit

        show_audit(made)
        if html is not None:
            typer.echo(f"The report is {html}")
    raise typer.Exit(0 if made.passed else 1)


# tacit list, show, doctor, version.


@app.command(
    name="list",
    help="The worlds and agents that have names, with their options.\n\n"
    "\b\nExample:\n  tacit list --json",
)
def list_command(as_json: JsonOption = False) -> None:
    """Lists names."""
    from tacit import registry

    kinds = {
        "worlds": [registry.world_entry(name) for name in registry.world_names()],
        "agents": [registry.agent_entry(name) for name in registry.agent_names()],
    }
    found = {kind: [_described(entry) for entry in entries] for kind, entries in kinds.items()}
    if as_json:
        _print_json(found)
        return
    from tacit.cli.console import show_names

    show_names(found)


@app.command(
    name="show",
    help="All about one world or agent: what it is, its options, its values.\n\n"
    "\b\nExamples:\n  tacit show world riverswim:states=8\n  tacit show agent ucbvi",
)
def show_command(
    kind: Annotated[str, typer.Argument(metavar="|".join(_KINDS), help="What it is.")],
    name: Annotated[str, typer.Argument(help="Its name; a world's can have options.")],
    as_json: JsonOption = False,
) -> None:
    """Shows one world or agent."""
    _check_choice("what to show", kind, _KINDS)
    found = _shown_world(name) if kind == "world" else _shown_agent(name)
    if as_json:
        _print_json(found)
        return
    from tacit.cli.console import show_entry

    show_entry(found)


@app.command(
    name="figure",
    help="Draw a figure of the documentation again, with the numbers behind it.\n\n"
    "\b\nExamples:\n  tacit figure tabular-orders --output orders.png\n  tacit figure --list",
)
def figure_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which figure.")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="The PNG to write; NAME.png by default.")
    ] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the names of all figures.")] = False,
) -> None:
    """Draws one figure."""
    from importlib import import_module

    figures = _figures()

    if names:
        typer.echo("\n".join(figures))
        return
    if name is None or name not in figures:
        raise InvalidArgument(f"figure is {name!r}, but must be one of {', '.join(figures)}")
    picture = output or f"{name}.png"
    _check_png("--output", picture)
    _check_writable("--output", picture)
    raise typer.Exit(import_module(figures[name]).main([f"--output={picture}"]))


@app.command(
    name="doctor",
    help="What is installed, what works, and what is slow. Exit code 1 if something is broken.\n\n"
    "\b\nExample:\n  tacit doctor --json",
)
def doctor_command(as_json: JsonOption = False) -> None:
    """Examines the installation."""
    from dataclasses import asdict

    from tacit.cli.doctor import examine, healthy

    checks = examine()
    well = healthy(checks)
    if as_json:
        _print_json({"healthy": well, "checks": [asdict(check) for check in checks]})
    else:
        from tacit.cli.console import show_checks

        show_checks(checks)
    raise typer.Exit(0 if well else 1)


@app.command(name="version", help="Print the version.\n\n\b\nExample:\n  tacit version")
def print_version() -> None:
    """Prints the version."""
    from tacit import __version__

    typer.echo(f"tacit {__version__}")


# From options to values.


def _privacy(
    agent: AgentChoice, model: str, epsilon: str | None, delta: str | None, sampler: str
) -> Privacy:
    """The model and budget of one agent: its own where its text has one."""
    from tacit.privacy.models import JointDP, LocalDP, NonPrivate
    from tacit.registry import number

    _check_choice("--privacy", model, _MODELS)
    _check_choice("--sampler", sampler, _SAMPLERS)
    kind = agent.budget.get("privacy", model)
    if kind == "none":
        return NonPrivate()
    budget = {"sampler": agent.budget.get("sampler", sampler)}
    for name, text, example in (("epsilon", epsilon, "1"), ("delta", delta, "1e-6")):
        if name in agent.budget:
            budget[name] = agent.budget[name]
        elif text is not None:
            budget[name] = number(name, text)
        else:
            raise InvalidArgument(
                f"--{name} is missing: {kind} privacy needs a budget, as --{name} {example}; "
                "--privacy none runs without any"
            )
    return JointDP(**budget) if kind == "joint" else LocalDP(**budget)


def _check_choice(name: str, text: str, allowed: Sequence[str]) -> None:
    if text not in allowed:
        raise InvalidArgument(f"{name} is {text!r}, but must be one of {', '.join(allowed)}")


def _seeds(first: str, count: str) -> list[int]:
    from tacit.registry import whole_number

    start = whole_number("seed", first, least=0)
    return list(range(start, start + whole_number("seeds", count)))


def _workers(text: str | None) -> int:
    from tacit.registry import whole_number

    if text is not None:
        return whole_number("workers", text)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _compare(
    world: str,
    lines: Sequence[tuple[str, AgentChoice, Privacy]],
    users: str,
    seeds: tuple[str, str],
    workers: str | None,
    plot: str | None,
    save: str | None,
) -> Comparison:
    """Runs what was asked for and writes the files; refuses before it runs."""
    from tacit.registry import build_world, whole_number
    from tacit.simulation.compare import Contender, compare

    declared, runs, processes = whole_number("users", users), _seeds(*seeds), _workers(workers)
    _check_files(plot, save, len(lines))
    entries: list[Line] = [Contender(*line) for line in lines]
    built = build_world(world)
    with _interruptible():
        made = compare(built, entries, declared, runs, processes, text=world)
    if save is not None:
        made.save(save)
    if plot is not None:
        made.plot(plot)
    return made


def _check_files(plot: str | None, save: str | None, lines: int) -> None:
    """Refuses files that cannot be written, before anything is run."""
    from tacit.simulation.plots import PALETTE

    if plot is not None:
        _check_png("--plot", plot)
        if lines > len(PALETTE):
            raise InvalidArgument(
                f"--plot shows at most {len(PALETTE)} lines, but {lines} are compared"
            )
    _check_writable("--plot", plot)
    _check_writable("--save", save)


def _figures() -> Mapping[str, str]:
    """The figures by name, from the clone that this package is in."""
    clone = Path(__file__).parents[3]
    if (clone / "research" / "figure_names.py").is_file() and str(clone) not in sys.path:
        sys.path.insert(0, str(clone))
    try:
        names: Mapping[str, str] = import_module("research.figure_names").FIGURES
    except ModuleNotFoundError:
        raise InvalidArgument(
            "figures are drawn from a clone of the repository, where research/ is: the installed "
            "package has none; tacit compare and tacit run --plot draw your own"
        ) from None
    return names


def _check_png(name: str, text: str) -> None:
    """Refuses the name of a picture that is none."""
    from tacit.simulation.figures import png

    try:
        png(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name} {error}") from None


def _check_writable(name: str, text: str | None) -> None:
    """Refuses a file that cannot be written."""
    if text is None:
        return
    path = Path(text)
    if path.is_dir():
        raise InvalidArgument(f"{name} is {text!r}, which is a folder")
    if not path.parent.is_dir():
        raise InvalidArgument(f"{name} is {text!r}, but there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InvalidArgument(
            f"{name} is {text!r}, which cannot be written: {error.strerror}"
        ) from None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the processes of a run, which would else finish all seeds first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import active_children

    def stop(number: int, frame: object) -> None:
        for child in active_children():
            child.terminate()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# Output.


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def _show_files(plot: str | None, save: str | None) -> None:
    for what, path in (("The picture is", plot), ("The results are in", save)):
        if path is not None:
            typer.echo(f"{what} {path}")


def _described(entry: Entry) -> dict[str, Any]:
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


def _shown_world(name: str) -> dict[str, Any]:
    from tacit import registry

    kind = name.partition(":")[0]
    file = Path(name).suffix.lower() in registry.WORLD_FILES
    found = {"name": name, "summary": "", "options": [], "document": ""}
    entry = None if file else registry.world_entry(kind)
    if entry is not None:
        found = _described(entry) | {"document": entry.document}
        needs = kind in registry.GYM or any(option.required for option in entry.options.values())
        if name == kind and needs:
            return found
    world = registry.build_world(name)
    spec = world.spec
    values = ("optimal_value", "baseline_value", "reference_value")
    names = ("states", "dimension", "actions", "controls", "horizon")
    sizes = {size: getattr(spec, size) for size in names if hasattr(spec, size)}
    figures = {key: _known(float(getattr(world, key))) for key in values}
    return found | {"world": world.name} | sizes | figures


def _shown_agent(name: str) -> dict[str, Any]:
    from tacit import registry

    entry = registry.agent_entry(registry.choose_agent(name).text.partition(":")[0])
    return _described(entry) | {"document": entry.document}


def _known(value: float) -> float | None:
    return value if value == value else None


if __name__ == "__main__":
    main()
