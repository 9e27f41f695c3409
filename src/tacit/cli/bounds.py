"""``tacit bounds``: what the theorems of the five papers promise."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from tacit.cli import options
from tacit.cli.options import asked
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import InvalidArgument

HELP = (
    "What the theorems of the five papers promise at your sizes and budget.\n\n"
    "Evaluates each theorem's expression with the printed constants and with corrected ones, for "
    "the same kind of privacy. The tabular paper's Laplace noise is for delta = 0; Gaussian noise "
    "has rows of its own there, and with --delta 0 there are the tabular theorems alone.\n\n"
    "A theorem is an order: O is read as 1, hidden logarithms are left out. Compare with K H, "
    "which no regret exceeds: above it a theorem says nothing. docs/papers has the algorithms.\n\n"
    "\b\nExample:\n"
    "  tacit bounds --states 6 --actions 2 --horizon 20 --dimension 10 --users 1e6 \\\n"
    "      --epsilon 1 --delta 1e-6"
)


def bounds_command(
    states: Annotated[str, asked("S", "Number of states; coordinates of the state in LQ control.")],
    actions: Annotated[str, asked("A", "Number of actions; coordinates of the control in LQ.")],
    horizon: Annotated[str, asked("H", "Steps of an episode.")],
    users: Annotated[str, asked("K", "Users, one episode each.")],
    dimension: Annotated[str, asked("d", "Dimension of features.")] = "10",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    failure: Annotated[str, asked("NUMBER", "Probability that a theorem may fail.")] = "0.1",
    as_json: options.Json = False,
) -> None:
    """Evaluates theorems."""
    from tacit.core.texts import number, whole_number
    from tacit.papers.bounds import Question, promises

    if epsilon is None or delta is None:
        raise InvalidArgument("--epsilon and --delta must be given, as --epsilon 1 --delta 1e-6")
    asked_for = Question(
        episodes=whole_number("users", users),
        horizon=whole_number("horizon", horizon),
        states=whole_number("states", states),
        actions=whole_number("actions", actions),
        dimension=whole_number("dimension", dimension),
        epsilon=number("epsilon", epsilon),
        delta=number("delta", delta),
        failure=number("failure", failure),
    )
    found = promises(asked_for)
    if as_json:
        rows = [dataclasses.asdict(promise) for promise in found]
        print_json(
            {"question": dataclasses.asdict(asked_for), "most": asked_for.most} | {"promises": rows}
        )
        return
    titles = "paper", "theorem", "printed", "corrected"
    print_table(
        titles,
        [
            (p.paper, p.theorem, _number(p.printed, "nothing"), _number(p.corrected, "not known"))
            for p in found
        ],
    )
    if not asked_for.delta:
        say("The other papers' noise is Gaussian, and needs a delta above 0.")
    say(f"Regret is at most K H = {asked_for.most:,.6g} in finite worlds, whatever is done.")
    for promise in found:
        if promise.note:
            say(f"{promise.theorem.partition(',')[0]} of {promise.paper}: {promise.note}.")


def _number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:,.4g}"
