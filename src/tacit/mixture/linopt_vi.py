"""LinOptVI: optimistic value iteration for linear mixtures (Private-LinOpt-VI of Zhou).

The paper's Algorithm 1 over its Section 3, in its order: what is asked of a user (lines 13 and
14), the regressions over a changing regulariser (equations 1 and 2, lines 5 and 6), how far off
they may be (Lemma 3.1, lines 8 and 9), optimistic values (lines 3 to 11) and the policy (line 12).

Expected next values are P V = p0 V + phi' w with phi = x V: of the paper's features psi, p0 is the
part that is known (at the public centre of the weights), x the rest (along the directions in which
they are unknown), and w are the unknown coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.mixture.base import MixtureAlgorithm
from tacit.mixture.count_model import count_model
from tacit.mixture.estimate import (
    REWARD_VARIANCE,
    KnownMeanRewards,
    MixtureModel,
    PublicFeatures,
    RewardEstimate,
    Rows,
)
from tacit.numerics.block_sums import BlockSums

Regularised = Callable[[Floats, float, int], Floats]
"""Lambda, of a noisy Gram matrix, its noise, and how many rows of sums there are."""

# <v, e - p> has at most |v|^2 times this variance, twice that of a reward.
_MODEL_VARIANCE = 0.5


class LinOptVI(MixtureAlgorithm):
    """Optimistic value iteration on a regularised regression.

    Idea: transitions are known features times unknown weights, so a regression on the sums of all
    users estimates the weights. Add a bonus for what is uncertain, by sampling or by privacy
    noise, and follow the best policy. For the paper's framework, regularisers of one's own
    included, see :mod:`tacit.papers.zhou_mixture_2022`.

    Private statistics: by ``statistic``, :class:`~tacit.mixture.model_sums.ModelSums`
    or :class:`~tacit.mixture.path_counts.PathCounts`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: a user's sums are released once with the whole budget and policies
    are replanned at the releases of a schedule; next states are regressed, not their values, so
    that sums serve every value function; noise is calibrated jointly over all steps and sums;
    public knowledge of the weights (that they add up to 1, say) is used; constants are practical.

    Cost: one release and H products of the features with a value function per block, whatever its
    number of users.
    """

    name = "linopt_vi"

    # What is estimated, of sums that every user is asked once: G and g of Section 6.1, or counts.

    def model(self, state: BlockSums) -> MixtureModel:
        """Estimated transitions and rewards: the regression, or a model of counts."""
        if self.statistic_kind == "model":
            return self.regression(state)
        constants = self.options.constants
        how = constants.known, self.options.scale * constants.counts_bonus, self.stationary
        return count_model(self.spec, self.public, state, *how)

    def regression(self, state: BlockSums) -> RegressionModel:
        """The regression of transitions, and of rewards if they are unknown."""
        rows = self.rows(state, "gram", "cross")
        if self.stationary and len(rows.cross) > 1:
            # No transition of the last step was counted: its row is noise.
            rows = rows.first(self.spec.horizon - 1)
        rows = rows.pooled() if self.stationary else rows
        how = self.regularised, self.options.scale * self.options.constants.bonus
        return RegressionModel(self.public, rows, self.reward_estimate(state, *how), *how)

    def reward_estimate(
        self, state: BlockSums, regularised: Regularised, scale: float
    ) -> RewardEstimate:
        """Rewards as they are known, or regressed on their features."""
        features = self.public.reward_features
        if features is None:
            assert self.spec.known_rewards is not None  # noqa: S101
            return KnownMeanRewards(self.spec.known_rewards)
        rows, pooled = self.rows(state, "reward_gram", "rewards"), self.spec.stationary_rewards
        return RegressedRewards(features, rows.pooled() if pooled else rows, regularised, scale)

    # How it is optimistic, and how it plans.

    def plan(
        self, state: BlockSums, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The best policies by optimistic values and by estimated ones (line 12)."""
        if not state.parts:
            first = self.first_policy(rng)
            return Plan(first, first)
        optimistic, greedy = self.optimistic_values(self.model(state))
        return Plan(self.best(optimistic, rng), self.best(greedy, rng))

    def optimistic_values(self, model: MixtureModel) -> tuple[Floats, Floats]:
        """Optimistic and greedy action values (H, S, A) of the best policy.

        Lines 3 to 11, from V = 0 after the last step: Q = r + P V + both widths, cut to
        [0, H - h], and V = max_a Q. What adds to r and to P V keeps to their ranges.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        values = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            rewards, widths = model.rewards(h)
            rewards, widths = np.clip(rewards, 0.0, 1.0), np.minimum(widths, 1.0)
            means = spread = np.zeros((2, S, A))
            if h < H - 1:
                means, spread = model.next_values(h, values, wide=1)
            above = np.minimum(means[0] + spread[0], values[0].max())
            q_values[h] = np.clip(rewards + widths + above, 0.0, H - h)
            greedy[h] = np.clip(rewards + means[1], 0.0, H - h)
            values = np.array([q_values[h].max(axis=1), greedy[h].max(axis=1)])
        return q_values, greedy


class Regression:
    """One regularised regression: weights, and widths of linear predictions.

    Lambda = G + Z and u = g + z, true sums with noise and a ridge, give w_hat = Lambda^-1 u
    (equations 1 and 2).

    Made of a ``row`` of noisy sums; true weights are at most ``bound`` long, or sqrt(k) times that.
    """

    def __init__(
        self, rows: Rows, row: int, regularised: Regularised, scale: float, bound: float
    ) -> None:
        self._noise = float(rows.gram_noise[row]), float(rows.cross_noise[row])
        self._scale, self._bound = scale, bound
        self.matrix = regularised(rows.gram[row], self._noise[0], len(rows.gram))
        self.inverse = np.linalg.inv(self.matrix)
        self.weights: Floats = self.inverse @ rows.cross[row]

    def width(self, inputs: Floats, variance: float) -> Floats:
        """Widths of <inputs, w> for inputs (..., k) whose targets have this variance.

        A multiple of the standard deviation that sampling and the noise of both sums have.
        """
        k = self.inverse.shape[0]
        flat = inputs.reshape(-1, k)
        turned = flat @ self.inverse
        leverage = np.maximum(np.einsum("nk,nk->n", turned, flat), 0.0)
        length = min(float(self.weights @ self.weights), k * self._bound**2)
        noise = self._noise[1] ** 2 + self._noise[0] ** 2 * length
        squares = variance * leverage + noise * np.einsum("nk,nk->n", turned, turned)
        widths = self._scale * np.sqrt(squares)
        return np.asarray(widths.reshape(inputs.shape[:-1]), dtype=np.float64)


class RegressedRewards:
    """r = <varphi, w>: rewards regressed on their features (equation 2)."""

    def __init__(
        self, features: Floats, rows: Rows, regularised: Regularised, scale: float
    ) -> None:
        self._features = features
        how = regularised, scale, math.sqrt(features.shape[2])
        self.fits = [Regression(rows, row, *how) for row in range(len(rows.gram))]

    def at(self, step: int) -> tuple[Floats, Floats]:
        """Means (S, A) and widths at a step."""
        fit = self.fits[min(step, len(self.fits) - 1)]
        return self._features @ fit.weights, fit.width(self._features, REWARD_VARIANCE)


class RegressionModel:
    """P V = p0 V + phi' w: next states regressed on features (equation 1).

    Weights are coordinates times the features' scale.
    """

    def __init__(
        self,
        public: PublicFeatures,
        rows: Rows,
        rewards: RewardEstimate,
        regularised: Regularised,
        scale: float,
    ) -> None:
        self._public, self._rewards = public, rewards
        self._estimated: dict[int, Floats] = {}
        bound = public.radius * public.scale
        self.fits = [
            Regression(rows, row, regularised, scale, bound) for row in range(len(rows.gram))
        ]

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """Means and widths at a step."""
        return self._rewards.at(step)

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """P V and its widths, (j, S, A), for value functions V (j, S); phi = x V is line 7.

        Values are centred, as P of a constant is known. Only the first ``wide`` have widths: the
        others do not cost another reading of the features.
        """
        at, public = min(step, len(self.fits) - 1), self._public
        fit, wide = self.fits[at], len(values) if wide is None else wide
        middles = (values.max(axis=1) + values.min(axis=1)) / 2.0
        centred = values - middles[:, np.newaxis]
        base, inputs = public.apply(centred[:wide])
        means, widths = [], []
        for j, value in enumerate(values):
            half = max(float(np.abs(centred[j]).max()), 1e-9)
            if j >= wide:
                mean = self.probabilities(step) @ centred[j]
                width = np.zeros(mean.shape)
            else:
                mean = base[j] + inputs[j] @ fit.weights
                width = fit.width(inputs[j], _MODEL_VARIANCE * half**2)
            means.append(np.clip(mean + middles[j], value.min(), value.max()))
            widths.append(width)
        return np.array(means), np.array(widths)

    def probabilities(self, step: int) -> Floats:
        """Estimated transitions (S, A, S)."""
        at = min(step, len(self.fits) - 1)
        if at not in self._estimated:
            along = np.matmul(self.fits[at].weights, self._public.features)
            self._estimated[at] = self._public.mean + along
        return self._estimated[at]
