"""``tacit run``, ``sweep``, ``plot`` and ``plan``: simulated users, their results and pictures."""

from __future__ import annotations

import bisect
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import (
    asked,
    command,
    count,
    flag,
    given,
    print_facts,
    print_json,
    print_table,
    say,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import whole_number

if TYPE_CHECKING:
    from tacit.core.world import World
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.simulation.plan import Forecast
    from tacit.simulation.result import Result

SUITE = Path(__file__).parents[1] / "simulation" / "suite.toml"  # held-out worlds


@command()
def _run(
    world: terminal.World,
    agent: terminal.Agents = ["auto"],  # noqa: B006  (typer reads it)
    epsilon: terminal.Epsilons = None,
    delta: terminal.Delta = None,
    privacy: terminal.Privacy = "joint",
    users: Annotated[int | None, count("Users. \\[default: 1e6, or as take 1e6 steps]")] = None,
    seeds: Annotated[int | None, count("Runs. \\[default: 1; 5 of several lines]")] = None,
    seed: terminal.Seed = 0,
    workers: terminal.Workers = None,
    plot: terminal.Plot = None,
    save: terminal.Save = None,
    policy_out: Annotated[str | None, asked("FILE", "Write the greedy policy, of one run.")] = None,
    control: Annotated[bool, flag("Beside the first run, one that learns from noise.")] = True,
    as_json: terminal.Json = False,
) -> None:
    from tacit.registry import build_world
    from tacit.simulation.run import check_optimum, usual_users
    from tacit.simulation.sweep import Job, run_jobs
    from tacit.simulation.tables import save_results

    lines = _lines(agent, privacy, epsilon or [], delta)
    runs = range(seed, seed + (seeds or (1 if len(lines) == 1 else 5)))
    processes = workers or os.cpu_count() or 1
    terminal.check_outputs(plot, save)
    terminal.check_writable("the policy", policy_out, (".npz", ".json"))
    if policy_out and len(lines) * len(runs) > 1:
        raise InvalidArgument("--policy-out is of one run: one agent, one budget, one seed")
    built, start = build_world(world), time.perf_counter()
    check_optimum(built)
    declared = users or usual_users(built)
    # Other processes make the world anew.
    place = built if processes == 1 or len(lines) * len(runs) == 1 else world
    jobs = list[Job]()
    for line in lines:
        line.choice = line.choice.settled(built.spec, line.privacy, declared)
        made = line.choice.build(built.spec, declared, line.privacy)
        line.why = str(getattr(made, "why", ""))
        job = Job(place, line.choice, line.privacy, declared, seed, line.label).identified(built)
        jobs += [replace(job, seed=one, control=control and one == seed) for one in runs]
    if len(jobs) == 1:
        results = {jobs[0].line: [jobs[0].run(progress=True)]}
    else:
        results = run_jobs(jobs, workers=processes).labelled()
    for line in lines:
        line.results = results[line.label]
    if save is not None:
        save_results(results, save)
    if policy_out is not None:
        lines[0].results[0].policy.publish(policy_out)
    if plot is not None:
        from tacit.simulation.plots import plot_results

        plot_results(results, plot)
    if as_json:
        print_json(_content(built, lines) | {"seconds": time.perf_counter() - start})
    else:
        _show(built, lines)
        _say_written(plot, save, policy_out)


@dataclass
class _Line:
    """Runs of one agent with one budget, a seed each."""

    label: str
    choice: AgentChoice
    privacy: Privacy
    why: str = ""  # what the agent says that it chose
    results: Sequence[Result] = ()


def _lines(
    agents: Sequence[str], privacy: str, epsilons: Sequence[float], delta: float | None
) -> list[_Line]:
    """Every agent with every budget, but for those that have their own."""
    from tacit.registry import choose_agent

    lines = dict[str, _Line]()
    for choice in map(choose_agent, agents):
        private = choice.budget.get("privacy", privacy) != "none"
        own = not private or "epsilon" in choice.budget
        several: Sequence[float | None] = (epsilons[:1] if own else epsilons) or [None]
        for one in several:
            label = choice.text if len(several) < 2 else f"{choice.text}, epsilon {one:g}"
            if label in lines:
                raise InvalidArgument(f"{label!r} is there twice")
            model = terminal.chosen_privacy(choice, privacy, one, delta)
            lines[label] = _Line(label, choice, model)
    return [*lines.values()]


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


def _show(world: World, lines: Sequence[_Line]) -> None:
    """A row per seed, or per agent and budget, and what they mean for users."""
    from tacit.simulation.result import served_words
    from tacit.simulation.tables import rows

    for line in lines:
        say(served_words(line.results, line.label))
        if line.choice.why:
            say(f"Chosen: {line.choice.text}; {line.choice.why}.")
        if line.why:
            say(f"It chose: {line.why}.")
    if assumed := getattr(world, "assumed", ()):
        say(f"By rule: {'; '.join(assumed)}. Options of the world override it.")
    shown = {line.label: line.results for line in lines}
    if len(lines) == 1 and len(lines[0].results) > 1:
        runs = lines[0].results
        shown = {str(run.seed): [run] for run in runs[:12]} | {"median": runs}
    titles, *table = [cells[:-1] for cells in rows(shown)]
    print_table(titles, table)
    for line in lines:
        words = line.results[0].guarantee or "Not private: nothing is guaranteed."
        say(f"{line.label}: {_verdict(line)}\nGuarantee: {words}")


def _verdict(line: _Line) -> str:
    """Meaning of runs for users, in words."""
    from tacit.simulation.result import median, users_words
    from tacit.simulation.verdict import verdict

    results, first = line.results, line.results[0]
    words = f"{(told := verdict(results))[0].upper()}{told[1:]}. "
    if line.choice.offline:
        value = median(result.greedy_value for result in results)
        return (
            f"{words}It is a batch agent, made for those who come after its users: the greedy "
            f"policy, learnt from them, has a value of {value:.4g}."
        )
    if math.isnan(first.optimal_value):
        return f"{words}The optimum is not known: returns are reported, regret is not."
    if (needed := median(result.users_to_90 for result in results)) is not None:
        surely = "for good" if first.users >= 10 * needed else "but the run is too short to be sure"
        reached = f"After {users_words(needed)} users, those who come get 90 % of what is possible"
        return f"{words}{reached}, {surely}."
    return f"{words}{first.users:,} users were not enough to get 90 % of it, for good."


def _say_written(*files: str | None) -> None:
    for file in filter(None, files):
        typer.echo(f"Written: {file}")


# Sweeps.


@command()
def _sweep(
    file: Annotated[str, given("FILE.toml|suite", "What to run; suite has held-out worlds.")],
    agent: Annotated[list[str] | None, asked("NAME", "In place of the file's agents.")] = None,
    folder: Annotated[str, asked("FOLDER", "Where results are kept.")] = "runs",
    allow_code: terminal.AllowCode = False,
    workers: terminal.Workers = None,
    plot: terminal.Plot = None,
    save: terminal.Save = None,
    as_json: terminal.Json = False,
) -> None:
    from tacit.registry import names_of
    from tacit.simulation.sweep import SweepFailed, sweep
    from tacit.simulation.tables import summary

    own, failed = file == "suite", None
    wanted = _read_sweep(str(SUITE) if own else file) | ({"agents": agent} if agent else {})
    terminal.check_outputs(plot, save)
    with names_of(file, allow_code or own):
        try:
            made = sweep(
                **wanted, fitting=own, folder=folder, workers=workers or os.cpu_count() or 1
            )
        except SweepFailed as error:
            made, failed = error.sweep, error
    found = {world: runs for world in made.worlds if (runs := made.labelled(world))}
    if save is not None and found:
        made.save(save)
    if plot is not None and found:
        made.plot(plot)
    if as_json:
        print_json({w: {k: summary(r) for k, r in runs.items()} for w, runs in found.items()})
    else:
        say(f"{len(made.results)} of {len(made.jobs)} runs; medians over seeds")
        for world in found:
            titles, *lines = made.table(world)
            say(world)
            print_table(titles, lines)
        _say_written(plot, save)
    for line, why in made.left_out.items():
        typer.echo(f"tacit: left out: {line}: {why}", err=True)
    if failed is not None:
        raise failed


def _read_sweep(file: str) -> dict[str, Any]:
    """Arguments of :func:`tacit.simulation.sweep.sweep` that a file has."""
    from tacit.privacy.files import parse_toml, read_file

    try:
        content = parse_toml(read_file(file, "world"))
    except ValueError as error:
        raise InvalidArgument(f"{file!r} is not TOML: {error}") from error
    kind = content.get("privacy", "joint")
    budget = () if kind == "none" else ("epsilons", "delta")
    keys = ("worlds", "agents", "privacy", "users", "seeds", *budget)
    if unknown := sorted(content.keys() - set(keys)):
        raise InvalidArgument(f"{file!r} has {unknown[0]!r}; it may have {', '.join(keys)}")
    content = {"epsilons": ["none"]} | content if kind == "none" else content
    for name in ("worlds", "agents", "epsilons"):
        found = content.get(name)
        if not isinstance(found, list) or not found:
            raise InvalidArgument(f"{name} in {file!r} must be a list, got {found!r}")
    seeds = content.get("seeds", 5)
    return {
        "worlds": content["worlds"],
        "agents": content["agents"],
        "budgets": [
            terminal.privacy_model("none" if e == "none" else kind, e, content.get("delta"))
            for e in content["epsilons"]
        ],
        "users": content.get("users", 10**6),
        "seeds": seeds if isinstance(seeds, list) else range(whole_number("seeds", seeds)),
    }


# Plans.


@command()
def _plan(
    world: terminal.World = "",
    agent: terminal.Agent = "auto",
    epsilon: terminal.Epsilon = None,
    delta: terminal.Delta = None,
    privacy: terminal.Privacy = "joint",
    users: Annotated[int | None, count("Users that there will be, if that is known.")] = None,
    most: Annotated[int, count("The largest number of users to try.")] = 10**10,
    seeds: terminal.Seeds = 5,
    seed: terminal.Seed = 0,
    workers: Annotated[int, count("Processes at a time.")] = 1,
    trial: Annotated[bool, flag("Few people with long histories, in place of --world.")] = False,
    people: Annotated[int, count("Of a trial.")] = 100,
    decisions: Annotated[int, count("Of each person.")] = 140,
    effect: Annotated[float, terminal.amount("Of an action, in units of rewards.")] = 0.1,
    features: Annotated[int, count("Contexts with an effect of their own.")] = 8,
    looks: Annotated[int, count("Looks: the last of .4 and 1.", 1)] = 2,
    holdout: Annotated[float, terminal.amount("Who keep today's policy; --effect in sd.")] = 0.0,
    as_json: terminal.Json = False,
) -> None:
    if trial:
        model = terminal.privacy_model(privacy, epsilon, delta)
        if holdout:
            from tacit.core.arms import Arms
            from tacit.trial.plan import power

            at = tuple((i + 1) / looks for i in range(looks))
            arms = Arms(holdout=holdout, returns=(-3.0, 3.0), looks=at)  # six deviations
            found = partial(power, arms, effect, privacy=model)
            needed = bisect.bisect_left(range(1, 10**9), 0.8, key=found) + 1
            facts = {"people": people, "power": round(found(people), 3), "people for .80": needed}
            print_facts(facts, as_json)
            return
        _plan_trial(model, people, effect, (decisions, features, looks), as_json)
        return
    if not world:
        raise InvalidArgument("give --world, or --trial with --people, --decisions and --effect")
    from tacit.registry import choose_agent
    from tacit.simulation.plan import plan

    choice = choose_agent(agent)
    model = terminal.chosen_privacy(choice, privacy, epsilon, delta)
    runs = range(seed, seed + seeds)
    made = plan(world, choice, model, users, seeds=runs, workers=workers, most=most)
    if as_json:
        print_json(made.to_dict())
    else:
        _show_plan(made)


def _plan_trial(model: Any, people: int, effect: float, sizes: Any, as_json: bool) -> None:
    from dataclasses import asdict

    from tacit.trial import TrialSpec, plan_trial
    from tacit.trial.spec import LOOKS

    decisions, features, looks = sizes
    chances = (0.5, 0.5) if looks == 1 else (0.2, 0.8)
    spec = TrialSpec(decisions, features, probabilities=chances, looks=LOOKS[-looks:])
    made = plan_trial(spec, people, effect, model)
    if as_json:
        print_json(asdict(made))
    else:
        say(str(made))


def _show_plan(made: Forecast) -> None:
    """Prints the expected number of users, and how far it can be trusted."""
    from tacit.simulation.result import users_words
    from tacit.simulation.tables import number_words, privacy_words

    say(f"{made.agent} on {made.world}: {privacy_words(made.privacy)}")
    if made.chosen:
        say(f"Chosen: {made.agent}; {made.chosen}.")
    plain = made.to_dict()
    least = plain["least_users"]
    facts = {
        f"users to 90 %, median of {len(made.results)} runs": users_words(made.users_to_90),
        "  luckiest and unluckiest run": " to ".join(map(users_words, made.spread)),
        "  until the greedy policy has 90 %": users_words(made.greedy_users_to_90),
        "  without privacy": users_words(plain["non_private_users_to_90_median"]),
        "  times as many as without privacy": number_words(made.price),
        "  that any private method needs": "not known" if least is None else f"{least:,}",
        "noise of a sum in a release, standard deviation": number_words(made.noise_std),
        "releases": f"{made.results[0].releases:,}",
        "users declared in the simulation": f"{made.users:,}",
    }
    terminal.print_facts(facts)
    if made.why:
        say(f"It chose: {made.why}.")
    if made.offline:
        say("It is a batch agent: users it learns from gain nothing; this is the smallest batch.")
    if made.users_to_90 is None:
        say(f"{made.users:,} users are not enough at this budget.")
    elif not made.settled:
        say(f"{made.users:,} users are fewer than ten times the median: the number is uncertain.")
