"""``tacit audit``: measures how much one user's data changes in what an agent publishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, flag, given
from tacit.cli.output import print_json, print_table, say
from tacit.options import whole_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice

# Blocks of an audited agent: few and small, because it runs thousands of times. The mechanism is
# the same for blocks of any size.
_BLOCK, _BLOCKS = 40, 4


@command()
def _audit(
    agent: Annotated[str, given("AGENT", "An agent of tacit show.")],
    world: options.World,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: Annotated[str | None, asked("N", "Users of a run. \\[default: small blocks]")] = None,
    runs: Annotated[str | None, asked("N", "Runs with each user. \\[default: 1000]")] = None,
    seed: Annotated[str, asked("N", "Of users and attack.")] = "0",
    quick: Annotated[bool, flag("Fewer runs, and no checks of behaviour.", "--quick")] = False,
    as_json: options.Json = False,
) -> None:
    from tacit.registry import build_world, choose_agent
    from tacit.testing.audit_agent import FALSE_ALARM, audit_agent

    choice, place = choose_agent(agent), build_world(world)
    model = options.chosen_privacy(choice, privacy, epsilon, delta)
    make, count = audited(choice, place, model, options.optional_whole_number("users", users))
    made = audit_agent(
        make,
        place,
        users=count,
        runs=options.optional_whole_number("runs", runs, least=20) or (150 if quick else 1000),
        seed=whole_number("seed", seed, least=0),
        behaviour=not quick,
    )
    if as_json:
        print_json(made.to_dict())
        raise typer.Exit(0 if made.passed else 1)
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
    raise typer.Exit(0 if made.passed else 1)


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
    options = dict(choice.options)
    make = partial(choice.make, privacy=privacy, **options)
    if users is not None or "schedule" in options:
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
