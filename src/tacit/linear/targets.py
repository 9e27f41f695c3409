"""The way to ask for the values themselves, of all recent users again after every block.

A round asks for Grams and rewards, and then, last step first, for the very values that planning has
arrived at. Older blocks have less weight, and pay less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Floats
from tacit.core.asks import Ask, below
from tacit.linear.estimate import add_features, feature_sums, middle_of, spread_of
from tacit.linear.features import FeatureWay, SumModel
from tacit.linear.statistics import FeatureSums, TargetSums
from tacit.numerics.block_sums import BlockSums

if TYPE_CHECKING:
    from tacit.linear.base import LinearAlgorithm
    from tacit.linear.estimate import Answer, LinearWidths, Sums
    from tacit.privacy.curators.gate import Release

Predicted: TypeAlias = tuple[Floats, Floats]
"""Means and widths."""

# What later value functions are multiplied by when users are asked about several.
_LATER_QUESTIONS = 0.5


class Predictions:
    """What the last round said, for a successor: users are kept from round to round, not sums.

    Attributes:
        made: means and widths of rewards (H, S, A) and of next values, and which values these
            are (H, S), of the last round.
        before: those of the last round of a predecessor.
    """

    def __init__(self) -> None:
        self.made: dict[str, Floats] = {}
        self.before: dict[str, Floats] = {}

    def note(self, step: int, rows: dict[str, Floats], steps: int) -> None:
        """Keeps what was predicted of a step."""
        for name, row in rows.items():
            if name not in self.made:
                self.made[name] = np.zeros((steps, *row.shape))
            self.made[name][step] = row
        self.made = dict(sorted(self.made.items()))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a save holds."""
        kept = {"made": self.made, "before": self.before}
        return {}, {f"{k}/{name}": array for k in kept for name, array in kept[k].items()}

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Puts back what :meth:`dump` returned."""
        kept = dict(sorted(arrays.items()))
        self.made, self.before = below(kept, "made/"), below(kept, "before/")


def combined(one: Predicted, other: Predicted) -> Predicted:
    """Two predictions of the same, each weighted by one over the square of its width."""
    (mean, width), (also, wide) = one, other
    both = np.maximum(width**2 + wide**2, 1e-300)
    return mean + width**2 / both * (also - mean), width * wide / np.sqrt(both)


class TargetWay(FeatureWay):
    """Nothing is kept from round to round but users, and what the last round said."""

    following = False
    _model: AnswerModel

    def __init__(self, algorithm: LinearAlgorithm) -> None:
        super().__init__(algorithm)
        self.known = Predictions()

    def begin_anew(self) -> None:
        """What a predecessor said last is combined with what its own users say."""
        self.known.before, self.known.made = self.known.made, {}

    def ask(self, statistic: FeatureSums) -> Ask:
        """Grams and rewards."""
        round_ = self._algorithm.round
        return Ask(statistic, mu=round_.gram_mu, decay=round_.decay)

    def take_in(self, release: Release, statistic: FeatureSums) -> None:
        """What the Grams and rewards of a round say; about next values users must be asked."""
        of, sums = self._algorithm, BlockSums()
        add_features(sums, release, statistic, of.block_users)
        pooled_rewards = of.spec.stationary_rewards
        given = of.features, feature_sums(sums), of.widths, pooled_rewards
        self._model = AnswerModel(*given, self.known)

    def model(self) -> AnswerModel:
        """That of the round."""
        return self._model

    def question(self, step: int, values: Floats) -> Ask | None:
        """What came of a step, for targets in [-1, 1] of its next state."""
        targets = self._model.targets(values)
        if targets is None:
            return None
        of, weights = self._algorithm, self._algorithm.step_weights
        here = None if weights is None else weights[min(step, len(weights) - 1)]
        statistic = TargetSums(of.features, of.spec.horizon, step, targets, here)
        return Ask(statistic, mu=of.round.target_mu, decay=of.round.decay)


class AnswerModel(SumModel):
    """Regression on sums for exactly the value functions that planning asks about.

    Targets are values around their middle, in units of half their range. All of a step share one
    budget, of which the first gets most. ``sums`` are Grams and rewards of all steps; with
    ``pooled_rewards`` one reward function serves all.
    """

    def __init__(
        self,
        features: Floats,
        sums: Sums,
        widths: LinearWidths,
        pooled_rewards: bool,
        known: Predictions,
    ) -> None:
        rewards = sums.pooled() if pooled_rewards else sums
        super().__init__(features, sums, rewards, widths)
        self._known, self._steps = known, len(sums.gram)

    def rewards(self, step: int) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`; with what a predecessor said."""
        found, before = super().rewards(step), self._known.before
        if before:
            found = combined(found, (before["rewards"][step], before["reward_widths"][step]))
        rows = {"rewards": found[0], "reward_widths": found[1]}
        self._known.note(step, rows, self._steps)
        return found

    def targets(self, values: Floats) -> Floats | None:
        """What users are asked; values that are the same everywhere need no question."""
        targets, _, _, shares = _in_units(values)
        return targets * shares[:, np.newaxis] if targets.any() else None

    def next_values(
        self, step: int, values: Floats, answer: Answer | None = None
    ) -> tuple[Floats, Floats]:
        """See :class:`~tacit.linear.estimate.LinearModel`; with what a predecessor said.

        That was about other values W. If V - W is within e of a number c, then P V is within e of
        c + P W.
        """
        means, widths = self._own_values(step, values, answer)
        before = self._known.before
        if before:
            middle, half = middle_of(values[0] - before["values"][step])
            told = before["means"][step] + middle, before["widths"][step] + half
            means, widths = np.array(means), np.array(widths)
            means[0], widths[0] = combined((means[0], widths[0]), told)
        rows = {"means": means[0], "widths": widths[0], "values": values[0]}
        self._known.note(step, rows, self._steps)
        return means, widths

    def _own_values(self, step: int, values: Floats, answer: Answer | None) -> Predicted:
        targets, middles, halves, shares = _in_units(values)
        shape = (len(values), *self._shape)
        if answer is None:
            known = np.broadcast_to(middles[:, np.newaxis, np.newaxis], shape)
            return known, np.zeros(shape)
        answers, noise = answer[0] / shares[:, np.newaxis], answer[1]
        weights = answers @ self.inverse[step]  # in units of half the range
        leverage, length = self.lengths(step)
        means = np.clip(weights @ self._features.T, -1.0, 1.0)
        variance = np.array([spread_of(target, 1.0) for target in targets])
        long = np.minimum((weights**2).sum(axis=1), self._features.shape[1])
        noises = (noise / shares) ** 2 + self._sums.gram_noise**2 * long
        squares = variance[:, np.newaxis] * leverage + noises[:, np.newaxis] * length
        of_ridge = variance[:, np.newaxis] * self.ridge**2 * length
        back = halves[:, np.newaxis]
        return (
            (means * back + middles[:, np.newaxis]).reshape(shape),
            (self._widths.practical(squares, of_ridge) * back).reshape(shape),
        )


def _in_units(values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Value functions in [-1, 1], their middles, half ranges, and shares of the budget."""
    middles, halves = np.array([middle_of(value) for value in values]).T
    targets = (values - middles[:, np.newaxis]) / halves[:, np.newaxis]
    shares = np.array([1.0] + [_LATER_QUESTIONS] * (len(values) - 1))
    return targets, middles, halves, shares
