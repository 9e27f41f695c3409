"""A posterior of how states move, from noisy second moments: a Kalman filter for every output."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.continuous.monomials import Monomials
from tacit.privacy.statistic import Floats


@dataclass(frozen=True)
class ModelConstants:
    """Tuned numbers of the agent with a model, chosen on other seeds than are reported."""

    first: float = 120.0  # users of the first block, over mu
    least_first: int = 16  # and at least so many
    growth: float = 2.0  # the users served grow by at most this factor from block to block
    scales: float = 0.2  # part of the first block's mu^2 that is spent on scales
    widest: float = 4.0  # how far weights are believed to lead, in root mean squares of a move
    decay: float = 0.5  # of believed weights from degree to degree
    weight: float = 8.0  # squared length of residuals in a step, beside features of length p
    least_energy: float = 0.3  # by which a prior is scaled down at most, as residuals say,
    most_energy: float = 4.0  # and up
    ends: float = 0.3  # part of mu^2 that is spent on ends, where they have to be learnt
    # Part of users who try held actions all the time, at most, at least, and over what is unknown:
    explorers: float = 0.5
    fewest: float = 0.02
    curious: float = 50.0  # the posterior's part of the prior variance, times this
    bursts: float = 0.2  # chance that others begin to, over how long they hold one and explorers


MODEL = ModelConstants()
"""What is taken by default."""


# Chance moves states by at most so much, in squares of the largest believed moves.
_MOST_CHANCE = 0.25


@dataclass(frozen=True, eq=False)
class MoveModel:
    """Believed weights of features, for every output, and their posterior covariances.

    Attributes:
        features: what moves are linear in, p of them.
        units: (outputs,), how large moves are.
        constants: tuned numbers.
        chance: whether moves may stray by chance.
        model: (p, outputs), the posterior means.
        spread: (outputs, p, p), the posterior covariances, in squares of ``units``.
        rest: (outputs,), how much moves stray by chance, in squares of ``units``; 0 unless
            ``chance``. Residuals are then measured by it too, and only what weights explain of them
            scales a prior. Steps are divided by their lengths all the same, so that what is learnt
            of moves that are mostly chance is nearer to likely ones than to their mean.
    """

    features: Monomials
    units: Floats
    constants: ModelConstants
    chance: bool
    model: Floats
    spread: Floats
    rest: Floats

    @classmethod
    def prior(
        cls, features: Monomials, units: Floats, constants: ModelConstants, chance: bool = False
    ) -> MoveModel:
        """Before any release."""
        p, n = features.size, len(units)
        decay = constants.decay ** (2.0 * np.maximum(features.degrees - 1, 0))
        spread = np.tile(np.diag(decay), (n, 1, 1))
        return cls(features, units, constants, chance, np.zeros((p, n)), spread, np.zeros(n))

    def metric(self) -> tuple[Floats, Floats, Floats]:
        """What the next statistic measures steps by: metric, scales, and outputs' relative size.

        Features are stretched to where weights are least known, so that a step is as long as what
        it could tell, and residuals are as long as they are believed to be.
        """
        p, n = self.features.size, len(self.units)
        traces = np.trace(self.spread, axis1=1, axis2=2)
        mean = (self.spread / traces[:, np.newaxis, np.newaxis]).mean(axis=0) * traces.mean()
        values, vectors = np.linalg.eigh(mean)
        values = np.maximum(values, 1e-12 * values[-1])
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse = (vectors / np.sqrt(values)) @ vectors.T
        relative = np.array([np.trace(inverse @ self.spread[o] @ inverse) / p for o in range(n)])
        relative = relative * (1.0 + self.rest / traces)
        weight = math.sqrt(self.constants.weight / p)
        return root, self.units * np.sqrt(relative) / weight, relative

    def after(self, moments: Floats, std: float, users: int) -> MoveModel:
        """The posterior with noisy moments of so many users, asked by the present metric.

        With G the moments of features, C those with residuals and R of residuals, C = G d + noise
        for the weights d that the model lacks, in stretched units.
        """
        constants, p = self.constants, self.features.size
        root, scales, relative = self.metric()
        inverse = np.linalg.inv(root)
        weight = constants.weight / p
        gram, cross = moments[:p, :p], moments[:p, p:]
        energy = np.diag(moments)[p:]
        values, vectors = np.linalg.eigh(gram)
        gram = (vectors * np.maximum(values, 0.0)) @ vectors.T
        share = min(max(float(np.trace(moments[:p, :p])) / users, 0.2), 1.0)
        model, spread, rest = self.model.copy(), self.spread.copy(), self.rest.copy()
        # The first feature is 1: its moments are the mean of one over the squares of lengths.
        square = users / max(float((inverse @ gram @ inverse)[0, 0]), 1e-9 * users)
        for o in range(len(self.units)):
            prior = inverse @ self.spread[o] @ inverse / relative[o] * weight
            explained, expected = float(energy[o]), users * weight * share
            if self.chance:
                explained -= (
                    self._solved(prior, gram, cross[:, o], explained, std, users)[2] * users
                )
            prior = prior * self._believed(explained, std, expected)
            d, gain, left = self._solved(prior, gram, cross[:, o], float(energy[o]), std, users)
            if self.chance:
                rest[o] = min(left * (scales[o] / self.units[o]) ** 2 * square, _MOST_CHANCE)
            posterior = prior - gain @ gram @ prior
            even = 0.5 * (posterior + posterior.T)
            model[:, o] += root @ d * scales[o]
            spread[o] = root @ even @ root * (relative[o] / weight)
        return replace(self, model=model, spread=spread, rest=rest)

    @staticmethod
    def _solved(
        prior: Floats, gram: Floats, cross: Floats, energy: float, std: float, users: int
    ) -> tuple[Floats, Floats, float]:
        """The weights' mean, the gain, and what is left of a residual that they do not explain."""
        left, eye = max(energy / users, 1e-10), np.eye(len(gram))
        for _ in range(3):
            noise = std**2 / 2.0 * (1.0 + np.trace(prior))
            seen = gram @ prior @ gram + left * gram + (noise + 1e-9) * eye
            gain = np.linalg.solve(seen, gram @ prior).T
            d = gain @ cross
            rest = float(energy - 2.0 * d @ cross + d @ gram @ d) / users
            left = min(left, max(rest, 0.5 * std / users, 1e-12))
        return d, gain, left

    @property
    def unknown(self) -> float:
        """The part of the prior variance that is left, on average over outputs."""
        prior = np.sum(self.constants.decay ** (2.0 * np.maximum(self.features.degrees - 1, 0)))
        return float(np.trace(self.spread, axis1=1, axis2=2).mean() / prior)

    def exploration(self) -> tuple[float, float]:
        """What part of users explore, and how often others do: less, the more is known."""
        constants = self.constants
        wanted = constants.curious * self.unknown
        explorers = min(constants.explorers, max(constants.fewest, wanted))
        return explorers, constants.bursts * explorers

    def _believed(self, energy: float, std: float, expected: float) -> float:
        """By what a prior is scaled, as the released size of residuals says."""
        high = (max(energy, 0.0) + std) / expected
        if high > 1.0:
            high = max(1.0, min((energy - std) / expected, self.constants.most_energy))
        return max(high, self.constants.least_energy)
