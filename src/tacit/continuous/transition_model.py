"""Posterior of transitions, from noisy second moments: a Kalman filter for every output."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.privacy.statistic import Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

# Chosen on other seeds than are reported.
_DECAY = 0.5  # of believed weights from degree to degree
_WEIGHT = 8.0  # squared length of residuals in a step, beside features of length p
# By which a prior is scaled down, and up, at most, as residuals say.
_LEAST_ENERGY, _MOST_ENERGY = 0.3, 4.0
# Part of users who try held actions all the time, at most, at least, and over the posterior's part
# of the prior variance; and the chance that others begin to, over how long they hold one.
_EXPLORERS, FEWEST, _CURIOUS, _BURSTS = 0.5, 0.02, 50.0, 0.2
# The largest degree, and how many features there may be for it to be so.
_DEGREE, _MOST = 3, 128
# Chance moves states by at most so much, in squares of the largest believed moves.
_MOST_CHANCE = 0.25


@dataclass(frozen=True, eq=False)
class PolynomialFeatures:
    """Features of a state and an action, p of them, made of public numbers.

    A coordinate is scaled to [-1, 1], and clipped to twice that; an angle counts as its sine and
    its cosine. The features are all products of up to three of these (fewer where there would be
    more than 128), in which a cosine occurs at most once; and the action's push times those of
    degree at most 1.
    """

    lows: Floats
    highs: Floats
    angles: tuple[int, ...]
    pushes: Floats  # (A, k)

    @classmethod
    def of(cls, spec: BoxSpec, lows: Floats, highs: Floats) -> PolynomialFeatures:
        """Features of a spec; pushes are contrasts of actions where none are known."""
        known = getattr(spec, "pushes", None)
        pushes = _contrasts(spec.actions) if known is None else np.array(known, dtype=np.float64)
        return cls(lows, highs, getattr(spec, "angles", ()), pushes)

    @cached_property
    def _simple(self) -> list[tuple[int, int]]:
        """Factors, with a coordinate each: 0 for it, scaled, 1 for its sine, 2 for its cosine."""
        found: list[tuple[int, int]] = []
        for i in range(len(self.lows)):
            found += [(1, i), (2, i)] if i in self.angles else [(0, i)]
        return found

    @cached_property
    def products(self) -> list[tuple[int, ...]]:
        """Which are multiplied in each feature without a push."""
        simple = self._simple
        for degree in range(_DEGREE, 0, -1):
            found = [
                chosen
                for k in range(degree + 1)
                for chosen in itertools.combinations_with_replacement(range(len(simple)), k)
                if all(simple[v][0] != 2 or chosen.count(v) == 1 for v in chosen)
            ]
            if len(found) + self.pushes.shape[1] * (len(simple) + 1) <= _MOST or degree == 1:
                return found
        raise AssertionError

    @cached_property
    def degrees(self) -> Ints:
        """Of every feature, (p,), that of the state alone."""
        own = [len(chosen) for chosen in self.products]
        return np.array(own + self.pushes.shape[1] * [own[i] for i in self._pushed], dtype=np.int64)

    @property
    def size(self) -> int:
        """How many features there are, p."""
        return len(self.degrees)

    @cached_property
    def _pushed(self) -> list[int]:
        return [i for i, chosen in enumerate(self.products) if len(chosen) <= 1]

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Ints, Ints, Ints, Ints, Ints]:
        index = {chosen: i for i, chosen in enumerate(self.products)}
        chain = [(index[c[:-1]], c[-1]) if c else (0, 0) for c in self.products]
        kinds, coordinates = np.array(self._simple, dtype=np.int64).T
        parents, factors = np.array(chain, dtype=np.int64).T
        middle, half = 0.5 * (self.lows + self.highs), 0.5 * (self.highs - self.lows)
        order = kinds, coordinates, parents, factors, np.array(self._pushed, dtype=np.int64)
        return middle, half, *map(np.ascontiguousarray, order)  # type: ignore[return-value]

    def __call__(self, states: Floats, actions: Ints) -> Floats:
        """Features (n, p) of finite states (n, D) and actions (n,)."""
        from tacit.continuous.agent_loops import polynomial_features

        out = np.empty((len(states), self.size))
        polynomial_features(np.ascontiguousarray(states), self.pushes[actions], *self._tables, out)
        return out


def _contrasts(actions: int) -> Floats:
    """Orthogonal rows with mean zero that tell actions apart, of length sqrt(A - 1)."""
    values, vectors = np.linalg.eigh(np.eye(actions) - 1.0 / actions)
    return np.ascontiguousarray(vectors[:, values > 0.5] * np.sqrt(actions))


@dataclass(frozen=True, eq=False)
class TransitionPosterior:
    """Believed weights of features, for every output, and their posterior covariances.

    With ``chance`` residuals are measured by ``rest``, too, and only what weights explain of them
    scales a prior.
    """

    features: PolynomialFeatures  # that moves are linear in, p of them
    units: Floats  # (outputs,), how large moves are
    chance: bool  # whether moves may stray by chance
    model: Floats  # (p, outputs), the posterior means
    spread: Floats  # (outputs, p, p), the posterior covariances, in squares of ``units``
    rest: Floats  # (outputs,), how much moves stray by chance, in the same; 0 unless ``chance``

    @classmethod
    def prior(
        cls, features: PolynomialFeatures, units: Floats, chance: bool = False
    ) -> TransitionPosterior:
        """Before any release."""
        p, n = features.size, len(units)
        spread = np.tile(np.diag(_variances(features)), (n, 1, 1))
        return cls(features, units, chance, np.zeros((p, n)), spread, np.zeros(n))

    def metric(self) -> tuple[Floats, Floats, Floats]:
        """Metric and scales of the next statistic, and the outputs' relative size.

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
        weight = math.sqrt(_WEIGHT / p)
        return root, self.units * np.sqrt(relative) / weight, relative

    def after(self, moments: Floats, std: float, users: int) -> TransitionPosterior:
        """The posterior with noisy moments of so many users, in the present metric.

        With G the moments of features, C those with residuals and R of residuals, C = G d + noise
        for the weights d that the model lacks, in stretched units.
        """
        p = self.features.size
        root, scales, relative = self.metric()
        inverse, weight = np.linalg.inv(root), _WEIGHT / p
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
                rested = self._solved(prior, gram, cross[:, o], explained, std, users)[2]
                explained -= rested * users
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
        """The weights' mean, the gain, and the part of a residual that they do not explain."""
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
        prior = np.sum(_variances(self.features))
        return float(np.trace(self.spread, axis1=1, axis2=2).mean() / prior)

    def exploration(self) -> tuple[float, float]:
        """Part of users who explore, and how often others do: less, the more is known."""
        explorers = min(_EXPLORERS, max(FEWEST, _CURIOUS * self.unknown))
        return explorers, _BURSTS * explorers

    def _believed(self, energy: float, std: float, expected: float) -> float:
        """Factor of a prior, by the released size of residuals."""
        high = (max(energy, 0.0) + std) / expected
        if high > 1.0:
            high = max(1.0, min((energy - std) / expected, _MOST_ENERGY))
        return max(high, _LEAST_ENERGY)


def _variances(features: PolynomialFeatures) -> Floats:
    """Of weights a priori, (p,), in squares of moves' units."""
    return np.asarray(_DECAY ** (2.0 * np.maximum(features.degrees - 1, 0)))
