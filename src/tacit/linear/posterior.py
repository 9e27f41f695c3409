"""Posterior over linear MDPs, given released outcome sums.

A release says Y = G mu + error, where G = sum w phi phi' over a block's steps, mu (d, S) are the
measures of the factors, and the error is privacy noise and sampling. G is not released: the block's
policy is public, so users who are simulated in the current model give an estimate of it, and the
model and its Grams are estimated in turn. Measures are taken to be distributions and factors'
rewards to be in [0, 1]; before anything is known, a measure is a Dirichlet that leads to a few
states, and a factor's reward is more likely to be near 0 or 1 than between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tacit.linear.outcome_sums import OutcomeSums
from tacit.linear.statistics import weighted_grams
from tacit.privacy.validation import Floats
from tacit.tabular.model import FiniteModel
from tacit.tabular.policy import AnyPolicy
from tacit.tabular.simulate import simulate_episodes
from tacit.tabular.world import BERNOULLI

# Draws from a prior that leaps choose from.
_DRAWS = 4096
# How often the model and the Grams that it expects are estimated in turn, and the simulated users.
_TURNS, _SIMULATED = 3, 2000
# Sweeps that are left out, and those that are kept.
_SKIP, _KEEP = 30, 60


@dataclass(frozen=True)
class Prior:
    """Distribution of measures and rewards before the first release."""

    spread: float = 0.15  # of measures: Dirichlet(spread, ..., spread)
    extreme: float = 0.3  # of factors' rewards: Beta(extreme, extreme)

    def length(self, states: int) -> float:
        """Root of the expected sum of squares of a measure."""
        return math.sqrt((1.0 + self.spread) / (1.0 + states * self.spread))

    def draws(self) -> tuple[Floats, Floats]:
        """Shares and rewards from the prior, always the same."""
        rng = np.random.default_rng(0)
        found = (rng.beta(a, a, _DRAWS) for a in (self.spread, self.extreme))
        shares, rewards = (np.clip(draws, 1e-12, 1.0 - 1e-12) for draws in found)
        return shares, rewards


@dataclass(frozen=True)
class ReleasedOutcomes:
    """Released sums of a block, its size and its policy."""

    following: Floats  # (L, d, S)
    paid: Floats  # (M, d)
    noise: float  # standard deviation of an entry of ``following``
    paid_noise: float  # and of ``paid``
    users: int
    policy: AnyPolicy  # which served them


@dataclass(frozen=True)
class Worlds:
    """Samples of the posterior: measures (K, L, d, S) and factors' rewards (K, M, d)."""

    measures: Floats
    rewards: Floats

    @property
    def average(self) -> Worlds:
        """Posterior mean, as one world."""
        means = (array.mean(axis=0, keepdims=True) for array in (self.measures, self.rewards))
        return Worlds(*means)

    def some(self, count: int) -> Worlds:
        """So many of them, evenly spread over the chain."""
        at = np.linspace(0, len(self.measures) - 1, count).round().astype(np.int64)
        return Worlds(self.measures[at], self.rewards[at])


Grams: TypeAlias = tuple[Floats, Floats]
"""Sums of w phi phi', (L, d, d), and of v phi phi', (M, d, d)."""


