"""LSVI-UCB: optimistic least-squares value iteration on private sums (Jin et al. 2020).

The page reads from top to bottom: what is asked of a block (:meth:`LSVIUCB.asks`), how values are
planned backwards from what is known (:meth:`LSVIUCB.backward_induction`), when a policy is replaced
(:func:`enough_was_learnt`), and what is known: ridge regression on sums of features, with a bonus
for what is uncertain (:class:`SumModel`, :class:`AnswerModel`). The regression on counts is in
:mod:`tacit.linear.estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Ask, Asks
from tacit.finite.policy import Policy
from tacit.linear.base import LinearAlgorithm
from tacit.linear.estimate import (
    REWARD_VARIANCE,
    Answer,
    CellModel,
    KnownRewardModel,
    LinearModel,
    LinearWidths,
    Sums,
    add_features,
    distributions,
    feature_sums,
    middle_of,
    spread_of,
)
from tacit.linear.options import Switching
from tacit.linear.statistics import FeatureSums, TargetSums
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import operator_bound, positive_part, rectangle_bound, ridge_inverse
from tacit.privacy.curators.gate import Release

Planned: TypeAlias = tuple[Floats, Floats]
"""Optimistic and greedy action values (H, S, A)."""

# What later value functions are multiplied by when users are asked about several.
_LATER_QUESTIONS = 0.5
# Rows of probabilities are projected where there are at most this many in all.
_MOST_PROBABILITIES = 1 << 22
# What is added to the mean, in widths.
_SIGNS = {"optimistic": 1.0, "greedy": 0.0, "pessimistic": -1.0}


class LSVIUCB(LinearAlgorithm):
    """Optimistic least-squares value iteration (Jin et al. 2020), also private.

    Idea: rewards and next values are linear in known features, so ridge regression on the sums of
    features predicts them for states and actions that nobody visited. Add a bonus for what is
    uncertain, by sampling or by privacy noise, and follow the best policy.

    Private statistics: by ``statistic``, :class:`~tacit.linear.statistics.FeatureSums`,
    :class:`~tacit.finite.visits.VisitCounts` along the block's policy, or
    :class:`~tacit.linear.statistics.TargetSums`, asked again with decaying weights.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: policies are replanned at the releases of a schedule; the bonus uses
    the noise's real size and, unless ``bonus="theory"``, practical constants; rewards are learnt
    where they are unknown.

    Cost: one release and H small regressions per block, whatever its number of users.

    Attributes:
        q_values: optimistic action values (H, S, A) of the last plan.
        switches: how many policies were planned; releases that change nothing keep the last one.
    """

    name = "lsvi_ucb"

    # What is asked.

    def asks(self) -> Asks:
        """The sums of the block; with ``statistic="targets"`` also its values, step by step.

        ``"features"`` and ``"counts"`` answer every value function at once: each user is asked
        once, with the whole budget, and blocks add up. ``"targets"`` asks all recent users for
        their Grams and rewards, and then, last step first, for the very values that planning has
        arrived at.
        """
        statistic = self.statistic()
        if self.statistic_kind == "targets":
            release = yield Ask(statistic, mu=self.round.gram_mu, decay=self.round.decay)
            model = self.model_of_round(release)
        else:
            release = yield Ask(statistic)
            self.take_in(release, statistic)
            model = self.model()
        if self._switch(model):
            self._planned = yield from self.backward_induction(model)

    def ask_targets(self, step: int, targets: Floats) -> Ask:
        """The question what came of a step, for targets (k, S) in [-1, 1] of its next state."""
        weights = self.step_weights
        here = None if weights is None else weights[min(step, len(weights) - 1)]
        statistic = TargetSums(self._features, self.spec.horizon, step, targets, here)
        return Ask(statistic, mu=self.round.target_mu, decay=self.round.decay)

    # What is known.

    def model(self) -> LinearModel:
        """What all blocks so far say, of features or of counts."""
        of_next, of_rewards = self.stationary, self.spec.stationary_rewards
        model: LinearModel
        if self._counts is not None:
            counts, known = self._counts.counts(), self.options.constants.known
            pooled = (of_next, of_rewards)
            model = CellModel(self._features, counts, known, self.widths, pooled, self._variances)
        else:
            sums = feature_sums(self._sums)
            model = SumModel(
                self._features,
                sums.pooled() if of_next else sums,
                sums.pooled() if of_rewards else sums,
                self.widths,
                self.spec.horizon,
            )
        return self._with_rewards(model)

    def model_of_round(self, release: Release) -> LinearModel:
        """What the Grams and rewards of a round say; about next values users must be asked."""
        sums, statistic = BlockSums(), self.statistic()
        assert isinstance(statistic, FeatureSums)  # noqa: S101
        add_features(sums, release, statistic, self.block_users)
        pooled_rewards = self.spec.stationary_rewards
        model = AnswerModel(self._features, feature_sums(sums), self.widths, pooled_rewards)
        return self._with_rewards(model)

    def _with_rewards(self, model: LinearModel) -> LinearModel:
        known = self.spec.known_rewards
        return model if known is None else KnownRewardModel(model, known)

    # How it plans.

    def backward_induction(self, model: LinearModel) -> Generator[Ask, Release, Planned]:
        """Least-squares value iteration, from the last step to the first.

        Q_h = [r_h + P_h V_{h+1} + width] cut to [0, H - h] and V_h = max_a Q_h, where the model
        predicts r and P V with a width each: P V = w'phi and w = Lambda^-1 sum phi V(s'), as in
        lines 4 to 20 of DP-LSVI-UCB++ (Sahu), which LSVI-UCB++ completes. A question
        is yielded only where the model has one.

        Returns:
            Optimistic and greedy action values.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        names = self.value_functions
        Q = {name: np.zeros((H, S, A)) for name in (*names, "greedy")}
        V = {name: np.zeros(S) for name in names}
        variances = np.zeros((H, S, A))
        for h in range(H - 1, -1, -1):
            left = float(H - h)
            rewards, reward_widths = model.rewards(h)
            rewards, reward_widths = np.clip(rewards, 0.0, 1.0), np.minimum(reward_widths, 1.0)
            means = widths = np.zeros((len(names), S, A))
            if h < H - 1:
                values = [V[name] for name in names]
                if self.weights == "variance":
                    values.append(V["optimistic"] ** 2)
                asked, answer = np.array(values), None
                targets = model.targets(asked)
                if targets is not None:
                    release = yield self.ask_targets(h, targets)
                    answer = release["targets"], float(np.max(release.std["targets"]))
                means, widths = model.next_values(h, asked, answer)
                variances[h] = next_variance(dict(zip(names, means, strict=False)), means[-1])
            for name, mean, width in zip(names, means, widths, strict=False):
                sums = rewards + mean + _SIGNS[name] * (reward_widths + width)
                Q[name][h] = self.bounded(name, h, np.clip(sums, 0.0, left))
                V[name] = Q[name][h].max(axis=1)
            if "greedy" not in names:
                Q["greedy"][h] = np.clip(rewards + means[0], 0.0, left)
        if self.weights == "variance":
            self.weigh_by(variances)
        self.q_values = Q["optimistic"]
        return Q["optimistic"], Q["greedy"]

    @property
    def value_functions(self) -> tuple[str, ...]:
        """Which value functions planning follows."""
        # What is asked of users again costs, so greedy values are not.
        return ("optimistic",) if self.statistic_kind == "targets" else ("optimistic", "greedy")

    def bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        """A last bound on action values, for algorithms that have one."""
        return q_values

    def plan(self) -> tuple[Policy, Policy]:
        """The best actions by the new values, or those of before, under the next version."""
        self._asked = None
        if self._planned is None:
            return self._renamed(self.policy), self._renamed(self.greedy_policy)
        (optimistic, greedy), self._planned = self._planned, None
        self.switches += 1
        return self.best(optimistic), self.best(greedy)

    # When it switches.

    def _switch(self, model: LinearModel) -> bool:
        """Whether enough was learnt since the last switch; reads public matrices only."""
        if self.switching == "schedule":
            return True
        new, old = model.precision(), self._last_precision
        if old is not None and not enough_was_learnt(old, new, self.switching):
            return False
        self._last_precision = new
        return True


