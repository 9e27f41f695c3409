"""Linear agents: what an episode costs as users grow, against rlberry's LSVI-UCB, and large worlds.

The papers' algorithms go through all episodes so far whenever they plan; here sums are kept, so a
plan costs the same after any number of users. Growth and ratios are of processor time, to which
other processes add little; limits in seconds are of the wall clock.

rlberry runs in an environment of its own, see ``benchmarks/peers``. Both sides are not private, see
the same one-hot features of the same world, and have episodes of 20 steps. Tacit looks after every
episode whether the determinant of a precision matrix has doubled, and then replans; rlberry replans
after every episode. A thousand episodes of rlberry would take half an hour or more, so they are
extrapolated: an episode takes a + b k seconds after k others, by its steps and by its plan, so n of
them take c n + d n^2. That parabola goes through 40 and 80 episodes of one run; where the ratio of
those exceeds 4, by bad luck, d n^2 alone goes through 40. With its planner compiled, a thousand can
be waited for: once they took 190 seconds where 208 were extrapolated.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rlberry import PEERS, permuted, played
from benchmarks.row import Row, at_least, at_most, noted
from benchmarks.tabular import _peak
from benchmarks.timing import seconds
from tacit import LSVIUCB, LSVIUCBPlusPlus
from tacit.linear.worlds import LinearWorld, linear_from_tabular, simplex
from tacit.privacy.models import JointDP, NonPrivate
from tacit.simulation.result import Result
from tacit.simulation.run import run
from tacit.tabular.policy import Policy
from tacit.tabular.world import TabularWorld
from tacit.tabular.worlds import riverswim

HORIZON = 20
EPISODES = 1000
SHORT, TIMED = 40, 80
SEEDS = range(3)
REPETITIONS = 3
KINDS = ("features", "counts")
# A cost that grows in proportion to the past would have the slope 1.
FLAT = 0.1


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    yield from _growth()
    yield from _one_by_one()
    yield from _every_episode()
    yield from _against_rlberry()
    yield from _a_million_users()
    yield from _large()


# What an episode costs as users grow.


def _growth() -> Iterator[Row]:
    """Time per release from 10^3 to 10^6 users, whose sums are simulated.

    Few releases serve many users: they are as many as the logarithm of the users. If what one of
    them costs does not grow, neither does the cost of an episode.
    """
    world = simplex()
    sizes = [10**3, 10**4, 10**5, 10**6]
    for kind in KINDS:
        name = f"lsvi-ucb, epsilon 1, {kind}"
        _private(world, sizes[1], kind)  # compiles
        runs = [_processor(partial(_private, world, users, kind)) for users in sizes]
        each = [used / (len(result.served) - 1) for used, result in runs]
        slope = float(np.polyfit(np.log(sizes), np.log(each), 1)[0])
        first, last = (len(result.served) - 1 for _, result in (runs[0], runs[-1]))
        what = "a release and plan, simplex, {} users, {} releases"
        yield noted(name, what.format("10^3", first), 1e3 * each[0], " ms")
        yield noted(name, what.format("10^6", last), 1e3 * each[-1], " ms")
        yield at_most(name, "slope of its log against log users, 10^3 to 10^6", slope, FLAT)


def _one_by_one() -> Iterator[Row]:
    """The same users as single episodes: here learning reads every one of them."""
    world = simplex()
    few, many = 10**5, 10**6
    for kind in KINDS:
        name = f"lsvi-ucb, epsilon 1, {kind}"
        _learning(world, 1000, kind)  # compiles
        early, late = (_learning(world, users, kind) / users for users in (few, many))
        yield noted(name, "learning from a single episode, simplex, 10^6 users", 1e6 * late, " us")
        yield at_most(name, "the same / of 10^5 users", late / early, 1.5, "x")


def _every_episode() -> Iterator[Row]:
    """A look at the determinant after every episode: the first thousand, and nine more."""
    world = linear_from_tabular(riverswim(6, HORIZON))
    name = "lsvi-ucb, not private, every"
    _play(world, 5, seed=0)  # compiles
    early, _ = _processor(partial(_play, world, 10**3, seed=0))
    both, _ = _processor(partial(_play, world, 10**4, seed=0), repetitions=1)
    late = (both - early) / 9.0  # their first thousand is the same
    yield noted(name, "an episode of the first 1,000, d = 12", 1e3 * early / 1e3, " ms")
    yield at_most(name, "of the 9,000 after / of the first 1,000", late / early, 1.5, "x")


def _private(world: LinearWorld, users: int, kind: Any = "auto") -> Result:
    privacy = JointDP(epsilon=1.0, delta=1e-6)
    agent = LSVIUCB(world.spec, users, privacy, statistic=kind, noise_seed=0)
    return run(agent, world, progress=False)


def _learning(world: LinearWorld, users: int, kind: Any) -> float:
    """Processor time of learning alone, from episodes."""
    privacy = JointDP(epsilon=1.0, delta=1e-6)
    agent = LSVIUCB(world.spec, users, privacy, statistic=kind, noise_seed=0)
    rng = np.random.default_rng(0)
    used = 0.0
    while agent.block_users:
        data = world.simulate(agent.policy, agent.block_users, rng, "episodes")
        used += _processor(partial(agent.learn, data), repetitions=1)[0]
    return used


def _processor(work: Callable[[], Any], repetitions: int = REPETITIONS) -> tuple[float, Any]:
    """The least processor time over some repetitions, and what the last one returned."""
    times, done = [], None
    for _ in range(repetitions):
        start = time.process_time()
        done = work()
        times.append(time.process_time() - start)
    return min(times), done


# Against rlberry's.


def _against_rlberry() -> Iterator[Row]:
    name, peer = "lsvi-ucb, not private", "rlberry's lsvi-ucb"
    if not (PEERS / ".installed").exists():  # an install that broke off has none
        yield Row(name, "speed / rlberry's LSVI-UCB", "not installed: make peers")
        return
    tabular = riverswim(6, HORIZON)
    world = linear_from_tabular(tabular)
    _play(world, 5, seed=0)  # compiles
    mine, _ = _processor(partial(_play, world, EPISODES, seed=0))
    slow = _rlberry(tabular, SEEDS[:1], compiled=False)
    fast = _rlberry(tabular, SEEDS, compiled=True)

    what = f"{EPISODES:,} episodes, d = {world.spec.dimension}, H = {HORIZON}"
    growth = _total(slow, TIMED) / _total(slow, SHORT)
    extrapolated = _extrapolated(slow)
    yield noted(name, f"{what}, processor time", mine, " s")
    yield noted(peer, f"{SHORT} episodes", _total(slow, SHORT), " s")
    yield at_least(peer, f"{TIMED} episodes / {SHORT} episodes, 4 if quadratic", growth, 3.0, "x")
    yield noted(peer, f"{what}, extrapolated", extrapolated, " s", ",.0f")
    yield at_least(name, "speed / rlberry's", extrapolated / mine, 1000.0, "x", ",.0f")
    compiled = _extrapolated(fast) / mine
    yield noted(name, "speed / rlberry's, its planner compiled", compiled, "x", ",.0f")
    same = bool((slow["returns"][0] == fast["returns"][0]).all())
    yield Row(
        peer,
        "same returns when its planner is compiled",
        "yes" if same else "no",
        "yes",
        same,
    )
    # Its regret is that of its returns, which are right on average: its bonus shrinks during an
    # episode, so what it follows has no exact value.
    theirs = TIMED * world.optimal_value - fast["returns"].sum(axis=1).mean()
    own = [_play(world, TIMED, seed) for seed in SEEDS]
    regret = float(np.mean([result.regret[-1] for result in own]))
    yield Row(
        name,
        f"regret, {TIMED} episodes, {len(SEEDS)} seeds",
        f"{regret:,.4g}",
        f"at most {theirs:,.4g}, rlberry's",
        bool(regret <= theirs),
    )
    of = f"greedy policy after {TIMED} episodes, of the optimum"
    learnt = np.mean([result.greedy_values[-1] for result in own]) / world.optimal_value
    last = zip(SEEDS, fast["actions"], strict=True)
    reached = np.mean([_value(tabular, *of_run) for of_run in last]) / world.optimal_value
    yield at_least(name, of, 100.0 * float(learnt), 95.0, " %")
    yield noted(peer, of, 100.0 * float(reached), " %")


def _play(world: LinearWorld, users: int, seed: int) -> Result:
    agent = LSVIUCBPlusPlus(world.spec, users, NonPrivate(), schedule="every", seed=seed)
    return run(agent, world, seed=seed, progress=False)


def _rlberry(world: TabularWorld, seeds: range, compiled: bool) -> dict[str, NDArray[Any]]:
    model = world.model
    pairs = model.states * model.actions
    features = np.eye(pairs).reshape(model.states, model.actions, pairs)
    return played("lsvi_ucb", world, TIMED, seeds, compiled, features=features)


def _total(runs: dict[str, NDArray[Any]], episodes: int) -> float:
    """Seconds of the first episodes of the fastest run."""
    return float(runs["seconds"][:, :episodes].sum(axis=1).min())


def _extrapolated(runs: dict[str, NDArray[Any]]) -> float:
    """See the module."""
    short, timed = _total(runs, SHORT), _total(runs, TIMED)
    per_square = (timed / TIMED - short / SHORT) / (TIMED - SHORT)
    per_episode = short / SHORT - per_square * SHORT
    parabola = per_episode * EPISODES + per_square * EPISODES**2
    return min(parabola, short * (EPISODES / SHORT) ** 2)


def _value(world: TabularWorld, seed: int, actions: NDArray[Any]) -> float:
    """Exact, of a policy (H, S) in the peer's labels."""
    policy = Policy.deterministic(actions.astype(np.int64), world.spec.actions)
    return permuted(world, seed).value(policy)


