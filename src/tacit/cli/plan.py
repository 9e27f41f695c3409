"""``tacit plan``: how many users a budget needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tacit.cli import options
from tacit.cli.options import asked, command
from tacit.cli.output import print_json, print_table, say
from tacit.options import whole_number

if TYPE_CHECKING:
    from tacit.simulation.plan import Forecast


@command()
def _plan(
    world: options.World,
    agent: options.Agent = "auto",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: Annotated[str | None, asked("N", "Users that there will be, if that is known.")] = None,
    most: Annotated[str, asked("N", "The largest number of users to try.")] = "1e10",
    seeds: options.Seeds = "5",
    seed: options.Seed = "0",
    workers: Annotated[str, asked("N", "Processes at a time.")] = "1",
    as_json: options.Json = False,
) -> None:
    from tacit.registry import choose_agent
    from tacit.simulation.plan import plan

    choice = choose_agent(agent)
    model = options.chosen_privacy(choice, privacy, epsilon, delta)
    made = plan(
        world,
        choice,
        model,
        options.optional_whole_number("users", users),
        seeds=options.seeds_from(seed, seeds),
        workers=whole_number("workers", workers),
        most=whole_number("most", most),
    )
    if as_json:
        print_json(made.to_dict())
    else:
        _show(made)


def _show(made: Forecast) -> None:
    """Prints the expected number of users, and how far it can be trusted."""
    from tacit.simulation.result import users_words
    from tacit.simulation.tables import number_words, privacy_words

    say(f"{made.agent} on {made.world}: {privacy_words(made.privacy)}")
    if made.chosen:
        say(f"Chosen: {made.agent}; {made.chosen}.")
    least, most = (users_words(end) for end in made.spread)
    plain = made.to_dict()
    print_table(
        ("", ""),
        [
            (f"users to 90 %, median of {len(made.results)} runs", users_words(made.users_to_90)),
            ("  luckiest run", least),
            ("  unluckiest run", most),
            ("  until the greedy policy has 90 %", users_words(made.greedy_users_to_90)),
            ("  without privacy", users_words(plain["non_private_users_to_90_median"])),
            ("  times as many as without privacy", number_words(made.price)),
            ("noise of a sum in a release, standard deviation", number_words(made.noise_std)),
            ("releases", f"{made.results[0].releases:,}"),
            ("users declared in the simulation", f"{made.users:,}"),
        ],
    )
    if made.why:
        say(f"It chose: {made.why}.")
    have = f"You have {made.users:,} users; " if made.given else ""
    needs = f"this needs about {users_words(made.users_to_90)}"
    if made.users_to_90 is None:
        needs = "this needs more" if made.given else f"this needs more than {made.users:,}"
    few = "how few could suffice is known under joint privacy alone"
    if made.privacy.joint:
        few = f"no private method can do it with fewer than {plain['least_users']:,}"
    say(f"{have}{needs}; {few}.")
    if made.offline:
        say(
            "It is a batch agent: the users it learns from are served by its behaviour policy and "
            "gain nothing. The numbers are of the smallest batch tried whose policy is good."
        )
    if made.users_to_90 is None:
        say(f"{made.users:,} users are not enough at this budget.")
    elif not made.settled:
        say(
            f"{made.users:,} users are fewer than ten times the median, so the number is "
            "uncertain: a longer run may show that it was not for good."
        )
