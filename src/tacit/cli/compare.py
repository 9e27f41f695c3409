"""``tacit compare``: several agents or budgets on one world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.cli import options
from tacit.cli.output import print_json, print_table, say
from tacit.cli.simulations import say_assumed, say_chosen, say_files, simulate

if TYPE_CHECKING:
    from tacit.simulation.compare import Comparison

HELP = (
    "Run several agents or budgets on one world: one table, and one plot with bands.\n\n"
    "Each --agent is combined with each --epsilon. An agent can have a model and a budget of its "
    "own, as ucbvi:privacy=none or ucbvi:privacy=local,epsilon=4; auto is the one that tacit run "
    "takes by itself.\n\n"
    "\b\nExamples:\n"
    "  tacit compare --world riverswim --agent auto --agent ucbvi --agent ucbpo \\\n"
    "      --agent ucbvi:privacy=none --epsilon 1 --delta 1e-6 --plot agents.png\n"
    "  tacit compare --world grid --agent ucbvi --delta 1e-6 \\\n"
    "      --epsilon 0.1 --epsilon 1 --epsilon 10"
)


def compare_command(
    world: options.World,
    agent: options.Agents,
    epsilon: options.Epsilons = None,
    delta: options.Delta = None,
    privacy: options.Privacy = "joint",
    users: options.Users = None,
    seeds: options.Seeds = "5",
    seed: options.Seed = "0",
    workers: options.Workers = None,
    plot: options.Plot = None,
    save: options.Save = None,
    tensorboard: options.TensorBoard = None,
    as_json: options.Json = False,
) -> None:
    """Runs several agents."""
    from tacit.registry import choose_agent

    lines = []
    for choice in map(choose_agent, agent):
        private = choice.budget.get("privacy", privacy) != "none"
        several: Sequence[str | None] = [None]
        if epsilon and private and "epsilon" not in choice.budget:
            several = epsilon
        for one in several:
            label = choice.text if len(several) == 1 else f"{choice.text}, epsilon {one}"
            model = options.chosen_privacy(choice, privacy, one, delta, alone=False)
            lines.append((label, choice, model))
    made = simulate(world, lines, users, (seed, seeds), workers, plot, save, tensorboard)
    if as_json:
        print_json(made.to_dict())
    else:
        _show(made)
        say_files(plot, save, tensorboard)


def _show(made: Comparison) -> None:
    """A row per agent and budget."""
    from tacit.simulation.compare import rows

    first, runs = made.results[0][0], len(made.results[0])
    how = "one run" if runs == 1 else f"median of {runs} runs"
    best = f"optimal value {first.optimal_value:.4g}"
    if math.isnan(first.optimal_value):
        best = "the optimum is not known"
    say(
        f"{made.world}: {made.users:,} users, {how}, {best}, without learning "
        f"{first.baseline_value:.4g}",
    )
    titles, *table = rows(made.labelled())
    print_table(titles, table)
    say_chosen(made)
    say_assumed(made)
    if gained_nothing := [entry.label for entry in made.entries if entry.agent.batch]:
        say(
            f"Served users gained nothing from {', '.join(gained_nothing)}: a batch agent learns "
            "for those who come later, by its greedy policy."
        )
    if any(results[0].guarantee is not None for results in made.results):
        say("Simulation only: the noise has a known seed and protects nobody.")
