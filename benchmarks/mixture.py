"""Mixture agents: many users, and a plan of a large world against reading its features.

A plan multiplies the features, a number for every state, action, direction and next state, with
two value functions at all steps but the last. So it cannot be faster than reading them once per
such step. How long that takes is measured beside it: the least of a maximum and of a product with
one vector, which take turns with the plan. All three are in processor time, to which other
processes add little; limits in seconds are of the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.row import Row, at_least, at_most, noted
from benchmarks.timing import seconds
from tacit import LinOptVI
from tacit.core.agent import Agent
from tacit.mixture.linopt_vi import LinOptVI as Algorithm
from tacit.mixture.worlds import MixtureWorld, hard_mixture, mixture_of_models
from tacit.privacy.models import JointDP
from tacit.simulation.result import Result
from tacit.simulation.run import run

NAME = "linopt-vi, epsilon 1"
REPETITIONS = 3
TURNS = 20
STATES, ACTIONS, DIMENSION = 200, 20, 20


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _a_million_users()
    yield from _plan()


def _agent(world: MixtureWorld, users: int) -> Agent:
    return LinOptVI(world.spec, users, JointDP(epsilon=1.0, delta=1e-6), noise_seed=0)


def _private(world: MixtureWorld, users: int) -> Result:
    return run(_agent(world, users), world, progress=False)


def _a_million_users() -> Iterator[Row]:
    for world in (mixture_of_models(), hard_mixture(), hard_mixture(per_step=True)):
        _private(world, 10**5)  # compiles
        took = seconds(partial(_private, world, 10**6), repetitions=REPETITIONS)
        word = ", per step" if not world.spec.stationary_transitions else ""
        what = f"a run of 10^6 users, {world.name.split(':')[0]}{word}"
        yield at_most(NAME, what, took, 1.0, " s")


def _plan() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    models = rng.dirichlet(np.full(STATES, 0.1), (STATES, ACTIONS, DIMENSION))
    weights, rewards = np.full((1, DIMENSION), 1.0 / DIMENSION), np.zeros((1, STATES, ACTIONS))
    rewards[:, -1] = 1.0
    world = MixtureWorld(models, weights, rewards, 10)
    start = time.perf_counter()
    agent = _agent(world, 10**5)
    made = time.perf_counter() - start
    for _ in range(2):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))

    algorithm = agent.algorithm
    assert isinstance(algorithm, Algorithm)  # noqa: S101
    features = world.spec.along[0]
    flat, values = features.reshape(-1, STATES), rng.random(STATES)
    model = algorithm.estimator.model(agent.state)
    plan, largest, product, expected, width = _taking_turns(
        partial(algorithm.plan, agent.state, None, agent.progress, rng),
        lambda: features.max(),
        lambda: flat @ values,
        lambda: model.next_value(0, values),
        lambda: model.width(0, values),
    )
    read, steps = min(largest, product), world.spec.horizon - 1
    what = f"S = {STATES}, A = {ACTIONS}, d = {DIMENSION}, H = {world.spec.horizon}: {{}}"
    speed = features.nbytes / read / 1e9
    yield noted(NAME, what.format("making the agent"), made, " s")
    yield noted(NAME, what.format("a plan"), 1e3 * plan, " ms")
    yield noted(NAME, what.format("its features are read once in"), 1e3 * read, " ms")
    yield noted(NAME, what.format("the same, a second"), speed, " GB")
    share = 100.0 * steps * read / plan
    yield at_least(NAME, what.format("a plan's speed, of reading's"), share, 60.0, " %")
    for part, took in (("expected values", expected), ("widths", width)):
        yield noted(NAME, what.format(f"{part}, of a plan"), 100.0 * steps * took / plan, " %")


def _taking_turns(*works: Callable[[], object]) -> list[float]:
    """The least processor time of each, so that a slow moment of the machine hits all."""
    times = np.empty((TURNS, len(works)))
    for turn in times:
        for place, work in enumerate(works):
            start = time.process_time()
            work()
            turn[place] = time.process_time() - start
    return [float(least) for least in times.min(axis=0)]
