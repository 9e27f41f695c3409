"""Continuous states: a private run against simulating its users, and queries of Q.

A run of the batch agent serves all users at random and asks all of them at every sweep, so that it
goes through every episode once for each release; simulating the same users goes through it once.
Where most users are served by what a few have shown, the few are asked so often. A published Q is a
table: looking at it leaves nothing behind. Times are of the processor, to which other processes add
little.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.row import Row, at_most, noted
from benchmarks.timing import processor
from tacit import FittedFunctionalQ
from tacit.continuous.policy import QPolicy
from tacit.continuous.worlds import BoxWorld, line
from tacit.core.agent import Agent
from tacit.privacy.models import JointDP
from tacit.simulation.result import Result
from tacit.simulation.run import run

NAME, SERVED = "fitted functional q, (0.9, 1e-4)", "the same, most served, (0.9, 1e-4)"
USERS, TURNS = 100_000, 5
QUERIES, AT_ONCE = 10**5, 100


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _run()
    yield from _queries()


def _agent(world: BoxWorld, users: int) -> Agent:
    agent: Agent = FittedFunctionalQ(world.spec, users, JointDP(0.9, 1e-4), noise_seed=0)
    return agent


def _private(world: BoxWorld, users: int) -> Result:
    return run(_agent(world, users), world, progress=False)


def _served(world: BoxWorld, users: int) -> Result:
    options: dict[str, Any] = {"serve": "most", "noise_seed": 0}
    agent = FittedFunctionalQ(world.spec, users, JointDP(0.9, 1e-4), **options)
    return run(agent, world, progress=False)


def _run() -> Iterator[Row]:
    world = line()
    uniform = QPolicy.uniform(world.spec.dimension, world.spec.actions)
    rng = np.random.default_rng(0)
    works = partial(_private, world, USERS), partial(world.simulate, uniform, USERS, rng)
    whole, users = processor(*works, turns=TURNS)
    asked = _agent(world, USERS).state.ahead.sweeps + 1
    what = f"{USERS:,} users on line: {{}}"
    yield noted(NAME, what.format(f"a run, {asked} releases about all users"), 1e3 * whole, " ms")
    yield noted(NAME, what.format("a release"), 1e3 * whole / asked, " ms")
    yield noted("simulation", what.format("their episodes"), 1e3 * users, " ms")
    yield at_most(NAME, what.format("a run / simulating them"), whole / users, 4.0, "x")
    yield noted(NAME, what.format("a release / simulating them"), whole / asked / users, "x")
    served, users = processor(partial(_served, world, USERS), works[1], turns=TURNS)
    yield at_most(SERVED, what.format("a run / simulating them"), served / users, 4.0, "x")


def _queries() -> Iterator[Row]:
    """What is left in memory by looking at a published Q at ever new points."""
    world = line()
    agent = _agent(world, 100)
    rng = np.random.default_rng(0)
    agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    policy = agent.greedy_policy
    points = rng.random((QUERIES, 1))

    def look() -> None:
        for some in points.reshape(-1, AT_ONCE, 1):
            policy.features(some) @ policy.weights.T
            policy.act_many(0, some, rng)

    look()  # whatever is made once is there
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    look()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    (took,) = processor(look, turns=TURNS)
    name = "published Q on a grid"
    yield at_most(name, f"memory after {QUERIES:,} queries, grown by", grown / 1024, 8.0, " kB")
    yield noted(name, "a query, a hundred at a time", 1e6 * took / QUERIES, " µs")