def enough_was_learnt(old: Floats, new: Floats, test: Switching) -> bool:
    """Whether at any step the determinant of a precision matrix doubled, or some direction's did.

    The determinant is that of line 9 of DP-LSVI-UCB++, looked at once for all steps.

    Args:
        old: precision matrices (L, d, d) at the last switch.
        new: those of now.
        test: ``"determinant"`` or ``"rayleigh"``.
    """
    if test == "determinant":
        grown = np.linalg.slogdet(new)[1] - np.linalg.slogdet(old)[1] >= math.log(2.0)
    else:
        # The largest ratio x'Nx / x'Ox over directions x.
        lower = np.linalg.inv(np.linalg.cholesky(old))
        ratios = np.linalg.eigvalsh(lower @ new @ np.swapaxes(lower, -1, -2))
        grown = ratios[..., -1] >= 2.0
    return bool(grown.any())


def next_variance(means: dict[str, Floats], square: Floats) -> Floats:
    """An estimate of the variance of the next optimistic value (S, A), on the safe side.

    What the value functions themselves may be off by counts as spread.

    Args:
        means: expected next values by the name of the value function.
        square: the expected square of the next optimistic value.
    """
    mean = means["optimistic"]
    variance = np.maximum(square - mean**2, 0.0)
    if "pessimistic" in means:
        variance = variance + np.maximum(mean - means["pessimistic"], 0.0) ** 2
    return variance


