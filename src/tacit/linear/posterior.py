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
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from tacit.linear.statistics import (
    ROUNDING,
    told_of_features,
    unit_features,
    unit_weights,
    weighted_grams,
)
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps
from tacit.privacy.sensitivity import SHORTEST
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part
from tacit.privacy.validation import whole_number
from tacit.tabular.model import FiniteModel
from tacit.tabular.policy import AnyPolicy
from tacit.tabular.world import BERNOULLI, simulate_episodes

# Prior of measures, Dirichlet(spread, ..., spread), and of factors' rewards, Beta; and draws from
# it that leaps choose from.
SPREAD, _EXTREME, _DRAWS = 0.15, 0.3, 4096
# How often model and Grams are estimated in turn, simulated users, sweeps left out and kept.
_TURNS, _SIMULATED, _SKIP, _KEEP = 3, 2000, 30, 60


@dataclass(frozen=True, eq=False)
class OutcomeSums(LoopSums):
    """Sums over a user's steps of w phi e_{s'}' and v r phi, for features that are not negative.

    No Gram matrix: it follows from the policy and an estimate of where that leads, so the whole
    budget goes to the outcomes. :meth:`visits` are the weights that steps of simulated users have,
    from which an expected Gram is made.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A step counts if its
    state, action, next state and reward are valid; rewards are cut to [0, 1]. Parts: ``next``
    (L, d, S), where L is the number of ``weights``, 1 or H, and ``rewards`` (M, d), M =
    ``reward_rows``, with weight b; with b = 0 they are left out.

    The weights w_h >= 0 of steps are public; w and v are lowered, to w_h at most and to 1, where
    the sum of phi e_{s'}' could become longer than ``clip`` *whatever the next state turns out to
    be*, and that of r phi longer than ``reward_clip`` whatever the reward. So they depend on the
    past and the present state and action only, and what follows is an unbiased sample.

    Sensitivity. Let U and z be a user's two sums. |U| <= C_U, the clip, or what the longest steps
    add up to if that is less: sqrt(sum w_h^2) max |phi| per step and sum w_h max |phi| where all
    steps share a row, here H w max |phi|; |z| <= C_R likewise. Features, weights and rewards are
    not negative, so neither is any entry of Y = (U, b z), and

        |Y - Y'|^2 = |Y|^2 + |Y'|^2 - 2 <Y, Y'> <= |Y|^2 + |Y'|^2 <= 2 (C_U^2 + b^2 C_R^2).

    Against zero it is half of that, squared. Attained where two users can go to different states
    with features as long as any that are orthogonal, and are paid for all steps.
    """

    features: Floats  # phi, (S, A, d), cut to length 1
    horizon: int  # steps of an episode
    weights: Floats  # w, (1,) where steps share a row of ``next``, else (H,)
    clip: float | None = None  # the longest U, or ``None`` for what steps can add up to
    reward_clip: float | None = None  # the same for z
    reward: float = 1.0  # b
    reward_rows: int = 1  # 1 where steps share a row of ``rewards``, else H
    nonnegative = True

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "features", unit_features(self.features))
        set_(self, "horizon", whole_number("horizon", self.horizon))
        if (self.features < 0.0).any():
            raise InvalidArgument("features must not be negative: distances would be larger")
        set_(self, "weights", unit_weights(self.weights, (1,), (self.horizon,)))
        for clip in (self.clip, self.reward_clip):
            if clip is not None and not SHORTEST < clip < math.inf:
                raise InvalidArgument(f"clips must be > 0, got {clip!r}")
        if not 0.0 <= self.reward <= 1e12 or self.reward_rows not in (1, self.horizon):
            raise InvalidArgument("reward must be in [0, 1e12], and reward_rows 1 or H")
        if not self._longest > SHORTEST:
            raise InvalidArgument("all features or weights are zero: there is nothing to learn")
        set_(self, "name", "outcome sums")

    @cached_property
    def layout(self) -> Layout:
        """``next`` and perhaps ``rewards``."""
        S, _, d = self.features.shape
        parts = [Part("next", (len(self.weights), d, S))]
        if self.reward > 0.0:
            parts.append(Part("rewards", (self.reward_rows, d), weight=self.reward))
        return Layout(tuple(parts))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards, and visits of next states, where some combination of features is always 1."""
        found = told_of_features(self.features, release, self.weights)
        clips = self.clip is not None or self.reward_clip is not None
        whole = not clips and bool((self.weights > 0.0).all())
        return found if whole or not found else found | {"partial": (1.0, 0.0)}

    @cached_property
    def _lengths(self) -> Floats:
        """|phi|^2, (S, A)."""
        return np.asarray((self.features**2).sum(axis=-1))

    @cached_property
    def _longest(self) -> float:
        """Norm of the longest steps' sum in ``next``."""
        longest = math.sqrt(float(self._lengths.max()))
        if len(self.weights) == 1:
            return self.horizon * float(self.weights[0]) * longest
        return longest * math.sqrt(float((self.weights**2).sum()))

    @property
    def bound(self) -> float:
        """C_U."""
        return self._longest if self.clip is None else min(self.clip, self._longest)

    @property
    def reward_bound(self) -> float:
        """C_R."""
        times = self.horizon if self.reward_rows == 1 else math.sqrt(self.horizon)
        most = times * math.sqrt(float(self._lengths.max()))
        return most if self.reward_clip is None else min(self.reward_clip, most)

    def l2(self, relation: Relation) -> float:
        """C = |(C_U, b C_R)| against zero, else sqrt(2) C."""
        most = math.hypot(self.bound, self.reward * self.reward_bound)
        return most if relation is Relation.ZERO_OUT else math.sqrt(2.0) * most

    def visits(self, block: Block) -> tuple[Floats, Floats]:
        """The weights of all steps by cell, of ``next`` (L, S, A) and of ``rewards`` (M, S, A).

        Raw where users are: for simulated ones only.
        """
        _, visits, paying = self._loop(self.columns.read(block), separate=False)
        return visits, paying

    def _loop(self, steps: UserSteps, separate: bool) -> tuple[Floats, Floats, Floats]:
        from tacit.linear.posterior_loops import sum_outcomes

        S, A, d = self.features.shape
        rows = len(steps.states) if separate else 1
        following = np.zeros((rows, len(self.weights), d, S))
        paid = np.zeros((rows, self.reward_rows, d))
        visits = np.zeros((len(self.weights), S, A))
        paying = np.zeros((self.reward_rows, S, A))
        limit, reward_limit = ((C * (1.0 - ROUNDING)) ** 2 for C in (self.bound, self.reward_bound))
        tables = self.features, self.weights, self._lengths
        sums = following, paid, visits, paying
        sum_outcomes(*steps[:3], *tables, limit, reward_limit, separate, *sums)
        return self.layout.pack({"next": following, "rewards": paid}, rows), visits, paying

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of all users."""
        free, cells = len(self.weights) == self.horizon, self.features.shape[:2]
        return StepColumns(self.horizon, np.zeros(cells, dtype=np.int64) if free else None)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        return self._loop(steps, separate)[0]


def prior_length(states: int) -> float:
    """Root of the expected sum of squares of a measure, before anything is known."""
    return math.sqrt((1.0 + SPREAD) / (1.0 + states * SPREAD))


def _draws() -> list[Floats]:
    """Shares and rewards from the prior, always the same."""
    rng = np.random.default_rng(0)
    return [np.clip(rng.beta(a, a, _DRAWS), 1e-12, 1.0 - 1e-12) for a in (SPREAD, _EXTREME)]


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
        return Worlds(self.measures.mean(0, keepdims=True), self.rewards.mean(0, keepdims=True))

    def some(self, count: int) -> Worlds:
        """So many of them, evenly spread over the chain."""
        at = np.linspace(0, len(self.measures) - 1, count).round().astype(np.int64)
        return Worlds(self.measures[at], self.rewards[at])


Grams: TypeAlias = tuple[Floats, Floats]  # of w phi phi', (L, d, d), and of v phi phi', (M, d, d)


class OutcomePosterior:
    """Samples worlds from their posterior, given all releases.

    Where ``steps`` have measures of their own, one model for all steps is estimated too, and is
    preferred while it explains the releases as well (by the deviance information criterion).
    """

    def __init__(
        self, statistic: OutcomeSums, start: Floats, known_rewards: Floats | None = None
    ) -> None:
        self.statistic, self.features, self._start = statistic, statistic.features, start
        self._known, (self._shares, self._rewards) = known_rewards, _draws()
        S, _, d = self.features.shape
        L, M = len(statistic.weights), statistic.reward_rows
        self.first = Worlds(np.full((1, L, d, S), 1.0 / S), np.full((1, M, d), 0.5))

    def _means(self, rewards: Floats) -> Floats:
        """Mean rewards (..., M, S, A) of factors' rewards (..., M, d), or those that are known."""
        if self._known is not None:
            return np.broadcast_to(self._known, (*rewards.shape[:-2], *self._known.shape))
        return np.asarray(np.einsum("sad,...md->...msa", self.features, rewards))

    def worlds(self, blocks: Sequence[ReleasedOutcomes], before: Worlds, rng: Generator) -> Worlds:
        """Samples of the posterior, given all releases.

        ``before`` are those before the last block: the chain goes on from there.
        """
        found = before
        for _ in range(_TURNS):
            average = found.average
            grams = [self.grams(average, block.policy, block.users, rng) for block in blocks]
            found = self._given(blocks, grams, found, rng)
        return found

    def grams(self, world: Worlds, policy: AnyPolicy, users: int, rng: Generator) -> Grams:
        """Expected Gram matrices of users who follow a policy in one world.

        Args:
            world: One sample, or the mean.
            policy: That the users follow.
            users: How many they are.
            rng: Of the simulation.
        """
        means = np.clip(self._means(world.rewards[0]), 0.0, 1.0)
        P = np.einsum("sai,lij->lsaj", self.features, world.measures[0], optimize=True)
        P /= P.sum(axis=-1, keepdims=True)
        chances = np.stack([1.0 - means, means], axis=-1)
        model = FiniteModel(P, chances, BERNOULLI, self._start, self.statistic.horizon)
        block = simulate_episodes(model, policy, _SIMULATED, rng).block()
        of_next, of_paid = (weighted_grams(self.features, v) for v in self.statistic.visits(block))
        return users * (of_next / _SIMULATED), users * (of_paid / _SIMULATED)

    def _given(
        self,
        blocks: Sequence[ReleasedOutcomes],
        grams: Sequence[Grams],
        before: Worlds,
        rng: Generator,
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
        self, precision: Floats, linear: Floats, begin: Floats, rng: Generator
    ) -> tuple[Floats, float]:
        """Measures, and how badly they explain the releases, with a penalty for freedom."""
        from tacit.linear.posterior_loops import sample_distributions

        samples, chain = np.empty((_KEEP, *linear.shape)), np.array(begin)
        sample_distributions(rng, precision, linear, self._shares, SPREAD, _SKIP, chain, samples)

        def deviance(X: Floats) -> Floats:
            return np.asarray((X * (precision @ X - 2.0 * linear)).sum(axis=(-3, -2, -1)))

        of_samples, of_mean = deviance(samples).mean(), deviance(samples.mean(axis=0))
        return samples, float(2.0 * of_samples - of_mean)

    def _paid(self, precision: Floats, linear: Floats, begin: Floats, rng: Generator) -> Floats:
        from tacit.linear.posterior_loops import sample_box

        samples, chain = np.empty((_KEEP, *linear.shape)), np.array(begin)
        sample_box(rng, precision, linear, self._rewards, _EXTREME, _SKIP, chain, samples)
        return samples

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
