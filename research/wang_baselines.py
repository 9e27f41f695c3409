"""Policy evaluation with which Wang and Hegde (2019) compare, reconstructed: states in [0, 1].

``unit`` of a guarantee says what it protects. ``values`` of a result are those of the policies that
users were served by, exactly; ``policy`` is the greedy one in the end. Noise on rewards is in
:mod:`research.wang_public_code`; private gradients of a network are
``tacit.papers.wang_functional_2019.network_q``, whose values are what users got.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.worlds import line
from tacit.numerics.compiled import Floats
from tacit.papers.result import PaperResult, proven
from tacit.papers.wang_functional_2019 import Setting, network_q
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
# The longest user, in roots of the number of steps.
_VISITS = 0.7
# Evaluations of policies, each over as many users, and uniform actions after the first of them.
_ROUNDS, _UNIFORM = 3, 0.5


def baseline(kind: str, *, users: int, epsilon: float, delta: float, seed: int = 0) -> PaperResult:
    """A baseline on line by its name; a network takes ten steps, each of a tenth of the users."""
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed}
    if kind == "network_q":
        steps = line().spec.horizon * users
        setting = Setting(T=steps, B=max(50, steps // 10), alpha=1.0)
        return network_q(line(), setting=setting, **given)
    return policy_evaluation(line(), users=users, **given)


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
    whole_number("users", users)
    if world.spec.dimension != 1 or world.spec.may_end:
        raise InvalidArgument("world must have states in [0, 1], and no ends")
    A, H = world.spec.actions, world.spec.horizon
    budget, noise, rng = Budget(epsilon, delta), Noise(seed), np.random.default_rng([seed, 1])
    radius = _VISITS * math.sqrt(min(H, A * GRID.size))
    std, rounds = math.sqrt(2.0) * radius / budget.mu, min(_ROUNDS, users)
    weights: Floats = np.zeros((A, GRID.size))
    values = list[float]()
    for number, some in enumerate(np.array_split(np.arange(users), rounds)):
        policy = QPolicy.uniform(1, A)
        if number:
            policy = QPolicy.draw(GRID, weights, rng, _UNIFORM)
        values += [world.value(policy)] * len(some)
        made: Any = world.simulate(policy, len(some), rng)
        visits = scaled_back(first_visits(world, made), radius).sum(axis=0)
        seen, returns = (visits + std * noise.normal(visits.shape)).reshape(2, -1, GRID.size)
        # Ratios, drawn to the middle by two standard deviations of the noise.
        weights = returns / (np.maximum(seen, 0.0) + 1.0 + 2.0 * std)
    greedy = QPolicy.draw(GRID, weights, rng, 0.0)
    words = {"mu": budget.mu, "delta": budget.delta, "releases": rounds, "unit": EPISODES}
    reason = "a reconstruction: the paper states no algorithm"
    proof = proven("nothing of its own", reason, mechanism="Gaussian noise", **words)
    none, best, named = np.full(users, math.nan), world.optimal_value, {"sigma": std}
    return PaperResult(
        "policy evaluation", False, best, np.array(values), none, greedy, proof, named, ()
    )


def first_visits(world: BoxWorld, data: Any) -> Floats:
    """Users' visits to pairs of an action and the nearest point, and returns: (n, 2 A m)."""
    (low, high), gamma = world.spec.reward_range, world.spec.discount
    users, H = data.actions.shape
    cells = data.actions * GRID.size + GRID(data.states)[:, :-1].argmax(axis=-1)
    found, rows = np.zeros((2, users, world.spec.actions * GRID.size)), np.arange(users)
    later, weight = np.zeros(users), 0.0
    for h in range(H - 1, -1, -1):
        later, weight = data.rewards[:, h] + gamma * later, 1.0 + gamma * weight
        found[0, rows, cells[:, h]] = 1.0
        # Earlier visits overwrite later ones: what is left is of the first.
        mean = (2.0 * later / weight - low - high) / (high - low)
        found[1, rows, cells[:, h]] = np.clip(mean, -1.0, 1.0)
    return found.swapaxes(0, 1).reshape(users, -1)
