"""What several commands ask for, and how words on the command line become values.

Numbers arrive as text, so that ``1e6`` users and a refusal in our own words are possible.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.errors import Commands
from tacit.options import number, whole_number
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import open_regular

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy as PrivacyModel
    from tacit.registry import AgentChoice
    from tacit.store.store import Store as Database

PICTURES = (".png", ".pdf", ".svg")
"""How the names of pictures end."""

RESULTS = (".json",)
"""How the names of results end, as in :mod:`tacit.simulation.tables`, which is slow to load."""

MODELS, _NAMED = ("joint", "local", "distributed", "none"), "NAME[:key=value,...]"


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def asked(metavar: str, words: str, *names: str) -> Any:
    """An option with a value."""
    return typer.Option(*names, metavar=metavar, help=words)


def flag(words: str, *names: str) -> Any:
    """An option without a value."""
    return typer.Option(*names, help=words)


def given(metavar: str, words: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=words)


def command(app: typer.Typer = app, group: str = "") -> Callable[[Any], Any]:
    """Decorator that adds a command, with the help that ``help.md`` has of it."""

    def added(function: Callable[..., None]) -> Callable[..., None]:
        called = function.__name__.strip("_")
        text = texts("help.md")[f"{group} {called}".strip()]
        app.command(called, help=text.replace("[", "\\["))(function)  # no markup
        return function

    return added


@cache
def texts(file: str) -> dict[str, str]:
    """Sections of a file beside this one, by title; lines of examples are kept."""
    found = {}
    for section in Path(__file__).with_name(file).read_text(encoding="utf-8").split("\n## ")[1:]:
        name, *parts = section.strip().split("\n\n")
        lines = (f"\b\n{part}" if "\n  " in part else " ".join(part.split()) for part in parts)
        found[name] = "\n\n".join(lines)
    return found


_WORLD = asked(
    _NAMED,
    "A world of tacit show, a .toml or .json file, an environment as gym:CartPole-v1, or what "
    "makes one, as my_file.py:make.",
)
World = Annotated[str, _WORLD]
OptionalWorld = Annotated[str | None, _WORLD]
_AGENT = asked(
    _NAMED,
    "An agent of tacit show, with its options, as ucbvi:stationary=true, or your own, as "
    "my_file.py:MyAgent; auto is chosen by what is known of the world and by the budget, and says "
    "why.",
)
Agent = Annotated[str, _AGENT]
Agents = Annotated[list[str], _AGENT]
Privacy = Annotated[
    str,
    asked(
        "|".join(MODELS),
        "Whom users trust: joint (a curator), local (their own device), distributed (a secure sum "
        "over devices, 95 % of them honest), none (no guarantee).",
    ),
]
Epsilon = Annotated[
    str | None, asked("NUMBER", "Budget of one user; must be given unless not private.")
]
Epsilons = Annotated[
    list[str] | None, asked("NUMBER", "Budget of one user; can be given several times.")
]
Delta = Annotated[
    str | None, asked("NUMBER", "Budget of one user, 0 for pure; must be given unless not private.")
]
Users = Annotated[
    str | None,
    asked(
        "N",
        "Users that are served, as 1000000 or 1e6. \\[default: 1e6, or as many as take 1e6 steps "
        "in an environment that is stepped one by one]",
    ),
]
Seeds = Annotated[str, asked("N", "How many runs.")]
Seed = Annotated[str, asked("N", "The first run's seed; then it counts.")]
Workers = Annotated[str | None, asked("N", "Processes at a time. \\[default: one per processor]")]
AllowCode = Annotated[
    bool, flag("Import and run what the file names as my_file.py:X or my_module.X.", "--allow-code")
]
Store = Annotated[str, given("STORE", "A store: its file, or its URL, postgresql://...")]
Json = Annotated[bool, flag("Print one JSON object.", "--json")]
Plot = Annotated[
    str | None, asked("FILE", "Draw regret and values, as PNG, PDF or SVG by the name's end.")
]
Save = Annotated[
    str | None,
    asked("FILE", "Write every run as JSON, or their releases as CSV, by the name's end."),
]


# From words to values.


def privacy_model(kind: str, epsilon: Any, delta: Any) -> PrivacyModel:
    """A model by its name."""
    from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate

    check_choice("privacy", kind, MODELS)
    models = {"joint": JointDP, "local": LocalDP, "distributed": DistributedDP}
    return NonPrivate() if kind == "none" else models[kind](epsilon, delta)


def chosen_privacy(
    agent: AgentChoice, model: str, epsilon: str | None, delta: str | None
) -> PrivacyModel:
    """The model and budget of one agent.

    Args:
        agent: The agent; a budget in its own text comes first.
        model: Name of the trust model.
        epsilon: As text; ``None`` where it was not given.
        delta: As text; ``None`` where it was not given.
    """
    check_choice("--privacy", model, MODELS)
    kind, budget = agent.budget.get("privacy", model), list[float | None]()
    for name, text, example in (("epsilon", epsilon, "1"), ("delta", delta, "1e-6")):
        own = agent.budget.get(name)
        if kind == "none":
            budget.append(None)
        elif own is None and text is None:
            raise InvalidArgument(
                f"--{name} is missing: {kind} privacy needs a budget, as --{name} {example}; "
                "--privacy none runs without any"
            )
        else:
            budget.append(number(name, str(text)) if own is None else own)
    return privacy_model(kind, *budget)


def seeds_from(first: str, count: str) -> list[int]:
    """The seeds of several runs."""
    start = whole_number("seed", first, least=0)
    return list(range(start, start + whole_number("seeds", count)))


def worker_count(text: str | None) -> int:
    """How many processes may run at a time; by default one per processor that we may use."""
    if text is not None:
        return whole_number("workers", text)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def optional_whole_number(name: str, text: str | None, least: int = 1) -> int | None:
    """A whole number, or nothing where none was given."""
    return None if text is None else whole_number(name, text, least=least)


# Stores.


def open_store(where: str, *, make: bool = False) -> Database:
    """A store that is there, unless it may be made; nothing else is touched."""
    from tacit.store.store import Store

    if "://" not in where and not (make and not os.path.lexists(where)):
        with open(open_regular(where), "rb") as file:
            first = file.read(16)
        if first != b"SQLite format 3\0":
            raise CorruptFile(f"{where!r} is no store; files of release 0.1 are not read")
    return Store(where)


def store_name(where: str) -> str:
    """A store's file or URL as it may be printed: without a password."""
    if "://" not in where:
        return where
    import sqlalchemy

    return sqlalchemy.make_url(where).render_as_string(hide_password=True)


# What is refused before anything runs.


def check_choice(name: str, text: str, allowed: Sequence[str]) -> None:
    """Refuses a word that is none of those allowed."""
    if text not in allowed:
        raise InvalidArgument(f"{name} is {text!r}, but must be one of {', '.join(allowed)}")


def check_outputs(plot: str | None, save: str | None) -> None:
    """Refuses a picture or a file of results that cannot be written."""
    check_writable("--plot", plot, endings=PICTURES)
    check_writable("--save", save, endings=RESULTS)


def check_writable(name: str, text: str | None, *, endings: Sequence[str] = ()) -> None:
    """Refuses a file that cannot be written, or whose name has none of the endings."""
    if text is None:
        return
    path = Path(text)
    if endings and path.suffix.lower() not in endings:
        raise InvalidArgument(f"{name} is {text!r}, but must end in {', '.join(endings)}")
    if path.is_dir():
        raise InvalidArgument(f"{name} is {text!r}, which is a folder")
    if not path.parent.is_dir():
        raise InvalidArgument(f"{name} is {text!r}, but there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        why = f"which cannot be written: {error.strerror}"
        raise InvalidArgument(f"{name} is {text!r}, {why}") from None