# Many users, and a large world.


def _a_million_users() -> Iterator[Row]:
    world = simplex()
    _private(world, 10**5)  # compiles
    took = seconds(partial(_private, world, 10**6), repetitions=REPETITIONS)
    yield at_most("lsvi-ucb, epsilon 1", "a run of 10^6 users, simplex", took, 1.0, " s")


def _large() -> Iterator[Row]:
    """In a process of its own, since only a process knows its peak."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.linear"], check=True, capture_output=True, text=True
    )
    before, peak, took, simulate, learn, share = map(float, done.stdout.split())
    name = "lsvi-ucb, epsilon 1"
    what = "d = 100, S = 1,000, 10^5 users: {}"
    yield at_most(name, what.format("the run"), took, 60.0, " s")
    yield noted(name, what.format("simulation"), simulate, " s")
    yield noted(name, what.format("releases and plans"), learn, " s")
    yield at_most(name, what.format("peak memory"), peak, 3.0, " GB")
    yield noted(name, what.format("peak before the agent is made"), before, " GB")
    yield noted(name, what.format("its last policy, of the optimum"), 100.0 * share, " %")


def _large_run() -> None:
    """Prints memory with the world and at the peak, seconds, and how good the last policy is."""
    _private(simplex(), 1000)  # compiles
    rng, (d, S) = np.random.default_rng(0), (100, 1000)
    features, measures = rng.dirichlet(np.full(d, 0.2), (S, 10)), rng.dirichlet(np.ones(S), (1, d))
    world = LinearWorld(features, measures, rng.random((1, d)), 10)
    before = _peak()
    start = time.perf_counter()
    result = _private(world, 10**5)
    took = time.perf_counter() - start
    parts = result.seconds["simulate"], result.seconds["learn"]
    print(before, _peak(), took, *parts, result.values[-1] / result.optimal_value)


if __name__ == "__main__":
    _large_run()
