"""Planning where states and actions are public and only rewards are protected.

What is known there is a dictionary of sums: ``counts`` and ``moves`` of what everybody can see, and
``rewards``, noisy, with the ``variance`` of that noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.core.asks import Arrays
from tacit.privacy.statistic import Block

if TYPE_CHECKING:
    from tacit.continuous.constants import FunctionalConstants
    from tacit.continuous.estimate import Basis
    from tacit.continuous.feature_map import FeatureMap
    from tacit.continuous.spec import BoxSpec

Floats = NDArray[np.float64]

PUBLIC = ("states", "actions", "lengths")
"""What users leave public where only their rewards are protected."""

# Sweeps of values, at most, and when they stop.
_SWEEPS = 500
_STILL = 1e-6


def moments(public: Mapping[str, NDArray[Any]], spec: BoxSpec, features: FeatureMap) -> Arrays:
    """Sums over public steps of features times features, and times the next ones, by action.

    Args:
        public: :data:`PUBLIC` of a block.
        spec: of the world.
        features: the map.
    """
    A, m = spec.actions, features.size
    counts, moves = np.zeros((A, m, m)), np.zeros((A, m, m))
    users = len(public["states"])
    # Rewards are private: not even whether they are numbers is known here.
    blind = np.full((users, spec.horizon), spec.reward_range[0])
    block = Block(users, {**public, "rewards": blind})
    for _, part in parts_of(block, spec.horizon * m):
        steps = steps_of(part, spec)
        here_and_there = features(steps.states)
        for action in range(A):
            chosen = steps.valid & ~steps.ended & (steps.actions == action)
            here, there = here_and_there[:, :-1][chosen], here_and_there[:, 1:][chosen]
            counts[action] += here.T @ here
            moves[action] += here.T @ there
    return {"counts": counts, "moves": moves}


def added(old: Arrays, new: Arrays) -> Arrays:
    """Sums by name; a name that is new begins at zero."""
    # A sum of arrays without axes is no array.
    return old | {name: np.asarray(old.get(name, 0.0) + array) for name, array in new.items()}


def reward_belief(
    known: Arrays, basis: Basis, constants: FunctionalConstants
) -> tuple[Floats, Floats]:
    """The posterior mean and standard deviation of expected rewards, each (actions, m)."""
    root, prior = basis.root, basis.prior
    shape = (len(known["counts"]), len(root))
    means, stds = np.zeros(shape), np.zeros(shape)
    for action, counts in enumerate(known["counts"]):
        across = constants.prior_reward * root.T @ counts @ prior
        noise = constants.noise**2 * root.T @ counts @ root
        noise += (float(known["variance"]) + 1e-6) * np.eye(root.shape[1])
        gain = np.linalg.solve(noise + across @ across.T, across).T
        scaled = constants.prior_reward * prior
        means[action] = scaled @ (gain @ known["rewards"][action])
        left = np.eye(prior.shape[1]) - gain @ across
        stds[action] = np.sqrt(np.maximum(((scaled @ left) * scaled).sum(axis=1), 0.0))
    return means, stds


def plan_on_public(
    known: Arrays, rewards: Floats, basis: Basis, discount: float, value_range: tuple[float, float]
) -> Floats:
    """Q for the rewards that are believed and the transitions that everybody can see.

    Args:
        known: the sums.
        rewards: what is believed of them, (actions, m).
        basis: features and prior.
        discount: of future rewards.
        value_range: of values.

    Returns:
        Its weights, (actions, m).
    """
    prior = basis.prior
    changes = np.array(
        [
            prior
            @ np.linalg.solve(
                prior.T @ counts @ prior + np.eye(prior.shape[1]), prior.T @ (moves - counts)
            )
            for counts, moves in zip(known["counts"], known["moves"], strict=True)
        ]
    )
    value, weights = np.zeros(len(prior)), np.zeros_like(rewards)
    for _ in range(_SWEEPS):
        weights = rewards + discount * (value + changes @ value)
        new = np.clip(basis.value(weights)[0], *value_range)
        moved, value = float(np.abs(new - value).max()), new
        if moved < _STILL:
            break
    return weights
