"""``tacit run``: agents and budgets on one world; several of them are compared."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options
from tacit.cli.options import asked
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.simulation.compare import Comparison, Contender
    from tacit.simulation.events import TensorBoard

HELP = (
    "Let agents serve and learn from simulated users.\n\n"
    "Reports how many users it took until newcomers get 90 % of what is possible, the regret of "
    "all users, and what was proven about their privacy. The noise of a simulation has a known "
    "seed, so it protects nobody, and the guarantee says so.\n\n"
    "Without --agent it takes the best one for the world's family and the budget, and says why; "
    "tacit show agent auto has the rules. Several agents or budgets are compared: each --agent "
    "with each --epsilon, in one table and one plot with bands. An agent can have a model and a "
    "budget of its own, as ucbvi:privacy=none or ucbvi:privacy=local,epsilon=4.\n\n"
    "\b\nExamples:\n"
    "  tacit run --world riverswim --epsilon 1 --delta 1e-6\n"
    "  tacit run --world grid:side=4 --agent ucbvi:stationary=false \\\n"
    "      --privacy none --users 1e5 --seeds 10 --json\n"
    "  tacit run --world gym:CartPole-v1 --epsilon 1 --delta 1e-6\n"
    "  tacit run --world gym:FrozenLake-v1,is_slippery=false \\\n"
    "      --epsilon 1 --delta 1e-6 --plot regret.png\n"
    "  tacit run --world my_file.py:make --agent my_file.py:MyAgent --privacy none\n"
    "  tacit run --world riverswim --agent auto --agent ucbvi:privacy=none \\\n"
    "      --epsilon 0.1 --epsilon 1 --delta 1e-6 --plot agents.png"
)

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
    tensorboard: Annotated[
        str | None, asked("FOLDER", "Write values for TensorBoard, a folder per run.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Runs agents."""
    from tacit.registry import build_world
    from tacit.simulation.compare import compare
    from tacit.simulation.run import usual_users

    entries = _entries(agent, privacy, epsilon or [], delta)
    declared = options.optional_whole_number("users", users)
    runs = options.seeds_from(seed, seeds or ("1" if len(entries) == 1 else "5"))
    processes = options.worker_count(workers)
    options.check_outputs(plot, save)
    board = _board(tensorboard)
    built = build_world(world)
    with interruptible():
        users_of = usual_users(built) if declared is None else declared
        made = compare(built, entries, users_of, runs, processes, text=world)
    if board is not None:
        with board:
            for label, results in made.labelled().items():
                for result in results:
                    board.write(result, label)
    if save is not None:
        made.save(save)
    if plot is not None:
        made.plot(plot)
    alone = len(entries) == 1
    why = _why(made, world) if alone else ""
    if as_json:
        print_json(made.run_dict() | {"why": why} if alone else made.to_dict())
        return
    if alone:
        _show_one(made, why)
    else:
        _show_several(made)
    say_files(plot, save, tensorboard)


def _entries(
    agents: Sequence[str], privacy: str, epsilons: Sequence[str], delta: str | None
) -> list[Contender]:
    """Every agent with every budget, but for those that have their own."""
    from tacit.registry import choose_agent
    from tacit.simulation.compare import Contender

    alone, entries = len(agents) == 1 and len(epsilons) < 2, []
    for choice in map(choose_agent, agents):
        private = choice.budget.get("privacy", privacy) != "none"
        own = not private or "epsilon" in choice.budget
        several: Sequence[str | None] = (epsilons[:1] if own else epsilons) or [None]
        for one in several:
            label = choice.text if len(several) < 2 else f"{choice.text}, epsilon {one}"
            model = options.chosen_privacy(choice, privacy, one, delta, alone=alone)
            entries.append(Contender(label, choice, model))
    return entries


def _board(folder: str | None) -> TensorBoard | None:
    """What writes for TensorBoard, into a folder that may have to be made."""
    from tacit.simulation.events import TensorBoard

    if folder is None:
        return None
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InvalidArgument(f"--tensorboard is {folder!r}, which is no folder")
    options.check_writable("--tensorboard", str(path / "x" if path.exists() else path))
    return TensorBoard(folder)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the processes of a run, which would else finish all seeds first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import active_children

    def stop(number: int, frame: object) -> None:
        for child in active_children():
            child.terminate()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# For people.


