"""Linear-quadratic agents: simulated users a second, a million users, and a plan.

Users are rolled out and their clipped sums added up, part by part as a run does it for large
blocks. Beside it is a plain C loop with the same arithmetic, ``lq_rollout.c``, which does user
after user; its sums are checked against the library's before it is timed. The two take turns.
All but the run of a million users is in processor time, to which other processes add little.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.row import Row, at_least, noted
from benchmarks.timing import processor, seconds
from research.worlds import random_system
from tacit import Agent, CertaintyEquivalence
from tacit.core.algorithm import BlockInfo, Plan
from tacit.data.episodes import VectorEpisodes
from tacit.lq.spec import GainPolicy
from tacit.lq.statistics import TrajectorySums
from tacit.lq.world import LQWorld
from tacit.privacy.models import JointDP
from tacit.privacy.statistic import Block
from tacit.simulation.result import Result
from tacit.simulation.run import run

Floats = NDArray[np.float64]

HERE = Path(__file__).parent
SIZES = (3, 2, 15)
STREAMED, CHECKED, TURNS = 50_000, 20_000, 20
REPETITIONS = 10
RELEASES = 6
NAME = "certainty equivalence, epsilon 1"


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _users_a_second()
    yield from _a_million_users()
    yield from _plan()


def _agent(world: LQWorld, users: int) -> Agent:
    privacy = JointDP(epsilon=1.0, delta=1e-6)
    agent: Agent = CertaintyEquivalence(world.spec, users, privacy, noise_seed=0)
    return agent


def _learnt(world: LQWorld, agent: Any) -> Any:
    """An agent after some releases."""
    rng = np.random.default_rng(0)
    for _ in range(RELEASES):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))
    return agent


# Users a second.


def _users_a_second() -> Iterator[Row]:
    name = "roll-out and sums"
    world = random_system(*SIZES)
    agent = _learnt(world, _agent(world, 10**6))
    policy, statistic = agent.policy, agent.statistic
    rng = np.random.default_rng(0)

    def stream() -> object:
        block = world.simulate(policy, STREAMED, rng, "streamed")
        return statistic.total(cast(Block, block))

    what = "speed / the same loop in C, cc -O3"
    compiler = os.environ.get("CC") or shutil.which("cc")
    rate = "users a second, (3, 2, 15), streamed"
    if compiler is None:
        yield noted(name, rate, STREAMED / processor(stream, turns=REPETITIONS)[0], "", ",.0f")
        yield Row(name, what, "no C compiler: install cc, or set CC")
        return
    with tempfile.TemporaryDirectory() as folder:
        library, source = Path(folder, "lq_rollout.so"), HERE / "lq_rollout.c"
        options = ["-O3", "-shared", "-fPIC", "-lm"]
        subprocess.run([compiler, "-o", library, source, *options], check=True)
        peer = _CLoop(ctypes.CDLL(str(library)), world, policy, statistic)
        peer.check()
        own, plain = processor(stream, partial(peer.stream, STREAMED), turns=TURNS)
    yield noted(name, rate, STREAMED / own, "", ",.0f")
    yield noted("the same loop in C", rate, STREAMED / plain, "", ",.0f")
    yield at_least(name, what, plain / own, 0.5, "x")


class _CLoop:
    """The loop in C for one policy and statistic."""

    def __init__(
        self, library: ctypes.CDLL, world: LQWorld, policy: GainPolicy, statistic: TrajectorySums
    ) -> None:
        self._library, self._world, self._policy = library, world, policy
        self._statistic, self._seeds = statistic, iter(range(10**9))

    def stream(self, users: int) -> Floats:
        """The sums of simulated users."""
        world, policy = self._world, self._policy
        n, d = world.B.shape
        H = world.horizon
        assert world.start.surface  # noqa: S101
        assert not any(world.start.centre)  # noqa: S101
        return self._sums(
            self._library.stream,
            *(next(self._seeds), users, n, d, H),
            *(world.A, world.B, policy.gains, policy.noise),
            *(world.noise, world.start.radius),
            *(np.empty((H + 1, n)), np.empty((H, d))),
        )

    def check(self) -> None:
        """A yardstick that does something else measures nothing."""
        world, statistic = self._world, self._statistic
        data = world.simulate(self._policy, CHECKED, np.random.default_rng(1), "episodes")
        assert isinstance(data, VectorEpisodes)  # noqa: S101
        block = data.block()
        n, d = world.B.shape
        sizes = (CHECKED, n, d, world.horizon)
        actions = data.actions.astype(np.float64)
        same = self._sums(self._library.add_users, *sizes, data.states, actions)
        vectors = statistic.vectors(block)
        if not np.allclose(same, vectors.sum(axis=0), rtol=1e-9, atol=1e-6):
            raise RuntimeError("the C loop's sums are not those of the statistic")
        mean = self.stream(CHECKED) / CHECKED
        error = vectors.std(axis=0) * np.sqrt(2.0 / CHECKED)
        apart = float((np.abs(mean - vectors.mean(axis=0)) / np.maximum(error, 1e-12)).max())
        if apart > 7.0:  # one false alarm in 10^9, of some dozens of sums
            raise RuntimeError(f"the C loop's users are {apart:.1f} standard errors off")

    def _sums(self, function: Any, *arguments: float | Floats) -> Floats:
        statistic = self._statistic
        p, n = statistic.centre.shape
        assert statistic.tau is not None  # noqa: S101
        gram, cross = np.zeros((p, p)), np.zeros((p, n))
        function(
            *map(_as_c, arguments),
            *map(_as_c, (statistic.centre, statistic.inputs, statistic.spread)),
            *map(_as_c, (float(statistic.floor), 0.5 * statistic.weight**2, statistic.tau)),
            *map(_as_c, (gram, cross)),
        )
        lower = np.tril_indices(p, -1)
        gram[lower] = gram.T[lower]
        return statistic.layout.pack({"gram": gram, "cross": cross})


def _as_c(value: float | Floats) -> ctypes.c_int64 | ctypes.c_double | ctypes.c_void_p:
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_void_p(value.ctypes.data)


# A million users.


def _private(world: LQWorld, users: int) -> Result:
    return run(_agent(world, users), world, progress=False)


def _a_million_users() -> Iterator[Row]:
    world = random_system(*SIZES)
    _private(world, 10**5)  # compiles
    start = time.process_time()
    took = seconds(partial(_private, world, 10**6))
    used = time.process_time() - start
    yield noted(NAME, "a run of 10^6 users, (3, 2, 15)", took, " s")
    yield noted(NAME, "the same, processor time", used, " s")


# A plan.


def _plan() -> Iterator[Row]:
    """What follows a release, without the sums over users."""
    world = random_system(*SIZES)
    agent = _learnt(world, _agent(world, 10**5))
    algorithm, state, at = agent.algorithm, agent.state, agent.progress
    plan, block = Plan(agent.policy, agent.greedy_policy), BlockInfo(**vars(at))
    told = state.evidence, state.trust, state.posterior
    for what, work in (
        (
            "gains, their safeguard and the control noise",
            partial(algorithm.plan, state, plan, at, np.random.default_rng(0)),
        ),
        ("the posterior of all releases", partial(algorithm.regression.posterior, *told)),
        ("what is asked next", partial(algorithm.query, state, plan, block)),
    ):
        (took,) = processor(work, turns=REPETITIONS)
        yield noted(NAME, f"after {RELEASES} releases: {what}", 1e3 * took, " ms")
