"""Estimators of linear mixtures: regressions on noisy sums of features, or on noisy counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.mixture.statistics import ModelSums, PathCounts
from tacit.numerics.regression import BlockSums, positive_part
from tacit.privacy.statistic import Bools, Floats

if TYPE_CHECKING:
    from tacit.mixture.spec import MixtureSpec
    from tacit.privacy.curator import Release
    from tacit.tabular.policy import Policy

RewardFit = tuple[Floats, Floats]
"""Mean rewards (S, A) and their widths."""
# Scale of widths of regressions on sums. Those on counts are taken as they are: their errors are
# mostly sampling.
_BONUS = 0.3
# Rewards in [0, 1] have at most this variance.
_REWARD_VARIANCE = 0.25
# <v, e - p> has at most |v|^2 times this variance, twice that of a reward.
_MODEL_VARIANCE = 0.5


class NoisyRegression:
    """One regularised regression: weights, and widths of linear predictions.

    Lambda = G + Z (``matrix``) and u = g + z (``cross``), true sums with noise and a ridge, give
    w_hat = Lambda^-1 u (the paper's equations 1 and 2). Their noise has the standard deviations
    ``noise``; true weights are at most ``bound`` long, or sqrt(k) times that.
    """

    def __init__(
        self,
        matrix: Floats,
        cross: Floats,
        scale: float,
        noise: tuple[float, float] = (0.0, 0.0),
        bound: float = 0.0,
    ) -> None:
        self._inverse, self._scale = np.linalg.inv(matrix), scale
        self.weights: Floats = self._inverse @ cross
        length = min(float(self.weights @ self.weights), len(cross) * bound**2)
        self._noise = noise[1] ** 2 + noise[0] ** 2 * length

    def width(self, inputs: Floats, variance: float) -> Floats:
        """Widths of <inputs, w> for inputs (..., k) whose targets have this variance.

        A multiple of the standard deviation that sampling and the noise of both sums have.
        """
        flat = inputs.reshape(-1, inputs.shape[-1])
        turned = flat @ self._inverse
        leverage = np.maximum(np.einsum("nk,nk->n", turned, flat), 0.0)
        squares = variance * leverage + self._noise * np.einsum("nk,nk->n", turned, turned)
        widths = self._scale * np.sqrt(squares)
        return np.asarray(widths.reshape(inputs.shape[:-1]), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MixtureModel:
    """P V = p0 V + phi' w with widths, and rewards; of every step, or one for all."""

    spec: MixtureSpec
    fits: Sequence[NoisyRegression]
    reward_fits: Sequence[RewardFit]
    relative: bool  # whether variances are in units of the values' range

    def rewards(self, step: int) -> RewardFit:
        """Means and widths at a step, both (S, A)."""
        return self.reward_fits[min(step, len(self.reward_fits) - 1)]

    def next_value(self, step: int, V: Floats) -> Floats:
        """P V, (S, A), for values V (S,), of which a constant is known."""
        low, high = float(V.min()), float(V.max())
        middle = (high + low) / 2.0
        return np.clip(self.probabilities(step) @ (V - middle) + middle, low, high)

    def width(self, step: int, V: Floats) -> Floats:
        """Width of P V, (S, A); phi = x V is line 7."""
        fit, x = self.fits[min(step, len(self.fits) - 1)], self.spec.along[0]
        middle, half = (V.max() + V.min()) / 2.0, max(float(V.max() - V.min()) / 2.0, 1e-9)
        phi = (x.reshape(-1, len(V)) @ (V - middle)).reshape(x.shape[:3])
        return fit.width(phi, _MODEL_VARIANCE * half**2 if self.relative else 1.0)

    def probabilities(self, step: int) -> Floats:
        """Estimated transitions (S, A, S); rows need not be distributions."""
        return self._estimated[min(step, len(self.fits) - 1)]

    @cached_property
    def _estimated(self) -> list[Floats]:
        return [self.spec.mean + fit.weights @ self.spec.along[0] for fit in self.fits]


@dataclass(frozen=True, eq=False)
class SumEstimator:
    """Regressions on sums about next states themselves, which serve every value function."""

    spec: MixtureSpec
    stationary: bool  # one vector of weights for all steps
    scale: float  # of widths

    @property
    def pooled(self) -> bool:
        """Whether one row of sums serves all steps."""
        return self.stationary and self.spec.stationary_rewards

    def statistic(self, policy: Policy, one_by_one: bool) -> ModelSums:
        """Sums as they are, or clipped to a typical length where users are summed one by one."""
        return self._statistics[one_by_one]

    @cached_property
    def _statistics(self) -> tuple[ModelSums, ModelSums]:
        spec = self.spec
        tables = spec.along[0], spec.mean, spec.support
        known = *tables, spec.horizon, spec.paying, self.pooled
        whole = ModelSums(*known)
        clip = whole.typical * (1.0 if self.pooled else math.sqrt(2.0))
        return whole, ModelSums(*known, clip=clip)

    def added(self, state: BlockSums, release: Release, statistic: ModelSums) -> BlockSums:
        """Sums with those of one more block."""
        noise = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, noise, noise["cross"], release.users)

    def model(self, state: BlockSums) -> MixtureModel:
        """Regressions on all blocks."""
        bound, v = self.spec.radius * self.spec.along[1], self.spec.paying
        fits = self._fits(state, ("gram", "cross"), self.stationary, bound)
        rewards = known_rewards(self.spec)
        if v is not None:
            names, pooled = ("reward_gram", "rewards"), self.spec.stationary_rewards
            paid = self._fits(state, names, pooled, math.sqrt(v.shape[2]))
            rewards = [(v @ fit.weights, fit.width(v, _REWARD_VARIANCE)) for fit in paid]
        return MixtureModel(self.spec, fits, rewards, relative=True)

    def _fits(
        self, state: BlockSums, names: tuple[str, str], pooled: bool, bound: float
    ) -> list[NoisyRegression]:
        """A regression for each row of sums, or for all of them together."""
        G, g = (state.scaled(name) for name in names)
        if names[0] == "gram" and pooled and len(g) > 1:
            # No transition of the last step was counted where steps are apart: its row is noise.
            G, g = G[:-1], g[:-1]
        noise = [float(state.noise(name)) for name in names]
        if pooled:
            noise = [math.sqrt(len(g)) * of_row for of_row in noise]
            G, g = G.sum(axis=0, keepdims=True), g.sum(axis=0, keepdims=True)
        how = self.scale * _BONUS, (noise[0], noise[1]), bound
        return [
            NoisyRegression(self.regularised(row, noise[0]), u, *how)
            for row, u in zip(G, g, strict=True)
        ]

    def regularised(self, gram: Floats, noise: float) -> Floats:
        """max(G, 0) + (prior + s sqrt(k)) I, with s the noise of G.

        The prior is small beside what one user shows.
        """
        k = len(gram)
        prior = 1e-3 / (self.spec.radius * self.spec.along[1]) ** 2
        return positive_part(gram) + (prior + noise * math.sqrt(k)) * np.eye(k)


