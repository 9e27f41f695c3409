"""Audits of everything that claims to be private: every agent, under every model it takes.

``python -m research.audit_table`` asks each agent that has a name to run under each model,
with its usual options and with those that change its mechanism. Where an agent refuses, it says
why; otherwise ``tacit audit`` is made, and the table has the measured over the claimed cost of the
worst two users that were found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from research.study import Parser, load, store, whole
from research.worlds import build
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, LocalDP, Privacy
from tacit.registry import BUILT_IN, agent_entry, choose_agent

MODELS: dict[str, Privacy] = {
    "joint": JointDP(1.0, 1e-6),
    "joint, pure": JointDP(1.0, 0.0),
    "local": LocalDP(4.0, 1e-6),
    "local, pure": LocalDP(4.0, 0.0),
    "local, randomised response": LocalDP(4.0, 0.0, mechanism="randomised response"),
}
"""What every agent is asked to run under."""

WORLDS = {
    "tabular": "riverswim:states=3,horizon=4",
    "linear": "simplex:dimension=3,states=8,actions=3,horizon=4",
    "mixture": "mixture_of_models:dimension=3,states=4,actions=4,horizon=4,seed=700",
    "lq": "random_system:n=2,d=1,horizon=5,seed=500",
    "continuous": "line:horizon=8",
    "trial": "micro_randomised:decisions=20,contexts=3,looks=0.2:0.5:1",
}
"""A small world for every family."""

OWN_WORLDS = {
    "centred_improvement": "riverswim:states=3,horizon=6",
    "linopt_sampled": "currents:rows=5,columns=6,dimension=3,horizon=4,samples=4",
}
"""Worlds of agents that need models as simulators, or more than two coordinates."""

FAMILY_OPTIONS = {
    "tabular": (
        "ucbvi:stationary=false",
        "ucbpo:stationary=false",
        "concurrent_psrl:running=0",
        "concurrent_psrl:stationary=false",
    ),
    "linear": ("lsvi_ucb:statistic=features", "linear_posterior:stationary=false"),
    "mixture": ("linopt_vi:statistic=counts",),
    "continuous": ("fitted_functional_q:serve=most", "fitted_functional_q:serve=all"),
}
MORE_OPTIONS = (
    "pessimistic_improvement:behaviour=unknown",
    "model_posterior on gym:MountainCar-v0:horizon=8",
)
OPTIONS = (*chain.from_iterable(FAMILY_OPTIONS.values()), *MORE_OPTIONS)
"""Options that change what is asked of users, how noise is added, or what is planned with; on
worlds that do the same: ends and rewards to learn, actions that are vectors."""

_RUNS = 40


@dataclass(frozen=True)
class Row:
    """One agent under one model.

    Attributes:
        agent: with its options, as ``tacit audit`` takes it.
        model: a name of :data:`MODELS`.
        refused: why the agent does not run under it, or ``None``.
        passed: the verdict.
        ratio: the measured cost of the worst two users found, over what is claimed.
        failures: what is wrong, in words.
    """

    agent: str
    model: str
    refused: str | None
    passed: bool = False
    ratio: float = float("nan")
    failures: tuple[str, ...] = ()

    @property
    def cell(self) -> str:
        """In a table."""
        if self.refused is not None:
            return "-"
        return f"{self.ratio:.2f}" if self.passed else "FAIL"


def agents() -> list[str]:
    """Every agent that has a name, and those with options."""
    return [*BUILT_IN, *OPTIONS]


def family(agent: str) -> str:
    """Which family an agent is of."""
    return agent_entry(agent.partition(" on ")[0].partition(":")[0]).target.split(".")[1]


def split(row: str) -> tuple[str, str]:
    """The agent of a row, and its world.

    >>> split("ucbvi"), split("model_posterior on plane")
    (('ucbvi', 'riverswim:states=3,horizon=4'), ('model_posterior', 'plane'))
    """
    agent, _, own = row.partition(" on ")
    name = agent.partition(":")[0]
    usual = OWN_WORLDS.get(name, "") or WORLDS[family(name)]
    return agent, own or OWN_WORLDS.get(agent, usual)


def audited(agent: str, model: str, runs: int = _RUNS, **options: Any) -> Row:
    """An audit, unless the agent refuses the model."""
    from tacit.cli.audit import audited as constructor
    from tacit.testing.audit_agent import audit_agent

    own, place = split(agent)
    world = build(place)
    choice, privacy = choose_agent(own), MODELS[model]
    try:
        make, users = constructor(choice, world, privacy)
    except InvalidArgument as error:
        return Row(agent, model, str(error))
    made = audit_agent(make, world, users=users, runs=runs, progress=False, **options)
    ratio = max(t.estimate / t.claimed for t in made.transcripts) if made.transcripts else 0.0
    return Row(agent, model, None, made.passed, ratio, made.failures)


def rows(chosen: Sequence[str], runs: int = _RUNS) -> Iterator[list[Row]]:
    """Agents one after the other, each under all models."""
    for agent in chosen:
        yield [audited(agent, model, runs) for model in MODELS]


def line_of(row: Sequence[Row]) -> str:
    """An agent's row of the table."""
    return f"| `{row[0].agent}` | {' | '.join(one.cell for one in row)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns how many audits failed."""
    parser = Parser("research.audit_table", "audits of every private agent under every model")
    parser.add_argument(
        "--runs", type=whole(20), default=_RUNS, help="runs with each of the two users"
    )
    parser.add_argument(
        "--agents", nargs="+", metavar="AGENT", default=None, help="only these; all by default"
    )
    parser.add_argument("--store", action="store_true", help="keep rows for the page")
    chosen = parser.parse_args(arguments)
    made: list[Row] = []
    print(f"| agent | {' | '.join(MODELS)} |\n|---|{'---:|' * len(MODELS)}")
    for line in rows(chosen.agents or agents(), chosen.runs):
        print(line_of(line), flush=True)
        if chosen.store:
            kept = {"runs": chosen.runs, "text": line_of(line)}
            store("audit_table", load("audit_table") | {line[0].agent: kept})
        made += line
    failed = [row for row in made if row.refused is None and not row.passed]
    count = sum(row.refused is None for row in made)
    print(f"\n{count - len(failed)} of {count} audits passed.")
    for row in failed:
        print(f"{row.agent} under {row.model}: {'; '.join(row.failures)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
