"""What to expect of a Gram matrix that nobody releases: of users who are simulated in a model."""

from __future__ import annotations

import numpy as np

from tacit.core.sizes import Floats
from tacit.finite.mixed_policy import AnyPolicy
from tacit.finite.model import FiniteModel
from tacit.finite.simulate import simulate_episodes
from tacit.finite.world import BERNOULLI
from tacit.linear.outcome_sums import OutcomeSums
from tacit.linear.statistics import weighted_grams


def believed_model(
    features: Floats, world: tuple[Floats, Floats, Floats], horizon: int
) -> FiniteModel:
    """A model of measures (L, d, S), mean rewards (M, S, A) and first states (S,)."""
    measures, means, start = world
    P = np.einsum("sai,lij->lsaj", features, measures, optimize=True)
    return FiniteModel(
        transitions=P / P.sum(axis=-1, keepdims=True),
        reward_probabilities=np.stack([1.0 - means, means], axis=-1),
        reward_values=BERNOULLI,
        start=start,
        horizon=horizon,
    )


def expected_grams(
    statistic: OutcomeSums,
    model: FiniteModel,
    policy: AnyPolicy,
    simulated: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Of one user, on average over simulated ones: sums of w phi phi' and of v phi phi'."""
    users = simulate_episodes(model, policy, simulated, rng).block()
    of_next, of_rewards = (
        weighted_grams(statistic.features, visits) / simulated for visits in statistic.visits(users)
    )
    return of_next, of_rewards
