"""A deep agent's step against a plain loop of jax that knows no privacy; the extra ``deep``.

With privacy, a step is all that happens to a block of users who came: a gradient of each, clipped,
added up with noise and accounted for, and the next policy. The plain loop takes one gradient of the
mean loss over the same steps, and moves. Without privacy it is the same number of small steps, of
batches that are drawn from what is kept. Both in one run, in processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.row import Row, at_most, noted
from benchmarks.timing import processor
from tacit import DeepQ
from tacit.continuous.policy import QPolicy
from tacit.continuous.worlds import line
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.models import JointDP, NonPrivate, Privacy

NAME = "deep q"
OPEN, TURNS = 500, 3
FEW, MANY = 1000, 4000


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    if find_spec("jax") is None:
        return
    private = JointDP(1.0, 1e-6)
    for users, privacy in ((FEW, private), (MANY, private), (OPEN, NonPrivate())):
        # Of few users a step takes milliseconds: more turns, for a least time that is steady.
        turns = TURNS * max(1, MANY // users) if privacy.private else TURNS
        mine, theirs = processor(_step(users, privacy, turns), _plain(users, privacy), turns=turns)
        words = "private" if privacy.private else "not private"
        what = f"a {words} step of {users:,} users on line"
        yield noted(NAME, what, 1e3 * mine, " ms")
        yield noted("plain jax", f"the same, {words}", 1e3 * theirs, " ms")
        yield at_most(NAME, f"{what} / plain", mine / theirs, 3.0, "x")


def _episodes(users: int) -> VectorEpisodes:
    world = line()
    episodes = world.simulate(QPolicy.uniform(1, 2), users, np.random.default_rng(0))
    assert isinstance(episodes, VectorEpisodes)  # noqa: S101
    return episodes


def _step(users: int, privacy: Privacy, turns: int) -> Callable[[], object]:
    """All that happens to a block of users; without privacy, hundreds of small steps."""
    blocks = turns + 2
    agent = DeepQ(line().spec, blocks * users, privacy, steps=blocks)
    episodes = _episodes(users)
    return lambda: agent.learn(episodes)


def _plain(users: int, privacy: Privacy) -> Callable[[], object]:
    """What one would write without an agent."""
    import jax
    from tacit.continuous.deep_q import DeepQConstants
    from tacit.continuous.deep_training import FLOOR, loss_of

    from tacit.continuous.network_policy import first_network

    constants = DeepQConstants()
    sizes = (1, *(constants.narrow if privacy.private else constants.wide), 2)
    theta = first_network(np.random.default_rng(0), sizes).astype(np.float32)
    slope, batch = jax.grad(loss_of(sizes)), constants.batch
    steps = users * line().spec.horizon

    def step(carry: Any, examples: Any) -> Any:
        theta, mean, square = carry
        gradient = slope(theta, carry[0], examples)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        return (theta - 1e-3 * mean / (square**0.5 + FLOOR), mean, square), None

    @jax.jit
    def whole(carry: Any, examples: Any) -> Any:
        return step(carry, examples)[0]

    @jax.jit
    def many(carry: Any, examples: Any, chosen: Any) -> Any:
        return jax.lax.scan(
            lambda now, rows: step(now, tuple(column[rows] for column in examples)), carry, chosen
        )[0]

    block, rng = _episodes(users), np.random.default_rng(1)

    def work() -> object:
        states = block.states.astype(np.float32)
        here, later = states[:, :-1].reshape(-1, 1), states[:, 1:].reshape(-1, 1)
        paid = np.asarray(block.rewards, dtype=np.float32).ravel()
        each = 1.0 / (steps if privacy.private else batch)
        factors, weights = np.full(steps, 0.95, np.float32), np.full(steps, each, np.float32)
        examples = here, block.actions.ravel().astype(np.int32), paid, later, factors, weights
        carry = theta, 0.0 * theta, 0.0 * theta
        if privacy.private:
            return np.asarray(whole(carry, examples)[0])
        chosen = rng.integers(0, steps, (steps // constants.every, batch)).astype(np.int32)
        return np.asarray(many(carry, examples, chosen)[0])

    return work