class SumModel:
    """Regression on feature sums.

    Practical. With e_G, e_U, e_r the noise of Gram, next states and rewards, the ridge is
    1 + k e_G sqrt(d), and the squared width of a prediction for V, with x = Lambda^-1 phi,
    w the regression weights and R half the range of V, is

        var(V) phi'x + (e_U^2 |V - c|^2 + e_G^2 min(|w|^2, d R^2)) |x|^2,

    its three terms being sampling, noise in the targets and noise in the Gram matrix (of which w
    is the derivative). Predicted rows of probabilities are projected to distributions where they
    are not too many.

    Theory. Let the noise of every Gram be at most l in operator norm and Lambda = G + N + 2 l I,
    so that Lambda >= G + l I. For |V - c| <= B and true weights w* = sum mu (V - c),

        Lambda^-1 b - w* = Lambda^-1 (sum phi eta + N_U (V - c) - (N + 2 l I) w*),

    and |phi' (it)| <= |phi|_{Lambda^-1} beta with
    beta = B (sqrt(2 ln(1/p) + 2 S ln(1 + sqrt n) + d ln(1 + n / (d l))) + 2)
    + |N_U| B sqrt(S / l) + 3 sqrt(l) W B. The first term is the self-normalised bound for
    B-sub-Gaussian noise, for all V at once by a net of (1 + sqrt n)^S functions at distance
    B / sqrt n; W is ``weight_bound``; weights in [0, 1] of steps and blocks only help. The same
    for rewards with B = 1/2, no net, and |theta| <= W. Each of the six events (of next states and
    of rewards: Gram, noise, concentration) in each row and release gets failure / (6 L m). Cutting
    negative eigenvalues of G + N adds at most l I to Lambda, and leaves Lambda >= 2 l I, so that
    the last term becomes 4 l W B / sqrt(2 l), which is less.
    """

    def __init__(
        self, features: Floats, sums: Sums, rewards: Sums, widths: LinearWidths, horizon: int
    ) -> None:
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths
        self._horizon = horizon
        self._sums = sums
        self._reward_sums = rewards
        self.ridge = self._ridge_of(sums)
        self._probabilities: dict[int, Floats | None] = {}
        self._lengths: dict[int, tuple[Floats, Floats]] = {}

    @property
    def _dimension(self) -> int:
        return int(self._features.shape[1])

    def _event(self, rows: int) -> float:
        return self._widths.failure / (6.0 * rows * self._widths.releases)

    def _ridge_of(self, sums: Sums) -> float:
        d = self._dimension
        if not self._widths.theory:
            return 1.0 + self._widths.ridge * sums.gram_noise * math.sqrt(d)
        noise = operator_bound(sums.gram_noise, d, self._event(len(sums.gram)))
        return 2.0 * max(noise, 1.0)

    @cached_property
    def inverse(self) -> Floats:
        """The inverses of the regularised Grams (L, d, d)."""
        return ridge_inverse(self._sums.gram, self.ridge)

    @cached_property
    def _rewards(self) -> tuple[Floats, Floats]:
        """Mean rewards and widths, (L, S, A)."""
        sums = self._reward_sums
        ridge = self._ridge_of(sums)
        inverse = ridge_inverse(sums.gram, ridge)
        weights = (inverse @ sums.rewards[..., np.newaxis])[..., 0]
        x = self._features @ inverse
        leverage = np.maximum((x * self._features).sum(axis=-1), 0.0)
        if self._widths.theory:
            widths = self._reward_beta(sums, ridge) * np.sqrt(leverage)
        else:
            spread = np.minimum((weights**2).sum(axis=-1), self._dimension)
            noise = sums.reward_noise**2 + sums.gram_noise**2 * spread
            length = (x**2).sum(axis=-1)
            squares = REWARD_VARIANCE * leverage + noise[:, np.newaxis] * length
            of_ridge = REWARD_VARIANCE * ridge**2 * length
            widths = self._widths.practical(squares, of_ridge)
        rows = len(weights)
        return (
            (weights @ self._features.T).reshape(rows, *self._shape),
            widths.reshape(rows, *self._shape),
        )

    def _reward_beta(self, sums: Sums, ridge: float) -> float:
        p, level, d = self._event(len(sums.gram)), ridge / 2.0, self._dimension
        n = self._widths.samples * self._horizon / len(sums.gram)
        sampling = 0.5 * math.sqrt(2.0 * math.log(1.0 / p) + d * math.log1p(n / (d * level)))
        noise = rectangle_bound(sums.reward_noise, d, 1, p) / math.sqrt(level)
        return sampling + noise + 3.0 * math.sqrt(level) * self._widths.weight_bound

    def _next_beta(self, half: float) -> float:
        """Beta for values of half range ``half``."""
        p, level, d = self._event(len(self._sums.gram)), self.ridge / 2.0, self._dimension
        S = self._shape[0]
        n = self._widths.samples * self._horizon / len(self._sums.gram)
        logs = 2.0 * math.log(1.0 / p) + 2.0 * S * math.log1p(math.sqrt(n))
        sampling = math.sqrt(logs + d * math.log1p(n / (d * level))) + 2.0
        noise = rectangle_bound(self._sums.noise, d, S, p) * math.sqrt(S / level)
        return half * (sampling + noise + 3.0 * math.sqrt(level) * self._widths.weight_bound)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        means, widths = self._rewards
        at = min(step, len(means) - 1)
        return means[at], widths[at]

    def targets(self, values: Floats) -> None:
        """Sums of features answer every question."""

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        at = min(step, len(self.inverse) - 1)
        inverse, sums = self.inverse[at], self._sums
        leverage, length = self.lengths(at)
        probabilities = None if self._widths.theory else self._projected(at)
        means, widths = [], []
        for value in values:
            middle, half = middle_of(value)
            centred = value - middle
            weights = inverse @ (sums.following[at] @ centred)
            if probabilities is not None:
                mean = probabilities @ centred
            else:
                mean = np.clip(self._features @ weights, -half, half)
            means.append(mean + middle)
            if self._widths.theory:
                widths.append(self._next_beta(half) * np.sqrt(leverage))
                continue
            variance = spread_of(centred, half)
            from_gram = sums.gram_noise**2 * min(weights @ weights, self._dimension * half**2)
            noise = sums.noise**2 * (centred @ centred) + from_gram
            squares = variance * leverage + noise * length
            widths.append(self._widths.practical(squares, variance * self.ridge**2 * length))
        shape = (len(values), *self._shape)
        return np.array(means).reshape(shape), np.array(widths).reshape(shape)

    def lengths(self, at: int) -> tuple[Floats, Floats]:
        """Of all states and actions, phi' Lambda^-1 phi and |Lambda^-1 phi|^2."""
        if at not in self._lengths:
            x = self._features @ self.inverse[at]
            leverage = np.maximum(np.einsum("nd,nd->n", x, self._features), 0.0)
            self._lengths[at] = leverage, np.einsum("nd,nd->n", x, x)
        return self._lengths[at]

    def _projected(self, at: int) -> Floats | None:
        """Predicted probabilities (S A, S) as distributions; ``None`` where they are too many."""
        if at not in self._probabilities:
            S = self._shape[0]
            rows = None
            if len(self._features) * S <= _MOST_PROBABILITIES:
                raw = self._features @ (self.inverse[at] @ self._sums.following[at])
                rows = distributions(raw)
            self._probabilities[at] = rows
        return self._probabilities[at]

    def precision(self) -> Floats:
        """Regularised Grams in units of their ridge."""
        units = np.eye(self._dimension)
        return positive_part(self._sums.gram) / self.ridge + units


