"""How many users a first block needs: tried beforehand, in hard worlds. Public."""

from __future__ import annotations

import math

import numpy as np

from tacit.finite.mixed_policy import AnyPolicy
from tacit.linear.posterior import (
    Grams,
    OutcomePosterior,
    Outcomes,
    Prior,
    Worlds,
    sampling_variances,
)

# Worlds that are tried, and by which factor sizes differ.
_TRIED, _FINE = 12, 1.2
# Sweeps that are left out, and those that are kept.
_SWEEPS = 15, 25


def first_block(
    posterior: OutcomePosterior, policy: AnyPolicy, prior: Prior, noise: float, loss: float
) -> int:
    """The fewest users after whom the best policy for what is expected loses at most ``loss``.

    They follow ``policy``; ``noise`` is that of a sum of weight 1. All sizes are tried in the same
    worlds with the same noise, and halved between the least and the largest.
    """
    rng = np.random.default_rng(0)
    worlds = _hard_worlds(posterior, policy, prior, rng)
    grams = [posterior.grams(posterior.model(world), policy, 1, rng) for world in worlds]
    low, high = 0, math.ceil(math.log(1e7) / math.log(_FINE))
    while low < high:
        middle = (low + high) // 2
        users = math.ceil(_FINE**middle)
        losses = [
            _loss_after(posterior, world, gram, users, noise, policy, np.random.default_rng([1, i]))
            for i, (world, gram) in enumerate(zip(worlds, grams, strict=True))
        ]
        low, high = (low, middle) if np.mean(losses) <= loss else (middle + 1, high)
    return math.ceil(_FINE**low)


def _loss_after(
    posterior: OutcomePosterior,
    world: Worlds,
    gram: Grams,
    users: int,
    noise: float,
    policy: AnyPolicy,
    rng: np.random.Generator,
) -> float:
    """What the greedy policy loses after so many users of a world, as a share of its optimum."""
    G, G_paid = (users * of for of in gram)
    S, share = posterior.features.shape[0], posterior.statistic.reward
    paid_noise = noise / share if share > 0.0 else 0.0
    of_next, of_paid = sampling_variances(G, G_paid, S)
    following, paid = G @ world.measures[0], (G_paid @ world.rewards[0][..., np.newaxis])[..., 0]
    spread = np.sqrt(noise**2 + of_next)[:, np.newaxis, np.newaxis]
    following = following + spread * rng.standard_normal(following.shape)
    spread = np.sqrt(paid_noise**2 + of_paid)[:, np.newaxis]
    paid = paid + spread * rng.standard_normal(paid.shape)
    block = Outcomes(following, paid, noise, paid_noise, users, policy)
    believed = posterior.given([block], [(G, G_paid)], rng, _SWEEPS).average
    greedy = posterior.values(believed)[0][0].argmax(axis=-1)
    table = np.eye(posterior.features.shape[1])[greedy]
    best, own = posterior.values(world)[1][0], posterior.values(world, table)[1][0]
    return float((best - own) / max(best, 1e-9))


def _hard_worlds(
    posterior: OutcomePosterior, policy: AnyPolicy, prior: Prior, rng: np.random.Generator
) -> list[Worlds]:
    """Worlds in which nothing pays but the factor that is seen least; measures are the prior's."""
    S, _, d = posterior.features.shape
    statistic = posterior.statistic
    seen = np.einsum("hsa,sad->d", policy.table(), posterior.features**2)
    rewards = np.zeros((1, statistic.reward_rows, d))
    rewards[..., seen.argmin()] = 1.0
    shape = (1, len(statistic.weights), d)
    return [
        Worlds(rng.dirichlet(np.full(S, prior.spread), shape), rewards) for _ in range(_TRIED)
    ]
