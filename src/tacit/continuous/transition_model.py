"""What is believed of transitions and of where episodes end, from releases.

Transitions have a Kalman filter for every output, fed with noisy second moments. Episodes end
beyond a box, by noisy histograms, or else where a regression says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.continuous.transition_moments import (
    BINS,
    GOING,
    TerminationHistogram,
    TerminationMoments,
)
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec
    from tacit.privacy.curator import Release

_DECAY = 0.5  # of believed weights from degree to degree  # chosen on other seeds than are reported
_WEIGHT = 8.0  # squared length of residuals in a step, beside features of length p
# By which a prior is scaled down, and up, at most, as residuals say.
_LEAST_ENERGY, _MOST_ENERGY = 0.3, 4.0
# Part of users who try held actions all the time, at most, at least, and over the posterior's part
# of the prior variance; and the chance that others begin to, over how long they hold one.
_EXPLORERS, FEWEST, _CURIOUS, _BURSTS = 0.5, 0.02, 50.0, 0.2
_DEGREE, _MOST = 3, 128  # the largest degree, and how many features there may be for it to be so
# Chance moves states by at most so much, in squares of the largest believed moves.
_MOST_CHANCE = 0.25
_SURE, _LIKELY = 4.0, 2.0  # standard deviations of noise from which on ends are sure, and likely
# The part of ends that bounds along a coordinate have to explain; more would be others' too.
_ENOUGH, _TOO_MUCH = 0.8, 1.2
_A_BOX = 0.5  # a box that explains less of the ends than this is none
# Where users have been: bins of so many standard deviations, and so much more on either side.
_SEEN, _AROUND = 3.0, 0.5
_STALLED = 2  # blocks after which users give up hope to get farther
_SIGN = 0.5  # states count as an end from this value of the regression of signs on


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

    @property
    def tables(self) -> dict[str, Any]:
        """Arrays by which :func:`tacit.published.simulators.polynomial` makes the same features."""
        names = "middles", "halves", "kinds", "coordinates", "parents", "factors", "pushed"
        return {"pushes": self.pushes, **dict(zip(names, self._tables, strict=True))}

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
    noise: Floats  # (outputs,), the same always, as a standard deviation in their own units

    @classmethod
    def prior(
        cls, features: PolynomialFeatures, units: Floats, chance: bool = False
    ) -> TransitionPosterior:
        """Before any release."""
        p, n = features.size, len(units)
        spread = np.tile(np.diag(_variances(features)), (n, 1, 1))
        return cls(features, units, chance, np.zeros((p, n)), spread, np.zeros(n), units)

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

    def after(self, moments: Floats, std: float, users: float) -> TransitionPosterior:
        """The posterior with noisy moments of so many users, in the present metric.

        With G the moments of features, C those with residuals and R of residuals, C = G d + noise
        for the weights d that the model lacks, in stretched units.
        """
        p = self.features.size
        root, scales, relative = self.metric()
        inverse, weight = np.linalg.inv(root), _WEIGHT / p
        gram, cross = moments[:p, :p], moments[:p, p:]
        energy = np.diag(moments)[p:]
        users = max(float(users), float(np.trace(moments)))  # in matrices of trace one
        values, vectors = np.linalg.eigh(gram)
        gram = (vectors * np.maximum(values, 0.0)) @ vectors.T
        share = min(max(float(np.trace(moments[:p, :p])) / users, 0.2), 1.0)
        model, spread, rest = self.model.copy(), self.spread.copy(), self.rest.copy()
        noise = self.noise.copy()
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
            strays = min(left * (scales[o] / self.units[o]) ** 2 * square, _MOST_CHANCE)
            rest[o], noise[o] = strays * self.chance, self.units[o] * math.sqrt(strays)
            posterior = prior - gain @ gram @ prior
            even = 0.5 * (posterior + posterior.T)
            model[:, o] += root @ d * scales[o]
            spread[o] = root @ even @ root * (relative[o] / weight)
        return replace(self, model=model, spread=spread, rest=rest, noise=noise)

    def drawn(self, draws: int, rng: np.random.Generator) -> dict[str, Floats]:
        """Draws of the weights, (draws, p, outputs), and how far moves stray by chance."""
        found = np.tile(self.model, (draws, 1, 1))
        for o, unit in enumerate(self.units):
            values, vectors = np.linalg.eigh(self.spread[o])
            root = vectors * (unit * np.sqrt(np.maximum(values, 0.0)))
            found[:, :, o] += rng.standard_normal((draws, len(values))) @ root.T
        return {"weights": found, "noise": self.noise[: len(self.features.lows)]}

    @staticmethod
    def _solved(
        prior: Floats, gram: Floats, cross: Floats, energy: float, std: float, users: float
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


@dataclass(eq=False)
class TerminationBox:
    """The box in which episodes go on, by histograms along its coordinates; a value.

    Ends are bins in which more episodes end than noise can say, and fewer go on than could be
    there. Along one coordinate after the other, the ones with the most prominent bins first, bounds
    are moved inwards until they explain the ends that are left.

    Where rewards are >= 0, states that no user has been to count as ends, too, once there are any.
    Where they are <= 0, users who explore hope for an end there as long as none has been found;
    along a coordinate in which they got no farther for two blocks they give up.
    """

    edges: tuple[Floats, Floats]  # the lower and the upper corner of the box that is asked about
    coordinates: Ints  # (c,), those that are asked about
    reward_range: tuple[float, float]
    ends: Floats  # released, summed over blocks, as the next two
    going: Floats
    lengths: Floats
    lows: Floats  # between these, episodes go on
    highs: Floats
    seen: Ints  # (c, 2), the first bin that users have surely been to, and the one after the last
    stalled: Ints  # (c, 2), for how many blocks they got no farther
    variance: float = 0.0  # of the releases' noise
    explained: float = 1.0  # the part of ends that is beyond, surely

    @classmethod
    def of(cls, asked: TerminationHistogram) -> TerminationBox:
        """Before any release."""
        known = (asked.lows, asked.highs), asked.coordinates, asked.spec.reward_range
        ends, going = np.zeros((2, len(asked.coordinates), BINS))
        sums = ends, going, np.zeros(asked.spec.horizon.bit_length())
        seen: Ints = np.full((len(ends), 2), -1)
        return cls(*known, *sums, asked.lows, asked.highs, seen, np.zeros_like(seen))

    def after(self, parts: Mapping[str, Floats], std: float) -> TerminationBox:
        """With one more release."""
        new, before = copy(self), self.seen
        new.ends, new.going = self.ends + parts["ends"], self.going + parts["going"]
        new.lengths, new.variance = self.lengths + parts["lengths"], self.variance + std**2
        new._find()
        farther = (new.seen - before) * (-1, 1) > 0
        new.stalled = np.where(farther | (before < 0), 0, self.stalled + 1)
        return new

    @property
    def total(self) -> float:
        """Episodes that ended, zero where that is not sure."""
        total = float(self.lengths.sum())
        return total if total > _SURE * math.sqrt(self.variance * len(self.lengths)) else 0.0

    def _find(self) -> None:
        """Sets the bounds, from all releases."""
        first, last = self.edges
        self.lows, self.highs, self.explained = first.copy(), last.copy(), 1.0
        left = total = self.total
        noise, unsure = math.sqrt(self.variance), self.variance * len(self.lengths)
        often = 2.0 ** float(self.lengths.argmax())
        stays = often * np.maximum(self.going - _LIKELY * noise / GOING, 0.0)
        sure = (self.ends > _SURE * noise) & (self.ends > stays)
        rest = set(range(len(self.coordinates)))
        while rest and left > 3.0 * math.sqrt(unsure):
            found = (self._beyond(k, sure[k], left, unsure) for k in sorted(rest))
            score, k, out = max(found, key=lambda one: one[0])
            if not score:
                break
            rest.remove(k)
            inside, i = np.flatnonzero(~out), self.coordinates[k]
            size = (last[i] - first[i]) / BINS
            self.lows[i] = max(self.lows[i], first[i] + size * inside[0])
            self.highs[i] = min(self.highs[i], first[i] + size * (inside[-1] + 1))
            left -= float(self.ends[k, out].sum())
            unsure += self.variance * float(out.sum())
        if total:
            spread = math.sqrt(self.variance * (len(self.lengths) + BINS))
            self.explained = 1.0 - (left - _LIKELY * spread) / total
        self._look_around()
        if self.reward_range[0] >= 0.0 and total:
            lows, highs = self._around_seen(self.seen >= 0)
            # Noise may say that users have been beyond an end only; then that end counts.
            below = (self.lows == first) & (lows < self.highs)
            above = (self.highs == last) & (highs > self.lows)
            self.lows = np.where(below, lows, self.lows)
            self.highs = np.where(above, highs, self.highs)

    def _beyond(self, k: int, sure: Bools, left: float, unsure: float) -> tuple[float, int, Bools]:
        """Prominence of sure ends along a coordinate, and which bins are beyond the bounds."""
        middle, out = self._middle(k), np.zeros(BINS, dtype=np.bool_)
        at: Ints = np.flatnonzero(sure)
        at = at[np.argsort(-np.abs(at + 0.5 - middle), kind="stable")]
        enough = int(np.searchsorted(np.cumsum(self.ends[k, at]), _ENOUGH * left))
        at = at[: enough + 1]
        above, below = at[at + 0.5 > middle], at[at + 0.5 < middle]
        if len(above):
            out[above.min() :] = True
        if len(below):
            out[: below.max() + 1] = True
        most = _TOO_MUCH * left + _LIKELY * math.sqrt(unsure + self.variance * float(out.sum()))
        if out.all() or float(self.ends[k, out].sum()) > most:
            return 0.0, k, out
        return float((self.ends[k, at] ** 2).sum()), k, out

    def _middle(self, k: int) -> float:
        """The middle of where episodes go on, in bins; that of the box if it is not known."""
        bins, total = np.arange(BINS) + 0.5, float(self.going[k].sum())
        error = math.sqrt(self.variance * np.sum((bins - BINS / 2) ** 2)) / GOING
        if total <= 0.0 or error > 2.0 * total:
            return BINS / 2
        return float(bins @ self.going[k]) / total

    def _look_around(self) -> None:
        """Where users have surely been."""
        noise = math.sqrt(self.variance) / GOING
        self.seen = np.full_like(self.stalled, -1)
        for k, share in enumerate(self.going):
            there = np.flatnonzero(share > _SEEN * noise)
            if len(there) > 1 and share[there].sum() >= 0.5 * share.sum():
                self.seen[k] = there[0], there[-1] + 1

    def _around_seen(self, sides: Bools) -> tuple[Floats, Floats]:
        """Bounds around where users have been, on some sides (c, 2); those of the box on others."""
        around = _AROUND * (self.seen[:, 1] - self.seen[:, 0]) if self.variance else 0.0
        lows, highs, at = self.edges[0].copy(), self.edges[1].copy(), self.coordinates
        size = (highs - lows)[at] / BINS
        low = np.maximum(self.seen[:, 0] - around, 0)
        high = np.minimum(self.seen[:, 1] + around, BINS)
        lows[at] += size * np.where(sides[:, 0], low, 0)
        highs[at] = np.where(sides[:, 1], self.edges[0][at] + size * high, highs[at])
        return lows, highs

    @property
    def hope(self) -> tuple[Floats, Floats] | None:
        """Bounds beyond which ends are hoped for; ``None`` if nowhere."""
        if self.reward_range[1] > 0.0 or self.total:
            return None
        lows, highs = self._around_seen((self.seen >= 0) & (self.stalled < _STALLED))
        some = (lows > self.edges[0]).any() or (highs < self.edges[1]).any()
        return (lows, highs) if some else None

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Bounds between which episodes go on."""
        lows, highs = self.lows, self.highs
        if self.reward_range[0] < 0.0:
            # Where the box that is asked about ends, nothing else does: states may be open there.
            lows = np.where(lows > self.edges[0], lows, -np.inf)
            highs = np.where(highs < self.edges[1], highs, np.inf)
        return lows, highs

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        lows, highs = self.bounds
        return np.asarray(np.any((states < lows) | (states > highs), axis=1))


