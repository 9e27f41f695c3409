"""``tacit audit``: measures how much one user's data changes in what an agent publishes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import command, count, flag, given, print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice

_BLOCK, _BLOCKS = 40, 4  # few and small, because an audited agent runs thousands of times


@command()
def _audit(
    agent: Annotated[str, given("AGENT", "An agent of tacit show.")],
    world: terminal.World,
    epsilon: terminal.Epsilon = None,
    delta: terminal.Delta = None,
    privacy: terminal.Privacy = "joint",
    users: Annotated[int | None, count("Users of a run. \\[default: small blocks]")] = None,
    runs: Annotated[int | None, count("Runs with each user. \\[default: 1000]", least=20)] = None,
    seed: Annotated[int, count("Of users and attack.", least=0)] = 0,
    quick: Annotated[bool, flag("Fewer runs, and no checks of behaviour.", "--quick")] = False,
    as_json: terminal.Json = False,
) -> None:
    from tacit.registry import build_world, choose_agent
    from tacit.testing.audit_agent import FALSE_ALARM, audit_agent

    choice, place = choose_agent(agent), build_world(world)
    model = terminal.chosen_privacy(choice, privacy, epsilon, delta)
    make, served = audited(choice, place, model, users)
    several = runs or (150 if quick else 1000)
    made = audit_agent(
        make, place, users=served, runs=several, seed=seed, behaviour=not quick, long=longer(world)
    )
    if as_json:
        print_json(made.to_dict())
    else:
        say(f"Audit of {made.agent} on {made.world}")
        terminal.print_facts(made.words())
        if made.outcomes:
            checks = [
                (outcome.name, outcome.verdict, outcome.reason or "") for outcome in made.outcomes
            ]
            print_table(("check", "", ""), checks)
        for failure in made.failures:
            say(f"Wrong: {failure}.")
        say(
            f"Verdict: {'pass' if made.passed else 'FAIL'}. An agent that does what it says fails "
            f"with a probability below {FALSE_ALARM:g}."
        )
    raise typer.Exit(0 if made.passed else 1)


def longer(world: str) -> World | None:
    """The same world with 60 steps, if it can have as many."""
    from tacit.registry import build_world

    name, _, given = world.partition(":")
    kept = [
        o for o in given.split(",") if o and o.partition("=")[0] not in ("horizon", "decisions")
    ]
    for steps in ("horizon=60", "decisions=60"):
        with contextlib.suppress(InvalidArgument, TypeError):
            return build_world(f"{name}:{','.join([*kept, steps])}")
    return None


def audited(
    choice: AgentChoice, world: World, privacy: Privacy, users: int | None = None
) -> tuple[Callable[..., Any], int]:
    """Constructor of the audited agents, and how many users each serves.

    Args:
        choice: The agent.
        world: A small world.
        privacy: The trust model with its budget.
        users: By default those of four small blocks, or where the agent has no choice of schedule
            as many as make three.
    """
    make = partial(choice.make, privacy=privacy, **choice.options)
    if users is not None or "schedule" in choice.options:
        return make, users or _BLOCK * _BLOCKS
    small = partial(make, schedule=f"fixed:size={_BLOCK}")
    try:
        small(world.spec, users=_BLOCK * _BLOCKS, seed=0, noise_seed=0)
        return small, _BLOCK * _BLOCKS
    except (InvalidArgument, TypeError):
        for power in range(2, 21):
            agent = make(world.spec, users=2**power, seed=0, noise_seed=0)
            releases = getattr(getattr(agent, "schedule", None), "releases", 0)
            if releases >= 3:
                return make, 2**power
            if releases and agent.algorithm.offline:
                return make, _BLOCK * int(releases)
    raise InvalidArgument("this agent publishes less than three times: give users or a schedule")
