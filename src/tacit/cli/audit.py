"""``tacit audit``: what one user's data really changes in what an agent publishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.testing.audit_agent import AgentAudit

# Blocks of an audited agent: few and small, because it runs thousands of times. The mechanism is
# the same for blocks of any size.
_BLOCK, _BLOCKS = 40, 4
_RUNS, _QUICK_RUNS = 1000, 150


def audit_command(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent of tacit show.")],
    world: options.World,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: Annotated[
        str | None, asked("N", "Users of a run. \\[default: a few small blocks]")
    ] = None,
    runs: Annotated[
        str | None, asked("N", "Runs with each of the two users. \\[default: 1000]")
    ] = None,
    seed: Annotated[str, asked("N", "Of users and attack.")] = "0",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, and no checks of behaviour.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Audits one agent."""
    from tacit.options import whole_number
    from tacit.registry import build_world, choose_agent

    choice = choose_agent(agent)
    model = options.chosen_privacy(choice, privacy, epsilon, delta)
    made = audit_choice(
        choice,
        build_world(world),
        model,
        users=options.optional_whole_number("users", users),
        runs=options.optional_whole_number("runs", runs, least=20),
        quick=quick,
        seed=whole_number("seed", seed, least=0),
    )
    if as_json:
        print_json(made.to_dict())
    else:
        _show(made)
    raise typer.Exit(0 if made.passed else 1)


def audit_choice(
    choice: AgentChoice,
    world: World,
    privacy: Privacy,
    *,
    users: int | None = None,
    runs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> AgentAudit:
    """Audits the agent of a text in a small world; see :func:`tacit.audit_agent`.

    By default it serves four blocks of forty users, or where it has no choice of schedule as many
    as make three. ``quick`` is fewer runs, and no checks of behaviour that take long.
    """
    from tacit.testing.audit_agent import audit_agent

    make, count = maker(choice, world, privacy, users)
    return audit_agent(
        make,
        world,
        users=count,
        runs=runs or (_QUICK_RUNS if quick else _RUNS),
        seed=seed,
        behaviour=not quick,
        progress=progress,
    )


def maker(
    choice: AgentChoice, world: World, privacy: Privacy, users: int | None = None
) -> tuple[Callable[..., Any], int]:
    """What makes the audited agents, and for how many users."""
    options = dict(choice.options)
    make = partial(choice.make, privacy=privacy, **options)
    if users is not None or "schedule" in options:
        return make, users or _BLOCK * _BLOCKS
    small = partial(make, schedule=f"fixed:size={_BLOCK}")
    try:
        small(world.spec, users=_BLOCK * _BLOCKS, seed=0, noise_seed=0)
        return small, _BLOCK * _BLOCKS
    except (InvalidArgument, TypeError):  # its own schedule: as few users as make three blocks
        for power in range(2, 21):
            agent = make(world.spec, users=2**power, seed=0, noise_seed=0)
            releases = getattr(getattr(agent, "schedule", None), "releases", 0)
            if releases >= 3:
                return make, 2**power
            if releases and agent.algorithm.offline:
                return make, _BLOCK * int(releases)
    raise InvalidArgument("this agent publishes less than three times: give users or a schedule")


def _show(made: AgentAudit) -> None:
    """What was claimed, what was measured, and the verdict."""
    from tacit.testing.audit_agent import FALSE_ALARM

    say(f"Audit of {made.agent} on {made.world}")
    print_table(("", ""), list(made.words().items()))
    if made.outcomes:
        short = {"passed": "ok"}
        checks = [(o.name, short.get(o.verdict, o.verdict), o.reason or "") for o in made.outcomes]
        print_table(("check", "", ""), checks)
    for failure in made.failures:
        say(f"Wrong: {failure}.")
    say(
        f"Verdict: {'pass' if made.passed else 'FAIL'}. An agent that does what it says fails with "
        f"a probability below {FALSE_ALARM:g}.",
    )
