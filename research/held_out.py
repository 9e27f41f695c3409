"""Worlds other than the one the constants come from: users to 90 % with privacy and without.

Two rules of the agents were made with the first worlds in view (how blocks grow with the number of
cells, and how they are weighed). Nothing was decided with the last five, ``UNSEEN``, in view.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tacit
from research.command_lines import Parser, store, whole
from research.epsilon_cost import DELTA, Cost, with_progress
from tacit.simulation.run import noise_seed

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy

EPSILON = 1.0


# By the names that rebuild them.
WORLDS: dict[str, str] = {
    "riverswim, 8 states": "riverswim:states=8,horizon=20",
    "riverswim, 12 states": "riverswim:states=12,horizon=20",
    "riverswim, 12 states, 40 steps": "riverswim:states=12,horizon=40",
    "grid": "grid:side=5,horizon=20",
    "deep_sea": "deep_sea:depth=10",
    "deep_sea, slipping": "deep_sea:depth=10,slip=True",
    "random_mdp, seed 0": "random_mdp:states=10,actions=3,horizon=10,seed=0",
    "random_mdp, seed 1": "random_mdp:states=10,actions=3,horizon=10,seed=1",
    "random_mdp, seed 2": "random_mdp:states=10,actions=3,horizon=10,seed=2",
    "FrozenLake": "gymnasium:id=FrozenLake-v1,horizon=100",
    "health_coach": "health_coach",
}
UNSEEN: dict[str, str] = {
    "riverswim, 10 states": "riverswim:states=10,horizon=30",
    "grid, 6 by 6": "grid:side=6,horizon=24",
    "deep_sea, 12 deep": "deep_sea:depth=12",
    "random_mdp, seed 3": "random_mdp:states=12,actions=3,horizon=12,seed=3",
    "random_mdp, seed 4": "random_mdp:states=12,actions=3,horizon=12,seed=4",
}
# The private agent is given enough users for ten times what it needs, where it learns at all.
PRIVATE_USERS = 100_000_000
PLAIN_USERS = 1_000_000


@dataclass(frozen=True)
class Row:
    """One world.

    Attributes:
        world: its name.
        size: states, actions and horizon.
        private: with privacy.
        plain: without.
        greedy: the private agent's greedy policy.
        score: median score of the private agent's last greedy policy.
    """

    world: str
    size: tuple[int, int, int]
    private: Cost
    plain: Cost
    greedy: Cost
    score: float

    @property
    def ratio(self) -> float | None:
        """How many times the users it takes with privacy, where both get there."""
        private, plain = self.private.median, self.plain.median
        return private / plain if private is not None and plain else None

    @property
    def settled(self) -> bool:
        """Whether both runs were long enough to rely on."""
        return self.private.settled and self.plain.settled


def measure_worlds(
    names: Sequence[str], seeds: Sequence[int], options: Mapping[str, Any]
) -> Iterator[Row]:
    """UCBVI on every world, with privacy and without."""
    for name in names:
        world = tacit.world((WORLDS | UNSEEN)[name])
        spec = world.spec

        def runs(privacy: Privacy, users: int, world: Any = world) -> list[tacit.Result]:
            given = {"users": users, "privacy": privacy, **options}

            def make(its: Any, seed: int) -> Any:
                return tacit.UCBVI(its, seed=seed, noise_seed=noise_seed(seed), **given)

            return tacit.run_seeds(make, world, list(seeds), workers=1, progress=False)

        private = runs(tacit.JointDP(EPSILON, DELTA), PRIVATE_USERS)
        plain = runs(tacit.NonPrivate(), PLAIN_USERS)
        yield Row(
            name,
            (spec.states, spec.actions, spec.horizon),
            Cost.of(private),
            Cost.of(plain),
            Cost.of(private, greedy=True),
            sorted(result.greedy_score for result in private)[len(private) // 2],
        )


def table(rows: Sequence[Row]) -> str:
    """Medians and bands, in Markdown."""
    lines = [
        "| world | S, A, H | private | greedy policy | not private | ratio | greedy score |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(line, rows)])


def line(row: Row) -> str:
    """A world's row of the table."""
    ratio = "-" if row.ratio is None else f"{row.ratio:,.0f}{'' if row.settled else '*'}"
    size = ", ".join(map(str, row.size))
    return (
        f"| {row.world} | {size} | {row.private} | {row.greedy} | {row.plain} | {ratio} | "
        f"{_score(row.score)} |"
    )


def _score(score: float) -> str:
    return "-" if math.isnan(score) else f"{score:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser(
        prog="python -m research.held_out",
        description="UCBVI at epsilon 1 on worlds on which none of its constants was chosen.",
    )
    parser.add_argument("--runs", type=whole(1), default=10, help="seeds of every world")
    parser.add_argument(
        "--worlds",
        nargs="*",
        choices=[*WORLDS, *UNSEEN],
        default=list(WORLDS),
        metavar="WORLD",
        help="some worlds only",
    )
    parser.add_argument("--unseen", action="store_true", help="the worlds that decided nothing")
    parser.add_argument("--per-step", action="store_true", help="a model for every step")
    parser.add_store()
    given = parser.parse_args(arguments)

    def kept(name: str, text: str) -> str:
        if given.store:
            store(__spec__.name, {name: {"runs": given.runs, "text": text}})
        return text

    if given.unseen:
        given.worlds = list(UNSEEN)
    options = {"stationary": False} if given.per_step else {}
    measuring = measure_worlds(given.worlds, range(given.runs), options)
    rows = []
    for row in with_progress(measuring, len(given.worlds)):
        kept(f"{'per step, ' if given.per_step else ''}{row.world}", line(row))
        rows.append(row)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
