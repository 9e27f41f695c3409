"""Pessimistic value iteration on counts of a log: for worlds with few states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Queries, Query
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.model import FiniteModel
from tacit.tabular.offline import Candidates, OfflineAlgorithm, OfflineOptions, PlannedPolicies
from tacit.tabular.policy import Policy, row_of
from tacit.tabular.return_statistics import ActionCounts, RobustGains
from tacit.tabular.visits import VisitCounts
from tacit.tabular.world import simulate

if TYPE_CHECKING:
    from tacit.core.problem import Problem

# A cell is known once its visits exceed so many standard deviations of their noise, and a next
# state is possible once its count does.
_KNOWN, _POSSIBLE = 0.5, 2.5
# More counts than these are never kept.
_MOST_COUNTS = 1 << 22
# Share of the budget for where users begin, if that is not known.
_OF_STARTS = 0.02
# Prices R / beta of leaving today's policy, from hardly ever to whenever it seems to pay.
_BETAS = (3.0, 10.0, 30.0, 100.0, 1e3, 1e6)
# Worlds drawn from what is believed, in which gains are compared with what would be measured; and
# users of the model, by whom numbers are cut.
_WORLDS, _USERS = 32, 20_000


@dataclass(frozen=True, eq=False)
class LogCounts:
    """Counts of a log, and the standard deviations of their noise."""

    transitions: Floats  # (F, S, A, S)
    rewards: Floats  # (F, S, A)
    start: Floats  # (S,), of the first state
    noise: float  # of one count
    reward_noise: float  # of one sum of rewards


@dataclass(frozen=True, eq=False)
class RobustCandidates(Candidates):
    """Policies with what judges them: a model's values and weights, and how wrong they may be."""

    weights: Floats  # (K, H, S, A + 1); see RobustGains
    values: Floats  # (K, H + 1, S)
    q_values: Floats  # (K, H, S, A + 1)
    most: Floats  # (K,), where numbers are cut


