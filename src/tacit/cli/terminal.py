"""Options that several commands take, the values that their words become, and what is printed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import open_regular
from tacit.privacy.validation import one_of, whole_number

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy as PrivacyModel
    from tacit.registry import AgentChoice
    from tacit.store.store import Store as Database

COMMANDS: dict[str, Callable[..., None]] = {}  # by name, behind that of their group
_MODELS, _NAMED = ("joint", "local", "distributed", "none"), "NAME[:key=value,...]"


def command(group: str = "") -> Callable[[Any], Any]:
    """Decorator that adds a command; ``help.md`` has its help."""

    def added(function: Callable[..., None]) -> Callable[..., None]:
        COMMANDS[f"{group} {function.__name__.strip('_')}".strip()] = function
        return function

    return added


# Options.


def asked(metavar: str, words: str, *names: str) -> Any:
    """An option with a value."""
    return typer.Option(*names, metavar=metavar, help=words)


def count(words: str, least: int = 1) -> Any:
    """An option that is a whole number, as 1000 or 1e6."""
    return _numeric("N", words, lambda x: whole_number("it", x, least=least, most=10**18))


def amount(words: str) -> Any:
    """An option that is a number."""
    return _numeric("NUMBER", words, float)


def _numeric(metavar: str, words: str, convert: Callable[[float], Any]) -> Any:
    def parsed(text: Any) -> Any:
        from tacit.registry import number

        try:
            return convert(number(str(text)))
        except InvalidArgument as error:  # Typer says of which option
            raise typer.BadParameter(str(error)) from None

    return typer.Option(metavar=metavar, help=words, parser=parsed)


def flag(words: str, *names: str) -> Any:
    """An option without a value."""
    return typer.Option(*names, help=words)


def given(metavar: str, words: str) -> Any:
    """An argument."""
    return typer.Argument(metavar=metavar, help=words)


_WORLD = asked(
    _NAMED, "A world of tacit show, a .toml or .json file, gym:CartPole-v1, or my_file.py:make."
)
World = Annotated[str, _WORLD]
OptionalWorld = Annotated[str | None, _WORLD]
_AGENT = asked(
    _NAMED, "An agent of tacit show, as ucbvi:scale=2, or my_file.py:MyAgent; auto chooses one."
)
Agent = Annotated[str, _AGENT]
Agents = Annotated[list[str], _AGENT]
_TRUST = "Whom users trust: a curator, their device, a secure sum, or nobody (no guarantee)."
Privacy = Annotated[str, asked("|".join(_MODELS), _TRUST)]
_EPSILON = amount("Budget of one user; must be given unless not private.")
Epsilon = Annotated[float | None, _EPSILON]
Epsilons = Annotated[list[float] | None, _EPSILON]
Delta = Annotated[float | None, amount("Budget of one user, 0 for pure; as --epsilon.")]
Seeds = Annotated[int, count("How many runs.")]
Seed = Annotated[int, count("The first run's seed; then it counts.", least=0)]
Workers = Annotated[int | None, count("Processes at a time. \\[default: one per processor]")]
AllowCode = Annotated[bool, flag("Import and run code that the file names.", "--allow-code")]
Store = Annotated[str, given("STORE", "A store: its file, or its URL, postgresql://...")]
Json = Annotated[bool, flag("Print one JSON object.", "--json")]
Plot = Annotated[str | None, asked("FILE", "Draw regret and values, as .png, .pdf or .svg.")]
Save = Annotated[str | None, asked("FILE", "Write every run as .json, or releases as .csv.")]


# From words to values.


def privacy_model(kind: str, epsilon: Any, delta: Any) -> PrivacyModel:
    """A model by its name."""
    from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate

    models: dict[str, Any] = {"joint": JointDP, "local": LocalDP, "distributed": DistributedDP}
    if one_of("privacy", kind, _MODELS) == "none":
        return NonPrivate()
    if epsilon is None or delta is None:
        raise InvalidArgument(f"{kind} privacy needs a budget, as --epsilon 1 --delta 1e-6")
    made: PrivacyModel = models[kind](epsilon, delta)
    return made


def chosen_privacy(
    agent: AgentChoice, model: str, epsilon: float | None, delta: float | None
) -> PrivacyModel:
    """The model and budget of one agent.

    Args:
        agent: The agent; a budget in its own text comes first.
        model: Name of the trust model.
        epsilon: If it was given.
        delta: If it was given.
    """
    budget = {"privacy": model, "epsilon": epsilon, "delta": delta} | dict(agent.budget)
    own = agent.budget if "privacy" in agent.budget else budget
    if budget["privacy"] == "none" and (own.get("epsilon") or own.get("delta") is not None):
        raise InvalidArgument("--privacy none has no budget: leave --epsilon and --delta out")
    return privacy_model(budget["privacy"], budget["epsilon"], budget["delta"])


def open_store(where: str, *, make: bool = False) -> Database:
    """A store that is there, unless it may be made; nothing else is touched."""
    from tacit.store.store import Store

    if "://" not in where and not (make and not os.path.lexists(where)):
        with open(open_regular(where), "rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise CorruptFile(f"{where!r} is no store")
    key = os.environ.get("TACIT_STORE_KEY")
    return Store(where, secret=key.encode() if key else None)


def store_name(where: str) -> str:
    """A store's file or URL as it may be printed: without a password."""
    from sqlalchemy import make_url

    return make_url(where).render_as_string(hide_password=True) if "://" in where else where


