"""``tacit audit``: what one user's data really changes in what an agent publishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.audit.audit_report import AgentAudit
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.simulation.progress import Progress

# Blocks of an audited agent: few and small, because it runs thousands of times. The mechanism is
# the same for blocks of any size.
_BLOCK, _BLOCKS = 40, 4
_RUNS, _QUICK_RUNS = 1000, 150


def audit_choice(
    choice: AgentChoice,
    world: World,
    privacy: Privacy,
    *,
    users: int | None = None,
    runs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    progress: Progress = True,
) -> AgentAudit:
    """Audits the agent of a text.

    Args:
        choice: the agent.
        world: a small world.
        privacy: model and budget.
        users: how many users the audited agents serve, by their own schedule; by default four
            blocks of forty, or where the agent has no choice of schedule as many as make three; and
            forty where it asks all users at once.
        runs: with each of the two neighbouring users, per audited block.
        quick: fewer runs, and no checks of behaviour that take long.
        seed: of the users and the attack.
        progress: whether to show a progress bar.
    """
    from tacit.audit.audit_agent import audit_agent

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
    """What makes the audited agents, and for how many users.

    Raises:
        InvalidArgument: the agent refuses the world, the model or its options.
    """
    from tacit.registry import Entry

    options = dict(choice.options)
    make = partial(Entry(choice.text, choice.target).make, privacy=privacy, **options)
    if users is not None or "schedule" in options:
        return make, users if users is not None else _BLOCK * _BLOCKS
    small = partial(make, schedule=f"fixed:size={_BLOCK}")
    try:
        small(world.spec, users=_BLOCK * _BLOCKS, seed=0, noise_seed=0)
        return small, _BLOCK * _BLOCKS
    except (InvalidArgument, TypeError):
        return make, _enough(make, world)


def _enough(make: Callable[..., Any], world: World) -> int:
    """As few users as the agent's own schedule makes at least three blocks of; or one, of all."""
    users = 4
    while users <= 1 << 20:
        agent = make(world.spec, users=users, seed=0, noise_seed=0)
        if getattr(agent, "batch", False) and agent.block_users == users:
            return _BLOCK
        schedule = getattr(agent, "schedule", None)
        if schedule is not None and schedule.releases >= 3:
            return users
        users *= 2
    raise InvalidArgument("this agent publishes less than three times: give users or a schedule")
