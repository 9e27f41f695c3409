"""Algorithm 1 of Wang and Hegde (2019), completed by what their public code does.

The paper's figures were made by code that has more than Algorithm 1 states: replay, RMSprop,
exploration, a second network for targets. :mod:`tacit.papers.wang_functional_2019` has what is
printed; this is for its figures. Neither has a guarantee.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tacit.papers.result import PaperResult, Proof
from tacit.papers.wang_functional_2019 import ERRATA, WHY, Network, Setting
from tacit.privacy.statistic import Floats, Ints
from tacit.privacy.validation import checked_number, whole_number

if TYPE_CHECKING:
    from tacit.continuous.worlds import BoxWorld

Path: TypeAlias = tuple[Floats, Ints, Floats, Ints]
"""See :func:`research.network_loops.path_at`."""


class Code(NamedTuple):
    """What Algorithm 1 does not state, as the authors' public code has it."""

    hidden: tuple[int, ...] = (16, 16)
    discount: float = 0.999
    beta: float = 1.0  # of the kernel
    replay: int = 10_000  # transitions that are remembered
    batch: int = 128  # how many of them a gradient step is about
    every: int = 1  # steps of users between two gradient steps
    rmsprop: bool = True  # or plain steps
    rate: float = 1e-2
    huber: bool = True  # or squares
    clamp: float = 1.0  # the largest entry of a gradient
    # Of a uniform action: at first, in the end, and in how many steps the rest falls by e.
    exploration: tuple[float, float, float] = (0.9, 0.05, 200.0)
    target_every: int = 10  # episodes between two copies to a second network, for targets; or 0
    worth_nothing: bool = True  # what comes after the last step of an episode


STATED = Code(
    beta=Setting().beta,
    replay=64,
    batch=64,
    every=64,
    rmsprop=False,
    rate=3e-4,
    huber=False,
    clamp=math.inf,
    exploration=(0.0, 0.0, 1.0),
    target_every=0,
    worth_nothing=False,
)
"""What the paper states, in the same loop: nothing is learnt in 78 gradient steps."""


def new_path(dimension: int, actions: int, capacity: int = 1024) -> Path:
    """Room for what is known of a path."""
    return (
        np.zeros((dimension, capacity)),
        np.zeros((dimension, capacity), dtype=np.int64),
        np.zeros((dimension, capacity, actions)),
        np.zeros(dimension, dtype=np.int64),
    )


class Memory:
    """What the public code carries from step to step, all of it without noise."""

    def __init__(self, code: Code, actions: int, steps: int, seeds: tuple[int, int]) -> None:
        self.layers = (1, *code.hidden, actions)
        self.sizes, units = np.array(self.layers, dtype=np.int64), sum(self.layers)
        self.rng = np.random.default_rng(np.random.SeedSequence([seeds[0], 4]))
        self.noise = np.random.default_rng(seeds[1])
        self.network = Network(self.layers, self.rng)
        self.theta = self.network.theta
        self.target, self.squares = self.theta.copy(), np.zeros_like(self.theta)
        rows = code.replay
        self.replay = (
            np.zeros((rows, 1)),
            np.zeros(rows, dtype=np.int64),
            np.zeros(rows),
            np.zeros((rows, 1)),
            np.zeros(rows, dtype=np.bool_),
        )
        self.paths = [new_path(1, actions, steps) for _ in range(2)]
        self.one, self.many = np.zeros((units, 1)), np.zeros((2, units, code.batch))
        self.chosen = np.zeros(code.batch, dtype=np.int64)
        self.taken, self.look = np.zeros(rows, dtype=np.bool_), np.zeros(actions)

    def act(self, code: Code, sigma: float, state: Floats, t: int) -> int:
        """Line 12, with exploration."""
        from research.network_loops import forward, path_at

        first, last, falls = code.exploration
        if self.rng.random() < last + (first - last) * math.exp(-t / falls):
            return int(self.rng.integers(self.layers[-1]))
        self.one[0, 0], self.look[:] = state[0], 0.0
        forward(self.theta, self.sizes, self.one)
        if sigma > 0.0:
            path_at(self.noise, self.paths[0], code.beta, sigma, state, self.look)
        return int(np.argmax(self.one[-self.layers[-1] :, 0] + self.look))

    def step(self, code: Code, sigma: float, size: int) -> None:
        """Lines 18 to 22: the gradient of noisy losses of a batch, and a step down."""
        from research.network_loops import draw_batch, q_gradient, rmsprop, sgd

        draw_batch(self.rng, size, self.chosen, self.taken)
        other = code.target_every > 0
        networks = self.theta, self.target if other else self.theta, self.sizes
        paths, gradient = (self.paths[0], self.paths[int(other)]), np.zeros_like(self.theta)
        of, work = (code.discount, (code.beta, sigma)), (self.many[0], self.many[1], self.look)
        batch = self.replay, self.chosen
        q_gradient(self.noise, *networks, *batch, *of, *paths, code.huber, work, gradient)
        np.clip(gradient, -code.clamp, code.clamp, out=gradient)
        if code.rmsprop:
            rmsprop(self.theta, gradient, self.squares, code.rate, 0.99, 1e-8)
        else:
            sgd(self.theta, gradient, code.rate)


