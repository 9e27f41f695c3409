"""Tabular agents and simulators: against rlberry's UCBVI, a C loop, and limits in seconds.

rlberry runs in an environment of its own, see ``benchmarks/peers``. Its planner is plain Python, so
next to the ratio against it as it is stands the ratio against the same planner compiled. Both sides
replan after every episode of 20 steps; what is timed is the user's steps, learning and planning.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rlberry import PEERS, permuted, played
from benchmarks.row import Row, at_least, at_most, noted
from benchmarks.timing import ratio, seconds
from tacit import UCBVI
from tacit.privacy.models import JointDP, NonPrivate
from tacit.simulation.result import Result
from tacit.simulation.run import run
from tacit.tabular.model import FiniteModel, cumulative_chances
from tacit.tabular.policy import Policy
from tacit.tabular.world import TabularWorld, simulate_episodes
from tacit.tabular.worlds import random_mdp, riverswim

HORIZON = 20
SEEDS = range(5)
REPETITIONS = 3
SHORT_RUNS = 5

HERE = Path(__file__).parent


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _against_rlberry()
    yield from _a_billion_users()
    yield from _against_c()
    yield from _large()


# UCBVI against rlberry's.


@dataclass(frozen=True)
class Case:
    """One world, the ratio to reach there, and how many episodes are run.

    Attributes:
        world: which.
        limit: how many times as fast Tacit must be.
        episodes: of a run, of either library.
        timed: episodes of rlberry as it is, which are slow and all take the same time.
    """

    world: TabularWorld
    limit: float
    episodes: int
    timed: int

    @property
    def size(self) -> str:
        """For the table."""
        return f"S = {self.world.spec.states}, A = {self.world.spec.actions}"


def _against_rlberry() -> Iterator[Row]:
    cases = (
        Case(riverswim(6, HORIZON), 150.0, episodes=2000, timed=300),
        Case(random_mdp(25, 4, HORIZON, seed=0), 500.0, episodes=1000, timed=60),
        Case(random_mdp(100, 4, HORIZON, seed=0), 2000.0, episodes=1000, timed=20),
    )
    name = "ucbvi, not private"
    if not (PEERS / ".installed").exists():  # an install that broke off has none
        yield Row(name, "speed / rlberry's UCBVI", "not installed: make peers")
        return
    for case in cases:
        yield from _one_size(name, case)


def _one_size(name: str, case: Case) -> Iterator[Row]:
    _play(case.world, users=5, seed=0)  # compiles
    turns = []
    for _ in range(REPETITIONS):  # in turns, so that a slow moment of the machine hits both
        theirs = played("ucbvi", case.world, case.timed, SEEDS[:1], compiled=False)
        ours = min(_serving(_play(case.world, case.episodes, SEEDS[0])) for _ in range(SHORT_RUNS))
        # Its episodes all take the same time but for interruptions, which a median leaves out. A
        # run of ours is over so soon that an interruption is either in it or not.
        turns.append((ours, float(np.median(theirs["seconds"]))))
    mine, slow = (min(column) for column in zip(*turns, strict=True))
    compiled = played("ucbvi", case.world, case.episodes, SEEDS, compiled=True)
    same = bool((theirs["actions"][0] == compiled["actions"][0, : case.timed]).all())

    what = f"an episode and its plan, {case.size}"
    yield noted(name, what, 1e3 * mine, " ms")
    yield noted("rlberry's ucbvi", what, 1e3 * slow, " ms")
    yield at_least(name, f"speed / rlberry's, {case.size}", slow / mine, case.limit, "x")
    fast = float(np.median(compiled["seconds"], axis=1).min())
    yield noted(name, f"speed / rlberry's, its planner compiled, {case.size}", fast / mine, "x")
    yield Row(
        "rlberry's ucbvi",
        f"same policies when its planner is compiled, {case.size}",
        "yes" if same else "no",
        "yes",
        same,
    )
    # The peer's regret is that of the compiled planner, which is the same and affords more runs.
    regrets = [
        _regret(case.world, seed, a) for seed, a in zip(SEEDS, compiled["actions"], strict=True)
    ]
    own = [float(_play(case.world, case.episodes, seed).regret[-1]) for seed in SEEDS]
    yield Row(
        name,
        f"regret, {case.size}, {case.episodes:,} episodes, {len(SEEDS)} seeds",
        f"{np.mean(own):,.4g}",
        f"at most {np.mean(regrets):,.4g}, rlberry's",
        bool(np.mean(own) <= np.mean(regrets)),
    )


def _play(world: TabularWorld, users: int, seed: int) -> Result:
    agent = UCBVI(world.spec, users=users, privacy=NonPrivate(), schedule="every", seed=seed)
    return run(agent, world, seed=seed, progress=False)


def _serving(result: Result) -> float:
    """Seconds per episode without the exact evaluation of every policy, which rlberry has not."""
    return (result.seconds["total"] - result.seconds["evaluate"]) / result.users


def _regret(world: TabularWorld, seed: int, actions: NDArray[Any]) -> float:
    """Exact, of one run of the peer; ``actions`` (episodes, H, S) are in its labels."""
    shuffled = permuted(world, seed)
    policies = (Policy.deterministic(a.astype(np.int64), world.spec.actions) for a in actions)
    return len(actions) * world.optimal_value - sum(shuffled.value(policy) for policy in policies)


# Many users.


def _a_billion_users() -> Iterator[Row]:
    world = riverswim(6, HORIZON)
    _private(world, 10**5)  # compiles
    times = {}
    for users in (10**6, 10**9):
        times[users] = seconds(lambda users=users: _private(world, users), repetitions=REPETITIONS)
    name = "ucbvi, epsilon 1"
    yield noted(name, "a run of 10^6 users, riverswim", times[10**6], " s")
    yield at_most(name, "a run of 10^9 users, riverswim", times[10**9], 1.0, " s")
    growth = times[10**9] / times[10**6]
    yield at_most(name, "10^9 users / 10^6 users, riverswim", growth, 3.0, "x")


def _private(world: TabularWorld, users: int) -> Result:
    privacy = JointDP(epsilon=1.0, delta=1e-6)
    return run(UCBVI(world.spec, users, privacy, noise_seed=0), world, progress=False)


# Users one by one.


def _against_c() -> Iterator[Row]:
    name = "simulate_episodes"
    users = 20_000
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        yield Row(name, "speed / the same loop in C", "no C compiler: install cc, or set CC")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "rollout.so")
        source = HERE / "rollout.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        roll_out = ctypes.CDLL(str(library)).roll_out
        for world in (riverswim(6, HORIZON), random_mdp(25, 4, HORIZON, seed=0)):
            spec = world.spec
            uniform = Policy.uniform(spec.horizon, spec.states, spec.actions)
            for kind, policy in (("optimal", world.optimal_policy), ("uniform", uniform)):
                rng = np.random.default_rng(0)
                peer = _c_loop(roll_out, world.model, policy, users)
                _check_c_loop(world, policy, peer()[2])
                factor = ratio(
                    lambda w=world, p=policy, r=rng: simulate_episodes(w.model, p, users, r),
                    peer,
                    calls=1,
                    repetitions=30,
                )
                title = world.name.partition(":")[0]
                what = f"speed / the same loop in C, {title}, {kind} policy"
                yield at_least(name, what, 1.0 / factor, 0.5, "x")


def _c_loop(
    roll_out: Any, model: FiniteModel, policy: Policy, users: int
) -> Callable[[], tuple[NDArray[Any], ...]]:
    """One call of it makes the three arrays of a block, as the simulator does."""
    first, moves, rewards = model.first_states, model.moves, model.cumulative_rewards
    choices = None if policy.actions is not None else cumulative_chances(policy.table())
    H = model.horizon
    seed = iter(range(10**9))

    def call() -> tuple[NDArray[Any], ...]:
        out = (
            np.empty((users, H + 1), dtype=np.int64),
            np.empty((users, H), dtype=np.int64),
            np.empty((users, H)),
        )
        arguments = (
            *(next(seed), users, H, model.states, model.actions),
            *(first.successors.shape[-1], first.successors, first.cumulative),
            *(moves.successors.shape[-1], moves.successors, moves.cumulative),
            *(rewards.shape[-1], rewards, model.reward_values),
            *(policy.actions, choices, *out),
        )
        roll_out(*map(_as_c, arguments))
        return out

    return call


def _as_c(value: int | NDArray[Any] | None) -> ctypes.c_int64 | ctypes.c_void_p:
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return ctypes.c_void_p(None if value is None else value.ctypes.data)


def _check_c_loop(world: TabularWorld, policy: Policy, rewards: NDArray[Any]) -> None:
    """A yardstick that does something else measures nothing."""
    returns = rewards.sum(axis=1)
    apart = abs(returns.mean() - world.value(policy)) / (returns.std() / len(returns) ** 0.5)
    if apart > 6.0:  # one false alarm in 10^9
        raise RuntimeError(f"the C loop's mean return is {apart:.1f} standard errors off")


# A large world.


def _large() -> Iterator[Row]:
    """In a process of its own, since only a process knows its peak."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tabular"], check=True, capture_output=True, text=True
    )
    before, peak, simulate, learn = map(float, done.stdout.split())
    name = "ucbvi, epsilon 1"
    what = "S = 1,000, A = 10, H = 50, 10^6 users: {}"
    yield noted(name, what.format("simulation"), simulate, " s")
    yield noted(name, what.format("release and plan"), learn, " s")
    yield noted(name, what.format("peak memory"), peak, " GB")
    yield noted(name, what.format("peak before the agent is made"), before, " GB")


def _large_run() -> None:
    """Prints memory with the world and at the peak, and the seconds of both halves of a block."""
    _private(riverswim(6, HORIZON), 1000)  # compiles
    world = random_mdp(1000, 10, 50, seed=0)
    before = _peak()
    privacy = JointDP(epsilon=1.0, delta=1e-6)
    agent = UCBVI(world.spec, 10**6, privacy, schedule=f"fixed:size={10**6}", noise_seed=0)
    result = run(agent, world, progress=False)
    print(before, _peak(), result.seconds["simulate"], result.seconds["learn"])


def _peak() -> float:
    """Most memory this process has had so far, in GB."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


if __name__ == "__main__":
    _large_run()
