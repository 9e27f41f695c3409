"""``tacit paper``: the five papers, and their algorithms line by line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, flag, given
from tacit.cli.output import print_table, say
from tacit.options import number, whole_number
from tacit.privacy.errors import InvalidArgument

_GIVEN = ("world", "epsilon", "delta", "printed", "seed")


@command()
def _paper(
    name: Annotated[str, given("PAPER[.ALGORITHM[:key=value,...]]", "Which one.")] = "",
    world: options.OptionalWorld = None,
    users: Annotated[
        str, asked("N", "Users, one episode each; Algorithm 1 of 2019 has 20,000 steps.")
    ] = "1000",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    printed: Annotated[
        bool, flag("Constants and noise as printed, or as proven.", "--printed/--corrected")
    ] = True,
    seed: Annotated[str, asked("N", "Of users and noise.")] = "0",
) -> None:
    from tacit import papers
    from tacit.cli.show import plain
    from tacit.registry import NamedMaker, build_world

    text, _, rest = name.partition(":")
    paper, _, algorithm = text.partition(".")
    if not paper:
        print_table(("paper", "algorithms"), [(p, _names(p)) for p in papers.__all__])
        return
    options.check_choice("the paper", paper, papers.__all__)
    if algorithm:
        options.check_choice("the algorithm", algorithm, list(_algorithms(paper)))
    if world is None:
        about = _algorithms(paper)[algorithm] if algorithm else getattr(papers, paper)
        say(plain(inspect.getdoc(about) or "").partition("\n>>>")[0].rstrip(), as_it_is=True)
        say(f"To run: tacit paper {paper}.ALGORITHM --world ..., of {_names(paper)}")
        return
    if not algorithm or epsilon is None or delta is None:
        raise InvalidArgument("a run needs an algorithm, --epsilon and --delta; see tacit paper")
    maker = NamedMaker(text, f"tacit.papers.{paper}:{algorithm}", (*_GIVEN, "episodes"))
    more: dict[str, Any] = maker.read(rest)
    if "episodes" in inspect.signature(maker.make).parameters:
        more["episodes"] = whole_number("users", users)
    more |= {"printed": printed, "seed": whole_number("seed", seed, least=0)}
    budget = number("epsilon", epsilon), number("delta", delta)
    typer.echo(maker.make(build_world(world), epsilon=budget[0], delta=budget[1], **more))


def _algorithms(paper: str) -> dict[str, Callable[..., Any]]:
    """The functions of a paper that run in a world, by name."""
    from tacit import papers

    found = inspect.getmembers(getattr(papers, paper), inspect.isfunction)
    return {name: f for name, f in found if set(_GIVEN) <= inspect.signature(f).parameters.keys()}


def _names(paper: str) -> str:
    return ", ".join(_algorithms(paper))