class CountPolicies(PlannedPolicies):
    """Policies that are planned in the world of the counts."""

    learnt: LogCounts

    @cached_property
    def model(self) -> tuple[Floats, Floats, Floats, Any]:
        """P and r of what is known, visits, and which cells are known."""
        return self._model(self.learnt.transitions, self.learnt.rewards)

    def _model(self, moves: Floats, rewards: Floats) -> tuple[Floats, Floats, Floats, Any]:
        from tacit.tabular.count_loops import project

        S, moves = self.spec.states, np.array(moves)
        n = moves.sum(axis=-1)
        known = self.allowed & (n > max(_KNOWN * self.learnt.noise * math.sqrt(S), 0.5))
        P = np.zeros(moves.shape)
        project(moves.reshape(-1, S), known.reshape(-1), P.reshape(-1, S))
        possible = np.where(moves > _POSSIBLE * self.learnt.noise, moves, 0.0)
        some = possible.sum(axis=-1, keepdims=True)
        sure = known[..., np.newaxis] & (some > 0)
        P = np.where(sure, possible / np.where(sure, some, 1.0), P)
        n = np.where(known, n, 1.0)
        return P, np.clip(rewards / n, 0.0, 1.0), n, known

    def lower_values(self, step: int, after: Floats, left: float) -> Floats:
        """Means less their widths; nothing where nothing is known."""
        P, r, n, known = self.model
        f = row_of(step, self.spec.horizon, len(P))
        mean, possible = P[f] @ after, P[f] > 0
        # Counts that are 0 in the model were projected: their noise is gone.
        square = possible @ after**2 - 2 * mean * (possible @ after) + possible.sum(2) * mean**2
        share = 0.25 * left**2 / self.spec.horizon
        sampling = n[f] * np.maximum(P[f] @ after**2 - mean**2 + share, 0.0)
        of_rewards = self.learnt.reward_noise**2
        noise = self.learnt.noise**2 * np.maximum(square, 0.0) + of_rewards
        width = self.caution * np.sqrt(noise + sampling) / n[f]
        lower: Floats = np.where(known[f], np.clip(r[f] + mean - width, 0.0, left), 0.0)
        return lower

    def expected(self, step: int, after: Floats) -> Floats:
        """Of cells that are known; others lead nowhere, and count as 1."""
        P, _, _, known = self.model
        f = row_of(step, self.spec.horizon, len(P))
        ahead: Floats = np.where(known[f], P[f] @ after, 1.0)
        return ahead

    # What judges them.

    def candidates(self, rng: np.random.Generator) -> RobustCandidates:
        """Policies at falling prices, with the model's values and weights of each."""
        P, r, _, _ = self.model
        tables = np.stack([self.tilted(beta) for beta in _BETAS])
        parts = [self._judge(table, P, r) for table in tables]
        weights, values, q_values = (np.stack(part) for part in zip(*parts, strict=True))
        R = self.spec.most_return
        ranges = np.tile([-1e6 * R, 1e6 * R], (len(tables), 1))
        gains = RobustGains(weights, values, q_values, ranges, R, self.spec.horizon)
        most, beyond = self._cut(gains, rng)
        drawn = [self._bias(gains, tables, rng) for _ in range(_WORLDS)]
        # Twice the root of the mean square: a bias that draws show on one side may be on the other.
        bias = 2.0 * np.sqrt(np.mean(np.square(drawn), axis=0)) + beyond
        moments = np.array([*map(self.moment, tables)])
        return RobustCandidates(tables, moments, bias, weights, values, q_values, most)

    @cached_property
    def _start(self) -> Floats:
        start: Floats = np.maximum(self.learnt.start, 0.0)
        return start / start.sum() if start.sum() > 0 else self.spec.first_states

    def _judge(self, table: Floats, P: Floats, r: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights (H, S, A + 1) of a policy, its values (H + 1, S), and those of actions."""
        d, today = _occupancy(P, self._start, table), _occupancy(P, self._start, self._today)
        with_none = (np.concatenate([x, x.sum(axis=2, keepdims=True)], axis=2) for x in (d, today))
        above, below = with_none
        weights = np.divide(above, below, out=np.zeros_like(above), where=below > 1e-12)
        values, q = _values(P, r, table)
        return weights, values, np.concatenate([q, values[:-1, :, np.newaxis]], axis=2)

    def _cut(self, gains: RobustGains, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Where numbers are cut, (K,), and twice the mean of what is lost by it in the model."""
        P, r, _, _ = self.model
        H = self.spec.horizon
        rows = row_of(np.arange(1 if len(P) == 1 else H), H, len(P))
        rewards = np.stack([1.0 - r, r], axis=-1)[rows]
        model = FiniteModel(P[rows], rewards, np.array([0.0, 1.0]), self._start, H)
        users: Any = simulate(model, Policy.stochastic(self._today), _USERS, rng, "episodes")
        y, K = gains.vectors(users.block()), len(gains.ranges)
        sizes = np.abs(y[:, :K]) * (gains.ranges[:, 1] - gains.ranges[:, 0])
        # Noise costs about 4 sqrt(K) M / (n mu); what is cut off costs its mean.
        n, mu = self.algorithm.schedule.blocks[1], self.algorithm.privacy.episode_mu
        tried = 1.1 * np.quantile(sizes, (0.99, 0.999, 0.9999, 1.0), axis=0) + 1e-3
        lost = 2.0 * np.maximum(sizes - tried[:, np.newaxis], 0.0).mean(axis=1)
        cost = tried * (4.0 * math.sqrt(K) / mu + 15.0) / n + lost
        best, column = cost.argmin(axis=0), np.arange(K)
        return tried[best, column], lost[best, column]

    def _bias(self, gains: RobustGains, tables: Floats, rng: np.random.Generator) -> Floats:
        """Mean of what would be measured less the gain, (K,), in a world drawn from the counts."""
        learnt, (_, _, n, known), S = self.learnt, self.model, self.spec.states
        moves, rewards = learnt.transitions, learnt.rewards
        sampling = np.sqrt(np.maximum(moves, 0.0))
        deviation = np.sqrt(learnt.noise**2 + sampling**2)
        P, r, _, _ = self._model(
            moves + deviation * rng.standard_normal(moves.shape),
            rewards + np.sqrt(learnt.reward_noise**2 + 0.25 * n) * rng.standard_normal(n.shape),
        )
        anywhere = rng.gamma(1.0 / S, size=P.shape) + 1e-12
        P = np.where(known[..., np.newaxis], P, anywhere / anywhere.sum(axis=-1, keepdims=True))
        r = np.where(known, r, rng.random(r.shape))
        H = self.spec.horizon
        rows = row_of(np.arange(H), H, len(P))
        d = _occupancy(P, self._start, self._today)
        today = float((d * r[rows]).sum())
        found = np.empty(len(tables))
        for k, table in enumerate(tables):
            ahead = np.einsum("hsat,ht->hsa", P[rows], gains.values[k, 1:])
            missed = r[rows] + ahead - gains.q_values[k, :, :, :-1]
            measured = self._start @ gains.values[k, 0] - today
            measured += float((d * gains.weights[k, :, :, :-1] * missed).sum())
            found[k] = measured - (float(self._start @ _values(P, r, table)[0][0]) - today)
        return found


def _occupancy(P: Floats, start: Floats, table: Floats) -> Floats:
    """Probabilities (H, S, A) of cells under a policy (H, S, A)."""
    found, state = np.empty(table.shape), start
    for h, chances in enumerate(table):
        found[h] = state[:, np.newaxis] * chances
        state = np.tensordot(found[h], P[row_of(h, len(table), len(P))], 2)
    return found


def _values(P: Floats, r: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Values (H + 1, S) of a policy, and those of actions, (H, S, A)."""
    values, q = np.zeros((len(table) + 1, table.shape[1])), np.empty(table.shape)
    for h in range(len(table) - 1, -1, -1):
        f = row_of(h, len(table), len(P))
        q[h] = r[f] + P[f] @ values[h + 1]
        values[h] = (table[h] * q[h]).sum(axis=1)
    return values, q


class PessimisticVI(OfflineAlgorithm):
    """Plans in the world that the counts surely leave, near what people do, and judges the plan.

    Idea: count where actions led and what they paid. Plan backwards as if every action were worth
    what the counts say less its uncertainty, and nothing where they say nothing, at six prices for
    leaving what people do today (relative entropy). Users who were not learnt from judge all six:
    by the gain in the model, corrected by what the model missed of them (doubly robust). How far
    errors of the model may bias that is read from worlds drawn from what is believed.

    Private statistics: :class:`~tacit.tabular.visits.VisitCounts` of the first block, once, after
    :class:`~tacit.tabular.return_statistics.ActionCounts` where today's behaviour is unknown;
    :class:`~tacit.tabular.return_statistics.RobustGains` of the second block.

    Guarantee: that of its curator; see ``guarantee``. Users are in one of the two blocks.

    Deviations from the paper: there is none; lower confidence bounds are those of Jin, Yang and
    Wang (2021, "Is pessimism provably efficient for offline RL?") with practical widths, and gains
    are judged as by Kallus and Uehara (2020, "Double reinforcement learning"). Intervals allow for
    sampling, noise and, by 32 sampled worlds, the model's bias; their coverage is measured.

    Cost: O(H S^2 A) per plan. It serves no users: those it learns from were served before.
    """

    name = "pessimistic_vi"
    policies = CountPolicies
    judging = 0.25

    def __init__(self, problem: Problem, options: OfflineOptions) -> None:
        super().__init__(problem, options)
        moves = self.counts().rows * self.spec.states**2 * self.spec.actions
        if moves > _MOST_COUNTS:
            raise InvalidArgument(
                f"spec has {moves:,} transitions to count, at most {_MOST_COUNTS:,} make sense: "
                "pessimistic_improvement is for many states"
            )

    def counts(self) -> VisitCounts:
        """Where users' first two steps in a cell led, or each step by itself."""
        spec, pooled = self.spec, self.spec.stationary
        cap, apart = min(2, spec.horizon) if pooled else None, not spec.last_state
        sizes = spec.states, spec.actions, spec.horizon, pooled, cap
        return VisitCounts(*sizes, apart=apart)

    def first_queries(self, behaviour: Floats) -> Queries[LogCounts]:
        """Counts, and where users began if that is not known."""
        counts, start, left = self.counts(), self.spec.first_states, 1.0
        if self.spec.start is None:
            firsts = ActionCounts(self.allowed, self.spec.horizon, first=1)
            release = yield Query(firsts, share=_OF_STARTS)
            start = np.zeros(self.allowed.shape)
            start[self.allowed] = release["counts"]
            start, left = start.sum(axis=1), 1.0 - _OF_STARTS
        release = yield Query(counts, share=left)
        shape = (counts.rows, self.spec.states, self.spec.actions)
        counted = release["transitions"].reshape(*shape, self.spec.states)
        paid, noises = release["rewards"].reshape(shape), ("transitions", "rewards")
        return LogCounts(counted, paid, start, *(float(np.max(release.std[n])) for n in noises))

    def gains(self, judged: Any, bounds: Floats) -> RobustGains:
        """Query to the second block: by the model and what it missed."""
        model = judged.weights, judged.values, judged.q_values
        ranges = np.stack([-judged.most, judged.most], axis=1)
        return RobustGains(*model, ranges, self.spec.most_return, self.spec.horizon)
