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

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy as PrivacyModel
    from tacit.registry import AgentChoice

_MODELS = ("joint", "local", "distributed", "none")

PICTURES = (".png", ".pdf", ".svg")
"""How the names of pictures end."""

RESULTS = (".json", ".csv", ".parquet")
"""How the names of results end, as in :mod:`tacit.simulation.tables`, which is slow to load."""

_NAMED = "NAME[:key=value,...]"


def asked(metavar: str, words: str, *names: str) -> Any:
    """What a command may be given, as a text."""
    return typer.Option(*names, metavar=metavar, help=words)


World = Annotated[
    str,
    asked(
        _NAMED,
        "A world of tacit list, a .toml or .json file, an environment as gym:CartPole-v1, or what "
        "makes one, as my_file.py:make.",
    ),
]
Agent = Annotated[
    str,
    asked(
        _NAMED,
        "An agent of tacit list, with its options, as ucbvi:stationary=true, or your own, as "
        "my_file.py:MyAgent; auto is chosen by what is known of the world and by the budget, and "
        "says why.",
    ),
]
Agents = Annotated[list[str], asked(_NAMED, "An agent, or auto; give it several times.")]
OptionalWorld = Annotated[str | None, asked(_NAMED, "The world; or else its sizes.")]
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
TensorBoard = Annotated[
    str | None, asked("FOLDER", "Write values for TensorBoard, a folder per run.")
]
Seeds = Annotated[str, asked("N", "How many runs.")]
Seed = Annotated[str, asked("N", "The first run's seed; then it counts.")]
Workers = Annotated[str | None, asked("N", "Processes at a time. \\[default: one per processor]")]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", help="Import and run what the file names as my_file.py:X or my_module.X."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Plot = Annotated[
    str | None, asked("FILE", "Draw regret and values, as PNG, PDF or SVG by the name's end.")
]
Save = Annotated[
    str | None,
    asked("FILE", "Write every release of every run, as JSON, CSV or Parquet by the name's end."),
]


# From words to values.


def chosen_privacy(
    agent: AgentChoice,
    model: str,
    epsilon: str | None,
    delta: str | None,
    *,
    alone: bool = True,
) -> PrivacyModel:
    """The model and budget of one agent: its own where its text has one.

    If it is ``alone``, a second budget is of use to nobody, and is named.
    """
    from tacit.core.texts import number
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
    if kind == "distributed":
        return DistributedDP(budget["epsilon"], budget["delta"])
    return JointDP(**budget) if kind == "joint" else LocalDP(**budget)


def seeds_from(first: str, count: str) -> list[int]:
    """The seeds of several runs."""
    from tacit.core.texts import whole_number

    start = whole_number("seed", first, least=0)
    return list(range(start, start + whole_number("seeds", count)))


def worker_count(text: str | None) -> int:
    """How many processes may run at a time; by default one per processor that we may use."""
    from tacit.core.texts import whole_number

    if text is not None:
        return whole_number("workers", text)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def optional_whole_number(name: str, text: str | None, least: int = 1) -> int | None:
    """A whole number, or nothing where none was given."""
    from tacit.core.texts import whole_number

    return None if text is None else whole_number(name, text, least=least)


# What is refused before anything runs.


def check_choice(name: str, text: str, allowed: Sequence[str]) -> None:
    """Refuses a word that is none of those allowed."""
    if text not in allowed:
        raise InvalidArgument(f"{name} is {text!r}, but must be one of {', '.join(allowed)}")


def folder(text: str) -> str:
    """A folder to write to, which may have to be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise InvalidArgument(f"--tensorboard is {text!r}, which is no folder")
    check_writable("--tensorboard", str(path / "x" if path.exists() else path))
    return text


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