@dataclass(frozen=True, eq=False)
class TerminationRegression:
    """Where episodes end, by regression of signs on features of states."""

    features: PolynomialFeatures  # that the boundary is linear in
    moments: Floats  # released, summed over blocks
    variance: float = 0.0  # of their noise

    @classmethod
    def of(cls, features: PolynomialFeatures) -> TerminationRegression:
        """Before any release."""
        return cls(features, np.zeros((features.size + 1,) * 2))

    def after(self, moments: Floats, std: float) -> TerminationRegression:
        """With one more release."""
        moments, variance = self.moments + moments, self.variance + std**2
        return replace(self, moments=moments, variance=variance)

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        z = self.features(states, np.zeros(len(states), dtype=np.int64))
        return np.asarray(z @ self.weights > _SIGN)

    @property
    def weights(self) -> Floats:
        """Of the features: episodes are over where their sum is above one half."""
        p = self.features.size
        values, vectors = np.linalg.eigh(self.moments[:p, :p])
        # A random symmetric matrix has eigenvalues up to sqrt(2 p) times its off-diagonal entries'.
        ridge = math.sqrt(self.variance * p) + 1e-3 * max(float(np.trace(self.moments)), 0.0)
        rotated = vectors.T @ self.moments[:p, p]
        return np.asarray(vectors @ (rotated / (np.maximum(values, 0.0) + ridge + 1e-9)))


@dataclass(frozen=True, eq=False)
class TerminationModel:
    """Where episodes end: beyond a box, if one explains the ends, or else by regression."""

    box: TerminationBox
    signs: TerminationRegression

    @property
    def boxed(self) -> bool:
        """Whether a box is believed in, and asked about."""
        return bool(len(self.box.coordinates)) and self.box.explained >= _A_BOX

    def query(self, spec: BoxSpec) -> TerminationHistogram | TerminationMoments:
        """The statistic that the next block is asked."""
        if self.boxed:
            return TerminationHistogram(spec, *self.box.edges)
        return TerminationMoments(spec, self.signs.features)

    def after(self, release: Release) -> TerminationModel:
        """With one more release."""
        if self.boxed:
            box = self.box.after(release.parts, float(np.max(release.std["ends"])))
            return replace(self, box=box)
        std = float(np.max(release.std["moments"]))
        return replace(self, signs=self.signs.after(release["moments"], std))

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        return self.box(states) if self.boxed else self.signs(states)
