"""What Wang and Hegde (2019) compare with, in a sentence each, reconstructed: states in [0, 1].

``unit`` of a guarantee says what it protects. ``values`` of a result are those of the policies that
users were served by, exactly; ``policy`` is the greedy one in the end. Their fourth baseline,
private gradients of a network, is ``tacit.papers.wang_functional_2019.network_q``, whose values are
what users got.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.worlds import line
from tacit.numerics.compiled import Floats, Ints
from tacit.papers.result import PaperResult, proven
from tacit.papers.wang_functional_2019 import REWARDS, Setting, network_q
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.sensitivity import scaled_back
from tacit.privacy.validation import whole_number

if TYPE_CHECKING:
    from tacit.continuous.worlds import BoxWorld

GRID = Grid((0.0,), (1.0,), (11,))
"""Values are linear between its points: few numbers, since every one of them costs noise."""
EPISODES = "one user's whole episode"
# Of the regressions, which stop when sweeps change values by less than this part of their range.
_RIDGE, _PRECISION = 1.0, 1e-3
# The longest user of output perturbation, in ranges of rewards and roots of the number of weights,
# and of policy evaluation, in roots of the number of steps.
_OUTPUT, _VISITS = 0.1, 0.7
# Evaluations of policies, each over as many users, and uniform actions after the first of them.
_ROUNDS, _UNIFORM = 3, 0.5


def baseline(kind: str, *, users: int, epsilon: float, delta: float, seed: int = 0) -> PaperResult:
    """A baseline on line by its name; a network takes ten steps, each of a tenth of the users."""
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed}
    if kind == "network_q":
        steps = line().spec.horizon * users
        setting = Setting(T=steps, B=max(50, steps // 10), alpha=1.0)
        return network_q(line(), setting=setting, **given)
    kinds = (input_perturbation, output_perturbation, policy_evaluation)
    return {make.__name__: make for make in kinds}[kind](line(), users=users, **given)


class Data(NamedTuple):
    """Users' steps: features of states (n, H + 1, m), actions and rewards (n, H)."""

    features: Floats
    actions: Ints
    rewards: Floats


def input_perturbation(
    world: BoxWorld, *, users: int, epsilon: float, delta: float, seed: int = 0
) -> PaperResult:
    """Every reward is published with noise, and Q is fitted to what was published.

    After Venkitasubramaniam (2013). A user's H rewards move by at most sqrt(H) times their range R
    together, so noise of R sqrt(H) / mu on each is mu-GDP for one user's rewards. All users are
    served at random.
    """
    budget, run = _begin(world, users, epsilon, delta, seed)
    (low, high), data = world.spec.reward_range, run.served(run.uniform, users)
    std = (high - low) * math.sqrt(world.spec.horizon) / budget.mu
    noisy = np.clip(data.rewards, low, high) + std * run.noise.normal(data.rewards.shape)
    here, there = data.features[:, :-1], data.features[:, 1:]
    states = here.reshape(1, -1, GRID.size), there.reshape(1, -1, GRID.size)
    run.weights = fitted_q(world, *states, data.actions.reshape(1, -1), noisy.reshape(1, -1))[0]
    return run.result("input perturbation", users, REWARDS, budget, std)


def output_perturbation(
    world: BoxWorld, *, users: int, epsilon: float, delta: float, seed: int = 0
) -> PaperResult:
    """Q is fitted to each user alone, clipped to length c, averaged, and published with noise once.

    Output perturbation, as subsample and aggregate (Nissim, Raskhodnikova and Smith, 2007): of a Q
    that is fitted to all users together no useful sensitivity is known. Two points of a ball are at
    most 2 c apart, so noise of 2 c / mu on the sum is mu-GDP for one user's episode. All users are
    served at random.
    """
    budget, run = _begin(world, users, epsilon, delta, seed)
    low, high = world.spec.reward_range
    data = run.served(run.uniform, users)
    own = fitted_q(world, data.features[:, :-1], data.features[:, 1:], data.actions, data.rewards)
    own -= own.mean(axis=1, keepdims=True)  # no policy depends on it
    radius = _OUTPUT * (high - low) * math.sqrt(own[0].size)
    total = scaled_back(own.reshape(users, -1), radius).sum(axis=0)
    std = 2.0 * radius / budget.mu
    run.weights = ((total + std * run.noise.normal(total.shape)) / users).reshape(own.shape[1:])
    return run.result("output perturbation", 1, EPISODES, budget, std)