def say_files(plot: str | None, save: str | None, tensorboard: str | None = None) -> None:
    """Says which files were written."""
    files = {"The picture is": plot, "The results are in": save, "For TensorBoard:": tensorboard}
    for what, path in files.items():
        if path is not None:
            typer.echo(f"{what} {path}")


def _say_chosen(made: Comparison) -> None:
    """Says which agents were chosen by rule, and why."""
    chosen = {entry.agent.text: entry.agent.why for entry in made.entries if entry.agent.why}
    for name, why in chosen.items():
        say(f"Chosen: {name}; {why}.")


def _say_assumed(made: Comparison) -> None:
    """Says what was taken by rule because the environment does not say it."""
    if made.assumed:
        say(f"By rule: {'; '.join(made.assumed)}. Options of the world override it.")


def _why(made: Comparison, world: str) -> str:
    """What the agent chose and what it is told, in its own words."""
    from tacit.registry import build_world

    entry = made.entries[0]
    agent = entry.agent.build(build_world(world).spec, made.users, entry.privacy)
    return str(getattr(agent, "why", ""))


def _show_one(made: Comparison, why: str) -> None:
    """A row per seed, the guarantee, and what it means for users."""
    from tacit.simulation.compare import rows
    from tacit.simulation.result import median, or_none, served_words

    results, batch = made.results[0], made.entries[0].agent.batch
    first = results[0]
    headline = served_words(results, made.entries[0].label)
    say(f"{headline}: served users gained nothing" if batch else headline)
    _say_chosen(made)
    if why:
        say(f"It chose: {why}.")
    _say_assumed(made)
    titles, *_ = rows({"": results})
    table = [(str(result.seed), *rows({"": [result]})[1][1:-1]) for result in results]
    if len(table) > _MANY_SEEDS:
        table[_MANY_SEEDS - 1 :] = [("...", *[""] * (len(titles) - 2))]
    if len(results) > 1:
        table.append(("median", *rows({"": results})[1][1:-1]))
    print_table(("seed", *titles[1:-1]), table)
    if first.guarantee is None:
        say("Not private: nothing is guaranteed to the users.")
    else:
        say(f"Guarantee: {first.guarantee}")
    if batch:
        score = median(or_none(result.greedy_score) for result in results)
        value = median(result.greedy_value for result in results)
        say(
            f"These {made.users:,} users were served by the behaviour policy and gained nothing: "
            "it is a batch agent, made for those who come after them. The greedy policy, learnt "
            f"from them, has a value of {value:.4g}"
            f"{'' if score is None else f', a score of {score:.3f}'}."
        )
    if math.isnan(first.optimal_value):
        say("The optimum is not known: returns are reported, regret is not.")
    elif not batch:
        say(_run_words(median(result.users_to_90 for result in results), made.users))
        stake = first.optimal_value - first.baseline_value
        got = median(result.served_value for result in results)
        if got is not None and got < first.baseline_value + _NOTHING * stake:
            say(f"They gained nothing: without learning it is {first.baseline_value:.4g} each.")


def _run_words(needed: float | None, users: int) -> str:
    from tacit.simulation.compare import users_words

    if needed is None:
        return f"{users:,} users were not enough to get 90 % of what is possible, for good."
    words = f"After {users_words(needed)} users, those who come get 90 % of what is possible"
    if users < 10 * needed:
        return f"{words}, but the run is too short (under ten times that) to say for good."
    return f"{words}, for good."


def _show_several(made: Comparison) -> None:
    """A row per agent and budget."""
    from tacit.simulation.compare import rows

    first, runs = made.results[0][0], len(made.results[0])
    how = "one run" if runs == 1 else f"median of {runs} runs"
    known = not math.isnan(first.optimal_value)
    best = f"optimal value {first.optimal_value:.4g}" if known else "the optimum is not known"
    say(
        f"{made.world}: {made.users:,} users, {how}, {best}, without learning "
        f"{first.baseline_value:.4g}"
    )
    titles, *table = rows(made.labelled())
    print_table(titles, table)
    _say_chosen(made)
    _say_assumed(made)
    if gained_nothing := [entry.label for entry in made.entries if entry.agent.batch]:
        say(
            f"Served users gained nothing from {', '.join(gained_nothing)}: a batch agent learns "
            "for those who come later, by its greedy policy."
        )
    if any(results[0].guarantee is not None for results in made.results):
        say("Simulation only: the noise has a known seed and protects nobody.")
