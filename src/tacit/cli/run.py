"""``tacit run``: agents and budgets on one world; several of them are compared."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
    from tacit.simulation.result import Result

_MANY_SEEDS = 12
# Of what there is to gain.
_NOTHING = 0.01


def run_command(
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
    """Runs agents."""
    from tacit.registry import build_world
    from tacit.simulation.run import check_optimum, usual_users
    from tacit.simulation.sweep import Job, run_jobs
    from tacit.simulation.tables import save_results

    entries = _entries(agent, privacy, epsilon or [], delta)
    declared = options.optional_whole_number("users", users)
    runs = options.seeds_from(seed, seeds or ("1" if len(entries) == 1 else "5"))
    processes = options.worker_count(workers)
    options.check_outputs(plot, save)
    built, start = build_world(world), time.perf_counter()
    check_optimum(built)
    declared = declared or usual_users(built)
    # Other processes make the world anew.
    place = built if processes == 1 or len(entries) * len(runs) == 1 else world
    entries = [
        (label, c.settled(built.spec, declared, model), model) for label, c, model in entries
    ]
    jobs = list[Job]()
    for label, choice, model in entries:
        why = str(getattr(choice.build(built.spec, declared, model), "why", ""))
        jobs += [Job(place, choice, model, declared, one, label) for one in runs]
    if len(jobs) == 1:
        results = {jobs[0].line: [jobs[0].run(progress=True)]}
    else:
        results = run_jobs(jobs, workers=processes).labelled()
    made = _Made(built, entries, list(results.values()), time.perf_counter() - start)
    if save is not None:
        save_results(results, save, made.to_dict())
    if plot is not None:
        from tacit.simulation.plots import plot_result, plot_results

        if len(jobs) == 1:
            plot_result(made.results[0][0], plot)
        else:
            plot_results(results, plot)
    if as_json:
        print_json(made.run_dict() | {"why": why} if len(entries) == 1 else made.to_dict())
        return
    if len(entries) == 1:
        _show_one(made, why)
    else:
        _show_several(made)
    say_files(plot, save)


def _entries(
    agents: Sequence[str], privacy: str, epsilons: Sequence[str], delta: str | None
) -> list[tuple[str, AgentChoice, Privacy]]:
    """Every agent with every budget, but for those that have their own; each with its label."""
    from tacit.registry import choose_agent

    alone, entries = len(agents) == 1 and len(epsilons) < 2, []
    for choice in map(choose_agent, agents):
        private = choice.budget.get("privacy", privacy) != "none"
        own = not private or "epsilon" in choice.budget
        several: Sequence[str | None] = (epsilons[:1] if own else epsilons) or [None]
        for one in several:
            label = choice.text if len(several) < 2 else f"{choice.text}, epsilon {one}"
            model = options.chosen_privacy(choice, privacy, one, delta, alone=alone)
            entries.append((label, choice, model))
    labels = [label for label, *_ in entries]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InvalidArgument(f"{twice[0]!r} is there twice")
    return entries


@dataclass(frozen=True)
class _Made:
    """Runs of several agents and budgets on one world: one result per seed for each."""

    world: World
    entries: Sequence[tuple[str, AgentChoice, Privacy]]  # with their labels
    results: Sequence[Sequence[Result]]
    seconds: float

    @property
    def assumed(self) -> tuple[str, ...]:
        """What is known of the world by rule alone, in words."""
        return getattr(self.world, "assumed", ())

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        from tacit.simulation.result import WORLD_VALUES, or_none
        from tacit.simulation.tables import privacy_dict, summary

        first = self.results[0][0]
        return {
            "world": self.world.name,
            "users": first.users,
            **{name: or_none(getattr(first, name)) for name in WORLD_VALUES},
            "assumed": list(self.assumed),
            "entries": [
                {
                    "label": label,
                    "agent": choice.text,
                    "chosen": choice.why or None,
                    "privacy": privacy_dict(privacy),
                    **summary(results),
                }
                for (label, choice, privacy), results in zip(
                    self.entries, self.results, strict=True
                )
            ],
            "seconds": self.seconds,
        }

    def run_dict(self) -> dict[str, Any]:
        """The same of one agent alone."""
        whole = self.to_dict()
        (entry,), seconds = whole.pop("entries"), whole.pop("seconds")
        named = {"world": whole["world"], "agent": entry["agent"], "chosen": entry["chosen"]}
        more = {key: entry[key] for key in entry if key not in ("label", "privacy")}
        return named | whole | more | {"seconds": seconds}


# For people.


def say_files(plot: str | None, save: str | None) -> None:
    """Says which files were written."""
    for what, path in {"The picture is": plot, "The results are in": save}.items():
        if path is not None:
            typer.echo(f"{what} {path}")


def _say_rules(made: _Made) -> None:
    """Says which agents and what of the world was taken by rule, and why."""
    for name, why in {choice.text: choice.why for _, choice, _ in made.entries}.items():
        if why:
            say(f"Chosen: {name}; {why}.")
    if made.assumed:
        say(f"By rule: {'; '.join(made.assumed)}. Options of the world override it.")


def _show_one(made: _Made, why: str) -> None:
    """A row per seed, the guarantee, and what it means for users."""
    from tacit.simulation.result import median, or_none, served_words, users_words
    from tacit.simulation.tables import rows

    results, (label, choice, _) = made.results[0], made.entries[0]
    first, users = results[0], results[0].users
    batch, headline = choice.batch, served_words(results, label)
    say(f"{headline}: served users gained nothing" if batch else headline)
    _say_rules(made)
    if why:
        say(f"It chose: {why}.")
    lines = {str(result.seed): [result] for result in results[:_MANY_SEEDS]}
    titles, *table = [line[:-2] for line in rows(lines | {"median": results})]
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


def _show_several(made: _Made) -> None:
    """A row per agent and budget."""
    from tacit.simulation.tables import rows

    first, runs = made.results[0][0], len(made.results[0])
    how = "one run" if runs == 1 else f"median of {runs} runs"
    known = not math.isnan(first.optimal_value)
    best = f"optimal value {first.optimal_value:.4g}" if known else "the optimum is not known"
    say(
        f"{made.world.name}: {first.users:,} users, {how}, {best}, without learning "
        f"{first.baseline_value:.4g}"
    )
    labels = [label for label, *_ in made.entries]
    labelled = dict(zip(labels, made.results, strict=True))
    titles, *table = [line[:-1] for line in rows(labelled)]
    print_table(titles, table)
    _say_rules(made)
    if gained_nothing := [label for label, choice, _ in made.entries if choice.batch]:
        say(
            f"Served users gained nothing from {', '.join(gained_nothing)}: a batch agent learns "
            "for those who come later, by its greedy policy."
        )
    if any(results[0].guarantee is not None for results in made.results):
        say("Simulation only: the noise has a known seed and protects nobody.")
