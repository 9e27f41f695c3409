"""Blocks of users whose states are vectors."""

import numpy as np

from tacit.privacy.statistic import Block


def block(states, lengths=None, actions=None, rewards=None):
    """Users with these states, (n, H + 1, D); no end, first actions and no rewards by default."""
    states = np.array(states, dtype=float)
    n, H = len(states), states.shape[1] - 1
    return Block(
        n,
        {
            "states": states,
            "actions": np.zeros((n, H), dtype=np.int64) if actions is None else actions,
            "rewards": np.zeros((n, H)) if rewards is None else rewards,
            "lengths": np.full(n, H + 1) if lengths is None else np.asarray(lengths),
            "versions": np.zeros(n, dtype=np.int64),
        },
    )


def random_users(rng, count, spec, beyond=0.0):
    """Users of a spec at random, in its box (cut to 3) or a bit beyond, who may end early."""
    H, low, high = spec.horizon, np.maximum(spec.lows, -3.0), np.minimum(spec.highs, 3.0)
    states = rng.uniform(low - beyond, high + beyond, (count, H + 1, spec.dimension))
    actions = rng.integers(0, spec.actions, (count, H))
    rewards = rng.uniform(*spec.reward_range, (count, H))
    return block(states, rng.integers(1, H + 2, count), actions, rewards)