def public_code(
    world: BoxWorld,
    *,
    users: int = 100,
    sigma: float = 0.32,
    reward_noise: float = 0.0,
    resets: int | None = None,
    code: Code = Code(),  # noqa: B008
    labels: tuple[int, ...] | None = None,
    seed: int = 0,
    noise_seed: int = 0,
) -> PaperResult:
    """Algorithm 1 with what it does not state taken from the authors' public code.

    It has no guarantee at any sigma. With ``reward_noise`` every reward has noise of its own when
    it is first seen, which is the input perturbation that the paper compares with.

    Args:
        world: on [0, 1].
        users: episodes, one after another.
        sigma: standard deviation of the paths; the paper reports 0.32 and 0.74.
        reward_noise: standard deviation of the noise on rewards.
        resets: how often new paths begin, J; with each episode by default.
        code: what the paper leaves open.
        labels: which action of the world each label means; themselves by default.
        seed: of users, network, exploration and replay.
        noise_seed: of the noise.
    """
    from tacit.continuous.world_loops import move

    H, m, users = world.spec.horizon, world.spec.actions, whole_number("users", users)
    sigma = checked_number("sigma", sigma, "at least 0", lambda s: s >= 0)
    known = Memory(code, m, users * (H + 1) + 2 * code.batch, (seed, noise_seed))
    people, meaning = np.random.default_rng(np.random.SeedSequence([2, seed])), np.arange(m)
    meaning = meaning if labels is None else np.array(labels)
    every = math.ceil(users * H / resets) if resets is not None else H
    returns, greedy, t = np.zeros(users), np.zeros(users), 0
    known.rng.permutation(m)
    for user in range(users):
        greedy[user] = _greedy_value(world, known, meaning)
        here = people.random((1, 1))
        for h in range(H):
            if t % every == 0:
                for path in known.paths:
                    path[3][:] = 0
            a = known.act(code, sigma, here[0], t)
            there = here.copy()
            move(there, meaning[[a]], people.random(1))
            reward, row = float(world.rewards(there)[0]), t % code.replay
            seen = reward + (reward_noise * known.noise.standard_normal() if reward_noise else 0.0)
            over = h == H - 1 and code.worth_nothing
            for array, value in zip(known.replay, (here[0], a, seen, there[0], over), strict=True):
                array[row] = value
            t, here, returns[user] = t + 1, there, returns[user] + reward
            if t % code.every == 0 and min(t, code.replay) >= code.batch:
                known.step(code, sigma, min(t, code.replay))
        if code.target_every and user % code.target_every == 0:
            known.target[:] = known.theta
        known.rng.permutation(m)
    more = {"greedy": np.array([*greedy[1:], _greedy_value(world, known, meaning)])}
    claim = "nothing: the paper gives its own sigma for its own settings"
    policy, best = known.network, world.optimal_value
    named = {"sigma": sigma, "beta": code.beta, "reward_noise": reward_noise}
    proof, none = Proof(claim, None, WHY), np.full(users, math.nan)
    return PaperResult("public code", True, best, returns, none, policy, proof, named, ERRATA, more)


def _greedy_value(world: BoxWorld, known: Memory, meaning: Ints) -> float:
    """The value of the network without noise, whose outputs are labels."""
    return float(world.value(known.network.greedy().relabelled(meaning.tolist())))
