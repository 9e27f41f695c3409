"""A first private agent learns to swim upstream from a million people, one episode each.

It is the one that Tacit takes by itself for such a world and budget. An agent without privacy meets
the same people, to show what privacy costs here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tacit
from research.figures import budget_words, picture
from research.study import Parser, whole

if TYPE_CHECKING:
    from tacit.simulation.result import Result

STATES, HORIZON = 6, 20


def learn(
    privacy: tacit.JointDP | tacit.NonPrivate, users: int, seed: int = 0
) -> tuple[Result, str]:
    """One run on riverswim, with a progress bar where somebody is watching; and why this agent."""
    world = tacit.tabular.riverswim(STATES, HORIZON)
    agent = tacit.agent(world.spec, users, privacy, seed=seed, noise_seed=seed)
    return tacit.run(agent, world, seed=seed), agent.chosen


def draw(path: Path, private: Result, plain: Result, budget: tacit.Budget) -> None:
    """Regret and value against users, with and without privacy."""
    from tacit.simulation.plots import plot_results

    plot_results(
        {"private": [private], "not private": [plain]},
        path,
        title=f"Learning from {_people(private.users)}, privately ({budget_words(budget)})",
    )


def words(private: Result, plain: Result) -> str:
    """What came out, in plain words."""
    needed, fewest = private.users_to_90, plain.users_to_90
    people = _people(private.users)
    if needed is None:
        learnt = f"{people} did not suffice for the policy to get, and stay, near the best"
    else:
        learnt = f"after {needed:,} of {people} the policy was within 10 % of the best, for good"
    twin = "the policy did not get there" if fewest is None else f"it took {fewest:,}"
    text = f"In plain words: {learnt}; without privacy {twin}."
    if private.guarantee is None:
        return text
    epsilon, delta = private.guarantee.epsilon, private.guarantee.delta
    likelier = f"more than {math.exp(epsilon):.3g} times as likely"
    if delta > 0:
        likelier += f", up to a probability of {delta:g}".replace("e-0", "e-")
    return (
        f"{text} Whatever one user did in her episode, it made nothing that was published "
        f"{likelier}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser("research.first_agent", __doc__)
    parser.add_argument("--output", type=picture, required=True, help="the PNG file to write")
    parser.add_argument("--users", type=whole(1), default=1_000_000, help="one episode each")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the users and of the noise")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of all that is published")
    parser.add_argument("--delta", type=float, default=1e-6, help="of all that is published")
    given = parser.parse_args(arguments)
    try:
        privacy = tacit.JointDP(given.epsilon, given.delta)
        private, chosen = learn(privacy, given.users, given.seed)
        plain, _ = learn(tacit.NonPrivate(), given.users, given.seed)
        draw(given.output, private, plain, privacy.budget)
    except tacit.InvalidArgument as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"argument --output: cannot be written: {error}")
    report(private, plain, chosen)
    print(f"\nThe picture is {given.output}.")
    return 0


def report(private: Result, plain: Result, chosen: str) -> None:
    """Prints the agent that was chosen, both runs, the guarantee, and what it means."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(f"Chosen: {chosen}.\n")
    console.print(f"{private}\n\n{plain}", soft_wrap=True)
    console.print(f"\nGuarantee: {private.guarantee}\n\n{words(private, plain)}")


def _people(users: int) -> str:
    return "a million users" if users == 1_000_000 else f"{users:,} user{'s' * (users != 1)}"


if __name__ == "__main__":
    sys.exit(main())