class AnswerModel:
    """Regression on sums for exactly the value functions that planning asks about.

    Targets are values around their middle, in units of half their range. All of a step share one
    budget, of which the first gets most.

    Args:
        features: (S, A, d).
        sums: Grams and rewards of all steps, without next states.
        widths: practical ones.
        pooled_rewards: whether one reward function serves all steps.
    """

    def __init__(
        self, features: Floats, sums: Sums, widths: LinearWidths, pooled_rewards: bool
    ) -> None:
        self._sums = sums
        rewards = sums.pooled() if pooled_rewards else sums
        self._base = SumModel(features, sums, rewards, widths, len(sums.gram))
        self._features = features.reshape(-1, features.shape[2])
        self._shape = features.shape[:2]
        self._widths = widths

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        return self._base.rewards(step)

    def targets(self, values: Floats) -> Floats | None:
        """What users are asked; values that are the same everywhere need no question."""
        targets, _, _, shares = _in_units(values)
        return targets * shares[:, np.newaxis] if targets.any() else None

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        targets, middles, halves, shares = _in_units(values)
        shape = (len(values), *self._shape)
        if answer is None:
            known = np.broadcast_to(middles[:, np.newaxis, np.newaxis], shape)
            return known, np.zeros(shape)
        answers, noise = answer[0] / shares[:, np.newaxis], answer[1]
        inverse = self._base.inverse[step]
        weights = answers @ inverse  # in units of half the range
        leverage, length = self._base.lengths(step)
        means = np.clip(weights @ self._features.T, -1.0, 1.0)
        variance = np.array([spread_of(target, 1.0) for target in targets])
        long = np.minimum((weights**2).sum(axis=1), self._features.shape[1])
        noises = (noise / shares) ** 2 + self._sums.gram_noise**2 * long
        squares = variance[:, np.newaxis] * leverage + noises[:, np.newaxis] * length
        of_ridge = variance[:, np.newaxis] * self._base.ridge**2 * length
        back = halves[:, np.newaxis]
        return (
            (means * back + middles[:, np.newaxis]).reshape(shape),
            (self._widths.practical(squares, of_ridge) * back).reshape(shape),
        )

    def precision(self) -> Floats:
        """See :class:`~tacit.linear.estimate.LinearModel`."""
        return self._base.precision()


def _in_units(values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Value functions in [-1, 1], their middles, half ranges, and shares of the budget."""
    middles, halves = np.array([middle_of(value) for value in values]).T
    targets = (values - middles[:, np.newaxis]) / halves[:, np.newaxis]
    shares = np.array([1.0] + [_LATER_QUESTIONS] * (len(values) - 1))
    return targets, middles, halves, shares
