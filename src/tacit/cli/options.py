"""What several commands ask for, and how words on the command line become values.

Numbers arrive as text, so that ``1e6`` users and a refusal in our own words are possible.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.core.texts import number, whole_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy as PrivacyModel
    from tacit.registry import AgentChoice

PICTURES = (".png", ".pdf", ".svg")
"""How the names of pictures end."""

RESULTS = (".json", ".csv", ".parquet")
"""How the names of results end, as in :mod:`tacit.simulation.tables`, which is slow to load."""

_MODELS, _NAMED = ("joint", "local", "distributed", "none"), "NAME[:key=value,...]"


def asked(metavar: str, words: str, *names: str) -> Any:
    """What a command may be given, as a text."""
    return typer.Option(*names, metavar=metavar, help=words)


def flag(words: str, *names: str) -> Any:
    """What a command may be told to do."""
    return typer.Option(*names, help=words)


def given(metavar: str, words: str) -> Any:
    """What a command is about."""
    return typer.Argument(metavar=metavar, help=words)


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
        "|".join(_MODELS),
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
AtDelta = Annotated[str | None, asked("NUMBER", "At which delta. \\[default: what was declared]")]
Json = Annotated[bool, flag("Print one JSON object.", "--json")]
Plot = Annotated[
    str | None, asked("FILE", "Draw regret and values, as PNG, PDF or SVG by the name's end.")
]
Save = Annotated[
    str | None,
    asked("FILE", "Write every release of every run, as JSON, CSV or Parquet by the name's end."),
]


# From words to values.


def chosen_privacy(
    agent: AgentChoice, model: str, epsilon: str | None, delta: str | None, *, alone: bool = True
) -> PrivacyModel:
    """The model and budget of one agent: its own where its text has one.

    If it is ``alone``, a second budget is of use to nobody, and is named.
    """
    from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate

    check_choice("--privacy", model, _MODELS)
    kind = agent.budget.get("privacy", model)
    if kind == "none":
        return NonPrivate()
    budget: dict[str, Any] = {}
    for name, text, example in (("epsilon", epsilon, "1"), ("delta", delta, "1e-6")):
        if name in agent.budget:
            budget[name] = agent.budget[name]
            if alone and text is not None and number(name, text) != budget[name]:
                typer.echo(
                    f"tacit: warning: {name} is given twice; {agent.text} runs with its own, "
                    f"{budget[name]:g}",
                    err=True,
                )
        elif text is not None:
            budget[name] = number(name, text)
        else:
            raise InvalidArgument(
                f"--{name} is missing: {kind} privacy needs a budget, as --{name} {example}; "
                "--privacy none runs without any"
            )
    models: dict[str, type[PrivacyModel]] = {"joint": JointDP, "local": LocalDP}
    return (models | {"distributed": DistributedDP})[kind](**budget)


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


def optional_number(name: str, text: str | None) -> float | None:
    """A number, or nothing where none was given."""
    return None if text is None else number(name, text)


def optional_whole_number(name: str, text: str | None, least: int = 1) -> int | None:
    """A whole number, or nothing where none was given."""
    return None if text is None else whole_number(name, text, least=least)


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
        raise InvalidArgument(
            f"{name} is {text!r}, which cannot be written: {error.strerror}"
        ) from None
