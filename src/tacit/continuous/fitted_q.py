"""Fitted Q-iteration of linear values, without noise: what two baselines do with transitions."""

from __future__ import annotations

import math

import numpy as np

from tacit.continuous.spec import BoxSpec
from tacit.privacy.statistic import Bools, Floats, Ints

# It stops when what further sweeps could change is this part of the values' range.
_PRECISION = 1e-3
_SWEEPS = 300


def middle(spec: BoxSpec, discount: float) -> float:
    """The middle of what values can be."""
    return 0.5 * sum(spec.reward_range) / (1.0 - discount)


def sweeps(discount: float) -> int:
    """How many sweeps fitted Q needs."""
    if discount <= 0.0:
        return 1
    return min(_SWEEPS, math.ceil(math.log(_PRECISION) / math.log(discount)))


def fitted_q(
    here: Floats,
    there: Floats,
    actions: Ints,
    rewards: Floats,
    valid: Bools,
    over: Bools,
    spec: BoxSpec,
    discount: float,
    ridge: float,
) -> Floats:
    """Fitted Q-iteration of linear values, for many sets of transitions at once.

    Values are regressed as their distance to the middle of their range, which is where a ridge
    leads to and where nobody was; in targets they are clipped to that range.

    Features of states and next states are (sets, n, m), the others (sets, n); ``valid`` says which
    count, ``over`` after which nothing is earned any more. The ridge is added to the Grams'
    diagonals. The weights that are returned, (sets, actions, m), have values that lack the middle.
    """
    low, high = (end / (1.0 - discount) for end in spec.reward_range)
    centre = middle(spec, discount)
    m, A = here.shape[-1], spec.actions
    taken = ((actions[..., np.newaxis] == np.arange(A)) & valid[..., np.newaxis]).astype(float)
    grams = np.stack(
        [(here * taken[..., a, np.newaxis]).swapaxes(-1, -2) @ here for a in range(A)], axis=1
    )
    inverses = np.linalg.inv(grams + ridge * np.eye(m))
    weights = np.zeros((len(here), A, m))
    for _ in range(sweeps(discount)):
        next_values = (there @ weights.swapaxes(-1, -2)).max(axis=-1) + centre
        next_values = np.where(over, 0.0, np.clip(next_values, low, high))
        errors = rewards + discount * next_values - centre
        cross = (errors[..., np.newaxis] * taken).swapaxes(-1, -2) @ here
        weights = np.einsum("uaij,uaj->uai", inverses, cross)
    return weights
