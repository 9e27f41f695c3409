"""Posterior of ConcurrentPSRL: first visits in units of their noise, and a spike-and-slab model.

If m visits of a cell are expected of a block, the best combination of blocks weighs each by m over
the variance of its noise. A counter with the factor C has noise B z with B C = A, A the running sum
and z white, so the sums S of its first t releases give C A^-1 S = C x + z: its t-th entry is one
more measurement with white noise, of sum_j C_tj x_j visits, weighed by sum_j C_tj m_j. Without
noise counts are counts, with an error as if it were one visit.

A few of S states follow a state and an action, and the noise of the others would drown them. So
every entry is zero or real, with a chance that its size in standard deviations of the noise gives
(a spike and a slab), and a row is known by degrees. Constants were chosen on grid(4), deep_sea(8),
riverswim(8 and 11), random worlds and lakes, with other seeds than those of any table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.core.algorithm import Floats
from tacit.privacy.counters.dense import NormalisedSquareRoot, Optimal

REWARD_WEIGHT = 0.3  # squared, of rewards against transitions in the statistic
PAID_WEIGHT = 0.3  # squared, of where the first reward came
LENT = 30.0  # visits, in noise, that all steps together lend to one of them at most
_FADING = 0.8  # weight of first rewards from block to block: at first it is unknown how many came
_SLAB = 1.5  # how improbable a next state is, beyond ln S
_KNOWN, _SHARPNESS = 3.0, 4.0  # visits, in noise, at which a row is half known, and how suddenly
_PESSIMISM = 0.5  # rewards are lowered by so many of their deviations
# What adds up over steps where they are alike.
_ADDED = ["moves", "paid", "variance", "first_paid", "first_variance", "at_risk", "visits_at_risk"]
# Counters whose running sums can be told apart again.
_FACTORS = {kind.kind: kind for kind in (Optimal, NormalisedSquareRoot)}


@cache
def _undoing(kind: str, releases: int) -> tuple[Floats, Floats]:
    """C A^-1 of a counter, and the norms of the rows of B."""
    factor = _FACTORS[kind](releases=releases, mu=1.0).factor
    C = np.ldexp(factor.whole.astype(np.float64), -factor.places)
    return C - np.pad(C[:, 1:], ((0, 0), (0, 1))), factor.row_norms


@dataclass(frozen=True, eq=False)
class VisitEstimate:
    """Weighted sums of all blocks; those of L = 1 or H steps, S states and A actions."""

    noisy: bool  # whether releases have noise
    counter: tuple[str, int]  # kind and releases of the counter of all blocks; ("", 0) if none
    moves: Floats  # next states, (L, S, A, S)
    paid: Floats  # rewards, (L, S, A), as all that follow
    variance: Floats  # of the noise in moves
    first_paid: Floats  # users whose first reward came in a cell
    first_variance: Floats  # of the noise in them
    at_risk: Floats  # users who came to a cell
    visits_at_risk: Floats  # and how often
    sums: Floats  # of a counter: all of its releases, beside sums of what was expected

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], noisy: bool = True, counter: tuple[str, int] = ("", 0)
    ) -> VisitEstimate:
        """Before any release."""
        cells = [np.zeros(shape) for _ in range(6)]
        moves = np.zeros((*shape, shape[1]))
        sums = np.zeros((0, moves.size + 5 * cells[0].size))
        return cls(noisy, counter, *[moves, *cells, sums])

    def added(
        self, parts: Mapping[str, Floats], std: Mapping[str, Any], visits: tuple[Floats, ...]
    ) -> VisitEstimate:
        """With a release; ``visits`` are expected ones that count, users who came, all visits."""
        noise, first_noise = (float(np.max(std[name])) for name in ("transitions", "first_paid"))
        released = (parts["transitions"], parts["rewards"], parts["first_paid"])
        row = np.concatenate([array.ravel() for array in (*released, *visits)])
        sums = self.sums
        if self.counter[0]:
            undone, norms = _undoing(*self.counter)
            if at := len(sums):
                row[-3 * self.paid.size :] += sums[-1, -3 * self.paid.size :]
            sums = np.vstack([sums, row])
            row = undone[at, : at + 1] @ sums
            noise, first_noise = noise / norms[at], first_noise / norms[at]
        moves = row[: self.moves.size].reshape(self.moves.shape)
        paid, first, expected, came, often = row[self.moves.size :].reshape(5, *self.paid.shape)
        weight = self._weight(expected, noise)
        new = replace(
            self,
            sums=sums,
            moves=self.moves + weight[..., np.newaxis] * moves,
            paid=self.paid + weight * paid,
            variance=self.variance + (weight * noise) ** 2 if noise else np.ones(paid.shape),
        )
        if not visits[1].any():
            return new
        weight = self._weight(came, first_noise)
        fresh = (weight * first_noise) ** 2 if first_noise else 1.0
        return replace(
            new,
            first_paid=_FADING * self.first_paid + weight * first,
            first_variance=_FADING**2 * self.first_variance + fresh,
            at_risk=_FADING * self.at_risk + weight * came,
            visits_at_risk=_FADING * self.visits_at_risk + weight * often,
        )

    def _weight(self, expected: Floats, noise: float) -> Floats:
        return (expected + noise) / noise**2 if self.noisy else np.ones(expected.shape)

    def pooled(self, steps: slice) -> VisitEstimate:
        """The same of a world in which these steps are alike."""
        sums = {name: getattr(self, name)[steps].sum(axis=0, keepdims=True) for name in _ADDED}
        if not self.noisy:
            sums["variance"] = np.ones(sums["variance"].shape)
        return replace(self, counter=("", 0), sums=self.sums[:0], **sums)

    @property
    def entries(self) -> Floats:
        """Next states (L, S, A, S), in standard deviations of their noise."""
        return np.asarray(self.moves / _root(self.variance)[..., np.newaxis])

    @property
    def rewards(self) -> Floats:
        """Rewards, in the deviations of next states."""
        return np.asarray(self.paid / _root(self.variance))


def _root(variance: Floats) -> Floats:
    return np.asarray(np.sqrt(np.where(variance > 0, variance, 1.0)))


@dataclass(eq=False)
class SpikeSlabPosterior:
    """Spike-and-slab posterior of transitions and rewards; :meth:`after` makes another one."""

    estimate: VisitEstimate
    last: int  # how many of the steps say something of other steps
    slab: Floats  # (L, S, A, S), the chance of each next state that it is one
    known: Floats  # (L, S, A), how far a row is known, from 0 to 1
    cautious: Floats  # (L, S, A), means of rewards less some deviations
    paying_rate: float  # the chance of a cell of which nothing is known that it pays
    common: SpikeSlabPosterior | None  # of a world in which all steps are alike, if several
    entries: Floats = field(init=False)  # next states, in standard deviations of their noise
    paid: Floats = field(init=False)  # rewards, in the same
    visits: Floats = field(init=False)  # (L, S, A), in the same
    transitions: Floats = field(init=False)  # (L, S, A, S), rows times how far they are known
    rewards: Floats = field(init=False)  # (L, S, A), cautious means times the same
    reward_mean: Floats = field(init=False)
    reward_std: Floats = field(init=False)
    paying: Floats = field(init=False)  # the chance that a cell pays at all
    hinted: Floats = field(init=False)  # means by first rewards
    hint: Floats = field(init=False)  # and the chance that these are real

    @classmethod
    def prior(cls, estimate: VisitEstimate, apart: bool = False) -> SpikeSlabPosterior:
        """Before any release; ``apart`` if what follows the last step is not known."""
        shape, common = estimate.paid.shape, None
        if shape[0] > 1:
            common = cls.prior(VisitEstimate.empty((1, *shape[1:]), estimate.noisy))
        last = shape[0] - 1 if apart and shape[0] > 1 else shape[0]
        cells = np.zeros(shape), np.zeros(shape)
        first = cls(estimate, last, np.zeros(estimate.moves.shape), *cells, 0.5, common)
        first._see()
        return first

    def after(self, estimate: VisitEstimate) -> SpikeSlabPosterior:
        """The posterior of more releases, beside what was known by this one."""
        new = copy(self)
        new.estimate = estimate
        new._see()
        return new

    def _see(self) -> None:
        """Posterior of next states and rewards, beside what was known of them."""
        estimate = self.estimate
        self.entries, self.paid = estimate.entries, estimate.rewards
        if self.common is not None:
            self.common = self.common.after(estimate.pooled(slice(self.last)))
            self._borrow(self.common)
        self.slab = self._real(self.entries)
        positive = np.maximum(self.entries, 0.0) * self.slab
        self.visits = positive.sum(axis=-1)
        self.known = 1.0 - self.unknown(self.visits)
        self.transitions = positive * _per_visit(self.known, self.visits)
        self._see_rewards()

    def _borrow(self, common: SpikeSlabPosterior) -> None:
        """Adds to every step visits of a world in which all steps are the same.

        So many as the steps are alike: with n visits of a row, its entries differ from those of the
        common row by their noise, of variance 1, and by n times how much the steps differ, of which
        the mean square over rows is d. Then the common row is worth 1 / (d n) visits.
        """
        rows = common.transitions / np.maximum(common.known, 1e-9)[..., np.newaxis]
        square = np.maximum((rows**2).sum(axis=-1), 1e-9)
        visits = np.maximum((self.entries * rows).sum(axis=-1) / square, 1.0)
        apart = ((self.entries - visits[..., np.newaxis] * rows) ** 2).sum(axis=-1)
        seen = (visits > 2.0) & (common.known > 0.9)
        seen[self.last :] = False
        excess = (apart - (rows.shape[-1] - 1.0))[seen].sum()
        differ = max(float(excess), 0.0) / max(float((visits[seen] ** 2).sum()), 1.0)
        lent = np.minimum(LENT, 1.0 / np.maximum(differ * visits, 1e-9))
        lent = np.minimum(lent, common.visits) * common.known
        if self.last == 1:
            lent[0] = 0.0  # it is the common one
        self.entries = self.entries + lent[..., np.newaxis] * rows
        self.paid = self.paid + lent * np.clip(common.reward_mean, 0.0, 1.0)

    def _real(self, entries: Floats) -> Floats:
        """The chance of every next state that it is one."""
        S = entries.shape[-1]
        against = np.full(entries.shape, math.log(S) + _SLAB)
        if self.slab.any():
            # Where one action leads, others may: worlds have neighbourhoods.
            beside = (self.slab * self.known[..., np.newaxis])[: self.last].max(axis=(0, 2))
            beside = np.maximum(beside, beside.T)
            np.fill_diagonal(beside, 1.0)
            against -= beside[:, np.newaxis, :] * max(0.0, math.log(S) - 1.0)
        strongest = np.maximum(entries.max(axis=-1, keepdims=True), 1e-9)
        # Less so in a row that has a strong entry already.
        against += np.maximum(0.0, np.log(strongest / 2.5))
        chance = 1.0 / (1.0 + np.exp(np.minimum(50.0, against - entries**2 / 2.0)))
        return np.where(entries > 0, chance, 0.0)

    def unknown(self, visits: Floats) -> Floats:
        """How far rows with so many visits are unknown, from 1 to 0."""
        return np.asarray(1.0 / (1.0 + (visits / _KNOWN) ** _SHARPNESS))

    def whole_rows(self) -> Floats:
        """Rows that sum to 1: who goes where nothing is known may be anywhere."""
        unknown = (1.0 - self.known) / self.slab.shape[-1]
        return np.asarray(self.transitions + unknown[..., np.newaxis])

    def _see_rewards(self) -> None:
        """Rewards of a cell are 0, or have a mean somewhere in (0, 1): with which chance, where."""
        visits = np.maximum(self.visits, 0.5)
        self.reward_mean = mean = self.paid / visits
        self.reward_std = spread = 1.0 / math.sqrt(REWARD_WEIGHT) / visits
        known, paid = self.known, self.cautious * self.known
        self.paying_rate = rate = float((1.0 + paid.sum()) / (2.0 + known.sum()))
        # Other actions of a state tell most.
        others = paid.sum(axis=-1, keepdims=True) - paid
        beside = known.sum(axis=-1, keepdims=True) - known
        prior = np.clip((rate + others) / (1.0 + beside), 1e-4, 0.5)
        nothing = np.exp(-(np.clip(mean / spread, -40.0, 40.0) ** 2) / 2.0) / (spread * 2.5066)
        something = ndtr((1.0 - mean) / spread) - ndtr(-mean / spread)
        both = np.maximum(prior * something + (1.0 - prior) * nothing, 1e-300)
        self.paying = np.where(mean / spread > 8.0, 1.0, prior * something / both)
        self.hinted, self.hint = self._first_rewards(np.clip(mean + 2.0 * spread, 0.0, 1.0))
        low = np.clip(mean - _PESSIMISM * spread, 0.0, 1.0)
        self.cautious = np.where(mean > 0, self.paying * low, 0.0)
        hinted = (1.0 - self.paying) * self.hint * self.hinted
        self.cautious = np.minimum(self.cautious + hinted, 1.0)
        self.rewards = self.cautious * known

    def _first_rewards(self, most: Floats) -> tuple[Floats, Floats]:
        """Means by where users were paid first, and the chance of each that it is real."""
        # Who comes v times is paid with 1 - exp(-r v); what visits say counts for or against it.
        estimate = self.estimate
        score = estimate.first_paid / _root(estimate.first_variance)
        share = np.clip(estimate.first_paid / np.maximum(estimate.at_risk, 1e-12), 0.0, 1.0 - 1e-9)
        often = np.maximum(estimate.visits_at_risk / np.maximum(estimate.at_risk, 1e-12), 1.0)
        means: Floats = np.minimum(-np.log1p(-share) / often, most)
        misfit = means * (means - 2.0 * self.reward_mean) / (2.0 * self.reward_std**2)
        against = math.log(estimate.paid[0].size) + 0.5 - score**2 / 2.0 + misfit
        real = 1.0 / (1.0 + np.exp(np.clip(against, -50.0, 50.0)))
        return means, np.where(score > 0, real, 0.0)

    def sample(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """A world that may be true: transitions, rewards, and how far each row is unknown."""
        entries = self.entries
        kept = rng.random(entries.shape) < self.slab
        moves = np.maximum(entries + rng.standard_normal(entries.shape), 0.0) * kept
        visits = moves.sum(axis=-1)
        unknown = self.unknown(visits)
        mean, spread = self.reward_mean, self.reward_std
        low, high = ndtr(-mean / spread), ndtr((1.0 - mean) / spread)
        quantile = np.clip(low + rng.random(mean.shape) * (high - low), 1e-12, 1.0 - 1e-12)
        drawn = np.clip(mean + spread * ndtri(quantile), 0.0, 1.0)
        hinted = np.where(rng.random(mean.shape) < self.hint, self.hinted, 0.0)
        paid = np.where(rng.random(mean.shape) < self.paying, drawn, hinted)
        return moves * _per_visit(1.0 - unknown, visits), (1.0 - unknown) * paid, unknown

    def sample_whole(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """A world in which the unknown of a row leads to one state, and pays as known cells do.

        It is where the state's other actions lead, the state itself, or any other.
        """
        P, r, unknown = self.sample(rng)
        states, mass = np.arange(P.shape[-1]), unknown[..., np.newaxis]
        near = P.sum(axis=2) + np.eye(len(states)) + 1.0 / len(states)
        chances = np.cumsum(near, axis=-1)[:, :, np.newaxis]
        drawn = rng.random(mass.shape) * chances[..., -1:]
        after = (chances <= drawn).sum(axis=-1, keepdims=True)
        paid = rng.random(unknown.shape) * (rng.random(unknown.shape) < self.paying_rate)
        return P + mass * (states == after), r + unknown * paid


def _per_visit(known: Floats, visits: Floats) -> Floats:
    return np.asarray((known / np.maximum(visits, 1e-9))[..., np.newaxis])
