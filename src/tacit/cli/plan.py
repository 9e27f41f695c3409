"""``tacit plan``: how many users a budget needs, and what the papers' theorems promise."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli import options
from tacit.cli.options import asked, flag
from tacit.cli.output import print_json, print_table, say
from tacit.names.texts import number, whole_number
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.papers.bounds import Question
    from tacit.simulation.plan import Plan


def plan_command(
    agent: options.Agent = "auto",
    world: options.OptionalWorld = None,
    states: Annotated[
        str | None, asked("S", "With --bounds: states; in LQ control their coordinates.")
    ] = None,
    actions: Annotated[
        str | None, asked("A", "With --bounds: actions; in LQ control those of the control.")
    ] = None,
    horizon: Annotated[str | None, asked("H", "With --bounds: steps of an episode.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: Annotated[str | None, asked("N", "Users that there will be, if that is known.")] = None,
    most: Annotated[str, asked("N", "The largest number of users to try.")] = "1e10",
    seeds: options.Seeds = "5",
    seed: options.Seed = "0",
    workers: Annotated[str, asked("N", "Processes at a time.")] = "1",
    bounds: Annotated[bool, flag("What theorems promise; nothing is run.", "--bounds")] = False,
    dimension: Annotated[str, asked("d", "With --bounds: dimension of features.")] = "10",
    failure: Annotated[
        str, asked("NUMBER", "With --bounds: probability that a theorem may fail.")
    ] = "0.1",
    as_json: options.Json = False,
) -> None:
    """Simulates what an agent will need, or evaluates theorems."""
    from tacit.registry import choose_agent
    from tacit.simulation.plan import plan

    sizes = {"states": states, "actions": actions, "horizon": horizon}
    if bounds:
        levels = {"epsilon": epsilon, "delta": delta, "failure": failure}
        _show_bounds(sizes | {"users": users, "dimension": dimension}, levels, as_json)
        return
    choice = choose_agent(agent)
    model = options.chosen_privacy(choice, privacy, epsilon, delta)
    if world is None:
        raise InvalidArgument("--world is missing; a random one is random_mdp:states=10,seed=0")
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


def _show(made: Plan) -> None:
    """What to expect, and how far it can be trusted."""
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
    if made.batch:
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


def _show_bounds(
    sizes: dict[str, str | None], levels: dict[str, str | None], as_json: bool
) -> None:
    """What theorems promise, in a table."""
    from tacit.papers.bounds import Question, promises

    if missing := [name for name, text in (levels | sizes).items() if text is None]:
        raise InvalidArgument(f"--bounds needs --{missing[0]}")
    whole = {name: whole_number(name, str(text)) for name, text in sizes.items()}
    numbers: dict[str, Any] = {name: number(name, str(text)) for name, text in levels.items()}
    question: Question = Question(episodes=whole.pop("users"), **whole, **numbers)
    found = promises(question)
    if as_json:
        rows = [dataclasses.asdict(promise) for promise in found]
        asked_for = dataclasses.asdict(question)
        print_json({"question": asked_for, "most": question.most, "promises": rows})
        return

    def shown(value: float | None, missing: str) -> str:
        return missing if value is None else f"{value:,.4g}"

    print_table(
        ("paper", "theorem", "printed", "corrected"),
        [
            (p.paper, p.theorem, shown(p.printed, "nothing"), shown(p.corrected, "not known"))
            for p in found
        ],
    )
    if not question.delta:
        say("The other papers' noise is Gaussian, and needs a delta above 0.")
    say(f"Regret is at most K H = {question.most:,.6g} in finite worlds, whatever is done.")
    for promise in found:
        if promise.note:
            say(f"{promise.theorem.partition(',')[0]} of {promise.paper}: {promise.note}.")
