"""Algorithm 1 of Wang and Hegde (2019), completed by what their public code does.

The paper's figures were made by code that has more than Algorithm 1 states: replay, RMSprop,
exploration, a second network for targets. :mod:`tacit.papers.wang_functional_2019` has what is
printed; this is for its figures. Neither has a guarantee.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled
from tacit.papers.result import PaperResult, Proof
from tacit.papers.wang_functional_2019 import ERRATA, WHY, Network
from tacit.privacy.validation import checked_number, whole_number

if TYPE_CHECKING:
    from tacit.continuous.worlds import BoxWorld


class Code(NamedTuple):
    """What Algorithm 1 does not state, as the authors' public code has it."""

    hidden: tuple[int, ...] = (16, 16)
    discount: float = 0.999
    beta: float = 1.0  # of the kernel
    replay: int = 10_000  # transitions that are remembered
    batch: int = 128  # how many of them a gradient step is about
    rate: float = 1e-2  # of RMSprop
    # Of a uniform action: at first, in the end, and in how many steps the rest falls by e.
    exploration: tuple[float, float, float] = (0.9, 0.05, 200.0)
    target_every: int = 10  # episodes between two copies to a second network, for targets


@compiled
def path_at(
    rng: np.random.Generator,
    points: Floats,
    values: Floats,
    known: int,
    kernel: tuple[float, float],
    states: Floats,
    noise: Floats,
) -> int:
    """Samples a path per action at states, given what was sampled before; how many are known then.

    A path is an Ornstein-Uhlenbeck process of variance sigma^2 with kernel exp(-beta |x - y|).
    Between two known points, at distances a and b, a new one has mean
    (e^(-beta a) (1 - e^(-2 beta b)) g(left) + e^(-beta b) (1 - e^(-2 beta a)) g(right)) / c with
    c = 1 - e^(-2 beta (a + b)), and variance (1 - e^(-2 beta a)) (1 - e^(-2 beta b)) / c of the
    process's own; beside one known point, e^(-beta a) g and 1 - e^(-2 beta a). A point that was
    sampled before has its value from then.

    Args:
        rng: of the noise.
        points: known ones in order, with room for more.
        values: at these, (capacity, actions).
        known: how many there are.
        kernel: beta and sigma.
        states: where to sample, (n,).
        noise: is filled, (n, actions).
    """
    beta, sigma = kernel
    for k in range(len(states)):
        x = states[k]
        at = np.searchsorted(points[:known], x)
        if at == known or points[at] != x:
            for i in range(known, at, -1):
                points[i] = points[i - 1]
                values[i] = values[i - 1]
            points[at] = x
            a = x - points[at - 1] if at > 0 else math.inf
            b = points[at + 1] - x if at < known else math.inf
            of_left, of_right = -math.expm1(-2.0 * beta * a), -math.expm1(-2.0 * beta * b)
            both = -math.expm1(-2.0 * beta * (a + b))
            for action in range(values.shape[1]):
                value = sigma * math.sqrt(of_left * of_right / both) * rng.standard_normal()
                if at > 0:
                    value += math.exp(-beta * a) * of_right / both * values[at - 1, action]
                if at < known:
                    value += math.exp(-beta * b) * of_left / both * values[at + 1, action]
                values[at, action] = value
            known += 1
        noise[k] = values[at]
    return known


class NoisePath:
    """A path per action, known where it was looked at."""

    def __init__(self, actions: int, capacity: int) -> None:
        self.points, self.values, self.known = np.zeros(capacity), np.zeros((capacity, actions)), 0

    def __call__(
        self, rng: np.random.Generator, kernel: tuple[float, float], states: Floats
    ) -> Floats:
        """The noise at states (n,), as (n, actions); nothing is drawn where sigma is 0."""
        noise = np.zeros((len(states), self.values.shape[1]))
        if kernel[1] > 0.0:
            room = self.points, self.values, self.known
            self.known = path_at(rng, *room, kernel, states, noise)
        return noise


class Memory:
    """What the public code carries from step to step, all of it without noise."""

    def __init__(self, code: Code, actions: int, steps: int, seeds: tuple[int, int]) -> None:
        self.rng = np.random.default_rng(np.random.SeedSequence([seeds[0], 4]))
        self.noise = np.random.default_rng(seeds[1])
        self.network = Network((1, *code.hidden, actions), self.rng)
        self.target, self.squares = deepcopy(self.network), np.zeros_like(self.network.theta)
        self.states, self.nexts, self.rewards = np.zeros((3, code.replay))
        self.actions, self.ended = np.zeros(code.replay, int), np.zeros(code.replay, bool)
        self.paths = NoisePath(actions, steps), NoisePath(actions, steps)

    def act(self, code: Code, sigma: float, state: float, t: int) -> int:
        """Line 12, with exploration."""
        first, last, falls = code.exploration
        if self.rng.random() < last + (first - last) * math.exp(-t / falls):
            return int(self.rng.integers(self.network.layers[-1]))
        here = np.array([state])
        return int(
            np.argmax(self.network(here) + self.paths[0](self.noise, (code.beta, sigma), here))
        )

    def step(self, code: Code, sigma: float, size: int) -> None:
        """Lines 18 to 22: the gradient of noisy losses of a batch, and a step down."""
        some, kernel = self.rng.choice(size, code.batch, replace=False), (code.beta, sigma)
        ahead = self.paths[1](self.noise, kernel, self.nexts[some])
        best = (self.target(self.nexts[some]) + ahead).max(axis=1)
        goals = self.rewards[some] + code.discount * np.where(self.ended[some], 0.0, best)
        own = self.network(self.states[some]) + self.paths[0](self.noise, kernel, self.states[some])
        errors = own[np.arange(len(some)), self.actions[some]] - goals
        errors = np.clip(errors, -1.0, 1.0)  # of Huber's loss
        slopes = self.network.gradients(self.states[some], self.actions[some].tolist())
        gradient = np.clip(errors @ slopes / len(some), -1.0, 1.0)
        self.squares = 0.99 * self.squares + 0.01 * gradient**2  # as PyTorch defines it
        self.network.theta -= code.rate * gradient / (np.sqrt(self.squares) + 1e-8)


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
    known = Memory(code, m, users * (H + 1) + 2 * code.batch + 1, (seed, noise_seed))
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
                    path.known = 0
            a = known.act(code, sigma, float(here[0, 0]), t)
            there = here.copy()
            move(there, meaning[[a]], people.random(1))
            reward, row = float(world.rewards(there)[0]), t % code.replay
            seen = reward + (reward_noise * known.noise.standard_normal() if reward_noise else 0.0)
            known.states[row], known.actions[row], known.rewards[row] = here[0, 0], a, seen
            known.nexts[row], known.ended[row] = there[0, 0], h == H - 1
            t, here, returns[user] = t + 1, there, returns[user] + reward
            if min(t, code.replay) >= code.batch:
                known.step(code, sigma, min(t, code.replay))
        if user % code.target_every == 0:
            known.target.theta[:] = known.network.theta
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
