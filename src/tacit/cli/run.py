"""``tacit run``: one agent on one world."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.cli import options
from tacit.cli.output import known, print_json, print_table, say
from tacit.cli.simulations import say_assumed, say_chosen, say_files, say_rebuilt, simulate

if TYPE_CHECKING:
    from tacit.simulation.compare import Comparison

HELP = (
    "Let an agent serve and learn from simulated users.\n\n"
    "Reports how many users it took until newcomers get 90 % of what is possible, the regret of "
    "all users, and what was proven about their privacy. The noise of a simulation has a known "
    "seed, so it protects nobody, and the guarantee says so.\n\n"
    "Without --agent it takes the best one for the world's family and the budget, and says why; "
    "tacit show agent auto has the rules.\n\n"
    "\b\nExamples:\n"
    "  tacit run --world riverswim --epsilon 1 --delta 1e-6\n"
    "  tacit run --world grid:side=4 --agent ucbvi:stationary=false \\\n"
    "      --privacy none --users 1e5 --seeds 10 --json\n"
    "  tacit run --world gym:CartPole-v1 --epsilon 1 --delta 1e-6\n"
    "  tacit run --world gym:FrozenLake-v1,is_slippery=false \\\n"
    "      --epsilon 1 --delta 1e-6 --plot regret.png\n"
    "  tacit run --world my_file.py:make --agent my_file.py:MyAgent --privacy none"
)

_MANY_SEEDS = 12
# Of what there is to gain.
_NOTHING = 0.01


def run_command(
    world: options.World,
    agent: options.Agent = "auto",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: options.Users = None,
    seeds: options.Seeds = "1",
    seed: options.Seed = "0",
    workers: options.Workers = None,
    plot: options.Plot = None,
    save: options.Save = None,
    tensorboard: options.TensorBoard = None,
    as_json: options.Json = False,
) -> None:
    """Runs one agent."""
    from tacit.registry import choose_agent

    choice = choose_agent(agent)
    model = options.chosen_privacy(choice, privacy, epsilon, delta)
    line = choice.label, choice, model
    made = simulate(world, [line], users, (seed, seeds), workers, plot, save, tensorboard)
    why = _why(made, world)
    if as_json:
        print_json(made.run_dict() | {"why": why})
    else:
        _show(made, why)
        say_files(plot, save, tensorboard)


def _why(made: Comparison, world: str) -> str:
    """What the agent chose and what it is told, in its own words."""
    from tacit.registry import build_world

    entry = made.entries[0]
    agent = entry.agent.build(build_world(world).spec, made.users, entry.privacy)
    return str(getattr(agent, "why", ""))


def _show(made: Comparison, why: str) -> None:
    """A row per seed, the guarantee, and what it means for users."""
    from tacit.simulation.compare import rows
    from tacit.simulation.result import median, served_words

    results, batch = made.results[0], made.entries[0].agent.batch
    first = results[0]
    headline = served_words(results, made.entries[0].label)
    say(f"{headline}: served users gained nothing" if batch else headline)
    say_chosen(made)
    if why:
        say(f"It chose: {why}.")
    say_assumed(made)
    titles, *_ = rows({"": results})
    table = [(str(result.seed), *rows({"": [result]})[1][1:-1]) for result in results]
    if len(table) > _MANY_SEEDS:
        table[_MANY_SEEDS - 1 :] = [("...", *[""] * (len(titles) - 2))]
    if len(results) > 1:
        table.append(("median", *rows({"": results})[1][1:-1]))
    print_table(("seed", *titles[1:-1]), table)
    say_rebuilt([made.entries[0].agent])
    if first.guarantee is None:
        say("Not private: nothing is guaranteed to the users.")
    else:
        say(f"Guarantee: {first.guarantee}")
    if batch:
        scores = median(known(result.greedy_score) for result in results)
        say(_batch_words(scores, median(result.greedy_value for result in results), made.users))
    if math.isnan(first.optimal_value):
        say("The optimum is not known: returns are reported, regret is not.")
    elif not batch:
        say(_run_words(median(result.users_to_90 for result in results), made.users))
        stake = first.optimal_value - first.baseline_value
        got = median(result.served_value for result in results)
        if got is not None and got < first.baseline_value + _NOTHING * stake:
            say(f"They gained nothing: without learning it is {first.baseline_value:.4g} each.")


def _batch_words(score: float | None, value: float | None, users: int) -> str:
    words = (
        f"These {users:,} users were served by the behaviour policy and gained nothing: it is a "
        "batch agent, made for those who come after them."
    )
    scored = "" if score is None else f", a score of {score:.3f}"
    return f"{words} The greedy policy, learnt from them, has a value of {value:.4g}{scored}."


def _run_words(needed: float | None, users: int) -> str:
    from tacit.simulation.compare import users_words

    if needed is None:
        return f"{users:,} users were not enough to get 90 % of what is possible, for good."
    words = f"After {users_words(needed)} users, those who come get 90 % of what is possible"
    if users < 10 * needed:
        return f"{words}, but the run is too short (under ten times that) to say for good."
    return f"{words}, for good."