def check_outputs(plot: str | None, save: str | None) -> None:
    """Refuses a picture or a file of results that cannot be written."""
    check_writable("the picture", plot, (".png", ".pdf", ".svg"))
    check_writable("the file of results", save, (".json",))


def check_writable(name: str, text: str | None, endings: Sequence[str] = ()) -> None:
    """Refuses a file that cannot be written, or whose name has none of the endings."""
    if text is None:
        return
    path = Path(text)
    if endings and path.suffix.lower() not in endings:
        raise InvalidArgument(f"{name} is {text!r}, but must end in {', '.join(endings)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidArgument(f"{name} is {text!r}, which cannot be written")


# Printing.


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one object; what is no number in JSON is a mistake of ours."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def print_facts(facts: Mapping[str, Any], as_json: bool = False) -> None:
    """Prints names and values: as one object, or as a table."""
    if as_json:
        print_json(facts)
    else:
        print_table(("", ""), [(name, str(value)) for name, value in facts.items()])


def say(text: str, *, as_it_is: bool = False) -> None:
    """Prints a paragraph, as wide as the terminal; or as it is, where it has its line breaks."""
    _print(text + "\n", soft_wrap=as_it_is)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table: columns of figures to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(titles))
    for place, title in enumerate(titles):
        words = any(row[place][:1].isalpha() and row[place][:3] != "not" for row in rows)
        figures = place > 0 and not words
        drawn.add_column(Text(title), justify="right" if figures else "left", no_wrap=figures)
    for row in rows:
        drawn.add_row(*map(Text, row))
    _print(drawn)


def _print(*what: Any, **how: Any) -> None:
    from rich.console import Console  # slow to load

    # Made when needed: standard output may have been replaced since the last time.
    Console(highlight=False, markup=False).print(*what, **how)


def at_most(number: float, *, least: bool = False) -> str:
    """Six digits, rounded up, or down if ``least``, but for what conversions are off by.

    >>> at_most(1.0000049), at_most(1.0000000000001), at_most(0.9999999, least=True)
    ('1.00001', '1', '0.999999')
    """
    sign, rounding = (1.0, ROUND_FLOOR) if least else (-1.0, ROUND_CEILING)
    digits = Context(prec=6, rounding=rounding).create_decimal(repr(number * (1.0 + sign * 1e-9)))
    return f"{float(digits):.6g}"