def policy_evaluation(
    world: BoxWorld, *, users: int, epsilon: float, delta: float, seed: int = 0
) -> PaperResult:
    """A policy is evaluated by returns from first visits, with noise, and improved; three times.

    After Balle, Gomrokchi and Precup (2016), who evaluate one policy, with noise on the
    regression's solution; here it is on its sums. A user's vector has a 1 for every pair of a point
    and an action that she visits, and her mean return from there on, in [-1, 1]. It is scaled back
    to length c. Visits are not negative and no return is longer than its visit, so two vectors are
    at most sqrt(2) c apart: noise of sqrt(2) c / mu is mu-GDP for one user's episode. Each user is
    in one of the rounds. Later rounds follow the policy before them, with half of all actions
    uniform.
    """
    budget, run = _begin(world, users, epsilon, delta, seed)
    size, H = world.spec.actions * GRID.size, world.spec.horizon
    radius = _VISITS * math.sqrt(min(H, size))
    std, rounds = math.sqrt(2.0) * radius / budget.mu, min(_ROUNDS, users)
    for number, some in enumerate(np.array_split(np.arange(users), rounds)):
        policy = run.greedy(_UNIFORM) if number else run.uniform
        visits = scaled_back(first_visits(world, run.served(policy, len(some))), radius).sum(axis=0)
        seen, returns = (visits + std * run.noise.normal(visits.shape)).reshape(2, -1, GRID.size)
        # Ratios, drawn to the middle by two standard deviations of the noise.
        run.weights = returns / (np.maximum(seen, 0.0) + 1.0 + 2.0 * std)
    return run.result("policy evaluation", rounds, EPISODES, budget, std)


def fitted_q(
    world: BoxWorld, here: Floats, there: Floats, actions: Ints, rewards: Floats
) -> Floats:
    """Fitted Q-iteration of linear values, for many sets of transitions at once.

    Features are (sets, n, m), actions and rewards (sets, n). Values are regressed as their distance
    to the middle of their range, which is where a ridge leads to; the weights, (sets, A, m), lack
    it.
    """
    gamma, A, m = world.spec.discount, world.spec.actions, here.shape[-1]
    low, high = (end / (1.0 - gamma) for end in world.spec.reward_range)
    middle = 0.5 * (low + high)
    taken = (actions[..., np.newaxis] == np.arange(A)).astype(float)
    grams = [(here * taken[..., a, np.newaxis]).swapaxes(-1, -2) @ here for a in range(A)]
    inverses = np.linalg.inv(np.stack(grams, axis=1) + _RIDGE * np.eye(m))
    weights: Floats = np.zeros((len(here), A, m))
    for _ in range(math.ceil(math.log(_PRECISION) / math.log(gamma))):
        ahead = np.clip((there @ weights.swapaxes(-1, -2)).max(axis=-1) + middle, low, high)
        errors = rewards + gamma * ahead - middle
        cross = (errors[..., np.newaxis] * taken).swapaxes(-1, -2) @ here
        weights = np.einsum("uaij,uaj->uai", inverses, cross)
    return weights


def first_visits(world: BoxWorld, data: Data) -> Floats:
    """Users' visits to pairs of an action and the nearest point, and returns: (n, 2 A m)."""
    (low, high), gamma = world.spec.reward_range, world.spec.discount
    users, H = data.actions.shape
    cells = data.actions * GRID.size + data.features[:, :-1].argmax(axis=-1)
    found, rows = np.zeros((2, users, world.spec.actions * GRID.size)), np.arange(users)
    later, weight = np.zeros(users), 0.0
    for h in range(H - 1, -1, -1):
        later, weight = data.rewards[:, h] + gamma * later, 1.0 + gamma * weight
        found[0, rows, cells[:, h]] = 1.0
        # Earlier visits overwrite later ones: what is left is of the first.
        mean = (2.0 * later / weight - low - high) / (high - low)
        found[1, rows, cells[:, h]] = np.clip(mean, -1.0, 1.0)
    return found.swapaxes(0, 1).reshape(users, -1)


class _Run:
    """Users of a world, and what is known of Q."""

    def __init__(self, world: BoxWorld, seed: int) -> None:
        self.world, self.noise = world, Noise(seed)
        self.rng = np.random.default_rng([seed, 1])
        self.weights: Floats = np.zeros((world.spec.actions, GRID.size))
        self.uniform = QPolicy.uniform(1, world.spec.actions)
        self.values: list[float] = []

    def served(self, policy: QPolicy, users: int) -> Data:
        """So many users who follow a policy."""
        self.values += [self.world.value(policy)] * users
        made: Any = self.world.simulate(policy, users, self.rng)
        return Data(GRID(made.states), made.actions, made.rewards)

    def greedy(self, uniform: float = 0.0) -> QPolicy:
        """The best actions by Q, ties broken by chance."""
        return QPolicy.draw(GRID, self.weights, self.rng, uniform)

    def result(
        self, name: str, releases: int, unit: str, budget: Budget, std: float
    ) -> PaperResult:
        """What was learnt, with what is proven."""
        reason = "a reconstruction: the paper states no algorithm"
        words = {"mu": budget.mu, "delta": budget.delta, "releases": releases, "unit": unit}
        proof = proven("nothing of its own", reason, mechanism="Gaussian noise", **words)
        values, named = np.array(self.values), {"sigma": std}
        none, best = np.full(len(values), math.nan), self.world.optimal_value
        return PaperResult(name, False, best, values, none, self.greedy(), proof, named, ())


def _begin(
    world: BoxWorld, users: int, epsilon: float, delta: float, seed: int
) -> tuple[Budget, _Run]:
    whole_number("users", users)
    if world.spec.dimension != 1 or world.spec.may_end:
        raise InvalidArgument("world must have states in [0, 1], and no ends")
    return Budget(epsilon, delta), _Run(world, seed)
