"""What exact noise costs in learning: agents with it, and with noise as fine as floats.

Users are simulated one by one from the same seeds. Three runs are compared by the policies that
are published for users (at the end the greedy one), each weighted with the users of the block
before it: their values, as a share of what there is to gain over one that learns nothing.

* *exact*: the real path as it is shipped, with fresh noise;
* *rounded*: the same path, but the normal numbers behind the rounding are seeded;
* *fine*: those very numbers on a grid 2^20 times finer, which is what floats would be.

*Rounded* and *fine* are the same runs but for the rounding, so their difference shows what the grid
costs, far below the spread of runs with noise of their own. *Exact* has the distribution of
*rounded*; it is there to be compared with it.

In a clone of the repository ``python -m research.exact_learning`` prints the table and stores it in
``research/exact_learning.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import tacit
from research.command_lines import Parser, whole
from tacit.core.world import World
from tacit.privacy import exact
from tacit.privacy.models import JointDP
from tacit.registry import build_world

TABLE = Path(__file__).with_suffix(".json")

# Agents, worlds, and as many users as make the served policies' values steep in the noise.
ROWS: tuple[tuple[Callable[..., tacit.Agent], str, int], ...] = (
    (tacit.UCBVI, "riverswim:states=4,horizon=8", 4_000),
    (tacit.LSVIUCB, "simplex:dimension=3,states=8,actions=3,horizon=4", 2_000),
    (tacit.LinOptVI, "mixture_of_models:dimension=3,states=4,actions=4,horizon=4,seed=700", 400),
    (tacit.CertaintyEquivalence, "double_integrator", 4_000),
    (tacit.FittedFunctionalQ, "line", 60),
)
MODEL = JointDP(1.0, 1e-5)
_FINER = 2.0**-20

Kind = Literal["exact", "rounded", "fine"]


@dataclass(frozen=True)
class Row:
    """An agent's mean shares of what there is to gain, over ``seeds`` runs of each kind.

    Attributes:
        cost: the mean of *fine* less *rounded*, run by run.
        cost_error: its standard error.
        apart: *exact* less *rounded*, of independent runs.
        apart_error: its standard error.
    """

    agent: str
    world: str
    users: int
    seeds: int
    exact: float
    rounded: float
    fine: float
    cost: float
    cost_error: float
    apart: float
    apart_error: float

    @property
    def line(self) -> str:
        """Of the table."""
        return (
            f"| {self.agent} | {self.world} | {self.users:,} | {self.exact:.3f} | "
            f"{self.rounded:.3f} | {self.fine:.3f} | {self.cost:+.4f} ({self.cost_error:.4f}) | "
            f"{self.apart:+.3f} ({self.apart_error:.3f}) |"
        )


HEAD = (
    "| agent | world | users | exact | rounded | fine | fine - rounded | exact - rounded |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|"
)


@contextmanager
def noise_of(kind: Kind, seed: int) -> Iterator[None]:
    """Real runs in here have this noise."""
    if kind == "exact":
        yield
        return
    rng = np.random.default_rng([seed, 18])

    def steps(_: object, pure: bool, scale: float, count: int) -> NDArray[np.int64]:
        deviates = rng.laplace(size=count) if pure else rng.standard_normal(count)
        return np.rint(scale * deviates).astype(np.int64)

    finer = exact.ROUNDING * (_FINER if kind == "fine" else 1.0)
    with (
        mock.patch.object(exact.Noise, "steps", steps),
        mock.patch.object(exact, "ROUNDING", finer),
    ):
        yield


def gained(
    make: Callable[..., tacit.Agent], world: World, users: int, seed: int, kind: Kind
) -> float:
    """What the published policies gain, as a share of what there is to gain."""
    rng, total = np.random.default_rng([seed, 17]), 0.0
    with noise_of(kind, seed):
        agent = make(world.spec, users, MODEL, seed=seed)
        while count := agent.block_users:
            agent.learn(world.simulate(agent.policy, count, rng, "episodes"))
            shown = agent.policy if agent.block_users else agent.greedy_policy
            total += count * world.value(shown)
    idle = world.baseline_value
    return float((total / agent.served - idle) / (world.optimal_value - idle))


def row(make: Callable[..., tacit.Agent], name: str, users: int, seeds: int) -> Row:
    """One line, from so many runs of each kind."""
    world = build_world(name)
    runs = {
        kind: np.array([gained(make, world, users, seed, kind) for seed in range(seeds)])
        for kind in ("exact", "rounded", "fine")
    }
    cost, apart = runs["fine"] - runs["rounded"], runs["exact"] - runs["rounded"]
    means = {kind: float(shares.mean()) for kind, shares in runs.items()}
    return Row(
        str(getattr(make, "name", make)),
        name.partition(":")[0],
        users,
        seeds,
        **means,
        cost=float(cost.mean()),
        cost_error=_error(cost),
        apart=float(apart.mean()),
        apart_error=_error(apart),
    )


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table, and stores it unless only some rows were asked for."""
    parser = Parser("python -m research.exact_learning", (__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=whole(2), default=60, help="runs of each kind")
    parser.add_argument("--only", help="one agent, by its name; stores nothing")
    chosen = parser.parse_args(arguments)
    print(HEAD)
    made = []
    for make, name, users in ROWS:
        if chosen.only in (None, getattr(make, "name", make)):
            made.append(row(make, name, users, chosen.seeds))
            print(made[-1].line, flush=True)
    if chosen.only is None:
        TABLE.write_text(json.dumps([asdict(line) for line in made], indent=1) + "\n")


if __name__ == "__main__":
    main()