@dataclass(frozen=True, eq=False)
class PathEstimator:
    """Regressions on counts along the policies that were played, for sparse worlds."""

    spec: MixtureSpec
    stationary: bool  # one vector of weights for all steps
    scale: float  # of widths

    def statistic(self, policy: Policy, one_by_one: bool) -> PathCounts:
        """Counts along a deterministic policy."""
        spec = self.spec
        start = np.ones(spec.states) if spec.start is None else np.array(spec.start)
        assert policy.actions is not None  # noqa: S101
        tables, unknown = (spec.support, spec.informs, start > 0), spec.paying is not None
        return PathCounts(*tables, spec.horizon, policy.actions, policy.version, unknown)

    def added(self, state: BlockSums, release: Release, statistic: PathCounts) -> BlockSums:
        """Counts by step, state and the action that the policy took, with those of a block."""
        rewards = release.parts.get("rewards")
        counts, paid = statistic.dense(release["transitions"], rewards)
        std = float(np.max(release.std["transitions"]))
        reward_std = float(np.max(release.std["rewards"])) if rewards is not None else 0.0
        visits, entering = self._flow(statistic, counts, release.users)
        spread, reached = np.sqrt(entering), statistic.counted.any(axis=2)
        paying = np.where((visits > 0) | (spread > 0), reward_std, 0.0)
        tables = {"counts": counts, "rewards": paid, "visits": visits}
        noise = {"counts": std * reached, "rewards": paying, "visits": std * spread}
        taken = statistic.policy[..., np.newaxis] == np.arange(self.spec.actions)

        def placed(table: Any) -> Floats:
            of_action = taken if table.ndim == 2 else taken[..., np.newaxis]
            return np.asarray(of_action * table[:, :, np.newaxis])

        parts = [{name: placed(of[name]) for name in of} for of in (tables, noise)]
        return state.added(parts[0], parts[1], std, release.users)

    def _flow(self, statistic: PathCounts, counts: Floats, users: int) -> tuple[Floats, Floats]:
        """Visits (H, S) of a block, and how many noisy counts each is the sum of.

        Users start where it is known (else it is told by where they went) and go on as counted;
        where transitions do not depend on the weights, as is known.
        """
        H, S = self.spec.horizon, self.spec.states
        visits, entering = np.zeros((H, S)), np.zeros((H, S))
        chances = [self.spec.mean[np.arange(S), taken] for taken in statistic.policy]
        if self.spec.start is not None:
            visits[0] = float(users) * np.array(self.spec.start)
        else:
            # Those who left by a counted transition, and their share of all who left.
            share = np.where(statistic.counted[0], chances[0], 0.0).sum(axis=1)
            visits[0] = counts[0].sum(axis=1) / np.where(share > 0, share, np.inf)
            entering[0] = statistic.counted[0].sum(axis=1)
        for h in range(H - 1):
            known = np.where(statistic.counted[h], 0.0, chances[h])
            visits[h + 1] = counts[h].sum(axis=0) + visits[h] @ known
            entering[h + 1] = statistic.counted[h].sum(axis=0) + entering[h] @ known**2
        return visits, entering

    def model(self, state: BlockSums) -> MixtureModel:
        """Regressions on all cells (h, s, a) whose visits stand out of their noise.

        A cell with n visits says N(s') = n (p0(s') + x(s')' w) + error.
        """
        spec, counts, noise = self.spec, state.scaled("counts"), state.noise("counts")
        mass = np.where(spec.informs, spec.mean, 0.0).sum(axis=-1)
        visits = counts.sum(axis=-1) / np.where(mass > 0, mass, 1.0)
        spread = noise * np.sqrt(spec.informs.sum(axis=-1))
        used = (visits > spread) & (visits > 0) & (mass > 0)
        _, state_of, action_of = np.nonzero(used)
        cells: Any = state_of, action_of, visits[used], counts[used], noise[used]
        groups = _groups(used, None if self.stationary else max(1, spec.horizon - 1))
        fits = [self._fit(*(part[here] for part in cells)) for here in groups]
        rewards = known_rewards(spec)
        if spec.paying is not None:
            rewards = self._rewards(state, spec.paying)
        return MixtureModel(spec, fits, rewards, relative=False)

    def _fit(
        self, s: Any, a: Any, visits: Floats, counts: Floats, noise: Floats
    ) -> NoisyRegression:
        """Entries weighted by the inverse of n P(s') + s^2, with P from the round before.

        The prior is |eta_i| about radius / sqrt(k) each.
        """
        spec, n, (along, unit) = self.spec, visits[:, np.newaxis], self.spec.along
        x, p0, informs = along[s, a], spec.mean[s, a], spec.informs[s, a]
        k = x.shape[1]
        prior = np.eye(k) * k / (spec.radius * unit) ** 2
        weights = np.zeros(k)
        for _ in range(2):  # the second time with the variances that the first implies
            chances = np.clip(p0 + np.einsum("ckt,k->ct", x, weights), 1e-3, 1.0)
            error = np.maximum(n, 1.0) * chances + noise[:, np.newaxis] ** 2
            w = np.where(informs, 1.0 / error, 0.0)
            precision = np.einsum("ct,ckt,clt->kl", w * n * n, x, x, optimize=True) + prior
            target = np.einsum("ct,ckt->k", w * n * (counts - n * p0), x, optimize=True)
            fit = NoisyRegression(precision, target, self.scale)
            weights = fit.weights
        return fit

    def _rewards(self, state: BlockSums, v: Floats) -> list[RewardFit]:
        """Regression of rewards on single cells (h, s, a), each with its own noise.

        A cell with n visits, known up to noise t, and reward noise s says R = n <v, omega> + error,
        of variance at most n / 4 + s^2 + t^2 / 4. Cells are weighted by its inverse; those whose
        visits do not stand out of their noise are left out. The prior is about 1/2 +- 1/2.
        """
        n, visit_noise = state.scaled("visits"), state.noise("visits")
        used = (n > visit_noise) & (n > 0)
        error = n * _REWARD_VARIANCE + state.noise("rewards") ** 2
        weights = 1.0 / (error + _REWARD_VARIANCE * visit_noise**2)[used]
        _, state_of, action_of = np.nonzero(used)
        cells, paid, n = v[state_of, action_of], state.scaled("rewards")[used], n[used]
        fits = []
        for here in _groups(used, None if self.spec.stationary_rewards else len(used)):
            u, w, count = cells[here], weights[here], n[here]
            precision = (u * (w * count * count)[:, np.newaxis]).T @ u
            precision = precision + np.eye(v.shape[2]) / (v.shape[2] * _REWARD_VARIANCE)
            fit = NoisyRegression(precision, u.T @ (w * count * paid[here]), self.scale)
            fits.append((v @ fit.weights, fit.width(v, 1.0)))
        return fits


def known_rewards(spec: MixtureSpec) -> list[RewardFit]:
    """Mean rewards that the spec knows, of every step or one for all; none if it knows none."""
    if spec.known_rewards is None:
        return []
    return [(means, np.zeros(means.shape)) for means in spec.known_rewards]


def _groups(used: Bools, steps: int | None) -> list[Bools]:
    """Cells in use, all together or by step."""
    step = np.nonzero(used)[0]
    return [np.ones(len(step), bool)] if steps is None else [step == h for h in range(steps)]