class OutcomePosterior:
    """Samples worlds from their posterior, given all releases.

    Where ``steps`` have measures of their own, one model for all steps is estimated too, and is
    preferred while it explains the releases as well (by the deviance information criterion).
    """

    def __init__(
        self,
        statistic: OutcomeSums,
        start: Floats,
        prior: Prior,
        known_rewards: Floats | None = None,
    ) -> None:
        self.statistic, self.features, self._start = statistic, statistic.features, start
        self._prior, self._known = prior, known_rewards
        self._shares, self._rewards = prior.draws()
        S, _, d = self.features.shape
        L, M = len(statistic.weights), statistic.reward_rows
        self.first = Worlds(np.full((1, L, d, S), 1.0 / S), np.full((1, M, d), 0.5))

    def _means(self, rewards: Floats) -> Floats:
        """Mean rewards (..., M, S, A) of factors' rewards (..., M, d), or those that are known."""
        if self._known is not None:
            return np.broadcast_to(self._known, (*rewards.shape[:-2], *self._known.shape))
        means: Floats = np.einsum("sad,...md->...msa", self.features, rewards)
        return means

    # Estimation.

    def worlds(
        self, blocks: Sequence[ReleasedOutcomes], before: Worlds, rng: np.random.Generator
    ) -> Worlds:
        """Samples of the posterior, given all releases.

        ``before`` are those before the last block: the chain goes on from there.
        """
        found = before
        for _ in range(_TURNS):
            average = found.average
            grams = [self.grams(average, block.policy, block.users, rng) for block in blocks]
            found = self._given(blocks, grams, found, rng)
        return found

    def grams(
        self, world: Worlds, policy: AnyPolicy, users: int, rng: np.random.Generator
    ) -> Grams:
        """Expected Gram matrices of users who follow a policy in one world.

        Args:
            world: One sample, or the mean.
            policy: That the users follow.
            users: How many they are.
            rng: Of the simulation.
        """
        means = np.clip(self._means(world.rewards[0]), 0.0, 1.0)
        believed = world.measures[0], means, self._start
        model = believed_model(self.features, believed, self.statistic.horizon)
        block = simulate_episodes(model, policy, _SIMULATED, rng).block()
        of_next, of_paid = (
            users * (weighted_grams(self.features, visits) / _SIMULATED)
            for visits in self.statistic.visits(block)
        )
        return of_next, of_paid

    def _given(
        self,
        blocks: Sequence[ReleasedOutcomes],
        grams: Sequence[Grams],
        before: Worlds,
        rng: np.random.Generator,
    ) -> Worlds:
        """Samples given these Grams, by a chain that goes on where another one ended."""
        begin, paid_begin = before.measures[-1], before.rewards[-1]
        (L, d, S), M = begin.shape, len(paid_begin)
        precision, linear = np.zeros((L, d, d)), np.zeros((L, d, S))
        paid_precision, paid_linear = np.zeros((M, d, d)), np.zeros((M, d))
        for block, (G, G_paid) in zip(blocks, grams, strict=True):
            # The trace of a Gram is what all entries of a row have in squares together, and a
            # reward varies by 1/4 at the most. Simulated users, who are so few, vary as well.
            both = 1.0 + block.users / _SIMULATED
            of_next, of_paid = (both * np.trace(g, axis1=1, axis2=2) / d for g in (G, G_paid))
            # Without visits there is no information, and no division by zero.
            variance = np.maximum(block.noise**2 + of_next / S, 1e-12)[:, np.newaxis, np.newaxis]
            precision += G @ G / variance
            linear += G @ block.following / variance
            variance = np.maximum(block.paid_noise**2 + 0.25 * of_paid, 1e-12)[:, np.newaxis]
            paid_precision += G_paid @ G_paid / variance[..., np.newaxis]
            paid_linear += (G_paid @ block.paid[..., np.newaxis])[..., 0] / variance
        measures, criterion = self._measures(precision, linear, begin, rng)
        if L > 1:
            total, of_all = (a.sum(axis=0, keepdims=True) for a in (precision, linear))
            shared, of_shared = self._measures(total, of_all, begin[:1], rng)
            if of_shared < criterion:
                measures = np.broadcast_to(shared, measures.shape)
        return Worlds(measures, self._paid(paid_precision, paid_linear, paid_begin, rng))

    def _measures(
        self, precision: Floats, linear: Floats, begin: Floats, rng: np.random.Generator
    ) -> tuple[Floats, float]:
        """Measures, and how badly they explain the releases, with a penalty for freedom."""
        from tacit.linear.posterior_loops import sample_distributions

        samples, chain = np.empty((_KEEP, *linear.shape)), np.array(begin)
        prior = self._shares, self._prior.spread
        sample_distributions(rng, precision, linear, *prior, _SKIP, chain, samples)

        def deviance(X: Floats) -> Floats:
            return np.asarray((X * (precision @ X - 2.0 * linear)).sum(axis=(-3, -2, -1)))

        of_samples, of_mean = deviance(samples).mean(), deviance(samples.mean(axis=0))
        return samples, float(2.0 * of_samples - of_mean)

    def _paid(
        self, precision: Floats, linear: Floats, begin: Floats, rng: np.random.Generator
    ) -> Floats:
        from tacit.linear.posterior_loops import sample_box

        samples, chain = np.empty((_KEEP, *linear.shape)), np.array(begin)
        prior = self._rewards, self._prior.extreme
        sample_box(rng, precision, linear, *prior, _SKIP, chain, samples)
        return samples

    # Planning.

    def values(self, worlds: Worlds, policy: Floats | None = None) -> tuple[Floats, Floats]:
        """Action values (K, H, S, A) of every world's best policy, or of this one, (H, S, A).

        And the values (K,) of an episode.
        """
        H, (S, A, _) = self.statistic.horizon, self.features.shape
        K = len(worlds.measures)
        means = self._means(worlds.rewards)
        Q, V = np.empty((K, H, S, A)), np.zeros((K, S))
        for h in range(H - 1, -1, -1):
            mu = worlds.measures[:, min(h, worlds.measures.shape[1] - 1)]
            # Features first: (d,) values of factors, not (S, A, S) probabilities.
            factors = (mu @ V[..., np.newaxis])[..., 0]
            Q[:, h] = means[:, min(h, means.shape[1] - 1)]
            Q[:, h] += np.einsum("sai,ki->ksa", self.features, factors, optimize=True)
            V = Q[:, h].max(axis=-1) if policy is None else (Q[:, h] * policy[h]).sum(axis=-1)
        return Q, V @ self._start


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


def d_optimal(features: Floats, turns: int = 300) -> Floats:
    """Probabilities of actions (S, A) that make the Gram of all states' features large.

    By Frank-Wolfe on log det: in every state the action whose feature is known least gains.
    """
    S, A, d = features.shape
    table, chosen = features.reshape(-1, d), np.full((S, A), 1.0 / A)
    for turn in range(turns):
        gram = (table.T * chosen.reshape(-1)) @ table / S + 1e-6 * np.eye(d)
        leverage = ((features @ np.linalg.inv(gram)) * features).sum(axis=-1)
        best = np.eye(A)[leverage.argmax(axis=1)]
        chosen += (best - chosen) * 2.0 / (turn + 3.0)
    return chosen
