"""Estimators of linear mixtures: regressions on noisy sums of features, or on noisy counts.

P V = p0 V + phi' w with phi = x V: of the features psi of a mixture, p0 is the known part (at the
public centre of the weights), x the rest (along the directions in which they are unknown), and w
are the unknown coordinates, in units of the features' scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.sizes import Floats, check_bytes
from tacit.mixture.statistics import ModelSums, PathCounts
from tacit.numerics.regression import BlockSums, positive_part

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
# So many numbers are multiplied at a time, half a megabyte.
_CACHED = 1 << 16


@dataclass(frozen=True)
class PublicFeatures:
    """Public part of a mixture, in the form that models need."""

    features: Floats  # x, (S, A, k, S), of Frobenius norm at most 1
    mean: Floats  # p0, (S, A, S)
    scale: float  # true features along the directions are ``scale`` times x
    radius: float  # |eta| is at most this; w = scale eta
    horizon: int  # steps of an episode
    support: NDArray[np.bool_]  # which transitions are possible under some weights, (S, A, S)
    # (S, A, m), in units of their largest norm, where rewards are unknown
    reward_features: Floats | None

    @classmethod
    def of(cls, spec: MixtureSpec) -> PublicFeatures:
        """Features along the directions, in units of their largest norm, and p0 at the centre."""
        S, A = spec.states, spec.actions
        check_bytes("features along the directions", (S, A, spec.free, S))
        along = np.ascontiguousarray(
            np.einsum("sadt,dk->sakt", spec.transition_features, spec.directions, optimize=True)
        )
        mean = np.einsum("sadt,d->sat", spec.transition_features, spec.center, optimize=True)
        scale = max(float(np.sqrt((along**2).sum(axis=(2, 3)).max())), 1e-12)
        along /= scale
        support = np.abs(spec.transition_features).sum(axis=2) > 0
        paying = spec.reward_features if spec.known_rewards is None else None
        if paying is not None:
            paying = paying / max(float(np.sqrt((paying**2).sum(axis=2).max())), 1e-12)
        return cls(along, mean, scale, spec.radius, spec.horizon, support, paying)

    @property
    def free(self) -> int:
        """Number of unknown coordinates, k."""
        return int(self.features.shape[2])

    @cached_property
    def informs(self) -> NDArray[np.bool_]:
        """Transitions that depend on the weights, (S, A, S)."""
        return np.asarray(np.abs(self.features).sum(axis=2) > 0)

    def apply(self, values: Floats) -> tuple[Floats, Floats]:
        """For value functions (j, S): p0 V as (j, S, A) and x V as (j, S, A, k).

        The features are read once for all of them, in blocks that stay in the cache: as one
        product of a tall and a narrow matrix it is several times slower.
        """
        S, A, k, _ = self.features.shape
        flat, inputs = self.features.reshape(-1, S), np.empty((len(values), S * A * k))
        rows = max(1, _CACHED // S)
        if len(values) == 1:
            np.matmul(flat, values[0], out=inputs[0])
        else:
            for first in range(0, len(flat), rows):
                block = slice(first, first + rows)
                np.matmul(values, flat[block].T, out=inputs[:, block])
        base = values @ self.mean.reshape(-1, S).T
        return base.reshape(-1, S, A), inputs.reshape(-1, S, A, k)


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

    public: PublicFeatures
    fits: Sequence[NoisyRegression]
    reward_fits: Sequence[RewardFit]
    relative: bool  # whether variances are in units of the values' range

    def rewards(self, step: int) -> RewardFit:
        """Means and widths at a step, both (S, A)."""
        return self.reward_fits[min(step, len(self.reward_fits) - 1)]

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """P V and its widths, (j, S, A), for value functions V (j, S); phi = x V is line 7.

        Values are centred, as P of a constant is known. Only the first ``wide`` have widths: the
        others do not cost another reading of the features.
        """
        fit = self.fits[min(step, len(self.fits) - 1)]
        wide = len(values) if wide is None else wide
        low, high = values.min(axis=1), values.max(axis=1)
        middles = (high + low) / 2.0
        centred = values - middles[:, np.newaxis]
        base, inputs = self.public.apply(centred[:wide])
        means, widths = [], []
        for j in range(len(values)):
            if j >= wide:
                mean = self.probabilities(step) @ centred[j]
                widths.append(np.zeros(mean.shape))
            else:
                half = max(float(np.abs(centred[j]).max()), 1e-9)
                mean = base[j] + inputs[j] @ fit.weights
                variance = _MODEL_VARIANCE * half**2 if self.relative else 1.0
                widths.append(fit.width(inputs[j], variance))
            means.append(np.clip(mean + middles[j], low[j], high[j]))
        return np.array(means), np.array(widths)

    def probabilities(self, step: int) -> Floats:
        """Estimated transitions (S, A, S); rows need not be distributions."""
        return self._estimated[min(step, len(self.fits) - 1)]

    @cached_property
    def _estimated(self) -> list[Floats]:
        return [self.public.mean + fit.weights @ self.public.features for fit in self.fits]


@dataclass(frozen=True, eq=False)
class MixtureEstimator:
    """Configuration of an estimator: a query, sums of its releases, and a model of them."""

    spec: MixtureSpec
    public: PublicFeatures
    stationary: bool  # one vector of weights for all steps
    scale: float  # of widths

    def _known_rewards(self) -> list[RewardFit] | None:
        known = self.spec.known_rewards
        return None if known is None else [(means, np.zeros(means.shape)) for means in known]

    @property
    def _varphi(self) -> Floats:
        """Reward features, where rewards are unknown."""
        assert self.public.reward_features is not None  # noqa: S101
        return self.public.reward_features


class SumEstimator(MixtureEstimator):
    """Regressions on next states themselves, which serve every value function."""

    multiple = 4.0  # users of the first block, in standard deviations of a sum's noise

    @property
    def pooled(self) -> bool:
        """Whether one row of sums serves all steps."""
        return self.stationary and self.spec.stationary_rewards

    def statistic(self, policy: Policy, one_by_one: bool) -> ModelSums:
        """Sums as they are, or clipped to a typical length where users are summed one by one."""
        return self._statistics[one_by_one]

    @cached_property
    def _statistics(self) -> tuple[ModelSums, ModelSums]:
        public = self.public
        tables = public.features, public.mean, public.support
        known = *tables, public.horizon, public.reward_features, self.pooled
        whole = ModelSums(*known)
        clip = whole.typical * (1.0 if self.pooled else math.sqrt(2.0))
        return whole, ModelSums(*known, clip=clip)

    def data_format(self, one_by_one: bool) -> str:
        """Episodes where a clip must see users one by one, else sums."""
        return "episodes" if self._statistics[one_by_one].clips else "counts"

    def added(self, state: BlockSums, release: Release, statistic: ModelSums) -> BlockSums:
        """Sums with those of one more block."""
        noise = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, noise, noise["cross"], release.users)

    def model(self, state: BlockSums) -> MixtureModel:
        """Regressions on all blocks."""
        # No transition of the last step was counted where steps are apart: its row is noise.
        rows = max(1, self.spec.horizon - 1) if self.stationary and not self.pooled else None
        bound = self.public.radius * self.public.scale
        fits = self._fits(state, ("gram", "cross"), self.stationary, bound, rows)
        rewards = self._known_rewards()
        if rewards is None:
            names, pooled = ("reward_gram", "rewards"), self.spec.stationary_rewards
            paid = self._fits(state, names, pooled, math.sqrt(self._varphi.shape[2]))
            rewards = [
                (self._varphi @ fit.weights, fit.width(self._varphi, _REWARD_VARIANCE))
                for fit in paid
            ]
        return MixtureModel(self.public, fits, rewards, relative=True)

    def _fits(
        self,
        state: BlockSums,
        names: tuple[str, str],
        pooled: bool,
        bound: float,
        rows: int | None = None,
    ) -> list[NoisyRegression]:
        """A regression for each of the first rows of sums, or for all of them together."""
        G, g = (state.scaled(name)[:rows] for name in names)
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
        prior = 1e-3 / (self.public.radius * self.public.scale) ** 2
        return positive_part(gram) + (prior + noise * math.sqrt(k)) * np.eye(k)


class PathEstimator(MixtureEstimator):
    """Regressions on counts along the policies that were played, for sparse worlds."""

    multiple = 8.0  # users of the first block, in standard deviations of a count's noise
    pooled = False

    def statistic(self, policy: Policy, one_by_one: bool) -> PathCounts:
        """Counts along a deterministic policy."""
        spec, public = self.spec, self.public
        start = np.ones(spec.states) if spec.start is None else np.array(spec.start)
        assert policy.actions is not None  # noqa: S101
        tables = public.support, public.informs, start > 0
        unknown = public.reward_features is not None
        return PathCounts(*tables, spec.horizon, policy.actions, policy.version, unknown)

    def data_format(self, one_by_one: bool) -> str:
        """Counts of a block along its policy."""
        return "occupancy"

    def added(self, state: BlockSums, release: Release, statistic: PathCounts) -> BlockSums:
        """Counts by step, state and the action that the policy took, with those of a block."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        check_bytes("counts of a mixture agent", (H, S, A, S))
        rewards = release.parts.get("rewards")
        counts, paid = statistic.dense(release["transitions"], rewards)
        std = float(np.max(release.std["transitions"]))
        reward_std = float(np.max(release.std["rewards"])) if rewards is not None else 0.0
        visits, entering = self._flow(statistic, counts, release.users)
        spread, reached = np.sqrt(entering), statistic.counted.any(axis=2)
        paying = np.where((visits > 0) | (spread > 0), reward_std, 0.0)
        tables = {"counts": counts, "rewards": paid, "visits": visits}
        noise = {"counts": std * reached, "rewards": paying, "visits": std * spread}
        at = np.arange(H)[:, np.newaxis], np.arange(S), statistic.policy

        def placed(table: Any) -> Floats:
            full = np.zeros((H, S, A, *table.shape[2:]))
            full[at] = table
            return full

        parts = [{name: placed(of[name]) for name in of} for of in (tables, noise)]
        return state.added(parts[0], parts[1], std, release.users)

    def _flow(self, statistic: PathCounts, counts: Floats, users: int) -> tuple[Floats, Floats]:
        """Visits (H, S) of a block, and how many noisy counts each is the sum of.

        Users start where it is known (else it is told by where they went) and go on as counted;
        where transitions do not depend on the weights, as is known.
        """
        H, S = self.spec.horizon, self.spec.states
        visits, entering = np.zeros((H, S)), np.zeros((H, S))
        chances = [self.public.mean[np.arange(S), taken] for taken in statistic.policy]
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
        public, counts, noise = self.public, state.scaled("counts"), state.noise("counts")
        mass = np.where(public.informs, public.mean, 0.0).sum(axis=-1)
        visits = counts.sum(axis=-1) / np.where(mass > 0, mass, 1.0)
        spread = noise * np.sqrt(public.informs.sum(axis=-1))
        used = (visits > spread) & (visits > 0) & (mass > 0)
        _, state_of, action_of = np.nonzero(used)
        cells: Any = state_of, action_of, visits[used], counts[used], noise[used]
        groups = _groups(used, None if self.stationary else max(1, public.horizon - 1))
        fits = [self._fit(*(part[here] for part in cells)) for here in groups]
        rewards = self._known_rewards()
        return MixtureModel(public, fits, rewards or self._rewards(state), relative=False)

    def _fit(
        self, s: Any, a: Any, visits: Floats, counts: Floats, noise: Floats
    ) -> NoisyRegression:
        """Entries weighted by the inverse of n P(s') + s^2, with P from the round before.

        The prior is |eta_i| about radius / sqrt(k) each.
        """
        public, n = self.public, visits[:, np.newaxis]
        x, p0, informs = public.features[s, a], public.mean[s, a], public.informs[s, a]
        k = public.free
        prior = np.eye(k) * k / (public.radius * public.scale) ** 2
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

    def _rewards(self, state: BlockSums) -> list[RewardFit]:
        """NoisyRegression of rewards on single cells (h, s, a), each with its own noise.

        A cell with n visits, known up to noise t, and reward noise s says R = n <v, omega> + error,
        of variance at most n / 4 + s^2 + t^2 / 4. Cells are weighted by its inverse; those whose
        visits do not stand out of their noise are left out. The prior is about 1/2 +- 1/2.
        """
        v, m = self._varphi, self._varphi.shape[2]
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
            precision = precision + np.eye(m) / (m * _REWARD_VARIANCE)
            fit = NoisyRegression(precision, u.T @ (w * count * paid[here]), self.scale)
            fits.append((v @ fit.weights, fit.width(v, 1.0)))
        return fits


def _groups(used: NDArray[np.bool_], steps: int | None) -> list[NDArray[np.bool_]]:
    """Cells in use, all together or by step."""
    step = np.nonzero(used)[0]
    return [np.ones(len(step), bool)] if steps is None else [step == h for h in range(steps)]
