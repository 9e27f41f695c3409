"""``tacit run``: agents and budgets on one world; several of them are compared."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.simulation.result import Result

_MANY_SEEDS = 12
# Of what there is to gain.
_NOTHING = 0.01


@command()
def _run(
    world: options.World,
    agent: options.Agents = ["auto"],  # noqa: B006  (typer reads it)
    epsilon: options.Epsilons = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: options.Users = None,
    seeds: Annotated[
        str | None, asked("N", "How many runs. \\[default: 1, or 5 of several agents or budgets]")
    ] = None,
    seed: options.Seed = "0",
    workers: options.Workers = None,
    plot: options.Plot = None,
    save: options.Save = None,
    as_json: options.Json = False,
) -> None:
    from tacit.registry import build_world
    from tacit.simulation.run import check_optimum, usual_users
    from tacit.simulation.sweep import Job, run_jobs
    from tacit.simulation.tables import save_results

    lines = _lines(agent, privacy, epsilon or [], delta)
    declared = options.optional_whole_number("users", users)
    runs = options.seeds_from(seed, seeds or ("1" if len(lines) == 1 else "5"))
    processes = options.worker_count(workers)
    options.check_outputs(plot, save)
    built, start = build_world(world), time.perf_counter()
    check_optimum(built)
    declared = declared or usual_users(built)
    # Other processes make the world anew.
    place = built if processes == 1 or len(lines) * len(runs) == 1 else world
    jobs = list[Job]()
    for line in lines:
        line.choice = line.choice.settled(built.spec, declared, line.privacy)
        made = line.choice.build(built.spec, declared, line.privacy)
        line.why = str(getattr(made, "why", ""))
        jobs += [Job(place, line.choice, line.privacy, declared, s, line.label) for s in runs]
    if len(jobs) == 1:
        results = {jobs[0].line: [jobs[0].run(progress=True)]}
    else:
        results = run_jobs(jobs, workers=processes).labelled()
    for line in lines:
        line.results = results[line.label]
    if save is not None:
        save_results(results, save)
    if plot is not None:
        from tacit.simulation.plots import plot_result, plot_results

        if len(jobs) == 1:
            plot_result(lines[0].results[0], plot)
        else:
            plot_results(results, plot)
    if as_json:
        print_json(_content(built, lines) | {"seconds": time.perf_counter() - start})
        return
    if len(lines) == 1:
        _show_one(built, lines[0])
    else:
        _show_several(built, lines)
    say_files(plot, save)


@dataclass
class _Line:
    """Runs of one agent with one budget, a seed each."""

    label: str
    choice: AgentChoice
    privacy: Privacy
    why: str = ""  # what the agent says that it chose
    results: Sequence[Result] = ()


def _lines(
    agents: Sequence[str], privacy: str, epsilons: Sequence[str], delta: str | None
) -> list[_Line]:
    """Every agent with every budget, but for those that have their own."""
    from tacit.registry import choose_agent

    lines = list[_Line]()
    for choice in map(choose_agent, agents):
        private = choice.budget.get("privacy", privacy) != "none"
        own = not private or "epsilon" in choice.budget
        several: Sequence[str | None] = (epsilons[:1] if own else epsilons) or [None]
        for one in several:
            label = choice.text if len(several) < 2 else f"{choice.text}, epsilon {one}"
            lines.append(_Line(label, choice, options.chosen_privacy(choice, privacy, one, delta)))
    labels = [line.label for line in lines]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InvalidArgument(f"{twice[0]!r} is there twice")
    return lines


def _content(world: World, lines: Sequence[_Line]) -> dict[str, Any]:
    """All of it as plain values."""
    from tacit.simulation.result import WORLD_VALUES, or_none
    from tacit.simulation.tables import privacy_dict, summary

    first = lines[0].results[0]
    return {
        "world": world.name,
        "users": first.users,
        **{name: or_none(getattr(first, name)) for name in WORLD_VALUES},
        "assumed": list(getattr(world, "assumed", ())),
        "entries": [
            {
                "label": line.label,
                "agent": line.choice.text,
                "chosen": line.choice.why or None,
                "why": line.why,
                "privacy": privacy_dict(line.privacy),
                **summary(line.results),
            }
            for line in lines
        ],
    }


# For people.


def say_files(plot: str | None, save: str | None) -> None:
    """Says which files were written."""
    for what, path in {"The picture is": plot, "The results are in": save}.items():
        if path is not None:
            typer.echo(f"{what} {path}")


def _say_rules(world: World, lines: Sequence[_Line]) -> None:
    """Says which agents and what of the world was taken by rule, and why."""
    for name, why in {line.choice.text: line.choice.why for line in lines}.items():
        if why:
            say(f"Chosen: {name}; {why}.")
    if assumed := getattr(world, "assumed", ()):
        say(f"By rule: {'; '.join(assumed)}. Options of the world override it.")


def _show_one(world: World, line: _Line) -> None:
    """A row per seed, the guarantee, and what it means for users."""
    from tacit.simulation.result import median, or_none, served_words, users_words
    from tacit.simulation.tables import rows

    results, batch = line.results, line.choice.offline
    first, users = results[0], results[0].users
    headline = served_words(results, line.label)
    say(f"{headline}: served users gained nothing" if batch else headline)
    _say_rules(world, [line])
    if line.why:
        say(f"It chose: {line.why}.")
    seeds = {str(result.seed): [result] for result in results[:_MANY_SEEDS]}
    titles, *table = [cells[:-2] for cells in rows(seeds | {"median": results})]
    if len(results) > _MANY_SEEDS:
        table[-2] = ("...", *[""] * (len(titles) - 1))
    print_table(("seed", *titles[1:]), table if len(results) > 1 else table[:1])
    if first.guarantee is None:
        say("Not private: nothing is guaranteed to the users.")
    else:
        say(f"Guarantee: {first.guarantee}")
    if batch:
        score = median(or_none(result.greedy_score) for result in results)
        value = median(result.greedy_value for result in results)
        say(
            f"These {users:,} users were served by the behaviour policy and gained nothing: "
            "it is a batch agent, made for those who come after them. The greedy policy, learnt "
            f"from them, has a value of {value:.4g}"
            f"{'' if score is None else f', a score of {score:.3f}'}."
        )
    if math.isnan(first.optimal_value):
        say("The optimum is not known: returns are reported, regret is not.")
    elif not batch:
        needed = median(result.users_to_90 for result in results)
        if needed is None:
            say(f"{users:,} users were not enough to get 90 % of what is possible, for good.")
        else:
            surely = "for good"
            if users < 10 * needed:
                surely = "but the run is too short (under ten times that) to say for good"
            after = f"After {users_words(needed)} users, those who come get"
            say(f"{after} 90 % of what is possible, {surely}.")
        stake = first.optimal_value - first.baseline_value
        got = median(result.served_value for result in results)
        if got is not None and got < first.baseline_value + _NOTHING * stake:
            say(f"They gained nothing: without learning it is {first.baseline_value:.4g} each.")


def _show_several(world: World, lines: Sequence[_Line]) -> None:
    """A row per agent and budget."""
    from tacit.simulation.tables import rows

    first, runs = lines[0].results[0], len(lines[0].results)
    how = "one run" if runs == 1 else f"median of {runs} runs"
    known = not math.isnan(first.optimal_value)
    best = f"optimal value {first.optimal_value:.4g}" if known else "the optimum is not known"
    say(
        f"{world.name}: {first.users:,} users, {how}, {best}, without learning "
        f"{first.baseline_value:.4g}"
    )
    titles, *table = [cells[:-1] for cells in rows({line.label: line.results for line in lines})]
    print_table(titles, table)
    _say_rules(world, lines)
    if gained_nothing := [line.label for line in lines if line.choice.offline]:
        say(
            f"Served users gained nothing from {', '.join(gained_nothing)}: a batch agent learns "
            "for those who come later, by its greedy policy."
        )
    if any(line.results[0].guarantee is not None for line in lines):
        say("Simulation only: the noise has a known seed and protects nobody.")
